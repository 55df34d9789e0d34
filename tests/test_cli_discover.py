"""``provable-circuits discover``: what it prints and writes, how it ends, what it refuses."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distributed import LocalCluster
from tests.clock import Clock
from torch import nn

import provable_circuits as pc
from provable_circuits.files import locked
from provable_circuits.report.page.build import report_page

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two networks, and data for them."""
    made = tmp_path_factory.mktemp("discover")
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    pc.Graph.from_torch(net, torch.zeros(1, 4)).to_onnx(made / "net.onnx")
    conv = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    pc.Graph.from_torch(conv, torch.zeros(1, 3, 3, 3)).to_onnx(made / "conv.onnx")
    generator = np.random.default_rng(0)
    np.savez(made / "data.npz", x=generator.random((5, 4)), y=np.array([0, 1, 2, 0, 1]))
    np.savez(made / "bare.npz", x=generator.random((5, 2, 2)).astype(np.float32))
    np.savez(made / "last.npz", x=generator.random((2, 3, 3, 3)).reshape(2, 9, 3))
    np.savez(made / "bytes.npz", x=generator.integers(0, 256, (3, 3, 3, 3)).astype(np.uint8))
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, program: Run, folder: Path) -> Run:
    """Calls the command line in that folder; exit code and both streams."""
    monkeypatch.chdir(folder)
    return partial(program, "discover")


