"""What an operation is.

An operation is one frozen object that holds its own parameters exactly as the model gave them and
knows everything the rest of the system needs of it: the shape it produces, its forward function,
and how to write itself as ONNX. Shapes never include the batch dimension; tensors always do, as
dimension 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor

from provable_circuits.errors import ModelError
from provable_circuits.rounding import Interval, enclose_linear

Shape = tuple[int, ...]


class ShapeError(ModelError):
    """An operation was given tensors of shapes that it cannot take."""


class OnnxWriter(Protocol):
    """The part of the ONNX writer that an operation sees while it writes itself."""

    def constant(self, value: Tensor) -> str:
        """Store ``value`` as an initializer and return its name; floats take the file's dtype."""

    def node(self, op_type: str, inputs: Sequence[str], **attributes: object) -> str:
        """Append a node with one output and return the output's name."""


class Op(ABC):
    """One operation of a network: parameters, and what it does to tensors.

    Subclasses are frozen dataclasses. A field that holds a ``Tensor`` is a parameter; it keeps the
    dtype it came with and is never changed in place.
    """

    @abstractmethod
    def shape(self, *inputs: Shape) -> Shape:
        """The per-sample output shape for these per-sample input shapes, or a ``ShapeError``."""

    @abstractmethod
    def forward(self, *inputs: Tensor) -> Tensor:
        """The batched output. Parameters have the dtype and device of the inputs (see ``to``)."""

    @abstractmethod
    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        """Append this operation to an ONNX file and return the name of its output."""

    @abstractmethod
    def interval(self, *inputs: Interval) -> Interval:
        """Ends that enclose every output for inputs within the given ends, rounding included."""

    @property
    def name(self) -> str:
        """The word for this kind of operation, as it appears in print-outs and errors."""
        return type(self).__name__

    def parameters(self) -> dict[str, Tensor]:
        """The tensors this operation holds, by field name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def settings(self) -> dict[str, object]:
        """Everything this operation holds that is not a tensor, by field name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if not isinstance(value, Tensor)}

    def to(self, dtype: torch.dtype, device: torch.device) -> Self:
        """The same operation with its parameters in another dtype or on another device."""
        held = self.parameters()
        moved = {name: value.to(device, dtype) for name, value in held.items()}
        if all(moved[name] is value for name, value in held.items()):
            return self
        return replace(self, **moved)  # type: ignore[type-var]

    def select(self, rows: Tensor) -> Op:
        """The operation for some rows of a batch, for those that treat each row its own way."""
        return self

    @cached_property
    def sharing_key(self) -> tuple[object, ...]:
        """Two operations with equal keys compute the same function.

        Tensors count by identity: equal keys never lie, and comparing costs nothing.
        """
        parameters = tuple((name, id(value)) for name, value in self.parameters().items())
        return (type(self), parameters, tuple(self.settings().items()))


class LinearOp(Op):
    """An operation ``y = L(x_1, ..., x_k) + b`` with L linear and b constant.

    Interval and linear bounds need no more than L, its transpose, its elementwise absolute value,
    b, and how many terms are summed for one output.
    """

    @property
    @abstractmethod
    def terms(self) -> int:
        """The most terms, offset included, that are summed for one output."""

    @property
    def back_terms(self) -> int:
        """The most terms that are summed for one entry of a pullback."""
        return self.terms

    @cached_property
    def gain(self) -> float:
        """An upper bound of the largest row sum of |L|: how much L can enlarge its inputs."""
        return 1.0

    @property
    def back_gain(self) -> float:
        """How much larger than rows their pullback to one input can be, in the 1-norm."""
        return self.gain

    @cached_property
    def offset_size(self) -> float:
        """The largest entry of |b|."""
        offset = self.offset()
        return 0.0 if offset is None else float(offset.abs().max())

    @property
    def exact(self) -> bool:
        """Whether it only moves values, so that neither it nor its pullback rounds anything."""
        return False

    @abstractmethod
    def spread(self, *inputs: Tensor) -> Tensor:
        """``|L|(x)`` for nonnegative x."""

    @abstractmethod
    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        """The transpose: rows [n, *output shape] to rows [n, *input shape], one for each input."""

    def offset(self) -> Tensor | None:
        """``b``, broadcastable to the per-sample output, or None for zero."""
        return None

    def interval(self, *inputs: Interval) -> Interval:
        """Ends that enclose every output for inputs within the given ends."""
        return enclose_linear(self, inputs)


def transpose_by_differentiation(op: Op, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
    """The pullback of an operation that has no shorter way: the gradient of ``rows . L(x)``."""
    with torch.enable_grad():
        points = [rows.new_zeros((len(rows), *shape)).requires_grad_() for shape in shapes]
        output = op.forward(*points)
        return torch.autograd.grad(output, points, rows, create_graph=rows.requires_grad)


def expect_count(op: Op, inputs: tuple[Shape, ...], count: int) -> None:
    """Refuse a wrong number of inputs."""
    if len(inputs) != count:
        raise ShapeError(f"{op.name} takes {count} input(s). Got {len(inputs)} instead.")
