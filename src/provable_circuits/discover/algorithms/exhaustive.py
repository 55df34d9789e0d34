"""Exhaustive greedy discovery: passes until no single removal survives.

    C = all components
    repeat:
        one greedy pass over C
    until the pass removed nothing

The result is locally minimal, whatever the predicate: in the last pass each component was tried on
the very circuit that is returned. At most n passes of at most n questions; a circuit that was
refuted before is not asked about again, so the last pass asks only about what changed. If the
predicate is known to be monotone, one pass is enough: what was refuted within a larger circuit is
refuted within a smaller one. In the paper: Algorithm 3, in the appendix.

A component whose removal stays undecided is kept, and local minimality then holds up to it.
"""

from __future__ import annotations

from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit


def exhaustive(search: Search) -> Circuit:
    """The circuit that no pass shrinks further."""
    circuit = greedy(search)
    while circuit and not search.monotone.known:
        smaller = greedy(search, circuit)
        if smaller == circuit:
            break
        circuit = smaller
    return circuit
