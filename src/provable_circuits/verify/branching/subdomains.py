"""Subdomains of a branch and bound: sets of inputs on which some ReLU inputs have fixed signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Subdomains:
    """Subdomains, n of them, each a row of every tensor; units are the open ones of the roots.

    Attributes:
        root: which root each descends from, [n].
        lower, upper: the bounds of every unit's input, [n, units].
        signs: +1 and -1 where a unit's input is nonnegative or nonpositive all over the subdomain,
            by a             split or by what follows from one; else 0.
        slopes: the lower slopes chosen.
        duals: the multipliers chosen, nonnegative, zero where there is no sign.
        rows: what the bound's row is at each unit's output.
        value: the bound so far, [n].
        scores: how much each unstable unit's relaxation costs the bound, zero where it is settled.
    """

    root: Tensor
    lower: Tensor
    upper: Tensor
    signs: Tensor
    alpha: Tensor
    beta: Tensor
    rows: Tensor
    value: Tensor
    scores: Tensor

    def __len__(self) -> int:
        return len(self.root)

    def __getitem__(self, index: Tensor | slice) -> Subdomains:
        return Subdomains(*(getattr(self, field.name)[index] for field in fields(self)))

    @staticmethod
    def joined(several: Sequence[Subdomains]) -> Subdomains:
        """All subdomains of several batches."""
        return Subdomains(
            *(
                torch.cat([getattr(subdomains, f.name) for subdomains in several])
                for f in fields(Subdomains)
            )
        )

    def split(self, units: Tensor) -> Subdomains:
        """Two children of each subdomain at its unit, [n]; the nonnegative ones come first."""
        children = Subdomains.joined([self, self])
        place = torch.arange(len(children), device=units.device)
        unit = units.repeat(2)
        sign = torch.ones(len(children), dtype=torch.float64, device=units.device)
        sign[len(self) :] = -1.0
        lower, upper = children.lower[place, unit], children.upper[place, unit]
        children.lower[place, unit] = torch.where(sign > 0, lower.clamp_min(0.0), lower)
        children.upper[place, unit] = torch.where(sign < 0, upper.clamp_max(0.0), upper)
        return children

    def signed(self, lower: Tensor, upper: Tensor, leaks: Tensor) -> tuple[Tensor, Tensor]:
        """The signs that follow from tighter bounds, and multipliers to start from.

        Where a unit's sign became known, its line changes from slope a to its own, k = 1 or the
        leak. With the multiplier A (1 - a), or A (a - k), of its row A >= 0 the bound starts as
        the function that it was, so that a subdomain is never bounded worse than what it is a
        subdomain of.
        """
        signs = signs_of(lower, upper)
        weight = self.rows.clamp_min(0.0)
        start = weight * torch.where(signs > 0, 1 - self.alpha, self.alpha - leaks)
        fresh = (signs != 0) & (self.signs == 0)
        return signs, torch.where(fresh, start, self.beta)


def signs_of(lower: Tensor, upper: Tensor) -> Tensor:
    """+1 where ends are nonnegative, -1 where they are nonpositive, 0 where neither."""
    return (lower >= 0).double() - ((upper <= 0) & (lower < 0)).double()


def children_of(subdomains: Subdomains, units: Tensor, real: Tensor) -> Subdomains:
    """The children of subdomains at units [n, levels], in turn, where they are ``real``."""
    children, origin = subdomains, torch.arange(len(subdomains), device=units.device)
    for level in range(units.shape[1]):
        further = real[origin, level]
        split = children[further].split(units[origin[further], level])
        children = Subdomains.joined([children[~further], split])
        origin = torch.cat([origin[~further], origin[further].repeat(2)])
    return children


def batches(count: int, size: int) -> list[Tensor]:
    """The numbers up to ``count``, so many at a time."""
    return list(torch.arange(count).split(size))
