"""Files made to harm the checker: refused in one sentence, in bounded time and memory."""

from __future__ import annotations

import json
import random
import resource
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from tests.proof.certificates import make
from tests.proof.parts import Parts, sealed
from tests.proof.trial import check, sentence

import provable_circuits as pc
from provable_circuits.network import ops
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.certificate import read
from provable_circuits.proof.checker.data import Data, plain_json
from provable_circuits.proof.checker.protobuf import Message
from provable_circuits.proof.writing import Writer


def parts(name: str = "0") -> Parts:
    files = make(name).files
    return Parts.of(files, random.Random(0), files)


def refused(files: Mapping[str, bytes]) -> str:
    """Why the checker refuses a certificate; it must."""
    found = check(files)
    if not isinstance(found, str):
        (found,) = [finding.reason for finding in found if not finding.holds]
    assert sentence(found)
    return found


def test_components_of_inner_tensors_are_refused() -> None:
    """Max pooling is written with ReLUs: no component may sit on one, or intervals are wrong."""
    mutant = parts("5")
    pool = next(n.output[0] for n in mutant.model.graph.node if n.op_type == "MaxPool")
    for name in (f"{pool}~gain0", f"{pool}~over0", f"{pool}~place0"):
        mutant.manifest["components"][0]["tensor"] = name
        assert "tensor of the network" in refused(mutant.seal())


def test_a_patch_inside_of_max_pooling_proves_nothing() -> None:
    """Intervals of a maximum do not look at its ReLUs: one that is patched by a million goes unseen
    by them, and the ReLU behind the pooling counts as inactive."""
    builder = GraphBuilder()
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    value = builder.add("conv", ops.Conv2d(one), builder.input("x", (1, 2, 2)), layer="conv")
    value = builder.add("pool", ops.MaxPool2d((2, 2), (1, 1)), value)
    value = builder.add("flat", ops.Reshape((1,)), builder.add("relu", ops.ReLU(), value))
    last = ops.Linear(torch.ones(2, 1, dtype=torch.float64))
    graph = builder.build([builder.add("out", last, value, layer="out")])
    ball = pc.Ball(torch.full((1, 2, 2), -5.0, dtype=torch.float64), 0.1)
    full = graph.components("filter").full()
    writer = Writer(pc.Claim([ball], pc.Zero(), pc.MaxAbs(0.1)), full)
    writer.faithful([], {})
    files = writer.files()
    mutant = Parts.of(files, random.Random(0), files)
    pool = next(n.output[0] for n in mutant.model.graph.node if n.op_type == "MaxPool")
    arrays = mutant.arrays["claim.safetensors"]
    arrays["labels"], arrays["million"] = np.zeros(1, np.int32), np.full(1, 1e6)
    inner = f"{pool}~gain2"
    mutant.manifest["components"] = [{"tensor": inner, "names": ["c"], "labels": "labels"}]
    mutant.manifest["circuit"] = []
    mutant.manifest["claim"]["patching"] = {"kind": "constant", "values": {inner: "million"}}
    tree = {"objectives": [0, 1, 2, 3], "nodes": [{"close": {}}]}
    mutant.manifest["proof"] = [{"tighten": [], "trees": [tree]}]
    assert "tensor of the network" in refused(mutant.seal())


@pytest.mark.parametrize(
    "text", ["1e999999999", "1e-999999999", "1/0", "-1", "9" * 5000, " 1", "٣"]
)
def test_fractions_are_plain_and_short(text: str) -> None:
    with pytest.raises(RefusedError, match="is not a fraction"):
        Data(text, "beta").fraction()


@pytest.mark.parametrize("text", ["1e999", "-1e999", "NaN", "Infinity", "9" * 5000])
def test_numbers_that_are_not_finite_are_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        plain_json(f'{{"a": [{text}]}}'.encode())


def test_integers_beyond_floats_are_refused() -> None:
    with pytest.raises(RefusedError, match="is not a finite number"):
        Data(10**400, "tolerance").number()


@pytest.mark.parametrize("deep", [40, 500, 990, 3000, 10**6])
@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_nesting_is_bounded(deep: int, opened: str) -> None:
    closed = {"[": "]", '{"a":': "}"}[opened]
    with pytest.raises(RefusedError):
        plain_json((opened * deep + "0" + closed * deep).encode())


def test_a_name_given_twice_is_refused() -> None:
    files = dict(make("0").files)
    manifest = json.loads(files.pop("certificate.json"))
    data = files["claim.safetensors"]
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + size].decode().rstrip()
    first = next(iter(json.loads(header).items()))
    twice = f'{header[:-1]},"{first[0]}":{json.dumps(first[1])}}}'.encode()
    files["claim.safetensors"] = struct.pack("<Q", len(twice)) + twice + data[8 + size :]
    assert "key twice" in refused(sealed(manifest, files))


