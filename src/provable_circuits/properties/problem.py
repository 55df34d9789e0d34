"""Properties as problems: the cases of one box are clauses over one network.

A case of a property is a box and a conjunction ``rows @ y <= bounds``. It is safe iff

    max over i of (rows[i] . y - bounds[i])  >  0        for every x in the box,

a clause of which one objective must hold: strictly, where a constraint includes its end, and with
``>=`` where it does not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.lowering import lower
from provable_circuits.network.ops import Input, Reshape
from provable_circuits.properties.confirm import replay_case
from provable_circuits.properties.counterexample import (
    Counterexample,
    exact_counterexample,
    replayed_counterexample,
)
from provable_circuits.properties.exact import decide_case
from provable_circuits.properties.vnnlib import Case, Property
from provable_circuits.rounding import Interval
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.definition import ClauseKey
from provable_circuits.verify.encoding.problem import InputRange, Problem, clause_members, copied
from provable_circuits.verify.encoding.roles import Role, RoleKind
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.tuning.exact import ExactTuning

STRICT = 1e-300
"""A bound must exceed zero by this much: more than nothing, and less than anything that matters."""


class PropertyDefinition:
    """The cases of one box; a counterexample is replayed on the network as given.

    Args:
        graph: the network as given.
        network: the same, lowered, with one vector of outputs.
        cases: the cases, each with constraints.
        tuning: of rational arithmetic.
    """

    def __init__(
        self, graph: Graph, network: Graph, cases: Sequence[Case], tuning: ExactTuning
    ) -> None:
        self.tuning = tuning
        self.graph = graph
        self.network = network
        self.cases = tuple(cases)

    def problem(self) -> Problem:
        """The cases as clauses, over their box rounded outward."""
        shape = (1, *self.graph.input_shape)
        first = self.cases[0]
        box = InputRange(first.lower.reshape(shape), first.upper.reshape(shape))
        return Problem(
            graph=self.network,
            ranges={self.network.inputs[0]: box},
            rows=-torch.cat([case.rows for case in self.cases]).unsqueeze(0),
            offsets=torch.cat([_offsets(case, case.bounds) for case in self.cases]).unsqueeze(0),
            inner_offsets=torch.cat(
                [_offsets(case, case.inner_bounds) for case in self.cases]
            ).unsqueeze(0),
            members=clause_members([len(case.rows) for case in self.cases]),
            roles={node.name: _role(node) for node in self.network.nodes},
        )

    def replay(
        self, points: Mapping[str, Tensor], problems: Tensor, clauses: Tensor
    ) -> Counterexample | None:
        """The first of some points, moved into the box as written, that certainly meets a case."""
        for x, clause in zip(points[self.network.inputs[0]], clauses.tolist(), strict=True):
            case = self.cases[clause]
            found = replay_case(self.graph, case, x.flatten())
            if found is not None:
                return replayed_counterexample(self.graph, case, *found)
        return None

    def exactly(
        self, clauses: Sequence[ClauseKey], deadline: Deadline
    ) -> tuple[frozenset[ClauseKey], Counterexample | None]:
        """Rational arithmetic, case by case."""
        proved = set()
        for key in clauses:
            case = self.cases[key[1]]
            outcome, met = decide_case(self.network, case, deadline, self.tuning)
            if met is not None:
                found = exact_counterexample(self.graph, self.network, case, met)
                return frozenset(), found
            if outcome == Outcome.PROVED:
                proved.add(key)
        return frozenset(proved), None

    def earlier(
        self, problems: Collection[int] | None = None, most: int | None = None
    ) -> tuple[dict[str, Tensor], list[int]]:
        """Nothing: a property is asked once."""
        return {}, []

    def derived(self) -> Mapping[str, Interval] | None:
        """Nothing, for the same reason."""
        return None


def definitions(
    graph: Graph, question: Property, tuning: ExactTuning = DEFAULT.exact
) -> list[PropertyDefinition]:
    """The cases that have constraints, by box, in the order in which their boxes first appear."""
    groups: dict[tuple[int, int], list[Case]] = {}
    for case in question.cases:
        if len(case.rows):
            groups.setdefault((id(case.lower), id(case.upper)), []).append(case)
    network = _flat(lower(graph))
    return [PropertyDefinition(graph, network, cases, tuning) for cases in groups.values()]


def unconditional(
    graph: Graph, question: Property, deadline: Deadline | None = None
) -> Counterexample | None:
    """A counterexample to a case without constraints on outputs: any input of its box."""
    for case in question.cases:
        if not len(case.rows):
            if deadline is not None:
                deadline.check()
            middle = case.lower + (case.upper - case.lower) * 0.5
            found = replay_case(graph, case, middle)
            if found is not None:
                return replayed_counterexample(graph, case, *found)
    return None


def _role(node: Node) -> Role:
    kind = RoleKind.INPUT if isinstance(node.op, Input) else RoleKind.NETWORK
    return Role(kind, node.name)


def _offsets(case: Case, bounds: Tensor) -> Tensor:
    """Offsets such that rows @ y >= offsets means that a constraint is not met."""
    offsets = _above(bounds)
    strict = sorted(case.strict)
    offsets[strict] = bounds[strict]
    return offsets


def _above(bounds: Tensor) -> Tensor:
    """Offsets such that rows @ y >= offsets means rows @ y > bounds, strictly."""
    above = torch.nextafter(bounds, torch.full_like(bounds, torch.inf))
    return torch.where(bounds.abs() < STRICT, torch.full_like(bounds, STRICT), above)


def _flat(graph: Graph) -> Graph:
    """The graph with its output as one vector."""
    if len(graph.output_shape) == 1:
        return graph
    builder, output = copied(graph)
    size = math.prod(graph.output_shape)
    return builder.build([builder.add("flat", Reshape((size,)), output)])
