from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.properties.constraints import STRICT, Constraints
from provable_circuits.properties.vnnlib import Case


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def case(rows: list[list[float]], bounds: list[float]) -> Case:
    return Case.exact(f64([0.0]), f64([1.0]), f64(rows).reshape(len(bounds), 2), f64(bounds))


def test_a_case_is_excluded_by_a_bound_that_exceeds_and_not_by_one_that_reaches() -> None:
    for end in (0.0, 1.0, -3.5, 1e-310, 1e300, -1e-20):
        one = Constraints([case([[1.0, 0.0]], [end])])
        above = end + max(abs(end) * 1e-14, 2 * STRICT)
        excluded = one.excluded(f64([[end], [above], [end - abs(end) - 1.0], [-torch.inf]]))
        assert excluded.flatten().tolist() == [False, True, False, False]


def test_one_violated_constraint_is_enough_for_a_case() -> None:
    both = Constraints(
        [case([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]), case([], []), case([[1.0, 1.0]], [5.0])]
    )
    assert both.owners.tolist() == [0, 0, 2]
    assert both.excluded(f64([[-1.0, 0.5, 4.0], [-1.0, -1.0, 6.0]])).tolist() == [
        [True, False, False],
        [False, False, True],
    ]


def test_the_worst_constraint_of_each_case_counts() -> None:
    both = Constraints(
        [case([[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0]), case([], []), case([[1.0, 1.0]], [5.0])]
    )
    assert both.worst(f64([[3.0, 1.0], [0.0, 4.0]])).tolist() == [
        [2.0, -torch.inf, -1.0],
        [2.0, -torch.inf, -1.0],
    ]
    assert len(both) == 3
