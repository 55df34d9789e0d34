"""Layerwise duals: bounds over the cube, raised by what its coordinates stand for.

A hull bound ends in a linear function of the cube, taken to be least where every coordinate is at
its worst. But the coordinates of units further down are not free: each is what its ReLU leaves over
its chord. So the function is one of those units again, a problem with a first layer and no second,
and has a hull bound of its own, over the inputs and the units still further down. One layer after
the other is treated like this, from above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.neuron_hull.hull_bound import Certified, Multipliers, Signs, certify
from provable_circuits.verify.neuron_hull.lines import Settled
from provable_circuits.verify.neuron_hull.presolved import Below, Presolved, Rows


class LayerwiseDual:
    """A presolved problem, and the layers that have gaps in it, one below the other.

    Args:
        problem: the problem.
        layers: the layers, uppermost first.
        dtype: the arithmetic in which multipliers are chosen.
        deadline: when to stop.
        settled: what is settled of the lines of the problem and of every layer, in all subdomains
            alike; if not given, that small entries have the shares of chords.
    """

    def __init__(
        self,
        problem: Presolved,
        layers: Sequence[Below],
        dtype: torch.dtype,
        deadline: Deadline,
        settled: Sequence[Settled] | None = None,
    ) -> None:
        self.problem = problem
        self.layers = layers
        self.dtype = dtype
        self.deadline = deadline
        self._settled = settled

    def of(self, problem: Presolved) -> LayerwiseDual:
        """Another problem over the same layers, with nothing of its lines settled yet."""
        return LayerwiseDual(problem, self.layers, self.dtype, self.deadline)

    @property
    def problems(self) -> list[Presolved]:
        """The problem, and every layer further down as one."""
        return [self.problem, *(layer.problem for layer in self.layers)]

    @property
    def settled(self) -> Sequence[Settled]:
        """What is settled of the lines, of the problem and of every layer."""
        if self._settled is None:
            self._settled = [
                Settled.small(problem, chords)
                for problem, (_, chords) in zip(self.problems, self._usual(), strict=True)
            ]
        return self._settled

    @property
    def entries(self) -> int:
        """How many shares every subdomain has of its own."""
        total = 0
        for place, problem in enumerate(self.problems):
            self.deadline.check()
            units, width = problem.sparse.values.shape
            total += width * (units if self._settled is None else len(self._settled[place].moving))
        return total

    def narrowed(
        self, chosen: Sequence[Multipliers], moving: Sequence[Tensor]
    ) -> tuple[LayerwiseDual, list[Multipliers]]:
        """The chain with most shares settled as they are, and the same multipliers for it.

        Args:
            chosen: multipliers of one subdomain, of the problem and of every layer; all units
                moving.
            moving: which units remain moving, masks.
        """
        settled = [
            before.with_shares(problem, own.shares[0], mask)
            for problem, before, own, mask in zip(
                self.problems, self.settled, chosen, moving, strict=True
            )
        ]
        left = [
            replace(own, shares=own.shares[:, mask])
            for own, mask in zip(chosen, moving, strict=True)
        ]
        return LayerwiseDual(self.problem, self.layers, self.dtype, self.deadline, settled), left

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
        """Lower bounds of one row each, on the subdomains where units have these signs.

        Args:
            goal: the rows.
            signs: what is known of the subdomains, for the problem and for every layer.
            chosen: multipliers of the problem, and of every layer.
        """
        settled = self.settled
        best = found = certify(self.problem, settled[0], goal, signs[0], chosen[0])
        below = zip(self.layers, settled[1:], signs[1:], chosen[1:], strict=True)
        for layer, common, known, own in below:
            goal = layer.goal(found.base, found.cube)
            found = certify(layer.problem, common, goal, known, own)
            best = best.or_better(found)
        return best

    def fresh(self, goal: Rows, signs: Sequence[Signs]) -> list[Multipliers]:
        """Where to start: chords above all units, and the usual slopes below."""
        own = _duals(goal.second, signs[0].second, self.problem.lower, self.problem.upper)
        beta = [own, *(own[:, :0] for _ in self.layers)]
        return [
            _spread(problem, settled, second, alpha, chords)
            for problem, settled, second, (alpha, chords) in zip(
                self.problems, self.settled, beta, self._usual(), strict=True
            )
        ]

    def _usual(self) -> list[tuple[Tensor, Tensor]]:
        """Slopes below the units of the problem and of every layer, and those of chords."""
        upper = torch.minimum(self.problem.reach, self.problem.top).clamp_min(0.0)
        lower = (self.problem.first.constant - self.problem.sparse.total).clamp_max(0.0)
        return [_usual(lower, upper), *((layer.alpha, layer.alpha) for layer in self.layers)]


def _usual(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes 0 or 1, whichever leaves the smaller triangle, and the slopes of chords."""
    chords = (upper / (upper - lower).clamp_min(1e-300)).clamp(0.0, 1.0)
    return (upper > -lower).double(), chords


def _duals(weights: Tensor, signs: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """D for second units of these weights and ends, [k, second units]."""
    alpha, chords = _usual(lower, upper)
    steep = torch.where(weights >= 0, alpha, chords)
    return weights * torch.where(signs > 0, 1.0, torch.where(signs < 0, 0.0, steep))


def _spread(
    problem: Presolved, settled: Settled, beta: Tensor, alpha: Tensor, chords: Tensor
) -> Multipliers:
    """The same slopes, and shares that are the same everywhere, for every subdomain."""
    k, (units, width) = len(beta), problem.sparse.values.shape
    moving = chords[settled.moving]
    return Multipliers(
        second=beta,
        alpha=alpha.expand(k, units),
        first=beta.new_zeros(k, units),
        shares=moving.unsqueeze(1).expand(k, len(moving), width),
    )
