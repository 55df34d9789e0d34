"""Forms of ONNX on which evaluators differ: equal to ONNX Runtime, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tests.network.onnx_models import Array, session_of

from provable_circuits.errors import ModelError, ModelFileError, UnsupportedOperationError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.intervals import propagate
from provable_circuits.network.ops import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    Divide,
    MaxPool2d,
    Op,
    Pad,
    Permute,
)


def model_of(
    nodes: list[onnx.NodeProto],
    shape: tuple[int | str, ...] = ("N", 3),
    opset: int = 17,
    **constants: object,
) -> onnx.ModelProto:
    """A model from 'x' to 'y'; constants of Python's integers are int64, other numbers float32."""
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    weights = [
        numpy_helper.from_array(a.astype(np.float32) if a.dtype == np.float64 else a, name)
        for name, a in arrays.items()
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(kind: str, *inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], **attributes)


def read(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "net.onnx"
    onnx.save_model(model, path)
    return Graph.from_onnx(path)


def assert_equal_to_the_runtime(model: onnx.ModelProto, x: Array, folder: Path) -> Array:
    x = x.astype(np.float32)
    (expected,) = session_of(model.SerializeToString()).run(None, {"x": x})
    result = read(model, folder).run(torch.from_numpy(x)).numpy()
    if len(expected) == 1:
        expected = np.broadcast_to(expected, (len(x), *expected.shape[1:]))
    assert result.shape == expected.shape
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    return result


def refusal(
    model: onnx.ModelProto, folder: Path, kind: type[ModelError] = UnsupportedOperationError
) -> str:
    with pytest.raises(ModelError) as caught:
        read(model, folder)
    assert type(caught.value) is kind
    return str(caught.value)


IMAGE = np.random.default_rng(0).normal(size=(1, 2, 7, 6))


# Tensors of the network.


@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_scalar_index_leaves_samples_without_dimensions(place: int, tmp_path: Path) -> None:
    model = model_of([node("Gather", "x", "i", axis=1)], i=place)
    x = np.arange(1.0, 7.0).reshape(2, 3)
    assert assert_equal_to_the_runtime(model, x, tmp_path).shape == (2,)
    back = [
        node("Gather", "x", "i", output="g", axis=1),
        node("Relu", "g", output="r"),
        node("Unsqueeze", "r", "one", output="u"),
        node("Concat", "u", "x", output="c", axis=1),
        node("MatMul", "c", "w"),
    ]
    weight = np.arange(8.0).reshape(4, 2) - 3
    model = model_of(back, i=place, one=[1], w=weight)
    assert_equal_to_the_runtime(model, x, tmp_path)
    graph = read(model, tmp_path)
    box = torch.zeros(1, 3).double(), torch.ones(1, 3).double()
    lower, upper = propagate(graph, {"x": box})[graph.outputs[0]]
    inside = graph.run(torch.rand(50, 3).double())
    assert bool((lower <= inside).all())
    assert bool((inside <= upper).all())


@pytest.mark.parametrize("shape", [(3, 2), ("N", 2), (2, 2)])
@pytest.mark.parametrize("cut", [(-1, -9, -1), (9, -9, -1), (1, 9, 1), (0, 1, 1)])
def test_slices_of_the_batch_are_refused(
    shape: tuple[int | str, int], cut: tuple[int, int, int], tmp_path: Path
) -> None:
    start, end, step = ([number] for number in cut)
    model = model_of([node("Slice", "x", "s", "e", "a", "t")], shape, s=start, e=end, a=[0], t=step)
    assert "it picks samples of the batch, or changes their order" in refusal(model, tmp_path)


def test_a_slice_of_the_whole_batch_is_nothing(tmp_path: Path) -> None:
    for shape, end in (((3, 2), 3), (("N", 2), 2**31 - 1), (("N", 2), 2**63 - 1)):
        model = model_of(
            [node("Slice", "x", "s", "e", "a")], shape, s=[0, -1], e=[end, 9], a=[0, 1]
        )
        x = np.arange(1.0, 7.0).reshape(3, 2)
        assert assert_equal_to_the_runtime(model, x, tmp_path).shape == (3, 1)


@pytest.mark.parametrize("far", [2**31 - 1, 2**63 - 1])
def test_the_largest_end_with_a_negative_step_is_refused(far: int, tmp_path: Path) -> None:
    cut: dict[str, Any] = {"s": [2], "e": [far], "a": [1], "t": [-1]}
    model = model_of([node("Slice", "x", "s", "e", "a", "t")], **cut)
    assert "with a negative step means different things" in refusal(model, tmp_path)
    moved = model_of(
        [node("Slice", "c", "s", "e", "a", "t", output="d"), node("Add", "x", "d")],
        c=np.ones((1, 3)),
        **cut,
    )
    assert "with a negative step means different things" in refusal(moved, tmp_path)


@pytest.mark.parametrize("cut", [(-9, -99, -1), (-4, -99, -2), (9, -99, -2), (-9, 2, 1)])
def test_slices_that_start_beyond_the_tensor(cut: tuple[int, int, int], tmp_path: Path) -> None:
    start, end, step = ([number] for number in cut)
    model = model_of([node("Slice", "x", "s", "e", "a", "t")], s=start, e=end, a=[1], t=step)
    assert_equal_to_the_runtime(model, np.arange(1.0, 7.0).reshape(2, 3), tmp_path)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kind", ["Conv", "MaxPool", "AveragePool"])
def test_same_padding_that_would_crop_is_refused(kind: str, mode: str, tmp_path: Path) -> None:
    window: dict[str, Any] = {"kernel_shape": [1, 1], "strides": [5, 4], "auto_pad": mode}
    inputs = ["x", "w"] if kind == "Conv" else ["x"]
    model = model_of([node(kind, *inputs, **window)], (1, 2, 10, 9), 11, w=np.ones((1, 2, 1, 1)))
    message = refusal(model, tmp_path)
    assert f"auto_pad {mode} with dilations, or with strides so large" in message


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_the_usual_projection_with_same_padding_is_read(mode: str, tmp_path: Path) -> None:
    window: dict[str, Any] = {"kernel_shape": [1, 1], "strides": [2, 2], "auto_pad": mode}
    weight = np.array([[[[2.0]], [[-1.0]]]])
    model = model_of([node("Conv", "x", "w", **window)], ("N", 2, 8, 7), 11, w=weight)
    x = np.random.default_rng(1).normal(size=(2, 2, 8, 7))
    assert_equal_to_the_runtime(model, x, tmp_path)


def test_an_empty_list_of_axes_to_squeeze_is_refused(tmp_path: Path) -> None:
    model = model_of([node("Squeeze", "x", "a")], (2, 3), a=np.zeros(0, np.int64))
    assert "runtimes differ in what it does with an empty list of axes" in refusal(model, tmp_path)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Unsqueeze", "x", "zero")], "it moves the batch, of any size"),
        ([node("Flatten", "x", axis=0)], "it moves the batch, of any size"),
        ([node("Unsqueeze", "x", "twice")], "its axes [1, 1] name one twice"),
        ([node("Reshape", "x", "below")], "it cannot turn [1, 3] into [1, -3, -1]"),
        ([node("Reshape", "x", "rests")], "it cannot turn [1, 3] into [1, -1, -1]"),
        ([node("GlobalAveragePool", "x")], "it takes feature maps of one to three dimensions"),
    ],
)
def test_other_forms_that_mean_nothing(
    nodes: list[onnx.NodeProto], reason: str, tmp_path: Path
) -> None:
    lists: dict[str, Any] = {
        "zero": [0],
        "twice": [1, -3],
        "below": [1, -3, -1],
        "rests": [1, -1, -1],
    }
    assert reason in refusal(model_of(nodes, **lists), tmp_path)


