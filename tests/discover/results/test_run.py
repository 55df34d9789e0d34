"""Runs: what is kept of a search can be read again without its model, and nothing else can."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.clock import Clock
from torch import nn

import provable_circuits as pc
from provable_circuits.discover.results.json_shape import fits
from provable_circuits.errors import DataError
from provable_circuits.report.comparison import Comparison
from provable_circuits.report.page.build import report_page

Change = Callable[[dict[str, Any]], None]
FILES = {"result.json", "circuit.json", "diagram.json", "inputs.npz", "witnesses.npz"}


def search(patching: pc.Patching) -> pc.Result:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 4))
    x = torch.tensor([[0.9, 0.1, 0.6, 0.4], [0.8, 0.2, 0.5, 0.5]])
    claim = pc.Claim([pc.Ball(v, 0.01) for v in x], patching, pc.LogitDifference(0.05))
    return pc.discover(graph, claim, algorithm="exhaustive", certify=False)


@pytest.fixture(scope="module")
def result() -> pc.Result:
    return search(pc.Reachable(eps=0.1))


@pytest.fixture
def folder(result: pc.Result, tmp_path: Path) -> Path:
    result.save(tmp_path / "run")
    return tmp_path / "run"


def edit(path: Path, change: Change) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_saved_result_is_read_as_it_was(result: pc.Result, folder: Path) -> None:
    run = pc.Run.load(folder)
    assert run.document == json.loads(json.dumps(result.record().document))
    assert str(run) == str(result)
    assert run.kept == result.circuit.names
    assert run.components == result.circuit.components.names
    assert run.diagram == result.record().diagram
    np.testing.assert_array_equal(run.inputs, result.claim.centers.numpy())
    graph = result.circuit.components.graph
    expected = graph.run(result.claim.centers, torch.float64).numpy()
    np.testing.assert_array_equal(run.outputs, expected)
    assert pc.Circuit.from_json(run.circuit, result.circuit.components) == result.circuit


def test_witnesses_are_kept_and_explained(result: pc.Result, folder: Path) -> None:
    run = pc.Run.load(folder)
    refuted = {n: k.verdict for n, k in result.kept.items() if isinstance(k.verdict, pc.Refuted)}
    assert refuted
    for name, verdict in refuted.items():
        np.testing.assert_array_equal(run.witness(name), verdict.witness.z.numpy())
        patch = verdict.witness.patch_input
        assert patch is not None
        np.testing.assert_array_equal(run.witness(name, "patch_input"), patch.numpy())
        told = run.document["witnesses"][name]
        (place,) = told["matters"]
        apart = abs(told["reference"][place] - told["output"][place])
        assert f"{apart:.4g} apart, where 0.05 is allowed" in told["in_words"]
        assert apart - 0.05 >= told["excess"] > 0
    removed = next(name for name in run.components if name not in run.kept)
    assert run.witness(removed) is None


def test_patch_values_are_kept() -> None:
    run = search(pc.IntervalHull(eps=0.1)).record()
    patches = [name for name in run.witnesses if ":patch:" in name]
    assert patches
    assert all(np.isfinite(run.witnesses[name]).all() for name in patches)


def test_a_record_holds_what_it_is_told(result: pc.Result, tmp_path: Path) -> None:
    run = result.record({"model": "a.onnx"}, labels=torch.tensor([2, 0]), mean=0.5, std=[0.25])
    run.save(tmp_path)
    found = pc.Run.load(tmp_path)
    assert found.document["settings"]["model"] == "a.onnx"
    assert found.document["settings"]["algorithm"] == "exhaustive"
    assert found.document["version"] == pc.__version__
    assert found.labels is not None
    assert found.labels.tolist() == [2, 0]
    np.testing.assert_allclose(found.pixels(found.inputs), found.inputs * 0.25 + 0.5)


def test_joins_and_groups_are_kept(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1, groups=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner: torch.Tensor = self.first(x)
            total: torch.Tensor = inner + self.last(inner)
            return total.flatten(1)

    torch.manual_seed(5)
    graph = pc.Graph.from_torch(Net(), torch.zeros(1, 2, 2, 2))
    claim = pc.Claim(pc.Ball(torch.full((2, 2, 2), 0.5), 0.01), pc.Zero(), pc.MaxAbs(0.3))
    result = pc.discover(graph, claim, certify=False)
    result.save(tmp_path)
    found = pc.Run.load(tmp_path).diagram
    assert found == result.record().diagram
    assert found.joins == ("+",)
    assert ((0, 0), (1, 1)) in [link.pairs for link in found.links]
    for column in (document := json.loads((tmp_path / "diagram.json").read_text()))["columns"]:
        column.pop("join")
    for link in document["links"]:
        link.pop("pairs")
    (tmp_path / "diagram.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"diagram\.json' was changed after the run was saved"):
        pc.Run.load(tmp_path)
    edit(tmp_path / "result.json", lambda told: told.pop("digests"))
    assert pc.Run.load(tmp_path).diagram.joins == (), "as earlier versions wrote it"


def test_an_empty_circuit_can_be_kept(tmp_path: Path) -> None:
    graph = pc.Graph.from_torch(nn.Linear(2, 1), torch.zeros(1, 2))
    claim = pc.Claim(pc.Ball([0.1, 0.2], 0.01), pc.Zero(), pc.MaxAbs(100.0))
    pc.discover(graph, claim, certify=False).save(tmp_path)
    assert pc.Run.load(tmp_path).kept == ()
    assert "the empty circuit is faithful" in str(pc.Run.load(tmp_path))


@pytest.mark.parametrize(
    "file", ["result.json", "circuit.json", "diagram.json", "inputs.npz", "witnesses.npz"]
)
def test_missing_and_cut_files_are_refused(folder: Path, file: str) -> None:
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=f"{file}' is not") as cut:
        pc.Run.load(folder)
    (folder / file).unlink()
    with pytest.raises(DataError, match=f"There is no file '.*{file}'"):
        pc.Run.load(folder)
    assert "\n" not in str(cut.value)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no folder '.*nowhere': write one with"):
        pc.Run.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"There is no file '.*result\.json': the folder is not"):
        pc.Run.load(tmp_path)
    (tmp_path / "result.json").mkdir()
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        pc.Run.load(tmp_path)


def set_to(*path: Any, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("result.json", set_to("format", value="x"), "was not written by provable-circuits"),
        ("result.json", set_to("format_version", value=2), "has the format version 2, and"),
        ("result.json", lambda d: d.pop("kept"), r"'result\.kept' is missing"),
        ("result.json", set_to("seconds", value="1"), r"'result\.seconds' must be a finite number"),
        ("result.json", set_to("stopped", value="tired"), "the word 'tired' at 'result.stopped'"),
        ("result.json", set_to("faithful", value="yes"), "the word 'yes' at 'result.faithful'"),
        ("result.json", set_to("minimality", "holds", value="so"), "the word 'so' at"),
        ("result.json", set_to("circuit", "size", value=99), "does not belong to the others"),
        ("result.json", set_to("circuit", "components", value=["a"]), "does not belong"),
        ("result.json", set_to("circuit", "components", value=[1]), r"components\[0\]' must be a"),
        ("result.json", set_to("settings", value={"model": "\ud800"}), "is not JSON"),
        ("circuit.json", set_to("components", value=[]), r"circuit\.json' does not belong"),
        ("circuit.json", set_to("network", value=""), r"circuit\.json' does not belong"),
        ("diagram.json", set_to("columns", value=[]), r"Link must lead|does not belong"),
        ("diagram.json", set_to("links", value=[]), r"diagram\.json' was changed after"),
        ("diagram.json", set_to("columns", 1, "nodes", 0, "status", value="x"), "'status'"),
        ("diagram.json", set_to("links", 0, "target", value=77), "Link must lead"),
        ("diagram.json", set_to("links", 1, "pairs", value=[[0, 77]]), "'pairs' of a Link must be"),
        ("diagram.json", set_to("links", 1, "pairs", value=[[0]]), "'pairs' of a Link must be"),
        ("diagram.json", set_to("links", 1, "pairs", value="x"), "must be"),
        ("diagram.json", set_to("columns", 0, "join", value="x"), "'join' of a Column must be"),
        ("diagram.json", set_to("columns", 1, "join", value="+"), "'join' of a Column must be"),
        ("diagram.json", set_to("columns", 0, "join", value=1), "must be a text"),
    ],
)
def test_documents_that_say_something_else_are_refused(
    folder: Path, file: str, change: Change, message: str
) -> None:
    edit(folder / file, change)
    with pytest.raises(DataError, match=message):
        pc.Run.load(folder)


@pytest.mark.parametrize(
    ("field", "value"), [("input", 2), ("input", -1), ("matters", [3]), ("output", [0.0])]
)
def test_witnesses_that_do_not_fit_are_refused(folder: Path, field: str, value: Any) -> None:
    name = next(iter(pc.Run.load(folder).document["witnesses"]))
    edit(folder / "result.json", set_to("witnesses", name, field, value=value))
    with pytest.raises(DataError, match=r"result\.json' does not belong to the others"):
        pc.Run.load(folder)


@pytest.mark.parametrize(
    ("file", "arrays", "message"),
    [
        ("inputs.npz", {"x": np.zeros((2, 4))}, "has no array 'outputs'"),
        ("inputs.npz", {"x": np.zeros((1, 4)), "outputs": np.zeros((1, 3))}, "does not belong"),
        ("inputs.npz", {"x": np.zeros((2, 5)), "outputs": np.zeros((2, 3))}, "does not belong"),
        (
            "inputs.npz",
            {"x": np.zeros((2, 4)), "outputs": np.zeros((2, 3)), "y": np.zeros(5)},
            "does not belong",
        ),
        (
            "inputs.npz",
            {"x": np.zeros((2, 4)), "outputs": np.zeros((2, 3)), "mean": np.zeros(1)},
            "does not belong",
        ),
        (
            "inputs.npz",
            {"x": np.full((2, 4), np.nan), "outputs": np.zeros((2, 3))},
            "does not hold finite numbers",
        ),
        ("inputs.npz", {"x": np.array("x"), "outputs": np.zeros((2, 3))}, "has no array 'x'"),
        ("witnesses.npz", {}, "does not belong"),
        ("witnesses.npz", {"a": np.array(["text"])}, "does not hold finite numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    folder: Path, file: str, arrays: dict[str, Any], message: str
) -> None:
    np.savez(folder / file, **arrays)
    with pytest.raises(DataError, match=message):
        pc.Run.load(folder)


def test_pickled_arrays_are_refused(folder: Path) -> None:
    np.savez(folder / "witnesses.npz", a=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"is not a whole \.npz file of plain arrays"):
        pc.Run.load(folder)


def test_a_folder_that_cannot_be_written_is_refused(result: pc.Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        result.save(tmp_path / "file" / "run")
    (tmp_path / "result.json").mkdir()
    with pytest.raises(DataError, match="cannot be written: Is a directory"):
        result.save(tmp_path)
    shutil.rmtree(tmp_path / "result.json")
    result.save(tmp_path)


@pytest.mark.parametrize(
    ("value", "shape", "message"),
    [
        (True, int, "must be a whole number"),
        (10**400, int, "must be a whole number"),
        (10**400, float, "must be a finite number"),
        (float("inf"), float, "must be a finite number"),
        ([1, "a"], [int], r"'document\[1\]' must be a whole number"),
        ({"a": 1}, {str: str}, r"'document\.a' must be a text"),
        ([], {}, "must be an object"),
        ({}, [int], "must be a list"),
        (1, (str, None), "must be a text without control characters or null"),
        (1, bool, "must be true or false"),
        ("\x1b[31m", str, "without control characters"),
    ],
)
def test_shapes_refuse_what_does_not_fit(value: Any, shape: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fits(value, shape)


def test_shapes_accept_what_fits() -> None:
    fits({"a": [1, 2.5], "b": None, "more": 1}, {"a": [float], "b": (int, None)})


def test_a_result_without_a_bound_is_kept(tmp_path: Path, clock: Clock) -> None:
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 4))
    claim = pc.Claim([pc.Ball(torch.ones(4), 0.01)], pc.Zero(), pc.WinnerMargin(0.5))
    clock.step = 1.0
    result = pc.discover(graph, claim, budget=0.5, certify=False)
    assert result.faithful == "undecided"
    assert result.document()["bound"] is None
    result.save(tmp_path)
    assert "Infinity" not in (tmp_path / "result.json").read_text()
    assert pc.Run.load(tmp_path).document["faithful"] == "undecided"


def test_pages_of_an_older_run_do_not_stay_beside_a_new_one(
    result: pc.Result, folder: Path
) -> None:
    run = pc.Run.load(folder)
    pages = {
        "report.html": report_page(run),
        "comparison.html": report_page(Comparison(run, run, ("one", "other"))),
    }
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")
    (folder / "notes.txt").write_text("kept")
    (folder / "mine.html").write_text(pages["report.html"], encoding="utf-8")
    search(pc.Zero()).save(folder)
    assert {path.name for path in folder.iterdir()} == {*FILES, "notes.txt", "mine.html"}
    assert pc.Run.load(folder).document["claim"]["patching"] == "Zero()"


def test_pages_of_others_stay(result: pc.Result, folder: Path) -> None:
    (folder / "report.html").write_text("<title>About provable-circuits</title>")
    (folder / "comparison.html").mkdir()
    result.save(folder)
    assert (folder / "report.html").read_text() == "<title>About provable-circuits</title>"
    assert (folder / "comparison.html").is_dir()
