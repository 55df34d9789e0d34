"""Products of two tensors of the network: elementwise, and of matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.ops.base import OnnxWriter, Op, Shape, ShapeError, expect_count
from provable_circuits.rounding import TINY, Interval, all_finite, down, gamma, midpoint, settle, up


@dataclass(frozen=True, eq=False)
class Multiply(Op):
    """``y = a * b`` elementwise, for two tensors of the same shape."""

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 2)
        if inputs[0] != inputs[1]:
            raise ShapeError(
                f"Multiply takes two tensors of one shape. Got {inputs[0]} and {inputs[1]} instead."
            )
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0] * inputs[1]

    def interval(self, *inputs: Interval) -> Interval:
        """The least and the greatest of the four products of ends, each rounded outward."""
        products = torch.stack([a * b for a in inputs[0] for b in inputs[1]])
        unknown = products.isnan().any(0)
        lower = torch.where(unknown, -math.inf, products.amin(0))
        upper = torch.where(unknown, math.inf, products.amax(0))
        return settle(down(lower), up(upper))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Mul", inputs)


@dataclass(frozen=True, eq=False)
class MatMul(Op):
    """``y = a @ b`` for two stacks of matrices: [..., n, k] and [..., k, m], the same stack."""

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 2)
        first, second = inputs
        fits = len(first) == len(second) >= 2 and first[:-2] == second[:-2]
        if not fits or first[-1] != second[-2]:
            raise ShapeError(
                "MatMul takes two stacks of matrices, as many columns in the first as rows in the "
                f"second. Got {first} and {second} instead."
            )
        return (*first[:-1], second[-1])

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0] @ inputs[1]

    def interval(self, *inputs: Interval) -> Interval:
        """Midpoint and radius.

        With A within a of its midpoint, B within b of its own,

            |AB - mid A mid B|  <=  (|mid A| + a) b + a |mid B| + gamma(n) |mid A| |mid B| + n TINY.

        The radius is a sum of nonnegative terms and is raised by twice its own relative error.
        """
        terms = inputs[0][0].shape[-1]
        error = gamma(terms + 4)
        (first, a), (second, b) = (midpoint(*ends) for ends in inputs)
        value = first @ second
        size, other = first.abs(), second.abs()
        radius = (size + a) @ (b + error * other) + a @ other
        # What underflows in error * other is less than TINY, once for each term.
        radius = radius + terms * TINY * (1 + (size + a).amax(-1, keepdim=True))
        radius = radius * (1 + 4 * gamma(terms + 8)) + (terms + 4) * TINY
        if not all_finite(value):
            radius = radius.masked_fill(~value.isfinite(), math.inf)
        return settle(down(value - radius), up(value + radius))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("MatMul", inputs)
