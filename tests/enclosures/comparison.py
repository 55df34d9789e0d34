"""Enclosures compared with the truth at points.

An enclosure of a whole domain must meet the values at every point of it. Below a split, a point
belongs to a row if its values certainly lie within the bounds that the row started from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from tests.enclosures import adapter
from tests.enclosures.truth import SLACK, Points, Truth, meets
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.encoding.roles import Role

Key = TypeVar("Key", str, Role)
"""A node by its name in one graph, or by its role in all of them."""

MOST_NUMBERS = 2**21
"""Numbers that are compared at once, at most: of many pairs of rows and points, some are."""


@dataclass(frozen=True)
class Contradiction:
    """Something that the truth contradicts.

    Attributes:
        kind: what held it, such as ``difference`` or ``proved``.
        where: the node of the merged graph, or what else it is about.
        detail: numbers.
        circuit: the components that the circuit in question lacks.
    """

    kind: str
    where: str
    detail: str
    circuit: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}: {self.detail} (without {self.circuit or 'nothing'})"


class Comparison:
    """Compares what a verifier holds with the truth, and notes what contradicts it.

    Args:
        truth: the truth of its claim.
        points: where they are compared at first; ``take`` takes others.
    """

    def __init__(self, truth: Truth, points: Points) -> None:
        self.truth = truth
        self.contradictions: list[Contradiction] = []
        self.counts: Counter[str] = Counter()
        self.circuit: Circuit = truth.components.full()
        self.roles: dict[str, Role] = {}
        """The roles of the nodes of all merged graphs so far."""
        self.below = 0
        """How deep in the bounding of subdomains the verifier is."""
        self.take(points)

    def take(self, points: Points) -> None:
        """Compare at these points from now on."""
        self.points = points
        self.merged = adapter.Merged(self.truth, points, self.roles)

    def note(self, kind: str, where: str, detail: str) -> None:
        """Something is wrong."""
        lacks = ", ".join((~self.circuit).names)
        self.contradictions.append(Contradiction(kind, where, detail, lacks))

    def compare(self, kind: str, where: str, held: Interval, true: Interval) -> bool:
        """Whether enclosures meet true values, both [n, ...]; notes where they do not."""
        self.counts["enclosures"] += held[0].numel()
        self.counts[f"{kind} compared"] += 1
        apart = ~meets(held, true)
        if not bool(apart.any()):
            return True
        wide = torch.broadcast_tensors(apart, *held, *true)
        place = tuple(int(i) for i in apart.nonzero()[0])
        low, high, least, most = (float(part[place]) for part in wide[1:])
        self.note(
            kind,
            where,
            f"[{low:.6g}, {high:.6g}] is held of [{least:.6g}, {most:.6g}], "
            f"{int(apart.sum())} of {apart.numel()} units",
        )
        return False

    def by_input(
        self, kind: str, held: Mapping[Key, Interval], true: Mapping[Key, Interval]
    ) -> None:
        """Compare enclosures with a row for each of the claim's inputs, or one for all."""
        index = self.points.index
        for name, (lower, upper) in held.items():
            if name not in true:
                continue
            if len(lower) > 1:
                lower, upper = lower[index], upper[index]
            self.compare(kind, str(name), (lower, upper), true[name])
            self.crossed(kind, str(name), (lower, upper))

    def crossed(self, kind: str, where: str, held: Interval) -> None:
        """Note enclosures of a whole domain that hold nothing at all."""
        wrong = ~(held[0] <= held[1])
        if bool(wrong.any()):
            place = tuple(int(i) for i in wrong.nonzero()[0])
            self.note(
                f"{kind}, crossed",
                where,
                f"[{float(held[0][place]):.6g}, {float(held[1][place]):.6g}] is empty",
            )

    def members(self, bounds: Bounds) -> Tensor:
        """Which points lie in the region of which rows, [rows, points].

        Where each row has patch values of its own they are moved into its boxes, see ``adapter``.
        """
        graph, ranges = bounds.structure.graph, bounds.region.ranges
        own_boxes = self.merged.gated(graph)
        found = torch.ones(bounds.problems, len(self.points), dtype=torch.bool)
        given = self.merged.inputs(graph, self.circuit, moved=own_boxes)
        for name, (first, last) in given.items():
            box = ranges[name]
            lower, upper = box.lower.flatten(1).unsqueeze(1), box.upper.flatten(1).unsqueeze(1)
            found &= ((last.flatten(1) >= lower) & (first.flatten(1) <= upper)).all(2)
            for i, domain in enumerate(box.domains or ()):
                found[i] &= domain.contains(first)
        return found

    def pairs(self, bounds: Bounds) -> tuple[Tensor, Tensor, dict[str, Interval]]:
        """Rows and points that belong together, [n] each, and the graph's tensors there."""
        graph = bounds.structure.graph
        rows, points = self.members(bounds).nonzero().T
        most = max(1, MOST_NUMBERS // bounds.structure.largest)
        if len(rows) > most:
            some = torch.linspace(0, len(rows) - 1, most).long()
            rows, points = rows[some], points[some]
        if self.merged.gated(graph):
            ranges = bounds.region.ranges
            return rows, points, self.merged.of_rows(graph, self.circuit, points, ranges, rows)
        true = self.merged.nodes(graph, self.circuit)
        return rows, points, {name: (a[points], b[points]) for name, (a, b) in true.items()}

    def bounds(self, bounds: Bounds) -> None:
        """Compare all that some bounds hold."""
        rows, _, true = self.pairs(bounds)
        if self.below:
            own = torch.ones(len(rows), dtype=torch.bool)
            for name, pair in bounds.prior.items():
                lower, upper = rows_of(pair, rows)
                least, most = true[name]
                own &= ((lower <= least) & (most <= upper)).flatten(1).all(1)
            rows, true = rows[own], {name: (a[own], b[own]) for name, (a, b) in true.items()}
            self.counts["points of subdomains"] += len(rows)
        for name, pair in bounds.ends.items():
            held = rows_of(pair, rows)
            if self.below:
                self.compare("subdomain", name, held, true[name])
                continue
            kind = "bounds"
            for what, before in (("known", bounds.known), ("prior", bounds.prior)):
                if name in before and not bool(
                    meets(rows_of(before[name], rows), true[name]).all()
                ):
                    kind = f"bounds from {what} ones"
            self.compare(kind, name, held, true[name])
            self.crossed(kind, name, pair)

    def empty(self, bounds: Bounds, found: Tensor) -> None:
        """No problem that holds a point is empty."""
        if not bool(found.any()):
            return
        rows, _, true = self.pairs(bounds)
        own = found[rows]
        if self.below:
            for name, pair in bounds.prior.items():
                lower, upper = rows_of(pair, rows)
                least, most = true[name]
                own &= ((lower <= least) & (most <= upper)).flatten(1).all(1)
        if bool(own.any()) or not self.below:
            self.note("empty", "a subdomain" if self.below else "the whole domain", "holds points")

    def least(self, kind: str, bounds: Bounds, start: str, rows: Tensor, value: Tensor) -> None:
        """Lower bounds [problems, rows] of rows [problems, rows, *shape] of a tensor."""
        places, _, true = self.pairs(bounds)
        if not len(places):
            return
        _, high = product_of(rows.double().flatten(2)[places], true[start])
        held = value.double()[places]
        self.compare(kind, start, (held, torch.full_like(held, torch.inf)), (high, high))


def rows_of(pair: Interval, rows: Tensor) -> Interval:
    """The bounds of some rows; those of constants are the same for all."""
    lower, upper = pair
    if len(lower) == 1:
        return lower.expand(len(rows), *lower.shape[1:]), upper.expand(len(rows), *upper.shape[1:])
    return lower[rows], upper[rows]


def product_of(rows: Tensor, value: Interval, offsets: Tensor | None = None) -> Interval:
    """Rows [n, r, m] times values [n, ...], at least and at most, rounding included: [n, r]."""
    low, high = (end.double().flatten(1).unsqueeze(1) for end in value)
    positive, negative = rows.clamp_min(0.0), rows.clamp_max(0.0)
    least = (positive * low + negative * high).sum(2)
    most = (positive * high + negative * low).sum(2)
    size = (rows.abs() * torch.maximum(low.abs(), high.abs())).sum(2)
    if offsets is not None:
        least, most, size = least + offsets, most + offsets, size + offsets.abs()
    return least - SLACK * size, most + SLACK * size
