"""Pooling: averages (linear) and maxima (piecewise linear) over windows of a feature map."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from provable_circuits.network.ops.base import (
    LinearOp,
    OnnxWriter,
    Op,
    Shape,
    ShapeError,
    expect_count,
    transpose_by_differentiation,
)
from provable_circuits.network.ops.layers import Pair
from provable_circuits.rounding import Interval

Padding = tuple[int, int, int, int]
"""Top, left, bottom, right: the order in which ONNX writes them."""


def _feature_map(op: Op, inputs: tuple[Shape, ...]) -> Shape:
    expect_count(op, inputs, 1)
    if len(inputs[0]) != 3:
        raise ShapeError(
            f"{op.name} takes feature maps of channels, height and width. Got {inputs[0]} instead."
        )
    return inputs[0]


def _windows(length: int, kernel: int, stride: int, pads: Pair, ceil_mode: bool) -> int:
    """How many windows fit; with ``ceil_mode`` a last one may overhang but must start inside."""
    span = length + sum(pads) - kernel
    count = (math.ceil(span / stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (count - 1) * stride >= length + pads[0]:
        count -= 1
    return count


@dataclass(frozen=True, eq=False)
class AvgPool2d(LinearOp):
    """The mean over each window; windows in the padding count it as zeros if asked to."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True

    def shape(self, *inputs: Shape) -> Shape:
        channels, *spatial = _feature_map(self, inputs)
        counts = tuple(
            _windows(
                spatial[i],
                self.kernel[i],
                self.stride[i],
                (self.padding[i], self.padding[i]),
                self.ceil_mode,
            )
            for i in (0, 1)
        )
        if min(counts) < 1:
            raise ShapeError(f"AvgPool2d's window {self.kernel} is larger than {tuple(spatial)}.")
        if any(2 * pad > length for pad, length in zip(self.padding, self.kernel, strict=True)):
            raise ShapeError(
                f"AvgPool2d takes padding of at most half its window {self.kernel}. "
                f"Got {self.padding} instead."
            )
        return (channels, *counts)

    def forward(self, *inputs: Tensor) -> Tensor:
        return F.avg_pool2d(
            inputs[0],
            self.kernel,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )

    @property
    def terms(self) -> int:
        return self.kernel[0] * self.kernel[1] + 1

    def spread(self, *inputs: Tensor) -> Tensor:
        return self.forward(*inputs)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        tiles = self.kernel == self.stride and self.padding == (0, 0) and not self.ceil_mode
        if not tiles:
            return transpose_by_differentiation(self, rows, *shapes)
        *_, height, width = shapes[0]
        (down, across), (high, wide) = rows.shape[-2:], self.kernel
        shared = (rows / (high * wide))[..., :, None, :, None]
        shared = shared.expand(*rows.shape[:-2], down, high, across, wide)
        shared = shared.reshape(*rows.shape[:-2], down * high, across * wide)
        return (F.pad(shared, (0, width - across * wide, 0, height - down * high)),)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node(
            "AveragePool",
            inputs,
            kernel_shape=list(self.kernel),
            strides=list(self.stride),
            pads=[*self.padding, *self.padding],
            ceil_mode=int(self.ceil_mode),
            count_include_pad=int(self.count_include_pad),
        )


