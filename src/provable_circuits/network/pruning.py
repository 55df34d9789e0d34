"""A circuit as a network of its own, with the removed components cut out of the weights.

Under a fixed patching a removed component is a constant, and whatever is computed from constants
alone is one too. So a tensor of the circuit has two parts: channels that depend on the input, which
become a node of the new graph, and channels that do not, which are numbers already:

    layer          reads and makes only channels that depend on the input; what it would have read
                   from constants goes into its bias, or, where zeros around a map make that
                   different at its edge, into a shift behind it
    activation,    treat channels apart, so they do the same to both parts
    pooling ...
    addition       keeps the channels that depend on the input on either side
    anything else  reads the tensor put together again

Components that are not whole channels, and those of grouped convolutions, cannot be cut out of the
weights that make them. They are overwritten behind the layer instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.execution import Patch, patch_values
from provable_circuits.network.graph import Graph, GraphBuilder, Node
from provable_circuits.network.semantics import Arithmetic, CircuitMask, interpret

if TYPE_CHECKING:
    from provable_circuits.network.circuit import Circuit
    from provable_circuits.network.components import Site

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A tensor of the circuit: what depends on the input, and what is constant.

    Attributes:
        node: the new graph's tensor of the channels that depend on the input; None if none does.
        kept: which channels these are, in order; None if the node has all.
        rest: float64 values [*shape], which count at all other channels.
    """

    node: str | None
    kept: Tensor | None
    rest: Tensor

    @property
    def held(self) -> str:
        """The node, of a tensor that is known to depend on the input."""
        if self.node is None:
            raise ValueError("nothing here depends on the input")
        return self.node

    def channels(self) -> Tensor:
        """The channels that depend on the input."""
        if self.node is None:
            return torch.arange(0)
        return torch.arange(self.rest.shape[0]) if self.kept is None else self.kept

    def constants(self) -> Tensor:
        """The constant channels' values, and zero at the others."""
        if self.node is None:
            return self.rest
        values = torch.zeros_like(self.rest)
        if self.kept is not None:
            constant = torch.ones(len(values), dtype=torch.bool)
            constant[self.kept] = False
            values[constant] = self.rest[constant]
        return values


def prune(circuit: Circuit, patch: Patch | Mapping[str, Tensor] | None = None) -> Graph:
    """The network that computes what ``circuit.run`` does with the same fixed patching."""
    graph = circuit.components.graph
    nothing = torch.zeros(1, *graph.input_shape, dtype=torch.float64)
    return _Pruning(circuit, patch_values(circuit.components, patch, nothing)).graph()


