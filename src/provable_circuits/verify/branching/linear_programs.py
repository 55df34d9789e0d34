"""Linear programs of the subdomains of a branch and bound, where those are small enough to pay.

    sharpen     bound what each unstable unit reads anew, once, at the roots: the duals of two
                programs a unit are the slopes of two backward passes
    choose      alpha and beta of subdomains that gradient ascent has left open

Both hand on numbers that some solver said; what they prove is what a rigorous pass makes of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.crown import backward
from provable_circuits.verify.bounding.relaxed import Relaxed
from provable_circuits.verify.bounding.root_problems import RootProblems
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.triangle import Solved, Triangle
from provable_circuits.verify.branching.warm_program import Floats
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.tuning.branching import BranchingTuning


def has_programs(bounds: Bounds, units: UnstableUnits) -> bool:
    """Whether the subdomains of some problems are programs of a few milliseconds each."""
    tuning = bounds.structure.configuration.branching
    sizes = [box.lower[0].numel() for box in bounds.region.ranges.values()]
    return (
        0 < len(units) <= tuning.program_units
        and 0 < sum(sizes) <= tuning.program_inputs
        and bounds.structure.piecewise_linear
        and not (bounds.region.has_balls(1) or bounds.region.has_balls(2))
    )


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What the solver says of some subdomains, n of them; ``triangle.Solved`` as tensors.

    Attributes:
        value: about what each can be bounded by, threshold included, [n].
        slopes, duals, gaps: [n, units].
        points: where the relaxation attains its value, by input.
    """

    value: Tensor
    alpha: Tensor
    beta: Tensor
    gaps: Tensor
    points: dict[str, Tensor]


class PseudoCosts:
    """What splits of each unit have brought so far, for each unit of its gap: averages.

    Args:
        roots, units: how many there are; each root has its own averages.
        device: where they are kept.
        tuning: from how many splits on they are believed, and the least gap.
    """

    def __init__(
        self, roots: int, units: int, device: torch.device, tuning: BranchingTuning
    ) -> None:
        self.tuning = tuning
        self.total = torch.zeros(2, roots, units, dtype=torch.float64, device=device)
        self.count = torch.zeros_like(self.total)

    def learn(self, root: Tensor, unit: Tensor, gap: Tensor, gains: Tensor) -> None:
        """Take note of the gains [2, n] of splits at units [n] with gaps [n]."""
        for side in range(2):
            each = (gains[side] / gap.clamp_min(self.tuning.least_gap)).clamp_min(0.0)
            self.total[side].index_put_((root, unit), each, accumulate=True)
            self.count[side].index_put_((root, unit), torch.ones_like(each), accumulate=True)

    def known(self, root: Tensor, unit: Tensor) -> Tensor:
        """Whether enough splits of units were seen, of the shape of ``unit``."""
        return self.count[0][root, unit] >= self.tuning.reliable_splits

    def first(self, root: Tensor, unit: Tensor) -> Tensor:
        """Which of these pairs [n] are the first few of a root and unit; places, in order."""
        pair = (root * self.count.shape[2] + unit).tolist()
        seen: dict[int, int] = {}
        places = []
        for place, one in enumerate(pair):
            seen[one] = seen.get(one, 0) + 1
            if seen[one] <= self.tuning.reliable_splits:
                places.append(place)
        return torch.tensor(places, dtype=torch.long, device=root.device)

    def gains(self, root: Tensor, unit: Tensor, gap: Tensor) -> Tensor:
        """What is expected of splits, [2, *unit.shape]."""
        mean = self.total / self.count.clamp_min(1.0)
        return mean[:, root, unit] * gap


