"""ONNX models of every operation that is read.

Each is written in the forms of the operator set it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from tests.network.onnx.nets import NEWEST, Net


def perceptron(opset: int) -> onnx.ModelProto:
    net = Net("N", 6, opset=opset)
    h = net.node("Gemm", "x", net.weight("fc1.weight", 5, 6), net.weight("fc1.bias", 5), transB=1)
    h = net.node("Relu", h)
    h = net.node("Gemm", h, net.weight("fc2.weight", 4, 5), net.weight("fc2.bias", 4), transB=1)
    return net.model(h)


def gemm_forms(opset: int) -> onnx.ModelProto:
    net = Net(None, 6, opset=opset)
    h = net.node("Gemm", "x", net.weight("a", 6, 5), net.weight("a0", 1, 5), alpha=0.3, beta=0.7)
    h = net.node("Tanh", h)
    h = net.node("Gemm", h, net.weight("b", 5, 5), net.weight("b0", 1), transB=1, alpha=-1.0)
    h = net.node("Gemm", h, net.weight("c", 5, 5), h, beta=0.5)
    h = net.node("Gemm", h, net.weight("d", 5, 5), h)
    h = net.node("Gemm", h, net.weight("e", 5, 5), net.constant("e0", 2.0), beta=0.0)
    if opset >= 11:
        h = net.node("Gemm", h, net.weight("f", 5, 5))
    return net.model(h)


def matmul_and_bias(opset: int) -> onnx.ModelProto:
    net = Net("N", 6, opset=opset)
    h = net.node("Add", net.node("MatMul", "x", net.weight("a", 6, 7)), net.weight("a0", 7))
    h = net.node("LeakyRelu", h, alpha=0.2)
    h = net.node("Add", net.weight("b0", 1, 7), net.node("MatMul", h, net.weight("b", 7, 7)))
    h = net.node("Sigmoid", h)
    h = net.node("Sub", net.node("MatMul", h, net.weight("c", 7, 4)), net.weight("c0", 4))
    return net.model(net.node("LeakyRelu", h))


def normalised(opset: int) -> onnx.ModelProto:
    net = Net("N", 3, 6, 5, opset=opset)
    h = net.node("Sub", "x", net.weight("mean", 1, 3, 1, 1))
    h = net.node("Div", h, net.positive("std", 3, 1, 1))
    h = net.node("Neg", net.node("Mul", net.weight("scale", 6, 1), h))
    h = net.node("Sub", net.weight("top", 1, 3, 1, 5), h)
    h = net.node("Mul", h, net.constant("half", 0.5))
    h = net.node("Sum", net.weight("s", 5), h, "x", net.weight("t", 1, 1, 1, 1))
    h = net.node("Sum", h)
    h = net.node("Add", h, net.weight("map", 3, 6, 5))
    return net.model(net.node("Mul", h, h))


def residual(opset: int) -> onnx.ModelProto:
    net = Net("N", 4, 9, 8, opset=opset)
    conv: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    h = net.node("Conv", "x", net.weight("c1.weight", 8, 2, 3, 3), group=2, strides=[2, 1], **conv)
    statistics = [net.weight(f"bn{i}", 8) for i in (0, 1, 2)]
    h = net.node("BatchNormalization", h, *statistics, net.positive("bn3", 8), epsilon=1e-3)
    h = start = net.node("Relu", h)
    h = net.node("Conv", h, net.weight("c2.weight", 8, 8, 3, 3), net.weight("c2.bias", 8), **conv)
    h = net.node("Relu", net.node("Add", h, start))
    h = net.node("Sub", net.node("Add", h, h), start)
    wide: dict[str, Any] = {"dilations": [2, 2], "strides": [1, 2]}
    h = net.node("Conv", h, net.weight("c3.weight", 3, 8, 2, 3), **wide)
    h = net.node("Flatten", net.node("GlobalAveragePool", h))
    norm = [net.weight(f"last{i}", 3) for i in (0, 1, 2)]
    return net.model(net.node("BatchNormalization", h, *norm, net.positive("last3", 3)))


def conv_padding(opset: int) -> onnx.ModelProto:
    net = Net("N", 2, 9, 8, opset=opset)
    h = net.node("Conv", "x", net.weight("a.weight", 3, 2, 3, 2), pads=[0, 1, 2, 3])
    h = net.node("Add", h, net.weight("a0", 1, 3, 1, 1))
    h = net.node("Relu", h)
    weight = net.weight("b.weight", 3, 3, 2, 3)
    h = net.node("Conv", h, weight, net.weight("b0", 3), auto_pad="SAME_UPPER", strides=[2, 1])
    h = net.node("Conv", h, net.weight("c.weight", 3, 3, 2, 2), auto_pad="SAME_LOWER")
    h = net.node("Add", h, net.constant("c0", 0.25))
    h = net.node("Conv", h, net.weight("d.weight", 3, 3, 2, 3), auto_pad="VALID")
    return net.model(net.node("Add", h, net.weight("map", 1, 3, 4, 9)))


def average_pools(opset: int) -> onnx.ModelProto:
    net = Net("N", 2, 13, 12, opset=opset)
    pool: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1]}
    h = net.node("AveragePool", "x", **pool, pads=[1, 1, 1, 1])
    h = net.node("AveragePool", h, kernel_shape=[2, 2], pads=[1, 0, 0, 1], count_include_pad=1)
    h = net.node("AveragePool", h, **pool, pads=[1, 1, 1, 1], count_include_pad=1)
    if opset >= 10:
        h = net.node("AveragePool", h, kernel_shape=[3, 2], strides=[3, 3], ceil_mode=1)
    return net.model(h)


def max_pools(opset: int) -> onnx.ModelProto:
    net = Net("N", 2, 13, 12, opset=opset)
    h = net.node("MaxPool", "x", kernel_shape=[3, 2], pads=[0, 0, 2, 1])
    h = net.node("MaxPool", h, kernel_shape=[2, 2], auto_pad="SAME_UPPER", outputs=2)
    if opset >= 10:
        h = net.node("MaxPool", h, kernel_shape=[2, 2], dilations=[2, 3])
        h = net.node("MaxPool", h, kernel_shape=[3, 2], pads=[1, 0, 0, 1], ceil_mode=1)
        h = net.node(
            "MaxPool", h, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1], ceil_mode=1
        )
    return net.model(h)


def shaping(opset: int) -> onnx.ModelProto:
    net = Net(1, 3, 4, 2, opset=opset)
    h = net.node("Transpose", "x", perm=[0, 2, 3, 1])
    h = net.node("Reshape", h, net.constant("s1", [0, 0, -1], np.int64))
    h = net.listed("Unsqueeze", h, 13, axes=[4, 1] if opset < 11 else [-1, 1])
    h = net.listed("Squeeze", h, 13, axes=[1])
    h = net.node("Concat", h, net.weight("more", 1, 4, 2, 1), h, axis=-2)
    h = net.node("Flatten", h, axis=1 if opset < 11 else -3)
    h = net.node("Transpose", h, perm=[0, 1])
    h = net.node("Reshape", h, net.constant("s2", [-1, 7, 8], np.int64))
    if opset >= 14:
        h = net.node("Reshape", h, net.constant("s3", [1, 8, 7], np.int64), allowzero=1)
    return net.model(h)


def small_operations(opset: int) -> onnx.ModelProto:
    net = Net("N", 3, 5, 4, opset=opset)
    if opset < 11:
        h = net.node("Pad", "x", pads=[0, 0, 1, 2, 0, 0, 3, 0])
        h = net.node("Pad", h, pads=[0, 1, 0, 0, 0, 2, 0, 0], value=0.0)
        h = net.node("Clip", net.node("Clip", h, max=6.0), min=-0.5)
        h = net.node("Clip", net.node("Clip", h), min=-1.0, max=3.4028234663852886e38)
    else:
        h = net.node("Pad", "x", net.constant("p", [0, 0, 1, 2, 0, 0, 3, 0], np.int64))
        pads = net.constant("q", [0, 1, 0, 0, 0, 2, 0, 0], np.int64)
        h = net.node("Pad", h, pads, net.constant("zero", 0.0), mode="constant")
        h = net.node("Clip", net.node("Clip", h, "", net.constant("high", 6.0)))
        h = net.node("Clip", h, net.constant("low", -0.5))
    if opset >= 18:
        pads, axes = net.constant("r", [1, 2], np.int64), net.constant("last", [-1], np.int64)
        h = net.node("Pad", h, pads, "", axes)
    h = net.node("Identity", net.node("Dropout", h, outputs=2))
    h = net.node("Cast", h, to=TensorProto.FLOAT)
    value = numpy_helper.from_array(np.array([[1.5]], np.float32))
    h = net.node("Add", h, net.node("Constant", value=value))
    if opset < 18:
        h = net.node("ReduceMean", h, axes=[2, -1], keepdims=0)
        h = net.node("ReduceMean", net.node("Mul", h, "ones"), axes=[1])
    else:
        h = net.node("ReduceMean", h, net.constant("axes", [2, -1], np.int64), keepdims=0)
        h = net.node("ReduceMean", h, noop_with_empty_axes=1)
        h = net.node("ReduceMean", net.node("Mul", h, "ones"), net.constant("one", [1], np.int64))
    net.constant("ones", np.arange(6))
    return net.model(h)


def shape_chains(opset: int) -> onnx.ModelProto:
    net = Net("N", 4, 3, 2, opset=opset)
    shape = net.node("Shape", "x")
    batch = net.node("Gather", shape, net.constant("first", 0, np.int64))
    batch = net.listed("Unsqueeze", batch, 13, axes=[0])
    rest = net.constant("rest", [-1], np.int64)
    h = net.node("Reshape", "x", net.node("Concat", batch, rest, axis=0))
    size = net.node("Size", h)
    size = net.listed("Unsqueeze", net.node("Div", size, batch), 13, axes=[0])
    size = net.node("Reshape", size, rest)
    fill = numpy_helper.from_array(np.array([0.25], np.float32))
    return net.model(net.node("Mul", h, net.node("ConstantOfShape", size, value=fill)))


def sequences(opset: int) -> onnx.ModelProto:
    net = Net("N", 4, 5, opset=opset)
    h = net.node("MatMul", net.weight("left", 3, 4), "x")
    h = net.node("MatMul", h, net.weight("right", 1, 5, 6))
    h = net.node("Relu", net.node("Add", h, net.weight("bias", 6)))
    h = net.node("Add", net.node("MatMul", h, net.weight("again", 6, 6)), net.weight("rows", 3, 1))
    rows = net.node("MatMul", h, net.weight("column", 6))
    columns = net.node("MatMul", net.weight("row", 3), h)
    return net.model(net.node("Concat", rows, columns, axis=1))


def computed_weights(opset: int) -> onnx.ModelProto:
    net = Net("N", 6, opset=opset)
    weight = net.node("Transpose", net.weight("fc1.weight", 5, 6), perm=[1, 0])
    h = net.node("MatMul", "x", net.node("Mul", weight, net.positive("gain", 5)))
    bias = net.node("Sqrt", net.positive("b", 5))
    h = net.node("Relu", net.node("Add", h, bias))
    return net.model(h)


def picking(opset: int) -> onnx.ModelProto:
    net = Net("N", 4, 6, 5, opset=opset)
    h = net.node("Gather", "x", net.constant("index", [[2, 0], [-1, 1]], np.int64), axis=1)
    h = net.node("Gather", h, net.constant("one", 3, np.int64), axis=-1)
    if opset < 10:
        h = net.node("Slice", h, starts=[1, -4], ends=[9999, 5], axes=[2, 3])
    else:
        numbers = {"starts": [1, -1], "ends": [9999, -9999], "axes": [2, 3], "steps": [1, -2]}
        h = net.listed("Slice", h, 10, **numbers)
    return net.model(h)


ARCHITECTURES: list[Callable[[int], onnx.ModelProto]] = [
    perceptron,
    gemm_forms,
    matmul_and_bias,
    normalised,
    residual,
    conv_padding,
    average_pools,
    max_pools,
    shaping,
    small_operations,
    shape_chains,
    sequences,
    computed_weights,
    picking,
]
OPERATOR_SETS = [9, 11, 13, 17, 22, NEWEST]

every_architecture = pytest.mark.parametrize(
    "architecture", ARCHITECTURES, ids=lambda build: build.__name__
)
