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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from provable_circuits.claims.claim import Claim
from provable_circuits.claims.domains import Domain
from provable_circuits.claims.patching import FixedPatching, IntervalHull, Reachable
from provable_circuits.claims.specification import Specification, specify
from provable_circuits.errors import ArgumentError
from provable_circuits.network import ops
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components, Site
from provable_circuits.network.execution import operations
from provable_circuits.network.graph import Graph, GraphBuilder, Node
from provable_circuits.network.intervals import propagate
from provable_circuits.network.layers import Layer
from provable_circuits.network.lowering import lower
from provable_circuits.rounding import Interval
from provable_circuits.verify.encoding.circuit_tensor import CircuitTensor, Unread, Whole

CPU = torch.device("cpu")


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
        common: tensors that are the same in every query of the encoder: those of the network, and
            of the source of patches.
        lasting: tensors of the circuit whose name says all that they depend on, but for ``cut``.
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
    common: frozenset[str]
    lasting: frozenset[str]
    cut: Mapping[str, Tensor]
    removed_units: Mapping[str, Tensor]
    tensors: Mapping[str, CircuitTensor]

    def held(self, tensor: str) -> CircuitTensor:
        """The circuit's version of a network's tensor, before patching."""
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
        shared = sum(1 for name in self.common if name in self.graph)
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
        _check_names(components.graph)
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
        """The name of the claimed input in merged graphs."""
        return self.network.inputs[0]

    @cached_property
    def fixed(self) -> Mapping[str, Tensor]:
        """The values of a fixed patching, by site."""
        patching = self.claim.patching
        return patching.values(self.components) if isinstance(patching, FixedPatching) else {}

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
        if not isinstance(patching, Reachable | IntervalHull):
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

    def patch_source(self) -> tuple[Graph, Mapping[str, InputRange]]:
        """The network at the input that patches are taken at, as queries have it, and its range."""
        return _Encoding(self, self.components.full()).source()

    def encode(self, circuit: Circuit) -> Query:
        """The query about ``circuit``."""
        return _Encoding(self, circuit).query()


