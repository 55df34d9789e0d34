"""Branch and bound in rational arithmetic: whether forms exceed zero anywhere over their atoms.

With ``touching``, whether they reach it.

    search(forms):
        cells = [one for each form, no sign chosen]
        while cells:
            take a cell, those without signs first, then the latest
            before the first with signs, enclose every ReLU's inner form by the relaxation below it
            write every ReLU of chosen or settled sign as its inner form, or as zero
            if the form's upper end over the box is <= 0, the cell is done
            ask a floating-point solver for the relaxation's maximum
            if its point, made of floats and evaluated exactly, breaks the claim: refuted
            if the maximum is not clearly positive, bound it exactly: at or below 0 the cell is done
            choose a ReLU that the relaxation gets wrong and split the cell by its sign

A cell is a polytope: the domain and the signs chosen. The relaxation replaces relu(g), for g
between l < 0 and u > 0, by an atom a with a >= 0, a >= g and (u - l) a <= u (g - l). Where no ReLU
is left open it is the cell itself, so that the exact maximum is known. The solver only says where
to look: which rows matter, which point to try, whether it is worth to bound now or to split first.
Whatever it says, a cell is done by exact arithmetic alone.

A maximum above zero may be attained where no point of floats breaks the claim. Then the search goes
on, and if nothing else refutes, the answer is that it is too close to call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, identity

from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.domains import nearest_float
from provable_circuits.verify.exact.forms import NOTHING, ZERO, Atoms, Ends, Form, combination
from provable_circuits.verify.exact.rational import Optimum, maximise, weighed
from provable_circuits.verify.tuning.exact import ExactTuning

ONE = Fraction(1)
Values = dict[int, Fraction]
Found = TypeVar("Found")


class TooManyCells(Exception):  # noqa: N818 - not an error: the question is left to others
    """Raised when the search has opened as many cells as it may."""


@dataclass(slots=True)
class Budget:
    """How many cells may still be opened, by all searches of a question together."""

    cells: int

    def spend(self) -> None:
        """Open one more cell."""
        if self.cells <= 0:
            raise TooManyCells
        self.cells -= 1


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A polytope, and what the form looks like in it.

    Attributes:
        goal: the form, over variables and open ReLUs.
        rows: forms that are not negative in the cell.
        open: for open ReLUs that the goal or a row depends on, their inner forms and these's ends.
        ends: where variables and open ReLUs range.
    """

    goal: Form
    rows: list[Form]
    open: dict[int, tuple[Form, Ends]]
    ends: Mapping[int, Ends]


