"""The exact stage: one question in rational numbers, to the last bit.

Enclosures with rounding can never prove an equality, nor that a threshold is met to the last bit.
Here nothing is rounded:

    write the question over rational forms: the excess of the objectives of each clause
    search for a point at which all objectives of a clause are exceeded, or reach zero

A clause of several objectives is the least of their excesses, which is written with ReLUs. The
search (``search``) names rational points. What breaks the question is looked for at points of
float64 numbers next to them, each evaluated once more from the definitions. Where a question has
numbers of its own that float64 does not hold, the rational point itself will do in the end: it may
be the only one, such as 1/3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Generic, Protocol, TypeVar

from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import LeakyReLU, ReLU
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.exact.domains import Extent
from provable_circuits.verify.exact.forms import ZERO, Atoms, Form, combination
from provable_circuits.verify.exact.network import size_of
from provable_circuits.verify.exact.search import Budget, CellSearch, TooManyCells, Values
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.tuning.exact import ExactTuning

ONE = Fraction(1)
Evidence = TypeVar("Evidence")
Evidence_co = TypeVar("Evidence_co", covariant=True)


class RationalQuestion(Protocol[Evidence_co]):
    """A question over rational forms.

    Attributes:
        atoms: the variables and ReLUs that forms are written over.
        variables: the tensors that range, each with its elements as forms.
        touching: whether a clause is broken where its excess is zero, not only above.
        any_point: whether a point need not be of float64 numbers.
    """

    atoms: Atoms
    variables: Sequence[tuple[Extent, Sequence[Form]]]
    touching: bool
    any_point: bool

    def clauses(self) -> Sequence[Sequence[Form]] | None:
        """For each clause the excess of its objectives; None if they have no such form."""

    def witness(self, points: Sequence[Sequence[Fraction]]) -> Evidence_co | None:
        """What breaks the question at a point for each of ``variables``, from the definitions."""


def is_exact_size(graph: Graph, tuning: ExactTuning) -> bool:
    """Whether a lowered network is piecewise linear, and small enough to be written out."""
    size = size_of(graph)
    return size is not None and size <= tuning.most_weights


def is_searchable(graph: Graph, tuning: ExactTuning, free: int, more_units: int = 0) -> bool:
    """Whether so many numbers that range, and ReLUs besides the network's, are few enough."""
    units = sum(math.prod(n.shape) for n in graph.nodes if isinstance(n.op, ReLU | LeakyReLU))
    few = free <= tuning.most_variables
    return few and (not free or units + more_units <= tuning.most_units)


def decide_rational(
    question: RationalQuestion[Evidence],
    budget: Budget,
    deadline: Deadline,
    tuning: ExactTuning = DEFAULT.exact,
) -> tuple[Outcome, Evidence | None]:
    """Decide one question.

    Returns:
        ``refuted`` and the evidence; ``proved``; ``close``, where a clause is broken at rational
        points but at none of floats that were found; ``open``, where it has no rational form, or
        takes too many cells.

    Raises:
        OutOfTime: the deadline has passed, and nothing was found.
    """
    clauses = question.clauses()
    if clauses is None:
        return Outcome.OPEN, None
    goals = [_least(question.atoms, clause) for clause in clauses]
    points = _Points(question, budget, deadline, tuning)
    search = CellSearch(
        question.atoms, goals, points.confirm, budget, deadline, question.touching, tuning
    )
    try:
        found = search.run() or points.other
    except (TooManyCells, OutOfTime) as stopped:
        if points.other is not None:
            return Outcome.REFUTED, points.other
        if isinstance(stopped, OutOfTime):
            raise
        return Outcome.OPEN, None
    if found is not None:
        return Outcome.REFUTED, found
    return (Outcome.CLOSE if search.close else Outcome.PROVED), None


def _least(atoms: Atoms, forms: Sequence[Form]) -> Form:
    """The least of some forms: min(a, b) = b - relu(b - a)."""
    first, *others = forms
    for other in others:
        gain = atoms.relu(combination([(ONE, other), (-ONE, first)]))
        first = combination([(ONE, other), (-ONE, gain)])
    return first


class _Points(Generic[Evidence]):
    """Looks for points that break a question: points of floats, or any other."""

    def __init__(
        self,
        question: RationalQuestion[Evidence],
        budget: Budget,
        deadline: Deadline,
        tuning: ExactTuning,
    ) -> None:
        self.tuning = tuning
        self.question = question
        self.budget = budget
        self.deadline = deadline
        self.other: Evidence | None = None
        """What breaks the question at a point that is none of floats."""

    def confirm(self, point: Values, push: Mapping[int, Fraction]) -> Evidence | None:
        """What breaks the question at floats at or next to a point."""
        for made in self._candidates(point, push):
            self.deadline.check()
            found = self.question.witness(made)
            if found is not None:
                return found
        if self.question.any_point and self.other is None:
            exact = [[form.at(point) for form in forms] for _, forms in self.question.variables]
            self.other = self.question.witness(exact)
            if self.other is not None:
                self.budget.cells = min(self.budget.cells, self.tuning.more_cells)
        return None

    def _candidates(
        self, point: Values, push: Mapping[int, Fraction]
    ) -> Iterator[list[list[Fraction]]]:
        """Points inside the domains, of all tensors together."""
        near = []
        for extent, forms in self.question.variables:
            ways = [
                sum((c * push.get(i, ZERO) for i, c in form.terms.items()), ZERO) for form in forms
            ]
            near.append(
                list(extent.points([form.at(point) for form in forms], ways, self.tuning.retreats))
            )
        if not all(near):
            return
        for k in range(max(len(made) for made in near)):
            yield [made[min(k, len(made) - 1)] for made in near]
