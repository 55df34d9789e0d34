"""Attack: look for a violation by gradients, over inputs and patch values alike.

Two forms of projected gradient ascent on the excess, each from several starts at once. ``climb`` is
short and comes before any search: signed steps from the corners that a linear bound points to, the
centre, and random points. ``ascend`` is made where a proof has become expensive:

    starts: random corners, every second one moved to the corner that maximises a random direction
        of the outputs, to first order, and points that the bounds of a search suggest
    a few jumps, each to the corner that maximises the excess to first order
    Adam on the normalised gradient, with a decaying step size
    after each of the first rounds, only the best quarter of the starts goes on

Signed steps stall where the gradient's sign alternates from step to step, at a distance of the
violation that falls only with the step size; an adaptive step size does not. Over a 1-norm or
2-norm ball, where steps of single elements mean little, Adam is replaced by steps towards the point
that maximises the averaged gradient.

What an attack finds is a candidate and nothing more until it was replayed. Its work, counted in
gradients, does not depend on the clock.

References: Kingma and Ba, "Adam: a method for stochastic optimization" (2015); Tashiro, Song and
Ermon, "Diversity can be transferred: output diversification for white- and black-box attacks"
(2020), for the random directions of the outputs.

Projected gradient descent as an attack: Madry, Makelov, Schmidt, Tsipras and Vladu (2018), Towards
Deep Learning Models Resistant to Adversarial Attacks. Ours: patch values are attacked as inputs
are, and starts come from the bounds of a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.execution import evaluate
from provable_circuits.network.graph import Graph
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.tuning.attacking import AttackingTuning


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard attacks try: the seed of random starts, their number, and steps from each."""

    seed: int = 0
    steps: int = 12
    starts: int = 2


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
        rows: the rows of the clause attacked, [n, objectives, outputs]; all must be exceeded.
        offsets: their offsets, [n, objectives].
        steps: how many steps.
        deadline: when to give up.
    """
    boxes = {n: (r.lower[problems], r.upper[problems]) for n, r in region.ranges.items()}
    points = {name: _inside(value, boxes[name]) for name, value in start.items()}
    best = {name: value.clone() for name, value in points.items()}
    best_excess = rows.new_full((len(problems),), -torch.inf)
    for step in range(steps + 1):
        deadline.check()
        excess, gradients = _gradients(graph, points, rows, offsets)
        better = excess > best_excess
        best_excess = torch.where(better, excess, best_excess)
        for name, value in points.items():
            best[name][better] = value[better]
        if step == steps or bool((best_excess > 0).any()):
            break
        rate = 0.5 * (1 - step / (steps + 1))
        for name, value in points.items():
            lower, upper = boxes[name]
            moved = value + gradients[name].sign() * (upper - lower) * rate
            points[name] = region.pull_in(name, problems, _inside(moved, boxes[name]))
    return Candidates(best, best_excess)


def rounds_of(steps: int) -> tuple[tuple[int, int], ...]:
    """The rounds of ``ascend`` that go with so many steps of ``climb``.

    Each has its steps, and one in how many of the starts goes on after them.
    """
    return ((steps // 2, 4), (2 * steps // 3, 4), (2 * steps, 1))


def gradients_of(starts: int, rounds: Sequence[tuple[int, int]]) -> int:
    """How many gradients ``ascend`` takes, at most, from so many starts."""
    total = 0
    for steps, among in rounds:
        total += starts * steps
        starts = _fewer(starts, among)
    return total


def diverse_starts(
    graph: Graph, region: Region, problems: Tensor, outputs: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """A start for each of some problems: random corners, every second one moved on.

    It is moved to the corner that maximises a random direction of the graph's ``outputs``, to first
    order: random corners of many inputs differ, but a network tells them hardly apart.
    """
    boxes = {n: (r.lower[problems], r.upper[problems]) for n, r in region.ranges.items()}
    points = {}
    for name, (lower, upper) in boxes.items():
        high = torch.rand(lower.shape, generator=generator, dtype=lower.dtype) < 0.5
        corner = torch.where(high.to(lower.device), upper, lower)
        points[name] = region.pull_in(name, problems, corner)
    moved = torch.arange(len(problems), device=problems.device) % 2 == 0
    rows = torch.randn((len(problems), 1, outputs), generator=generator, dtype=torch.float64)
    own = problems[moved]
    some = {name: value[moved] for name, value in points.items()}
    rows = rows.to(problems.device)[moved]
    _, gradients = _gradients(graph, some, rows, rows.new_zeros((len(own), 1)))
    jumps = _Steps(region, own, torch.float64)
    for name, value in jumps.jumped(some, gradients).items():
        points[name][moved] = value
    return points


def ascend(
    graph: Graph,
    region: Region,
    problems: Tensor,
    start: Mapping[str, Tensor],
    rows: Tensor,
    offsets: Tensor,
    rounds: Sequence[tuple[int, int]],
    deadline: Deadline,
    dtype: torch.dtype = torch.float64,
    tuning: AttackingTuning = DEFAULT.attacking,
) -> Candidates:
    """Ascend with an adaptive step size; returns the best point met from each start.

    Args:
        graph: the merged graph.
        region: where its inputs range.
        problems: which problem each start belongs to, [n].
        start: the starts, by input, [n, *shape].
        rows: the rows of the clause attacked, [n, objectives, outputs]; all must be exceeded.
        offsets: their offsets, [n, objectives].
        rounds: the steps of each round, and one in how many of the starts goes on after it.
        deadline: when to give up.
        dtype: the arithmetic. The excess is that of this arithmetic as well.
        tuning: the steps of Adam.
    """
    slack = tuning.single_slack if dtype == torch.float32 else 0.0
    steps = _Steps(region, problems, dtype)
    points = {name: steps.inside(name, value.to(dtype)) for name, value in start.items()}
    rows, offsets = rows.to(dtype), offsets.to(dtype)
    best = {name: value.clone() for name, value in points.items()}
    best_excess = rows.new_full((len(problems),), -torch.inf)
    left = torch.arange(len(problems), device=problems.device)
    total = sum(count for count, _ in rounds)
    done = 0
    for count, among in rounds:
        for _ in range(count):
            deadline.check()
            excess, gradients = _gradients(graph, points, rows[left], offsets[left])
            better = excess > best_excess[left]
            best_excess[left[better]] = excess[better]
            for name, value in points.items():
                best[name][left[better]] = value[better]
            if bool((best_excess > slack).any()):
                return _placed(region, problems, best, best_excess)
            if done < tuning.jumps:
                points = steps.jumped(points, gradients)
            else:
                points = steps.adapted(points, gradients, 1 - done / total, tuning)
            done += 1
        order = best_excess[left].argsort(descending=True, stable=True)
        kept = order[: _fewer(len(left), among)]
        left = left[kept]
        points = {name: value[kept] for name, value in points.items()}
        steps.keep(kept)
    return _placed(region, problems, best, best_excess)


class _Steps:
    """Steps of several points at once, each within the ranges of its own problem."""

    def __init__(self, region: Region, problems: Tensor, dtype: torch.dtype) -> None:
        self._region = region.select(problems)
        self._dtype = dtype
        boxes = {n: (r.lower, r.upper) for n, r in self._region.ranges.items()}
        self._boxes = {n: (low.to(dtype), up.to(dtype)) for n, (low, up) in boxes.items()}
        self._radii = {n: ((up - low) * 0.5).to(dtype) for n, (low, up) in boxes.items()}
        self._means: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}
        self._taken = 0

    def keep(self, places: Tensor) -> None:
        """Only these points go on."""
        self._region = self._region.select(places)
        self._boxes = {n: (low[places], up[places]) for n, (low, up) in self._boxes.items()}
        self._radii = {n: radius[places] for n, radius in self._radii.items()}
        self._means = {n: value[places] for n, value in self._means.items()}
        self._squares = {n: value[places] for n, value in self._squares.items()}

    def inside(self, name: str, value: Tensor) -> Tensor:
        """Points moved into their boxes."""
        return _inside(value, self._boxes[name])

    def jumped(
        self, points: Mapping[str, Tensor], gradients: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """The corners that maximise the gradients; elements without a gradient stay."""
        moved = {}
        for name, value in points.items():
            corner = self._region.corner(name, -gradients[name].double()).to(self._dtype)
            moved[name] = torch.where(gradients[name] == 0, value, self.inside(name, corner))
        return moved

    def adapted(
        self,
        points: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        share: float,
        tuning: AttackingTuning,
    ) -> dict[str, Tensor]:
        """A step of Adam, this share of the first one's size."""
        self._taken += 1
        scaled = {name: gradient * self._radii[name] for name, gradient in gradients.items()}
        size = torch.stack([value.flatten(1).abs().mean(1) for value in scaled.values()]).sum(0)
        moved = {}
        for name, value in points.items():
            gradient = scaled[name] / _column(size, value).clamp_min(1e-30)
            mean = self._averaged(self._means, name, gradient, tuning.mean_decay)
            if self._region.ranges[name].domains is not None:
                towards = self._region.corner(name, -mean.double()).to(self._dtype)
                moved[name] = self.inside(name, value + (towards - value) * share)
                continue
            square = self._averaged(self._squares, name, gradient * gradient, tuning.square_decay)
            step = tuning.adam_rate * share * self._radii[name] * mean / (square.sqrt() + 1e-8)
            moved[name] = self.inside(name, value + step)
        return moved

    def _averaged(
        self, averages: dict[str, Tensor], name: str, value: Tensor, decay: float
    ) -> Tensor:
        """A moving average with this value taken in, its bias towards zero corrected."""
        last = averages.get(name)
        averages[name] = value * (1 - decay) + (0.0 if last is None else last * decay)
        return averages[name] / (1 - decay**self._taken)


