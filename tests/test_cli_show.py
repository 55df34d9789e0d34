"""``provable-circuits show``: what it prints and writes, how it ends, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import provable_circuits as pc

Show = Callable[..., tuple[int, str, str]]


def result(seed: int, tolerance: float) -> pc.Result:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 4))
    claim = pc.Claim(pc.Ball([0.9, 0.1, 0.6, 0.4], 0.01), pc.Zero(), pc.LogitDifference(tolerance))
    return pc.discover(graph, claim, algorithm="exhaustive")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs about one network, and one about another."""
    made = tmp_path_factory.mktemp("show")
    result(5, 0.1).save(made / "loose")
    result(5, 0.001).save(made / "tight")
    result(6, 0.1).save(made / "other")
    return made


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, program: Show, folder: Path) -> Show:
    """Calls the command line in that folder; exit code and both streams."""
    monkeypatch.chdir(folder)
    return partial(program, "show")


def test_a_run_is_told_as_after_its_search(show: Show) -> None:
    code, out, err = show("loose/")
    assert (code, err) == (0, "")
    run = pc.Run.load("loose")
    assert out.startswith(f"{run}\nWitnesses:\n")
    for name, told in run.document["witnesses"].items():
        assert f"{name}" in out
        assert f"near input {told['input']}, {told['in_words']}" in out


def test_two_runs_are_told_side_by_side(show: Show) -> None:
    code, out, err = show("loose", "tight")
    assert (code, err) == (0, "")
    loose, tight = pc.Run.load("loose"), pc.Run.load("tight")
    lines = [line.split() for line in out.splitlines()]
    assert ["loose", "tight"] in lines
    sizes = [str(len(run.kept)) for run in (loose, tight)]
    assert ["components", sizes[0], "of", "9", sizes[1], "of", "9"] in lines
    only = [name for name in tight.kept if name not in loose.kept]
    assert f"Only in tight ({len(only)}): {', '.join(only)}\n" in out


def test_the_document_is_printed(show: Show) -> None:
    code, out, _ = show("loose", "--json")
    assert code == 0
    assert json.loads(out) == pc.Run.load("loose").document
    _, out, _ = show("loose", "tight", "--json")
    document = json.loads(out)
    assert document["runs"] == ["loose", "tight"]
    assert document["second"] == pc.Run.load("tight").document


def test_the_page_is_written(show: Show, tmp_path: Path) -> None:
    code, out, err = show("loose", "--html")
    assert (code, out, err) == (0, "Written to loose/report.html\n", "")
    assert "provably enough" in Path("loose/report.html").read_text(encoding="utf-8")
    _, out, _ = show("loose", "tight", "--html")
    assert out == "Written to loose/comparison.html\n"
    assert "loose and tight, compared" in Path("loose/comparison.html").read_text(encoding="utf-8")
    place = tmp_path / "page.html"
    code, out, _ = show("loose", "--html", "--out", str(place), "--json")
    assert json.loads(out)["faithful"] == "proved"
    assert place.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_quiet_prints_nothing(show: Show) -> None:
    assert show("loose", "--quiet") == (0, "", "")
    assert show("loose", "--html", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "There is no folder 'nowhere': write one with provable-circuits discover"),
        (["."], "There is no file 'result.json': the folder is not that of a run."),
        (["loose", "nowhere"], "There is no folder 'nowhere'"),
        (["loose", "other"], "about different networks"),
        (["loose", "--out", "page.html"], "give --html too"),
        (["loose", "--html", "--out", "nowhere/page.html"], "cannot be written: No such file"),
        ([], "Missing argument 'RUN'"),
    ],
)
def test_wrong_calls_end_with_2_and_a_sentence(
    show: Show, arguments: list[str], message: str
) -> None:
    code, out, err = show(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
