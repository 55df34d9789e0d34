"""The dual of a smallest circuit: a smallest blocking set.

A set of components is blocking if the network without it is refuted. Where the predicate is known
to be monotone, the smallest blocking set is the smallest set that meets every faithful circuit, and
is found by the loop of ``hitting_set`` with the roles exchanged:

    K = faithful circuits, the first by a greedy pass
    repeat:
        H = a smallest hitting set of K                   # no blocking set is smaller
        if the network without H is refuted: done
        shrink the network without H, which is faithful, to a small faithful circuit; add it to K

If the empty circuit is faithful, there is no blocking set at all.

Elsewhere neither conclusion may be drawn: two components that cancel each other can be removed
together and not one by one, so that the empty circuit is faithful and each of the two is blocking.
There sets are asked about one by one, the small ones first:

    for size = 1, 2, ..., as long as that takes no more than ``MOST`` questions:
        ask about the network without each set of that size
        if one is refuted: it is a smallest blocking set  # all smaller sets were proved not to be

which rests on nothing but the answers. With at most ``WHOLE`` components every set is asked about.
What remains open after that is left to the loop: the set that it finds is blocking, since it was
refuted; that none is smaller holds under the assumption, if there is one, and is not claimed
otherwise. Whenever a search ends, the smallest set whose removal was refuted on the way is its
answer.
"""

from __future__ import annotations

import itertools
import math

from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.algorithms.hitting_set import Judgement, search_hitting_set
from provable_circuits.discover.algorithms.sets import bits_of
from provable_circuits.discover.predicates.predicate import faithful
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.verdict import Refuted

MOST = 1024
"""Sets that are asked about one by one, where the predicate is not known to be monotone."""

WHOLE = 12
"""Components of which every set is asked about there."""


class SmallestBlockingSet:
    """A search for a smallest blocking set, and what it has shown so far.

    Args:
        search: what is asked through; its ``lower`` becomes a lower bound of the size of blocking
            sets, if the predicate is monotone, and not of that of circuits.

    Attributes:
        shown: every set of fewer components was proved not to be blocking, one by one.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.shown = 0

    @property
    def found(self) -> tuple[Circuit, Refuted] | None:
        """The smallest set whose removal was refuted, with the refutation."""
        search = self.search
        if not search.refuted:
            return None
        bits = max(search.refuted, key=lambda kept: (kept.bit_count(), kept))
        return ~Circuit(search.components, bits), search.refuted[bits]

    @property
    def complete(self) -> bool:
        """Whether every set was proved not to be blocking."""
        return self.shown > len(self.search.components)

    @property
    def empty_is_faithful(self) -> bool:
        """Whether the circuit that keeps nothing was proved."""
        return self.search.components.empty().bits in self.search.proved

    def run(self) -> None:
        """Search until the smallest set is found, or nothing is left to be concluded."""
        search = self.search
        if search.components.full().bits in search.proved:
            self.shown = 1
        if not search.monotone.known:
            self._one_by_one()
            if self.found is not None or self.complete:
                return
        if not self._asked(search.components.empty(), "the empty circuit"):
            self._hitting_sets()

    def _one_by_one(self) -> None:
        """Ask about all sets of one size after the other, up to the first that is blocking."""
        search = self.search
        full, count = search.components.full(), len(search.components)
        asked = 1
        for size in range(1, count + 1):
            asked += math.comb(count, size)
            if asked > MOST and count > WHOLE:
                return
            search.phase(f"sets of {size}", math.comb(count, size))
            sets = itertools.combinations(range(count), size)
            proved = True
            while part := list(itertools.islice(sets, search.predicate.wave)):
                circuits = [Circuit(search.components, full.bits & ~bits_of(s)) for s in part]
                verdicts = [verdict for _, verdict in search.ask_all(circuits)]
                if any(verdict.refuted for verdict in verdicts):
                    return
                proved = proved and all(map(faithful, verdicts))
            if not proved:
                return
            if self.shown == size:
                self.shown = size + 1

    def _hitting_sets(self) -> None:
        """Smallest sets that meet all faithful circuits known, until one is blocking."""
        search = self.search
        full = search.components.full()
        passed = greedy(search).bits
        first = [passed] if passed in search.proved else []
        search.phase("smallest blocking set")

        def judge(candidate: int) -> Judgement:
            kept = Circuit(search.components, full.bits & ~candidate)
            if self._asked(kept):
                return Judgement(False, [greedy(search, kept).bits])
            if kept.bits in search.unfaithful:
                return Judgement(True)
            smaller = _faithful_below(search, kept)
            return Judgement(False, [] if smaller is None else [greedy(search, smaller).bits])

        def enough(size: int) -> bool:
            return self.found is not None and size >= len(self.found[0])

        search_hitting_set(
            len(search.components), first, judge, search.raise_lower, enough, search.check
        )

    def _asked(self, circuit: Circuit, doing: str | None = None) -> bool:
        """Whether a circuit is faithful; asked only if it was not asked about before."""
        search = self.search
        answered = (search.proved, search.unfaithful, search.undecided)
        if not any(circuit.bits in bits for bits in answered):
            search.ask(circuit, doing)
        return circuit.bits in search.proved


def _faithful_below(search: Search, circuit: Circuit) -> Circuit | None:
    """A faithful circuit within an undecided one, by halving how much is removed."""
    rest = [component.name for component in search.order if component in circuit]
    high = len(rest)
    while high > 1:
        high //= 2
        smaller = circuit.remove(*rest[:high])
        if faithful(search.ask(smaller)):
            return smaller
    return None
