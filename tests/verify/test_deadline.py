"""Limits in nodes: answers that do not depend on the machine."""

from __future__ import annotations

import math

import pytest
import torch
from tests.verify.networks import hard, pools

import provable_circuits as pc
from provable_circuits.errors import ArgumentError
from provable_circuits.verify.deadline import Deadline, OutOfNodes, limits


def test_nodes_are_spent() -> None:
    deadline = Deadline(max_nodes=3)
    deadline.spend(2)
    deadline.spend(1)
    assert not deadline.passed
    with pytest.raises(OutOfNodes):
        deadline.spend(1)
    assert deadline.passed
    with pytest.raises(OutOfNodes):
        deadline.check()


def test_a_limit_in_nodes_is_repeatable() -> None:
    """The same question under the same limit ends at the same bound, bit by bit."""
    graph = pools()
    circuit, claim = hard(graph)
    bounds = []
    for nodes in (4, 4, 64, 64):
        verdict = pc.verify(graph, circuit, claim, max_nodes=nodes, certify=False)
        assert isinstance(verdict, pc.Undecided), "choose a harder case"
        assert verdict.reason == "nodes"
        bounds.append(verdict.bound)
    assert bounds[0] == bounds[1]
    assert bounds[2] == bounds[3]
    assert bounds[2] < bounds[0]


def test_searches_take_a_limit_in_nodes() -> None:
    graph = pools()
    circuit, claim = hard(graph)
    found = [
        pc.discover(graph, claim, circuit.components, max_nodes=8, certify=False) for _ in range(2)
    ]
    assert found[0].queries.get("undecided"), "choose a smaller limit"
    assert found[0].circuit == found[1].circuit
    assert found[0].queries == found[1].queries
    assert found[0].settings["max_nodes"] == 8
    assert found[0].settings["timeout"] is None


@pytest.mark.parametrize("nodes", [0, -1, 1.5, True, "8"])
def test_nodes_are_whole_numbers(nodes: object) -> None:
    with pytest.raises(ArgumentError, match="'max_nodes' parameter must be a whole number"):
        limits(None, nodes, 45.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, True, "8", torch.ones(1)])
def test_seconds_are_positive(seconds: object) -> None:
    with pytest.raises(ArgumentError, match="'timeout' parameter must be a positive number"):
        limits(seconds, None, 45.0)  # type: ignore[arg-type]


def test_what_is_not_said() -> None:
    assert limits(None, None, 45.0) == (45.0, None)
    assert limits(None, 8, 45.0) == (math.inf, 8)
    assert limits(3, 8, 45.0) == (3.0, 8)
