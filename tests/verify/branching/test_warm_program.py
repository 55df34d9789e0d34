"""Programs solved one after another, against each of them solved by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from provable_circuits.verify.branching.warm_program import Floats, ProgramOptimum, WarmProgram
from provable_circuits.verify.tuning.branching import BranchingTuning

INPUTS, SIZES = 4, (5, 4)

TUNING = BranchingTuning()


def network(dice: np.random.Generator) -> tuple[Floats, Floats]:
    """What two layers of units read, as functions of inputs and of outputs of the first."""
    units = sum(SIZES)
    matrix = np.zeros((units, INPUTS + units))
    matrix[: SIZES[0], :INPUTS] = dice.normal(size=(SIZES[0], INPUTS))
    matrix[SIZES[0] :, INPUTS : INPUTS + SIZES[0]] = dice.normal(size=(SIZES[1], SIZES[0]))
    return matrix, dice.normal(size=units) * 0.3


def whole(x: Floats, r: Floats, v: Floats) -> Floats:
    """A row, from its parts."""
    return np.concatenate([x, r, v])


def alone(
    matrix: Floats, constant: Floats, goal: Floats, lower: Floats, upper: Floats, signs: Floats
) -> float:
    """The least value over x, r and v, with what units read written out; by another interface."""
    units = len(constant)
    rows, most = [], []
    limits: list[tuple[float | None, float | None]] = [(-1.0, 1.0)] * INPUTS
    output, paid = np.eye(units), np.eye(units)
    for i in range(units):
        read, c = matrix[i], constant[i]
        x, r = read[:INPUTS], read[INPUTS:]
        none = np.zeros(units)
        if signs[i] == 0:
            chord = upper[i] / (upper[i] - lower[i])
            rows += [
                whole(x, r - output[i], none),
                whole(-chord * x, output[i] - chord * r, -paid[i]),
            ]
            most += [-c, chord * (c - lower[i])]
            limits.append((0.0, None))
        elif signs[i] > 0:
            rows += [whole(x, r - output[i], none), whole(-x, output[i] - r, none)]
            most += [-c, c]
            rows.append(whole(-x, -r, -paid[i]))
            most.append(c)
            limits.append((None, None))
        else:
            rows.append(whole(x, r, -paid[i]))
            most.append(-c)
            limits.append((0.0, 0.0))
    limits += [(0.0, None)] * units
    price = np.full(units, TUNING.violation_price * 50)
    answer = linprog(np.concatenate([goal, price]), np.array(rows), most, bounds=limits)
    return float(answer.fun)


def subdomains(
    dice: np.random.Generator, matrix: Floats, constant: Floats
) -> tuple[Floats, Floats, Floats]:
    """Bounds that hold around a point of the box, and signs that this point has, at random."""
    point = dice.uniform(-1, 1, INPUTS)
    outputs = np.zeros(len(constant))
    reads = np.zeros(len(constant))
    for i in range(len(constant)):
        reads[i] = matrix[i] @ np.concatenate([point, outputs]) + constant[i]
        outputs[i] = max(reads[i], 0.0)
    fixed = dice.random(len(constant)) < dice.choice([0.0, 0.3, 0.7])
    signs = np.where(fixed, np.where(reads >= 0, 1.0, -1.0), 0.0)
    return -8 - dice.random(len(constant)), 8 + dice.random(len(constant)), signs


@pytest.mark.parametrize("kept", [2, 1024])
@pytest.mark.parametrize("seed", range(4))
def test_the_basis_of_another_subdomain_changes_nothing(seed: int, kept: int) -> None:
    tuning = replace(TUNING, most_bases=kept)
    dice = np.random.default_rng(seed)
    matrix, constant = network(dice)
    program = WarmProgram(-np.ones(INPUTS), np.ones(INPUTS), matrix, constant, tuning)
    goal = dice.normal(size=INPUTS + sum(SIZES))
    for turn in range(12):
        lower, upper, signs = subdomains(dice, matrix, constant)
        if turn % 4 == 3:
            goal = dice.normal(size=INPUTS + sum(SIZES))
        found = program.solve((goal, 0.25), lower, upper, signs)
        assert isinstance(found, ProgramOptimum)
        wanted = alone(matrix, constant, goal, lower, upper, signs) + 0.25
        assert found.value == pytest.approx(wanted, rel=1e-7, abs=1e-7)
        assert (found.above >= 0).all()
        assert (found.ground >= 0).all()


@pytest.mark.parametrize(("shift", "sign"), [(2.0, -1.0), (-2.0, 1.0)])
def test_an_empty_subdomain_pays_the_price(shift: float, sign: float) -> None:
    """A unit that reads at least 1 is said to be inactive; one that reads at most -1, active."""
    program = WarmProgram(
        -np.ones(1), np.ones(1), np.array([[1.0, 0.0]]), np.array([shift]), TUNING
    )
    found = program.solve((np.array([0.0, 1.0]), 0.0), -np.ones(1), np.ones(1), np.array([sign]))
    assert isinstance(found, ProgramOptimum)
    assert found.value > 1000


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_dual_of_a_sign_is_its_price(sign: float) -> None:
    """The least value of 3 x where x >= 0, or of -3 x where x <= 0: three for each unit of x."""
    program = WarmProgram(-np.ones(1), np.ones(1), np.array([[1.0, 0.0]]), np.zeros(1), TUNING)
    goal = np.array([3.0 * sign, 0.0]), 0.5
    found = program.solve(goal, -np.ones(1), np.ones(1), np.array([sign]))
    assert isinstance(found, ProgramOptimum)
    assert found.value == pytest.approx(0.5)
    assert found.above == pytest.approx([3.0])


def test_pivots_are_limited() -> None:
    """A program that takes more has no answer."""
    dice = np.random.default_rng(1)
    matrix, constant = network(dice)
    goal = dice.normal(size=INPUTS + sum(SIZES)), 0.0
    asked = subdomains(dice, matrix, constant)
    ends = -np.ones(INPUTS), np.ones(INPUTS)
    free = WarmProgram(*ends, matrix, constant, TUNING).solve(goal, *asked)
    few = replace(TUNING, pivots=0)
    assert WarmProgram(*ends, matrix, constant, few).solve(goal, *asked) is None
    assert isinstance(free, ProgramOptimum)
