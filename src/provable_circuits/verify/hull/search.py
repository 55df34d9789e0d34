"""Search: bound the rows of a question by hulls, and split units where that does not suffice.

For each input of the question with open rows the network is condensed (``condense``). The ends of
the second layer's units are brought closer first (``closer``). Then each row is bounded, and parts
of it in which some units, of any layer, have fixed signs. What is chosen for the whole row settles
most of the lines for its parts (``lines``). The search gives up rows that take too many parts, or
stay open with all signs fixed; ``branching`` may still decide them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from provable_circuits.network.ops import ReLU
from provable_circuits.verify.bounds import Structure
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.hull.chain import Chain
from provable_circuits.verify.hull.closer import closer_second
from provable_circuits.verify.hull.condense import Condenser
from provable_circuits.verify.hull.parts import (
    MOST_ENTRIES,
    Bounded,
    PartBounds,
    Parts,
    Waiting,
    split,
)
from provable_circuits.verify.region import Region
from provable_circuits.verify.roots import Roots, RootSearch, Try

WIDTH = 16
"""Parts that are split at once."""

FIRST_PARTS, MOST_PARTS = 64, 2**14
"""Parts of a row after which it is given up: at first, and in the end."""

MOST_KEPT = 2**28
"""Numbers that all parts of a row that wait have together, of two bytes each, at most. From half of
it on those that lack least are split first: every part has to be split until it is closed, whatever
the order, and their children hardly wait."""

UNIT_NUMBERS = 12
"""As many such numbers as a part has for every unit, besides shares."""


def has_hulls(structure: Structure, region: Region) -> bool:
    """Whether a question is of the kind that can be condensed: ReLUs over a box."""
    kinked = all(isinstance(structure.ops[node.name], ReLU) for node in structure.activations)
    return kinked and all(box.domains is None for box in region.ranges.values())


class HullSearch(RootSearch):
    """Decides rows by hulls; those that take more than ``most`` parts are given up."""

    def __init__(
        self, roots: Roots, attempt: Try, deadline: Deadline, most: int = MOST_PARTS
    ) -> None:
        super().__init__(roots, attempt, deadline)
        self.most = most
        self.reached = math.inf
        """The least rigorous bound by which a part was closed."""
        self.too_large: set[int] = set()
        """The problems whose rows were given up for the size of what they were condensed to."""

    def run(self) -> Tensor | None:
        """The rows that stay open, [n]; None when a candidate was a witness."""
        left: list[Tensor] = []
        for problem in self.roots.problems.unique().tolist():
            rows = (self.roots.problems == problem).nonzero().flatten()
            bounds = self.roots.bounds.select(rows[:1])
            goal = self.roots.rows[rows].transpose(0, 1)
            condenser = Condenser(bounds, self.start, goal, self.roots.offsets[rows])
            chain = self._chain(condenser)
            if chain is None:
                self.too_large.add(problem)
                left.append(rows)
                continue
            open_ = self._decide(chain, condenser, rows)
            if open_ is None:
                return None
            left.append(rows[open_])
        return torch.cat(left)

    def _decide(self, chain: Chain, condenser: Condenser, rows: Tensor) -> Tensor | None:
        """Which of one problem's rows stay open; None when there is a witness."""
        bounds = PartBounds(closer_second(chain))
        found = bounds.roots()
        if not self._seen(found, condenser, rows):
            return None
        left = []
        for place in range(len(found.left)):
            narrow, root = bounds.narrowed(found, place)
            proved = self._split(narrow, root, condenser, rows)
            if proved is None:
                return None
            if not proved:
                left.append(root.row)
        return torch.cat(left) if left else rows[:0]

    def _split(
        self, bounds: PartBounds, root: Parts, condenser: Condenser, rows: Tensor
    ) -> bool | None:
        """Whether a row that is left open is proved by splitting it; None when it is refuted."""
        chain = bounds.chain
        room = MOST_KEPT // max(chain.entries + UNIT_NUMBERS * sum(chain.sizes), 1)
        waiting, left, spent = Waiting(), root, 0
        while True:
            stuck = ~(left.scores > 0).any(1)
            if bool(stuck.any()) or (len(left) and spent >= self.most):
                return False
            waiting.add(left)
            if not len(waiting):
                return True
            if len(waiting) > room:
                return False
            self.deadline.check()
            many = 2 * len(waiting) > room
            batch = waiting.take_easiest(WIDTH) if many else waiting.take(WIDTH)
            children = split(batch)
            spent += len(children)
            found = bounds.children(children)
            if not self._seen(found, condenser, rows):
                return None
            left = found.left

    def _seen(self, found: Bounded, condenser: Condenser, rows: Tensor) -> bool:
        """Take note of what bounding parts has shown; whether no witness came of it."""
        if len(found.closed):
            self.reached = min(self.reached, float(found.closed.min()))
        return not self._try(condenser, found.cube, rows)

    def _chain(self, condenser: Condenser) -> Chain | None:
        """What was condensed, unless it is too large."""
        problem = condenser.problem
        if problem.sparse.values.numel() > MOST_ENTRIES:
            return None
        chain = Chain(problem, condenser.below(), self.structure.guide, self.deadline)
        return chain if chain.entries <= MOST_ENTRIES else None

    def _try(self, condenser: Condenser, cube: Tensor, rows: Tensor) -> bool:
        """Whether a corner that a bound points to is a witness."""
        if not len(cube):
            return False
        problem = self.roots.problems[rows[:1]]
        return self.attempt(condenser.corners(cube), problem.expand(len(cube)))
