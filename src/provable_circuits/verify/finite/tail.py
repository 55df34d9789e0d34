"""Affine tails: sites from which outputs are computed by linear operations alone.

There the outputs of a circuit that differs from another in a few units are those of the other plus
a few rows of one matrix, which is enclosed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from provable_circuits.network.components import Site
from provable_circuits.network.ops import LinearOp
from provable_circuits.rounding import TINY, Interval, all_finite, down, gamma, midpoint, up
from provable_circuits.verify.finite.propagation import Propagation


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Outputs at all inputs: each lies within ``radius`` of ``value``, [inputs, positions, m]."""

    value: Tensor
    radius: float

    @classmethod
    def of(cls, ends: Interval) -> Outputs:
        """The same as midpoints, and the largest radius."""
        value, radius = midpoint(*ends)
        return cls(value, float(radius.max()))

    @property
    def ends(self) -> Interval:
        """The same as ends."""
        return down(self.value - self.radius), up(self.value + self.radius)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The matrix from a site's units to the outputs, [units, positions * outputs].

    Attributes:
        value: its midpoint.
        radius: the largest radius of each row, [units].
        largest: the largest entry of each row in absolute value, its radius included, [units].
        matters: which units some output reads.
    """

    value: Tensor
    radius: Tensor
    largest: Tensor
    matters: Tensor

    def moved(self, output: Outputs, change: Interval, units: Tensor) -> Outputs:
        """Outputs after some units changed.

        With the change within d of its midpoint c and the matrix within r of its midpoint T,

            |exact - computed|  <=  radius + sum (|c| r + d (|T| + r))
                                    + gamma(n) (|value| + sum |c| |T|)

        where n is the number of units and two more; all in upper bounds over all inputs and
        outputs, computed in floating point from nonnegative numbers and raised by far more than
        that can round.

        Args:
            output: outputs before.
            change: ends of by how much each unit changes, [inputs, units given].
            units: which units those are, flattened.
        """
        middle, spread = midpoint(*change)
        rows = self.value[units]
        flat = output.value.flatten(1)
        value = torch.addmm(flat, middle, rows).reshape(output.value.shape)
        most, wide = middle.abs().amax(0), spread.amax(0)
        radius, largest = self.radius[units], self.largest[units]
        added = float((most * radius + wide * largest).sum())
        size = float(flat.abs().max()) + float((most * largest).sum())
        terms = len(units) + 4
        total = output.radius + added + gamma(terms) * size + terms * TINY
        total *= 1 + 1e-9
        return Outputs(value, total if all_finite(value) else math.inf)


def tail_of(
    propagation: Propagation, site: Site, positions: Tensor | None, most: int
) -> Tail | None:
    """The tail of a site; None if something behind it is not linear, or it would be too large.

    Args:
        propagation: the network.
        site: the site.
        positions: of outputs with positions, those that count.
        most: numbers in the largest tensor on the way.
    """
    graph, reached = propagation.graph, propagation.downstream[site.tensor]
    nodes = [n for n in graph.nodes if n.name in reached and n.name != site.tensor]
    count = math.prod(site.layer.shape)
    numbers = max([math.prod(node.shape) for node in nodes], default=1) * count
    maps = {node.name: _without_offset(propagation.ops[node.name]) for node in nodes}
    if graph.outputs[0] not in reached or numbers > most or None in maps.values():
        return None
    if any(other.tensor in maps for other in propagation.components.sites):
        return None
    units = torch.eye(count, dtype=torch.float64).reshape(count, *site.layer.shape)
    found: dict[str, Interval] = {site.tensor: (units, units)}
    for node in nodes:
        sources = []
        for name in node.inputs:
            zero = torch.zeros(1, *graph[name].shape, dtype=torch.float64)
            sources.append(found.get(name, (zero.expand(count, *zero.shape[1:]),) * 2))
        op = maps[node.name]
        found[node.name] = op.interval(*sources)  # type: ignore[union-attr]
    lower, upper = found[graph.outputs[0]]
    if lower.ndim == 2:
        lower, upper = lower.unsqueeze(1), upper.unsqueeze(1)
    if positions is not None:
        lower, upper = lower[:, positions], upper[:, positions]
    value, radius = (part.flatten(1) for part in midpoint(lower, upper))
    largest = (value.abs() + radius).amax(1) * (1 + 1e-9)
    reaching = _reaching(propagation, site, positions)
    return Tail(value, radius.amax(1), largest, reaching)


def _reaching(propagation: Propagation, site: Site, positions: Tensor | None) -> Tensor:
    """Which units some output reads, by a path of weights that are not zero."""
    graph = propagation.graph
    count = math.prod(site.layer.shape)
    units = torch.eye(count, dtype=torch.float64).reshape(count, *site.layer.shape)
    found = {site.tensor: units}
    for node in graph.nodes:
        if node.name not in propagation.downstream[site.tensor] or node.name == site.tensor:
            continue
        op = propagation.ops[node.name]
        zeros = [torch.zeros(count, *graph[n].shape, dtype=units.dtype) for n in node.inputs]
        sources = [found.get(n, zero) for n, zero in zip(node.inputs, zeros, strict=True)]
        spread = op.spread(*sources)  # type: ignore[attr-defined]
        found[node.name] = (spread > 0).double()
    output = found[graph.outputs[0]]
    output = output.unsqueeze(1) if output.ndim == 2 else output
    if positions is not None:
        output = output[:, positions]
    return output.flatten(1).any(1)


def _without_offset(op: object) -> LinearOp | None:
    """A linear operation without its constant term."""
    if not isinstance(op, LinearOp):
        return None
    if op.offset() is None:
        return op
    names = {field.name for field in fields(op)}  # type: ignore[arg-type]
    name = next((name for name in ("bias", "shift") if name in names), None)
    return None if name is None else replace(op, **{name: None})  # type: ignore[type-var]
