"""How each captured PyTorch operation is read: one small function each, in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from provable_circuits.network import ops
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Op, Shape, ShapeError, as_parameter
from provable_circuits.network.ops.layers import Pair
from provable_circuits.network.torch.layout import BatchPlace


@dataclass(frozen=True, slots=True)
class Reading:
    """One captured operation while it is read: its arguments by the operation's own names."""

    node: fx.Node
    name: str
    layer: str
    builder: GraphBuilder
    tensors: Mapping[fx.Node, str]
    constants: Mapping[fx.Node, Any]
    layouts: dict[fx.Node, BatchPlace]
    parts: dict[fx.Node, tuple[str, ...]]
    batch: int

    def argument(self, position: int, keyword: str, default: Any = None) -> Any:
        """An argument by position or keyword, constants resolved, network tensors as fx nodes."""
        node = self.node
        if len(node.args) > position:
            return self._resolve(node.args[position])
        return self._resolve(node.kwargs.get(keyword, default))

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.constants.get(value, value)
        return value

    def is_tensor(self, value: object) -> bool:
        """Whether this argument is a tensor of the network (and not a constant)."""
        return isinstance(value, fx.Node) and value in self.tensors

    def source(self, position: int = 0) -> str:
        """The name of the network tensor at this argument position."""
        value = self.node.args[position]
        if not self.is_tensor(value):
            raise ShapeError(f"argument {position} must be a tensor of the network.")
        return self.tensors[value]  # type: ignore[index]

    def shape(self, position: int = 0) -> Shape:
        """The per-sample shape of the network tensor at this argument position."""
        return self.builder[self.source(position)].shape

    def add(self, op: Op, *inputs: str, layer: str | None = None) -> str:
        """Append an operation."""
        return self.builder.add(self.name, op, *inputs, layer=layer)

    def unary(self, op: Op) -> str:
        """Append an operation on the first argument."""
        return self.add(op, self.source())

    def parameter(self, position: int, keyword: str) -> Tensor | None:
        """A constant tensor argument, or None; an error if it depends on the network's input."""
        value = self.argument(position, keyword)
        if value is None:
            return None
        if isinstance(value, fx.Node):
            raise ShapeError(f"its {keyword} depends on the network's input.")
        constant: Tensor = value
        return constant if constant.is_contiguous() else as_parameter(constant)

    def per_sample(self, value: Any, rank: int) -> Tensor:
        """A constant operand without its batch dimension, for samples of ``rank`` dimensions."""
        constant = as_parameter(torch.as_tensor(value, dtype=_constant_dtype(value)))
        if constant.ndim > rank:
            if constant.ndim != rank + 1 or constant.shape[0] != 1:
                raise ShapeError("its constant differs between the samples of a batch.")
            constant = constant[0].clone()
        return constant