def test_a_claim_must_be_well_formed_at_every_input() -> None:
    """Also where a statement rests on a witness at another input."""
    mutant = parts("refuted 1")
    mutant.manifest["claim"]["inputs"].append({"kind": "ball", "x": "x0", "eps": -1.0, "p": "inf"})
    refused(mutant.seal())


def test_refusals_quote_nothing_that_harms_a_terminal() -> None:
    for text in ("a\nb", "\x1b[2J", "x" * 10**5, "\ud800"):
        mutant = parts("refuted 0")
        mutant.manifest["statements"][1]["component"] = text
        found = check(mutant.seal())
        assert not isinstance(found, str)
        assert all(sentence(f.statement) and sentence(f.reason) for f in found)
        mutant = parts("0")
        mutant.manifest["proof"][0]["tighten"] = [text]
        refused(mutant.seal())
        mutant.manifest["components"][0]["tensor"] = text
        refused(mutant.seal())
        mutant.manifest["claim"][text] = 0
        refused(mutant.seal())


# --- the network's file -------------------------------------------------------------------------


def test_functions_that_take_the_place_of_operations_are_refused() -> None:
    mutant = parts()
    body = [helper.make_node("Neg", ["a"], ["b"])]
    opsets = mutant.model.opset_import
    mutant.model.functions.append(helper.make_function("", "Relu", ["a"], ["b"], body, opsets))
    refused(mutant.seal())


@pytest.mark.parametrize("field", ["sparse_initializer", "quantization_annotation"])
def test_fields_of_the_graph_that_are_unknown_are_refused(field: str) -> None:
    mutant = parts()
    getattr(mutant.model.graph, field).add()
    refused(mutant.seal())


def test_constants_that_may_be_given_as_inputs_are_refused() -> None:
    mutant = parts()
    name = mutant.model.graph.initializer[0].name
    mutant.model.graph.input.append(helper.make_tensor_value_info(name, 1, [1, 2]))
    assert "one input" in refused(mutant.seal())


def test_an_attribute_of_another_type_is_refused() -> None:
    mutant = parts("11")
    (alpha, *_) = [a for n in mutant.model.graph.node for a in n.attribute if a.name == "alpha"]
    alpha.type = onnx.AttributeProto.INT
    refused(mutant.seal())


def test_operator_sets_named_twice_are_refused() -> None:
    mutant = parts()
    mutant.model.opset_import.add(domain="", version=21)
    mutant.model.opset_import.add(domain="", version=22)
    assert "operator set" in refused(mutant.seal())


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"\x12\x01\x05", lambda m: m.integer(2)),  # an integer written as bytes
        (b"\x15abcd", lambda m: m.text(2)),  # a text written as four bytes
        (b"\x12\x04abcd", lambda m: m.real(2)),  # a float written as bytes
        (b"\x10\x05", lambda m: m.all_data(2)),  # a message written as a number
        (b"\x12\x01\xff", lambda m: m.texts(2)),  # a text that is none
        (b"\x12\xff\xff\xff\xff\x0f", lambda m: m),  # longer than the file
        (b"\x13", lambda m: m),  # groups, of older days
        (b"\xff" * 11, lambda m: m),
    ],
)
def test_fields_are_of_the_type_that_they_are_read_by(
    data: bytes, read: Callable[[Message], Any]
) -> None:
    """Readers differ in what they make of others: skip them, or read them."""
    with pytest.raises((RefusedError, UnicodeDecodeError)):
        read(Message(data, {2}))


def test_a_network_with_more_fields_than_any_has_is_refused() -> None:
    with pytest.raises(RefusedError):
        Message(b"\x10\x00" * (2**20 + 1), {2})


# --- bounded time and memory --------------------------------------------------------------------


def wide(shape: list[int], *nodes: Any, **constants: Any) -> bytes:
    """A network of few bytes whose input is large."""
    arrays = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        list(nodes),
        "wide",
        [helper.make_tensor_value_info("x", 1, ["batch", *shape])],
        [helper.make_tensor_value_info(last, 1, ["batch", 2])],
        arrays,
    )
    opsets = [helper.make_opsetid("", 22)]
    data: bytes = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    return data


def node(kind: str, inputs: list[str], output: str = "y", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs, [output], **attributes)


