"""``provable-circuits export``: what it writes is the circuit, and what it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.cli import main
from provable_circuits.properties.verify import decide
from provable_circuits.properties.vnnlib import read_property

Run = Callable[..., tuple[int, str, str]]


def call(*arguments: str) -> int:
    """The command line, in this process."""
    before, sys.argv = sys.argv, ["provable-circuits", *arguments]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network, data, and runs of three patchings."""
    made = tmp_path_factory.mktemp("export")
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    pc.Graph.from_torch(net, torch.zeros(1, 4)).to_onnx(made / "net.onnx")
    pc.Graph.from_torch(net[:1], torch.zeros(1, 4)).to_onnx(made / "other.onnx")
    generator = np.random.default_rng(0)
    np.savez(made / "data.npz", x=generator.random((5, 4)) * 100)
    np.savez(made / "more.npz", x=generator.random((120, 4)) * 100)
    common = ["discover", str(made / "net.onnx"), "--data", str(made / "data.npz"), "--quiet"]
    common += ["--index", "1,3", "--scale", "100", "--mean", "0.2", "--std", "0.5"]
    for patching in ("zero", "mean", "interval"):
        more = ["--delta", "0.02", "--patching", patching, "--out", str(made / patching)]
        assert call(*common, *more) == 0
    (made / "alone.json").write_text((made / "mean" / "circuit.json").read_text())
    (made / "empty").mkdir()
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> Run:
    """Calls the command in that folder; exit code and both streams."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: (call("export", "net.onnx", *arguments), *capsys.readouterr())


def inputs(name: str = "data.npz") -> torch.Tensor:
    """Data as the network takes it."""
    return torch.from_numpy((np.load(name)["x"] / 100 - 0.2) / 0.5)


def circuit(run: str) -> pc.Circuit:
    components = pc.Graph.from_onnx("net.onnx").components()
    return pc.Circuit.from_json(Path(run, "circuit.json").read_text(), components)


def outputs(file: str, x: torch.Tensor) -> torch.Tensor:
    session = onnxruntime.InferenceSession(file)
    found: Any = session.run(None, {session.get_inputs()[0].name: x.float().numpy()})[0]
    return torch.from_numpy(found)


@pytest.mark.parametrize("patching", ["zero", "mean"])
def test_the_network_and_the_module_compute_the_circuit(run: Run, patching: str) -> None:
    code, out, err = run(patching, "--onnx", "c.onnx", "--torch", "c.pt2")
    assert (code, err) == (0, "")
    kept = circuit(patching)
    assert 0 < len(kept) < 9
    assert f"Circuit: {len(kept)} of 9 components" in out
    x = inputs()
    wanted = kept.run(x.float(), pc.Zero() if patching == "zero" else pc.Mean(x))
    torch.testing.assert_close(outputs("c.onnx", x), wanted)
    module = torch.export.load("c.pt2").module()
    torch.testing.assert_close(module(x.float()), wanted)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert f"The circuit's layers have {count} of the network's 51 weights." in out
    assert count < 51


def test_a_patching_that_ranges_needs_a_value(run: Run) -> None:
    code, out, err = run("interval", "--onnx", "c.onnx")
    assert (code, out) == (2, "")
    assert "no single function" in err
    x, kept = inputs(), circuit("interval")
    assert run("interval", "--onnx", "c.onnx", "--patch-value", "0.5")[0] == 0
    torch.testing.assert_close(outputs("c.onnx", x), kept.run(x.float(), pc.Constant(0.5)))
    assert run("interval", "--onnx", "c.onnx", "--patching", "mean")[0] == 0
    torch.testing.assert_close(outputs("c.onnx", x), kept.run(x.float(), pc.Mean(x)))


def test_a_circuit_alone_can_be_given_data(run: Run) -> None:
    x, kept = inputs(), circuit("mean")
    code, out, _ = run("alone.json", "--onnx", "c.onnx")
    assert code == 0
    assert "Removed components output zero." in out
    torch.testing.assert_close(outputs("c.onnx", x), kept.run(x.float()))
    scale = ["--scale", "100", "--mean", "0.2", "--std", "0.5"]
    code, out, _ = run(
        "alone.json", "--onnx", "c.onnx", "--patching", "mean", "--patch-data", "more.npz", *scale
    )
    assert code == 0
    assert "their means over more.npz" in out
    wanted = kept.run(x.float(), pc.Mean(inputs("more.npz")))
    torch.testing.assert_close(outputs("c.onnx", x), wanted)


def test_the_graph_of_components(run: Run) -> None:
    code, out, err = run("mean/circuit.json", "--graph", "g.json", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["written"] == {"graph": "g.json"}
    assert Path("g.json").read_text() == circuit("mean").to_eap_json() + "\n"
    assert run("mean", "--graph", "g.json", "--heads", "--quiet") == (0, "", "")
    assert Path("g.json").read_text() == circuit("mean").to_eap_json(heads=True) + "\n"


@pytest.mark.parametrize("patching", ["mean", "interval"])
def test_the_question_has_the_answer_of_the_run(run: Run, patching: str) -> None:
    code, out, err = run(patching, "--vnnlib", "questions", "--json")
    assert (code, err) == (0, "")
    files = json.loads(out)["written"]["vnnlib"]
    assert len(files) == 4
    for network, question in zip(files[::2], files[1::2], strict=True):
        answer = decide(pc.Graph.from_onnx(network), read_property(question))
        assert answer.status == "holds"


def test_data_that_has_moved_or_changed(run: Run, folder: Path) -> None:
    data, moved = folder / "data.npz", folder / "moved.npz"
    data.rename(moved)
    try:
        code, _, err = run("mean", "--onnx", "c.onnx")
        assert code == 2
        assert "say with --data where it is" in err
        assert run("mean", "--onnx", "c.onnx", "--data", "moved.npz")[0] == 0
        assert run("zero", "--onnx", "c.onnx")[0] == 0
        for arguments in (["--onnx", "c.onnx"], ["--vnnlib", "questions"]):
            code, _, err = run("mean", *arguments, "--data", "more.npz")
            assert code == 2
            assert "is not what the run was made with" in err
    finally:
        moved.rename(data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mean"], "Say what to write"),
        (["mean", "--onnx", "c.pt"], "must be a file that ends in .onnx"),
        (["mean", "--torch", "c.pt"], "must be a file that ends in .pt2"),
        (["mean", "--graph", "c"], "must be a file that ends in .json"),
        (["mean", "--onnx", "no/c.onnx"], "cannot be written"),
        (["mean", "--torch", "no/c.pt2"], "cannot be written"),
        (["mean", "--graph", "no/c.json"], "cannot be written"),
        (["mean", "--vnnlib", "net.onnx"], "cannot be made"),
        (["mean", "--onnx", "c.onnx", "--heads"], "belongs to --graph"),
        (["mean", "--onnx", "c.onnx", "--patching", "zero", "--patch-value", "1"], "not both"),
        (["nothing", "--onnx", "c.onnx"], "There is no file 'nothing'"),
        (["empty", "--onnx", "c.onnx"], "has no circuit.json"),
        (["data.npz", "--onnx", "c.onnx"], "is not a circuit"),
        (["mean/result.json", "--onnx", "c.onnx"], "must be a JSON object of format"),
        (["alone.json", "--onnx", "c.onnx", "--no-outputs"], "use the same granularity"),
        (["alone.json", "--onnx", "c.onnx", "--patching", "mean"], "--patch-data"),
        (["alone.json", "--vnnlib", "questions"], "a circuit alone has none"),
    ],
)
def test_wrong_calls_end_with_2_and_a_sentence(
    run: Run, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_a_circuit_of_another_network(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("export", "other.onnx", "mean", "--onnx", "c.onnx") == 2
    assert "belongs to another network" in capsys.readouterr().err


def test_a_damaged_result_is_told_of(run: Run, folder: Path) -> None:
    damaged = folder / "damaged"
    damaged.mkdir()
    (damaged / "circuit.json").write_text((folder / "mean" / "circuit.json").read_text())
    whole = json.loads((folder / "mean" / "result.json").read_text())
    less = {name: value for name, value in whole["settings"].items() if name != "eps"}
    for text, message in [
        ("{", "is not the result of a run"),
        ("[]", "is not the result of a run"),
        (json.dumps({"settings": 1}), "is not the result of a run"),
        (json.dumps({"settings": less}), "does not tell 'eps'"),
        (json.dumps({"settings": {**whole["settings"], "norm": 7}}), "make no claim"),
        (json.dumps({"settings": {**whole["settings"], "scale": "a"}}), "make no claim"),
        (
            json.dumps({"settings": {}, "claim": {"patching": "Mean(data)"}}),
            "was made in Python, with the patching Mean(data)",
        ),
    ]:
        (damaged / "result.json").write_text(text)
        code, _, err = run("damaged", "--onnx", "c.onnx")
        assert code == 2
        assert message in err
