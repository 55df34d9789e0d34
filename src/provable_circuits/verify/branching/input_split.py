"""Input split: cut the ranges of few inputs in two until every subdomain is bounded well enough.

Some functions have no two pieces to split: sigmoid, tanh, the square in the 2-norm; and the corners
of a 2-ball are none. As boxes shrink their bounds become exact all the same, so where few numbers
range, boxes are halved across the input that the bound depends on most. The halves share the cut
exactly, so that together they are the box. Boxes that lie outside of the ball are dropped.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.root_problems import (
    RootProblems,
    RootSearch,
    Try,
    rounding_slack,
)
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.query import InputRange
from provable_circuits.verify.outcome import Outcome


class InputSplit(RootSearch):
    """Decides rows by input splits where their inputs range."""

    def __init__(self, roots: RootProblems, attempt: Try, deadline: Deadline) -> None:
        super().__init__(roots, attempt, deadline)
        ranges = self.region.ranges
        self.names = list(ranges)
        self.shapes = {name: ranges[name].lower.shape[1:] for name in self.names}
        self.counts = [math.prod(shape) for shape in self.shapes.values()]
        self.tuning = tuning = self.structure.configuration.branching
        room = tuning.batch_elements // max(self.structure.largest, 1)
        self.width = max(1, min(tuning.box_width, room))

    def run(self) -> str:
        """``proved``, ``refuted``, or ``open`` where splitting is not for these inputs."""
        ranges = self.region.ranges
        if not self.names:
            return Outcome.OPEN
        lower = torch.cat([ranges[n].lower.flatten(1) for n in self.names], dim=1)
        upper = torch.cat([ranges[n].upper.flatten(1) for n in self.names], dim=1)
        # Values folded at a point range over their rounding alone: splitting those is of no use.
        wide = (upper - lower) > 1e-9 * (1 + torch.maximum(lower.abs(), upper.abs()))
        if int(wide.sum(1).max()) > self.tuning.few_inputs:
            return Outcome.OPEN
        root = torch.arange(len(lower), device=lower.device)
        while len(root):
            some, rest = slice(-self.width, None), slice(None, -self.width)
            part = root[some], lower[some], upper[some]
            root, lower, upper = root[rest], lower[rest], upper[rest]
            self.deadline.spend(len(part[0]))
            left = self._bound(*part)
            if left is None:
                return Outcome.REFUTED
            halves = self._halve(*left)
            if halves is None:
                return Outcome.OPEN
            root = torch.cat([root, halves[0]])
            lower, upper = torch.cat([lower, halves[1]]), torch.cat([upper, halves[2]])
        return Outcome.PROVED

    def _bound(
        self, root: Tensor, lower: Tensor, upper: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """What is left of some boxes, and how their bounds depend on inputs; None for a witness."""
        region = self._region(root, lower, upper)
        bounds = Bounds(self.structure, region, len(root), deadline=self.deadline)
        bounds.compute()
        found = bounds.backward(self.start, self.roots.rows[root])
        value, offsets = found.value[:, 0], self.roots.offsets[root]
        low = ~(value + offsets - rounding_slack(value, offsets) >= 0)
        left = (low & ~region.empty()).nonzero().flatten()
        if not len(left):
            return root[left], lower[left], upper[left], lower[left]
        corners = {
            name: region.corner(name, rows[:, 0])[left] for name, rows in found.inputs.items()
        }
        if self.attempt(corners, self.roots.problems[root[left]]):
            return None
        alpha = torch.cat(
            [
                found.inputs[name][:, 0].flatten(1)
                if name in found.inputs
                else lower.new_zeros(len(root), count)
                for name, count in zip(self.names, self.counts, strict=True)
            ],
            dim=1,
        )
        return root[left], lower[left], upper[left], alpha[left]

    def _region(self, root: Tensor, lower: Tensor, upper: Tensor) -> Region:
        ranges = {}
        lows, highs = lower.split(self.counts, 1), upper.split(self.counts, 1)
        for name, low, high in zip(self.names, lows, highs, strict=True):
            domains = self.region.ranges[name].domains
            ranges[name] = InputRange(
                low.unflatten(1, self.shapes[name]),
                high.unflatten(1, self.shapes[name]),
                None if domains is None else tuple(domains[i] for i in root.tolist()),
            )
        return Region(ranges, self.region.few_boxes)

    @staticmethod
    def _halve(
        root: Tensor, lower: Tensor, upper: Tensor, alpha: Tensor
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Both halves of each box; None where one is a single point."""
        place = ((alpha.abs() + 1e-9) * (upper - lower)).argmax(1, keepdim=True)
        low, high = lower.gather(1, place), upper.gather(1, place)
        middle = low + (high - low) * 0.5
        if not bool(((low < middle) & (middle < high)).all()):
            return None
        below, above = upper.scatter(1, place, middle), lower.scatter(1, place, middle)
        return root.repeat(2), torch.cat([lower, above]), torch.cat([below, upper])
