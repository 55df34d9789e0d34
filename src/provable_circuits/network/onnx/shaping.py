"""Reading the ONNX operations that move values, and those that average over whole dimensions.

Shapes are compared with their batch dimension, as the file has them: the batch must stay first.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from provable_circuits.network.onnx.node import Array, OnnxNode, UnsupportedFormError, Value
from provable_circuits.network.ops import (
    Concat,
    Constant,
    Gather,
    Mean,
    Pad,
    Permute,
    Reshape,
    Scatter,
)

_LARGEST = 2**31 - 1
"""Values in the largest sample whose places are counted, and the size of a batch of any size."""


def _reshaped(node: OnnxNode, tensor: str, sizes: tuple[int, ...]) -> Value:
    """The tensor under another shape, given with its batch dimension."""
    old = (node.batch, *node.shape(tensor))
    if not sizes or sizes[0] != node.batch:
        raise UnsupportedFormError(
            f"it turns {list(old)} into {list(sizes)}, where the batch no longer comes first"
        )
    return tensor if sizes == old else node.add(Reshape(sizes[1:]), tensor)


def _keep_batch_first(node: OnnxNode, moved: bool) -> None:
    """Refuse what puts a dimension in front of a batch of any size, though one sample allows it."""
    if moved and node.batch_is_free:
        raise UnsupportedFormError("it moves the batch, of any size, away from the first dimension")


def read_flatten(node: OnnxNode) -> Value:
    """Flatten, at an axis that leaves the batch alone."""
    tensor = node.tensor(0)
    sizes = (node.batch, *node.shape(tensor))
    axis = node.attributes.get("axis", 1)
    axis = len(sizes) if axis == len(sizes) else node.axis_from_front(axis, len(sizes))
    _keep_batch_first(node, moved=axis == 0)
    return _reshaped(node, tensor, (math.prod(sizes[:axis]), math.prod(sizes[axis:])))


def read_reshape(node: OnnxNode) -> Value:
    """Reshape; 0 keeps a dimension and -1 is what is left."""
    tensor = node.tensor(0)
    return _reshaped(node, tensor, target_shape(node, (node.batch, *node.shape(tensor))))


def target_shape(node: OnnxNode, old: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that a Reshape of a tensor of sizes ``old`` results in."""
    wanted = node.integers("shape", 1) or ()
    given = wanted
    if not node.flag("allowzero"):
        if any(size == 0 and i >= len(old) for i, size in enumerate(wanted)):
            raise UnsupportedFormError(
                f"its shape {list(wanted)} keeps a dimension that is not there"
            )
        wanted = tuple(old[i] if size == 0 else size for i, size in enumerate(wanted))
    if wanted.count(-1) == 1:
        rest = math.prod(size for size in wanted if size != -1)
        wanted = tuple(math.prod(old) // (rest or 1) if size == -1 else size for size in wanted)
    if any(size < 0 for size in wanted) or math.prod(wanted) != math.prod(old):
        raise UnsupportedFormError(f"it cannot turn {list(old)} into {list(given)}")
    return wanted


def read_squeeze(node: OnnxNode) -> Value:
    """Squeeze; without axes it drops every dimension of size one."""
    tensor = node.tensor(0)
    sizes = (node.batch, *node.shape(tensor))
    axes = node.integers("axes", 1)
    if axes == ():
        raise UnsupportedFormError("runtimes differ in what it does with an empty list of axes")
    if axes is None:
        axes = tuple(i for i, size in enumerate(sizes) if size == 1)
    gone = {node.axis_from_front(axis, len(sizes)) for axis in axes}
    if any(sizes[axis] != 1 for axis in gone):
        raise UnsupportedFormError(f"it drops dimensions of {list(sizes)} that are not of size one")
    return _reshaped(node, tensor, tuple(n for i, n in enumerate(sizes) if i not in gone))


def read_unsqueeze(node: OnnxNode) -> Value:
    """Unsqueeze."""
    tensor = node.tensor(0)
    axes = node.integers("axes", 1) or ()
    rank = 1 + len(node.shape(tensor)) + len(axes)
    new = node.axes(tuple(node.axis_from_front(axis, rank) for axis in axes), rank)
    _keep_batch_first(node, moved=0 in new)
    old = iter((node.batch, *node.shape(tensor)))
    return _reshaped(node, tensor, tuple(1 if i in new else next(old, 1) for i in range(rank)))


def read_transpose(node: OnnxNode) -> Value:
    """Transpose of a sample's dimensions."""
    tensor = node.tensor(0)
    rank = 1 + len(node.shape(tensor))
    order = tuple(node.attributes.get("perm", range(rank - 1, -1, -1)))
    if not order or order[0] != 0:
        raise UnsupportedFormError("it moves the batch away from the first dimension")
    if order == tuple(range(rank)):
        return tensor
    return node.add(Permute(tuple(dim - 1 for dim in order[1:])), tensor)


def read_concat(node: OnnxNode) -> Value:
    """Concat along a dimension of the samples, constants included."""
    rank = max(len(node.shape(value)) for value in node.operands if isinstance(value, str))
    axis = node.axis(node.attributes["axis"], rank + 1)
    if axis == 0:
        raise UnsupportedFormError("it joins along the batch dimension")
    parts = []
    for i, value in enumerate(node.operands):
        if isinstance(value, str):
            parts.append(value)
        elif value is not None and value.ndim == rank + 1:
            constant = Constant(node.sample_constant(value, rank))
            parts.append(node.add(constant, part=f"part{i}"))
        else:
            raise UnsupportedFormError(f"its input {i} has another number of dimensions")
    return parts[0] if len(parts) == 1 else node.add(Concat(axis - 1), *parts)


def read_pad(node: OnnxNode) -> Value:
    """Pad with zeros."""
    tensor, pads = node.tensor(0), node.integers("pads", 1) or ()
    size = node.shape(tensor)
    rank = 1 + len(size)
    given = node.integers("axes", 3)
    axes = tuple(range(rank)) if given is None else node.axes(given, rank)
    value = node.optional_scalar(2) or node.attributes.get("value", 0.0)
    if node.attributes.get("mode", "constant") != "constant" or value != 0:
        raise UnsupportedFormError("it pads with other values than zeros")
    if len(pads) != 2 * len(axes):
        raise UnsupportedFormError(f"its pads {list(pads)} do not fit {len(axes)} dimensions")
    begins, ends = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = pads[i], pads[i + len(axes)]
    if not any(begins) and not any(ends):
        return tensor
    if begins[0] or ends[0] or min(pads) < 0:
        raise UnsupportedFormError("it pads along the batch dimension, or crops")
    if rank == 4 and not begins[1] and not ends[1]:
        return node.add(Pad((begins[2], begins[3], ends[2], ends[3])), tensor)
    padded = tuple(sum(sizes) for sizes in zip(begins[1:], size, ends[1:], strict=True))
    middle = tuple(slice(b, b + n) for b, n in zip(begins[1:], size, strict=True))
    return node.add(Scatter(torch.from_numpy(_places(padded)[middle].copy()), padded), tensor)


def read_gather(node: OnnxNode) -> Value:
    """Gather of constant places along a dimension of the samples."""
    tensor, index = node.tensor(0), node.indices(1)
    size = node.shape(tensor)
    axis = node.axis(node.attributes.get("axis", 0), 1 + len(size))
    if axis == 0:
        raise UnsupportedFormError("it picks samples of the batch")
    if index.size and not -size[axis - 1] <= index.min() <= index.max() < size[axis - 1]:
        raise UnsupportedFormError(f"its places reach beyond dimension {axis} of {list(size)}")
    return _picked(node, tensor, np.asarray(np.take(_places(size), index, axis=axis - 1)))


def read_slice(node: OnnxNode) -> Value:
    """Slice along dimensions of the samples."""
    tensor = node.tensor(0)
    size = node.shape(tensor)
    batch = _LARGEST if node.batch_is_free else node.batch
    samples, *places = slice_ranges(node, (batch, *size))
    if samples != range(batch):
        raise UnsupportedFormError("it picks samples of the batch, or changes their order")
    if all(picked == range(length) for picked, length in zip(places, size, strict=True)):
        return tensor
    return _picked(node, tensor, _places(size)[np.ix_(*places)])


def slice_ranges(node: OnnxNode, sizes: tuple[int, ...]) -> list[range]:
    """The places that a Slice picks along each dimension of a tensor.

    A start beyond the tensor moves to its nearest place, also where the step is negative: there
    Python would pick nothing.
    """
    starts, ends = node.integers("starts", 1) or (), node.integers("ends", 2) or ()
    axes = node.integers("axes", 3) or tuple(range(len(starts)))
    steps = node.integers("steps", 4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise UnsupportedFormError("its starts, ends, axes and steps do not fit each other")
    picked = [range(length) for length in sizes]
    for start, end, axis, step in zip(
        starts, ends, node.axes(axes, len(sizes)), steps, strict=True
    ):
        length = sizes[axis]
        if step < 0 and end in (2**31 - 1, 2**63 - 1):
            raise UnsupportedFormError(
                f"its end {end} with a negative step means different things to different runtimes"
            )
        first, last = (place + length if place < 0 else place for place in (start, end))
        if step > 0:
            picked[axis] = range(min(max(first, 0), length), min(max(last, 0), length), step)
        else:
            first, last = min(max(first, 0), length - 1), min(max(last, -1), length - 1)
            picked[axis] = range(first, last, step)
    return picked


def _places(size: tuple[int, ...]) -> Array:
    """The place of each value in a flattened sample."""
    if math.prod(size) > _LARGEST:
        raise UnsupportedFormError(f"its samples {list(size)} are too large")
    return np.arange(math.prod(size)).reshape(size)


def _picked(node: OnnxNode, tensor: str, places: Array) -> Value:
    if 0 in places.shape:
        raise UnsupportedFormError("nothing is left of its input")
    return node.add(Gather(torch.from_numpy(places.copy())), tensor)


def read_reduce_mean(node: OnnxNode) -> Value:
    """ReduceMean over dimensions of the samples."""
    tensor = node.tensor(0)
    rank = 1 + len(node.shape(tensor))
    axes = node.integers("axes", 1) or ()
    if not axes and node.flag("noop_with_empty_axes"):
        return tensor
    dims = set(node.axes(axes, rank)) or set(range(rank))
    if 0 in dims:
        raise UnsupportedFormError("it averages over the batch dimension")
    keep = node.flag("keepdims", default=True)
    return _mean(node, tensor, tuple(sorted(dim - 1 for dim in dims)), keep)


def read_global_average_pool(node: OnnxNode) -> Value:
    """GlobalAveragePool: the mean over all but the channels."""
    tensor = node.tensor(0)
    rank = len(node.shape(tensor))
    if not 2 <= rank <= 4:
        raise UnsupportedFormError("it takes feature maps of one to three dimensions only")
    return _mean(node, tensor, tuple(range(1, rank)), keepdim=True)


def _mean(node: OnnxNode, tensor: str, dims: tuple[int, ...], keepdim: bool) -> Value:
    count = math.prod(node.shape(tensor)[dim] for dim in dims)
    return node.add(Mean(dims, count, keepdim), tensor)
