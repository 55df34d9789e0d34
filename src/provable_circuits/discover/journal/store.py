"""Verdicts in a file: SQLite, one row for each question, written as it is answered.

A process that is killed loses nothing that it wrote; after a loss of power the last answers may be
missing, and those before them are there (write-ahead log, ``synchronous=NORMAL``). Several runs may
write to one journal at once. Each row carries a digest of itself. What a file holds is checked
before anything is made of it, and nothing of it is executed: a file with triggers, views or other
tables is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from provable_circuits.discover.journal.keys import QuestionSetting
from provable_circuits.discover.journal.surroundings import unsafe
from provable_circuits.discover.predicates.transport import pack_verdicts, unpack_verdicts
from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict

NAME = "journal.sqlite"
"""The file's name in the folder of a run."""

APPLICATION = 0x70636A31
FORMAT = 1
LONGEST = 2**28
"""Bytes of a row, at most."""

BUSY = 30.0
"""Seconds to wait for another process that writes."""

PASSING = frozenset({Reason.MEMORY, Reason.INTERRUPTED, Reason.WORKER_DIED, Reason.INCONSISTENT})
"""Reasons that may be gone next time: such questions are always asked again."""

LIMITS = frozenset({Reason.TIME, Reason.NODES})
"""Reasons that a longer limit may remove."""

TABLES = {
    "settings": (
        "CREATE TABLE settings (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, "
        "network TEXT NOT NULL, components TEXT NOT NULL, claim TEXT NOT NULL, "
        "inputs TEXT NOT NULL, code TEXT NOT NULL, settings TEXT NOT NULL, "
        "description TEXT NOT NULL)"
    ),
    "verdicts": (
        "CREATE TABLE verdicts (id INTEGER PRIMARY KEY, setting INTEGER NOT NULL, "
        "circuit TEXT NOT NULL, kind TEXT NOT NULL, stage TEXT NOT NULL, seconds REAL, "
        "nodes INTEGER, data BLOB NOT NULL, digest TEXT NOT NULL, UNIQUE (setting, circuit))"
    ),
    "growths": (
        "CREATE TABLE growths (id INTEGER PRIMARY KEY, setting INTEGER NOT NULL, "
        "circuit TEXT NOT NULL, circuits TEXT NOT NULL, data BLOB NOT NULL, "
        "digest TEXT NOT NULL, UNIQUE (setting, circuit))"
    ),
}
FAILURES = (sqlite3.Error, UnicodeError)
"""What a damaged or full file fails with."""

COLUMNS = "id, setting, circuit, kind, stage, seconds, nodes, data, digest"


@dataclass(frozen=True, slots=True)
class Entry:
    """A question that was answered.

    Attributes:
        number: the entry's place in the order of answers.
        setting: the digest of all but the circuit.
        circuit: the circuit's bits.
        verdict: the answer.
        seconds, nodes: the limits under which it stayed undecided; infinite for none.
    """

    number: int
    setting: str
    circuit: int
    verdict: Verdict
    seconds: float = math.inf
    nodes: float = math.inf

    def answers(self, seconds: float, nodes: float) -> bool:
        """Whether the question need not be asked again under these limits."""
        if not isinstance(self.verdict, Undecided):
            return True
        if self.verdict.reason in PASSING:
            return False
        longer = seconds > self.seconds or nodes > self.nodes
        return not (longer and self.verdict.reason in LIMITS)


