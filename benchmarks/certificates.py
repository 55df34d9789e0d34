"""Certificates of the circuits that greedy searches find: how many, how large, how long they take.

A line for each setting, as a row of the table in ``docs/performance.md``.

    python benchmarks/certificates.py DATA [--only mnist] [--batches 5] [--limit 120]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import torch

import provable_circuits as pc
from provable_circuits.errors import ClaimFailsError
from provable_circuits.zoo.benchmarks import Batch, Benchmark, load_benchmark

SETTINGS = (
    ("mnist", "input", 0.01, 2.0),
    ("mnist", "patching", 0.01, 2.0),
    ("taxinet", "input", 0.01, 2.0),
    ("taxinet", "patching", 0.01, 0.5),
    ("tinytaxinet", "input", 0.01, 2.0),
    ("tinytaxinet", "patching", 0.01, 2.0),
    ("gtsrb", "input", 0.001, 5.0),
    ("gtsrb", "patching", 0.005, 2.0),
    ("cifar10", "input", 0.015, 2.0),
    ("cifar10", "patching", 0.03, 0.1),
)
"""Benchmark, claim, radius and tolerance."""


def claim_of(benchmark: Benchmark, batch: Batch, kind: str, eps: float, delta: float) -> pc.Claim:
    """Input or patching robustness of the logit of a batch's class."""
    metric = pc.LogitDifference(delta, 0 if benchmark.regression else batch.label)
    if kind == "input":
        balls = [pc.Ball(x, eps, clip=benchmark.clip) for x in batch.inputs]
        return pc.Claim(balls, pc.Zero(), metric)
    points = [pc.Point(x) for x in batch.inputs]
    return pc.Claim(points, pc.Reachable(eps, clip=benchmark.clip), metric)


def main() -> None:
    """Go through the settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--limit", type=float, default=None, help="seconds for a certificate")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for name, kind, eps, delta in SETTINGS:
        if asked.only not in f"{name}/{kind}":
            continue
        benchmark = load_benchmark(name, asked.data)
        results = []
        for batch in benchmark.batches(asked.batches):
            claim = claim_of(benchmark, batch, kind, eps, delta)
            try:
                results.append(
                    pc.discover(
                        benchmark.graph,
                        claim,
                        benchmark.granularity,
                        certify_timeout=asked.limit,
                    )
                )
            except ClaimFailsError:
                continue
        proved = [r for r in results if r.faithful == "proved"]
        made = [(r, r.certificate) for r in proved if r.certificate is not None]
        row = [name, kind, f"{eps:g}", f"{delta:g}", f"{len(made)} of {len(proved)}"]
        if made:
            row += [
                f"{median(r.seconds for r, _ in made):.2f}",
                f"{median(c.prove_seconds for _, c in made):.2f}",
                f"{median(c.check_seconds for _, c in made):.2f}",
                f"{max(c.prove_seconds + c.check_seconds for _, c in made):.2f}",
                f"{median(c.size for _, c in made) / 1000:.1f}",
                f"{max(c.size for _, c in made) / 1000:.1f}",
            ]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
