"""Ascent: choose multipliers for a condensed problem.

Slopes and multipliers are found by gradient ascent on the bound with chords above first units,
which costs two products of matrices a step; the lines that take the chords' place come after. The
gradient needs no differentiation: at the corner z of the cube where the bounded function is least,

    d bound / d D_k      = y_k there (and the slope of its bracket),
    d bound / d slope_i  = max(a_i, 0) x_i,
    d bound / d first_i  = -sign_i x_i.

All of it is plain floating point, in the arithmetic of ``dtype``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.hull.certificate import (
    Multipliers,
    Signs,
    allowed,
    brackets,
    through,
)
from provable_circuits.verify.hull.condensed import Condensed, Rows
from provable_circuits.verify.hull.transport import transport
from provable_circuits.verify.slopes import Adam

RATE = 0.1
DECAY = 0.93

SPARSE = 0.2
"""Matrices with a smaller share of nonzero entries are kept by those."""


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Where an ascent starts: multipliers but for lines."""

    second: Tensor
    slopes: Tensor
    first: Tensor


class _Matrix:
    """A matrix that is multiplied with from both sides, by its nonzero entries where few are."""

    def __init__(self, matrix: Tensor) -> None:
        few = int((matrix != 0).sum()) < SPARSE * matrix.numel()
        self.dense = None if few else matrix
        if self.dense is None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
                self.rows = matrix.to_sparse_csr()
                self.columns = matrix.T.contiguous().to_sparse_csr()

    def left(self, rows: Tensor) -> Tensor:
        """Rows times the matrix."""
        if self.dense is None:
            product: Tensor = self.columns @ rows.T.contiguous()
            return product.T
        return rows @ self.dense

    def right(self, rows: Tensor) -> Tensor:
        """Rows times the transposed matrix."""
        if self.dense is None:
            product: Tensor = self.rows @ rows.T.contiguous()
            return product.T
        return rows @ self.dense.T


class Ascent:
    """Chooses multipliers for parts of one problem."""

    def __init__(self, problem: Condensed, dtype: torch.dtype, deadline: Deadline) -> None:
        self.problem = problem
        self.dtype = dtype
        self.deadline = deadline
        first, second = problem.first, problem.second
        self.cube, self.constant = _Matrix(first.cube.to(dtype)), first.constant.to(dtype)
        self.second_cube, self.second_first = second.cube.to(dtype), second.first.to(dtype)
        self.second_constant = second.constant.to(dtype)
        radius = first.cube.abs().sum(1)
        upper = torch.minimum(problem.reach, problem.top).clamp_min(0.0)
        lower = (first.constant - radius).clamp_max(0.0)
        chord = upper / (upper - lower).clamp_min(1e-300)
        height = torch.maximum(-chord * lower, (1 - chord) * upper)
        self.chord, self.height = chord.to(dtype), height.to(dtype)
        self.default = (upper > -lower).to(dtype)

    def fresh(self, signs: Signs, weights: Tensor) -> Start:
        """The usual slopes, and chords above second units, for parts with these signs."""
        lower, upper = self.problem.lower, self.problem.upper
        chord = (upper / (upper - lower).clamp_min(1e-300)).clamp(0.0, 1.0)
        steep = torch.where(weights >= 0, (upper > -lower).double(), chord)
        fixed = signs.second
        second = weights * torch.where(fixed > 0, 1.0, torch.where(fixed < 0, 0.0, steep))
        slopes = self.default.expand(len(weights), -1).double()
        return Start(second, slopes, torch.zeros_like(slopes))

    def choose(
        self,
        goal: Rows,
        signs: Signs,
        start: Start,
        steps: int,
        rounds: int,
    ) -> Multipliers:
        """Multipliers for one row each, on parts with these signs.

        Args:
            goal: the rows.
            signs: what is known of the parts.
            start: where to start.
            steps: steps of ascent.
            rounds: rounds of transport.
        """
        best = self._climb(goal, signs, start, steps)
        first, second = self.problem.first, self.problem.second
        rows = goal.first + best.second @ second.first
        share = through(rows, signs.first, best.slopes, best.first)
        pull = goal.cube + best.second @ second.cube + share @ first.cube
        weights = torch.where(signs.first == 0, (-rows).clamp_min(0.0), 0.0)
        rest, sparse = self.chord.double(), self.problem.sparse
        pull = (pull - (weights * rest) @ sparse.rest).to(self.dtype)
        shares = transport(self.problem, weights, rest, pull, rounds, self.deadline)
        shares = torch.where(weights.unsqueeze(2) > 0, shares, self.chord.unsqueeze(1))
        return Multipliers(best.second, best.slopes, best.first, shares, rest.expand_as(weights))

    def _climb(self, goal: Rows, signs: Signs, start: Start, steps: int) -> Start:
        """The best multipliers but for lines, with chords in place of those."""
        problem, dtype = self.problem, self.dtype
        weights = goal.second
        cube, first, constant = goal.cube.to(dtype), goal.first.to(dtype), goal.constant.to(dtype)
        second = allowed(start.second, signs.second, weights)
        slopes, fixed = start.slopes.to(dtype), start.first.to(dtype)
        reach = RATE * weights.abs().clamp_min(1e-3)
        concave = (signs.second == 0) & (weights < 0)
        sign = signs.first.to(dtype)
        free, split = sign == 0, bool((sign != 0).any())
        movers = (Adam(second), Adam(slopes), Adam(fixed))
        best_value = constant.new_full((len(constant),), -torch.inf)
        best = Start(second, slopes, fixed)
        for step in range(steps):
            self.deadline.check()
            duals = second.to(dtype)
            rows = first + duals @ self.second_first
            downward = torch.where(free, rows.clamp_max(0.0), 0.0)
            share = through(rows, sign, slopes, fixed)
            pull = cube + duals @ self.second_cube + self.cube.left(share + downward * self.chord)
            value = (
                constant
                + brackets(problem, second, signs.second, weights).sum(1).to(dtype)
                + duals @ self.second_constant
                + share @ self.constant
                + downward @ (self.chord * self.constant + self.height)
                - pull.abs().sum(1)
            )
            at = (value > best_value).unsqueeze(1)
            best_value = torch.maximum(value, best_value)
            best = Start(
                torch.where(at, second, best.second),
                torch.where(at, slopes, best.slopes),
                torch.where(at, fixed, best.first),
            )
            if step == steps - 1:
                break
            corner = -pull.sign()
            read = self.cube.right(corner) + self.constant
            open_ = torch.where(rows >= 0, slopes * read, read * self.chord + self.height)
            given = torch.where(free, open_, read * (sign > 0))
            bend = torch.where(
                -second * problem.lower < (weights - second) * problem.upper,
                -problem.lower,
                -problem.upper,
            )
            gradient = self.second_constant + corner @ self.second_cube.T
            gradient = (gradient + given @ self.second_first.T).double()
            gradient = gradient + torch.where(concave, bend, 0.0)
            rate = DECAY**step
            second = second + reach * rate * movers[0].step(gradient)
            second = allowed(second, signs.second, weights)
            slope = torch.where(free, rows.clamp_min(0.0) * read, 0.0)
            slopes = (slopes + RATE * rate * movers[1].step(slope)).clamp(0.0, 1.0)
            if split:
                size = RATE * rate * (rows.abs() + rows.abs().mean(1, keepdim=True))
                fixed = (fixed + size * movers[2].step(-sign * read)).clamp_min(0.0) * sign.abs()
        return Start(best.second, best.slopes.double(), best.first.double())
