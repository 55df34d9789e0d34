"""Journals are shown, checked, merged, exported and pruned."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.discover.journal.searches import question

import provable_circuits as pc
from provable_circuits.discover.journal import upkeep
from provable_circuits.discover.journal.store import VerdictJournal

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    graph, claim = question()
    pc.discover(graph, claim, journal=tmp_path / "one" / "journal.sqlite")
    graph, claim = question(tolerance=0.2)
    pc.discover(graph, claim, "neuron", "exhaustive", journal=tmp_path / "two")
    return tmp_path


def count(path: Path) -> int:
    with VerdictJournal(path, existing=True) as journal:
        return sum(
            held.verdicts[kind] for held in upkeep.contents(journal) for kind in held.verdicts
        )


def test_what_is_there_is_shown(program: Program, folder: Path) -> None:
    code, out, err = program("journal", "show", str(folder / "one"), "--json")
    assert (code, err) == (0, "")
    (shown,) = json.loads(out)
    assert shown["current"]
    assert shown["verdicts"]["proved"] > 0
    assert shown["verdicts"]["refuted"] > 0
    code, out, _ = program("journal", "show", str(folder / "two"))
    assert "current" in out


def test_a_damaged_journal_is_told(program: Program, folder: Path) -> None:
    code, out, _ = program("journal", "check", str(folder / "one"))
    assert (code, out.split()[1:]) == (0, ["entries,", "0", "faults."])
    connection = sqlite3.connect(folder / "two")
    connection.execute("UPDATE verdicts SET stage = 'pool' WHERE id = 2")
    connection.commit()
    connection.close()
    code, out, _ = program("journal", "check", str(folder / "two"))
    assert code == 1
    assert "Entry 2 is not what was written." in out
    code, _, err = program("journal", "check", str(folder / "none"))
    assert (code, err) == (2, f"Error: There is no journal '{folder / 'none'}'.\n")


def test_journals_are_merged(program: Program, folder: Path) -> None:
    both = str(folder / "both")
    sizes = [count(folder / "one" / "journal.sqlite"), count(folder / "two")]
    code, out, _ = program("journal", "merge", both, str(folder / "one"), str(folder / "two"))
    assert code == 0
    assert [int(line.rsplit(": ")[1].split()[0]) for line in out.splitlines()] == sizes
    assert count(folder / "both") == sum(sizes)
    code, out, _ = program("journal", "merge", both, str(folder / "one"))
    assert "0 entries taken over" in out


def test_entries_are_exported(program: Program, folder: Path) -> None:
    code, out, _ = program("journal", "export", str(folder / "one"))
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == count(folder / "one" / "journal.sqlite")
    witnesses = [line["witness"]["z"] for line in lines if line["verdict"] == "refuted"]
    assert witnesses
    assert all(len(z) == 4 for z in witnesses)


def test_answers_of_other_code_are_pruned(
    program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "0 entries removed." in program("journal", "prune", str(folder / "one"))[1]
    monkeypatch.setattr(upkeep, "code_version", lambda: "later")
    before = count(folder / "two")
    assert f"{before} entries removed." in program("journal", "prune", str(folder / "two"))[1]
    assert count(folder / "two") == 0
