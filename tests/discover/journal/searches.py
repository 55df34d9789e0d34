"""Searches that tests of the journal carry out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.discover.journal.journaled import Journaled, journaled
from provable_circuits.discover.predicates.predicate import Decided


def question(
    patching: pc.Patching | None = None, tolerance: float = 0.05, eps: float = 0.01
) -> tuple[pc.Graph, pc.Claim]:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 4))
    x = torch.tensor([[0.9, 0.1, 0.6, 0.4], [0.8, 0.2, 0.5, 0.5]])
    metric = pc.LogitDifference(tolerance)
    return graph, pc.Claim([pc.Ball(v, eps) for v in x], patching or pc.Zero(), metric)


def predicate(path: Path, **settings: Any) -> Journaled:
    graph, claim = question()
    made = journaled(Decided(graph.components("neuron"), claim, **settings), path)
    assert isinstance(made, Journaled)
    return made


def told(result: pc.Result) -> dict[str, Any]:
    """What a result says that no journal may change; witnesses may be others of the same kind."""
    document = result.document()
    names = ("circuit", "faithful", "kept", "minimality", "stopped")
    return {name: document[name] for name in names}
