"""Blocking sets: enumerate small ones, and hit them all.

    K = {}
    for t = 1, ..., t_max:
        for each set S of t components that contains no set of K:       # in parallel
            if the network without S is refuted: add S to K
        C = a smallest hitting set of K                # a lower bound, if the predicate is monotone
        if C is faithful: done, C is of the least size
    otherwise: a greedy pass for a circuit, with the bound beside it

In the paper: Algorithm 2. Up to the sum of binomials (n over t) questions; an undecided one is no
blocking set. The bound holds for monotone predicates alone, and so does the minimality of C.

If the predicate is known to be monotone, the greedy pass comes first: no set within what it removed
is blocking, and none of those is asked about.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.algorithms.sets import HittingSets, bits_of
from provable_circuits.discover.predicates.predicate import faithful
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit


def blocking_sets(search: Search, t_max: int = 3) -> Circuit | None:
    """A smallest hitting set of small blocking sets if it is faithful, else a greedy circuit."""
    components = search.components
    full = components.full()
    if faithful(search.ask(components.empty(), "the empty circuit")):
        return components.empty()
    removable = (~greedy(search)).bits if search.monotone.known else 0
    blocking: list[int] = []
    hits = HittingSets(len(components))
    try:
        for size in range(1, min(t_max, len(components)) + 1):
            sets = list(open_sets(len(components), size, blocking, removable))
            search.phase(f"blocking sets of {size}", len(sets))
            circuits = [Circuit(components, full.bits & ~bits) for bits in sets]
            for circuit, verdict in search.ask_all(circuits):
                if verdict.refuted:
                    blocking.append((full - circuit).bits)
                    hits.add(blocking[-1])
            smallest = hits.smallest()
            if smallest is None:
                raise AssertionError("blocking sets are not empty, so something hits them")
            search.raise_lower(smallest.bit_count())
            circuit = Circuit(components, smallest)
            if faithful(search.ask(circuit, f"the hitting set of level {size}")):
                return circuit
    finally:
        hits.close()
    return search.best if search.monotone.known else greedy(search)


def open_sets(count: int, size: int, blocking: Sequence[int], removable: int = 0) -> Iterator[int]:
    """Sets of so many of the components, as bits, whose answer is not known.

    One that contains a blocking set is blocking, one within a removable set is not.
    """
    alone = {bits for bits in blocking if bits.bit_count() == 1}
    larger = [bits for bits in blocking if bits not in alone]
    free = [i for i in range(count) if 1 << i not in alone]
    for chosen in itertools.combinations(free, size):
        bits = bits_of(chosen)
        if bits & ~removable and not any(known & bits == known for known in larger):
            yield bits
