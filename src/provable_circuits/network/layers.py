"""Where components are cut: the layers of a network and the tensor that stands for each.

A layer is a linear operation or a convolution with what belongs to it. Its components are cut at
its *activation*: behind its batch normalisation, and behind the activation function where the layer
feeds one and nothing else; otherwise at the layer's own output (the second convolution of a
residual block, say).
"""

from __future__ import annotations

from dataclasses import dataclass

from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.ops import Activation, Add, BatchNorm, Conv2d, Linear, Shape


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer and the tensor at which it is cut.

    Attributes:
        name: the model's name for it, unique in the graph.
        kind: ``"linear"`` or ``"conv"``.
        source: the name of the tensor that its weights compute.
        tensor: the name of the tensor at which it is cut.
        shape: that tensor's per-sample shape.
        is_output: no other layer comes after it.
        is_shortcut: it projects a residual connection that a longer path runs beside.
    """

    name: str
    kind: str
    source: str
    tensor: str
    shape: Shape
    is_output: bool
    is_shortcut: bool

    @property
    def channel_dim(self) -> int:
        """The per-sample dimension along which units or filters are counted."""
        return len(self.shape) - 1 if self.kind == "linear" else 0


def layers_of(graph: Graph) -> tuple[Layer, ...]:
    """All layers of a graph, in the order in which they are computed."""
    weighted = [node for node in graph.nodes if isinstance(node.op, Linear | Conv2d)]
    depth = _weighted_depth(graph)
    followed = _ancestors_of_weighted(graph)
    names: dict[str, int] = {}
    layers = []
    for node in weighted:
        tensor = _cut(graph, node)
        base = node.layer or node.name
        names[base] = names.get(base, 0) + 1
        layers.append(
            Layer(
                name=base if names[base] == 1 else f"{base}:{names[base]}",
                kind="linear" if isinstance(node.op, Linear) else "conv",
                source=node.name,
                tensor=tensor.name,
                shape=tensor.shape,
                is_output=tensor.name not in followed,
                is_shortcut=_is_shortcut(graph, node, depth),
            )
        )
    return tuple(layers)


def _sole_reader(graph: Graph, node: Node) -> Node | None:
    """The one node that reads this tensor, if there is exactly one and it is no output."""
    readers = graph.consumers[node.name]
    return readers[0] if len(readers) == 1 and node.name not in graph.outputs else None


def _cut(graph: Graph, node: Node) -> Node:
    """The tensor that stands for the layer computed by ``node``."""
    reader = _sole_reader(graph, node)
    if reader is not None and isinstance(reader.op, BatchNorm):
        node, reader = reader, _sole_reader(graph, reader)
    if reader is not None and isinstance(reader.op, Activation):
        return reader
    return node


def _weighted_depth(graph: Graph) -> dict[str, dict[str, int]]:
    """For each tensor: the most layers on a path to it from each of its ancestors."""
    depth: dict[str, dict[str, int]] = {}
    for node in graph.nodes:
        step = int(isinstance(node.op, Linear | Conv2d))
        paths = {node.name: 0}
        for source in node.inputs:
            for ancestor, length in depth[source].items():
                paths[ancestor] = max(paths.get(ancestor, 0), length + step)
        depth[node.name] = paths
    return depth


def _ancestors_of_weighted(graph: Graph) -> set[str]:
    """Every tensor that some layer depends on."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if isinstance(node.op, Linear | Conv2d) or node.name in found:
            found.update(node.inputs)
    return found


def _is_shortcut(graph: Graph, node: Node, depth: dict[str, dict[str, int]]) -> bool:
    """Whether the layer feeds an addition whose other side takes a longer way from the same place.

    The same place: the layer's input, or what that is made from without layers (by pooling, say).
    """
    end = node
    reader = _sole_reader(graph, end)
    if reader is not None and isinstance(reader.op, BatchNorm):
        end, reader = reader, _sole_reader(graph, reader)
    if reader is None or not isinstance(reader.op, Add):
        return False
    (source,) = node.inputs
    places = [name for name, length in depth[source].items() if length == 0]
    others = [name for name in reader.inputs if name != end.name]
    return any(depth[other].get(place, 0) > 1 for other in others for place in places)
