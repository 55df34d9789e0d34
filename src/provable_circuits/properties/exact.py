"""Cases in rational numbers: a small piecewise-linear network, and the numbers of the file.

A case asks for an x of its box with rows @ y <= bounds, ends included. Rounding cannot tell whether
an output reaches a bound exactly; for the exact stage (``verify.exact.stage``) a case is one clause
of objectives bounds[i] - rows[i] . y, which is broken where all of them are at least zero, and
those of strict constraints above it.

The point found may be one that float64 does not hold, such as 1/3, and then there may be none else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from provable_circuits.network.graph import Graph
from provable_circuits.properties.vnnlib import Case
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.domains import Extent
from provable_circuits.verify.exact.forms import Atoms, Form, combination
from provable_circuits.verify.exact.network import RationalNetwork
from provable_circuits.verify.exact.search import Budget
from provable_circuits.verify.exact.stage import (
    decide_rational,
    is_exact_size,
    is_searchable,
)
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.tuning.exact import ExactTuning

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
    if not is_exact_size(network, tuning):
        return None
    return RationalCase(
        RationalNetwork(network, deadline, tuning.rows_at_once), case, deadline
    ).witness([x])


def decide_case(
    network: Graph, case: Case, deadline: Deadline, tuning: ExactTuning = DEFAULT.exact
) -> tuple[Outcome, Met | None]:
    """Decide one case.

    Args:
        network: a lowered one, of one input and one vector of outputs.
        case: the case.
        deadline: when to stop.
        tuning: how large a network may be, and how many cells are opened.

    Returns:
        ``refuted`` and what meets the case; ``proved``, if nothing does; else ``open`` or
        ``close``, where the network is not small or not piecewise linear.

    Raises:
        OutOfTime: the deadline has passed.
    """
    free = _extent(case).free
    few = is_searchable(network, tuning, free, len(case.rows))
    if not few or not is_exact_size(network, tuning):
        return Outcome.OPEN, None
    question = RationalCase(RationalNetwork(network, deadline, tuning.rows_at_once), case, deadline)
    return decide_rational(question, Budget(tuning.most_cells), deadline, tuning)


def _extent(case: Case) -> Extent:
    """The box as written. An input whose bounds no float lies between has its lower bound."""
    lower = tuple(Fraction(value) for value in case.numbers.lower)
    upper = tuple(Fraction(value) for value in case.numbers.upper)
    return Extent(lower, upper, lower)


class RationalCase:
    """A case and its network in rational numbers."""

    any_point = True

    def __init__(self, network: RationalNetwork, case: Case, deadline: Deadline) -> None:
        self.network = network
        self.deadline = deadline
        self.extent = _extent(case)
        self.strict = case.strict
        self.touching = len(case.strict) < len(case.rows)
        """Whether zero may be enough: points are found where it is, and judged by ``witness``."""
        self.rows = [
            [(int(j), Fraction(float(row[j]))) for j in row.nonzero().flatten()]
            for row in case.rows.to(torch.float64)
        ]
        self.bounds = [Fraction(value) for value in case.numbers.bounds]
        self.atoms = Atoms()
        self._inputs = self.extent.enter(self.atoms)
        self.variables: Sequence[tuple[Extent, Sequence[Form]]] = [(self.extent, self._inputs)]

    def clauses(self) -> list[list[Form]]:
        """The case as a clause: the excess of each constraint's negation."""
        return [self._excess(self._outputs(self.atoms, self._inputs))]

    def witness(self, points: Sequence[Sequence[Fraction]]) -> Met | None:
        """What meets the case at one point; None if it lies outside the box or does not."""
        (x,) = points
        if not self.extent.contains(x):
            return None
        outputs = self._outputs(Atoms(), [Form(value) for value in x])
        for i, value in enumerate(self._excess(outputs)):
            if value.constant < 0 or (value.constant == 0 and i in self.strict):
                return None
        return Met(tuple(x), tuple(output.constant for output in outputs))

    def _outputs(self, atoms: Atoms, inputs: Sequence[Form]) -> list[Form]:
        return self.network.run(atoms, inputs, self.deadline)[self.network.graph.outputs[0]]

    def _excess(self, outputs: Sequence[Form]) -> list[Form]:
        """Bounds - rows @ y."""
        pairs = zip(self.rows, self.bounds, strict=True)
        return [combination([(-w, outputs[j]) for j, w in row], bound) for row, bound in pairs]
