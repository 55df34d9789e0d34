"""Joint ascent: all multipliers of parts at once, shares of lines and layers further down included.

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

from provable_circuits.verify.hull.certificate import (
    Multipliers,
    Signs,
    allowed,
    brackets,
    through,
)
from provable_circuits.verify.hull.chain import Chain
from provable_circuits.verify.hull.condensed import Condensed, Rows
from provable_circuits.verify.slopes import Adam

RATE = 0.2
DUAL_RATE = 0.15
SIGN_RATE = 2.0
LAST_RATE = 0.13
MOMENTUM = 0.6

OTHERS_EVERY = 4
"""Small entries, which make up little of any row, are looked at anew after so many steps."""

ENOUGH = 1e-6
"""Where all bounds are above this, they need no more steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the relaxation makes of the points where the bounds of parts are least.

    Attributes:
        value: the bounds, in plain floating point; [k].
        cube: the coefficients of the cube that are left in the end, [k, n].
        second: y, [k, second units].
        lost: by how much each unit of the first layer, and then of every layer further down, is
            off its ReLU there, times its coefficient; [k, units].
    """

    value: Tensor
    cube: Tensor
    second: Tensor
    lost: Tensor


class _Layer:
    """What the open units of one layer read, whatever part they are in."""

    def __init__(self, problem: Condensed, dtype: torch.dtype) -> None:
        sparse = problem.sparse
        self.columns = sparse.columns.flatten()
        self.count = sparse.count
        self.values = sparse.values.to(dtype)
        self.sizes, self.turns = self.values.abs(), self.values.sign()
        self.whole = sparse.whole
        self.others, self.others_size = sparse.rest.to(dtype), sparse.rest_size.to(dtype)
        self.total = sparse.total.to(dtype)
        self.constant = problem.first.constant.to(dtype)


class _Units:
    """The open units of one layer in k parts, with what is chosen for them.

    Shares are many numbers, and the time of a step is that of reading and writing them; so what is
    as large is written over what is no longer needed.
    """

    def __init__(self, layer: _Layer, sign: Tensor, start: Multipliers) -> None:
        dtype = layer.values.dtype
        self.layer = layer
        self.sign = sign.to(dtype)
        self.free, self.split = self.sign == 0, bool((sign != 0).any())
        self.slopes, self.first = start.slopes.to(dtype), start.first.to(dtype)
        self.shares, self.rest = start.shares.to(dtype, copy=True), start.rest.to(dtype, copy=True)
        self.speed, self.rest_speed = torch.zeros_like(self.shares), torch.zeros_like(self.rest)
        self.met, self.room = torch.empty_like(self.shares), torch.empty_like(self.shares)
        self.slope_mover, self.first_mover = Adam(self.slopes), Adam(self.first)

    def weigh(
        self, coefficients: Tensor, straight: Tensor | None = None, anew: bool = True
    ) -> tuple[Tensor, Tensor]:
        """What a h + d x, for coefficients a and d, adds to a bound and to the cube's coefficients.

        Args:
            coefficients: a, [k, units].
            straight: d, if there are any; [k, units].
            anew: whether small entries are looked at as well; else they add what they did before.
        """
        layer = self.layer
        self.rows = coefficients
        self.weight = (-coefficients).clamp_min_(0.0).mul_(self.free)
        held = torch.mul(self.shares, layer.sizes, out=self.room).sum(2)
        held = held + self.rest * layer.others_size
        self.lean = held - (layer.total - held + layer.constant)
        self.height = held - self.lean.clamp_max(0.0)
        direct = through(coefficients, self.sign, self.slopes, self.first)
        direct = direct if straight is None else direct + straight
        weight, room = self.weight.unsqueeze(2), self.room
        entries = torch.addcmul(direct.unsqueeze(2), weight, self.shares, value=-1.0, out=room)
        entries = entries.mul_(layer.values).flatten(1)
        added = entries.new_zeros(len(entries), layer.count + 1)
        added = added.index_add_(1, layer.columns, entries)[:, :-1]
        if not layer.whole:
            if anew:
                self.others_added = (direct - self.weight * self.rest) @ layer.others
            added = added + self.others_added
        return direct @ layer.constant - (self.weight * self.height).sum(1), added

    def look(self, point: Tensor, anew: bool = True) -> None:
        """See what the units read and give at points of the cube [k, n + 1], the last entry 0.

        Args:
            point: the points.
            anew: whether small entries are looked at as well; else they read what they did before.
        """
        layer = self.layer
        torch.index_select(point, 1, layer.columns, out=self.met.flatten(1))
        products = torch.mul(self.met, layer.values, out=self.room)
        self.read = products.sum(2) + layer.constant
        above = products.mul_(self.shares).sum(2) + self.height
        if not layer.whole:
            if anew:
                self.others_read = point[:, :-1] @ layer.others.T
            self.read += self.others_read
            above += self.rest * self.others_read
        free = torch.where(self.rows < 0, above, self.slopes * self.read)
        self.given = torch.where(self.free, free, self.read * (self.sign > 0))

    @property
    def lost(self) -> Tensor:
        """How much the units are off their ReLUs at the points last seen."""
        return self.rows * (self.read.clamp_min(0.0) - self.given)

    def move(self, rate: float) -> None:
        """One step up."""
        layer, lean = self.layer, -0.5 * self.lean.sign()
        up = torch.addcmul(lean.unsqueeze(2), self.met, layer.turns, value=-0.5, out=self.met)
        self.speed.lerp_(up, 1 - MOMENTUM)
        self.shares.add_(self.speed, alpha=RATE * rate).clamp_(0.0, 1.0)
        if not layer.whole:
            up = lean - 0.5 * self.others_read / layer.others_size.clamp_min(1e-30)
            self.rest_speed.lerp_(up, 1 - MOMENTUM)
            self.rest.add_(self.rest_speed, alpha=RATE * rate).clamp_(0.0, 1.0)
        gain = self.rows.clamp_min(0.0).mul_(self.read).mul_(self.free)
        self.slopes = (self.slopes + RATE * rate * self.slope_mover.step(gain)).clamp_(0.0, 1.0)
        if self.split:
            size = self.rows.abs() + self.rows.abs().mean(1, keepdim=True)
            step = SIGN_RATE * rate * size * self.first_mover.step(-self.sign * self.read)
            self.first = (self.first + step).clamp_min_(0.0) * self.sign.abs()

    def chosen(self, second: Tensor) -> Multipliers:
        """The multipliers, those of second units given."""
        return Multipliers(second, self.slopes, self.first, self.shares, self.rest)


class _Second:
    """The second layer's units in k parts, with the multipliers chosen for them."""

    def __init__(self, problem: Condensed, signs: Tensor, weights: Tensor, start: Tensor) -> None:
        self.problem = problem
        self.signs = signs
        self.weights = weights
        self.concave = (signs == 0) & (weights < 0)
        self.duals = allowed(start, signs, weights)
        self.mover = Adam(self.duals)

    @property
    def brackets(self) -> Tensor:
        """What the units add to a bound, [k]."""
        return brackets(self.problem, self.duals, self.signs, self.weights).sum(1)

    def move(self, read: Tensor, rate: float) -> None:
        """One step up, where the units read so much."""
        lower, upper = self.problem.lower, self.problem.upper
        low = -self.duals * lower < (self.weights - self.duals) * upper
        bend = torch.where(low, -lower, -upper)
        gradient = read.double() + torch.where(self.concave, bend, 0.0)
        size = DUAL_RATE * rate * self.weights.abs().clamp_min(1e-3)
        moved = self.duals + size * self.mover.step(gradient)
        self.duals = allowed(moved, self.signs, self.weights)


