"""A search with a journal: nothing is lost, nothing is asked twice, nothing is believed."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.clock import Clock
from tests.discover.journal.searches import predicate, question, told

import provable_circuits as pc
from provable_circuits.discover.journal.journaled import journaled
from provable_circuits.discover.journal.store import VerdictJournal
from provable_circuits.discover.predicates.predicate import Decided
from provable_circuits.errors import ArgumentError
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict

ALGORITHMS = ["greedy", "exhaustive", "binary-search", "blocking-sets", "hitting-set"]
PATCHINGS = [pc.Zero(), pc.Reachable(eps=0.1), pc.IntervalHull(eps=0.1)]


class Asked:
    """Counts what reaches the verifier, and may end the process there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.circuits: list[int] = []
        self.left = 10**9
        ask, screen, grown = Decided.ask, Decided.screen, Decided.grown

        def count(circuits: Sequence[pc.Circuit]) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed
            self.circuits += [circuit.bits for circuit in circuits]

        def asking(own: Decided, circuits: Sequence[pc.Circuit], *rest: float) -> list[Verdict]:
            count(circuits)
            return ask(own, circuits, *rest)

        def screening(own: Decided, circuits: Sequence[pc.Circuit]) -> list[Verdict | None]:
            count([])
            return screen(own, circuits)

        def growing(own: Decided, circuit: pc.Circuit, *rest: object) -> object:
            count([circuit])
            return grown(own, circuit, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(Decided, "ask", asking)
        monkeypatch.setattr(Decided, "screen", screening)
        monkeypatch.setattr(Decided, "grown", growing)


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.mark.parametrize("patching", PATCHINGS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_search_killed_again_and_again_ends_as_one_that_was_not(
    tmp_path: Path, asked: Asked, algorithm: str, patching: pc.Patching
) -> None:
    graph, claim = question(patching)
    whole = told(pc.discover(graph, claim, algorithm=algorithm))
    alone = len(asked.circuits)
    asked.circuits.clear()
    deaths = 0
    while True:
        asked.left = 1 + deaths % 2
        try:
            result = pc.discover(graph, claim, algorithm=algorithm, journal=tmp_path / "j")
            break
        except Killed:
            deaths += 1
            assert deaths < 4 * alone + 4
    assert told(result) == whole
    assert deaths > 0
    asked.circuits.clear()
    asked.left = 10**9
    again = pc.discover(graph, claim, algorithm=algorithm, journal=tmp_path / "j")
    assert told(again) == whole
    assert asked.circuits == []


def test_algorithms_answer_each_others_questions(tmp_path: Path, asked: Asked) -> None:
    graph, claim = question()
    pc.discover(graph, claim, algorithm="exhaustive", journal=tmp_path / "j")
    asked.circuits.clear()
    pc.discover(graph, claim, algorithm="greedy", journal=tmp_path / "j")
    assert asked.circuits == []
    pc.discover(graph, claim, algorithm="greedy", journal=tmp_path / "j", seed=1)
    assert asked.circuits != []


def test_every_kind_of_question_is_answered_in_order(tmp_path: Path) -> None:
    with_journal, graph = predicate(tmp_path / "j"), question()[0]
    components = graph.components("neuron")
    circuits = [components.full().remove(c.name) for c in components]
    alone = Decided(components, question()[1])
    expected = [v.kind for v in alone.ask(circuits)]
    assert {"proved", "refuted"} <= set(expected)
    for chosen in (circuits[::3], circuits[1::2], circuits):
        assert [v.kind for part in with_journal.stream(chosen) for v in part] == [
            expected[circuits.index(c)] for c in chosen
        ]
    assert [v.kind for v in with_journal.ask(circuits)] == expected
    assert [answer().kind for answer in with_journal.ahead(circuits)] == expected
    assert [v is not None and v.kind for v in with_journal.screen(circuits)] == expected
    with_journal.close()


def test_a_refutation_that_does_not_hold_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = predicate(tmp_path / "j")
    components = first.components
    circuits = [components.full().remove(c.name) for c in components]
    verdicts = first.ask(circuits)
    refuted = next(v for v in verdicts if isinstance(v, Refuted))
    held = next(c for c, v in zip(circuits, verdicts, strict=True) if v.proved)
    for planted in [
        refuted,
        Refuted(replace(refuted.witness, index=7), refuted.stage),
        Refuted(replace(refuted.witness, z=torch.zeros(3)), refuted.stage),
        Refuted(replace(refuted.witness, z=torch.full((4,), torch.nan)), refuted.stage),
    ]:
        journal = first._journal
        assert journal is not None
        journal.add(first._setting, held.bits, planted, 1.0, 1.0)
        caplog.clear()
        assert first.ask([held])[0].proved
        assert "breaks nothing" in caplog.text
    first.close()


def test_a_false_proof_in_a_journal_is_not_the_result(tmp_path: Path) -> None:
    """The search is led astray; what it says is what a verifier without reuse says."""
    graph, claim = question()
    made = predicate(tmp_path / "j")
    assert made._journal is not None
    made._journal.add(made._setting, 0, Proved(-1.0, Stage.LINEAR), 1.0, 1.0)
    made.close()
    result = pc.discover(
        graph, claim, algorithm="binary-search", journal=tmp_path / "j", certify=False
    )
    assert len(result.circuit) == 0
    assert result.faithful == "undecided"


class TestUndecided:
    @pytest.fixture
    def answers(self, monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
        given: list[Verdict] = []

        def ask(own: Decided, circuits: Sequence[pc.Circuit], limit: float) -> list[Verdict]:
            return [given.pop(0) for _ in circuits]

        monkeypatch.setattr(Decided, "ask", ask)
        return given

    @pytest.mark.parametrize(
        ("reason", "first", "then", "again"),
        [
            (Reason.TIME, {"timeout": 5}, {"timeout": 5}, False),
            (Reason.TIME, {"timeout": 5}, {"timeout": 4}, False),
            (Reason.TIME, {"timeout": 5}, {"timeout": 6}, True),
            (Reason.NODES, {"max_nodes": 5}, {"max_nodes": 5}, False),
            (Reason.NODES, {"max_nodes": 5}, {"max_nodes": 6}, True),
            (Reason.NODES, {"max_nodes": 5}, {"timeout": 4}, True),
            (Reason.TOO_CLOSE, {"timeout": 5}, {"timeout": 6}, False),
            (Reason.MEMORY, {"timeout": 5}, {"timeout": 5}, True),
            (Reason.WORKER_DIED, {"timeout": 5}, {"timeout": 5}, True),
        ],
    )
    def test_it_is_asked_again_where_that_may_help(
        self,
        tmp_path: Path,
        answers: list[Verdict],
        reason: Reason,
        first: dict[str, int],
        then: dict[str, int],
        again: bool,
    ) -> None:
        answers += [Undecided(reason, Stage.LINEAR), Proved(-1.0, Stage.LINEAR)]
        for settings in (first, then):
            made = predicate(tmp_path / "j", **settings)
            (verdict,) = made.ask([made.components.empty()])
            made.close()
        assert verdict.proved == again
        assert len(answers) == (0 if again else 1)

    def test_a_budget_shortens_the_limit(
        self, tmp_path: Path, answers: list[Verdict], clock: Clock
    ) -> None:
        answers += [Undecided(Reason.TIME, Stage.LINEAR), Proved(-1.0, Stage.LINEAR)]
        made = predicate(tmp_path / "j", timeout=45)
        assert made.ask([made.components.empty()], 3.0)[0].undecided
        assert made.ask([made.components.empty()], 2.0)[0].undecided
        assert made.ask([made.components.empty()], 45.0)[0].proved
        made.close()


def test_witnesses_start_attacks_on_other_claims(tmp_path: Path) -> None:
    graph, claim = question()
    pc.discover(graph, claim, journal=tmp_path / "j")
    other = pc.Claim(claim.inputs[::-1], pc.Zero(), pc.LogitDifference(0.04))
    made = Decided(graph.components("neuron"), other)
    with_journal = journaled(made, tmp_path / "j")
    assert isinstance(made.verifier, pc.Verifier)
    pool = made.verifier.knowledge.pool
    assert pool
    by_place = {int(w.index) for w in pool}
    assert by_place <= {0, 1}
    for witness in pool:
        assert bool(other.inputs[witness.index].contains(witness.z.unsqueeze(0)).all())
    with_journal.close()


def test_a_journal_that_fails_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph, claim = question()
    whole = told(pc.discover(graph, claim))

    def full(own: VerdictJournal, *_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(VerdictJournal, "add", full)
    with caplog.at_level(logging.WARNING):
        assert told(pc.discover(graph, claim, journal=tmp_path / "j")) == whole
    given_up = [r for r in caplog.records if "is given up (database or disk is full)" in r.message]
    assert len(given_up) == 1


def test_sampling_keeps_no_journal(tmp_path: Path) -> None:
    graph, claim = question()
    pc.discover(graph, claim, method="sampling", journal=tmp_path / "j")
    assert list(tmp_path.iterdir()) == []


def test_workers_and_journals_go_together(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    graph, claim = question()
    whole = told(pc.discover(graph, claim, algorithm="blocking-sets"))
    with ThreadPoolExecutor(2) as executor:
        for _ in range(2):
            result = pc.discover(
                graph, claim, algorithm="blocking-sets", workers=executor, journal=tmp_path / "j"
            )
            assert told(result)["circuit"] == whole["circuit"]


def test_the_file_must_be_named(tmp_path: Path) -> None:
    graph, claim = question()
    with pytest.raises(ArgumentError, match="The 'journal' parameter must be the name of a"):
        pc.discover(graph, claim, journal=7)  # type: ignore[arg-type]