class _Pruning(Arithmetic[Part]):
    """The new graph while it is written."""

    def __init__(self, circuit: Circuit, patch: Mapping[str, Tensor]) -> None:
        self.network = circuit.components.graph
        keep = circuit.components.masks([circuit])
        self.mask = CircuitMask.of_nodes(circuit.components, keep)
        self.patch = patch
        self.sites = {site.tensor: site for site in circuit.components.sites}
        self.site_of_source = {site.layer.source: site for site in circuit.components.sites}
        self.builder = GraphBuilder(check_weights=False)

    def graph(self) -> Graph:
        parts = interpret(self.network, self.mask, self, self.network.outputs)
        return self.builder.build(self._whole(name, part) for name, part in parts.items())

    def _add(self, node: Node, op: ops.Op, *inputs: str, cut: bool = False) -> str:
        """A node that stands for one of the network's, unless some of it is missing or replaced.

        The name of an output then waits for the whole of it.
        """
        partial = cut or node.name in self.mask.sources
        name = f"{node.name}.kept" if partial and node.name in self.network.outputs else node.name
        return self.builder.add(name, op, *inputs, layer=node.layer)

    # --- what a node makes of its inputs ---------------------------------------------------------

    def own(self, node: Node) -> Part:
        return self._all(node, self.builder.input(node.name, node.shape))

    def apply(self, node: Node, inputs: Sequence[Part]) -> Part:
        op = node.op
        if all(part.node is None for part in inputs):
            return Part(None, None, _forward(op, *(part.rest for part in inputs)))
        if isinstance(op, ops.Linear | ops.Conv2d):
            return self._layer(node, op, inputs[0])
        if isinstance(op, ops.Add | ops.Subtract) and node.shape:
            return self._merged(node, op, inputs)
        if isinstance(op, ops.Concat) and op.dim == 0:
            return self._joined(node, op, inputs)
        if len(inputs) == 1 and inputs[0].kept is not None:
            through = self._through(node, op, inputs[0])
            if through is not None:
                return through
        whole = [self._whole(n, part) for n, part in zip(node.inputs, inputs, strict=True)]
        return self._all(node, self._add(node, op, *whole))

    def _all(self, node: Node, name: str) -> Part:
        """A tensor all of whose channels depend on the input."""
        return Part(name, None, torch.zeros(node.shape, dtype=torch.float64))

    def _layer(self, node: Node, op: ops.Linear | ops.Conv2d, part: Part) -> Part:
        plain = op.groups == 1 if isinstance(op, ops.Conv2d) else part.rest.ndim == 1
        if not plain:
            return self._all(node, self._add(node, op, self._whole(node.inputs[0], part)))
        site = self.site_of_source.get(node.name)
        read = None if site is None else self.mask.read_in(self.network, site.tensor)
        rows = None if site is None or read is None else _whole_channels(site, read)
        if rows is not None and len(rows) == 0:
            return Part(None, None, torch.zeros(node.shape, dtype=torch.float64))
        weight, bias = op.weight, op.bias
        if rows is not None:
            weight, bias = weight[rows], None if bias is None else bias[rows]
        constant = _forward(replace(op, weight=weight, bias=None), part.constants())
        weight = weight[:, part.channels()].contiguous()
        bias, shift = _folded(bias, constant)
        layer = replace(op, weight=weight, bias=bias)
        cut = rows is not None
        if shift is None:
            name = self._add(node, layer, part.held, cut=cut)
        else:
            made = self.builder.add(f"{node.name}.layer", layer, part.held, layer=node.layer)
            name = self._add(replace(node, layer=None), ops.Affine(shift=shift), made, cut=cut)
        return Part(name, rows, torch.zeros(node.shape, dtype=torch.float64))

    def _through(self, node: Node, op: ops.Op, part: Part) -> Part | None:
        """An operation that treats channels apart; None if it does not."""
        kept, before = part.channels(), part.rest.shape
        if isinstance(op, ops.Reshape):
            if len(op.size) == 1:
                inner = math.prod(before[1:])
                kept = (kept[:, None] * inner + torch.arange(inner)).flatten()
            elif op.size[:1] != before[:1]:
                return None
            sliced: ops.Op = ops.Reshape((len(kept), *op.size[1:]))
        elif isinstance(op, ops.Affine):
            scale, shift = (_slice(value, kept, before) for value in (op.scale, op.shift))
            sliced = replace(op, scale=scale, shift=shift)
        elif isinstance(op, ops.Divide):
            divisor = _slice(op.divisor, kept, before)
            sliced = op if divisor is None else replace(op, divisor=divisor)
        elif _treats_channels_apart(op):
            sliced = op
        else:
            return None
        name = self._add(node, sliced, part.held, cut=True)
        return Part(name, kept, _forward(op, part.rest))

    def _merged(self, node: Node, op: ops.Add | ops.Subtract, inputs: Sequence[Part]) -> Part:
        channels = torch.cat([part.channels() for part in inputs]).unique()
        cut = len(channels) < node.shape[0]
        both = [
            self._spread(name, part, channels)
            for name, part in zip(node.inputs, inputs, strict=True)
        ]
        rest = _forward(op, *(part.rest for part in inputs))
        return Part(self._add(node, op, *both, cut=cut), channels if cut else None, rest)

    def _joined(self, node: Node, op: ops.Concat, inputs: Sequence[Part]) -> Part:
        channels, start = [], 0
        for part in inputs:
            channels.append(part.channels() + start)
            start += part.rest.shape[0]
        kept = torch.cat(channels)
        cut = len(kept) < node.shape[0]
        names = [part.node for part in inputs if part.node is not None]
        rest = torch.cat([part.rest for part in inputs])
        return Part(self._add(node, op, *names, cut=cut), kept if cut else None, rest)

    # --- putting together ------------------------------------------------------------------------

    def _whole(self, name: str, part: Part) -> str:
        """The tensor with all its channels."""
        if part.node is None:
            return self.builder.constant(name, part.rest)
        if part.kept is None:
            return part.node
        return self._spread(name, part, torch.arange(part.rest.shape[0]))

    def _spread(self, name: str, part: Part, channels: Tensor) -> str:
        """A node of some channels, among them all that depend on the input."""
        constants = part.constants()[channels]
        if part.node is None:
            return self.builder.constant(name, constants)
        if len(channels) == len(part.channels()):
            return part.node
        inner = math.prod(constants.shape[1:])
        places = torch.searchsorted(channels, part.channels())
        index = (places[:, None] * inner + torch.arange(inner)).flatten()
        spread = ops.Scatter(index, tuple(constants.shape))
        if not bool(constants.any()):
            return self.builder.add(name, spread, part.node)
        wide = self.builder.add(f"{name}.spread", spread, part.node)
        return self.builder.add(name, ops.Affine(shift=constants), wide)

    # --- patching at a site ----------------------------------------------------------------------

    def patched(self, node: Node, value: Part, kept: Tensor) -> Part:
        part, mask = value, kept[0]
        patch = self.patch[node.name].double().expand(1, *node.shape)[0]
        rest = torch.where(mask, part.constants(), patch)
        if part.node is None or not bool(mask.any()):
            return Part(None, None, rest)
        rows = _whole_channels(self.sites[node.name], kept)
        if rows is None:
            changed = ops.Affine(mask.double(), torch.where(mask, torch.zeros_like(patch), patch))
            output = node.name in self.network.outputs
            name = node.name if output else f"{node.name}.patched"
            whole = self._whole(f"{node.name}.whole", part)
            return Part(self.builder.add(name, changed, whole), None, rest)
        name = part.node
        if len(part.channels()) > len(rows):
            inner = math.prod(node.shape[1:])
            places = torch.searchsorted(part.channels(), rows)
            index = (places[:, None] * inner + torch.arange(inner)).reshape(
                len(rows), *node.shape[1:]
            )
            name = self.builder.add(f"{node.name}.kept", ops.Gather(index), name)
        return Part(name, rows, rest)


