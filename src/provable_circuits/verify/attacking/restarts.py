"""Restarts: longer attacks during a search, from the points that its bounds suggest.

Every bound of a subdomain points to a corner where a violation would be. The best of these corners
are kept. Now and then an attack (``attack.ascend``) starts from them, from diverse points, and from
witnesses of other circuits, for all clauses that are asked about, in one batch.

The work is bounded by what the search has spent, by count and not by the clock, so that answers
under a limit in nodes are repeatable:

    attacks come when the search has bounded ``nodes_factor`` times as many nodes as at the last one
    gradients of all attacks <= rows passed backward by the search

and a gradient of one point costs a fraction of what a row costs that is passed backward through a
relaxation. Only the least attack, one start for each row, is made whatever was spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.verify.attacking.candidates import middles
from provable_circuits.verify.attacking.pgd import (
    Effort,
    ascend,
    diverse_starts,
    excess_at,
    gradients_of,
    rounds_of,
)
from provable_circuits.verify.bounding.bounds import Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.definition import Definition
from provable_circuits.verify.encoding.problem import Problem


class Restarts:
    """The longer attacks of one question.

    Args:
        effort: how hard they try.
        definition: the question, for witnesses of earlier ones.
        problem: the question as a problem.
        region: where the inputs of its graph range.
        structure: the structure of its graph.
        deadline: when to stop, and how many nodes were bounded.
    """

    def __init__(
        self,
        effort: Effort,
        definition: Definition[object],
        problem: Problem,
        region: Region,
        structure: Structure,
        deadline: Deadline,
    ) -> None:
        self._effort = effort
        self._definition = definition
        self._problem = problem
        self._region = region
        self._structure = structure
        self._deadline = deadline
        self._tuning = tuning = structure.configuration.attacking
        self._first = tuning.small_first_nodes if structure.small else tuning.first_nodes
        self._next = self._first
        self._attacks = 0
        self._rounds = rounds_of(effort.steps)
        shape = len(problem.rows), problem.clauses
        self.asked = torch.zeros(shape, dtype=torch.bool, device=structure.device)
        """The clauses that the search decides, [problems, clauses]."""
        self.passed = 0
        """Rows passed backward apart from those of nodes."""
        self.gradients = 0
        """Gradients taken so far."""
        self._points: dict[str, Tensor] = {}
        self._problems = torch.zeros(0, dtype=torch.long, device=structure.device)
        self._excess = torch.zeros(0, dtype=torch.float64, device=structure.device)

    @property
    def due(self) -> bool:
        """Whether the search has bounded so many nodes that an attack pays."""
        return self._deadline.spent >= self._next

    def suggest(self, points: Mapping[str, Tensor], problems: Tensor, excess: Tensor) -> None:
        """Keep the best of points [n, *shape] of problems [n], with excess [n, clauses].

        Neighbouring subdomains often point to the same corner: of points with the same excess one
        is kept.
        """
        worst = excess.masked_fill(~self.asked[problems], -math.inf).amax(1)
        least = self._excess[-1] if len(self._excess) == self._tuning.suggested else -math.inf
        new = (worst > least).nonzero().flatten()
        if not len(new):
            return
        joined = torch.cat([self._excess, worst[new]])
        ordered, order = joined.sort(descending=True, stable=True)
        other = torch.ones_like(ordered, dtype=torch.bool)
        other[1:] = ordered[1:] != ordered[:-1]
        kept = order[other][: self._tuning.suggested]
        self._excess = joined[kept]
        self._problems = torch.cat([self._problems, problems[new]])[kept]
        self._points = {
            name: torch.cat([self._points.get(name, value[:0]), value[new]])[kept]
            for name, value in points.items()
        }

    def attack(self, problems: Tensor, clauses: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Attack some clauses; the best points met from all starts, and their problems."""
        problem = self._problem
        self._next = max(self._first, self._tuning.nodes_factor * self._deadline.spent)
        known, where = self._known(problems)
        if self._effort.steps == 0:
            return known, where
        copies = self._starts_each(len(problems), len(where))
        generator = torch.Generator().manual_seed(self._effort.seed + self._attacks)
        own = problems.repeat(copies)
        outputs = problem.rows.shape[2]
        diverse = diverse_starts(problem.graph, self._region, own, outputs, generator)
        starts = {name: torch.cat([value, diverse[name]]) for name, value in known.items()}
        everyone = torch.cat([where, own])
        chosen = torch.cat([self._worst(known, where), clauses.repeat(copies)])
        self._attacks += 1
        self.gradients += gradients_of(len(everyone), self._rounds)
        rows, offsets = problem.clause(everyone, chosen)
        best = ascend(
            problem.graph,
            self._region,
            everyone,
            starts,
            rows,
            offsets,
            self._rounds,
            self._deadline,
            self._structure.guide,
            self._tuning,
        )
        return dict(best.points), everyone

    def _starts_each(self, rows: int, known: int) -> int:
        """Diverse starts for each of so many rows: as many as what was spent allows for."""
        allowed = self.passed + self._tuning.passes_per_node * self._deadline.spent - self.gradients
        room = self._tuning.most_numbers // (rows * self._structure.largest)
        most = max(1, min(self._tuning.starts_factor * self._effort.starts, room))
        counts = range(1, most + 1)
        fits = [n for n in counts if gradients_of(known + n * rows, self._rounds) <= allowed]
        return max(fits, default=1)

    def _known(self, problems: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Points to start from: those that bounds suggested, and the latest witnesses."""
        most = self._tuning.pooled
        points, own = self._definition.earlier(set(problems.tolist()), most)
        where = torch.tensor(own, dtype=torch.long, device=problems.device)
        ranges = self._problem.ranges
        points |= middles(ranges, where, [name for name in ranges if name not in points])
        if len(self._problems):
            where = torch.cat([where, self._problems])
            points = {name: torch.cat([v, self._points[name]]) for name, v in points.items()}
        return points, where

    def _worst(self, points: Mapping[str, Tensor], problems: Tensor) -> Tensor:
        """The clause asked about of largest excess at each point, [n]."""
        problem = self._problem
        rows, offsets = problem.rows[problems], problem.candidate_offsets[problems]
        excess = problem.of_clauses(excess_at(problem.graph, points, rows, offsets))
        return excess.masked_fill(~self.asked[problems], -math.inf).argmax(1)
