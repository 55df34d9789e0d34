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
from provable_circuits.network.ops.normalisation import Normalise
from provable_circuits.network.ops.pooling import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    MaxPool2d,
    Mean,
    Sum,
    adaptive_average,
)
from provable_circuits.network.ops.products import MatMul, Multiply
from provable_circuits.network.ops.shaping import (
    Concat,
    Expand,
    Gather,
    Pad,
    Permute,
    Reshape,
    Scatter,
    Slice,
)
from provable_circuits.network.ops.smooth import GELU, Erf, Exp, Power, Reciprocal, SiLU, Sqrt
from provable_circuits.network.ops.softmax import Fill, Softmax
from provable_circuits.network.ops.source import Constant, Input, as_parameter
from provable_circuits.network.ops.tokens import Embedding, IntegerInput

__all__ = [
    "GELU",
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
    "Embedding",
    "Erf",
    "Exp",
    "Expand",
    "Fill",
    "Gather",
    "Input",
    "IntegerInput",
    "LeakyReLU",
    "Linear",
    "LinearOp",
    "MatMul",
    "MaxPool2d",
    "Mean",
    "Multiply",
    "Normalise",
    "OnnxWriter",
    "Op",
    "Pad",
    "Permute",
    "Power",
    "ReLU",
    "Reciprocal",
    "Reshape",
    "Scatter",
    "Shape",
    "ShapeError",
    "SiLU",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Sqrt",
    "Square",
    "Subtract",
    "Sum",
    "Tanh",
    "adaptive_average",
    "as_parameter",
]