class CellSearch(Generic[Found]):
    """Decides whether any of several forms exceeds zero anywhere.

    Args:
        atoms: the variables and ReLUs that forms are written over.
        forms: the forms.
        confirm: given values of variables and directions in which the form grows, what breaks the
            claim at floats there or nearby, or None.
        budget: how many cells may be opened.
        deadline: when to give up.
        touching: whether a form breaks the claim where it is zero, not only where it exceeds that.
        tuning: when a cell is bounded, and which points are tried.
    """

    def __init__(
        self,
        atoms: Atoms,
        forms: Sequence[Form],
        confirm: Callable[[Values, Mapping[int, Fraction]], Found | None],
        budget: Budget,
        deadline: Deadline,
        touching: bool = False,
        tuning: ExactTuning = DEFAULT.exact,
    ) -> None:
        self.atoms = atoms
        self.forms = forms
        self.confirm = confirm
        self.budget = budget
        self.deadline = deadline
        self.touching = touching
        self.tuning = tuning
        self.enclosed: dict[int, Ends] = {}
        """Bounds of ReLUs' inner forms all over the domain, where better than intervals give
        them."""
        self.close = False
        """Whether a maximum above zero was met that no point of floats confirms."""

    def run(self) -> Found | None:
        """What breaks the claim; None if no form is positive, or where ``close`` says why not."""
        atoms = self.atoms
        middle = {i: (e[0] + e[1]) / 2 for i, e in enumerate(atoms.ends) if i not in atoms.inner}
        if not atoms.limits:
            found = self._try(middle, {})
            if found is not None:
                return found
        roots: list[tuple[Form, dict[int, bool]]] = [(form, {}) for form in reversed(self.forms)]
        stack: list[tuple[Form, dict[int, bool]]] = []
        while roots or stack:
            self.deadline.check()
            if not roots and not self.enclosed:
                self._enclose()
            form, signs = (roots or stack).pop()
            cell = self.cell(form, signs)
            if cell is None or self._harmless(cell.goal.over(cell.ends)[1]):
                continue
            self.budget.spend()
            self.deadline.spend(1)
            found, split = self._examine(cell)
            if found is not None:
                return found
            if split is not None:
                stack += [(form, {**signs, split: False}), (form, {**signs, split: True})]
        return None

    def _harmless(self, value: Fraction) -> bool:
        """Whether a form of no larger value breaks nothing."""
        return value < 0 or (value == 0 and not self.touching)

    def cell(self, form: Form, signs: Mapping[int, bool]) -> Cell | None:
        """What is left of the form where the ReLUs in ``signs`` are open or shut; None if nothing.

        Each chosen sign narrows the bounds of what its row depends on, so that it settles others:
            the ReLUs are gone through twice, the second time with variables narrowed by the first.
        """
        atoms = self.atoms
        ends: dict[int, Ends] = {i: e for i, e in enumerate(atoms.ends) if i not in atoms.inner}
        cell = self._narrowed(form, signs, ends)
        if cell is None or not signs:
            return cell
        return self._narrowed(form, signs, {i: cell.ends[i] for i in ends})

    def _narrowed(
        self, form: Form, signs: Mapping[int, bool], variables: Mapping[int, Ends]
    ) -> Cell | None:
        """The cell, for variables between ends that all of its points respect.

        Signs that intervals settle are taken as settled: their rows hold wherever the bounds are
        respected, which the relaxation sees to.
        """
        atoms, ends = self.atoms, dict(variables)
        known: dict[int, Form] = {}
        rows = list(atoms.limits)
        open_: dict[int, tuple[Form, Ends]] = {}
        chosen = [Form(ZERO, {i: ONE}) for i in signs]
        for i in atoms.below([form, *chosen]):
            self.deadline.check()
            inner = atoms.inner[i].replaced(known)
            low, high = inner.over(ends)
            if i in self.enclosed:
                low, high = max(low, self.enclosed[i][0]), min(high, self.enclosed[i][1])
            sign = signs.get(i)
            if (sign is True and high < 0) or (sign is False and low > 0):
                return None
            if low >= 0 or sign is True:
                known[i] = inner
                if low < 0:
                    rows.append(inner)
                    tighten(inner, ends)
            elif high <= 0 or sign is False:
                known[i] = NOTHING
                if high > 0:
                    rows.append(-inner)
                    tighten(-inner, ends)
            else:
                open_[i] = inner, (low, high)
                ends[i] = ZERO, high
        goal = form.replaced(known)
        return Cell(goal, rows, _needed([goal, *rows], open_), ends)

    def _enclose(self) -> None:
        """Bound the inner form of every ReLU from both sides, by its relaxation."""
        for i in self.atoms.below(self.forms):
            inner = self.atoms.inner[i]
            low, high = -self._upper(-inner), self._upper(inner)
            self.enclosed[i] = low, high

    def _upper(self, form: Form) -> Fraction:
        """An upper bound of a form all over the domain."""
        cell = self.cell(form, {})
        if cell is None:
            raise RuntimeError("a domain is not empty")
        _, most = cell.goal.over(cell.ends)
        if not cell.open:
            return most
        program = Program(cell, self.deadline, self.tuning.added_rows)
        hint = program.solve()
        return most if hint is None else min(most, -_coarse(-program.bound(hint)))

    def _examine(self, cell: Cell) -> tuple[Found | None, int | None]:
        """Bound one cell: what breaks the claim, or the ReLU to split at, or neither."""
        program = Program(cell, self.deadline, self.tuning.added_rows)
        hint = program.solve()
        margin = self.tuning.solver_margin
        if hint is not None and hint.value > margin:
            point = program.values(_fractions(hint.point))
            found = self._try(point, cell.goal.terms)
            if found is not None:
                return found, None
            if cell.open:
                return None, self._worst(cell, point)
        if hint is not None and hint.value < margin and self._refuted(program, hint):
            return None, None
        best = program.maximum(hint, None if self.touching else ZERO)
        if best is None or best.point is None or self._harmless(best.value):
            return None, None
        point = program.values(best.point)
        found = self._try(point, cell.goal.terms)
        if found is None and cell.open:
            return None, self._worst(cell, point)
        if found is None:
            found = self._inside(cell, program, best.point)
            self.close |= found is None
        return found, None

    def _refuted(self, program: Program, hint: Hint) -> bool:
        """Whether the multipliers show that the goal breaks nothing, or that the cell is empty."""
        if hint.value == -np.inf:
            return program.empty(hint)
        return self._harmless(program.bound(hint))

    def _try(self, point: Values, alpha: Mapping[int, Fraction]) -> Found | None:
        """Confirm that some form breaks the claim at or next to a point of the domain."""
        values = dict(point)
        for i in self.atoms.below(self.forms):
            values[i] = max(self.atoms.inner[i].at(values), ZERO)
        if all(self._harmless(form.at(values)) for form in self.forms):
            return None
        return self.confirm(point, alpha)

    def _worst(self, cell: Cell, point: Values) -> int:
        """The open ReLU whose error in the relaxation can move the goal most."""
        weights: dict[int, float] = {i: abs(nearest_float(c)) for i, c in cell.goal.terms.items()}
        errors: dict[int, float] = {}
        for i in sorted(cell.open, reverse=True):
            inner, _ = cell.open[i]
            own = weights.get(i, 0.0)
            for j, c in inner.terms.items():
                weights[j] = weights.get(j, 0.0) + own * abs(nearest_float(c))
            error = nearest_float(abs(point[i] - max(inner.at(point), ZERO)))
            errors[i] = own * error if error else 0.0
        return max(errors, key=lambda i: (errors[i], -i))

    def _inside(self, cell: Cell, program: Program, vertex: Sequence[Fraction]) -> Found | None:
        """Try points on the way from a maximum to the middle of other vertices of its cell."""
        count = len(program.columns)
        if count > self.tuning.inside_variables:
            return None
        others: list[Sequence[Fraction]] = []
        for j in range(count):
            for sign in (1, -1):
                goal = [ZERO] * (count + 1)
                goal[j + 1] = Fraction(sign)
                best = maximise(
                    goal, program.rows, deadline=self.deadline, added=self.tuning.added_rows
                )
                if best is not None and best.point is not None:
                    others.append(best.point)
        if not others:
            return None
        middle = [sum(entries, ZERO) / len(others) for entries in zip(*others, strict=True)]
        for step in self.tuning.inward_steps:
            self.deadline.check()
            share = Fraction(step)
            point = [v + (m - v) * share for v, m in zip(vertex, middle, strict=True)]
            found = self._try(program.values(point), cell.goal.terms)
            if found is not None:
                return found
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Hint:
    """What the floating-point solver found: value, point, and multipliers of rows."""

    value: float
    point: NDArray[np.float64]
    multipliers: NDArray[np.float64]


