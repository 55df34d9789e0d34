from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear
from provable_circuits.properties.problem import (
    STRICT,
    PropertyDefinition,
    definitions,
    unconditional,
)
from provable_circuits.properties.vnnlib import Case, Property, parse_property


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def twice() -> Graph:
    """(x, 2 x)."""
    builder = GraphBuilder()
    layer = Linear(f64([[1.0], [2.0]]))
    return builder.build([builder.add("y", layer, builder.input("x", (1,)))])


LOWER, UPPER = f64([0.0]), f64([1.0])


def case(rows: list[list[float]], bounds: list[float]) -> Case:
    return Case.exact(LOWER, UPPER, f64(rows).reshape(len(bounds), 2), f64(bounds))


def defined(*cases: Case) -> PropertyDefinition:
    (found,) = definitions(twice(), Property(1, 2, cases))
    return found


def test_an_objective_holds_beyond_a_bound_and_not_at_it() -> None:
    for end in (0.0, 1.0, -3.5, 1e-310, 1e300, -1e-20):
        offset = float(defined(case([[1.0, 0.0]], [end])).problem().offsets)
        assert offset > end
        assert offset <= end + max(abs(end) * 1e-15, 2 * STRICT)


def test_a_case_is_a_clause() -> None:
    problem = defined(case([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.25]), case([[1.0, 1.0]], [5.0]))
    given = problem.problem()
    assert given.clauses == 2
    assert given.members is not None
    assert given.members.tolist() == [[0, 1], [2, 2]]
    y = f64([[0.25, 0.5]])
    excess = given.of_clauses((given.rows @ y.unsqueeze(2)).squeeze(2) + given.offsets)
    torch.testing.assert_close(excess, f64([[-0.25, 4.25]]))


def test_candidates_are_held_to_the_bounds_rounded_inward() -> None:
    text = (
        "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
        "(assert (>= X_0 0))(assert (<= X_0 1))(assert (<= Y_0 0.1))"
    )
    (found,) = definitions(twice(), parse_property(text))
    problem = found.problem()
    assert problem.inner_offsets is not None
    assert float(problem.inner_offsets) < float(problem.offsets)


def test_cases_are_grouped_by_their_box() -> None:
    other = Case.exact(f64([2.0]), f64([3.0]), f64([[1.0, 0.0]]), f64([1.0]))
    cases = (case([[1.0, 0.0]], [0.5]), other, case([[0.0, 1.0]], [0.5]))
    first, second = definitions(twice(), Property(1, 2, cases))
    assert first.cases == (cases[0], cases[2])
    assert second.cases == (other,)


def test_a_candidate_is_replayed_for_the_case_that_it_seems_to_meet() -> None:
    asked = defined(case([[-1.0, 0.0]], [-0.9]), case([[1.0, 0.0]], [0.25]))
    points, nought = {"x": f64([[0.5], [0.125]])}, torch.zeros(2, dtype=torch.long)
    found = asked.replay(points, nought, torch.tensor([0, 1]))
    assert found is not None
    assert found.x.tolist() == [0.125]
    assert asked.replay(points, nought, torch.tensor([1, 0])) is None


def test_without_constraints_any_input_is_a_counterexample() -> None:
    cases = (case([[1.0, 0.0]], [-5.0]), case([], []))
    found = unconditional(twice(), Property(1, 2, cases))
    assert found is not None
    assert found.x.tolist() == [0.5]
    assert unconditional(twice(), Property(1, 2, cases[:1])) is None
    (left,) = definitions(twice(), Property(1, 2, cases))
    assert left.cases == cases[:1]
