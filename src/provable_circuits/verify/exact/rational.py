"""Linear programs over the unit box, solved in exact rational arithmetic.

    maximise  c_0 + c . t    over  0 <= t <= 1    subject to  b_i + a_i . t >= 0  for each row i

The corner of the box that c points to maximises without the rows: there the dual simplex method
starts. A dictionary writes every quantity that may not be negative (t_j, 1 - t_j, and each row) as
an affine function of n of them, its *columns*, which are zero at the current vertex:

    d e = E_0 + E_1 y_1 + ... + E_n y_n           y the columns, d > 0

    while some quantity q is negative at the vertex:
        among columns with q_c > 0 take the one with the least |objective_c| / q_c
        if there is none, the rows contradict each other: q is negative wherever y >= 0
        exchange q and column c

All coefficients of the objective stay at or below zero, so that its value at the vertex is an upper
bound of the maximum at any time, and the maximum once no quantity is negative. All numbers are
integers over the one denominator d, which is a determinant, so that the division by the last d in
an exchange leaves no remainder (Edmonds). Whenever an exchange did not change the objective, the
quantity and column of least index are taken (Bland), so that the method ends. Rows wait outside
until a vertex violates them.

    >>> half = Fraction(1, 2)
    >>> maximise([0, 1, 1], [[half, -1, 0]])
    Optimum(value=Fraction(3, 2), point=(Fraction(1, 2), Fraction(1, 1)))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline

Rational = Fraction | int
Integers = NDArray[Any]
"""Arrays of Python integers, dtype object: numpy's own would overflow."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """An upper bound of the maximum; it is the maximum if it is attained at ``point``."""

    value: Fraction
    point: tuple[Fraction, ...] | None


def maximise(
    objective: Sequence[Rational],
    rows: Sequence[Sequence[Rational]],
    *,
    enough: Fraction | None = None,
    first: Iterable[int] = (),
    deadline: Deadline | None = None,
    added: int = DEFAULT.exact.added_rows,
) -> Optimum | None:
    """The maximum of an affine function over the unit box cut by rows; None if nothing is left.

    Args:
        objective: the constant and then one coefficient for each variable.
        rows: affine functions, written the same way, that may not be negative.
        enough: stop as soon as the maximum is known to be at most this; ``point`` is None then.
        first: rows that are likely to matter; the answer is the same whatever is said here.
        deadline: when to give up.
        added: violated rows that join together.
    """
    waiting = {i: whole(row)[0] for i, row in enumerate(rows)}
    goal, scale = whole(objective)
    table = _Table(goal)
    for i in first:
        if i in waiting:
            table.add(i, waiting.pop(i))
    limit = None if enough is None else enough * scale
    while True:
        if not table.settle(limit, deadline):
            return None
        value = Fraction(table.lines[0, 0], table.denominator)
        if limit is not None and value <= limit:
            return Optimum(value / scale, None)
        violated = table.violated(waiting)
        if not violated:
            return Optimum(value / scale, table.point())
        for i in violated[:added]:
            table.add(i, waiting.pop(i))


def weighed(
    objective: Sequence[Fraction],
    rows: Sequence[Sequence[Fraction]],
    multipliers: Sequence[tuple[int, Fraction]],
) -> Fraction:
    """An upper bound of the maximum from any multipliers w_i >= 0 of rows: weak duality.

    Where no row is negative, c_0 + c . t is at most (c + sum_i w_i a_i)(t), whose largest value
    over the unit box is read off its signs.
    """
    total = list(objective)
    for i, factor in multipliers:
        if factor < 0:
            raise ValueError("multipliers of inequalities are not negative")
        for j, entry in enumerate(rows[i]):
            if entry:
                total[j] += factor * entry
    return total[0] + sum((c for c in total[1:] if c > 0), Fraction(0))


