"""Trees: a row is split until all its subdomains are closed, or there are too many."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.neuron_hull.index_map import IndexMap
from provable_circuits.verify.neuron_hull.saved_tree import Cover, SavedTree
from provable_circuits.verify.neuron_hull.subdomains import (
    UNIT_NUMBERS,
    HullSubdomains,
    SubdomainBounds,
    Waiting,
    split,
)


class WitnessFound(Exception):  # noqa: N818 - not an error: the search is over
    """Raised when a corner that a bound points to is a witness."""


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What the trees of one problem's rows have in common.

    Attributes:
        bounds: bounds of the rows, whole.
        frame: what their signs and multipliers belong to.
        refuted: tries corners, by the coefficients of the cube; whether one is a witness.
        deadline: when to stop.
    """

    bounds: SubdomainBounds
    index_map: IndexMap
    refuted: Callable[[Tensor], bool]
    deadline: Deadline


class HullTree:
    """The subdomains of one row.

    Args:
        ground: what it grows on.
        whole: the row as one subdomain, with multipliers most of which are settled for all
            subdomains.
        moving: the units whose shares are not, a mask; those of the second layer left out.
    """

    def __init__(self, ground: Ground, whole: HullSubdomains, moving: Tensor) -> None:
        self.ground = ground
        self.whole = whole
        self.moving = moving
        self.bounds, self.root = ground.bounds.narrowed(whole, moving)
        chain, index_map = self.bounds.chain, ground.index_map
        self.tuning = tuning = chain.problem.tuning
        self.index_map = IndexMap.of(chain, index_map.units, index_map.coordinates)
        self.room = tuning.most_kept // max(chain.entries + UNIT_NUMBERS * sum(chain.sizes), 1)
        """How many subdomains there is room for. From half of it on those that lack least are split
        first: every subdomain has to be split until it is closed, whatever the order, and their
        children hardly wait. The leaves are kept as long as they take no more."""
        self.reached = math.inf
        """The least rigorous bound by which a subdomain was closed."""
        self._leaves: list[HullSubdomains] = []
        self._count = 0

    @property
    def saved_tree(self) -> SavedTree | None:
        """The subdomains that were closed, unless they were too many."""
        if not 0 < self._count <= self.room:
            return None
        leaves = HullSubdomains.joined(self._leaves)
        return SavedTree(self.ground.index_map, self.whole, self.moving, self.index_map, leaves)

    def fits(self, cover: Cover) -> bool:
        """Whether leaves of an earlier proof close subdomains of this row, to judge by a few."""
        some = cover[:: max(1, len(cover) // self.tuning.sample)]
        closed = self.bounds.certified(some) >= 0
        return bool(closed.double().mean() >= self.tuning.sample_share)

    def begun(self, cover: Cover) -> HullSubdomains:
        """What the leaves of an earlier proof leave open, after bounding that anew."""
        places = torch.arange(len(cover), device=self.root.row.device)
        open_ = [self.root[:0]]
        for some in places.split(2 * self.tuning.width):
            self.ground.deadline.spend(len(some))
            subdomains = cover[some]
            value = self.bounds.certified(subdomains)
            closed = value >= 0
            self._close(value[closed], subdomains[closed])
            open_.append(subdomains[~closed])
        left = [self.root[:0]]
        subdomains = HullSubdomains.joined(open_)
        for some in places[: len(subdomains)].split(2 * self.tuning.width):
            self.ground.deadline.check()
            left.append(self._bounded(subdomains[some]))
        return HullSubdomains.joined(left)

    def proved(self, left: HullSubdomains, most: int) -> bool:
        """Whether all subdomains get closed, starting from those that are left of the row.

        Args:
            left: these.
            most: subdomains after which the row is given up.
        """
        waiting, spent = Waiting(), 0
        while True:
            stuck = ~(left.scores > 0).any(1)
            if bool(stuck.any()) or (len(left) and spent >= most):
                return False
            waiting.add(left)
            if not len(waiting):
                return True
            if len(waiting) > self.room:
                return False
            many = 2 * len(waiting) > self.room
            width = self.tuning.width
            batch = waiting.take_easiest(width) if many else waiting.take(width)
            children = split(batch, self.tuning.few_quartered)
            spent += len(children)
            self.ground.deadline.spend(len(children))
            left = self._bounded(children)

    def _bounded(self, subdomains: HullSubdomains) -> HullSubdomains:
        """Subdomains bounded anew; those of them that are left."""
        if not len(subdomains):
            return subdomains
        found = self.bounds.children(subdomains)
        self._close(found.bounds, found.closed)
        if self.ground.refuted(found.cube):
            raise WitnessFound
        return found.left

    def _close(self, bounds: Tensor, subdomains: HullSubdomains) -> None:
        """Take note of subdomains that are closed, with their bounds."""
        if not len(subdomains):
            return
        self.reached = min(self.reached, float(bounds.min()))
        self._count += len(subdomains)
        if self._count <= self.room:
            self._leaves.append(subdomains)
        else:
            self._leaves.clear()
