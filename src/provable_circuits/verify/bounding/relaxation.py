"""Relaxation: straight lines below and above an activation function on an interval.

For every x in [l, u]:   below.slope * x + below.offset  <=  g(x)  <=  above.slope * x +
above.offset.

A slope may be any float32; given the slope, the offset is computed so that the line is on its side
for that very slope, with rounding enclosed. So nothing here depends on how accurately a slope was
chosen, and an optimiser may choose it.

ReLU, or leaky with slope s (s = 0 for ReLU), on l < 0 < u:
    below: any slope a in [s, 1], offset 0.
    above: the chord (u - s l) / (u - l); its offset is the larger of the gaps at the two bounds.
Sigmoid and tanh:
    the offset is the extreme of g(x) - slope * x over the interval, attained at an end or where
    g'(x) = slope, which has a closed form. A point that is off by d from such a place changes the
    value by at most d^2 / 2, since |g''| <= 1, and the closed form is accurate to 1e-7 wherever the
    slope exceeds 1e-9; below that g(x) - slope * x moves by less than 1e-9 times its error. The
    slack of 1e-12 plus relative 1e-12 exceeds both, and the error of the functions themselves.
Square:
    above the chord, below the tangent at the midpoint.

For ReLUs the lines of CROWN (Zhang et al., 2018), inside of the triangle relaxation: Ehlers (2017),
Formal Verification of Piece-Wise Linear Feed-Forward Neural Networks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.ops import LeakyReLU, Op, ReLU, Sigmoid, Square, Tanh
from provable_circuits.rounding import TINY, UNIT_ROUNDOFF, Interval, down, up

SLACK = 1e-12
"""What rounding may add to a line above or below a curve, beside its values. Soundness rests on it,
so that it is no tuning."""


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Slopes and offsets [problems, *shape] of a line below and a line above.

    Attributes:
        steepest: no slope is steeper.
        settled: both lines are the function itself, so that the slopes agree and offsets are zero.
    """

    below_slope: Tensor
    above_slope: Tensor
    below_offset: Tensor | None
    above_offset: Tensor
    steepest: float = 1.0
    settled: bool = False

    @property
    def highest(self) -> float:
        """No offset is larger."""
        if self.settled:
            return 0.0
        highest = float(self.above_offset.abs().amax())
        if self.below_offset is not None:
            highest = max(highest, float(self.below_offset.abs().amax()))
        return highest

    def single(self) -> Lines:
        """The same lines in float32, offsets rounded outward; slopes must be float32 already."""
        below = self.below_offset
        return Lines(
            self.below_slope.float(),
            self.above_slope.float(),
            None if below is None else -_up_to_single(-below),
            _up_to_single(self.above_offset),
            self.steepest,
            self.settled,
        )


def _up_to_single(value: Tensor) -> Tensor:
    """The next float32 at or above."""
    nearest = value.float()
    return torch.where(
        nearest.double() < value,
        torch.nextafter(nearest, torch.full_like(nearest, torch.inf)),
        nearest,
    )


def _short(slope: Tensor) -> Tensor:
    """A slope that float32 holds exactly, so that both arithmetics use the same lines."""
    return slope.float().double()


def leak(op: Op) -> float | None:
    """The slope of a ReLU-like function left of zero, or None for other functions."""
    if isinstance(op, ReLU):
        return 0.0
    return op.slope if isinstance(op, LeakyReLU) else None


def unstable(op: Op, lower: Tensor, upper: Tensor) -> Tensor:
    """Where a ReLU-like function has both of its pieces inside the interval."""
    return (lower < 0) & (upper > 0)


def lines(op: Op, ends: Interval, alpha: Tensor | None = None) -> Lines:
    """Lines for ``op`` on the given ends; ``slopes`` are the free lower slopes of ReLUs."""
    slope = leak(op)
    if slope is not None:
        return piecewise_linear_lines(slope, *ends, alpha)
    if isinstance(op, Sigmoid | Tanh):
        return _s_shaped(op, *ends)
    if isinstance(op, Square):
        return _square(*ends)
    raise TypeError(f"no relaxation for {op.name}")


