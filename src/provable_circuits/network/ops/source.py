"""Where tensors come from: the inputs of a graph, and constants."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.ops.base import OnnxWriter, Op, Shape, expect_count
from provable_circuits.rounding import Interval


@dataclass(frozen=True, eq=False)
class Input(Op):
    """A tensor that the caller supplies; ``size`` is its per-sample shape."""

    size: Shape

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 0)
        return self.size

    def forward(self, *inputs: Tensor) -> Tensor:
        raise RuntimeError("an Input is fed, never computed")

    def interval(self, *inputs: Interval) -> Interval:
        raise RuntimeError("an Input is fed, never computed")

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        raise RuntimeError("an Input is declared by the file, never written as a node")


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """A tensor that is the same for every sample; ``value`` has the per-sample shape."""

    value: Tensor

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 0)
        return tuple(self.value.shape)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The value with a batch dimension of one, which broadcasts."""
        return self.value.unsqueeze(0)

    def interval(self, *inputs: Interval) -> Interval:
        value = self.forward()
        return value, value

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Identity", [writer.constant(self.value.unsqueeze(0))])


def as_parameter(value: Tensor) -> Tensor:
    """A detached, contiguous copy that nobody else can change."""
    return torch.clone(value.detach(), memory_format=torch.contiguous_format).requires_grad_(False)
