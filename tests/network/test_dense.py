from __future__ import annotations

import pytest
import torch

from provable_circuits.errors import UnsupportedOperationError
from provable_circuits.network import dense as module
from provable_circuits.network.dense import dense
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    Activation,
    Add,
    Affine,
    AvgPool2d,
    BatchNorm,
    Clip,
    Concat,
    Constant,
    Conv2d,
    Divide,
    Gather,
    Input,
    LeakyReLU,
    Linear,
    MaxPool2d,
    Mean,
    Op,
    Pad,
    Permute,
    ReLU,
    Reshape,
    Scatter,
    Shape,
    Square,
    Subtract,
    Tanh,
)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(graph: Graph) -> Graph:
    """The dense form gives what the graph gives, flat, and is made of little."""
    flat = dense(graph)
    x = numbers(5, *graph.input_shape, seed=7)
    torch.testing.assert_close(
        flat.run(x.flatten(1)), graph.run(x).flatten(1), rtol=1e-12, atol=1e-12
    )
    for node in flat.nodes:
        assert isinstance(node.op, Input | Constant | Linear | Add | Activation)
        assert len(node.shape) == 1
    return flat


@pytest.mark.parametrize(
    ("shape", "op"),
    [
        ((4,), Linear(numbers(3, 4), numbers(3))),
        ((2, 4), Linear(numbers(3, 4), numbers(3))),
        ((2, 5, 4), Conv2d(numbers(3, 2, 3, 2), numbers(3), (2, 1), (1, 0), (1, 2))),
        ((4, 3, 3), Conv2d(numbers(2, 2, 2, 2), None, groups=2)),
        ((2, 3), Affine(numbers(3), numbers(2, 1))),
        ((2, 3, 3), BatchNorm(numbers(2, 1, 1), numbers(2, 1, 1))),
        ((3,), Divide(torch.tensor([3.0, -7.0, 0.5]))),
        ((2, 4, 4), AvgPool2d((2, 2), (2, 2))),
        ((2, 4, 4), Mean((1, 2), 16)),
        ((2, 3), Reshape((3, 2))),
        ((2, 3, 4), Permute((2, 0, 1))),
        ((2, 3, 4), Pad((1, 0, 2, 3))),
        ((2, 3), Gather(torch.tensor([[5, 0], [3, 3]]))),
        ((2, 3), Scatter(torch.tensor([7, 1, 2, 6, 0, 4]), (2, 2, 2))),
        ((2, 4, 4), MaxPool2d((2, 2), (2, 2))),
        ((3,), Clip(-0.5, 0.5)),
        ((3,), LeakyReLU(0.1)),
        ((3,), Tanh()),
    ],
    ids=lambda value: str(value)[:30],
)
def test_every_operation(shape: Shape, op: Op) -> None:
    builder = GraphBuilder()
    assert_same(builder.build([builder.add("y", op, builder.input("x", shape))]))


def test_several_tensors_and_constants() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (2, 3))
    hidden = builder.add("relu", ReLU(), builder.add("fc", Linear(numbers(3, 3)), x))
    fixed = builder.constant("fixed", numbers(1, 3))
    joined = builder.add("joined", Concat(0), hidden, fixed, x)
    both = builder.add("both", Gather(torch.arange(6).reshape(2, 3)), joined)
    gap = builder.add("gap", Subtract(), both, x)
    graph = assert_same(builder.build([builder.add("sum", Add(), gap, gap)]))
    assert "joined" in graph
    assert graph.outputs == ("sum",)


def test_weights_are_the_operations_own() -> None:
    builder = GraphBuilder()
    weight = numbers(3, 2, 2, 2)
    graph = builder.build([builder.add("conv", Conv2d(weight), builder.input("x", (2, 3, 3)))])
    matrix = dense(graph)["conv"].op.parameters()["weight"]
    assert set(matrix.flatten().tolist()) == {0.0, *weight.flatten().tolist()}


def test_what_has_no_dense_form(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = GraphBuilder()
    x = builder.input("x", (3,))
    with pytest.raises(UnsupportedOperationError, match="Square 'y' has no dense form"):
        dense(builder.build([builder.add("y", Square(), x)]))
    monkeypatch.setattr(module, "MOST_ENTRIES", 8)
    with pytest.raises(UnsupportedOperationError, match="too large for a dense matrix: 3 outputs"):
        dense(builder.build([builder.add("z", Affine(numbers(3)), x)]))
