"""How the ONNX operations of transformers are read: products of tensors, softmax, norms, masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from onnx import TensorProto

from provable_circuits.network.onnx.node import (
    OnnxNode,
    UnsupportedFormError,
    Value,
    as_weights,
)
from provable_circuits.network.ops import (
    GELU,
    Add,
    Affine,
    Embedding,
    Erf,
    Exp,
    Expand,
    Fill,
    MatMul,
    Multiply,
    Normalise,
    Op,
    Power,
    Reciprocal,
    Reshape,
    Shape,
    Softmax,
    Sqrt,
    Sum,
)

Reader = Callable[[OnnxNode], Value]


def together(node: OnnxNode, op: Op, left: str, right: str) -> Value:
    """An operation on two tensors of the network, each repeated where the other is larger."""
    wanted = _broadcast(node.shape(left), node.shape(right))
    first, second = (_to(node, name, wanted, part) for name, part in ((left, "a"), (right, "b")))
    return node.add(op, first, second)


def _broadcast(first: Shape, second: Shape) -> Shape:
    if len(first) != len(second):
        raise UnsupportedFormError(
            f"its tensors have {len(first)} and {len(second)} dimensions besides the batch"
        )
    try:
        return tuple(torch.broadcast_shapes(first, second))
    except RuntimeError:
        raise UnsupportedFormError(f"its tensors {first} and {second} do not fit") from None


def _to(node: OnnxNode, name: str, wanted: Shape, part: str) -> str:
    if node.shape(name) == wanted:
        return name
    return node.add(Expand(wanted), name, part=f"expanded_{part}")


def matrix_product(node: OnnxNode, left: str, right: str) -> Value:
    """The product of two stacks of matrices."""
    first, second = node.shape(left), node.shape(right)
    if min(len(first), len(second)) < 2:
        raise UnsupportedFormError("it multiplies along the batch dimension")
    lead = _broadcast(first[:-2], second[:-2])
    one = _to(node, left, (*lead, *first[-2:]), "a")
    other = _to(node, right, (*lead, *second[-2:]), "b")
    return node.add(MatMul(), one, other)


def quotient(node: OnnxNode) -> Value:
    """A tensor over a tensor, or a constant over one."""
    below = node.add(Reciprocal(), node.tensor(1), part="reciprocal")
    above = node.operand(0)
    if isinstance(above, str):
        return together(node, Multiply(), above, below)
    scale = node.sample_constant(node.constant(0), len(node.shape(below)))
    return node.add(Affine(scale=scale), below)


def _softmax(node: OnnxNode) -> Value:
    tensor = node.tensor(0)
    rank = len(node.shape(tensor)) + 1
    axis = node.axis(int(node.attributes.get("axis", -1 if node.operator_set >= 13 else 1)), rank)
    if axis == 0:
        raise UnsupportedFormError("it acts across the samples of a batch")
    if node.operator_set < 13 and axis != rank - 1:
        raise UnsupportedFormError("before operator set 13 only the last axis is supported")
    return node.add(Softmax(axis - 1), tensor, layer=node.layer)


def _layer_normalization(node: OnnxNode) -> Value:
    tensor = node.tensor(0)
    size = node.shape(tensor)
    axis = node.axis(int(node.attributes.get("axis", -1)), len(size) + 1)
    if axis == 0 or node.output_count > 1:
        raise UnsupportedFormError("it acts across the samples of a batch, or gives statistics")
    epsilon = node.number("epsilon", 1e-5)
    normal = node.add(Normalise(len(size) + 1 - axis, epsilon), tensor, part="normal")
    shift = node.optional_constant(2)
    scale = as_weights(node.constant(1))
    return node.add(Affine(scale, None if shift is None else as_weights(shift)), normal)


def _power(node: OnnxNode) -> Value:
    exponent = float(node.optional_scalar(1) or 0.0)
    tensor = node.tensor(0)
    if exponent == 0.5:
        return node.add(Sqrt(), tensor)
    if exponent == -1:
        return node.add(Reciprocal(), tensor)
    if exponent != int(exponent) or exponent < 1:
        raise UnsupportedFormError(f"its exponent is {exponent}")
    return tensor if exponent == 1 else node.add(Power(int(exponent)), tensor)


def _reduce_sum(node: OnnxNode) -> Value:
    tensor = node.tensor(0)
    size = node.shape(tensor)
    given = node.integers("axes", 1)
    if given is None:
        raise UnsupportedFormError("it acts across the samples of a batch")
    axes = node.axes(given, len(size) + 1)
    if 0 in axes or not axes:
        raise UnsupportedFormError("it acts across the samples of a batch")
    dims = tuple(sorted(axis - 1 for axis in axes))
    count = math.prod(size[dim] for dim in dims)
    return node.add(Sum(dims, count, node.flag("keepdims", True)), tensor)


def _where(node: OnnxNode) -> Value:
    condition = node.constant(0).astype(bool)
    first, second = node.operand(1), node.operand(2)
    index = 1 if isinstance(first, str) else 2
    tensor = node.tensor(index)
    rank = len(node.shape(tensor))
    mask = node.sample_constant(condition.astype(np.float32), rank).bool()
    if isinstance(first, str) and isinstance(second, str):
        one = node.add(Fill(~mask, 0.0), first, part="first")
        return together(node, Add(), one, node.add(Fill(mask, 0.0), second, part="second"))
    other = node.constant(3 - index)
    if other.size == 0 or not bool((other == other.reshape(-1)[0]).all()):
        raise UnsupportedFormError("what it puts in is not one number")
    return node.add(Fill(~mask if index == 1 else mask, float(other.reshape(-1)[0])), tensor)


def _gelu(node: OnnxNode) -> Value:
    kind = node.attributes.get("approximate", "none")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    return node.add(GELU(kind == "tanh"), node.tensor(0))


def _expand(node: OnnxNode) -> Value:
    tensor, size = node.tensor(0), [int(length) for length in node.indices(1).reshape(-1)]
    shape = node.shape(tensor)
    if len(size) > len(shape) + 1 or (len(size) == len(shape) + 1 and size[0] != 1):
        raise UnsupportedFormError("it repeats samples, or adds dimensions before the batch")
    wanted = _broadcast(shape, (*([1] * (len(shape) - len(size[1:]))), *size[1:]))
    return _to(node, tensor, wanted, "")


def embedded(node: OnnxNode, axis: int) -> Value:
    """Rows of a constant table at tokens."""
    table, tokens = as_weights(node.constant(0)), node.tensor(1)
    if axis != 0:
        raise UnsupportedFormError("a constant is read along another axis than its first")
    rows = node.add(Embedding(table.flatten(1)), tokens, part="rows" if table.ndim != 2 else "")
    if table.ndim == 2:
        return rows
    return node.add(Reshape((*node.shape(tokens), *table.shape[1:])), rows)


def _unary(op: Op) -> Reader:
    return lambda node: node.add(op, node.tensor(0))


INTEGERS = (TensorProto.INT64, TensorProto.INT32)

TRANSFORMER_READERS: Mapping[str, Reader] = {
    "Erf": _unary(Erf()),
    "Exp": _unary(Exp()),
    "Expand": _expand,
    "Gelu": _gelu,
    "LayerNormalization": _layer_normalization,
    "Neg": _unary(Affine(scale=torch.tensor(-1.0))),
    "Pow": _power,
    "Reciprocal": _unary(Reciprocal()),
    "ReduceSum": _reduce_sum,
    "Softmax": _softmax,
    "Sqrt": _unary(Sqrt()),
    "Where": _where,
}
