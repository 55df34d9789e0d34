"""How units are grouped into components."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from provable_circuits.errors import ArgumentError
from provable_circuits.network.granularity import (
    Blocks,
    Filters,
    Granularity,
    Groups,
    Neurons,
    Partition,
    Patches,
)
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.layers import Layer
from provable_circuits.network.ops import Conv2d, Linear, ReLU, Reshape


def network() -> Graph:
    """conv [4, 5, 6] -> relu -> fc1 [7] -> relu -> fc2 [3]."""
    builder = GraphBuilder()
    x = builder.input("x", (1, 5, 6))
    conv = builder.add("conv", Conv2d(torch.ones(4, 1, 3, 3), None, padding=(1, 1)), x)
    flat = builder.add("flat", Reshape((120,)), builder.add("relu1", ReLU(), conv))
    fc1 = builder.add("fc1", Linear(torch.ones(7, 120)), flat)
    fc2 = builder.add("fc2", Linear(torch.ones(3, 7)), builder.add("relu2", ReLU(), fc1))
    return builder.build([fc2])


def test_neurons_are_units_of_linear_layers() -> None:
    components = network().components("neuron")
    assert repr(components) == "Components(10: fc1 7, fc2 3)"
    assert components.names[:2] == ("fc1/0", "fc1/1")
    assert network().components(Neurons()) == components


def test_filters_are_channels_of_convolutions() -> None:
    components = network().components("filter")
    assert components.names == ("conv/0", "conv/1", "conv/2", "conv/3")
    assert components.sites[0].tensor == "relu1"
    assert network().components(Filters()) == components


def test_auto_takes_filters_where_there_are_convolutions() -> None:
    assert network().components("auto") == network().components("filter") == network().components()
    builder = GraphBuilder()
    dense = builder.build([builder.add("fc", Linear(torch.eye(2)), builder.input("x", (2,)))])
    assert dense.components("auto") == dense.components("neuron")


def test_blocks_are_runs_of_neighbours_with_a_shorter_last_one() -> None:
    components = network().components(Blocks(3))
    assert repr(components) == "Components(6: conv 2, fc1 3, fc2 1)"
    assert components.sites[1].labels.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert components.sites[0].labels.flatten().tolist() == [0, 0, 0, 1]


def test_patches_are_rectangles_of_positions() -> None:
    components = network().components(Patches(2, 4))
    assert components.names == tuple(f"conv/{i},{j}" for i in range(3) for j in range(2))
    labels = components.sites[0].labels.expand(4, 5, 6)
    for channel, row, column in np.ndindex(4, 5, 6):
        assert labels[channel, row, column] == row // 2 * 2 + column // 4


def test_groups_take_indices_and_masks() -> None:
    left = np.zeros((5, 6), dtype=bool)
    left[:, :3] = True
    components = network().components(
        Groups(
            {
                "conv": {"left": left, "right of 2": _at_channel(~left, 2)},
                "fc1": {"even": [0, 2, 4, 6], "one": np.array([1])},
            }
        )
    )
    assert components.names == ("conv/left", "conv/right of 2", "fc1/even", "fc1/one")
    labels = components.sites[0].labels
    assert (labels[:, :, :3] == 0).all()
    assert (labels[2, :, 3:] == 1).all()
    assert (labels[[0, 1, 3], :, 3:] == -1).all()
    assert components.sites[1].labels.tolist() == [0, 1, 0, -1, 0, -1, 0]


def _at_channel(mask: Any, channel: int) -> Any:
    whole = np.zeros((4, 5, 6), dtype=bool)
    whole[channel] = mask
    return whole


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"fc1": {"a": [0, 1], "b": [1]}}, "must be disjoint: 'a' and 'b' of layer 'fc1' share"),
        ({"fc1": {"a": []}}, "component 'a' of layer 'fc1' must not be empty"),
        ({"fc1": {"a": np.zeros(7, dtype=bool)}}, "must not be empty"),
        ({"fc1": {"a": [7]}}, r"indices from 0 to 6. Got \[7\]"),
        ({"fc1": {"a": [-1]}}, "indices from 0 to 6"),
        ({"fc1": {"a": [0.5]}}, "indices from 0 to 6"),
        ({"fc1": {"a": 3}}, "indices from 0 to 6. Got 3"),
        ({"fc1": {"a": "first"}}, "indices or a mask. Got 'first'"),
        ({"fc1": {"a": np.ones(6, dtype=bool)}}, r"mask that broadcasts to \[7\]. Got shape \[6\]"),
        ({"fc3": {"a": [0]}}, "no layer named 'fc3'; its layers are conv, fc1, fc2"),
    ],
)
def test_groups_that_make_no_sense_are_errors(groups: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        network().components(Groups(groups))


def test_groups_of_a_layer_that_is_left_out_are_an_error() -> None:
    groups = Groups({"fc1": {"a": [0]}, "fc2": {"b": [0]}})
    assert network().components(groups).names == ("fc1/a", "fc2/b")
    with pytest.raises(ArgumentError, match=r"Layer 'fc2' .* pass outputs=True"):
        network().components(groups, outputs=False)


class Own(Granularity):
    """Whatever the test wants."""

    def __init__(self, names: list[str], labels: torch.Tensor) -> None:
        self.given = names, labels

    def partition(self, layer: Layer) -> Partition | None:
        return self.given if layer.name == "fc1" else None


def test_a_granularity_of_ones_own() -> None:
    components = network().components(Own(["first", "rest"], torch.tensor([0] + [1] * 6)))
    assert components.names == ("fc1/first", "fc1/rest")
    everything = network().components(Own(["all"], torch.tensor([0])))
    assert len(everything) == 1
    assert everything.sites[0].unit_mask(torch.tensor([[False], [True]])).tolist() == [
        [False],
        [True],
    ]


@pytest.mark.parametrize(
    ("names", "labels", "says"),
    [
        (["a", "a"], torch.tensor([0, 1, 0, 1, 0, 1, 0]), "a name of its own"),
        (["a", "b"], torch.zeros(7, dtype=torch.long), "every label from 0 to 1"),
        (["a"], torch.tensor([0, 0, 0, 0, 0, 0, 1]), r"label from 0 to 0.* Got \[0, 1\]"),
        (["a"], torch.tensor([-2, 0, 0, 0, 0, 0, 0]), r"Got \[-2, 0\]"),
        (
            ["a"],
            torch.zeros(6, dtype=torch.long),
            r"broadcast to \[7\]. Got torch.int64 of shape \[6\]",
        ),
        (["a"], torch.zeros(7), "integers.* Got torch.float32"),
        (["a", "b"], torch.tensor([True] * 6 + [False]), "integers.* Got torch.bool"),
        (["a"], torch.zeros(2, 7, dtype=torch.long), r"shape \[2, 7\]"),
    ],
)
def test_partitions_are_checked(names: list[str], labels: torch.Tensor, says: str) -> None:
    with pytest.raises(ArgumentError, match=says) as error:
        network().components(Own(names, labels))
    assert "The partition of layer 'fc1'" in str(error.value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Blocks(0),
            "'size' parameter of Blocks must be a whole number of at least 1. Got 0",
        ),
        (
            lambda: Patches(0, 1),
            "'height' parameter of Patches must be a whole number of at least 1",
        ),
        (
            lambda: network().components("layer"),
            "several of them, or a Granularity. Got 'layer'",
        ),
        (lambda: network().components(3), "or a Granularity. Got 3"),  # type: ignore[arg-type]
        (lambda: network().components(Neurons), "or a Granularity"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_errors(make: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        make()


def test_no_components_at_all_is_an_error() -> None:
    builder = GraphBuilder()
    dense = builder.build([builder.add("fc", Linear(torch.eye(2)), builder.input("x", (2,)))])
    with pytest.raises(
        ArgumentError, match=r"no components at granularity .*Filters.*fc \(linear\)"
    ):
        dense.components("filter")
    with pytest.raises(ArgumentError, match="no components"):
        dense.components("neuron", outputs=False)
