"""Many circuits as one query: the same merged graph for all, gates where they differ.

A gate multiplies each unit by one where its circuit keeps it and by zero where it does not, problem
by problem. So circuits that remove from the same sites share one graph, and one pass of bounds, or
one run, goes through all of them. The problems of a batch are all pairs of a circuit and an input
of the claim, the inputs of the first circuit first.

Weights are not cut here, since every circuit would cut them elsewhere: for one circuit of a large
network ``Encoder.encode`` is the better way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from provable_circuits.claims.patching import FixedPatching, Reachable
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Site
from provable_circuits.network.graph import Graph, GraphBuilder
from provable_circuits.network.ops import Add
from provable_circuits.network.ops.base import LinearOp, OnnxWriter, Shape, expect_count
from provable_circuits.rounding import Interval
from provable_circuits.verify.encoding.encoder import Encoder, InputRange


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
        common: tensors that no circuit changes: those of the network and of the source of patches.
    """

    graph: Graph
    ranges: Mapping[str, InputRange]
    rows: Tensor
    offsets: Tensor
    circuits: tuple[Circuit, ...]
    inputs: Tensor
    common: frozenset[str]


def encode_batch(encoder: Encoder, circuits: Sequence[Circuit]) -> BatchedProblem:
    """One query about several circuits.

    A tensor is shared with the network if no circuit removes anything upstream of it, so bounds are
    tightest for circuits that remove from the same sites.
    """
    return _BatchWriter(encoder, circuits).query()


class _BatchWriter:
    """One query while it is written."""

    def __init__(self, encoder: Encoder, circuits: Sequence[Circuit]) -> None:
        self.e = encoder
        self.circuits = tuple(circuits)
        self.removed = 0
        for circuit in circuits:
            self.removed |= (~circuit).bits
        self.keep = encoder.components.masks(circuits)
        self.builder = GraphBuilder(check_weights=False)
        self.ranges: dict[str, InputRange] = {}
        self.made: dict[str, str] = {}
        self.common: set[str] = set()

    def query(self) -> BatchedProblem:
        e, count = self.e, len(self.circuits)
        output = e.network.outputs[0]
        circuit = self._circuit(output)
        reference = self._network(output) if e.specification.needs_reference else None
        y = e.specification.write(self.builder, reference, circuit)
        return BatchedProblem(
            graph=self.builder.build([y]),
            ranges=self.ranges,
            rows=e.specification.rows.repeat(count, 1, 1),
            offsets=e.specification.offsets.repeat(count, 1),
            circuits=self.circuits,
            inputs=torch.arange(e.count).repeat(count),
            common=frozenset(self.common),
        )

    def _input(self, name: str, shape: Shape, box: InputRange) -> str:
        """An input whose range is the same for all circuits."""
        count = len(self.circuits)
        given = self.builder.input(name, shape)
        domains = None if box.domains is None else box.domains * count
        size = [count] + [1] * len(shape)
        self.ranges[given] = InputRange(box.lower.repeat(size), box.upper.repeat(size), domains)
        return given

    def _network(self, name: str) -> str:
        """The network's own tensor at the claimed input."""
        return self._copy(name, "", "at:", self.e.z, self.e.z_range)

    def _source(self, name: str) -> str:
        """The network's tensor at the patching input."""
        box = self.e.patch_range
        if box is None:
            raise ValueError("this patching has no source")
        return self._copy(name, "patch:", None, "patch:input", box)

    def _copy(self, name: str, mark: str, fold: str | None, start: str, box: InputRange) -> str:
        e, key = self.e, f"{mark}{name}"
        if key in self.made:
            return self.made[key]
        node = e.network[name]
        if fold is not None and e.folded:
            lower, upper = (end.expand(e.count, *node.shape) for end in e.at_point[name])
            made = self._input(f"{fold}{name}", node.shape, InputRange(lower, upper))
        elif name == e.network.inputs[0]:
            made = self._input(start, node.shape, box)
        else:
            sources = [self._copy(n, mark, fold, start, box) for n in node.inputs]
            made = self.builder.add(key, e.ops[name], *sources)
        self.made[key] = made
        self.common.add(made)
        return made

    def _circuit(self, name: str) -> str:
        """The circuits' version of a tensor, patched."""
        key = f"~{name}"
        if key in self.made:
            return self.made[key]
        e = self.e
        node, site = e.network[name], e.sites.get(name)
        if not e.upstream[name] & self.removed:
            made = self._network(name)
        else:
            if any(e.upstream[n] & self.removed for n in node.inputs):
                sources = [self._circuit(n) for n in node.inputs]
                made = self.builder.add(f"{name}~", e.ops[name], *sources)
            else:
                made = self._network(name)
            if site is not None:
                own = ((1 << len(site.components)) - 1) << site.start
                if own & self.removed:
                    made = self._patched(name, site, made)
        self.made[key] = made
        return made

    def _patched(self, name: str, site: Site, own: str) -> str:
        e, shape = self.e, self.e.network[name].shape
        mask = site.unit_mask(self.keep).expand(len(self.circuits), *shape)
        kept = mask.repeat_interleave(e.count, 0)
        inside = self.builder.add(f"{name}~kept", Gate(kept.double()), own)
        patching = e.claim.patching
        if isinstance(patching, FixedPatching):
            value = e.fixed[name][0].expand(shape)
            if not bool(value.any()):
                return inside
            fixed = self.builder.constant(f"{name}~fixed", value)
            outside = self.builder.add(f"{name}~removed", Gate((~kept).double()), fixed)
        elif isinstance(patching, Reachable):
            source = self._source(name)
            outside = self.builder.add(f"{name}~removed", Gate((~kept).double()), source)
        else:
            lower, upper = (end.expand(e.count, *shape) for end in e.hull[name])
            box = [end.repeat(len(self.circuits), *([1] * len(shape))) for end in (lower, upper)]
            outside = self.builder.input(f"patch:{name}", shape)
            self.ranges[outside] = InputRange(
                torch.where(kept, 0.0, box[0]), torch.where(kept, 0.0, box[1])
            )
        return self.builder.add(f"{name}~patched", Add(), inside, outside)
