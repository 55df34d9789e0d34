"""Exact linear programs: against a floating-point solver, and where only exactness decides."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.exact.rational import Optimum, maximise, weighed, whole

Row = list[Fraction]


def value(row: Row, point: tuple[Fraction, ...]) -> Fraction:
    return row[0] + sum((a * t for a, t in zip(row[1:], point, strict=True)), Fraction(0))


def drawn(dice: np.random.Generator, count: int, degenerate: bool) -> Row:
    if degenerate:  # few different numbers, many zeros: rows meet in corners of one another
        return [Fraction(int(v)) for v in dice.choice([-1, 0, 0, 1], count)]
    return [Fraction(float(v)) for v in dice.normal(size=count)]


def solver(goal: Row, rows: list[Row]) -> float | None:
    answer = linprog(
        [-float(v) for v in goal[1:]],
        A_ub=[[-float(v) for v in row[1:]] for row in rows] or None,
        b_ub=[float(row[0]) for row in rows] or None,
        bounds=(0, 1),
    )
    assert answer.status in (0, 2)
    return float(goal[0]) - float(answer.fun) if answer.status == 0 else None


@pytest.mark.parametrize("degenerate", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_optima_are_those_of_the_floating_point_solver(seed: int, degenerate: bool) -> None:
    dice = np.random.default_rng(seed)
    count, many = int(dice.integers(1, 8)), int(dice.integers(0, 14))
    goal = drawn(dice, count + 1, degenerate)
    rows = [drawn(dice, count + 1, degenerate) for _ in range(many)]
    wanted, got = solver(goal, rows), maximise(goal, rows)
    if wanted is None or got is None:
        assert wanted is None
        assert got is None
        return
    assert float(got.value) == pytest.approx(wanted, abs=1e-7)
    assert got.point is not None
    assert all(0 <= t <= 1 for t in got.point)
    assert all(value(row, got.point) >= 0 for row in rows)
    assert value(goal, got.point) == got.value
    hinted = maximise(goal, rows, first=range(0, many, 2))
    assert hinted is not None
    assert hinted.value == got.value
    stopped = maximise(goal, rows, enough=got.value)
    assert stopped is not None
    assert stopped.value == got.value
    loose = maximise(goal, rows, enough=got.value + 1)
    assert loose is not None
    assert got.value <= loose.value <= got.value + 1


@pytest.mark.parametrize("seed", range(20))
def test_optima_in_two_variables_are_the_best_corners(seed: int) -> None:
    """Every vertex is where two of the lines meet; Fractions alone."""
    dice = np.random.default_rng(seed)
    goal = drawn(dice, 3, bool(seed % 2))
    rows = [drawn(dice, 3, bool(seed % 2)) for _ in range(4)]
    box = [[Fraction(v) for v in row] for row in ([0, 1, 0], [1, -1, 0], [0, 0, 1], [1, 0, -1])]
    corners = []
    for (p, a, b), (q, c, d) in itertools.combinations(rows + box, 2):
        if a * d - b * c != 0:
            corner = ((b * q - d * p) / (a * d - b * c), (c * p - a * q) / (a * d - b * c))
            if all(value(row, corner) >= 0 for row in rows + box):
                corners.append(corner)
    got = maximise(goal, rows)
    if not corners:
        assert got is None
    else:
        assert got is not None
        assert got.value == max(value(goal, corner) for corner in corners)


def test_a_gap_that_no_float_can_show() -> None:
    tiny = Fraction(1, 10**40)
    apart: list[list[Fraction | int]] = [[-Fraction(1, 3) - tiny, 1], [Fraction(1, 3), -1]]
    assert maximise([0, 1], apart) is None
    touching: list[list[Fraction | int]] = [[-Fraction(1, 3), 1], [Fraction(1, 3), -1]]
    assert maximise([0, 1], touching) == Optimum(Fraction(1, 3), (Fraction(1, 3),))
    assert maximise([0, 1], [[tiny, -1]]) == Optimum(tiny, (tiny,))


def test_without_rows_or_variables() -> None:
    assert maximise([Fraction(1, 7)], []) == Optimum(Fraction(1, 7), ())
    assert maximise([Fraction(1, 7)], [[0]]) == Optimum(Fraction(1, 7), ())
    assert maximise([Fraction(1, 7)], [[-1]]) is None
    assert maximise([0, 2, -3], []) == Optimum(Fraction(2), (Fraction(1), Fraction(0)))


def test_numbers_of_very_different_size() -> None:
    huge, tiny = Fraction(2) ** 900, Fraction(2) ** -900
    got = maximise([0, huge, tiny], [[tiny, -huge, 0], [1, 0, -huge]])
    assert got == Optimum(tiny + tiny / huge, (tiny / huge, 1 / huge))


@pytest.mark.parametrize("seed", range(20))
def test_multipliers_bound_the_maximum_whatever_they_are(seed: int) -> None:
    dice = np.random.default_rng(seed)
    goal = drawn(dice, 5, False)
    rows = [drawn(dice, 5, False) for _ in range(4)]
    best = maximise(goal, rows)
    pairs = [(i, Fraction(float(dice.random()))) for i in range(4)]
    if best is not None:
        assert weighed(goal, rows, pairs) >= best.value
        assert weighed(goal, rows, []) >= best.value
    with pytest.raises(ValueError, match="not negative"):
        weighed(goal, rows, [(0, Fraction(-1))])


def test_whole_numbers_of_a_row() -> None:
    assert whole([Fraction(1, 2), Fraction(-3, 4)]) == ([2, -3], Fraction(4))
    assert whole([Fraction(6), Fraction(-9)]) == ([2, -3], Fraction(1, 3))
    assert whole([Fraction(0), Fraction(0)]) == ([0, 0], Fraction(1))


def test_the_deadline_is_kept() -> None:
    with pytest.raises(OutOfTime):
        maximise([0, 1], [[Fraction(1, 2), -1]], deadline=Deadline(0.0))
