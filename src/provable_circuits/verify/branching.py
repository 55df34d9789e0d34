"""Branch and bound: split the open ReLUs of one problem until every part is proved or one breaks.

A part is the set of inputs on which some ReLU inputs have fixed signs. Its two children fix one more
unit. A part is done when the rigorous bound of its row is nonnegative, or when its enclosures
contradict each other, so that it is empty. Parts are bounded in batches; a child inherits its
parent's enclosures, slopes and multipliers. Where all units are settled the part is a linear
program, whose duals close it (``leaf``). With a piecewise-linear network the search ends, up to
rounding at the threshold: there are finitely many parts.

Every bound also points to a corner of the region, which is tried as a candidate witness.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from provable_circuits.rounding import Interval
from provable_circuits.verify.bounds import Bounds, Structure
from provable_circuits.verify.leaf import solve_leaf
from provable_circuits.verify.region import Region
from provable_circuits.verify.relaxation import leak
from provable_circuits.verify.slopes import Choice, optimise

Try = Callable[[Mapping[str, Tensor]], bool]
"""Tries candidate points [n, *shape] by input; true when one of them was a witness."""

SMALL = 600
"""Up to this many activation units, enclosures are computed anew in every part."""


@dataclass(slots=True, eq=False)
class Part:
    """One part: enclosures of what activations read, signs, slopes, multipliers; all [*shape]."""

    ends: dict[str, Interval]
    signs: dict[str, Tensor]
    slopes: dict[str, Tensor]
    multipliers: dict[str, Tensor]
    value: float
    scores: Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """``status`` is proved, refuted, time or close; ``parts`` how many were bounded."""

    status: str
    parts: int
    bound: float


class BranchAndBound:
    """Decides one row of one problem."""

    def __init__(
        self,
        structure: Structure,
        region: Region,
        root: Bounds,
        start: str,
        row: Tensor,
        offset: Tensor,
        attempt: Try,
        deadline: float,
    ) -> None:
        self.structure = structure
        self.region = region
        self.start = start
        self.row = row
        self.offset = offset
        self.attempt = attempt
        self.deadline = deadline
        self.root = root
        self.kinked = [n for n in structure.activations if leak(structure.ops[n.name]) is not None]
        units = sum(math.prod(node.shape) for node in structure.activations)
        self.small = units <= SMALL
        self.steps = 6 if self.small else 12
        room = max(1, 2**22 // max(structure.largest, 1))
        self.width = min(256 if self.small else 32, room)
        self.parts = 0
        self.sizes = [math.prod(node.shape) for node in self.kinked]

    def run(self, choice: Choice) -> Outcome:
        """Search from the root, starting with the slopes already chosen for it."""
        queue = [self._root_part(choice)]
        while queue:
            if time.monotonic() > self.deadline:
                return Outcome("time", self.parts, min(part.value for part in queue))
            queue.sort(key=lambda part: part.value, reverse=True)
            levels = max(1, min(4, int(math.log2(max(1, self.width // max(1, len(queue)))))))
            batch = [queue.pop() for _ in range(min(len(queue), max(1, self.width >> levels)))]
            leaves = [part for part in batch if not bool((part.scores > 0).any())]
            for part in leaves:
                status = self._leaf(part)
                if status != "proved":
                    return Outcome(status, self.parts, part.value)
            children = [
                child
                for part in batch
                if bool((part.scores > 0).any())
                for child in self._split(part, levels if self.small else 1)
            ]
            if children:
                survivors = self._bound(children)
                if survivors is None:
                    return Outcome("refuted", self.parts, -math.inf)
                queue.extend(survivors)
        return Outcome("proved", self.parts, 0.0)

    def _root_part(self, choice: Choice) -> Part:
        ends = {}
        for node in self.structure.activations:
            source = node.inputs[0]
            lower, upper = self.root.ends[source]
            ends[source] = (lower[0], upper[0])
        part = Part(
            ends=ends,
            signs={},
            slopes={name: value[0] for name, value in choice.slopes.items()},
            multipliers={},
            value=float(choice.found.value[0, 0] + self.offset),
        )
        part.scores = self._scores(self.root, choice)[0]
        return part

    def _scores(self, bounds: Bounds, choice: Choice) -> Tensor:
        """How much each unit's relaxation costs the bound, zero where it is settled: [parts, units]."""
        scores = []
        for node in self.kinked:
            lower, upper = bounds.ends[node.inputs[0]]
            rows = choice.found.activations.get(node.name)
            if rows is None:
                scores.append(lower.new_zeros(bounds.problems, math.prod(node.shape)))
                continue
            rows = rows[:, 0]
            open_ = (lower < 0) & (upper > 0)
            slope = choice.slopes.get(node.name, torch.zeros_like(lower)).detach()
            hinge = (-lower * upper / (upper - lower)).nan_to_num(0.0)
            above = (-rows).clamp_min(0.0) * hinge
            below = rows.clamp_min(0.0) * torch.maximum(-slope * lower, (1 - slope) * upper)
            score = torch.where(open_, above + below + 1e-9, torch.zeros_like(lower))
            scores.append(score.expand(bounds.problems, *node.shape).flatten(1))
        return torch.cat(scores, dim=1) if scores else torch.zeros(bounds.problems, 0)

    def _split(self, part: Part, levels: int) -> list[Part]:
        """The children of a part: both signs of its costliest units, ``levels`` of them at once."""
        count = int((part.scores > 0).sum())
        units = part.scores.topk(min(levels, count)).indices.tolist()
        parts = [part]
        for unit in units:
            parts = [child for parent in parts for child in self._children(parent, unit)]
        return parts

    def _children(self, part: Part, unit: int) -> list[Part]:
        for node, size in zip(self.kinked, self.sizes, strict=True):
            if unit < size:
                break
            unit -= size
        source = node.inputs[0]
        children = []
        for sign in (1.0, -1.0):
            lower, upper = (end.clone() for end in part.ends[source])
            signs = part.signs.get(node.name)
            signs = torch.zeros_like(lower) if signs is None else signs.clone()
            signs.view(-1)[unit] = sign
            if sign > 0:
                lower.view(-1)[unit] = lower.view(-1)[unit].clamp_min(0.0)
            else:
                upper.view(-1)[unit] = upper.view(-1)[unit].clamp_max(0.0)
            children.append(
                Part(
                    ends={**part.ends, source: (lower, upper)},
                    signs={**part.signs, node.name: signs},
                    slopes=part.slopes,
                    multipliers=part.multipliers,
                    value=part.value,
                )
            )
        return children

    def _stack(self, parts: list[Part]) -> tuple[Bounds, dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        """Parts as one batch of problems: bounds, slopes, signs, multipliers."""
        ends = {
            source: (
                torch.stack([part.ends[source][0] for part in parts]),
                torch.stack([part.ends[source][1] for part in parts]),
            )
            for source in parts[0].ends
        }
        region = self.region.select(torch.zeros(len(parts), dtype=torch.long))
        bounds = Bounds(self.structure, region, len(parts), prior=ends)
        bounds.compute(refine=self.small)
        split = [node.name for node in self.kinked if any(node.name in p.signs for p in parts)]
        shapes = {node.name: node.shape for node in self.kinked}

        def gather(key: str, name: str) -> Tensor:
            stored = [getattr(part, key).get(name) for part in parts]
            zero = self.row.new_zeros(shapes[name])
            return torch.stack([zero if value is None else value for value in stored])

        slopes = {name: torch.stack([p.slopes[name] for p in parts]) for name in parts[0].slopes}
        signs = {name: gather("signs", name) for name in split}
        multipliers = {name: gather("multipliers", name) for name in split}
        return bounds, slopes, signs, multipliers

    def _bound(self, parts: list[Part]) -> list[Part] | None:
        """Bound the parts; those still open, or None when a witness was found."""
        self.parts += len(parts)
        bounds, slopes, signs, multipliers = self._stack(parts)
        rows = self.row.expand(len(parts), *self.row.shape[1:])
        choice = optimise(
            bounds, self.start, rows, self.offset, slopes, signs, multipliers, self.steps
        )
        value = choice.found.value[:, 0] + self.offset
        done = (value - _slip(choice.found.value[:, 0], self.offset) >= 0) | bounds.empty()
        if bool(done.all()):
            return []
        open_ = (~done).nonzero().flatten()
        corners = {
            name: bounds.region.corner(name, reached[:, 0])[open_]
            for name, reached in choice.found.inputs.items()
        }
        if self.attempt(corners):
            return None
        scores = self._scores(bounds, choice)
        survivors = []
        for i in open_.tolist():
            part = parts[i]
            survivors.append(
                Part(
                    ends={s: (bounds.ends[s][0][i], bounds.ends[s][1][i]) for s in part.ends},
                    signs=part.signs,
                    slopes={name: v[i].detach() for name, v in choice.slopes.items()},
                    multipliers={name: v[i].detach() for name, v in choice.multipliers.items()},
                    value=float(value[i]),
                    scores=scores[i],
                )
            )
        return survivors

    def _leaf(self, part: Part) -> str:
        """Close a part without open units: proved, refuted or close."""
        bounds, _, signs, _ = self._stack([part])
        left = self.deadline - time.monotonic()
        answer = solve_leaf(bounds, self.start, self.row, signs, left)
        if answer.point is not None and self.attempt(answer.point):
            return "refuted"
        found = bounds.backward(
            self.start,
            self.row,
            multipliers={n: (signs[n] * d).unsqueeze(1) for n, d in answer.multipliers.items()},
        )
        value = found.value[:, 0]
        proved = bool((value + self.offset - _slip(value, self.offset) >= 0).all())
        if proved or bool(bounds.empty().all()):
            return "proved"
        return "time" if time.monotonic() > self.deadline else "close"


def _slip(value: Tensor, offset: Tensor) -> Tensor:
    """How far the rounding of ``value + offset`` can reach."""
    return (value.abs() + offset.abs()) * 2.0**-52
