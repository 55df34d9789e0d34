"""Parts of the rows of a condensed problem, and their bounds.

A part is where some units have fixed signs. Its bound is whatever the multipliers chosen for it
certify, raised by the layers further down (``chain``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.hull.ascent import Ascent, Start
from provable_circuits.verify.hull.certificate import Multipliers, Signs, certify
from provable_circuits.verify.hull.chain import Chain
from provable_circuits.verify.hull.condensed import Condensed, Rows
from provable_circuits.verify.hull.transport import MOST_ENTRIES

ROOT_STEPS, ROOT_ROUNDS = 40, 3
PART_STEPS, PART_ROUNDS = 12, 2
CHAIN_STEPS = 10

LEAST = 1e-9
"""The score of an open unit that costs nothing now, so that it still counts as open."""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Parts, k of them; units are those of the second layer and then those of the first.

    Attributes:
        row: which row each belongs to, [k].
        signs: +1 and -1 where a unit's input is nonnegative or nonpositive, else 0; [k, units].
        second: multipliers chosen, [k, second units].
        slopes: slopes chosen, [k, first units].
        first: multipliers chosen, [k, first units].
        value: rigorous bounds, [k].
        scores: what settling each unit promises, zero where it is settled; [k, units].
    """

    row: Tensor
    signs: Tensor
    second: Tensor
    slopes: Tensor
    first: Tensor
    value: Tensor
    scores: Tensor

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Tensor | slice) -> Parts:
        return Parts(*(getattr(self, field.name)[index] for field in fields(self)))

    @staticmethod
    def joined(several: Sequence[Parts]) -> Parts:
        """All parts of several batches."""
        return Parts(
            *(torch.cat([getattr(parts, f.name) for parts in several]) for f in fields(Parts))
        )

    @property
    def known(self) -> Signs:
        """The signs by layer."""
        count = self.second.shape[1]
        return Signs(self.signs[:, count:], self.signs[:, :count])

    def split(self) -> Parts:
        """Two children of each, at the unit that promises most."""
        units = self.scores.argmax(1)
        children = Parts.joined([self, self])
        place = torch.arange(len(self), device=units.device)
        children.signs[place, units] = 1.0
        children.signs[len(self) + place, units] = -1.0
        return children


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """What bounding parts has shown.

    Attributes:
        closed: the bounds of those that are closed.
        left: the others.
        cube: the coefficients of the cube behind the bounds of those.
    """

    closed: Tensor
    left: Parts
    cube: Tensor


class PartBounds:
    """Bounds parts of the rows of one condensed problem."""

    def __init__(
        self, problem: Condensed, chain: Chain, dtype: torch.dtype, deadline: Deadline
    ) -> None:
        self.problem = problem
        self.chain = chain
        self.ascent = Ascent(problem, dtype, deadline)
        self.width = max(1, MOST_ENTRIES // max(problem.sparse.values.numel(), 1))

    def roots(self) -> Bounded:
        """Every row whole."""
        problem = self.problem
        goal = problem.goal
        second = (problem.lower >= 0).double() - (problem.upper <= 0).double()
        signs = torch.cat([second, torch.zeros_like(problem.top)]).expand(len(goal), -1)
        known = Signs(signs[:, len(second) :], signs[:, : len(second)])
        start = self.ascent.fresh(known, goal.second)
        parts = Parts(
            row=torch.arange(len(goal), device=signs.device),
            signs=signs,
            second=start.second,
            slopes=start.slopes,
            first=start.first,
            value=goal.constant.new_full((len(goal),), -math.inf),
            scores=torch.zeros_like(signs),
        )
        return self._bounded(parts, ROOT_STEPS, ROOT_ROUNDS)

    def children(self, parts: Parts) -> Bounded:
        """Both halves of every part."""
        return self._bounded(parts.split(), PART_STEPS, PART_ROUNDS)

    def _bounded(self, parts: Parts, steps: int, rounds: int) -> Bounded:
        found = [
            self._batch(parts[some], steps, rounds)
            for some in torch.arange(len(parts), device=parts.row.device).split(self.width)
        ]
        return Bounded(
            torch.cat([batch.closed for batch in found]),
            Parts.joined([batch.left for batch in found]),
            torch.cat([batch.cube for batch in found]),
        )

    def _batch(self, parts: Parts, steps: int, rounds: int) -> Bounded:
        goal = self.problem.goal[parts.row]
        start = Start(parts.second, parts.slopes, parts.first)
        chosen = self.ascent.choose(goal, parts.known, start, steps, rounds, least=0.0)
        found = certify(self.problem, goal, parts.known, chosen)
        scores = self._scores(goal, parts, chosen, found.cube)
        found = self.chain.raised(found, self.problem.inputs, CHAIN_STEPS, rounds)
        learnt = Parts(
            row=parts.row,
            signs=parts.signs,
            second=chosen.second,
            slopes=chosen.slopes,
            first=chosen.first,
            value=found.value,
            scores=torch.where(parts.signs == 0, scores.clamp_min(LEAST), 0.0),
        )
        done = found.value >= 0
        return Bounded(found.value[done], learnt[~done], found.cube[~done])

    def _scores(self, goal: Rows, parts: Parts, chosen: Multipliers, cube: Tensor) -> Tensor:
        """What the relaxation of each unit costs, at the corner that is worst or at all."""
        problem = self.problem
        first, second, sparse = problem.first, problem.second, problem.sparse
        corner = -cube.sign()
        read = corner @ first.cube.T + first.constant
        given = read.clamp_min(0.0)

        rows = goal.first + chosen.second @ second.first
        weight = (-rows).clamp_min(0.0)
        lines = chosen.lines.double()
        most = (weight.unsqueeze(2) * sparse.values + lines).abs().sum(2)
        height = torch.maximum(lines.abs().sum(2), most + weight * first.constant)
        padded = torch.cat([corner, corner.new_zeros(len(corner), 1)], dim=1)
        above = height - (padded[:, sparse.columns] * lines).sum(2) - weight * given
        below = rows * given - chosen.slopes * rows * read
        firsts = torch.where(rows < 0, above, below)

        weights, lower, upper = goal.second, problem.lower, problem.upper
        read = corner @ second.cube.T + given @ second.first.T + second.constant
        hinge = (-lower * upper / (upper - lower)).nan_to_num(0.0)
        below = weights * read.clamp_min(0.0) - chosen.second * read
        below = torch.maximum(below, 0.1 * weights * torch.minimum(upper, -lower))
        seconds = torch.where(weights < 0, -weights * hinge, below)
        return torch.cat([seconds, firsts], dim=1)
