"""The layers that carry weights: linear and two-dimensional convolution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch.nn.functional as F
from torch import Tensor

from provable_circuits.network.ops.base import LinearOp, OnnxWriter, Shape, ShapeError, expect_count

Pair = tuple[int, int]


def _expect_bias(op: LinearOp, weight: Tensor, bias: Tensor | None) -> None:
    """Refuse a bias that is not one number for each unit or filter."""
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"{op.name} takes a bias of shape {tuple(weight.shape[:1])}. "
            f"Got {tuple(bias.shape)} instead."
        )


@dataclass(frozen=True, eq=False)
class Linear(LinearOp):
    """``y = x W^T + b`` on the last dimension; ``weight`` is [out, in], ``bias`` [out] or None."""

    weight: Tensor
    bias: Tensor | None = None

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        (size,) = inputs
        features = self.weight.shape[1]
        if not size or size[-1] != features:
            raise ShapeError(
                f"Linear takes tensors whose last dimension is {features}. Got {size} instead."
            )
        _expect_bias(self, self.weight, self.bias)
        return (*size[:-1], self.weight.shape[0])

    def forward(self, *inputs: Tensor) -> Tensor:
        return F.linear(inputs[0], self.weight, self.bias)

    @property
    def terms(self) -> int:
        return self.weight.shape[1] + 1

    @cached_property
    def gain(self) -> float:
        return float(self._magnitude.double().flatten(1).sum(1).max()) * (1 + 1e-9)

    @property
    def back_terms(self) -> int:
        return self.weight.shape[0]

    @cached_property
    def _magnitude(self) -> Tensor:
        return self.weight.abs()

    def spread(self, *inputs: Tensor) -> Tensor:
        return F.linear(inputs[0], self._magnitude)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows @ self.weight,)

    def offset(self) -> Tensor | None:
        return self.bias

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        product = writer.node("MatMul", [inputs[0], writer.constant(self.weight.T)])
        if self.bias is None:
            return product
        return writer.node("Add", [product, writer.constant(self.bias)])


@dataclass(frozen=True, eq=False)
class Conv2d(LinearOp):
    """Cross-correlation; ``weight`` is [out, in / groups, height, width], padding with zeros."""

    weight: Tensor
    bias: Tensor | None = None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        (size,) = inputs
        channels = self.weight.shape[1] * self.groups
        if len(size) != 3 or size[0] != channels:
            raise ShapeError(
                f"Conv2d takes tensors of {channels} channels, height and width. "
                f"Got {size} instead."
            )
        if self.weight.shape[0] % self.groups:
            raise ShapeError(
                f"Conv2d's {self.weight.shape[0]} filters do not split into {self.groups} groups."
            )
        _expect_bias(self, self.weight, self.bias)
        kernel = (self.weight.shape[2], self.weight.shape[3])
        spatial = tuple(
            (size[1 + i] + 2 * self.padding[i] - self.dilation[i] * (kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in (0, 1)
        )
        if min(spatial) < 1:
            raise ShapeError(f"Conv2d's kernel {kernel} is larger than its padded input {size}.")
        return (self.weight.shape[0], *spatial)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._convolve(inputs[0], self.weight, self.bias)

    def _convolve(self, value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.conv2d(value, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    @property
    def terms(self) -> int:
        return self.weight[0].numel() + 1

    @cached_property
    def gain(self) -> float:
        return float(self._magnitude.double().flatten(1).sum(1).max()) * (1 + 1e-9)

    @property
    def back_terms(self) -> int:
        out, _, height, width = self.weight.shape
        return out // self.groups * height * width

    @cached_property
    def _magnitude(self) -> Tensor:
        return self.weight.abs()

    def spread(self, *inputs: Tensor) -> Tensor:
        return self._convolve(inputs[0], self._magnitude, None)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        (size,) = shapes
        left_over = [
            size[1 + i]
            + 2 * self.padding[i]
            - self.dilation[i] * (self.weight.shape[2 + i] - 1)
            - 1
            - (rows.shape[2 + i] - 1) * self.stride[i]
            for i in (0, 1)
        ]
        transposed = F.conv_transpose2d(
            rows,
            self.weight,
            None,
            self.stride,
            self.padding,
            left_over,
            self.groups,
            self.dilation,
        )
        return (transposed,)

    def offset(self) -> Tensor | None:
        return None if self.bias is None else self.bias[:, None, None]

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        operands = [inputs[0], writer.constant(self.weight)]
        if self.bias is not None:
            operands.append(writer.constant(self.bias))
        return writer.node(
            "Conv",
            operands,
            kernel_shape=list(self.weight.shape[2:]),
            strides=list(self.stride),
            pads=[*self.padding, *self.padding],
            dilations=list(self.dilation),
            group=self.groups,
        )
