"""Tighter bounds: bound what units read by hulls, each as a row of its own, before any is split.

The bounds of unstable units say how wide their gaps are, and with them everything above. Bounds
from backward passes have chords at every unit below; hulls of the layers below tighten them. Going
upwards, every layer gains from those that were tightened before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from provable_circuits.rounding import Interval, met
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.scores import costliest, hinges
from provable_circuits.verify.neuron_hull.joint_dual import JointDual
from provable_circuits.verify.neuron_hull.layerwise_dual import LayerwiseDual
from provable_circuits.verify.neuron_hull.presolve import Presolver
from provable_circuits.verify.neuron_hull.presolved import Rows


def tighten_second_layer(chain: LayerwiseDual) -> LayerwiseDual:
    """A chain with tighter bounds of its costliest second units.

    They are bounded through all layers or, where that would take too long, through the first.
    """
    problem, tuning = chain.problem, chain.problem.tuning
    if not len(problem.second):
        return chain
    lower, upper = problem.lower, problem.upper
    cost = problem.goal.second.abs().sum(0) * hinges(lower, upper)
    units = costliest({"": cost.unsqueeze(0)}, tuning.tightened_share)[""][0].nonzero().flatten()
    if not len(units):
        return chain
    second = problem.second[units]
    alone = chain.of(problem.with_goal(Rows.joined([second, -second])))
    if _work(alone) > tuning.second_work:
        alone = LayerwiseDual(alone.problem, [], chain.dtype, chain.deadline)
    least, most = _least(alone, tuning.second_steps).split(len(second))
    return chain.of(
        problem.with_ends(lower.index_copy(0, units, least), upper.index_copy(0, units, -most))
    )


def tightened_bounds(bounds: Bounds, wanted: Collection[str]) -> Iterator[tuple[str, Interval]]:
    """Tighter bounds of tensors that activations read, one after the other, upwards.

    It ends where a tensor has too many unstable units for what lies below them.

    Args:
        bounds: enclosures of a batch of one problem of the kind that can be presolved.
        wanted: the tensors.
    """
    structure, deadline = bounds.structure, bounds.deadline
    tuning = structure.configuration.neuron_hull
    ends = {node.inputs[0]: bounds.ends[node.inputs[0]] for node in structure.activations}
    for name in ends:
        if name not in wanted or name in structure.single_layer:
            continue
        lower, upper = (end.flatten() for end in ends[name])
        units = ((lower < 0) & (upper > 0)).nonzero().flatten()
        if not len(units):
            continue
        below = structure.graph.below(name)
        ranges = {given: bounds.region.ranges[given] for given in below.inputs}
        region = Region(ranges, bounds.region.few_boxes)
        known = {source: pair for source, pair in ends.items() if source in below}
        own = Structure(below, structure.device, structure.configuration)
        alone = Bounds(own, region, 1, known, deadline=deadline)
        alone.compute(refine=False)
        shape = structure.graph[name].shape
        rows = lower.new_zeros(len(units), len(lower)).scatter_(1, units.unsqueeze(1), 1.0)
        rows = rows.reshape(1, len(units), *shape)
        presolver = Presolver(alone, name, rows, lower.new_zeros(len(units)))
        if not len(presolver.problem.first):
            continue
        problem = presolver.problem.both_ways()
        chain = LayerwiseDual(problem, presolver.below(), structure.guide, deadline)
        if chain.entries > tuning.most_entries or _work(chain) > tuning.common_work:
            return
        least, most = _least(chain, tuning.common_steps).split(len(units))
        tightened = met((lower[units], upper[units]), (least, -most))
        ends[name] = (
            lower.index_copy(0, units, tightened[0]).reshape(1, *shape),
            upper.index_copy(0, units, tightened[1]).reshape(1, *shape),
        )
        yield name, ends[name]


def _work(chain: LayerwiseDual) -> int:
    """Entries of the lines of all rows."""
    return len(chain.problem.goal) * chain.entries


def _least(chain: LayerwiseDual, steps: int) -> Tensor:
    """Lower bounds of all rows of a chain's problem, with nothing split: [r]."""
    joint = JointDual(chain)
    found = []
    most = chain.problem.tuning.most_entries
    for goal in chain.problem.goal.split(max(1, most // max(chain.entries, 1))):
        signs = goal.constant.new_zeros(len(goal), sum(chain.sizes))
        known = chain.known(signs)
        chosen, _ = joint.climb(goal, known, chain.fresh(goal, known), steps)
        found.append(chain.certify(goal, known, chosen).value)
    return torch.cat(found)
