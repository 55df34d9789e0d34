"""Leaves: where every ReLU of a subproblem has a settled sign, the problem is a linear program.

    minimise  c.x + c0   over the region,   subject to   s_i (a_i.x + b_i) >= 0   for each split i

A floating-point solver is asked for the optimum. Its point is a candidate witness; its dual values
are multipliers for one rigorous backward pass. If it says that the constraints contradict each
other, the duals of the least violation, scaled up, show that instead. Whatever the solver says, only
the rigorous pass proves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import hstack, identity
from scipy.sparse import csr_array
from torch import Tensor

from provable_circuits.verify.bounds import Bounds


@dataclass(frozen=True, slots=True, eq=False)
class LeafAnswer:
    """The solver's point, by input, [1, *shape]; and multipliers by activation, [1, *shape]."""

    point: dict[str, Tensor] | None
    multipliers: dict[str, Tensor]


def solve_leaf(
    bounds: Bounds, start: str, row: Tensor, signs: Mapping[str, Tensor], seconds: float
) -> LeafAnswer:
    """Ask the solver about one problem whose ReLUs are all settled.

    Args:
        bounds: enclosures of one problem.
        start: the tensor whose function is minimised.
        row: [1, 1, *shape].
        signs: for activations with splits, the signs of their inputs, [1, *shape].
        seconds: the solver's time limit.
    """
    inputs = list(bounds.region.ranges)
    objective, _ = _affine(bounds, start, row, inputs)
    matrices, constants, places = [], [], []
    for name, sign in signs.items():
        units = sign.flatten().nonzero().flatten()
        if len(units) == 0:
            continue
        source = bounds.structure.graph[name].inputs[0]
        rows = row.new_zeros(1, len(units), sign[0].numel())
        rows[0, torch.arange(len(units)), units] = sign.flatten()[units]
        part, constant = _affine(bounds, source, rows.unflatten(2, sign.shape[1:]), inputs)
        matrices.append(part)
        constants.append(constant)
        places.extend((name, int(unit)) for unit in units)
    limits = _limits(bounds, inputs)
    matrix = np.concatenate(matrices) if matrices else np.zeros((0, len(limits)))
    constant = np.concatenate(constants) if constants else np.zeros(0)
    solution = linprog(
        objective[0],
        A_ub=-matrix,
        b_ub=constant,
        bounds=limits,
        method="highs",
        options={"time_limit": max(seconds, 0.05)},
    )
    scale = 1.0
    if solution.status == 2 and len(places):
        count = len(places)
        slack = hstack([csr_array(-matrix), -identity(count)])
        cost = np.concatenate([np.zeros(len(limits)), np.ones(count)])
        solution = linprog(
            cost,
            A_ub=slack,
            b_ub=constant,
            bounds=np.concatenate([limits, np.tile([0, np.inf], (count, 1))]),
            method="highs",
            options={"time_limit": max(seconds, 0.05)},
        )
        if solution.status == 0 and solution.fun > 0:
            scale = 1e3 * (1 + float(np.abs(objective).sum())) / solution.fun
        point = None
    elif solution.status == 0:
        point = _point(bounds, inputs, solution.x)
    else:
        return LeafAnswer(None, {})
    multipliers = {name: torch.zeros_like(sign) for name, sign in signs.items()}
    if solution.status == 0:
        for (name, unit), dual in zip(places, solution.ineqlin.marginals, strict=True):
            multipliers[name].view(-1)[unit] = max(-float(dual), 0.0) * scale
    return LeafAnswer(point, multipliers)


def _affine(
    bounds: Bounds, start: str, rows: Tensor, inputs: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The linear function of the inputs that ``rows . start`` is: matrix and constants."""
    found = bounds.backward(start, rows, rigorous=False)
    constant = found.value[0].clone()
    parts = []
    for name in inputs:
        reached = found.inputs.get(name)
        if reached is None:
            count = bounds.region.ends(name)[0][0].numel()
            parts.append(rows.new_zeros(rows.shape[1], count))
        else:
            constant -= bounds.region.least(name, reached)[0]
            parts.append(reached[0].flatten(1))
    return torch.cat(parts, dim=1).numpy(force=True), constant.numpy(force=True)


def _limits(bounds: Bounds, inputs: list[str]) -> np.ndarray:
    ends = [torch.stack([e[0].flatten() for e in bounds.region.ends(n)], dim=1) for n in inputs]
    return torch.cat(ends).numpy(force=True) if ends else np.zeros((0, 2))


def _point(bounds: Bounds, inputs: list[str], x: np.ndarray) -> dict[str, Tensor]:
    point: dict[str, Tensor] = {}
    position = 0
    for name in inputs:
        lower, _ = bounds.region.ends(name)
        count = lower[0].numel()
        values = torch.from_numpy(x[position : position + count].copy())
        point[name] = values.reshape(lower[:1].shape).to(lower)
        position += count
    return point
