"""Points of domains: whether one is inside is decided exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from provable_circuits.proof.checker.claim import Domain


def ball(centre: list[float], eps: float, p: int = 0) -> Domain:
    x = np.array(centre)
    return Domain(x, x - 10, x + 10, np.full(len(x), eps), p)


@pytest.mark.parametrize("seed", range(20))
def test_a_ball_of_the_maximum_norm_is_exact(seed: int) -> None:
    """Points a few units in the last place around the ends, judged by fractions."""
    dice = np.random.default_rng(seed)
    inside = 0
    for _ in range(200):
        centre = float(dice.choice([dice.random(), dice.normal() * 1e3, dice.random() * 1e-12, 0]))
        eps = float(dice.choice([0.01, 0.1, dice.random(), 1e-9, 2.0**-20]))
        x = centre + float(dice.choice([-1, 1])) * eps
        for _ in range(dice.integers(4)):
            x = float(np.nextafter(x, dice.choice([-np.inf, np.inf])))
        truth = abs(Fraction(x) - Fraction(centre)) <= Fraction(eps)
        assert ball([centre], eps).contains(np.array([x])) == truth
        inside += truth
    assert 20 < inside < 180


def test_every_unit_counts() -> None:
    domain = ball([0.0, 1.0, 2.0], 0.5)
    assert domain.contains(np.array([0.5, 1.5, 1.5]))
    assert not domain.contains(np.array([0.5, 1.5, np.nextafter(1.5, 0)]))


@pytest.mark.parametrize("p", [1, 2])
def test_balls_of_other_norms_are_exact(p: int) -> None:
    domain = ball([0.0, 0.0], 5.0, p)
    edge = np.array([3.0, 4.0]) if p == 2 else np.array([2.0, -3.0])
    assert domain.contains(edge)
    assert not domain.contains(np.array([edge[0], np.nextafter(edge[1], 9 * np.sign(edge[1]))]))
