"""Activation functions: elementwise, without parameters to learn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from provable_circuits.network.ops.base import OnnxWriter, Op, Shape, ShapeError, expect_count
from provable_circuits.rounding import Interval, down, enclose_monotone, settle, up


class Activation(Op):
    """An elementwise, nondecreasing function of one tensor.

    ``ulps`` bounds the error of ``forward`` in units in the last place; 0 means that it is exact.
    ``least`` and ``most`` are ends that no exact value exceeds.
    """

    ulps: ClassVar[int] = 0
    least: ClassVar[float] = -math.inf
    most: ClassVar[float] = math.inf

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = (self.forward(end) for end in inputs[0])
        if self.ulps == 0:
            return lower, upper
        lower, upper = enclose_monotone(lower, upper, self.ulps)
        return lower.clamp_min(self.least), upper.clamp_max(self.most)

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return inputs[0]


@dataclass(frozen=True, eq=False)
class ReLU(Activation):
    """``y = max(x, 0)``."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return F.relu(inputs[0])

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Relu", inputs)


@dataclass(frozen=True, eq=False)
class LeakyReLU(Activation):
    """``y = x`` where x is positive, ``slope * x`` elsewhere, for a slope from 0 to 1."""

    slope: float = 0.01
    ulps: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.slope <= 1:
            raise ShapeError(f"LeakyReLU takes a slope from 0 to 1. Got {self.slope} instead.")

    def forward(self, *inputs: Tensor) -> Tensor:
        return F.leaky_relu(inputs[0], self.slope)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("LeakyRelu", inputs, alpha=self.slope)


@dataclass(frozen=True, eq=False)
class Clip(Activation):
    """``y = min(max(x, low), high)``; either end may be infinite."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (self.low <= self.high and self.low < math.inf and self.high > -math.inf):
            raise ShapeError(
                "Clip takes a lower end at or below its upper end. "
                f"Got {self.low} and {self.high} instead."
            )

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].clamp(self.low, self.high)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        ends = [
            writer.constant(torch.tensor(end, dtype=torch.float64)) for end in (self.low, self.high)
        ]
        return writer.node("Clip", [inputs[0], *ends])


@dataclass(frozen=True, eq=False)
class Sigmoid(Activation):
    """``y = 1 / (1 + exp(-x))``."""

    ulps: ClassVar[int] = 8
    least: ClassVar[float] = 0.0
    most: ClassVar[float] = 1.0

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.sigmoid(inputs[0])

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Sigmoid", inputs)


@dataclass(frozen=True, eq=False)
class Tanh(Activation):
    """``y = tanh(x)``."""

    ulps: ClassVar[int] = 8
    least: ClassVar[float] = -1.0
    most: ClassVar[float] = 1.0

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.tanh(inputs[0])

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Tanh", inputs)


@dataclass(frozen=True, eq=False)
class Square(Op):
    """``y = x * x``; it serves the 2-norm of outputs in claims."""

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0] * inputs[0]

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = inputs[0]
        inside = (lower <= 0) & (upper >= 0)
        ends = (lower * lower, upper * upper)
        least = torch.where(
            inside, torch.zeros_like(lower), down(torch.minimum(*ends)).clamp_min(0)
        )
        return settle(least, up(torch.maximum(*ends)))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Mul", [inputs[0], inputs[0]])
