"""The triangle relaxation of a subdomain as a linear program, whose duals are alpha and beta.

Write r_i = relu(g_i) for each unit i that is unstable at the root; with the slope s left of zero
its output is s g_i + (1 - s) r_i. Every g_i, and the row that is bounded, is a linear function of
the inputs and of the r before it, the same in all subdomains. A subdomain adds, for
l_i <= g_i <= u_i,

    unstable    r >= 0,   r >= g,   r <= u (g - l) / (u - l) + v
    active      r = g,              g >= -v
    inactive    r = 0,              g <= v

with v >= 0 at a high price, so that there always is a solution: where the subdomain is empty the
price is paid, and what is bounded exceeds any threshold (``warm_program``). At the optimum let m be
the dual value of r >= g and p that of r >= 0. The lower slopes m / (m + p) of unstable units and
the duals of g >= -v and g <= v, as multipliers, make a backward pass reach the optimum. So the
solver chooses, a rigorous pass proves, and nothing rests on the solver: any slopes between s and 1
and any nonnegative multipliers give a valid bound. Its point is a candidate witness.

Alpha and beta by gradient ascent (``bounding/alpha``) come near the optimum for many subdomains at
once; this meets it for one. It pays where few units are unstable and the tree would grow large.

The relaxation is that of Ehlers (2017), Formal Verification of Piece-Wise Linear Feed-Forward
Neural Networks. The solver only chooses; what is proved, a rigorous backward pass proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from provable_circuits.network.ops import Constant, Input, LinearOp
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.unstable import UnstableUnits
from provable_circuits.verify.branching.warm_program import Floats, ProgramOptimum, WarmProgram
from provable_circuits.verify.deadline import Deadline

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
        units = len(self.leaks)
        solved = Solved(
            np.full(len(signs), -np.inf),
            np.tile((self.lower + self.upper) / 2, (len(signs), 1)),
            np.full((len(signs), units), np.nan),
            np.zeros((len(signs), units)),
            np.zeros((len(signs), units)),
        )
        for i, (cost, constant) in enumerate(zip(*goals, strict=True)):
            self.deadline.check()
            own = lower[i], upper[i], signs[i]
            if not all(np.isfinite(numbers).all() for numbers in (cost, constant, *own)):
                continue
            found = self.program.solve((cost, float(constant)), *own)
            if found is not None:
                self._read(found, signs[i], solved, i)
        return solved

    @cached_property
    def program(self) -> WarmProgram:
        """The program that all subdomains share."""
        return WarmProgram(self.lower, self.upper, self.matrix, self.constant, self.tuning)

    def _read(self, found: ProgramOptimum, signs: Floats, solved: Solved, place: int) -> None:
        """Write a point, alpha and beta from what the solver found."""
        free = signs == 0
        total = found.above + found.ground
        share = np.full_like(total, np.nan)
        np.divide(found.above, total, out=share, where=total > 0)
        solved.value[place] = found.value
        solved.point[place] = np.clip(found.inputs, self.lower, self.upper)
        solved.alpha[place] = np.where(free, self.leaks + (1 - self.leaks) * share, np.nan)
        solved.beta[place] = np.where(free, 0.0, found.above)
        off = np.maximum(found.outputs - np.maximum(found.reads, 0.0), 0.0)
        solved.gaps[place] = np.where(free, off, 0.0)

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
