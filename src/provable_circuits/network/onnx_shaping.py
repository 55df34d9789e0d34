"""Reading the ONNX operations that move values, and those that average over whole dimensions.

Shapes are compared with their batch dimension, as the file has them: the batch must stay first.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from provable_circuits.network.onnx_node import Array, OnnxNode, UnsupportedFormError, Value
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

_LARGEST = 2**31
"""Values in the largest sample whose places are counted."""


def _reshaped(node: OnnxNode, tensor: str, sizes: tuple[int, ...]) -> Value:
    """The tensor under another shape, given with its batch dimension."""
    old = (node.batch, *node.shape(tensor))
    if not sizes or sizes[0] != node.batch:
        raise UnsupportedFormError(
            f"it turns {list(old)} into {list(sizes)}, where the batch no longer comes first"
        )
    return tensor if sizes == old else node.add(Reshape(sizes[1:]), tensor)


def read_flatten(node: OnnxNode) -> Value:
    """Flatten, at an axis that leaves the batch alone."""
    tensor = node.tensor(0)
    sizes = (node.batch, *node.shape(tensor))
    axis = node.attributes.get("axis", 1)
    axis = len(sizes) if axis == len(sizes) else node.axis(axis, len(sizes))
    return _reshaped(node, tensor, (math.prod(sizes[:axis]), math.prod(sizes[axis:])))


def read_reshape(node: OnnxNode) -> Value:
    """Reshape; 0 keeps a dimension and -1 is what is left."""
    tensor, wanted = node.tensor(0), node.integers("shape", 1) or ()
    old = (node.batch, *node.shape(tensor))
    if not node.flag("allowzero"):
        if any(size == 0 and i >= len(old) for i, size in enumerate(wanted)):
            raise UnsupportedFormError(
                f"its shape {list(wanted)} keeps a dimension that is not there"
            )
        wanted = tuple(old[i] if size == 0 else size for i, size in enumerate(wanted))
    if -1 in wanted:
        rest = math.prod(size for size in wanted if size != -1)
        wanted = tuple(math.prod(old) // max(rest, 1) if size == -1 else size for size in wanted)
    return _reshaped(node, tensor, wanted)


def read_squeeze(node: OnnxNode) -> Value:
    """Squeeze; without axes it drops every dimension of size one."""
    tensor = node.tensor(0)
    sizes = (node.batch, *node.shape(tensor))
    axes = node.integers("axes", 1)
    if axes is None:
        axes = tuple(i for i, size in enumerate(sizes) if size == 1)
    gone = {node.axis(axis, len(sizes)) for axis in axes}
    return _reshaped(node, tensor, tuple(n for i, n in enumerate(sizes) if i not in gone))


def read_unsqueeze(node: OnnxNode) -> Value:
    """Unsqueeze."""
    tensor = node.tensor(0)
    axes = node.integers("axes", 1) or ()
    rank = 1 + len(node.shape(tensor)) + len(axes)
    new = {node.axis(axis, rank) for axis in axes}
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
    axes = node.integers("axes", 3) or tuple(range(rank))
    value = node.optional_scalar(2) or node.attributes.get("value", 0.0)
    if node.attributes.get("mode", "constant") != "constant" or value != 0:
        raise UnsupportedFormError("it pads with other values than zeros")
    if len(pads) != 2 * len(axes):
        raise UnsupportedFormError(f"its pads {list(pads)} do not fit {len(axes)} dimensions")
    begins, ends = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        begins[node.axis(axis, rank)] = pads[i]
        ends[node.axis(axis, rank)] = pads[i + len(axes)]
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
    tensor, index = node.tensor(0), node.constant(1)
    size = node.shape(tensor)
    axis = node.axis(node.attributes.get("axis", 0), 1 + len(size))
    if axis == 0:
        raise UnsupportedFormError("it picks samples of the batch")
    if index.size and not -size[axis - 1] <= index.min() <= index.max() < size[axis - 1]:
        raise UnsupportedFormError(f"its places reach beyond dimension {axis} of {list(size)}")
    return _picked(node, tensor, np.take(_places(size), index, axis=axis - 1))


def read_slice(node: OnnxNode) -> Value:
    """Slice along dimensions of the samples."""
    tensor = node.tensor(0)
    size = node.shape(tensor)
    starts, ends = node.integers("starts", 1) or (), node.integers("ends", 2) or ()
    axes = node.integers("axes", 3) or tuple(range(len(starts)))
    steps = node.integers("steps", 4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise UnsupportedFormError("its starts, ends, axes and steps do not fit each other")
    cuts = [slice(None)] * (1 + len(size))
    axes = tuple(node.axis(axis, len(cuts)) for axis in axes)
    if len(set(axes)) != len(axes):
        raise UnsupportedFormError(f"its axes {list(axes)} name one twice")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cuts[axis] = slice(start, end, step)
    if len(range(node.batch)[cuts[0]]) != node.batch:
        raise UnsupportedFormError("it picks samples of the batch")
    return _picked(node, tensor, _places(size)[tuple(cuts[1:])])


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
    dims = {node.axis(axis, rank) for axis in axes} or set(range(rank))
    if 0 in dims:
        raise UnsupportedFormError("it averages over the batch dimension")
    keep = node.flag("keepdims", default=True)
    return _mean(node, tensor, tuple(sorted(dim - 1 for dim in dims)), keep)


def read_global_average_pool(node: OnnxNode) -> Value:
    """GlobalAveragePool: the mean over all but the channels."""
    tensor = node.tensor(0)
    rank = len(node.shape(tensor))
    if rank < 2:
        raise UnsupportedFormError("it takes feature maps only")
    return _mean(node, tensor, tuple(range(1, rank)), keepdim=True)


def _mean(node: OnnxNode, tensor: str, dims: tuple[int, ...], keepdim: bool) -> Value:
    count = math.prod(node.shape(tensor)[dim] for dim in dims)
    return node.add(Mean(dims, count, keepdim), tensor)
