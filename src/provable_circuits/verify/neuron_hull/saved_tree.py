"""Saved trees: how a row was split when it was proved, for the next question to start from.

Questions of one search differ by a component or two, and what is hard about a row stays the same.
So the *leaves* of a proof, the subdomains that were closed, are kept: their signs, and the
multipliers that closed them. A later question about the row certifies subdomains with these signs
at once, and only what that leaves open is bounded anew, and split. None of the subdomains in
between is looked at again.

The leaves of a proof cover all patterns of signs, because every subdomain was split into both signs
of a unit. They still do in another question, where some units are missing or have a sure sign: take
any pattern of the others, give each missing unit a sign, and there is a leaf that agrees with all
of them. So it suffices to keep, for any choice of one sign for each missing unit, the leaves that
do not have the other, and to forget the unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from provable_circuits.verify.neuron_hull.index_map import IndexMap, Match
from provable_circuits.verify.neuron_hull.subdomains import UNIT_NUMBERS, HullSubdomains

PLACES = 8
"""Numbers of two bytes that a frame has for every share: a unit and a column."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedTree:
    """The leaves of a row's proof.

    Attributes:
        whole: what the multipliers of the row belong to, before most of its shares were settled.
        root: the row, with these multipliers.
        moving: the units whose shares were not settled, a mask; those of the second layer left out.
        frame: what the multipliers of leaves belong to.
        leaves: the subdomains that were closed.
    """

    whole: IndexMap
    root: HullSubdomains
    moving: Tensor
    index_map: IndexMap
    leaves: HullSubdomains

    @property
    def numbers(self) -> int:
        """How many numbers this holds, of two bytes each."""
        shares = (len(self.leaves) + PLACES) * len(self.index_map.owners)
        units = (len(self.leaves) + 1) * UNIT_NUMBERS * len(self.index_map.units)
        return shares + units + (1 + PLACES) * len(self.whole.owners)

    def carried(self, whole: IndexMap, row: HullSubdomains) -> tuple[HullSubdomains, Tensor]:
        """A row of another problem with the multipliers of this one, and which units are moving."""
        match = Match(self.whole, whole)
        chosen = match.carried(self.root.chosen, row.chosen)
        places = (match.units[whole.sizes[0] :] - self.whole.sizes[0]).clamp_min(-1)
        still = torch.cat([self.moving, self.moving.new_zeros(1)])
        return replace(row, chosen=chosen), still[places]


class Cover:
    """Subdomains that cover a row, with the signs and multipliers of an earlier proof's leaves.

    Args:
        saved_tree: the earlier proof.
        index_map: what the signs and multipliers of the row's subdomains belong to.
        root: the row; its multipliers serve where a leaf has none.
    """

    def __init__(self, saved_tree: SavedTree, index_map: IndexMap, root: HullSubdomains) -> None:
        self.leaves = saved_tree.leaves
        self.root = root
        self.match = Match(saved_tree.index_map, index_map)
        split = torch.where(saved_tree.root.signs == 0, self.leaves.signs, 0.0)
        self.places, self.signs = covering(split, self.match.units, root.signs[0])

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Tensor | slice) -> HullSubdomains:
        """Some of the subdomains."""
        leaves = self.leaves[self.places[index]]
        whole = self.root[torch.zeros_like(leaves.row)]
        chosen = self.match.carried(leaves.chosen, whole.chosen)
        return replace(whole, signs=self.signs[index], chosen=chosen)


def covering(leaves: Tensor, units: Tensor, sure: Tensor) -> tuple[Tensor, Tensor]:
    """Which leaves cover all patterns of other units' signs, [k]; and their signs, [k, others].

    Args:
        leaves: signs that cover all patterns, 0 where both are meant; [leaves, units].
        units: where the others are among those units, -1 where they are not; [others]. Several in
            one place are not taken to be there: a leaf says nothing about different signs of them.
        sure: the others' signs, where they have one for sure; [others].
    """
    met = torch.bincount(units[units >= 0], minlength=leaves.shape[1])
    there = (units >= 0).nonzero().flatten()
    there = there[met[units[there]] == 1]
    given = torch.where(leaves.sum(0) >= 0, 1.0, -1.0).to(leaves.dtype)
    given[units[there]] = sure[there].to(leaves.dtype)
    agree = ((given == 0) | (leaves != -given)).all(1).nonzero().flatten()
    signs = sure.repeat(len(agree), 1)
    free = there[sure[there] == 0]
    signs[:, free] = leaves[agree][:, units[free]].to(signs.dtype)
    return agree, signs
