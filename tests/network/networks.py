"""Small networks with what makes circuits hard: residual sums, joins, constants, odd groups."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.granularity import Blocks, Granularity, Groups, Partition, Patches
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.layers import Layer
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
    Subtract,
    Tanh,
)


def weights(seed: int) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator)


def dense_graph() -> Graph:
    """Linear layers with a residual sum, a constant that is added and one that is joined."""
    w, builder = weights(0), GraphBuilder()
    x = builder.input("x", (4,))
    first = builder.add("fc1", Linear(w(5, 4), w(5)), x, layer="fc1")
    active = builder.add("relu1", ReLU(), first)
    second = builder.add("fc2", Linear(w(5, 5)), active, layer="fc2")
    residual = builder.add("add", Add(), second, active)
    moved = builder.add("moved", Add(), builder.constant("c1", w(5)), residual)
    joined = builder.add("cat", Concat(0), builder.constant("c2", w(2)), moved, x)
    third = builder.add("fc3", Linear(w(3, 11), w(3)), joined, layer="fc3")
    active3 = builder.add("tanh", Tanh(), third)
    return builder.build([builder.add("fc4", Linear(w(3, 3), w(3)), active3, layer="fc4")])


def conv_graph() -> Graph:
    """Convolutions with normalisation, a projection, pooling and two heads that are subtracted."""
    w, builder = weights(1), GraphBuilder()
    x = builder.input("x", (2, 6, 6))
    scaled = builder.add("scale", Affine(w(2, 1, 1), w(2, 1, 1)), x)
    conv1 = builder.add("conv1", Conv2d(w(4, 2, 3, 3), w(4), padding=(1, 1)), scaled, layer="conv1")
    bn1 = builder.add("bn1", BatchNorm(w(4, 1, 1), w(4, 1, 1)), conv1)
    relu1 = builder.add("relu1", ReLU(), bn1)
    pool = builder.add("pool", MaxPool2d((2, 2), (2, 2)), relu1)
    conv2 = builder.add("conv2", Conv2d(w(3, 4, 3, 3), padding=(1, 1)), pool, layer="conv2")
    shortcut = builder.add("proj", Conv2d(w(3, 2, 1, 1), w(3), (2, 2)), scaled, layer="proj")
    total = builder.add("add", Add(), conv2, shortcut)
    relu2 = builder.add("relu2", ReLU(), total)
    flat = builder.add("flat", Reshape((27,)), relu2)
    head = builder.add("head", Linear(w(2, 27), w(2)), flat, layer="head")
    small = builder.add("avg", AvgPool2d((6, 6), (6, 6)), relu1)
    other = builder.add("other", Linear(w(2, 4)), builder.add("flat2", Reshape((4,)), small))
    return builder.build([builder.add("difference", Subtract(), head, other)])


def constant_graph() -> Graph:
    """A layer of constants only is cut too: what it computes is the same for every sample."""
    w, builder = weights(2), GraphBuilder()
    x = builder.input("x", (3,))
    fixed = builder.add("fixed", Linear(w(3, 2), w(3)), builder.constant("c", w(2)), layer="fixed")
    return builder.build([builder.add("sum", Add(), x, fixed)])


class Columns(Granularity):
    """Labels of lower rank than the tensor: each column of a feature map is a component."""

    def partition(self, layer: Layer) -> Partition | None:
        count = layer.shape[-1]
        return [f"column{i}" for i in range(count)], torch.arange(count)


GRAPHS = {
    "dense": lambda: dense_graph().components("neuron"),
    "conv, filters": lambda: conv_graph().components("filter", shortcuts=True),
    "conv, neurons": lambda: conv_graph().components("neuron"),
    "conv, blocks": lambda: conv_graph().components(Blocks(2), shortcuts=True),
    "conv, patches": lambda: conv_graph().components(Patches(2, 3), outputs=False),
    "conv, columns": lambda: conv_graph().components(Columns()),
    "conv, by hand": lambda: conv_graph().components(
        Groups({"conv1": {"a": [0, 2], "b": [3]}, "head": {"out": [1]}})
    ),
    "constant": lambda: constant_graph().components("neuron"),
}


def random_circuits(components: Components, count: int, seed: int) -> list[Circuit]:
    """Full, empty, single removals in every layer, and random ones."""
    source = random.Random(seed)
    found = [components.full(), components.empty()]
    found += [
        components.full().remove(site.components[0].name)
        for site in components.sites
        if site.components
    ]
    while len(found) < count:
        share = source.choice([0.1, 0.5, 0.9])
        found.append(components.circuit([n for n in components.names if source.random() < share]))
    return found