class Joint:
    """Chooses all multipliers for parts of one problem."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.dtype = dtype = chain.dtype
        second = chain.problem.second
        self.cube, self.first = second.cube.to(dtype), second.first.to(dtype)
        self.constant = second.constant.to(dtype)
        self.layers = [
            _Layer(problem, dtype)
            for problem in (chain.problem, *(layer.problem for layer in chain.layers))
        ]
        self.slopes = [layer.slopes.to(dtype) for layer in chain.layers]
        self.doubled = [(2 / layer.gaps).to(dtype) for layer in chain.layers]

    def climb(
        self, goal: Rows, signs: Sequence[Signs], start: Sequence[Multipliers], steps: int
    ) -> tuple[list[Multipliers], Seen]:
        """Better multipliers of one row each, for the problem and for every layer further down.

        Args:
            goal: the rows.
            signs: what is known of the parts, for the problem and for every layer.
            start: where to start.
            steps: steps of ascent.
        """
        problem, dtype = self.chain.problem, self.dtype
        cube, first, constant = goal.cube.to(dtype), goal.first.to(dtype), goal.constant.to(dtype)
        second = _Second(problem, signs[0].second, goal.second, start[0].second)
        top, *layers = (
            _Units(layer, known.first, chosen)
            for layer, known, chosen in zip(self.layers, signs, start, strict=True)
        )
        below = list(zip(self.chain.layers, layers, self.slopes, self.doubled, strict=True))
        for step in range(steps + 1):
            self.chain.deadline.check()
            anew = step % OTHERS_EVERY == 0
            duals = second.duals.to(dtype)
            added, pull = top.weigh(first + duals @ self.first, anew=anew)
            value = constant + duals @ self.constant + second.brackets.to(dtype) + added
            pull = cube + duals @ self.cube + pull
            for layer, units, slopes, doubled in below:
                own = pull[:, layer.columns]
                added, moved = units.weigh(own * doubled, -own * doubled * slopes, anew)
                value = value - own.sum(1) + added
                pull = pull.index_fill(1, layer.columns, 0.0) + moved
            value = value - pull.abs().sum(1)

            point = torch.cat([-pull.sign(), pull.new_zeros(len(pull), 1)], dim=1)
            for layer, units, slopes, doubled in reversed(below):
                units.look(point, anew)
                point[:, layer.columns] = (units.given - slopes * units.read) * doubled - 1
            top.look(point, anew)
            read = self.constant + point[:, :-1] @ self.cube.T + top.given @ self.first.T
            if step == steps or bool((value > ENOUGH).all()):
                break
            rate = LAST_RATE ** (step / steps)
            second.move(read, rate)
            for units in (top, *layers):
                units.move(rate)
        none = second.duals[:, :0]
        found = [top.chosen(second.duals), *(units.chosen(none) for units in layers)]
        lost = torch.cat([units.lost for units in (top, *layers)], dim=1)
        return found, Seen(value, pull, read, lost)
