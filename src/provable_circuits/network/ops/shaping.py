"""Operations that move values without changing them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from provable_circuits.network.ops.base import (
    LinearOp,
    OnnxWriter,
    Shape,
    ShapeError,
    expect_count,
)
from provable_circuits.rounding import Interval


class Shaping(LinearOp):
    """Moves values (or puts zeros between them) without any rounding."""

    @property
    def terms(self) -> int:
        return 1

    @property
    def exact(self) -> bool:
        return True

    def spread(self, *inputs: Tensor) -> Tensor:
        return self.forward(*inputs)

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = zip(*inputs, strict=True)
        return self.forward(*lower), self.forward(*upper)


@dataclass(frozen=True, eq=False)
class Reshape(Shaping):
    """The same values, in the same order, under another per-sample shape."""

    size: Shape

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        if math.prod(inputs[0]) != math.prod(self.size):
            raise ShapeError(f"Reshape cannot turn {inputs[0]} into {self.size}.")
        return self.size

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].reshape(-1, *self.size)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (rows.reshape(-1, *shapes[0]),)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Reshape", [inputs[0], writer.constant(torch.tensor([-1, *self.size]))])


@dataclass(frozen=True, eq=False)
class Permute(Shaping):
    """The per-sample dimensions in another order (0 is the first after the batch)."""

    dims: tuple[int, ...]

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        (size,) = inputs
        if sorted(self.dims) != list(range(len(size))):
            raise ShapeError(f"Permute by {self.dims} does not fit a tensor of {size}.")
        return tuple(size[dim] for dim in self.dims)

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].permute(0, *(dim + 1 for dim in self.dims))

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        back = sorted(range(len(self.dims)), key=self.dims.__getitem__)
        return (rows.permute(0, *(dim + 1 for dim in back)),)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Transpose", inputs, perm=[0, *(dim + 1 for dim in self.dims)])


@dataclass(frozen=True, eq=False)
class Concat(Shaping):
    """Several tensors joined along one per-sample dimension."""

    dim: int

    def shape(self, *inputs: Shape) -> Shape:
        if not inputs:
            raise ShapeError("Concat takes at least one input. Got none instead.")
        first, dim = inputs[0], self.dim
        others = {size[:dim] + size[dim + 1 :] for size in inputs}
        if not 0 <= dim < len(first) or len(others) != 1 or len({len(s) for s in inputs}) != 1:
            raise ShapeError(f"Concat along dimension {dim} does not fit tensors of {inputs}.")
        return (*first[:dim], sum(size[dim] for size in inputs), *first[dim + 1 :])

    def forward(self, *inputs: Tensor) -> Tensor:
        batch = next((len(value) for value in inputs if len(value) != 1), 1)
        return torch.cat([value.expand(batch, *value.shape[1:]) for value in inputs], self.dim + 1)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return tuple(rows.split([shape[self.dim] for shape in shapes], self.dim + 1))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Concat", inputs, axis=self.dim + 1)


@dataclass(frozen=True, eq=False)
class Pad(Shaping):
    """Zeros around a feature map: top, left, bottom, right."""

    padding: tuple[int, int, int, int]

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        if len(inputs[0]) != 3 or min(self.padding) < 0:
            raise ShapeError(
                f"Pad adds zeros around feature maps. Got {inputs[0]} and {self.padding} instead."
            )
        channels, height, width = inputs[0]
        top, left, bottom, right = self.padding
        return (channels, height + top + bottom, width + left + right)

    def forward(self, *inputs: Tensor) -> Tensor:
        top, left, bottom, right = self.padding
        return F.pad(inputs[0], (left, right, top, bottom))

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        top, left, _, _ = self.padding
        _, height, width = shapes[0]
        return (rows[:, :, top : top + height, left : left + width],)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        # Without axes, ONNX Runtime's optimiser takes the zeros for padding of the pooling behind
        # them, where padding never wins the maximum and may not count in the average. With some of
        # the axes only, it fails where it moves a transposition from before the zeros to behind.
        top, left, bottom, right = self.padding
        pads = writer.constant(torch.tensor([0, 0, top, left, 0, 0, bottom, right]))
        axes = writer.constant(torch.arange(4))
        return writer.node("Pad", [inputs[0], pads, "", axes])


def _flattened(value: Tensor) -> Tensor:
    """Each sample as a row, also where it is a single number without dimensions."""
    return value.unsqueeze(-1).flatten(1)


def _within(index: Tensor, count: int) -> bool:
    """Whether every index is a place among ``count``."""
    return bool(((index >= 0) & (index < count)).all())


@dataclass(frozen=True, eq=False)
class Gather(Shaping):
    """The values at ``index`` of the flattened sample, in the shape of ``index``."""

    index: Tensor

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        if not _within(self.index, math.prod(inputs[0])):
            raise ShapeError(f"Gather's index reaches beyond a tensor of {inputs[0]}.")
        return tuple(self.index.shape)

    def forward(self, *inputs: Tensor) -> Tensor:
        return _flattened(inputs[0])[:, self.index]

    @cached_property
    def _repeats(self) -> int:
        """How often the value read most often is read: so many rows its pullback sums."""
        return int(self.index.flatten().bincount().max()) if self.index.numel() else 0

    @property
    def back_terms(self) -> int:
        return max(self._repeats, 1)

    @property
    def exact(self) -> bool:
        return self._repeats <= 1

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        flat = rows.new_zeros(len(rows), math.prod(shapes[0]))
        flat = flat.index_add(1, self.index.flatten(), _flattened(rows))
        return (flat.reshape(-1, *shapes[0]),)

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        return replace(self, index=self.index.to(device))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        flat = writer.node("Flatten", inputs, axis=1)
        return writer.node("Gather", [flat, writer.constant(self.index)], axis=1)


@dataclass(frozen=True, eq=False)
class Scatter(Shaping):
    """The values of a sample put at ``index`` of a zero tensor of shape ``size``, flattened."""

    index: Tensor
    size: Shape

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        if self.index.numel() != math.prod(inputs[0]):
            raise ShapeError(f"Scatter's index does not fit a tensor of {inputs[0]}.")
        if not _within(self.index, math.prod(self.size)):
            raise ShapeError(f"Scatter's index reaches beyond a tensor of {self.size}.")
        if len(self.index.unique()) != self.index.numel():
            raise ShapeError("Scatter's index names a place twice.")
        return self.size

    def forward(self, *inputs: Tensor) -> Tensor:
        (value,) = inputs
        flat = value.new_zeros(value.shape[0], math.prod(self.size))
        flat = flat.index_copy(1, self.index.flatten(), _flattened(value))
        return flat.reshape(-1, *self.size)

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        return (_flattened(rows)[:, self.index.flatten()].reshape(-1, *shapes[0]),)

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        return replace(self, index=self.index.to(device))

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        # Position of each output among the inputs; the zero appended behind them fills the rest.
        count = self.index.numel()
        back = torch.full((math.prod(self.size),), count)
        back[self.index.flatten()] = torch.arange(count)
        flat = writer.node("Flatten", inputs, axis=1)
        pads = writer.constant(torch.tensor([0, 0, 0, 1]))
        padded = writer.node("Pad", [flat, pads])
        return writer.node("Gather", [padded, writer.constant(back.reshape(self.size))], axis=1)


@dataclass(frozen=True, eq=False)
class Slice(Shaping):
    """Every ``step``-th place from ``start`` to before ``stop`` of one per-sample dimension."""

    dim: int
    start: int
    stop: int
    step: int = 1

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        (size,) = inputs
        fits = 0 <= self.dim < len(size) and 0 <= self.start < self.stop <= size[self.dim]
        if not fits or self.step < 1:
            raise ShapeError(
                f"Slice from {self.start} to {self.stop} by {self.step} of dimension {self.dim} "
                f"does not fit a tensor of {size}."
            )
        length = len(range(self.start, self.stop, self.step))
        return (*size[: self.dim], length, *size[self.dim + 1 :])

    def _places(self) -> tuple[slice, ...]:
        return (*([slice(None)] * (self.dim + 1)), slice(self.start, self.stop, self.step))

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0][self._places()]

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        back = rows.new_zeros(len(rows), *shapes[0])
        back[self._places()] = rows
        return (back,)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        ends = (self.start, self.stop, self.dim + 1, self.step)
        return writer.node(
            "Slice", [inputs[0], *(writer.constant(torch.tensor([e])) for e in ends)]
        )


@dataclass(frozen=True, eq=False)
class Expand(Shaping):
    """A tensor repeated along its dimensions of length one, up to ``size``."""

    size: Shape

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        try:
            fits = tuple(torch.broadcast_shapes(inputs[0], self.size)) == self.size
            fits = fits and len(inputs[0]) == len(self.size)
        except RuntimeError:
            fits = False
        if not fits:
            raise ShapeError(f"Expand cannot turn {inputs[0]} into {self.size}.")
        return self.size

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].expand(-1, *self.size)

    @property
    def back_terms(self) -> int:
        return max(math.prod(self.size), 1)

    @property
    def back_gain(self) -> float:
        return 1.0

    @property
    def exact(self) -> bool:
        return False

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        for dim, length in enumerate(shapes[0]):
            if length != self.size[dim]:
                rows = rows.sum(dim + 1, keepdim=True)
        return (rows,)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        size = writer.constant(torch.tensor([1, *self.size]))  # 1 leaves the batch as it is
        return writer.node("Expand", [inputs[0], size])
