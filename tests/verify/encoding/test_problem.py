"""Problems: clauses of objectives, and a clause of several as one objective."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.verify.encoding.problem import (
    InputRange,
    Problem,
    clause_members,
    with_maximum,
)
from provable_circuits.verify.encoding.roles import Role, RoleKind


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


ROLES = {
    "x": Role(RoleKind.INPUT, "x"),
    **{name: Role(RoleKind.NETWORK, name) for name in ("first", "relu", "y")},
}


def network() -> Graph:
    dice = torch.Generator().manual_seed(4)
    builder = GraphBuilder()
    value = builder.input("x", (2,))
    value = builder.add("first", Linear(torch.randn(4, 2, generator=dice)), value)
    value = builder.add("relu", ReLU(), value)
    return builder.build([builder.add("y", Linear(torch.randn(3, 4, generator=dice)), value)])


def problem(sizes: list[int]) -> Problem:
    dice = torch.Generator().manual_seed(1)
    count = sum(sizes)
    return Problem(
        graph=network(),
        ranges={"x": InputRange(f64([[-1.0, -1.0]]), f64([[1.0, 1.0]]))},
        rows=torch.randn(1, count, 3, generator=dice).double(),
        offsets=torch.randn(1, count, generator=dice).double(),
        members=clause_members(sizes),
        roles=ROLES,
    )


def test_every_objective_is_a_clause_unless_said_otherwise() -> None:
    plain = problem([1, 1, 1])
    assert plain.members is None
    assert plain.clauses == 3
    excess = f64([[1.0, -2.0, 3.0]])
    assert plain.of_clauses(excess) is excess
    assert plain.single(2) == 2
    open_ = torch.tensor([[0, 2]])
    assert plain.objectives(open_) is open_


def test_a_clause_is_exceeded_by_its_least_objective() -> None:
    given = problem([2, 1, 3])
    assert given.clauses == 3
    excess = f64([[1.0, -2.0, 5.0, 9.0, 7.0, 8.0], [torch.nan, 4.0, -1.0, 0.5, torch.nan, 3.0]])
    assert given.of_clauses(excess).tolist() == [[-2.0, 5.0, 7.0], [4.0, -1.0, 0.5]]


def test_the_objectives_of_clauses_come_once_each() -> None:
    given = problem([2, 1, 3])
    assert given.objectives(torch.tensor([[0, 1], [0, 2]])).tolist() == [
        [0, 2],
        [0, 3],
        [0, 4],
        [0, 5],
    ]
    assert [given.single(i) for i in range(3)] == [None, 2, None]
    rows, offsets = given.clause(torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert torch.equal(rows[0], given.rows[0, [0, 1, 0]])
    assert torch.equal(offsets[1], given.offsets[0, [2, 2, 2]])


def test_candidates_have_offsets_of_their_own() -> None:
    given = problem([1, 1])
    assert given.candidate_offsets is given.offsets
    _, offsets = given.clause(torch.tensor([0]), torch.tensor([1]))
    assert offsets.tolist() == [[float(given.offsets[0, 1])]]
    inner = Problem(
        graph=given.graph,
        ranges=given.ranges,
        rows=given.rows,
        offsets=given.offsets,
        inner_offsets=given.offsets - 1,
        roles=given.roles,
    )
    _, offsets = inner.clause(torch.tensor([0]), torch.tensor([1]))
    assert offsets.tolist() == [[float(given.offsets[0, 1] - 1)]]


@pytest.mark.parametrize("count", range(1, 7))
def test_the_maximum_is_what_it_says(count: int) -> None:
    graph = network()
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(1)).double()
    y = graph.run(x, torch.float64)
    rows = torch.randn(count, 3, generator=torch.Generator().manual_seed(count)).double()
    offsets = 2.5 - torch.arange(count).double()
    largest = with_maximum(graph, rows, offsets)
    assert largest.output_shape == (1,)
    wanted = (y @ rows.T + offsets).amax(1, keepdim=True)
    torch.testing.assert_close(largest.run(x, torch.float64), wanted)


def test_a_clause_as_one_objective_has_the_excess_of_the_clause() -> None:
    given = problem([2, 1, 3])
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(1)).double()
    y = given.graph.run(x, torch.float64)
    excess = given.of_clauses(y @ given.rows[0].T + given.offsets)
    for clause in (0, 2):
        alone = given.maximum(clause)
        assert alone.members is None
        assert alone.common == given.common == frozenset({"x", "first", "relu", "y"})
        assert set(alone.roles) == {node.name for node in alone.graph.nodes}
        value = alone.graph.run(x, torch.float64) @ alone.rows[0].T + alone.offsets
        torch.testing.assert_close(value[:, 0], excess[:, clause])


def test_what_has_no_maximum_is_refused() -> None:
    with pytest.raises(ValueError, match="one clause over one input"):
        problem([1, 1]).maximum(0)
    with pytest.raises(ValueError, match="never holds"):
        clause_members([2, 0])