def _whole_channels(site: Site, kept: Tensor) -> Tensor | None:
    """The channels of a layer that a mask [1, ...] keeps, if it is one of whole channels."""
    mask = kept[0].expand(site.layer.shape)
    units = mask.reshape(len(mask), -1)
    first = units[:, :1]
    if site.layer.channel_dim != 0 or not torch.equal(units, first.expand_as(units)):
        return None
    return first.flatten().nonzero().flatten()


def _treats_channels_apart(op: ops.Op) -> bool:
    """Whether each channel of the result is made from the same channel, in the same way."""
    if isinstance(op, ops.Mean):
        return 0 not in op.dims
    kinds = ops.Activation | ops.Square | ops.AvgPool2d | ops.AdaptiveAvgPool2d | ops.MaxPool2d
    return isinstance(op, kinds | ops.Pad)


def _forward(op: ops.Op, *values: Tensor) -> Tensor:
    """What an operation makes of constants, in float64."""
    made = op.to(torch.float64, CPU).forward(*(value.unsqueeze(0) for value in values))
    return made[0]


def _folded(bias: Tensor | None, constant: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """A layer's bias with a constant added, and what of it must be added behind the layer.

    A bias is one number for each channel, and the constant may differ from place to place.
    """
    if not bool(constant.any()):
        return bias, None
    by_channel = constant.reshape(len(constant), -1)
    first = by_channel[:, :1]
    if not torch.equal(by_channel, first.expand_as(by_channel)):
        return bias, constant
    even = first.flatten()
    return even if bias is None else bias.double() + even, None


def _slice(parameter: Tensor | None, kept: Tensor, shape: Sequence[int]) -> Tensor | None:
    """An elementwise operation's parameter for some channels only."""
    if parameter is None or parameter.ndim < len(shape) or parameter.shape[0] == 1:
        return parameter
    return parameter[kept].contiguous()
