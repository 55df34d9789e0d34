"""Preparation: bounds of what all questions share, of the network itself and the patch source.

They are computed once, on a clock of their own, and kept even where a limit cuts the work short.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from provable_circuits.network.graph import Graph
from provable_circuits.rounding import Interval
from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.bounding.differential import Known
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.deadline import Deadline, OutOfTime
from provable_circuits.verify.encoding.roles import Role, Roles, by_name, by_role
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
    found = network_bounds(context, deadline)
    known = {role: moved(pair, CPU) for role, pair in found.items()}
    bound = encoder.specification.at_most(min(float(query.offsets.max()), 0.0))
    if bool((query.offsets <= 0).all()):
        knowledge.last = Known(query.circuit, query, known, bound)


def network_bounds(context: Context, deadline: Deadline) -> Mapping[Role, Interval]:
    """Bounds of the network's own tensors at the claimed inputs, by role.

    None where they are known as numbers, because the inputs are single points.
    """
    encoder = context.encoder
    if encoder.folded:
        return {}
    region = context.region({encoder.z: encoder.z_range.to(context.device)})
    roles = {node.name: encoder.network_role(node.name) for node in encoder.network.nodes}
    return by_role(common_bounds(context, encoder.network, roles, region, deadline).ends, roles)


def common_bounds(
    context: Context, graph: Graph, roles: Roles, region: Region, deadline: Deadline
) -> Bounds:
    """Bounds of tensors that all questions have in common, computed once."""
    memory = context.knowledge.memory
    started = by_name(memory.started, roles)
    bounds = Bounds(
        context.structure(graph),
        region,
        context.encoder.count,
        by_name(memory.whole, roles),
        {name: ends for name, (ends, _) in started.items()},
        by_name(memory.lines, roles),
        deadline,
        refined={name: mask for name, (_, mask) in started.items()},
    )
    try:
        bounds.compute()
    except OutOfTime:
        memory.keep_unfinished(bounds, roles)
        raise
    memory.keep(bounds, roles)
    return bounds


def _bound_source(context: Context, deadline: Deadline) -> None:
    """Bound the tensors that patches are taken from, where those are a network's."""
    encoder = context.encoder
    if encoder.claim.patching.has_source:
        graph, ranges, roles = encoder.patch_source()
        region = context.region({name: ranges[name].to(context.device) for name in graph.inputs})
        common_bounds(context, graph, roles, region, deadline)
