"""Numbers and totals of the kernel: every rounding error is enclosed, and not by much more."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.proof.exact import fractions

from provable_circuits.proof.checker import machine
from provable_circuits.proof.checker.arithmetic import (
    Arithmetic,
    RefusedError,
    centred,
    magnitude,
)
from provable_circuits.proof.checker.machine import check_products
from provable_circuits.proof.checker.problem import Region
from provable_circuits.proof.checker.rules import _Total

FLOAT, EXACT = Arithmetic(), Arithmetic(exact=True)
U = Fraction(1, 2**53)
Array = Any


def wild(rng: np.random.Generator, *shape: int, least: int = -30, most: int = 30) -> Array:
    """Numbers of all magnitudes, some of them zero."""
    found = rng.normal(size=shape) * 10.0 ** rng.integers(least, most + 1, shape)
    return np.where(rng.random(shape) < 0.1, 0.0, found)


def gamma(terms: int) -> Fraction:
    return terms * U / (1 - terms * U)


def _total(count: int, arithmetic: Arithmetic = FLOAT) -> _Total:
    return _Total(arithmetic, count)


@pytest.mark.parametrize("seed", range(5))
def test_totals_enclose_their_errors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    total, true = _total(2), fractions(np.zeros(2))
    for _ in range(6):
        a, v = wild(rng, 2, 9, least=-8, most=8), wild(rng, 9, least=-8, most=8)
        total.product(a, v)
        true = true + fractions(a) @ fractions(v)
        total.product(a, -v)  # what cancels leaves its error
        true = true - fractions(a) @ fractions(v)
    total.add(wild(rng, 2, least=-300, most=-290))
    low = fractions(total.value())
    assert (low <= true + Fraction(1, 10**280)).all()
    assert (low >= true - 1000).all()


def test_totals_of_numbers_that_underflow() -> None:
    total = _total(1)
    total.product(np.array([[2.0**-540, 2.0**-540]]), np.array([-(2.0**-540), -(2.0**-537)]))
    assert Fraction(total.value()[0]) <= -Fraction(9) / 2**1080
    assert total.value()[0] > -(2.0**-900)


def test_totals_of_many_numbers_that_underflow() -> None:
    """Each product is just lost, and all of them are more than the smallest number."""
    low = np.full(100, 2.0**-535)
    total = _total(1)
    total.product(np.full((1, 100), 2.0**-540), -low)
    assert Fraction(total.value()[0]) <= -Fraction(100) / 2**1075
    total = _total(1)
    total.least(np.full((1, 100), 2.0**-540), Region(-low, low))
    assert Fraction(total.value()[0]) <= -Fraction(100) / 2**1075


def test_a_value_is_rounded_down() -> None:
    """The sum is rounded up by all that its error allows for."""
    total = _total(1)
    total.add(np.array([2.0**-53 + 2.0**-80]))
    total.add(np.array([1.0]))
    assert Fraction(total.value()[0]) <= 1 + Fraction(1, 2**53) + Fraction(1, 2**80)
    assert total.value()[0] >= 1 - 2.0**-51


def test_a_value_is_rounded_down_where_its_difference_is_rounded_up() -> None:
    """Three sums are rounded up, in all by 2 u and 2^-64, and that is nearly their error."""
    total, u = _total(1), 2.0**-53
    numbers = [-(2.0**-64), 2.0**-10, 1 - 2.0**-10 + 3 * u, 3 * u]
    for number in numbers:
        total.add(np.array([number]))
    assert total.sum[0] == 1 + 8 * u
    assert Fraction(total.value()[0]) <= sum(map(Fraction, numbers))
    assert total.value()[0] >= 1


def test_errors_that_are_too_small_to_be_added() -> None:
    """A hundred roundings of u^2 / 2 beside an error of u, which they do not change."""
    total, u = _total(1), 2.0**-53
    numbers = [3 * u, 1.0, -1 - 4 * u, u / 2, *[3 * u * u / 2] * 100]
    for number in numbers:
        total.add(np.array([number]))
    true = sum(map(Fraction, numbers))
    assert Fraction(total.sum[0] - total.error[0]) > true
    assert Fraction(total.value()[0]) <= true


def test_sums_that_lose_their_small_terms() -> None:
    """A one beside thousands of numbers below u, which are lost where they meet it."""
    units, u = 4096, 2.0**-53
    ones = np.ones(units)
    a = np.full((1, units), 0.9 * u)
    a[0, 0] = 1
    total = _total(1)
    total.least(a, Region(-ones, ones))
    assert Fraction(total.value()[0]) <= -fractions(a).sum()
    a[0, 1:] = np.sqrt(0.9 * u)
    total = _total(1)
    total.least(a, Region(-ones, ones, 2, 1.0, 0 * ones))
    assert Fraction(total.value()[0]) ** 2 >= (fractions(a) ** 2).sum()
    assert -1.000001 < total.value()[0] < 0


@pytest.mark.parametrize("seed", range(6))
def test_least_values_over_a_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, centre = wild(rng, 3, 6, least=-4, most=4), wild(rng, 6, least=-4, most=4)
    radius = abs(wild(rng, 6, least=-4, most=4))
    region = Region(centre - radius, centre + radius)
    total = _total(3)
    total.least(a, region)
    low, high, rows = fractions(region.lower), fractions(region.upper), fractions(a)
    least = np.where(rows > 0, rows * low, rows * high).sum(axis=1)
    size = (abs(rows) * (abs(low) + abs(high))).sum(axis=1)
    found = fractions(total.value())
    assert (found <= least).all()
    assert (found >= least - size / 2**40 - Fraction(1, 2**900)).all()
    exact = _total(3, EXACT)
    exact.least(rows, Region(low, high))
    assert (exact.value() == least).all()
    assert isinstance(exact.value()[0], Fraction)


def least_over_ball(a: Array, region: Region) -> float:
    """The least value over a ball of the 1-norm and its box, by spending where it pays most."""
    assert region.centre is not None
    budget, value = region.eps, float(a @ region.centre)
    for i in np.argsort(-abs(a)):
        room = (
            region.centre[i] - region.lower[i] if a[i] > 0 else region.upper[i] - region.centre[i]
        )
        step = min(budget, room)
        budget, value = budget - step, value - abs(a[i]) * step
    return value


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_least_values_over_a_ball(p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    units, eps = 6, 0.75
    centre = rng.normal(size=units)
    region = Region(centre - eps, centre + eps, p, eps, centre)
    a = rng.normal(size=(3, units)) * 10.0 ** rng.integers(-2, 3, (3, units))
    norm = abs(a).max(axis=1) if p == 1 else np.linalg.norm(a, axis=1)
    total = _total(3)
    total.least(a, region)
    least = a @ centre - eps * norm
    assert np.allclose(total.value(), least, rtol=1e-8)
    assert (total.value() <= least + 1e-12).all()
    # Some units stay in place, some may move on one side only, and one was split off the centre.
    lower, upper = region.lower.copy(), region.upper.copy()
    lower[0] = upper[0] = centre[0]
    lower[1] = centre[1]
    upper[2] = centre[2] + 0.125
    lower[2] = centre[2] - 0.125
    lower[3] = centre[3] + 0.25
    cut = Region(lower, upper, p, eps, centre)
    total = _total(3)
    total.least(a, cut)
    bounds, reached = total.value(), np.full(3, np.inf)
    for _ in range(300):
        step = rng.normal(size=units) * (rng.random(units) < 0.5)
        step *= eps * rng.choice([0.5, 0.99999]) / max(np.linalg.norm(step, p), 1e-9)
        x = centre + step
        x[0] = centre[0]
        if ((lower <= x) & (x <= upper)).all() and np.linalg.norm(x - centre, p) <= eps:
            reached = np.minimum(reached, a @ x)
    assert (bounds <= reached + 1e-12).all()
    if p == 1:
        free = Region(np.where(np.arange(6) == 3, region.lower, lower), upper, p, eps, centre)
        total = _total(3)
        total.least(a, free)
        # Only how far a unit may move is used, not to which side.
        wide = replaced = np.maximum(free.upper - centre, centre - free.lower)
        sides = Region(centre - wide, centre + replaced, p, eps, centre)
        least = np.array([least_over_ball(row, sides) for row in a])
        assert (total.value() >= least - 1e-9 * (1 + abs(least))).all()
        box = np.where(a > 0, a * free.lower, a * free.upper).sum(axis=1)
        assert (total.value() <= np.array([least_over_ball(row, free) for row in a]) + 1e-12).all()
        assert (total.value() >= box - 1e-9 * (1 + abs(box))).all()
    # A small ball within a large box, far from 0: what the middle is off the centre counts.
    off = Region(centre - 9, centre + 5, p, eps, centre)
    total = _total(3)
    total.least(a, off)
    assert np.allclose(total.value(), a @ centre - eps * norm, rtol=1e-8)
    assert (total.value() <= a @ centre - eps * norm + 1e-9).all()


def test_balls_beside_huge_numbers() -> None:
    """Rounding of the middle of a box is no way out of a ball."""
    centre = np.array([1e15, 1.0])
    region = Region(centre - 0.25, centre + 0.25, 2, 0.25, centre)
    total = _total(1)
    total.least(np.array([[1.0, 3e8]]), region)
    size = 0.25 * np.hypot(1.0, 3e8)
    assert total.value()[0] <= 1e15 + 3e8 - size
    assert total.value()[0] >= 1e15 + 3e8 - size - 100


def test_gamma_and_what_it_grows() -> None:
    for terms in (1, 2, 100, 2**21):
        assert abs(Fraction(FLOAT.gamma(terms)) / gamma(terms) - 1) <= U
        error = np.array([1.0, 3e-300])
        grown = fractions(FLOAT.grown(error, terms))
        assert (grown >= fractions(error) * (1 + gamma(terms + 4))).all()
        assert (grown <= fractions(error) * (1 + 3 * gamma(terms + 8))).all()
        assert Fraction(FLOAT.tiny(terms)) == terms * Fraction(1, 2**960)
    assert (FLOAT.grown(error) >= FLOAT.grown(error, 2**21)).all()
    with pytest.raises(RefusedError, match="longer than its errors allow"):
        FLOAT.gamma(2**21 + 9)
    assert FLOAT.gamma(2**21 + 8) > 0
    for zero in (EXACT.u, EXACT.gamma(5), EXACT.tiny(5)):
        assert isinstance(zero, Fraction)
        assert zero == 0
    assert EXACT.grown(Fraction(1, 3)) == Fraction(1, 3) == EXACT.down(Fraction(1, 3))
    assert EXACT.up(Fraction(1, 3)) == Fraction(1, 3)
    assert EXACT.half(Fraction(1)) == Fraction(1, 2)
    assert FLOAT.u == 2.0**-53
    assert FLOAT.half(np.array([3.0]))[0] == 1.5
    assert FLOAT.down(1.0) == 1 - 2.0**-53
    assert FLOAT.up(1.0) == 1 + 2.0**-52


def test_numbers_must_be_finite() -> None:
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(RefusedError, match="not finite"):
            FLOAT.array([1.0, bad])
    assert FLOAT.array(np.array([1.5], dtype=np.float32)).dtype == np.float64
    third = np.array([Fraction(1, 3)], dtype=object)
    assert EXACT.array(third)[0] == Fraction(1, 3)
    assert EXACT.array([[0.1]])[0, 0] == Fraction(0.1)
    assert EXACT.zeros(2, 3).shape == (2, 3)
    assert EXACT.zeros(1)[0] == Fraction(0)


def test_middles_and_radii() -> None:
    rng = np.random.default_rng(0)
    low = np.concatenate([wild(rng, 300), [5e-324, -5e-324, 0.0, 1.0]])
    high = np.concatenate([low[:300] + abs(wild(rng, 300)), [5e-324, 5e-324, 0.0, 1.0]])
    middle, radius = (fractions(part) for part in centred(FLOAT, low, high))
    assert (middle - radius <= fractions(low)).all()
    assert (fractions(high) <= middle + radius).all()
    least = (fractions(high) - fractions(low)) / 2
    assert (radius <= least + 3 * U * (abs(middle) + radius) + Fraction(3, 2**1074)).all()
    assert radius[-1] == radius[-2] == 0
    with pytest.raises(RefusedError, match="above its upper"):
        centred(FLOAT, np.array([1.0]), np.array([0.5]))
    exact = centred(EXACT, fractions([0.0]), np.array([Fraction(1, 3)], dtype=object))
    assert exact[0][0] == exact[1][0] == Fraction(1, 6)


def halves(size: int, apart: bool) -> tuple[Array, Array]:
    """Two halves: above and below, or every second one."""
    places = np.arange(size)
    return (places[::2], places[1::2]) if apart else (places[: size // 2], places[size // 2 :])


def mixed_columns(a: Array, b: Array, apart: bool) -> Array:
    """Products by way of sums of columns."""
    one, two = halves(b.shape[1], apart)
    product = np.empty((len(a), b.shape[1]))
    product[:, two] = a @ b[:, two]
    product[:, one] = a @ (b[:, one] + b[:, two]) - product[:, two]
    return product


def single(a: Array, b: Array) -> Array:
    """Products of 24 bits, of any magnitude."""
    sizes = [2.0 ** np.floor(np.log2(np.abs(x).max())) for x in (a, b)]
    parts = [(x / e).astype(np.float32).astype(float) for x, e in zip((a, b), sizes, strict=True)]
    return np.asarray((parts[0] @ parts[1]) * sizes[0] * sizes[1])


def dense(product: Any) -> Any:
    """Another product, of matrices without zeros alone."""
    return lambda a, b: product(a, b) if a.all() else a @ b


def flushed(a: Array, b: Array) -> Array:
    product = a @ b
    return np.where(abs(product) < 2.0**-1022, 0.0, product)


PRODUCTS = {
    "columns": dense(lambda a, b: mixed_columns(a, b, False)),
    "every second column": dense(lambda a, b: mixed_columns(a, b, True)),
    "rows": dense(lambda a, b: mixed_columns(b.T, a.T, False).T),
    "every second row": dense(lambda a, b: mixed_columns(b.T, a.T, True).T),
    "single": lambda a, b: a @ b if a.all() else single(a, b),
    "flushed": flushed,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_must_be_plain(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast multiplication, single precision and flushed numbers are found out."""

    class Like(np.ndarray[Any, Any]):
        """An array whose products another function makes."""

        product: Any = staticmethod(np.matmul)

        def __matmul__(self, other: Any) -> Any:
            return type(self).product(np.asarray(self), np.asarray(other))

    monkeypatch.setattr(machine, "np", _Numpy(Like))
    check_products()
    Like.product = staticmethod(PRODUCTS[name])
    with pytest.raises(RefusedError, match="plain products"):
        check_products()


