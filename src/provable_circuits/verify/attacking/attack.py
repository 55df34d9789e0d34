"""The attack on one problem: where candidates come from, and which of them are replayed.

    earlier     witnesses of earlier questions
    corners     of the region, to which the linear bounds of what is open point
    short       PGD from these corners and from random points (``pgd.climb``)
    suggested   points that the bounds of a search name; the best of them are kept
    long        an attack with an adaptive step size, from those and others (``restarts``)

All end in one confirmation: candidates are evaluated in floating point, and those that seem to
break a clause are replayed by the question's own definition, best first. One that comes so close to
its threshold that rounding decides is noted: such clauses are for exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import torch
from torch import Tensor

from provable_circuits.verify.attacking.candidates import middles
from provable_circuits.verify.attacking.pgd import Effort, climb, excess_at, random_points
from provable_circuits.verify.attacking.restarts import Restarts
from provable_circuits.verify.bounding.bounds import Structure
from provable_circuits.verify.bounding.crown import Pass
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.definition import ClauseKey, Definition
from provable_circuits.verify.encoding.problem import Problem

Witnessed = TypeVar("Witnessed")


class Attack(Generic[Witnessed]):
    """Attacks one problem.

    Args:
        problem: the problem.
        definition: the question that it was written from.
        region: where the inputs of its graph range.
        structure: the structure of its graph.
        effort: how hard it is tried.
        deadline: when to stop.
    """

    def __init__(
        self,
        problem: Problem,
        definition: Definition[Witnessed],
        region: Region,
        structure: Structure,
        effort: Effort,
        deadline: Deadline,
    ) -> None:
        self.problem = problem
        self.definition = definition
        self.region = region
        self.effort = effort
        self.deadline = deadline
        self.tuning = structure.configuration.stages
        self.small = structure.small
        self.device = structure.device
        self.restarts = Restarts(effort, definition, problem, region, structure, deadline)
        self.found: Witnessed | None = None
        """The witness, once there is one."""
        self.near: set[ClauseKey] = set()
        """Clauses that a candidate came so close to that rounding decides."""
        self.attacked = False
        """Whether a longer attack found the witness."""
        self._sizes = -problem.of_clauses(-problem.offsets.abs())
        """The largest offset of each clause, in size, [k, clauses]."""

    def earlier(self) -> bool:
        """Witnesses of earlier questions."""
        points, problems = self.definition.earlier()
        return bool(problems) and self.replay(points, torch.tensor(problems, device=self.device))

    def corners(self, passed: Pass, open_: Tensor) -> bool:
        """The corners that the bounds of open clauses [n, 2] point to, objective by objective."""
        objectives = self.problem.objectives(open_)
        return self.replay(self._corners(passed, objectives), objectives[:, 0])

    def short(self, passed: Pass, open_: Tensor) -> bool:
        """Climb from the corners that the bounds point to, and from random points."""
        effort, problem = self.effort, self.problem
        problems, clauses = open_.T
        first = clauses if problem.members is None else problem.members[clauses, 0]
        corners = self._corners(passed, torch.stack([problems, first], dim=1))
        starts_each = effort.starts if self.small else max(1, effort.starts // 2)
        copies = problems.repeat(starts_each)
        generator = torch.Generator().manual_seed(effort.seed)
        starts = random_points(self.region, copies, generator)
        centers = middles(problem.ranges, problems, [n for n in starts if n not in corners])
        for name, given in {**centers, **corners}.items():
            starts[name] = torch.cat([given, starts[name]])
        everyone = torch.cat([problems, copies])
        rows, offsets = problem.clause(everyone, clauses.repeat(starts_each + 1))
        best = climb(
            problem.graph,
            self.region,
            everyone,
            starts,
            rows,
            offsets,
            effort.steps if self.small else effort.steps // 2,
            self.deadline,
        )
        return bool((best.excess > 0).any()) and self.replay(best.points, everyone)

    def long(self, problems: Tensor, clauses: Tensor) -> bool:
        """A longer attack on clauses, with an adaptive step size: a proof would cost far more."""
        self.attacked = self.replay(*self.restarts.attack(problems, clauses))
        return self.attacked

    def suggested(self, points: Mapping[str, Tensor], problems: Tensor) -> bool:
        """Try what a search suggests; attack from the best of it when that is due."""
        points, excess = self._evaluated(points, problems)
        if self._replayed(points, problems, excess):
            return True
        self.restarts.suggest(points, problems, excess)
        return self.restarts.due and self.long(*self.restarts.asked.nonzero().T)

    def replay(self, points: Mapping[str, Tensor], problems: Tensor) -> bool:
        """Evaluate candidate points; replay those that seem to break a clause."""
        points, excess = self._evaluated(points, problems)
        return self._replayed(points, problems, excess)

    def _corners(self, passed: Pass, objectives: Tensor) -> dict[str, Tensor]:
        """For each of some objectives [n, 2] the corner where its bound is attained."""
        problems, places = objectives.T
        region = self.region.select(problems)
        return {
            name: region.corner(name, reached[problems, places])
            for name, reached in passed.inputs.items()
        }

    def _evaluated(
        self, points: Mapping[str, Tensor], problems: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Points for every input, and the excess there, [n, clauses]."""
        problem = self.problem
        missing = [name for name in problem.graph.inputs if name not in points]
        whole = {**points, **middles(problem.ranges, problems, missing)}
        rows, offsets = problem.rows[problems], problem.candidate_offsets[problems]
        return whole, problem.of_clauses(excess_at(problem.graph, whole, rows, offsets))

    def _replayed(self, points: Mapping[str, Tensor], problems: Tensor, excess: Tensor) -> bool:
        """Replay the points that seem to break a clause, best first."""
        worst, clauses = excess.max(1)
        near = worst > -self.tuning.near * (1 + self._sizes[problems, clauses])
        if bool(near.any()):
            pairs = torch.stack([problems[near], clauses[near]], dim=1).unique(dim=0)
            self.near.update((problem, clause) for problem, clause in pairs.tolist())
        order = worst.argsort(descending=True)[: self.tuning.replayed]
        likely = order[worst[order] > 0]
        if not len(likely):
            return False
        some = {name: value[likely] for name, value in points.items()}
        self.found = self.definition.replay(some, problems[likely], clauses[likely])
        return self.found is not None
