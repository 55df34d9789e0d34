"""The rows of the contract of operations: one per operation or variant.

To add an operation, add its row to ``ROWS`` and its exact definition to ``exact``
in ``tests/network/definitions.py``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.ops import LinearOp, Op, Shape

Draw = Callable[..., Tensor]
"""Makes a parameter of the given lengths; rows are drawn with tame and with wild numbers."""

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Row:
    """One operation: how it is made from drawn parameters, what it reads, and what it refuses."""

    name: str
    make: Callable[[Draw], Op]
    inputs: tuple[Shape, ...]
    wrong: tuple[Shape, ...] = ()
    says: str = ""
    partial: bool = False
    """Not defined for every number: tested on its own, in ``test_ops_smooth.py``."""


MAP = (2, 5, 6)
"""A small feature map whose sides differ, so that mixed-up axes show."""


def _conv(out: int, each: int, height: int, width: int, **settings: Any) -> Callable[[Draw], Op]:
    return lambda draw: ops.Conv2d(draw(out, each, height, width), draw(out), **settings)


def _no_zeros(value: Tensor) -> Tensor:
    return torch.where(value == 0, torch.ones_like(value), value)


ROWS = [
    Row("constant", lambda draw: ops.Constant(draw(2, 3)), (), ((2,),), "takes 0 input"),
    Row(
        "linear",
        lambda draw: ops.Linear(draw(4, 3), draw(4)),
        ((3,),),
        ((2,),),
        r"last dimension is 3. Got \(2,\)",
    ),
    Row(
        "linear without bias", lambda draw: ops.Linear(draw(2, 5)), ((5,),), ((),), "dimension is 5"
    ),
    Row(
        "linear on two dimensions",
        lambda draw: ops.Linear(draw(4, 3), draw(4)),
        ((2, 3),),
        ((3, 2),),
        "last dimension",
    ),
    Row(
        "linear of one unit", lambda draw: ops.Linear(draw(1, 1)), ((1,),), ((1,), (1,)), "1 input"
    ),
    Row("conv", _conv(3, 2, 3, 2), (MAP,), ((3, 5, 6),), r"2 channels.*Got \(3, 5, 6\)"),
    Row(
        "conv without bias",
        lambda draw: ops.Conv2d(draw(1, 2, 1, 1)),
        (MAP,),
        ((2, 5),),
        "height and width",
    ),
    Row("conv, strided", _conv(2, 2, 3, 3, stride=(2, 3)), (MAP,), ((2, 2, 6),), "larger than"),
    Row("conv, padded", _conv(2, 2, 3, 3, padding=(2, 1)), (MAP,), ((2, 6),), "Got"),
    Row("conv, dilated", _conv(2, 2, 2, 3, dilation=(3, 2)), (MAP,), ((2, 3, 6),), "larger than"),
    Row("conv, grouped", _conv(4, 1, 3, 3, groups=2), (MAP,), ((1, 5, 6),), "2 channels"),
    Row(
        "conv, everything",
        _conv(4, 1, 2, 3, stride=(2, 2), padding=(1, 2), dilation=(2, 1), groups=2),
        (MAP,),
        ((4, 5, 6),),
        "2 channels",
    ),
    Row("affine", lambda draw: ops.Affine(draw(3), draw(3)), ((3,),), ((2,),), r"shape \(3,\)"),
    Row("affine, scale", lambda draw: ops.Affine(scale=draw()), (MAP,), (MAP, MAP), "1 input"),
    Row(
        "affine, shift",
        lambda draw: ops.Affine(shift=draw(2, 1, 1)),
        (MAP,),
        ((3, 5, 6),),
        "Affine",
    ),
    Row(
        "affine, both broadcast",
        lambda draw: ops.Affine(draw(2, 1, 6), draw(5, 1)),
        (MAP,),
        ((1, 5, 6),),
        "broadcasts to its input",
    ),
    Row("affine, neither", lambda draw: ops.Affine(), ((3,),), (), ""),
    Row(
        "batch norm",
        lambda draw: ops.BatchNorm(draw(2, 1, 1), draw(2, 1, 1)),
        (MAP,),
        ((5, 6),),
        "BatchNorm takes a constant",
    ),
    Row(
        "divide",
        lambda draw: ops.Divide(_no_zeros(draw(2, 1, 1))),
        (MAP,),
        ((3, 5, 6),),
        "Divide takes a constant",
    ),
    Row(
        "add", lambda draw: ops.Add(), ((2, 3), (2, 3)), ((2, 3), (3, 2)), r"\(2, 3\) and \(3, 2\)"
    ),
    Row("subtract", lambda draw: ops.Subtract(), ((3,), (3,)), ((3,),), "2 input"),
    Row("relu", lambda draw: ops.ReLU(), ((2, 3),), ((2,), (2,)), "ReLU takes 1 input"),
    Row("leaky relu", lambda draw: ops.LeakyReLU(0.1), ((4,),), (), ""),
    Row("leaky relu, flat", lambda draw: ops.LeakyReLU(0.0), ((4,),), (), ""),
    Row("clip", lambda draw: ops.Clip(-0.5, 1.5), ((4,),), (), ""),
    Row("clip, above only", lambda draw: ops.Clip(-math.inf, 0.25), ((4,),), (), ""),
    Row("sigmoid", lambda draw: ops.Sigmoid(), ((4,),), (), ""),
    Row("tanh", lambda draw: ops.Tanh(), ((4,),), (), ""),
    Row("square", lambda draw: ops.Square(), ((4,),), (), ""),
    Row("average", lambda draw: ops.AvgPool2d((2, 3), (2, 3)), (MAP,), ((2, 1, 6),), "larger than"),
    Row(
        "average, overlapping",
        lambda draw: ops.AvgPool2d((3, 3), (1, 1), (1, 1)),
        (MAP,),
        ((5, 6),),
        "channels, height and width",
    ),
    Row(
        "average, padding not counted",
        lambda draw: ops.AvgPool2d((3, 2), (2, 2), (1, 1), False, False),
        (MAP,),
        ((6,),),
        "feature maps",
    ),
    Row("average, ceil", lambda draw: ops.AvgPool2d((2, 4), (2, 3), (0, 2), True), (MAP,), (), ""),
    Row(
        "average, ceil, padding not counted",
        lambda draw: ops.AvgPool2d((3, 3), (3, 3), (1, 1), True, False),
        (MAP,),
        (),
        "",
    ),
    Row(
        "average, half padding",
        lambda draw: ops.AvgPool2d((2, 2), (1, 1), (1, 1)),
        (MAP,),
        (),
        "",
    ),
    Row(
        "adaptive average",
        lambda draw: ops.AdaptiveAvgPool2d((5, 6), (2, 4)),
        (MAP,),
        ((2, 6, 5),),
        r"\(5, 6\)",
    ),
    Row(
        "adaptive average, enlarging",
        lambda draw: ops.AdaptiveAvgPool2d((2, 3), (7, 5)),
        ((1, 2, 3),),
        (),
        "",
    ),
    Row("max", lambda draw: ops.MaxPool2d((2, 2), (2, 2)), (MAP,), ((2, 1, 6),), "larger than"),
    Row(
        "max, padded",
        lambda draw: ops.MaxPool2d((3, 2), (2, 1), (1, 0, 1, 0)),
        (MAP,),
        ((2, 5),),
        "feature maps",
    ),
    Row(
        "max, uneven padding",
        lambda draw: ops.MaxPool2d((3, 3), (1, 1), (0, 1, 2, 2)),
        (MAP,),
        (),
        "",
    ),
    Row(
        "max, dilated",
        lambda draw: ops.MaxPool2d((2, 3), (2, 1), (0, 0, 0, 0), (2, 2)),
        (MAP,),
        ((2, 2, 6),),
        "larger than",
    ),
    Row(
        "max, ceil", lambda draw: ops.MaxPool2d((2, 4), (2, 3), (1, 1, 1, 1), (1, 1), True), (MAP,)
    ),
    Row("mean, spatial", lambda draw: ops.Mean((1, 2), 30), (MAP,), ((2, 5, 5),), "30 values"),
    Row("mean, kept", lambda draw: ops.Mean((0,), 2, True), (MAP,), ((3, 5, 6),), "Mean over 2"),
    Row("mean, last", lambda draw: ops.Mean((2,), 6), (MAP,), ((2, 6),), "does not fit"),
    Row("reshape", lambda draw: ops.Reshape((6, 10)), (MAP,), ((2, 5),), "cannot turn"),
    Row("flatten", lambda draw: ops.Reshape((60,)), (MAP,), ((59,),), "Reshape"),
    Row("permute", lambda draw: ops.Permute((2, 0, 1)), (MAP,), ((5, 6),), "Permute"),
    Row(
        "concat",
        lambda draw: ops.Concat(1),
        ((2, 3), (2, 1), (2, 2)),
        ((2, 3), (3, 3)),
        "along dimension 1",
    ),
    Row("concat of one", lambda draw: ops.Concat(0), ((2,),), (), ""),
    Row("concat of vectors", lambda draw: ops.Concat(0), ((2,), (3,)), (), ""),
    Row("pad", lambda draw: ops.Pad((1, 0, 2, 3)), (MAP,), ((5, 6),), "around feature maps"),
    Row(
        "gather",
        lambda draw: ops.Gather(torch.tensor([[3, 0], [3, 5]])),
        ((2, 3),),
        ((5,),),
        "beyond",
    ),
    Row(
        "gather, distinct",
        lambda draw: ops.Gather(torch.tensor([4, 0, 5])),
        ((2, 3),),
        ((2, 2),),
        "Gather's index",
    ),
    Row(
        "scatter",
        lambda draw: ops.Scatter(torch.tensor([4, 1, 0]), (2, 3)),
        ((3,),),
        ((4,),),
        "Scatter's index does not fit",
    ),
    Row("slice", lambda draw: ops.Slice(1, 1, 5, 2), (MAP,), ((2, 4, 6),), "does not fit"),
    Row("expand", lambda draw: ops.Expand((2, 4, 3)), ((2, 1, 3),), ((4, 3),), "cannot turn"),
    Row("sum", lambda draw: ops.Sum((0, 2), 12), (MAP,), ((3, 5, 6),), "Sum over 12"),
    Row("sum, kept", lambda draw: ops.Sum((1,), 5, True), (MAP,), ((2, 6),), "Sum"),
    Row("multiply", lambda draw: ops.Multiply(), ((2, 3), (2, 3)), ((2, 3), (3,)), r"\(3,\)"),
    Row("matmul", lambda draw: ops.MatMul(), ((2, 3), (3, 4)), ((2, 3), (2, 4)), "as many columns"),
    Row(
        "matmul of stacks", lambda draw: ops.MatMul(), ((2, 3, 4), (2, 4, 1)), ((2, 2),), "2 input"
    ),
    Row("softmax", lambda draw: ops.Softmax(1), ((2, 4),), ((2,),), "does not fit"),
    Row("softmax, first", lambda draw: ops.Softmax(0), ((3, 2),), ((2,), (2,)), "1 input"),
    Row(
        "fill",
        lambda draw: ops.Fill(torch.tensor([[True], [False]]), -2.5),
        ((2, 3),),
        ((3, 3),),
        "Fill takes a mask",
    ),
    Row("gelu", lambda draw: ops.GELU(), ((4,),), ((2,), (2,)), "GELU takes 1 input"),
    Row("gelu, tanh", lambda draw: ops.GELU(True), ((4,),), (), ""),
    Row("silu", lambda draw: ops.SiLU(), ((4,),), (), ""),
    Row("exp", lambda draw: ops.Exp(), ((4,),), (), ""),
    Row("erf", lambda draw: ops.Erf(), ((4,),), (), ""),
    Row("sqrt", lambda draw: ops.Sqrt(), ((4,),), (), "", partial=True),
    Row("reciprocal", lambda draw: ops.Reciprocal(), ((4,),), ((), ()), "takes 1", partial=True),
    Row("power", lambda draw: ops.Power(3), ((4,),), ((), ()), "Power takes 1"),
    Row("power, even", lambda draw: ops.Power(4), ((4,),), (), ""),
    Row("normalise", lambda draw: ops.Normalise(1, 1e-5), ((2, 4),), ((),), "does not fit"),
    Row("normalise two", lambda draw: ops.Normalise(2, 0.1), ((2, 2, 3),), ((2,),), "last 2"),
    Row("normalise, not centred", lambda draw: ops.Normalise(1, 1e-6, False), ((4,),), (), ""),
    Row("embedding", lambda draw: ops.Embedding(draw(3, 2)), ((4,),), ((), ()), "1 input"),
]


def each(rows: list[Row]) -> pytest.MarkDecorator:
    """Run a test for every row."""
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


def tame(seed: int) -> Draw:
    """Ordinary numbers."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