class _Numpy:
    """NumPy, with matrices of another class."""

    def __init__(self, like: type) -> None:
        self.ones: Any = lambda *a: np.ones(*a).view(like)
        self.eye: Any = lambda *a: np.eye(*a).view(like)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def test_magnitudes() -> None:
    assert magnitude(np.array([-5.0, -1, 2]), np.array([2.0, 3, 3])).tolist() == [5, 3, 3]


def test_sums_count_their_roundings() -> None:
    total, true = _total(1), Fraction(1)
    total.add(np.array([1.0]))
    for _ in range(100):
        total.add(np.array([-(2.0**-54)]))
        true -= Fraction(1, 2**54)
    assert Fraction(total.value()[0]) <= true
    assert total.value()[0] > 1 - 2.0**-45
    rng = np.random.default_rng(0)
    for units in (1, 7):
        a, v = wild(rng, 2, units), wild(rng, units)
        total = _total(2)
        total.product(a, v)
        least = gamma(units) * (abs(fractions(a)) @ abs(fractions(v)))
        assert (fractions(FLOAT.grown(total.error)) >= least).all()


def test_balls_of_the_1_norm_by_hand() -> None:
    """Half the budget goes as far as the box lets it, the rest where it pays less."""
    low, high = np.array([-0.5, 0.0]), np.array([0.0, 0.5])
    for sign in (1, -1):
        ends = (low, high) if sign > 0 else (-high, -low)
        total = _total(1)
        total.least(np.array([[2.0, -1.0]]) * sign, Region(*ends, 1, 0.75, np.zeros(2)))
        assert total.value()[0] == pytest.approx(-1.25, abs=1e-13)
        assert total.value()[0] <= -1.25
    total = _total(1)  # more budget than the box has room for
    total.least(np.array([[2.0, -1.0]]), Region(low, high, 1, 7.0, np.zeros(2)))
    assert total.value()[0] == pytest.approx(-1.5, abs=1e-13)


