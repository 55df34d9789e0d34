"""SubdomainWatch of a branch and bound, compared with the truth.

A point belongs to a subdomain if it certainly has what the subdomain starts from: it lies in the
region, and the unit's values lie within the bounds that the split left. Whatever a step makes of
the subdomain must still meet the values there. The whole domain holds every point, and every child
of a split those of its parent on its side, so that no step can lose a point unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tests.enclosures.comparison import Comparison, product_of
from tests.enclosures.truth import SLACK, Points, Truth
from torch import Tensor

from provable_circuits.rounding import Interval
from provable_circuits.verify.branching.branch_and_bound import BranchAndBound
from provable_circuits.verify.branching.subdomains import Subdomains


@dataclass(frozen=True, eq=False)
class SearchTruth:
    """The roots of a branch and bound at points.

    Attributes:
        member: which points lie in the region of each root, [roots, points].
        units: what the units read there, [roots, points, units].
        value: what the row of each root is there, without its offset, [roots, points].
    """

    member: Tensor
    units: Interval
    value: Interval


class SubdomainWatch(Comparison):
    """Compares what a search splits, bounds and closes."""

    def __init__(self, truth: Truth, points: Points) -> None:
        self._searches: dict[int, tuple[object, SearchTruth]] = {}
        super().__init__(truth, points)

    def take(self, points: Points) -> None:
        super().take(points)
        self._searches.clear()

    def search(self, search: BranchAndBound) -> SearchTruth:
        """The roots of a search at all points; kept for the next time."""
        held = self._searches.get(id(search))
        if held is not None:
            return held[1]
        bounds = search.roots.bounds
        rows, points, true = self.pairs(bounds)
        shape = (bounds.problems, len(self.points))
        member = torch.zeros(shape, dtype=torch.bool)
        member[rows, points] = True
        gathered = search.units.ends(true_ends(search, true), len(rows))
        units = tuple(end.new_zeros(*shape, end.shape[1]) for end in gathered)
        value = tuple(torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        product = product_of(search.roots.rows.double()[rows], true[search.start])
        for side in (0, 1):
            units[side][rows, points] = gathered[side]
            value[side][rows, points] = product[side][:, 0]
        made = SearchTruth(member, (units[0], units[1]), (value[0], value[1]))
        self._searches[id(search)] = (search, made)
        return made

    def within(
        self, search: BranchAndBound, subdomains: Subdomains, certainly: bool = True
    ) -> Tensor:
        """Which points lie in which subdomains, certainly or possibly: [subdomains, points]."""
        true = self.search(search)
        least, most = (end[subdomains.root] for end in true.units)
        if not certainly:
            least, most = most, least
        lower, upper = subdomains.lower.unsqueeze(1), subdomains.upper.unsqueeze(1)
        return true.member[subdomains.root] & ((lower <= least) & (most <= upper)).all(2)

    def cover(
        self,
        kind: str,
        search: BranchAndBound,
        subdomains: Subdomains,
        after: Subdomains,
        of: Tensor,
    ) -> None:
        """Every point ``of`` some subdomains [subdomains, points] may lie in one that came of
        them."""
        count = len(search.roots.problems)
        had = torch.zeros(count, len(self.points), dtype=torch.bool)
        has = torch.zeros_like(had)
        had.index_put_((subdomains.root,), of, accumulate=True)
        has.index_put_((after.root,), self.within(search, after, certainly=False), accumulate=True)
        lost = had & ~has
        self.counts[f"{kind} compared"] += 1
        if bool(lost.any()):
            self.note(kind, "subdomains", f"{int(lost.sum())} points are lost")

    def bounded(
        self, search: BranchAndBound, batch: Subdomains, relaxed: Any, choice: Any, left: Subdomains
    ) -> None:
        """What a search made of some subdomains."""
        own, true = self.within(search, batch), self.search(search)
        places, points = own.nonzero().T
        roots = batch.root[places]
        self.counts["points of subdomains"] += len(places)
        if len(places):
            least, most = (end[roots, points] for end in true.units)
            held = (relaxed.lower[places], relaxed.upper[places])
            self.compare("subdomain", "units", held, (least, most))
            reached = choice.found.value[:, 0].double()[places]
            high = true.value[1][roots, points]
            self.compare(
                "bound of a subdomain",
                "row",
                (reached, torch.full_like(reached, torch.inf)),
                (high, high),
            )
        self.cover("closed subdomain", search, batch, left, own & self.violated(search)[batch.root])

    def violated(self, search: BranchAndBound) -> Tensor:
        """Where the row of a root certainly breaks the claim, [roots, points]."""
        true, offsets = self.search(search), search.roots.offsets.unsqueeze(1)
        slack = SLACK * (1 + true.value[1].abs() + offsets.abs())
        return true.member & (true.value[1] + offsets + slack < 0)


def true_ends(search: BranchAndBound, true: Mapping[str, Interval]) -> dict[str, Interval]:
    """What the units of a search read."""
    return {node.inputs[0]: true[node.inputs[0]] for node in search.units.nodes}
