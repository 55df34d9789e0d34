"""ONNX files evaluated in rational numbers, by the ``onnx`` package and plain loops.

Sigmoid and tanh are taken from 80 digits. Nothing here is shared with the checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = Any


def fractions(values: Any) -> Array:
    """Numbers as fractions, in the shape that they have."""
    array = np.asarray(values)
    made = np.empty(array.shape, dtype=object)
    made.reshape(-1)[:] = [Fraction(v) for v in array.reshape(-1).tolist()]
    return made


def curve(tanh: bool) -> Callable[[Array], Array]:
    """Sigmoid or tanh, of fractions."""

    def one(value: Fraction) -> Fraction:
        with localcontext(prec=80):
            x = Decimal(value.numerator) / Decimal(value.denominator)
            y = 1 / (1 + (-(1 + tanh) * x).exp())
            return Fraction((1 + tanh) * y - tanh)

    return np.vectorize(one, otypes=[object])


def windows(a: Mapping[str, Any], shape: tuple[int, ...]) -> Iterator[tuple[int, int, list[Any]]]:
    """For each output of a sliding window: its place, and the places that it reads."""
    kernel = a["kernel_shape"]
    strides, dilations = a.get("strides", [1, 1]), a.get("dilations", [1, 1])
    pads = a.get("pads", [0] * 4)
    counts = []
    for i in (0, 1):
        span = shape[i] + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1
        count = span // strides[i] + 1
        if a.get("ceil_mode") and span % strides[i]:
            count += count * strides[i] < shape[i] + pads[i]
        counts.append(count)
    for row, column in np.ndindex(*counts):
        reads = []
        for i, j in np.ndindex(*kernel):
            y = row * strides[0] - pads[0] + i * dilations[0]
            x = column * strides[1] - pads[1] + j * dilations[1]
            reads.append((i, j, y, x) if 0 <= y < shape[0] and 0 <= x < shape[1] else None)
        yield row, column, reads


def _slide(a: Mapping[str, Any], x: Array, filters: int, of: Callable[..., Any]) -> Array:
    places = list(windows(a, x.shape[2:]))
    made = np.empty((1, filters, places[-1][0] + 1, places[-1][1] + 1), dtype=object)
    for row, column, reads in places:
        for f in range(filters):
            made[0, f, row, column] = of(f, reads)
    return made


def _conv(a: Mapping[str, Any], x: Array, w: Array, b: Array | None = None) -> Array:
    groups = a.get("group", 1)
    per, own = w.shape[1], len(w) // groups

    def of(f: int, reads: list[Any]) -> Any:
        first = f // own * per
        total = Fraction(0) if b is None else b[f]
        for i, j, y, z in filter(None, reads):
            total += sum(w[f, c, i, j] * x[0, first + c, y, z] for c in range(per))
        return total

    return _slide({**a, "kernel_shape": w.shape[2:]}, x, len(w), of)


def _average(a: Mapping[str, Any], x: Array) -> Array:
    def of(f: int, reads: list[Any]) -> Any:
        inside = [x[0, f, y, z] for _, _, y, z in filter(None, reads)]
        return sum(inside) / (len(reads) if a.get("count_include_pad") else len(inside))

    return _slide(a, x, x.shape[1], of)


def _maximum(a: Mapping[str, Any], x: Array) -> Array:
    return _slide(
        a, x, x.shape[1], lambda f, reads: max(x[0, f, y, z] for _, _, y, z in filter(None, reads))
    )


def _pad(a: Mapping[str, Any], x: Array, pads: Array, *_: Any) -> Array:
    half = len(pads) // 2
    around = list(zip(pads[:half].tolist(), pads[half:].tolist(), strict=True))
    zero: Any = Fraction(0)
    return np.pad(x, around, constant_values=zero)


def _clip(a: Mapping[str, Any], x: Array, low: Any = None, high: Any = None) -> Array:
    least = x if low is None or low == -np.inf else np.maximum(x, fractions(low))
    return least if high is None or high == np.inf else np.minimum(least, fractions(high))


def _norm(a: Mapping[str, Any], x: Array, scale: Array, shift: Array, *_: Any) -> Array:
    shape = (1, -1, *[1] * (x.ndim - 2))
    return x * scale.reshape(shape) + shift.reshape(shape)


def _mean(a: Mapping[str, Any], x: Array, axes: Array) -> Array:
    where = tuple(axes.tolist())
    count = int(np.prod([x.shape[i] for i in where]))
    return x.sum(axis=where, keepdims=bool(a.get("keepdims", 1))) / Fraction(count)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average,
    "BatchNormalization": _norm,
    "Clip": _clip,
    "Concat": lambda a, *x: np.concatenate(x, a["axis"]),
    "Conv": _conv,
    "Div": lambda a, x, y: x / y,
    "Flatten": lambda a, x: x.reshape(1, -1),
    "Gather": lambda a, x, i: np.take(x, i, a["axis"]),
    "Identity": lambda a, x: x,
    "LeakyRelu": lambda a, x: np.where(
        x < 0, x * Fraction(float(a.get("alpha", np.float32(0.01)))), x
    ),
    "MatMul": lambda a, x, y: x @ y,
    "MaxPool": _maximum,
    "Mul": lambda a, x, y: x * y,
    "Pad": _pad,
    "ReduceMean": _mean,
    "Relu": lambda a, x: np.maximum(x, fractions(0)),
    "Reshape": lambda a, x, size: x.reshape(size),
    "Sigmoid": lambda a, x: curve(False)(x),
    "Sub": lambda a, x, y: x - y,
    "Tanh": lambda a, x: curve(True)(x),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
}

Removed = Mapping[str, tuple[Array, Array]]
"""For tensors, which of their units are replaced, and by what."""


def evaluate(data: bytes, x: Array, removed: Removed | None = None) -> dict[str, Array]:
    """Every tensor of a file at one input, flat; units of tensors can be replaced."""
    graph = onnx.load_model_from_string(data).graph
    constants: dict[str, Any] = {"": None}
    for tensor in graph.initializer:
        value = numpy_helper.to_array(tensor)
        finite = value.dtype.kind == "f" and np.isfinite(value).all()
        constants[tensor.name] = fractions(value) if finite else value
    entry = graph.input[0]
    shape = [d.dim_value for d in entry.type.tensor_type.shape.dim][1:]
    values = {entry.name: fractions(x).reshape(1, *shape)}
    _replace(values, entry.name, removed)
    for node in graph.node:
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [values[name] if name in values else constants[name] for name in node.input]
        made = OPERATIONS[node.op_type](given, *inputs)
        values[node.output[0]] = np.asarray(made, dtype=object)
        _replace(values, node.output[0], removed)
    return {name: value.reshape(-1) for name, value in values.items()}


def _replace(values: dict[str, Array], name: str, removed: Removed | None) -> None:
    if removed and name in removed:
        mask, patch = removed[name]
        shape = values[name].shape
        values[name] = np.where(mask.reshape(shape), fractions(patch).reshape(shape), values[name])
