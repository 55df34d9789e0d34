"""Interval propagation: for every tensor of a network, ends that enclose it, rounding included."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from provable_circuits.network.execution import operations
from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Input
from provable_circuits.rounding import Interval


def propagate(graph: Graph, inputs: Mapping[str, Interval]) -> dict[str, Interval]:
    """Enclosures of every tensor, node by node, for inputs within the given ends.

    Args:
        graph: any graph.
        inputs: for each input, lower and upper ends, float64, with a batch dimension.

    Returns:
        For each tensor, by name, ends with the same batch dimension (one where it is constant).
    """
    device = next((lower.device for lower, _ in inputs.values()), torch.device("cpu"))
    ops = operations(graph, torch.float64, device)
    found: dict[str, Interval] = {}
    for node in graph.nodes:
        if isinstance(node.op, Input):
            found[node.name] = inputs[node.name]
        else:
            found[node.name] = ops[node.name].interval(*(found[name] for name in node.inputs))
    return found
