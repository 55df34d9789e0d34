"""Domains: bounds contain everything, ``contains`` admits nothing else. Exact fractions judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provable_circuits.claims.domains import Ball, Box, Domain, Point
from provable_circuits.errors import ArgumentError

sizes = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 0.1, 1e-310, 1e300, -1e300, 0.3])
radii = st.floats(0, 1e3) | st.sampled_from([0.0, 0.1, 5e-324, 1e-300, 1e-17, 1e290])
norms = st.sampled_from([1, 2, math.inf])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def distance_allowed(point: Sequence[float], x: Sequence[float], eps: float, p: float) -> bool:
    """Whether a point is within eps of x, exactly."""
    moves = [abs(Fraction(a) - Fraction(b)) for a, b in zip(point, x, strict=True)]
    if p == 1:
        return sum(moves) <= Fraction(eps)
    if p == 2:
        return sum(move * move for move in moves) <= Fraction(eps) ** 2
    return max(moves) <= Fraction(eps)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(st.lists(sizes, min_size=1, max_size=4), radii, norms)
def test_bounds_contain_the_whole_ball(x: list[float], eps: float, p: float) -> None:
    lower, upper = Ball(x, eps, p).bounds()
    for value, low, high in zip(x, lower.tolist(), upper.tolist(), strict=True):
        assert low <= Fraction(value) - Fraction(eps)
        assert high >= Fraction(value) + Fraction(eps)


@given(
    st.lists(sizes, min_size=1, max_size=4),
    radii,
    norms,
    st.integers(0, 10**6),
    st.sampled_from([1.0, 1 - 1e-16, 1 + 1e-16, 0.999, 1.001, 0.5]),
)
def test_contains_admits_no_point_outside(
    x: list[float], eps: float, p: float, seed: int, share: float
) -> None:
    """Points around the surface, a few units in the last place to either side."""
    ball = Ball(x, eps, p)
    direction = torch.randn(len(x), generator=generator(seed), dtype=torch.float64)
    length = torch.linalg.vector_norm(direction, p)
    point = tensor(*x) + direction / length * eps * share
    corner = tensor(*x) + direction.sign() * eps * share
    edge = tensor(*x)
    edge[0] += eps * share
    for candidate in (point, corner, edge):
        if bool(ball.contains(candidate.unsqueeze(0))):
            assert distance_allowed(candidate.tolist(), x, eps, p)


@pytest.mark.parametrize("p", [1, 2])
def test_contains_does_not_trust_a_rounded_norm(p: float) -> None:
    """The radius is the norm as computed; half of the time the exact norm is larger."""
    for seed in range(40):
        point = torch.randn(1, 60, generator=generator(seed), dtype=torch.float64)
        eps = float(torch.linalg.vector_norm(point, p))
        if bool(Ball([0.0] * 60, eps, p).contains(point)):
            assert distance_allowed(point[0].tolist(), [0.0] * 60, eps, p)
        assert Ball([0.0] * 60, eps * (1 + 1e-12), p).contains(point).all()


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_contains_is_not_shy(p: float) -> None:
    ball = Ball([0.5, -0.25, 3.0], 0.1, p)
    share = {1: 1 / 3, 2: 3**-0.5, math.inf: 1.0}[p] * 0.1 * (1 - 1e-9)
    corners = torch.tensor([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    assert ball.contains(ball.x + corners.double() * share).all()
    assert not ball.contains(ball.x + corners.double() * share * 1.00001).any()


@given(st.lists(sizes, min_size=1, max_size=4), radii, norms)
def test_the_centre_is_inside(x: list[float], eps: float, p: float) -> None:
    ball = Ball(x, eps, p)
    assert ball.contains(ball.center.unsqueeze(0)).all()


def test_not_a_number_is_outside_of_everything() -> None:
    nan = torch.full((1, 2), math.nan, dtype=torch.float64)
    domains: list[Domain] = [Point([0, 0]), Box([0, 0], [1, 1])]
    domains += [Ball([0, 0], 1.0, p) for p in (1, 2, math.inf)]
    for domain in domains:
        assert not domain.contains(nan).any()
        assert not domain.contains(nan * math.inf).any()


DOMAINS: dict[str, Domain] = {
    "point": Point([[0.5, 0.25]]),
    "box": Box([[-1.0, 0.0, 2.0]], [[1.0, 0.0, 1e9]]),
    "huge box": Box([-1.7e308], [1.7e308]),
    **{
        f"{name}, p {p}": Ball(p=p, **settings)  # type: ignore[arg-type]
        for p in (1, 2, math.inf)
        for name, settings in {
            "plain": {"x": [[0.5, 0.25], [0.0, -1.0]], "eps": 0.3},
            "clipped": {"x": [0.0, 0.5, 1.0, 0.99], "eps": 0.2, "clip": (0, 1)},
            "clipped by element": {"x": [0.0, 2.0], "eps": 5.0, "clip": ([-1, 2], [0.5, 3])},
            "masked": {"x": [1.0, 2.0, 3.0], "eps": 0.5, "mask": [True, False, True]},
            "all masked": {"x": [1.0, 2.0], "eps": 0.5, "mask": [False, False]},
            "of radius zero": {"x": [1.0, 2.0], "eps": 0.0},
            "small beside its centre": {"x": [1e6, -3e5, 1e7], "eps": 1e-9},
            "smaller than a unit": {"x": [1e6, -3e5, 1e7], "eps": 1e-12},
            "a few units wide": {"x": [2.0**20 + 2.0**-32] * 4, "eps": 1.7 * 2.0**-32},
            "wide": {"x": [0.1] * 5000, "eps": 0.01, "clip": (0, 1)},
        }.items()
    },
    "radius by element": Ball([0.5, 0.5, 0.5], [0.1, 0.0, 0.3]),
    "clipped and masked": Ball([0.0, 0.5, 1.0], 0.2, 2, (0, 1), [1, 1, 0]),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_samples_and_projections_are_inside(name: str) -> None:
    domain = DOMAINS[name]
    points = domain.sample(100, generator())
    assert points.shape == (100, *domain.shape)
    assert points.dtype == torch.float64
    assert domain.contains(points).all()
    lower, upper = domain.bounds()
    assert ((points >= lower) & (points <= upper)).all()
    far = domain.center + torch.randn(20, *domain.shape, generator=generator(1)).double() * 3
    near = domain.center + (points - domain.center) * 1.0001
    assert domain.contains(domain.project(torch.cat([far, near]))).all()
    assert domain.contains(domain.center.unsqueeze(0)).all()
    assert domain.sample(0, generator()).shape == (0, *domain.shape)


@pytest.mark.parametrize("name", DOMAINS)
def test_samples_are_repeatable(name: str) -> None:
    domain = DOMAINS[name]
    assert torch.equal(domain.sample(5, generator(7)), domain.sample(5, generator(7)))


@pytest.mark.parametrize("name", DOMAINS)
def test_projection_moves_nothing_that_is_well_inside(name: str) -> None:
    domain = DOMAINS[name]
    points = domain.center + (domain.sample(50, generator()) - domain.center) * 0.5
    points = points[domain.contains(points)]
    torch.testing.assert_close(domain.project(points), points, rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_samples_fill_the_ball(p: float) -> None:
    """Uniform: in two dimensions half of the points lie beyond 0.5 ** 0.5 of the radius."""
    ball = Ball([0.0, 10.0], 2.0, p)
    moved = ball.sample(4000, generator()) - ball.center
    length = torch.linalg.vector_norm(moved, p, dim=1)
    assert float((length > 2.0 * 0.5**0.5).double().mean()) == pytest.approx(0.5, abs=0.04)
    assert float((moved > 0).double().mean()) == pytest.approx(0.5, abs=0.04)
    assert float(length.max()) > 1.95


@pytest.mark.parametrize("name", [name for name in DOMAINS if "small beside" in name])
def test_samples_move_where_rounding_lets_them(name: str) -> None:
    domain = DOMAINS[name]
    moved = (domain.sample(100, generator()) != domain.center).any(1)
    assert float(moved.double().mean()) > 0.9


@pytest.mark.parametrize("p", [1, 2])
def test_projection_lands_near_the_surface(p: float) -> None:
    ball = Ball([0.5, 0.5], 0.1, p)
    found = ball.project(torch.tensor([[5.0, 0.5], [0.5, -7.0], [3.0, 3.0]]).double())
    length = torch.linalg.vector_norm(found - ball.x, p, dim=1)
    torch.testing.assert_close(length, torch.full_like(length, 0.1), rtol=1e-9, atol=0)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("center", [0.5, 1e3])
def test_projection_of_an_image_stays_near_the_surface(p: float, center: float) -> None:
    """Rounding moves each of many elements, and their sum beyond the radius."""
    ball = Ball([center] * 784, 1e-3, p)
    far = ball.x + torch.randn(50, 784, generator=generator(), dtype=torch.float64)
    found = ball.project(far)
    assert ball.contains(found).all()
    length = torch.linalg.vector_norm(found - ball.x, p, dim=1)
    assert float(length.min()) > 1e-3 * (1 - 1e-4)


def test_clip_and_mask_are_exact() -> None:
    ball = Ball([0.0, 0.5, 0.7], 0.25, clip=(0, 1), mask=[1, 1, 0])
    lower, upper = ball.bounds()
    assert lower[0] == 0.0
    assert lower[2] == upper[2] == 0.7
    assert upper[1] == pytest.approx(0.75)
    above = math.nextafter(0.7, 1)
    points = [[0.0, 0.5, 0.7], [0.2, 0.7, 0.7], [-1e-300, 0.5, 0.7], [0.0, 0.5, above]]
    inside = torch.tensor(points, dtype=torch.float64)
    assert ball.contains(inside).tolist() == [True, True, False, False]


def test_boxes_and_points_are_exact() -> None:
    box = Box([0.1, 0.2], [0.3, 0.2])
    assert box.contains(tensor(0.1, 0.2).unsqueeze(0)).all()
    assert not box.contains(tensor(math.nextafter(0.1, 0), 0.2).unsqueeze(0)).any()
    assert [end.tolist() for end in box.bounds()] == [[0.1, 0.2], [0.3, 0.2]]
    assert box.center.tolist() == pytest.approx([0.2, 0.2])
    assert Box([0.0], [1.0], center=[0.9]).center.tolist() == [0.9]
    point = Point([0.1, 0.2])
    assert point.is_point
    assert not box.is_point
    assert Ball([0.1], 0.0).is_point
    assert Ball([0.1], 1.0, mask=[False]).is_point
    assert not Ball([0.1], 1e-300).is_point
    assert point.contains(tensor(0.1, 0.2).unsqueeze(0)).all()


def test_domains_keep_numbers_of_their_own() -> None:
    x = np.array([0.5, 0.25])
    ball, source = Ball(x, 0.1), torch.tensor([1.0, 2.0], requires_grad=True)
    point = Point(source)
    x[0] = 9.0
    with torch.no_grad():
        source[0] = 9.0
    assert ball.x.tolist() == [0.5, 0.25]
    assert point.x.tolist() == [1.0, 2.0]
    assert not point.x.requires_grad


@pytest.mark.parametrize(
    "x",
    [
        np.array([1.0, 2.0, 3.0])[::-1],
        np.broadcast_to(np.float32(0.5), (3,)),
        np.array([1, 2, 3], dtype=">i2"),
        [1, 2, 3],
        torch.tensor([1.0, 2.0, 3.0]).half(),
    ],
)
def test_any_array_of_numbers_will_do(x: Any) -> None:
    ball = Ball(x, 0.5)
    assert ball.x.dtype == torch.float64
    assert ball.x.tolist() == [float(value) for value in x]


def test_what_a_person_sees() -> None:
    assert repr(Ball([0.5, 0.5], 0.01)) == "Ball(shape [2], eps 0.01, p inf)"
    assert repr(Ball([0.5], [0.1], clip=(0, 1), mask=[1])) == (
        "Ball(shape [1], eps 0.1, p inf, clipped, masked)"
    )
    assert repr(Ball([0.5, 0.5], [0.1, 0.2])) == "Ball(shape [2], eps 0.1 to 0.2, p inf)"
    assert repr(Ball([0.5], 1, 2)) == "Ball(shape [1], eps 1, p 2)"
    assert repr(Box([0.0], [2.0])) == "Box(shape [1], widest 2)"
    assert repr(Point([[0.0]])) == "Point(shape [1, 1])"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Point("digit"),
            "The 'x' parameter of Point must be an array of numbers. Got 'digit'",
        ),
        (lambda: Point([math.nan]), "The 'x' parameter of Point must be finite"),
        (lambda: Point(None), "Got None instead"),
        (lambda: Point([1j]), "array of numbers"),
        (lambda: Box([0.0], [0.0, 1.0]), r"Got shapes \[1\] and \[2\]"),
        (lambda: Box([1.0], [0.0]), "a lower end above its upper end"),
        (lambda: Box([0.0], [math.inf]), "The 'upper' parameter of Box must be finite"),
        (
            lambda: Box([0.0], [1.0], center=[2.0]),
            "'center' parameter of Box must be a point of it",
        ),
        (lambda: Box([0.0], [1.0], center=[0.5, 0.5]), r"of shape \[2\]"),
        (lambda: Ball([0.5], -0.1), "'eps' parameter of Ball must be at least 0. Got -0.1"),
        (lambda: Ball([0.5], math.nan), "'eps' parameter of Ball must be finite"),
        (lambda: Ball([0.5], "big"), "'eps' parameter of Ball must be an array of numbers"),
        (lambda: Ball([0.5], 0.1, 3), "'p' parameter of Ball must be 1, 2 or inf. Got 3"),
        (lambda: Ball([0.5], 0.1, "inf"), "Got 'inf'"),  # type: ignore[arg-type]
        (lambda: Ball([0.5, 0.5], [0.1, 0.2], 2), "must be one number unless p is inf"),
        (lambda: Ball([0.5, 0.5], [0.1, 0.2, 0.3]), r"shape of 'x', \[2\]. Got \[3\]"),
        (lambda: Ball([0.5], 0.1, clip=(0, [1, 1])), "'clip' parameter of Ball must broadcast"),
        (lambda: Ball([0.5], 0.1, clip=1), r"a pair \(low, high\) such as \(0, 1\). Got 1"),  # type: ignore[arg-type]
        (lambda: Ball([0.5], 0.1, clip=(0, 1, 2)), "a pair"),  # type: ignore[arg-type]
        (
            lambda: Ball([2.0], 0.1, clip=(0, 1)),
            r"must enclose the centre: it ranges over \[2, 2\], the clip over \[0, 1\]. Is the",
        ),
        (lambda: Ball([0.5], 0.1, mask=[1, 0]), "'mask' parameter of Ball must broadcast"),
        (lambda: Ball([0.5], 0.1, mask="all"), "'mask' parameter of Ball must be an array"),
    ],
)
def test_wrong_calls(make: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        make()
