"""Where the batch is in a captured tensor.

Inside a module the batch need not be the first dimension: ``nn.MultiheadAttention`` puts it second,
and folds heads into it. A captured tensor has one dimension of ``outer * batch * inner`` entries;
without the batch, that dimension has ``outer * inner`` entries and is dropped if that is one. The
order of a sample's values does not change, so a reshaping of the tensor is one of the sample.

    >>> BatchPlace(1).reshaped((5, 2, 12), (5, 8, 3), 2)
    BatchPlace(dim=1, outer=1, inner=4)
    >>> BatchPlace(1).sample((5, 2, 12), 2)
    (5, 12)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.ops import Shape, ShapeError


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """The batch is in dimension ``dim``, behind ``outer`` and before ``inner`` other entries."""

    dim: int = 0
    outer: int = 1
    inner: int = 1

    @property
    def plain(self) -> bool:
        """Whether the batch is the first dimension, and alone there."""
        return self == BatchPlace()

    @property
    def alone(self) -> bool:
        """Whether the batch has a dimension of its own."""
        return self.outer * self.inner == 1

    def sample(self, shape: Shape, batch: int) -> Shape:
        """The shape of a sample."""
        if self.dim >= len(shape) or shape[self.dim] != self.outer * batch * self.inner:
            raise ShapeError(f"the batch of {batch} is lost in shape {list(shape)}.")
        own = () if self.alone else (self.outer * self.inner,)
        return (*shape[: self.dim], *own, *shape[self.dim + 1 :])

    def place(self, dim: int) -> int:
        """The per-sample dimension of a dimension of the tensor."""
        if dim == self.dim:
            raise ShapeError("it acts across the samples of a batch.")
        return dim - 1 if dim > self.dim and self.alone else dim

    def permuted(self, order: list[int]) -> tuple[BatchPlace, tuple[int, ...]]:
        """After a permutation, and the permutation of the sample."""
        after = BatchPlace(order.index(self.dim), self.outer, self.inner)
        if not self.alone:
            return after, tuple(order)
        return after, tuple(self.place(dim) for dim in order if dim != self.dim)

    def reshaped(self, before: Shape, after: Shape, batch: int) -> BatchPlace:
        """After a reshaping; the first dimension that can hold the batch alone, else any."""
        outer = math.prod(before[: self.dim]) * self.outer
        inner = self.inner * math.prod(before[self.dim + 1 :])
        found = []
        for dim, length in enumerate(after):
            front, back = math.prod(after[:dim]), math.prod(after[dim + 1 :])
            if front and back and outer % front == 0 and inner % back == 0:
                layout = BatchPlace(dim, outer // front, inner // back)
                if length == layout.outer * batch * layout.inner:
                    found.append(layout)
        if not found:
            raise ShapeError(
                f"it turns a batch of {batch} into shape {list(after)}. Keep samples apart, for "
                "instance with x.flatten(1)."
            )
        return next((layout for layout in found if layout.alone), found[0])

    def constant(self, value: Tensor, rank: int, batch: int) -> Tensor:
        """A constant operand of a tensor of ``rank`` dimensions, for one sample."""
        place = self.dim - (rank - value.ndim)
        if place < 0:
            return value
        length = value.shape[place]
        if length == 1:
            return value.squeeze(place) if self.alone else value
        parts: Tensor = value.unflatten(place, (self.outer, batch, self.inner))
        first: Tensor = parts.select(place + 1, 0)
        if not torch.equal(parts, first.unsqueeze(place + 1).expand_as(parts)):
            raise ShapeError("its constant differs between the samples of a batch.")
        first = first.flatten(place, place + 1)
        return first.squeeze(place) if self.alone else first
