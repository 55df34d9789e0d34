"""Runs of ``discover`` that are killed at random moments, and end as if they had not been.

    python -m tests.discover.journal.soak --kills 50 --seed 0

Each run is a process of its own, killed by SIGKILL as soon as its journal holds a random number of
answers, a moment later, or before it has begun, and started again, several times; its result is
compared with that of a run that nobody killed.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import provable_circuits as pc

CALLS = [
    ["--eps", "0.1", "--delta", "0.02", "--patching", "zero", "--algorithm", "exhaustive"],
    ["--eps", "0.15", "--delta", "0.05", "--patching", "reachable", "--algorithm", "greedy"],
    ["--eps", "0.05", "--delta", "0.03", "--patching", "interval", "--algorithm", "hitting-set"],
]
KILLS = 4
"""How often each run is killed."""

TOLD = ("circuit", "faithful", "kept", "minimality", "stopped")
"""What a result tells that may not depend on how often its run was killed."""


def material(folder: Path) -> None:
    """A network and its data."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4)
    )
    pc.Graph.from_torch(net, torch.zeros(1, 10)).to_onnx(folder / "net.onnx")
    np.savez(folder / "data.npz", x=np.random.default_rng(0).random((3, 10)))


def start(folder: Path, call: list[str], out: str) -> subprocess.Popen[bytes]:
    """A run of the program."""
    arguments = ["discover", "net.onnx", "--data", "data.npz", *call, "--out", out, "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "provable_circuits.cli", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )


def told(folder: Path) -> dict[str, Any]:
    """What the result of a run says."""
    document = pc.Run.load(folder).document
    return {name: document[name] for name in TOLD}


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Which parts of two results are not the same."""
    return [name for name in TOLD if json.dumps(one[name]) != json.dumps(other[name])]


def entries(run: Path) -> int:
    """How many entries the journal of a run holds; none if it is not there yet."""
    path = run / "journal.sqlite"
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            count: int = connection.execute("SELECT count(*) FROM verdicts").fetchone()[0]
            grown: int = connection.execute("SELECT count(*) FROM growths").fetchone()[0]
            return count + grown
    except sqlite3.Error:
        return 0


def killed(folder: Path, call: list[str], out: str, answers: int, moment: float) -> bool:
    """Start a run and kill it once it has so many answers; whether it had not ended before."""
    process = start(folder, call, out)
    while process.poll() is None and entries(folder / out) < answers:
        time.sleep(0.001)
    time.sleep(0.05 * moment)
    process.kill()
    return process.wait() < 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-nodes", type=int, default=30)
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    kills = runs = differ = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        material(folder)
        calls = [[*call, "--max-nodes", str(given.max_nodes)] for call in CALLS]
        answers = []
        for i, call in enumerate(calls):
            start(folder, call, f"whole-{i}").wait()
            answers.append(entries(folder / f"whole-{i}"))
            counts = pc.Run.load(folder / f"whole-{i}").document["queries"]["by_verdict"]
            print(f"{' '.join(call)}: {answers[-1]} entries, {counts}", flush=True)
        while kills < given.kills:
            i = runs % len(calls)
            out = f"killed-{runs}"
            for share in sorted(drawn.random() for _ in range(KILLS)):
                kills += killed(folder, calls[i], out, int(share * answers[i]), drawn.random())
            start(folder, calls[i], out).wait()
            found = differing(told(folder / f"whole-{i}"), told(folder / out))
            differ += bool(found)
            runs += 1
            print(
                f"run {runs}: {kills} kills so far, differing: {', '.join(found) or 'nothing'}",
                flush=True,
            )
    print(f"{kills} kills of {runs} runs; {differ} results differ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
