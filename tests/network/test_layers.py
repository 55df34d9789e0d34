"""Where the layers of a network are cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.layers import Layer, layers_of
from provable_circuits.network.ops import (
    Add,
    Affine,
    AvgPool2d,
    BatchNorm,
    Concat,
    Conv2d,
    Linear,
    MaxPool2d,
    ReLU,
    Reshape,
    Sigmoid,
)


class Net:
    """A graph written with one word per node."""

    def __init__(self, *shape: int) -> None:
        self.builder = GraphBuilder()
        self.x = self.builder.input("x", shape)

    def linear(self, name: str, source: str, out: int, layer: str | None = None) -> str:
        features = self.builder[source].shape[-1]
        op = Linear(torch.ones(out, features))
        return self.builder.add(name, op, source, layer=layer or name)

    def conv(self, name: str, source: str, out: int, size: int = 3, stride: int = 1) -> str:
        weight = torch.ones(out, self.builder[source].shape[0], size, size)
        op = Conv2d(weight, None, (stride, stride), (size // 2, size // 2))
        return self.builder.add(name, op, source, layer=name)

    def norm(self, name: str, source: str) -> str:
        scale = torch.ones(self.builder[source].shape[0], 1, 1)
        return self.builder.add(name, BatchNorm(scale), source)

    def relu(self, name: str, source: str) -> str:
        return self.builder.add(name, ReLU(), source)

    def add(self, name: str, *sources: str) -> str:
        return self.builder.add(name, Add(), *sources)

    def graph(self, *outputs: str) -> Graph:
        return self.builder.build(outputs)


def cuts(graph: Graph) -> dict[str, str]:
    return {layer.name: layer.tensor for layer in layers_of(graph)}


def by_name(graph: Graph) -> dict[str, Layer]:
    return {layer.name: layer for layer in layers_of(graph)}


def test_a_layer_that_feeds_an_activation_is_cut_behind_it() -> None:
    net = Net(4)
    hidden = net.relu("relu", net.linear("fc1", net.x, 3))
    soft = net.builder.add("sigmoid", Sigmoid(), net.linear("fc2", hidden, 2))
    graph = net.graph(net.linear("fc3", soft, 2))
    assert cuts(graph) == {"fc1": "relu", "fc2": "sigmoid", "fc3": "fc3"}
    first = by_name(graph)["fc1"]
    assert (first.kind, first.source, first.shape) == ("linear", "fc1", (3,))
    assert first.channel_dim == 0


def test_normalisation_belongs_to_the_layer_before_it() -> None:
    net = Net(2, 4, 4)
    with_relu = net.relu("relu", net.norm("bn1", net.conv("conv1", net.x, 3)))
    graph = net.graph(net.norm("bn2", net.conv("conv2", with_relu, 5)))
    assert cuts(graph) == {"conv1": "relu", "conv2": "bn2"}
    assert by_name(graph)["conv2"].shape == (5, 4, 4)
    assert by_name(graph)["conv2"].source == "conv2"


def test_a_plain_scale_is_no_normalisation() -> None:
    net = Net(4)
    scaled = net.builder.add("scale", Affine(torch.ones(3)), net.linear("fc1", net.x, 3))
    graph = net.graph(net.linear("fc2", net.relu("relu", scaled), 2))
    assert cuts(graph)["fc1"] == "fc1"


def test_the_second_convolution_of_a_residual_block_is_cut_at_its_own_output() -> None:
    net = Net(3, 4, 4)
    inner = net.relu("relu1", net.conv("conv1", net.x, 3))
    total = net.add("add", net.conv("conv2", inner, 3), net.x)
    graph = net.graph(net.conv("conv3", net.relu("relu2", total), 2))
    assert cuts(graph) == {"conv1": "relu1", "conv2": "conv2", "conv3": "conv3"}
    assert not any(layer.is_shortcut for layer in layers_of(graph))


def test_what_is_read_before_its_activation_is_cut_before_it() -> None:
    net = Net(3)
    before = net.linear("fc1", net.x, 3)
    after = net.relu("relu", before)
    graph = net.graph(net.linear("fc2", net.add("add", before, after), 2))
    assert cuts(graph)["fc1"] == "fc1"


def test_what_is_given_out_before_its_activation_is_cut_before_it() -> None:
    net = Net(3)
    before = net.linear("fc1", net.x, 3)
    graph = net.graph(before, net.relu("relu", before))
    assert cuts(graph)["fc1"] == "fc1"
    behind = Net(2, 2, 2)
    normed = behind.norm("bn", behind.conv("conv", behind.x, 2))
    assert cuts(behind.graph(normed, behind.relu("relu", normed)))["conv"] == "bn"


def test_an_activation_read_many_times_is_still_the_cut() -> None:
    net = Net(3)
    hidden = net.relu("relu", net.linear("fc1", net.x, 3))
    graph = net.graph(net.add("add", net.linear("fc2", hidden, 3), hidden))
    assert cuts(graph)["fc1"] == "relu"


def test_pooling_comes_behind_the_cut() -> None:
    net = Net(1, 4, 4)
    hidden = net.relu("relu", net.conv("conv", net.x, 2))
    pooled = net.builder.add("pool", MaxPool2d((2, 2), (2, 2)), hidden)
    flat = net.builder.add("flat", Reshape((8,)), pooled)
    graph = net.graph(net.linear("fc", flat, 2))
    assert cuts(graph) == {"conv": "relu", "fc": "fc"}


def _block(net: Net, *, norm: bool, order: str, pooled: bool = False) -> Graph:
    """Two convolutions beside a 1x1 projection of the same input, then a linear layer."""
    source = net.relu("relu0", net.conv("conv0", net.x, 2))
    main = net.relu("relu1", net.conv("conv1", source, 4, stride=2))
    main = net.conv("conv2", main, 4)
    side = source
    if pooled:
        side = net.builder.add("pool", AvgPool2d((2, 2), (2, 2)), source)
    side = net.conv("proj", side, 4, size=1, stride=1 if pooled else 2)
    if norm:
        main, side = net.norm("bn2", main), net.norm("bnp", side)
    total = net.add("add", *((main, side) if order == "main first" else (side, main)))
    flat = net.builder.add("flat", Reshape((16,)), net.relu("relu2", total))
    return net.graph(net.linear("fc", flat, 2))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("order", ["main first", "side first"])
def test_a_projection_beside_a_longer_way_is_a_shortcut(
    norm: bool, pooled: bool, order: str
) -> None:
    graph = _block(Net(1, 4, 4), norm=norm, order=order, pooled=pooled)
    found = {layer.name: layer.is_shortcut for layer in layers_of(graph)}
    assert found == {"conv0": False, "conv1": False, "conv2": False, "proj": True, "fc": False}
    assert cuts(graph)["proj"] == ("bnp" if norm else "proj")


@pytest.mark.parametrize(
    "join",
    [
        lambda net, a, b: net.add("sum", a, b),
        lambda net, a, b: net.builder.add("cat", Concat(0), a, b),
    ],
    ids=["sum of equals", "concatenation"],
)
def test_branches_that_are_no_shortcuts(join: Callable[[Net, str, str], str]) -> None:
    net = Net(3, 4, 4)
    left, right = net.conv("left", net.x, 3), net.conv("right", net.x, 3, size=1)
    graph = net.graph(net.conv("last", join(net, left, right), 1))
    assert not any(layer.is_shortcut for layer in layers_of(graph))


def test_a_branch_with_an_activation_of_its_own_is_no_shortcut() -> None:
    net = Net(3, 4, 4)
    main = net.conv("conv2", net.relu("relu1", net.conv("conv1", net.x, 3)), 3)
    side = net.relu("relu2", net.conv("side", net.x, 3, size=1))
    graph = net.graph(net.add("add", main, side))
    assert not by_name(graph)["side"].is_shortcut


def test_outputs_are_the_layers_that_no_layer_follows() -> None:
    net = Net(3)
    hidden = net.relu("relu", net.linear("fc1", net.x, 3))
    end = net.linear("fc2", hidden, 2)
    graph = net.graph(net.builder.add("scaled", Affine(torch.ones(2)), end))
    assert {layer.name: layer.is_output for layer in layers_of(graph)} == {
        "fc1": False,
        "fc2": True,
    }


def test_two_heads_are_both_outputs() -> None:
    net = Net(3)
    graph = net.graph(net.add("add", net.linear("left", net.x, 2), net.linear("right", net.x, 2)))
    assert all(layer.is_output for layer in layers_of(graph))


def test_a_module_that_is_called_twice_is_two_layers() -> None:
    net = Net(3)
    first = net.relu("relu1", net.linear("fc", net.x, 3))
    second = net.relu("relu2", net.linear("fc_1", first, 3, layer="fc"))
    graph = net.graph(net.linear("fc_2", second, 3, layer="fc"))
    assert cuts(graph) == {"fc": "relu1", "fc:2": "relu2", "fc:3": "fc_2"}


def test_units_of_a_linear_layer_lie_along_the_last_dimension() -> None:
    net = Net(2, 3)
    layer = layers_of(net.graph(net.linear("fc", net.x, 5)))[0]
    assert (layer.shape, layer.channel_dim) == ((2, 5), 1)
    maps = Net(1, 4, 4)
    assert layers_of(maps.graph(maps.conv("conv", maps.x, 2)))[0].channel_dim == 0


def test_a_network_without_weights_has_no_layers() -> None:
    net = Net(3)
    assert layers_of(net.graph(net.relu("relu", net.x))) == ()
