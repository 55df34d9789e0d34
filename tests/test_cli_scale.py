"""The command line on data in the scale of image files: a warning that names ``--scale``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import provable_circuits as pc

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, program: Program, tmp_path: Path) -> Program:
    """Calls the command line beside a network for 16 pixels, and data of every kind for it."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 3))
    pc.Graph.from_torch(net, torch.zeros(1, 16)).to_onnx("net.onnx")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16))
    pixels[0, 0], pixels[0, 1] = 0, 255
    arrays: dict[str, NDArray[Any]] = {
        "uint8": pixels.astype(np.uint8),
        "uint16": (pixels * 257).astype(np.uint16),
        "int64": pixels,
        "cast": pixels.astype(np.float32),
        "blurred": pixels * 0.9 + 0.3,
        "scaled": pixels / 255.0,
        "normalised": (pixels / 255.0 - 0.5) / 0.25,
        "binary": (pixels > 127).astype(np.uint8),
    }
    for name, values in arrays.items():
        np.savez(f"{name}.npz", x=values)
    Image.fromarray(pixels[0].astype(np.uint8).reshape(4, 4)).save("image.png")
    return program


@pytest.mark.parametrize(
    ("data", "held", "scale"),
    [
        ("uint8", "integers from 0 to 255", 255),
        ("uint16", "integers from 0 to 65535", 65535),
        ("int64", "integers from 0 to 255", 255),
        ("cast", "values from 0 to 255", 255),
        ("blurred", "values from 0.3 to 229.8", 255),
    ],
)
def test_data_without_a_scale_gets_a_warning(
    program: Program, data: str, held: str, scale: int
) -> None:
    arguments = ("discover", "net.onnx", "--data", f"{data}.npz", "--delta", "1e6")
    code, out, err = program(*arguments)
    assert code == 0
    assert err.startswith(f"Warning: the data holds {held}, no --scale is given, and epsilon 0.01 ")
    assert f"give --scale {scale} if " in err
    assert err.count("\n") == 1, "no other warning beside it"
    assert "Warning" not in out
    _, out, told = program(*arguments, "--json", "--quiet")
    assert told == err
    assert json.loads(out)["settings"]["scale"] == 1.0


@pytest.mark.parametrize(
    "arguments",
    [
        ["scaled.npz"],
        ["normalised.npz"],
        ["binary.npz"],
        ["image.png"],
        ["uint8.npz", "--scale", "255"],
        ["uint8.npz", "--scale", "1"],
        ["cast.npz", "--eps", "2"],
        ["cast.npz", "--scale", "255", "--mean", "0.5", "--std", "0.25"],
    ],
)
def test_other_data_gets_none(program: Program, arguments: list[str]) -> None:
    code, _, err = program("discover", "net.onnx", "--delta", "1e6", "--data", *arguments)
    assert (code, err) == (0, "")


def test_data_of_means_is_looked_at_too(program: Program) -> None:
    arguments = ["discover", "net.onnx", "--data", "scaled.npz", "--delta", "1e6"]
    arguments += ["--patching", "mean", "--patch-data", "uint8.npz"]
    code, _, err = program(*arguments, "--out", "run")
    assert code == 0
    assert "give --scale 255 if the network takes pixels of 0 to 1" in err


def test_an_export_with_means_over_such_data_warns(program: Program) -> None:
    graph = pc.Graph.from_onnx("net.onnx")
    circuit = graph.components("neuron").full()
    Path("circuit.json").write_text(circuit.remove(circuit.names[0]).to_json())
    arguments = ["export", "net.onnx", "circuit.json", "--onnx", "out.onnx", "--patching", "mean"]
    arguments += ["--granularity", "neuron"]
    code, _, err = program(*arguments, "--patch-data", "uint8.npz")
    assert code == 0, err
    assert err.startswith("Warning: the data holds integers from 0 to 255, no --scale is given: ")
    code, _, err = program(*arguments, "--patch-data", "uint8.npz", "--scale", "255")
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "epsilon 0.01 in pixel scale (0.04 after normalisation)"),
        (["--eps-scale", "input"], "epsilon 0.0025 in pixel scale (0.01 after normalisation)"),
        (["--norm", "2"], "epsilon 0.01 in pixel scale (0.04 after normalisation)"),
    ],
)
def test_epsilon_is_told_in_pixels_first(program: Program, options: list[str], told: str) -> None:
    arguments = ["discover", "net.onnx", "--data", "uint8.npz", "--scale", "255", "--delta", "1e6"]
    arguments += ["--mean", "0.5", "--std", "0.25", *options]
    _, out, _ = program(*arguments)
    assert f"Scale: {told}, the data divided by 255\n" in out
    assert f"eps {told.removeprefix('epsilon ')}, p " in out
    found: dict[str, Any] = json.loads(program(*arguments, "--json")[1])
    assert told.removeprefix("epsilon ") in found["claim"]["inputs"][0]
    assert told.removeprefix("epsilon ") in found["claim"]["in_words"]["inputs"][0]


def test_a_network_that_fails_the_claim_is_told_of_in_pixels_too(program: Program) -> None:
    arguments = ["discover", "net.onnx", "--data", "uint8.npz", "--scale", "255", "--eps", "1"]
    arguments += ["--mean", "0.5", "--std", "0.25", "--metric", "winner-margin", "--index", "1"]
    code, _, err = program(*arguments)
    assert code == 1
    assert "eps 1 in pixel scale (4 after normalisation), p inf): output " in err
    assert err.endswith("Input 0 is number 1 of the data.\n")
