"""Constants that are moved, repeated, counted or turned into another type.

The counterpart of ``onnx_shaping`` for constants, which have no batch dimension to keep in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from provable_circuits.network.onnx.node import (
    Array,
    OnnxNode,
    UnsupportedFormError,
    element_type_name,
)
from provable_circuits.network.onnx.shaping import slice_ranges, target_shape

Folder = Callable[[OnnxNode], Array | tuple[Array, ...]]

_LARGEST = 2**28
"""Numbers in the largest constant that is made out of few."""

_CASTS = frozenset(["bool", "float16", "float32", "float64", "int32", "int64", "int8", "uint8"])


def _bounded(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of a tensor that can be held."""
    if any(size < 0 for size in sizes) or math.prod(sizes) > _LARGEST:
        raise UnsupportedFormError(f"it would make a constant of shape {list(sizes)}")
    return sizes


def _constant(node: OnnxNode) -> Array:
    ((name, value),) = node.attributes.items()
    if name == "value":
        return numpy_helper.to_array(value)
    if name in ("value_int", "value_ints"):
        return np.array(value, dtype=np.int64)
    if name in ("value_float", "value_floats"):
        return np.array(value, dtype=np.float32)
    raise UnsupportedFormError(f"its {name} is not a tensor of numbers")


def _constant_of_shape(node: OnnxNode) -> Array:
    given = node.attributes.get("value")
    fill = np.zeros(1, np.float32) if given is None else numpy_helper.to_array(given)
    if fill.size != 1:
        raise UnsupportedFormError(f"its value has {fill.size} numbers instead of one")
    return np.broadcast_to(fill.reshape(()), _bounded(node.integers("shape", 0) or ()))


def _range(node: OnnxNode) -> Array:
    start, limit, step = (node.constant(i).reshape(()) for i in range(3))
    if len({value.dtype for value in (start, limit, step)}) != 1 or start.dtype.kind not in "if":
        raise UnsupportedFormError("it takes numbers of one type")
    if start.dtype.kind == "f" and not all(
        float(value).is_integer() and abs(value) < 2**24 for value in (start, limit, step)
    ):
        raise UnsupportedFormError("it counts in fractions, which runtimes round differently")
    first, last, by = int(start), int(limit), int(step)
    if by == 0:
        raise UnsupportedFormError("its delta is zero")
    places = range(first, last, by)
    _bounded((len(places),))
    return np.array(places, dtype=start.dtype)


def _cast(node: OnnxNode) -> Array:
    value, wanted = node.constant(0), node.attributes["to"]
    known = wanted in TensorProto.DataType.values() and wanted not in (0, TensorProto.STRING)
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(wanted)) if known else None
    if kind is not None and kind == value.dtype:
        return value
    if kind is None or kind.name not in _CASTS or value.dtype.name not in _CASTS | {"bfloat16"}:
        raise UnsupportedFormError(
            f"turning {value.dtype} into {element_type_name(wanted)} is not computed here"
        )
    if kind.kind in "iu":
        whole = np.trunc(value) if value.dtype.kind == "f" else value.astype(np.int64)
        limits = np.iinfo(kind)
        if not bool(((whole >= limits.min) & (whole < float(limits.max) + 1)).all()):
            raise UnsupportedFormError(f"its constant holds numbers that {kind} cannot")
    return value.astype(kind)


def _shape(node: OnnxNode) -> Array:
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return np.array(node.constant(0).shape[start:end], dtype=np.int64)


def _reshape(node: OnnxNode) -> Array:
    value = node.constant(0)
    return value.reshape(target_shape(node, value.shape))


def _flatten(node: OnnxNode) -> Array:
    value, axis = node.constant(0), node.attributes.get("axis", 1)
    sizes = value.shape
    axis = axis if axis == len(sizes) else node.axis_from_front(axis, len(sizes))
    return value.reshape(math.prod(sizes[:axis]), math.prod(sizes[axis:]))


def _squeeze(node: OnnxNode) -> Array:
    value, axes = node.constant(0), node.integers("axes", 1)
    if axes == ():
        raise UnsupportedFormError("runtimes differ in what it does with an empty list of axes")
    if axes is None:
        return np.squeeze(value)
    dims = tuple(node.axis_from_front(axis, value.ndim) for axis in axes)
    return np.squeeze(value, dims)


def _unsqueeze(node: OnnxNode) -> Array:
    value, axes = node.constant(0), node.integers("axes", 1) or ()
    dims = tuple(node.axis_from_front(axis, value.ndim + len(axes)) for axis in axes)
    return np.expand_dims(value, dims)


