"""Intermediate-bound tightening of what all questions share: once, by neuron hulls."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from provable_circuits.verify.bounding.bounds import Bounds
from provable_circuits.verify.neuron_hull.tightening import tightened_bounds
from provable_circuits.verify.reuse.memory import Memory


def tighten_common(
    memory: Memory, bounds: Bounds, common: Collection[str], problems: Tensor
) -> None:
    """Tighten the bounds of tensors that all questions have in common, once for all of them.

    Args:
        memory: what is remembered of these tensors.
        bounds: enclosures of one question, of the kind that can be presolved.
        common: the tensors, of which some are read by activations.
        problems: for which inputs of the claim.
    """
    structure = bounds.structure
    loose = memory.loose(common, problems)
    for problem in sorted({problem for _, problem in loose}):
        wanted = {name for name, other in loose if other == problem}
        alone = bounds.select(torch.tensor([problem], device=structure.device))
        for name, tightened in tightened_bounds(alone, wanted):
            readers = [node.name for node in structure.activations if name in node.inputs]
            memory.keep_tightened(name, readers, problem, tightened)
        memory.tightened |= {(name, problem) for name in wanted}