class Program:
    """The relaxation of a cell as a linear program over the unit box."""

    def __init__(self, cell: Cell, deadline: Deadline, added: int) -> None:
        self.added = added
        self.cell = cell
        self.deadline = deadline
        limits = list(cell.rows)
        for i, (inner, (low, high)) in cell.open.items():
            own = Form(ZERO, {i: ONE})
            limits.append(combination([(ONE, own), (-ONE, inner)]))
            limits.append(combination([(high, inner), (low - high, own)], -high * low))
        used = {i for form in (cell.goal, *limits) for i in form.terms}
        self.columns = sorted(used)
        self.places = {i: j for j, i in enumerate(self.columns)}
        self.idle = {i: e[0] for i, e in cell.ends.items() if i not in used}
        self.goal = self._row(cell.goal)
        self.rows = [self._row(form) for form in limits]

    def _row(self, form: Form) -> list[Fraction]:
        """The form over variables that range from 0 to 1."""
        self.deadline.check()
        row = [form.constant] + [ZERO] * len(self.columns)
        for i, c in form.terms.items():
            low, high = self.cell.ends[i]
            row[0] += c * low
            row[1 + self.places[i]] = c * (high - low)
        return row

    def values(self, point: Sequence[Fraction]) -> Values:
        """The atoms at a point of the unit box."""
        found = dict(self.idle)
        for i, share in zip(self.columns, point, strict=True):
            low, high = self.cell.ends[i]
            found[i] = low + (high - low) * share
        return found

    def solve(self) -> Hint | None:
        """Ask the floating-point solver; None if it has nothing to tell.

        If it says that the rows contradict each other, it is asked for the least total violation,
        whose multipliers show that; the hint has the value -inf then. It is not asked where a
        corner of the box is the answer.
        """
        goal, _ = _approximate(self.goal)
        if not self.rows or not goal[1:].any():
            return None
        rows = np.zeros((len(self.rows), len(goal)))
        for i, row in enumerate(self.rows):
            self.deadline.check()
            rows[i] = _approximate(row)[0]
        matrix, options = csr_array(-rows[:, 1:]), {"time_limit": max(self.deadline.left, 0.01)}
        answer = linprog(-goal[1:], matrix, rows[:, 0], bounds=(0, 1), options=options)
        self.deadline.check()
        value, count = -np.inf, len(self.columns)
        if answer.status == 0:
            value = float(goal[0] - answer.fun)
        elif answer.status == 2:
            cost = np.concatenate([np.zeros(count), np.ones(len(rows))])
            slack = hstack([matrix, -identity(len(rows))], format="csr")
            limits = [(0.0, 1.0)] * count + [(0.0, np.inf)] * len(rows)
            answer = linprog(cost, slack, rows[:, 0], bounds=limits, options=options)
            self.deadline.check()
        if answer.status != 0:
            return None
        multipliers = np.maximum(-answer.ineqlin.marginals, 0)
        return Hint(value, np.clip(answer.x[:count], 0, 1), multipliers)

    def bound(self, hint: Hint) -> Fraction:
        """An upper bound of the goal, from the solver's multipliers taken as they are."""
        return weighed(self.goal, self.rows, self._pairs(hint, _approximate(self.goal)[1]))

    def empty(self, hint: Hint) -> bool:
        """Whether the multipliers show that the cell is empty."""
        nothing = [ZERO] * len(self.goal)
        return weighed(nothing, self.rows, self._pairs(hint, ONE)) < 0

    def _pairs(self, hint: Hint, size: Fraction) -> list[tuple[int, Fraction]]:
        """Multipliers of rows as they are here, from those of rows as the solver saw them."""
        return [
            (i, Fraction(float(hint.multipliers[i])) * size / _approximate(self.rows[i])[1])
            for i in hint.multipliers.nonzero()[0].tolist()
        ]

    def maximum(self, hint: Hint | None, enough: Fraction | None) -> Optimum | None:
        """The exact maximum, or a bound at or below what is enough; None if the cell is empty."""
        first = [] if hint is None else hint.multipliers.nonzero()[0].tolist()
        return maximise(
            self.goal,
            self.rows,
            enough=enough,
            first=first,
            deadline=self.deadline,
            added=self.added,
        )


