"""Least values over subdomains of balls: boxes that cut them, hold the centre or not, or miss
them."""

from __future__ import annotations

import math

import pytest
import torch

import provable_circuits as pc
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.encoding.problem import InputRange


@pytest.mark.parametrize("p", [1, 2, math.inf])
@pytest.mark.parametrize("seed", range(6))
def test_no_point_of_the_ball_in_the_box_lies_below_the_least_value(p: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    ball = pc.Ball(normal(3), 1.0, p)
    points = ball.sample(20_000, generator).double()
    corner = normal(40, 3) * 0.6 + ball.center
    size = torch.rand(40, 3, generator=generator, dtype=torch.float64)
    lower, upper = corner, corner + size
    region = Region({"x": InputRange(lower, upper, (ball,) * 40)})
    rows = normal(40, 5, 3)
    least, empty = region.least("x", rows), region.empty().expand(40)
    met = 0
    for i in range(40):
        inside = points[((points >= lower[i]) & (points <= upper[i])).all(1)]
        if not len(inside):
            continue
        met += 1
        assert not bool(empty[i])
        assert bool((inside @ rows[i].T >= least[i] - 1e-9).all())
    assert met > 10
    if p != math.inf:
        assert bool(empty.any())


@pytest.mark.parametrize("p", [1, 2])
def test_a_ball_within_its_box_is_bounded_exactly(p: int) -> None:
    ball = pc.Ball([0.0, 0.0], 0.5, p)
    box = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    region = Region({"x": InputRange(-box, box, (ball,))})
    rows = torch.tensor([[[3.0, 4.0]]], dtype=torch.float64)
    exact = {1: -2.0, 2: -2.5}[p]
    assert float(region.least("x", rows)) == pytest.approx(exact)
    corner = region.corner("x", rows[:, 0])
    assert float((corner * rows[:, 0]).sum()) == pytest.approx(exact)


@pytest.mark.parametrize("boxes", [5, 6])
@pytest.mark.parametrize("twice", [False, True])
def test_parts_have_the_least_values_of_their_boxes(boxes: int, twice: bool) -> None:
    """Whether many subdomains share few boxes or not, and however they were selected."""
    dice = torch.Generator().manual_seed(boxes)
    lower, size = (torch.rand(boxes, 2, 3, generator=dice, dtype=torch.float64) for _ in "lu")
    whole = Region({"x": InputRange(lower, lower + size)}, few_boxes=5)
    own = torch.randint(boxes, (40,), generator=dice)
    if twice:
        first = torch.randperm(boxes, generator=dice)
        part, own = whole.select(first).select(own), first[own]
    else:
        part = whole.select(own)
    rows = torch.randn(40, 5, 2, 3, generator=dice, dtype=torch.float64)
    exact = torch.minimum(rows * lower[own, None], rows * (lower + size)[own, None])
    assert torch.allclose(part.least("x", rows), exact.sum((2, 3)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_problems_that_are_selected_are_those_of_the_whole(p: float) -> None:
    generator = torch.Generator().manual_seed(4)
    centers = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    balls = tuple(pc.Ball(center, 0.5, p) for center in centers)
    region = Region({"x": InputRange(centers - 0.4, centers + 0.3, balls)})
    rows = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    chosen = torch.tensor([2, 0, 2, 3])
    part = region.select(chosen)
    assert bool((part.least("x", rows[chosen]) == region.least("x", rows)[chosen]).all())
    found = part.corner("x", rows[chosen, 0])
    assert bool((found == region.corner("x", rows[:, 0])[chosen]).all())
    assert bool((part.select(torch.tensor([1])).ends("x")[0] == centers[:1] - 0.4).all())
