"""Rows of minimality: no label stands beside a circuit that shows it to be false."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import provable_circuits as pc
from provable_circuits.experiments.assumptions import ALGORITHMS, label_cells, settled_row
from provable_circuits.experiments.journal import Journal
from provable_circuits.experiments.tables import minimality_table
from provable_circuits.zoo.toy import xor_network

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def cell(components: str, notion: str = "none", lower: int | None = None) -> dict[str, Any]:
    holds = "unknown" if notion == "none" else "assumed"
    return {
        "size": len(components),
        "of": 9,
        "components": list(components),
        "faithful": "proved",
        "seconds": 1.0,
        "seconds_undecided": 0.0,
        "queries": {"proved": 2},
        "lower": lower,
        "notion": notion,
        "holds": holds,
        "timeline": [{"seconds": 0.1, "size": len(components), "lower": lower or 0, "queries": 2}],
    }


def row(**cells: dict[str, Any]) -> dict[str, Any]:
    """A row as earlier versions wrote it."""
    told = {name: cells.get(name.replace("-", "_"), cell("abcdefg")) for name in ALGORITHMS}
    return {"key": "0", "patching": "reachable", "metric": "m", "eps": 1, "delta": 1, **told}


def contradictions(rows: list[dict[str, Any]]) -> list[str]:
    """Labels that a circuit of the same row shows to be false, by their definition."""
    found = []
    for own in (row for row in rows if not row.get("network_fails")):
        cells = [own[name] for name in ALGORITHMS]
        proved = [set(c["components"]) for c in cells if c["faithful"] == "proved"]
        least = min(map(len, proved))
        for name in ALGORITHMS:
            told, circuit = own[name], set(own[name]["components"])
            if told["notion"] == "cardinal" and least < len(circuit):
                found.append(f"{own['key']} {name} smallest")
            if told["notion"] in ("subset", "cardinal") and any(p < circuit for p in proved):
                found.append(f"{own['key']} {name} subset")
            bounds = [told["lower"], *(moment["lower"] for moment in told["timeline"])]
            if any(bound is not None and bound > least for bound in bounds):
                found.append(f"{own['key']} {name} bound")
    return found


def test_a_row_in_which_one_search_refutes_another() -> None:
    old = row(
        greedy=cell("abcd", "subset"),
        blocking_sets=cell("abe", "cardinal", 3),
        hitting_set=cell("ab", "cardinal", 2),
    )
    assert contradictions([old])
    new = settled_row(old)
    assert contradictions([new]) == []
    for name in ("greedy", "blocking-sets", "hitting-set"):
        assert new[name]["notion"] == "none"
        assert new[name]["lower"] is None
        assert new[name]["withdrawn"]["because"].endswith("if the predicate is monotone: it is not")
    assert new["hitting-set"]["withdrawn"]["notion"] == "cardinal"
    assert new["hitting-set"]["withdrawn"]["lower"] == 2
    assert "withdrawn" not in new["binary-search"]
    assert settled_row(new) == new
    assert old["greedy"]["notion"] == "subset"


def test_a_search_that_saw_the_contradiction_itself() -> None:
    """In rows of earlier versions it has no lower bound at any time."""
    seen = cell("ab")
    seen["timeline"][0]["lower"] = None
    new = settled_row(row(greedy=cell("abc", "subset"), hitting_set=seen))
    assert new["greedy"]["notion"] == "none"
    assert (
        "hitting-set refuted a circuit around a faithful one"
        in (new["greedy"]["withdrawn"]["because"])
    )


def test_rows_without_a_contradiction_stay_as_they_are() -> None:
    plain = row(greedy=cell("abc", "subset"), hitting_set=cell("abc", "cardinal", 3))
    assert settled_row(plain) is plain


def test_the_table_counts_what_was_withdrawn() -> None:
    rows = [
        settled_row(row(greedy=cell("abc", "subset"), hitting_set=cell("abd", "cardinal", 3))),
        settled_row(row(greedy=cell("ab", "subset"), hitting_set=cell("abc", "cardinal", 3))),
    ]
    heads, lines = minimality_table(rows)
    told = {line[1]: dict(zip(heads, line, strict=True)) for line in lines}
    assert told["hitting-set"]["shown smallest"] == "1"
    assert told["hitting-set"]["rests on an assumption"] == "1"
    assert told["hitting-set"]["labels withdrawn"] == "1, 1 of them smallest"
    assert told["hitting-set"]["lower bound (mean)"] == "3.00 (of 1 inputs)"
    assert told["greedy"]["labels withdrawn"] == "1"
    assert told["binary-search"]["labels withdrawn"] == "0"


def test_labels_of_real_searches() -> None:
    toy = xor_network()
    claim = pc.Claim([pc.Point(x) for x in toy.inputs], pc.Zero(), pc.MaxAbs(0.0))
    alone = toy.components.circuit(["v/v1"])
    results = {
        "hitting-set": pc.discover(
            toy.graph,
            claim,
            toy.components,
            "hitting-set",
            assume_monotone=True,
            certify=False,
        ),
        "greedy": pc.discover(
            toy.graph, claim, toy.components, lambda s: s.ask(alone), certify=False
        ),
    }
    cells = label_cells(results)
    assert cells["hitting-set"]["notion"] == "local"
    assert cells["hitting-set"]["withdrawn"]["lower"] == 5
    assert "withdrawn" not in cells["greedy"]


@pytest.mark.parametrize("seed", range(3))
def test_no_label_of_a_search_with_reachable_patches_is_contradicted(seed: int) -> None:
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)]
    graph = pc.Graph.from_torch(torch.nn.Sequential(*layers), torch.zeros(1, 3))
    claim = pc.Claim([pc.Ball([0.5, 0.4, 0.3], 0.2)], pc.Reachable(0.3), pc.LogitDifference(0.2, 0))
    results = {
        name: pc.discover(graph, claim, algorithm=name, certify=False) for name in ALGORITHMS
    }
    labels = label_cells(results)
    own = {
        name: {
            "components": list(result.circuit.names),
            "faithful": result.faithful,
            **labels[name],
        }
        for name, result in results.items()
    }
    assert contradictions([{"key": "0", **own}]) == []


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/minimality/rows.jsonl")), ids=str)
def test_the_results_that_are_shipped(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()][1:]
    assert contradictions(rows) == []
    assert [settled_row(own) for own in rows] == rows
    assert sum("withdrawn" in own[name] for own in rows for name in ALGORITHMS) > 0


def test_a_journal_is_revised_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "rows.jsonl", {"of": "this"})
    for key in "abc":
        journal.add({"key": key, "value": 1})
    before = journal.path.read_text()
    journal.revise([{"key": "b", "value": 1}])
    assert journal.path.read_text() == before
    journal.revise([{"key": "b", "value": 2}])
    again = Journal(tmp_path / "rows.jsonl", {"of": "this"})
    assert [row["value"] for row in again.rows.values()] == [1, 2, 1]
    assert list(tmp_path.iterdir()) == [journal.path]
