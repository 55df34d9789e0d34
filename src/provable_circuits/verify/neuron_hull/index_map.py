"""Index maps: what the signs and multipliers of one problem's subdomains are in another.

Two questions about circuits that differ by a component have nearly the same unstable units, but not
in the same order, nor the same coordinates of the cube. Units and coordinates are known by numbers
(``proof_reuse``). A wrong number would cost time and prove nothing wrong: any multipliers prove
what they prove, and the signs of leaves cover everything whichever units they are taken to be of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from provable_circuits.verify.neuron_hull.hull_bound import Multipliers
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual


@dataclass(frozen=True, slots=True, eq=False)
class IndexMap:
    """What the signs and multipliers of a problem's subdomains belong to.

    Attributes:
        units: the numbers of all units, [units].
        coordinates: the numbers of the cube's coordinates, [n].
        sizes: how many units the second layer, the first, and every layer further down have.
        owners: the unit that each share belongs to, by its place; [shares].
        columns: its coordinate, by its place; n where an entry is not needed.
    """

    units: Tensor
    coordinates: Tensor
    sizes: Sequence[int]
    owners: Tensor
    columns: Tensor

    @staticmethod
    def of(chain: LayerwiseDual, units: Tensor, coordinates: Tensor) -> IndexMap:
        """The frame of a chain whose units and coordinates have these numbers."""
        sizes = chain.sizes
        start, owners, columns = sizes[0], [], []
        for problem, settled, size in zip(chain.problems, chain.settled, sizes[1:], strict=True):
            own = problem.sparse.columns[settled.moving]
            owners.append((settled.moving + start).unsqueeze(1).expand_as(own).flatten())
            columns.append(own.flatten())
            start += size
        return IndexMap(units, coordinates, sizes, torch.cat(owners), torch.cat(columns))


class Match:
    """Where the units and shares of one frame are found in an older one.

    Attributes:
        units: their places, -1 where they are not found; [units].
        shares: the same, [shares].
    """

    def __init__(self, old: IndexMap, new: IndexMap) -> None:
        self.old, self.new = old, new
        self.units = _places(old.units, new.units)
        columns = _places(old.coordinates, new.coordinates)
        columns = torch.cat([columns, columns.new_full((1,), -1)])[new.columns]
        owners, count = self.units[new.owners], len(old.coordinates) + 1
        wanted = torch.where((owners >= 0) & (columns >= 0), owners * count + columns, -1)
        self.shares = _places(old.owners * count + old.columns, wanted)

    def carried(
        self, before: Sequence[Multipliers], usual: Sequence[Multipliers]
    ) -> tuple[Multipliers, ...]:
        """Multipliers of subdomains of the old index map, for the new one.

        Args:
            before: those of the old frame.
            usual: those of the new frame that serve where there were none.
        """
        alpha = torch.cat([own.alpha for own in before], dim=1)
        first = torch.cat([own.first for own in before], dim=1)
        shares = torch.cat([own.shares.flatten(1) for own in before], dim=1)
        seconds, *sizes = self.new.sizes
        skipped = self.old.sizes[0]
        above, below = self.units[:seconds], self.units[seconds:]
        above = torch.where(above < skipped, above, -1)
        below = (below - skipped).clamp_min(-1).split(sizes)
        entries = self.shares.split([own.shares[0].numel() for own in usual])
        found = [
            Multipliers(
                own.second,
                _picked(alpha, places, own.alpha),
                _picked(first, places, own.first),
                _picked(shares, slots, own.shares.flatten(1)).view_as(own.shares),
            )
            for own, places, slots in zip(usual, below, entries, strict=True)
        ]
        beta = _picked(before[0].second, above, usual[0].second)
        return (replace(found[0], second=beta), *found[1:])


def _places(among: Tensor, wanted: Tensor) -> Tensor:
    """Where numbers are among others, -1 where they are not."""
    if not len(among):
        return torch.full_like(wanted, -1)
    ordered, order = among.sort()
    spots = torch.searchsorted(ordered, wanted).clamp_max(len(among) - 1)
    return torch.where(ordered[spots] == wanted, order[spots], -1)


def _picked(values: Tensor, places: Tensor, usual: Tensor) -> Tensor:
    """Columns of values [k, m] in some places, of the usual ones [k, n] where there is none."""
    if not values.shape[1]:
        return usual
    return torch.where(places >= 0, values[:, places.clamp_min(0)].to(usual.dtype), usual)
