"""Branching scores: what the relaxation of each ReLU takes from a bound.

Where a row with coefficient a meets a unit that is unstable on [l, u], the bound pays at most

    -a * (-l u / (u - l))                      if a < 0: the height of the chord over the hinge,
     a * max(-slope * l, (1 - slope) * u)      if a > 0: the gap from the hinge to its lower line.

If every unit were stable these costs would be gone, so they tell where tighter bounds or a split
could help, and where nothing can.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.crown import Pass
from provable_circuits.verify.bounding.relaxation import default_slopes, leak
from provable_circuits.verify.tuning.bounding import BoundingTuning


def hinges(lower: Tensor, upper: Tensor) -> Tensor:
    """How high the chord over the hinge is, for units that are open between these ends."""
    return (-lower * upper / (upper - lower)).nan_to_num(0.0)


def unit_costs(
    rows: Tensor,
    lower: Tensor,
    upper: Tensor,
    alpha: Tensor,
    size: Tensor | float,
    tuning: BoundingTuning,
) -> Tensor:
    """The costs of units with these rows, ends and lower slopes, in tensors of this size.

    Bounds that rounding alone put on the other side of zero are worth neither pass nor split.
    """
    slack = tuning.sign_slack * size
    open_ = (lower < -slack) & (upper > slack)
    above = (-rows).clamp_min(0.0) * hinges(lower, upper)
    below = rows.clamp_min(0.0) * torch.maximum(-alpha * lower, (1 - alpha) * upper)
    return torch.where(open_, above + below + tuning.least_cost, torch.zeros_like(above))


def relaxation_costs(bounds: Bounds, found: Pass) -> dict[str, Tensor]:
    """For each ReLU that a pass met, the costs of its units: [problems, rows, *shape].

    Args:
        bounds: the enclosures that the pass used, with the default slopes.
        found: a pass that kept its rows.
    """
    costs = {}
    for node in bounds.structure.activations:
        leaks = leak(bounds.structure.ops[node.name])
        rows = found.activations.get(node.name)
        if rows is None or leaks is None:
            continue
        lower, upper = (end.unsqueeze(1) for end in bounds.ends[node.inputs[0]])
        alpha = default_slopes(leaks, lower, upper)
        size = bounds.sizes[node.inputs[0]]
        tuning = bounds.structure.configuration.bounding
        costs[node.name] = unit_costs(rows, lower, upper, alpha, size, tuning)
    return costs


def costliest(costs: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """The fewest units that make up a share of each problem's costs: masks [problems, *shape].

    Args:
        costs: for each activation, costs [problems, *shape].
        share: between 0 and 1.
    """
    if not costs:
        return {}
    flat = torch.cat([cost.flatten(1) for cost in costs.values()], dim=1)
    ordered, order = flat.sort(dim=1, descending=True)
    before = ordered.cumsum(1) - ordered
    chosen = before < share * ordered.sum(1, keepdim=True)
    mask = torch.zeros_like(chosen).scatter(1, order, chosen)
    sizes = [cost[0].numel() for cost in costs.values()]
    return {
        name: part.reshape(costs[name].shape)
        for name, part in zip(costs, mask.split(sizes, dim=1), strict=True)
    }
