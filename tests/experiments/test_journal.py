"""Rows on disk: a run goes on where it was, with nothing lost or done twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provable_circuits.errors import DataError
from provable_circuits.experiments.journal import Journal

HEAD = {"experiment": "coverage"}


def test_rows_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    first = Journal(path, HEAD)
    first.add({"key": "0", "size": 3})
    first.add({"key": "1", "size": 4})
    second = Journal(path, HEAD)
    assert second.rows == {"0": {"key": "0", "size": 3}, "1": {"key": "1", "size": 4}}


@pytest.mark.parametrize("cut", range(1, 18))
def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rows.jsonl"
    journal = Journal(path, HEAD)
    journal.add({"key": "0"})
    journal.add({"key": "1", "a": 2})
    path.write_text(path.read_text()[:-cut])
    again = Journal(path, HEAD)
    assert set(again.rows) == {"0"}
    again.add({"key": "1", "a": 2})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        HEAD,
        {"key": "0"},
        {"key": "1", "a": 2},
    ]


def test_another_run_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "rows.jsonl", HEAD)
    with pytest.raises(DataError, match="is of another run"):
        Journal(tmp_path / "rows.jsonl", {"experiment": "runtime"})


def test_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("not rows\n")
    with pytest.raises(DataError, match="is not one of rows"):
        Journal(tmp_path / "rows.jsonl", HEAD)


def test_a_file_cut_within_its_first_line_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"exper')
    assert Journal(tmp_path / "rows.jsonl", HEAD).rows == {}
    assert Journal(tmp_path / "rows.jsonl", HEAD).rows == {}
