"""Questions answered by several workers: the same verdicts, the same circuits, whoever dies."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from tests.clock import Clock
from tests.verify.networks import dense

import provable_circuits as pc
from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.predicates import distributed
from provable_circuits.discover.predicates.distributed import Distributed, Worker
from provable_circuits.discover.predicates.monotonicity import Monotonicity
from provable_circuits.discover.predicates.predicate import Decided, Predicate
from provable_circuits.discover.predicates.transport import pack_verdicts, unpack_verdicts
from provable_circuits.discover.search import Search
from provable_circuits.errors import ArgumentError

CLAIMS: dict[str, tuple[pc.Patching, float]] = {
    "zero": (pc.Zero(), 0.05),
    "reachable": (pc.Reachable(eps=0.1), 0.004),
    "hull": (pc.IntervalHull(eps=0.1), 0.02),
}
UNKNOWN = Monotonicity(False, False, "not told")


@cache
def components() -> pc.Components:
    return dense(1).components()


def decided(name: str) -> Decided:
    patching, tolerance = CLAIMS[name]
    centers = torch.rand(2, 5, generator=torch.Generator().manual_seed(1))
    claim = pc.Claim(
        [pc.Ball(x, 0.05) for x in centers], patching, pc.LogitDifference(tolerance, 1)
    )
    return Decided(components(), claim)


def large(name: str) -> Decided:
    """As if the network were not small: each question is asked for itself, nothing is foreseen."""
    local = decided(name)
    local.together, local.foresees = 1, False
    return local


def some_circuits(count: int) -> list[pc.Circuit]:
    dice = random.Random(3)
    names = components().names
    return [
        components().circuit([name for name in names if dice.random() < share])
        for share in (dice.choice([0.6, 0.9]) for _ in range(count))
    ]


def kinds(verdicts: Sequence[pc.Verdict]) -> list[str]:
    return [verdict.kind for verdict in verdicts]


def circuit_of(predicate: Predicate) -> pc.Circuit:
    return greedy(Search(predicate, components().discovery_order(), UNKNOWN))


@cache
def circuit_of_one_process(claim: str) -> pc.Circuit:
    found = circuit_of(large(claim))
    assert found == circuit_of(decided(claim))
    assert 0 < len(found) < len(components())
    return found


@pytest.fixture(scope="module")
def team() -> Iterator[Distributed]:
    """Two processes."""
    made = Distributed(decided("zero"), 2)
    yield made
    made.close()


def through(team: Distributed, local: Decided) -> Distributed:
    """A predicate of its own whose questions go to the same two processes."""
    return Distributed(local, team._crew._executor)


@pytest.mark.parametrize("claim", CLAIMS)
def test_workers_give_the_verdicts_that_one_process_gives(claim: str, team: Distributed) -> None:
    workers = team if claim == "zero" else through(team, decided(claim))
    circuits = some_circuits(150)  # three parts
    alone = kinds(decided(claim).ask(circuits))
    assert {"proved", "refuted"} <= set(alone)
    assert kinds(workers.ask(circuits)) == alone
    screened = workers.screen(circuits)
    assert sum(verdict is not None for verdict in screened) > 75
    for verdict, kind in zip(screened, alone, strict=True):
        assert verdict is None or verdict.kind == kind
    assert kinds(workers.ask(circuits[:1])) == alone[:1]
    assert workers.ask([]) == []


@pytest.mark.parametrize("claim", CLAIMS)
def test_witnesses_from_workers_refute_here_as_well(claim: str, team: Distributed) -> None:
    workers = through(team, large(claim))
    circuits = some_circuits(12)
    pairs = [
        (circuit, verdict)
        for circuit, verdict in zip(circuits, workers.ask(circuits), strict=True)
        if isinstance(verdict, pc.Refuted)
    ]
    assert pairs
    carried = workers.carried([c for c, _ in pairs], [v for _, v in pairs])
    assert all(isinstance(verdict, pc.Refuted) for verdict in carried)


def test_each_question_asked_ahead_gets_its_own_answer(team: Distributed) -> None:
    workers = through(team, large("zero"))
    circuits = some_circuits(20)
    alone = kinds(decided("zero").ask(circuits))
    assert {"proved", "refuted"} == set(alone[::2]) == set(alone[1::2])
    for i in range(0, 20, 2):
        first, second = workers.ahead(circuits[i : i + 2])
        assert [second().kind, first().kind] == [alone[i + 1], alone[i]]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("size", ["small", "large"])
def test_greedy_through_workers_finds_the_circuit_of_one_process(
    claim: str, size: str, team: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = decided(claim) if size == "small" else large(claim)
    workers = through(team, local)
    assert workers._small == (size == "small")
    assert workers.together == (64 if size == "small" else 2)
    asked: list[str] = []
    submit = workers._crew.submit

    def counting(method: str, *arguments: Any) -> Any:
        asked.append(method)
        return submit(method, *arguments)

    monkeypatch.setattr(workers._crew, "submit", counting)
    assert circuit_of(workers) == circuit_of_one_process(claim)
    if size == "large":
        assert len(asked) >= len(components()) // 2 - 1  # of each two components, but the last


def test_a_worker_that_is_killed_at_work_changes_no_answer(
    team: Distributed, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = large("zero")
    workers = Distributed(local, 2)
    workers._crew = team._crew  # of the same question
    pool = team._crew._executor
    circuits = some_circuits(40)
    killed: list[int] = []

    def kill_at_the_first_answer(packed: bytes) -> list[pc.Verdict]:
        if not killed:
            killed.append(next(iter(pool._processes)))  # type: ignore[attr-defined]
            os.kill(killed[0], signal.SIGKILL)
        return unpack_verdicts(packed)

    alone = kinds(decided("zero").ask(circuits))
    monkeypatch.setattr(distributed, "unpack_verdicts", kill_at_the_first_answer)
    assert kinds(workers.ask(circuits)) == alone
    assert killed
    assert team._crew._executor is not pool  # which was noticed
    assert circuit_of(workers) == circuit_of_one_process("zero")


class KilledWorker(Exception):  # noqa: N818  (so it is called in the cluster software)
    """As a cluster tells that a worker died."""


class Fragile(Executor):
    """Calls run here, and die if they ask about a certain circuit."""

    _max_workers = 3

    def __init__(self, deadly: pc.Circuit) -> None:
        self.deadly = deadly

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        circuits = args[-1][0]
        if self.deadly.bits in circuits:
            future.set_exception(KilledWorker())
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize("make", [decided, large])
def test_a_question_that_kills_workers_is_undecided_and_the_others_are_not(
    make: Callable[[str], Decided],
) -> None:
    circuits = list(dict.fromkeys(some_circuits(300)))[:100]
    deadly = 70
    workers = Distributed(make("zero"), Fragile(circuits[deadly]))
    assert workers.wave == 16 * 3 * (64 if make is decided else 1)
    verdicts = workers.ask(circuits)
    lost = verdicts.pop(deadly)
    assert isinstance(lost, pc.Undecided)
    assert (lost.reason, lost.stage) == ("worker died", "worker")
    assert kinds(verdicts) == kinds(decided("zero").ask(circuits[:deadly] + circuits[deadly + 1 :]))
    screened = workers.screen(circuits)
    assert len(screened) == len(circuits)
    if make is large:
        answers = workers.ahead([circuits[0], circuits[deadly], circuits[1]])
        assert answers[0]().kind == verdicts[0].kind
        assert answers[1]().undecided
        assert answers[2]().kind == verdicts[1].kind


class Slow:
    """Stands for ``Worker.ask``: every answer is there at once, or waits for a sign."""

    def __init__(self) -> None:
        self.sign = threading.Event()
        self.waits: set[int] = set()
        self.meeting = threading.Barrier(2)
        self.meets: set[int] = set()
        self.asked: list[int] = []

    def __call__(self, circuits: Sequence[int], limit: float) -> bytes:
        self.asked += circuits
        if self.meets & set(circuits):
            self.meeting.wait()
        elif self.waits & set(circuits):
            self.sign.wait()
        return pack_verdicts([pc.Proved(-1.0, "told so")] * len(circuits))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    answer = Slow()
    monkeypatch.setattr(Worker, "ask", staticmethod(answer))
    yield answer
    answer.sign.set()


@contextmanager
def released(sign: threading.Event) -> Iterator[None]:
    """Let go whatever waits for a sign, however this ends."""
    try:
        yield
    finally:
        sign.set()


LONG = 1e5
"""Seconds that no test takes."""


def test_a_limit_is_for_all_questions_together(slow: Slow, clock: Clock) -> None:
    """After the first answer nothing is left of the time that was for all of them."""
    circuits = list(dict.fromkeys(some_circuits(24)))
    slow.waits = {circuit.bits for circuit in circuits[1:]}
    with ThreadPoolExecutor(2) as executor, released(slow.sign):
        workers = Distributed(large("zero"), executor)
        parts = workers.stream(circuits, limit=LONG)
        assert [verdict.proved for verdict in next(parts)] == [True]
        clock.now += LONG + 2 * distributed.GRACE
        late = [verdict for part in parts for verdict in part]
        assert len(late) == len(circuits) - 1
        for verdict in late:
            assert isinstance(verdict, pc.Undecided)
            assert (verdict.reason, verdict.stage) == ("time", "worker")
        answers = workers.ahead(circuits[1:3], limit=LONG)
        clock.now += LONG + 2 * distributed.GRACE
        assert answers[0]().undecided


def test_questions_asked_in_vain_hold_up_nothing(slow: Slow) -> None:
    circuits = list(dict.fromkeys(some_circuits(10)))
    wanted, unwanted = circuits[:4], circuits[4:8]
    slow.waits = {circuit.bits for circuit in unwanted}
    with ThreadPoolExecutor(2) as executor, released(slow.sign):
        workers = Distributed(large("zero"), executor)
        slow.meets = {circuit.bits for circuit in circuits[8:10]}
        assert kinds(workers.ask(circuits[8:10])) == ["proved", "proved"]  # both hold it now
        for good, bad in zip(wanted, unwanted, strict=True):
            (answer, _) = workers.ahead([good, bad])
            assert answer().proved
        assert not slow.sign.is_set()
        assert [bits for bits in slow.asked if bits in slow.waits] == [unwanted[0].bits]
        (_, answer) = workers.ahead([wanted[0], wanted[1].remove(wanted[1].names[0])])
        assert answer().stage != "told so"  # but decided here


@pytest.mark.parametrize("workers", [0, -1, True, False, "2", 2.0, None])
def test_workers_are_a_number_or_an_executor(workers: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        Distributed(decided("zero"), workers)
    assert str(caught.value) == (
        "The 'workers' parameter must be a number of at least 1, or an Executor of "
        f"concurrent.futures. Got {workers!r} instead."
    )


def test_a_single_worker_or_an_executor_of_unknown_size_will_do() -> None:
    class Anything(Executor):
        """Tells nothing about itself."""

    assert Distributed(large("zero"), Anything()).together == 2
    alone = Distributed(large("zero"), 1)
    assert alone.together == 1
    alone.close()
