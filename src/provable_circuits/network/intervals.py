"""Interval propagation: for every tensor of a network, ends that enclose it, rounding included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from provable_circuits.network.execution import operations
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.semantics import NOTHING_REMOVED, Arithmetic, interpret
from provable_circuits.rounding import Interval


def propagate(graph: Graph, inputs: Mapping[str, Interval]) -> dict[str, Interval]:
    """Enclosures of every tensor, node by node, for inputs within the given ends.

    Args:
        graph: any graph.
        inputs: for each input, lower and upper ends, float64, with a batch dimension.

    Returns:
        For each tensor, by name, ends with the same batch dimension (one where it is constant).
    """
    names = [node.name for node in graph.nodes]
    return interpret(graph, NOTHING_REMOVED, Intervals(graph, inputs), names)


class Intervals(Arithmetic[Interval]):
    """Enclosures, every rounding error included; each row of the batch is a circuit of its own.

    Args:
        graph: the network.
        inputs: for each input, lower and upper ends, float64, with a batch dimension.
        patch: by site, ends of patch values that broadcast to [batch, *shape].
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Interval],
        patch: Mapping[str, Interval] | None = None,
    ) -> None:
        device = next((lower.device for lower, _ in inputs.values()), torch.device("cpu"))
        self.inputs = inputs
        self.patch = patch or {}
        self.ops = operations(graph, torch.float64, device)

    def own(self, node: Node) -> Interval:
        return self.inputs[node.name]

    def apply(self, node: Node, inputs: Sequence[Interval]) -> Interval:
        return self.ops[node.name].interval(*inputs)

    def patched(self, node: Node, value: Interval, kept: Tensor) -> Interval:
        lower, upper = self.patch[node.name]
        return torch.where(kept, value[0], lower), torch.where(kept, value[1], upper)
