"""Many circuits as one query: the same merged graph for all, gates where they differ.

A gate multiplies each unit by one where its circuit keeps it and by zero where it does not, problem
by problem. So circuits that remove from the same sites share one graph, and one pass of bounds, or
one run, goes through all of them. The problems of a batch are all pairs of a circuit and an input
of the claim, the inputs of the first circuit first.

Weights are not cut here, since every circuit would cut them elsewhere: for one circuit of a large
network ``Encoder.encode`` is the better way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.network.circuit import Circuit
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.ops import Add
from provable_circuits.network.ops.base import LinearOp, OnnxWriter, Op, Shape, expect_count
from provable_circuits.network.semantics import Arithmetic, CircuitMask, interpret
from provable_circuits.rounding import Interval
from provable_circuits.verify.encoding.encoder import Encoder
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.encoding.roles import (
    CircuitStep,
    MergedGraphBuilder,
    Role,
    RoleKind,
    Roles,
)


@dataclass(frozen=True, eq=False)
class Gate(LinearOp):
    """``y = scale * x``, each problem with its own scale of zeros and ones, [problems, *shape]."""

    scale: Tensor

    def shape(self, *inputs: Shape) -> Shape:
        expect_count(self, inputs, 1)
        return inputs[0]

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0] * self.scale

    @property
    def terms(self) -> int:
        return 1

    @property
    def exact(self) -> bool:
        return True

    def select(self, rows: Tensor) -> Gate:
        return Gate(self.scale[rows])

    def spread(self, *inputs: Tensor) -> Tensor:
        return inputs[0] * self.scale

    def pullback(self, rows: Tensor, *shapes: Shape) -> tuple[Tensor, ...]:
        by_problem = rows.unflatten(0, (len(self.scale), -1))
        return ((by_problem * self.scale.unsqueeze(1)).flatten(0, 1),)

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = inputs[0]
        closed = self.scale == 0
        return torch.where(closed, 0.0, lower), torch.where(closed, 0.0, upper)

    def write_onnx(self, writer: OnnxWriter, *inputs: str) -> str:
        return writer.node("Mul", [inputs[0], writer.constant(self.scale)])


@dataclass(frozen=True, slots=True, eq=False)
class BatchedProblem:
    """Several circuits under one claim, ready to be bounded in one pass.

    Attributes:
        graph: the merged graph; its one output is ``y``.
        ranges: where each of its inputs ranges, for every problem.
        rows, offsets: the specification, [problems, constraints, outputs] and [problems,
            constraints].
        circuits: the circuits asked about.
        inputs: for each problem which of the claim's inputs it is about.
        roles: what each node of the graph stands for, by name.
    """

    graph: Graph
    ranges: Mapping[str, InputRange]
    rows: Tensor
    offsets: Tensor
    circuits: tuple[Circuit, ...]
    inputs: Tensor
    roles: Roles

    @property
    def common(self) -> frozenset[str]:
        """Nodes that no circuit changes: those of the network and of the source of patches."""
        return frozenset(name for name, role in self.roles.items() if role.common)


def encode_batch(encoder: Encoder, circuits: Sequence[Circuit]) -> BatchedProblem:
    """One query about several circuits.

    A tensor is shared with the network if no circuit removes anything upstream of it, so bounds are
    tightest for circuits that remove from the same sites.
    """
    return _BatchWriter(encoder, circuits).query()


class _BatchWriter(Arithmetic[str]):
    """One query while it is written: tensors of the circuits are nodes of the merged graph."""

    shares = True

    def __init__(self, encoder: Encoder, circuits: Sequence[Circuit]) -> None:
        self.e = encoder
        self.circuits = tuple(circuits)
        kept_by_all = everything = (1 << len(encoder.components)) - 1
        for circuit in circuits:
            kept_by_all &= circuit.bits
        self.removed = everything & ~kept_by_all
        keep = encoder.components.masks(circuits)
        self.mask = CircuitMask.of_nodes(encoder.components, keep)
        self.builder = MergedGraphBuilder()
        self.ranges: dict[str, InputRange] = {}
        self.network_nodes: dict[str, str] = {}
        self.source_nodes: dict[str, str] = {}

    def query(self) -> BatchedProblem:
        e, count = self.e, len(self.circuits)
        output = e.network.outputs[0]
        circuit = interpret(e.network, self.mask, self, [output])[output]
        reference = self._network(output) if e.specification.needs_reference else None
        y = e.specification.write(self.builder, reference, circuit)
        graph = self.builder.build([y])
        return BatchedProblem(
            graph=graph,
            ranges=self.ranges,
            rows=e.specification.rows.repeat(count, 1, 1),
            offsets=e.specification.offsets.repeat(count, 1),
            circuits=self.circuits,
            inputs=torch.arange(e.count).repeat(count),
            roles=self.builder.roles(node.name for node in graph.nodes),
        )

    def _input(self, role: Role, shape: Shape, box: InputRange) -> str:
        """An input whose range is the same for all circuits."""
        count = len(self.circuits)
        given = self.builder.given(role, shape)
        domains = None if box.domains is None else box.domains * count
        size = [count] + [1] * len(shape)
        self.ranges[given] = InputRange(box.lower.repeat(size), box.upper.repeat(size), domains)
        return given

    def _network(self, name: str) -> str:
        """The network's own tensor at the claimed input."""
        return self._copy(name, self.network_nodes, self.e.network_role, self.e.z_range)

    def _source(self, name: str) -> str:
        """The network's tensor at the patching input."""
        box = self.e.patch_range
        if box is None:
            raise ValueError("this patching has no source")
        return self._copy(name, self.source_nodes, self.e.source_role, box)

    def _copy(
        self, name: str, made: dict[str, str], role_of: Callable[[str], Role], box: InputRange
    ) -> str:
        """The network's tensor where its input ranges over a box, in a role of that run."""
        if name in made:
            return made[name]
        e, role = self.e, role_of(name)
        node = e.network[name]
        if role.kind is RoleKind.AT_POINT:
            lower, upper = (end.expand(e.count, *node.shape) for end in e.at_point[name])
            made[name] = self._input(role, node.shape, InputRange(lower, upper))
        elif name == e.z:
            made[name] = self._input(role, node.shape, box)
        else:
            sources = [self._copy(n, made, role_of, box) for n in node.inputs]
            made[name] = self.builder.write(role, e.ops[name], *sources)
        return made[name]

    def own(self, node: Node) -> str:
        return self._network(node.name)

    def apply(self, node: Node, inputs: Sequence[str]) -> str:
        return self._own(node.name, self.e.ops[node.name], *inputs)

    def _own(self, name: str, op: Op, *inputs: str, step: CircuitStep = CircuitStep.VALUE) -> str:
        return self.builder.write(Role(RoleKind.CIRCUITS, name, step, self.removed), op, *inputs)

    def patched(self, node: Node, value: str, kept: Tensor) -> str:
        e, name, shape = self.e, node.name, node.shape
        kept = kept.expand(len(self.circuits), *shape).repeat_interleave(e.count, 0)
        inside = self._own(name, Gate(kept.double()), value, step=CircuitStep.MASKED)
        patching = e.claim.patching
        if patching.is_fixed:
            numbers = e.fixed[name][0].expand(shape)
            if not bool(numbers.any()):
                return inside
            fixed = self.builder.fixed(name, numbers)
            outside = self._own(name, Gate((~kept).double()), fixed, step=CircuitStep.SOURCE)
        elif patching.has_source:
            source = self._source(name)
            outside = self._own(name, Gate((~kept).double()), source, step=CircuitStep.SOURCE)
        else:
            lower, upper = (end.expand(e.count, *shape) for end in e.hull[name])
            box = [end.repeat(len(self.circuits), *([1] * len(shape))) for end in (lower, upper)]
            outside = self.builder.given(Role(RoleKind.PATCH_VALUES, name), shape)
            self.ranges[outside] = InputRange(
                torch.where(kept, 0.0, box[0]), torch.where(kept, 0.0, box[1])
            )
        return self._own(name, Add(), inside, outside, step=CircuitStep.PATCHED)
