"""Smooth functions of one tensor: GELU, SiLU, exponentials, roots, reciprocals and powers.

Values are computed in floating point and widened by a bound of their error; where a function is not
monotone, its least value inside the interval counts too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from provable_circuits.network.ops.activations import Activation
from provable_circuits.network.ops.base import OnnxWriter, Op, Shape, ShapeError, expect_count
from provable_circuits.rounding import (
    TINY,
    UNIT_ROUNDOFF,
    Interval,
    down,
    enclose_monotone,
    settle,
    up,
)


class OneDip(Op):
    """A function that falls to its only minimum and rises from there, to zero on its left side.

    ``dip`` lies within 1e-3 of where the minimum is taken, ``least`` at or below its value.
    """

    dip: ClassVar[float]
    least: ClassVar[float]

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return inputs[0]

    def interval(self, *inputs: Interval) -> Interval:
        """``x * g(x)`` with g from 0 to 1, off by at most 16 units in the last place of x."""
        ends = [self._enclosed(end) for end in inputs[0]]
        (first_low, first_high), (last_low, last_high) = ends
        lower, upper = inputs[0]
        lower_value = torch.minimum(first_low, last_low)
        inside = (lower < self.dip + 1e-3) & (upper > self.dip - 1e-3)
        lower_value = torch.where(inside, torch.full_like(lower, self.least), lower_value)
        return settle(lower_value, torch.maximum(first_high, last_high))

    def _enclosed(self, x: Tensor) -> Interval:
        value = self.forward(x)
        value = torch.where(x == -math.inf, torch.zeros_like(x), value)
        slack = (32 * UNIT_ROUNDOFF * x.abs()).nan_to_num(posinf=0.0) + TINY
        # Beyond -40 all of them lie between -1e-15 and 0.
        far = x < -40
        low = torch.where(far, torch.full_like(x, -1e-15), down(value - slack))
        high = torch.where(far, torch.zeros_like(x), up(value + slack))
        return low.clamp_min(self.least), high


@dataclass(frozen=True, eq=False)
class GELU(OneDip):
    """``y = x Phi(x)``; with ``tanh`` the approximation by a hyperbolic tangent."""

    tanh: bool = False
    dip: ClassVar[float] = -0.7520
    least: ClassVar[float] = -0.1701

    def forward(self, *inputs: Tensor) -> Tensor:
        return F.gelu(inputs[0], approximate="tanh" if self.tanh else "none")

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Gelu", inputs, approximate="tanh" if self.tanh else "none")


@dataclass(frozen=True, eq=False)
class SiLU(OneDip):
    """``y = x / (1 + exp(-x))``."""

    dip: ClassVar[float] = -1.2785
    least: ClassVar[float] = -0.2785

    def forward(self, *inputs: Tensor) -> Tensor:
        return F.silu(inputs[0])

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Mul", [inputs[0], writer.node("Sigmoid", inputs)])


@dataclass(frozen=True, eq=False)
class Exp(Activation):
    """``y = exp(x)``."""

    ulps: ClassVar[int] = 8
    least: ClassVar[float] = 0.0

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.exp(inputs[0])

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = (self.forward(end) for end in inputs[0])
        # Where an exponential overflows, the exact value is larger than any number.
        lower = lower.clamp_max(torch.finfo(lower.dtype).max)
        lower, upper = enclose_monotone(lower, upper, self.ulps)
        return lower.clamp_min(0), upper

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Exp", inputs)


@dataclass(frozen=True, eq=False)
class Erf(Activation):
    """The error function."""

    ulps: ClassVar[int] = 8
    least: ClassVar[float] = -1.0
    most: ClassVar[float] = 1.0

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.erf(inputs[0])

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Erf", inputs)


@dataclass(frozen=True, eq=False)
class Sqrt(Activation):
    """``y = sqrt(x)``, and 0 for negative x; an enclosure that reaches below zero is unbounded."""

    ulps: ClassVar[int] = 1
    least: ClassVar[float] = 0.0

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.sqrt(inputs[0])

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = super().interval(*inputs)
        outside = inputs[0][0] < 0
        return lower.masked_fill(outside, -math.inf), upper.masked_fill(outside, math.inf)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Sqrt", inputs)


@dataclass(frozen=True, eq=False)
class Reciprocal(Op):
    """``y = 1 / x``; around zero its enclosure is unbounded."""

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].reciprocal()

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = inputs[0]
        around = (lower <= 0) & (upper >= 0)
        low, high = settle(down(1 / upper), up(1 / lower))
        return low.masked_fill(around, -math.inf), high.masked_fill(around, math.inf)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Reciprocal", inputs)


@dataclass(frozen=True, eq=False)
class Power(Op):
    """``y = x ** exponent`` for a whole exponent of at least 2."""

    exponent: int

    def __post_init__(self) -> None:
        if self.exponent < 2 or self.exponent > 64:
            raise ShapeError(
                f"Power takes a whole exponent from 2 to 64. Got {self.exponent} instead."
            )

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        value = inputs[0]
        for _ in range(self.exponent - 1):
            value = value * inputs[0]
        return value

    def interval(self, *inputs: Interval) -> Interval:
        """At most 63 roundings, each relative, or an underflow."""
        lower, upper = inputs[0]
        slack = 4 * self.exponent * UNIT_ROUNDOFF
        ends = [self.forward(end) for end in (lower, upper)]
        low, high = torch.minimum(*ends), torch.maximum(*ends)
        if self.exponent % 2 == 0:
            low = torch.where((lower <= 0) & (upper >= 0), torch.zeros_like(low), low)
        # An underflow on the way is multiplied by what follows, where factors are below 1.
        low = down(low - (low.abs() * slack + 64 * TINY))
        high = up(high + (high.abs() * slack + 64 * TINY))
        low = low.clamp_max(torch.finfo(low.dtype).max)
        high = high.clamp_min(-torch.finfo(low.dtype).max)
        low, high = settle(low, high)
        return (low.clamp_min(0) if self.exponent % 2 == 0 else low), high

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        exponent = writer.constant(torch.tensor(float(self.exponent), dtype=torch.float64))
        return writer.node("Pow", [inputs[0], exponent])
