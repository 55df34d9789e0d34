"""Implicit hitting sets: circuits of the least size, exactly.

A set of components is blocking if the network without it is not faithful. If the predicate is
monotone, every faithful circuit meets every blocking set, and a circuit that meets all of them is
faithful: the smallest hitting set of all blocking sets is a smallest faithful circuit (the paper's
Section 4.4). There are far too many blocking sets to list. They are found as they are needed:

    K = blocking sets of one component
    repeat:
        H = a smallest hitting set of K                   # no faithful circuit is smaller
        if H is faithful, or as large as the best circuit known: done
        grow H, which is refuted, to circuits that are as large as possible and still refuted
        add to K what those leave out                      # H meets none of it

Each round excludes H, so it ends. The lower bound |H| holds from the first round on; upper bounds
are circuits that were proved, the first by a greedy pass. Growth by gradients finds several small
blocking sets at a time (``Growth``); where the predicate knows no such means, components are added
one by one as long as the answer is a refutation.

A candidate that stays undecided is no blocking set. A refuted circuit that contains it would refute
it too, so larger ones are tried first; if none is refuted, that one set is excluded, the lower
bound stays at its size for good, and the search goes on for a better circuit.

The same loop with the roles exchanged gives a smallest blocking set (``dual``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.algorithms.sets import HittingSets
from provable_circuits.discover.predicates.predicate import faithful
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.verdict import Refuted

GROWTHS = 16
"""How many growths go side by side on a small network."""

FEW = 2
"""The same on a network where a run is not cheap."""

FAVOUR = 1.0
"""How strongly growths after the first favour components of their own, at most."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of a candidate: that it will do, sets that it does not meet, or neither."""

    accepted: bool
    missed: Sequence[int] = ()


def hitting_set(search: Search) -> Circuit | None:
    """The smallest circuit, or the best one known when an undecided candidate stands in the way."""
    components = search.components
    full = components.full()
    if faithful(search.ask(components.empty(), "the empty circuit")):
        return components.empty()
    greedy(search)
    search.phase("blocking sets of one component", len(components))
    singles = [full.remove(component.name) for component in components]
    blocking = [
        (full - circuit).bits for circuit, verdict in search.ask_all(singles) if verdict.refuted
    ]
    search.phase("hitting sets")
    grower = _Grower(search)

    def judge(candidate: int) -> Judgement:
        circuit = Circuit(components, candidate)
        verdict = search.screen([circuit])[0]
        if verdict is None:
            verdict = search.ask(circuit)
        if faithful(verdict):
            return Judgement(True)
        if isinstance(verdict, Refuted):
            return Judgement(False, grower.blocking(circuit, verdict))
        larger = _refuted_above(search, circuit)
        return Judgement(False, grower.blocking(*larger) if larger is not None else ())

    def enough(size: int) -> bool:
        return search.best is not None and size >= len(search.best)

    search_hitting_set(len(components), blocking, judge, search.raise_lower, enough, search.check)
    return search.best


def search_hitting_set(
    size: int,
    sets: Sequence[int],
    judge: Callable[[int], Judgement],
    bound: Callable[[int], None],
    enough: Callable[[int], bool],
    check: Callable[[], None],
) -> None:
    """Smallest hitting sets of a family that ``judge`` reveals, until one is accepted.

    Args:
        size: how many elements there are.
        sets: sets of the family that are known, as bits.
        judge: accepts a hitting set, or names sets of the family that it does not meet.
        bound: told a lower bound of the size of an acceptable set.
        enough: whether sets of this size are no longer wanted.
        check: called in every round; may end the search.
    """
    frozen = False
    hits = HittingSets(size)
    try:
        for bits in sets:
            hits.add(bits)
        while True:
            check()
            candidate = hits.smallest()
            if candidate is None:
                return
            if not frozen:
                bound(candidate.bit_count())
            if enough(candidate.bit_count()):
                return
            judgement = judge(candidate)
            if judgement.accepted:
                return
            for bits in judgement.missed:
                hits.add(bits)
            if not judgement.missed:
                frozen = True
                hits.exclude(candidate)
    finally:
        hits.close()


class _Grower:
    """Turns refutations into blocking sets."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self._generator = torch.Generator().manual_seed(0)

    def blocking(self, circuit: Circuit, refuted: Refuted) -> list[int]:
        """What refuted circuits around ``circuit`` leave out: no set contains another."""
        search = self.search
        grown = search.predicate.grown(circuit, refuted, self._favour())
        for larger, verdict in grown:
            search.record(larger, verdict)
        circuits = [larger for larger, _ in grown] or [self._by_asking(circuit)]
        missed = sorted({(~larger).bits for larger in circuits}, key=lambda bits: bits.bit_count())
        minimal: list[int] = []
        for bits in missed:
            if not any(smaller & bits == smaller for smaller in minimal):
                minimal.append(bits)
        return minimal

    def _favour(self) -> Tensor:
        """The first growth has no favourites, the others random ones."""
        growths = GROWTHS if self.search.predicate.foresees else FEW
        size = (growths, len(self.search.components))
        favour = torch.rand(size, generator=self._generator, dtype=torch.float64) * FAVOUR
        favour[0] = 0
        return favour

    def _by_asking(self, circuit: Circuit) -> Circuit:
        """Add components one by one, as long as the answer is a refutation."""
        for component in self.search.order:
            if component in circuit:
                continue
            larger = circuit.add(component.name)
            if self.search.ask(larger).refuted:
                circuit = larger
        return circuit


def _refuted_above(search: Search, circuit: Circuit) -> tuple[Circuit, Refuted] | None:
    """A refuted circuit that contains an undecided one, by halving how much is added."""
    rest = [component.name for component in search.order if component not in circuit]
    high = len(rest)
    while high > 1:
        high //= 2
        larger = circuit.add(*rest[:high])
        verdict = search.ask(larger)
        if isinstance(verdict, Refuted):
            return larger, verdict
    return None