@pytest.mark.parametrize("kind", ["Flatten", "Squeeze", "Unsqueeze"])
def test_negative_axes_before_operator_set_11_are_refused(kind: str, tmp_path: Path) -> None:
    axes: dict[str, Any] = {"axis": -1} if kind == "Flatten" else {"axes": [-1]}
    model = model_of([node(kind, "x", **axes)], ("N", 3, 1), 10)
    assert "is negative, which operator set 10 does not have" in refusal(model, tmp_path)


def test_types_that_the_standard_does_not_allow_are_refused(tmp_path: Path) -> None:
    mixed = model_of([node("Add", "x", "c")], c=np.ones(3, np.int64))
    message = refusal(mixed, tmp_path, ModelFileError)
    assert message == (
        "The model is not valid ONNX at the Add node, which makes 'y': its inputs must be of one "
        "type, and not FLOAT and INT64."
    )
    fractions = model_of([node("Gather", "x", "c", axis=1)], c=[1.0])
    message = refusal(fractions, tmp_path, ModelFileError)
    assert "its input 'indices' must not be of type FLOAT" in message


# Constants.


@pytest.mark.parametrize("opset", range(9, 23))
def test_a_normalised_constant(opset: int, tmp_path: Path) -> None:
    model = model_of(
        [node("BatchNormalization", "c", "scale", "shift", "mean", "variance", epsilon=0.25)],
        opset=opset,
        c=IMAGE,
        scale=[2.0, -1.0],
        shift=[0.5, 1.0],
        mean=[3.0, 4.0],
        variance=[4.0, 9.0],
    )
    assert_equal_to_the_runtime(model, np.zeros((2, 3)), tmp_path)


