"""From a claim and a circuit to one query: a merged graph, its inputs' ranges, and what must hold.

The network, the circuit and the source of patches are written into one graph by a builder that
shares equal nodes. Three words carry it:

*shared*
    A tensor that no removed component lies upstream of is the same in network and circuit, so the
    circuit reads the network's node. Removing channels there only zeroes the columns of whatever
    reads them.
*cut*
    Below the first removal the circuit has nodes of its own, made of the channels it keeps: removed
    channels are sliced out of the weights that make them and the weights that read them. This needs
    removed channels to be zero; other patches put their values in place instead.
*folded*
    If every claimed input is a single point, whatever depends on it alone is a number, known up to
    rounding: it becomes an input of the merged graph that ranges over its enclosure.

All inputs of a claim share the structure of the merged graph, so a query holds them as one batch:
the bounds of every input have a leading dimension k, and so have the rows of the specification. The
claim holds of the circuit iff for every j < k and every value of the merged graph's inputs,

    rows[j] . y + offsets[j] <= 0          (elementwise),  y the output of the merged graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Domain
from provable_circuits.claims.specification import Specification, specify
from provable_circuits.errors import ArgumentError
from provable_circuits.network import ops
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components, Site
from provable_circuits.network.execution import operations
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.intervals import propagate
from provable_circuits.network.layers import Layer
from provable_circuits.network.lowering import lower
from provable_circuits.network.semantics import Arithmetic, CircuitMask, interpret
from provable_circuits.rounding import Interval
from provable_circuits.verify.encoding.circuit_tensor import CircuitTensor, Unread, Whole
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.encoding.query import Query
from provable_circuits.verify.encoding.roles import (
    CircuitStep,
    MergedGraphBuilder,
    Role,
    RoleKind,
    Roles,
)

CPU = torch.device("cpu")


class Encoder:
    """Writes queries about the circuits of one network under one claim.

    What does not depend on the circuit is worked out once: the lowered network, enclosures at fixed
    inputs, the boxes of interval patching, the specification.
    """

    def __init__(self, components: Components, claim: Claim) -> None:
        claim.check(components.graph)
        if not claim.metric.provable:
            raise ArgumentError(
                f"{type(claim.metric).__name__} serves sampling alone: choose LogitDifference, "
                "WinnerMargin, MaxAbs or Norm to prove a claim."
            )
        self.components = components
        self.claim = claim
        self.network = lower(components.graph)
        self.ops = operations(self.network, torch.float64, CPU)
        self.count = len(claim.inputs)
        self.folded = all(domain.is_point for domain in claim.inputs)
        self.sites = {site.tensor: site for site in components.sites}
        self.site_of_source = {site.layer.source: site for site in components.sites}
        self.upstream = self._upstream()
        self.specification: Specification = specify(claim, components.graph)
        self.z_range = self._range(claim.inputs)
        self.patch_range = self._patch_range()

    @property
    def z(self) -> str:
        """The network's input."""
        return self.network.inputs[0]

    def network_role(self, tensor: str) -> Role:
        """The role of the network's tensor at the claimed input."""
        if self.folded:
            return Role(RoleKind.AT_POINT, tensor)
        return Role(RoleKind.INPUT if tensor == self.z else RoleKind.NETWORK, tensor)

    def source_role(self, tensor: str) -> Role:
        """The role of the network's tensor at the input that patches are taken at."""
        return Role(RoleKind.PATCH_INPUT if tensor == self.z else RoleKind.PATCH_SOURCE, tensor)

    @cached_property
    def fixed(self) -> Mapping[str, Tensor]:
        """The values of a fixed patching, by site."""
        patching = self.claim.patching
        return patching.values(self.components) if patching.is_fixed else {}

    @cached_property
    def at_point(self) -> dict[str, Interval]:
        """Every tensor of the network at the claimed inputs, if those are single points."""
        return propagate(self.network, {self.z: (self.z_range.lower, self.z_range.upper)})

    @cached_property
    def hull(self) -> dict[str, Interval]:
        """The boxes of interval patching: plain propagation through the network as given."""
        box = self.patch_range
        if box is None:
            raise ArgumentError("Only IntervalHull patching has boxes.")
        graph = self.components.graph
        return propagate(graph, {graph.inputs[0]: (box.lower, box.upper)})

    def hull_at(self, tensor: str, index: int) -> Interval:
        """The box of one tensor for one of the claim's inputs, [1, *shape]."""
        lower, upper = (end.expand(self.count, *end.shape[1:]) for end in self.hull[tensor])
        return lower[index : index + 1], upper[index : index + 1]

    def _range(self, domains: tuple[Domain, ...]) -> InputRange:
        lower, upper = (
            torch.stack(ends) for ends in zip(*(d.bounds() for d in domains), strict=True)
        )
        plain = all(getattr(domain, "p", math.inf) == math.inf for domain in domains)
        return InputRange(lower, upper, None if plain else domains)

    def _patch_range(self) -> InputRange | None:
        patching = self.claim.patching
        if patching.is_fixed:
            return None
        domains = tuple(patching.domain(j, self.claim.inputs) for j in range(self.count))
        for domain in domains:
            if domain.shape != self.network.input_shape:
                raise ArgumentError(
                    f"The patching's domains have shape {list(domain.shape)}, the network takes "
                    f"{list(self.network.input_shape)}."
                )
        return self._range(domains)

    def _upstream(self) -> dict[str, int]:
        """For each tensor, as bits, the components whose removal reaches it (its own too)."""
        bits: dict[str, int] = {}
        for node in self.network.nodes:
            own = 0
            for name in node.inputs:
                own |= bits[name]
            site = self.sites.get(node.name)
            if site is not None:
                own |= ((1 << len(site.components)) - 1) << site.start
            bits[node.name] = own
        return bits

    def patch_source(self) -> tuple[Graph, Mapping[str, InputRange], Roles]:
        """The network at the patches' input, as queries have it: graph, its range, its roles."""
        return _Encoding(self, self.components.full()).source()

    def encode(self, circuit: Circuit) -> Query:
        """The query about ``circuit``."""
        return _Encoding(self, circuit).query()


