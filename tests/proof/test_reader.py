"""The checker's reader of network files, against rational numbers and ONNX Runtime."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from tests.proof.exact import evaluate, fractions
from tests.proof.models import CURVED, FILES, GRAPHS, V, W, model, written

from provable_circuits.proof.checker.arithmetic import Arithmetic, RefusedError
from provable_circuits.proof.checker.network import Network, parse_network
from provable_circuits.proof.checker.problem import Region, build
from provable_circuits.proof.checker.rules import Subdomain

NOTHING = {"kind": "max-abs", "tolerance": 0.0}


def whole(network: Network, region: Region, arithmetic: Arithmetic) -> Subdomain:
    steps, output = network.steps, network.output
    return Subdomain.whole(build(arithmetic, steps, output, region, {}, {}, NOTHING))


def point(network: Network, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=network.steps[0].units)


@pytest.mark.parametrize("name", FILES)
def test_intervals_at_a_point(name: str) -> None:
    """Every tensor of the file lies in its bounds, which are narrow, and in the file's order."""
    data = FILES[name]
    network = parse_network(data)
    x = point(network)
    exact = evaluate(data, x)
    assert set(network.shapes) == set(exact)
    found = whole(network, Region(x, x), Arithmetic())
    for tensor, value in exact.items():
        lower, upper = found.bounds[found.problem.place(f"N:{tensor}")]
        assert network.shapes[tensor]
        assert len(lower) == len(value)
        assert (fractions(lower) <= value).all()
        assert (value <= fractions(upper)).all()
        room = 1e-8 if name in CURVED else 1e-12
        assert (upper - lower <= room * (1 + abs(value.astype(float)))).all()


@pytest.mark.parametrize("name", [name for name in FILES if name != "leaky by default"])
def test_onnx_runtime_agrees(name: str) -> None:
    """It has convolutions and leaky ReLUs in single precision only, so our files are in that."""
    single = name in GRAPHS
    data = written(GRAPHS[name], torch.float32) if single else FILES[name]
    kind = np.float32 if single else np.float64
    network = parse_network(data)
    x = point(network).astype(kind)
    lower, upper = whole(network, Region(*[x.astype(float)] * 2), Arithmetic()).bounds[-2]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {network.input: x.reshape(1, *network.shapes[network.input])})
    assert output.shape[1:] == network.shapes[network.output]
    rtol, atol = (1e-4, 1e-5) if single else (1e-9, 0)
    np.testing.assert_allclose(output.reshape(-1), (lower + upper) / 2, rtol, atol)


@pytest.mark.parametrize("name", [name for name in FILES if name not in CURVED])
def test_rational_arithmetic_at_a_point(name: str) -> None:
    """In rational arithmetic bounds at a point are the value, and stay fractions."""
    data, arithmetic = FILES[name], Arithmetic(exact=True)
    network = parse_network(data, arithmetic)
    x = point(network, 1)
    exact = evaluate(data, x)
    at = arithmetic.array(x)
    found = whole(network, Region(at, at), arithmetic)
    for tensor, value in exact.items():
        place = found.problem.place(f"N:{tensor}")
        lower, upper = found.bounds[place]
        assert (lower == value).all()
        assert (upper == value).all()
        rows = arithmetic.array(np.random.default_rng(2).normal(size=(2, len(value))))
        bounds = found.lower_bound(place, rows, {})
        assert (bounds == rows @ value).all()
        assert all(isinstance(bound, Fraction) for bound in bounds)


@pytest.mark.parametrize("name", FILES)
def test_intervals_of_a_box(name: str) -> None:
    data = FILES[name]
    network = parse_network(data)
    rng = np.random.default_rng(3)
    centre, radius = point(network, 4), rng.uniform(0, 0.6, network.steps[0].units)
    region = Region(centre - radius, centre + radius)
    found = whole(network, region, Arithmetic())
    output = found.problem.place(f"N:{network.output}")
    for _ in range(2):
        x = rng.choice([-1, -0.5, 0.25, 1], len(centre)) * radius + centre
        x = np.clip(x, region.lower, region.upper)
        exact = evaluate(data, x)
        for tensor, value in exact.items():
            lower, upper = found.bounds[found.problem.place(f"N:{tensor}")]
            assert (fractions(lower) <= value).all()
            assert (value <= fractions(upper)).all()
        rows = rng.normal(size=(3, len(exact[network.output])))
        bounds = found.lower_bound(output, rows, {})
        assert (fractions(bounds) <= fractions(rows) @ exact[network.output]).all()


