"""Interval propagation through whole networks."""

from __future__ import annotations

import torch

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.intervals import propagate
from provable_circuits.network.ops import (
    Add,
    Concat,
    Conv2d,
    Linear,
    MaxPool2d,
    ReLU,
    Reshape,
    Tanh,
)


def network() -> Graph:
    generator = torch.Generator().manual_seed(0)

    def weights(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    builder = GraphBuilder()
    x = builder.input("x", (1, 4, 4))
    conv = builder.add("conv", Conv2d(weights(3, 1, 3, 3), weights(3), padding=(1, 1)), x)
    pool = builder.add("pool", MaxPool2d((2, 2), (2, 2)), builder.add("relu", ReLU(), conv))
    flat = builder.add("flat", Reshape((12,)), pool)
    fc1 = builder.add("fc1", Linear(weights(12, 12)), flat)
    total = builder.add("add", Add(), builder.add("tanh", Tanh(), fc1), flat)
    joined = builder.add("cat", Concat(0), builder.constant("c", weights(2)), total)
    return builder.build([builder.add("fc2", Linear(weights(2, 14), weights(2)), joined)])


def test_every_tensor_lies_within_its_ends() -> None:
    graph = network()
    generator = torch.Generator().manual_seed(1)
    middle = torch.randn(3, 1, 4, 4, generator=generator, dtype=torch.float64)
    radius = torch.tensor([0.0, 0.01, 1.0], dtype=torch.float64).reshape(3, 1, 1, 1)
    found = propagate(graph, {"x": (middle - radius, middle + radius)})
    assert list(found) == [node.name for node in graph.nodes]
    for _ in range(50):
        share = torch.rand(3, 1, 4, 4, generator=generator, dtype=torch.float64)
        x = middle + radius * (2 * share.round() - 1 if share[0, 0, 0, 0] < 0.5 else 2 * share - 1)
        x = torch.minimum(torch.maximum(x, middle - radius), middle + radius)
        for name, value in graph.activations(x).items():
            lower, upper = found[name]
            assert ((lower <= value) & (value <= upper)).all()


def test_ends_at_a_point_are_as_close_as_rounding_allows() -> None:
    graph = network()
    point = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for lower, upper in propagate(graph, {"x": (point, point)}).values():
        assert float((upper - lower).max()) < 1e-12


def test_larger_boxes_have_larger_ends() -> None:
    """Inductive: what interval patching rests on. A box inside another stays inside throughout."""
    graph = network()
    point = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    inner = propagate(graph, {"x": (point - 0.1, point + 0.2)})
    outer = propagate(graph, {"x": (point - 0.3, point + 0.2)})
    for name in inner:
        assert (outer[name][0] <= inner[name][0]).all()
        assert (outer[name][1] >= inner[name][1]).all()