@pytest.mark.parametrize(
    "window",
    [
        {"strides": [2, 1], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 1], "auto_pad": "SAME_LOWER"},
        {"strides": [3, 2], "ceil_mode": 1},
        {"strides": [3, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
        {"strides": [2, 1], "auto_pad": "SAME_UPPER", "ceil_mode": 1},
    ],
)
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("opset", [10, 12, 19, 22])
def test_a_pooled_constant(kind: str, window: dict[str, Any], opset: int, tmp_path: Path) -> None:
    pool = node(kind, "c", kernel_shape=[3, 3], **window)
    assert_equal_to_the_runtime(model_of([pool], opset=opset, c=IMAGE), np.zeros((2, 3)), tmp_path)


@pytest.mark.parametrize("cut", [(-9, -99, -1), (-4, -99, -2), (9, -99, -2), (-9, 2, 1)])
def test_a_constant_sliced_from_beyond(cut: tuple[int, int, int], tmp_path: Path) -> None:
    start, end, step = ([number] for number in cut)
    numbers: dict[str, Any] = {"c": [[2.0, 3.0, 5.0]], "s": start, "e": end, "a": [1], "t": step}
    model = model_of([node("Slice", "c", "s", "e", "a", "t")], **numbers)
    assert_equal_to_the_runtime(model, np.zeros((2, 3)), tmp_path)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Selu", "c")], "of constants only Abs, Add, And, AveragePool, BatchNormalization, "),
        ([node("Div", "i", "zero")], "it divides an integer by zero"),
        ([node("Mod", "i", "zero")], "it divides by zero"),
        ([node("Mod", "c", "c")], "its fmod is 0, which is defined for integers only"),
        ([node("Sqrt", "nan")], "one of its constants is NaN"),
        ([node("Cast", "huge", to=TensorProto.INT32)], "holds numbers that int32 cannot"),
        ([node("Cast", "c", to=TensorProto.STRING)], "turning float32 into STRING"),
        ([node("Range", "half", "half", "half")], "it counts in fractions"),
        ([node("Range", "zero", "i0", "zero")], "its delta is zero"),
        ([node("ConstantOfShape", "vast")], "it would make a constant of shape [65536, 65536]"),
        ([node("Expand", "huge", "vast")], "it would make a constant of shape"),
        ([node("Reshape", "c", "i")], "it cannot turn [2] into"),
        ([node("MatMul", "c", "three")], "it cannot be computed from its constants"),
        ([node("Gather", "c", "seven")], "it cannot be computed from its constants"),
        ([node("Tile", "c", "i")], "its repeats [3, 4] do not fit 1 dimensions"),
        ([node("ReduceSum", "c", "twice")], "it names an axis twice"),
        ([node("Squeeze", "c", "zeros")], "it cannot be computed from its constants"),
        ([node("Constant", value_string=b"a")], "its value_string is not a tensor of numbers"),
    ],
)
def test_constants_that_are_not_computed(
    nodes: list[onnx.NodeProto], reason: str, tmp_path: Path
) -> None:
    model = model_of(
        nodes,
        c=[1.0, 2.0],
        i=[3, 4],
        i0=3,
        zero=0,
        zeros=[0],
        nan=[np.nan],
        huge=[1e12],
        half=0.5,
        vast=[65536, 65536],
        three=[1.0, 2.0, 3.0],
        seven=[7],
        twice=[0, -1],
    )
    message = refusal(model, tmp_path)
    assert reason in message
    assert message.endswith(".")


# Files that are written.


@pytest.mark.parametrize(
    "pool",
    [
        MaxPool2d((2, 2), (2, 2)),
        MaxPool2d((3, 3), (1, 2), (1, 1, 1, 1)),
        AvgPool2d((3, 2), (1, 1)),
        AvgPool2d((3, 2), (1, 1), (1, 1), count_include_pad=False),
    ],
    ids=str,
)
def test_zeros_around_what_is_pooled_survive_the_runtimes_optimiser(
    pool: Op, tmp_path: Path
) -> None:
    builder = GraphBuilder()
    padded = builder.add("pad", Pad((1, 0, 2, 1)), builder.input("x", (2, 5, 5)))
    graph = builder.build([builder.add("pool", pool, padded)])
    path = tmp_path / "net.onnx"
    graph.to_onnx(path)
    x = -1 - np.random.default_rng(0).random((3, 2, 5, 5), np.float32)  # below the zeros
    (result,) = session_of(path.read_bytes(), optimised=True).run(None, {"x": x})
    np.testing.assert_allclose(result, graph.run(torch.from_numpy(x)).numpy(), rtol=1e-6)


def test_zeros_behind_a_transposition_survive_the_runtimes_optimiser(tmp_path: Path) -> None:
    builder = GraphBuilder()
    name = builder.input("x", (2, 6, 7))
    for op in (Permute((2, 1, 0)), Pad((1, 0, 0, 3)), Permute((0, 2, 1)), Divide(torch.ones(7))):
        name = builder.add(op.name.lower(), op, name)
    graph = builder.build([builder.add("mean", AdaptiveAvgPool2d((5, 7), (3, 4)), name)])
    path = tmp_path / "net.onnx"
    graph.to_onnx(path)
    x = np.random.default_rng(0).random((3, 2, 6, 7), np.float32)
    (result,) = session_of(path.read_bytes(), optimised=True).run(None, {"x": x})
    np.testing.assert_allclose(result, graph.run(torch.from_numpy(x)).numpy(), rtol=1e-5)
