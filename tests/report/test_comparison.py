"""Two runs side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.runs import digits, network, search

import provable_circuits as pc
from provable_circuits.errors import DataError
from provable_circuits.report.comparison import Comparison, names_of


def test_components_are_shared_or_in_one_circuit_only() -> None:
    graph = network(("first", "last"))
    small, large = search(graph, 0.1), search(graph, 0.001)
    comparison = Comparison(small.record(), large.record(), ("a", "b"))
    assert comparison.shared == (small.circuit & large.circuit).names
    assert comparison.first_only == (small.circuit - large.circuit).names
    assert comparison.second_only == (large.circuit - small.circuit).names
    assert comparison.second_only
    statuses = {node.name: node.status for node in comparison.diagram.nodes}
    assert [n for n, s in statuses.items() if s == "second only"] == list(comparison.second_only)
    assert [n for n, s in statuses.items() if s == "kept"] == list(comparison.shared)
    assert comparison.diagram.compared == ("a", "b")
    document = comparison.document()
    assert document["shared"] == list(comparison.shared)
    assert document["first"]["circuit"]["size"] == len(small.circuit)


def test_different_networks_are_refused() -> None:
    other = search(network(("first", "last"))).record()
    with pytest.raises(DataError, match="about different networks"):
        Comparison(digits(), other, ("a", "b"))


def test_different_components_are_refused() -> None:
    graph = network(("first", "last"))
    claim = search(graph).claim
    fewer = pc.discover(graph, claim, outputs=False).record()
    with pytest.raises(DataError, match="different components"):
        Comparison(search(graph).record(), fewer, ("a", "b"))


def test_folders_are_called_by_their_names() -> None:
    assert names_of(Path("runs/a"), Path("runs/b/")) == ("a", "b")
    assert names_of(Path("one/run"), Path("two/run")) == ("run (first)", "run (second)")
