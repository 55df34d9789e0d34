"""Subdomains of the rows of a presolved problem, and their bounds.

A subdomain is where some units have fixed signs. It starts from the multipliers of the one that it
was split from, and is closed when those chosen for it certify that its row is not negative, through
the layers further down (``layerwise_dual``). Only the bounds of closed subdomains are rigorous:
others are what plain floating point makes of their multipliers, and say which subdomain to split
next.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from provable_circuits.verify.bounding.scores import hinges
from provable_circuits.verify.neuron_hull.hull_bound import Multipliers
from provable_circuits.verify.neuron_hull.joint_dual import JointDual, Seen
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual

UNIT_NUMBERS = 16
"""Numbers of two bytes that a subdomain has for every unit, besides shares, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class HullSubdomains:
    """Subdomains, k of them; units are those of the second layer, the first, and all further down.

    Attributes:
        row: which row each belongs to, [k].
        signs: +1 and -1 where a unit's input is nonnegative or nonpositive, else 0; [k, units].
        chosen: multipliers of the problem, and of every layer further down.
        value: bounds, not rigorous; [k].
        scores: what fixing each unit promises, zero where it is fixed; [k, units].
    """

    row: Tensor
    signs: Tensor
    chosen: tuple[Multipliers, ...]
    value: Tensor
    scores: Tensor

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Tensor | slice) -> HullSubdomains:
        return HullSubdomains(
            self.row[index],
            self.signs[index],
            tuple(own[index] for own in self.chosen),
            self.value[index],
            self.scores[index],
        )

    @staticmethod
    def joined(several: Sequence[HullSubdomains]) -> HullSubdomains:
        """All subdomains of several batches."""
        layers = zip(*(subdomains.chosen for subdomains in several), strict=True)
        return HullSubdomains(
            torch.cat([subdomains.row for subdomains in several]),
            torch.cat([subdomains.signs for subdomains in several]),
            tuple(Multipliers.joined(layer) for layer in layers),
            torch.cat([subdomains.value for subdomains in several]),
            torch.cat([subdomains.scores for subdomains in several]),
        )

    def split(self) -> HullSubdomains:
        """Two children of each, at the unit that promises most."""
        units = self.scores.argmax(1)
        children = HullSubdomains.joined([self, self])
        place = torch.arange(len(children), device=units.device)
        children.signs[place, units.repeat(2)] = 1.0
        children.signs[place[len(self) :], units] = -1.0
        children.scores[place, units.repeat(2)] = 0.0
        return children


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """What bounding subdomains has shown.

    Attributes:
        bounds: the rigorous bounds of those that are closed.
        closed: these.
        left: the others.
        cube: the coefficients of the cube behind the bounds of those left.
        lined: what their units lose under lines, those of the second layer left out.
    """

    bounds: Tensor
    closed: HullSubdomains
    left: HullSubdomains
    cube: Tensor
    lined: Tensor

    @staticmethod
    def joined(several: Sequence[Bounded]) -> Bounded:
        """What several batches have shown."""
        return Bounded(
            torch.cat([batch.bounds for batch in several]),
            HullSubdomains.joined([batch.closed for batch in several]),
            HullSubdomains.joined([batch.left for batch in several]),
            torch.cat([batch.cube for batch in several]),
            torch.cat([batch.lined for batch in several]),
        )


def split(subdomains: HullSubdomains, few: int) -> HullSubdomains:
    """The halves of every subdomain; or its quarters, if they are few and can be split again."""
    halves = subdomains.split()
    again = len(subdomains) <= few and bool((halves.scores > 0).any(1).all())
    return halves.split() if again else halves


def moving_units(lost: Tensor, share: float) -> Tensor:
    """The units whose shares each subdomain has of its own: such a share of what lines lose."""
    lost = lost.clamp_min(0.0)
    order = lost.argsort(descending=True)
    before = lost[order].cumsum(0) - lost[order]
    found = torch.zeros_like(lost, dtype=torch.bool)
    found[order] = before < share * lost.sum()
    return found


