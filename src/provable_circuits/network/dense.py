"""Dense form: the same network over flat vectors, of linear layers, additions and activations.

Some tools read no more than those. Every other linear operation becomes a linear layer, its matrix
read off by pulling unit rows back; an operation of several tensors becomes a sum of such layers:

    y = L_1 x_1 + ... + L_k x_k + b

The entries of a matrix are the operation's own weights, zeros and ones, but where an operation
divides (averages, Divide): there they are rounded quotients, so that the dense form is the same
network only up to that rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from provable_circuits.errors import UnsupportedOperationError
from provable_circuits.network.graph import Graph, GraphBuilder, Node
from provable_circuits.network.lowering import lower
from provable_circuits.network.ops import (
    Activation,
    Add,
    Constant,
    Input,
    Linear,
    LinearOp,
    Op,
    Shape,
)

MOST_ENTRIES = 2**25
"""Entries of one matrix beyond which a network is refused: 256 MB in float64."""


def dense(graph: Graph) -> Graph:
    """The graph in dense form; inputs and outputs keep their order, as flat vectors.

    Raises:
        UnsupportedOperationError: an operation that is neither linear nor an activation, or a layer
            whose matrix would be too large.
    """
    graph = lower(graph)
    builder = GraphBuilder(check_weights=False)
    names: dict[str, str] = {}
    for node in graph.nodes:
        op = node.op.to(torch.float64, torch.device("cpu"))
        sources = [names[name] for name in node.inputs]
        size = math.prod(node.shape)
        if isinstance(op, Input):
            names[node.name] = builder.input(node.name, (size,))
        elif isinstance(op, Constant):
            names[node.name] = builder.constant(node.name, op.value.flatten())
        elif isinstance(op, LinearOp):
            shapes = [graph[name].shape for name in node.inputs]
            names[node.name] = _layer(builder, node, op, shapes, sources)
        elif isinstance(op, Activation):
            names[node.name] = builder.add(node.name, op, *sources, layer=node.layer)
        else:
            raise UnsupportedOperationError(
                f"{op.name} '{node.name}' has no dense form: it is neither linear nor an "
                "activation."
            )
    return builder.build([names[name] for name in graph.outputs])


def _layer(
    builder: GraphBuilder, node: Node, op: LinearOp, shapes: list[Shape], sources: list[str]
) -> str:
    """A linear operation as a linear layer for each of its inputs, added up."""
    if isinstance(op, Add) or (isinstance(op, Linear) and len(node.shape) == 1):
        return builder.add(node.name, op, *sources, layer=node.layer)
    offset = op.offset()
    bias = None if offset is None else offset.expand(node.shape).flatten().clone()
    parts = []
    for i, matrix in enumerate(_matrices(node, op, shapes)):
        layer: Op = Linear(matrix, bias if i == 0 else None)
        name = node.name if len(sources) == 1 else f"{node.name}.part{i}"
        parts.append(builder.add(name, layer, sources[i], layer=node.layer))
    total = parts[0]
    for i, part in enumerate(parts[1:]):
        name = node.name if i == len(parts) - 2 else f"{node.name}.sum{i}"
        total = builder.add(name, Add(), total, part)
    return total


def _matrices(node: Node, op: LinearOp, shapes: list[Shape]) -> list[Tensor]:
    """The operation's matrices, [outputs, inputs] for each input."""
    size = math.prod(node.shape)
    if size * max(math.prod(shape) for shape in shapes) > MOST_ENTRIES:
        raise UnsupportedOperationError(
            f"{op.name} '{node.name}' is too large for a dense matrix: "
            f"{size:,} outputs of up to {max(math.prod(s) for s in shapes):,} inputs."
        )
    rows = torch.eye(size, dtype=torch.float64).reshape(size, *node.shape)
    return [part.reshape(size, -1).contiguous() for part in op.pullback(rows, *shapes)]
