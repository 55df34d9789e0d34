"""Leaves: where every ReLU of a subproblem has a settled sign, the problem is a linear program.

    minimise  c.x + c0   over the region,   subject to   s_i (a_i.x + b_i) >= 0   for each split i

A floating-point solver is asked for the optimum. Its point is a candidate witness; its dual values
are multipliers for one rigorous backward pass. If it says that the constraints contradict each
other, the duals of the least violation, scaled up, show that instead. Whatever the solver says,
only the rigorous pass proves.

A ball of the 1-norm is written with one more variable m_i >= |x_i - center_i| for each element and
sum m <= eps. A ball of the 2-norm is its box first; where the optimum lies outside the ball, the
tangent there cuts it off, and the solver is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, identity, vstack
from torch import Tensor

from provable_circuits.claims.domains import Ball
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.deadline import Deadline


@dataclass(frozen=True, slots=True, eq=False)
class LeafAnswer:
    """The solver's point, by input, [1, *shape]; and multipliers by activation, [1, *shape]."""

    point: dict[str, Tensor] | None
    multipliers: dict[str, Tensor]


def solve_leaf(
    bounds: Bounds, start: str, row: Tensor, signs: Mapping[str, Tensor], deadline: Deadline
) -> LeafAnswer:
    """Ask the solver about one problem whose ReLUs are all settled.

    Args:
        bounds: enclosures of one problem.
        start: the tensor whose function is minimised.
        row: [1, 1, *shape].
        signs: for activations with splits, the signs of their inputs, [1, *shape].
        deadline: when to stop.
    """
    tuning = bounds.structure.configuration.branching
    inputs = list(bounds.region.ranges)
    objective, _ = _affine(bounds, start, row, inputs)
    matrices, constants = [], []
    places: list[tuple[str, int]] = []
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
    count = len(places)
    cost, upper, moved = objective[0], csr_array(-matrix), 0
    if _has_balls(bounds, 1):
        ball, ball_limits, size = _balls(bounds, inputs, len(limits))
        moved = ball.shape[1] - len(limits)
        limits = np.concatenate([limits, ball_limits])
        cost = np.concatenate([cost, np.zeros(moved)])
        upper = vstack([hstack([upper, csr_array((count, moved))]), ball], format="csr")
        constant = np.concatenate([constant, size])
    if not all(np.isfinite(array).all() for array in (cost, matrix, constant)):
        return LeafAnswer(None, {})
    rounds = tuning.ball_cuts if _has_balls(bounds, 2) else 1
    for left in reversed(range(rounds)):
        deadline.check()
        solution = linprog(
            cost,
            A_ub=upper,
            b_ub=constant,
            bounds=limits,
            method="highs",
            options={"time_limit": max(deadline.left, tuning.solver_seconds)},
        )
        if left == 0 or solution.status != 0:
            break
        rows, ends = _tangents(bounds, inputs, solution.x)
        if not len(ends):
            break
        upper = vstack([upper, hstack([rows, csr_array((len(ends), moved))])], format="csr")
        constant = np.concatenate([constant, ends])
    scale = 1.0
    if solution.status == 2 and count:
        room = vstack([-identity(count), csr_array((len(constant) - count, count))])
        cost = np.concatenate([np.zeros(len(limits)), np.ones(count)])
        solution = linprog(
            cost,
            A_ub=hstack([upper, room], format="csr"),
            b_ub=constant,
            bounds=np.concatenate([limits, np.tile([0, np.inf], (count, 1))]),
            method="highs",
            options={"time_limit": max(deadline.left, tuning.solver_seconds)},
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
        beta = solution.ineqlin.marginals[:count]
        for (name, unit), dual in zip(places, beta, strict=True):
            multipliers[name].view(-1)[unit] = max(-float(dual), 0.0) * scale
    return LeafAnswer(point, multipliers)


def _affine(
    bounds: Bounds, start: str, rows: Tensor, inputs: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The linear function of the inputs that ``rows . start`` is: matrix and constants."""
    found = bounds.backward(start, rows, rigorous=False)
    constant = found.value[0].clone()
    subdomains = []
    for name in inputs:
        reached = found.inputs.get(name)
        if reached is None:
            count = bounds.region.ends(name)[0][0].numel()
            subdomains.append(rows.new_zeros(rows.shape[1], count))
        else:
            constant -= bounds.region.least(name, reached)[0]
            subdomains.append(reached[0].flatten(1))
    return torch.cat(subdomains, dim=1).numpy(force=True), constant.numpy(force=True)


def _limits(bounds: Bounds, inputs: list[str]) -> np.ndarray:
    ends = [torch.stack([e[0].flatten() for e in bounds.region.ends(n)], dim=1) for n in inputs]
    return torch.cat(ends).numpy(force=True) if ends else np.zeros((0, 2))


def _has_balls(bounds: Bounds, p: int) -> bool:
    ranges = bounds.region.ranges.values()
    return any(isinstance(d, Ball) and d.p == p for r in ranges for d in (r.domains or ())[:1])


def _balls(
    bounds: Bounds, inputs: list[str], count: int
) -> tuple[csr_array, np.ndarray, np.ndarray]:
    """Rows over the ``count`` elements and one more variable for each that a 1-ball limits.

    Returns the rows, the limits of the new variables and the rows' upper ends.
    """
    places: list[int] = []
    centers: list[float] = []
    sums: list[tuple[int, float]] = []
    start = 0
    for name in inputs:
        box = bounds.region.ranges[name]
        ball = None if box.domains is None else box.domains[0]
        elements = box.lower[0].numel()
        if isinstance(ball, Ball) and ball.p == 1:
            places.extend(range(start, start + elements))
            centers.extend(ball.x.flatten().tolist())
            sums.append((elements, float(ball.eps)))
        start += elements
    moved, center = len(places), np.array(centers)
    pick = csr_array((np.ones(moved), (np.arange(moved), places)), (moved, count))
    groups = np.repeat(np.arange(len(sums)), [elements for elements, _ in sums])
    total = csr_array((np.ones(moved), (groups, np.arange(moved))), (len(sums), moved))
    rows = vstack(
        [
            hstack([pick, -identity(moved)]),
            hstack([-pick, -identity(moved)]),
            hstack([csr_array((len(sums), count)), total]),
        ],
        format="csr",
    )
    ends = np.concatenate([center, -center, [eps for _, eps in sums]])
    return rows, np.tile([0.0, np.inf], (moved, 1)), ends


def _tangents(bounds: Bounds, inputs: list[str], x: np.ndarray) -> tuple[csr_array, np.ndarray]:
    """Half-spaces that hold a ball of the 2-norm each, and not the solver's point."""
    rows: list[np.ndarray] = []
    ends: list[float] = []
    start, count = 0, sum(bounds.region.ranges[name].lower[0].numel() for name in inputs)
    for name in inputs:
        box = bounds.region.ranges[name]
        ball = None if box.domains is None else box.domains[0]
        end = start + box.lower[0].numel()
        if isinstance(ball, Ball) and ball.p == 2:
            center = ball.x.flatten().numpy(force=True)
            way = x[start:end] - center
            length = float(np.linalg.norm(way))
            if length > float(ball.eps) * (1 + 1e-7):
                row = np.zeros(count)
                row[start:end] = way / length
                rows.append(row)
                ends.append(float(ball.eps) + float(row[start:end] @ center))
        start = end
    return csr_array(np.array(rows).reshape(len(ends), count)), np.array(ends)


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
