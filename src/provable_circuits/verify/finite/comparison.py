"""What a metric says of enclosed outputs: for every input, bounds of its excess.

Outputs are [inputs, positions, outputs]; an excess is the largest over the positions. Targets and
margins of the network's winner are taken from its outputs computed in float64, and belong to the
claim. The network's own answer, which ``SameAnswer`` compares with, must be beyond doubt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import (
    LogitDifference,
    MaxAbs,
    Metric,
    Norm,
    SameAnswer,
    WinnerMargin,
)
from provable_circuits.errors import ArgumentError
from provable_circuits.rounding import TINY, UNIT_ROUNDOFF, Interval, down, gamma, up
from provable_circuits.verify.finite.tail import Outputs


@dataclass(frozen=True, slots=True, eq=False)
class MetricBounds:
    """A metric beside the network's outputs.

    Attributes:
        metric: the metric.
        reference: enclosures of the network's outputs, [inputs, positions, outputs].
        targets: the output that counts, [inputs, positions].
        gaps: by how much it must lead, for ``WinnerMargin``, [inputs, positions].
        rivals: the runner-up in the network, [inputs, positions].
    """

    metric: Metric
    reference: Interval
    targets: Tensor
    gaps: Tensor
    rivals: Tensor

    @classmethod
    def of(cls, claim: Claim, reference: Interval) -> MetricBounds:
        """The comparison of a claim; refused where the network's own answer is a tie."""
        metric = claim.metric
        lower, upper = reference
        middle = lower + (upper - lower) * 0.5
        inputs, positions, outputs = middle.shape
        top = middle.topk(min(2, outputs), dim=-1)
        targets, rivals = top.indices[..., 0], top.indices[..., -1]
        named = getattr(metric, "target", "predicted")
        if not isinstance(named, str):
            one = torch.tensor(named)
            targets = (one if one.ndim == 0 else one.unsqueeze(1)).expand(inputs, positions)
        elif isinstance(metric, SameAnswer):
            _refuse_ties(reference, targets)
        fraction = metric.fraction if isinstance(metric, WinnerMargin) else 0.0
        gaps = fraction * (top.values[..., 0] - top.values[..., -1])
        return cls(metric, reference, targets.contiguous(), gaps, rivals)

    def bounds(self, output: Interval, rows: slice | Tensor) -> Interval:
        """Bounds of the excess at each input, [inputs], and NaN never."""
        least, most = self.by_position(output, rows)
        return least.amax(1), most.amax(1)

    def by_position(self, output: Interval, rows: slice | Tensor) -> Interval:
        """Bounds of the excess, [inputs, positions]."""
        metric, (lower, upper) = self.metric, output
        target = self.targets[rows].unsqueeze(-1)
        if isinstance(metric, SameAnswer | WinnerMargin):
            rival = None
            if isinstance(metric, WinnerMargin) and metric.against == "runner-up":
                rival = self.rivals[rows].unsqueeze(-1)
            least = _others(lower, target, rival) - _at(upper, target)
            most = _others(upper, target, rival) - _at(lower, target)
            ask = metric.margin if isinstance(metric, SameAnswer) else self.gaps[rows]
            return _finite(_sum(_less(least), ask, down), _sum(_more(most), ask, up))
        low, high = (end[rows] for end in self.reference)
        rise, fall = up(upper - low), down(lower - high)
        most = torch.maximum(rise, -fall)
        least = torch.maximum(torch.maximum(fall, -rise), torch.zeros_like(fall))
        if isinstance(metric, LogitDifference):
            least, most = _at(least, target), _at(most, target)
        elif isinstance(metric, MaxAbs) or (isinstance(metric, Norm) and metric.p == math.inf):
            least, most = least.amax(-1), most.amax(-1)
        elif isinstance(metric, Norm):
            least, most = _norm(least, metric.p, -1), _norm(most, metric.p, 1)
        else:
            raise ArgumentError(f"{type(metric).__name__} cannot be proved.")
        return _finite(down(least - metric.tolerance), up(most - metric.tolerance))

    def around(self, outputs: Outputs) -> Interval:
        """Bounds of the excess at each input for outputs that share one radius."""
        metric = self.metric
        if not isinstance(metric, SameAnswer):
            return self.bounds(outputs.ends, slice(None))
        target = self.targets.unsqueeze(-1)
        own = _at(outputs.value, target)
        lead = outputs.value.scatter(-1, target, -math.inf).amax(-1) - own
        # Differences are off by their rounding and by one radius for each of both outputs.
        slack = (2 * outputs.radius + 4 * UNIT_ROUNDOFF * (lead.abs() + metric.margin)) * (1 + 1e-9)
        lead = lead + metric.margin
        least, most = _finite(down(lead - slack), up(lead + slack))
        return least.amax(1), most.amax(1)

    def holds(self, most: Tensor) -> Tensor:
        """Where an upper bound of the excess proves the metric."""
        return most < 0 if self.metric.strict else most <= 0

    def fails(self, least: Tensor) -> Tensor:
        """Where a lower bound of the excess refutes it."""
        return least >= 0 if self.metric.strict else least > 0


def _less(difference: Tensor) -> Tensor:
    """A lower bound of a rounded difference; one of exactly zero is exact."""
    return torch.where(difference == 0, difference, down(difference))


def _more(difference: Tensor) -> Tensor:
    """An upper bound of a rounded difference."""
    return torch.where(difference == 0, difference, up(difference))


def _sum(bound: Tensor, ask: Tensor | float, side: Callable[[Tensor], Tensor]) -> Tensor:
    """A bound plus what is asked, rounded outward; to add zero is exact."""
    total = bound + ask
    return torch.where(torch.as_tensor(ask) == 0, total, side(total))


def _finite(least: Tensor, most: Tensor) -> Interval:
    """A bound that is not a number says nothing."""
    return least.nan_to_num(nan=-math.inf), most.nan_to_num(nan=math.inf)


def _at(values: Tensor, places: Tensor) -> Tensor:
    return values.gather(-1, places).squeeze(-1)


def _others(values: Tensor, target: Tensor, rival: Tensor | None) -> Tensor:
    """The largest output but the target, or the rival's."""
    if rival is not None:
        return _at(values, rival)
    return values.scatter(-1, target, -math.inf).amax(-1)


def _norm(values: Tensor, p: float, side: int) -> Tensor:
    """A bound of the norm of nonnegative values, from below (-1) or above (1)."""
    error = 2 * gamma(values.shape[-1] + 8)
    total = values.sum(-1) if p == 1 else values.square().sum(-1)
    total = (total * (1 + side * error) + side * values.shape[-1] * TINY).clamp_min(0)
    if p == 2:
        total = total.sqrt() * (1 + side * error)
    return total


def _refuse_ties(reference: Interval, targets: Tensor) -> None:
    """Refuse a claim about the network's answer where it has none beyond doubt."""
    lower, upper = reference
    place = targets.unsqueeze(-1)
    tied = ~(_at(lower, place) > _others(upper, place, None))
    if not bool(tied.any()):
        return
    first = [
        f"input {i}" + (f" position {p}" if tied.shape[1] > 1 else "")
        for i, p in tied.nonzero()[:5].tolist()
    ]
    raise ArgumentError(
        f"The network's largest output is tied, or too close to call, at {int(tied.sum())} places: "
        f"{', '.join(first)}{', ...' if int(tied.sum()) > 5 else ''}. SameAnswer needs an answer: "
        "leave these inputs or positions out of the claim."
    )
