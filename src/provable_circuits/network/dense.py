"""Dense form: the same network over flat vectors, of linear layers, additions and activations.

Some tools read no more than those. Every other linear operation becomes a linear layer, its matrix
read off by pulling unit rows back; an operation of several tensors becomes a sum of such layers:

    y = L_1 x_1 + ... + L_k x_k + b

What depends on no input is computed and becomes part of offsets. The entries of a matrix are the
operation's own weights, zeros and ones, but where an operation divides (averages, Divide): there
they are rounded quotients. So the dense form is the same network up to the rounding of quotients
and of constants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from provable_circuits.errors import UnsupportedOperationError
from provable_circuits.network.graph import Graph, GraphBuilder, Node
from provable_circuits.network.lowering import lower
from provable_circuits.network.ops import (
    Activation,
    Add,
    Input,
    Linear,
    LinearOp,
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
    fixed: dict[str, Tensor] = {}
    for node in graph.nodes:
        op = node.op.to(torch.float64, torch.device("cpu"))
        if isinstance(op, Input):
            names[node.name] = builder.input(node.name, (math.prod(node.shape),))
        elif all(name in fixed for name in node.inputs):
            fixed[node.name] = op.forward(*(fixed[name] for name in node.inputs))
        elif isinstance(op, LinearOp):
            names[node.name] = _layer(builder, graph, node, op, names, fixed)
        elif isinstance(op, Activation):
            sources = [names[name] for name in node.inputs]
            names[node.name] = builder.add(node.name, op, *sources, layer=node.layer)
        else:
            raise UnsupportedOperationError(
                f"{op.name} '{node.name}' has no dense form: it is neither linear nor an "
                "activation."
            )
    for name in set(graph.outputs) - names.keys():
        names[name] = builder.constant(name, fixed[name].flatten())
    return builder.build([names[name] for name in graph.outputs])


def _layer(
    builder: GraphBuilder,
    graph: Graph,
    node: Node,
    op: LinearOp,
    names: Mapping[str, str],
    fixed: Mapping[str, Tensor],
) -> str:
    """A linear operation as a linear layer for each of its inputs that vary, added up."""
    varying = [name for name in node.inputs if name in names]
    if len(varying) == len(node.inputs):
        if isinstance(op, Add) or (isinstance(op, Linear) and len(node.shape) == 1):
            return builder.add(node.name, op, *(names[n] for n in varying), layer=node.layer)
        offset = op.offset()
        bias = None if offset is None else offset.expand(node.shape).flatten().clone()
    else:
        still = [
            fixed.get(name, torch.zeros(1, *graph[name].shape, dtype=torch.float64))
            for name in node.inputs
        ]
        bias = op.forward(*still).flatten()
    matrices = _matrices(node, op, [graph[name].shape for name in node.inputs])
    pairs = [pair for pair in zip(node.inputs, matrices, strict=True) if pair[0] in names]
    total = ""
    for i, (source, matrix) in enumerate(pairs):
        name = node.name if len(pairs) == 1 else f"{node.name}.part{i}"
        layer = Linear(matrix, bias if i == 0 else None)
        part = builder.add(name, layer, names[source], layer=node.layer)
        last = node.name if i == len(pairs) - 1 else f"{node.name}.sum{i}"
        total = builder.add(last, Add(), total, part) if total else part
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
