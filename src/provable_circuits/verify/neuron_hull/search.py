"""Search: bound the rows of a question by hulls, and split units where that does not suffice.

For each input of the question with open rows the network is presolved (``presolve``). The bounds of
the second layer's units are tightened first (``tightening``). Then each row is bounded, and its
subdomains in which some units, of any layer, have fixed signs. What is chosen for the whole row
settles most of the lines for its subdomains (``lines``). A row that an earlier question was about
is split as it was then, if that still serves (``saved_tree``). The search gives up rows that take
too many subdomains, or stay open with all signs fixed; ``branching`` may still decide them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from provable_circuits.network.ops import ReLU
from provable_circuits.verify.bounding.bounds import Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.root_problems import RootProblems, RootSearch, Try
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.neuron_hull.index_map import IndexMap
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual
from provable_circuits.verify.neuron_hull.presolve import Presolver
from provable_circuits.verify.neuron_hull.proof_reuse import ProofReuse, Row
from provable_circuits.verify.neuron_hull.saved_tree import Cover
from provable_circuits.verify.neuron_hull.subdomains import (
    HullSubdomains,
    SubdomainBounds,
    moving_units,
)
from provable_circuits.verify.neuron_hull.tightening import tighten_second_layer
from provable_circuits.verify.neuron_hull.tree import Ground, HullTree, WitnessFound


def has_hulls(structure: Structure, region: Region) -> bool:
    """Whether a question is of the kind that can be presolved: ReLUs over a box."""
    piecewise_linear = all(
        isinstance(structure.ops[node.name], ReLU) for node in structure.activations
    )
    return piecewise_linear and all(box.domains is None for box in region.ranges.values())


class HullSearch(RootSearch):
    """Decides rows by hulls; those that take more than ``most`` subdomains are given up.

    They are not before they have cost ``first_work``.

    ``proof_reuse`` has the saved trees of earlier proofs, and takes those of new ones.
    """

    def __init__(
        self,
        roots: RootProblems,
        attempt: Try,
        deadline: Deadline,
        proof_reuse: ProofReuse,
        most: int | None = None,
    ) -> None:
        super().__init__(roots, attempt, deadline)
        self.proof_reuse = proof_reuse
        self.tuning = tuning = self.structure.configuration.neuron_hull
        self.most = tuning.most_subdomains if most is None else most
        self.reached = math.inf
        """The least rigorous bound by which a subdomain was closed."""
        self.too_large: set[int] = set()
        """The problems whose rows were given up for the size of what they were presolved to."""

    def run(self) -> Tensor | None:
        """The rows that stay open, [n]; None when a candidate was a witness."""
        left: list[Tensor] = []
        for problem in self.roots.problems.unique().tolist():
            rows = (self.roots.problems == problem).nonzero().flatten()
            bounds = self.roots.bounds.select(rows[:1])
            goal = self.roots.rows[rows].transpose(0, 1)
            presolver = Presolver(bounds, self.start, goal, self.roots.offsets[rows])
            chain = self._chain(presolver)
            if chain is None:
                self.too_large.add(problem)
                left.append(rows)
                continue
            open_ = self._decide(chain, presolver, rows)
            if open_ is None:
                return None
            left.append(rows[open_])
        return torch.cat(left)

    def _decide(self, chain: LayerwiseDual, presolver: Presolver, rows: Tensor) -> Tensor | None:
        """Which of one problem's rows stay open; None when there is a witness."""
        bounds = SubdomainBounds(tighten_second_layer(chain))
        found = bounds.roots()
        if len(found.bounds):
            self.reached = min(self.reached, float(found.bounds.min()))
        if self._try(presolver, found.cube, rows):
            return None
        if not len(found.left):
            return rows[:0]
        ground = Ground(
            bounds,
            IndexMap.of(bounds.chain, *presolver.numbered(self.proof_reuse.numbers)),
            lambda cube: self._try(presolver, cube, rows),
            self.deadline,
        )
        size = sum(bounds.chain.sizes) * bounds.problem.sparse.count
        most = min(
            max(self.most, self.tuning.first_work // max(size, 1)), self.tuning.most_subdomains
        )
        left = []
        for place, lined in enumerate(found.lined):
            part = found.left[torch.tensor([place], device=rows.device)]
            try:
                proved = self._proved(ground, self._row(rows[part.row]), part, lined, most)
            except WitnessFound:
                return None
            if not proved:
                left.append(part.row)
        return torch.cat(left) if left else rows[:0]

    def _proved(
        self, ground: Ground, row: Row, part: HullSubdomains, lined: Tensor, most: int
    ) -> bool:
        """Whether a row that is left open is proved by splitting it.

        Args:
            ground: what its tree grows on.
            row: which row it is.
            part: the row as one subdomain.
            lined: what its units lose under lines, those of the second layer left out.
            most: subdomains after which it is given up.
        """
        tree = self._again(ground, row, part, most)
        if tree is None:
            tree = HullTree(ground, part, moving_units(lined, self.tuning.moving_share))
            if not tree.proved(tree.root, most):
                return False
        self.reached = min(self.reached, tree.reached)
        self.proof_reuse.add(row, tree.saved_tree)
        return True

    def _again(self, ground: Ground, row: Row, part: HullSubdomains, most: int) -> HullTree | None:
        """The tree that proves a row, begun as when it was last proved; None if that fails."""
        saved_tree = self.proof_reuse.saved_trees.rows.get(row)
        if saved_tree is None or len(saved_tree.leaves) > most:
            return None
        tree = HullTree(ground, *saved_tree.carried(ground.index_map, part))
        cover = Cover(saved_tree, tree.index_map, tree.root)
        proved = tree.fits(cover) and tree.proved(tree.begun(cover), most)
        return tree if proved else None

    def _row(self, place: Tensor) -> Row:
        """Which row of the claim the one in this place is."""
        return int(self.roots.problems[place]), tuple(self.roots.rows[place].flatten().tolist())

    def _chain(self, presolver: Presolver) -> LayerwiseDual | None:
        """What was presolved, unless it is too large."""
        problem = presolver.problem
        if problem.sparse.values.numel() > self.tuning.most_entries:
            return None
        chain = LayerwiseDual(problem, presolver.below(), self.structure.guide, self.deadline)
        return chain if chain.entries <= self.tuning.most_entries else None

    def _try(self, presolver: Presolver, cube: Tensor, rows: Tensor) -> bool:
        """Whether a corner that a bound points to is a witness."""
        if not len(cube):
            return False
        problem = self.roots.problems[rows[:1]]
        return self.attempt(presolver.corners(cube), problem.expand(len(cube)))
