"""The greedy search of the package, its sub-queries timed. Every benchmark of the verifier runs it.

C = all components
for each component v, later layers first:
    ask whether the claim holds of C without v; if it is proved, C = C without v

On small networks the search asks ahead: it screens what it expects to ask in one batch. The time of
a batch is shared evenly by the sub-queries it answered or prepared, so that the mean is what a
sub-query really costs. With ``ahead=False`` every sub-query is asked alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import provable_circuits as pc
from provable_circuits.discover import search as searching
from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.predicates.monotonicity import Monotonicity, monotonicity
from provable_circuits.discover.predicates.predicate import Decided


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One sub-query: the circuit asked about, the verdict, and how long it took."""

    circuit: pc.Circuit
    verdict: pc.Verdict
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One greedy search: the circuit it found, its sub-queries, its time with all set-up."""

    circuit: pc.Circuit
    asked: tuple[Asked, ...]
    seconds: float


@dataclass(slots=True, eq=False)
class _Batch:
    """The sub-queries since the last look ahead: seconds of that look, and of each question."""

    ahead: float = 0.0
    alone: list[float] = field(default_factory=list)


class _Timed(Decided):
    """The verifier's predicate with a clock."""

    def __init__(self, components: pc.Components, claim: pc.Claim, timeout: float) -> None:
        super().__init__(components, claim, timeout)
        self.batches = [_Batch()]
        self.now = 0.0

    def ask(self, circuits: Sequence[pc.Circuit], limit: float = math.inf) -> list[pc.Verdict]:
        began = time.perf_counter()
        found = super().ask(circuits, limit)
        self.now += time.perf_counter() - began
        return found

    def suspects(self, circuits: Sequence[pc.Circuit]) -> list[bool]:
        began = time.perf_counter()
        found = super().suspects(circuits)
        self.batches.append(_Batch(time.perf_counter() - began))
        return found

    def broken(self, circuits: Sequence[pc.Circuit]) -> list[bool]:
        began = time.perf_counter()
        found = super().broken(circuits)
        self.batches[-1].ahead += time.perf_counter() - began
        return found

    def screen(self, circuits: Sequence[pc.Circuit]) -> list[pc.Verdict | None]:
        began = time.perf_counter()
        found = super().screen(circuits)
        self.batches[-1].ahead += time.perf_counter() - began
        return found

    def answered(self, *_: object) -> None:
        """One sub-query is done."""
        self.batches[-1].alone.append(self.now)
        self.now = 0.0

    def seconds(self) -> list[float]:
        """The time of each sub-query."""
        return [
            own + batch.ahead / len(batch.alone) for batch in self.batches for own in batch.alone
        ]


class _Clocked(searching.Search):
    """A search that keeps its answers, and tells the clock of each."""

    def __init__(
        self, predicate: _Timed, order: Sequence[pc.Component], monotone: Monotonicity
    ) -> None:
        super().__init__(predicate, order, monotone)
        self.clock = predicate
        self.answers: list[tuple[pc.Circuit, pc.Verdict]] = []

    def record(self, circuit: pc.Circuit, verdict: pc.Verdict, doing: str | None = None) -> None:
        self.answers.append((circuit, verdict))
        self.clock.answered()
        super().record(circuit, verdict, doing)


def search(
    components: pc.Components, claim: pc.Claim, timeout: float, *, ahead: bool = True
) -> Search:
    """Run a greedy search with a fresh verifier.

    Args:
        components: the components of the network.
        claim: the claim.
        timeout: seconds for each sub-query.
        ahead: whether the search may ask ahead.
    """
    began = time.perf_counter()
    predicate = _Timed(components, claim, timeout)
    if not ahead:
        predicate.together, predicate.foresees = 1, False
    circuit = components.full()
    predicate.ask([circuit])
    predicate.now = 0.0
    order = list(components.discovery_order())
    timed = _Clocked(predicate, order, monotonicity(claim))
    found = greedy(timed)
    took = time.perf_counter() - began
    asked = []
    for (circuit, verdict), seconds in zip(timed.answers, predicate.seconds(), strict=True):
        asked.append(Asked(circuit, verdict, seconds))
    return Search(found, tuple(asked), took)
