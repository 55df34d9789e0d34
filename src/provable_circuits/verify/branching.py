"""Branch and bound: split the open ReLUs of problems until every part is proved or one breaks.

A part is the set of inputs on which some ReLU inputs have fixed signs. Its two children fix one more
unit. A part is done when the rigorous bound of its row is nonnegative, or when its enclosures
contradict each other, so that it is empty. Parts are bounded in batches; a child inherits its
parent's enclosures, slopes and multipliers. All open rows of all inputs of a question are searched
together, as so many roots. Where all units are settled the part is a linear
program, whose duals close it (``leaf``). With a piecewise-linear network the search ends, up to
rounding at the threshold: there are finitely many parts.

Every bound also points to a corner of the region, which is tried as a candidate witness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from provable_circuits.rounding import Interval
from provable_circuits.verify.bounds import Bounds, Structure
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.leaf import solve_leaf
from provable_circuits.verify.region import Region
from provable_circuits.verify.relaxation import leak
from provable_circuits.verify.slopes import Choice, optimise

Try = Callable[[Mapping[str, Tensor], Tensor], bool]
"""Tries candidate points [n, *shape], by input, of problems [n]; true when one was a witness."""

SMALL = 600
"""Up to this many activation units, enclosures are computed anew in every part."""


@dataclass(slots=True, eq=False)
class Part:
    """One part: enclosures of what activations read, signs, slopes, multipliers; all [*shape].

    ``root`` says which root it descends from; ``value`` is its bound so far; ``scores`` tell how
    much each open unit's relaxation costs.
    """

    root: int
    ends: dict[str, Interval]
    signs: dict[str, Tensor]
    slopes: dict[str, Tensor]
    multipliers: dict[str, Tensor]
    value: float
    scores: Tensor

    @property
    def open_units(self) -> int:
        """How many units can still be split."""
        return int((self.scores > 0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Roots:
    """The rows to be decided, n of them.

    Attributes:
        bounds: enclosures for each, as a batch of n problems.
        problems: which of the query's inputs each belongs to, [n].
        rows: the rows, [n, 1, outputs].
        offsets: what is added to them, [n].
    """

    bounds: Bounds
    problems: Tensor
    rows: Tensor
    offsets: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """``status`` is proved, refuted or close; ``parts`` how many were bounded."""

    status: str
    parts: int


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Parts stacked as one batch of problems."""

    bounds: Bounds
    rows: Tensor
    offsets: Tensor
    problems: Tensor
    slopes: dict[str, Tensor]
    signs: dict[str, Tensor]
    multipliers: dict[str, Tensor]

    def signed(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Multipliers as a backward pass takes them."""
        return {
            name: (self.signs[name] * value).unsqueeze(1).to(dtype)
            for name, value in self.multipliers.items()
        }


class BranchAndBound:
    """Decides the rows of its roots."""

    def __init__(
        self,
        structure: Structure,
        region: Region,
        roots: Roots,
        start: str,
        attempt: Try,
        deadline: Deadline,
    ) -> None:
        self.structure = structure
        self.region = region
        self.roots = roots
        self.start = start
        self.attempt = attempt
        self.deadline = deadline
        self.kinked = [n for n in structure.activations if leak(structure.ops[n.name]) is not None]
        self.sizes = [math.prod(node.shape) for node in self.kinked]
        units = sum(math.prod(node.shape) for node in structure.activations)
        self.small = units <= SMALL
        self.steps = 6 if self.small else 12
        self.candidates = 12 if self.small else 8
        self.width = min(256 if self.small else 16, max(1, 2**21 // max(structure.largest, 1)))
        self.guide = torch.float32 if structure.single else torch.float64
        self.parts = 0

    def run(self, choice: Choice) -> Outcome:
        """Search from the roots, with the slopes already chosen for them."""
        queue = self._survivors(self._root_parts(), self.roots.bounds, choice)
        while queue:
            self.deadline.check()
            queue.sort(key=lambda part: part.value, reverse=True)
            batch = [queue.pop() for _ in range(min(len(queue), self.width))]
            for part in batch:
                if part.open_units == 0:
                    status = self._leaf(part)
                    if status != "proved":
                        return Outcome(status, self.parts)
            open_ = [part for part in batch if part.open_units]
            if open_:
                survivors = self._bound(self._best_split(open_))
                if survivors is None:
                    return Outcome("refuted", self.parts)
                queue.extend(survivors)
        return Outcome("proved", self.parts)

    def _root_parts(self) -> list[Part]:
        ends = self.roots.bounds.ends
        sources = [node.inputs[0] for node in self.structure.activations]
        return [
            Part(i, {s: _take(ends[s], i) for s in sources}, {}, {}, {}, 0.0, torch.empty(0))
            for i in range(len(self.roots.problems))
        ]

    def _survivors(self, parts: list[Part], bounds: Bounds, choice: Choice) -> list[Part]:
        """The parts whose bound does not reach, with what was learnt about them."""
        offsets = self.roots.offsets[[part.root for part in parts]]
        value = choice.found.value[:, 0]
        done = (value + offsets - _slip(value, offsets) >= 0) | bounds.empty()
        scores = self._scores(bounds, choice)
        return [
            Part(
                root=parts[i].root,
                ends={s: _take(bounds.ends[s], i) for s in parts[i].ends},
                signs=parts[i].signs,
                slopes={name: v[i].detach() for name, v in choice.slopes.items()},
                multipliers={name: v[i].detach() for name, v in choice.multipliers.items()},
                value=float(value[i] + offsets[i]),
                scores=scores[i],
            )
            for i in (~done).nonzero().flatten().tolist()
        ]

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

    def _best_split(self, parts: list[Part]) -> list[Part]:
        """The children of each part at the unit that promises most.

        The costliest units of each part are tried with one backward pass, at the slopes and
        multipliers of their parent, and the one whose worse child is best is taken. This costs a
        pass over many rows and saves most of the tree.
        """
        tries: list[int] = []
        children: list[Part] = []
        for i, part in enumerate(parts):
            count = min(self.candidates, part.open_units)
            for unit in part.scores.topk(count).indices.tolist():
                tries.append(i)
                children.extend(self._children(part, unit))
        if len(tries) == len(parts):
            return children
        promises: list[float] = []
        room = max(2, 2 * (2**21 // max(self.structure.largest, 1) // 2))
        for first in range(0, len(children), room):
            some = self._stack(children[first : first + room], refine=False)
            value = some.bounds.backward(
                self.start,
                some.rows.to(self.guide),
                slopes=some.slopes,
                multipliers=some.signed(self.guide),
                rigorous=False,
            ).value[:, 0]
            sides = (value + some.offsets).clamp_max(0.0).unflatten(0, (-1, 2))
            promises.extend((sides.amin(1) + 1e-3 * sides.amax(1)).tolist())
        best: dict[int, int] = {}
        for n, i in enumerate(tries):
            if i not in best or promises[n] > promises[best[i]]:
                best[i] = n
        return [children[2 * n + side] for n in best.values() for side in (0, 1)]

    def _children(self, part: Part, unit: int) -> list[Part]:
        """Both signs of one unit, counted over all ReLUs."""
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
                replace(
                    part,
                    ends={**part.ends, source: (lower, upper)},
                    signs={**part.signs, node.name: signs},
                )
            )
        return children

    def _stack(self, parts: list[Part], refine: bool) -> _Batch:
        """Parts as one batch of problems, enclosed anew within what they inherit."""
        index = torch.tensor([part.root for part in parts])
        problems = self.roots.problems[index]
        ends = {
            source: (
                torch.stack([part.ends[source][0] for part in parts]),
                torch.stack([part.ends[source][1] for part in parts]),
            )
            for source in parts[0].ends
        }
        bounds = Bounds(
            self.structure,
            self.region.select(problems),
            len(parts),
            prior=ends,
            deadline=self.deadline,
        )
        bounds.compute(refine)
        split = {node.name: node.shape for node in self.kinked if _any_split(node.name, parts)}

        def gather(held: list[dict[str, Tensor]], name: str) -> Tensor:
            zero = torch.zeros(split[name], dtype=torch.float64)
            return torch.stack([values.get(name, zero) for values in held])

        return _Batch(
            bounds=bounds,
            rows=self.roots.rows[index],
            offsets=self.roots.offsets[index],
            problems=problems,
            slopes={n: torch.stack([p.slopes[n] for p in parts]) for n in parts[0].slopes},
            signs={name: gather([p.signs for p in parts], name) for name in split},
            multipliers={name: gather([p.multipliers for p in parts], name) for name in split},
        )

    def _bound(self, parts: list[Part]) -> list[Part] | None:
        """Bound the parts; those still open, or None when a witness was found."""
        self.parts += len(parts)
        survivors: list[Part] = []
        for first in range(0, len(parts), self.width):
            some = parts[first : first + self.width]
            batch = self._stack(some, refine=self.small)
            choice = optimise(
                batch.bounds,
                self.start,
                batch.rows,
                batch.offsets,
                batch.slopes,
                batch.signs,
                batch.multipliers,
                self.steps,
            )
            left = self._survivors(some, batch.bounds, choice)
            if not left:
                continue
            value = choice.found.value[:, 0] + batch.offsets
            low = (value < 0).nonzero().flatten()
            corners = {
                name: batch.bounds.region.corner(name, reached[:, 0].double())[low]
                for name, reached in choice.found.inputs.items()
            }
            if self.attempt(corners, batch.problems[low]):
                return None
            survivors.extend(left)
        return survivors

    def _leaf(self, part: Part) -> str:
        """Close a part without open units: proved, refuted or close."""
        batch = self._stack([part], refine=self.small)
        answer = solve_leaf(batch.bounds, self.start, batch.rows, batch.signs, self.deadline.left)
        if answer.point is not None and self.attempt(answer.point, batch.problems):
            return "refuted"
        signed = replace(batch, multipliers=answer.multipliers).signed(torch.float64)
        value = batch.bounds.backward(self.start, batch.rows, multipliers=signed).value[:, 0]
        done = value + batch.offsets - _slip(value, batch.offsets) >= 0
        if bool((done | batch.bounds.empty()).all()):
            return "proved"
        self.deadline.check()
        return "close"


def _take(ends: Interval, i: int) -> Interval:
    """The ends of one problem; those of constants are the same for all."""
    lower, upper = ends
    i = i if len(lower) > 1 else 0
    return lower[i], upper[i]


def _any_split(name: str, parts: list[Part]) -> bool:
    return any(name in part.signs for part in parts)


def _slip(value: Tensor, offset: Tensor) -> Tensor:
    """How far the rounding of ``value + offset`` can reach."""
    return (value.abs() + offset.abs()) * 2.0**-52
