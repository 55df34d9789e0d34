"""``provable-circuits components``: what can be kept or removed, before anything is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.network.networks import conv_graph, dense_graph

import provable_circuits as pc

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, program: Run, tmp_path: Path) -> Run:
    """Calls the command in a folder with two networks; exit code and both streams."""
    monkeypatch.chdir(tmp_path)
    dense_graph().to_onnx("dense.onnx")
    conv_graph().to_onnx("conv.onnx")
    return partial(program, "components")


def test_the_table_tells_every_layer(run: Run) -> None:
    code, out, err = run("conv.onnx", "--shortcuts")
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=4) for line in out.splitlines()[2:]] == [
        ["conv1", "conv", "4", "x", "6 x 6  4           conv1/0 ... conv1/3"],
        ["conv2", "conv", "3", "x", "3 x 3  3           conv2/0 ... conv2/2"],
        ["proj", "conv,", "shortcut", "3", "x 3 x 3  3           proj/0 ... proj/2"],
        ["head", "linear,", "output", "2", "-           kept whole"],
        ["other", "linear,", "output", "2", "-           kept whole"],
    ]
    assert out.startswith("10 components (filters) in 3 of 5 layers\n")


@pytest.mark.parametrize("options", [[], ["--no-outputs"], ["--granularity", "neuron"]])
def test_the_document_is_what_python_says(run: Run, options: list[str]) -> None:
    code, out, err = run("dense.onnx", "--json", *options)
    assert (code, err) == (0, "")
    document = json.loads(out)
    graph = pc.Graph.from_onnx("dense.onnx")
    components = graph.components("neuron", outputs="--no-outputs" not in options)
    names = [name for layer in document["layers"] for name in layer["components"]]
    assert names == list(components.names)
    assert document["of"] == len(components)
    assert document["network"] == graph.digest
    assert document["granularity"] == "neuron"
    assert (document["input"], document["output"]) == ([4], [3])
    shapes = {layer["tensor"]: tuple(layer["shape"]) for layer in document["layers"]}
    activations = graph.activations(torch.zeros(1, 4))
    assert all(tuple(activations[name].shape[1:]) == shape for name, shape in shapes.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.onnx"], "There is no file 'no.onnx'"),
        (["dense.onnx", "--granularity", "filter"], "no components at granularity"),
        (["dense.onnx", "--granularity", "atom"], "'atom' is not one of"),
        (["."], "is a folder"),
    ],
)
def test_wrong_calls_end_with_2_and_a_sentence(
    run: Run, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
