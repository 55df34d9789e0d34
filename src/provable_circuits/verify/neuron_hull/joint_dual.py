"""Joint ascent: all multipliers of subdomains at once, hull weights and lower layers included.

Lines that are best for some slopes, and slopes that are best for some lines, are still short of the
best pair. So everything moves together, by gradient ascent on the bound.

Let a function of the cube be bounded through the layers, from above; every layer hands a function
down, and the last one is least at a corner z of the cube. From there upwards, a unit further down
that reads x = G z + b and is bounded by h has the coordinate

    2 (h - s x) / gap - 1,        h = slope x                      where its coefficient a >= 0,
                                  h = (shares G) z + height        where a < 0,

and so z becomes a point of the whole cube. There, for every layer,

    d bound / d slope   = max(a, 0) x,
    d bound / d share_j = -w |G_j| (sign(G_j) z_j + sign(t - (T - t + b))),       w = max(-a, 0),
    d bound / d first   = -sign x                                 where a sign was fixed,
    d bound / d D       = y (and the slope of its bracket)        for second units.

The step of a share does not depend on w |G_j|. All of it is plain floating point, in the arithmetic
of the chain's ``dtype``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.verify.bounding.alpha import Adam
from provable_circuits.verify.neuron_hull.ascent import HullLayer, HullUnits
from provable_circuits.verify.neuron_hull.hull_bound import Multipliers, Signs, allowed, brackets
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual
from provable_circuits.verify.neuron_hull.presolved import Presolved, Rows


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the relaxation makes of the points where the bounds of subdomains are least.

    Attributes:
        value: the bounds, in plain floating point; [k].
        cube: the coefficients of the cube that are left in the end, [k, n].
        second: y, [k, second units].
        lost: by how much each unit of the first layer, and then of every layer further down, is
            off its ReLU there, times its coefficient; [k, units].
        lined: of that, what is lost under lines.
    """

    value: Tensor
    cube: Tensor
    second: Tensor
    lost: Tensor
    lined: Tensor


class _Second:
    """The second layer's units in k subdomains, with the multipliers chosen for them."""

    def __init__(self, problem: Presolved, signs: Tensor, weights: Tensor, start: Tensor) -> None:
        self.problem = problem
        self.signs = signs
        self.weights = weights
        self.concave = (signs == 0) & (weights < 0)
        sizes = weights.abs().clamp_min(1e-3)
        fixed = problem.tuning.split_rate * (sizes + sizes.mean(1, keepdim=True))
        self.size = torch.where(signs == 0, problem.tuning.beta_rate * sizes, fixed)
        self.beta = allowed(start, signs, weights)
        self.mover = Adam(self.beta)

    @property
    def brackets(self) -> Tensor:
        """What the units add to a bound, [k]."""
        return brackets(self.problem, self.beta, self.signs, self.weights).sum(1)

    def move(self, read: Tensor, rate: float) -> None:
        """One step up, where the units read so much."""
        lower, upper = self.problem.lower, self.problem.upper
        low = -self.beta * lower < (self.weights - self.beta) * upper
        bend = torch.where(low, -lower, -upper)
        gradient = read.double() + torch.where(self.concave, bend, 0.0)
        moved = self.beta + rate * self.size * self.mover.step(gradient)
        self.beta = allowed(moved, self.signs, self.weights)


class JointDual:
    """Chooses all multipliers for subdomains of one problem."""

    def __init__(self, chain: LayerwiseDual) -> None:
        self.chain = chain
        self.dtype = dtype = chain.dtype
        second = chain.problem.second
        self.cube, self.first = second.cube.to(dtype), second.first.to(dtype)
        self.constant = second.constant.to(dtype)
        self.layers = [
            HullLayer(problem, settled, dtype)
            for problem, settled in zip(chain.problems, chain.settled, strict=True)
        ]
        self.alpha = [layer.alpha.to(dtype) for layer in chain.layers]
        self.doubled = [(2 / layer.gaps).to(dtype) for layer in chain.layers]

    def climb(
        self, goal: Rows, signs: Sequence[Signs], start: Sequence[Multipliers], steps: int
    ) -> tuple[list[Multipliers], Seen]:
        """Better multipliers of one row each, for the problem and for every layer further down.

        Args:
            goal: the rows.
            signs: what is known of the subdomains, for the problem and for every layer.
            start: where to start.
            steps: steps of ascent.
        """
        problem, dtype = self.chain.problem, self.dtype
        tuning = problem.tuning
        cube, first, constant = goal.cube.to(dtype), goal.first.to(dtype), goal.constant.to(dtype)
        second = _Second(problem, signs[0].second, goal.second, start[0].second)
        top, *layers = (
            HullUnits(layer, known.first, chosen)
            for layer, known, chosen in zip(self.layers, signs, start, strict=True)
        )
        below = list(zip(self.chain.layers, layers, self.alpha, self.doubled, strict=True))
        for step in range(steps + 1):
            self.chain.deadline.check()
            beta = second.beta.to(dtype)
            added, pull = top.weigh(first + beta @ self.first)
            value = constant + beta @ self.constant + second.brackets.to(dtype) + added
            pull = cube + beta @ self.cube + pull
            for layer, units, alpha, doubled in below:
                own = pull[:, layer.columns]
                added, moved = units.weigh(own * doubled, -own * doubled * alpha)
                value = value - own.sum(1) + added
                pull = pull.index_fill(1, layer.columns, 0.0) + moved
            value = value - pull.abs().sum(1)
            last = step == steps or (
                step % tuning.look_every == 0 and bool((value > tuning.enough).all())
            )
            rate = 0.0 if last else tuning.last_rate ** (step / steps)

            point = torch.cat([-pull.sign(), pull.new_zeros(len(pull), 1)], dim=1)
            for layer, units, alpha, doubled in reversed(below):
                units.look(point, rate)
                point[:, layer.columns] = (units.given - alpha * units.read) * doubled - 1
            top.look(point, rate)
            read = self.constant + point[:, :-1] @ self.cube.T + top.given @ self.first.T
            if last:
                break
            second.move(read, rate)
        none = second.beta[:, :0]
        found = [top.chosen(second.beta), *(units.chosen(none) for units in layers)]
        lost = torch.cat([units.off for units in (top, *layers)], dim=1)
        lined = torch.cat([units.weight > 0 for units in (top, *layers)], dim=1)
        return found, Seen(value, pull, read, lost, lost * lined)
