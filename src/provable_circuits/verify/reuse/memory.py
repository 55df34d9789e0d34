"""What a verifier remembers between questions of tensors: their enclosures.

Enclosures of the network's tensors, and of the source of patches, are the same in every question.
Those of a circuit's own tensors come back as long as nothing upstream of them changes. Work that a
time limit cut short is kept too: each unit is bounded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.relaxation import Lines
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.encoding.problem import Problem
from provable_circuits.verify.encoding.roles import Role, Roles
from provable_circuits.verify.neuron_hull.proof_reuse import SavedTrees
from provable_circuits.verify.tuning.stages import ReuseTuning


@dataclass(slots=True, eq=False)
class Memory:
    """Enclosures met earlier, by the roles of the nodes that they are of.

    Attributes:
        whole: of the network's tensors and the patch source's, [k, *shape].
        lines: of activations that read them.
        tightened: of which of them the bounds were tightened by hulls, and for which input.
        started: of such tensors, the bounds that were reached, and which units were bounded
            already.
        cut: of circuits' own tensors, with the channels that they hold.
        saved_trees: how rows were split when they were last proved by hulls.
        most_own: numbers that the lower bounds of circuits' own tensors hold, at most.
    """

    whole: dict[Role, Interval] = field(default_factory=dict)
    lines: dict[Role, Lines] = field(default_factory=dict)
    tightened: set[tuple[Role, int]] = field(default_factory=set)
    started: dict[Role, tuple[Interval, Tensor]] = field(default_factory=dict)
    cut: dict[Role, tuple[Tensor | None, Interval]] = field(default_factory=dict)
    saved_trees: SavedTrees = field(default_factory=SavedTrees)
    most_own: int = DEFAULT.reuse.own_numbers

    @classmethod
    def empty(cls, tuning: ReuseTuning) -> Memory:
        """Nothing met yet, with so much room."""
        return cls(saved_trees=SavedTrees(tuning.saved_numbers), most_own=tuning.own_numbers)

    def recall(self, problem: Problem) -> dict[str, Interval]:
        """Enclosures of the tensors of a problem that are known already."""
        found = {}
        for node in problem.graph.nodes:
            role = problem.roles[node.name]
            ends = self.whole.get(role) or self._recall_cut(problem, node.name, role)
            if ends is not None:
                found[node.name] = ends
        return found

    def _recall_cut(self, problem: Problem, name: str, role: Role) -> Interval | None:
        if role not in self.cut:
            return None
        had, (lower, upper) = self.cut[role]
        want = problem.cut.get(name)
        if had is None and want is None:
            return lower, upper
        if want is None:
            return None
        if had is None:
            return lower[:, want], upper[:, want]
        place = torch.searchsorted(had, want).clamp_max(len(had) - 1)
        if not bool((had[place] == want).all()):
            return None
        return lower[:, place], upper[:, place]

    def keep(self, bounds: Bounds, roles: Roles) -> None:
        """Keep what was found of tensors that all questions have in common."""
        for name, ends in bounds.ends.items():
            role = roles[name]
            if role.common and name not in bounds.region.ranges:
                self.whole[role] = ends
                self.started.pop(role, None)
        self._keep_lines(bounds, roles)

    def _keep_lines(self, bounds: Bounds, roles: Roles) -> None:
        for name, line in bounds.lines.items():
            if roles[name].common:
                self.lines[roles[name]] = line

    def keep_unfinished(self, bounds: Bounds, roles: Roles) -> None:
        """Keep what was found when time ran out: finished tensors, and part of one."""
        done = {
            node.inputs[0] for node in bounds.structure.activations if node.name in bounds.lines
        }
        for name in done:
            if roles[name].common:
                self.whole[roles[name]] = bounds.ends[name]
        self._keep_lines(bounds, roles)
        for name, mask in bounds.refined.items():
            if name in bounds.ends and name not in done and roles[name].common:
                self.started[roles[name]] = (bounds.ends[name], mask)

    def loose(self, tensors: Iterable[Role], problems: Tensor) -> set[tuple[Role, int]]:
        """Which of these tensors hulls did not bring closer yet, and for which of these inputs."""
        known = [role for role in tensors if role in self.whole]
        every = {(role, problem) for role in known for problem in problems.tolist()}
        return every - self.tightened

    def keep_tightened(
        self, tensor: Role, readers: Iterable[Role], problem: int, ends: Interval
    ) -> None:
        """Keep tighter bounds [1, *shape] of a common tensor for one input; ``readers`` read it."""
        place = torch.tensor([problem], device=ends[0].device)
        lower, upper = self.whole[tensor]
        self.whole[tensor] = (
            lower.index_copy(0, place, ends[0]),
            upper.index_copy(0, place, ends[1]),
        )
        self.tightened.add((tensor, problem))
        for reader in readers:
            self.lines.pop(reader, None)

    def keep_own(self, bounds: Bounds, problem: Problem) -> None:
        """Keep what was found of the circuit's own tensors."""
        sources = {node.inputs[0] for node in bounds.structure.activations}
        for name in sources & problem.lasting:
            if name in bounds.ends and name not in bounds.known:
                role = problem.roles[name]
                self.cut.pop(role, None)
                self.cut[role] = (problem.cut.get(name), bounds.ends[name])
        held = sum(lower.numel() for _, (lower, _) in self.cut.values())
        while held > self.most_own:
            oldest = next(iter(self.cut))
            held -= self.cut.pop(oldest)[1][0].numel()


def expanded(ends: Interval, count: int) -> Interval:
    """The bounds with a row for each problem."""
    lower, upper = ends
    return lower.expand(count, *lower.shape[1:]), upper.expand(count, *upper.shape[1:])


def moved(ends: Interval, device: torch.device) -> Interval:
    """The bounds on a device."""
    return ends[0].to(device), ends[1].to(device)