def tighten(form: Form, ends: dict[int, Ends]) -> None:
    """Narrow the bounds of atoms to where the form, which is not negative, lets them be.

    c_i a_i >= -(largest value of the rest). New ends are rounded outward to 64 bits, to stay short;
    the form has a point between the bounds at which it is not negative.
    """
    _, most = form.over(ends)
    for i, c in form.terms.items():
        low, high = ends[i]
        end = (low if c < 0 else high) - most / c
        if c > 0 and end > low:
            ends[i] = max(low, _coarse(end)), high
        elif c < 0 and end < high:
            ends[i] = low, min(high, -_coarse(-end))


def _coarse(value: Fraction) -> Fraction:
    """A number of 64 bits just below."""
    power = value.denominator.bit_length() - value.numerator.bit_length() + 64
    scale = Fraction(2) ** power
    return Fraction(math.floor(value * scale)) / scale


def _needed(
    forms: Sequence[Form], open_: Mapping[int, tuple[Form, Ends]]
) -> dict[int, tuple[Form, Ends]]:
    """Open ReLUs that some forms depend on."""
    found: dict[int, tuple[Form, Ends]] = {}
    stack = [i for form in forms for i in form.terms]
    while stack:
        i = stack.pop()
        if i in open_ and i not in found:
            found[i] = open_[i]
            stack.extend(open_[i][0].terms)
    return found


def _approximate(row: Sequence[Fraction]) -> tuple[NDArray[np.float64], Fraction]:
    """The row as floats of about one at most in size, and the power of two it was divided by."""
    most = max(abs(entry) for entry in row)
    power = most.numerator.bit_length() - most.denominator.bit_length() if most else 0
    size = Fraction(2) ** power
    return np.array([nearest_float(entry / size) if entry else 0.0 for entry in row]), size


def _fractions(point: NDArray[np.float64]) -> list[Fraction]:
    return [Fraction(value) for value in point.tolist()]