def _constant_dtype(value: Any) -> torch.dtype:
    """A Python number is a double; a tensor keeps its dtype."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.dtype
    return torch.float64


def _pair(value: Any) -> Pair:
    if isinstance(value, int):
        return (value, value)
    return (int(value[0]), int(value[0])) if len(value) == 1 else (int(value[0]), int(value[1]))


def _need(value: Tensor | None) -> Tensor:
    if value is None:
        raise ShapeError("a weight is missing.")
    return value


def _linear(r: Reading) -> str:
    weight = _need(r.parameter(1, "weight"))
    return r.add(ops.Linear(weight, r.parameter(2, "bias")), r.source(), layer=r.layer)


def _addmm(r: Reading) -> str:
    if r.argument(3, "beta", 1) != 1 or r.argument(4, "alpha", 1) != 1:
        raise ShapeError("alpha and beta must be 1.")
    bias, weight = r.parameter(0, "self"), _need(r.parameter(2, "mat2"))
    return r.add(ops.Linear(as_parameter(weight.T), bias), r.source(1), layer=r.layer)


def _matmul(r: Reading) -> str:
    weight = _need(r.parameter(1, "other"))
    if weight.ndim != 2:
        raise ShapeError("the right operand must be a constant matrix.")
    return r.add(ops.Linear(as_parameter(weight.T)), r.source(), layer=r.layer)


def _conv2d(r: Reading) -> str:
    weight, bias = _need(r.parameter(1, "weight")), r.parameter(2, "bias")
    stride, padding = _pair(r.argument(3, "stride", 1)), r.argument(4, "padding", 0)
    dilation, groups = _pair(r.argument(5, "dilation", 1)), int(r.argument(6, "groups", 1))
    source = r.source()
    if padding == "same":
        total = [dilation[i] * (weight.shape[2 + i] - 1) for i in (0, 1)]
        before = (total[0] // 2, total[1] // 2)
        after = (total[0] - before[0], total[1] - before[1])
        if before != after:
            source = r.builder.add(f"{r.name}.pad", ops.Pad((*before, *after)), source)
            before = (0, 0)
    else:
        before = (0, 0) if padding == "valid" else _pair(padding)
    conv = ops.Conv2d(weight, bias, stride, before, dilation, groups)
    return r.add(conv, source, layer=r.layer)


def _convolution(r: Reading) -> str:
    if r.argument(6, "transposed") or r.node.args[0].meta["val"].ndim != 4:  # type: ignore[union-attr]
        raise ShapeError("only two-dimensional convolutions that are not transposed are.")
    weight, bias = _need(r.parameter(1, "weight")), r.parameter(2, "bias")
    stride, padding, dilation = (_pair(r.argument(i, "")) for i in (3, 4, 5))
    conv = ops.Conv2d(weight, bias, stride, padding, dilation, int(r.argument(8, "groups", 1)))
    return r.add(conv, r.source(), layer=r.layer)


def _batch_statistics(r: Reading) -> str:
    raise ShapeError("it uses the statistics of the batch; track running statistics instead.")


def _batch_norm(r: Reading, epsilon_at: int, training_at: int | None) -> str:
    if training_at is not None and r.argument(training_at, "training"):
        return _batch_statistics(r)
    weight, bias, mean, variance = (r.parameter(i, "") for i in (1, 2, 3, 4))
    if mean is None or variance is None:
        raise ShapeError("it has no running statistics.")
    size = r.shape()
    op = ops.BatchNorm.from_statistics(
        size[0], len(size), weight, bias, mean, variance, float(r.argument(epsilon_at, "eps"))
    )
    return r.unary(op)


def _first_of_several(r: Reading) -> str:
    if r.argument(1, "index") != 0:
        raise ShapeError("only the first result of an operation can be used.")
    return r.source()


def _leaky_relu(r: Reading) -> str:
    return r.unary(ops.LeakyReLU(float(r.argument(1, "negative_slope", 0.01))))


def _clip(low: Any, high: Any) -> Op:
    low = -math.inf if low is None else float(low)
    high = math.inf if high is None else float(high)
    return ops.ReLU() if (low, high) == (0.0, math.inf) else ops.Clip(low, high)


def _clamp(r: Reading) -> str:
    return r.unary(_clip(r.argument(1, "min"), r.argument(2, "max")))


def _hardtanh(r: Reading) -> str:
    return r.unary(_clip(r.argument(1, "min_val", -1), r.argument(2, "max_val", 1)))


def _avg_pool2d(r: Reading) -> str:
    if r.argument(6, "divisor_override") is not None:
        raise ShapeError("divisor_override is not supported.")
    kernel = _pair(r.argument(1, "kernel_size"))
    op = ops.AvgPool2d(
        kernel,
        _pair(r.argument(2, "stride") or kernel),
        _pair(r.argument(3, "padding", 0)),
        bool(r.argument(4, "ceil_mode", False)),
        bool(r.argument(5, "count_include_pad", True)),
    )
    return r.unary(op)


def _max_pool2d(r: Reading) -> str:
    kernel = _pair(r.argument(1, "kernel_size"))
    padding = _pair(r.argument(3, "padding", 0))
    op = ops.MaxPool2d(
        kernel,
        _pair(r.argument(2, "stride") or kernel),
        (*padding, *padding),
        _pair(r.argument(4, "dilation", 1)),
        bool(r.argument(5, "ceil_mode", False)),
    )
    return r.unary(op)


def _adaptive_avg_pool2d(r: Reading) -> str:
    size = r.shape()
    if len(size) != 3:
        raise ShapeError("it takes feature maps of channels, height and width.")
    return r.unary(ops.adaptive_average((size[1], size[2]), _pair(r.argument(1, "output_size"))))


def _per_sample_dims(r: Reading, dims: Any) -> tuple[int, ...]:
    rank = len(r.shape()) + 1
    listed = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    positive = tuple(sorted(dim % rank for dim in listed))
    if 0 in positive or not positive:
        raise ShapeError("it acts across the samples of a batch.")
    return tuple(dim - 1 for dim in positive)


def _mean(r: Reading) -> str:
    dims = _per_sample_dims(r, r.argument(1, "dim") or None)
    count = math.prod(r.shape()[dim] for dim in dims)
    return r.unary(ops.Mean(dims, count, bool(r.argument(2, "keepdim", False))))


def _reshape(r: Reading) -> str:
    before, after = r.node.args[0].meta["val"].shape, r.node.meta["val"].shape  # type: ignore[union-attr]
    if after[:1] != before[:1]:
        raise ShapeError(
            f"it turns a batch of {before[0]} into shape {list(after)}. Keep samples apart, for "
            "instance with x.flatten(1)."
        )
    shape = tuple(int(length) for length in after[1:])
    return r.unary(ops.Reshape(shape)) if shape != r.shape() else r.source()


def _permute(r: Reading) -> str:
    rank = len(r.shape()) + 1
    return _reorder(r, [dim % rank for dim in r.argument(1, "dims")])


def _transpose(r: Reading) -> str:
    rank = len(r.shape()) + 1
    order = list(range(rank))
    first, second = r.argument(1, "dim0") % rank, r.argument(2, "dim1") % rank
    order[first], order[second] = order[second], order[first]
    return _reorder(r, order)


def _reorder(r: Reading, order: list[int]) -> str:
    if order[0] != 0:
        raise ShapeError("it moves the batch dimension.")
    return r.unary(ops.Permute(tuple(dim - 1 for dim in order[1:])))


def _cat(r: Reading) -> str:
    parts = r.node.args[0]
    if not isinstance(parts, list | tuple) or not all(r.is_tensor(part) for part in parts):
        raise ShapeError("it joins tensors of the network with constants.")
    rank = len(r.builder[r.tensors[parts[0]]].shape) + 1  # type: ignore[index]
    dim = int(r.argument(1, "dim", 0)) % rank
    if dim == 0:
        raise ShapeError("it joins along the batch dimension.")
    return r.add(ops.Concat(dim - 1), *(r.tensors[part] for part in parts))  # type: ignore[index]


def _pad(r: Reading) -> str:
    mode = r.argument(2, "mode", "constant")
    value = r.argument(3, "value") if isinstance(mode, str) else mode
    if (isinstance(mode, str) and mode != "constant") or value not in (None, 0, 0.0):
        raise ShapeError("only padding with zeros is.")
    widths = [int(width) for width in r.argument(1, "pad")]
    left, right, top, bottom = (widths + [0] * 4)[:4]
    if any(widths[4:]):
        raise ShapeError("only the height and width of feature maps are padded.")
    return r.unary(ops.Pad((top, left, bottom, right)))


def _sum_of(r: Reading, sign: int) -> str:
    """``a + alpha * b`` or ``a - alpha * b``, either operand possibly a constant."""
    first, second = r.argument(0, "self"), r.argument(1, "other")
    alpha = r.argument(2, "alpha", 1) if "alpha" in r.node.kwargs else 1
    if alpha != 1:
        raise ShapeError("alpha must be 1.")
    if r.is_tensor(first) and r.is_tensor(second):
        op = ops.Add() if sign > 0 else ops.Subtract()
        return r.add(op, r.tensors[first], r.tensors[second])
    if r.is_tensor(first):
        rank = len(r.builder[r.tensors[first]].shape)
        return r.add(ops.Affine(shift=sign * r.per_sample(second, rank)), r.tensors[first])
    rank = len(r.builder[r.tensors[second]].shape)
    shift = r.per_sample(first, rank)
    scale = torch.tensor(-1.0, dtype=shift.dtype) if sign < 0 else None
    return r.add(ops.Affine(scale, shift), r.tensors[second])


def _rsub(r: Reading) -> str:
    if r.argument(2, "alpha", 1) != 1:
        raise ShapeError("alpha must be 1.")
    shift = r.per_sample(r.argument(1, "other"), len(r.shape()))
    return r.unary(ops.Affine(torch.tensor(-1.0, dtype=shift.dtype), shift))


def _mul(r: Reading) -> str:
    first, second = r.argument(0, "self"), r.argument(1, "other")
    if r.is_tensor(first) and r.is_tensor(second):
        raise ShapeError("only multiplication by a constant is.")
    tensor, constant = (first, second) if r.is_tensor(first) else (second, first)
    rank = len(r.builder[r.tensors[tensor]].shape)
    return r.add(ops.Affine(scale=r.per_sample(constant, rank)), r.tensors[tensor])


def _div(r: Reading) -> str:
    divisor = r.argument(1, "other")
    if r.is_tensor(divisor) or r.node.kwargs.get("rounding_mode") is not None:
        raise ShapeError("only plain division by a constant is.")
    return r.unary(ops.Divide(r.per_sample(divisor, len(r.shape()))))


def _neg(r: Reading) -> str:
    return r.unary(ops.Affine(scale=torch.tensor(-1.0)))


def _same(r: Reading) -> str:
    return r.source()


def _cast(r: Reading) -> str:
    before, after = r.node.args[0].meta["val"].dtype, r.node.meta["val"].dtype  # type: ignore[union-attr]
    exact = (torch.float32, torch.float64)
    if before != after and not (before in exact and after in exact):
        raise ShapeError(f"it changes the number type from {before} to {after}.")
    return r.source()


def _dropout(r: Reading) -> str:
    if r.argument(2, "train"):
        raise ShapeError("it is random in evaluation mode.")
    return r.source()


READERS: dict[str, Callable[[Reading], str]] = {
    "linear": _linear,
    "addmm": _addmm,
    "matmul": _matmul,
    "mm": _matmul,
    "conv2d": _conv2d,
    "convolution": _convolution,
    "_native_batch_norm_legit_no_training": lambda r: _batch_norm(r, 6, None),
    "_native_batch_norm_legit": _batch_statistics,
    "batch_norm": lambda r: _batch_norm(r, 7, 5),
    "getitem": _first_of_several,
    "relu": lambda r: r.unary(ops.ReLU()),
    "leaky_relu": _leaky_relu,
    "relu6": lambda r: r.unary(ops.Clip(0.0, 6.0)),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda r: r.unary(_clip(None, r.argument(1, "max"))),
    "hardtanh": _hardtanh,
    "sigmoid": lambda r: r.unary(ops.Sigmoid()),
    "tanh": lambda r: r.unary(ops.Tanh()),
    "avg_pool2d": _avg_pool2d,
    "max_pool2d": _max_pool2d,
    "max_pool2d_with_indices": _max_pool2d,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "_adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "mean": _mean,
    "view": _reshape,
    "_unsafe_view": _reshape,
    "reshape": _reshape,
    "flatten": _reshape,
    "unflatten": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "permute": _permute,
    "transpose": _transpose,
    "cat": _cat,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "add": lambda r: _sum_of(r, 1),
    "sub": lambda r: _sum_of(r, -1),
    "rsub": _rsub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "clone": _same,
    "alias": _same,
    "detach": _same,
    "contiguous": _same,
    "expand": _reshape,
    "lift_fresh_copy": _same,
    "to": _cast,
    "_to_copy": _cast,
    "dropout": _dropout,
}


def supported_operations() -> str:
    """What a module may use, in words."""
    return (
        "linear, conv2d, batch normalisation, relu, leaky relu, relu6/clamp/hardtanh, sigmoid, "
        "tanh, average, max and adaptive-average pooling, mean over spatial dimensions, flatten, "
        "reshape, permute, concatenation, zero padding, add and subtract, multiply and divide by "
        "constants, dropout and identity"
    )