def test_balls_of_the_2_norm_whose_squares_underflow() -> None:
    total = _total(1)
    ones = np.ones(2)
    total.least(np.full((1, 2), 2.0**-540), Region(-ones, ones, 2, 1.0, 0 * ones))
    assert Fraction(total.value()[0]) ** 2 >= Fraction(2, 2**1080)
    assert -(2.0**-470) <= total.value()[0] < 0


def test_balls_with_no_room_but_the_smallest_number() -> None:
    """It counts where the coefficient is large: the first unit falls by more than the second."""
    end, zero = np.array([5e-324, 1.0]), np.zeros(2)
    a = np.array([[1e300, 1e-30]])
    for sign in (1, -1):
        total = _total(1)
        low, high = (-end, zero) if sign > 0 else (zero, end)
        total.least(sign * a, Region(low, high, 1, 0.5, zero))
        assert Fraction(total.value()[0]) <= -Fraction(1e300) * Fraction(5e-324)
        assert total.value()[0] >= -3e-23


@pytest.mark.parametrize("p", [1, 2])
def test_what_does_not_move_does_not_count(p: int) -> None:
    """Beside a unit that is fixed, and a box in which the ball does not touch the others' ends."""
    centre = np.array([3.0, 1, 2, -1])
    room = np.array([0.0, 1, 1, 1])
    total = _total(1)
    total.least(np.array([[100.0, 3, -4, 0]]), Region(centre - room, centre + room, p, 0.5, centre))
    fall = 2.5 if p == 2 else 2.0
    assert total.value()[0] == pytest.approx(295 - fall, abs=1e-10)
    assert total.value()[0] <= 295 - fall


