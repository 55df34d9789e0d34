"""Rounding: the one place where floating-point error is bounded.

All rigorous computation here is in IEEE binary64 with rounding to nearest, unit roundoff
u = 2^-53, or in binary32 with u = 2^-24 where that is said. The theorem everything rests on
(Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., sections 2.2, 3.1 and 3.5):

    If s is a sum of n products a_i b_i evaluated in ANY order, with or without fused
    multiply-add, then the computed value differs from the exact one by at most
        gamma(n) * sum |a_i| |b_i|  +  n * TINY,      gamma(n) = n u / (1 - n u),
    where the last term covers products that underflow, even if subnormals are flushed to zero.

No assumption is made about summation order, blocking or vectorisation, so any BLAS or convolution
that multiplies and adds the terms of the definition is covered; algorithms that form other products
(Strassen, Winograd, FFT) are not, nor are sums in a narrower type than they claim. PyTorch uses
none of the former on a CPU, and the latter only where a user asked for it; ``exact_products``
looks whether that is so before anything is computed in binary32, or on another device.

A single sum, difference, product or quotient is off by at most half a unit in the last place, so
``nextafter`` once outward encloses it. A sum in which anything overflows or is NaN encloses as
[-inf, inf]: such a bound is sound and proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

UNIT_ROUNDOFF = 2.0**-53
TINY = 2.0**-1021
"""Twice the smallest normal number: more than any underflow can lose."""

Interval = tuple[Tensor, Tensor]
"""Lower and upper ends, float64, of the same shape."""


class InconsistentBoundsError(ArithmeticError):
    """A lower bound above its upper bound, where no split can be the reason.

    Both are proved of the same number, so one of the proofs is wrong: an internal inconsistency,
    from which nothing may be concluded.
    """


class LinearMap(Protocol):
    """What an enclosure needs to know of ``y = L(x) + b``."""

    @property
    def terms(self) -> int:
        """The most products, and the offset, that are summed for one output."""

    def forward(self, *inputs: Tensor) -> Tensor:
        """L(x) + b, computed."""

    def spread(self, *inputs: Tensor) -> Tensor:
        """|L|(x), computed, for x >= 0."""

    def offset(self) -> Tensor | None:
        """b, or None for zero."""


def gamma(terms: int, unit: float = UNIT_ROUNDOFF) -> float:
    """An upper bound of n u / (1 - n u)."""
    if terms * unit >= 0.01:
        return math.inf
    return terms * unit * 1.02


def unit_roundoff(dtype: torch.dtype) -> float:
    """The unit roundoff of binary64 or binary32."""
    return UNIT_ROUNDOFF if dtype == torch.float64 else 2.0**-24


def exact_products(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether convolutions and products there multiply and add what they should.

    Each output of the trials sums three products of integers, small enough that every product and
    partial sum of the definition is an integer that the type holds, exact in any order, and large
    enough that nothing else fits: a transformed algorithm forms sums of inputs first, whose
    products do not, and a narrower type does not hold the factors. Both give themselves away. What
    a user may change while a program runs is looked at every time.
    """
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return False
    return _sums_products(dtype, device)


@lru_cache(maxsize=8)
def _sums_products(dtype: torch.dtype, device: torch.device) -> bool:
    largest = 2047 if dtype == torch.float32 else 50_000_000
    generator = torch.Generator().manual_seed(0)

    def integers(*shape: int) -> Tensor:
        return torch.randint(-largest, largest + 1, shape, generator=generator)

    def three_of(tensor: Tensor) -> Tensor:
        """The tensor with three entries left along its last dimension."""
        order = torch.rand(tensor.shape, generator=generator).argsort(dim=-1)
        return torch.where(order < 3, tensor, torch.zeros_like(tensor))

    def there(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype)

    image = integers(6, 8, 12, 12)
    flat = image.flatten(1)
    matrix = three_of(integers(16, flat.shape[1])).T
    trials = [(there(flat) @ there(matrix), flat @ matrix)]
    for size in (1, 3, 5):
        weight = three_of(integers(16, 8 * size * size)).reshape(16, 8, size, size)
        backward = weight.transpose(0, 1).contiguous()
        for stride in (1, 2):
            found = F.conv2d(there(image), there(weight), stride=stride)
            trials.append((found, _correlated(image, weight, stride)))
            found = F.conv_transpose2d(there(image), there(backward), stride=stride)
            trials.append((found, _spread_out(image, backward, stride)))
    return all(bool((found.cpu().double() == exact.double()).all()) for found, exact in trials)


