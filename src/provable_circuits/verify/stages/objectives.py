"""Open objectives of one graph, on their way through the dear stages.

    optimised alpha -> branch and bound on ReLUs -> neuron hulls where graphs are large

Clauses of one objective share a graph, and one search. A clause of several is one objective over a
graph of its own, which ends in their maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from provable_circuits.verify.attacking.attack import Attack
from provable_circuits.verify.bounding.alpha import Choice, optimise
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.relaxed import Relaxed
from provable_circuits.verify.bounding.root_problems import RootProblems, rounding_slack
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.encoding.definition import ClauseKey
from provable_circuits.verify.encoding.problem import Problem
from provable_circuits.verify.encoding.roles import by_name
from provable_circuits.verify.neuron_hull.proof_reuse import ProofReuse
from provable_circuits.verify.neuron_hull.search import HullSearch, has_hulls
from provable_circuits.verify.outcome import Outcome
from provable_circuits.verify.reuse.memory import Memory
from provable_circuits.verify.reuse.tightening import tighten_common
from provable_circuits.verify.stage import Stage


class Objectives:
    """Decides some objectives of a problem.

    Args:
        problem: the problem, of which every clause has one objective where it is searched.
        clauses: the clause that each objective is of, in the problem that is attacked.
        places: the objectives, pairs [n, 2] of input and objective.
        bounds: enclosures of the tensors of the problem's graph.
        attack: tries candidates.
        memory: bounds of common tensors.
        deadline: when to stop.
    """

    def __init__(
        self,
        problem: Problem,
        clauses: Sequence[ClauseKey],
        places: Tensor,
        bounds: Bounds,
        attack: Attack[Any],
        memory: Memory,
        deadline: Deadline,
    ) -> None:
        self.problem = problem
        self.clauses = clauses
        self.places = places
        self.bounds = bounds
        self.attack = attack
        self.memory = memory
        self.deadline = deadline
        self.structure = bounds.structure
        self.configuration = self.structure.configuration
        self.small = self.structure.small
        self.has_hulls = not self.small and has_hulls(self.structure, bounds.region)
        self.proof_reuse = ProofReuse(memory.saved_trees, problem)
        self.roots = self._roots(bounds, *places.T)
        self.status = Outcome.OPEN
        self.stage = Stage.ALPHA
        self.bound = math.inf
        """A rigorous upper bound of the objectives' excess, so far."""
        self.search: BranchAndBound | None = None
        self._choice: Choice | None = None
        self._tried: set[ClauseKey] = set()

    @property
    def open(self) -> list[ClauseKey]:
        """The clauses that are not proved yet."""
        if self.status == Outcome.PROVED:
            return []
        if self.search is None:
            return list(self.clauses)
        return [self.clauses[i] for i in self.search.open.tolist()]

    def optimise_alpha(self) -> Outcome:
        """Bounds with optimised alpha, for all objectives together."""
        roots, offsets = self.roots, self.roots.offsets
        relaxed = Relaxed.whole(roots.bounds, UnstableUnits(roots.bounds))
        tuning = self.configuration.stages
        steps = tuning.small_alpha_steps if self.small else tuning.alpha_steps
        choice = optimise(relaxed, roots.start, roots.rows, offsets, relaxed.alpha, steps=steps)
        self.attack.restarts.passed += steps * len(self.places)
        value = choice.found.value[:, 0]
        value = value + offsets - rounding_slack(value, offsets)
        self.bound = min(self.bound, -float(value.min()))
        self._choice = choice
        self.status = Outcome.PROVED if bool((value >= 0).all()) else Outcome.OPEN
        return self.status

    def branch(self, most: float) -> Outcome:
        """Branch and bound: until it is decided, or as long as it pays before something else."""
        if self._choice is None:
            return self.status
        choice = self._choice
        self.search = search = BranchAndBound(self.roots, self.attack.suggested, self.deadline)
        if self.small:
            search.halt = lambda: not self._near <= self._tried
        if self.has_hulls:
            most = self.configuration.stages.hulls_after
        return self._after(Stage.BRANCHING, lambda: search.run(choice, most))

    def hulls(self) -> Outcome:
        """What the tree leaves open once it is large: neuron hulls, then more of the tree."""
        search = self.search
        if search is None or not self.has_hulls or self.status != Outcome.MORE:
            return self.status
        return self._after(Stage.NEURON_HULL, lambda: self._hulls(search))

    def resume(self, most: float = math.inf) -> Outcome:
        """Go on with a tree that was stopped for its size."""
        search = self.search
        if search is None or self.status != Outcome.MORE:
            return self.status
        return self._after(Stage.BRANCHING, lambda: search.resume(most))

    @property
    def doubtful(self) -> list[ClauseKey]:
        """Open clauses that rounding may decide, while the search waits for exact arithmetic."""
        search = self.search
        if search is None or self.status != Outcome.CLOSE or search.halt is None:
            return []
        near, close = self._near, search.close
        left = [i for i in search.open.tolist() if i in close or self.clauses[i] in near]
        return [self.clauses[i] for i in left]

    def settle(
        self, asked: Sequence[ClauseKey], proved: Collection[ClauseKey], most: float = math.inf
    ) -> Outcome:
        """Exact arithmetic was asked about clauses, and proved some; the search goes on."""
        search = self.search
        if search is None:
            if set(self.clauses).issubset(proved):
                self.status, self.stage = Outcome.PROVED, Stage.EXACT
            return self.status
        self._tried.update(asked)
        if not set(asked).issubset(proved):
            search.halt = None
        rest = [i for i in search.open.tolist() if self.clauses[i] not in proved]
        search.settle(torch.tensor(rest, dtype=torch.long, device=self.structure.device), 0.0)
        stage = Stage.BRANCHING if rest else Stage.EXACT
        return self._after(stage, lambda: search.resume(most))

    @property
    def _near(self) -> set[ClauseKey]:
        return self.attack.near.intersection(self.clauses)

    def _after(self, stage: Stage, step: Callable[[], Outcome]) -> Outcome:
        """What a step of the tree shows; its bound counts whatever ends it."""
        self.stage = stage
        try:
            self.status = step()
        finally:
            if self.search is not None:
                self.bound = min(self.bound, self.search.bound)
        return self.status

    def _roots(self, bounds: Bounds, problems: Tensor, places: Tensor) -> RootProblems:
        """Some objectives, to be decided."""
        rows = -self.problem.rows[problems, places].unsqueeze(1)
        offsets = -self.problem.offsets[problems, places]
        return RootProblems(bounds.select(problems), problems, rows, offsets)

    def _hulls(self, search: BranchAndBound) -> Outcome:
        """What a search has left open, by hulls, and by going on with it; what it returns."""
        bounds, (problems, places) = self.bounds, self.places.T
        keys = torch.tensor(self.clauses, device=problems.device)
        if self.attack.long(*keys[search.open].T):
            return Outcome.REFUTED
        loose = self._loose(problems)
        tuning = self.configuration.neuron_hull
        for most in (tuning.first_subdomains, tuning.most_subdomains):
            left = search.open
            some = left[loose[left]] if most == tuning.first_subdomains else left
            if most == tuning.most_subdomains and bool(loose[left].any()):
                bounds = self._closer(bounds, problems[left])
            if not len(some):
                continue
            roots = self._roots(bounds, problems[some], places[some])
            attempt = self.attack.suggested
            hulls = HullSearch(roots, attempt, self.deadline, self.proof_reuse, most)
            still = hulls.run()
            if still is None:
                return Outcome.REFUTED
            proved = some[~torch.isin(some, some[still])]
            search.settle(left[~torch.isin(left, proved)], hulls.reached)
            if hulls.too_large.issuperset(problems[search.open].tolist()):
                break
        if len(search.open):
            self.stage = Stage.BRANCHING
        return search.resume()

    def _loose(self, problems: Tensor) -> Tensor:
        """For each of some inputs, whether hulls may still tighten common tensors; a mask."""
        structure = self.structure
        read = {node.inputs[0] for node in structure.activations} - structure.single_layer
        roles = self.problem.roles
        common = {roles[name] for name in self.problem.common & read}
        loose = self.memory.loose(common, problems)
        found = sorted({problem for _, problem in loose})
        return torch.isin(problems, torch.tensor(found, dtype=torch.long, device=problems.device))

    def _closer(self, bounds: Bounds, problems: Tensor) -> Bounds:
        """The bounds with what hulls make of tensors that all questions have in common."""
        memory, problem = self.memory, self.problem
        with self.deadline.shared():
            tighten_common(memory, bounds, problem.roles, problems)
        prior = {node.inputs[0]: bounds.ends[node.inputs[0]] for node in self.structure.activations}
        tightened = Bounds(
            self.structure,
            bounds.region,
            bounds.problems,
            memory.recall(problem),
            prior,
            by_name(memory.lines, problem.roles),
            self.deadline,
        )
        tightened.compute(refine=False)
        return tightened
