"""Input splits of clauses: a box is closed for a clause by any of its objectives."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.verify.bounding.bounds import Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.branching.input_split import InputSplit
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.problem import InputRange, Problem, clause_members
from provable_circuits.verify.outcome import Outcome


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def distance() -> Graph:
    """|x| and |y|, each as two ReLUs."""
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    both = builder.add("both", Linear(f64([[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0]])), x)
    relu = builder.add("relu", ReLU(), both)
    return builder.build([builder.add("sum", Linear(f64([[1.0, 1, 0, 0], [0, 0, 1, 1]])), relu)])


def split(
    cases: list[tuple[list[list[float]], list[float]]],
) -> tuple[InputSplit, list[Tensor]]:
    """A search over [-1, 2] x [-1, 2] for what meets all constraints of a case; points tried."""
    graph = distance()
    rows = f64([row for given, _ in cases for row in given])
    bounds = f64([bound for _, given in cases for bound in given])
    problem = Problem(
        graph=graph,
        ranges={"x": InputRange(f64([[-1.0, -1.0]]), f64([[2.0, 2.0]]))},
        rows=-rows.unsqueeze(0),
        offsets=bounds.unsqueeze(0),
        roles={},
        members=clause_members([len(given) for _, given in cases]),
    )
    tried: list[Tensor] = []

    def attempt(points: Mapping[str, Tensor], problems: Tensor) -> bool:
        tried.append(points["x"])
        values = graph.run(points["x"]) @ rows.T - bounds
        return bool((problem.of_clauses(-values) > 0).any())

    structure = Structure(graph, torch.device("cpu"))
    open_ = torch.tensor([[0, clause] for clause in range(len(cases))])
    region = Region(problem.ranges)
    return InputSplit(problem, structure, region, open_, attempt, Deadline()), tried


# |x| + |y| <= 1 and |x| >= 0.6 and |y| >= a third number, which decides.
ROWS = [[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]


def test_a_conjunction_that_no_single_constraint_excludes() -> None:
    found, tried = split([(ROWS, [1.0, -0.6, -0.5])])
    assert found.run() == Outcome.PROVED
    assert tried
    for points in tried:
        assert bool(((points >= -1) & (points <= 2)).all())


def test_a_small_region_is_found_or_at_least_not_denied() -> None:
    found, _ = split([(ROWS, [1.0, -0.6, -0.39])])
    assert found.run() == Outcome.REFUTED


def test_it_gives_up_where_constraints_touch() -> None:
    found, _ = split([(ROWS, [1.0 - 1e-17, -0.6, -0.4])])
    assert found.run(most=500) in (Outcome.MORE, Outcome.OPEN, Outcome.REFUTED)


def test_what_is_closed_everywhere_is_open_no_more_and_the_rest_goes_on() -> None:
    """The first case is excluded at once; the second takes boxes, and goes on where it stopped."""
    found, _ = split([([[1.0, 0.0]], [-1.0]), (ROWS, [1.0, -0.6, -0.5])])
    assert found.open.tolist() == [[0, 0], [0, 1]]
    assert found.run(most=2) == Outcome.MORE
    assert found.open.tolist() == [[0, 1]]
    before = found.subdomains
    assert found.run() == Outcome.PROVED
    assert found.subdomains > before
    assert found.open.tolist() == []
