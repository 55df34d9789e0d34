"""The query: one circuit under one claim, as a merged graph, ranges of inputs, constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.intervals import propagate
from provable_circuits.verify.encoding.circuit_tensor import CircuitTensor, Whole
from provable_circuits.verify.encoding.problem import Problem


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Query(Problem):
    """One circuit under one claim as a problem: every objective of the metric is a clause.

    The nodes that all queries of an encoder have in common are those of the network, and of the
    source of patches.

    Attributes:
        circuit: the circuit asked about.
        removed_units: for sites patched from boxes, the flat positions of their removed units.
    """

    circuit: Circuit
    removed_units: Mapping[str, Tensor]

    def held(self, tensor: str) -> CircuitTensor:
        """The circuit's version of a network's tensor, before patching.

        The network's own tensor, where the circuit has none, is held by no node of this graph.
        """
        return self.tensors.get(tensor, Whole(tensor))

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n} {list(self.graph[n].shape)}" for n in self.graph.inputs)
        shared = sum(self.roles[node.name].common for node in self.graph.nodes)
        units = sum(
            math.prod(node.shape)
            for node in self.graph.nodes
            if isinstance(node.op, ops.Activation)
        )
        return (
            f"Query({len(self.circuit)} of {len(self.circuit.components)} components, "
            f"{self.rows.shape[0]} inputs x {self.rows.shape[1]} constraints; {len(self.graph)} "
            f"nodes, {shared} of them the network's own; {self.unstable} of {units} activation "
            f"units unstable; over {inputs})"
        )

    @property
    def unstable(self) -> int:
        """Activation units that intervals leave open, for the input where most are.

        Of a ReLU those that may be on either side of zero; of a curved function those that move.
        """
        ends = propagate(self.graph, {n: (r.lower, r.upper) for n, r in self.ranges.items()})
        open_ = torch.zeros(len(self.rows), dtype=torch.long, device=self.rows.device)
        for node in self.graph.nodes:
            if isinstance(node.op, ops.Activation):
                lower, upper = (end.flatten(1) for end in ends[node.inputs[0]])
                piecewise_linear = isinstance(node.op, ops.ReLU | ops.LeakyReLU)
                moves = (lower < 0) & (upper > 0) if piecewise_linear else lower < upper
                open_ += moves.sum(1)
        return int(open_.max())
