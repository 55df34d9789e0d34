"""Small networks of every operation, as bytes of ONNX files: from our exporter, and by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_shapes
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import (
    AdaptiveAvgPool2d,
    Add,
    Affine,
    AvgPool2d,
    BatchNorm,
    Clip,
    Concat,
    Conv2d,
    Divide,
    Gather,
    LeakyReLU,
    Linear,
    MaxPool2d,
    Mean,
    Op,
    Pad,
    Permute,
    ReLU,
    Reshape,
    Scatter,
    Sigmoid,
    Subtract,
    Tanh,
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def written(graph: Graph, dtype: torch.dtype = torch.float64) -> bytes:
    """The file that our exporter writes."""
    with TemporaryDirectory() as folder:
        graph.to_onnx(Path(folder) / "graph.onnx", dtype)
        return (Path(folder) / "graph.onnx").read_bytes()


def chain(shape: tuple[int, ...], *ops: Op) -> Graph:
    """One operation after the other, and a linear one at the end."""
    builder = GraphBuilder()
    name = builder.input("x", shape)
    for i, op in enumerate(ops):
        name = builder.add(f"t{i}", op, name)
    units = int(np.prod(builder[name].shape))
    name = builder.add("flat", Reshape((units,)), name)
    return builder.build([builder.add("y", Linear(numbers(2, units), numbers(2)), name)])


def residual() -> Graph:
    """Convolutions with a skip, two branches that are joined, and a difference."""
    builder = GraphBuilder()
    x = builder.input("x", (2, 4, 3))
    first = builder.add("conv1", Conv2d(numbers(2, 2, 3, 3), numbers(2), padding=(1, 1)), x)
    relu = builder.add("relu1", ReLU(), first)
    second = builder.add("conv2", Conv2d(numbers(2, 2, 3, 3, seed=1), None, padding=(1, 1)), relu)
    added = builder.add("add", Add(), second, x)
    after = builder.add("relu2", LeakyReLU(0.25), added)
    twice = builder.add("twice", Add(), after, after)
    less = builder.add("less", Subtract(), twice, relu)
    joined = builder.add("joined", Concat(0), less, x)
    flat = builder.add("flat", Reshape((48,)), joined)
    return builder.build([builder.add("y", Linear(numbers(3, 48, seed=2), numbers(3)), flat)])


def perceptron(seed: int, widths: Sequence[int] = (3, 4, 4, 2), act: Op | None = None) -> Graph:
    """Fully connected, with ReLU between."""
    builder = GraphBuilder()
    name = builder.input("x", (widths[0],))
    for i, (inner, outer) in enumerate(itertools.pairwise(widths)):
        layer = Linear(numbers(outer, inner, seed=seed + i), numbers(outer, seed=seed + 100 + i))
        name = builder.add(f"fc{i}", layer, name)
        if i + 2 < len(widths):
            name = builder.add(f"relu{i}", act or ReLU(), name)
    return builder.build([name])


GRAPHS: dict[str, Graph] = {
    "linear": chain((3, 5), Linear(numbers(4, 5), numbers(4))),
    "grouped": chain(
        (4, 7, 6), Conv2d(numbers(6, 2, 3, 2), numbers(6), (2, 1), (1, 0), (1, 2), groups=2)
    ),
    "strided": chain((1, 5, 6), Conv2d(numbers(2, 1, 2, 2), None, (3, 2), (0, 2)), ReLU()),
    "pointwise": chain((3, 2, 2), Conv2d(numbers(2, 3, 1, 1))),
    "leaky": chain((5,), LeakyReLU(0.125)),
    "clip": chain((5,), Clip(-0.3, 0.4)),
    "clip above": chain((5,), Clip(-torch.inf, 0.4)),
    "clip below": chain((5,), Clip(-0.25, torch.inf)),
    "clip nothing": chain((5,), Clip(-torch.inf, torch.inf)),
    "sigmoid": chain((5,), Sigmoid()),
    "tanh": chain((5,), Tanh()),
    "affine": chain((2, 3), Affine(numbers(3), numbers(2, 1))),
    "identity": chain((2, 3), Affine()),
    "norm": chain((2, 3, 3), BatchNorm(numbers(2, 1, 1), numbers(2, 1, 1)), ReLU()),
    "norm flat": chain((5,), BatchNorm(numbers(5), None)),
    "divide": chain((2, 3), Divide(numbers(3))),
    "average": chain((2, 7, 8), AvgPool2d((3, 2), (2, 2), (1, 1), count_include_pad=False)),
    "average padded": chain((2, 7, 8), AvgPool2d((3, 2), (2, 3), (1, 1))),
    "average ceil": chain(
        (1, 6, 5), AvgPool2d((3, 2), (2, 2), (1, 0), ceil_mode=True, count_include_pad=False)
    ),
    "adaptive": chain((2, 7, 5), AdaptiveAvgPool2d((7, 5), (3, 2))),
    "maximum": chain((2, 5, 6), MaxPool2d((3, 2), (2, 2), (1, 1, 1, 1))),
    "maximum dilated": chain((1, 5, 6), MaxPool2d((3, 2), (2, 2), (0, 1, 2, 0), (1, 2))),
    "maximum ceil": chain((2, 4, 5), MaxPool2d((2, 3), (2, 3), (0, 0, 1, 1), ceil_mode=True)),
    "maximum of one": chain((1, 3, 3), MaxPool2d((1, 1), (2, 2))),
    "mean": chain((2, 3, 4), Mean((1, 2), 12, keepdim=True)),
    "mean first": chain((2, 3, 4), Mean((0,), 2)),
    "permute": chain((2, 3, 4), Permute((2, 0, 1))),
    "pad": chain((2, 3, 4), Pad((1, 0, 2, 3))),
    "gather": chain((2, 3), Gather(torch.tensor([[5, 0], [3, 3]]))),
    "scatter": chain((2, 3), Scatter(torch.tensor([7, 1, 2, 6, 0, 4]), (2, 2, 2))),
    "residual": residual(),
    "perceptron": perceptron(3),
}
"""What our exporter writes."""


def model(
    shape: Sequence[int],
    nodes: Sequence[tuple[Any, ...]],
    constants: dict[str, Any],
    **other: Any,
) -> bytes:
    """A file: nodes are (operation, inputs, output) and attributes, the last makes the output."""
    made = [
        helper.make_node(kind, inputs, [output], **(rest[0] if rest else {}))
        for kind, inputs, output, *rest in nodes
    ]
    kept = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    kind = TensorProto.DOUBLE
    graph = helper.make_graph(
        made,
        "graph",
        [helper.make_tensor_value_info("x", kind, ["batch", *shape])],
        [helper.make_tensor_value_info(made[-1].output[0], kind, None)],
        kept,
    )
    opsets = other.pop("opset_imports", [helper.make_opsetid("", 22)])
    file = helper.make_model(graph, opset_imports=opsets, ir_version=10, **other)
    with suppress(InferenceError):
        file = infer_shapes(file, data_prop=True)
    del file.graph.value_info[:]
    return bytes(file.SerializeToString())


W, V = numbers(3, 3, seed=5).numpy(), numbers(3, seed=6).numpy()
BY_HAND: dict[str, bytes] = {
    "constants first": model(
        (3,),
        [
            ("Add", ["v", "x"], "a"),
            ("Sub", ["v", "a"], "b"),
            ("Mul", ["v", "b"], "c"),
            ("Sub", ["c", "v"], "d"),
            ("Relu", ["d"], "e"),
            ("Identity", ["e"], "y"),
        ],
        {"v": V},
    ),
    "leaky by default": model((3,), [("LeakyRelu", ["x"], "y")], {}),
    "batched constant": model(
        (2, 3), [("Add", ["x", "w"], "a"), ("Flatten", ["a"], "y")], {"w": W[None, :2]}
    ),
    "matrix first": model(
        (3, 2), [("MatMul", ["w", "x"], "a"), ("Flatten", ["a"], "y", {"axis": 1})], {"w": W}
    ),
    "clip with nothing": model((3,), [("Clip", ["x"], "a"), ("Relu", ["a"], "y")], {}),
    "clip to one number": model((3,), [("Clip", ["x", "", "v"], "y")], {"v": np.array(0.125)}),
    "mean keeps": model(
        (2, 3), [("ReduceMean", ["x", "n"], "y", {"keepdims": 0})], {"n": np.array([2])}
    ),
    "gather from behind": model(
        (4,), [("Gather", ["x", "n"], "y", {"axis": 1})], {"n": np.array([-1, 0, 2, -1])}
    ),
    "padded": model(
        (2, 2),
        [("Pad", ["x", "n"], "a", {"mode": "constant"}), ("Flatten", ["a"], "y")],
        {"n": np.array([0, 1, 0, 0, 0, 2])},
    ),
    "reshape one": model((2, 2), [("Reshape", ["x", "n"], "y")], {"n": np.array([1, 4])}),
    "normed": model(
        (3,),
        [
            (
                "BatchNormalization",
                ["x", "v", "v", "o", "i"],
                "y",
                {"epsilon": 0.0, "momentum": 0.5},
            )
        ],
        {"v": V, "o": np.zeros(3), "i": np.ones(3)},
    ),
    "sum with itself": model(
        (3,), [("Concat", ["x", "x"], "a", {"axis": 1}), ("Add", ["a", "a"], "y")], {}
    ),
}
"""What other exporters may write."""

FILES: dict[str, bytes] = {**{name: written(graph) for name, graph in GRAPHS.items()}, **BY_HAND}
CURVED = ("sigmoid", "tanh")

METRICS: list[dict[str, Any]] = [
    {"kind": "max-abs", "tolerance": 0.5},
    {"kind": "logit-difference", "tolerance": 0.25, "target": 1},
    {"kind": "norm", "p": 1, "tolerance": 0.5},
    {"kind": "norm", "p": 2, "tolerance": 0.5},
    {"kind": "winner-margin", "winner": 1, "others": [0], "margin": 0.125},
]
"""One of each kind of metric, for networks of two outputs or more."""
