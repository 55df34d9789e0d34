"""Every reader over damaged files: what is read is read, all else is one of our sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.fuzzing import Target, finding, targets

from provable_circuits.errors import DataError

MUTANTS = 300
ALL = {target.name: target for target in targets()}


@pytest.mark.parametrize("name", ALL)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(MUTANTS):
        kind, text = finding(ALL[name], seed, tmp_path)
        assert not text, f"seed {seed}: {text}"
        counts[kind] += 1
    assert counts["refused"] > MUTANTS / 3, "mutants must be damaged"


@pytest.mark.parametrize("name", ALL)
def test_whole_files_are_read(name: str, tmp_path: Path) -> None:
    for file, data in ALL[name].files.items():
        (tmp_path / file).write_bytes(data)
    assert ALL[name].read(tmp_path) is not None


def test_findings_are_noticed(tmp_path: Path) -> None:
    def foreign(_: Path) -> object:
        raise KeyError("x")

    def long(_: Path) -> object:
        raise DataError("x" * 501)

    assert finding(Target("a", {"f": b"1"}, foreign), 0, tmp_path)[0] == "wrong"
    assert finding(Target("b", {"f": b"1"}, long), 0, tmp_path)[0] == "wrong"
    assert finding(Target("c", {"f": b"1"}, lambda _: 1), 0, tmp_path) == ("read", "")
