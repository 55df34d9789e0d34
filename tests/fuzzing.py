"""Damaged files for every reader: seeded mutants, each to be read, or refused in a sentence."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import provable_circuits as pc
from provable_circuits.cli.inputs import open_source
from provable_circuits.cli.runs import read_found
from provable_circuits.errors import ProvableCircuitsError
from provable_circuits.experiments.journal import Journal
from provable_circuits.properties.vnnlib import read_property
from provable_circuits.zoo.idx import read_idx

MOST_CHARACTERS = 500

WORDS = [
    *(b"(", b")", b"[", b"]", b"{", b"}", b'"', b"\\", b":", b",", b"\n", b"\x00", b"\xff", b"-"),
    *(b"null", b"true", b"NaN", b"Infinity", b"1e999", b"-1", b"0", b"9" * 30, b"{}", b"[]"),
    *(b"(or ", b"(and ", b"(= ", b"(< ", b"X_0", b"Y_9", b"X_999999999", b"(" * 3000),
    *(b"[" * 3000, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\x08\x01"),
]
"""What is put into files, besides random bytes."""

Read = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Target:
    """One reader.

    Attributes:
        name: what it reads.
        files: a whole input: files of a folder, or one of them.
        read: reads the folder.
    """

    name: str
    files: dict[str, bytes]
    read: Read


def mutant(data: bytes, dice: random.Random) -> bytes:
    """The same bytes, damaged in one to four places."""
    made = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(made) + 1)
        kind = dice.randrange(6)
        if kind == 0 and made:
            made[place % len(made)] ^= 1 << dice.randrange(8)
        elif kind == 1:
            made[place : place + dice.randint(1, 8)] = dice.randbytes(dice.randint(0, 8))
        elif kind == 2:
            word = dice.choice(WORDS)
            made[place : place + dice.choice([0, len(word)])] = word
        elif kind == 3:
            del made[place : place + dice.randint(1, 40)]
        elif kind == 4:
            start = dice.randrange(len(made) + 1)
            made[place:place] = made[start : start + dice.randint(1, 60)]
        elif dice.random() < 0.3:
            del made[place:]
    return bytes(made)


def finding(target: Target, seed: int, folder: Path) -> tuple[str, str]:
    """What became of one mutant: ``read``, ``refused`` or ``wrong``; and what was wrong."""
    dice = random.Random(f"{target.name} {seed}")
    damaged = dice.choice(sorted(target.files))
    for name, data in target.files.items():
        (folder / name).write_bytes(mutant(data, dice) if name == damaged else data)
    try:
        target.read(folder)
    except ProvableCircuitsError as error:
        text = str(error).replace(str(folder), "folder")
        if len(text) > MOST_CHARACTERS or "\n" in text or not text:
            return "wrong", f"{len(text)} characters: {text[:600]!r}"
        return "refused", ""
    except Exception as error:
        return "wrong", f"{type(error).__module__}.{type(error).__name__}: {str(error)[:200]!r}"
    return "read", ""


def targets() -> list[Target]:
    """All readers, each with a whole input."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 4))
    picture = pc.Graph.from_torch(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2)), torch.zeros(1, 1, 4, 4)
    )
    components = graph.components()
    claim = pc.Claim(pc.Ball(torch.ones(4) / 2, eps=0.02), pc.Zero(), pc.LogitDifference(0.3))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        graph.to_onnx(folder / "net.onnx")
        onnx = (folder / "net.onnx").read_bytes()
        result = pc.discover(graph, claim, algorithm="greedy", max_nodes=50, certify=False)
        result.save(folder / "run")
        run = {path.name: path.read_bytes() for path in (folder / "run").iterdir()}
    circuit = result.circuit.to_json()
    head = {"run": "some", "seed": 3}
    rows = [head, *({"key": f"a{i}", "seconds": i / 2, "cells": [1, None]} for i in range(4))]

    def circuit_of(place: Path) -> object:
        return pc.Circuit.from_json(read_found(place / "circuit.json").circuit, components)

    def picture_of(name: str) -> Read:
        return lambda place: open_source(place / name, picture, None).pixels([0])

    return [
        Target("npz", {"x.npz": _npz()}, lambda p: open_source(p / "x.npz", graph, None)),
        Target("npy", {"x.npy": _npy()}, lambda p: open_source(p / "x.npy", graph, None)),
        Target("run", {k: v for k, v in run.items() if "journal" not in k}, pc.Run.load),
        Target("circuit", {"circuit.json": circuit.encode()}, circuit_of),
        Target("vnnlib", {"p.vnnlib": _property()}, lambda p: read_property(p / "p.vnnlib")),
        Target("onnx", {"n.onnx": onnx}, lambda p: pc.Graph.from_onnx(p / "n.onnx")),
        Target("rows", {"r": _lines(rows)}, lambda p: Journal(p / "r", head)),
        Target("tiff", {"i.tiff": _image("tiff")}, picture_of("i.tiff")),
        Target("png", {"i.png": _image("png")}, picture_of("i.png")),
        Target("idx", {"i": _idx()}, lambda p: read_idx(p / "i", 3)),
        Target("idx.gz", {"i": gzip.compress(_idx(), mtime=0)}, lambda p: read_idx(p / "i", 3)),
    ]


def _npz() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.linspace(0, 1, 20).reshape(5, 4), y=np.arange(5))
    return file.getvalue()


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.linspace(0, 1, 20).reshape(5, 4))
    return file.getvalue()


def _property() -> bytes:
    names = [*(f"X_{i}" for i in range(4)), "Y_0", "Y_1"]
    lines = [f"(declare-const {name} Real)" for name in names]
    lines += [f"(assert (>= X_{i} -0.5)) (assert (<= X_{i} 1e-1)) ; end" for i in range(4)]
    lines += ["(assert (< (+ X_0 (* 2.0 X_1)) Y_0))", "(assert (or (and (>= Y_0 Y_1) (= X_2 0.05))"]
    return "\n".join([*lines, "  (and (<= (- Y_1 3) 2.0) (> Y_0 1.0))))"]).encode()


def _lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _image(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(file, kind)
    return file.getvalue()


def _idx() -> bytes:
    return bytes([0, 0, 8, 3]) + struct.pack(">3I", 5, 3, 2) + bytes(range(30))
