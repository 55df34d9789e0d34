"""The rules on networks of a few units, whose bounds are worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.proof.exact import fractions
from tests.proof.models import METRICS

from provable_circuits.proof.checker.arithmetic import Arithmetic, RefusedError
from provable_circuits.proof.checker.operations import Bend, Matrix
from provable_circuits.proof.checker.problem import Problem, Region, Step, build
from provable_circuits.proof.checker.rules import Side, Sign, Subdomain, _Total

Array = Any
FLOAT, EXACT = Arithmetic(), Arithmetic(exact=True)


def small(objectives: Any = None, arithmetic: Arithmetic = EXACT) -> Problem:
    """y = relu(z0 + z1) - relu(z0 - z1) over [-1, 1] x [-1, 3], and the circuit that is it."""
    hidden = arithmetic.array(np.array([[1.0, 1], [1, -1]]))
    out = arithmetic.array(np.array([[1.0], [-1]]))
    steps = [
        Step("z", None, (), 2),
        Step("h", Matrix(hidden), ("z",), 2),
        Step("r", Bend(0.0), ("h",), 2),
        Step("y", Matrix(out), ("r",), 1),
    ]
    region = Region(arithmetic.array([-1.0, -1]), arithmetic.array([1.0, 3]))
    return build(arithmetic, steps, "y", region, {}, {}, {"kind": "max-abs", "tolerance": 1.0})


def row(*values: Any) -> Array:
    return np.array([[Fraction(value) for value in values]], dtype=object)


def test_a_backward_bound_by_hand() -> None:
    """h0 in [-2, 4], h1 in [-4, 2]; chords 2/3 (h0 + 2) and 1/3 (h1 + 4)."""
    whole = Subdomain.whole(small())
    h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
    assert [end.tolist() for end in whole.bounds[h]] == [[-2, -4], [4, 2]]
    assert [end.tolist() for end in whole.bounds[y]] == [[-2], [4]]
    # y >= a h0 - (h1 + 4) / 3, and with a = 1, that is 2/3 z0 + 4/3 z1 - 4/3 >= -10/3.
    assert whole.lower_bound(y, row(1), {}).tolist() == [Fraction(-10, 3)]
    assert whole.lower_bound(y, row(1), {h: row(1, 0)}).tolist() == [Fraction(-10, 3)]
    # With a = 0: -z0 / 3 + z1 / 3 - 4/3 >= -2.
    assert whole.lower_bound(y, row(1), {h: row(0, 0)}).tolist() == [-2]
    # With a = 1/2: z0 / 6 + 5/6 z1 - 4/3 >= -7/3.
    assert whole.lower_bound(y, row(1), {h: row(Fraction(1, 2), 1)}).tolist() == [Fraction(-7, 3)]
    # -y >= -2/3 (h0 + 2) + a h1, where the line below h1 is 0 if none is chosen.
    assert whole.lower_bound(y, row(-1), {}).tolist() == [-4]
    assert whole.lower_bound(y, row(-1), {h: row(-1, 1)}).tolist() == [Fraction(-20, 3)]


def test_betas_by_hand() -> None:
    whole = Subdomain.whole(small())
    h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
    half = whole.at_sign(Sign(h, 0, False))
    assert half.bounds[h][1].tolist() == [0, 2]
    assert whole.bounds[h][1].tolist() == [4, 2]
    assert half.bounds[y][1].tolist() == [0]
    # y >= -(h1 + 4) / 3 + beta h0 with h0 <= 0: (beta - 1/3) z0 + (beta + 1/3) z1 - 4/3.
    for beta in (Fraction(0), Fraction(1, 3), Fraction(1)):
        least = -abs(beta - Fraction(1, 3)) - (beta + Fraction(1, 3)) - Fraction(4, 3)
        assert half.lower_bound(y, row(1), {}, row(beta)).tolist() == [least]
    upper = whole.at_sign(Sign(h, 0, True))
    assert upper.bounds[h][0].tolist() == [0, -4]
    # y = h0 - relu(h1) >= (2/3 - beta) z0 + (4/3 - beta) z1 - 4/3 with h0 >= 0.
    for beta in (Fraction(0), Fraction(1), Fraction(2)):
        a, b = Fraction(2, 3) - beta, Fraction(4, 3) - beta
        least = -abs(a) + min(-b, 3 * b) - Fraction(4, 3)
        assert upper.lower_bound(y, row(1), {}, row(beta)).tolist() == [least]
    both = upper.at_sign(Sign(h, 1, True))
    # y = h0 - h1 = 2 z1, and h0 + h1 = 2 z0.
    assert both.lower_bound(y, row(1), {}, row(0, 0)).tolist() == [-2]
    assert both.lower_bound(y, row(1), {}, row(1, 0)).tolist() == [-2]
    assert both.lower_bound(y, row(1), {}, row(Fraction(1, 2), 0)).tolist() == [-2]
    for bad in (row(-1, 0), row(0), row(0, 0, 0), np.zeros((2, 2)), np.zeros((0, 2))):
        with pytest.raises(RefusedError, match="beta"):
            both.lower_bound(y, row(1), {}, bad)


def test_an_empty_half_is_shown_by_a_positive_bound_of_nothing() -> None:
    whole = Subdomain.whole(small())
    h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
    corner = whole.at_side(Side(0, 0, 0.5, True)).at_side(Side(0, 1, 0.5, True))
    none = corner.at_sign(Sign(h, 0, False))
    assert none.lower_bound(y, row(0), {}, row(2)).tolist() == [2]
    assert none.bounds[h][0].tolist() == [1, Fraction(-5, 2)]
    assert none.bounds[h][1].tolist() == [1, Fraction(1, 2)]  # contradicting: any will do
    assert corner.lower_bound(y, row(0), {}, np.zeros((1, 0))).tolist() == [0]


def test_roundings_of_a_backward_pass_are_counted() -> None:
    """Of coefficients that meet at a node, and of those behind an activation."""
    whole = Subdomain.whole(small(arithmetic=FLOAT))
    h, u = whole.problem.place("N:h"), 2.0**-53
    for unit, (low, high) in enumerate(((-2, 4), (-4, 2))):
        part = np.array([[0.1, 0.0]])[:, :: 1 - 2 * unit]
        size = max(-low, high)
        total, carried = _Total(FLOAT, 1), {h: part}
        whole._pass(carried, total, h, 2 * part)
        assert (carried[h] == part + 2 * part).all()
        assert u * 0.3 * size <= total.error[0] <= 1.01 * u * 0.3 * size
        before = total.error
        whole._pass(carried, total, h - 1, part)
        whole._pass(carried, total, h, 0 * part)
        assert (total.error == before).all()
        assert list(carried) == [h, h - 1]
        for sign in (1, -1):
            total, carried = _Total(FLOAT, 1), {}
            whole._relax(
                carried, total, whole.problem.nodes[h + 1], sign * part, {h: np.ones((1, 2))}
            )
            slope = abs(carried[h][0, unit])
            gap = 0.1 * 4 / 3 * (sign < 0)
            assert u * slope * size <= total.error[0] <= 1.1 * u * (slope * size + 4 * gap)
            assert total.error[0] >= u * (slope * size + 2 * gap)
            assert total.sum[0] == pytest.approx(-gap)


@pytest.mark.parametrize("outer", [2, 3, 9])
def test_coefficients_that_cancel_lose_what_is_counted(outer: int) -> None:
    """Carried back they are near 0, off by more than their own size, and times an input of 2^40."""
    rng = np.random.default_rng(outer)
    ends = np.array([2.0**40])
    lost = 0
    for _ in range(40):
        weight, a = rng.normal(size=(1, outer)), rng.normal(size=(1, outer))
        weight[0, -1] = -(weight[0, :-1] @ a[0, :-1]) / a[0, -1]
        steps = [Step("z", None, (), 1), Step("h", Matrix(weight), ("z",), outer)]
        metric = {"kind": "max-abs", "tolerance": 1.0}
        whole = Subdomain.whole(build(FLOAT, steps, "h", Region(ends, ends), {}, {}, metric))
        true = (fractions(weight) @ fractions(a[0]))[0] * 2**40
        lost += true != (weight @ a[0])[0] * 2**40
        for sign in (1, -1):
            bound = whole.lower_bound(1, sign * a, {})[0]
            assert Fraction(bound) <= sign * true
            size = float(np.abs(weight[0]) @ np.abs(a[0])) * 2.0**40
            assert bound >= float(sign * true) - 2 * (outer + 4) * 2.0**-53 * size
    assert lost > 20


def test_tightened_bounds_by_hand() -> None:
    """A second layer whose intervals forget that its inputs belong together."""
    one = EXACT.array(np.array([[1.0, 1.0]]))
    two = EXACT.array(np.array([[1.0], [-1.0]]))
    steps = [
        Step("z", None, (), 1),
        Step("h", Matrix(one), ("z",), 2),
        Step("d", Matrix(two), ("h",), 1),
        Step("e", Bend(0.0), ("d",), 1),
    ]
    region = Region(row(-1)[0], row(1)[0])
    problem = build(EXACT, steps, "e", region, {}, {}, {"kind": "max-abs", "tolerance": 0.0})
    whole = Subdomain.whole(problem)
    assert [end.tolist() for end in whole.bounds[2]] == [[-2], [2]]
    whole.tighten(2, np.array([], dtype=int), {})
    assert [end.tolist() for end in whole.bounds[2]] == [[-2], [2]]
    whole.tighten(2, np.array([0]), {})
    assert [end.tolist() for end in whole.bounds[2]] == [[0], [0]]
    assert [end.tolist() for end in whole.bounds[3]] == [[0], [0]]


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_alphas_that_do_not_fit_are_refused(rows: int) -> None:
    """Of no rows above all: then there would be no bound that fails to be reached."""
    for arithmetic in (FLOAT, EXACT):
        whole = Subdomain.whole(small(arithmetic=arithmetic))
        h, y = whole.problem.place("N:h"), whole.problem.place("N:y")
        with pytest.raises(RefusedError, match="alpha"):
            whole.lower_bound(y, arithmetic.array([[1.0]]), {h: arithmetic.zeros(rows, 2)})
        with pytest.raises(RefusedError, match="alpha"):
            whole.lower_bound(y, arithmetic.array([[1.0]]), {h: arithmetic.zeros(1, 3)})


def test_splits_of_inputs_stay_within() -> None:
    whole = Subdomain.whole(small())
    for value in (-1.5, 1.25):
        with pytest.raises(RefusedError, match="outside its range"):
            whole.at_side(Side(0, 0, value, True))
    assert whole.at_side(Side(0, 0, -1.0, False)).regions[0].upper.tolist() == [-1, 3]
    above = whole.at_side(Side(0, 1, 2.0, True))
    assert above.regions[0].lower.tolist() == [-1, 2]
    assert whole.regions[0].lower.tolist() == [
        -1,
        -1,
    ]
    assert above.bounds[1][0].tolist() == [1, -4]


def test_bounds_that_contradict_each_other_or_are_too_large_are_refused() -> None:
    whole = Subdomain.whole(small(arithmetic=FLOAT))
    with pytest.raises(RefusedError, match="where nothing was split"):
        whole.propagate({1: (np.array([9.0, 9]), np.array([10.0, 10]))})
    for bad in (np.nan, np.inf, 2.0**61):
        for ends in ((-bad, 1.0), (-1.0, bad)):
            region = Region(np.array([ends[0], 0.0]), np.array([ends[1], 0.0]))
            problem = small(arithmetic=FLOAT)
            problem.regions[0] = region
            with pytest.raises(RefusedError):
                Subdomain.whole(problem)
    problem = small(arithmetic=FLOAT)
    problem.regions[0] = Region(np.array([-(2.0**60), 0]), np.array([2.0**60, 0]))
    with pytest.raises(RefusedError, match="too large"):
        Subdomain.whole(problem)  # the network's difference is twice as large


def test_bounds_may_be_as_large_as_2_to_60() -> None:
    large = np.array([2.0**60, 2.0**60])
    steps = [Step("z", None, (), 2)]
    whole = Subdomain.whole(build(FLOAT, steps, "z", Region(-large, large), {}, {}, METRICS[4]))
    assert whole.bounds[0][1].tolist() == large.tolist()


def test_an_empty_subdomain_may_have_any_bounds() -> None:
    """By a sign that no point has, and by sides of a box that leave the ball."""
    steps = [Step("z", None, (), 2), Step("h", Matrix(np.array([[1.0], [1]])), ("z",), 1)]
    box = Region(np.array([1.0, 1]), np.array([2.0, 2]))
    metric = {"kind": "norm", "p": 1, "tolerance": 1.0}
    whole = Subdomain.whole(build(FLOAT, steps, "h", box, {}, {}, metric))
    none = whole.at_sign(Sign(0, 1, False))
    assert none.bounds[0][0].tolist() == [1, 1]
    assert none.bounds[0][1].tolist() == [2, 1]
    centre = np.zeros(2)
    ball = Region(centre - 0.5, centre + 0.5, 2, 0.5, centre)
    whole = Subdomain.whole(build(FLOAT, steps, "h", ball, {}, {}, metric))
    corner = whole.at_side(Side(0, 0, 0.5, True)).at_side(Side(0, 1, 0.5, True))
    corner.tighten(1, np.array([0]), {})
    lower, upper = corner.bounds[1]
    assert lower[0] == upper[0] == pytest.approx(1)


def test_rational_arithmetic_has_no_balls() -> None:
    region = Region(fractions([0.0]), fractions([1.0]), 2, 0.5, fractions([0.5]))
    steps = [Step("z", None, (), 1)]
    with pytest.raises(RefusedError, match="no balls"):
        build(EXACT, steps, "z", region, {}, {}, METRICS[0])
    box = Region(fractions([0.0]), fractions([1.0]))
    with pytest.raises(RefusedError, match="no balls"):
        build(EXACT, steps, "z", box, {}, region, METRICS[0])
