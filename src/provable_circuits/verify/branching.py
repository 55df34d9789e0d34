"""Branch and bound: split the open ReLUs of problems until every part is proved or one breaks.

A part is the set of inputs on which some ReLU inputs have fixed signs. Its two children fix one
more unit. A part is done when the rigorous bound of its row is nonnegative, or when its enclosures
contradict each other, so that it is empty. Parts are bounded in batches; a child inherits its
parent's enclosures, slopes and multipliers. All open rows of all inputs of a question are searched
together, as so many roots. Where all units are settled the part is a linear program, whose duals
close it (``leaf``). With a piecewise-linear network the search ends, up to rounding at the
threshold: there are finitely many parts.

Every bound also points to a corner of the region, which is tried as a candidate witness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from provable_circuits.verify.bounds import Bounds, Structure
from provable_circuits.verify.costs import relaxation_costs
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.leaf import solve_leaf
from provable_circuits.verify.region import Region
from provable_circuits.verify.relaxation import leak
from provable_circuits.verify.slopes import Choice, optimise

Try = Callable[[Mapping[str, Tensor], Tensor], bool]
"""Tries candidate points [n, *shape], by input, of problems [n]; true when one was a witness."""

SMALL = 600
"""Up to this many activation units, enclosures are computed anew in every part."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Parts, n of them, each a row of every tensor. Units are counted over all ReLUs, in order.

    Attributes:
        root: which root each descends from, [n].
        lower, upper: enclosures of every unit's input, [n, units].
        signs: +1 and -1 where a unit's input was fixed to be nonnegative or nonpositive, else 0.
        slopes: the lower slopes chosen.
        duals: the multipliers chosen, nonnegative, zero where nothing was fixed.
        value: the bound so far, [n].
        scores: how much each open unit's relaxation costs the bound, zero where it is settled.
    """

    root: Tensor
    lower: Tensor
    upper: Tensor
    signs: Tensor
    slopes: Tensor
    duals: Tensor
    value: Tensor
    scores: Tensor

    def __len__(self) -> int:
        return len(self.root)

    def __getitem__(self, index: Tensor | slice) -> Parts:
        return Parts(*(getattr(self, field.name)[index] for field in fields(self)))

    @staticmethod
    def joined(several: Sequence[Parts]) -> Parts:
        """All parts of several batches."""
        return Parts(
            *(torch.cat([getattr(parts, f.name) for parts in several]) for f in fields(Parts))
        )

    def split(self, parents: Tensor, units: Tensor) -> Parts:
        """Two children for each parent and unit, nonnegative first: 2 n parts."""
        twice = parents.repeat_interleave(2)
        unit = units.repeat_interleave(2)
        children = self[twice]
        place = torch.arange(len(twice))
        sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(len(parents))
        children.signs[place, unit] = sign
        lower, upper = children.lower[place, unit], children.upper[place, unit]
        children.lower[place, unit] = torch.where(sign > 0, lower.clamp_min(0.0), lower)
        children.upper[place, unit] = torch.where(sign < 0, upper.clamp_max(0.0), upper)
        return children


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
        self.smooth = [n for n in structure.activations if leak(structure.ops[n.name]) is None]
        self.sizes = [math.prod(node.shape) for node in self.kinked]
        self.small = sum(self.sizes) <= SMALL
        self.steps = 6 if self.small else 12
        self.candidates = 12 if self.small else 8
        self.width = max(1, min(256 if self.small else 16, 2**21 // max(structure.largest, 1)))
        self.room = max(1, min(4096, 2**21 // max(structure.largest, 1)))
        self.guide = torch.float32 if structure.single else torch.float64
        self.parts = 0

    def run(self, choice: Choice) -> Outcome:
        """Search from the roots, with the slopes already chosen for them."""
        queue = self._survivors(self._root_parts(), self.roots.bounds, choice)
        while len(queue):
            self.deadline.check()
            order = queue.value.argsort()
            batch, queue = queue[order[: self.width]], queue[order[self.width :]]
            open_ = (batch.scores > 0).any(1)
            for i in (~open_).nonzero().flatten().tolist():
                status = self._leaf(batch[i : i + 1])
                if status != "proved":
                    return Outcome(status, self.parts)
            if bool(open_.any()):
                survivors = self._bound(self._best_split(batch[open_]))
                if survivors is None:
                    return Outcome("refuted", self.parts)
                queue = Parts.joined([queue, *survivors])
        return Outcome("proved", self.parts)

    # --- units and tensors -----------------------------------------------------------------------

    def _flat(self, tensors: Mapping[str, Tensor], count: int) -> Tensor:
        """Tensors by activation as [parts, units]; zero for an activation that is not there."""
        pieces = [
            tensors[node.name].detach().expand(count, *node.shape).flatten(1)
            if node.name in tensors
            else torch.zeros(count, size, dtype=torch.float64)
            for node, size in zip(self.kinked, self.sizes, strict=True)
        ]
        return torch.cat(pieces, dim=1) if pieces else torch.zeros(count, 0, dtype=torch.float64)

    def _by_node(self, units: Tensor) -> dict[str, Tensor]:
        """[parts, units] as tensors by activation."""
        return {
            node.name: piece.unflatten(1, node.shape)
            for node, piece in zip(self.kinked, units.split(self.sizes, dim=1), strict=True)
        }

    def _root_parts(self) -> Parts:
        count = len(self.roots.problems)
        ends = {n.name: self.roots.bounds.ends[n.inputs[0]] for n in self.kinked}
        lower = self._flat({name: pair[0] for name, pair in ends.items()}, count)
        upper = self._flat({name: pair[1] for name, pair in ends.items()}, count)
        zero = torch.zeros_like(lower)
        none = torch.zeros(count, dtype=torch.float64)
        return Parts(torch.arange(count), lower, upper, zero, zero, zero, none, zero)

    def _enclose(self, parts: Parts, refine: bool) -> Bounds:
        """Enclosures of every tensor of the parts, within what they inherit."""
        lower, upper = self._by_node(parts.lower), self._by_node(parts.upper)
        prior = {n.inputs[0]: (lower[n.name], upper[n.name]) for n in self.kinked}
        for node in self.smooth:
            ends = self.roots.bounds.ends[node.inputs[0]]
            prior[node.inputs[0]] = (
                ends
                if len(ends[0]) == 1
                else (
                    ends[0][parts.root],
                    ends[1][parts.root],
                )
            )
        region = self.region.select(self.roots.problems[parts.root])
        bounds = Bounds(self.structure, region, len(parts), prior=prior, deadline=self.deadline)
        bounds.compute(refine)
        return bounds

    def _signed(self, parts: Parts, dtype: torch.dtype) -> dict[str, Tensor]:
        """Multipliers as a backward pass takes them, where there are any."""
        found = {}
        for name, value in self._by_node(parts.signs * parts.duals).items():
            if bool(value.any()):
                found[name] = value.unsqueeze(1).to(dtype)
        return found

    # --- bounding and splitting ------------------------------------------------------------------

    def _survivors(self, parts: Parts, bounds: Bounds, choice: Choice) -> Parts:
        """The parts whose bound does not reach, with what was learnt about them."""
        offsets = self.roots.offsets[parts.root]
        value = choice.found.value[:, 0]
        done = (value + offsets - _slip(value, offsets) >= 0) | bounds.empty()
        left = (~done).nonzero().flatten()
        count = len(parts)
        ends = {node.name: bounds.ends[node.inputs[0]] for node in self.kinked}
        learnt = Parts(
            root=parts.root,
            lower=self._flat({name: pair[0] for name, pair in ends.items()}, count),
            upper=self._flat({name: pair[1] for name, pair in ends.items()}, count),
            signs=parts.signs,
            slopes=self._flat(choice.slopes, count),
            duals=self._flat(choice.multipliers, count),
            value=value + offsets,
            scores=self._scores(bounds, choice),
        )
        return learnt[left]

    def _scores(self, bounds: Bounds, choice: Choice) -> Tensor:
        """How much each unit's relaxation costs the bound, zero where it is settled."""
        costs = relaxation_costs(bounds, choice.found, choice.slopes)
        return self._flat({name: cost[:, 0] for name, cost in costs.items()}, bounds.problems)

    def _best_split(self, parts: Parts) -> Parts:
        """The children of each part at the unit that promises most.

        The costliest units of each part are tried with one backward pass, at the slopes and
        multipliers of their parent, and the one whose worse child is best is taken. This costs a
        pass over many rows and saves most of the tree.
        """
        count = min(self.candidates, parts.scores.shape[1])
        best = parts.scores.topk(count, dim=1)
        parents = torch.arange(len(parts)).repeat_interleave(count)
        units = best.indices.flatten()
        real = (best.values > 0).flatten()
        if count > 1:
            tried = real.nonzero().flatten()
            promise = torch.full((len(parents),), -math.inf, dtype=torch.float64)
            for some in tried.split(max(1, self.room // 2)):
                children = parts.split(parents[some], units[some])
                value = (
                    self._enclose(children, refine=False)
                    .backward(
                        self.start,
                        self.roots.rows[children.root].to(self.guide),
                        slopes=self._by_node(children.slopes),
                        multipliers=self._signed(children, self.guide),
                        rigorous=False,
                    )
                    .value[:, 0]
                )
                sides = (
                    (value + self.roots.offsets[children.root]).clamp_max(0.0).unflatten(0, (-1, 2))
                )
                promise[some] = sides.amin(1) + 1e-3 * sides.amax(1)
            chosen = promise.unflatten(0, (-1, count)).argmax(1)
            units = best.indices.gather(1, chosen.unsqueeze(1)).flatten()
        return parts.split(torch.arange(len(parts)), units)

    def _bound(self, parts: Parts) -> list[Parts] | None:
        """Bound the parts; those still open, or None when a witness was found."""
        self.parts += len(parts)
        survivors: list[Parts] = []
        for some in torch.arange(len(parts)).split(self.width):
            batch = parts[some]
            bounds = self._enclose(batch, refine=self.small)
            signs = {n: v for n, v in self._by_node(batch.signs).items() if bool(v.any())}
            duals = self._by_node(batch.duals)
            choice = optimise(
                bounds,
                self.start,
                self.roots.rows[batch.root],
                self.roots.offsets[batch.root],
                self._by_node(batch.slopes),
                signs,
                {name: duals[name] for name in signs},
                self.steps,
            )
            left = self._survivors(batch, bounds, choice)
            if not len(left):
                continue
            low = (
                (choice.found.value[:, 0] + self.roots.offsets[batch.root] < 0).nonzero().flatten()
            )
            corners = {
                name: bounds.region.corner(name, reached[:, 0].double())[low]
                for name, reached in choice.found.inputs.items()
            }
            if self.attempt(corners, self.roots.problems[batch.root[low]]):
                return None
            survivors.append(left)
        return survivors

    def _leaf(self, part: Parts) -> str:
        """Close a part without open units: proved, refuted or close."""
        bounds = self._enclose(part, refine=self.small)
        rows, offsets = self.roots.rows[part.root], self.roots.offsets[part.root]
        signs = {n: v for n, v in self._by_node(part.signs).items() if bool(v.any())}
        answer = solve_leaf(bounds, self.start, rows, signs, self.deadline.left)
        if answer.point is not None and self.attempt(answer.point, self.roots.problems[part.root]):
            return "refuted"
        signed = {n: (signs[n] * d).unsqueeze(1) for n, d in answer.multipliers.items()}
        value = bounds.backward(self.start, rows, multipliers=signed).value[:, 0]
        done = value + offsets - _slip(value, offsets) >= 0
        if bool((done | bounds.empty()).all()):
            return "proved"
        self.deadline.check()
        return "close"


def _slip(value: Tensor, offset: Tensor) -> Tensor:
    """How far the rounding of ``value + offset`` can reach."""
    return (value.abs() + offset.abs()) * 2.0**-52
