"""Intermediate-bound tightening of what all questions share: once, by neuron hulls."""

from __future__ import annotations

import torch
from torch import Tensor

from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.encoding.roles import Roles
from provable_circuits.verify.neuron_hull.tightening import tightened_bounds
from provable_circuits.verify.reuse.memory import Memory


def tighten_common(memory: Memory, bounds: Bounds, roles: Roles, problems: Tensor) -> None:
    """Tighten the bounds of tensors that all questions have in common, once for all of them.

    Args:
        memory: what is remembered of these tensors.
        bounds: enclosures of one question, of the kind that can be presolved.
        roles: the roles of its nodes; the tensors in common, if read by activations, are tightened.
        problems: for which inputs of the claim.
    """
    structure = bounds.structure
    nodes = {role: name for name, role in roles.items() if role.common}
    loose = memory.loose(nodes, problems)
    for problem in sorted({problem for _, problem in loose}):
        wanted = {nodes[role] for role, other in loose if other == problem}
        alone = bounds.select(torch.tensor([problem], device=structure.device))
        for name, tightened in tightened_bounds(alone, wanted):
            readers = [roles[node.name] for node in structure.activations if name in node.inputs]
            memory.keep_tightened(roles[name], readers, problem, tightened)
        memory.tightened |= {(roles[name], problem) for name in wanted}