class VerdictJournal:
    """A file of verdicts.

    Args:
        path: the file; it is made if there is none, unless ``existing``.
        existing: only a file that is there will do, and it is not changed.

    Raises:
        DataError: the file is no journal, damaged, of another version, or cannot be kept safely.
    """

    def __init__(self, path: str | Path, existing: bool = False) -> None:
        self.path = Path(path)
        self._ids: dict[str, int] = {}
        if existing and not self.path.is_file():
            raise DataError(f"There is no journal '{self.path}'.")
        for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
            if self.path.with_name(name).is_symlink():
                raise DataError(
                    f"The journal '{self.path.with_name(name)}' is a symbolic link, which is not "
                    "written through: name the file itself."
                )
        kind = unsafe(self.path.parent if not self.path.exists() else self.path)
        if kind is not None and not existing:
            raise DataError(
                f"The journal '{self.path}' would be on a network file system ({kind}), where it "
                "cannot be kept safely: name a file on a disk of this machine with --journal."
            )
        try:
            self._connection = self._opened()
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise self._unusable(error) from None

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)
        try:
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            connection.execute("PRAGMA trusted_schema=OFF")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                    connection.execute(f"PRAGMA application_id={APPLICATION}")
                    connection.execute(f"PRAGMA user_version={FORMAT}")
                    for statement in TABLES.values():
                        connection.execute(statement)
                connection.execute("COMMIT")
            self._check_schema(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION:
            raise DataError(f"The file '{self.path}' is not a journal of provable-circuits.")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != FORMAT:
            raise DataError(
                f"The journal '{self.path}' has the format version {version}, and version {FORMAT} "
                "is read here: name another file."
            )
        found = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_autoindex_%'"
        ).fetchall()
        if {(kind, name, sql) for kind, name, sql in found} != {
            ("table", name, sql) for name, sql in TABLES.items()
        }:
            raise DataError(
                f"The journal '{self.path}' holds other things than a journal does: name another."
            )

    def _unusable(self, error: Exception) -> DataError:
        return DataError(
            f"The journal '{self.path}' cannot be used ({str(error)[:200]}): remove it, or name "
            "another file."
        )

    # --- a search -----------------------------------------------------------------------------

    def find(self, setting: QuestionSetting, circuit: int) -> Entry | None:
        """What is known of a question; None for nothing, or nothing that can be read."""
        row = self._connection.execute(
            f"SELECT {COLUMNS} FROM verdicts WHERE setting = ? AND circuit = ?",
            (self._id(setting), f"{circuit:x}"),
        ).fetchone()
        return None if row is None else self._entry(row, setting.digest)

    def add(
        self, setting: QuestionSetting, circuit: int, verdict: Verdict, seconds: float, nodes: float
    ) -> None:
        """Keep an answer, in place of an undecided one or one that did not hold."""
        if isinstance(verdict, Undecided) and verdict.reason in PASSING:
            return
        text = f"{circuit:x}"
        limits = (_stored(seconds), _stored(nodes))
        if not isinstance(verdict, Undecided):
            limits = (None, None)
        data = pack_verdicts([verdict])
        row = (text, verdict.kind, str(verdict.stage), *limits, data)
        self._connection.execute(
            "INSERT OR REPLACE INTO verdicts "
            "(setting, circuit, kind, stage, seconds, nodes, data, digest) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self._id(setting), *row, _digest(setting.digest, *row)),
        )

    def find_growth(self, setting: QuestionSetting, key: str) -> list[tuple[int, Verdict]] | None:
        """Circuits that were grown from one before, and their verdicts."""
        row = self._connection.execute(
            "SELECT circuits, data, digest FROM growths WHERE setting = ? AND circuit = ?",
            (self._id(setting), key),
        ).fetchone()
        if row is None:
            return None
        circuits, data, digest = row
        if _digest(setting.digest, key, circuits, data) != digest:
            return None
        try:
            bits = [int(text, 16) for text in json.loads(circuits)]
            return list(zip(bits, unpack_verdicts(data), strict=True))
        except (ArgumentError, ValueError, TypeError, RecursionError):
            return None

    def add_growth(
        self, setting: QuestionSetting, key: str, grown: Sequence[tuple[int, Verdict]]
    ) -> None:
        """Keep circuits that were grown from one."""
        circuits = json.dumps([f"{bits:x}" for bits, _ in grown])
        data = pack_verdicts([verdict for _, verdict in grown])
        row = (key, circuits, data)
        self._connection.execute(
            "INSERT OR REPLACE INTO growths (setting, circuit, circuits, data, digest) "
            "VALUES (?, ?, ?, ?, ?)",
            (self._id(setting), *row, _digest(setting.digest, *row)),
        )

    def elsewhere(self, setting: QuestionSetting, most: int) -> list[tuple[int, Refuted]]:
        """The latest refutations of other claims about this network: the input's place, and it."""
        found: list[tuple[int, Refuted]] = []
        places = {digest: i for i, digest in reversed(list(enumerate(setting.inputs)))}
        rows = self._connection.execute(
            f"SELECT {', '.join('v.' + c for c in COLUMNS.split(', '))}, s.digest, s.inputs "
            "FROM verdicts v JOIN settings s ON s.id = v.setting "
            "WHERE v.kind = 'refuted' AND s.network = ? AND s.digest != ? ORDER BY v.id DESC",
            (setting.network, setting.digest),
        )
        with closing(rows):
            for *row, digest, inputs in rows:
                entry = self._entry(row, digest)
                if entry is None or not isinstance(entry.verdict, Refuted):
                    continue
                try:
                    place = places.get(json.loads(inputs)[entry.verdict.witness.index])
                except (ValueError, TypeError, LookupError, RecursionError):
                    continue
                if place is not None:
                    found.append((place, entry.verdict))
                if len(found) == most:
                    break
        return found[::-1]

    def _id(self, setting: QuestionSetting) -> int:
        """The number of a setting, which is written down when it is first met."""
        if setting.digest not in self._ids:
            self._connection.execute(
                "INSERT OR IGNORE INTO settings "
                "(digest, network, components, claim, inputs, code, settings, description) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    setting.digest,
                    setting.network,
                    setting.components,
                    setting.claim,
                    json.dumps(setting.inputs),
                    setting.code,
                    setting.settings,
                    setting.description,
                ),
            )
            (found,) = self._connection.execute(
                "SELECT id FROM settings WHERE digest = ?", (setting.digest,)
            ).fetchone()
            self._ids[setting.digest] = found
        return self._ids[setting.digest]

    # --- upkeep -------------------------------------------------------------------------------

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file, for upkeep."""
        return self._connection

    def entries(self) -> Iterator[tuple[Entry | None, tuple[Any, ...]]]:
        """Every row as it is stored, and what it says; None for one that cannot be believed."""
        rows = self._connection.execute(
            f"SELECT {', '.join('v.' + c for c in COLUMNS.split(', '))}, s.digest "
            "FROM verdicts v LEFT JOIN settings s ON s.id = v.setting ORDER BY v.id"
        )
        with closing(rows):
            for *row, digest in rows:
                yield self._entry(row, digest), tuple(row)

    def _entry(self, row: Sequence[Any], setting: Any) -> Entry | None:
        number, _, circuit, kind, stage, seconds, nodes, data, digest = row
        try:
            if _digest(setting, circuit, kind, stage, seconds, nodes, data) != digest:
                return None
            (verdict,) = unpack_verdicts(data)
            if not isinstance(verdict, Proved | Refuted | Undecided) or verdict.kind != kind:
                return None
            return Entry(number, setting, int(circuit, 16), verdict, _limit(seconds), _limit(nodes))
        except (ArgumentError, ValueError, TypeError, AttributeError, RecursionError):
            return None

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def __enter__(self) -> VerdictJournal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _digest(*parts: Any) -> str:
    """A digest that binds the parts of a row to each other."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest()[:32]


def _stored(limit: float) -> float | None:
    return None if limit == math.inf else limit


def _limit(stored: Any) -> float:
    if stored is None:
        return math.inf
    if not isinstance(stored, int | float):
        raise TypeError("a limit is a number")
    return stored
