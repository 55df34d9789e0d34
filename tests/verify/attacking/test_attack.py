"""The attack on a problem: which candidates are replayed, and which are noted as too close."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from provable_circuits.network.graph import GraphBuilder
from provable_circuits.network.ops import Linear
from provable_circuits.rounding import Interval
from provable_circuits.verify.attacking.attack import Attack
from provable_circuits.verify.attacking.pgd import Effort
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.definition import ClauseKey
from provable_circuits.verify.encoding.problem import InputRange, Problem, clause_members

CPU = torch.device("cpu")


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Noted:
    """A question that notes what is replayed, and believes points above some number."""

    def __init__(self, believed: float, earlier: Sequence[float] = ()) -> None:
        self.believed = believed
        self.given = earlier
        self.replayed: list[tuple[float, int]] = []

    def replay(
        self, points: Mapping[str, Tensor], problems: Tensor, clauses: Tensor
    ) -> float | None:
        pairs = list(zip(points["x"].flatten().tolist(), clauses.tolist(), strict=True))
        self.replayed += pairs
        return next((x for x, _ in pairs if x > self.believed), None)

    def exactly(
        self, clauses: Sequence[ClauseKey], deadline: Deadline
    ) -> tuple[frozenset[ClauseKey], float | None]:
        return frozenset(), None

    def earlier(
        self, problems: Collection[int] | None = None, most: int | None = None
    ) -> tuple[dict[str, Tensor], list[int]]:
        if not self.given:
            return {}, []
        return {"x": f64([[x] for x in self.given])}, [0] * len(self.given)

    def derived(self) -> Mapping[str, Interval] | None:
        return None


def attack(
    asked: Noted, rows: list[list[float]], offsets: list[float], sizes: list[int]
) -> tuple[Attack[float], Bounds]:
    """An attack on clauses over y = (x, -x), for x between -1 and 1; and bounds."""
    builder = GraphBuilder()
    layer = Linear(f64([[1.0], [-1.0]]))
    graph = builder.build([builder.add("y", layer, builder.input("x", (1,)))])
    problem = Problem(
        graph=graph,
        ranges={"x": InputRange(f64([[-1.0]]), f64([[1.0]]))},
        rows=f64([rows]),
        offsets=f64([offsets]),
        roles={},
        members=clause_members(sizes),
    )
    structure, region = Structure(graph, CPU), Region(problem.ranges)
    bounds = Bounds(structure, region, 1)
    bounds.compute()
    return Attack(problem, asked, region, structure, Effort(), Deadline()), bounds


def test_the_best_candidates_are_replayed_first_and_few_of_them() -> None:
    asked = Noted(believed=2.0)
    given, _ = attack(asked, [[1.0, 0.0]], [0.0], [1])
    points = torch.linspace(-1, 1, 9).double().unsqueeze(1)
    assert not given.replay({"x": points}, torch.zeros(9, dtype=torch.long))
    assert asked.replayed == [(1.0, 0), (0.75, 0), (0.5, 0), (0.25, 0)]
    assert len(asked.replayed) == DEFAULT.stages.replayed
    asked.believed = 0.6
    assert given.replay({"x": points}, torch.zeros(9, dtype=torch.long))
    assert given.found == 1.0


def test_a_point_must_exceed_every_objective_of_a_clause() -> None:
    """x > 0.5 and -x > -0.75 together: points between."""
    asked = Noted(believed=2.0)
    rows, offsets = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [-0.5, 0.75, -0.875]
    given, _ = attack(asked, rows, offsets, [2, 1])
    points = f64([[0.25], [0.625], [0.8], [0.9375]])
    given.replay({"x": points}, torch.zeros(4, dtype=torch.long))
    assert sorted(asked.replayed) == [(0.625, 0), (0.9375, 1)]


def test_what_misses_its_threshold_by_rounding_is_noted() -> None:
    given, _ = attack(Noted(believed=2.0), [[1.0, 0.0], [0.0, 1.0]], [-0.5, -0.5], [1, 1])
    nought = torch.zeros(1, dtype=torch.long)
    given.replay({"x": f64([[0.5 - 1e-6]])}, nought)
    assert given.near == set()
    given.replay({"x": f64([[-0.5 + 1e-14]])}, nought)
    assert given.near == {(0, 1)}


@pytest.mark.parametrize("sizes", [[1, 1], [2]])
def test_a_short_attack_climbs_to_what_breaks_a_clause(sizes: list[int]) -> None:
    """x > 0.2 and -x > -0.3: as a clause the points between, where no corner is."""
    asked = Noted(believed=-2.0)
    given, bounds = attack(asked, [[1.0, 0.0], [0.0, 1.0]], [-0.2, 0.3], sizes)
    passed = bounds.backward("y", -given.problem.rows)
    open_ = torch.tensor([[0, clause] for clause in range(len(sizes))])
    assert given.corners(passed, open_) == (len(sizes) == 2)
    assert given.short(passed, open_)
    assert given.found is not None
    if sizes == [2]:
        assert 0.2 < given.found < 0.3


def test_earlier_witnesses_are_tried() -> None:
    given, _ = attack(Noted(believed=0.0, earlier=[-0.5, 0.5]), [[1.0, 0.0]], [0.0], [1])
    assert given.earlier()
    assert given.found == 0.5
    none, _ = attack(Noted(believed=0.0), [[1.0, 0.0]], [0.0], [1])
    assert not none.earlier()