@dataclass(frozen=True, eq=False)
class AdaptiveAvgPool2d(LinearOp):
    """The mean over a grid of ``size`` windows that cover maps of ``length``.

    Along each axis window i reaches from floor(i * length / size) to ceil((i + 1) * length / size),
    so windows differ in size and overlap where the division leaves a remainder.
    """

    length: Pair
    size: Pair

    def shape(self, *inputs: Shape) -> Shape:
        channels, *spatial = _feature_map(self, inputs)
        if tuple(spatial) != self.length:
            raise ShapeError(
                f"AdaptiveAvgPool2d takes maps of {self.length}. Got {tuple(spatial)} instead."
            )
        return (channels, *self.size)

    def forward(self, *inputs: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(inputs[0], self.size)

    @property
    def terms(self) -> int:
        return math.prod(self.length[axis] // self.size[axis] + 2 for axis in (0, 1))

    @property
    def back_terms(self) -> int:
        return math.prod(self.size[axis] // self.length[axis] + 2 for axis in (0, 1))

    def spread(self, *inputs: Tensor) -> Tensor:
        return self.forward(*inputs)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return transpose_by_differentiation(self, rows, *shapes)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        rows, columns = (self._averages(axis) for axis in (0, 1))
        value = writer.node("MatMul", [inputs[0], writer.constant(columns.T)])
        return writer.node("MatMul", [writer.constant(rows), value])

    def _averages(self, axis: int) -> Tensor:
        """The matrix [size, length] that averages along one axis."""
        length, size = self.length[axis], self.size[axis]
        matrix = torch.zeros(size, length, dtype=torch.float64)
        for i in range(size):
            start, end = i * length // size, -(-(i + 1) * length // size)
            matrix[i, start:end] = 1 / (end - start)
        return matrix


def adaptive_average(length: Pair, size: Pair) -> Op:
    """Adaptive pooling of maps of ``length`` to ``size``: plain pooling where it divides evenly."""
    if length[0] % size[0] == 0 and length[1] % size[1] == 0:
        window = (length[0] // size[0], length[1] // size[1])
        return AvgPool2d(window, window)
    return AdaptiveAvgPool2d(length, size)


@dataclass(frozen=True, eq=False)
class MaxPool2d(Op):
    """The largest value of each window; padding never wins."""

    kernel: Pair
    stride: Pair
    padding: Padding = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    ceil_mode: bool = False

    def shape(self, *inputs: Shape) -> Shape:
        channels, *spatial = _feature_map(self, inputs)
        counts = tuple(
            _windows(
                spatial[i],
                self.dilation[i] * (self.kernel[i] - 1) + 1,
                self.stride[i],
                (self.padding[i], self.padding[i + 2]),
                self.ceil_mode,
            )
            for i in (0, 1)
        )
        if min(counts) < 1:
            raise ShapeError(f"MaxPool2d's window {self.kernel} is larger than {tuple(spatial)}.")
        if any(self._misses(axis, counts[axis], spatial[axis]) for axis in (0, 1)):
            raise ShapeError(
                f"MaxPool2d's padding {self.padding} leaves a window of {self.kernel} without any "
                f"value of {tuple(spatial)}."
            )
        return (channels, *counts)

    def _misses(self, axis: int, count: int, length: int) -> bool:
        """Whether some window along an axis has nothing but padding."""
        reach = range(0, self.dilation[axis] * self.kernel[axis], self.dilation[axis])
        starts = [i * self.stride[axis] - self.padding[axis] for i in range(count)]
        return not all(any(0 <= start + step < length for step in reach) for start in starts)

    def forward(self, *inputs: Tensor) -> Tensor:
        (value,) = inputs
        top, left, bottom, right = self.padding
        inside = (top, left)
        if (
            (top, left) != (bottom, right)
            or top > self.kernel[0] // 2
            or left > self.kernel[1] // 2
        ):
            value = F.pad(value, (left, right, top, bottom), value=-math.inf)
            inside = (0, 0)
        pooled = F.max_pool2d(
            value, self.kernel, self.stride, inside, self.dilation, self.ceil_mode
        )
        # Padding that was added above is part of the map to PyTorch, and windows may start in it.
        _, rows, columns = self.shape(tuple(inputs[0].shape[1:]))
        return pooled[..., :rows, :columns]

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = inputs[0]
        return self.forward(lower), self.forward(upper)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node(
            "MaxPool",
            inputs,
            kernel_shape=list(self.kernel),
            strides=list(self.stride),
            pads=list(self.padding),
            dilations=list(self.dilation),
            ceil_mode=int(self.ceil_mode),
        )


@dataclass(frozen=True, eq=False)
class Mean(LinearOp):
    """The mean of ``count`` values, over some per-sample dimensions (0 is the first of them)."""

    dims: tuple[int, ...]
    count: int
    keepdim: bool = False

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        (size,) = inputs
        distinct = len(set(self.dims)) == len(self.dims) > 0
        if not distinct or any(not 0 <= dim < len(size) for dim in self.dims):
            raise ShapeError(f"Mean over dimensions {self.dims} does not fit a tensor of {size}.")
        if math.prod(size[dim] for dim in self.dims) != self.count:
            raise ShapeError(f"Mean over {self.count} values does not fit a tensor of {size}.")
        if self.keepdim:
            return tuple(1 if i in self.dims else n for i, n in enumerate(size))
        return tuple(n for i, n in enumerate(size) if i not in self.dims)

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].mean([dim + 1 for dim in self.dims], self.keepdim)

    @property
    def terms(self) -> int:
        return self.count + 1

    def spread(self, *inputs: Tensor) -> Tensor:
        return self.forward(*inputs)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return transpose_by_differentiation(self, rows, *shapes)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        axes = writer.constant(torch.tensor([dim + 1 for dim in self.dims]))
        return writer.node("ReduceMean", [inputs[0], axes], keepdims=int(self.keepdim))


@dataclass(frozen=True, eq=False)
class Sum(LinearOp):
    """The sum of ``count`` values, over some per-sample dimensions (0 is the first of them)."""

    dims: tuple[int, ...]
    count: int
    keepdim: bool = False

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        try:
            return Mean(self.dims, self.count, self.keepdim).shape(*inputs)
        except ShapeError as error:
            raise ShapeError(str(error).replace("Mean", "Sum")) from None

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].sum([dim + 1 for dim in self.dims], self.keepdim)

    @property
    def terms(self) -> int:
        return self.count

    @cached_property
    def gain(self) -> float:
        return float(self.count)

    @property
    def back_gain(self) -> float:
        return self.gain

    @property
    def back_terms(self) -> int:
        return 1

    def spread(self, *inputs: Tensor) -> Tensor:
        return self.forward(*inputs)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return transpose_by_differentiation(self, rows, *shapes)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        axes = writer.constant(torch.tensor([dim + 1 for dim in self.dims]))
        return writer.node("ReduceSum", [inputs[0], axes], keepdims=int(self.keepdim))
