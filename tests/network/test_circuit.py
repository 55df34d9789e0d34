"""Circuits as sets, and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.granularity import Blocks, Groups
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU


def network(scale: float = 1.0) -> Graph:
    builder = GraphBuilder()
    hidden = builder.add("fc1", Linear(scale * torch.ones(9, 2)), builder.input("x", (2,)))
    active = builder.add("relu", ReLU(), hidden)
    return builder.build([builder.add("fc2", Linear(torch.ones(3, 9)), active)])


COMPONENTS = network().components()
subsets = st.frozensets(st.sampled_from(COMPONENTS.names))


def circuit(names: frozenset[str], components: Components = COMPONENTS) -> Circuit:
    return components.circuit(names)


@given(subsets, subsets)
def test_the_algebra_is_that_of_sets(a: frozenset[str], b: frozenset[str]) -> None:
    one, two = circuit(a), circuit(b)
    assert frozenset((one | two).names) == a | b
    assert frozenset((one & two).names) == a & b
    assert frozenset((one - two).names) == a - b
    assert frozenset((one ^ two).names) == a ^ b
    assert frozenset((~one).names) == frozenset(COMPONENTS.names) - a
    assert (one <= two) == (a <= b)
    assert (one < two) == (a < b)
    assert (one >= two) == (a >= b)
    assert (one > two) == (a > b)
    assert (one == two) == (a == b)
    assert len(one) == len(a)
    assert bool(one) == bool(a)


@given(subsets)
def test_a_circuit_is_its_components_in_graph_order(names: frozenset[str]) -> None:
    found = circuit(names)
    assert found.names == tuple(name for name in COMPONENTS.names if name in names)
    assert [component.name for component in found] == list(found.names)
    for component in COMPONENTS:
        assert (component in found) == (component.name in found) == (component.name in names)
    assert found.add(*sorted(names)) == found
    assert found.remove(*sorted(names)) == COMPONENTS.empty()


@given(subsets)
def test_json_both_ways(names: frozenset[str]) -> None:
    found = circuit(names)
    text = found.to_json()
    assert Circuit.from_json(text, network().components()) == found
    record = json.loads(text)
    assert record["components"] == list(found.names)
    assert (record["size"], record["of"]) == (len(names), 12)


def test_equal_circuits_of_equal_networks_hash_alike() -> None:
    one = network().components().circuit(["fc1/3", "fc2/0"])
    two = network().components().circuit(["fc2/0", "fc1/3", "fc1/3"])
    assert one == two
    assert hash(one) == hash(two)
    assert len({one, two, one.add("fc1/4")}) == 2
    assert one != network(2.0).components().circuit(["fc1/3", "fc2/0"])
    assert one != "circuit"  # type: ignore[comparison-overlap]


def test_circuits_cannot_be_changed() -> None:
    found = COMPONENTS.full()
    with pytest.raises(AttributeError):
        found.bits = 0  # type: ignore[misc]


def test_restriction_to_a_layer() -> None:
    found = COMPONENTS.circuit(["fc1/1", "fc1/8", "fc2/2"])
    assert found.restrict("fc1").names == ("fc1/1", "fc1/8")
    assert found.restrict("fc2").names == ("fc2/2",)
    with pytest.raises(
        ArgumentError, match="no layer named 'fc3' with components; it has fc1, fc2"
    ):
        found.restrict("fc3")


def test_what_a_person_sees() -> None:
    found = COMPONENTS.circuit(["fc1/1", "fc1/8", "fc2/2"])
    assert repr(found) == "Circuit(3 of 12: fc1 1, 8; fc2 2)"
    assert repr(COMPONENTS.empty()) == "Circuit(0 of 12: nothing kept)"
    grouped = network().components(Groups({"fc1": {"left/a": [0, 1], "b": [2]}}))
    assert repr(grouped.full()) == "Circuit(2 of 2: fc1 left/a, b)"


def test_unknown_components_are_errors() -> None:
    found = COMPONENTS.full()
    with pytest.raises(ArgumentError, match="no component named 'fc1/9'"):
        found.remove("fc1/9")
    with pytest.raises(ArgumentError, match="no component named 'fc1/9'"):
        _ = "fc1/9" in found
    assert 3 not in found


@pytest.mark.parametrize("bits", [-1, 1 << 12])
def test_bits_beyond_the_components_are_an_error(bits: int) -> None:
    with pytest.raises(ArgumentError, match="at most 12 bits"):
        Circuit(COMPONENTS, bits)


def test_circuits_of_different_networks_do_not_mix() -> None:
    other = network(2.0).components().full()
    for operation in ("__or__", "__and__", "__sub__", "__xor__", "__le__", "__lt__", "__ge__"):
        with pytest.raises(ArgumentError, match="same network's components"):
            getattr(COMPONENTS.full(), operation)(other)
    with pytest.raises(ArgumentError, match=r"must be circuits\. Got set"):
        _ = COMPONENTS.full() | {"fc1/1"}  # type: ignore[operator]
    with pytest.raises(ArgumentError, match="same network's components"):
        _ = COMPONENTS.full() & network().components(Blocks(3)).full()


def _changed(**changes: Any) -> str:
    record = json.loads(COMPONENTS.circuit(["fc1/1"]).to_json())
    record.update(changes)
    return json.dumps(record)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "The circuit is not JSON"),
        ("[]", "must be a JSON object of format 'provable-circuits/circuit'"),
        ('{"format": "other"}', "of format"),
        (_changed(network="0" * 64), "belongs to another network"),
        (_changed(components="fc1/1"), "'components' must be a list of names"),
        (_changed(components=[1]), "'components' must be a list of names"),
        (_changed(components=["fc9/1"]), "no component named 'fc9/1'"),
        (_changed(of=34), "made for 34 components, these are 12: use the same granularity"),
        (_changed(size=2), "says that it keeps 2 components, and names 1"),
    ],
)
def test_json_that_does_not_fit_is_an_error(text: str, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Circuit.from_json(text, COMPONENTS)


def test_running_a_circuit() -> None:
    found = COMPONENTS.circuit(["fc1/0", "fc2/0", "fc2/1"])
    assert found.run(torch.tensor([[1.0, 2.0]])).tolist() == [[3.0, 3.0, 0.0]]
    patch = {"relu": torch.ones(9), "fc2": torch.full((3,), -5.0)}
    assert found.run(torch.tensor([[1.0, 2.0]]), patch).tolist() == [[11.0, 11.0, -5.0]]
