"""Elementwise arithmetic: with constants, and between two tensors of the network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.network.ops.base import (
    LinearOp,
    OnnxWriter,
    Op,
    Shape,
    ShapeError,
    expect_count,
)


def _broadcast(op: Op, size: Shape, *parameters: Tensor | None) -> Shape:
    """The shape of ``size`` against per-sample parameters; only the parameters may stretch."""
    for parameter in parameters:
        if parameter is None:
            continue
        try:
            result = tuple(torch.broadcast_shapes(size, parameter.shape))
        except RuntimeError:
            result = ()
        if result != size:
            raise ShapeError(
                f"{op.name} takes a constant that broadcasts to its input {size}. "
                f"Got a constant of shape {tuple(parameter.shape)} instead."
            )
    return size


@dataclass(frozen=True, eq=False)
class Affine(LinearOp):
    """``y = scale * x + shift`` elementwise, with constants that broadcast over a sample.

    A missing scale is one, a missing shift is zero.
    """

    scale: Tensor | None = None
    shift: Tensor | None = None

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return _broadcast(self, inputs[0], self.scale, self.shift)

    def forward(self, *inputs: Tensor) -> Tensor:
        (value,) = inputs
        if self.scale is not None:
            value = value * self.scale
        return value if self.shift is None else value + self.shift

    @cached_property
    def gain(self) -> float:
        return 1.0 if self.scale is None else float(self.scale.abs().max())

    @property
    def terms(self) -> int:
        return 2

    def spread(self, *inputs: Tensor) -> Tensor:
        return inputs[0] if self.scale is None else inputs[0] * self.scale.abs()

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows if self.scale is None else rows * self.scale,)

    def offset(self) -> Tensor | None:
        return self.shift

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        (value,) = inputs
        if self.scale is not None:
            value = writer.node("Mul", [value, writer.constant(self.scale)])
        if self.shift is not None:
            value = writer.node("Add", [value, writer.constant(self.shift)])
        return value if value != inputs[0] else writer.node("Identity", [value])


@dataclass(frozen=True, eq=False)
class BatchNorm(Affine):
    """Batch normalisation in evaluation mode; its float64 scale and shift define the network.

    It belongs to the layer before it: that layer's components are cut behind it.
    """

    @classmethod
    def from_statistics(
        cls,
        channels: int,
        rank: int,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        epsilon: float,
    ) -> BatchNorm:
        """Scale and shift, in float64, for samples of ``rank`` dimensions, channels first."""
        spread = torch.sqrt(variance.double() + epsilon)
        scale = (torch.ones(channels).double() if weight is None else weight.double()) / spread
        shift = (0.0 if bias is None else bias.double()) - mean.double() * scale
        size = (channels, *([1] * (rank - 1)))
        return cls(scale.reshape(size), shift.reshape(size))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        """A normalisation of mean 0 and variance 1, so that it is read as one again."""
        if (
            self.scale is None
            or self.shift is None
            or self.scale.shape != self.shift.shape
            or not self.scale.shape
        ):
            return super().write_onnx(writer, *inputs)
        scale, shift = self.scale.flatten(), self.shift.flatten()
        statistics = [torch.zeros_like(scale), torch.ones_like(scale)]
        constants = [writer.constant(value) for value in (scale, shift, *statistics)]
        return writer.node("BatchNormalization", [inputs[0], *constants], epsilon=0.0)


@dataclass(frozen=True, eq=False)
class Divide(LinearOp):
    """``y = x / divisor`` elementwise; kept as a division because a reciprocal would be rounded."""

    divisor: Tensor

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        if bool((self.divisor == 0).any()):
            raise ShapeError("Divide takes a divisor without zeros. Got one with a zero instead.")
        return _broadcast(self, inputs[0], self.divisor)

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0] / self.divisor

    @cached_property
    def gain(self) -> float:
        return 1 / float(self.divisor.abs().min()) * (1 + 1e-9)

    @property
    def terms(self) -> int:
        return 1

    def spread(self, *inputs: Tensor) -> Tensor:
        return inputs[0] / self.divisor.abs()

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows / self.divisor,)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Div", [inputs[0], writer.constant(self.divisor)])


def _same_shape(op: Op, inputs: tuple[Shape, ...]) -> Shape:
    expect_count(op, inputs, 2)
    if inputs[0] != inputs[1]:
        raise ShapeError(
            f"{op.name} takes two tensors of one shape. Got {inputs[0]} and {inputs[1]} instead."
        )
    return inputs[0]


@dataclass(frozen=True, eq=False)
class Add(LinearOp):
    """``y = a + b`` for two tensors of the same shape."""

    def shape(self, *inputs: Shape) -> Shape:
        return _same_shape(self, inputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0] + inputs[1]

    @cached_property
    def gain(self) -> float:
        return 2.0

    @property
    def back_gain(self) -> float:
        return 1.0

    @property
    def terms(self) -> int:
        return 2

    def spread(self, *inputs: Tensor) -> Tensor:
        return inputs[0] + inputs[1]

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows, rows)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Add", inputs)


@dataclass(frozen=True, eq=False)
class Subtract(LinearOp):
    """``y = a - b`` for two tensors of the same shape."""

    def shape(self, *inputs: Shape) -> Shape:
        return _same_shape(self, inputs)

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0] - inputs[1]

    @cached_property
    def gain(self) -> float:
        return 2.0

    @property
    def back_gain(self) -> float:
        return 1.0

    @property
    def terms(self) -> int:
        return 2

    def spread(self, *inputs: Tensor) -> Tensor:
        return inputs[0] + inputs[1]

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows, -rows)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Sub", inputs)