class _Encoding(Arithmetic[CircuitTensor]):
    """One query while it is written: tensors of the circuit are nodes of the merged graph."""

    shares = True

    def __init__(self, encoder: Encoder, circuit: Circuit) -> None:
        self.e = encoder
        self.circuit = circuit
        self.removed = ((1 << len(encoder.components)) - 1) & ~circuit.bits
        self.builder = MergedGraphBuilder()
        self.ranges: dict[str, InputRange] = {}
        self.network_nodes: dict[str, str] = {}
        self.source_nodes: dict[str, str] = {}
        self.removed_units: dict[str, Tensor] = {}
        self.before_patch: dict[str, CircuitTensor] = {}

    def source(self) -> tuple[Graph, Mapping[str, InputRange], Roles]:
        """The source of patches alone."""
        graph = self.builder.build([self._source(self.e.network.outputs[0])])
        return graph, self.ranges, self.builder.roles(node.name for node in graph.nodes)

    def query(self) -> Query:
        e = self.e
        self.mask = CircuitMask.of_nodes(e.components, e.components.masks([self.circuit]))
        if not e.folded:
            self._network(e.z)
        output = e.network.outputs[0]
        found = interpret(e.network, self.mask, self, [output])
        circuit_output = self._whole(output, found[output])
        reference = self._network(output) if e.specification.needs_reference else None
        y = e.specification.write(self.builder, reference, circuit_output)
        graph = self.builder.build([y])
        used = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
        if not used.issuperset(graph.inputs):
            nodes = [n for n in graph.nodes if n.name in used]
            graph = Graph(nodes, [n for n in graph.inputs if n in used], graph.outputs)
        return Query(
            graph=graph,
            ranges={name: self.ranges[name] for name in graph.inputs},
            rows=e.specification.rows,
            offsets=e.specification.offsets,
            circuit=self.circuit,
            # A node that the circuit made first may serve the source as well (all that it reads is
            # patched): it keeps the circuit's role, since in other queries it is another node.
            roles=self.builder.roles(node.name for node in graph.nodes),
            cut={
                value.node: value.kept
                for name, value in self.before_patch.items()
                if isinstance(value, Unread) and name not in self.mask.sources
            },
            removed_units=self.removed_units,
            tensors=self.before_patch,
        )

    def _input(self, role: Role, box: InputRange) -> str:
        given = self.builder.given(role, self.e.network[role.tensor].shape)
        self.ranges[given] = box
        return given

    def _network(self, name: str) -> str:
        """The network's own tensor at the claimed input."""
        if name not in self.network_nodes:
            e = self.e
            node, role = e.network[name], e.network_role(name)
            if e.folded:
                lower, upper = (end.expand(e.count, *node.shape) for end in e.at_point[name])
                self.network_nodes[name] = self._input(role, InputRange(lower, upper))
            elif name == e.z:
                self.network_nodes[name] = self._input(role, e.z_range)
            else:
                sources = [self._network(source) for source in node.inputs]
                self.network_nodes[name] = self.builder.write(role, e.ops[name], *sources)
        return self.network_nodes[name]

    def _source(self, name: str) -> str:
        """The network's tensor at the patching input."""
        if name not in self.source_nodes:
            e = self.e
            node, role = e.network[name], e.source_role(name)
            if name == e.z:
                box = e.patch_range
                if box is None:
                    raise ArgumentError("This patching has no source.")
                self.source_nodes[name] = self._input(role, box)
            else:
                sources = [self._source(source) for source in node.inputs]
                self.source_nodes[name] = self.builder.write(role, e.ops[name], *sources)
        return self.source_nodes[name]

    # --- the circuit ----------------------------------------------------------------------------

    def own(self, node: Node) -> CircuitTensor:
        """A tensor that no removed component lies upstream of is the network's."""
        value = self.before_patch[node.name] = Whole(self._network(node.name))
        return value

    def apply(self, node: Node, inputs: Sequence[CircuitTensor]) -> CircuitTensor:
        value = self.before_patch[node.name] = self._apply(node, inputs)
        return value

    # --- operations on cut tensors -------------------------------------------------------------

    def _apply(self, node: Node, inputs: Sequence[CircuitTensor]) -> CircuitTensor:
        op = self.e.ops[node.name]
        if isinstance(op, ops.Linear | ops.Conv2d):
            return self._layer(node, op, node.inputs[0], inputs[0])
        if len(inputs) == 1:
            moved = inputs[0].through(op, self.e.network[node.inputs[0]].shape)
            if moved is not None:
                return moved[1].at(self._own_or_shared(node, moved[0], inputs[0]))
        whole = [self._whole(n, v) for n, v in zip(node.inputs, inputs, strict=True)]
        return Whole(self._own(node.name, op, *whole))

    def _own(
        self, name: str, op: ops.Op, *inputs: str, step: CircuitStep = CircuitStep.VALUE
    ) -> str:
        """A node of the circuit; its role says all that it depends on."""
        upstream = self.e.upstream[name] & self.removed
        return self.builder.write(Role(RoleKind.CIRCUIT, name, step, upstream), op, *inputs)

    def _layer(
        self, node: Node, op: ops.Linear | ops.Conv2d, source: str, value: CircuitTensor
    ) -> CircuitTensor:
        """A layer reads the channels kept and makes only those that its own site keeps."""
        grouped = isinstance(op, ops.Conv2d) and op.groups != 1
        if grouped or (isinstance(op, ops.Linear) and len(self.e.network[source].shape) != 1):
            return Whole(self._own(node.name, op, self._whole(source, value)))
        weight, bias = op.weight, op.bias
        site = self.e.site_of_source.get(node.name)
        rows = None if site is None else self._read_channels(site)
        if rows is not None and len(rows) == 0:
            rows = None  # nothing of it is read; dead-node removal takes it away
        if rows is not None:
            weight = weight[rows]
            bias = None if bias is None else bias[rows]
        made = replace(op, weight=value.columns(weight).contiguous(), bias=bias)
        name = self._own(node.name, made, value.node)
        return Whole(name) if rows is None else Unread(name, rows)

    def _read_channels(self, site: Site) -> Tensor | None:
        """Channels of a layer that anyone reads, if its removed components are whole channels."""
        mask = self.mask.read_in(self.e.network, site.tensor)
        if mask is None or not _along_channels(mask[0], site.layer):
            return None
        return mask.flatten().nonzero().flatten()

    def _own_or_shared(self, node: Node, op: ops.Op, value: CircuitTensor) -> str:
        """On a node of the network the result is the network's own tensor."""
        if value.node == self.network_nodes.get(node.inputs[0]):
            return self._network(node.name)
        return self._own(node.name, op, value.node)

    def _whole(self, name: str, value: CircuitTensor) -> str:
        """The node that is the tensor itself."""
        op = value.whole(self.e.network[name].shape)
        return value.node if op is None else self._own(name, op, value.node, step=CircuitStep.WHOLE)

    def _zero(self, name: str) -> str:
        """A tensor of which nothing is kept."""
        shape = self.e.network[name].shape
        return self.builder.fixed(name, torch.zeros(shape, dtype=torch.float64))

    # --- patching at a site --------------------------------------------------------------------

    def patched(self, node: Node, value: CircuitTensor, kept: Tensor) -> CircuitTensor:
        patching, site, mask = self.e.claim.patching, self.e.sites[node.name], kept[0]
        channels = _along_channels(mask, site.layer) and site.layer.channel_dim == 0
        if patching.is_fixed:
            patch = self.e.fixed[node.name][0]
            gone = torch.where(mask, torch.zeros_like(patch), patch)
            if channels and not bool(gone.any()):
                if not bool(mask.any()):
                    return Whole(self._zero(node.name))
                return value.kept_of(mask.flatten())
            if not bool(mask.any()):
                return Whole(self.builder.fixed(node.name, patch))
            masked = self._masked(node, mask, value)
            return Whole(
                self._own(node.name, ops.Affine(shift=gone), masked, step=CircuitStep.PATCHED)
            )
        own = self._masked(node, mask, value) if bool(mask.any()) else None
        if patching.has_source:
            other = self._pick(node, mask, self._source(node.name))
        else:
            units = (~mask.expand(node.shape)).flatten().nonzero().flatten()
            lower, upper = (end.expand(self.e.count, *node.shape) for end in self.e.hull[node.name])
            box = InputRange(lower.flatten(1)[:, units], upper.flatten(1)[:, units])
            self.removed_units[node.name] = units
            given = self.builder.given(Role(RoleKind.PATCH_VALUES, node.name), (len(units),))
            self.ranges[given] = box
            other = self._own(
                node.name, ops.Scatter(units, node.shape), given, step=CircuitStep.HULL
            )
        if own is None:
            return Whole(other)
        return Whole(self._own(node.name, ops.Add(), own, other, step=CircuitStep.PATCHED))

    def _masked(self, node: Node, mask: Tensor, value: CircuitTensor) -> str:
        """The whole tensor with removed units at zero."""
        if isinstance(value, Unread):
            return self._whole(node.name, value.kept_of(mask.flatten()))
        whole = self._whole(node.name, value)
        return self._own(node.name, ops.Affine(scale=mask.double()), whole, step=CircuitStep.MASKED)

    def _pick(self, node: Node, mask: Tensor, source: str) -> str:
        """The removed units of the patch source, zero elsewhere."""
        if not bool(mask.any()):
            return source
        return self._own(
            node.name, ops.Affine(scale=(~mask).double()), source, step=CircuitStep.SOURCE
        )


def _along_channels(mask: Tensor, layer: Layer) -> bool:
    """Whether a unit mask has one entry per channel and no more."""
    shape = [1] * (len(layer.shape) - mask.ndim) + list(mask.shape)
    count = layer.shape[layer.channel_dim]
    return mask.numel() == count == shape[layer.channel_dim]
