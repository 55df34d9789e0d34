"""The rules: intervals, backward bounds, tightening, splits, and the closing of leaves.

A *subdomain* is a set of points of the problem: those of the regions at which some units have a
sign, or some input coordinates lie on one side of a value. All bounds that it holds are true of
each of its points:

Interval    An operation's interval contains its value if its inputs' intervals contain theirs.
Backward    For an objective a . x of one node, going from the last node to the inputs: a linear
            operation carries a to its inputs; an activation y is replaced by its line below where
            its coefficient is at least 0 and by its line above elsewhere, which can only lessen
            the objective; units that do not differ are handed to their twins, removed ones to
            their patches. beta times x, with x the unit of a split and beta of the sign that makes
            this at most 0 in the subdomain, is added before. What arrives at the inputs is at most
            the objective, and its least value over the regions is a lower bound.
Tighten     A backward bound of +x_i and of -x_i bounds unit i; it uses earlier bounds alone.
Split       x_i <= 0 and x_i >= 0 together are everything, as are z_i <= v and z_i >= v.
Close       A leaf is closed for an objective by a bound of at least 0, or for all objectives by a
            bound above 0 of the zero objective: then the leaf is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from .arithmetic import LARGEST, Arithmetic, Array, RefusedError, centred, magnitude
from .operations import Bounds, Linear
from .problem import Node, Problem, Region

Carried = dict[int, Array]
"""Coefficients of nodes, by their places."""

Backward = tuple["_Total", Carried]
"""What k objectives add up to, and the coefficients that arrive at the inputs."""

Alpha = Mapping[int, Array]
"""For nodes that are bent, the choice of the line below each unit: [k or 1, units], -1 for none."""


AT_ONCE = 32
"""How many units are bounded at once: what they take should fit into a cache."""


@dataclass(frozen=True)
class Sign:
    """One side of a split: unit ``unit`` of a node is at least 0, or at most 0."""

    node: int
    unit: int
    positive: bool


@dataclass(frozen=True)
class Side:
    """One side of a split: a coordinate of an input is at least ``value``, or at most."""

    node: int
    unit: int
    value: float
    above: bool


@dataclass
class Subdomain:
    """Bounds of every node over some points of a problem, and the signs that hold there."""

    problem: Problem
    bounds: list[Bounds]
    regions: dict[int, Region]
    reach: list[Array | None]
    signs: tuple[Sign, ...] = ()
    sides: tuple[Side, ...] = ()

    @classmethod
    def whole(cls, problem: Problem) -> Subdomain:
        """All points of a problem, bounded by intervals."""
        made = cls(problem, [], dict(problem.regions), [])
        made.propagate({})
        return made

    def propagate(self, known: Mapping[int, Bounds]) -> None:
        """Interval: bounds of all nodes in turn, met with those that are known already."""
        old, self.bounds, self.reach = self.bounds, [], []
        for place, node in enumerate(self.problem.nodes):
            bounds, reach = self._interval(place, node)
            for other in (old[place] if old else None, known.get(place)):
                if other is not None:
                    bounds = np.maximum(bounds[0], other[0]), np.minimum(bounds[1], other[1])
            self.bounds.append(self._consistent(bounds))
            self.reach.append(reach)

    def _consistent(self, bounds: Bounds) -> Bounds:
        """Below a split, contradicting bounds say that there is no point: any bounds are true."""
        lower, upper = bounds
        if not ((lower >= -LARGEST).all() and (upper <= LARGEST).all()):
            raise RefusedError("A bound is too large, or not a number.")
        if not self.signs and not self.sides and (lower > upper).any():
            raise RefusedError("Bounds contradict each other where nothing was split.")
        return lower, np.maximum(lower, upper)

    def _interval(self, place: int, node: Node) -> tuple[Bounds, Array | None]:
        arithmetic, reach = self.problem.arithmetic, None
        if place in self.regions:
            bounds = self.regions[place].lower, self.regions[place].upper
        elif node.operation is None:  # the circuit's input: where not removed, the network's
            bounds = self.bounds[node.twin]  # type: ignore[index]
        else:
            inputs = [self.bounds[i] for i in node.inputs]
            if isinstance(node.operation, Linear):
                bounds, reach = node.operation.interval(arithmetic, *inputs)
            else:
                bounds = node.operation.interval(arithmetic, inputs[0])
        if node.removed is not None:
            patch = self.bounds[node.patch] if isinstance(node.patch, int) else (node.patch,) * 2
            bounds = _where(node.removed, patch, bounds)
        if node.twin is not None:
            bounds = _where(node.differ, bounds, self.bounds[node.twin])
        return bounds, reach

    # --- Backward -----------------------------------------------------------------------------

    def lower_bound(self, place: int, rows: Array, alpha: Alpha, beta: Array = None) -> Array:
        """Lower bounds [k] of objectives [k, units] of one node; ``beta`` is [k, signs]."""
        return self.backward(place, rows, alpha, beta)[0].value()

    def backward(self, place: int, rows: Array, alpha: Alpha, beta: Array) -> Backward:
        """What the objectives add up to, and the coefficients that arrive at the inputs."""
        problem, carried, arrived = self.problem, {place: rows}, {}
        total = _Total(problem.arithmetic, len(rows))
        if beta is not None:
            self._constrain(carried, total, beta, len(rows))
        for at in range(max(carried, default=place), -1, -1):
            coefficients = carried.pop(at, None)
            if coefficients is None:
                continue
            node = problem.nodes[at]
            if node.twin is not None:
                self._pass(carried, total, node.twin, coefficients * ~node.differ)
                coefficients = coefficients * node.differ
            if isinstance(node.patch, int):
                self._pass(carried, total, node.patch, coefficients * node.removed)
            elif node.patch is not None:
                total.product(coefficients * node.removed, node.patch)
            if node.removed is not None:
                coefficients = coefficients * ~node.removed
            if not (coefficients != 0).any():
                continue
            if node.operation is None:
                arrived[at] = coefficients
                total.least(coefficients, self.regions[at])
            elif isinstance(node.operation, Linear):
                total.rounded(coefficients, self.reach[at], node.operation.terms + 2)
                if node.operation.bias is not None:
                    total.product(coefficients, problem.arithmetic.array(node.operation.bias))
                parts = node.operation.backward(coefficients)
                for source, part in zip(node.inputs, parts, strict=False):
                    self._pass(carried, total, source, part)
            else:
                self._relax(carried, total, node, coefficients, alpha)
        return total, arrived

    def _relax(self, carried: Carried, total: _Total, node: Node, a: Array, alpha: Alpha) -> None:
        """Lines in place of an activation: below it for a >= 0, above it for a < 0."""
        source = node.inputs[0]
        bounds, chosen = self.bounds[source], alpha.get(source)
        if chosen is not None and chosen.shape not in ((1, node.units), a.shape):
            raise RefusedError("An alpha is not there for each objective, or for all of them.")
        lines = node.operation.lines(self.problem.arithmetic, bounds, chosen)  # type: ignore[union-attr]
        rises = a >= 0
        part = a * np.where(rises, lines.below, lines.above)
        total.product(a * rises, lines.below_at)
        total.product(a * ~rises, lines.above_at)
        total.rounded(part, magnitude(*bounds), 1)
        self._pass(carried, total, source, part)

    def _pass(self, carried: Carried, total: _Total, to: int, part: Array) -> None:
        """Add coefficients to those that a node has already."""
        if not (part != 0).any():
            return
        if to in carried:
            part = carried[to] + part
            total.rounded(part, magnitude(*self.bounds[to]), 1)
        carried[to] = part

    def _constrain(self, carried: Carried, total: _Total, beta: Array, count: int) -> None:
        """Add beta * x <= 0 for each sign: beta <= 0 where x >= 0, and beta >= 0 where x <= 0."""
        if beta.shape != (count, len(self.signs)) or (beta < 0).any():
            raise RefusedError("A beta is negative, or not there for each split and objective.")
        for sign, column in zip(self.signs, beta.T, strict=True):
            part = self.problem.arithmetic.zeros(count, self.problem.nodes[sign.node].units)
            part[:, sign.unit] = -column if sign.positive else column
            self._pass(carried, total, sign.node, part)

    # --- Tighten, Split -----------------------------------------------------------------------

    def tighten(self, place: int, units: Array, alpha: Alpha) -> None:
        """Bound some units of a node by backward bounds, and all nodes again."""
        lower, upper = (bound.copy() for bound in self.bounds[place])
        for start in range(0, len(units), AT_ONCE):
            some = units[start : start + AT_ONCE]
            rows = self.problem.arithmetic.zeros(len(some), self.problem.nodes[place].units)
            rows[np.arange(len(some)), some] = self.problem.arithmetic.array([1.0])[0]
            lower[some] = np.maximum(lower[some], self.lower_bound(place, rows, alpha))
            upper[some] = np.minimum(upper[some], -self.lower_bound(place, -rows, alpha))
        if len(units):
            self.propagate({place: (lower, upper)})

    def at_sign(self, sign: Sign) -> Subdomain:
        """The points at which a unit has a sign."""
        bounds = lower, upper = tuple(bound.copy() for bound in self.bounds[sign.node])
        end, nearer = (lower, max) if sign.positive else (upper, min)
        end[sign.unit] = nearer(end[sign.unit], 0)
        child = replace(self, signs=(*self.signs, sign))
        child.propagate({sign.node: bounds})
        return child

    def at_side(self, side: Side) -> Subdomain:
        """The points at which an input coordinate is at least, or at most, a value."""
        child = replace(self, sides=(*self.sides, side), regions=dict(self.regions))
        child.regions[side.node] = cut(self.problem, self.regions[side.node], side)
        child.propagate({})
        return child


def cut(problem: Problem, region: Region, side: Side) -> Region:
    """The part of a region on one side of a split."""
    value = problem.arithmetic.array([side.value])[0]
    if not region.lower[side.unit] <= value <= region.upper[side.unit]:
        raise RefusedError("An input is split at a value outside its range.")
    end = (region.lower if side.above else region.upper).copy()
    end[side.unit] = value
    return replace(region, **{"lower" if side.above else "upper": end})


class _Total:
    """What is known of k objectives: a sum in float64, and an upper bound of its error."""

    def __init__(self, arithmetic: Arithmetic, count: int) -> None:
        self._arithmetic = arithmetic
        self.sum, self.error = arithmetic.zeros(count), arithmetic.zeros(count)

    def value(self) -> Array:
        """A number that no objective is below."""
        return self._arithmetic.down(self.sum - self._arithmetic.grown(self.error))

    def rounded(self, coefficients: Array, sizes: Array, terms: int) -> None:
        """Coefficients were computed from so many terms; times sizes, that is what is lost."""
        gamma = self._arithmetic.gamma(terms)
        if gamma:
            lost = gamma * (np.abs(coefficients) @ sizes)
            self.error = self.error + lost + self._arithmetic.tiny(coefficients.shape[1])

    def product(self, coefficients: Array, values: Array) -> None:
        """Add coefficients [k, units] times values [units]."""
        self.rounded(coefficients, np.abs(values), coefficients.shape[1])
        self.add(coefficients @ values)

    def add(self, numbers: Array) -> None:
        """Add a number to each objective."""
        self.sum = self.sum + numbers
        self.error = self.error + self._arithmetic.u * np.abs(self.sum)

    def least(self, coefficients: Array, region: Region) -> None:
        """Add the least value of coefficients . x over a region: its box or, if better, its ball.

        What underflows in a fall is less than what its product allows for.
        """
        ball = copy(self)
        middle, radius = centred(self._arithmetic, region.lower, region.upper)
        self.product(coefficients, middle)
        self.add(-self._arithmetic.grown(np.abs(coefficients) @ radius, len(radius)))
        if region.p:
            ball.product(coefficients, region.centre)
            ball.add(-self._ball(coefficients, region))
            better = ball.value() > self.value()
            self.sum = np.where(better, ball.sum, self.sum)
            self.error = np.where(better, ball.error, self.error)

    def _ball(self, a: Array, region: Region) -> Array:
        """By how much a . x falls at most below a . centre, over a ball cut with its box.

        For p = 2 by eps ||a||_2, and for p = 1, by linear duality, by
        t eps + sum_i max(|a_i| - t, 0) r_i  for any t >= 0, where r_i is how far the box lets x_i
        go; t is the |a_i| at which the budget eps is spent.
        """
        arithmetic, centre, units = self._arithmetic, region.centre, a.shape[1]
        moves = (region.lower != centre) | (region.upper != centre)
        reach = np.maximum(region.upper - centre, centre - region.lower)
        sizes = np.abs(a) * moves
        if region.p == 2:
            squares = (sizes * sizes).sum(axis=1) + arithmetic.tiny(units)
            fall = region.eps * np.sqrt(squares)
        else:
            order = np.argsort(-sizes, axis=1)
            spent = np.cumsum(reach[order], axis=1)
            last = (spent < region.eps).sum(axis=1).clip(max=units - 1)
            price = np.take_along_axis(sizes, np.take_along_axis(order, last[:, None], 1), 1)
            fall = price[:, 0] * region.eps + np.maximum(sizes - price, 0.0) @ reach
        return arithmetic.grown(fall, units)  # and n + 3 roundings before


def _where(mask: Array, yes: Sequence[Array], no: Sequence[Array]) -> Bounds:
    return np.where(mask, yes[0], no[0]), np.where(mask, yes[1], no[1])
