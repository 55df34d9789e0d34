"""Presolve: from the bounds of one problem to two layers of unstable ReLUs over a cube.

The activations of the last depth that has unstable units are the second layer, those of the depth
before the first, as far as rows meet them. Whatever else is unstable is written as

    relu(x) = s x + (1 + z) * gap / 2,     s = u / (u - l),    gap = max(-s l, (1 - s) u),

with a coordinate z in [-1, 1] of its own: exact, but for what ties z to x. With slopes fixed at all
other units, the rows that a backward pass brings to inputs and unstable units are an identity, not
a bound, up to the rounding error of the pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from provable_circuits.network.graph import Node
from provable_circuits.rounding import TINY, gamma, midpoint
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.crown import View, backward
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.relaxation import Lines
from provable_circuits.verify.neuron_hull.presolved import Below, Presolved, Rows


@dataclass(frozen=True, slots=True, eq=False)
class _UpwardPass:
    """Rows as they reached activations and inputs, flat; what is constant; the error of all."""

    activations: dict[str, Tensor]
    inputs: dict[str, Tensor]
    constant: Tensor
    error: Tensor


class _Nowhere(Region):
    """A region that adds nothing to a row: the rows themselves are wanted."""

    def least(self, name: str, rows: Tensor) -> Tensor:
        """Zero."""
        return rows.new_zeros(rows.shape[:2])


class Presolver:
    """Condenses rows of one problem.

    Args:
        bounds: enclosures of a batch of one problem, all of whose activations are ReLUs and whose
            inputs range over a box.
        start: the tensor that the rows are about.
        rows: the rows, [1, r, *shape].
        offsets: what is added to them, [r].
    """

    def __init__(self, bounds: Bounds, start: str, rows: Tensor, offsets: Tensor) -> None:
        self.bounds = bounds
        self.tuning = bounds.structure.configuration.neuron_hull
        self.graph = bounds.structure.graph
        self.nodes = {node.name: node for node in bounds.structure.activations}
        self.open: dict[str, Tensor] = {}
        for name, node in self.nodes.items():
            lower, upper = self._flat(node)
            self.open[name] = (lower < 0) & (upper > 0)
        self.first, self.second = self._layers()
        self.own = {node.name: self.open[node.name] for node in (*self.first, *self.second)}
        """The units of the two layers: masks by activation. Other unstable units have gaps."""
        self.gaps: dict[str, Tensor] = {}
        self.named: dict[str, Tensor] = {}
        """The units with gaps that have a coordinate: masks. Others only add to radii."""
        self._below: list[Node] = []
        self.view = self._view()
        self.inputs = self._wide()
        self.problem = self._condensed(start, rows, offsets)
        """What ``rows . start + offsets`` is, presolved."""

    def _flat(self, node: Node) -> tuple[Tensor, Tensor]:
        lower, upper = self.bounds.ends[node.inputs[0]]
        return lower.flatten(), upper.flatten()

    def _layers(self) -> tuple[list[Node], list[Node]]:
        """The activations of the first and of the second layer."""
        self.depths = depths = dict[str, int]()
        for node in self.graph.nodes:
            depth = max((depths[name] for name in node.inputs), default=0)
            live = node.name in self.nodes and bool(self.open[node.name].any())
            depths[node.name] = depth + 1 if live else depth
        found: dict[int, list[Node]] = {}
        for name, node in self.nodes.items():
            if bool(self.open[name].any()):
                found.setdefault(depths[name], []).append(node)
        order = sorted(found, reverse=True)
        self._lowest = order[min(1, len(order) - 1)] if order else 0
        if len(order) < 2:
            return (found[order[0]] if order else []), []
        return found[order[1]], found[order[0]]

    def _view(self) -> View:
        """Lines for an identity: 0 or 1 at settled units, the chord's slope where gaps are."""
        lines: dict[str, Lines] = {}
        self.gaps = {}
        for name, node in self.nodes.items():
            lower, upper = self._flat(node)
            slope = (lower >= 0).double()
            open_ = self.open[name]
            own = self.own.get(name, torch.zeros_like(open_))
            loose = open_ & ~own
            if bool(loose.any()):
                chord = (upper / (upper - lower)).clamp(0.0, 1.0)
                slope = torch.where(loose, chord, slope)
                gap = torch.maximum(-slope * lower, (1 - slope) * upper) * (1 + 2.0**-49) + TINY
                self.gaps[name] = torch.where(loose, gap, 0.0)
            slope = torch.where(own, 0.0, slope).reshape(1, *node.shape)
            lines[name] = Lines(slope, slope, None, slope.new_zeros(()), settled=True)
        nowhere = _Nowhere(self.bounds.region.ranges, self.bounds.region.few_boxes)
        return replace(self.bounds.view(torch.float64), lines=lines, region=nowhere)

    def _wide(self) -> dict[str, Tensor]:
        """The inputs that range, with the positions that do; others only add to radii."""
        radii = {}
        for name in self.bounds.region.ranges:
            radii[name] = midpoint(*self.bounds.region.ends(name))[1].flatten()
        widest = max((float(radius.max()) for radius in radii.values()), default=0.0)
        wide = {
            n: (radius > self.tuning.narrow * widest).nonzero().flatten()
            for n, radius in radii.items()
        }
        return {name: columns for name, columns in wide.items() if len(columns)}

    def _condensed(self, start: str, rows: Tensor, offsets: Tensor) -> Presolved:
        """The problem, once the view has open lines at all units of the two layers.

        Units that no walk meets have gaps in the end; until then their coefficients were zero.
        """
        goal = self._walk(start, rows)
        goal = replace(goal, constant=goal.constant + offsets)
        self.second = self._kept(self.second, [goal])
        seconds = [self._walk_units(node) for node in self.second]
        self.first = self._kept(self.first, [goal, *seconds])
        self.view = self._view()
        firsts = [self._walk_units(node) for node in self.first]
        walks = [goal, *seconds, *firsts]
        widest = max((float(gap.max()) for gap in self.gaps.values()), default=0.0)
        self.named = {
            name: self._reached(self.nodes[name], walks) & (gap > self.tuning.narrow * widest)
            for name, gap in self.gaps.items()
        }
        first = Rows.joined([self._rows(walk) for walk in firsts or [goal]])
        second = Rows.joined([self._rows(walk) for walk in seconds or [goal]])
        none = torch.arange(0, device=offsets.device)
        first = first if firsts else first[none]
        second = second if seconds else second[none]
        ends = [self._own_ends(node) for node in self.second]
        tops = [self._own_ends(node)[1] for node in self.first]
        nothing = offsets[:0]
        return Presolved(
            first=replace(first, first=first.first[:, :0], second=first.second[:, :0]),
            second=replace(second, second=second.second[:, :0]),
            goal=self._rows(goal),
            top=torch.cat([nothing, *tops]).clamp_min(0.0),
            lower=torch.cat([nothing, *(lower for lower, _ in ends)]),
            upper=torch.cat([nothing, *(upper for _, upper in ends)]),
            inputs=self._inputs,
            tuning=self.tuning,
        )

    def below(self) -> list[Below]:
        """The layers further down whose units have gaps, uppermost first."""
        layers = []
        self._below = []
        names = [name for name in self.gaps if self.depths[name] < self._lowest]
        for depth in sorted({self.depths[name] for name in names}, reverse=True):
            nodes = [self.nodes[name] for name in names if self.depths[name] == depth]
            for node in nodes:
                self.own[node.name] = self._loose(node.name)
            walks = [self._walk_units(node) for node in nodes if bool(self.own[node.name].any())]
            if not walks:
                continue
            rows = Rows.joined([self._rows(walk) for walk in walks])
            rows = replace(rows, first=rows.first[:, :0], second=rows.second[:, :0])
            self._below += nodes
            own = [self.own[node.name] for node in nodes]
            alpha = [self.view.lines[node.name].below_slope.flatten() for node in nodes]
            ends = [self._own_ends(node) for node in nodes]
            layers.append(
                Below(
                    rows=rows,
                    columns=torch.cat([self._gap_columns(node.name) for node in nodes]),
                    alpha=torch.cat([s[o] for s, o in zip(alpha, own, strict=True)]),
                    gaps=torch.cat([self.gaps[n.name][o] for n, o in zip(nodes, own, strict=True)]),
                    top=torch.cat([upper for _, upper in ends]),
                    inputs=self._inputs,
                    tuning=self.tuning,
                )
            )
        return layers

    def numbered(self, numbers: Callable[[str, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Numbers of the units of the second layer, the first and those ``below``; and of the cube.

        Args:
            numbers: gives those of a tensor's flat positions.
        """
        nodes = (*self.second, *self.first, *self._below)
        units = [numbers(node.name, self.own[node.name].nonzero().flatten()) for node in nodes]
        cube = [numbers(name, columns) for name, columns in self.inputs.items()]
        cube += [numbers(name, self._loose(name).nonzero().flatten()) for name in self.gaps]
        none = torch.zeros(0, dtype=torch.long, device=self.bounds.structure.device)
        return torch.cat([none, *units]), torch.cat([none, *cube])

    def _loose(self, name: str) -> Tensor:
        """The units of an activation that have a gap and a coordinate for it."""
        return self.named[name] & (self.gaps[name] > 0)

    @property
    def _inputs(self) -> int:
        """How many coordinates are inputs."""
        return sum(len(columns) for columns in self.inputs.values())

    def _gap_columns(self, name: str) -> Tensor:
        """The coordinates of one activation's gaps."""
        place = self._inputs
        for other, gap in self.gaps.items():
            count = int(self._loose(other).sum())
            if other == name:
                return torch.arange(place, place + count, device=gap.device)
            place += count
        raise KeyError(name)

    def corners(self, cube: Tensor) -> dict[str, Tensor]:
        """Where linear functions of the cube [k, n] are least, as points of the inputs."""
        points, place = {}, 0
        for name, columns in self.inputs.items():
            lower, upper = self.bounds.region.ends(name)
            own = cube[:, place : place + len(columns)]
            place += len(columns)
            flat = lower.flatten().expand(len(cube), -1)
            low, high = flat[:, columns], upper.flatten()[columns]
            moved = flat.index_copy(1, columns, torch.where(own > 0, low, high))
            points[name] = moved.reshape(len(cube), *lower.shape[1:])
        return points

    # --- walking ---------------------------------------------------------------------------------

    def _walk(self, start: str, rows: Tensor) -> _UpwardPass:
        """The identity that backward passes find for rows [1, r, *shape] of a tensor."""
        activations: dict[str, list[Tensor]] = {}
        inputs: dict[str, list[Tensor]] = {}
        constant: list[Tensor] = []
        error: list[Tensor] = []
        size = max(1, self.tuning.chunk_elements // max(self.bounds.structure.largest, 1))
        for part in rows.split(size, dim=1):
            self.bounds.deadline.check()
            found = backward(self.view, start, part, keep_rows=True)
            for name, value in found.activations.items():
                activations.setdefault(name, []).append(value[0].flatten(1))
            for name, value in found.inputs.items():
                inputs.setdefault(name, []).append(value[0].flatten(1))
            constant.append(found.value[0] + found.error[0])
            error.append(found.error[0] + found.value[0].abs() * 2.0**-51)
        return _UpwardPass(
            {name: torch.cat(subdomains) for name, subdomains in activations.items()},
            {name: torch.cat(subdomains) for name, subdomains in inputs.items()},
            torch.cat(constant),
            torch.cat(error),
        )

    def _walk_units(self, node: Node) -> _UpwardPass:
        """The inputs of an activation's own units."""
        units = self.own[node.name].nonzero().flatten()
        source = node.inputs[0]
        shape = self.graph[source].shape
        rows = torch.zeros(len(units), math.prod(shape), dtype=torch.float64, device=units.device)
        rows.scatter_(1, units.unsqueeze(1), 1.0)
        return self._walk(source, rows.reshape(1, len(units), *shape))

    def _reached(self, node: Node, walks: list[_UpwardPass]) -> Tensor:
        """Which unstable units of an activation some walk meets."""
        reached = torch.zeros_like(self.open[node.name])
        for walk in walks:
            if node.name in walk.activations:
                reached |= (walk.activations[node.name] != 0).any(0)
        return reached & self.open[node.name]

    def _kept(self, nodes: list[Node], walks: list[_UpwardPass]) -> list[Node]:
        """Make the units that some walk meets the own ones; those activations that have any."""
        for node in nodes:
            self.own[node.name] = self._reached(node, walks)
        return [node for node in nodes if bool(self.own[node.name].any())]

    def _own_ends(self, node: Node) -> tuple[Tensor, Tensor]:
        lower, upper = self._flat(node)
        own = self.own[node.name]
        return lower[own], upper[own]

    # --- putting together ------------------------------------------------------------------------

    def _rows(self, walk: _UpwardPass) -> Rows:
        """A walk in terms of the cube and the unstable units."""
        constant, radius = walk.constant, walk.error
        scale = constant.abs()
        cube: list[Tensor] = []
        for name in self.bounds.region.ranges:
            rows = walk.inputs.get(name)
            columns = self.inputs.get(name)
            if rows is None:
                if columns is not None:
                    cube.append(constant.new_zeros(len(constant), len(columns)))
                continue
            middle, reach = (end.flatten() for end in midpoint(*self.bounds.region.ends(name)))
            constant = constant + rows @ middle
            scale = scale + rows.abs() @ (middle.abs() + reach)
            if columns is not None:
                cube.append(rows[:, columns] * reach[columns])
                reach = reach.index_fill(0, columns, 0.0)
            radius = radius + rows.abs() @ reach
        for name, gap in self.gaps.items():
            loose = self._loose(name)
            rows = walk.activations.get(name)
            if rows is None:
                cube.append(constant.new_zeros(len(constant), int(loose.sum())))
                continue
            half = rows * (0.5 * gap)
            constant = constant + half.sum(1)
            scale = scale + half.abs().sum(1)
            radius = radius + half[:, ~loose].abs().sum(1)
            cube.append(half[:, loose])
        whole = torch.cat(cube, dim=1) if cube else constant.new_zeros(len(constant), 0)
        terms = sum(r.lower[0].numel() for r in self.bounds.region.ranges.values())
        terms += sum(len(gap) for gap in self.gaps.values()) + 32
        radius = radius * (1 + 1e-9) + 4 * gamma(terms) * 1.01 * scale + terms * TINY
        return Rows(
            whole,
            self._columns(walk, self.first),
            self._columns(walk, self.second),
            constant,
            radius,
        )

    def _columns(self, walk: _UpwardPass, nodes: list[Node]) -> Tensor:
        """What the walk brought to the own units of some activations."""
        pieces = [walk.constant.new_zeros(len(walk.constant), 0)]
        for node in nodes:
            own = self.own[node.name]
            rows = walk.activations.get(node.name)
            empty = walk.constant.new_zeros(len(walk.constant), int(own.sum()))
            pieces.append(empty if rows is None else rows[:, own])
        return torch.cat(pieces, dim=1)