def document(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    ended, out, err = run(*arguments, "--json")
    assert (ended, err) == (code, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_text_tells_the_circuit_and_what_it_rests_on(run: Run) -> None:
    code, out, err = run("net.onnx", "--data", "data.npz", "--index", "0,1", "--delta", "0.2")
    assert (code, err) == (0, "")
    assert out.startswith("Circuit: ")
    for line in (
        "Faithful: certified for every input in 2 domain(s)",
        "Minimal: ",
        "Kept components:",
    ):
        assert line in out
    assert "Scale: epsilon 0.01 in the scale of the network's inputs" in out


def test_the_document_has_what_scripts_rely_on(run: Run) -> None:
    found = document(run, "net.onnx", "--data", "data.npz", "--index", "0,1", "--delta", "0.2")
    assert {
        "circuit",
        "faithful",
        "minimality",
        "kept",
        "queries",
        "seconds",
        "settings",
        "version",
    } <= set(found)
    graph = pc.Graph.from_onnx("net.onnx")
    components = graph.components()
    names = found["circuit"]["components"]
    assert names == [name for name in components.names if name in names]
    assert (found["circuit"]["size"], found["circuit"]["of"]) == (len(names), 9)
    assert set(found["kept"]) == set(names)
    x = np.load("data.npz")["x"]
    claim = pc.Claim([pc.Ball(v, 0.01) for v in x[:2]], pc.Zero(), pc.LogitDifference(0.2))
    assert pc.verify(graph, components.circuit(names), claim).proved
    assert found["circuit"]["components"] == list(pc.discover(graph, claim).circuit.names)
    assert found["settings"]["eps"] == 0.01
    assert found["settings"]["index"] == [0, 1]
    assert found["settings"]["outputs"] is True
    assert found["settings"]["shortcuts"] is False
    assert found["version"] == pc.__version__


@pytest.mark.parametrize(
    "algorithm", ["greedy", "exhaustive", "binary-search", "blocking-sets", "hitting-set"]
)
@pytest.mark.parametrize("patching", ["zero", "mean", "reachable", "interval"])
def test_every_algorithm_and_patching(run: Run, algorithm: str, patching: str) -> None:
    ranging = ["--patch-eps", "0.02"] if patching in ("reachable", "interval") else []
    found = document(
        run,
        *("net.onnx", "--data", "data.npz", "--index", "2", "--delta", "0.1"),
        *("--algorithm", algorithm, "--patching", patching, *ranging),
    )
    assert found["faithful"] == "proved"
    assert found["settings"]["algorithm"] == algorithm
    if patching == "interval" and algorithm == "hitting-set":
        assert found["minimality"]["notion"] == "cardinal"
        assert found["minimality"]["holds"] == "unconditional"


@pytest.mark.parametrize(
    ("metric", "extra"),
    [
        ("logit-difference", ["--target", "label"]),
        ("logit-difference", ["--target", "2"]),
        ("winner-margin", ["--margin-fraction", "0.2"]),
        ("max-abs", []),
        ("norm-1", []),
        ("norm-2", []),
    ],
)
@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_every_metric_and_norm(run: Run, metric: str, extra: list[str], norm: str) -> None:
    found = document(
        run,
        *("net.onnx", "--data", "data.npz", "--index", "3", "--delta", "0.3"),
        *("--metric", metric, "--norm", norm, "--clip", "0,1", *extra),
    )
    assert found["faithful"] == "proved"


def test_the_result_is_written(run: Run) -> None:
    code, out, _ = run("net.onnx", "--data", "data.npz", "--index", "0", "--out", "a/run")
    assert code == 0
    assert "Written to a/run" in out
    found = json.loads(Path("a/run/result.json").read_text())
    components = pc.Graph.from_onnx("net.onnx").components()
    circuit = pc.Circuit.from_json(Path("a/run/circuit.json").read_text(), components)
    assert list(circuit.names) == found["circuit"]["components"]
    with np.load("a/run/witnesses.npz", allow_pickle=False) as arrays:
        assert set(arrays.files) == {f"{n}:z" for n in found["witnesses"]}
    told = pc.Run.load("a/run")
    printed = out.splitlines()
    changed = [line for line in str(told).splitlines() if line not in printed]
    assert [line.split()[0] for line in changed] == ["Faithful:", "NOT"], "it is not checked"
    assert told.document["settings"]["data"] == "data.npz"
    assert told.labels is not None
    assert told.labels.tolist() == [0]


@pytest.mark.parametrize("form", ["--json", "--quiet"])
def test_a_result_that_cannot_be_saved_is_printed_in_full(
    run: Run, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def full(folder: Path, files: dict[str, bytes]) -> None:
        raise OSError(28, "No space left on device")

    module = importlib.import_module("provable_circuits.discover.results.run")
    monkeypatch.setattr(module, "write_folder", full)
    arguments = ["net.onnx", "--data", "data.npz", "--index", "0", form]
    _, alone, _ = run(*arguments)
    code, out, err = run(*arguments, "--out", "full")
    assert code == 2
    assert "The result above could not be saved. The folder 'full' cannot be written: No" in err
    assert len(out.splitlines()) == len(alone.splitlines()) > 5


def test_two_runs_in_one_folder_are_refused(run: Run, folder: Path) -> None:
    arguments = ["net.onnx", "--data", "data.npz", "--index", "0", "--out", "shared"]
    (folder / "shared").mkdir()
    with locked(folder / "shared"):
        code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Another run writes to the folder 'shared'" in err
    assert run(*arguments)[0] == run(*arguments)[0] == 0


def test_pixels_are_normalised_and_epsilon_with_them(run: Run) -> None:
    options = ["conv.onnx", "--data", "bytes.npz", "--index", "0", "--scale", "255"]
    options += ["--mean", "0.5,0.4,0.3", "--std", "0.25,0.5,0.2", "--clip", "0,1", "--eps", "0.02"]
    code, out, _ = run(*options)
    assert code == 0
    assert "Scale: epsilon 0.02 in pixel scale (0.04 to 0.1 after normalisation), the data" in out
    assert "eps 0.02 in pixel scale (0.04 to 0.1 after normalisation), p inf, clipped)" in out
    found = document(run, *options)
    pixels = torch.from_numpy(np.load("bytes.npz")["x"][0] / 255.0)
    mean = torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64).reshape(3, 1, 1)
    std = torch.tensor([0.25, 0.5, 0.2], dtype=torch.float64).reshape(3, 1, 1)
    ball = pc.Ball(
        (pixels - mean) / std, (0.02 / std).expand(3, 3, 3), clip=(-mean / std, (1 - mean) / std)
    )
    claim = pc.Claim([ball], pc.Zero(), pc.LogitDifference(2.0))
    graph = pc.Graph.from_onnx("conv.onnx")
    assert found["circuit"]["components"] == list(pc.discover(graph, claim).circuit.names)
    run(*options, "--out", "scaled")
    told = pc.Run.load("scaled")
    np.testing.assert_allclose(told.pixels(told.inputs)[0], pixels.numpy())
    (words,) = told.document["claim"]["in_words"]["inputs"]
    assert words == (
        "every value may move by up to 0.02 in pixel scale (0.04 to 0.1 after normalisation), "
        "depending on its place, and stays within 0 to 1"
    )
    assert words in report_page(told)
    assert "eps 0.02 in pixel scale" in str(told)
    code, out, _ = run(*options, "--eps-scale", "input")
    assert "Scale: epsilon 0.004 to 0.01 in pixel scale (0.02 after normalisation)" in out
    assert "eps 0.004 to 0.01 in pixel scale (0.02 after normalisation), p inf, clipped)" in out


def test_labels_are_looked_at(run: Run) -> None:
    _, out, _ = run("net.onnx", "--data", "data.npz")
    x, y = (np.load("data.npz")[name] for name in "xy")
    predicted = pc.Graph.from_onnx("net.onnx").run(x).argmax(1).numpy()
    assert 0 < (predicted == y).sum() < 5
    assert out.count(f"Labels: the network gets {(predicted == y).sum()} of 5 inputs right") == 1
    for i, (label, said) in enumerate(zip(y, predicted, strict=True)):
        line = f"  input {i} is WRONG: label {label}, network says {said}\n"
        assert (line in out) == (label != said)
    found = document(run, "net.onnx", "--data", "data.npz")["labels"]
    assert found["given"] == y.tolist()
    assert found["wrong"] == np.flatnonzero(predicted != y).tolist()


def test_where_the_claim_fails_a_wrong_input_is_named_as_one(run: Run) -> None:
    predicted = pc.Graph.from_onnx("net.onnx").run(np.load("data.npz")["x"]).argmax(1).tolist()
    violated = ["--eps", "3", "--metric", "winner-margin", "--margin-fraction", "1"]
    for place, label in enumerate([0, 1, 2, 0, 1]):
        arguments = ("net.onnx", "--data", "data.npz", "--index", str(place), *violated)
        code, out, err = run(*arguments)
        assert (code, out) == (1, "")
        line = f"input 0 is WRONG: label {label}, network says {predicted[place]}"
        assert (line in err) == (label != predicted[place])
        found = document(run, *arguments, code=1)
        assert found["labels"]["wrong"] == ([0] if label != predicted[place] else [])


def test_sampling_is_not_called_proof(run: Run) -> None:
    arguments = ("net.onnx", "--data", "data.npz", "--index", "0", "--method", "sampling")
    assert document(run, *arguments, code=3)["faithful"] == "sampled"


def test_a_network_that_violates_the_claim_ends_with_1(run: Run) -> None:
    arguments = ["net.onnx", "--data", "data.npz", "--index", "0", "--eps", "3"]
    arguments += ["--metric", "winner-margin", "--margin-fraction", "1"]
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert "The network itself violates the claim at input 0 (counted from 0), Ball(" in err
    assert "choose a smaller eps or a smaller fraction, or leave that input out." in err
    assert "tolerance" not in err
    _, _, err = run(*["3" if part == "0" else part for part in arguments])
    assert "at input 0 (counted" in err
    assert err.endswith("Input 0 is number 3 of the data.\n")
    found = document(run, *arguments, code=1)
    assert found["faithful"] == "refuted"
    assert found["witness"]["excess"] > 0


@pytest.mark.parametrize("budget", ["0.5", "30.5"])
def test_a_budget_that_is_too_small_still_ends_well(run: Run, clock: Clock, budget: str) -> None:
    """Looking at the clock takes a second."""
    clock.step = 1.0
    arguments = ["net.onnx", "--data", "data.npz", "--index", "0", "--budget", budget]
    code, out, err = run(*arguments, "--json")
    found = json.loads(out)
    assert err == ""
    assert found["stopped"] == "budget"
    assert 0 < found["circuit"]["size"] <= 9
    assert code == (0 if found["faithful"] == "proved" else 3)


def test_the_smallest_blocking_set_is_offered(run: Run) -> None:
    arguments = ["net.onnx", "--data", "data.npz", "--index", "0", "--delta", "0.001"]
    arguments += ["--patching", "interval", "--blocking-set"]
    found = document(run, *arguments)
    assert found["blocking_set"]["smallest"]
    assert found["blocking_set"]["size"] == len(found["blocking_set"]["components"])
    code, out, _ = run(*arguments)
    assert code == 0
    assert "Blocking set: " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net.onnx", "--data", "no.npz"], "There is no file 'no.npz'"),
        (["net.onnx", "--data", "net.onnx"], "is not an .npz file of plain arrays"),
        (["no.onnx", "--data", "data.npz"], "no.onnx"),
        (["conv.onnx", "--data", "data.npz"], "the network takes [3, 3, 3] per input"),
        (["net.onnx", "--data", "data.npz", "--index", "9"], "the data holds 0 to 4"),
        (["net.onnx", "--data", "data.npz", "--index", "a"], "must be numbers such as 0,1,2"),
        (["net.onnx", "--data", "data.npz", "--clip", "1,0"], "two numbers such as 0,1"),
        (["net.onnx", "--data", "data.npz", "--clip", "0,0.1"], "must enclose the centre"),
        (["net.onnx", "--data", "data.npz", "--target", "x"], "'label' or 'predicted'"),
        (["net.onnx", "--data", "data.npz", "--target", "7"], "0 to 2"),
        (["net.onnx", "--data", "bare.npz", "--target", "label"], "has no labels"),
        (["net.onnx", "--data", "data.npz", "--std", "0"], "must be positive"),
        (["net.onnx", "--data", "data.npz", "--scale", "0"], "must be positive"),
        (
            ["net.onnx", "--data", "data.npz", "--std", "inf"],
            "must be positive, and '--mean' finite",
        ),
        (["net.onnx", "--data", "data.npz", "--mean", ""], "numbers with commas between them"),
        (
            ["net.onnx", "--data", "data.npz", "--patch-eps", "1"],
            "'--patch-eps' option has no meaning",
        ),
        (["net.onnx", "--data", "data.npz", "--points", "1"], "'--points' option has no meaning"),
        (["net.onnx", "--data", "data.npz", "--out", "net.onnx/a"], "cannot be written"),
        (["conv.onnx", "--data", "last.npz"], "(channels first)"),
        (["net.onnx", "--data", "data.npz", "--mean", "1,2"], "one for each channel"),
        (["net.onnx", "--data", "data.npz", "--granularity", "filter"], "no components"),
        (["net.onnx", "--data", "data.npz", "--workers", "2", "--dask", "a"], "not both"),
        (["net.onnx", "--data", "data.npz", "--dask", "tcp://127.0.0.1:1"], "no Dask scheduler"),
        (["net.onnx"], "Missing option '--data'"),
        (["net.onnx", "--data", "data.npz", "--algorithm", "magic"], "'magic' is not one of"),
    ],
)
def test_wrong_calls_end_with_2_and_a_sentence(
    run: Run, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err


def test_many_inputs_must_be_chosen(run: Run) -> None:
    np.savez("many.npz", x=np.zeros((101, 4)))
    code, _, err = run("net.onnx", "--data", "many.npz")
    assert code == 2
    assert "choose some, such as --index 0,1,2" in err


def test_a_dask_cluster_finds_the_same_circuit(run: Run) -> None:
    arguments = ["net.onnx", "--data", "data.npz", "--index", "0", "--delta", "0.001"]
    arguments += ["--patching", "interval", "--algorithm", "blocking-sets"]
    alone = document(run, *arguments)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**settings, host="127.0.0.1") as cluster:
        there = document(run, *arguments, "--dask", cluster.scheduler_address)
    assert there["circuit"] == alone["circuit"]
    assert there["queries"]["by_verdict"] == alone["queries"]["by_verdict"]
    assert there["settings"]["workers"] == "ClientExecutor"
    assert len(alone["circuit"]["components"]) > 0


def test_no_page_of_an_older_run_stays_in_the_folder(run: Run, program: Run) -> None:
    arguments = ["net.onnx", "--data", "data.npz", "--index", "0", "--out", "twice"]
    run(*arguments, "--delta", "0.001")
    assert program("show", "twice", "--html")[0] == 0
    assert Path("twice/report.html").exists()
    run(*arguments, "--delta", "0.5")
    assert not Path("twice/report.html").exists()
    assert json.loads(Path("twice/result.json").read_text())["settings"]["delta"] == 0.5