class _Encoding:
    """One query while it is written."""

    def __init__(self, encoder: Encoder, circuit: Circuit) -> None:
        self.e = encoder
        self.circuit = circuit
        self.removed = (~circuit).bits
        self.builder = GraphBuilder(check_weights=False)
        self.ranges: dict[str, InputRange] = {}
        self.network_nodes: dict[str, str] = {}
        self.source_nodes: dict[str, str] = {}
        self.values: dict[str, CircuitTensor] = {}
        self.removed_units: dict[str, Tensor] = {}
        self.lasting: set[str] = set()
        self.before_patch: dict[str, CircuitTensor] = {}

    def source(self) -> tuple[Graph, Mapping[str, InputRange]]:
        """The source of patches alone."""
        output = self._source(self.e.network.outputs[0])
        return self.builder.build([output]), self.ranges

    def query(self) -> Query:
        e = self.e
        self.keep = e.components.masks([self.circuit])
        if not e.folded:
            self._input(e.z, e.z, e.z_range)
        output = e.network.outputs[0]
        needed = self._circuit_nodes(output)
        for node in e.network.nodes:
            if node.name in needed:
                self.values[node.name] = self._circuit_value(node)
        circuit_output = self._whole(output, self.values[output])
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
            common=frozenset(
                # A node that the circuit made first may serve the source as well (all that it reads
                # is patched): under the circuit's name it means another thing in other queries.
                node
                for node in (*self.network_nodes.values(), *self.source_nodes.values())
                if "~" not in node
            ),
            lasting=frozenset(self.lasting),
            cut={v.node: v.kept for v in self.values.values() if isinstance(v, Unread)},
            removed_units=self.removed_units,
            tensors=self.before_patch,
        )

    def _circuit_nodes(self, output: str) -> set[str]:
        """The network's tensors that the circuit reads, outermost shared ones included."""
        needed: set[str] = set()
        stack = [output]
        while stack:
            name = stack.pop()
            if name in needed:
                continue
            needed.add(name)
            if self._diverges(name):
                stack.extend(self.e.network[name].inputs)
        return needed

    def _diverges(self, name: str) -> bool:
        """Whether some removed component is at or upstream of this tensor."""
        return bool(self.e.upstream[name] & self.removed)

    def _input(self, name: str, like: str, box: InputRange) -> str:
        given = self.builder.input(name, self.e.network[like].shape)
        self.ranges[given] = box
        return given

    def _network(self, name: str) -> str:
        """The network's own tensor at the claimed input."""
        if name not in self.network_nodes:
            e = self.e
            node = e.network[name]
            if e.folded:
                lower, upper = (end.expand(e.count, *node.shape) for end in e.at_point[name])
                self.network_nodes[name] = self._input(f"at:{name}", name, InputRange(lower, upper))
            elif name == e.z:
                self.network_nodes[name] = e.z
            else:
                sources = [self._network(source) for source in node.inputs]
                self.network_nodes[name] = self.builder.add(name, e.ops[name], *sources)
        return self.network_nodes[name]

    def _source(self, name: str) -> str:
        """The network's tensor at the patching input."""
        if name not in self.source_nodes:
            e = self.e
            node = e.network[name]
            if name == e.network.inputs[0]:
                box = e.patch_range
                if box is None:
                    raise ArgumentError("This patching has no source.")
                self.source_nodes[name] = self._input("patch:input", name, box)
            else:
                sources = [self._source(source) for source in node.inputs]
                self.source_nodes[name] = self.builder.add(f"patch:{name}", e.ops[name], *sources)
        return self.source_nodes[name]

    def _circuit_value(self, node: Node) -> CircuitTensor:
        """The circuit's version of a network tensor."""
        site = self.e.sites.get(node.name)
        own_bits = 0
        if site is not None:
            own_bits = ((1 << len(site.components)) - 1) << site.start & self.removed
        inherited = any(self._diverges(name) for name in node.inputs)
        value = self._apply(node) if inherited else Whole(self._network(node.name))
        self.before_patch[node.name] = value
        if site is not None and own_bits:
            value = self._patch(node, site, value)
        return value

    # --- operations on cut tensors -------------------------------------------------------------

    def _apply(self, node: Node) -> CircuitTensor:
        op = self.e.ops[node.name]
        inputs = [self.values[name] for name in node.inputs]
        if isinstance(op, ops.Linear | ops.Conv2d):
            return self._layer(node, op, node.inputs[0], inputs[0])
        if len(inputs) == 1:
            moved = inputs[0].through(op, self.e.network[node.inputs[0]].shape)
            if moved is not None:
                return moved[1].at(self._own_or_shared(node, moved[0], inputs[0]))
        whole = [self._whole(n, v) for n, v in zip(node.inputs, inputs, strict=True)]
        return Whole(self._own(node.name, op, *whole))

    def _own(self, name: str, op: ops.Op, *inputs: str, role: str = "") -> str:
        """A node of the circuit, named after what it depends on: bounds are found again by it."""
        upstream = self.e.upstream[name] & self.removed
        made = self.builder.add(f"{name}{role}~{upstream:x}", op, *inputs)
        self.lasting.add(made)
        return made

    def _layer(
        self, node: Node, op: ops.Linear | ops.Conv2d, source: str, value: CircuitTensor
    ) -> CircuitTensor:
        """A layer reads the channels kept and makes only those that its own site keeps."""
        grouped = isinstance(op, ops.Conv2d) and op.groups != 1
        if grouped or (isinstance(op, ops.Linear) and len(self.e.network[source].shape) != 1):
            return Whole(self._own(node.name, op, self._whole(source, value)))
        weight, bias = op.weight, op.bias
        site = self.e.site_of_source.get(node.name)
        rows = None if site is None else self._kept_channels(site)
        if rows is not None and len(rows) == 0:
            rows = None  # nothing of it is read; dead-node removal takes it away
        if rows is not None:
            weight = weight[rows]
            bias = None if bias is None else bias[rows]
        made = replace(op, weight=value.columns(weight).contiguous(), bias=bias)
        name = self._own(node.name, made, value.node)
        return Whole(name) if rows is None else Unread(name, rows)

    def _kept_channels(self, site: Site) -> Tensor | None:
        """Channels of a layer that stay, if its removed components are whole channels."""
        mask = site.unit_mask(self.keep)[0]
        layer = site.layer
        if bool(mask.all()) or not _along_channels(mask, layer):
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
        return value.node if op is None else self._own(name, op, value.node, role=".whole")

    def _zero(self, name: str) -> str:
        """A tensor of which nothing is kept."""
        shape = self.e.network[name].shape
        return self.builder.constant(f"{name}~zero", torch.zeros(shape, dtype=torch.float64))

    # --- patching at a site --------------------------------------------------------------------

    def _patch(self, node: Node, site: Site, value: CircuitTensor) -> CircuitTensor:
        patching = self.e.claim.patching
        mask = site.unit_mask(self.keep)[0]
        channels = _along_channels(mask, site.layer) and site.layer.channel_dim == 0
        if isinstance(patching, FixedPatching):
            patch = self.e.fixed[node.name][0]
            gone = torch.where(mask, torch.zeros_like(patch), patch)
            if channels and not bool(gone.any()):
                if not bool(mask.any()):
                    return Whole(self._zero(node.name))
                return value.kept_of(mask.flatten())
            if not bool(mask.any()):
                return Whole(self.builder.constant(f"{node.name}~fixed", patch))
            masked = self._masked(node, mask, value)
            return Whole(self._own(node.name, ops.Affine(shift=gone), masked, role=".patched"))
        own = self._masked(node, mask, value) if bool(mask.any()) else None
        if isinstance(patching, Reachable):
            other = self._pick(node, mask, self._source(node.name))
        else:
            units = (~mask.expand(node.shape)).flatten().nonzero().flatten()
            lower, upper = (end.expand(self.e.count, *node.shape) for end in self.e.hull[node.name])
            box = InputRange(lower.flatten(1)[:, units], upper.flatten(1)[:, units])
            self.removed_units[node.name] = units
            given = self.builder.input(f"patch:{node.name}", (len(units),))
            self.ranges[given] = box
            other = self._own(node.name, ops.Scatter(units, node.shape), given, role=".hull")
        if own is None:
            return Whole(other)
        return Whole(self._own(node.name, ops.Add(), own, other, role=".patched"))

    def _masked(self, node: Node, mask: Tensor, value: CircuitTensor) -> str:
        """The whole tensor with removed units at zero."""
        if isinstance(value, Unread):
            return self._whole(node.name, value.kept_of(mask.flatten()))
        whole = self._whole(node.name, value)
        return self._own(node.name, ops.Affine(scale=mask.double()), whole, role=".masked")

    def _pick(self, node: Node, mask: Tensor, source: str) -> str:
        """The removed units of the patch source, zero elsewhere."""
        if not bool(mask.any()):
            return source
        return self._own(node.name, ops.Affine(scale=(~mask).double()), source, role=".source")


def _check_names(graph: Graph) -> None:
    """Refuse names that a merged graph could give to tensors of its own.

    Enclosures are remembered by name, so no name may stand for two tensors.
    """
    for node in graph.nodes:
        if node.name.startswith(("patch:", "at:")) or "~" in node.name or "^" in node.name:
            raise ArgumentError(
                f"The network has a tensor named {node.name!r}. Names that start with 'patch:' or "
                "'at:', or contain '~' or '^', are kept for what a proof adds to the network: "
                "rename it."
            )


def _along_channels(mask: Tensor, layer: Layer) -> bool:
    """Whether a unit mask has one entry per channel and no more."""
    shape = [1] * (len(layer.shape) - mask.ndim) + list(mask.shape)
    count = layer.shape[layer.channel_dim]
    return mask.numel() == count == shape[layer.channel_dim]
