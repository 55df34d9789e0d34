"""A search in progress: what was asked, what is known, how far it got.

Algorithms ask through here, so that each question is counted, the best circuit shown so far is kept
whatever happens next, a limit on the whole search is honoured, and progress is told.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from provable_circuits.discover.predicates.monotonicity import Monotonicity
from provable_circuits.discover.predicates.predicate import Predicate, faithful
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Component, Components
from provable_circuits.progress import Listener, Progress
from provable_circuits.verify.verdict import Refuted, Verdict

KEPT = 4096
"""How many refutations, witnesses included, are held in memory."""


class BudgetSpent(Exception):  # noqa: N818  (an event, not an error)
    """The time for the whole search is over."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A step forward: the size of the best circuit and the lower bound, after some seconds."""

    seconds: float
    size: int
    lower: int | None
    queries: int


class Search:
    """One search over circuits.

    Args:
        predicate: what circuits are asked about.
        order: the components in the order in which they are tried.
        monotone: what is known of the predicate.
        listener: called with the progress after each answer.
        budget: seconds for the whole search; None for no limit.

    Attributes:
        best: the smallest circuit shown to be faithful so far, None before the first.
        verdict: the verdict on it.
        queries, stages: how many questions were answered how, in all and by each stage.
        lower: no faithful circuit is smaller, if the predicate is monotone; 0 if nothing is known.
        refuted: by a circuit's bits its refutation; of very many the latest.
        unfaithful, proved: the bits of all circuits that were refuted, or shown to be faithful.
        undecided: the bits of circuits that could not be decided.
        lost: seconds spent on single questions that stayed undecided.
        stopped: ``"interrupted"`` or ``"budget"`` if it was cut short, else None.
    """

    def __init__(
        self,
        predicate: Predicate,
        order: Sequence[Component],
        monotone: Monotonicity,
        listener: Listener | None = None,
        budget: float | None = None,
    ) -> None:
        self.predicate = predicate
        self.order = tuple(order)
        self.monotone = monotone
        self.listener = listener
        self.began = time.monotonic()
        self._ends = math.inf if budget is None else self.began + budget
        self.best: Circuit | None = None
        self.verdict: Verdict | None = None
        self.lower = 0
        self.queries: Counter[str] = Counter()
        self.stages: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.timeline: list[Moment] = []
        self.refuted: dict[int, Refuted] = {}
        self.unfaithful: set[int] = set()
        self.proved: set[int] = set()
        self.undecided: set[int] = set()
        self.lost = 0.0
        self.stopped: str | None = None
        self._doing = "starting"
        self._done = 0
        self._total: int | None = None

    @property
    def components(self) -> Components:
        """The components that circuits are sets of."""
        return self.predicate.components

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self.began

    @property
    def asked(self) -> int:
        """How many questions were answered."""
        return self.queries.total()

    def phase(self, doing: str, total: int | None = None) -> None:
        """Begin a phase of so many questions."""
        self._doing, self._done, self._total = doing, 0, total
        self._tell()

    def ask(self, circuit: Circuit, doing: str | None = None) -> Verdict:
        """The verdict on one circuit."""
        self.check()
        verdict = self.timed(lambda: self.predicate.ask([circuit], self.left)[0])
        self.record(circuit, verdict, doing)
        return verdict

    def timed(self, answer: Callable[[], Verdict]) -> Verdict:
        """An answer; the time of one that stays undecided is added to ``lost``."""
        began = time.monotonic()
        verdict = answer()
        if verdict.undecided:
            self.lost += time.monotonic() - began
        return verdict

    def known(self, circuit: Circuit) -> Refuted | None:
        """The refutation of a circuit that was refuted before."""
        return self.refuted.get(circuit.bits)

    def ask_all(self, circuits: Sequence[Circuit]) -> Iterator[tuple[Circuit, Verdict]]:
        """Verdicts on many circuits, in their order, as they come."""
        place = 0
        for verdicts in self.predicate.stream(circuits, self.left):
            part = circuits[place : place + len(verdicts)]
            for circuit, verdict in zip(part, verdicts, strict=True):
                self.record(circuit, verdict)
            yield from zip(part, verdicts, strict=True)
            place += len(verdicts)
            self.check()

    def screen(self, circuits: Sequence[Circuit]) -> list[Verdict | None]:
        """Cheap verdicts on many circuits; None for those that only ``ask`` can decide."""
        self.check()
        verdicts = self.predicate.screen(circuits)
        for circuit, verdict in zip(circuits, verdicts, strict=True):
            if verdict is not None:
                self.record(circuit, verdict)
        return verdicts

    def inspect(self, circuit: Circuit, doing: str | None = None) -> Verdict:
        """The verdict on a circuit that is not sought, and never becomes the best."""
        best, verdict, moments = self.best, self.verdict, len(self.timeline)
        try:
            return self.ask(circuit, doing)
        finally:
            self.best, self.verdict = best, verdict
            del self.timeline[moments:]

    def record(self, circuit: Circuit, verdict: Verdict, doing: str | None = None) -> None:
        """Count an answer, and keep what it shows."""
        self.queries[verdict.kind] += 1
        self.stages[verdict.stage][verdict.kind] += 1
        self._done += 1
        if isinstance(verdict, Refuted):
            self.refuted[circuit.bits] = verdict
            self.unfaithful.add(circuit.bits)
            if len(self.refuted) > KEPT:
                del self.refuted[next(iter(self.refuted))]
        elif verdict.undecided:
            self.undecided.add(circuit.bits)
        else:
            self.offer(circuit, verdict)
        if doing is not None:
            self._doing = doing
        self._tell()

    def offer(self, circuit: Circuit, verdict: Verdict) -> None:
        """A faithful circuit, to be kept if it is the smallest so far."""
        self.proved.add(circuit.bits)
        if faithful(verdict) and (self.best is None or len(circuit) < len(self.best)):
            self.best, self.verdict = circuit, verdict
            self._mark()

    def raise_lower(self, lower: int) -> None:
        """No faithful circuit is smaller than this, if the predicate is monotone."""
        if lower > self.lower:
            self.lower = lower
            self._mark()
            self._tell()

    @contextmanager
    def cut_short(self) -> Iterator[None]:
        """What is done within may be cut short, by an interrupt or the end of its time."""
        try:
            yield
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        except BudgetSpent:
            self.stopped = "budget"

    def check(self) -> None:
        """End the search if its time is over."""
        if time.monotonic() >= self._ends:
            raise BudgetSpent

    @property
    def left(self) -> float:
        """Seconds left for the whole search."""
        return max(self._ends - time.monotonic(), 0.001)

    @property
    def contradicted(self) -> bool:
        """Whether the predicate was seen not to be monotone: one around a faithful one failed."""
        return any(small & large == small for small in self.proved for large in self.unfaithful)

    @property
    def claimed_lower(self) -> int | None:
        """The lower bound, where it may be claimed."""
        return self.lower if self.monotone.usable else None

    def _mark(self) -> None:
        size = len(self.components) if self.best is None else len(self.best)
        self.timeline.append(Moment(self.seconds, size, self.claimed_lower, self.asked))

    def _tell(self) -> None:
        if self.listener is None:
            return
        of = len(self.components)
        self.listener(
            Progress(
                seconds=self.seconds,
                doing=self._doing,
                size=of if self.best is None else len(self.best),
                of=of,
                lower=self.claimed_lower,
                queries=dict(self.queries),
                done=self._done,
                total=self._total,
                left=None if self._ends == math.inf else self.left,
            )
        )
