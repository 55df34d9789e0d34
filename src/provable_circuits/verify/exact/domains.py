"""Domains as they are defined, in rational numbers, and float64 points inside them.

A domain's numbers are float64 and taken as exact reals: a ball of the inf-norm reaches from
x - eps to x + eps, neither end rounded, cut by its clip; masked elements stay at the centre. A ball
of the 1-norm adds one budget,

    sum_i |z_i - x_i| <= eps,        z_i = x_i + p_i - m_i,   p, m >= 0,   sum_i (p_i + m_i) <= eps.

A ball of the 2-norm is an interval if no more than one element can move, and no polytope otherwise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from provable_circuits.claims.domains import Ball, Box, Domain, Point
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.exact.forms import Atoms, Form, combination

ONE = Fraction(1)


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """Where the elements of one tensor range, flat.

    Attributes:
        lower, upper: ends of each element.
        center: the unperturbed point; its elements are float64 numbers wherever there is one
            between the ends.
        budget: the most by which all elements together may move from the centre, if limited.
        domain: the domain it was made from, if any.
    """

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    center: tuple[Fraction, ...]
    budget: Fraction | None = None
    domain: Domain | None = None

    @property
    def free(self) -> int:
        """How many variables it takes."""
        moving = sum(low != high for low, high in zip(self.lower, self.upper, strict=True))
        return moving if self.budget is None else 2 * moving

    def enter(self, atoms: Atoms) -> list[Form]:
        """The elements as forms over new variables."""
        ends = zip(self.lower, self.upper, self.center, strict=True)
        if self.budget is None:
            return [atoms.variable(low, high) for low, high, _ in ends]
        forms, moves = [], []
        for low, high, center in ends:
            rise = atoms.variable(Fraction(0), high - center)
            fall = atoms.variable(Fraction(0), center - low)
            moves += [rise, fall]
            forms.append(combination([(ONE, rise), (-ONE, fall)], center))
        atoms.limits.append(combination([(-ONE, move) for move in moves], self.budget))
        return forms

    def contains(self, point: Sequence[Fraction]) -> bool:
        """Whether a point lies inside, in exact arithmetic."""
        ends = zip(self.lower, point, self.upper, strict=True)
        if not all(low <= value <= high for low, value, high in ends):
            return False
        if self.budget is None:
            return True
        moved = (abs(v - c) for v, c in zip(point, self.center, strict=True))
        return sum(moved, Fraction(0)) <= self.budget

    def points(
        self,
        point: Sequence[Fraction],
        push: Sequence[Fraction] | None = None,
        retreats: Sequence[int] = DEFAULT.exact.retreats,
    ) -> Iterator[list[Fraction]]:
        """Points of float64 numbers at or next to ``point`` that lie inside.

        The first, if the domain has its own opinion, is one that it is sure of; then come nearest
        floats, and with ``push`` those next to the point in its direction, element by element. In a
        1-ball a point is drawn in by multiples of 2^-52, the ``retreats``, until rounding leaves it
        inside. An element that no float lies between the ends of has its centre, which may be none.
        """
        nearest = [self._nearest(i, value) for i, value in enumerate(point)]
        if self.domain is not None:
            floats = [float(value) for value in nearest]
            shaped = torch.tensor(floats, dtype=torch.float64).reshape(1, *self.domain.shape)
            inside = list(fractions(self.domain.project(shaped)))
            if self.contains(inside):
                yield inside
        for retreat in retreats if self.budget is not None else (0,):
            share = 1 - Fraction(retreat, 2**52)
            drawn = [c + (v - c) * share for v, c in zip(point, self.center, strict=True)]
            for made in self._neighbours(drawn, push):
                if self.contains(made):
                    yield made

    def _neighbours(
        self, point: Sequence[Fraction], push: Sequence[Fraction] | None
    ) -> Iterator[list[Fraction]]:
        """Floats next to a point: the nearest, those in the direction of a push, all below."""
        nearest = [self._nearest(i, value) for i, value in enumerate(point)]
        yield nearest
        if push is None:
            return
        for sign in (1, -1):
            moved = list(nearest)
            for i, (value, way) in enumerate(zip(point, push, strict=True)):
                way *= sign
                if way > 0 and nearest[i] < value:
                    moved[i] = self._within(i, math.nextafter(nearest[i], math.inf), nearest[i])
                elif way < 0 and nearest[i] > value:
                    moved[i] = self._within(i, math.nextafter(nearest[i], -math.inf), nearest[i])
            yield moved
        pairs = list(zip(point, nearest, strict=True))
        yield [self._within(i, below(value), other) for i, (value, other) in enumerate(pairs)]
        yield [self._within(i, -below(-value), other) for i, (value, other) in enumerate(pairs)]

    def _nearest(self, i: int, value: Fraction) -> Fraction:
        """The float next to a value, not beyond the element's ends if there is a float between."""
        found = nearest_float(value)
        if Fraction(found) < self.lower[i]:
            found = math.nextafter(found, math.inf)
        elif Fraction(found) > self.upper[i]:
            found = math.nextafter(found, -math.inf)
        return self._within(i, found, self.center[i])

    def _within(self, i: int, value: float, other: Fraction) -> Fraction:
        """A float as an element, if it lies between the element's ends; else the other number."""
        found = Fraction(value)
        return found if self.lower[i] <= found <= self.upper[i] else other


def extent_of(domain: Domain) -> Extent | None:
    """The extent of a domain; None if it is no polytope."""
    center = fractions(domain.center)
    if isinstance(domain, Point):
        return Extent(center, center, center, domain=domain)
    if isinstance(domain, Box):
        return Extent(fractions(domain.lower), fractions(domain.upper), center, domain=domain)
    if not isinstance(domain, Ball):
        return None
    reach = fractions(domain.eps.expand(domain.shape))
    lower = [c - r for c, r in zip(center, reach, strict=True)]
    upper = [c + r for c, r in zip(center, reach, strict=True)]
    if domain.clip is not None:
        least, most = (fractions(end.expand(domain.shape)) for end in domain.clip)
        lower = [max(ends) for ends in zip(lower, least, strict=True)]
        upper = [min(ends) for ends in zip(upper, most, strict=True)]
    if domain.mask is not None:
        free = domain.mask.expand(domain.shape).flatten().tolist()
        lower = [end if f else c for end, f, c in zip(lower, free, center, strict=True)]
        upper = [end if f else c for end, f, c in zip(upper, free, center, strict=True)]
    moving = sum(low != high for low, high in zip(lower, upper, strict=True))
    budget = None
    if domain.p != math.inf and moving > 1:
        if domain.p == 2:
            return None
        budget = Fraction(float(domain.eps))
    return Extent(tuple(lower), tuple(upper), center, budget, domain)


def box(lower: Tensor, upper: Tensor) -> Extent:
    """The extent of a box of computed ends, each of which belongs to the claim."""
    middle = torch.minimum(torch.maximum(lower + (upper - lower) * 0.5, lower), upper)
    return Extent(fractions(lower), fractions(upper), fractions(middle))


def fractions(values: Tensor) -> tuple[Fraction, ...]:
    """The numbers of a tensor, flat, as they are."""
    return tuple(Fraction(value) for value in values.double().flatten().tolist())


def nearest_float(value: Fraction) -> float:
    """The float64 number nearest to a value; the largest one for what is larger still."""
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max


def below(value: Fraction) -> float:
    """The largest float64 number at or below a value."""
    found = nearest_float(value)
    return found if Fraction(found) <= value else math.nextafter(found, -math.inf)
