"""Where the inputs of a merged graph range, and the least value of a linear function there.

A box gives  min A.x = A.m - |A| r  with midpoint m and radius r. For a p-ball clipped by a box the
least value over the intersection is, for

    p = 1:  a fractional knapsack: spend the budget eps on the coordinates of largest |A| first,
    each
            up to its distance from the box's end. This is exact.
    p = 2:  at least the larger of the box's and the ball's own minimum, A.x - eps ||A||_2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.claims.domains import Ball
from provable_circuits.rounding import TINY, Interval, midpoint
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.encoding.problem import InputRange


@dataclass(frozen=True, slots=True, eq=False)
class _Balls:
    """The balls of one input, a row for each problem; elements flat.

    Attributes:
        center: [problems, n].
        free: one where an element may move, [problems, n].
        radius: for p = 1 and p = 2 the radius, [problems]; infinite where there is no such ball.
    """

    center: Tensor
    free: Tensor
    radius: dict[int, Tensor]

    def select(self, problems: Tensor) -> _Balls:
        radius = {p: value[problems] for p, value in self.radius.items()}
        return _Balls(self.center[problems], self.free[problems], radius)


def _balls(box: InputRange) -> _Balls | None:
    if box.domains is None:
        return None
    free: list[Tensor] = []
    radius: dict[int, list[float]] = {1: [], 2: []}
    for domain in box.domains:
        ball = domain if isinstance(domain, Ball) else None
        mask = torch.ones(()) if ball is None or ball.mask is None else ball.mask
        free.append(mask.expand(domain.shape).flatten())
        for p, values in radius.items():
            values.append(float(ball.eps) if ball is not None and ball.p == p else math.inf)
    return _Balls(
        center=torch.stack([domain.center.flatten() for domain in box.domains]).to(box.lower),
        free=torch.stack(free).to(box.lower),
        radius={
            p: box.lower.new_tensor(values)
            for p, values in radius.items()
            if min(values) < math.inf
        },
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Boxes:
    """Midpoints and radii by input; and, for each problem of a batch, which of them is its own."""

    ends: Mapping[str, tuple[Tensor, Tensor]]
    own: Tensor


class Region:
    """The product of the ranges of all inputs, for a batch of problems.

    Args:
        ranges: where each input ranges.
        few_boxes: where a batch shares no more boxes, rows are multiplied with all of them at once.
        boxes, balls, origin: what was worked out before, of a region that this one is chosen from.
    """

    def __init__(
        self,
        ranges: Mapping[str, InputRange],
        few_boxes: int = DEFAULT.bounding.few_boxes,
        boxes: Mapping[str, tuple[Tensor, Tensor]] | None = None,
        balls: Mapping[str, _Balls | None] | None = None,
        origin: _Boxes | None = None,
    ) -> None:
        self.ranges = dict(ranges)
        self.few_boxes = few_boxes
        self._box = boxes or {name: midpoint(r.lower, r.upper) for name, r in ranges.items()}
        self._balls = balls or {name: _balls(box) for name, box in ranges.items()}
        self._origin = origin

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
        boxes = {n: (middle[problems], r[problems]) for n, (middle, r) in self._box.items()}
        balls = {n: None if b is None else b.select(problems) for n, b in self._balls.items()}
        first = self._origin
        origin = _Boxes(self._box, problems)
        origin = origin if first is None else _Boxes(first.ends, first.own[problems])
        return Region(chosen, self.few_boxes, boxes, balls, origin)

    def ends(self, name: str) -> Interval:
        """The box of one input."""
        box = self.ranges[name]
        return box.lower, box.upper

    def least(self, name: str, rows: Tensor) -> Tensor:
        """A value at or below the minimum of rows . x: [problems, rows], rounding not included.

        Rounding moves it by at most gamma(8 n + 32) * 2 X ||rows||_1 for n elements up to X: each
        of the sums here has at most 4 n terms, of which each is a product of a row's entry with a
        midpoint, a radius or a distance no larger than 2 X.
        """
        flat = rows.flatten(2)
        value = self._least_in_box(name, flat)
        balls = self._balls[name]
        if balls is None:
            return value
        start = (flat @ balls.center.unsqueeze(2)).squeeze(2)
        if 1 in balls.radius:
            spent = self._spent(name, flat, balls.radius[1])
            value = torch.maximum(value, start - (flat.abs() * spent).sum(2))
        if 2 in balls.radius:
            eps = balls.radius[2].unsqueeze(1)
            way = torch.where(eps < math.inf, eps * _length(flat * balls.free.unsqueeze(1)), eps)
            value = torch.maximum(value, start - way)
        return value

    def _least_in_box(self, name: str, rows: Tensor) -> Tensor:
        """``least`` for rows [problems, rows, n] over the box alone.

        Many subdomains of few problems have few boxes, and a product with all of these is faster
        than one for each subdomain.
        """
        origin = self._origin
        if origin is not None and len(origin.ends[name][0]) <= self.few_boxes < len(rows):
            middle, radius = (part.flatten(1).T for part in origin.ends[name])
            own = origin.own[:, None, None].expand(-1, rows.shape[1], 1)
            return (rows @ middle - rows.abs() @ radius).gather(2, own).squeeze(2)
        middle, radius = (part.flatten(1).unsqueeze(2) for part in self._box[name])
        return (rows @ middle - rows.abs() @ radius).squeeze(2)

    def has_balls(self, p: int) -> bool:
        """Whether some input ranges over a ball of the p-norm, for p = 1 or 2."""
        return any(balls is not None and p in balls.radius for balls in self._balls.values())

    def empty(self) -> Tensor:
        """Problems whose box lies outside of its ball, for certain, so that nothing is left.

        The distance of the box from the centre is computed to within a relative error far below
        1e-9, and compared with a radius that is larger by so much.
        """
        found = torch.zeros((), dtype=torch.bool)
        for name, balls in self._balls.items():
            if balls is None:
                continue
            lower, upper = (end.flatten(1) for end in self.ends(name))
            away = torch.maximum(lower - balls.center, balls.center - upper).clamp_min(0.0)
            for p, eps in balls.radius.items():
                distance = away.sum(1) if p == 1 else _length(away)
                found = found | (distance > eps * (1 + 1e-9) + TINY)
        return found

    def pull_in(self, name: str, problems: Tensor, points: Tensor) -> Tensor:
        """Points inside the box moved into their problems' domains, where those are smaller."""
        domains = self.ranges[name].domains
        if domains is None:
            return points
        return torch.cat(
            [domains[j].project(points[i : i + 1].cpu()) for i, j in enumerate(problems.tolist())]
        ).to(points)

    def corner(self, name: str, rows: Tensor) -> Tensor:
        """A point where rows . x is nearly least, inside up to rounding: [problems, *shape]."""
        box, balls = self.ranges[name], self._balls[name]
        point = torch.where(rows > 0, box.lower, box.upper)
        if balls is None:
            return point
        flat = rows.flatten(1)
        for p, eps in balls.radius.items():
            radius = (eps * (1 - 1e-9)).unsqueeze(1)
            if p == 1:
                moved = -flat.sign() * self._spent(name, flat.unsqueeze(1), radius[:, 0])[:, 0]
            else:
                free = flat * balls.free
                moved = -free * (radius / _length(free.unsqueeze(1)).clamp_min(TINY))
            inside = (balls.center + moved).reshape(point.shape)
            chosen = (eps < math.inf).reshape(-1, *([1] * (point.ndim - 1)))
            point = torch.where(chosen, inside, point)
        return torch.minimum(torch.maximum(point, box.lower), box.upper)

    def _spent(self, name: str, rows: Tensor, eps: Tensor) -> Tensor:
        """How far each element moves when a budget goes to the largest entries of a row first.

        For rows [problems, rows, n] and budgets [problems], each element up to its box's end. An
        element whose whole range lies behind the centre does not move: it only adds to the value.
        """
        lower, upper = (end.flatten(1) for end in self.ends(name))
        balls = self._balls[name]
        center = (lower + upper) * 0.5 if balls is None else balls.center
        room = torch.where(rows > 0, (center - lower).unsqueeze(1), (upper - center).unsqueeze(1))
        room = room.clamp_min(0.0)
        order = rows.abs().argsort(dim=2, descending=True)
        room = room.gather(2, order)
        before = room.cumsum(2) - room
        spent = torch.minimum(room, (eps[:, None, None] - before).clamp_min(0.0))
        return torch.zeros_like(spent).scatter(2, order, spent)


def _length(rows: Tensor) -> Tensor:
    """The 2-norm over the last dimension; scaled, since squares of small entries underflow."""
    largest = rows.abs().amax(-1, keepdim=True).clamp_min(TINY)
    length: Tensor = torch.linalg.vector_norm(rows / largest, 2, dim=-1)
    return length * largest.squeeze(-1)
