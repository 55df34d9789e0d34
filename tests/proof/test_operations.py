"""Operations and sums of the kernel against the theorems that they state, in rational numbers.

Weights of all magnitudes, sums that cancel, and numbers below 2^-1022.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.proof.exact import curve, fractions

from provable_circuits.proof.checker.arithmetic import (
    Arithmetic,
    RefusedError,
    centred,
)
from provable_circuits.proof.checker.operations import (
    Bend,
    Convolution,
    Curve,
    Gather,
    Larger,
    Linear,
    Matrix,
    Scale,
    Square,
    Sum,
)
from provable_circuits.proof.checker.problem import touched
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


def operations(rng: np.random.Generator, scale: int) -> Iterator[tuple[Linear, list[int]]]:
    """One of each kind, with the sizes of its inputs."""

    def some(*shape: int) -> Array:
        return wild(rng, *shape, least=-scale, most=scale)

    yield Matrix(some(6, 3), some(6)), [12]  # two rows
    yield Matrix(some(2, 7)), [2]
    conv = some(4, 1, 2, 3)
    yield Convolution(conv, (2, 4, 5), (4, 2, 3), (2, 1), (1, 1), (2, 2), 2, some(24)), [40]
    yield Convolution(some(1, 2, 3, 1), (2, 3, 2), (1, 1, 2), (1, 1), (0, 0), (1, 1), 1), [12]
    yield Scale(some(4), bias=some(4)), [4]
    yield Scale(np.where((f := some(4)) == 0, 1.0, f), divides=True), [4]
    yield Sum(), [4, 4]
    yield Sum(minus=True), [4, 4]
    windows = np.array([[0, 1, 2], [2, 3, -1], [2, 2, 2], [5, -1, 0]])
    yield Gather(windows, [4, 2], np.array([3.0, 2.0, 3.0, 7.0])), [4, 2]
    yield Gather(np.array([[3], [-1], [0], [3]]), [4]), [4]
    yield Gather(np.array([[0], [1], [0], [0], [0], [0]]), [2]), [2]
    yield Gather(np.array([[-1], [-1]]), [2]), [2]
    yield Scale(np.array([0.0, 2.0, 0.0, 1e-300])), [4]
    yield Convolution(some(2, 1, 3, 1), (1, 5, 2), (2, 3, 2), (1, 1), (2, 0), (3, 1), 1), [10]


def matrix(operation: Linear, sizes: list[int]) -> Array:
    """L, by its columns, in rational numbers."""
    columns = []
    for i in range(sum(sizes)):
        unit = np.split(fractions(np.arange(sum(sizes)) == i)[None], np.cumsum(sizes)[:-1], axis=1)
        columns.append(operation.forward("value", *unit)[0])
    return np.array(columns, dtype=object).T


def rational(operation: Linear) -> Linear:
    from provable_circuits.proof.checker.network import _exactly

    made = _exactly(operation, EXACT)
    assert isinstance(made, Linear)
    return made


@pytest.mark.parametrize("scale", [0, 3, 30])
@pytest.mark.parametrize("seed", range(4))
def test_intervals_and_backward_steps_enclose_their_errors(scale: int, seed: int) -> None:
    """The two lines of the module's docstring, with what they bound computed exactly."""
    rng = np.random.default_rng(seed)
    for operation, sizes in operations(rng, scale):
        exact = matrix(rational(operation), sizes)
        size = abs(exact)
        inputs = []
        for units in sizes:
            lower = wild(rng, units, least=-scale, most=scale // 2)
            width = abs(wild(rng, units, least=-20, most=0)) * (rng.random(units) < 0.5)
            inputs.append((lower, lower + width))
        (lower, upper), reach = operation.interval(FLOAT, *inputs)
        bias = fractions(operation.bias if operation.bias is not None else np.zeros(len(lower)))
        ends = [np.concatenate([pair[i] for pair in inputs]) for i in (0, 1)]
        middle, radius = (fractions(part) for part in centred(FLOAT, *ends))
        terms = operation.terms + 2
        true_reach = size @ (abs(middle) + radius) + abs(bias)
        spread = size @ radius + gamma(terms) * true_reach
        least, most = exact @ middle + bias - spread, exact @ middle + bias + spread
        assert (fractions(reach) >= true_reach).all()
        counted = [(row != 0).sum() for row in [*exact, *exact.T]]
        assert max(counted) <= operation.terms <= 24
        assert (reach > 0).all()  # what overflows is then nowhere multiplied by 0
        assert (fractions(upper) - fractions(lower) >= 2 * spread).all()
        for sign in (1, -1):  # the ends that are furthest from the middle
            corner = fractions(ends[0])
            corners = np.where(sign * exact > 0, fractions(ends[1]), corner)
            value = (exact * corners).sum(axis=1) + bias
            assert (fractions(lower) <= value).all()
            assert (value <= fractions(upper)).all()
        room = (most - least) * (1 + gamma(4 * terms)) + Fraction(1, 2**900)
        narrow = fractions(upper) - fractions(lower) <= room + 8 * U * (abs(least) + abs(most))
        assert narrow.all()
        a = wild(rng, 3, len(lower), least=-scale, most=scale)
        parts = operation.backward(a)
        carried = fractions(np.concatenate(list(parts[: len(sizes)]), axis=1))
        x = fractions(ends[1])
        lost = abs(carried @ x - fractions(a) @ (exact @ x))
        total = _Total(FLOAT, 3)
        total.rounded(a, reach, terms)
        claimed = fractions(FLOAT.grown(total.error))
        assert (lost <= claimed).all()
        assert (claimed >= gamma(terms) * (abs(fractions(a)) @ true_reach)).all()
        room = (1 + Fraction(1, 2**20)) * gamma(terms) * (abs(fractions(a)) @ fractions(reach))
        assert (claimed <= room + Fraction(1, 2**900)).all()


@pytest.mark.parametrize("seed", range(3))
def test_masks_are_the_places_of_weights(seed: int) -> None:
    """A difference passes exactly where an entry of L is not zero, however small it is."""
    rng = np.random.default_rng(seed)
    for operation, sizes in operations(rng, 150):
        entries = matrix(rational(operation), sizes) != 0
        mask = rng.random(sum(sizes)) < 0.3
        parts = np.split(mask, np.cumsum(sizes)[:-1])
        found = touched(operation, parts, len(entries))
        assert found.dtype == bool
        assert (found == (entries & mask).any(axis=1)).all()
    assert not touched(None, [], 3).any()
    assert touched(Bend(0.0), [np.array([True, False])], 2).tolist() == [True, False]


def test_larger_is_bounded_by_both_and_carried_as_a_sum() -> None:
    bounds = [
        (np.array(lo), np.array(hi))
        for lo, hi in [([0.0, 1], [4.0, 2]), ([0.0, 0], [1.0, 5]), ([-1.0, 3], [5.0, 3.5])]
    ]
    (lower, upper), reach = Larger().interval(FLOAT, *bounds)
    assert lower.tolist() == [0, 3]
    assert upper.tolist() == [5, 3.5]
    assert (reach >= [5, 7]).all()
    one, other = Larger().backward(np.array([[2.0, -3]]))
    assert one.tolist() == other.tolist() == [[2, -3]]
    masks = [np.array([True, False]), np.array([False, True]), np.array([False, False])]
    assert touched(Larger(), masks, 2).all()


# --- activations --------------------------------------------------------------------------------

RANGES = [
    (-1.0, 2.0),
    (-3.0, 0.1),
    (-1e-9, 1e9),
    (-2.0, -1.0),
    (0.0, 3.0),
    (-4.0, 0.0),
    (0.5, 0.5),
    (-1e-310, 3e-312),
    (-0.1, 1e17),
    (-1e17, 0.3),
    (-2.0, 2.0),
]


def ranges(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    low = wild(rng, 60, least=-9, most=9)
    high = low + abs(wild(rng, 60, least=-9, most=9))
    fixed = np.array(RANGES).T
    return np.concatenate([fixed[0], low]), np.concatenate([fixed[1], high])


def inside(low: Array, high: Array) -> list[Array]:
    """Points of ranges: their ends, 0 where it is one of them, and points between."""
    ends = fractions(low), fractions(high)
    shares = [Fraction(0), Fraction(1), Fraction(1, 3), Fraction(7, 8)]
    points = [ends[0] + share * (ends[1] - ends[0]) for share in shares]
    return [*points, np.where((low <= 0) & (high >= 0), 0 * ends[0], ends[0])]


def assert_enclosed(operation: Any, low: Array, high: Array, function: Any, alpha: Any) -> Any:
    """Lines and intervals hold at points of the ranges, in rational numbers."""
    lines = operation.lines(FLOAT, (low, high), alpha)
    least, most = operation.interval(FLOAT, (low, high))
    for x in inside(low, high):
        y = function(x)
        assert (fractions(least) <= y).all()
        assert (y <= fractions(most)).all()
        below = fractions(lines.below) * x + fractions(lines.below_at)
        above = fractions(lines.above) * x + fractions(lines.above_at)
        assert (below <= y).all()
        assert (y <= above).all()
    return lines


@pytest.mark.parametrize("slope", [0.0, 0.125, 1.0, -1.0])
@pytest.mark.parametrize("seed", range(3))
def test_lines_of_bends(slope: float, seed: int) -> None:
    low, high = ranges(seed)
    alpha = np.random.default_rng(seed).uniform(-0.3, 1.3, (2, len(low)))

    def function(x: Array) -> Array:
        return np.where(x < 0, Fraction(slope) * x, x)

    lines = assert_enclosed(Bend(slope), low, high, function, alpha)
    unstable = (low < 0) & (high > 0)
    wider = np.where(high > -low, 1.0, slope)
    chosen = np.where(alpha < 0, wider, np.clip(slope + alpha * (1 - slope), slope, 1))
    assert np.allclose(lines.below[:, unstable], chosen[:, unstable])
    assert (lines.below[:, low >= 0] == 1).all()
    assert (lines.below[:, (high <= 0) & (low < 0)] == slope).all()
    chord = ((high - slope * low) / np.where(unstable, high - low, 1))[unstable]
    assert np.allclose(lines.above[0, unstable], chord)
    touch = (slope - lines.above[0]) * low
    assert (abs(lines.above_at - touch) <= 1e-14 * (abs(low) + high) + 1e-280)[unstable].all()
    assert (lines.above_at[~unstable] == 0).all()
    assert (lines.below_at == 0).all()
    plain = assert_enclosed(Bend(slope), low, high, function, None)
    assert (plain.below[0, unstable] == wider[unstable]).all()
    least, most = Bend(slope).interval(FLOAT, (low, high))
    reached = [function(x).astype(float) for x in inside(low, high)]
    assert np.allclose(least, np.min(reached, axis=0), rtol=1e-12, atol=1e-320)
    if slope <= 0:
        assert (least[(low <= 0) & (high >= 0)] == 0).all()
    assert np.allclose(most, np.max(reached, axis=0), rtol=1e-12, atol=1e-320)


def test_the_chord_above_a_size_that_falls() -> None:
    """Where the chord of |x| falls, its rounding is as large as elsewhere."""
    low = -np.random.default_rng(0).uniform(1, 2, 2000)
    high = -low * 2.0**-45 * np.random.default_rng(1).uniform(1, 2, 2000)
    lines = Bend(-1.0).lines(FLOAT, (low, high), None)
    for x in (fractions(low), fractions(high)):
        assert (abs(x) <= fractions(lines.above[0]) * x + fractions(lines.above_at)).all()


@pytest.mark.parametrize("slope", [0.0, 0.125, 0.7, -1.0])
def test_the_chord_above_a_bend(slope: float) -> None:
    """At both bounds, for ranges of all shapes, and for those whose products underflow."""
    rng = np.random.default_rng(0)
    tiny = rng.integers(1, 1000, (2, 400)) * 5e-324
    for one, other in (rng.uniform(1, 2, (2, 400)) * [[1], [2.0**k]] for k in (-45, -3, 0, 3, 45)):
        for low, high in ((-one, other), (-other, one), (-tiny[0], tiny[1])):
            lines = Bend(slope).lines(FLOAT, (low, high), None)
            above, at = fractions(lines.above[0]), fractions(lines.above_at)
            ends = fractions(low), fractions(high)
            assert (Fraction(slope) * ends[0] <= above * ends[0] + at).all()
            assert (ends[1] <= above * ends[1] + at).all()
            least = (Fraction(slope) - above) * ends[0]
            size = abs(Fraction(slope) * ends[0]) + ends[1]
            assert (at <= least + 14 * U * size + Fraction(5, 2**960)).all()


@pytest.mark.parametrize("seed", range(3))
def test_lines_of_squares(seed: int) -> None:
    low, high = ranges(seed)
    lines = assert_enclosed(Square(), low, high, lambda x: x * x, None)
    gap = lines.above_at - lines.below_at + (lines.above - lines.below)[0] * low
    size = np.maximum(abs(low), abs(high))
    assert (gap <= (high - low) ** 2 / 4 + 1e-13 * size**2 + 1e-280).all()
    least, most = Square().interval(FLOAT, (low, high))
    crosses = (low <= 0) & (high >= 0)
    assert (least[crosses] == 0).all()
    assert np.allclose(most, size**2, rtol=1e-14, atol=1e-320)
    nearest = np.minimum(abs(low), abs(high))[~crosses]
    assert np.allclose(least[~crosses], nearest**2, rtol=1e-14, atol=1e-320)


@pytest.mark.parametrize("tanh", [False, True])
def test_lines_of_curves(tanh: bool) -> None:
    low = np.array([-1.0, -20, 3, -900, 0.1, -2e-9, 0, -3, -1e6, 2, -0.7, -30])
    high = np.array([2.0, -3, 3.5, 900, 0.1, 1e-9, 1, 0.4, 1e6, 40, 0.9, 35])
    function = curve(tanh)
    operation = Curve(tanh)
    lines = assert_enclosed(operation, low, high, function, None)
    for share in np.linspace(0, 1, 67):
        x = fractions(low) + Fraction(share) * (fractions(high) - fractions(low))
        y = function(x)
        assert (fractions(lines.below[0]) * x + fractions(lines.below_at) <= y).all()
        assert (fractions(lines.above[0]) * x + fractions(lines.above_at) >= y).all()
    least, most = operation.interval(FLOAT, (low, high))
    for end, x in ((least, low), (most, high)):
        assert (abs(fractions(end) - function(fractions(x))) <= Fraction(2, 2**40)).all()
    assert (least >= -tanh).all()
    assert (most <= 1).all()
    slopes = [
        y * (1 - y) if not tanh else 1 - y * y
        for y in (operation.value(low), operation.value(high))
    ]
    assert np.allclose(lines.below[0], np.minimum(*slopes))
    assert (lines.below == lines.above).all()
    narrow = high - low < 4
    gap = (lines.above_at - lines.below_at)[narrow]
    swing = (1 + tanh) ** 2 / 4 * (high - low)[narrow]
    assert (gap <= swing * 1.01 + 1e-9).all()
    assert (gap[:1] < 0.8 * swing[:1]).all()
    with pytest.raises(RefusedError, match="no sigmoid and no tanh"):
        operation.interval(EXACT, (fractions(low), fractions(high)))
    with pytest.raises(RefusedError, match="no sigmoid and no tanh"):
        operation.lines(EXACT, (fractions(low), fractions(high)), None)


@pytest.mark.parametrize("tanh", [False, True])
def test_slopes_of_curves(tanh: bool) -> None:
    """They are nowhere steeper than the curve, and lines touch it at the bounds, nearly."""
    rng = np.random.default_rng(0)
    low, width = rng.normal(size=400) * 3, rng.uniform(0, 12, 400)
    ends = (
        np.concatenate([low, -(2.0 ** rng.uniform(5, 19, 100))]),
        np.concatenate([low + width, 2.0 ** rng.uniform(-3, 19, 100)]),
    )
    lines = Curve(tanh).lines(FLOAT, ends, None)
    slope, error = fractions(lines.below[0]), Fraction(1, 2**40)
    values = [curve(tanh)(fractions(end)) for end in ends]
    steep = np.minimum(*(1 - y * y if tanh else y * (1 - y) for y in values))
    assert (slope >= 0).all()
    assert (slope <= steep).all()
    assert (slope >= steep - 5 * error).all()
    assert (lines.below == lines.above).all()
    touch = [y - slope * fractions(x) for x, y in zip(ends, values, strict=True)]
    assert (fractions(lines.below_at) <= touch[0]).all()
    assert (fractions(lines.below_at) >= touch[0] - 3 * error).all()
    assert (fractions(lines.above_at) >= touch[1]).all()
    assert (fractions(lines.above_at) <= touch[1] + 3 * error).all()


def test_values_of_curves() -> None:
    """Far more exact than the error that is allowed for: an argument of 700 and more too."""
    x = np.concatenate([np.linspace(-40, 40, 400), [700.5, -700.5, 1e5, -1e5, 0.0, 5e-324]])
    for tanh in (False, True):
        off = abs(fractions(Curve(tanh).value(x)) - curve(tanh)(fractions(x)))
        assert off.max() <= Fraction(1, 2**43)


def test_activations_in_rational_arithmetic() -> None:
    low, high = fractions([-1.0, -2.0, 1.0]), fractions([2.0, -1.0, 3.0])
    lines = Bend(0.25).lines(EXACT, (low, high), None)
    assert lines.above[0].tolist() == [Fraction(3, 4), Fraction(1, 4), 1]
    assert lines.above_at.tolist() == [Fraction(1, 2), 0, 0]
    lines = Square().lines(EXACT, (low, high), None)
    assert lines.below[0].tolist() == [1, -3, 4]
    assert lines.above[0].tolist() == [1, -3, 4]
    assert lines.below_at.tolist() == [Fraction(-1, 4), Fraction(-9, 4), -4]
    assert lines.above_at.tolist() == [2, -2, -3]
    for values in (lines.below_at, lines.above_at, Square().interval(EXACT, (low, high))[1]):
        assert all(isinstance(value, int | Fraction) for value in values)
