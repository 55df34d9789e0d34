"""A certified run in a folder, and changes of its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import provable_circuits as pc


@cache
def result(algorithm: str = "hitting-set", certify: bool = True) -> pc.Result:
    """A smallest circuit of a small network."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 3))
    balls = [pc.Ball([0.1, 0.2, 0.3], 0.05), pc.Ball([0.3, 0.2, 0.1], 0.05)]
    claim = pc.Claim(balls, pc.IntervalHull(0.2), pc.MaxAbs(0.05))
    return pc.discover(graph, claim, algorithm=algorithm, certify=certify, max_nodes=400)


def edited(path: Path, change: Callable[[Any], Any], digests: bool = True) -> None:
    """Change a JSON file; without its digests, as one who knows of them would."""
    document = json.loads(path.read_text())
    change(document)
    if not digests:
        document.pop("digests", None)
    path.write_text(json.dumps(document))
