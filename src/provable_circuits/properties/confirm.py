"""Confirming counterexamples of plain properties: certainly one, or none.

A candidate is moved into the box as written and the network as given is evaluated there by interval
arithmetic, every rounding error enclosed. It is a counterexample if the whole enclosure satisfies
every constraint of a case; that comparison is made in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Graph
from provable_circuits.network.intervals import propagate
from provable_circuits.properties.decimals import unheld
from provable_circuits.properties.related import constrained, own_outputs
from provable_circuits.properties.vnnlib import Case, Property
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.exact.domains import below
from provable_circuits.verify.tuning.properties import PropertiesTuning


def confirm(
    graph: Graph,
    question: Property,
    x: Tensor,
    tuning: PropertiesTuning = DEFAULT.properties,
) -> tuple[Tensor, Tensor] | None:
    """The counterexample at or near ``x``, if there is one beyond doubt.

    Where ``x`` itself does not satisfy a case, a few small steps are made to satisfy it clearly.

    Args:
        graph: the network.
        question: what must not happen.
        x: a candidate, flat; it is moved into the box if it lies outside.
        tuning: how hard it is pushed off the edge of constraints.

    Returns:
        The input, inside the box as written, and its output; None if no case is met.
    """
    flat = x.double().flatten()
    network = constrained(graph, question)
    for case in question.cases:
        found = replay_case(network, case, flat)
        if found is not None:
            return found[0], own_outputs(graph, found[1])
    for case in question.cases:
        found = replay_case(network, case, push(network, case, flat, tuning))
        if found is not None:
            return found[0], own_outputs(graph, found[1])
    return None


def push(
    graph: Graph, case: Case, x: Tensor, tuning: PropertiesTuning = DEFAULT.properties
) -> Tensor:
    """A point near ``x`` at which the worst constraint of a case is better satisfied.

    Newton's steps: the shortest that moves all constraints which ``x`` does not satisfy by some
    margin to that margin, if the network were linear; with inputs that leave the box held still.
    Solvers stop at the very edge of a constraint, and this takes their points off it. No input
    moves by more than a thousandth of its range.
    """

    def values(points: Tensor) -> Tensor:
        shaped = points.reshape(-1, *graph.input_shape)
        y = evaluate(graph, {graph.inputs[0]: shaped})[graph.outputs[0]]
        return y.flatten(1) @ case.rows.T - case.inner_bounds

    inside = torch.minimum(torch.maximum(x, case.inner_lower), case.inner_upper)
    reach = (case.upper - case.lower) * tuning.push_reach
    lower = torch.maximum(case.inner_lower, inside - reach)
    upper = torch.minimum(case.inner_upper, inside + reach)
    for _ in range(tuning.push_steps if len(case.rows) <= tuning.push_constraints else 0):
        alpha = torch.autograd.functional.jacobian(lambda p: values(p)[0], inside)
        now = values(inside)[0]
        points = [inside]
        for margin in tuning.push_margins:
            wanted = -(now + margin * (1 + case.inner_bounds.abs())).clamp_min(0.0)
            held = torch.ones_like(inside)
            for _ in range(2):
                step = torch.linalg.pinv(alpha * held * (wanted < 0).unsqueeze(1)) @ wanted
                moved = inside + step
                held = held * ((moved >= lower) & (moved <= upper))
                points.append(torch.minimum(torch.maximum(moved, lower), upper))
        inside = points[int(values(torch.stack(points)).amax(1).argmin())]
    return inside


def replay_case(graph: Graph, case: Case, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Interval arithmetic at one point of a case's box: certainly a counterexample, or None.

    An input that is fixed to a decimal which float64 does not hold ranges over the two numbers next
    to it: what holds for all of these holds for the decimal. The nearest number stands for it.
    """
    inside = torch.minimum(torch.maximum(x, case.inner_lower), case.inner_upper)
    fixed = case.inner_lower > case.inner_upper
    least, most = torch.where(fixed, case.lower, inside), torch.where(fixed, case.upper, inside)
    if not _replayed(graph, case, least, most):
        return None
    for i in unheld(case):
        inside[i] = float(case.numbers.lower[i])
    point = inside.reshape(graph.input_shape)
    return point, graph.run(point, torch.float64)[0]


def replay_at(graph: Graph, case: Case, x: Sequence[Fraction]) -> bool:
    """Whether a point that float64 need not hold certainly meets the constraints of a case."""
    least = [below(value) for value in x]
    most = [-below(-value) for value in x]
    ends = (torch.tensor(end, dtype=torch.float64) for end in (least, most))
    return _replayed(graph, case, *ends)


def _replayed(graph: Graph, case: Case, least: Tensor, most: Tensor) -> bool:
    """Whether every point between two certainly meets the constraints of a case."""
    point = (least.reshape(1, *graph.input_shape), most.reshape(1, *graph.input_shape))
    low, high = propagate(graph, {graph.inputs[0]: point})[graph.outputs[0]]
    return _satisfied(case, low.flatten(), high.flatten())


def _satisfied(case: Case, low: Tensor, high: Tensor) -> bool:
    """Whether every output between two bounds meets every constraint; in exact arithmetic."""
    for number, (row, bound) in enumerate(zip(case.rows, case.numbers.bounds, strict=True)):
        used = row.nonzero().flatten()
        ends = torch.where(row > 0, high, low)[used]
        if not bool(ends.isfinite().all()):
            return False
        terms = zip(row[used].tolist(), ends.tolist(), strict=True)
        most = sum(Fraction(factor) * Fraction(end) for factor, end in terms)
        if most > Fraction(bound) or (most == Fraction(bound) and number in case.strict):
            return False
    return True
