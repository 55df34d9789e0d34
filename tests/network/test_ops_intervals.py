"""The contract of intervals: every row encloses exact results, for tame and for wild numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.network.contract import ACTIVATIONS, COMPUTED, CORNERED, Row, each, tame, wild
from tests.network.definitions import Exact, encloses, exact, rational, sound

from provable_circuits.network import ops
from provable_circuits.network.ops import LinearOp, Op
from provable_circuits.rounding import Interval


def _interval_at(row: Row, seed: int, widths: list[float]) -> list[Interval]:
    """Ends for each operand, one sample for each width."""
    draw = tame(seed)
    ends = []
    for shape in row.inputs:
        middle, spread = draw(len(widths), *shape), draw(len(widths), *shape).abs()
        width = torch.tensor(widths).reshape(-1, *([1] * len(shape)))
        ends.append((middle - spread * width, middle + spread * width))
    return ends


def _points(ends: list[Interval], sample: int, seed: int) -> Iterator[list[Exact]]:
    """Both ends, random corners and random exact points between them."""
    source = random.Random(seed)
    sides = [(rational(lower[sample]), rational(upper[sample])) for lower, upper in ends]

    def between(low: Fraction, high: Fraction, share: Fraction) -> Fraction:
        return low + (high - low) * share

    mix = np.frompyfunc(between, 3, 1)
    for shares in ([0], [1], [0, 1], [0, 1], [0, 1, Fraction(1, 3), Fraction(5, 7)]):
        yield [
            mix(low, high, np.frompyfunc(lambda _, s=shares: Fraction(source.choice(s)), 1, 1)(low))
            for low, high in sides
        ]


@each(COMPUTED)
def test_intervals_enclose(row: Row) -> None:
    seed = 21
    op = row.make(tame(seed))
    ends = _interval_at(row, seed + 10, [0.0, 1e-3, 1.0])
    found = op.interval(*ends)
    assert sound(found)
    for sample in range(3):
        for point in _points(ends, sample, seed):
            assert encloses(found, sample, exact(op, *point))


@each(COMPUTED)
def test_intervals_of_points_are_tight(row: Row) -> None:
    op = row.make(tame(23))
    ends = _interval_at(row, 24, [0.0])
    lower, upper = op.interval(*ends)
    assert bool((upper - lower <= 1e-13 * (1 + lower.abs())).all())


@each([row for row in COMPUTED if row not in CORNERED])
def test_narrow_boxes_have_narrow_enclosures(row: Row) -> None:
    """To first order no more than a few times wider than the widest range that is taken."""
    op = row.make(tame(25))
    ends = _interval_at(row, 26, [1e-6])
    lower, upper = op.interval(*ends)
    draw = torch.Generator().manual_seed(0)
    shares = [torch.rand(4000, *shape, generator=draw).round().double() for shape in row.inputs]
    values = op.forward(
        *(low + (high - low) * s for (low, high), s in zip(ends, shares, strict=True))
    )
    taken = values.amax(0) - values.amin(0)
    assert bool((upper - lower <= 6 * taken.amax() + 1e-12).all())


@each(CORNERED)
def test_intervals_of_boxes_reach_their_extremes(row: Row) -> None:
    """No wider than one operation needs: each end is taken at some corner, but for rounding."""
    op = row.make(tame(25))
    ends = _interval_at(row, 26, [0.5])
    lower, upper = op.interval(*ends)
    if isinstance(op, LinearOp):
        radii = [(high - low) / 2 for low, high in ends]
        width = 2 * op.spread(*radii)
    elif isinstance(op, ops.Square):
        (low, high), *_ = ends
        least = torch.where((low < 0) & (high > 0), 0.0, torch.minimum(low * low, high * high))
        width = torch.maximum(low * low, high * high) - least
    else:
        (low, high), *_ = ends
        width = op.forward(high) - op.forward(low)
    torch.testing.assert_close(upper - lower, width, rtol=1e-9, atol=1e-12)


@each(COMPUTED)
def test_intervals_enclose_wild_numbers(row: Row) -> None:
    """Cancellation, denormals and overflow: never a wrong finite end, never NaN."""
    for seed in range(40, 46):
        op, draw = row.make(wild(seed)), wild(seed + 100)
        ends = []
        for shape in row.inputs:
            first, second = draw(2, *shape), draw(2, *shape)
            second[0] = first[0]
            ends.append((torch.minimum(first, second), torch.maximum(first, second)))
        found = op.interval(*ends)
        assert sound(found)
        for sample in (0, 1):
            for point in itertools.islice(_points(ends, sample, seed), 3):
                assert encloses(found, sample, exact(op, *point))


@each(COMPUTED)
def test_infinite_ends_give_no_proof_and_no_nan(row: Row) -> None:
    op = row.make(tame(27))
    whole = [
        (torch.full((1, *shape), -math.inf), torch.full((1, *shape), math.inf))
        for shape in row.inputs
    ]
    ends = [(low.double(), high.double()) for low, high in whole]
    lower, upper = op.interval(*ends)
    assert sound((lower, upper))
    for seed in (28, 29):
        values = [tame(seed)(1, *shape) * 1e6 for shape in row.inputs]
        output = op.forward(*values)
        assert bool(((lower <= output) & (output <= upper)).all())
    half = [(torch.zeros_like(low), high) for low, high in ends]
    assert sound(op.interval(*half))


def one(*values: float) -> Interval:
    """A point as an interval."""
    point = torch.tensor([values], dtype=torch.float64)
    return point, point


@pytest.mark.parametrize(
    ("weight", "x", "value"),
    [
        ([1e16, -1e16, 1.0], [1.0, 1.0, 1.0], 1),
        ([1e16, 1.0, -1e16], [1.0, 1.0, 1.0], 1),
        ([1e308, 1e308, -1e308, -1e308], [1.0, 1.0, 1.0, 1.0], 0),
        ([1e308, 1e308, -1.5e308], [1.0, 1.0, 1.0], 2 * Fraction(1e308) - Fraction(1.5e308)),
        ([1e300], [1e-310], Fraction(1e300) * Fraction(1e-310)),
        ([1e-200], [1e-200], Fraction(1e-200) ** 2),
        ([5e-324], [0.5], Fraction(5e-324) / 2),
        ([5e-324, -5e-324], [0.4, 0.4], 0),
    ],
)
def test_sums_that_fool_floating_point(weight: list[float], x: list[float], value: Any) -> None:
    lower, upper = ops.Linear(torch.tensor([weight], dtype=torch.float64)).interval(one(*x))
    assert float(lower) <= value <= float(upper)


def test_overflow_of_a_partial_sum_is_no_bound() -> None:
    """The sum overflows on the way although its exact value is an ordinary number."""
    op = ops.Linear(torch.tensor([[1e308, 1e308, -1e308, -1e308, 1.0]], dtype=torch.float64))
    lower, upper = op.interval(one(1.0, 1.0, 1.0, 1.0, 7.0))
    assert float(lower) <= 7.0 <= float(upper)
    mean_lower, mean_upper = ops.Mean((0,), 2).interval(one(1.7e308, 1.7e308))
    assert float(mean_lower) <= 1.7e308 <= float(mean_upper)


@each(ACTIVATIONS)
def test_activations_are_monotone_and_enclosed_everywhere(row: Row) -> None:
    op = row.make(tame(0))
    places = [0.0, 5e-324, 1e-310, 1e-200, 1e-20, 1e-8, 0.1, 0.5, 1.0, 1.5, 4.0, 18.0, 19.1, 36.0]
    places += [37.5, 300.0, 700.0, 709.5, 720.0, 744.0, 746.0, 1e5, 1e200, 1.7e308]
    x = torch.tensor(sorted([-place for place in places] + places), dtype=torch.float64)[None]
    lower, upper = op.interval((x, x))
    assert encloses((lower, upper), 0, exact(op, rational(x[0])))
    for end in (lower[0], upper[0]):
        assert bool((end[1:] >= end[:-1]).all())


@pytest.mark.parametrize("op", [ops.Sigmoid(), ops.Tanh()], ids=["sigmoid", "tanh"])
def test_smooth_activations_are_enclosed_to_the_last_digit(op: Op) -> None:
    """Many points of every size, long enough for vectorised code, against sixty digits."""
    generator = torch.Generator().manual_seed(0)
    size = torch.rand(300, generator=generator, dtype=torch.float64) * 12 - 9
    sign = torch.where(torch.rand(300, generator=generator) < 0.5, -1.0, 1.0)
    x = (sign * 10**size)[None]
    found = op.interval((x, x))
    assert encloses(found, 0, exact(op, rational(x[0])))
    assert float(found[0].min()) >= (0 if isinstance(op, ops.Sigmoid) else -1)
    assert float(found[1].max()) <= 1