def wild(seed: int) -> Draw:
    """Zeros, denormal, tiny, huge and nearly overflowing numbers side by side, and whole ones that
    cancel."""
    source = random.Random(seed)

    def number() -> float:
        kind = source.choice(["zero", "whole", "cancel", "denormal", "tiny", "huge", "any"])
        sign = source.choice([-1.0, 1.0])
        return (
            sign
            * {
                "zero": 0.0,
                "whole": float(source.randrange(1, 4)),
                "cancel": 1e16,
                "denormal": source.random() * 2.0**-1023,
                "tiny": source.random() * 2.0 ** source.randrange(-600, -400),
                "huge": source.random() * 2.0 ** source.choice([400, 600, 1000, 1023]),
                "any": source.random() * 2.0 ** source.randrange(-60, 60),
            }[kind]
        )

    def draw(*shape: int) -> Tensor:
        values = [number() for _ in range(math.prod(shape))]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    return draw


COMPUTED = [row for row in ROWS if row.inputs and not row.partial]
LINEAR = [row for row in COMPUTED if isinstance(row.make(tame(0)), LinearOp)]
ACTIVATIONS = [row for row in COMPUTED if isinstance(row.make(tame(0)), ops.Activation)]
CORNERED = [
    row
    for row in COMPUTED
    if isinstance(row.make(tame(0)), LinearOp | ops.Square | ops.Activation | ops.Fill)
]
"""Operations whose extremes over a box are taken at corners, or at zero."""
