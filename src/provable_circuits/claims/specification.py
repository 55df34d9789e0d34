"""The specification: a metric as linear constraints on the output of a merged graph.

    rows[j] . y + offsets[j] <= 0          for every input j

For the logit difference, y is f_C - f_G and there are two rows, for the target and its negative.
The 1-norm is written into the graph with pairs of ReLUs, |d| = relu(d) + relu(-d), and the 2-norm
with squares, so that each is one row. Targets, margins and tolerances are float64 numbers that
belong to the claim; the margin of the winner is taken from f_G computed in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import (
    LogitDifference,
    MaxAbs,
    Metric,
    Norm,
    WinnerMargin,
    target_outputs,
)
from provable_circuits.errors import ArgumentError
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Affine, Concat, Linear, ReLU, Square, Subtract


@dataclass(frozen=True, slots=True, eq=False)
class Specification:
    """Rows [k, constraints, outputs] and offsets [k, constraints], and how y is made."""

    metric: Metric
    rows: Tensor
    offsets: Tensor

    @property
    def _square(self) -> Fraction | None:
        """What sums of squares are held against; None unless the metric is a 2-norm."""
        if not (isinstance(self.metric, Norm) and self.metric.p == 2):
            return None
        return -Fraction(float(self.offsets[0, 0]))

    def at_least(self, excess: float) -> float:
        """By how much the metric is exceeded at least, if its rows are by ``excess`` at least.

        The rows of a 2-norm are about its square: with t the tolerance, s <= t^2 the number that
        squares are held against and e the excess over it, the norm exceeds t by sqrt(s + e) - t,
        which is (s + e - t^2) / (sqrt(s + e) + t).
        """
        if self._square is None or not math.isfinite(excess) or not isinstance(self.metric, Norm):
            return excess
        tolerance = Fraction(float(self.metric.tolerance))
        square = self._square + Fraction(excess)
        over = square - tolerance**2
        if over <= 0:
            return min(float(over), 0.0)
        return float(over) / ((math.sqrt(float(square)) + float(tolerance)) * (1 + 1e-12))

    def at_most(self, excess: float) -> float:
        """By how much the metric is exceeded at most, if its rows are by ``excess`` at most."""
        if self._square is None or not math.isfinite(excess) or not isinstance(self.metric, Norm):
            return excess
        square = max(float(self._square + Fraction(excess)), 0.0) * (1 + 1e-12)
        most = math.sqrt(square) * (1 + 1e-12) - float(self.metric.tolerance)
        slack = 1e-12 * (math.sqrt(square) + float(self.metric.tolerance))
        return min(most + slack, 0.0) if excess <= 0 else most + slack

    @property
    def needs_reference(self) -> bool:
        """Whether the network's own output appears."""
        return not isinstance(self.metric, WinnerMargin)

    def write(self, builder: GraphBuilder, reference: str | None, output: str) -> str:
        """Append what makes y from the network's and the circuit's outputs; returns its name."""
        if reference is None or not self.needs_reference:
            return output
        if output == reference:
            zero = torch.zeros(self.rows.shape[2], dtype=torch.float64)
            return builder.constant("difference~", zero)
        difference = builder.add("difference~", Subtract(), output, reference)
        metric = self.metric
        if not isinstance(metric, Norm) or metric.p == math.inf:
            return difference
        count = builder[difference].shape[0]
        if metric.p == 2:
            terms = builder.add("squares~", Square(), difference)
        else:
            flip = Affine(scale=torch.tensor(-1.0, dtype=torch.float64))
            rise = builder.add("rise~", ReLU(), difference)
            fall = builder.add("fall~", ReLU(), builder.add("reversed~", flip, difference))
            terms = builder.add("sides~", Concat(0), rise, fall)
            count *= 2
        ones = torch.ones(1, count, dtype=torch.float64)
        return builder.add("total~", Linear(ones), terms)


def specify(claim: Claim, graph: Graph) -> Specification:
    """The specification of a claim about a network."""
    metric = claim.metric
    anchor = graph.run(claim.centers, torch.float64)
    inputs, outputs = anchor.shape
    one_hot = torch.eye(outputs, dtype=torch.float64)
    if isinstance(metric, LogitDifference):
        row = one_hot[target_outputs(metric.target, anchor)]
        rows = torch.stack([row, -row], dim=1)
        offsets = torch.full((inputs, 2), -float(metric.tolerance), dtype=torch.float64)
    elif isinstance(metric, MaxAbs) or (isinstance(metric, Norm) and metric.p == math.inf):
        rows = torch.cat([one_hot, -one_hot]).expand(inputs, -1, -1)
        offsets = torch.full((inputs, 2 * outputs), -float(metric.tolerance), dtype=torch.float64)
    elif isinstance(metric, Norm):
        bound = float(metric.tolerance)
        if metric.p == 2:
            bound = math.nextafter(bound * bound, 0.0) if bound else 0.0
        rows = torch.ones(inputs, 1, 1, dtype=torch.float64)
        offsets = torch.full((inputs, 1), -bound, dtype=torch.float64)
    elif isinstance(metric, WinnerMargin):
        rows, offsets = _winner_rows(metric, anchor)
    else:
        raise ArgumentError(f"{type(metric).__name__} cannot be proved.")
    if not bool(offsets.isfinite().all()):
        raise ArgumentError(
            "The network's outputs at the claim's inputs are so large that its margin is not a "
            "finite number: nothing can be proved about it."
        )
    return Specification(metric, rows.contiguous(), offsets)


def _winner_rows(metric: WinnerMargin, anchor: Tensor) -> tuple[Tensor, Tensor]:
    """``f[r] - f[t] + fraction * gap <= 0`` for the runner-up r, or for every other output."""
    inputs, outputs = anchor.shape
    one_hot = torch.eye(outputs, dtype=torch.float64)
    top = anchor.topk(2, dim=-1)
    gap = metric.fraction * (top.values[:, 0] - top.values[:, 1])
    winner = one_hot[top.indices[:, 0]]
    if metric.against == "runner-up":
        rows = (one_hot[top.indices[:, 1]] - winner).unsqueeze(1)
        return rows, gap.unsqueeze(1)
    others = torch.stack([one_hot[torch.arange(outputs) != t] for t in top.indices[:, 0].tolist()])
    return others - winner.unsqueeze(1), gap.unsqueeze(1).expand(inputs, outputs - 1).contiguous()
