"""Lowering: the same function written with fewer kinds of operations.

Clipping and max pooling are written with ReLUs, exactly in real arithmetic, so that bounds and
branching need to know ReLUs alone:

    min(max(x, a), b)  =  b - relu(b - (a + relu(x - a)))
    max(x, y)          =  y + relu(x - y)            (windows by a balanced tree)

Every tensor of the original keeps its name.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder, Node
from provable_circuits.network.ops import (
    Add,
    Affine,
    Clip,
    Gather,
    Input,
    MaxPool2d,
    Op,
    ReLU,
    Shape,
    Subtract,
)


def lower(graph: Graph) -> Graph:
    """The graph without Clip and MaxPool2d; the graph itself if it has none."""
    if not any(isinstance(node.op, Clip | MaxPool2d) for node in graph.nodes):
        return graph
    builder = _LoweringBuilder(graph)
    names: dict[str, str] = {}
    for node in graph.nodes:
        sources = [names[name] for name in node.inputs]
        if isinstance(node.op, Input):
            names[node.name] = builder.input(node.name, node.shape)
        elif isinstance(node.op, Clip):
            names[node.name] = _clip(builder, node, node.op, sources[0])
        elif isinstance(node.op, MaxPool2d):
            names[node.name] = _max_pool(builder, node, node.op, sources[0])
        else:
            names[node.name] = builder.add(node.name, node.op, *sources, layer=node.layer)
    return builder.build([names[name] for name in graph.outputs])


class _LoweringBuilder(GraphBuilder):
    """Gives what lowering adds names that no tensor of the original has."""

    def __init__(self, original: Graph) -> None:
        super().__init__()
        self._original = original

    def helper(self, name: str, op: Op, *inputs: str) -> str:
        """Add an operation that the original does not have."""
        while name in self._original:
            name += "^"
        return self.add(name, op, *inputs)


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _clip(builder: _LoweringBuilder, node: Node, op: Clip, source: str) -> str:
    value = source
    last = math.isinf(op.high)
    if not math.isinf(op.low):
        value = builder.helper(f"{node.name}^above", Affine(shift=_number(-op.low)), value)
        value = builder.helper(f"{node.name}^low", ReLU(), value)
        floor = Affine(shift=_number(op.low))
        value = (
            builder.add(node.name, floor, value)
            if last
            else builder.helper(f"{node.name}^floor", floor, value)
        )
    if not last:
        flip = Affine(_number(-1.0), _number(op.high))
        value = builder.helper(f"{node.name}^below", flip, value)
        value = builder.helper(f"{node.name}^high", ReLU(), value)
        value = builder.add(node.name, flip, value)
    if value == source:
        value = builder.add(node.name, Affine(), value)
    return value


def _max_pool(builder: _LoweringBuilder, node: Node, op: MaxPool2d, source: str) -> str:
    index = _windows(op, builder[source].shape)
    values = [
        builder.helper(f"{node.name}^window{i}", Gather(part.contiguous()), source)
        for i, part in enumerate(index)
    ]
    level = 0
    while len(values) > 1:
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        last = len(pairs) == 1
        merged = []
        for i, pair in enumerate(pairs):
            if len(pair) == 1:
                merged.append(pair[0])
                continue
            stem = f"{node.name}^max{level}.{i}"
            gap = builder.helper(f"{stem}.gap", Subtract(), pair[0], pair[1])
            gain = builder.helper(f"{stem}.gain", ReLU(), gap)
            add = builder.add if last else builder.helper
            merged.append(add(node.name if last else stem, Add(), pair[1], gain))
        values, level = merged, level + 1
    if values[0] != node.name and len(index) == 1:
        return builder.add(node.name, Affine(), values[0])
    return values[0]


def _places(op: MaxPool2d, axis: int, count: int) -> Tensor:
    """Where along an axis each window looks, [windows, kernel]; outside the map in the padding."""
    starts = torch.arange(count) * op.stride[axis] - op.padding[axis]
    return starts[:, None] + torch.arange(op.kernel[axis]) * op.dilation[axis]


def _windows(op: MaxPool2d, size: Shape) -> Tensor:
    """Flat input positions of each window: [kernel size, *output shape].

    A place in the padding, which can never be the maximum, repeats another place of its window.
    """
    channels, height, width = size
    _, rows, columns = op.shape(size)
    y, x = _places(op, 0, rows), _places(op, 1, columns)
    in_rows, in_columns = (y >= 0) & (y < height), (x >= 0) & (x < width)
    inside = in_rows[:, None, :, None] & in_columns[None, :, None, :]
    place = y[:, None, :, None] * width + x[None, :, None, :]
    inside, place = inside.flatten(2), place.flatten(2)
    first = inside.int().argmax(-1, keepdim=True)
    place = torch.where(inside, place, place.gather(-1, first))
    offsets = torch.arange(channels)[:, None, None] * (height * width)
    return torch.stack([place[..., i].unsqueeze(0) + offsets for i in range(place.shape[-1])])
