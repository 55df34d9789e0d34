"""Attack: look for a violation by gradients, over inputs and patch values alike.

Projected signed-gradient ascent on the excess, from several starts at once: the corners that a
linear bound points to, the centre, and random points. Each constraint that is still open is
attacked. What it finds is a candidate and nothing more until it was replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Graph
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.region import Region


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Points [n, *shape] for every input of a merged graph, and the excess [n] at each."""

    points: Mapping[str, Tensor]
    excess: Tensor


def excess_at(graph: Graph, points: Mapping[str, Tensor], rows: Tensor, offsets: Tensor) -> Tensor:
    """Rows . y + offsets at points: [n, constraints] for rows [n, constraints, outputs]."""
    y = evaluate(graph, points)[graph.outputs[0]]
    return (rows @ y.unsqueeze(2)).squeeze(2) + offsets


def random_points(region: Region, starts: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Random points of the problems' boxes, one for each entry of ``starts``."""
    points = {}
    for name, box in region.ranges.items():
        lower, upper = box.lower[starts], box.upper[starts]
        share = torch.rand(lower.shape, generator=generator, dtype=lower.dtype)
        points[name] = lower + share.to(lower.device) * (upper - lower)
    return points


def ascend_once(
    graph: Graph, region: Region, problems: Tensor, rows: Tensor, offsets: Tensor
) -> dict[str, Tensor]:
    """For each problem the corner that the gradient at the middle of its ranges points to."""
    boxes = {n: (r.lower[problems], r.upper[problems]) for n, r in region.ranges.items()}
    leaves = {n: ((low + up) * 0.5).requires_grad_() for n, (low, up) in boxes.items()}
    with torch.enable_grad():
        excess = excess_at(graph, leaves, rows, offsets).amax(1)
        gradients = torch.autograd.grad(excess.sum(), list(leaves.values()), allow_unused=True)
    points = {}
    for (name, middle), gradient in zip(leaves.items(), gradients, strict=True):
        low, up = boxes[name]
        moved = middle if gradient is None else torch.where(gradient > 0, up, low)
        points[name] = region.pull_in(name, problems, moved.detach())
    return points


def climb(
    graph: Graph,
    region: Region,
    problems: Tensor,
    start: Mapping[str, Tensor],
    rows: Tensor,
    offsets: Tensor,
    steps: int,
    deadline: Deadline,
) -> Candidates:
    """Ascend from the starts; returns the best point met from each.

    Args:
        graph: the merged graph.
        region: where its inputs range.
        problems: which problem each start belongs to, [n].
        start: the starts, by input, [n, *shape].
        rows: the rows of the constraints attacked, [n, constraints, outputs].
        offsets: their offsets, [n, constraints].
        steps: how many steps.
        deadline: when to give up.
    """
    boxes = {n: (r.lower[problems], r.upper[problems]) for n, r in region.ranges.items()}
    points = {name: _inside(value, boxes[name]) for name, value in start.items()}
    best = {name: value.clone() for name, value in points.items()}
    best_excess = rows.new_full((len(problems),), -torch.inf)
    for step in range(steps + 1):
        deadline.check()
        leaves = {name: value.detach().requires_grad_() for name, value in points.items()}
        with torch.enable_grad():
            excess = excess_at(graph, leaves, rows, offsets).amax(1)
            gradients = torch.autograd.grad(excess.sum(), list(leaves.values()), allow_unused=True)
        better = excess.detach() > best_excess
        best_excess = torch.where(better, excess.detach(), best_excess)
        for name, value in points.items():
            best[name][better] = value[better]
        if step == steps or bool((best_excess > 0).any()):
            break
        rate = 0.5 * (1 - step / (steps + 1))
        for (name, value), gradient in zip(points.items(), gradients, strict=True):
            if gradient is None:
                continue
            lower, upper = boxes[name]
            moved = value + gradient.sign() * (upper - lower) * rate
            points[name] = region.pull_in(name, problems, _inside(moved, boxes[name]))
    return Candidates(best, best_excess)


def _inside(value: Tensor, box: tuple[Tensor, Tensor]) -> Tensor:
    return torch.minimum(torch.maximum(value, box[0]), box[1])
