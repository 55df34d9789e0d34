"""Chains: bounds over the cube, raised by what its coordinates stand for.

A certificate ends in a linear function of the cube, taken to be least where every coordinate is at
its worst. But the coordinates of units further down are not free: each is what its ReLU leaves over
its chord. So the function is one of those units again, a problem with a first layer and no second,
and has a certificate of its own, over the inputs and the units still further down. One layer after
the other is treated like this, from above.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.hull.ascent import Ascent, Start
from provable_circuits.verify.hull.certificate import Certified, Multipliers, Signs, certify
from provable_circuits.verify.hull.condensed import Below, Condensed, Rows

STEPS, ROUNDS = 40, 3
LAYER_STEPS = 10


class Chain:
    """A condensed problem, and the layers that have gaps in it, one below the other.

    Args:
        problem: the problem.
        layers: the layers, uppermost first.
        dtype: the arithmetic in which multipliers are chosen.
        deadline: when to stop.
    """

    def __init__(
        self,
        problem: Condensed,
        layers: Sequence[Below],
        dtype: torch.dtype,
        deadline: Deadline,
    ) -> None:
        self.problem = problem
        self.layers = layers
        self.dtype = dtype
        self.deadline = deadline

    @property
    def entries(self) -> int:
        """How many entries all lines of one part have."""
        problems = (self.problem, *(layer.problem for layer in self.layers))
        return sum(problem.sparse.values.numel() for problem in problems)

    @property
    def sizes(self) -> list[int]:
        """How many units the second layer, the first, and every layer further down have."""
        below = [len(layer.gaps) for layer in self.layers]
        return [len(self.problem.second), len(self.problem.first), *below]

    def known(self, signs: Tensor) -> list[Signs]:
        """The signs of all units [k, units] as those of the problem and of every layer."""
        second, first, *below = signs.split(self.sizes, dim=1)
        return [Signs(first, second), *(Signs(own, second[:, :0]) for own in below)]

    def certify(
        self, goal: Rows, signs: Sequence[Signs], chosen: Sequence[Multipliers]
    ) -> Certified:
        """Lower bounds of one row each, on the parts where units have these signs.

        Args:
            goal: the rows.
            signs: what is known of the parts, for the problem and for every layer.
            chosen: multipliers of the problem, and of every layer.
        """
        best = found = certify(self.problem, goal, signs[0], chosen[0])
        for layer, known, own in zip(self.layers, signs[1:], chosen[1:], strict=True):
            goal = layer.goal(found.base, found.cube)
            found = certify(layer.problem, goal, known, own)
            best = best.or_better(found)
        return best

    def fresh(self, goal: Rows, signs: Sequence[Signs]) -> list[Multipliers]:
        """Multipliers of the problem, and of every layer, chosen one layer after the other."""
        ascent = Ascent(self.problem, self.dtype, self.deadline)
        start = ascent.fresh(signs[0], goal.second)
        chosen = [ascent.choose(goal, signs[0], start, STEPS, ROUNDS)]
        found = certify(self.problem, goal, signs[0], chosen[0])
        for layer, known in zip(self.layers, signs[1:], strict=True):
            goal = layer.goal(found.base, found.cube)
            ascent = Ascent(layer.problem, self.dtype, self.deadline)
            slopes = layer.slopes.expand(len(goal), -1)
            start = Start(goal.second, slopes, torch.zeros_like(slopes))
            chosen.append(ascent.choose(goal, known, start, LAYER_STEPS, ROUNDS))
            found = certify(layer.problem, goal, known, chosen[-1])
        return chosen
