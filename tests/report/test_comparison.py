"""Two runs side by side."""

from __future__ import annotations

import html
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.report.runs import digits, network, search

import provable_circuits as pc
from provable_circuits.errors import DataError
from provable_circuits.report.comparison import Comparison, names_of
from provable_circuits.report.page.build import report_page
from provable_circuits.report.text import print_comparison
from provable_circuits.zoo.toy import xor_network


def test_components_are_shared_or_in_one_circuit_only() -> None:
    graph = network(("first", "last"))
    small, large = search(graph, 0.1), search(graph, 0.001)
    comparison = Comparison(small.record(), large.record(), ("a", "b"))
    assert comparison.shared == (small.circuit & large.circuit).names
    assert comparison.first_only == (small.circuit - large.circuit).names
    assert comparison.second_only == (large.circuit - small.circuit).names
    assert comparison.second_only
    statuses = {node.name: node.status for node in comparison.diagram.nodes}
    assert [n for n, s in statuses.items() if s == "second only"] == list(comparison.second_only)
    assert [n for n, s in statuses.items() if s == "kept"] == list(comparison.shared)
    assert comparison.diagram.compared == ("a", "b")
    document = comparison.document()
    assert document["shared"] == list(comparison.shared)
    assert document["first"]["circuit"]["size"] == len(small.circuit)


def test_different_networks_are_refused() -> None:
    other = search(network(("first", "last"))).record()
    with pytest.raises(DataError, match="about different networks"):
        Comparison(digits(), other, ("a", "b"))


def test_different_components_are_refused() -> None:
    graph = network(("first", "last"))
    claim = search(graph).claim
    fewer = pc.discover(graph, claim, outputs=False, certify=False).record()
    with pytest.raises(DataError, match="different components"):
        Comparison(search(graph).record(), fewer, ("a", "b"))


def xor_runs() -> tuple[pc.Run, pc.Run]:
    """A circuit called smallest, if the predicate is monotone, and a smaller one of that claim."""
    toy = xor_network()
    claim = pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), pc.MaxAbs(0.0))
    alone = toy.components.circuit(["v/v1"])
    large = pc.discover(
        toy.graph, claim, toy.components, "hitting-set", assume_monotone=True, certify=False
    )
    small = pc.discover(
        toy.graph, claim, toy.components, lambda search: search.ask(alone), certify=False
    )
    return large.record(), small.record()


@pytest.mark.parametrize("turned", [False, True])
def test_labels_that_the_other_run_refutes_are_withdrawn(turned: bool) -> None:
    """In the text, in JSON and on the page."""
    large, small = xor_runs()
    assert "Minimal: cardinal, if the predicate is monotone" in str(large)
    runs, names = ((small, large), ("s", "b")) if turned else ((large, small), ("b", "s"))
    comparison = Comparison(*runs, names)
    own = comparison.second if turned else comparison.first
    (sentence,) = comparison.withdrawn
    assert sentence.startswith(
        "b: cardinal minimality and the lower bound of 5 components, since s proved a circuit of 1"
    )
    document = json.loads(json.dumps(comparison.document()))
    assert document["withdrawn"] == [sentence]
    told = document["second" if turned else "first"]["minimality"]
    assert (told["notion"], told["lower"]) == ("local", None)
    assert told["notions"]["cardinal"] == told["notions"]["subset"] == "no"
    assert all(m["lower"] is None for m in own.document["timeline"])
    text = printed(comparison)
    assert f"Withdrawn from {sentence}" in " ".join(text.split())
    assert "cardinal, if" not in text
    assert "5 components" not in text.replace("bound of 5 components", "")
    page = report_page(comparison)
    assert f"Withdrawn from {sentence}" in html.unescape(page)
    assert "smallest, if monotone" not in page
    assert "smallest, if monotone" in report_page(large)


def test_runs_about_other_claims_leave_labels_alone() -> None:
    large, small = xor_runs()
    other = dict(small.document)
    other["claim"] = {**other["claim"], "digest": "another"}
    comparison = Comparison(large, replace(small, document=other), ("b", "s"))
    assert comparison.withdrawn == ()
    assert comparison.first.document == large.document
    assert comparison.document()["withdrawn"] == []


@pytest.mark.parametrize("moved", [False, True])
def test_runs_of_earlier_versions_are_the_same_claim_by_what_they_tell(moved: bool) -> None:
    runs = []
    for run in xor_runs():
        document = {k: v for k, v in run.document.items() if k != "shown"}
        document["claim"] = {k: v for k, v in document["claim"].items() if k != "digest"}
        runs.append(replace(run, document=document))
    if moved:
        runs[1] = replace(runs[1], inputs=runs[1].inputs + 1)
    comparison = Comparison(runs[0], runs[1], ("b", "s"))
    assert bool(comparison.withdrawn) is not moved


def test_what_was_withdrawn_is_read_again(tmp_path: Path) -> None:
    comparison = Comparison(*xor_runs(), ("b", "s"))
    comparison.first.save(tmp_path)
    again = pc.Run.load(tmp_path)
    assert again.document["minimality"] == comparison.first.document["minimality"]
    assert "cardinal minimality was withdrawn: s proved a circuit of 1" in str(again)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("shown", {"proved": ["-1"], "refuted": []}),
        ("shown", {"proved": ["ffff"], "refuted": []}),
        ("shown", {"proved": [3], "refuted": []}),
        ("shown", {"proved": []}),
        ("claim.digest", 3),
        ("minimality.withdrawn", {"because": "so"}),
    ],
)
def test_damaged_evidence_is_refused(tmp_path: Path, place: str, value: Any) -> None:
    large, _ = xor_runs()
    large.save(tmp_path)
    document = json.loads((tmp_path / "result.json").read_text())
    *way, last = place.split(".")
    part = document
    for step in way:
        part = part[step]
    part[last] = value
    (tmp_path / "result.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="is not that of a run"):
        pc.Run.load(tmp_path)


def printed(comparison: Comparison) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_comparison(console, comparison)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_folders_are_called_by_their_names() -> None:
    assert names_of(Path("runs/a"), Path("runs/b/")) == ("a", "b")
    assert names_of(Path("one/run"), Path("two/run")) == ("run (first)", "run (second)")
