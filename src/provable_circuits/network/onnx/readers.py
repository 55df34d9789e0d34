"""How each ONNX operation is read: one function for each, and the table of them.

A reader gets a node with its operands, writes operations into the graph and returns what the
node's output stands for. It changes no number: weights stay as the file has them, and a factor
that has to be multiplied into them is multiplied in float64, which is exact for float32 weights.
A form that has no exact counterpart raises ``UnsupportedFormError``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from provable_circuits.errors import WeightsError
from provable_circuits.network.onnx.node import (
    Array,
    OnnxNode,
    UnsupportedFormError,
    Value,
    as_weights,
    element_type_name,
)
from provable_circuits.network.onnx.shaping import (
    read_concat,
    read_flatten,
    read_gather,
    read_global_average_pool,
    read_pad,
    read_reduce_mean,
    read_reshape,
    read_slice,
    read_squeeze,
    read_transpose,
    read_unsqueeze,
)
from provable_circuits.network.onnx.transformers import (
    INTEGERS,
    TRANSFORMER_READERS,
    embedded,
    matrix_product,
    quotient,
    together,
)
from provable_circuits.network.onnx.windows import read_average_pool, read_conv, read_max_pool
from provable_circuits.network.ops import (
    Add,
    Affine,
    BatchNorm,
    Clip,
    Conv2d,
    Divide,
    LeakyReLU,
    Linear,
    Multiply,
    Permute,
    ReLU,
    Reshape,
    Sigmoid,
    Square,
    Subtract,
    Tanh,
)

Reader = Callable[[OnnxNode], Value]


# Layers with weights.


def _matmul(node: OnnxNode) -> Value:
    left, right = node.operand(0), node.operand(1)
    if isinstance(left, str) and isinstance(right, str):
        return matrix_product(node, left, right)
    if isinstance(left, str):
        return _matmul_by(node, left, node.constant(1))
    tensor = node.tensor(1)
    rank = len(node.shape(tensor))
    if rank < 2:
        raise UnsupportedFormError("it multiplies along the batch dimension")
    weight = _matrix(node.constant(0), rank)
    swapped = Permute((*range(rank - 2), rank - 1, rank - 2))
    turned = node.add(swapped, tensor, part="transposed")
    if weight.ndim == 1:
        product = node.add(Linear(weight[None]), turned, part="product", layer=node.layer)
        return node.add(Reshape(node.shape(product)[:-1]), product)
    product = node.add(Linear(weight), turned, part="product", layer=node.layer)
    return node.add(swapped, product)


def _matmul_by(node: OnnxNode, tensor: str, value: Array) -> Value:
    """A tensor times a constant on its right."""
    rank = len(node.shape(tensor))
    if rank < 1:
        raise UnsupportedFormError("it multiplies along the batch dimension")
    weight = _matrix(value, rank)
    if weight.ndim == 2:
        return node.add(Linear(weight.T.contiguous()), tensor, layer=node.layer)
    product = node.add(Linear(weight[None]), tensor, part="product", layer=node.layer)
    return node.add(Reshape(node.shape(product)[:-1]), product)


def _matrix(value: Array, rank: int) -> Tensor:
    """A constant as one matrix, or one vector, that meets samples of ``rank`` dimensions."""
    leading = value.shape[:-2]
    if value.ndim == 0 or math.prod(leading) != 1 or value.ndim > rank + 1:
        raise UnsupportedFormError(
            f"its constant of shape {list(value.shape)} is not one matrix for all samples"
        )
    return as_weights(value.reshape(value.shape[-2:]))


def _gemm(node: OnnxNode) -> Value:
    tensor, value = node.tensor(0), node.constant(1)
    if node.flag("transA"):
        raise UnsupportedFormError("transA moves the batch away from the first dimension")
    if value.ndim != 2 or len(node.shape(tensor)) != 1:
        raise UnsupportedFormError("it takes matrices only")
    weight = as_weights(value if node.flag("transB") else value.T)
    weight = _scaled(weight, node.number("alpha", 1.0))
    beta, addend = node.number("beta", 1.0), node.operand(2)
    if addend is None or beta == 0:
        return node.add(Linear(weight), tensor, layer=node.layer)
    if not isinstance(addend, str):
        bias = _scaled(node.sample_constant(addend, 1), beta)
        if bias.numel() == 1:
            bias = bias.reshape(1).repeat(weight.shape[0])
        return node.add(Linear(weight, bias), tensor, layer=node.layer)
    product = node.add(Linear(weight), tensor, part="product", layer=node.layer)
    if beta != 1:
        addend = node.add(Affine(scale=torch.tensor(beta).double()), addend, part="scaled")
    return node.add(Add(), product, addend)


def _scaled(weight: Tensor, factor: float) -> Tensor:
    return weight if factor == 1 else weight.double() * factor


def _batch_normalization(node: OnnxNode) -> Value:
    tensor = node.tensor(0)
    if node.flag("training_mode") or node.output_count > 1:
        raise UnsupportedFormError("it is in training mode; export the model in evaluation mode")
    if not node.flag("spatial", default=True):  # an attribute of operator set 8 only
        raise UnsupportedFormError(
            "its spatial is 0: it has statistics of their own for each place"
        )
    size = node.shape(tensor)
    weight, bias, mean, variance = (as_weights(node.constant(i)) for i in (1, 2, 3, 4))
    if not size or {p.shape for p in (weight, bias, mean, variance)} != {(size[0],)}:
        raise UnsupportedFormError(f"its constants do not fit a tensor of channels {list(size)}")
    epsilon = node.number("epsilon", 1e-5)
    norm = BatchNorm.from_statistics(size[0], len(size), weight, bias, mean, variance, epsilon)
    return node.add(norm, tensor)


# Elementwise arithmetic.


def _add(node: OnnxNode) -> Value:
    left, right = node.operand(0), node.operand(1)
    if isinstance(left, str) and isinstance(right, str):
        return together(node, Add(), left, right)
    index = 0 if isinstance(left, str) else 1
    return _shifted(node, index, node.constant(1 - index))


def _subtract(node: OnnxNode) -> Value:
    left, right = node.operand(0), node.operand(1)
    if isinstance(left, str) and isinstance(right, str):
        return together(node, Subtract(), left, right)
    if isinstance(left, str):
        return _shifted(node, 0, node.constant(1), negative=True)
    tensor = node.tensor(1)
    shift = node.sample_constant(node.constant(0), len(node.shape(tensor)))
    return node.add(Affine(scale=torch.tensor(-1.0), shift=shift), tensor)


def _shifted(node: OnnxNode, index: int, value: Array, negative: bool = False) -> Value:
    """The tensor at ``index`` plus a constant, which becomes the bias of a layer without one."""
    tensor = node.tensor(index)
    made = node.builder[tensor]
    shift = node.sample_constant(value, len(made.shape))
    shift = -shift if negative else shift
    if isinstance(made.op, Linear | Conv2d) and made.op.bias is None and node.sole_reader[index]:
        channel = len(made.shape) - 1 if isinstance(made.op, Linear) else 0
        bias = _along(shift, made.shape, channel)
        if bias is not None:
            return node.add(replace(made.op, bias=bias), *made.inputs, layer=made.layer)
    return node.add(Affine(shift=shift), tensor)


def _along(shift: Tensor, shape: tuple[int, ...], channel: int) -> Tensor | None:
    """The constant as one number for each channel, if that is what it is."""
    sizes = [1] * (len(shape) - shift.ndim) + list(shift.shape)
    others = sizes[:channel] + sizes[channel + 1 :]
    if any(size != 1 for size in others) or sizes[channel] not in (1, shape[channel]):
        return None
    return shift.reshape(-1).expand(shape[channel]).contiguous()


def _multiply(node: OnnxNode) -> Value:
    left, right = node.operand(0), node.operand(1)
    if isinstance(left, str) and isinstance(right, str):
        return (
            node.add(Square(), left) if left == right else together(node, Multiply(), left, right)
        )
    index = 0 if isinstance(left, str) else 1
    tensor = node.tensor(index)
    scale = node.sample_constant(node.constant(1 - index), len(node.shape(tensor)))
    return node.add(Affine(scale=scale), tensor)


def _divide(node: OnnxNode) -> Value:
    if isinstance(node.operand(1), str):
        return quotient(node)
    tensor = node.tensor(0)
    return node.add(Divide(node.sample_constant(node.constant(1), len(node.shape(tensor)))), tensor)


def _sum(node: OnnxNode) -> Value:
    tensors = [value for value in node.operands if isinstance(value, str)]
    constants = [value for value in node.operands if isinstance(value, np.ndarray)]
    total, last = tensors[0], len(node.operands) - 1
    steps: list[Value] = [*tensors[1:], *constants]
    for step, value in enumerate(steps, 1):
        part = "" if step == last else f"part{step}"
        if isinstance(value, str):
            total = node.add(Add(), total, value, part=part)
        else:
            shift = node.sample_constant(value, len(node.shape(total)))
            total = node.add(Affine(shift=shift), total, part=part)
    return total


# Activation functions.


def _leaky_relu(node: OnnxNode) -> Value:
    slope = node.number("alpha", 0.01)
    if not math.isfinite(slope):
        raise WeightsError(f"The slope of LeakyRelu '{node.title}' is {slope}.")
    return node.add(LeakyReLU(slope), node.tensor(0))


def _clip(node: OnnxNode) -> Value:
    low, high = _end(node, "min", 1, -math.inf), _end(node, "max", 2, math.inf)
    if math.isnan(low) or math.isnan(high) or low == math.inf or high == -math.inf:
        raise WeightsError(f"The ends of Clip '{node.title}' are {low} and {high}.")
    if (low, high) == (-math.inf, math.inf):
        return node.tensor(0)
    op = ReLU() if (low, high) == (0.0, math.inf) else Clip(low, high)
    return node.add(op, node.tensor(0))


def _end(node: OnnxNode, name: str, index: int, free: float) -> float:
    """One end of Clip; the largest float, which stands for none, is infinite."""
    value = node.optional_scalar(index)
    end = node.attributes.get(name, free if value is None else value)
    return free if end == math.copysign(float(np.finfo(np.float32).max), free) else float(end)


# What does nothing.


def _identity(node: OnnxNode) -> Value:
    value = node.operand(0)
    if value is None:
        raise UnsupportedFormError("it has no input")
    return value


def _dropout(node: OnnxNode) -> Value:
    training = node.optional_constant(2)
    if training is not None and bool(training.any()):
        raise UnsupportedFormError("it is in training mode; export the model in evaluation mode")
    return _identity(node)


def _cast(node: OnnxNode) -> Value:
    wanted = node.attributes["to"]
    tokens = node.element_type in INTEGERS and wanted in INTEGERS
    if not tokens and wanted not in (TensorProto.FLOAT, TensorProto.DOUBLE, node.element_type):
        raise UnsupportedFormError(f"turning numbers into {element_type_name(wanted)} changes them")
    return _identity(node)


def _gather(node: OnnxNode) -> Value:
    if isinstance(node.operand(1), str) and not isinstance(node.operand(0), str):
        return embedded(node, node.axis(int(node.attributes.get("axis", 0)), 2))
    return read_gather(node)


READERS: Mapping[str, Reader] = {
    **TRANSFORMER_READERS,
    "Add": _add,
    "AveragePool": read_average_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": read_concat,
    "Conv": read_conv,
    "Div": _divide,
    "Dropout": _dropout,
    "Flatten": read_flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "GlobalAveragePool": read_global_average_pool,
    "Identity": _identity,
    "LeakyRelu": _leaky_relu,
    "MatMul": _matmul,
    "MaxPool": read_max_pool,
    "Mul": _multiply,
    "Neg": lambda node: node.add(Affine(scale=torch.tensor(-1.0)), node.tensor(0)),
    "Pad": read_pad,
    "ReduceMean": read_reduce_mean,
    "Relu": lambda node: node.add(ReLU(), node.tensor(0)),
    "Reshape": read_reshape,
    "Sigmoid": lambda node: node.add(Sigmoid(), node.tensor(0)),
    "Slice": read_slice,
    "Squeeze": read_squeeze,
    "Sub": _subtract,
    "Sum": _sum,
    "Tanh": lambda node: node.add(Tanh(), node.tensor(0)),
    "Transpose": read_transpose,
    "Unsqueeze": read_unsqueeze,
}
"""How each operation is read, by its name in ONNX."""
