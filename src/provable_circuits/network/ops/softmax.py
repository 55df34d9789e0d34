"""Softmax, and the masks in front of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from provable_circuits.network.ops.base import OnnxWriter, Op, Shape, ShapeError, expect_count
from provable_circuits.rounding import TINY, UNIT_ROUNDOFF, Interval, gamma, settle


@dataclass(frozen=True, eq=False)
class Fill(Op):
    """``y = value`` where ``mask`` is true, ``x`` elsewhere; the value may be minus infinity.

    In front of a softmax, minus infinity says that a place gets no weight.
    """

    mask: Tensor
    value: float

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        try:
            fits = tuple(torch.broadcast_shapes(inputs[0], self.mask.shape)) == inputs[0]
        except RuntimeError:
            fits = False
        if not fits or math.isnan(self.value):
            raise ShapeError(
                f"Fill takes a mask that broadcasts to its input {inputs[0]}. "
                f"Got a mask of shape {tuple(self.mask.shape)} instead."
            )
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].masked_fill(self.mask, self.value)

    def interval(self, *inputs: Interval) -> Interval:
        return self.forward(inputs[0][0]), self.forward(inputs[0][1])

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        return replace(self, mask=self.mask.to(device))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        mask = writer.node("Cast", [writer.constant(self.mask.long())], to=9)  # 9: bool
        value = writer.constant(torch.tensor(self.value, dtype=torch.float64))
        return writer.node("Where", [mask, value, inputs[0]])


def _exponentials(x: Tensor) -> tuple[Tensor, Tensor]:
    """An upper and a lower bound of exp(x) for a rounded difference x.

    The function is computed to within 8 units in the last place, and the rounding of x, at most
    u |x|, changes it by as much, relatively. What underflows is below TINY.
    """
    value = torch.exp(x)
    slack = UNIT_ROUNDOFF * (32 + 4 * x.abs().clamp_max(800.0))
    return value * (1 + slack) + TINY, (value * (1 - slack) - TINY).clamp_min(0)


@dataclass(frozen=True, eq=False)
class Softmax(Op):
    """``y_i = exp(x_i) / sum_j exp(x_j)`` along one per-sample dimension."""

    dim: int

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        if not 0 <= self.dim < len(inputs[0]):
            raise ShapeError(f"Softmax along {self.dim} does not fit a tensor of {inputs[0]}.")
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.softmax(inputs[0], self.dim + 1)

    def interval(self, *inputs: Interval) -> Interval:
        """Each weight is least where its own score is least and all others are greatest.

            exp(l_i) / (exp(l_i) + sum_{j != i} exp(u_j))  <=  y_i,

        and the other way round for its upper end.
        Scores are taken relative to the greatest end, which changes nothing.
        """
        lower, upper = inputs[0]
        dim = self.dim + 1
        top = upper.amax(dim, keepdim=True)
        count = lower.shape[dim]
        error = 2 * gamma(count + 8)
        high_of_low, low_of_low = _exponentials(lower - top)
        high_of_high, low_of_high = _exponentials(upper - top)
        total = high_of_high.sum(dim, keepdim=True)
        rest = (total - high_of_high + error * total).clamp_min(0) + count * TINY
        low = low_of_low / (high_of_low + rest) * (1 - error)
        total = low_of_low.sum(dim, keepdim=True)
        rest = (total - low_of_low - error * total - count * TINY).clamp_min(0)
        high = high_of_high / (low_of_high + rest) * (1 + error)
        low, high = settle(low, high)
        # A place that a mask excludes weighs nothing; where all are excluded nothing is defined.
        none = top == -math.inf
        high = high.clamp(0, 1).masked_fill(upper == -math.inf, 0.0)
        return low.clamp(0, 1).masked_fill(none, -math.inf), high.masked_fill(none, math.inf)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Softmax", inputs, axis=self.dim + 1)