class Programs:
    """The programs of some roots."""

    def __init__(self, roots: RootProblems, units: UnstableUnits, deadline: Deadline) -> None:
        self.roots = roots
        self.units = units
        self.deadline = deadline
        self._made: dict[int, tuple[Triangle, tuple[Floats, float]]] = {}

    def _program(self, root: int) -> tuple[Triangle, tuple[Floats, float]]:
        """The program of a root, and what it minimises."""
        if root not in self._made:
            roots = self.roots
            own = torch.tensor([root], device=roots.rows.device)
            program = Triangle(roots.bounds.select(own), self.units, self.deadline)
            matrix, constant = program.form(roots.start, roots.rows[root])
            goal = matrix[0], float(constant[0]) + float(roots.offsets[root])
            self._made[root] = program, goal
        return self._made[root]

    def solve(self, root: Tensor, lower: Tensor, upper: Tensor, signs: Tensor) -> Chosen:
        """What the solver makes of subdomains, n of them.

        Args:
            root: which root each subdomain descends from, [n].
            lower: lower bounds of what the units read, [n, units].
            upper: upper bounds of the same.
            signs: the units' signs, [n, units].
        """
        order: list[Tensor] = []
        found: list[Solved] = []
        points: list[dict[str, Tensor]] = []
        for one in root.unique().tolist():
            own = (root == one).nonzero().flatten()
            program, (cost, constant) = self._program(one)
            ends = (end[own].numpy(force=True) for end in (lower, upper, signs))
            goals = np.tile(cost, (len(own), 1)), np.full(len(own), constant)
            order.append(own)
            found.append(program.solve(goals, *ends))
            points.append(program.points(found[-1].point))
        place = torch.cat(order).argsort()
        all_ = Solved.joined(found)
        value, alpha, beta, gaps = (
            torch.from_numpy(numbers).to(lower)[place]
            for numbers in (all_.value, all_.alpha, all_.beta, all_.gaps)
        )
        joined = {name: torch.cat([p[name] for p in points])[place] for name in points[0]}
        return Chosen(value, alpha, beta, gaps, joined)

    def alpha(self, found: Tensor, alpha: Tensor) -> Tensor:
        """Slopes that the solver found, or others where it has no opinion; [n, units]."""
        own = torch.where(found.isnan(), alpha, found)
        return torch.maximum(own, self.units.leaks).clamp_max(1.0)

    def sharpen(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Closer bounds of what units read all over the roots, from those known, [roots, units]."""
        lower, upper = lower.clone(), upper.clone()
        for root in range(len(lower)):
            program, _ = self._program(root)
            start = 0
            for node in self.units.nodes:
                columns = self.units.columns[node.name]
                own = slice(start, start + len(columns))
                start = own.stop
                if not program.matrix[own, program.inputs :].any():
                    continue
                found = self._bounded(root, node.name, own, lower[root], upper[root])
                if found is not None:
                    units, least, most = found
                    lower[root, units] = torch.maximum(lower[root, units], least)
                    upper[root, units] = torch.minimum(upper[root, units], most)
        return lower, upper

    def _bounded(
        self, root: int, activation: str, own: slice, lower: Tensor, upper: Tensor
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """New bounds of what the unstable units of one activation read at a root."""
        program, _ = self._program(root)
        units = ((lower < 0) & (upper > 0))[own].nonzero().flatten() + own.start
        if not len(units):
            return None
        relaxed = self._relaxed(root, lower, upper, 2 * len(units))
        ends = relaxed.lower.numpy(force=True), relaxed.upper.numpy(force=True)
        signs = (ends[0] >= 0).astype(float) - ((ends[1] <= 0) & (ends[0] < 0))
        rows, constants = program.matrix[units.tolist()], program.constant[units.tolist()]
        goals = np.concatenate([rows, -rows]), np.concatenate([constants, -constants])
        found = program.solve(goals, *ends, np.asarray(signs))
        alpha = self.alpha(torch.from_numpy(found.alpha).to(lower), relaxed.alpha)
        source = relaxed.bounds.structure.graph[activation].inputs[0]
        shape = relaxed.bounds.structure.graph[source].shape
        columns = self.units.columns[activation][units - own.start]
        unit = alpha.new_zeros(2, len(units), 1, math.prod(shape))
        unit[0, torch.arange(len(units)), 0, columns] = 1.0
        unit[1, torch.arange(len(units)), 0, columns] = -1.0
        view = relaxed.view(torch.float64, alpha)
        value = backward(view, source, unit.flatten(0, 1).unflatten(2, shape)).value[:, 0]
        return units, value[: len(units)], -value[len(units) :]

    def _relaxed(self, root: int, lower: Tensor, upper: Tensor, count: int) -> Relaxed:
        """A root, so many times, between the bounds known."""
        bounds = self.roots.bounds
        index = torch.full((count,), root, dtype=torch.long, device=lower.device)
        many = lower.expand(count, -1), upper.expand(count, -1)
        return Relaxed(bounds, self.units, index, bounds.region.select(index), *many)
