"""Nodes all of whose inputs are constants, computed by definitions of our own.

Such nodes make the shapes that others reshape to, and weights that a model computes from others.
Each operation is one function from a node to its first outputs. Sums are added up in float64 and
rounded once to the type of the node. Windows and normalisations run through the same readers and
operations as they do on tensors of the network, so that both mean the same. An operation that is
not in the table, and a form on which runtimes differ, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch

from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.onnx.folding_shapes import SHAPING, Folder
from provable_circuits.network.onnx.node import Array, OnnxNode, UnsupportedFormError
from provable_circuits.network.onnx.readers import READERS

_WHOLE = frozenset(np.dtype(kind).name for kind in (np.int32, np.int64))
_WIDE = frozenset(["float32", "float64"])
_HALF = _WIDE | {"float16"}
_TRUTH = frozenset(["bool"])

_MISFITS = (ArithmeticError, IndexError, MemoryError, RuntimeError, TypeError, ValueError)
"""What numpy and PyTorch raise when they are given what does not fit."""


def fold(operation: str, node: OnnxNode) -> tuple[Array, ...]:
    """The outputs of a node, those that nothing here computes left out at the end.

    Raises:
        UnsupportedFormError: an operation that is not computed here, or constants that do not fit.
    """
    if operation not in FOLDERS:
        raise UnsupportedFormError(
            f"of constants only {', '.join(sorted(FOLDERS))} are computed; export the model with "
            "its constants folded"
        )
    try:
        with np.errstate(all="ignore"):
            results = FOLDERS[operation](node)
    except _MISFITS as error:
        raise UnsupportedFormError(f"it cannot be computed from its constants ({error})") from error
    results = results if isinstance(results, tuple) else (results,)
    return tuple(np.asarray(result) for result in results)


def _operands(node: OnnxNode, kinds: frozenset[str]) -> list[Array]:
    """All operands, of one type among ``kinds``; none of them NaN, which runtimes treat apart."""
    values = [node.constant(i) for i in range(len(node.operands))]
    types = {value.dtype.name for value in values}
    if len(types) != 1 or not types <= kinds:
        raise UnsupportedFormError(f"it takes constants of one type, and not {sorted(types)}")
    if any(value.dtype.kind == "f" and bool(np.isnan(value).any()) for value in values):
        raise UnsupportedFormError("one of its constants is NaN")
    return values


def _operand(node: OnnxNode, kinds: frozenset[str]) -> Array:
    """The first operand; the others are settings."""
    return _operands(replace(node, operands=node.operands[:1]), kinds)[0]


def _each(function: Callable[..., Any], kinds: frozenset[str]) -> Folder:
    """A function of each number, or of each pair of numbers."""
    return lambda node: function(*_operands(node, kinds))


def _running(function: Callable[[Array, Array], Any], kinds: frozenset[str]) -> Folder:
    """A function of two numbers, for any number of operands."""
    return lambda node: reduce(function, _operands(node, kinds))


# Arithmetic.


def _divide(left: Array, right: Array) -> Any:
    """Division; of integers towards zero."""
    if left.dtype.kind == "f":
        return left / right
    if bool((right == 0).any()):
        raise UnsupportedFormError("it divides an integer by zero")
    quotient = left // right
    return quotient + ((quotient * right != left) & ((left < 0) != (right < 0)))


def _modulo(node: OnnxNode) -> Array:
    left, right = _operands(node, _WHOLE | _WIDE)
    truncated = node.flag("fmod")
    if left.dtype.kind == "f" and not truncated:
        raise UnsupportedFormError("its fmod is 0, which is defined for integers only")
    if bool((right == 0).any()):
        raise UnsupportedFormError("it divides by zero")
    return np.asarray(np.fmod(left, right) if truncated else np.mod(left, right))


def _power(node: OnnxNode) -> Array:
    base, exponent = _operands(node, _WHOLE | _WIDE)
    if base.dtype.kind == "i" and bool((exponent < 0).any()):
        raise UnsupportedFormError("it takes an integer to a negative power")
    return np.asarray(np.power(base, exponent))


def _sigmoid(value: Array) -> Any:
    wide = value.astype(np.float64)
    return (1 / (1 + np.exp(-wide))).astype(value.dtype)


def _leaky(node: OnnxNode) -> Array:
    value, slope = _operand(node, _WIDE), node.number("alpha", 0.01)
    return np.where(value < 0, value * np.asarray(slope, value.dtype), value)


def _clip(node: OnnxNode) -> Array:
    value = _operand(node, _WHOLE | _WIDE)
    for index, name, limit in ((1, "min", np.maximum), (2, "max", np.minimum)):
        bound = node.optional_scalar(index)
        bound = node.attributes.get(name, bound)
        if bound is not None:
            value = limit(value, np.asarray(bound, value.dtype))
    return value


def _mean(node: OnnxNode) -> Array:
    values = _operands(node, _WIDE)
    total = reduce(np.add, [value.astype(np.float64) for value in values])
    return np.asarray(total / len(values)).astype(values[0].dtype)


def _where(node: OnnxNode) -> Array:
    condition, left, right = (node.constant(i) for i in range(3))
    if condition.dtype.name != "bool" or left.dtype != right.dtype:
        raise UnsupportedFormError("it takes truth values and constants of one type")
    return np.where(condition, left, right)


def _matmul(node: OnnxNode) -> Array:
    left, right = _operands(node, _WHOLE | _WIDE)
    if left.dtype.kind == "i":
        return np.asarray(np.matmul(left, right))
    product = np.asarray(np.matmul(left.astype(np.float64), right.astype(np.float64)))
    return product.astype(left.dtype)


def _gemm(node: OnnxNode) -> Array:
    present = tuple(value for value in node.operands if value is not None)
    left, right, *addend = _operands(replace(node, operands=present), _WIDE)
    if left.ndim != 2 or right.ndim != 2:
        raise UnsupportedFormError("it takes matrices only")
    wide = [value.astype(np.float64) for value in (left, right, *addend)]
    first = wide[0].T if node.flag("transA") else wide[0]
    second = wide[1].T if node.flag("transB") else wide[1]
    result = node.number("alpha", 1.0) * (first @ second)
    beta = node.number("beta", 1.0)
    if addend and beta != 0:
        result = result + beta * np.broadcast_to(wide[2], result.shape)
    return result.astype(left.dtype)


def _dequantize(node: OnnxNode) -> Array:
    """Whole numbers of a few bits, times a scale: one for all, or one for each place of an axis."""
    value, scale = node.constant(0), node.constant(1)
    zero = node.optional_constant(2)
    if value.dtype.name not in ("int8", "uint8", "int32") or scale.dtype.name != "float32":
        raise UnsupportedFormError(f"it turns {value.dtype} into {scale.dtype}")
    if node.attributes.get("block_size", 0) or node.attributes.get("output_dtype", 0):
        raise UnsupportedFormError("it has a scale for each block, or another type")
    if zero is not None and (zero.dtype != value.dtype or zero.shape != scale.shape):
        raise UnsupportedFormError("its zero point does not fit its scale")
    shift = np.zeros(scale.shape) if zero is None else zero
    if scale.size != 1:
        axis = node.axis(node.attributes.get("axis", 1), value.ndim)
        sizes = [-1 if i == axis else 1 for i in range(value.ndim)]
        if scale.shape != (value.shape[axis],):
            raise UnsupportedFormError(f"its scale {list(scale.shape)} does not fit its axis")
        scale, shift = scale.reshape(sizes), shift.reshape(sizes)
    elif scale.ndim > 1:
        raise UnsupportedFormError(f"its scale {list(scale.shape)} is not a single number")
    else:
        scale, shift = scale.reshape(()), shift.reshape(())
    difference = value.astype(np.float64) - shift.astype(np.float64)
    return np.asarray(difference * scale.astype(np.float64)).astype(np.float32)


# Reductions.


def _reduction(
    function: Callable[..., Any], kinds: frozenset[str], prepared: Callable[[Array], Any] | None
) -> Folder:
    """A reduction over some axes, or over all; ``prepared`` comes before it."""

    def compute(node: OnnxNode) -> Array:
        value, axes = _operand(node, kinds), node.integers("axes", 1) or ()
        keep = node.flag("keepdims", default=True)
        if not axes and node.flag("noop_with_empty_axes"):
            if prepared is not None:
                raise UnsupportedFormError("runtimes differ in what it does without axes")
            return value
        dims = tuple(node.axis(axis, value.ndim) for axis in axes) or tuple(range(value.ndim))
        if len(set(dims)) != len(dims) or 0 in value.shape:
            raise UnsupportedFormError("it names an axis twice, or has nothing to reduce")
        wide = value.astype(np.float64) if value.dtype.kind == "f" else value
        wide = wide if prepared is None else prepared(wide)
        return np.asarray(function(wide, axis=dims, keepdims=keep)).astype(value.dtype)

    return compute


def _length(value: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    return np.sqrt(np.sum(value, axis=axis, keepdims=keepdims))


# What goes through the readers of the network's own tensors.


def _as_read(operation: str) -> Folder:
    """What the reader makes of the node, run on the first operand as a batch of samples."""

    def compute(node: OnnxNode) -> Array:
        value = _operand(node, _WIDE)
        if value.ndim < 2 or 0 in value.shape:
            raise UnsupportedFormError(f"it cannot be computed of {list(value.shape)}")
        builder = GraphBuilder()
        source = builder.input("constant", value.shape[1:])
        scratch = replace(
            node,
            operands=(source, *node.operands[1:]),
            builder=builder,
            titles={},
            batch=len(value),
        )
        made = READERS[operation](scratch)
        if not isinstance(made, str):
            return made
        result: Array = builder.build([made]).run(torch.from_numpy(value.copy())).numpy()
        return result

    return compute


FOLDERS: Mapping[str, Folder] = {
    **SHAPING,
    **{
        name: _as_read(name)
        for name in (
            "AveragePool",
            "BatchNormalization",
            "Conv",
            "GlobalAveragePool",
            "MaxPool",
        )
    },
    "Abs": _each(np.abs, _WHOLE | _HALF),
    "Add": _each(np.add, _WHOLE | _HALF),
    "And": _each(np.logical_and, _TRUTH),
    "Ceil": _each(np.ceil, _WIDE),
    "Clip": _clip,
    "Cos": _each(np.cos, _WIDE),
    "DequantizeLinear": _dequantize,
    "Div": _each(_divide, _WHOLE | _HALF),
    "Equal": _each(np.equal, _WHOLE | _WIDE | _TRUTH),
    "Exp": _each(np.exp, _WIDE),
    "Floor": _each(np.floor, _WIDE),
    "Gemm": _gemm,
    "Greater": _each(np.greater, _WHOLE | _WIDE),
    "GreaterOrEqual": _each(np.greater_equal, _WHOLE | _WIDE),
    "LeakyRelu": _leaky,
    "Less": _each(np.less, _WHOLE | _WIDE),
    "LessOrEqual": _each(np.less_equal, _WHOLE | _WIDE),
    "Log": _each(np.log, _WIDE),
    "MatMul": _matmul,
    "Max": _running(np.maximum, _WHOLE | _WIDE),
    "Mean": _mean,
    "Min": _running(np.minimum, _WHOLE | _WIDE),
    "Mod": _modulo,
    "Mul": _each(np.multiply, _WHOLE | _HALF),
    "Neg": _each(np.negative, _WHOLE | _HALF),
    "Not": _each(np.logical_not, _TRUTH),
    "Or": _each(np.logical_or, _TRUTH),
    "Pow": _power,
    "Reciprocal": _each(lambda value: (1 / value).astype(value.dtype), _WIDE),
    "ReduceL1": _reduction(np.sum, _WIDE, np.abs),
    "ReduceL2": _reduction(_length, _WIDE, np.square),
    "ReduceMax": _reduction(np.max, _WHOLE | _WIDE, None),
    "ReduceMean": _reduction(np.mean, _WIDE, None),
    "ReduceMin": _reduction(np.min, _WHOLE | _WIDE, None),
    "ReduceProd": _reduction(np.prod, _WHOLE | _WIDE, None),
    "ReduceSum": _reduction(np.sum, _WHOLE | _WIDE, None),
    "ReduceSumSquare": _reduction(np.sum, _WIDE, np.square),
    "Relu": _each(lambda value: np.maximum(value, 0), _WIDE),
    "Round": _each(np.rint, _WIDE),
    "Sigmoid": _each(_sigmoid, _WIDE),
    "Sign": _each(np.sign, _WHOLE | _WIDE),
    "Sin": _each(np.sin, _WIDE),
    "Sqrt": _each(np.sqrt, _HALF),
    "Sub": _each(np.subtract, _WHOLE | _HALF),
    "Sum": _running(np.add, _WIDE),
    "Tanh": _each(np.tanh, _WIDE),
    "Where": _where,
}
"""How each operation is computed from constants, by its name in ONNX."""
