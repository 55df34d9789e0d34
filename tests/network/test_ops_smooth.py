"""Operations that are not defined everywhere, and masks of minus infinity."""

from __future__ import annotations

import math

import pytest
import torch
from tests.network.definitions import encloses, exact, rational

from provable_circuits.network import ops
from provable_circuits.network.ops import Op, ShapeError


@pytest.mark.parametrize("op", [ops.Sqrt(), ops.Reciprocal()], ids=["sqrt", "reciprocal"])
def test_partial_operations_enclose_where_they_are_defined(op: Op) -> None:
    x = torch.tensor([[1e-300, 0.3, 2.0, 7.0, 1e200]], dtype=torch.float64)
    found = op.interval((x, x * 1.5))
    for point in (x, x * 1.5, x * 1.25):
        assert encloses(found, 0, exact(op, rational(point[0])))
    exactly = op.interval((x, x))
    assert bool((exactly[1] - exactly[0] <= 1e-15 * exactly[1].abs()).all())


def test_reciprocals_around_zero_are_unbounded() -> None:
    lower, upper = (
        torch.tensor([[-1.0, 0.0, -2.0]]).double(),
        torch.tensor([[1.0, 1.0, -1.0]]).double(),
    )
    low, high = ops.Reciprocal().interval((lower, upper))
    assert low[0].tolist()[:2] == [-math.inf] * 2
    assert high[0].tolist()[:2] == [math.inf] * 2
    assert low[0, 2] <= -1.0 <= -0.5 <= high[0, 2]


def test_roots_of_what_may_be_negative_are_unbounded() -> None:
    low, high = ops.Sqrt().interval(
        (torch.tensor([[-1e-9]]).double(), torch.tensor([[4.0]]).double())
    )
    assert (float(low), float(high)) == (-math.inf, math.inf)


def test_a_norm_without_epsilon_says_where_it_divides_by_zero() -> None:
    op = ops.Normalise(1, 0.0)
    point = torch.tensor([[1.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    low, high = op.interval((point, point))
    assert low[0].tolist() == [-math.inf] * 2
    assert high[0].tolist() == [math.inf] * 2
    assert encloses((low, high), 1, exact(op, rational(point[1])))


def test_a_masked_place_weighs_nothing() -> None:
    mask = torch.tensor([[False, True, True], [False, False, True]])
    fill, soft = ops.Fill(mask, -math.inf), ops.Softmax(1)
    x = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    low, high = soft.interval(fill.interval((x - 0.1, x + 0.1)))
    weights = soft.forward(fill.forward(x))
    assert bool(((low <= weights) & (weights <= high)).all())
    assert bool((high[:, mask] == 0).all())
    assert bool((low[:, 0, 0] > 0.999999).all())


def test_where_everything_is_masked_nothing_is_said() -> None:
    x = torch.full((1, 2), -math.inf, dtype=torch.float64)
    low, high = ops.Softmax(0).interval((x, x))
    assert low.tolist() == [[-math.inf] * 2]
    assert high.tolist() == [[math.inf] * 2]


def test_attention_scores_far_apart_are_enclosed() -> None:
    op = ops.Softmax(0)
    x = torch.tensor([[700.0, 0.0, -700.0, 699.5]], dtype=torch.float64)
    assert encloses(op.interval((x, x)), 0, exact(op, rational(x[0])))


def test_tokens_read_their_rows_and_ranges_the_hull() -> None:
    op = ops.Embedding(torch.tensor([[1.0, -5.0], [2.0, 0.0], [0.0, 4.0]], dtype=torch.float64))
    first, last = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[1.0, 2.0]]).double()
    low, high = op.interval((first, last))
    assert low.tolist() == [[[2.0, 0.0], [0.0, -5.0]]]
    assert high.tolist() == [[[2.0, 0.0], [2.0, 4.0]]]


def test_powers_out_of_range_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"from 2 to 64\. Got 1"):
        ops.Power(1)