FILTER = np.ones((1, 1, 2, 2), np.float32)
ONES = np.ones((1, 10**5), np.float32)
WIDE, FAR, FARTHER = [2**21], [2**30] * 4, [2**40] * 4
CHAIN = [node("Identity", [f"t{i}" if i else "x"], f"t{i + 1}") for i in range(3000)]
HUGE: dict[str, bytes] = {
    "input": wide([2**31, 2**31], node("Identity", ["x"])),
    "depth": wide(WIDE, *CHAIN),
    "window": wide([1, 2000, 2000], node("MaxPool", ["x"], kernel_shape=[1000, 1000])),
    "average": wide([1, 2000, 2000], node("AveragePool", ["x"], kernel_shape=[900, 900])),
    "pool": wide([1, 4, 4], node("MaxPool", ["x"], kernel_shape=[1, 1], pads=FARTHER)),
    "padding": wide([1, 4, 4], node("Conv", ["x", "w"], pads=FAR, strides=FAR[:2]), w=FILTER),
    "dilation": wide(
        [1, 4, 4], node("Conv", ["x", "w"], pads=FAR, dilations=[2**31] * 2), w=FILTER
    ),
    "step": wide([1, 4, 4], node("Conv", ["x", "w"], strides=[2**35] * 2), w=FILTER),
    "gather": wide([2**20, 4], node("Gather", ["x", "i"], axis=2), i=np.zeros(10**5, np.int64)),
    "concat": wide([2**20], node("Concat", ["x"] * 10**4, axis=1)),
    "pad": wide([4], node("Pad", ["x", "p"]), p=np.array([0, 2**40, 0, 2**40])),
    "matrix": wide([2**20, 1], node("MatMul", ["x", "w"]), w=ONES),
}


def _huge_arrays(name: str) -> dict[str, bytes]:
    mutant = parts("24")
    tree = max(
        (t for p in mutant.manifest["proof"] for t in p["trees"]), key=lambda t: len(t["nodes"])
    )
    proof = mutant.arrays["proof.safetensors"]
    leaf = next(n for n in tree["nodes"] if "alpha" in n)
    pair = next(iter(leaf["alpha"].values()))
    if name == "alphas":
        proof[pair[0]] = np.zeros(0, np.int32)
        proof[pair[1]] = np.zeros((2**40, 0), np.uint8)
    elif name == "objectives":
        tree["objectives"] = tree["objectives"] * 10**6
    elif name == "splits":
        split = next(n for n in tree["nodes"] if "split" in n)
        tree["nodes"] = [split] * 20_000
    elif name == "halves":
        side = f"N:{mutant.model.graph.input[0].name}"
        tree["nodes"] = [{"side": [side, 0, 0.5]}] * 20_000
    else:
        leaf["close"] = {"exact": True, "beta": [["1e9999999999"] * 9]}
    return mutant.seal()


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each certificate that asks for too much."""
    root = tmp_path_factory.mktemp("huge")
    files = dict(make("0").files)
    manifest = json.loads(files.pop("certificate.json"))
    made = {name: sealed(manifest, {**files, "network.onnx": data}) for name, data in HUGE.items()}
    for name in ("alphas", "objectives", "splits", "halves", "fractions"):
        made[name] = _huge_arrays(name)
    for name, found in made.items():
        (root / name).mkdir()
        for file, data in found.items():
            (root / name / file).write_bytes(data)
    return root


PROGRAM = """
import sys
from pathlib import Path
from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.check import check_folder
for folder in sorted(Path(sys.argv[1]).iterdir()):
    try:
        texts = [f"{f.holds} {f.reason}" for f in check_folder(folder)]
    except RefusedError as refused:
        texts = [f"False {refused}"]
    print(folder.name, *texts, sep="|")
"""


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


def test_what_asks_for_too_much_is_refused_in_little_time_and_memory(huge: Path) -> None:
    """In a process of its own, with at most so much memory and processor time for all of them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(huge)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limits,
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("|", 1) for line in done.stdout.splitlines())
    assert set(lines) == {path.name for path in huge.iterdir()}
    assert all(text.startswith("False ") and sentence(text) for text in lines.values()), lines
    assert not [text for text in lines.values() if "MemoryError" in text]


# --- files --------------------------------------------------------------------------------------


def test_folders_without_plain_files_are_refused(tmp_path: Path) -> None:
    files = make("0").files
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    read(tmp_path)
    (tmp_path / "network.onnx").unlink()
    with pytest.raises(RefusedError, match="missing"):
        read(tmp_path)
    (tmp_path / "elsewhere").write_bytes(files["network.onnx"])
    (tmp_path / "network.onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="no plain file"):
        read(tmp_path)


def test_arrays_have_names_and_no_paths(tmp_path: Path) -> None:
    mutant = parts()
    mutant.manifest["claim"]["inputs"][0]["x"] = "../../claim.safetensors"
    assert "name of an array" in refused(mutant.seal())
