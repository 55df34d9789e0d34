"""Input split: cut the ranges of few inputs in two until every subdomain is bounded well enough.

    queue <- the box of every input of the batch, with its open clauses
    while there are boxes:
        take some; enclose the graph over each; bound every objective backward
        a clause is closed on a box when one of its objectives holds all over it
        try the corner to which the bounds of the worst clause point as a candidate
        halve each box that has open clauses across the input that its bounds depend on most

Some functions have no two pieces to split: sigmoid, tanh, the square in the 2-norm; and the corners
of a 2-ball are none. As boxes shrink their bounds become exact all the same, and objectives nearly
constant: where every clause holds by some margin, this ends. With five inputs it needs far fewer
subdomains than ReLU splits do, with fifty far more. The halves share the cut exactly, so that
together they are the box. Boxes that lie outside of a ball are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.root_problems import Try, rounding_slack
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.problem import InputRange, Problem
from provable_circuits.verify.outcome import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class _InputBoxes:
    """Some boxes: the input that each belongs to, its ends [n, numbers], its open clauses."""

    root: Tensor
    lower: Tensor
    upper: Tensor
    open: Tensor

    def __len__(self) -> int:
        return len(self.root)

    def __getitem__(self, some: slice | Tensor) -> _InputBoxes:
        return _InputBoxes(self.root[some], self.lower[some], self.upper[some], self.open[some])

    def joined(self, other: _InputBoxes) -> _InputBoxes:
        """These boxes and others."""
        return _InputBoxes(
            torch.cat([self.root, other.root]),
            torch.cat([self.lower, other.lower]),
            torch.cat([self.upper, other.upper]),
            torch.cat([self.open, other.open]),
        )

    def halved(self, influence: Tensor) -> _InputBoxes | None:
        """Both halves of each box, cut across what it depends on most; None if one is a point."""
        # Where the bounds depend on no input, the widest is halved.
        place = ((influence + 1e-9) * (self.upper - self.lower)).argmax(1, keepdim=True)
        low, high = self.lower.gather(1, place), self.upper.gather(1, place)
        middle = low + (high - low) * 0.5
        if not bool(((low < middle) & (middle < high)).all()):
            return None
        below, above = self.upper.scatter(1, place, middle), self.lower.scatter(1, place, middle)
        first = _InputBoxes(self.root, self.lower, below, self.open)
        return first.joined(_InputBoxes(self.root, above, self.upper, self.open))


class InputSplit:
    """Decides clauses by input splits. What is left open may be continued with ``run``.

    Args:
        problem: the problem.
        structure: the structure of its graph.
        region: where the inputs of its graph range.
        open_: the clauses to be decided, pairs [n, 2] of input and clause.
        attempt: tries candidate points.
        deadline: when to stop.
    """

    def __init__(
        self,
        problem: Problem,
        structure: Structure,
        region: Region,
        open_: Tensor,
        attempt: Try,
        deadline: Deadline,
    ) -> None:
        self.problem, self.structure, self.region = problem, structure, region
        self.attempt, self.deadline = attempt, deadline
        self.subdomains = 0
        """How many boxes were bounded."""
        self.names = list(region.ranges)
        self.shapes = {name: region.ranges[name].lower.shape[1:] for name in self.names}
        self.counts = [math.prod(shape) for shape in self.shapes.values()]
        self.tuning = tuning = structure.configuration.branching
        room = tuning.batch_elements // max(structure.largest * problem.rows.shape[1], 1)
        self.width = max(1, min(tuning.box_width, room))
        mask = torch.zeros(
            len(problem.rows), problem.clauses, dtype=torch.bool, device=open_.device
        )
        mask[open_[:, 0], open_[:, 1]] = True
        root = mask.any(1).nonzero().flatten()
        ends = [
            torch.cat([end[root].flatten(1) for end in side], dim=1)
            for side in zip(*(region.ends(name) for name in self.names), strict=True)
        ]
        self._queue = _InputBoxes(root, ends[0], ends[1], mask[root])

    @property
    def suits(self) -> bool:
        """Whether so few numbers range that splitting them pays."""
        lower, upper = self._queue.lower, self._queue.upper
        # Values folded at a point range over their rounding alone: splitting those is of no use.
        wide = (upper - lower) > 1e-9 * (1 + torch.maximum(lower.abs(), upper.abs()))
        return bool((wide.sum(1) <= self.tuning.few_inputs).all())

    @property
    def open(self) -> Tensor:
        """The clauses that some box leaves open, pairs [n, 2] of input and clause."""
        box, clause = self._queue.open.nonzero().T
        found: Tensor = torch.stack([self._queue.root[box], clause], dim=1).unique(dim=0)
        return found

    def run(self, most: float = math.inf) -> Outcome:
        """``proved``, ``refuted``, ``more`` after so many boxes; ``open`` where no split helps."""
        while len(self._queue):
            if self.subdomains > most:
                return Outcome.MORE
            taken, waiting = self._queue[-self.width :], self._queue[: -self.width]
            self.subdomains += len(taken)
            self.deadline.spend(len(taken))
            left, influence, refuted = self._bound(taken)
            if refuted:
                return Outcome.REFUTED
            if len(left):
                halves = None if influence is None else left.halved(influence)
                if halves is None:
                    self._queue = waiting.joined(left)
                    return Outcome.OPEN
                waiting = waiting.joined(halves)
            self._queue = waiting
        return Outcome.PROVED

    def _bound(self, boxes: _InputBoxes) -> tuple[_InputBoxes, Tensor | None, bool]:
        """What is left of some boxes, how their bounds depend on inputs, and whether refuted."""
        problem = self.problem
        region = self._region(boxes)
        bounds = Bounds(self.structure, region, len(boxes), deadline=self.deadline)
        bounds.compute()
        found = bounds.backward(problem.graph.outputs[0], -problem.rows[boxes.root])
        offsets = -problem.offsets[boxes.root]
        reached = found.value + offsets - rounding_slack(found.value, offsets)
        excess = problem.of_clauses(-reached)
        open_ = boxes.open & ~(excess <= 0)
        kept = (open_.any(1) & ~region.empty()).nonzero().flatten()
        left = _InputBoxes(boxes.root, boxes.lower, boxes.upper, open_)[kept]
        if not len(left) or not found.inputs:
            return left, None, False
        worst = excess[kept].masked_fill(~left.open, -math.inf).argmax(1)
        where = worst.unsqueeze(1) if problem.members is None else problem.members[worst]
        everyone = torch.arange(len(left), device=kept.device).unsqueeze(1)
        some = region.select(kept)
        corners = {
            name: some.corner(name, rows[kept][everyone, where].sum(1))
            for name, rows in found.inputs.items()
        }
        if self.attempt(corners, left.root):
            return left, None, True
        counts = self._counted(left.open)
        influence = torch.cat(
            [
                (found.inputs[name][kept].flatten(2).abs() * counts).sum(1)
                if name in found.inputs
                else left.lower.new_zeros(len(left), count)
                for name, count in zip(self.names, self.counts, strict=True)
            ],
            dim=1,
        )
        return left, influence, False

    def _counted(self, open_: Tensor) -> Tensor:
        """One for each objective of an open clause, [n, objectives, 1], zero for others."""
        members = self.problem.members
        if members is None:
            return open_.double().unsqueeze(2)
        counted = torch.zeros(
            len(open_), self.problem.rows.shape[1], dtype=torch.float64, device=open_.device
        )
        places = members.flatten().expand(len(open_), -1)
        given = open_.double().repeat_interleave(members.shape[1], dim=1)
        return counted.scatter_reduce(1, places, given, "amax").unsqueeze(2)

    def _region(self, boxes: _InputBoxes) -> Region:
        ranges = {}
        lows, highs = boxes.lower.split(self.counts, 1), boxes.upper.split(self.counts, 1)
        for name, low, high in zip(self.names, lows, highs, strict=True):
            domains = self.region.ranges[name].domains
            ranges[name] = InputRange(
                low.unflatten(1, self.shapes[name]),
                high.unflatten(1, self.shapes[name]),
                None if domains is None else tuple(domains[i] for i in boxes.root.tolist()),
            )
        return Region(ranges, self.region.few_boxes)
