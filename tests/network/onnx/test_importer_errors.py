"""ONNX models that are refused: one clear error, which says where."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from tests.network.onnx.architectures import residual
from tests.network.onnx.nets import NEWEST, Net

from provable_circuits.errors import (
    ModelError,
    ModelFileError,
    UnsupportedOperationError,
    WeightsError,
)
from provable_circuits.network.graph import Graph
from provable_circuits.network.onnx.importer import SUPPORTED_OPERATIONS


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
    net = Net("N", 3, kind=TensorProto.UINT8)
    message = refusal(net.save(net.node("Relu", "x"), tmp_path), ModelError)
    wanted = "The model's input 'x' must be a tensor of floats, or of tokens. Got UINT8 instead."
    assert message == wanted


def test_an_unsupported_operation_is_named_with_its_place_and_what_is_supported(
    tmp_path: Path,
) -> None:
    net = Net("N", 3)
    message = refusal(net.save(net.node("Selu", "x"), tmp_path), UnsupportedOperationError)
    assert message.startswith(
        "The operation Selu is not supported at the Selu node 'node_selu_0', which makes "
        "'selu_0': it has no exact counterpart here. 'Graph.from_onnx' lists those that are."
    )
    listed = re.findall(r"\w+", (Graph.from_onnx.__doc__ or "").partition("Operations:")[2])
    assert set(SUPPORTED_OPERATIONS) <= set(listed)


def test_unsupported_operator_sets_and_domains(tmp_path: Path) -> None:
    net = Net("N", 3)
    path = net.save(net.node("Relu", "x"), tmp_path)
    model = onnx.load_model(path)
    for version in (7, NEWEST + 1):
        model.opset_import[0].version = version
        path.write_bytes(model.SerializeToString())
        assert (
            f"must use an operator set of ONNX from 8 to {NEWEST}. Got {version} instead"
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


def test_operator_set_8_where_its_operators_mean_something_else(tmp_path: Path) -> None:
    net = Net(1, 2, 3, 3, opset=8)
    four = [net.positive(f"n{i}", 2, 3, 3) for i in range(4)]
    apart = net.model(net.node("BatchNormalization", "x", *four, spatial=0))
    net = Net(1, 2, 3, 3, opset=8)
    larger = net.model(net.node("Upsample", "x", scales=[1.0, 1.0, 2.0, 2.0]))
    for model, message in ((apart, "its spatial is 0"), (larger, "Upsample is not supported")):
        onnx.save_model(model, tmp_path / "net.onnx")
        assert message in refusal(tmp_path / "net.onnx", UnsupportedOperationError)
