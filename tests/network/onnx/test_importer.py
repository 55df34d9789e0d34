"""Reading ONNX: the numbers of other runtimes, good names, one clear error for each fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from provable_circuits.errors import (
    ModelError,
    ModelFileError,
    UnsupportedOperationError,
    WeightsError,
)
from provable_circuits.network.graph import Graph
from provable_circuits.network.onnx.readers import READERS
from provable_circuits.network.ops import BatchNorm, Clip, Conv2d, Linear, ReLU, Square

Array = NDArray[Any]

NEWEST = onnx.defs.onnx_opset_version()
NEWEST_OF_RUNTIME = 22
"""What any ONNX Runtime that we allow can run. No operation used here means anything else since."""


class Net:
    """Writes a small ONNX model, in the forms of one operator set."""

    def __init__(self, *shape: int | str | None, opset: int = 17, kind: int = TensorProto.FLOAT):
        self.shape = shape
        self.opset = opset
        self.kind = kind
        self.dtype = np.float64 if kind == TensorProto.DOUBLE else np.float32
        self.random = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.ir_version = 8 if opset <= 17 else 10

    def constant(self, name: str, value: object, dtype: type | None = None) -> str:
        array: Array = np.asarray(value, dtype or self.dtype)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self.random.normal(size=shape) * 0.5)

    def positive(self, name: str, *shape: int) -> str:
        return self.constant(name, self.random.uniform(0.5, 2.0, size=shape))

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(
            helper.make_node(op_type, inputs, names, name=f"node_{name}", **attributes)
        )
        return name

    def listed(self, op_type: str, source: str, since: int, **numbers: Any) -> str:
        """A node whose lists are attributes before operator set ``since``, and inputs since."""
        if self.opset < since:
            return self.node(op_type, source, **numbers)
        names = [
            self.constant(f"{op_type}_{len(self.nodes)}_{key}", value, np.int64)
            for key, value in numbers.items()
        ]
        return self.node(op_type, source, *names)

    def model(self, output: str, weights_as_inputs: bool = False) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info("x", self.kind, self.shape)]
        if weights_as_inputs:
            inputs += [
                helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in self.weights
            ]
        outputs = [helper.make_tensor_value_info(output, self.kind, None)]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)

    def save(self, output: str, folder: Path) -> Path:
        path = folder / "net.onnx"
        onnx.save_model(self.model(output), path)
        return path


def runtime(model: onnx.ModelProto, x: Array) -> Array:
    """What another runtime computes."""
    version = min(model.opset_import[0].version, NEWEST_OF_RUNTIME)
    runnable = onnx.ModelProto.FromString(model.SerializeToString())
    runnable.opset_import[0].version = version
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        runnable.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    result: Array = session.run(None, {session.get_inputs()[0].name: x})[0]
    return result


def graph_of(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "net.onnx"
    onnx.save_model(model, path)
    return Graph.from_onnx(path)


def assert_agrees(model: onnx.ModelProto, graph: Graph) -> None:
    """Equal up to float32 rounding (float64 rounding where the model is one) on random inputs."""
    kind = model.graph.input[0].type.tensor_type
    double = kind.elem_type == TensorProto.DOUBLE
    batch = kind.shape.dim[0].dim_value or 3
    dtype, rtol, atol = (np.float64, 1e-12, 1e-13) if double else (np.float32, 1e-4, 1e-5)
    x = np.random.default_rng(11).normal(size=(batch, *graph.input_shape)).astype(dtype)
    expected = runtime(model, x)
    result = graph.run(x).numpy()
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


# Architectures. Each is written in the forms of the operator set it is asked for.


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
    h = net.node("Mul", net.weight("scale", 6, 1), h)
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


@every_architecture
@pytest.mark.parametrize("opset", OPERATOR_SETS)
def test_agrees_with_other_runtimes(
    architecture: Callable[[int], onnx.ModelProto], opset: int, tmp_path: Path
) -> None:
    model = architecture(opset)
    assert_agrees(model, graph_of(model, tmp_path))


@every_architecture
def test_round_trip_keeps_numbers_and_names(
    architecture: Callable[[int], onnx.ModelProto], tmp_path: Path
) -> None:
    graph = graph_of(architecture(17), tmp_path)
    graph.to_onnx(tmp_path / "again.onnx", torch.float64)
    again = Graph.from_onnx(tmp_path / "again.onnx")
    x = torch.randn(3, *graph.input_shape, dtype=torch.float64)
    torch.testing.assert_close(again.run(x), graph.run(x), rtol=1e-13, atol=1e-13)
    assert again.inputs == graph.inputs
    assert again.outputs == graph.outputs
    if any(isinstance(node.op, Linear | Conv2d) for node in graph.nodes):
        assert again.components().names == graph.components().names


def test_every_reader_is_among_the_architectures() -> None:
    used = {
        node.op_type for build in ARCHITECTURES for v in (9, 17) for node in build(v).graph.node
    }
    assert used >= set(READERS)


def test_every_benchmark_network_agrees_on_random_and_real_inputs(shared_data: Path) -> None:
    cifar = np.load(shared_data / "cifar10_test.npz")
    mean, std = (cifar[key].reshape(1, 3, 1, 1) for key in ("mean", "std"))
    real = {
        "cifar10_resnet_2b": (cifar["x"][:16] / 255.0 - mean) / std,
        "gtsrb_cnn": np.load(shared_data / "gtsrb_test.npz")["x"][:16] / 255.0,
        "mnist_fc_784_13_11_10": np.load(shared_data / "mnist_test.npz")["x"][:16] / 255.0,
        "taxinet_cnn": np.load(shared_data / "taxinet.npz")["x"][:16] / 255.0,
        "tinytaxinet_fc_128_16_8_8_2": np.load(shared_data / "taxinet.npz")["tiny8x16"][:16],
    }
    names = {path.stem for path in shared_data.glob("*.onnx")}
    assert names == set(real)
    for name in sorted(names):
        model = onnx.load_model(shared_data / f"{name}.onnx")
        graph = Graph.from_onnx(shared_data / f"{name}.onnx")
        noise = np.random.default_rng(3).normal(size=(8, *graph.input_shape))
        inputs = np.concatenate([noise, real[name].reshape(-1, *graph.input_shape)])
        inputs = inputs.astype(np.float32)
        expected = np.concatenate([runtime(model, x[None]) for x in inputs])
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            graph.run(inputs).numpy(), expected, rtol=1e-4, atol=1e-6 * scale
        )


@pytest.mark.parametrize(
    ("name", "granularity", "layers"),
    [
        ("mnist_fc_784_13_11_10", "neuron", {"gemm_1": 13, "gemm_3": 11, "gemm_5": 10}),
        (
            "cifar10_resnet_2b",
            "filter",
            {
                "conv1": 8,
                "layer1.0.conv1": 16,
                "layer1.0.conv2": 16,
                "layer1.1.conv1": 16,
                "layer1.1.conv2": 16,
            },
        ),
        ("gtsrb_cnn", "filter", {"conv_1": 16, "conv_4": 32}),
        ("taxinet_cnn", "filter", {"conv_1": 4, "conv_3": 4}),
    ],
)
def test_components_of_the_benchmark_networks(
    name: str, granularity: str, layers: dict[str, int], shared_data: Path, tmp_path: Path
) -> None:
    graph = Graph.from_onnx(shared_data / f"{name}.onnx")
    expected = tuple(f"{layer}/{i}" for layer, count in layers.items() for i in range(count))
    assert graph.components(granularity).names == expected
    graph.to_onnx(tmp_path / "again.onnx")
    again = Graph.from_onnx(tmp_path / "again.onnx")
    assert again.components(granularity).names == expected
    assert again.digest == graph.digest


# Particular forms.


def test_weights_listed_among_the_inputs_are_no_inputs(tmp_path: Path) -> None:
    net = Net(1, 6, opset=9)
    net.ir_version = 3
    h = net.node("Gemm", "x", net.weight("w", 6, 4), net.weight("b", 4))
    model = net.model(h, weights_as_inputs=True)
    graph = graph_of(model, tmp_path)
    assert graph.inputs == ("x",)
    assert_agrees(model, graph)


def test_a_fixed_batch_is_the_batch(tmp_path: Path) -> None:
    net = Net(4, 3, 2, 2)
    h = net.node("Reshape", "x", net.constant("shape", [4, -1], np.int64))
    h = net.node("Add", h, net.constant("same", [[1.0] * 12] * 4))
    joined = net.node("Concat", h, net.constant("rows", [[2.0, 3.0]] * 4), axis=1)
    model = net.model(joined)
    graph = graph_of(model, tmp_path)
    assert graph.input_shape == (3, 2, 2)
    assert_agrees(model, graph)
    assert graph.run(torch.ones(7, 3, 2, 2)).shape == (7, 14)


@pytest.mark.parametrize("shape", [(1, 4, 5), ("N", 4, 5), (None, 4, 5), (1, 4, 5, 1, 1)])
def test_odd_ranks_with_a_batch_of_one_or_free_size(
    shape: tuple[int | str | None, ...], tmp_path: Path
) -> None:
    net = Net(*shape)
    model = net.model(net.node("Flatten", net.node("Relu", "x")))
    graph = graph_of(model, tmp_path)
    assert graph.input_shape == shape[1:]
    assert_agrees(model, graph)


def test_a_model_in_float64_agrees_to_float64_rounding(tmp_path: Path) -> None:
    net = Net("N", 6, opset=13, kind=TensorProto.DOUBLE)
    h = net.node("Gemm", "x", net.weight("a", 6, 5), net.weight("a0", 5), alpha=0.5)
    h = net.node("Div", net.node("Relu", h), net.positive("d", 5))
    h = net.node("Add", net.node("MatMul", h, net.weight("b", 5, 3)), net.weight("b0", 3))
    model = net.model(net.node("Cast", h, to=TensorProto.DOUBLE))
    assert_agrees(model, graph_of(model, tmp_path))


def test_half_precision_weights_are_kept(tmp_path: Path) -> None:
    net = Net("N", 3, kind=TensorProto.FLOAT16)
    net.constant("fc.weight", [[0.1], [0.2], [0.3]], np.float16)
    h = net.node("Cast", net.node("MatMul", "x", "fc.weight"), to=TensorProto.FLOAT16)
    graph = Graph.from_onnx(net.save(h, tmp_path))
    (layer,) = (node.op for node in graph.nodes if isinstance(node.op, Linear))
    expected = torch.tensor([[0.1, 0.2, 0.3]], dtype=torch.float16)
    assert torch.equal(layer.weight, expected)
    assert layer.weight.dtype == torch.float16


def test_weights_are_kept_exactly(tmp_path: Path) -> None:
    net = Net("N", 6)
    h = net.node("Add", net.node("MatMul", "x", net.weight("w", 6, 4)), net.weight("b", 4))
    h = net.node(
        "Gemm", h, net.weight("v", 3, 4), net.weight("c", 1), transB=1, alpha=0.1, beta=0.3
    )
    given = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in net.weights}
    graph = Graph.from_onnx(net.save(h, tmp_path))
    first, second = (node.op for node in graph.nodes if isinstance(node.op, Linear))
    assert torch.equal(first.weight, given["w"].T)
    assert first.bias is not None
    assert torch.equal(first.bias, given["b"])
    assert first.weight.dtype == first.bias.dtype == torch.float32
    alpha, beta = float(np.float32(0.1)), float(np.float32(0.3))
    assert torch.equal(second.weight, given["v"].double() * alpha)
    assert second.bias is not None
    assert torch.equal(second.bias, given["c"].double().repeat(3) * beta)


def test_a_constant_behind_a_layer_becomes_its_bias(tmp_path: Path) -> None:
    graph = graph_of(conv_padding(17), tmp_path)
    layers = [node.op for node in graph.nodes if isinstance(node.op, Conv2d)]
    assert [layer.bias is not None for layer in layers] == [True, True, True, False]
    assert [node.op.name for node in graph.nodes].count("Affine") == 1
    graph = graph_of(matmul_and_bias(17), tmp_path)
    names = [node.op.name for node in graph.nodes]
    assert names == ["Input", "Linear", "LeakyReLU", "Linear", "Sigmoid", "Linear", "LeakyReLU"]


def test_a_layer_read_twice_keeps_its_own_output(tmp_path: Path) -> None:
    net = Net("N", 3)
    h = net.node("MatMul", "x", net.weight("w", 3, 3))
    alias = net.node("Identity", h)
    model = net.model(net.node("Sub", net.node("Add", alias, net.weight("b", 3)), h))
    graph = graph_of(model, tmp_path)
    assert [node.op.name for node in graph.nodes] == ["Input", "Linear", "Affine", "Subtract"]
    assert_agrees(model, graph)


def test_clip_reads_as_the_simplest_operation(tmp_path: Path) -> None:
    net = Net("N", 3)
    zero, six = net.constant("zero", 0.0), net.constant("six", 6.0)
    h = net.node("Clip", net.node("Clip", net.node("Clip", "x", zero)), zero, six)
    graph = Graph.from_onnx(net.save(h, tmp_path))
    kinds = [node.op for node in graph.nodes[1:]]
    assert isinstance(kinds[0], ReLU)
    assert isinstance(kinds[1], Clip)
    assert (kinds[1].low, kinds[1].high) == (0.0, 6.0)
    assert len(kinds) == 2


def test_batch_normalisation_belongs_to_its_layer(tmp_path: Path) -> None:
    graph = graph_of(residual(13), tmp_path)
    assert sum(isinstance(node.op, BatchNorm) for node in graph.nodes) == 2
    assert graph.components().names[0] == "c1/0"
    assert graph.components().sites[0].tensor == "node_relu_2"
    graph.to_onnx(tmp_path / "again.onnx")
    assert graph.components().sites[0].tensor == (
        Graph.from_onnx(tmp_path / "again.onnx").components().sites[0].tensor
    )


def test_a_tensor_times_itself_is_its_square(tmp_path: Path) -> None:
    graph = graph_of(normalised(17), tmp_path)
    assert isinstance(graph.nodes[-1].op, Square)


def test_a_model_that_does_nothing_and_one_that_ignores_its_input(tmp_path: Path) -> None:
    net = Net("N", 3)
    graph = Graph.from_onnx(net.save(net.node("Identity", "x"), tmp_path))
    assert graph.inputs == graph.outputs == ("x",)
    assert graph.run([[1.0, 2.0, 3.0]]).tolist() == [[1.0, 2.0, 3.0]]
    net = Net("N", 3)
    graph = Graph.from_onnx(net.save(net.node("Identity", net.constant("c", [[5.0]])), tmp_path))
    assert graph.run(torch.zeros(2, 3)).tolist() == [[5.0], [5.0]]


def test_the_long_name_of_the_standard_domain(tmp_path: Path) -> None:
    net = Net("N", 3)
    weight = net.node("Neg", net.weight("w", 3, 2))
    model = net.model(net.node("MatMul", "x", weight))
    expected = graph_of(model, tmp_path).run(torch.ones(1, 3))
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"
    assert torch.equal(graph_of(model, tmp_path).run(torch.ones(1, 3)), expected)


def test_bfloat16_weights_become_the_same_numbers_in_float32(tmp_path: Path) -> None:
    net = Net("N", 2, kind=TensorProto.BFLOAT16)
    net.weights.append(helper.make_tensor("w", TensorProto.BFLOAT16, [2, 1], [0.5, -1.5]))
    graph = Graph.from_onnx(net.save(net.node("MatMul", "x", "w"), tmp_path))
    assert graph.run([[1.0, 2.0]]).tolist() == [[-2.5]]
    assert len(graph.digest) == 64


# Names.


def layer_names(net: Net, output: str, folder: Path) -> list[str | None]:
    graph = Graph.from_onnx(net.save(output, folder))
    return [node.layer for node in graph.nodes if isinstance(node.op, Linear | Conv2d)]


@pytest.mark.parametrize(
    ("weight", "node", "layer"),
    [
        ("fc1.weight", "Gemm_0", "fc1"),
        ("fc1_weight", "Gemm_0", "fc1"),
        ("fc1.W", "Gemm_0", "fc1"),
        ("sequential/dense/kernel:0", "Gemm_0", "sequential/dense"),
        ("w0", "Gemm_0", "Gemm_0"),
        ("onnx::MatMul_12", "/fc1/MatMul", "fc1"),
        ("onnx::Conv_12", "/layer1/layer1.0/conv1/MatMul", "layer1.0.conv1"),
        ("w0", "/MatMul", "MatMul"),
        ("w0", "", "y"),
    ],
)
def test_layers_are_named_after_the_model(
    weight: str, node: str, layer: str, tmp_path: Path
) -> None:
    net = Net("N", 3)
    net.weight(weight, 3, 3)
    net.nodes.append(helper.make_node("MatMul", ["x", weight], ["y"], name=node))
    net.nodes.append(helper.make_node("Relu", ["y"], ["z"], name="act"))
    assert layer_names(net, "z", tmp_path) == [layer]
    graph = Graph.from_onnx(tmp_path / "net.onnx")
    assert [n.name for n in graph.nodes] == ["x", layer, "z"]
    assert graph.components().names == (f"{layer}/0", f"{layer}/1", f"{layer}/2")


def test_the_name_of_a_computed_weight_is_that_of_what_it_was_computed_from(
    tmp_path: Path,
) -> None:
    net = Net("N", 3)
    first = net.node("Transpose", net.weight("fc1.weight", 3, 3))
    second = "fc2.weight"
    net.nodes.append(helper.make_node("Identity", ["fc1.weight"], [second]))
    h = net.node("MatMul", net.node("Relu", net.node("MatMul", "x", first)), second)
    assert layer_names(net, h, tmp_path) == ["fc1", "fc2"]


def test_a_weight_used_twice_gives_two_layers(tmp_path: Path) -> None:
    net = Net("N", 2)
    net.weight("fc.weight", 2, 2)
    h = net.node("MatMul", net.node("Relu", net.node("MatMul", "x", "fc.weight")), "fc.weight")
    graph = Graph.from_onnx(net.save(h, tmp_path))
    assert graph.components().names == ("fc/0", "fc/1", "fc:2/0", "fc:2/1")


def test_tensors_have_names_of_their_own(tmp_path: Path) -> None:
    net = Net("N", 3)
    for i, source in enumerate(["x", "a0", "a1"]):
        net.nodes.append(helper.make_node("Relu", [source], [f"a{i}"], name="same"))
    graph = Graph.from_onnx(net.save("a2", tmp_path))
    assert [node.name for node in graph.nodes] == ["x", "same", "same_1", "a2"]


# Errors.


def refusal(path: Path, kind: type[Exception] = ModelFileError) -> str:
    with pytest.raises(kind) as caught:
        Graph.from_onnx(path)
    assert type(caught.value) is kind
    return str(caught.value)


@pytest.mark.parametrize("seed", range(4))
def test_a_file_with_wrong_bytes_gives_a_whole_graph_or_one_of_our_errors(
    seed: int, tmp_path: Path
) -> None:
    random = np.random.default_rng(seed)
    data = residual(17).SerializeToString()
    path = tmp_path / "net.onnx"
    graphs = 0
    for _ in range(100):
        wrong = bytearray(data)
        for place in random.integers(len(data), size=random.integers(1, 4)):
            wrong[place] = random.integers(256)
        path.write_bytes(wrong)
        try:
            graph = Graph.from_onnx(path)
        except ModelError:
            continue
        assert graph.run(torch.zeros(2, *graph.input_shape)).shape == (2, *graph.output_shape)
        graphs += 1
    assert 0 < graphs < 100


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_numbers(value: float, tmp_path: Path) -> None:
    net = Net("N", 2)
    h = net.node("Gemm", "x", net.constant("fc.weight", [[1.0, value]]), transB=1)
    message = refusal(net.save(h, tmp_path), WeightsError)
    assert "The weight of Linear 'fc' has NaN or infinite values" in message
    net = Net("N", 2)
    h = net.node("Clip", "x", net.constant("low", value))
    assert "The ends of Clip 'node_clip_0' are" in refusal(net.save(h, tmp_path), WeightsError)
    net = Net("N", 2)
    h = net.node("LeakyRelu", "x", alpha=value)
    assert "The slope of LeakyRelu" in refusal(net.save(h, tmp_path), WeightsError)
    net = Net("N", 2)
    h = net.node("Sub", "x", net.constant("c", [[value, 1.0]]))
    assert "The shift of Affine" in refusal(net.save(h, tmp_path), WeightsError)


def test_several_inputs_or_outputs(tmp_path: Path) -> None:
    net = Net("N", 3)
    model = net.model(net.node("Relu", "x"))
    path = tmp_path / "net.onnx"
    extra = helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["N", 3])
    model.graph.input.append(extra)
    onnx.save_model(model, path)
    assert refusal(path, ModelError) == (
        "The model must have one input. Got 2 instead: x, mask; export it with a single input."
    )
    del model.graph.input[:]
    onnx.save_model(model, path)
    assert "must have one input. Got 0 instead;" in refusal(path, ModelError)
    model = net.model("relu_0")
    model.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3]))
    onnx.save_model(model, path)
    assert refusal(path, ModelError) == (
        "The model must have one output. Got 2 instead: relu_0, x; export it with a single output."
    )


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 4), "of shape [2, 3, 4] must begin with a batch dimension of 1 or of free size"),
        ((7,), "of shape [7] must begin with a batch dimension of 1 or of free size"),
        ((), "must have a shape that begins with the batch"),
        ((1, "C", 4, 4), "of shape [1, C, 4, 4] must have fixed, positive sizes behind the batch"),
        (("N", None), "of shape [N, ?] must have fixed, positive sizes behind the batch"),
    ],
)
def test_input_shapes_that_do_not_say_enough(
    shape: tuple[int | str | None, ...], message: str, tmp_path: Path
) -> None:
    net = Net(*shape)
    assert message in refusal(net.save(net.node("Relu", "x"), tmp_path), ModelError)


def test_an_input_of_integers(tmp_path: Path) -> None:
    net = Net("N", 3, kind=TensorProto.INT64)
    message = refusal(net.save(net.node("Relu", "x"), tmp_path), ModelError)
    assert message == "The model's input 'x' must be a tensor of floats. Got INT64 instead."


def test_an_unsupported_operation_is_named_with_its_place_and_what_is_supported(
    tmp_path: Path,
) -> None:
    net = Net("N", 3)
    message = refusal(net.save(net.node("Softmax", "x"), tmp_path), UnsupportedOperationError)
    assert message.startswith(
        "The operation Softmax is not supported at the Softmax node 'node_softmax_0', which makes "
        "'softmax_0': it has no exact counterpart here. Supported operations are Add, AveragePool, "
    )
    assert all(name in message for name in READERS)


def test_unsupported_operator_sets_and_domains(tmp_path: Path) -> None:
    net = Net("N", 3)
    path = net.save(net.node("Relu", "x"), tmp_path)
    model = onnx.load_model(path)
    for version in (8, NEWEST + 1):
        model.opset_import[0].version = version
        path.write_bytes(model.SerializeToString())
        assert (
            f"must use an operator set of ONNX from 9 to {NEWEST}. Got {version} instead"
        ) in refusal(path, UnsupportedOperationError)
    model.opset_import[0].domain = "ai.onnx.ml"
    path.write_bytes(model.SerializeToString())
    assert "Got none instead" in refusal(path, UnsupportedOperationError)
    model.opset_import[0].CopyFrom(helper.make_opsetid("", 17))
    model.opset_import.append(helper.make_opsetid("com.custom", 1))
    model.graph.node[0].domain = "com.custom"
    path.write_bytes(model.SerializeToString())
    assert "it belongs to the domain 'com.custom', not to ONNX itself" in refusal(
        path, UnsupportedOperationError
    )
    model.graph.node[0].domain = ""
    model.graph.node[0].op_type = "Gelu"
    path.write_bytes(model.SerializeToString())
    assert "operator set 17 of ONNX does not have it" in refusal(path, UnsupportedOperationError)


def test_invalid_graphs(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"

    def message_for(*nodes: onnx.NodeProto) -> str:
        net = Net("N", 3)
        model = net.model(net.node("Relu", "x"))
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        path.write_bytes(model.SerializeToString())
        return refusal(path)

    make = helper.make_node
    assert "nothing before it makes 'y'" in message_for(make("Relu", ["y"], ["relu_0"]))
    assert "The model is not valid ONNX at the Relu node, which makes 'relu_0'" in message_for(
        make("Relu", ["x", "x"], ["relu_0"])
    )
    twice = make("Relu", ["x"], ["relu_0"])
    assert "'relu_0' is made twice" in message_for(twice, twice)
    assert "output 'relu_0' is made by none of its nodes" in message_for(make("Relu", ["x"], ["y"]))


def product(net: Net) -> str:
    return net.node("Mul", "x", net.node("Relu", "x"))


def matrix_product(net: Net) -> str:
    return net.node("MatMul", "x", net.node("Relu", "x"))


def reciprocal(net: Net) -> str:
    return net.node("Div", net.constant("c", 1.0), "x")


def zero_divisor(net: Net) -> str:
    return net.node("Div", "x", net.constant("c", 0.0))


def batch_reduction(net: Net) -> str:
    return net.node("ReduceMean", "x", axes=[0, 2])


def every_reduction(net: Net) -> str:
    return net.node("ReduceMean", "x")


def batch_transposed(net: Net) -> str:
    return net.node("Transpose", "x")


def batch_reshaped(net: Net) -> str:
    return net.node("Reshape", "x", net.constant("shape", [-1], np.int64))


def wrong_reshape(net: Net) -> str:
    return net.node("Reshape", "x", net.constant("shape", [1, 5], np.int64))


def dynamic_reshape(net: Net) -> str:
    return net.node("Reshape", "x", net.node("Cast", "x", to=TensorProto.INT64))


def batch_joined(net: Net) -> str:
    return net.node("Concat", "x", "x", axis=0)


def different_samples(net: Net) -> str:
    return net.node("Add", "x", net.weight("c", 2, 2, 4, 4))


def growing(net: Net) -> str:
    return net.node("Add", "x", net.weight("c", 1, 1, 2, 4, 4))


def broadcast_tensors(net: Net) -> str:
    return net.node("Add", "x", net.node("GlobalAveragePool", "x"))


def training_dropout(net: Net) -> str:
    flags = net.constant("ratio", 0.5), net.constant("training", True, np.bool_)
    return net.node("Dropout", "x", *flags)


def training_norm(net: Net) -> str:
    statistics = [net.positive(f"s{i}", 2) for i in range(4)]
    return net.node("BatchNormalization", "x", *statistics, training_mode=1, outputs=3)


def narrow_cast(net: Net) -> str:
    return net.node("Cast", net.node("Cast", "x", to=TensorProto.FLOAT16), to=TensorProto.FLOAT)


def used_indices(net: Net) -> str:
    pooled = net.node("MaxPool", "x", kernel_shape=[2, 2], outputs=2)
    return net.node("Reshape", "x", f"{pooled}_1")


def reflected(net: Net) -> str:
    pads = net.constant("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    return net.node("Pad", "x", pads, mode="reflect")


def ones_around(net: Net) -> str:
    pads = net.constant("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    return net.node("Pad", "x", pads, net.constant("one", 1.0))


def cropped(net: Net) -> str:
    return net.node("Pad", "x", net.constant("pads", [0, 0, -1, 0, 0, 0, 0, 0], np.int64))


def lopsided_average(net: Net) -> str:
    return net.node("AveragePool", "x", kernel_shape=[2, 2], pads=[0, 0, 1, 1])


def valid_ceil(net: Net) -> str:
    stride = [2, 2]
    return net.node(
        "MaxPool", "x", kernel_shape=[3, 3], strides=stride, auto_pad="VALID", ceil_mode=1
    )


def one_dimensional(net: Net) -> str:
    flat = net.node("Reshape", "x", net.constant("shape", [0, 2, 16], np.int64))
    return net.node("Conv", flat, net.weight("w", 3, 2, 3))


def wrong_bias(net: Net) -> str:
    return net.node("Conv", "x", net.weight("w", 3, 2, 3, 3), net.weight("b", 2))


def wrong_groups(net: Net) -> str:
    return net.node("Conv", "x", net.weight("w", 3, 1, 3, 3), group=2)


def transposed_gemm(net: Net) -> str:
    flat = net.node("Flatten", "x")
    return net.node("Gemm", flat, net.weight("w", 1, 3), transA=1)


def picked_samples(net: Net) -> str:
    return net.node("Gather", "x", net.constant("first", [0], np.int64), axis=0)


def picked_beyond(net: Net) -> str:
    return net.node("Gather", "x", net.constant("third", [2], np.int64), axis=1)


def picked_twice(net: Net) -> str:
    return net.listed("Slice", "x", 10, starts=[0, 0], ends=[2, 1], axes=[2, -2])


def nothing_picked(net: Net) -> str:
    return net.listed("Slice", "x", 10, starts=[3], ends=[2], axes=[2])


def half_a_flag(net: Net) -> str:
    return net.node("ReduceMean", "x", axes=[1], keepdims=2)


def wrong_axis(net: Net) -> str:
    return net.node("ReduceMean", "x", axes=[4])


def several_ends(net: Net) -> str:
    return net.node("Clip", "x", net.constant("low", [0.0, 1.0]))


def conditional(net: Net) -> str:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    flag = net.constant("flag", True, np.bool_)
    return net.node("If", flag, then_branch=branch, else_branch=branch)


def random_constant(net: Net) -> str:
    return net.node("Add", "x", net.node("RandomNormal", shape=[1]))


def impossible_constant(net: Net) -> str:
    wrong = net.node("Concat", net.weight("a", 2, 2), net.weight("b", 2, 3), axis=0)
    return net.node("Add", "x", wrong)


@pytest.mark.parametrize(
    ("build", "operation", "reason"),
    [
        (product, "Mul", "it multiplies two tensors of the network"),
        (matrix_product, "MatMul", "it multiplies two tensors of the network"),
        (reciprocal, "Div", "it divides by a tensor of the network"),
        (zero_divisor, "Div", "Divide takes a divisor without zeros"),
        (batch_reduction, "ReduceMean", "it averages over the batch dimension"),
        (every_reduction, "ReduceMean", "it averages over the batch dimension"),
        (batch_transposed, "Transpose", "it moves the batch away from the first dimension"),
        (batch_reshaped, "Reshape", "it turns [1, 2, 4, 4] into [32], where the batch no longer"),
        (wrong_reshape, "Reshape", "it cannot turn [1, 2, 4, 4] into [1, 5]"),
        (dynamic_reshape, "Cast", "turning numbers into INT64 changes them"),
        (batch_joined, "Concat", "it joins along the batch dimension"),
        (different_samples, "Add", "differs between the samples of a batch"),
        (growing, "Add", "has more dimensions than the tensor"),
        (broadcast_tensors, "Add", "Add takes two tensors of one shape"),
        (training_dropout, "Dropout", "it is in training mode"),
        (training_norm, "BatchNormalization", "it is in training mode"),
        (narrow_cast, "Cast", "turning numbers into FLOAT16 changes them"),
        (used_indices, "MaxPool", "its output 'maxpool_0_1' is used"),
        (reflected, "Pad", "it pads with other values than zeros"),
        (ones_around, "Pad", "it pads with other values than zeros"),
        (cropped, "Pad", "it pads along the batch dimension, or crops"),
        (lopsided_average, "AveragePool", "its padding differs between opposite sides"),
        (valid_ceil, "MaxPool", "auto_pad VALID with ceil_mode"),
        (one_dimensional, "Conv", "it convolves over 1 dimensions, and only two are supported"),
        (wrong_bias, "Conv", "Conv2d takes a bias of shape (3,). Got (2,) instead"),
        (wrong_groups, "Conv", "Conv2d's 3 filters do not split into 2 groups"),
        (transposed_gemm, "Gemm", "transA moves the batch away from the first dimension"),
        (picked_samples, "Gather", "it picks samples of the batch"),
        (picked_beyond, "Gather", "its places reach beyond dimension 1 of [2, 4, 4]"),
        (picked_twice, "Slice", "its axes [2, 2] name one twice"),
        (nothing_picked, "Slice", "nothing is left of its input"),
        (half_a_flag, "ReduceMean", "its keepdims is 2, neither 0 nor 1"),
        (wrong_axis, "ReduceMean", "its axis 4 does not exist in 4 dimensions"),
        (several_ends, "Clip", "its input 1 must be a single number"),
        (conditional, "If", "it runs a graph inside the graph"),
        (random_constant, "RandomNormal", "it has no exact counterpart here"),
        (impossible_constant, "Concat", "it cannot be computed from its constants"),
    ],
)
def test_forms_without_an_exact_counterpart_are_refused(
    build: Callable[[Net], str], operation: str, reason: str, tmp_path: Path
) -> None:
    net = Net(1, 2, 4, 4)
    message = refusal(net.save(build(net), tmp_path), UnsupportedOperationError)
    assert message.startswith(f"The operation {operation} is not supported at the {operation} node")
    assert reason in message
    assert message.endswith(".")
    assert ".." not in message
