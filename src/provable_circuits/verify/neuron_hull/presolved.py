"""A problem presolved: two layers of open ReLUs over a cube, and rows that must not get negative.

Settled units are linear and vanish into products of matrices. What is left of a network is

    x = G z + b              the inputs of the first layer's unstable units, h = relu(x),
    y = P z + Q h + e        those of the second layer's, g = relu(y),
    v = p z + o h + t g + c  the rows to be bounded,

with z in the cube [-1, 1]^n: the network's inputs, shifted and scaled, and for every unstable unit
further down one more coordinate, by which its output is off its chord. Each equation holds up to
an error no larger than the radius that comes with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.rounding import TINY, gamma, met
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.tuning.neuron_hull import NeuronHullTuning


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Affine functions of z, h and g, r of them.

    Attributes:
        cube: coefficients of z, [r, n].
        first: coefficients of h, [r, first units]; no columns for those units themselves.
        second: coefficients of g, [r, second units]; no columns but for the bounded rows.
        constant: [r].
        radius: how far each may be off, [r].
    """

    cube: Tensor
    first: Tensor
    second: Tensor
    constant: Tensor
    radius: Tensor

    def __len__(self) -> int:
        return len(self.constant)

    def __neg__(self) -> Rows:
        return Rows(-self.cube, -self.first, -self.second, -self.constant, self.radius)

    def __getitem__(self, index: Tensor) -> Rows:
        return Rows(
            self.cube[index],
            self.first[index],
            self.second[index],
            self.constant[index],
            self.radius[index],
        )

    def split(self, size: int) -> list[Rows]:
        """So many rows at a time."""
        places = torch.arange(len(self), device=self.constant.device).split(size)
        return [self[some] for some in places]

    @staticmethod
    def joined(several: list[Rows]) -> Rows:
        """The rows of several, one after the other."""
        return Rows(
            torch.cat([rows.cube for rows in several]),
            torch.cat([rows.first for rows in several]),
            torch.cat([rows.second for rows in several]),
            torch.cat([rows.constant for rows in several]),
            torch.cat([rows.radius for rows in several]),
        )


@dataclass(frozen=True, eq=False)
class Presolved:
    """Two layers of open ReLUs over a cube.

    Attributes:
        first: the rows of x.
        second: the rows of y.
        goal: the rows of v.
        top: no h is larger, [first units].
        lower, upper: ends of y, [second units].
        inputs: how many coordinates of the cube, the first ones, are inputs; the others belong to
            units further down.
        tuning: how its bounds are chosen.
    """

    first: Rows
    second: Rows
    goal: Rows
    top: Tensor
    lower: Tensor
    upper: Tensor
    inputs: int
    tuning: NeuronHullTuning = DEFAULT.neuron_hull

    @cached_property
    def reach(self) -> Tensor:
        """Upper bounds b + |G| 1 of x, not rounded with care: they choose, they do not prove."""
        return self.first.constant + self.first.cube.abs().sum(1)

    @cached_property
    def sparse(self) -> Sparse:
        """The first layer's rows by their nonzero entries."""
        return Sparse(self.first.cube, self.tuning)

    def with_goal(self, goal: Rows) -> Presolved:
        """The first layer alone, and these rows over it."""
        none = torch.zeros(0, dtype=torch.long, device=self.top.device)
        return self._changed(
            second=self.second[none],
            goal=replace(goal, second=goal.second[:, :0]),
            lower=self.lower[none],
            upper=self.upper[none],
        )

    def both_ways(self) -> Presolved:
        """The same with the negatives of its rows after them."""
        return self._changed(goal=Rows.joined([self.goal, -self.goal]))

    def with_ends(self, lower: Tensor, upper: Tensor) -> Presolved:
        """The same with tighter bounds of y."""
        lower, upper = met((self.lower, self.upper), (lower, upper))
        return self._changed(lower=lower, upper=upper)

    def _changed(self, **changes: Rows | Tensor) -> Presolved:
        """A copy that keeps what was worked out about the first layer."""
        other = replace(self, **changes)  # type: ignore[arg-type]
        vars(other).update(reach=self.reach, sparse=self.sparse)
        return other


