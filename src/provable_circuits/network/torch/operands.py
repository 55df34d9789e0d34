"""Operands of captured operations: brought to one shape, each without the batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from provable_circuits.network import ops
from provable_circuits.network.ops import Shape, ShapeError, as_parameter
from provable_circuits.network.torch.layout import BatchPlace
from provable_circuits.network.torch.readers import Reading


def network(r: Reading, value: object) -> bool:
    """Whether an operand is a tensor of the network."""
    return isinstance(value, fx.Node) and value in r.tensors


def size(node: Any) -> Shape:
    """The captured shape of a node, batch included; of a value in ``meta`` its own."""
    value = node.meta["val"] if isinstance(node, fx.Node) else node
    return tuple(int(length) for length in value.shape)


def rank(r: Reading, position: int) -> int:
    """How many dimensions an operand was captured with."""
    return len(size(r.node.args[position]))


def layout(r: Reading, position: int) -> BatchPlace:
    """Where the batch is in an operand."""
    value = r.node.args[position]
    if not network(r, value):
        raise ShapeError(f"argument {position} must be a tensor of the network.")
    return r.layouts[value]  # type: ignore[index]


def constant(r: Reading, value: Any, full: int, own: BatchPlace) -> Tensor:
    """A constant operand beside a tensor of ``full`` dimensions, for one sample."""
    held = torch.as_tensor(value)
    keeps = isinstance(value, Tensor) and held.is_floating_point()
    if held.dtype != torch.bool and not keeps:
        held = held.double()
    return as_parameter(own.constant(held, full, r.batch))


def expanded(r: Reading, given: Any, other: Any) -> tuple[str, Tensor]:
    """A tensor, repeated where a constant is larger, and the constant, both for one sample."""
    full, own = len(size(given)), r.layouts[given]
    held = torch.as_tensor(other)
    grown = max(held.ndim, full)
    after = BatchPlace(own.dim + grown - full, own.outer, own.inner)
    value = constant(r, other, grown, after)
    name = r.tensors[given]
    shape = r.builder[name].shape
    wanted = tuple(torch.broadcast_shapes(shape, value.shape))
    r.layouts[r.node] = after
    return _to(r, name, wanted), value


def _to(r: Reading, name: str, wanted: Shape) -> str:
    """A tensor repeated up to a shape."""
    shape = r.builder[name].shape
    if len(shape) < len(wanted):
        name = r.add(ops.Reshape((*([1] * (len(wanted) - len(shape))), *shape)), name)
    return name if r.builder[name].shape == wanted else r.add(ops.Expand(wanted), name)


def elementwise(r: Reading, first: Any, second: Any) -> tuple[str, str]:
    """Two tensors of the network, each repeated where the other is larger."""
    ranks = [len(size(node)) for node in (first, second)]
    most = max(ranks)
    places = {
        BatchPlace(r.layouts[node].dim + most - own, r.layouts[node].outer, r.layouts[node].inner)
        for node, own in zip((first, second), ranks, strict=True)
    }
    if len(places) != 1:
        raise ShapeError("the batch of both operands must be in one place.")
    (r.layouts[r.node],) = places
    names = [r.tensors[node] for node in (first, second)]
    wanted = tuple(torch.broadcast_shapes(*(r.builder[name].shape for name in names)))
    left, right = (_to(r, name, wanted) for name in names)
    return left, right


def reordered(r: Reading, source: str, own: BatchPlace, order: list[int]) -> str:
    """The dimensions of a captured tensor in another order."""
    r.layouts[r.node], sample = own.permuted(order)
    if list(sample) == list(range(len(sample))):
        return source
    return r.add(ops.Permute(sample), source)


def stacks(r: Reading, first: str, second: str) -> str:
    """The product of two stacks of matrices, each repeated where the other is larger."""
    shapes = [r.builder[name].shape for name in (first, second)]
    lead = tuple(torch.broadcast_shapes(*(shape[:-2] for shape in shapes)))
    pair = [
        _to(r, name, (*lead, *shape[-2:]))
        for name, shape in zip((first, second), shapes, strict=True)
    ]
    return r.add(ops.MatMul(), *pair)


def matrix_product(r: Reading, first: Any, second: Any) -> str:
    """``first @ second``, at least one of which is a tensor of the network."""
    full = max(len(size(value)) if network(r, value) else value.ndim for value in (first, second))
    names, places = [], set()
    for value in (first, second):
        if network(r, value):
            own = r.layouts[value]
            lead = full - len(size(value))
            places.add(BatchPlace(own.dim + lead, own.outer, own.inner))
            names.append(r.tensors[value])
        else:
            names.append("")
    if len(places) != 1:
        raise ShapeError("the batch of both operands must be in one place.")
    (own,) = places
    if own.dim >= full - 2 or min(len(r.builder[name].shape) for name in names if name) < 2:
        raise ShapeError("it acts across the samples of a batch.")
    for i, value in enumerate((first, second)):
        if not names[i]:
            held = constant(r, value, full, own)
            names[i] = r.builder.constant(f"{r.name}.constant", held)
    r.layouts[r.node] = own
    return stacks(r, *names)
