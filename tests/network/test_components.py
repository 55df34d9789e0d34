"""The components of a network."""

from __future__ import annotations

import itertools

import pytest
import torch

from provable_circuits.errors import ArgumentError
from provable_circuits.network.components import Component, Components
from provable_circuits.network.granularity import Blocks
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, Conv2d, Linear, ReLU, Reshape


def dense(widths: tuple[int, ...] = (4, 13, 11, 10), seed: int = 0) -> Graph:
    """Linear layers with ReLUs between them."""
    torch.manual_seed(seed)
    builder = GraphBuilder()
    value = builder.input("x", widths[:1])
    for i, (features, units) in enumerate(itertools.pairwise(widths), start=1):
        value = builder.add(f"fc{i}", Linear(torch.randn(units, features)), value)
        if i < len(widths) - 1:
            value = builder.add(f"relu{i}", ReLU(), value)
    return builder.build([value])


def residual() -> Graph:
    """A block with a projection: conv0 2, conv1 3, conv2 3, proj 3, fc 2."""
    builder = GraphBuilder()
    x = builder.input("x", (1, 4, 4))
    conv0 = builder.add("conv0", Conv2d(torch.ones(2, 1, 1, 1)), x)
    relu0 = builder.add("relu0", ReLU(), conv0)
    conv1 = builder.add("conv1", Conv2d(torch.ones(3, 2, 1, 1)), relu0)
    conv2 = builder.add(
        "conv2", Conv2d(torch.ones(3, 3, 1, 1)), builder.add("relu1", ReLU(), conv1)
    )
    proj = builder.add("proj", Conv2d(torch.ones(3, 2, 1, 1)), relu0)
    flat = builder.add("flat", Reshape((48,)), builder.add("add", Add(), conv2, proj))
    return builder.build([builder.add("fc", Linear(torch.ones(2, 48)), flat)])


def test_counts_with_and_without_outputs() -> None:
    assert len(dense().components()) == 34
    assert len(dense().components(outputs=False)) == 24
    assert repr(dense().components()) == "Components(34: fc1 13, fc2 11, fc3 10)"


def test_shortcuts_are_left_out_unless_asked_for() -> None:
    assert repr(residual().components()) == "Components(8: conv0 2, conv1 3, conv2 3)"
    included = residual().components(shortcuts=True)
    assert repr(included) == "Components(11: conv0 2, conv1 3, conv2 3, proj 3)"


def test_graph_order_and_discovery_order() -> None:
    components = dense((2, 2, 3, 2)).components()
    assert components.names == ("fc1/0", "fc1/1", "fc2/0", "fc2/1", "fc2/2", "fc3/0", "fc3/1")
    order = [component.name for component in components.discovery_order()]
    assert order == ["fc3/0", "fc3/1", "fc2/0", "fc2/1", "fc2/2", "fc1/0", "fc1/1"]


def test_discovery_order_within_a_layer_is_by_number() -> None:
    order = dense((2, 12)).components().discovery_order()
    assert [component.index for component in order] == list(range(12))


def test_components_are_a_sequence() -> None:
    components = dense((2, 2, 2)).components()
    assert components[0] == Component("fc1/0", "fc1", 0)
    assert components[-1].name == "fc2/1"
    assert [c.name for c in components[1:3]] == ["fc1/1", "fc2/0"]
    assert list(components) == [components[i] for i in range(4)]
    assert components.index_of("fc2/0") == 2
    assert Component("fc2/0", "fc2", 0) in components
    assert components.index(components[3]) == 3


def test_unknown_names_are_errors_with_a_hint() -> None:
    few, many = dense((2, 1, 2)).components(), dense().components()
    with pytest.raises(
        ArgumentError, match="no component named 'fc9/0'; its components are fc1/0, fc2/0, fc2/1"
    ):
        few.index_of("fc9/0")
    with pytest.raises(ArgumentError, match=r"are fc1/0, fc1/1, fc1/2, \.\.\., fc3/9"):
        many.circuit(["fc1/13"])
    with pytest.raises(ArgumentError, match="Got 'fc1/0' instead"):
        many.circuit("fc1/0")


def test_equality_is_that_of_network_and_cut() -> None:
    first = dense().components()
    assert first == dense().components()
    assert hash(first) == hash(dense().components())
    assert first != dense(seed=1).components()
    assert first != dense().components(outputs=False)
    assert first != dense().components(Blocks(2))
    assert first != "components"


def test_masks_say_what_each_circuit_keeps() -> None:
    components = dense().components()
    circuits = [
        components.full(),
        components.empty(),
        components.circuit(["fc1/0", "fc1/7", "fc1/8", "fc3/9"]),
    ]
    masks = components.masks(circuits)
    assert masks.shape == (3, 34)
    assert masks.dtype == torch.bool
    assert masks[0].all()
    assert not masks[1].any()
    assert masks[2].nonzero().flatten().tolist() == [0, 7, 8, 33]
    assert components.masks([]).shape == (0, 34)


def test_a_site_knows_its_units() -> None:
    components = dense((2, 2, 3, 2)).components()
    site = components.sites[1]
    assert (site.tensor, site.start, site.layer.name) == ("relu2", 2, "fc2")
    keep = components.masks([components.circuit(["fc1/0", "fc2/2"])])
    assert site.unit_mask(keep).tolist() == [[False, False, True]]


def test_same_names_in_other_networks_are_other_components() -> None:
    one, two = dense().components(), dense(seed=1).components()
    assert isinstance(one, Components)
    with pytest.raises(ArgumentError, match="same network's components"):
        one.masks([two.full()])
