"""Inputs that the network gets wrong are marked as such: in text, in documents, on pages."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import provable_circuits as pc
from provable_circuits.discover.results.labels import MOST, label_document, label_lines
from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear
from provable_circuits.report.comparison import Comparison
from provable_circuits.report.page.build import report_page
from provable_circuits.report.text import print_comparison, print_run

INPUTS = torch.eye(3, dtype=torch.float64)
LABELS = [0, 2, 2]
"""The network below says 0, 1, 2: the second is wrong."""


def search(outputs: int = 3) -> pc.Result:
    """The circuit of a network whose largest output is that of the input's largest value."""
    builder = GraphBuilder()
    x = builder.input("x", (3,))
    weight = torch.eye(3, dtype=torch.float64)[:outputs]
    graph = builder.build([builder.add("fc", Linear(weight), x, layer="fc")])
    claim = pc.Claim([pc.Ball(x, 0.01) for x in INPUTS], pc.Zero(), pc.MaxAbs(0.5))
    return pc.discover(graph, claim, certify=False)


@pytest.fixture(scope="module")
def result() -> pc.Result:
    return search()


def text_of(run: pc.Run) -> str:
    file = io.StringIO()
    print_run(Console(file=file, width=200), run)
    return file.getvalue()


def test_wrong_inputs_are_in_the_document(result: pc.Result) -> None:
    document = result.record(labels=LABELS).document
    assert document["labels"] == {"given": [0, 2, 2], "predicted": [0, 1, 2], "wrong": [1]}
    json.dumps(document)


def test_wrong_inputs_are_in_the_summary(result: pc.Result) -> None:
    lines = str(result.record(labels=LABELS)).splitlines()
    place = lines.index("Labels: the network gets 2 of 3 inputs right")
    assert lines[place + 1] == "  input 1 is WRONG: label 2, network says 1"
    assert not any("WRONG" in line for line in lines[place + 2 :])


def test_nothing_is_said_without_labels(result: pc.Result) -> None:
    run = result.record()
    assert run.document["labels"] is None
    for text in (str(run), text_of(run), report_page(run)):
        assert not re.search("Labels:|WRONG|(gets|class=)[^.]{0,20}wrong", text)


def test_right_inputs_are_not_marked(result: pc.Result) -> None:
    run = result.record(labels=[0, 1, 2])
    assert "Labels: the network gets 3 of 3 inputs right" in str(run)
    assert "WRONG" not in text_of(run)
    assert "The network gets every input right." in report_page(run)
    assert 'class="wrong"' not in report_page(run)


def test_a_witness_near_a_wrong_input_says_so(result: pc.Result) -> None:
    run = result.record(labels=LABELS)
    near = {name: told["input"] for name, told in run.document["witnesses"].items()}
    assert sorted(near.values()) == [0, 1, 2]
    lines = {line.split()[0]: line for line in text_of(run).splitlines() if " near " in line}
    for name, place in near.items():
        marked = "near input 1 (which the network gets wrong), " in lines[name]
        assert marked == (place == 1)


def test_wrong_inputs_are_marked_on_the_page(result: pc.Result) -> None:
    page = report_page(result.record(labels=LABELS))
    titles = re.findall(r'<p class="input-title">(.*?)</p>', page)
    assert titles == ["Input 0", 'Input 1 <span class="wrong">wrong</span>', "Input 2"]
    assert "The network gets 1 of 3 inputs wrong: number 1." in page
    assert page.count("near input 1 (which the network gets wrong)") >= 1
    assert "near input 2 (which" not in page


def test_compared_runs_tell_it_too(result: pc.Result) -> None:
    file = io.StringIO()
    both = Comparison(result.record(labels=LABELS), result.record(), ("one", "two"))
    print_comparison(Console(file=file, width=200), both)
    (line,) = [line for line in file.getvalue().splitlines() if line.startswith("labels")]
    assert line.split("  ")[0] == "labels"
    assert "1 of 3 inputs wrong; input 1" in line
    assert "not known" in line
    page = report_page(both)
    assert page.count('<span class="wrong">') == 1


def test_one_output_has_no_class_to_be_wrong_about() -> None:
    run = search(outputs=1).record(labels=[5, 5, 5])
    assert run.document["labels"] is None
    assert run.labels is not None
    assert "Labels:" not in str(run)


def test_a_label_that_is_no_output_is_wrong() -> None:
    assert label_document(np.eye(2), np.array([0, 7])) == {
        "given": [0, 7],
        "predicted": [0, 1],
        "wrong": [1],
    }


def test_of_many_wrong_inputs_some_are_listed() -> None:
    told = label_document(np.tile([1.0, 0.0], (MOST + 5, 1)), np.ones(MOST + 5, dtype=np.int64))
    lines = label_lines(told)
    assert lines[0] == f"Labels: the network gets 0 of {MOST + 5} inputs right"
    assert lines[MOST] == f"  input {MOST - 1} is WRONG: label 1, network says 0"
    assert lines[MOST + 1 :] == ["  and 5 more are wrong"]


@pytest.mark.parametrize("labels", [[1, 2], 1, [[0], [1], [2]], [0.5, 1, 2], ["a", "b", "c"]])
def test_labels_that_are_none_are_refused(result: pc.Result, labels: Any) -> None:
    message = "'labels' parameter must be one whole number for each of the 3 inputs. Got"
    with pytest.raises(ArgumentError, match=message):
        result.record(labels=labels)


@pytest.mark.parametrize(
    "labels", [torch.tensor(LABELS), np.array(LABELS, dtype=np.uint8), np.array(LABELS, float)]
)
def test_labels_may_be_any_whole_numbers(result: pc.Result, labels: Any) -> None:
    assert result.record(labels=labels).document["labels"]["given"] == LABELS


def test_they_are_saved_and_read(result: pc.Result, tmp_path: Path) -> None:
    run = result.record(labels=LABELS)
    run.save(tmp_path)
    assert str(pc.Run.load(tmp_path)) == str(run)
    assert report_page(pc.Run.load(tmp_path)) == report_page(run)


def test_runs_of_earlier_versions_are_marked_too(result: pc.Result, tmp_path: Path) -> None:
    result.record(labels=LABELS).save(tmp_path)
    document = json.loads((tmp_path / "result.json").read_text())
    del document["labels"], document["digests"]
    (tmp_path / "result.json").write_text(json.dumps(document))
    run = pc.Run.load(tmp_path)
    assert run.document["labels"]["wrong"] == [1]
    assert "input 1 is WRONG" in str(run)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"given": [0, 2, 2], "predicted": [0, 1, 2], "wrong": []}, "does not belong"),
        ({"given": [0, 1, 2], "predicted": [0, 1, 2], "wrong": []}, "does not belong"),
        (None, "does not belong"),
        ({"given": [0, 2, 2], "wrong": [1]}, "predicted' is missing"),
        ({"given": "0", "predicted": [], "wrong": []}, "must be"),
    ],
)
def test_a_document_that_says_something_else_is_refused(
    result: pc.Result, tmp_path: Path, told: Any, message: str
) -> None:
    result.record(labels=LABELS).save(tmp_path)
    document = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**document, "labels": told}))
    with pytest.raises(DataError, match=message):
        pc.Run.load(tmp_path)