def test_weights_of_single_precision() -> None:
    data = model((3,), [("Mul", ["x", "v"], "y")], {"v": V.astype(np.float32)})
    network = parse_network(data)
    x = point(network)
    lower, upper = whole(network, Region(x, x), Arithmetic()).bounds[1]
    exact = evaluate(data, x)["y"]
    assert (fractions(lower) <= exact).all()
    assert (exact <= fractions(upper)).all()


def test_tensors_within_an_operation_are_no_tensors_of_the_file() -> None:
    network = parse_network(FILES["maximum"])
    inner = [step.name for step in network.steps if step.name not in network.shapes]
    assert any("~gain" in name for name in inner)
    assert set(network.shapes) == {"x", "t0", "flat", "y"} | {
        name for name in network.shapes if "." in name
    }


# --- what is refused ----------------------------------------------------------------------------


def two(kind: str, inputs: list[str], constants: Any = None, **given: Any) -> bytes:
    given_constants = {"w": W, "v": V, "n": np.array([2]), "zero": np.zeros(3)} | (constants or {})
    return model((3,), [(kind, inputs, "y", given)], given_constants)


def image(kind: str, inputs: list[str], constants: Any = None, **given: Any) -> bytes:
    kernel = np.ones((2, 2, 2, 2))
    return model((2, 4, 4), [(kind, inputs, "y", given)], {"w": kernel, **(constants or {})})


def edited(change: Any, data: bytes = FILES["perceptron"]) -> bytes:
    made = onnx.load_model_from_string(data)
    change(made)
    return bytes(made.SerializeToString())


def _external(m: Any) -> None:
    m.graph.initializer[0].data_location = TensorProto.EXTERNAL
    m.graph.initializer[0].external_data.add(key="location", value="elsewhere")


def _located(m: Any) -> None:
    m.graph.initializer[0].data_location = TensorProto.EXTERNAL


def _unpacked(m: Any) -> None:
    m.graph.initializer[0].double_data.extend([1.0])


def _type(m: Any) -> None:
    m.graph.initializer[0].data_type = TensorProto.INT32


def _attribute(kind: int) -> Any:
    def change(m: Any) -> None:
        m.graph.node[0].attribute[0].type = kind

    return change