def default_slopes(leaks: Tensor | float, lower: Tensor, upper: Tensor) -> Tensor:
    """The lower slope that leaves the smaller area: 1 where u > -l, the leak elsewhere."""
    return _either(upper > -lower, leaks, lower)


def _either(which: Tensor, slope: Tensor | float, like: Tensor) -> Tensor:
    """One where ``which``, else ``slope``; of plain numbers ``torch.where`` would make float32."""
    other = slope if isinstance(slope, Tensor) else like.new_full((), slope)
    return torch.where(which, like.new_ones(()), other)


def piecewise_linear_lines(
    leaks: Tensor | float, lower: Tensor, upper: Tensor, alpha: Tensor | None = None
) -> Lines:
    """Lines of ReLUs with the given slopes left of zero, of one kind or unit by unit."""
    active, dead = lower >= 0, upper <= 0
    settled = active | dead
    fixed = _either(active, leaks, lower)
    if bool(settled.all()):
        return Lines(fixed, fixed, None, lower.new_zeros(()), settled=True)
    chord = _short((upper - leaks * lower) / (upper - lower))
    chord = torch.maximum(chord, torch.as_tensor(leaks).to(chord)).clamp_max(1.0)
    left = (leaks - chord) * lower
    right = (1.0 - chord) * upper
    gap = torch.maximum(left, right).clamp_min(0.0)
    size = torch.maximum(-lower, upper)
    offset = gap + (8 * UNIT_ROUNDOFF) * size + TINY
    offset = torch.where(settled, torch.zeros_like(offset), offset)
    above = torch.where(settled, fixed, chord)
    free = default_slopes(leaks, lower, upper) if alpha is None else alpha
    below = torch.where(settled, fixed, free)
    return Lines(below, above, None, offset)


def _s_shaped(op: Sigmoid | Tanh, lower: Tensor, upper: Tensor) -> Lines:
    low, high = op.forward(lower), op.forward(upper)
    width = upper - lower
    chord = torch.where(width > 1e-6, (high - low) / width, _derivative(op, lower))
    middle = _derivative(op, lower + width * 0.5)
    ends = torch.minimum(_derivative(op, lower), _derivative(op, upper))
    right, left = lower >= 0, upper <= 0
    below = _short(torch.where(right, chord, torch.where(left, middle, ends)).clamp_min(0.0))
    above = _short(torch.where(left, chord, torch.where(right, middle, ends)).clamp_min(0.0))
    below_offset, _ = _extremes(op, below, lower, upper)
    _, above_offset = _extremes(op, above, lower, upper)
    return Lines(below, above, below_offset, above_offset)


def _derivative(op: Sigmoid | Tanh, x: Tensor) -> Tensor:
    value = op.forward(x)
    return value * (1 - value) if isinstance(op, Sigmoid) else 1 - value * value


def _extremes(op: Sigmoid | Tanh, slope: Tensor, lower: Tensor, upper: Tensor) -> Interval:
    """A lower and an upper bound of g(x) - slope * x on the interval."""
    if isinstance(op, Sigmoid):
        root = torch.sqrt((1 - 4 * slope).clamp_min(0.0))
        place = torch.log1p(root) - torch.log1p(-root)
    else:
        place = torch.atanh(torch.sqrt((1 - slope).clamp(0.0, 1.0)))
    values = [
        op.forward(x) - slope * x
        for x in (
            lower,
            upper,
            torch.minimum(torch.maximum(place, lower), upper),
            torch.minimum(torch.maximum(-place, lower), upper),
        )
    ]
    slack = SLACK * (1 + slope * torch.maximum(lower.abs(), upper.abs()))
    least, most = torch.stack(values).amin(0), torch.stack(values).amax(0)
    return least - slack, most + slack


def _square(lower: Tensor, upper: Tensor) -> Lines:
    above = _short(lower + upper)
    # On the chord side x^2 - above * x is largest at an end, whatever the rounding of the slope.
    ends = [x * x - above * x for x in (lower, upper)]
    size = torch.maximum(lower.abs(), upper.abs())
    above_offset = torch.maximum(*ends) + 8 * UNIT_ROUNDOFF * size * size + TINY
    half = above * 0.5
    below_offset = -up(half * half)
    steepest = float(above.abs().amax())
    return Lines(above, above, down(below_offset), above_offset, steepest)
