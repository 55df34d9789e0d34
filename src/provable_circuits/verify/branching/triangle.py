"""The triangle relaxation of a subdomain as a linear program, whose duals are alpha and beta.

Write r_i = relu(g_i) for each unit i that is unstable at the root; with the slope s left of zero
its output is s g_i + (1 - s) r_i. Every g_i, and the row that is bounded, is a linear function of
the inputs and of the r before it, the same in all subdomains. A subdomain adds, for
l_i <= g_i <= u_i,

    unstable    r >= 0,   r >= g,   r <= u (g - l) / (u - l) + v
    active      r = g,              g >= -v
    inactive    r = 0,              g <= v

with v >= 0 at a high price, so that there always is a solution: where the subdomain is empty the
price is paid, and what is bounded exceeds any threshold. The r of active and inactive units are
eliminated. At the optimum let m be the dual value of r >= g and p that of r >= 0. The lower slopes
m / (m + p) of unstable units and the duals of g >= -v and g <= v, as multipliers, make a backward
pass reach the optimum. So the solver chooses, a rigorous pass proves, and nothing rests on the
solver: any slopes between s and 1 and any nonnegative multipliers give a valid bound. Its point is
a candidate witness.

Alpha and beta by gradient ascent (``slopes``) come near the optimum for many subdomains at once;
this meets it for one. It pays where few units are unstable and the tree would grow large.

The relaxation is that of Ehlers (2017), Formal Verification of Piece-Wise Linear Feed-Forward
Neural Networks. The solver only chooses; what is proved, a rigorous backward pass proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array
from torch import Tensor

from provable_circuits.network.ops import Constant, Input, LinearOp
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.deadline import Deadline

Floats = NDArray[np.float64]
Goals = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """What the solver says of some subdomains, n of them.

    Attributes:
        value: about the least values of the rows, [n].
        point: the inputs where they are attained, [n, inputs].
        slopes: the lower slopes of the units, [n, units]; NaN where any slope will do.
        duals: the multipliers of the units' signs, nonnegative, [n, units].
        gaps: by how much r exceeds relu(g) there, [n, units].
    """

    value: Floats
    point: Floats
    alpha: Floats
    beta: Floats
    gaps: Floats

    @staticmethod
    def joined(several: Sequence[Solved]) -> Solved:
        """All subdomains of several answers."""
        return Solved(
            *(np.concatenate([getattr(one, f.name) for one in several]) for f in fields(Solved))
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """Programs as the solver takes them.

    Attributes:
        cost, matrix, most, limits: minimise cost . c where matrix @ c <= most, between limits.
        sizes: what each objective was divided by.
        units: coefficients and constants of what units read.
        goals: those of the objectives.
    """

    cost: Floats
    matrix: csr_array
    most: Floats
    limits: Floats
    sizes: Floats
    units: Goals
    goals: Goals


class Triangle:
    """The relaxation of one problem, from which those of its subdomains are made.

    Args:
        bounds: enclosures of one problem, over boxes, all activations piecewise linear.
        units: the units that have a variable; all others are settled in the problem.
        deadline: when to stop.
    """

    def __init__(self, bounds: Bounds, units: UnstableUnits, deadline: Deadline) -> None:
        self.bounds = bounds
        self.tuning = bounds.structure.configuration.branching
        self.units = units
        self.deadline = deadline
        self.leaks: Floats = units.leaks.numpy(force=True)
        ends = [bounds.region.ends(name) for name in bounds.region.ranges]
        self.lower: Floats = np.concatenate([e[0][0].flatten().numpy(force=True) for e in ends])
        self.upper: Floats = np.concatenate([e[1][0].flatten().numpy(force=True) for e in ends])
        self.inputs = len(self.lower)
        matrices, constants = [], []
        for node in units.nodes:
            columns = units.columns[node.name]
            source = bounds.structure.graph[node.inputs[0]]
            rows = units.leaks.new_zeros(len(columns), *source.shape)
            rows.flatten(1)[torch.arange(len(columns)), columns] = 1.0
            matrix, constant = self.form(source.name, rows)
            matrices.append(matrix)
            constants.append(constant)
        self.matrix: Floats = np.concatenate(matrices)
        self.constant: Floats = np.concatenate(constants)

    def form(self, start: str, rows: Tensor) -> tuple[Floats, Floats]:
        """Rows [n, *shape] of a tensor as functions of inputs and units: matrix and constants."""
        bounds, units, graph = self.bounds, self.units, self.bounds.structure.graph
        held = {start: rows}
        constant = rows.new_zeros(len(rows))
        inputs: dict[str, Tensor] = {}
        own: dict[str, Tensor] = {}
        for node in reversed(graph.nodes):
            given = held.pop(node.name, None)
            if given is None:
                continue
            op = bounds.structure.ops[node.name]
            pieces: tuple[Tensor, ...] = ()
            if isinstance(op, Input):
                inputs[node.name] = given.flatten(1)
            elif isinstance(op, Constant):
                constant = constant + given.flatten(1) @ op.value.flatten()
            elif isinstance(op, LinearOp):
                pieces = tuple(op.pullback(given, *(graph[name].shape for name in node.inputs)))
                offset = op.offset()
                if offset is not None:
                    constant = constant + given.flatten(1) @ offset.expand(node.shape).flatten()
            else:
                slope = bounds.lines[node.name].below_slope
                slope = slope.expand(1, *node.shape).flatten(1)
                columns = units.columns.get(node.name)
                if columns is not None:
                    leak = units.split(units.leaks.unsqueeze(0))[node.name]
                    own[node.name] = given.flatten(1)[:, columns] * (1 - leak)
                    slope = slope.index_copy(1, columns, leak)
                pieces = ((given.flatten(1) * slope).reshape(given.shape),)
            for name, piece in zip(node.inputs, pieces, strict=bool(pieces)):
                held[name] = held[name] + piece if name in held else piece
        subdomains = [
            inputs[name] if name in inputs else rows.new_zeros(len(rows), box.lower[0].numel())
            for name, box in bounds.region.ranges.items()
        ]
        subdomains.append(units.gather(own, len(rows)))
        return torch.cat(subdomains, dim=1).numpy(force=True), constant.numpy(force=True)

    def solve(self, goals: Goals, lower: Floats, upper: Floats, signs: Floats) -> Solved:
        """Ask the solver for the least value of functions, each over a subdomain of its own.

        Args:
            goals: coefficients of inputs and units [n, inputs + units], and constants [n].
            lower: lower bounds of what the units read in the subdomains, [n, units].
            upper: upper bounds of the same.
            signs: +1 for active units, -1 for inactive ones, 0 elsewhere; [n, units].
        """
        block = self.tuning.programs_at_once
        some = range(0, len(signs), block)
        found = [self._solve(goals, lower, upper, signs, slice(i, i + block)) for i in some]
        return Solved.joined(found)

    def _solve(
        self, goals: Goals, lower: Floats, upper: Floats, signs: Floats, own: slice
    ) -> Solved:
        """The same for few subdomains, as one program of as many blocks."""
        self.deadline.check()
        costs, constants = (goal[own] for goal in goals)
        program = self._written((costs, constants), lower[own], upper[own], signs[own])
        if program is None:
            return self._nothing(len(costs))
        answer = linprog(
            program.cost,
            A_ub=program.matrix,
            b_ub=program.most,
            bounds=program.limits,
            method="highs-ds",
            options={
                "time_limit": max(min(self.deadline.left, 1e6), self.tuning.solver_seconds),
                "presolve": False,
            },
        )
        if answer.status != 0:
            if len(costs) == 1:
                return self._nothing(1)
            half = own.start + (len(costs) + 1) // 2
            subdomains = slice(own.start, half), slice(half, own.stop)
            return Solved.joined([self._solve(goals, lower, upper, signs, p) for p in subdomains])
        return self._read(answer, program, signs[own])

    def _written(
        self, goals: Goals, lower: Floats, upper: Floats, signs: Floats
    ) -> _Program | None:
        """The programs of some subdomains; None if their numbers are beyond a solver.

        A block has the columns x, r and v. For units without a sign it has the rows g - r <= 0 and
        r - chord - v <= 0; for the others -g - v <= 0, or g - v <= 0, and an empty one.
        """
        problems, count = signs.shape
        inputs, places = self.inputs, np.arange(count)
        forms, shifts, costs, constants = self._settled(goals, signs)
        sizes = np.abs(costs).max(axis=1, initial=0.0)
        sizes[sizes == 0] = 1.0
        free = signs == 0
        chord = np.where(free, upper / np.where(free, upper - lower, 1.0), 0.0)
        side = np.where(free, 1.0, -signs)
        blocks = np.zeros((problems, 2 * count, inputs + 2 * count))
        blocks[:, :count, : inputs + count] = side[..., None] * forms
        blocks[:, places, inputs + places] -= free
        blocks[:, places, inputs + count + places] = -1.0 * ~free
        blocks[:, count:, : inputs + count] = -chord[..., None] * forms
        blocks[:, count + places, inputs + places] += free
        blocks[:, count + places, inputs + count + places] = -1.0 * free
        most = np.concatenate(
            [-side * shifts, chord * (shifts - np.where(free, lower, 0.0))], axis=1
        )
        prices = np.full((problems, count), self.tuning.violation_price)
        cost = np.concatenate([costs / sizes[:, None], prices], axis=1)
        if not all(np.isfinite(numbers).all() for numbers in (blocks, most, cost)):
            return None
        limits = np.zeros((problems, inputs + 2 * count, 2))
        limits[:, :inputs, 0], limits[:, :inputs, 1] = self.lower, self.upper
        limits[:, inputs:, 1] = np.inf
        limits[:, inputs : inputs + count, 1][~free] = 0.0
        block, row, column = blocks.nonzero()
        rows, columns = block * blocks.shape[1] + row, block * blocks.shape[2] + column
        shape = problems * blocks.shape[1], problems * blocks.shape[2]
        matrix = csr_array((blocks[block, row, column], (rows, columns)), shape)
        return _Program(
            cost.ravel(),
            matrix,
            most.ravel(),
            limits.reshape(-1, 2),
            sizes,
            (forms, shifts),
            (costs, constants),
        )

    def _settled(self, goals: Goals, signs: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """What units read, and goals, over inputs and units without a sign alone, part by part.

        Active units are r = g, inactive ones r = 0: with g = A x + B r + c that is a triangular
        system for g.

        Returns:
            Coefficients [n, units, inputs + units] and constants [n, units] of the units, and those
            of the goals, [n, inputs + units] and [n].
        """
        (problems, count), inputs = signs.shape, self.inputs
        active, free = (signs > 0).astype(float), (signs == 0).astype(float)
        below = self.matrix[:, inputs:]
        right = np.empty((problems, count, inputs + count + 1))
        right[:, :, :inputs] = self.matrix[:, :inputs]
        right[:, :, inputs:-1] = below * free[:, None]
        right[:, :, -1] = self.constant
        solved = np.linalg.solve(np.eye(count) - below * active[:, None], right)
        forms, shifts = solved[:, :, :-1], solved[:, :, -1]
        costs, constants = goals[0].copy(), goals[1]
        weight = costs[:, inputs:] * active
        costs[:, inputs:] *= free
        costs += np.einsum("pu,puc->pc", weight, forms)
        return forms, shifts, costs, constants + (weight * shifts).sum(1)

    def _read(self, answer: Any, program: _Program, signs: Floats) -> Solved:
        """Points, alpha and beta from what the solver found."""
        (problems, count), inputs = signs.shape, self.inputs
        sizes, (forms, shifts), (costs, constants) = program.sizes, program.units, program.goals
        columns = answer.x.reshape(problems, -1)
        beta = np.maximum(-answer.ineqlin.marginals, 0.0).reshape(problems, -1)
        beta = beta[:, :count] * sizes[:, None]
        ground = np.maximum(answer.lower.marginals, 0.0).reshape(problems, -1)
        ground = ground[:, inputs : inputs + count] * sizes[:, None]
        total = beta + ground
        share = np.full_like(total, np.nan)
        np.divide(beta, total, out=share, where=total > 0)
        price = self.tuning.violation_price * sizes * columns[:, inputs + count :].sum(1)
        own = columns[:, : inputs + count]
        read = np.einsum("puc,pc->pu", forms, own) + shifts
        free = signs == 0
        return Solved(
            (costs * own).sum(1) + price + constants,
            np.clip(columns[:, :inputs], self.lower, self.upper),
            np.where(free, self.leaks + (1 - self.leaks) * share, np.nan),
            np.where(free, 0.0, beta),
            np.where(free, np.maximum(own[:, inputs:] - np.maximum(read, 0.0), 0.0), 0.0),
        )

    def _nothing(self, problems: int) -> Solved:
        """The answer of a solver that found none."""
        unknown = np.full((problems, len(self.leaks)), np.nan)
        middle = np.tile((self.lower + self.upper) / 2, (problems, 1))
        nothing = np.zeros_like(unknown)
        return Solved(np.full(problems, -np.inf), middle, unknown, nothing, nothing)

    def points(self, solved: Floats) -> dict[str, Tensor]:
        """Flat inputs [n, inputs] as tensors by input."""
        found: dict[str, Tensor] = {}
        place = 0
        for name, box in self.bounds.region.ranges.items():
            count = box.lower[0].numel()
            flat = torch.from_numpy(solved[:, place : place + count].copy()).to(box.lower)
            found[name] = flat.reshape(-1, *box.lower.shape[1:])
            place += count
        return found
