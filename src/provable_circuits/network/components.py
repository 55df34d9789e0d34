"""The components of a network: what a circuit keeps or removes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from provable_circuits.arguments import each, flag, refused
from provable_circuits.errors import ArgumentError, one_line
from provable_circuits.network.attention import attention_of, hidden_layers, mlps_of
from provable_circuits.network.execution import Patch, run_circuits
from provable_circuits.network.granularity import (
    Along,
    Granularity,
    Groups,
    Heads,
    MLPs,
    named_granularity,
)
from provable_circuits.network.graph import Graph
from provable_circuits.network.layers import Layer, layers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provable_circuits.network.circuit import Circuit


@dataclass(frozen=True, slots=True)
class Component:
    """One neuron, filter or group of units; ``index`` is its place within its layer."""

    name: str
    layer: str
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """The tensor at which the components of one layer are cut.

    Attributes:
        layer: the layer.
        tensor: the name of the tensor.
        labels: for each unit the index of its component within the layer, or -1; of the tensor's
            rank, and broadcasts to its per-sample shape.
        components: the layer's components, by index.
        start: the index of the first of them among all components of the network.
    """

    layer: Layer
    tensor: str
    labels: Tensor
    components: tuple[Component, ...]
    start: int

    def unit_mask(self, keep: Tensor) -> Tensor:
        """Which units are kept: [circuits, *labels' shape] from [circuits, all components]."""
        own = keep[:, self.start : self.start + len(self.components)]
        always = torch.ones(len(own), 1, dtype=torch.bool, device=own.device)
        return torch.cat([own, always], dim=1)[:, self.labels]


class Components(Sequence[Component]):
    """All components of a network at one granularity, in graph order.

    Circuits are made here: ``full()``, ``empty()`` and ``circuit(names)``.
    """

    def __init__(self, graph: Graph, sites: Sequence[Site]) -> None:
        self.graph = graph
        self.sites = tuple(sites)
        self._all = tuple(component for site in self.sites for component in site.components)
        self._index = {component.name: i for i, component in enumerate(self._all)}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Component]:
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> Component: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Component, ...]: ...

    def __getitem__(self, index: int | slice) -> Component | tuple[Component, ...]:
        return self._all[index]

    def __repr__(self) -> str:
        layers = ", ".join(f"{site.layer.name} {len(site.components)}" for site in self.sites)
        return f"Components({len(self)}: {layers})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Components) and self._identity == other._identity

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        sites = tuple(
            (site.tensor, tuple(site.labels.shape), tuple(site.labels.flatten().tolist()))
            for site in self.sites
        )
        return (self.graph.digest, sites, self.names)

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in graph order."""
        return tuple(self._index)

    def index_of(self, name: str) -> int:
        """The place of a component in graph order."""
        if not isinstance(name, str):
            raise refused("A component's name", "a text", name)
        try:
            return self._index[name]
        except KeyError:
            raise ArgumentError(
                f"The network has no component named {one_line(repr(name), 100)}; its components "
                f"are {self._hint()}."
            ) from None

    def discovery_order(self) -> tuple[Component, ...]:
        """Later layers first; within a layer by index."""
        return tuple(component for site in reversed(self.sites) for component in site.components)

    def full(self) -> Circuit:
        """The circuit that keeps everything: the network itself."""
        return self._circuit((1 << len(self)) - 1)

    def empty(self) -> Circuit:
        """The circuit that keeps nothing."""
        return self._circuit(0)

    def circuit(self, names: Iterable[str]) -> Circuit:
        """The circuit that keeps the named components."""
        bits = 0
        for name in each("names", names, str, "a component's name", "circuit"):
            bits |= 1 << self.index_of(name)
        return self._circuit(bits)

    def circuit_of(self, mask: Tensor) -> Circuit:
        """The circuit that keeps what is true in a boolean tensor [components]."""
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (len(self),):
            expected = f"a boolean tensor of shape [{len(self)}]"
            raise refused("The 'mask' parameter of circuit_of", expected, mask)
        return self._circuit(sum(1 << i for i, kept in enumerate(mask.tolist()) if kept))

    def masks(self, circuits: Sequence[Circuit]) -> Tensor:
        """Which components each circuit keeps: a boolean tensor [circuits, components]."""
        for place, circuit in enumerate(circuits):
            if not isinstance(getattr(circuit, "components", None), Components):
                raise refused(f"Item {place} of the 'circuits' parameter", "a circuit", circuit)
            if circuit.components is not self and circuit.components != self:
                raise ArgumentError("All circuits must be sets of the same network's components.")
        width = (len(self) + 7) // 8
        data = b"".join(circuit.bits.to_bytes(width, "little") for circuit in circuits)
        if not data:
            return torch.zeros(len(circuits), len(self), dtype=torch.bool)
        octets = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(len(circuits), width)
        bits = (octets[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1
        return bits.reshape(len(circuits), -1)[:, : len(self)].bool()

    def run(
        self,
        circuits: Sequence[Circuit],
        x: Any,
        patch: Patch | Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """The outputs of many circuits on one batch of inputs: [circuits, batch, *output shape]."""
        return run_circuits(self, circuits, x, patch, dtype)

    def _circuit(self, bits: int) -> Circuit:
        from provable_circuits.network.circuit import Circuit

        return Circuit(self, bits)

    def _hint(self) -> str:
        names = self.names
        return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:3])}, ..., {names[-1]}"


def components_of(
    graph: Graph,
    granularity: str | Granularity | Sequence[str | Granularity],
    *,
    outputs: bool,
    shortcuts: bool,
) -> Components:
    """The components of ``graph``; see ``Graph.components``."""
    flag("outputs", outputs)
    flag("shortcuts", shortcuts)
    layers = layers_of(graph)
    heads = attention_of(graph)
    if isinstance(granularity, str) and granularity == "auto" and heads:
        granularity = ["head", "neuron"] if hidden_layers(graph) else ["head"]
    if isinstance(granularity, list | tuple):
        return _several(graph, granularity, outputs, shortcuts)
    if isinstance(granularity, str):
        if granularity == "neuron" and heads:
            return _several(graph, ["neuron"], outputs, shortcuts)
        granularity = named_granularity(granularity, layers)
    elif not isinstance(granularity, Granularity):
        expected = "'neuron', 'filter', 'head', 'mlp', 'auto', several of them, or a Granularity"
        raise refused("The 'granularity' parameter", expected, granularity)
    if isinstance(granularity, Heads | MLPs | Along):
        return _several(graph, [granularity], outputs, shortcuts)
    named = set(granularity.groups) if isinstance(granularity, Groups) else set()
    unknown = named - {layer.name for layer in layers}
    if unknown:
        raise ArgumentError(
            f"The network has no layer named {sorted(unknown)[0]!r}; its layers are "
            f"{', '.join(layer.name for layer in layers)}."
        )
    sites: list[Site] = []
    start = 0
    for layer in layers:
        if (layer.is_output and not outputs) or (layer.is_shortcut and not shortcuts):
            if layer.name in named:
                setting = "outputs" if layer.is_output and not outputs else "shortcuts"
                raise ArgumentError(
                    f"Layer '{layer.name}' has groups of its own but is left out: "
                    f"pass {setting}=True."
                )
            continue
        partition = granularity.partition(layer)
        if partition is None:
            continue
        names, labels = partition
        _check_labels(layer, names, labels)
        labels = labels.long().reshape((1,) * (len(layer.shape) - labels.ndim) + labels.shape)
        own = tuple(
            Component(f"{layer.name}/{name}", layer.name, i) for i, name in enumerate(names)
        )
        sites.append(Site(layer, layer.tensor, labels, own, start))
        start += len(own)
    if not sites:
        raise ArgumentError(
            f"The network has no components at granularity {granularity!r}: its layers are "
            f"{', '.join(f'{layer.name} ({layer.kind})' for layer in layers) or 'none'}."
        )
    return Components(graph, sites)


def _several(
    graph: Graph, granularities: Sequence[str | Granularity], outputs: bool, shortcuts: bool
) -> Components:
    """The components of several granularities together, sites in the order of the graph."""
    if not granularities:
        raise refused("The 'granularity' parameter", "one or several of them", granularities)
    layers = layers_of(graph)
    heads = attention_of(graph)
    candidates: list[tuple[Granularity, Layer]] = []
    for given in granularities:
        if not isinstance(given, str | Granularity) or given == "auto":
            raise refused("An item of the 'granularity' parameter", "a granularity", given)
        granularity = named_granularity(given, layers) if isinstance(given, str) else given
        own: Sequence[Layer] = layers
        if isinstance(granularity, Heads):
            own = heads
        elif isinstance(granularity, MLPs):
            own = mlps_of(graph)
        elif isinstance(granularity, Along):
            node = graph[granularity.tensor]
            own = [Layer(node.name, "along", node.name, node.name, node.shape, False, False)]
        elif given == "neuron" and heads:
            own = hidden_layers(graph)
        found = [
            (granularity, layer)
            for layer in own
            if not (layer.is_output and not outputs)
            and not (layer.is_shortcut and not shortcuts)
            and granularity.partition(layer) is not None
        ]
        if not found and isinstance(granularity, Heads | MLPs):
            raise ArgumentError(_nothing(granularity, layers))
        candidates += found
    if not candidates:
        raise ArgumentError(_nothing(granularity, layers))
    order = {node.name: place for place, node in enumerate(graph.nodes)}
    candidates.sort(key=lambda pair: order[pair[1].tensor])
    sites: list[Site] = []
    start = 0
    for granularity, layer in candidates:
        if any(site.tensor == layer.tensor for site in sites):
            raise ArgumentError(
                f"The tensor '{layer.tensor}' is cut twice: each needs a granularity of its own."
            )
        names, labels = granularity.partition(layer)  # type: ignore[misc]
        _check_labels(layer, names, labels)
        labels = labels.long().reshape((1,) * (len(layer.shape) - labels.ndim) + labels.shape)
        own_components = tuple(
            Component(f"{layer.name}/{name}", layer.name, i) for i, name in enumerate(names)
        )
        sites.append(Site(layer, layer.tensor, labels, own_components, start))
        start += len(own_components)
    return Components(graph, sites)


def _nothing(granularity: Granularity, layers: Sequence[Layer]) -> str:
    """That a granularity finds nothing, and what to do."""
    if isinstance(granularity, Heads):
        return (
            "No attention heads were recognised in the network: no product of matrices reads a "
            "softmax. Cut any tensor with pc.Along(tensor, dim); graph.summary() names them."
        )
    own = ", ".join(f"{layer.name} ({layer.kind})" for layer in layers) or "none"
    return f"The network has no components at granularity {granularity!r}: its layers are {own}."


def _check_labels(layer: Layer, names: Sequence[str], labels: Tensor) -> None:
    """Refuse a partition that does not fit its layer."""
    where = f"The partition of layer '{layer.name}'"
    if len(set(names)) != len(names):
        raise ArgumentError(f"{where} must give each component a name of its own. Got {names}.")
    try:
        fits = tuple(torch.broadcast_shapes(labels.shape, layer.shape)) == layer.shape
    except RuntimeError:
        fits = False
    if not fits or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ArgumentError(
            f"{where} must label units with integers that broadcast to {list(layer.shape)}. "
            f"Got {labels.dtype} of shape {list(labels.shape)} instead."
        )
    used = set(labels.unique().tolist()) - {-1}
    if used != set(range(len(names))):
        raise ArgumentError(
            f"{where} must use every label from 0 to {len(names) - 1}, and -1 for units in no "
            f"component. Got {sorted(used)} instead."
        )
