"""The operations a network is made of, one class each."""

from provable_circuits.network.ops.activations import (
    Activation,
    Clip,
    LeakyReLU,
    ReLU,
    Sigmoid,
    Square,
    Tanh,
)
from provable_circuits.network.ops.arithmetic import Add, Affine, BatchNorm, Divide, Subtract
from provable_circuits.network.ops.base import LinearOp, OnnxWriter, Op, Shape, ShapeError
from provable_circuits.network.ops.layers import Conv2d, Linear
from provable_circuits.network.ops.pooling import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    MaxPool2d,
    Mean,
    adaptive_average,
)
from provable_circuits.network.ops.shaping import Concat, Gather, Pad, Permute, Reshape, Scatter
from provable_circuits.network.ops.source import Constant, Input, as_parameter

__all__ = [
    "Activation",
    "AdaptiveAvgPool2d",
    "Add",
    "Affine",
    "AvgPool2d",
    "BatchNorm",
    "Clip",
    "Concat",
    "Constant",
    "Conv2d",
    "Divide",
    "Gather",
    "Input",
    "LeakyReLU",
    "Linear",
    "LinearOp",
    "MaxPool2d",
    "Mean",
    "OnnxWriter",
    "Op",
    "Pad",
    "Permute",
    "ReLU",
    "Reshape",
    "Scatter",
    "Shape",
    "ShapeError",
    "Sigmoid",
    "Square",
    "Subtract",
    "Tanh",
    "adaptive_average",
    "as_parameter",
]
