"""The prover: finds the hints by which the checker accepts that a circuit is faithful.

It works on the checker's own problem and with the checker's own bounds, so that what it closes the
checker closes. Nothing here needs to be right: a wrong hint makes a bound weaker, never false.

For each input: intermediate bounds are tightened once; objectives that a backward bound closes are
done; for the others alpha is optimised (Xu et al., "Fast and complete: enabling complete neural
network verification with rapid and massively parallel incomplete verifiers", 2021), and what is
left is split on signs of units, with beta for the signs (Wang et al., "Beta-CROWN: efficient bound
propagation with per-neuron split constraints", 2021). The bound is a concave function of alpha and
beta; its gradient is read off the point at which the relaxed problem is least:

    d bound / d alpha_u = max(a_u, 0) (1 - slope) x_u,        d bound / d beta_u = +-x_u

with a_u the coefficient that arrives at the activation, and x_u its input at that point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from provable_circuits.proof.checker.arithmetic import RefusedError
from provable_circuits.proof.checker.operations import Bend, Curve, Linear
from provable_circuits.proof.checker.problem import Node, Problem, Region
from provable_circuits.proof.checker.rules import Side, Sign, Subdomain
from provable_circuits.proof.checker.tree import exactly
from provable_circuits.proof.tuning import USUAL, ProvingTuning

Array = Any

LEVELS = 255
"""Alpha is written in 255ths: a byte of a certificate, and no tuning."""


class ExhaustedError(Exception):
    """Nothing is left to split, and not everything is closed."""


class Limit(Protocol):
    """When to stop: raises once time is up, or once too many leaves were looked at."""

    def check(self) -> None:
        """Raise if time is up."""

    def spend(self, nodes: int) -> None:
        """Count leaves that are about to be bounded; raise if there are not that many left."""


@dataclass
class Plan:
    """The proof for one input, as far as it goes: see ``checker.check``."""

    tighten: list[str] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)


@dataclass
class Tree:
    """Nodes in preorder that close some objectives."""

    objectives: list[int]
    nodes: list[dict[str, Any]]


@dataclass
class Meter:
    """Counts the work of backward bounds, and stops them once the limit is reached.

    Attributes:
        limit: when to stop; None for never.
        spent: objectives bounded, each call counted as four more.
    """

    limit: Limit | None
    spent: int = 0

    def backward(self, rows: int) -> None:
        """Some objectives are about to be bounded."""
        if self.limit is not None:
            self.limit.check()
        self.spent += 4 + rows


@dataclass
class _Watched(Subdomain):
    """A subdomain whose bounds are counted, and not computed once the limit is reached."""

    meter: Meter | None = None

    def backward(self, place: int, rows: Array, alpha: Any, beta: Array) -> Any:
        if self.meter is not None:
            self.meter.backward(len(rows))
        return super().backward(place, rows, alpha, beta)


class _Traced(Subdomain):
    """A subdomain that remembers the coefficients that arrive at activations."""

    trace: dict[int, Array]

    def _relax(self, carried: Any, total: Any, node: Node, a: Array, alpha: Any) -> None:
        self.trace[node.inputs[0]] = self.trace.get(node.inputs[0], 0) + a
        super()._relax(carried, total, node, a, alpha)


def tracing(subdomain: Subdomain) -> _Traced:
    """The same subdomain, with ``trace`` after a backward bound."""
    made = _Traced(
        subdomain.problem,
        subdomain.bounds,
        subdomain.regions,
        subdomain.reach,
        subdomain.signs,
        subdomain.sides,
    )
    made.trace = {}
    return made


class Prover:
    """Closes all objectives of one problem.

    Args:
        problem: the problem, in float64.
        rational: returns the same in rational arithmetic, for leaves that rounding leaves open;
            None where the network is too large for it.
        limit: when to stop.
        tuning: how hard to try.
    """

    def __init__(
        self,
        problem: Problem,
        rational: Callable[[], Problem] | None,
        limit: Limit,
        tuning: ProvingTuning = USUAL,
    ) -> None:
        self.tuning = tuning
        self.problem, self.rational, self.limit = problem, rational, limit
        self.meter = Meter(limit)
        self.root: _Watched | None = None
        self.bends = {
            node.inputs[0]: place
            for place, node in enumerate(problem.nodes)
            if node.operation is not None and not isinstance(node.operation, Linear)
        }

    def plan(self) -> Plan:
        """The proof; raises ``ExhaustedError``, or what the limit raises."""
        plan, rows = Plan(), np.arange(len(self.problem.objectives))
        root: Any = _Watched.whole(self.problem)
        root.meter = self.meter
        for place in sorted(self.bends):
            self.limit.check()
            node = self.problem.nodes[place]
            lower, upper = root.bounds[place]
            unstable = (lower < 0) & (upper > 0)
            if node.differ is not None:
                unstable = unstable & node.differ
            curved = isinstance(self.problem.nodes[self.bends[place]].operation, Curve)
            if self._first(node) or not (curved or unstable.any()):
                continue
            if (self.reached(root, rows, {}, None) >= 0).all():
                break
            units = np.flatnonzero(unstable)
            root.tighten(place, units, {})
            plan.tighten.append(node.name)
        self.root = root
        reached = self.reached(root, rows, {}, None)
        closed = rows[reached >= 0].tolist()
        if closed:
            plan.trees.append(Tree(closed, [{"close": {}}]))
        for row in rows[~(reached >= 0)].tolist():
            plan.trees.append(Tree([row], self._tree(root, row)))
        return plan

    def _first(self, node: Node) -> bool:
        """Whether intervals of a node are as good as backward bounds: it reads one input."""
        nodes = self.problem.nodes
        return (
            isinstance(node.operation, Linear)
            and node.twin is None
            and len(node.inputs) == 1
            and nodes[node.inputs[0]].operation is None
            and not self.problem.regions[node.inputs[0]].p
        )

    def reached(self, subdomain: Subdomain, rows: Array, alpha: Any, beta: Any) -> Array:
        """Lower bounds of objectives and their offsets: closed are those of at least 0."""
        problem = self.problem
        bound = subdomain.lower_bound(problem.target, problem.objectives[rows], alpha, beta)
        return problem.arithmetic.down(bound + problem.offsets[rows])

    # --- trees --------------------------------------------------------------------------------

    def _tree(self, root: Subdomain, row: int) -> list[dict[str, Any]]:
        """Nodes in preorder that close one objective."""
        nodes: list[dict[str, Any]] = []
        waiting: list[tuple[Subdomain, dict[int, Array], int]] = [(root, {}, self.tuning.steps)]
        while waiting:
            self.limit.spend(1)
            subdomain, alpha, steps = waiting.pop()
            tightened = self._tighten(subdomain)
            found = self.optimise(subdomain, row, alpha, steps)
            if found.reached >= 0:
                nodes.append(found.leaf() | tightened)
                continue
            if self._exactly(subdomain, row, found):
                nodes.append(found.leaf(exact=True) | tightened)
                continue
            choice = self._choice(subdomain, found)
            if subdomain.signs and (choice is None or choice[0] != "split"):
                longer = self.optimise(subdomain, row, found.alpha, self.tuning.long_steps)
                if longer.reached >= 0:
                    nodes.append(longer.leaf() | tightened)
                    continue
            if choice is None:
                raise ExhaustedError("what is left is too close to call")
            kind, place, unit, value = choice
            name = self.problem.nodes[place].name
            if kind == "split":
                nodes.append({"split": [name, unit]} | tightened)
                halves = [subdomain.at_sign(Sign(place, unit, side)) for side in (False, True)]
            else:
                nodes.append({"side": [name, unit, value]} | tightened)
                halves = [subdomain.at_side(Side(place, unit, value, up)) for up in (False, True)]
            waiting += [(half, found.alpha, self.tuning.steps // 2) for half in reversed(halves)]
        return nodes

    def _tighten(self, subdomain: Subdomain) -> dict[str, Any]:
        """Bound pre-activations behind the last split again, where that is cheap."""
        if (
            not subdomain.signs
            or sum(n.units for n in self.problem.nodes) > self.tuning.tightened_units
        ):
            return {}
        names = []
        for place in sorted(self.bends):
            lower, upper = subdomain.bounds[place]
            unstable = (lower < 0) & (upper > 0)
            node = self.problem.nodes[place]
            if node.differ is not None:
                unstable = unstable & node.differ
            if place > subdomain.signs[-1].node and unstable.any() and not self._first(node):
                self.limit.check()
                subdomain.tighten(place, np.flatnonzero(unstable), {})
                names.append(node.name)
        return {"tighten": names} if names else {}

    def optimise(
        self, subdomain: Subdomain, row: int, start: dict[int, Array], steps: int
    ) -> _Found:
        """Ascend in alpha and beta until the objective closes or steps are used up."""
        rows = np.array([row])
        unstable = {
            place: (subdomain.bounds[place][0] < 0) & (subdomain.bounds[place][1] > 0)
            for place, at in self.bends.items()
            if isinstance(self.problem.nodes[at].operation, Bend)
        }
        alpha = {
            p: start[p].copy() if p in start else self._default(subdomain, p) for p in unstable
        }
        beta = np.zeros((1, len(subdomain.signs)))
        best = _Found(-math.inf, {}, beta, {}, {}, {})
        means: dict[Any, Array] = {}
        squares: dict[Any, Array] = {}
        for step in range(steps + 1):
            self.meter.backward(1)
            written = {
                p: np.where(unstable[p], np.rint(v * LEVELS) / LEVELS, -1.0)
                for p, v in alpha.items()
            }
            shown = (
                written
                if step == steps
                else {p: np.where(unstable[p], v, -1.0) for p, v in alpha.items()}
            )
            traced = tracing(subdomain)
            total, arrived = traced.backward(
                self.problem.target,
                self.problem.objectives[rows],
                shown,
                beta if beta.size else None,
            )
            reached = float(
                self.problem.arithmetic.down(total.value() + self.problem.offsets[rows])[0]
            )
            if reached >= 0 and shown is not written:
                exactly = float(
                    self.reached(subdomain, rows, written, beta if beta.size else None)[0]
                )
                if exactly >= 0:
                    return _Found(exactly, written, beta.copy(), unstable, traced.trace, {})
            values = self._values(traced, arrived, shown)
            if reached > best.reached:
                best = _Found(reached, dict(alpha), beta.copy(), unstable, traced.trace, values)
            if step == steps:
                break
            rate = 0.3 * (1 - step / (steps + 1))
            for place, value in alpha.items():
                slope = self.problem.nodes[self.bends[place]].operation.slope  # type: ignore[union-attr]
                coefficient = traced.trace.get(place)
                if coefficient is None:
                    continue
                gradient = (
                    np.maximum(coefficient, 0) * (1 - slope) * values[place] * unstable[place]
                )
                alpha[place] = np.clip(
                    value + rate * _adam(place, gradient, means, squares, step), 0, 1
                )
            if beta.size:
                signs = subdomain.signs
                gradient = np.array(
                    [[values[s.node][0, s.unit] * (-1 if s.positive else 1) for s in signs]]
                )
                scale = 0.1 * (1 + np.abs(self.problem.objectives[row]).max())
                beta = np.maximum(
                    beta + rate * scale * _adam("beta", gradient, means, squares, step), 0
                )
        best.alpha = {
            p: np.where(unstable[p], np.rint(v * LEVELS) / LEVELS, -1.0)
            for p, v in best.alpha.items()
        }
        best.reached = float(
            self.reached(subdomain, rows, best.alpha, best.beta if best.beta.size else None)[0]
        )
        return best

    def _exactly(self, subdomain: Subdomain, row: int, found: _Found) -> bool:
        """Whether rational arithmetic closes what is within rounding; beta is made of fractions."""
        if self.rational is None or found.reached < -self.tuning.near:
            return False
        found.fractions = [
            [
                Fraction(float(value)).limit_denominator(self.tuning.denominator)
                for value in found.beta[0]
            ]
        ]
        try:
            problem = self.rational()
            array = problem.arithmetic.array
            bound = exactly(subdomain, problem).lower_bound(
                problem.target,
                problem.objectives[[row]],
                {place: array(values) for place, values in found.alpha.items()},
                np.array(found.fractions, dtype=object) if found.beta.size else None,
            )
        except RefusedError:  # balls of the 1- and 2-norm, sigmoid and tanh are not rational
            return False
        return bool(bound[0] + problem.offsets[row] >= 0)

    def _default(self, subdomain: Subdomain, place: int) -> Array:
        low, high = subdomain.bounds[place]
        return (high > -low).astype(np.float64)[None]

    def _values(self, traced: _Traced, arrived: dict[int, Array], alpha: Any) -> dict[int, Array]:
        """The relaxed problem at the point at which it is least, node by node, [1, units]."""
        values: dict[int, Array] = {}
        for place, node in enumerate(self.problem.nodes):
            if node.operation is None:
                values[place] = _corner(traced.regions[place], arrived.get(place))
            elif isinstance(node.operation, Linear):
                values[place] = node.operation.forward("value", *(values[i] for i in node.inputs))
                if node.operation.bias is not None:
                    values[place] = values[place] + node.operation.bias
            else:
                source = node.inputs[0]
                lines = node.operation.lines(
                    self.problem.arithmetic, traced.bounds[source], alpha.get(source)
                )
                rises = traced.trace[source] >= 0 if source in traced.trace else True
                below = lines.below * values[source] + lines.below_at
                values[place] = np.where(
                    rises, below, lines.above * values[source] + lines.above_at
                )
            if node.removed is not None:
                patch = values[node.patch] if isinstance(node.patch, int) else node.patch
                values[place] = np.where(node.removed, patch, values[place])
            if node.twin is not None:
                values[place] = np.where(np.asarray(node.differ), values[place], values[node.twin])
        return values

    def _choice(self, subdomain: Subdomain, found: _Found) -> tuple[str, int, int, float] | None:
        """The unstable unit whose relaxation takes most from the bound; or an input to halve."""
        best: tuple[float, int, int] = (0.0, -1, -1)
        for place, mask in found.unstable.items():
            a = found.trace.get(place)
            if a is None or not mask.any():
                continue
            low, high = subdomain.bounds[place]
            slope = self.problem.nodes[self.bends[place]].operation.slope  # type: ignore[union-attr]
            x = found.values[place][0]
            true = np.maximum(x, slope * x)
            gap = -low * high / np.maximum(high - low, 1e-300) * (1 - slope)
            chosen = found.alpha[place][0] if place in found.alpha else 0.5
            below = (slope + np.clip(chosen, 0, 1) * (1 - slope)) * x
            chord = ((high - slope * low) * x + (slope - 1) * low * high) / np.maximum(
                high - low, 1e-300
            )
            taken = np.where(a[0] >= 0, a[0] * (true - below), -a[0] * (chord - true))
            score = (taken + 0.1 * np.abs(a[0]) * gap) * mask
            unit = int(score.argmax())
            if score[unit] > best[0]:
                best = (float(score[unit]), place, unit)
        curved = any(
            isinstance(self.problem.nodes[at].operation, Curve) for at in self.bends.values()
        )
        if best[1] >= 0 and not curved:
            return "split", best[1], best[2], 0.0
        return self._halved(subdomain)

    def _halved(self, subdomain: Subdomain) -> tuple[str, int, int, float] | None:
        """The widest coordinate of an input, at its middle."""
        widest = max(
            ((float((r.upper - r.lower).max()), p) for p, r in subdomain.regions.items()),
            default=(0.0, -1),
        )
        if widest[0] <= 0:
            return None
        region = subdomain.regions[widest[1]]
        unit = int((region.upper - region.lower).argmax())
        return "side", widest[1], unit, float(0.5 * region.lower[unit] + 0.5 * region.upper[unit])


@dataclass
class _Found:
    reached: float
    alpha: dict[int, Array]
    beta: Array
    unstable: dict[int, Array]
    trace: dict[int, Array]
    values: dict[int, Array]
    fractions: list[list[Fraction]] = field(default_factory=list)

    def leaf(self, exact: bool = False) -> dict[str, Any]:
        """A leaf; arrays are written by ``writing``."""
        leaf: dict[str, Any] = {"close": {"beta": self.beta} if self.beta.size else {}}
        if exact:
            leaf["close"]["exact"] = True
            if self.beta.size:
                leaf["close"]["beta"] = [[str(value) for value in row] for row in self.fractions]
        if self.alpha:
            leaf["alpha"] = {
                place: (np.flatnonzero(self.unstable[place]), values)
                for place, values in self.alpha.items()
                if self.unstable[place].any()
            }
        return leaf


def _adam(key: Any, gradient: Array, means: Any, squares: Any, step: int) -> Array:
    means[key] = 0.7 * means.get(key, 0) + 0.3 * gradient
    squares[key] = 0.95 * squares.get(key, 0) + 0.05 * gradient * gradient
    mean = means[key] / (1 - 0.7 ** (step + 1))
    return mean / (np.sqrt(squares[key] / (1 - 0.95 ** (step + 1))) + 1e-12)


def _corner(region: Region, coefficients: Array | None) -> Array:
    """The point of a region at which a linear function is least, about."""
    middle = (region.lower * 0.5 + region.upper * 0.5)[None]
    if coefficients is None:
        return middle
    corner: Array = np.where(coefficients > 0, region.lower, region.upper)
    if region.p == 2 and region.centre is not None:
        norm = np.sqrt((coefficients**2).sum(axis=1, keepdims=True)) + 1e-300
        corner = np.clip(
            region.centre - region.eps * coefficients / norm, region.lower, region.upper
        )
    elif region.p == 1 and region.centre is not None:
        most = np.abs(coefficients).argmax(axis=1)
        corner = np.repeat(region.centre[None], len(coefficients), 0)
        rows = np.arange(len(coefficients))
        corner[rows, most] -= region.eps * np.sign(coefficients[rows, most])
        corner = np.clip(corner, region.lower, region.upper)
    return corner
