"""Files of verdicts: what is written is read, and nothing else is."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest
from tests.discover.journal.searches import predicate

from provable_circuits.discover.journal import store
from provable_circuits.discover.journal.keys import QuestionSetting
from provable_circuits.discover.journal.store import VerdictJournal
from provable_circuits.errors import DataError
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Proved

SETTING = QuestionSetting("network", "components", "claim", ("input",), "code", "{}", "words")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    made = predicate(tmp_path / "j")
    components = made.components
    made.ask([components.full().remove(c.name) for c in components])
    made.close()
    return tmp_path / "j"


def test_what_is_written_is_found_by_its_key(tmp_path: Path) -> None:
    with VerdictJournal(tmp_path / "deep" / "j") as journal:
        assert journal.find(SETTING, 5) is None
        journal.add(SETTING, 5, Proved(-0.5, Stage.LINEAR), 1.0, 1.0)
        journal.add(SETTING, 6, Proved(-0.25, Stage.LINEAR), 1.0, 1.0)
    with VerdictJournal(tmp_path / "deep" / "j") as journal:
        entry = journal.find(SETTING, 5)
        assert entry is not None
        assert isinstance(entry.verdict, Proved)
        assert entry.verdict.bound == -0.5
        other = QuestionSetting(
            "network", "components", "claim", ("input",), "new code", "{}", "words"
        )
        assert journal.find(other, 5) is None
        assert [e.circuit for e, _ in journal.entries() if e is not None] == [5, 6]


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    with VerdictJournal(tmp_path / "j") as one, VerdictJournal(tmp_path / "j") as other:
        for i in range(20):
            (one if i % 2 else other).add(SETTING, i, Proved(-1.0, Stage.LINEAR), 1.0, 1.0)
        assert all(one.find(SETTING, i) is not None for i in range(20))


def test_an_answer_that_was_changed_is_not_read(filled: Path) -> None:
    with sqlite3.connect(filled) as connection:
        (before,) = connection.execute("SELECT count(*) FROM verdicts").fetchone()
        connection.execute("UPDATE verdicts SET circuit = '1' WHERE id = 1")
        connection.execute("UPDATE verdicts SET kind = 'proved' WHERE kind = 'refuted'")
        connection.execute("UPDATE verdicts SET data = x'00' WHERE id = 2")
    connection.close()
    with VerdictJournal(filled) as journal:
        found = [entry for entry, _ in journal.entries()]
    assert len(found) == before
    assert found[0] is found[1] is None
    assert all(entry is None or entry.verdict.proved for entry in found)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA application_id=7", "is not a journal of provable-circuits"),
        ("PRAGMA user_version=9", "has the format version 9, and version 1"),
        ("CREATE VIEW more AS SELECT 1", "holds other things than a journal does"),
        (
            "CREATE TRIGGER t AFTER INSERT ON verdicts BEGIN DELETE FROM verdicts; END",
            "holds other things than a journal does",
        ),
        ("ALTER TABLE verdicts ADD COLUMN more TEXT", "holds other things"),
    ],
)
def test_files_of_another_kind_are_refused(filled: Path, statement: str, message: str) -> None:
    connection = sqlite3.connect(filled)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match=message):
        VerdictJournal(filled)


def test_links_are_not_followed(tmp_path: Path, filled: Path) -> None:
    (tmp_path / "link").symlink_to(filled)
    with pytest.raises(DataError, match="is a symbolic link"):
        VerdictJournal(tmp_path / "link")
    (tmp_path / "new-wal").symlink_to(filled)
    with pytest.raises(DataError, match="is a symbolic link"):
        VerdictJournal(tmp_path / "new")


def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "unsafe", lambda path: "nfs4")
    with pytest.raises(DataError, match=r"network file system \(nfs4\)"):
        VerdictJournal(tmp_path / "j")
    assert list(tmp_path.iterdir()) == []


def test_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be used"):
        VerdictJournal(tmp_path)
    with pytest.raises(DataError, match="There is no journal"):
        VerdictJournal(tmp_path / "none", existing=True)


def test_mutants_are_read_or_refused(filled: Path, tmp_path: Path) -> None:
    """Bytes changed anywhere: an error of ours, or entries that carry their own digest."""
    drawn = random.Random(0)
    content = filled.read_bytes()
    whole = set()
    with VerdictJournal(filled) as journal:
        whole = {(e.circuit, e.verdict.kind) for e, _ in journal.entries() if e is not None}
    refused = longest = 0
    for i in range(300):
        data = bytearray(content)
        for _ in range(drawn.choice([1, 4, 64])):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        if i % 5 == 0:
            del data[drawn.randrange(len(data)) :]
        path = tmp_path / "mutant"
        path.write_bytes(data)
        try:
            with VerdictJournal(path) as journal:
                found = {(e.circuit, e.verdict.kind) for e, _ in journal.entries() if e}
            assert found <= whole
        except (DataError, *store.FAILURES) as error:
            refused += 1
            longest = max(longest, len(str(error)))
        for left in ("mutant", "mutant-wal", "mutant-shm"):
            if (tmp_path / left).exists():
                os.unlink(tmp_path / left)  # noqa: PTH108
    assert 0 < refused < 300
    assert longest < 500
