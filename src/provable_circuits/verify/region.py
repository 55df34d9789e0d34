"""Where the inputs of a merged graph range, and the least value of a linear function there.

A box gives  min A.x = A.m - |A| r  with midpoint m and radius r. For a p-ball clipped by a box the
least value over the intersection is, for

    p = 1:  a fractional knapsack: spend the budget eps on the coordinates of largest |A| first, each
            up to its distance from the box's end. This is exact.
    p = 2:  at least the larger of the box's and the ball's own minimum, A.x - eps ||A||_2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.claims.domains import Ball
from provable_circuits.claims.encoding import InputRange
from provable_circuits.rounding import Interval, midpoint


class Region:
    """The product of the ranges of all inputs, for a batch of problems."""

    def __init__(self, ranges: Mapping[str, InputRange]) -> None:
        self.ranges = dict(ranges)
        self._box = {name: midpoint(r.lower, r.upper) for name, r in ranges.items()}

    def select(self, problems: Tensor) -> Region:
        """The region of some of the problems, possibly repeated."""
        chosen = {
            name: InputRange(
                r.lower[problems],
                r.upper[problems],
                None if r.domains is None else tuple(r.domains[i] for i in problems.tolist()),
            )
            for name, r in self.ranges.items()
        }
        return Region(chosen)

    def ends(self, name: str) -> Interval:
        """The box of one input."""
        box = self.ranges[name]
        return box.lower, box.upper

    def least(self, name: str, rows: Tensor) -> Tensor:
        """A value at or below the minimum of rows . x: [problems, rows], rounding not included.

        Rounding moves it by at most gamma(8 n + 32) * 2 X ||rows||_1 for n elements up to X: each of
        the sums here has at most 4 n terms, of which each is a product of a row's entry with a
        midpoint, a radius or a distance no larger than 2 X.
        """
        middle, radius = (part.flatten(1).unsqueeze(2) for part in self._box[name])
        flat = rows.flatten(2)
        value = (flat @ middle - flat.abs() @ radius).squeeze(2)
        domains = self.ranges[name].domains
        if domains is None:
            return value
        others = [
            self._least_in_ball(domain, flat[i]) if isinstance(domain, Ball) and domain.p != math.inf
            else value[i]
            for i, domain in enumerate(domains)
        ]
        return torch.maximum(value, torch.stack(others))

    def pull_in(self, name: str, problems: Tensor, points: Tensor) -> Tensor:
        """Points inside the box moved into their problems' domains, where those are smaller."""
        domains = self.ranges[name].domains
        if domains is None:
            return points
        return torch.cat(
            [domains[j].project(points[i : i + 1]) for i, j in enumerate(problems.tolist())]
        )

    def corner(self, name: str, rows: Tensor) -> Tensor:
        """A point of the region where rows . x is least or nearly so: [problems, *shape]."""
        box = self.ranges[name]
        point = torch.where(rows > 0, box.lower, box.upper)
        if box.domains is None:
            return point
        return torch.stack(
            [
                _corner_in_ball(domain, rows[i], point[i])
                if isinstance(domain, Ball) and domain.p != math.inf
                else point[i]
                for i, domain in enumerate(box.domains)
            ]
        )

    @staticmethod
    def _least_in_ball(ball: Ball, rows: Tensor) -> Tensor:
        """For rows [n, units] of one problem."""
        center = ball.x.flatten().to(rows.device)
        start = rows @ center
        eps = float(ball.eps)
        if ball.p == 2:
            free = rows if ball.mask is None else rows * ball.mask.expand(ball.shape).flatten()
            return start - eps * torch.linalg.vector_norm(free, 2, dim=1)
        gain, room = _room(ball, rows)
        order = gain.argsort(dim=1, descending=True)
        gain, room = gain.gather(1, order), room.gather(1, order)
        before = room.cumsum(1) - room
        spent = torch.minimum(room, (eps - before).clamp_min(0.0))
        return start - (gain * spent).sum(1)


def _room(ball: Ball, rows: Tensor) -> tuple[Tensor, Tensor]:
    """How much each coordinate gains per unit of movement, and how far it may move."""
    lower, upper = (end.flatten().to(rows.device) for end in ball.bounds())
    center = ball.x.flatten().to(rows.device)
    room = torch.where(rows > 0, center - lower, upper - center)
    return rows.abs(), room


def _corner_in_ball(ball: Ball, rows: Tensor, corner: Tensor) -> Tensor:
    """A good point of a clipped ball for one row, inside up to rounding."""
    flat, center = rows.flatten(), ball.x.flatten()
    eps = float(ball.eps)
    if ball.p == 2:
        free = flat if ball.mask is None else flat * ball.mask.expand(ball.shape).flatten()
        moved = -free * (eps * (1 - 1e-9) / free.norm().clamp_min(1e-300))
    else:
        gain, room = _room(ball, flat.unsqueeze(0))
        order = gain[0].argsort(descending=True)
        sorted_room = room[0][order]
        before = sorted_room.cumsum(0) - sorted_room
        spent = torch.zeros_like(flat)
        spent[order] = torch.minimum(sorted_room, (eps * (1 - 1e-9) - before).clamp_min(0.0))
        moved = -flat.sign() * spent
    lower, upper = ball.bounds()
    point = (center + moved).reshape(corner.shape)
    return torch.minimum(torch.maximum(point, lower), upper)
