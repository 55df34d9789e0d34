"""Attention heads and MLP blocks, found in the graph whichever way they were written.

A head is found by its softmax: what reads the pattern in a product of matrices mixes the values,
and the result, of shape [heads, ...], is where heads are cut: before the output projection. An MLP
is a layer behind whose activation function another layer leads back to the residual stream; it is
cut at that second layer's output, and its neurons at the activation.

A block's name is that of the module it was captured from (``blocks.0.attn``), or ``attn0``,
``mlp0`` in the order of the graph.
"""

from __future__ import annotations

from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.layers import Layer, layers_of
from provable_circuits.network.ops import (
    Activation,
    Affine,
    Expand,
    Fill,
    Linear,
    MatMul,
    Multiply,
    Permute,
    Reshape,
    Softmax,
)
from provable_circuits.network.ops.smooth import OneDip

PASSED = (Reshape, Permute, Expand, Affine, Fill)
"""What may stand between a pattern and the product that it mixes values in."""


def attention_of(graph: Graph) -> tuple[Layer, ...]:
    """The heads of every attention block, as a layer that is cut along its first dimension."""
    found: list[Layer] = []
    used: dict[str, int] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Softmax):
            continue
        mixed = _mixed(graph, node)
        if mixed is None or len(mixed.shape) not in (2, 3):
            continue
        name = _block(graph, node, f"attn{len(found)}", used)
        found.append(Layer(name, "head", mixed.name, mixed.name, mixed.shape, False, False))
    return tuple(found)


def _mixed(graph: Graph, node: Node) -> Node | None:
    """The product in which a pattern mixes values."""
    while True:
        readers = graph.consumers[node.name]
        if len(readers) != 1:
            return None
        (node,) = readers
        if isinstance(node.op, MatMul):
            return node
        if not isinstance(node.op, PASSED):
            return None


def hidden_layers(graph: Graph) -> tuple[Layer, ...]:
    """Layers cut at an activation function, or at a product of one (gated MLPs), in graph order."""
    found = []
    for layer in layers_of(graph):
        gate = None if layer.is_output else _behind(graph, layer)
        if gate is not None:
            found.append(gate)
    return tuple(found)


def _behind(graph: Graph, layer: Layer) -> Layer | None:
    """A layer as cut at its activation function; None if it leads to none."""
    node = graph[layer.tensor]
    while not isinstance(node.op, Activation | OneDip):
        readers = graph.consumers[node.name]
        if len(readers) != 1 or not isinstance(readers[0].op, Activation | OneDip | Affine):
            return None
        (node,) = readers  # an affine operation is a bias that was added by hand
    readers = graph.consumers[node.name]
    if len(readers) == 1 and isinstance(readers[0].op, Multiply):
        (node,) = readers
    return Layer(layer.name, layer.kind, layer.source, node.name, node.shape, False, False)


def mlps_of(graph: Graph) -> tuple[Layer, ...]:
    """MLP blocks, each cut whole at the output of its second layer."""
    found: list[Layer] = []
    used: dict[str, int] = {}
    for layer in hidden_layers(graph):
        readers = graph.consumers[layer.tensor]
        if layer.kind != "linear" or len(readers) != 1 or not isinstance(readers[0].op, Linear):
            continue
        node = readers[0]
        base = (node.layer or "").rpartition(".")[0] or f"mlp{len(found)}"
        name = _fresh(base, used)
        found.append(Layer(name, "mlp", node.name, node.name, node.shape, False, False))
    return tuple(found)


def _block(graph: Graph, node: Node, otherwise: str, used: dict[str, int]) -> str:
    """The name of the module that a softmax belongs to."""
    layer = (node.layer or "").strip("/").replace("/", ".")
    layer = layer.removesuffix(".Softmax")
    plain = not layer or layer.startswith(("softmax", "scaled_dot_product", "_softmax"))
    return _fresh(otherwise if plain else layer, used)


def _fresh(name: str, used: dict[str, int]) -> str:
    used[name] = used.get(name, 0) + 1
    return name if used[name] == 1 else f"{name}:{used[name]}"
