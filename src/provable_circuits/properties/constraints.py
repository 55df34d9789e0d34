"""The constraints of several cases that share a box, as one stack of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.properties.vnnlib import Case
from provable_circuits.verify.bounding.root_problems import rounding_slack

STRICT = 1e-300
"""A bound must exceed zero by this much: more than nothing, and less than anything that matters."""


class Constraints:
    """All constraints ``rows @ y <= bounds`` of some cases, one case after the other.

    Attributes:
        cases: the cases.
        rows: the rows of all of them, [constraints, outputs].
        owners: which case each belongs to, [constraints].
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        self.rows = torch.cat([case.rows for case in self.cases])
        counts = torch.tensor([len(case.rows) for case in self.cases])
        self.owners = torch.arange(len(self.cases)).repeat_interleave(counts)
        self._inner = torch.cat([case.inner_bounds for case in self.cases])

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def offsets(self) -> Tensor:
        """Offsets such that rows @ y + offsets >= 0 means rows @ y > bounds, strictly."""
        bounds = torch.cat([case.bounds for case in self.cases])
        above = torch.nextafter(bounds, torch.full_like(bounds, torch.inf))
        return -torch.where(bounds.abs() < STRICT, torch.full_like(bounds, STRICT), above)

    def excluded(self, value: Tensor) -> Tensor:
        """Cases that lower bounds of rows @ y, [boxes, constraints], exclude: [boxes, cases].

        A case is excluded as soon as one of its constraints is violated everywhere.
        """
        violated = (value + self.offsets - rounding_slack(value, self.offsets) >= 0).long()
        counts = torch.zeros(len(value), len(self.cases), dtype=torch.long)
        return counts.index_add(1, self.owners, violated) > 0

    def worst(self, y: Tensor) -> Tensor:
        """The largest of rows @ y - bounds of each case at outputs [n, outputs]: [n, cases]."""
        values = y @ self.rows.T - self._inner
        none = values.new_full((len(values), len(self.cases)), -torch.inf)
        return none.scatter_reduce(1, self.owners.expand_as(values), values, "amax")
