"""Covering: how many elements a set needs that meets all of some sets.

A set H *hits* a family if it meets each of its sets. Give each set B a weight y_B >= 0, so that for
every element the weights of the sets that contain it add up to at most 1. Then every H that hits
the family has at least sum y_B elements: each B has an element in H, so sum_B y_B is at most
sum over c in H of the weights of the sets that contain c, which is at most |H| (a packing; weak
duality of linear programs).

Where one packing does not suffice, a tree branches on an element: it is in H, or it is not. Of an H
that contains the elements ``taken`` and none of ``dropped``, the same argument with the sets that
no taken element hits, and with elements that are neither taken nor dropped, says that H has at
least |taken| + sum y_B elements. Both branches together are all H.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from .arithmetic import RefusedError

Element = str
Packing = Mapping[int, Fraction]
"""Weights of sets, by their places."""


def check_covering(
    family: Sequence[Collection[Element]], size: int, nodes: Sequence[Element | Packing]
) -> int:
    """Refuse unless every set that hits the family has at least ``size`` elements.

    Args:
        family: the sets.
        size: the bound.
        nodes: a tree in preorder: an element to branch on, followed by the half with it and the
            half without it; or weights, a leaf.

    Returns:
        The number of leaves.
    """
    waiting: list[tuple[frozenset[Element], frozenset[Element]]] = [(frozenset(), frozenset())]
    leaves = 0
    for node in nodes:
        if not waiting:
            raise RefusedError("A covering has more nodes than its branches make.")
        taken, dropped = waiting.pop()
        if isinstance(node, Element):
            waiting += [(taken, dropped | {node}), (taken | {node}, dropped)]
            continue
        leaves += 1
        loads: dict[Element, Fraction] = {}
        for place, weight in node.items():
            if weight < 0 or not taken.isdisjoint(family[place]):
                raise RefusedError("A weight is negative, or of a set that is hit already.")
            for element in set(family[place]) - dropped:
                loads[element] = loads.get(element, Fraction(0)) + weight
        if any(load > 1 for load in loads.values()):
            raise RefusedError("The weights of the sets of an element exceed 1.")
        if not len(taken) + sum(node.values()) > size - 1:
            raise RefusedError("The weights of a leaf do not add up to the bound.")
    if waiting:
        raise RefusedError("A covering has a branch without both halves.")
    return leaves