@pytest.mark.parametrize("p", [1, 2])
def test_the_better_of_box_and_ball(p: int) -> None:
    """Of two objectives, one is bounded by the box and one by the ball; both are added to."""
    centre = np.array([0.0, 0.0, 0.0])
    room = np.array([0.125, 1, 1])
    a = np.array([[8.0, 0, 0], [0, 3, 4]])
    total = _total(2)
    total.add(np.array([10.0, 20.0]))
    total.least(a, Region(centre - room, centre + room, p, 0.5, centre))
    least = [9.0, 20 - (2.5 if p == 2 else 2.0)]
    assert total.value() == pytest.approx(least, abs=1e-12)
    assert (total.value() <= least).all()
    assert (total.error >= 2.0**-53 * np.abs(least)).all()
    wide = np.full(3, 2.0**59)  # a box whose middle costs more than the ball
    total = _total(2)
    total.least(a, Region(centre - 1, wide, p, 0.5, centre))
    assert total.value() == pytest.approx([-4, least[1] - 20], abs=1e-12)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("units", [1, 2, 5])
def test_small_balls_in_large_boxes(p: int, units: int) -> None:
    """The middle of the box is far from the centre, and both are far from 0."""
    rng = np.random.default_rng(units)
    for _ in range(60):
        centre = rng.normal(size=units) * 1e15
        a = np.zeros((1, units))
        a[0, rng.integers(units)] = rng.normal()
        eps = float(rng.uniform(1, 2))
        room = rng.uniform(4, 1e15, (2, units))
        region = Region(centre - room[0], centre + room[1], p, eps, centre)
        total = _total(1)
        total.least(a, region)
        rows = fractions(a)
        least = (rows @ fractions(centre))[0] - abs(rows).max() * Fraction(eps)
        assert Fraction(total.value()[0]) <= least
        assert Fraction(total.value()[0]) >= least - 40 * (units + 4) * U * 10**16 * abs(rows).max()
