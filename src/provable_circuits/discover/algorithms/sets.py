"""Sets of components as bits of integers, and minimum hitting sets.

A hitting set has an element in common with each of some sets. The smallest one is found by RC2, a
MaxSAT solver of python-sat: one clause for each set, one soft unit clause against each element.
Sets may be added between solutions; what the solver learnt stays.

    >>> hits = HittingSets(4)
    >>> hits.add(0b0011)
    >>> hits.add(0b0110)
    >>> elements(hits.smallest())
    [1]
"""

from __future__ import annotations

from collections.abc import Iterable

from pysat.examples.rc2 import RC2
from pysat.formula import WCNF


def elements(bits: int) -> list[int]:
    """The elements of a set, in order."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


def bits_of(members: Iterable[int]) -> int:
    """The set of some elements."""
    bits = 0
    for member in members:
        bits |= 1 << member
    return bits


class HittingSets:
    """Smallest hitting sets of a growing family of sets over ``size`` elements."""

    def __init__(self, size: int) -> None:
        self.size = size
        formula = WCNF()
        for element in range(size):
            formula.append([-(element + 1)], weight=1)
        self._solver = RC2(formula, solver="g3", adapt=True)

    def add(self, bits: int) -> None:
        """Another set that must be hit."""
        self._solver.add_clause([element + 1 for element in elements(bits)])

    def exclude(self, bits: int) -> None:
        """This very set is not to be given again."""
        self._solver.add_clause([-(e + 1) if bits >> e & 1 else e + 1 for e in range(self.size)])

    def smallest(self) -> int | None:
        """A hitting set of the least size; None if there is none."""
        model = self._solver.compute()
        if model is None:
            return None
        return bits_of(literal - 1 for literal in model if 0 < literal <= self.size)

    def close(self) -> None:
        """Give the solver's memory back."""
        self._solver.delete()
