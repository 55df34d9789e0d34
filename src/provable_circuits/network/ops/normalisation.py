"""Normalisations whose statistics come from the sample itself: LayerNorm and RMSNorm.

    y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon)         over the last dimensions

Scale and shift behind it are an ``Affine`` of their own. The quotient never exceeds sqrt(n), which
keeps wide enclosures useful; the root is taken of a number of at least epsilon, so that nothing is
divided by an interval around zero unless epsilon is zero, in which case the enclosure is unbounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.ops.base import OnnxWriter, Op, Shape, ShapeError, expect_count
from provable_circuits.rounding import TINY, Interval, down, gamma, midpoint, settle, up


@dataclass(frozen=True, eq=False)
class Normalise(Op):
    """The last ``rank`` dimensions, centred unless ``centred`` is false, over their deviation."""

    rank: int
    epsilon: float
    centred: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        if not 1 <= self.rank <= len(inputs[0]) or not self.epsilon >= 0:
            raise ShapeError(
                f"Normalise over the last {self.rank} dimensions does not fit {inputs[0]}."
            )
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        value = inputs[0].flatten(-self.rank) if self.rank > 1 else inputs[0]
        if self.centred:
            value = value - value.mean(-1, keepdim=True)
        spread = value.square().mean(-1, keepdim=True) + self.epsilon
        return (value / spread.sqrt()).reshape(inputs[0].shape)

    def interval(self, *inputs: Interval) -> Interval:
        shape = inputs[0][0].shape
        lower, upper = (end.flatten(-self.rank) for end in inputs[0])
        count = lower.shape[-1]
        middle, radius = midpoint(lower, upper)
        error = gamma(count + 8)
        if self.centred:
            mean = middle.mean(-1, keepdim=True)
            size = middle.abs().mean(-1, keepdim=True)
            radius = radius + radius.mean(-1, keepdim=True)
            radius = radius + 2 * error * (size + middle.abs())
            middle = middle - mean
        radius = radius * (1 + 2 * error) + count * TINY
        least = (middle.abs() - radius).clamp_min(0)
        most = middle.abs() + radius
        # Mean squares, each a sum of nonnegative terms with a relative error of at most error.
        small = least.square().mean(-1, keepdim=True) * (1 - 2 * error) - TINY
        large = most.square().mean(-1, keepdim=True) * (1 + 2 * error) + TINY
        small = (small.clamp_min(0) + self.epsilon) * (1 - 2 * error)
        # A sum that overflows is at least the largest number, its mean that over the count.
        small = small.clamp_max(torch.finfo(small.dtype).max / (2 * count))
        large = (large + self.epsilon) * (1 + 2 * error)
        narrow, wide = down(down(small.sqrt())).clamp_min(0), up(up(large.sqrt()))
        low, high = middle - radius, middle + radius
        low, high = down(low), up(high)
        lowest = torch.where(low < 0, low / narrow, low / wide)
        highest = torch.where(high > 0, high / narrow, high / wide)
        lowest, highest = settle(down(lowest), up(highest))
        reach = math.sqrt(count) * (1 + 1e-12)
        if self.epsilon > 0:
            lowest, highest = lowest.clamp(-reach, reach), highest.clamp(-reach, reach)
        else:
            open_ = narrow == 0
            lowest = lowest.masked_fill(open_.expand_as(lowest), -math.inf)
            highest = highest.masked_fill(open_.expand_as(highest), math.inf)
        return lowest.reshape(shape), highest.reshape(shape)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        axes = writer.constant(torch.arange(-self.rank, 0))
        value = inputs[0]
        if self.centred:
            mean = writer.node("ReduceMean", [value, axes], keepdims=1)
            value = writer.node("Sub", [value, mean])
        square = writer.node("Mul", [value, value])
        spread = writer.node("ReduceMean", [square, axes], keepdims=1)
        epsilon = writer.constant(torch.tensor(self.epsilon, dtype=torch.float64))
        root = writer.node("Sqrt", [writer.node("Add", [spread, epsilon])])
        return writer.node("Div", [value, root])