@dataclass(frozen=True, eq=False)
class Below:
    """A layer further down, whose units have a coordinate of the cube each.

    For a unit that reads x and has the coordinate z: relu(x) = s x + (1 + z) * gap / 2.

    Attributes:
        rows: x, in terms of the cube.
        columns: the units' coordinates.
        slopes: s, [units].
        gaps: [units].
        top: no output is larger, [units].
        inputs: how many coordinates are inputs.
        tuning: how its bounds are chosen.
    """

    rows: Rows
    columns: Tensor
    alpha: Tensor
    gaps: Tensor
    top: Tensor
    inputs: int
    tuning: NeuronHullTuning

    @cached_property
    def problem(self) -> Presolved:
        """The layer as the first of a problem that has no second."""
        nothing = torch.zeros(0, dtype=torch.long, device=self.top.device)
        none = self.rows[nothing]
        return Presolved(
            first=self.rows,
            second=replace(none, first=self.top.new_zeros(0, len(self.top))),
            goal=none,
            top=self.top.clamp_min(0.0),
            lower=self.top[:0],
            upper=self.top[:0],
            inputs=self.inputs,
            tuning=self.tuning,
        )

    def goal(self, base: Tensor, cube: Tensor) -> Rows:
        """Functions ``base + cube z``, with the units themselves in place of their coordinates.

        By the equation above, q z = a (relu(x) - s x) - q with a = 2 q / gap.
        """
        own = cube[:, self.columns]
        first = 2 * own / self.gaps
        through = first * self.alpha
        sparse = self.problem.sparse
        left = cube.index_fill(1, self.columns, 0.0) - through @ self.rows.cube
        constant = base - own.sum(1) - through @ self.rows.constant
        sizes = sparse.total + self.rows.constant.abs() + self.rows.radius + self.top
        scale = cube.abs().sum(1) + base.abs() + own.abs().sum(1) + first.abs() @ sizes
        terms = cube.shape[1] + len(self.gaps) + 32
        radius = through.abs() @ self.rows.radius * (1 + 1e-9)
        lost = terms * terms * TINY * (1.0 + float(sizes.sum() + self.gaps.sum()))
        radius = radius + 8 * gamma(terms) * 1.01 * scale + lost
        return Rows(left, first, first[:, :0], constant, radius)


class Sparse:
    """The largest entries of each row of a matrix [m, n], and a matrix of the others.

    Attributes:
        columns: where the largest entries are, [m, width]; n where a place is not needed.
        values: these entries, [m, width]; zero there.
        sizes: their absolute values.
        rest: the matrix without them, [m, n].
        rest_size: the sum of its absolute values by row, [m].
        total: the sum of all absolute values by row, [m].
    """

    def __init__(self, matrix: Tensor, tuning: NeuronHullTuning) -> None:
        full = int((matrix != 0).sum(1).max()) if matrix.numel() else 0
        ordered = matrix.abs().topk(full, dim=1)
        width = _width(ordered.values, tuning)
        order = ordered.indices[:, :width]
        self.values = matrix.gather(1, order)
        self.sizes = self.values.abs()
        self.columns = torch.where(self.sizes > 0, order, matrix.shape[1])
        self.rest = matrix.scatter(1, order, 0.0)
        self.rest_size = self.rest.abs().sum(1)
        self.total = self.sizes.sum(1) + self.rest_size
        self.count = matrix.shape[1]

    def scattered(self, entries: Tensor, rows: Tensor) -> Tensor:
        """Entries [k, r, width] of some rows [r], added up by column: [k, n]."""
        total = entries.new_zeros(len(entries), self.count + 1)
        total.index_add_(1, self.columns[rows].flatten(), entries.flatten(1))
        return total[:, :-1]


def _width(sizes: Tensor, tuning: NeuronHullTuning) -> int:
    """How many of the entries of rows are kept apart, their sizes in descending order."""
    full = sizes.shape[1]
    if full < 2 * tuning.few_entries:
        return full
    before = sizes.cumsum(1) - sizes
    most = int((before < tuning.largest_share * sizes.sum(1, keepdim=True)).sum(1).max())
    return full if full < 2 * most else max(most, tuning.few_entries)
