"""Lines: what is settled of the lines above one layer's unstable units, in all subdomains alike.

A line is given by its shares (``hull_bound``), one for each entry of what its unit reads. Most of
them matter little: small entries make up little of any row, and most units lose next to nothing
under the lines that were chosen for the whole. So the shares of these are *settled*, once for all
subdomains of a row, and only those of a few *moving* units, at their largest entries, are chosen
for each subdomain. What is settled is a matrix that all subdomains have in common.

Shares are moved into [0, 1] here, so that what is held and what is drawn belong to the same line
whatever they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.verify.neuron_hull.presolved import Presolved


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """What is settled of the lines of one layer's units.

    Attributes:
        moving: the units that have shares of their own in every subdomain, at their largest
            entries.
        held: what settled shares add to t = sum s |G|, [units].
        lines: what they add to the lines s G, [units, n].
    """

    moving: Tensor
    held: Tensor
    lines: Tensor

    @staticmethod
    def small(problem: Presolved, shares: Tensor) -> Settled:
        """One share [units] for all small entries of a unit; all units are moving."""
        sparse, shares = problem.sparse, shares.double().clamp(0.0, 1.0)
        return Settled(
            moving=torch.arange(len(shares), device=shares.device),
            held=shares * sparse.rest_size,
            lines=shares.unsqueeze(1) * sparse.rest,
        )

    def with_shares(self, problem: Presolved, shares: Tensor, moving: Tensor) -> Settled:
        """The same, with shares [moving units, width] of all but some moving units settled.

        Args:
            problem: the problem whose first layer this is.
            shares: the shares.
            moving: which of the moving units remain so, a mask.
        """
        sparse, units = problem.sparse, self.moving[~moving]
        sizes, values, columns = sparse.sizes[units], sparse.values[units], sparse.columns[units]
        kept = shares[~moving].double().clamp(0.0, 1.0)
        drawn = kept.new_zeros(len(units), sparse.count + 1)
        drawn = drawn.scatter_add_(1, columns, kept * values)[:, :-1]
        return Settled(
            moving=self.moving[moving],
            held=self.held.index_add(0, units, (kept * sizes).sum(1)),
            lines=self.lines.index_add(0, units, drawn),
        )