class Waiting:
    """Subdomains that are to be split, the one with the least bound first.

    The multipliers of a subdomain are many numbers. Each part is copied once, when it comes in, and
    not every time that others come and go.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, HullSubdomains]] = []
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, subdomains: HullSubdomains) -> None:
        """More subdomains."""
        everyone = torch.arange(len(subdomains), device=subdomains.row.device)
        for i, value in enumerate(subdomains.value.tolist()):
            alone = subdomains[everyone[i : i + 1]]
            heapq.heappush(self._heap, (value, next(self._count), alone))

    def take(self, most: int) -> HullSubdomains:
        """So many subdomains at most, which wait no longer."""
        count = min(most, len(self._heap))
        return HullSubdomains.joined([heapq.heappop(self._heap)[2] for _ in range(count)])

    def take_easiest(self, most: int) -> HullSubdomains:
        """The same, those that lack least: their children hardly wait."""
        self._heap.sort()
        taken, self._heap = self._heap[-most:], self._heap[:-most]
        return HullSubdomains.joined([part for _, _, part in taken])


class SubdomainBounds:
    """Bounds subdomains of the rows of one presolved problem."""

    def __init__(self, chain: LayerwiseDual) -> None:
        self.chain = chain
        self.problem = chain.problem
        self.joint = JointDual(chain)
        self.tuning = chain.problem.tuning
        self.width = max(1, self.tuning.most_entries // max(chain.entries, 1))

    def roots(self) -> Bounded:
        """Every row whole."""
        goal, problem = self.problem.goal, self.problem
        sure = (problem.lower >= 0).double() - (problem.upper <= 0).double()
        signs = sure.new_zeros(len(goal), sum(self.chain.sizes))
        signs[:, : len(sure)] = sure
        found = []
        for some in torch.arange(len(goal), device=signs.device).split(self.width):
            own, known = goal[some], self.chain.known(signs[some])
            chosen = tuple(self.chain.fresh(own, known))
            none = own.constant.new_full((len(own),), -math.inf)
            subdomains = HullSubdomains(
                some, signs[some], chosen, none, torch.zeros_like(signs[some])
            )
            found.append(self._batch(subdomains, self.tuning.root_steps))
        return Bounded.joined(found)

    def narrowed(
        self, part: HullSubdomains, moving: Tensor
    ) -> tuple[SubdomainBounds, HullSubdomains]:
        """Bounds of subdomains of a subdomain, with most of its shares settled; and it, for them.

        Args:
            part: the subdomain, alone.
            moving: the units whose shares are not settled, a mask; without the second layer.
        """
        masks = moving.split(self.chain.sizes[1:])
        chain, chosen = self.chain.narrowed(part.chosen, masks)
        return SubdomainBounds(chain), replace(part, chosen=tuple(chosen))

    def certified(self, subdomains: HullSubdomains) -> Tensor:
        """Rigorous bounds of subdomains by the multipliers that they have, [k]."""
        found = [subdomains.value[:0]]
        for some in torch.arange(len(subdomains), device=subdomains.row.device).split(self.width):
            own = subdomains[some]
            goal, known = self.problem.goal[own.row], self.chain.known(own.signs)
            found.append(self.chain.certify(goal, known, own.chosen).value)
        return torch.cat(found)

    def children(self, subdomains: HullSubdomains) -> Bounded:
        """Subdomains that were just split."""
        places = torch.arange(len(subdomains), device=subdomains.row.device).split(self.width)
        steps = self.tuning.part_steps
        return Bounded.joined([self._batch(subdomains[some], steps) for some in places])

    def _batch(self, subdomains: HullSubdomains, steps: int) -> Bounded:
        """Subdomains bounded anew."""
        goal, known = self.problem.goal[subdomains.row], self.chain.known(subdomains.signs)
        chosen, seen = self.joint.climb(goal, known, subdomains.chosen, steps)
        value = seen.value.double().nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
        scores = self._scores(goal.second, chosen[0].second, seen)
        learnt = HullSubdomains(
            row=subdomains.row,
            signs=subdomains.signs,
            chosen=tuple(replace(own, shares=own.shares.half()) for own in chosen),
            value=torch.maximum(value, subdomains.value),
            scores=torch.where(
                subdomains.signs == 0, scores.clamp_min(self.tuning.least_score), 0.0
            ),
        )
        likely = (
            (value >= self.tuning.worth_certifying * subdomains.value.clamp_max(0.0))
            .nonzero()
            .flatten()
        )
        signs = [own[likely] for own in known]
        multipliers = [own[likely] for own in chosen]
        proved = self.chain.certify(goal[likely], signs, multipliers).value
        closed = likely[proved >= 0]
        left = torch.ones(len(subdomains), dtype=torch.bool, device=likely.device)
        left[closed] = False
        cube, lined = seen.cube[left].double(), seen.lined[left].double()
        return Bounded(proved[proved >= 0], learnt[closed], learnt[left], cube, lined)

    def _scores(self, weights: Tensor, beta: Tensor, seen: Seen) -> Tensor:
        """What the relaxation of each unit costs, at the point that is worst or at all."""
        lower, upper, read = self.problem.lower, self.problem.upper, seen.second
        below = weights * read.clamp_min(0.0) - beta * read
        below = torch.maximum(below, 0.1 * weights * torch.minimum(upper, -lower))
        seconds = torch.where(weights < 0, -weights * hinges(lower, upper), below)
        return torch.cat([seconds, seen.lost.double()], dim=1)
