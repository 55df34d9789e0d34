from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Linear, ReLU
from provable_circuits.properties.constraints import Constraints
from provable_circuits.properties.input_split import Bisection
from provable_circuits.properties.vnnlib import Case
from provable_circuits.verify.bounding.bounds import Structure
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.query import InputRange


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def distance() -> Graph:
    """|x| and |y|, each as two ReLUs."""
    builder = GraphBuilder()
    x = builder.input("x", (2,))
    both = builder.add("both", Linear(f64([[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0]])), x)
    relu = builder.add("relu", ReLU(), both)
    return builder.build([builder.add("sum", Linear(f64([[1.0, 1, 0, 0], [0, 0, 1, 1]])), relu)])


def search(rows: object, bounds: object, most: int = 4000) -> tuple[str, list[Tensor]]:
    """How the search over [-1, 2] x [-1, 2] ends, and the points it tried."""
    box = InputRange(f64([[-1.0, -1.0]]), f64([[2.0, 2.0]]))
    case = Case.exact(box.lower[0], box.upper[0], f64(rows), f64(bounds))
    graph = distance()
    tried: list[Tensor] = []

    def attempt(points: Tensor) -> bool:
        tried.append(points)
        return bool((graph.run(points) @ case.rows.T <= case.bounds).all(1).any())

    structure, constraints = Structure(graph, torch.device("cpu")), Constraints([case])
    found = Bisection(structure, box, constraints, attempt, Deadline(), most)
    return found.run(), tried


def test_a_conjunction_that_no_single_constraint_excludes() -> None:
    # |x| + |y| <= 1 and |x| >= 0.6 and |y| >= 0.5 contradict each other, but no two of them do.
    rows, bounds = [[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, -0.6, -0.5]
    status, tried = search(rows, bounds)
    assert status == "proved"
    for points in tried:
        assert bool(((points >= -1) & (points <= 2)).all())


def test_a_small_region_is_found_or_at_least_not_denied() -> None:
    # |x| + |y| <= 1 and |x| >= 0.6 and |y| >= 0.39: four small triangles.
    status, _ = search([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0, -0.6, -0.39])
    assert status == "refuted"


def test_it_gives_up_where_constraints_touch() -> None:
    # |x| + |y| <= 1 and |x| >= 0.6 and |y| >= 0.4 hold at four points only, up to rounding.
    status, _ = search([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [1.0 - 1e-17, -0.6, -0.4], most=500)
    assert status in ("open", "refuted")
