"""What a node of a merged graph stands for: the one place that knows.

A circuit's tensor has the shape of the network's. The node that holds it may hold more, or less:

    Whole       the node is the tensor: the network's own, one that was patched, or one of the
                circuit's own with all its channels;
    Cut         the node has the kept channels alone; the others of the tensor are zero;
    ZeroFilled  the node has all channels; those that are not kept are zero in the tensor, whatever
                the node has there;
    Unread      the node has the kept channels alone; what the others would have been was never
                computed, since a patch takes their place before anything reads them.

Bounds of a node are therefore not bounds of its tensor, nor the other way round. ``tensor_bounds``
and ``node_bounds`` turn the ones into the others; nothing else may.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.ops import Shape
from provable_circuits.rounding import Interval


@dataclass(frozen=True, slots=True, eq=False)
class CircuitTensor(ABC):
    """A tensor of a circuit, and the node of a merged graph that holds it."""

    node: str

    @abstractmethod
    def tensor_bounds(self, bounds: Interval, shape: Shape) -> Interval:
        """Bounds [k, *shape] of the tensor, from bounds of its node."""

    @abstractmethod
    def node_bounds(self, bounds: Interval) -> Interval:
        """Bounds of the node, from bounds [k, *shape] of the tensor."""

    @abstractmethod
    def columns(self, weight: Tensor) -> Tensor:
        """Weights [outputs, channels, ...] of a layer that reads the tensor, for its node."""

    @abstractmethod
    def whole(self, shape: Shape) -> ops.Op | None:
        """The operation that makes the tensor of its node; None if that is the tensor."""

    @abstractmethod
    def through(self, op: ops.Op, before: Shape) -> tuple[ops.Op, CircuitTensor] | None:
        """An operation on the tensor as one on its node.

        Args:
            op: an operation on one tensor.
            before: the tensor's shape.

        Returns:
            The operation for the node, and what its result then stands for, its node still to be
            named; None where the operation needs the whole tensor.
        """

    @abstractmethod
    def kept_of(self, mask: Tensor) -> CircuitTensor:
        """The tensor with channels set to zero, for the same node.

        Args:
            mask: the channels that stay, [channels], some but not all.
        """

    @abstractmethod
    def positions(self, positions: Tensor, shape: Shape) -> Tensor:
        """Flat positions in the node, of this per-sample shape, as positions in the tensor."""

    def at(self, node: str) -> Self:
        """The same, held by another node."""
        return replace(self, node=node)


@dataclass(frozen=True, slots=True, eq=False)
class Whole(CircuitTensor):
    """The node is the tensor."""

    def tensor_bounds(self, bounds: Interval, shape: Shape) -> Interval:
        return bounds

    def node_bounds(self, bounds: Interval) -> Interval:
        return bounds

    def columns(self, weight: Tensor) -> Tensor:
        return weight

    def whole(self, shape: Shape) -> ops.Op | None:
        return None

    def through(self, op: ops.Op, before: Shape) -> tuple[ops.Op, CircuitTensor] | None:
        return op, self

    def kept_of(self, mask: Tensor) -> CircuitTensor:
        return ZeroFilled(self.node, mask.nonzero().flatten())

    def positions(self, positions: Tensor, shape: Shape) -> Tensor:
        return positions


@dataclass(frozen=True, slots=True, eq=False)
class _Partial(CircuitTensor):
    """Some channels of the tensor, ``kept``, are the node's; in order, of the first dimension."""

    kept: Tensor

    def _flat(self, inner: int) -> Tensor:
        """Flat positions of the kept channels, of so many units each."""
        return (self.kept[:, None] * inner + torch.arange(inner)).flatten()

    def _mask(self, count: int) -> Tensor:
        """Ones at the kept channels."""
        return torch.zeros(count, dtype=torch.float64).index_fill(0, self.kept, 1.0)

    def whole(self, shape: Shape) -> ops.Op | None:
        return ops.Scatter(self._flat(math.prod(shape[1:])), shape)

    def node_bounds(self, bounds: Interval) -> Interval:
        lower, upper = bounds
        return lower[:, self.kept], upper[:, self.kept]

    def positions(self, positions: Tensor, shape: Shape) -> Tensor:
        plane = math.prod(shape[1:])
        kept = self.kept.to(positions.device)
        return kept[positions // plane] * plane + positions % plane


@dataclass(frozen=True, slots=True, eq=False)
class Cut(_Partial):
    """The node has the kept channels; the others of the tensor are zero."""

    def tensor_bounds(self, bounds: Interval, shape: Shape) -> Interval:
        return _filled(bounds, self.kept, shape, 0.0)

    def columns(self, weight: Tensor) -> Tensor:
        return weight[:, self.kept]

    def through(self, op: ops.Op, before: Shape) -> tuple[ops.Op, CircuitTensor] | None:
        if isinstance(op, ops.Reshape):
            if len(op.size) != 1:
                return None
            units = self._flat(math.prod(before[1:]))
            return ops.Reshape((len(units),)), Cut(self.node, units)
        if not (_channelwise(op) and _keeps_zeros(op)):
            return None
        return _sliced(op, self.kept, before), self

    def kept_of(self, mask: Tensor) -> CircuitTensor:
        raise NotImplementedError("a tensor is patched once")


@dataclass(frozen=True, slots=True, eq=False)
class ZeroFilled(_Partial):
    """The node has all channels; those that are not kept are zero in the tensor."""

    def tensor_bounds(self, bounds: Interval, shape: Shape) -> Interval:
        return _filled(_Partial.node_bounds(self, bounds), self.kept, shape, 0.0)

    def node_bounds(self, bounds: Interval) -> Interval:
        """Nothing is known of what the node has where the tensor is zero."""
        return _filled(_Partial.node_bounds(self, bounds), self.kept, bounds[0].shape[1:], math.inf)

    def columns(self, weight: Tensor) -> Tensor:
        return weight * self._mask(weight.shape[1]).reshape(1, -1, *([1] * (weight.ndim - 2)))

    def whole(self, shape: Shape) -> ops.Op | None:
        return ops.Affine(scale=self._mask(shape[0]).reshape(-1, *([1] * (len(shape) - 1))))

    def through(self, op: ops.Op, before: Shape) -> tuple[ops.Op, CircuitTensor] | None:
        if isinstance(op, ops.Reshape):
            if len(op.size) != 1:
                return None
            return op, ZeroFilled(self.node, self._flat(math.prod(before[1:])))
        return (op, self) if _channelwise(op) and _keeps_zeros(op) else None

    def kept_of(self, mask: Tensor) -> CircuitTensor:
        raise NotImplementedError("a tensor is patched once")

    def positions(self, positions: Tensor, shape: Shape) -> Tensor:
        return positions


@dataclass(frozen=True, slots=True, eq=False)
class Unread(_Partial):
    """The node has the kept channels; the others are replaced before anything reads them."""

    def tensor_bounds(self, bounds: Interval, shape: Shape) -> Interval:
        return _filled(bounds, self.kept, shape, math.inf)

    def columns(self, weight: Tensor) -> Tensor:
        raise NotImplementedError("channels that were never computed cannot be read")

    def through(self, op: ops.Op, before: Shape) -> tuple[ops.Op, CircuitTensor] | None:
        if not _channelwise(op):
            raise NotImplementedError("channels that were never computed cannot be read")
        return _sliced(op, self.kept, before), self

    def kept_of(self, mask: Tensor) -> CircuitTensor:
        return Cut(self.node, self.kept)


def _filled(bounds: Interval, kept: Tensor, shape: Shape, beyond: float) -> Interval:
    """Bounds of all channels: [-beyond, beyond] for those that are not kept."""
    lower, upper = bounds
    rest = lower.new_full((len(lower), *shape), beyond)
    kept = kept.to(lower.device)
    return (-rest).index_copy(1, kept, lower), rest.index_copy(1, kept, upper)


def _channelwise(op: ops.Op) -> bool:
    """Whether an operation treats the channels, or the units of a vector, apart from each other."""
    return isinstance(
        op, ops.Activation | ops.Affine | ops.AvgPool2d | ops.AdaptiveAvgPool2d | ops.Pad
    ) or (isinstance(op, ops.Mean) and 0 not in op.dims)


def _keeps_zeros(op: ops.Op) -> bool:
    """Whether a channel of zeros stays one."""
    if isinstance(op, ops.Activation):
        return isinstance(op, ops.ReLU | ops.LeakyReLU | ops.Tanh)
    return not isinstance(op, ops.Affine) or op.shift is None


def _sliced(op: ops.Op, kept: Tensor, shape: Shape) -> ops.Op:
    """The operation on some channels only."""
    if not isinstance(op, ops.Affine):
        return op

    def slice_of(parameter: Tensor | None) -> Tensor | None:
        if parameter is None or parameter.ndim < len(shape) or parameter.shape[0] == 1:
            return parameter
        return parameter[kept].contiguous()

    return replace(op, scale=slice_of(op.scale), shift=slice_of(op.shift))
