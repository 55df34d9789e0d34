"""The query: one circuit under one claim, as a merged graph, ranges of inputs, constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from provable_circuits.claims.domains import Domain
from provable_circuits.network import ops
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph
from provable_circuits.network.intervals import propagate
from provable_circuits.verify.encoding.circuit_tensor import CircuitTensor, Whole
from provable_circuits.verify.encoding.roles import RoleKind, Roles


@dataclass(frozen=True, slots=True, eq=False)
class InputRange:
    """Where one input of a merged graph ranges: a box, and for p-balls the domains themselves.

    Attributes:
        lower, upper: ends [k, *shape] that enclose the range.
        domains: the k domains, where they say more than the box does.
    """

    lower: Tensor
    upper: Tensor
    domains: tuple[Domain, ...] | None = None

    def to(self, device: torch.device) -> InputRange:
        """The same range with its bounds on another device."""
        return replace(self, lower=self.lower.to(device), upper=self.upper.to(device))


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One circuit under one claim, ready to be decided.

    Attributes:
        graph: the merged graph; its one output is ``y``.
        ranges: where each of its inputs ranges.
        rows: the specification's rows [k, specifications, outputs].
        offsets: and offsets [k, specifications].
        circuit: the circuit asked about.
        roles: what each of its nodes stands for, by name.
        cut: for tensors of the circuit that hold only some channels, which of the network's.
        removed_units: for sites patched from boxes, the flat positions of their removed units.
        tensors: for each of the network's tensors that the circuit reads, the circuit's own, before
            patching; those that are not listed are the network's own.
    """

    graph: Graph
    ranges: Mapping[str, InputRange]
    rows: Tensor
    offsets: Tensor
    circuit: Circuit
    roles: Roles
    cut: Mapping[str, Tensor]
    removed_units: Mapping[str, Tensor]
    tensors: Mapping[str, CircuitTensor]

    @property
    def common(self) -> frozenset[str]:
        """Nodes that are the same in every query: those of the network and the patch source."""
        return frozenset(name for name, role in self.roles.items() if role.common)

    @property
    def lasting(self) -> frozenset[str]:
        """Nodes of the circuit whose role says all that they depend on, but for ``cut``."""
        own = (name for name, role in self.roles.items() if role.kind is RoleKind.CIRCUIT)
        return frozenset(own)

    def held(self, tensor: str) -> CircuitTensor:
        """The circuit's version of a network's tensor, before patching.

        The network's own tensor, where the circuit has none, is held by no node of this graph.
        """
        return self.tensors.get(tensor, Whole(tensor))

    def to(self, device: torch.device) -> Query:
        """The same query with its numbers on another device; its graph's follow on their own."""
        return replace(
            self,
            ranges={name: box.to(device) for name, box in self.ranges.items()},
            rows=self.rows.to(device),
            offsets=self.offsets.to(device),
        )

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
