"""Narrowing: a network without the positions that nobody reads.

Where a network gives out one position of many, most of the work behind the last attention is for
nothing. A slice is moved towards the inputs past every operation that treats positions apart, and
so is the slice of its constants; each value that is left is computed as before. Of a tensor that
several operations read, a part is left out if all of them read the same part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from torch import Tensor

from provable_circuits.network.graph import Graph, GraphBuilder, Node
from provable_circuits.network.ops import (
    Activation,
    Add,
    Affine,
    Divide,
    Fill,
    Input,
    IntegerInput,
    Linear,
    MatMul,
    Multiply,
    Normalise,
    Op,
    Permute,
    Power,
    Reciprocal,
    Slice,
    Softmax,
    Square,
    Subtract,
)
from provable_circuits.network.ops.smooth import OneDip

EACH = (
    Activation,
    OneDip,
    Square,
    Power,
    Reciprocal,
    Add,
    Subtract,
    Multiply,
    Affine,
    Divide,
    Fill,
)
"""Operations on each number by itself."""


@dataclass(frozen=True, slots=True)
class Span:
    """The places of one per-sample dimension that are read."""

    dim: int
    start: int
    stop: int
    step: int

    def of(self, value: Tensor, rank: int, batch: bool = False) -> Tensor:
        """The same part of a tensor that broadcasts to samples of ``rank`` dimensions."""
        place = self.dim - rank
        if value.ndim < -place or value.shape[place] == 1 or (batch and value.ndim - 1 < -place):
            return value
        index = [slice(None)] * value.ndim
        index[place] = slice(self.start, self.stop, self.step)
        return value[tuple(index)]

    @property
    def op(self) -> Slice:
        """The operation that takes the part."""
        return Slice(self.dim, self.start, self.stop, self.step)


Spans = dict[str, Span | None]


def narrowed(graph: Graph, keep: Iterable[str] = ()) -> tuple[Graph, Spans]:
    """The graph without what is not read, and of each tensor the part that is left, if not all.

    Args:
        graph: the graph; tensors keep their names.
        keep: tensors that stay whole.
    """
    parts = _parts(graph, set(keep))
    if not any(parts.values()):
        return graph, parts
    builder = GraphBuilder(check_weights=False)
    names: dict[str, str] = {}
    for node in graph.nodes:
        part = parts[node.name]
        if isinstance(node.op, Input):
            integer = isinstance(node.op, IntegerInput)
            names[node.name] = builder.input(node.name, node.shape, integer=integer)
            continue
        sources = []
        for place, source in enumerate(node.inputs):
            wanted = _read(node, place, part, graph)
            name = names[source]
            if wanted is not None and parts[source] is None and not isinstance(node.op, Slice):
                name = builder.add(f"{name}~part", wanted.op, name)
            sources.append(name)
        if isinstance(node.op, Slice) and parts[node.inputs[0]] is not None:
            names[node.name] = sources[0]
            continue
        op = node.op if part is None else _cut(node.op, part, len(node.shape))
        names[node.name] = builder.add(node.name, op, *sources, layer=node.layer)
    narrow = builder.build([names[name] for name in graph.outputs])
    return narrow, {name: parts[name] for name in parts if names[name] in narrow}


def _parts(graph: Graph, keep: set[str]) -> Spans:
    """The part of each tensor that is read; None for all of it."""
    wanted: dict[str, list[Span | None]] = {node.name: [] for node in graph.nodes}
    for name in [*graph.outputs, *keep]:
        wanted[name].append(None)
    found: Spans = {}
    for node in reversed(graph.nodes):
        asked = wanted[node.name]
        part = asked[0] if asked and all(other == asked[0] for other in asked) else None
        if part is not None and not _passes(node, part, graph):
            part = None
        found[node.name] = part
        for place, source in enumerate(node.inputs):
            wanted[source].append(_read(node, place, part, graph))
    return found


def _passes(node: Node, part: Span, graph: Graph) -> bool:
    """Whether a part of an operation's output can be computed from parts of its inputs."""
    op, rank = node.op, len(node.shape)
    if isinstance(op, (*EACH, Permute)):
        return True
    if isinstance(op, Linear):
        return part.dim < rank - 1
    if isinstance(op, Softmax):
        return part.dim != op.dim
    if isinstance(op, Normalise):
        return part.dim < rank - op.rank
    return isinstance(op, MatMul)


def _read(node: Node, place: int, part: Span | None, graph: Graph) -> Span | None:
    """The part of one input that is read for a part of the output."""
    op = node.op
    if isinstance(op, Slice) and part is None:
        return Span(op.dim, op.start, op.stop, op.step)
    if part is None:
        return None
    if isinstance(op, Permute):
        return replace(part, dim=op.dims[part.dim])
    if isinstance(op, MatMul):
        own = len(node.shape) - 2 + place
        if part.dim < len(node.shape) - 2:
            return part
        return part if part.dim == own else None
    return part


def _cut(op: Op, part: Span, rank: int) -> Op:
    """The operation for a part of its output, its constants cut alike."""
    if not isinstance(op, Affine | Divide | Fill):
        return op
    held = {
        field.name: part.of(value, rank).contiguous()
        for field in fields(op)
        if isinstance(value := getattr(op, field.name), Tensor)
    }
    return replace(op, **held)  # type: ignore[arg-type]
