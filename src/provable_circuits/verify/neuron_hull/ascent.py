"""Ascent in one layer: what its units add to a bound, and how their multipliers move.

``joint_dual`` says what the gradients are. All of it is plain floating point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.verify.bounding.alpha import Adam
from provable_circuits.verify.neuron_hull.hull_bound import Multipliers, through
from provable_circuits.verify.neuron_hull.lines import Settled
from provable_circuits.verify.neuron_hull.matrix import HullMatrix
from provable_circuits.verify.neuron_hull.presolved import Presolved


class HullLayer:
    """What the unstable units of one layer read, whatever subdomain they are in."""

    def __init__(self, problem: Presolved, settled: Settled, dtype: torch.dtype) -> None:
        sparse, moving = problem.sparse, settled.moving
        self.moving = moving
        self.columns = sparse.columns[moving].flatten()
        self.count = sparse.count
        self.values = sparse.values[moving].to(dtype)
        self.sizes, self.turns = self.values.abs(), self.values.sign()
        self.tuning = problem.tuning
        both = torch.cat([problem.first.cube.to(dtype), settled.lines.to(dtype)])
        self.matrix = HullMatrix(both, problem.tuning.sparse_share)
        self.held = settled.held.to(dtype)
        self.total = sparse.total.to(dtype)
        self.constant = problem.first.constant.to(dtype)


class HullUnits:
    """The unstable units of one layer in k subdomains, with what is chosen for them.

    Shares are many numbers, and the time of a step is that of reading and writing them; so what is
    as large is written over what is no longer needed.
    """

    def __init__(self, layer: HullLayer, sign: Tensor, start: Multipliers) -> None:
        dtype = layer.values.dtype
        self.layer = layer
        self.sign = sign.to(dtype)
        self.free, self.split = self.sign == 0, bool((sign != 0).any())
        self.alpha, self.first = start.alpha.to(dtype), start.first.to(dtype)
        self.shares = start.shares.to(dtype, copy=True)
        self.speed = torch.zeros_like(self.shares)
        self.met, self.room = torch.empty_like(self.shares), torch.empty_like(self.shares)
        self.slope_mover, self.first_mover = Adam(self.alpha), Adam(self.first)

    def weigh(self, coefficients: Tensor, straight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What a h + d x, for coefficients a and d, adds to a bound and to the cube's coefficients.

        Args:
            coefficients: a, [k, units].
            straight: d, if there are any; [k, units].
        """
        layer, room = self.layer, self.room
        self.rows = coefficients
        self.weight = (-coefficients).clamp_min_(0.0).mul_(self.free)
        own = torch.mul(self.shares, layer.sizes, out=room).sum(2)
        held = layer.held.expand_as(coefficients).index_add(1, layer.moving, own)
        self.lean = held - (layer.total - held + layer.constant)
        self.height = held - self.lean.clamp_max(0.0)
        direct = through(coefficients, self.sign, self.alpha, self.first)
        direct = direct if straight is None else direct + straight
        weight = self.weight[:, layer.moving].neg_().unsqueeze(2)
        entries = torch.mul(self.shares, weight, out=room).mul_(layer.values).flatten(1)
        added = entries.new_zeros(len(entries), layer.count + 1)
        added = added.index_add_(1, layer.columns, entries)[:, :-1]
        added = added + layer.matrix.rows(torch.cat([direct, -self.weight], dim=1))
        return direct @ layer.constant - (self.weight * self.height).sum(1), added

    def look(self, point: Tensor, rate: float = 0.0) -> None:
        """See what the units read and give at points of the cube [k, n + 1], the last entry 0.

        Args:
            point: the points.
            rate: how far to go up from here, if at all.
        """
        layer = self.layer
        torch.index_select(point, 1, layer.columns, out=self.met.view(len(point), -1))
        drawn = torch.mul(self.met, layer.values, out=self.room).mul_(self.shares).sum(2)
        read, above = layer.matrix.at(point[:, :-1]).tensor_split(2, dim=1)
        self.read = read + layer.constant
        above = (above + self.height).index_add_(1, layer.moving, drawn)
        free = torch.where(self.rows < 0, above, self.alpha * self.read)
        self.given = torch.where(self.free, free, self.read * (self.sign > 0))
        self.off = self.rows * (self.read.clamp_min(0.0) - self.given)
        if rate > 0:
            self._move(rate)

    def _move(self, rate: float) -> None:
        """One step up."""
        tuning = self.layer.tuning
        layer, lean = self.layer, -0.5 * self.lean[:, self.layer.moving].sign()
        up = torch.addcmul(lean.unsqueeze(2), self.met, layer.turns, value=-0.5, out=self.met)
        self.speed.lerp_(up, 1 - tuning.momentum)
        self.shares.add_(self.speed, alpha=tuning.share_rate * rate).clamp_(0.0, 1.0)
        gain = self.rows.clamp_min(0.0).mul_(self.read).mul_(self.free)
        self.alpha = (self.alpha + tuning.share_rate * rate * self.slope_mover.step(gain)).clamp_(
            0.0, 1.0
        )
        if self.split:
            size = self.rows.abs() + self.rows.abs().mean(1, keepdim=True)
            step = tuning.sign_rate * rate * size * self.first_mover.step(-self.sign * self.read)
            self.first = (self.first + step).clamp_min_(0.0) * self.sign.abs()

    def chosen(self, second: Tensor) -> Multipliers:
        """The multipliers, those of second units given."""
        return Multipliers(second, self.alpha, self.first, self.shares)
