"""Optimised alpha: choose the free lower slopes of ReLUs, and the multipliers of splits, well.

The backward bound is a lower bound for every choice of slopes in [leak, 1] and of multipliers
>= 0, so projected gradient ascent may look for the best. Its gradient needs no differentiation: the
bound is the value, at the best corner x of the region, of the affine function that the chosen lines
make of the network. With A_i the row at the output of unit i and v_i what the unit reads when that
function is run at x,

    d bound / d slope_i = max(A_i, 0) v_i,        d bound / d multiplier_i = -s_i v_i.

The ascent itself is plain floating point; its result is evaluated rigorously once at the end.

Known as alpha-CROWN: Xu et al. (2021), Fast and Complete: Enabling Complete Neural Network
Verification with Rapid and Massively Parallel Incomplete Verifiers; and, for splits, as beta-CROWN:
Wang et al. (2021), Beta-CROWN: Efficient Bound Propagation with Per-neuron Split Constraints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.verify.bounding.crown import Pass, backward
from provable_circuits.verify.bounding.relaxed import Relaxed, relaxed_run


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Alpha and beta [problems, units]; and the bound they give, rows kept."""

    alpha: Tensor
    multipliers: Tensor
    found: Pass


class Adam:
    """Steps that adapt to each coordinate's gradients."""

    def __init__(self, like: Tensor) -> None:
        self.first, self.second = torch.zeros_like(like), torch.zeros_like(like)
        self.count = 0

    def step(self, gradient: Tensor) -> Tensor:
        self.count += 1
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        mean = self.first / (1 - 0.9**self.count)
        spread = (self.second / (1 - 0.999**self.count)).sqrt_().add_(1e-12)
        return mean.div_(spread)


def optimise(
    relaxed: Relaxed,
    start: str,
    rows: Tensor,
    offsets: Tensor,
    alpha: Tensor,
    signs: Tensor | None = None,
    multipliers: Tensor | None = None,
    steps: int = 8,
) -> Choice:
    """Ascend on the bound of ``rows . start`` and evaluate the best choice rigorously.

    Args:
        relaxed: the problems.
        start: the tensor bounded.
        rows: [problems, 1, *shape], one row a problem.
        offsets: what the bound must reach to be of use: ascent ends when every problem's does.
        alpha: where to start, [problems, units].
        signs: +1 where a unit's input was fixed to be nonnegative, -1 where nonpositive, 0
            elsewhere; [problems, units].
        multipliers: where to start, nonnegative.
        steps: how many steps of ascent.
    """
    units = relaxed.units
    structure = relaxed.bounds.structure
    tuning = structure.configuration.bounding
    guide = rows.float() if structure.single else rows
    free = alpha
    dual = torch.zeros_like(alpha) if multipliers is None else multipliers
    split = signs is not None and bool(signs.any())
    best_free, best_dual = free, dual
    best_value: Tensor | None = None
    movers = (Adam(free), Adam(dual))
    for step in range(steps if len(units) else 0):
        relaxed.bounds.deadline.check()
        view = relaxed.view(guide.dtype, free)
        signed = _signed(relaxed, signs, dual, guide.dtype) if split else None
        found = backward(view, start, guide, multipliers=signed, rigorous=False, keep_rows=True)
        value = found.value[:, 0]
        if best_value is None:
            best_value = value
        else:
            better = (value > best_value).unsqueeze(1)
            best_value = torch.maximum(value, best_value)
            best_free = torch.where(better, free, best_free)
            best_dual = torch.where(better, dual, best_dual)
        if step == steps - 1 or bool((best_value + offsets >= 0).all()):
            break
        read = units.gather(relaxed_run(view, found), len(relaxed)).double()
        coefficients = relaxed.coefficients(found)
        gradient = torch.where(relaxed.open, coefficients.clamp_min(0.0) * read, 0.0)
        rate = tuning.rate_decay**step
        free = free + tuning.alpha_rate * rate * movers[0].step(gradient)
        free = torch.maximum(free.float().double(), units.leaks).clamp_max(1.0)
        if split and signs is not None:
            dual = dual + tuning.beta_rate * rate * movers[1].step(-signs * read)
            dual = dual.clamp_min(0.0) * signs.abs()
    found = backward(
        relaxed.view(rows.dtype, best_free),
        start,
        rows,
        multipliers=_signed(relaxed, signs, best_dual, rows.dtype) if split else None,
        keep_rows=True,
    )
    return Choice(best_free, best_dual, found)


def _signed(
    relaxed: Relaxed, signs: Tensor | None, beta: Tensor, dtype: torch.dtype
) -> Mapping[str, Tensor]:
    """Multipliers as a backward pass takes them."""
    if signs is None:
        return {}
    spread = relaxed.units.spread((signs * beta).to(dtype))
    return {name: value.unsqueeze(1) for name, value in spread.items()}