POOL = {"kernel_shape": [2, 2]}
REFUSED: dict[str, bytes] = {
    "unknown operation": two("Softplus", ["x"]),
    "another domain": edited(lambda m: setattr(m.graph.node[0], "domain", "ai.other")),
    "unknown attribute": two("Relu", ["x"], alpha=0.5),
    "another operator set": edited(lambda m: setattr(m.opset_import[0], "version", 21)),
    "two operator sets": edited(lambda m: m.opset_import.extend([helper.make_opsetid("a", 1)])),
    "one operator set twice": edited(
        lambda m: m.opset_import.extend([helper.make_opsetid("", 22)])
    ),
    "local functions": edited(lambda m: m.functions.add(name="Relu")),
    "sparse constants": edited(lambda m: m.graph.sparse_initializer.add()),
    "external data": edited(_external),
    "external place": edited(_located),
    "unpacked data": edited(_unpacked),
    "another type": edited(_type),
    "short data": edited(lambda m: setattr(m.graph.initializer[0], "raw_data", b"\0" * 8)),
    "negative size": edited(lambda m: m.graph.initializer[0].dims.__setitem__(0, -3)),
    "a constant twice": edited(lambda m: m.graph.initializer.extend([m.graph.initializer[0]])),
    "a tensor twice": edited(lambda m: m.graph.node.extend([m.graph.node[-1]])),
    "an input twice": edited(lambda m: m.graph.input.extend([m.graph.input[0]])),
    "a constant as an input": edited(lambda m: m.graph.input.add(name=m.graph.initializer[0].name)),
    "two outputs": edited(lambda m: m.graph.output.extend([m.graph.input[0]])),
    "unknown output": edited(lambda m: setattr(m.graph.output[0], "name", "what")),
    "inner output": edited(lambda m: m.graph.node[-1].output.append("more")),
    "before it is made": two("Relu", ["later"]),
    "integers as an input": edited(
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.INT64)
    ),
    "an unknown size": edited(
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_param", "n")
    ),
    "no batch": edited(lambda m: m.graph.input[0].type.tensor_type.shape.dim.pop()),
    "a huge input": edited(
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 2**40)
    ),
    "an attribute twice": edited(
        lambda m: m.graph.node[0].attribute.extend([m.graph.node[0].attribute[0]]),
        two("LeakyRelu", ["x"], alpha=0.5),
    ),
    "an attribute as an integer": edited(_attribute(2), two("LeakyRelu", ["x"], alpha=0.5)),
    "an attribute as a float": edited(_attribute(1), two("Flatten", ["x"], axis=1)),
    "integers as one": edited(_attribute(2), image("MaxPool", ["x"], **POOL)),
    "steep leaky": two("LeakyRelu", ["x"], alpha=1.5),
    "falling leaky": two("LeakyRelu", ["x"], alpha=-0.5),
    "two operands": two("Relu", ["x", "x"]),
    "a product of tensors": two("MatMul", ["x", "x"]),
    "a matrix that does not fit": two("MatMul", ["x", "m"], {"m": np.ones((4, 3))}),
    "a vector": two("MatMul", ["x", "v"]),
    "a tensor of matrices": two("MatMul", ["x", "m"], {"m": np.ones((1, 3, 3))}),
    "a wider constant": two("Add", ["x", "w"]),
    "two constants": two("Add", ["v", "w"]),
    "integers added": two("Add", ["x", "n"]),
    "other shapes": model(
        (3,), [("MatMul", ["x", "m"], "a"), ("Add", ["x", "a"], "y")], {"m": W[:, :2]}
    ),
    "divided by zero": two("Div", ["x", "zero"]),
    "divides a constant": two("Div", ["v", "x"]),
    "infinite weights": two("Mul", ["x", "m"], {"m": np.array(np.inf)}),
    "normed with a mean": two("BatchNormalization", ["x", "v", "v", "v", "zero"], epsilon=0.0),
    "normed with a variance": two("BatchNormalization", ["x", "v", "v", "zero", "v"], epsilon=0.0),
    "normed with epsilon": two(
        "BatchNormalization", ["x", "v", "v", "zero", "i"], {"i": np.ones(3)}
    ),
    "trained norm": two(
        "BatchNormalization",
        ["x", "v", "v", "zero", "i"],
        {"i": np.ones(3)},
        epsilon=0.0,
        training_mode=1,
    ),
    "empty clip": two("Clip", ["x", "a", "b"], {"a": np.array(2.0), "b": np.array(1.0)}),
    "clip of integers": two("Clip", ["x", "a"], {"a": np.array(2)}),
    "clip to nothing": two("Clip", ["x", "a"], {"a": np.array(np.nan)}),
    "clip by many": two("Clip", ["x", "v"]),
    "reshaped over the batch": two("Reshape", ["x", "n"], {"n": np.array([3, 1])}),
    "reshaped by itself": two("Reshape", ["x", "n"], {"n": np.array([1, -1])}),
    "reshaped to others": two("Reshape", ["x", "n"], {"n": np.array([1, 4])}),
    "reshaped by floats": two("Reshape", ["x", "n"], {"n": np.array([1.0, 3.0])}),
    "reshaped to nothing": two("Reshape", ["x", "n"], {"n": np.array([], dtype=np.int64)}),
    "zeros allowed": two("Reshape", ["x", "n"], {"n": np.array([1, 3])}, allowzero=1),
    "flattened whole": two("Flatten", ["x"], axis=0),
    "transposed batch": image("Transpose", ["x"], perm=[1, 0, 2, 3]),
    "transposed twice": image("Transpose", ["x"], perm=[0, 0, 1, 2]),
    "transposed by default": image("Transpose", ["x"]),
    "joined batches": two("Concat", ["x", "x"], axis=0),
    "joined from behind": two("Concat", ["x", "x"], axis=-1),
    "padded batch": two("Pad", ["x", "n"], {"n": np.array([1, 0, 0, 0])}),
    "padded by cutting": two("Pad", ["x", "n"], {"n": np.array([0, -1, 0, 0])}),
    "padded with ones": two(
        "Pad", ["x", "n", "m"], {"n": np.array([0, 1, 0, 0]), "m": np.array(1.0)}
    ),
    "padded by mirrors": two("Pad", ["x", "n"], {"n": np.array([0, 1, 0, 0])}, mode="reflect"),
    "padded short": two("Pad", ["x", "n"], {"n": np.array([0, 1, 0])}),
    "padded some": two(
        "Pad", ["x", "n", "", "m"], {"n": np.array([0, 0, 1, 0]), "m": np.array([1, 0])}
    ),
    "padded far": two("Pad", ["x", "n"], {"n": np.array([0, 2**40, 0, 0])}),
    "gathered batch": two("Gather", ["x", "n"], axis=0),
    "gathered beyond": two("Gather", ["x", "n"], {"n": np.array([3])}, axis=1),
    "gathered before": two("Gather", ["x", "n"], {"n": np.array([-4])}, axis=1),
    "gathered by floats": two("Gather", ["x", "v"], axis=1),
    "mean of the batch": two("ReduceMean", ["x", "n"], {"n": np.array([0])}),
    "mean of nothing": two("ReduceMean", ["x", "n"], {"n": np.array([], dtype=np.int64)}),
    "mean twice": two("ReduceMean", ["x", "n"], {"n": np.array([1, 1])}),
    "no mean": two("ReduceMean", ["x", "n"], {"n": np.array([1])}, noop_with_empty_axes=1),
    "conv of a vector": two("Conv", ["x", "w"]),
    "conv by a matrix": image("Conv", ["x", "w"], {"w": np.ones((2, 2))}),
    "uneven conv": image("Conv", ["x", "w"], pads=[0, 0, 1, 1]),
    "conv of other maps": image("Conv", ["x", "w"], {"w": np.ones((2, 3, 2, 2))}),
    "conv of other groups": image("Conv", ["x", "w"], {"w": np.ones((3, 1, 2, 2))}, group=2),
    "conv without step": image("Conv", ["x", "w"], strides=[0, 1]),
    "conv without dilation": image("Conv", ["x", "w"], dilations=[1, 0]),
    "conv cut": image("Conv", ["x", "w"], pads=[-1, 0, -1, 0]),
    "conv of another kernel": image("Conv", ["x", "w"], kernel_shape=[2, 3]),
    "conv too large": image("Conv", ["x", "w"], {"w": np.ones((2, 2, 5, 5))}),
    "conv of nothing": image("Conv", ["x", "w"], {"w": np.ones((2, 2, 0, 2))}),
    "conv with few pads": image("Conv", ["x", "w"], pads=[1, 1]),
    "conv padded far": image("Conv", ["x", "w"], pads=[2**20] * 4, strides=[2**20] * 2),
    "conv with a wrong shift": image("Conv", ["x", "w", "b"], {"b": np.ones(3)}),
    "automatic padding": image("Conv", ["x", "w"], auto_pad="SAME_UPPER"),
    "pool of a vector": two("MaxPool", ["x"], kernel_shape=[1, 1]),
    "pool without a kernel": image("MaxPool", ["x"]),
    "pool without step": image("MaxPool", ["x"], strides=[0, 1], **POOL),
    "pool cut": image("MaxPool", ["x"], pads=[-1, 0, 0, 0], **POOL),
    "pool of padding": image("MaxPool", ["x"], pads=[2, 0, 0, 0], **POOL),
    "pool padded far": image("AveragePool", ["x"], pads=[2**40, 0, 0, 0], **POOL),
    "pool of all": image("MaxPool", ["x"], kernel_shape=[2**20, 2**20], pads=[2**20] * 4),
    "average of padding": image("AveragePool", ["x"], pads=[2, 0, 0, 0], **POOL),
    "average over what hangs out": image(
        "AveragePool", ["x"], count_include_pad=1, ceil_mode=1, **POOL
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_files_are_refused(name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_network(REFUSED[name])
    assert "network's output is" not in str(caught.value)


def test_the_files_beside_the_refused_are_read() -> None:
    for data in (
        two("LeakyRelu", ["x"], alpha=1.0),
        two("Clip", ["x", "a", "a"], {"a": np.array(1.0)}),
        two("Gather", ["x", "n"], {"n": np.array([-3])}, axis=1),
        image("Conv", ["x", "w"], strides=[3, 3], pads=[1, 0, 1, 0], kernel_shape=[2, 2]),
        image("MaxPool", ["x"], pads=[1, 1, 1, 1], storage_order=0, **POOL),
        edited(lambda m: setattr(m, "doc_string", "remarks")),
        edited(lambda m: m.metadata_props.add(key="by", value="us")),
    ):
        assert parse_network(data).steps


BYTES = FILES["perceptron"]


def test_truncated_and_scrambled_files_are_refused_or_read() -> None:
    """Whatever the bytes: an answer or a refusal."""
    rng = np.random.default_rng(0)
    read = 0
    for _ in range(300):
        data = bytearray(BYTES)
        if rng.random() < 0.3:
            del data[rng.integers(len(data)) :]
        for _ in range(rng.integers(4)):
            if data:
                data[rng.integers(len(data))] = rng.integers(256)
        try:
            read += bool(parse_network(bytes(data)).steps)
        except RefusedError:
            continue
    assert read > 10


@pytest.mark.parametrize(
    "data",
    [
        b"\x0b",  # a group
        b"\x08",  # a number that does not come
        b"\x08" + b"\xff" * 11,  # a number that does not end
        b"\x3a\x05ab",  # bytes that are not there
        b"\x38\x01",  # a graph that is a number
        b"\xba\x3f\x00",  # a field that no file has
    ],
)
def test_messages_that_are_none(data: bytes) -> None:
    with pytest.raises(RefusedError):
        parse_network(data)