def _transpose(node: OnnxNode) -> Array:
    order = node.attributes.get("perm")
    value = node.constant(0)
    if order is not None and sorted(order) != list(range(value.ndim)):
        raise UnsupportedFormError(f"its perm {list(order)} does not fit {value.ndim} dimensions")
    return value.transpose(order)


def _concat(node: OnnxNode) -> Array:
    values = [node.constant(i) for i in range(len(node.operands))]
    if len({value.dtype for value in values}) != 1:
        raise UnsupportedFormError("it joins constants of different types")
    return np.concatenate(values, node.axis(node.attributes["axis"], values[0].ndim))


def _split(node: OnnxNode) -> tuple[Array, ...]:
    value = node.constant(0)
    axis = node.axis(node.attributes.get("axis", 0), value.ndim)
    sizes, length = node.integers("split", 1), value.shape[axis]
    if sizes is None:
        parts = node.attributes.get("num_outputs", node.output_count)
        size = -(-length // parts)
        sizes = (*[size] * (parts - 1), length - size * (parts - 1))
        if "num_outputs" not in node.attributes and length % parts:
            raise UnsupportedFormError(f"{length} does not split into {parts} equal parts")
    if sum(sizes) != length or min(sizes) < 0 or len(sizes) != node.output_count:
        raise UnsupportedFormError(f"its parts {list(sizes)} do not fit {length}")
    return tuple(np.split(value, np.cumsum(sizes)[:-1], axis))


def _slice(node: OnnxNode) -> Array:
    value = node.constant(0)
    return value[np.ix_(*slice_ranges(node, value.shape))] if value.ndim else value


def _gather(node: OnnxNode) -> Array:
    value, index = node.constant(0), node.indices(1)
    axis = node.axis(node.attributes.get("axis", 0), value.ndim)
    return np.take(value, index, axis)


def _gather_elements(node: OnnxNode) -> Array:
    value, index = node.constant(0), node.indices(1)
    axis = node.axis(node.attributes.get("axis", 0), value.ndim)
    fits = value.ndim == index.ndim and all(
        i == axis or n <= m for i, (n, m) in enumerate(zip(index.shape, value.shape, strict=True))
    )
    if not fits:
        raise UnsupportedFormError("its places do not fit its input")
    rest = tuple(slice(None if i == axis else n) for i, n in enumerate(index.shape))
    return np.take_along_axis(value[rest], index, axis)


def _expand(node: OnnxNode) -> Array:
    value, sizes = node.constant(0), node.integers("shape", 1) or ()
    return np.broadcast_to(value, _bounded(np.broadcast_shapes(value.shape, sizes)))


def _tile(node: OnnxNode) -> Array:
    value, counts = node.constant(0), node.integers("repeats", 1) or ()
    if len(counts) != value.ndim:
        raise UnsupportedFormError(f"its repeats {list(counts)} do not fit {value.ndim} dimensions")
    sizes = tuple(size * count for size, count in zip(value.shape, counts, strict=True))
    _bounded(sizes)
    return np.tile(value, counts)


def _pad(node: OnnxNode) -> Array:
    value, pads = node.constant(0), node.integers("pads", 1) or ()
    mode, axes = node.attributes.get("mode", "constant"), node.integers("axes", 3)
    dims = range(value.ndim) if axes is None else [node.axis(axis, value.ndim) for axis in axes]
    if len(pads) != 2 * len(dims) or len(set(dims)) != len(dims) or min(pads, default=0) < 0:
        raise UnsupportedFormError(f"its pads {list(pads)} do not fit its axes, or crop")
    widths = [(0, 0)] * value.ndim
    for i, dim in enumerate(dims):
        widths[dim] = (pads[i], pads[i + len(dims)])
    _bounded(tuple(n + sum(width) for n, width in zip(value.shape, widths, strict=True)))
    if mode == "constant":
        given = node.optional_constant(2)
        fill = node.attributes.get("value", 0) if given is None else given.reshape(())
        return np.pad(value, widths, constant_values=np.asarray(fill, value.dtype))
    if mode not in ("edge", "reflect") or 0 in value.shape:
        raise UnsupportedFormError(f"its mode '{mode}' is not computed here")
    if mode == "reflect" and any(
        max(width) >= n for n, width in zip(value.shape, widths, strict=True)
    ):
        raise UnsupportedFormError("it reflects more than there is")
    return np.pad(value, widths, mode="edge" if mode == "edge" else "reflect")


SHAPING: Mapping[str, Folder] = {
    "Cast": _cast,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Identity": lambda node: node.constant(0),
    "NonZero": lambda node: np.stack(np.nonzero(np.atleast_1d(node.constant(0)))),
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda node: np.array(node.constant(0).size, dtype=np.int64),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""How each operation that moves constants is computed, by its name in ONNX."""
