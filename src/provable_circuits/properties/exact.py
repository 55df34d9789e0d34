"""The exact stage of plain properties: a case of a small piecewise-linear network, to the last bit.

A case asks for an x of its box with rows @ y <= bounds, ends included. Rounding cannot tell whether
an output reaches a bound exactly; here the numbers are those of the file, and nothing is rounded:

    run the network on rational forms over the box as written
    search for a point at which -max_i (rows[i] . y - bounds[i]) is at least zero

The point found may be one that float64 does not hold, such as 1/3, and then there may be none else:
the search goes on for a point of floats, and settles for the other in the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import LeakyReLU, ReLU
from provable_circuits.properties.vnnlib import Case
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.exact.domains import nearest_float
from provable_circuits.verify.exact.forms import ZERO, Atoms, Form, combination
from provable_circuits.verify.exact.network import RationalNetwork, size_of
from provable_circuits.verify.exact.search import Budget, CellSearch, TooManyCells, Values
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.tuning.exact import ExactTuning

ONE = Fraction(1)
Point = tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Met:
    """Inputs and outputs that meet a case, exactly."""

    x: Point
    y: Point


def meets(
    network: Graph,
    case: Case,
    x: Sequence[Fraction],
    deadline: Deadline,
    tuning: ExactTuning = DEFAULT.exact,
) -> Met | None:
    """Whether one point of the box meets the case; None also for networks that are too large."""
    question = _Case.of(network, case, deadline, tuning)
    return None if question is None else question.at(tuple(x))


def decide_case(
    network: Graph, case: Case, deadline: Deadline, configuration: Configuration = DEFAULT
) -> tuple[str, Met | None]:
    """Decide one case.

    Args:
        network: a lowered one, of one input and one vector of outputs.
        case: the case.
        deadline: when to stop.
        configuration: how large a network may be, and how many cells are opened.

    Returns:
        ``refuted`` and what meets the case; ``proved``, if nothing does; ``open``, where the
        network is not small or not piecewise linear.

    Raises:
        OutOfTime: the deadline has passed.
    """
    tuning, written = configuration.exact, case.numbers
    free = sum(low != high for low, high in zip(written.lower, written.upper, strict=True))
    bends = sum(math.prod(n.shape) for n in network.nodes if isinstance(n.op, ReLU | LeakyReLU))
    if free > tuning.most_variables or (free and bends + len(case.rows) > tuning.most_units):
        return Outcome.OPEN, None
    question = _Case.of(network, case, deadline, tuning)
    if question is None:
        return Outcome.OPEN, None
    ends = zip(question.lower, question.upper, strict=True)
    atoms = Atoms()
    inputs = [atoms.variable(low, high) for low, high in ends]
    outputs = question.network.run(atoms, inputs, deadline)[network.outputs[0]]
    goal = -question.largest(atoms, outputs)
    budget = Budget(tuning.most_cells)
    points = _Points(question, inputs, budget, configuration.properties.more_cells)
    try:
        search = CellSearch(atoms, [goal], points.confirm, budget, deadline, True, tuning)
        met = search.run()
    except (TooManyCells, OutOfTime) as stopped:
        if points.other is not None:
            return Outcome.REFUTED, points.other
        if isinstance(stopped, OutOfTime):
            raise
        return Outcome.OPEN, None
    met = met or points.other
    return (Outcome.PROVED, None) if met is None else (Outcome.REFUTED, met)


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """A case and its network in rational numbers."""

    network: RationalNetwork
    lower: Point
    upper: Point
    rows: list[list[tuple[int, Fraction]]]
    bounds: Point
    deadline: Deadline

    @classmethod
    def of(
        cls, network: Graph, case: Case, deadline: Deadline, tuning: ExactTuning
    ) -> _Case | None:
        """The case, if its network is small and piecewise linear."""
        size = size_of(network)
        if size is None or size > tuning.most_weights:
            return None
        numbers = case.numbers
        rows = [
            [(int(j), Fraction(float(row[j]))) for j in row.nonzero().flatten()]
            for row in case.rows.to(torch.float64)
        ]
        return cls(
            RationalNetwork(network, deadline, tuning.rows_at_once),
            tuple(Fraction(value) for value in numbers.lower),
            tuple(Fraction(value) for value in numbers.upper),
            rows,
            tuple(Fraction(value) for value in numbers.bounds),
            deadline,
        )

    def values(self, outputs: Sequence[Form]) -> list[Form]:
        """Rows @ y - bounds."""
        pairs = zip(self.rows, self.bounds, strict=True)
        return [combination([(w, outputs[j]) for j, w in row], -bound) for row, bound in pairs]

    def largest(self, atoms: Atoms, outputs: Sequence[Form]) -> Form:
        """The largest of rows @ y - bounds; zero, if there are none."""
        values = self.values(outputs)
        while len(values) > 1:
            one, other = values[0], values[1]
            gain = atoms.relu(combination([(ONE, one), (-ONE, other)]))
            values = [*values[2:], combination([(ONE, other), (ONE, gain)])]
        return values[0] if values else Form(ZERO)

    def at(self, x: Point) -> Met | None:
        """What meets the case at one point of the box; None if it lies outside or does not."""
        ends = zip(self.lower, x, self.upper, strict=True)
        if not all(low <= value <= high for low, value, high in ends):
            return None
        graph = self.network.graph
        forms = [Form(value) for value in x]
        outputs = self.network.run(Atoms(), forms, self.deadline)[graph.outputs[0]]
        if any(value.constant > 0 for value in self.values(outputs)):
            return None
        return Met(x, tuple(output.constant for output in outputs))


class _Points:
    """Looks for points that meet a case: points of floats, or any other."""

    def __init__(
        self, question: _Case, inputs: Sequence[Form], budget: Budget, more_cells: int
    ) -> None:
        self.more_cells = more_cells
        self.question = question
        self.inputs = inputs
        self.budget = budget
        self.other: Met | None = None
        """A point that meets the case but is none of floats."""

    def confirm(self, point: Values, push: Mapping[int, Fraction]) -> Met | None:
        """What meets the case at floats at or next to a point."""
        exact = tuple(form.at(point) for form in self.inputs)
        for made in self._candidates(exact, push):
            met = self.question.at(made)
            if met is not None:
                return met
        if self.other is None:
            self.other = self.question.at(exact)
            if self.other is not None:
                self.budget.cells = min(self.budget.cells, self.more_cells)
        return None

    def _candidates(self, exact: Point, push: Mapping[int, Fraction]) -> Iterator[Point]:
        """The nearest floats, and those next to the point in a direction, or away from it.

        An input that no float is inside the bounds of has its lower bound, as written.
        """
        ways = [
            sum((c * push.get(i, ZERO) for i, c in form.terms.items()), ZERO)
            for form in self.inputs
        ]
        for sign in (0, 1, -1):
            made = []
            for i, (value, way) in enumerate(zip(exact, ways, strict=True)):
                low, high = self.question.lower[i], self.question.upper[i]
                found = nearest_float(value)
                way *= sign
                if Fraction(found) < low or (way > 0 and Fraction(found) < value):
                    found = math.nextafter(found, math.inf)
                elif Fraction(found) > high or (way < 0 and Fraction(found) > value):
                    found = math.nextafter(found, -math.inf)
                made.append(Fraction(found) if low <= Fraction(found) <= high else low)
            yield tuple(made)
