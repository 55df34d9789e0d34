"""Relaxed problems: regions of inputs, known by the bounds of their unstable units.

A subdomain of a problem (some ReLU signs fixed) differs from the problem itself in the bounds of
unstable units and in nothing else, so its lines are the problem's but for those units. Enclosures
of other tensors are inherited: what contains a problem's values contains those of its subdomains.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from provable_circuits.network.ops import Constant, Input, LinearOp
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.crown import Pass, View
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.relaxation import Lines, piecewise_linear_lines
from provable_circuits.verify.bounding.unstable import UnstableUnits


class Relaxed:
    """Lines of a batch of problems or subdomains of them.

    Args:
        bounds: enclosures and lines of whole problems.
        units: their unstable units.
        index: which problem each row is a subdomain of, [n]; None for the problems themselves.
        region: where the inputs of each row range.
        lower, upper: the bounds [n, units] of what each row's units read.
    """

    def __init__(
        self,
        bounds: Bounds,
        units: UnstableUnits,
        index: Tensor | None,
        region: Region,
        lower: Tensor,
        upper: Tensor,
    ) -> None:
        self.bounds = bounds
        self.units = units
        self.index = index
        self.region = region
        self.lower, self.upper = lower, upper
        self.open = (lower < 0) & (upper > 0)
        self._line: Lines = piecewise_linear_lines(units.leaks, lower, upper)
        self._views: dict[torch.dtype, View] = {}

    @classmethod
    def whole(cls, bounds: Bounds, units: UnstableUnits) -> Relaxed:
        """The problems of some bounds themselves."""
        lower, upper = units.ends(bounds.ends, bounds.problems)
        return cls(bounds, units, None, bounds.region, lower, upper)

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def alpha(self) -> Tensor:
        """The lower slopes of the units by default, [n, units]."""
        return self._line.below_slope

    def coefficients(self, found: Pass) -> Tensor:
        """The first row that a pass brought to each unit's output, [n, units]."""
        rows = {name: value[:, 0] for name, value in found.activations.items()}
        return self.units.gather(rows, len(self)).double()

    def view(self, dtype: torch.dtype, alpha: Tensor | None = None) -> View:
        """What a backward pass needs; ``alpha`` replaces the lower slopes of unstable units.

        Slopes lie in [leak, 1]. Rounded to float32, as any factor of a row, they are off by what
        the error of a float32 pass allows for; in float64 they are used as they are.
        """
        if dtype not in self._views:
            self._views[dtype] = self._view(dtype)
        view = self._views[dtype]
        if alpha is None:
            return view
        chosen = torch.where(self.open, alpha, self._line.below_slope).to(dtype)
        lines = dict(view.lines)
        pieces = self.units.split(chosen)
        for node in self.units.nodes:
            line = lines[node.name]
            if not line.settled:
                below = self.units.put(node, pieces[node.name], line.below_slope)
                lines[node.name] = replace(line, below_slope=below)
        return replace(view, lines=lines)

    def _view(self, dtype: torch.dtype) -> View:
        whole = self.bounds.view(dtype)
        if self.index is None:
            return whole
        line = self._line.single() if dtype == torch.float32 else self._line
        below, above = self.units.split(line.below_slope), self.units.split(line.above_slope)
        offset = self.units.split(line.above_offset.expand(line.above_slope.shape))
        lines: dict[str, Lines] = {
            name: picked_lines(whole.lines[name], self.index)
            for name in whole.lines
            if name not in self.units.columns
        }
        for node in self.units.nodes:
            base = whole.lines[node.name].below_slope
            base = base[self.index] if len(base) > 1 else base.expand(len(self), *node.shape)
            slope = self.units.put(node, below[node.name], base)
            if not bool(offset[node.name].any()):
                lines[node.name] = Lines(slope, slope, None, slope.new_zeros(()), settled=True)
            else:
                over = self.units.put(node, above[node.name], base)
                high = self.units.put(node, offset[node.name])
                lines[node.name] = Lines(slope, over, None, high)
        ops = {name: op.select(self.index) for name, op in whole.ops.items()}
        return replace(whole, ops=ops, region=self.region, lines=lines)


def picked_lines(line: Lines, index: Tensor) -> Lines:
    """The lines of some problems; those of constants are the same for all."""

    def rows(value: Tensor) -> Tensor:
        return value[index] if value.ndim and len(value) > 1 else value

    below = None if line.below_offset is None else rows(line.below_offset)
    return replace(
        line,
        below_slope=rows(line.below_slope),
        above_slope=rows(line.above_slope),
        below_offset=below,
        above_offset=rows(line.above_offset),
    )


def relaxed_run(view: View, found: Pass) -> dict[str, Tensor]:
    """What activations read where a pass of one row a problem attains its value: [n, *shape].

    The pass chose a line for every unit, so it bounded a function that is affine from the inputs
    on. This runs that function at the corner of the region where it is least.
    """
    held: dict[str, Tensor] = {}
    read: dict[str, Tensor] = {}
    for node in view.graph.nodes:
        op = view.ops[node.name]
        if isinstance(op, Input):
            rows = found.inputs.get(node.name)
            if rows is not None:
                corner = view.region.corner(node.name, rows[:, 0].double())
                held[node.name] = corner.to(rows.dtype)
        elif isinstance(op, Constant):
            held[node.name] = op.forward()
        elif not all(name in held for name in node.inputs):
            continue
        elif isinstance(op, LinearOp):
            held[node.name] = op.forward(*(held[name] for name in node.inputs))
        elif node.name in found.activations:
            (source,) = node.inputs
            line = view.lines[node.name]
            read[node.name] = held[source]
            if line.settled:
                held[node.name] = held[source] * line.below_slope
                continue
            upward = found.activations[node.name][:, 0] >= 0
            slope = torch.where(upward, line.below_slope, line.above_slope)
            below = 0.0 if line.below_offset is None else line.below_offset
            offset = torch.where(upward, torch.as_tensor(below).to(slope), line.above_offset)
            held[node.name] = held[source] * slope + offset
    return read
