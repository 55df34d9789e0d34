"""Binary search: a quasi-minimal circuit by a logarithmic number of questions.

    low, high = 0, number of components      # without the first low faithful, the first high not
    while high - low > 1:
        middle = (low + high) // 2
        if the network without its first middle components is faithful:
            low = middle
        else:
            high = middle
    C = the network without its first low components

Components are counted in the given order. The result is quasi-minimal: it is faithful, and without
component number low + 1 it is not. It rests on the network being faithful and the empty circuit not
being so; both are asked first, and an empty circuit that is faithful is the answer. That makes
2 + ceil(log2 n) questions. In the paper: Algorithm 4, in the appendix.

An undecided question counts as not faithful; the result is then quasi-minimal up to it.
"""

from __future__ import annotations

from provable_circuits.discover.predicates.predicate import faithful
from provable_circuits.discover.search import Search
from provable_circuits.network.circuit import Circuit


def binary_search(search: Search) -> Circuit:
    """The circuit at the breaking point that halving finds."""
    components, order = search.components, search.order
    search.phase("binary search", max(len(order) - 1, 0).bit_length() + 1)
    if faithful(search.ask(components.empty(), "the empty circuit")):
        return components.empty()
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        if faithful(search.ask(_without(search, middle), f"{middle} components removed")):
            low = middle
        else:
            high = middle
    return _without(search, low)


def _without(search: Search, count: int) -> Circuit:
    """The network without the first components of the order."""
    return search.components.full().remove(*(c.name for c in search.order[:count]))
