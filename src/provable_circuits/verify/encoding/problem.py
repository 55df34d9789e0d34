"""One problem, whatever it was written from: a graph, ranges of its inputs, and clauses to hold.

An objective is a linear function of the graph's output y that must not exceed zero,

    excess_i(y)  =  rows[i] . y + offsets[i]  <=  0,

and a clause a disjunction of objectives: it holds at a point if one of its objectives does. A
problem holds if every clause holds at every point, for each input of a batch.

*claim*
    All objectives of the metric must hold: every clause has one objective.
*property*
    A case, ``constraints @ y <= bounds``, must not be met: a clause whose objectives are the
    negations of its constraints, of which one is enough.

So the excess of a clause is the *least* of its objectives', a clause is closed as soon as one
objective is (or a combination of them, see ``maximum``), and a point breaks it where all of them
are exceeded. The offsets of a proof may be larger than those of a candidate: numbers of a file that
float64 does not hold are rounded against whoever uses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from provable_circuits.claims.domains import Domain
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add, Gather, Input, Linear, ReLU, Subtract
from provable_circuits.verify.encoding.circuit_tensor import CircuitTensor
from provable_circuits.verify.encoding.roles import Role, RoleKind, Roles


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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Problem:
    """Clauses over the output of one graph, for a batch of k inputs.

    Attributes:
        graph: the graph; its one output is ``y``.
        ranges: where each of its inputs ranges.
        rows: the rows of the objectives, [k, objectives, outputs].
        offsets: their offsets for proofs, [k, objectives].
        inner_offsets: their offsets for candidates, no larger; None where they are the same.
        members: the objectives of each clause, [clauses, most]; shorter clauses repeat their first.
            None where every objective is a clause.
        roles: what each node of the graph stands for, by name.
        cut: for tensors that hold only some channels, which of the network's.
        tensors: for each of the network's tensors that a circuit reads, the circuit's own, before
            patching; those that are not listed are the network's own.
    """

    graph: Graph
    ranges: Mapping[str, InputRange]
    rows: Tensor
    offsets: Tensor
    roles: Roles
    inner_offsets: Tensor | None = None
    members: Tensor | None = None
    cut: Mapping[str, Tensor] = field(default_factory=dict)
    tensors: Mapping[str, CircuitTensor] = field(default_factory=dict)

    def to(self, device: torch.device) -> Self:
        """The same problem with its numbers on another device; its graph's follow on their own."""
        inner, members = self.inner_offsets, self.members
        return replace(
            self,
            ranges={name: box.to(device) for name, box in self.ranges.items()},
            rows=self.rows.to(device),
            offsets=self.offsets.to(device),
            inner_offsets=None if inner is None else inner.to(device),
            members=None if members is None else members.to(device),
        )

    @property
    def common(self) -> frozenset[str]:
        """Nodes that are the same in every problem of the same source."""
        return frozenset(name for name, role in self.roles.items() if role.common)

    @property
    def lasting(self) -> frozenset[str]:
        """Nodes of a circuit whose role says all that they depend on, but for ``cut``."""
        own = (name for name, role in self.roles.items() if role.kind is RoleKind.CIRCUIT)
        return frozenset(own)

    @property
    def clauses(self) -> int:
        """How many clauses each input has."""
        return self.rows.shape[1] if self.members is None else len(self.members)

    @property
    def candidate_offsets(self) -> Tensor:
        """The offsets of the objectives for candidates, [k, objectives]."""
        return self.offsets if self.inner_offsets is None else self.inner_offsets

    def of_clauses(self, excess: Tensor) -> Tensor:
        """The excess of clauses, [..., clauses], from that of objectives: the least of each."""
        if self.members is None:
            return excess
        excess = torch.where(excess.isnan(), torch.inf, excess)
        return excess[..., self.members].amin(-1)

    def clause(self, problems: Tensor, clauses: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [n, most, outputs] and offsets [n, most] of clauses [n], for candidates."""
        where = clauses.unsqueeze(1) if self.members is None else self.members[clauses]
        who = problems.unsqueeze(1)
        return self.rows[who, where], self.candidate_offsets[who, where]

    def objectives(self, open_: Tensor) -> Tensor:
        """The objectives of some clauses: pairs [n, 2] of input and objective, none twice."""
        if self.members is None or not len(open_):
            return open_
        members = self.members[open_[:, 1]]
        problems = open_[:, :1].expand_as(members)
        found: Tensor = torch.stack([problems.flatten(), members.flatten()], 1).unique(dim=0)
        return found

    def single(self, clause: int) -> int | None:
        """The only objective of a clause; None if it has several."""
        if self.members is None:
            return clause
        own = self.members[clause].unique().tolist()
        return own[0] if len(own) == 1 else None

    def maximum(self, clause: int) -> Problem:
        """The problem of one clause as a single objective, over a graph that ends in a maximum.

        Some objective of the clause holds iff the largest of -excess_i is at least zero. A maximum
        is a tree of ReLUs, max(a, b) = b + relu(a - b). The alpha of these ReLUs are the weights of
        a combination of objectives: choosing them well finds a combination that holds everywhere,
        where there is one.

        Raises:
            ValueError: the problem has a batch of inputs, or no clause has several objectives.
        """
        if self.members is None or len(self.rows) != 1:
            raise ValueError("a maximum is that of one clause over one input")
        own = self.members[clause].unique()
        graph = with_maximum(self.graph, -self.rows[0, own], -self.offsets[0, own])
        row = torch.full_like(self.rows[:, :1, :1], -1.0)
        return Problem(
            graph=graph,
            ranges=self.ranges,
            rows=row,
            offsets=torch.zeros_like(self.offsets[:, :1]),
            roles={
                node.name: self.roles.get(node.name, Role(RoleKind.SPECIFICATION, node.name))
                for node in graph.nodes
            },
        )


def clause_members(sizes: Sequence[int]) -> Tensor | None:
    """The table of ``Problem.members`` for clauses of so many objectives, one after the other.

    >>> clause_members([2, 1])
    tensor([[0, 1],
            [2, 2]])
    """
    if all(size == 1 for size in sizes):
        return None
    if min(sizes) < 1:
        raise ValueError("a clause without objectives never holds")
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0).unsqueeze(1)
    place = torch.arange(max(sizes)).expand(len(sizes), -1)
    return starts + torch.where(place < torch.tensor(sizes).unsqueeze(1), place, 0)


def copied(graph: Graph) -> tuple[GraphBuilder, str]:
    """A builder that has written the graph so far, and its name for the output."""
    builder = GraphBuilder(check_weights=False)
    names: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.op, Input):
            names[node.name] = builder.input(node.name, node.shape)
        else:
            sources = [names[name] for name in node.inputs]
            names[node.name] = builder.add(node.name, node.op, *sources, layer=node.layer)
    return builder, names[graph.outputs[0]]


def with_maximum(graph: Graph, rows: Tensor, offsets: Tensor) -> Graph:
    """The graph behind whose output the largest of rows @ y + offsets is computed."""
    builder, output = copied(graph)
    value = builder.add("objectives", Linear(rows, offsets), output)
    while (count := builder[value].shape[0]) > 1:
        half = (count + 1) // 2
        # The middle one of an odd number is compared with itself.
        one = builder.add(f"{value}.left", Gather(torch.arange(half)), value)
        other = builder.add(f"{value}.right", Gather(torch.arange(count - half, count)), value)
        gap = builder.add(f"{value}.gap", Subtract(), one, other)
        gain = builder.add(f"{value}.gain", ReLU(), gap)
        value = builder.add(f"{value}.max", Add(), other, gain)
    return builder.build([value])
