"""One random operation on the tensor that a random ONNX model has come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto
from tests.network.onnx_models import Draft

FAR = 2**31 - 1


def gemm(d: Draft) -> None:
    inner, outer = d.result.shape[-1], d.number(1, 5)
    turned = d.chance(0.5)
    weight = d.floats(*((outer, inner) if turned else (inner, outer)))
    shapes: list[tuple[int, ...]] = [(outer,), (1, outer), (1,), (), (1, 1)]
    if d.chance(0.1):
        shapes = [(len(d.result), 1), (len(d.result), outer), (outer, 1), (2, outer)]
    inputs = [d.output, weight]
    if d.opset < 11 or d.chance(0.8):
        inputs.append(d.floats(*d.pick(shapes)))
    attributes: dict[str, Any] = {"transB": 1} if turned else {}
    if d.chance(0.3):
        attributes["alpha"] = d.pick([0.3, -2.0, 0.0])
    if d.chance(0.3):
        attributes["beta"] = d.pick([0.7, -1.0, 0.0])
    if d.chance(0.05):
        attributes["transA"] = 1
    if not turned and inner == outer and d.chance(0.5):
        inputs[2:] = [d.output]
    d.add("Gemm", *inputs, **attributes)


def matmul(d: Draft) -> None:
    shape = d.result.shape
    if d.chance(0.3) and len(shape) > 2:
        left = d.pick([(4, shape[-2]), (shape[-2],), (1, 2, shape[-2])])
        d.add("MatMul", d.floats(*left), d.output)
    else:
        right = d.pick([(shape[-1], 3), (shape[-1],), (1, shape[-1], 2), (2, shape[-1], 2)])
        d.add("MatMul", d.output, d.floats(*right))


def batch_norm(d: Draft) -> None:
    channels = d.result.shape[1] if d.result.ndim > 1 else 1
    numbers = [d.floats(channels) for _ in range(3)]
    attributes = {"epsilon": d.pick([1e-3, 0.5])} if d.chance(0.5) else {}
    if d.chance(0.2):
        attributes["momentum"] = 0.5
    d.add("BatchNormalization", d.output, *numbers, d.floats(channels, positive=True), **attributes)


def arithmetic(d: Draft) -> None:
    kind, shape = d.pick(["Add", "Sub", "Mul", "Div"]), list(d.result.shape)
    if d.chance(0.15):
        shape.insert(0, 1)
    sizes = [size if d.chance(0.5) else 1 for size in shape][d.number(0, len(shape)) :]
    if d.chance(0.05) and sizes:
        sizes[0] += 1
    constant = d.floats(*sizes, positive=kind == "Div")
    inputs = [d.output, constant] if kind == "Div" or d.chance(0.7) else [constant, d.output]
    d.add(kind, *inputs)


def between(d: Draft) -> None:
    """Arithmetic of two tensors, equal in shape or not."""
    same = [n for n, v in d.earlier.items() if v.shape == d.result.shape] or list(d.earlier)
    other = d.pick(same or [d.output])
    kind = d.pick(["Add", "Add", "Sub", "Sub", "Mul", "Div"])
    inputs = [d.output, other] if d.chance(0.5) else [other, d.output]
    d.add(kind, *(inputs if d.chance(0.8) else [d.output] * 2))


def total(d: Draft) -> None:
    same = [n for n, v in d.earlier.items() if v.shape == d.result.shape]
    inputs = [d.output, *(d.pick(same) for _ in range(d.number(0, 2)) if same)]
    inputs += [d.floats(*d.result.shape[-1:]) for _ in range(d.number(0, 2))]
    d.random.shuffle(inputs)
    d.add("Sum", *inputs)


def activation(d: Draft) -> None:
    kind = d.pick(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Identity", "Dropout", "Cast"])
    if kind == "LeakyRelu" and d.chance(0.7):
        d.add(kind, d.output, alpha=d.pick([0.2, 0.0, 1.0, 1.5, -0.1]))
    elif kind == "Cast":
        d.add(kind, d.output, to=TensorProto.FLOAT)
    elif kind == "Dropout" and d.opset >= 12 and d.chance(0.5):
        d.add(kind, d.output, d.store(np.array(0.5, np.float32)), d.store(np.array(False)))
    elif kind == "Dropout" and d.chance(0.5):
        d.add(kind, d.output, extra=1)
    else:
        d.add(kind, d.output)


def clip(d: Draft) -> None:
    low, high = (d.pick([None, None, 0.0, -0.5, 0.3, 1.0]) for _ in range(2))
    if d.opset < 11:
        d.add("Clip", d.output, **{k: v for k, v in (("min", low), ("max", high)) if v is not None})
    else:
        ends = ["" if v is None else d.store(np.array(v, np.float32)) for v in (low, high)]
        d.add("Clip", d.output, *ends)


def window(d: Draft, spatial: int) -> dict[str, Any]:
    """The attributes that convolution and pooling share."""
    attributes: dict[str, Any] = {}
    kernel = [d.number(1, 3) for _ in range(spatial)]
    if d.chance(0.6):
        attributes["strides"] = [d.number(1, 4) for _ in range(spatial)]
    mode = d.pick(["NOTSET", None, None, "SAME_UPPER", "SAME_LOWER", "VALID"])
    if mode:
        attributes["auto_pad"] = mode
    if mode in ("NOTSET", None) and d.chance(0.6):
        attributes["pads"] = [d.number(0, 2) for _ in range(2 * spatial)]
        if d.chance(0.5):
            attributes["pads"][spatial:] = attributes["pads"][:spatial]
    if d.chance(0.25):
        attributes["dilations"] = [d.number(1, 2) for _ in range(spatial)]
    return {"kernel_shape": kernel, **attributes}


def conv(d: Draft) -> None:
    spatial, channels = max(d.result.ndim - 2, 1), d.result.shape[1] if d.result.ndim > 1 else 1
    attributes = window(d, spatial)
    groups = d.pick([g for g in range(1, channels + 1) if channels % g == 0])
    filters = groups * d.number(1, 2)
    inputs = [d.output, d.floats(filters, channels // groups, *attributes["kernel_shape"])]
    if d.chance(0.6):
        inputs.append(d.floats(filters))
    if groups > 1 or d.chance(0.2):
        attributes["group"] = groups
    if d.chance(0.5):
        del attributes["kernel_shape"]
    d.add("Conv", *inputs, **attributes)


def pool(d: Draft) -> None:
    kind = d.pick(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool"])
    if kind == "GlobalAveragePool":
        d.add(kind, d.output)
        return
    attributes = window(d, max(d.result.ndim - 2, 1))
    if d.opset < (10 if kind == "MaxPool" else 19):
        attributes.pop("dilations", None)
    if d.opset >= 10 and d.chance(0.4):
        attributes["ceil_mode"] = 1
    if kind == "AveragePool" and d.chance(0.4):
        attributes["count_include_pad"] = 1
    extra = d.number(0, 1) if kind == "MaxPool" else 0
    if kind == "MaxPool" and d.chance(0.1):
        attributes["storage_order"] = 1
    d.add(kind, d.output, extra=extra, **attributes)


def flatten(d: Draft) -> None:
    rank = d.result.ndim
    axis = d.number(-rank, rank) if d.chance(0.4) else 1
    d.add("Flatten", d.output, **({} if axis == 1 and d.chance(0.5) else {"axis": axis}))


def reshape(d: Draft) -> None:
    shape = list(d.result.shape)
    sizes = list(shape)
    if len(sizes) > 1 and d.chance(0.6):
        at = d.number(0 if d.chance(0.1) else min(1, len(sizes) - 2), len(sizes) - 2)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    elif d.chance(0.7):
        at = d.number(0, len(sizes) - 1)
        factor = d.pick([f for f in range(1, sizes[at] + 1) if sizes[at] % f == 0])
        sizes[at : at + 1] = [sizes[at] // factor, factor] if at else [sizes[at], 1]
    if d.chance(0.4):
        sizes[d.number(0, len(sizes) - 1)] = -1
    if d.chance(0.4):
        at = d.number(0, len(sizes) - 1)
        if at >= len(shape) or sizes[at] in (shape[at], -1) or d.chance(0.1):
            sizes[at] = 0
    attributes = {"allowzero": d.number(0, 1)} if d.opset >= 14 and d.chance(0.2) else {}
    d.add("Reshape", d.output, d.integers(sizes), **attributes)


def squeeze(d: Draft) -> None:
    ones = [i for i, size in enumerate(d.result.shape) if size == 1 and (i or d.chance(0.1))]
    axes: list[int] | None = [a - d.result.ndim if d.chance(0.3) else a for a in ones]
    if d.chance(0.1):
        axes = None
    inputs, attributes = d.listed(13, axes=axes)
    d.add("Squeeze", d.output, *inputs, **attributes)


def unsqueeze(d: Draft) -> None:
    count = d.number(1, 2)
    rank = d.result.ndim + count
    axes = [d.axis(rank) for _ in range(count)]
    inputs, attributes = d.listed(13, axes=axes)
    d.add("Unsqueeze", d.output, *inputs, **attributes)


def transpose(d: Draft) -> None:
    rank = d.result.ndim
    order = [0, *(1 + d.random.permutation(rank - 1))] if rank else []
    if d.chance(0.05):
        order = list(d.random.permutation(rank))
    perm: dict[str, Any] = {"perm": [int(i) for i in order]} if rank and d.chance(0.9) else {}
    d.add("Transpose", d.output, **perm)


def concat(d: Draft) -> None:
    shape = d.result.shape
    axis = d.axis(len(shape)) if shape else 0
    parts = [d.output]
    for _ in range(d.number(0, 2)):
        fits = [n for n, v in d.earlier.items() if v.ndim == len(shape)]
        if fits and d.chance(0.5):
            parts.append(d.pick(fits))
        else:
            sizes = list(shape)
            if sizes:
                sizes[axis] = d.number(1, 3) if axis % len(shape) else sizes[axis]
            parts.append(d.floats(*sizes))
    d.random.shuffle(parts)
    d.add("Concat", *parts, axis=axis)


def split(d: Draft) -> None:
    axis = d.axis(d.result.ndim) if d.result.ndim else 0
    attributes: dict[str, Any] = {"axis": axis}
    if d.opset >= 18:
        attributes["num_outputs"] = 2
    d.add("Split", d.output, extra=1, **attributes)


def pad(d: Draft) -> None:
    rank = d.result.ndim
    pads = [
        d.number(0, 2) if i % max(rank, 1) > (0 if d.chance(0.2) else 1) else 0
        for i in range(2 * rank)
    ]
    if d.chance(0.1) and pads:
        pads[d.number(0, len(pads) - 1)] = d.pick([1, -1])
    mode = d.pick([*["constant"] * 8, "reflect", "edge"])
    attributes: dict[str, Any] = {} if mode == "constant" and d.chance(0.5) else {"mode": mode}
    if d.opset < 11:
        if d.chance(0.3):
            attributes["value"] = d.pick([0.0, 1.5])
        if not rank:
            return
        d.add("Pad", d.output, pads=pads, **attributes)
        return
    inputs = [d.output]
    value = d.store(np.array(d.pick([0.0, 0.0, 0.0, -2.0]), np.float32)) if d.chance(0.3) else ""
    if d.opset >= 18 and rank and d.chance(0.4):
        axes = sorted({d.axis(rank) % rank for _ in range(2)})
        pads = [pads[a] for a in axes] + [pads[rank + a] for a in axes]
        axes = [a - rank if d.chance(0.3) else a for a in axes]
        inputs += [d.integers(pads), value, d.integers(axes)]
    else:
        inputs += [d.integers(pads), value]
    d.add("Pad", *(inputs if inputs[-1] else inputs[:-1]), **attributes)


def gather(d: Draft) -> None:
    axis = d.axis(d.result.ndim) if d.result.ndim else 0
    size = d.result.shape[axis] if d.result.ndim else 1
    low, high = (-size, size - 1) if d.chance(0.9) else (-size - 1, size)
    shape = d.pick([(), (), (1,), (3,), (2, 2), (1, 1, 2)])
    index = d.random.integers(low, high + 1, size=shape)
    dtype = d.pick([np.int64, np.int32])
    attributes = {} if axis == 0 and d.chance(0.5) else {"axis": axis}
    d.add("Gather", d.output, d.integers(index.tolist(), dtype), **attributes)


def cuts(d: Draft, shape: tuple[int, ...]) -> dict[str, list[int] | None]:
    """Slices near the ends of a shape, on either side of them, and far beyond."""
    rank = len(shape)
    count = d.number(1, min(rank, 2))
    axes = [int(a) for a in d.random.permutation(rank)[:count]]
    if d.chance(0.7):
        axes = [a for a in axes if a] or [rank - 1]
    starts, ends, steps = [], [], []
    for axis in axes:
        step = d.pick([1, 1, 1, 2, 3]) if d.opset < 10 or d.chance(0.6) else d.pick([-1, -1, -2])
        near = [d.number(-shape[axis] - 2, shape[axis] + 2) for _ in range(2)]
        if d.chance(0.6):
            near.sort(key=lambda place, n=shape[axis]: place % n, reverse=step < 0)  # type: ignore[misc]
        # A largest end with a negative step has a test of its own: the runtime is not one with
        # itself about it, and can crash.
        starts.append(d.pick([-FAR, FAR]) if d.chance(0.15) else near[0])
        ends.append(d.pick([-FAR, FAR if step > 0 else -FAR]) if d.chance(0.15) else near[1])
        steps.append(step)
    axes = [a - rank if d.chance(0.3) else a for a in axes]
    named = axes if axes != list(range(len(axes))) or d.chance(0.7) else None
    if d.opset < 10:
        return {"starts": starts, "ends": ends, "axes": named}
    moved = steps if any(step != 1 for step in steps) or d.chance(0.5) else None
    return {"starts": starts, "ends": ends, "axes": named, "steps": moved}


def slices(d: Draft) -> None:
    if d.result.ndim:
        inputs, attributes = d.listed(10, **cuts(d, d.result.shape))
        d.add("Slice", d.output, *inputs, **attributes)


def reduce_mean(d: Draft) -> None:
    rank = d.result.ndim
    axes = [d.axis(rank) for _ in range(d.number(1, 2))] if rank and d.chance(0.9) else None
    if axes and len(axes) == 2 and axes[0] % rank == axes[1] % rank and d.chance(0.8):
        axes = axes[:1]
    attributes = {} if d.chance(0.4) else {"keepdims": d.number(0, 1)}
    inputs, listed = d.listed(18, axes=axes)
    if d.opset >= 18 and d.chance(0.2):
        attributes["noop_with_empty_axes"] = 1
    d.add("ReduceMean", d.output, *inputs, **attributes, **listed)


def shape_of(d: Draft) -> None:
    """A reshaping whose shape is computed from the shape of a tensor."""
    name = d.append("Shape", [d.output], d.fresh("s"))
    first = d.append("Gather", [name, d.integers([0])], d.fresh("s"), axis=0)
    sizes = [first, d.integers([-1])]
    if d.result.ndim > 1 and d.chance(0.5):
        inputs, attributes = d.listed(10, starts=[1], ends=[2], axes=[0])
        sizes.insert(1, d.append("Slice", [name, *inputs], d.fresh("s"), **attributes))
    d.add("Reshape", d.output, d.append("Concat", sizes, d.fresh("s"), axis=0))


STEPS: Mapping[Callable[[Draft], None], int] = {
    gemm: 3,
    matmul: 3,
    batch_norm: 3,
    arithmetic: 6,
    between: 4,
    total: 2,
    activation: 5,
    clip: 2,
    conv: 6,
    pool: 8,
    flatten: 2,
    reshape: 4,
    squeeze: 2,
    unsqueeze: 2,
    transpose: 3,
    concat: 3,
    split: 1,
    pad: 4,
    gather: 4,
    slices: 5,
    reduce_mean: 2,
    shape_of: 1,
}
"""Each step and how often it is drawn."""

_FOR_MAPS = (conv, pool, pad, batch_norm)
_CHOICES = [step for step, weight in STEPS.items() for _ in range(weight)]


def random_model(seed: int) -> Draft:
    """A model of a few operations."""
    draft = Draft(seed)
    for _ in range(draft.number(1, 6)):
        step = draft.pick(_CHOICES)
        if draft.result.ndim == 4 and draft.chance(0.3):
            step = draft.pick(_FOR_MAPS)
        elif draft.result.ndim != 4 and step in _FOR_MAPS and draft.chance(0.8):
            step = draft.pick(_CHOICES)
        if draft.finished:
            break
        before = draft.output, len(draft.nodes), len(draft.weights)
        step(draft)
        if draft.output == before[0]:
            del draft.nodes[before[1] :], draft.weights[before[2] :]
    return draft
