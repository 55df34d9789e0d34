"""Optimised slopes: choose the free lower slopes of ReLUs, and the multipliers of splits, well.

The backward bound is a lower bound for every choice of slopes in [leak, 1] and of multipliers
>= 0, so projected gradient ascent may look for the best. The ascent itself is plain floating point;
its result is evaluated rigorously once at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.verify.backward import Pass
from provable_circuits.verify.bounds import Bounds
from provable_circuits.verify.relaxation import default_slopes, leak

RATE = 0.1
DUAL_RATE = 0.2
DECAY = 0.93


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Slopes and multipliers by activation, [problems, *shape]; and the bound they give."""

    slopes: dict[str, Tensor]
    multipliers: dict[str, Tensor]
    found: Pass


def starting_slopes(bounds: Bounds) -> dict[str, Tensor]:
    """The default slopes of every ReLU-like activation with open units."""
    chosen = {}
    for node in bounds.structure.activations:
        op = bounds.structure.ops[node.name]
        lower, upper = bounds.ends[node.inputs[0]]
        if leak(op) is not None and bool(((lower < 0) & (upper > 0)).any()):
            chosen[node.name] = default_slopes(op, lower, upper)
    return chosen


def optimise(
    bounds: Bounds,
    start: str,
    rows: Tensor,
    offsets: Tensor,
    slopes: Mapping[str, Tensor],
    signs: Mapping[str, Tensor],
    multipliers: Mapping[str, Tensor],
    steps: int,
) -> Choice:
    """Ascend on the bound of ``rows . start`` and evaluate the best choice rigorously.

    Args:
        bounds: enclosures and lines of every tensor.
        start: the tensor bounded.
        rows: [problems, 1, *shape], one row a problem.
        offsets: what the bound must reach to be of use: ascent ends when every problem's does.
        slopes: where to start, by activation.
        signs: for activations with splits, +1 where the input was fixed to be nonnegative, -1 where
            nonpositive, 0 elsewhere; [problems, *shape].
        multipliers: where to start, nonnegative, for the same activations.
        steps: how many steps of ascent.
    """
    ops = bounds.structure.ops
    guide = rows.float() if bounds.structure.single else rows
    free = {name: value.clone() for name, value in slopes.items()}
    dual = {
        name: multipliers.get(name, torch.zeros_like(sign)).clone() for name, sign in signs.items()
    }
    best_value: Tensor | None = None
    best_free, best_dual = dict(free), dict(dual)
    moments: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}
    for step in range(steps if free or dual else 0):
        bounds.deadline.check()
        with torch.enable_grad():
            leaves = {name: value.requires_grad_() for name, value in free.items()}
            duals = {name: value.requires_grad_() for name, value in dual.items()}
            value = bounds.backward(
                start,
                guide,
                slopes=leaves,
                multipliers={
                    n: (signs[n] * d).unsqueeze(1).to(guide.dtype) for n, d in duals.items()
                },
                rigorous=False,
            ).value[:, 0]
            names = [("slope", n) for n in leaves] + [("dual", n) for n in duals]
            gradients = torch.autograd.grad(
                value.sum(), [*leaves.values(), *duals.values()], allow_unused=True
            )
        now = value.detach()
        if best_value is None:
            best_value = torch.full_like(now, -torch.inf)
        better = now > best_value
        best_value = torch.where(better, now, best_value)
        for store, held in ((best_free, free), (best_dual, dual)):
            for name, tensor in held.items():
                shape = (-1, *([1] * (tensor.ndim - 1)))
                store[name] = torch.where(
                    better.reshape(shape), tensor.detach(), store[name].detach()
                )
        if bool((best_value + offsets >= 0).all()):
            break
        for (kind, name), gradient in zip(names, gradients, strict=True):
            if gradient is None:
                continue
            current = (free if kind == "slope" else dual)[name].detach()
            first, second = moments.get((kind, name), (torch.zeros_like(gradient),) * 2)
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient * gradient
            moments[kind, name] = (first, second)
            corrected = (first / (1 - 0.9 ** (step + 1))) / (
                (second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-12
            )
            if kind == "slope":
                moved = (current + RATE * DECAY**step * corrected).clamp(
                    leak(ops[name]) or 0.0, 1.0
                )
                free[name] = moved.float().to(moved.dtype)
            else:
                moved = current + DUAL_RATE * DECAY**step * corrected
                dual[name] = moved.clamp_min(0.0) * signs[name].abs()
    found = bounds.backward(
        start,
        rows,
        slopes={name: value.detach() for name, value in best_free.items()},
        multipliers={n: (signs[n] * d.detach()).unsqueeze(1) for n, d in best_dual.items()},
        keep_rows=True,
    )
    return Choice(best_free, best_dual, found)