def _gradients(
    graph: Graph, points: Mapping[str, Tensor], rows: Tensor, offsets: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The excess [n] of clauses at points, and its gradients by input."""
    leaves = {name: value.detach().requires_grad_() for name, value in points.items()}
    with torch.enable_grad():
        excess = excess_at(graph, leaves, rows, offsets).amin(1)
        found: Sequence[Tensor | None] = [None] * len(leaves)
        if excess.requires_grad:
            found = torch.autograd.grad(excess.sum(), list(leaves.values()), allow_unused=True)
    gradients = {
        name: torch.zeros_like(points[name]) if gradient is None else gradient
        for name, gradient in zip(leaves, found, strict=True)
    }
    return excess.detach(), gradients


def _placed(
    region: Region, problems: Tensor, points: Mapping[str, Tensor], excess: Tensor
) -> Candidates:
    """Points in float64, moved to where rounding may have led them out of."""
    placed = {}
    for name, value in points.items():
        box = region.ranges[name]
        within = _inside(value.double(), (box.lower[problems], box.upper[problems]))
        placed[name] = region.pull_in(name, problems, within)
    return Candidates(placed, excess)


def _fewer(count: int, among: int) -> int:
    return max(1, count // among)


def _column(value: Tensor, like: Tensor) -> Tensor:
    """One number for each point, to go with a tensor of points."""
    return value.reshape(-1, *([1] * (like.ndim - 1)))


def _inside(value: Tensor, box: tuple[Tensor, Tensor]) -> Tensor:
    return torch.minimum(torch.maximum(value, box[0]), box[1])
