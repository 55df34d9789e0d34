"""Looking after journals: what they hold, whether that is whole, merging, exporting, pruning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from provable_circuits.discover.journal.keys import QuestionSetting, code_version
from provable_circuits.discover.journal.store import FAILURES, Entry, VerdictJournal
from provable_circuits.errors import DataError
from provable_circuits.verify.verdict import Refuted, Undecided


@dataclass(frozen=True, slots=True)
class HeldVerdicts:
    """Questions of one setting in a journal.

    Attributes:
        network, claim: the first digits of their digests.
        description: the claim in words.
        current: whether the code that answered is the code that runs now; others are not asked.
        verdicts: how many answers of each kind.
    """

    network: str
    claim: str
    description: str
    current: bool
    verdicts: dict[str, int]


def contents(journal: VerdictJournal) -> list[HeldVerdicts]:
    """What a journal holds, setting by setting."""
    rows = _read(
        journal,
        "SELECT s.id, s.network, s.claim, s.description, s.code, v.kind, count(v.id) "
        "FROM settings s LEFT JOIN verdicts v ON v.setting = s.id "
        "GROUP BY s.id, v.kind ORDER BY s.id, v.kind",
    )
    found: dict[int, HeldVerdicts] = {}
    for number, network, claim, description, code, kind, count in rows:
        held = found.setdefault(
            number,
            HeldVerdicts(
                network=_plain(str(network))[:12],
                claim=_plain(str(claim))[:12],
                description=_plain(str(description)),
                current=code == code_version(),
                verdicts={},
            ),
        )
        if kind is not None:
            held.verdicts[_plain(str(kind))[:20]] = count
    return list(found.values())


def faults(journal: VerdictJournal) -> tuple[int, list[str]]:
    """How many entries were looked at, and what is wrong with the file, in sentences."""
    found = []
    try:
        told = [row[0] for row in _read(journal, "PRAGMA integrity_check(10)")]
        found += [f"The file is damaged: {text}." for text in told if text != "ok"]
        count = 0
        for entry, row in journal.entries():
            count += 1
            if entry is None:
                found.append(f"Entry {row[0]} is not what was written.")
    except FAILURES as error:
        return 0, [*found, f"The file is damaged: {error}."]
    return count, found


def merge(into: VerdictJournal, other: VerdictJournal) -> tuple[int, int]:
    """Take over what another journal knows: how many entries came, and how many were refused.

    A decided answer goes before an undecided one, and of two undecided ones that under the longer
    limit. Where one journal has a proof and the other a refutation, the refutation is taken, since
    it is replayed before it counts, and a proof is not.

    Raises:
        DataError: a journal cannot be read or written.
    """
    settings = {digest: setting for digest, setting in _settings(other) if setting is not None}
    came = refused = 0
    try:
        into.connection.execute("BEGIN IMMEDIATE")
        for entry, _ in other.entries():
            setting = None if entry is None else settings.get(entry.setting)
            if entry is None or setting is None:
                refused += 1
                continue
            known = into.find(setting, entry.circuit)
            if known is None or _better(entry, known):
                limits = (entry.seconds, entry.nodes)
                into.add(setting, entry.circuit, entry.verdict, *limits)
                came += 1
        into.connection.execute("COMMIT")
    except FAILURES as error:
        raise DataError(f"The journals cannot be merged: {error}.") from None
    return came, refused


def _settings(journal: VerdictJournal) -> Iterator[tuple[str, QuestionSetting | None]]:
    """The settings of a journal, by the digest that it has them under; None for a damaged one."""
    for row in _read(
        journal,
        "SELECT digest, network, components, claim, inputs, code, settings, description "
        "FROM settings",
    ):
        digest, network, components, claim, inputs, code, settings, description = map(str, row)
        try:
            places = tuple(map(str, json.loads(inputs)))
        except (ValueError, TypeError, RecursionError):
            yield digest, None
            continue
        found = QuestionSetting(network, components, claim, places, code, settings, description)
        yield digest, found if found.digest == digest else None


def _better(new: Entry, known: Entry) -> bool:
    if isinstance(new.verdict, Refuted):
        return not isinstance(known.verdict, Refuted)
    if not isinstance(known.verdict, Undecided):
        return False
    if not isinstance(new.verdict, Undecided):
        return True
    return (new.seconds, new.nodes) > (known.seconds, known.nodes)


def exported(journal: VerdictJournal) -> Iterator[dict[str, Any]]:
    """Every entry as plain data, ready for JSON."""
    for entry, _ in journal.entries():
        if entry is None:
            continue
        line: dict[str, Any] = {
            "setting": entry.setting,
            "circuit": f"{entry.circuit:x}",
            "verdict": entry.verdict.kind,
            "stage": str(entry.verdict.stage),
        }
        if isinstance(entry.verdict, Refuted):
            witness = entry.verdict.witness
            line["witness"] = {"input": witness.index, "z": witness.z.tolist()}
            if witness.patch_input is not None:
                line["witness"]["patch_input"] = witness.patch_input.tolist()
            if witness.patch_values is not None:
                values = {name: v.tolist() for name, v in witness.patch_values.items()}
                line["witness"]["patch_values"] = values
        elif isinstance(entry.verdict, Undecided):
            line["reason"] = str(entry.verdict.reason)
            line["seconds"] = entry.seconds if entry.seconds < float("inf") else None
            line["nodes"] = entry.nodes if entry.nodes < float("inf") else None
        yield line


def prune(journal: VerdictJournal, undecided: bool = False) -> int:
    """Remove what other versions of the code answered, and perhaps what is undecided: how many.

    Raises:
        DataError: the journal cannot be written.
    """
    old = "setting NOT IN (SELECT id FROM settings WHERE code = ?)"
    try:
        connection = journal.connection
        connection.execute("BEGIN IMMEDIATE")
        gone = connection.execute(f"DELETE FROM verdicts WHERE {old}", (code_version(),)).rowcount
        connection.execute(f"DELETE FROM growths WHERE {old}", (code_version(),))
        if undecided:
            gone += connection.execute("DELETE FROM verdicts WHERE kind = 'undecided'").rowcount
        connection.execute(
            "DELETE FROM settings WHERE id NOT IN (SELECT setting FROM verdicts)",
        )
        connection.execute("COMMIT")
        connection.execute("VACUUM")
    except FAILURES as error:
        raise DataError(f"The journal '{journal.path}' cannot be pruned: {error}.") from None
    return gone


def _read(journal: VerdictJournal, query: str) -> Sequence[Any]:
    try:
        return journal.connection.execute(query).fetchall()
    except FAILURES as error:
        raise DataError(f"The journal '{journal.path}' cannot be read: {error}.") from None


def _plain(text: str) -> str:
    """A text without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)