def _correlated(image: Tensor, weight: Tensor, stride: int) -> Tensor:
    """A convolution in integers, from its definition."""
    size = weight.shape[-1]
    windows = image.unfold(2, size, stride).unfold(3, size, stride)
    terms = windows.permute(0, 2, 3, 1, 4, 5).flatten(3)
    return (terms @ weight.flatten(1).T).permute(0, 3, 1, 2)


def _spread_out(image: Tensor, weight: Tensor, stride: int) -> Tensor:
    """A transposed convolution in integers, from its definition."""
    size, side = weight.shape[-1], image.shape[-1]
    full = (side - 1) * stride + size
    total = image.new_zeros(len(image), weight.shape[1], full, full)
    for row in range(size):
        for column in range(size):
            part = torch.einsum("nihw,io->nohw", image, weight[:, :, row, column])
            end = (side - 1) * stride + 1
            total[:, :, row : row + end : stride, column : column + end : stride] += part
    return total


def down(value: Tensor) -> Tensor:
    """The next number below: a lower bound of the exact result of one rounded operation."""
    return torch.nextafter(value, torch.full_like(value, -math.inf))


def up(value: Tensor) -> Tensor:
    """The next number above: an upper bound of the exact result of one rounded operation."""
    return torch.nextafter(value, torch.full_like(value, math.inf))


def all_finite(value: Tensor) -> bool:
    """Whether a sum over everything shows that every number is finite; no, if it overflows."""
    return math.isfinite(float(value.sum()))


def settle(lower: Tensor, upper: Tensor) -> Interval:
    """Ends that are NaN become infinite: sound, and no proof."""
    if all_finite(lower) and all_finite(upper):
        return lower, upper
    return lower.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf), upper.nan_to_num(
        nan=math.inf, posinf=math.inf, neginf=-math.inf
    )


def met(first: Interval, second: Interval) -> Interval:
    """The intersection of two enclosures of the same numbers.

    Raises:
        InconsistentBoundsError: it is empty, so that one of the two is none.
    """
    lower, upper = torch.maximum(first[0], second[0]), torch.minimum(first[1], second[1])
    if bool((lower > upper).any()):
        raise InconsistentBoundsError("two enclosures of one number have no number in common")
    return lower, upper


def midpoint(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """A point and a radius whose interval contains [lower, upper].

    Raises:
        InconsistentBoundsError: an upper end lies below its lower one, so that a radius would be
            negative and narrow whatever is computed from it.
    """
    if bool((upper < lower).any()):
        raise InconsistentBoundsError("an interval has its upper end below its lower end")
    middle = lower + (upper - lower) * 0.5
    return middle, up(torch.maximum(upper - middle, middle - lower))


def enclose_linear(op: LinearMap, intervals: Sequence[Interval]) -> Interval:
    """An enclosure of ``L(x) + b`` for all x in the intervals.

    With midpoints m and radii r, and y the computed L(m) + b, every exact value lies within

        |L| r  +  gamma(n) (|L| |m| + |b|)  +  n TINY

    of y. That radius is itself computed in floating point, from nonnegative terms, so it is off by
    a factor of at most 1 + gamma(n + 8) and is raised by twice that. (A product gamma(n) |m| that
    underflows loses no more than r was rounded up by.) Where y overflowed the radius is infinite:
    a partial sum may have overflowed although the exact value is an ordinary number.
    """
    terms = op.terms
    error = gamma(terms + 4)
    middles, radii = zip(*(midpoint(*interval) for interval in intervals), strict=True)
    value = op.forward(*middles)
    inflated = [r + error * m.abs() for m, r in zip(middles, radii, strict=True)]
    radius = op.spread(*inflated)
    offset = op.offset()
    if offset is not None:
        radius = radius + error * offset.abs()
    radius = radius * (1 + 2 * gamma(terms + 8)) + (terms + 4) * TINY
    if not all_finite(value):
        radius = radius.masked_fill(~value.isfinite(), math.inf)
    return settle(down(value - radius), up(value + radius))


def enclose_monotone(function_lower: Tensor, function_upper: Tensor, ulps: int) -> Interval:
    """Ends of a nondecreasing function computed to within ``ulps`` units in the last place."""
    slack = 2 * ulps * UNIT_ROUNDOFF
    lower = function_lower - (function_lower.abs() * slack + TINY)
    upper = function_upper + (function_upper.abs() * slack + TINY)
    return settle(down(lower), up(upper))
