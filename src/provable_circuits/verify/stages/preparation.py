"""Preparation: bounds of what all questions share, of the network itself and the patch source.

They are computed once, on a clock of their own, and kept even where a limit cuts the work short.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from provable_circuits.claims.patching import Reachable
from provable_circuits.network.graph import Graph
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.reuse.memory import moved
from provable_circuits.verify.stages.context import Context

CPU = torch.device("cpu")


def prepare(context: Context, deadline: Deadline) -> None:
    """Bound the network's own tensors, and the patch source's, unless that was done before.

    The network compares equal with itself: its proof, of which no more than these bounds are
    needed, is where those of its circuits start from.
    """
    encoder, knowledge = context.encoder, context.knowledge
    if knowledge.last is not None or not encoder.specification.needs_reference:
        return
    _bound_source(context, deadline)
    query = encoder.encode(encoder.components.full())
    known = {name: moved(pair, CPU) for name, pair in network_bounds(context, deadline).items()}
    bound = encoder.specification.at_most(min(float(query.offsets.max()), 0.0))
    if bool((query.offsets <= 0).all()):
        knowledge.last = Known(query.circuit, query, known, bound)


def network_bounds(context: Context, deadline: Deadline) -> Mapping[str, Interval]:
    """Bounds of the network's own tensors at the claimed inputs.

    None where they are known as numbers, because the inputs are single points.
    """
    encoder = context.encoder
    if encoder.folded:
        return {}
    region = context.region({encoder.z: encoder.z_range.to(context.device)})
    return common_bounds(context, encoder.network, region, deadline).ends


def common_bounds(context: Context, graph: Graph, region: Region, deadline: Deadline) -> Bounds:
    """Bounds of tensors that all questions have in common, computed once."""
    memory = context.knowledge.memory
    names = frozenset(node.name for node in graph.nodes)
    bounds = Bounds(
        context.structure(graph),
        region,
        context.encoder.count,
        {name: memory.whole[name] for name in names & memory.whole.keys()},
        {name: memory.started[name][0] for name in names & memory.started.keys()},
        memory.lines,
        deadline,
        refined={name: memory.started[name][1] for name in names & memory.started.keys()},
    )
    try:
        bounds.compute()
    except OutOfTime:
        memory.keep_unfinished(bounds, names)
        raise
    memory.keep(bounds, names)
    return bounds


def _bound_source(context: Context, deadline: Deadline) -> None:
    """Bound the tensors that patches are taken from, where those are a network's."""
    encoder = context.encoder
    if isinstance(encoder.claim.patching, Reachable):
        graph, ranges = encoder.patch_source()
        region = context.region({name: ranges[name].to(context.device) for name in graph.inputs})
        common_bounds(context, graph, region, deadline)