def whole(row: Sequence[Rational]) -> tuple[list[int], Fraction]:
    """Coprime integers and the positive factor that makes them from the row."""
    common = math.lcm(*(entry.denominator for entry in row))
    numbers = [entry.numerator * (common // entry.denominator) for entry in row]
    shared = math.gcd(*numbers) or 1
    return [number // shared for number in numbers], Fraction(common, shared)


def _ratio(value: int, size: int) -> float:
    """About how negative a number is, to compare with others."""
    try:
        return value / size
    except OverflowError:
        return -math.inf


class _Table:
    """The dictionary. Line 0 is the objective, line 1 + j the variable j, and then rows.

    Quantities have numbers: 2 j for t_j, 2 j + 1 for 1 - t_j, 2 n + i for row i.
    """

    def __init__(self, objective: Sequence[int]) -> None:
        count = len(objective) - 1
        self.count = count
        self.denominator = 1
        self.lines: Integers = np.zeros((1 + count, 1 + count), dtype=object)
        self.columns = [-1]
        self.rows: list[int] = []
        self.sizes: list[int] = []
        self.lines[0, 0] = objective[0]
        for j, factor in enumerate(objective[1:]):
            self.lines[0, 1 + j] = -abs(factor)
            self.lines[1 + j, 1 + j] = -1 if factor > 0 else 1
            if factor > 0:
                self.lines[0, 0] += factor
                self.lines[1 + j, 0] = 1
            self.columns.append(2 * j + (factor > 0))

    def add(self, number: int, row: Sequence[int]) -> None:
        """Write a row into the dictionary."""
        line = np.array(row[1:], dtype=object) @ self.lines[1 : 1 + self.count]
        if not self.count:
            line = np.zeros(1, dtype=object)
        line[0] += row[0] * self.denominator
        self.lines = np.concatenate([self.lines, line[None]])
        self.rows.append(number)
        self.sizes.append(sum(abs(entry) for entry in row) or 1)

    def settle(self, limit: Fraction | None, deadline: Deadline | None) -> bool:
        """Exchange until no quantity is negative or the limit is met; False if that cannot be."""
        careful = False
        while limit is None or self.lines[0, 0] > limit * self.denominator:
            if deadline is not None:
                deadline.check()
            leaving = self._leaving(careful)
            if leaving is None:
                return True
            number, line = leaving
            column = self._entering(line)
            if column is None:
                return False
            before = self.lines[0, 0], self.denominator
            self._exchange(number, line, column)
            careful = self.lines[0, 0] * before[1] == before[0] * self.denominator
        return True

    def _leaving(self, careful: bool) -> tuple[int, Integers] | None:
        """A negative quantity, the worst or the first, and its line; None if there is none."""
        one = self.denominator
        found: list[tuple[float, int, int]] = []
        for j in range(self.count):
            value = self.lines[1 + j, 0]
            if value < 0:
                found.append((_ratio(value, one), 2 * j, 1 + j))
            elif value > one:
                found.append((_ratio(one - value, one), 2 * j + 1, 1 + j))
        for place, (number, size) in enumerate(zip(self.rows, self.sizes, strict=True)):
            value = self.lines[1 + self.count + place, 0]
            if value < 0:
                found.append(
                    (_ratio(value, one * size), 2 * self.count + number, 1 + self.count + place)
                )
        if not found:
            return None
        _, number, place = min(found, key=lambda f: f[1]) if careful else min(found)
        line: Integers = self.lines[place]
        if number < 2 * self.count and number % 2:
            line = -line
            line[0] += one
        return number, line

    def _entering(self, line: Integers) -> int | None:
        """The column that the objective minds least, among those that raise a quantity."""
        best: int | None = None
        for c in range(1, 1 + self.count):
            if line[c] <= 0:
                continue
            if best is not None:
                gap = self.lines[0, c] * line[best] - self.lines[0, best] * line[c]
                if gap < 0 or (gap == 0 and self.columns[c] > self.columns[best]):
                    continue
            best = c
        return best

    def _exchange(self, number: int, line: Integers, column: int) -> None:
        """Make a quantity a column in place of another."""
        pivot, kept = line[column], self.lines[:, column].copy()
        self.lines = (self.lines * pivot - np.outer(kept, line)) // self.denominator
        self.lines[:, column] = kept
        self.denominator = pivot
        self.columns[column] = number

    def violated(self, waiting: dict[int, list[int]]) -> list[int]:
        """Rows outside the dictionary that are negative at the vertex, the worst first."""
        numbers = list(waiting)
        if not numbers:
            return []
        vertex = np.concatenate([[self.denominator], self.lines[1 : 1 + self.count, 0]])
        values = np.array([waiting[i] for i in numbers], dtype=object) @ vertex
        worst = sorted(
            (_ratio(value, self.denominator * sum(abs(entry) for entry in waiting[i])), i)
            for i, value in zip(numbers, values, strict=True)
            if value < 0
        )
        return [i for _, i in worst]

    def point(self) -> tuple[Fraction, ...]:
        """The variables at the vertex."""
        return tuple(Fraction(v, self.denominator) for v in self.lines[1 : 1 + self.count, 0])
