"""One ONNX node as a reader sees it: operands resolved, constants without their batch dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto
from torch import Tensor

from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Op, Shape

Array = NDArray[Any]

Value = str | Array
"""What a name of the file stands for: a tensor of the graph, by name, or a constant."""


class UnsupportedFormError(Exception):
    """Why a node cannot be read: half a sentence, to which the walk adds where it is."""


@dataclass(frozen=True, slots=True, eq=False)
class OnnxNode:
    """A node of the file and what it needs to become operations of the graph.

    Attributes:
        output: the name of its output, which the operation takes over.
        output_count: how many outputs it has.
        title: the model's name for it.
        layer: the model's name for it, should it be a layer.
        operands: its inputs; None for one that is left out.
        sole_reader: for each input, whether nothing else reads it.
        attributes: its attributes, by name.
        builder: the graph being written.
        titles: what each tensor of the graph shall be called in the end.
        batch: the size of the batch dimension, 1 where it is free.
        batch_is_free: whether the file leaves that size to its users.
        element_type: the type of the model's input, as a number of ``TensorProto.DataType``.
        operator_set: the version of the standard that the model is written for.
    """

    output: str
    output_count: int
    title: str
    layer: str
    operands: tuple[Value | None, ...]
    sole_reader: tuple[bool, ...]
    attributes: Mapping[str, Any]
    builder: GraphBuilder
    titles: dict[str, str]
    batch: int
    batch_is_free: bool
    element_type: int
    operator_set: int

    def operand(self, index: int) -> Value | None:
        """The operand at ``index``, or None if it is left out."""
        return self.operands[index] if index < len(self.operands) else None

    def tensor(self, index: int) -> str:
        """The name of the graph's tensor at ``index``."""
        value = self.operand(index)
        if not isinstance(value, str):
            raise UnsupportedFormError(f"its input {index} must be a tensor of the network")
        return value

    def constant(self, index: int) -> Array:
        """The constant at ``index``."""
        value = self.operand(index)
        if value is None or isinstance(value, str):
            raise UnsupportedFormError(f"its input {index} must be a constant")
        return value

    def optional_constant(self, index: int) -> Array | None:
        """The constant at ``index``, or None if it is left out."""
        return None if self.operand(index) is None else self.constant(index)

    def optional_scalar(self, index: int) -> float | None:
        """The single number at ``index``, or None if it is left out."""
        value = self.optional_constant(index)
        if value is None or value.size == 1:
            return None if value is None else float(value.reshape(()))
        raise UnsupportedFormError(f"its input {index} must be a single number")

    def integers(self, name: str, index: int) -> tuple[int, ...] | None:
        """Integers that older operator sets keep in an attribute and newer ones in an input."""
        if name in self.attributes:
            return tuple(self.attributes[name])
        if self.operand(index) is None:
            return None
        return tuple(int(number) for number in self.indices(index).reshape(-1))

    def indices(self, index: int) -> Array:
        """The constant at ``index``, which holds integers."""
        value = self.constant(index)
        if value.dtype.name not in ("int32", "int64"):
            raise UnsupportedFormError(f"its input {index} holds {value.dtype} instead of integers")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is 0 or 1."""
        value = self.attributes.get(name, int(default))
        if value not in (0, 1):
            raise UnsupportedFormError(f"its {name} is {value}, neither 0 nor 1")
        return bool(value)

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number; ONNX keeps them, and its defaults, in float32."""
        return float(np.float32(self.attributes.get(name, default)))

    def shape(self, tensor: str) -> Shape:
        """The per-sample shape of a tensor of the graph."""
        return self.builder[tensor].shape

    def axis(self, axis: int, rank: int) -> int:
        """An axis of a batched tensor of ``rank`` dimensions, counted from the front."""
        if not -rank <= axis < rank:
            raise UnsupportedFormError(f"its axis {axis} does not exist in {rank} dimensions")
        return axis % rank

    def axis_from_front(self, axis: int, rank: int) -> int:
        """An axis where counting from the back came into the standard with operator set 11."""
        if axis < 0 and self.operator_set < 11:
            raise UnsupportedFormError(
                f"its axis {axis} is negative, which operator set {self.operator_set} does not have"
            )
        return self.axis(axis, rank)

    def axes(self, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """Different axes of a batched tensor of ``rank`` dimensions, counted from the front."""
        found = tuple(self.axis(axis, rank) for axis in axes)
        if len(set(found)) != len(found):
            raise UnsupportedFormError(f"its axes {list(found)} name one twice")
        return found

    def sample_constant(self, value: Array, rank: int) -> Tensor:
        """A constant that meets samples of ``rank`` dimensions, without its batch dimension."""
        return sample_constant(value, rank, self.batch)

    def add(self, op: Op, *inputs: str, part: str = "", layer: str | None = None) -> str:
        """Write an operation; ``part`` names one that only helps to make the node's output."""
        suffix = f".{part}" if part else ""
        made = self.builder.add(self.output + suffix, op, *inputs, layer=layer)
        self.titles.setdefault(made, (layer or self.title) + suffix)
        return made


def element_type_name(number: int) -> str:
    """ONNX's name for an element type."""
    known = number in TensorProto.DataType.values()
    return str(TensorProto.DataType.Name(number)) if known else f"type {number}"


def sample_constant(value: Array, rank: int, batch: int) -> Tensor:
    """A constant that meets batches of samples of ``rank`` dimensions, as it meets each sample."""
    if value.ndim > rank + 1:
        raise UnsupportedFormError(
            f"its constant of shape {list(value.shape)} has more dimensions than the tensor"
        )
    if value.ndim == rank + 1:
        if len(value) != 1 and (len(value) != batch or bool((value != value[:1]).any())):
            raise UnsupportedFormError(
                f"its constant of shape {list(value.shape)} differs between the samples of a batch"
            )
        value = value[0]
    return as_weights(value)


def as_weights(value: Array) -> Tensor:
    """A tensor of the same numbers that nobody else can change."""
    if value.dtype.name.startswith(("bfloat", "float8")):
        value = value.astype(np.float32)  # exact: float32 holds every one of them
    if value.dtype not in (np.float16, np.float32, np.float64):
        raise UnsupportedFormError(f"its constant holds {value.dtype} instead of floats")
    return torch.from_numpy(np.array(value, order="C"))
