"""Token inputs, and the embeddings that read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.ops.base import OnnxWriter, Op, Shape, expect_count
from provable_circuits.network.ops.source import Input
from provable_circuits.rounding import Interval


@dataclass(frozen=True, eq=False)
class IntegerInput(Input):
    """An input that holds integers, such as tokens."""


@dataclass(frozen=True, eq=False)
class Embedding(Op):
    """``y[..., :] = weight[x[...], :]``; ``weight`` is [tokens, features].

    Tokens travel as numbers of the network's own type. For numbers that are no tokens the
    operation is the nearest row at or below, so that it is a function of every number.
    """

    weight: Tensor

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return (*inputs[0], self.weight.shape[1])

    def _places(self, value: Tensor) -> Tensor:
        return value.floor().nan_to_num(nan=0.0).clamp(0, len(self.weight) - 1).long()

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.weight[self._places(inputs[0])]

    def interval(self, *inputs: Interval) -> Interval:
        """The row itself where one token is left, else the hull of all rows."""
        first, last = (self._places(end) for end in inputs[0])
        row = self.weight[first]
        one = (first == last).unsqueeze(-1)
        if bool(one.all()):
            return row, row
        return (
            torch.where(one, row, self.weight.amin(0)),
            torch.where(one, row, self.weight.amax(0)),
        )

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        tokens = writer.node("Cast", inputs, to=7)  # 7: int64
        return writer.node("Gather", [writer.constant(self.weight), tokens], axis=0)
