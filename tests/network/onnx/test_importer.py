"""Reading ONNX: the numbers of other runtimes, and good names."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tests.network.onnx.architectures import (
    ARCHITECTURES,
    OPERATOR_SETS,
    conv_padding,
    every_architecture,
    matmul_and_bias,
    normalised,
    residual,
)
from tests.network.onnx.nets import Net, assert_agrees, graph_of, runtime

from provable_circuits.errors import ModelFileError
from provable_circuits.network.graph import Graph
from provable_circuits.network.onnx.readers import READERS
from provable_circuits.network.onnx.transformers import TRANSFORMER_READERS
from provable_circuits.network.ops import BatchNorm, Clip, Conv2d, Linear, ReLU, Square


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
    assert used >= set(READERS) - set(TRANSFORMER_READERS)  # these: test_transformers.py


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


def test_a_tensor_may_be_negated(tmp_path: Path) -> None:
    net = Net("N", 3)
    graph = Graph.from_onnx(net.save(net.node("Neg", "x"), tmp_path))
    assert graph.run([[1.0, -2.0, 3.0]]).tolist() == [[-1.0, 2.0, -3.0]]


def test_a_model_may_be_packed(tmp_path: Path) -> None:
    net = Net("N", 3)
    plain = net.save(net.node("Relu", "x"), tmp_path)
    packed = tmp_path / "net.onnx.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert Graph.from_onnx(packed).digest == Graph.from_onnx(plain).digest
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ModelFileError, match="is packed with gzip but cut short or damaged"):
        Graph.from_onnx(packed)


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


def test_operator_set_8_means_what_the_runtime_computes(tmp_path: Path) -> None:
    net = Net(1, 2, 4, 4, opset=8)
    h = net.node("Conv", "x", net.weight("w", 3, 2, 3, 3), pads=[1, 1, 1, 1])
    norm = [net.weight("n0", 3), net.weight("n1", 3), net.weight("n2", 3), net.positive("n3", 3)]
    h = net.node("Relu", net.node("BatchNormalization", h, *norm, spatial=1))
    h = net.node("Sum", h, net.weight("shift", 1, 3, 4, 4), h)
    h = net.node("Slice", h, axes=[2], starts=[1], ends=[3])
    h = net.node("Flatten", net.node("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2]))
    h = net.node("Gemm", h, net.weight("v", 6, 3), net.weight("b", 3))
    model = net.model(h)
    graph = graph_of(model, tmp_path)
    x = np.random.default_rng(1).normal(size=(1, 2, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(graph.run(x).numpy(), runtime(model, x), rtol=1e-5, atol=1e-6)
