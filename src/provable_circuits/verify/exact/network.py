"""A network in rational numbers: its definition, with every stored number taken as it is.

Weights are the numbers that the model holds (a float32 is a rational number, and so is the float64
of a folded batch normalisation); a mean of n values is their sum divided by n, and ``Divide``
divides, without a rounded reciprocal. Clipping and max pooling are written with ReLUs. The network
runs on forms: over variables, or over nothing, which is plain evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.semantics import (
    NOTHING_REMOVED,
    Arithmetic,
    CircuitMask,
    interpret,
)
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import Deadline
from provable_circuits.verify.exact.forms import Atoms, Form, combination

LINEAR = (
    ops.Linear,
    ops.Conv2d,
    ops.Affine,
    ops.Add,
    ops.Subtract,
    ops.Reshape,
    ops.Permute,
    ops.Concat,
    ops.Pad,
    ops.Gather,
    ops.Scatter,
)
"""Operations whose matrix is made of stored weights, ones and zeros: pulling back rounds nothing.

A unit row meets each weight once, so that sums have one term that is not zero.
"""

AVERAGES = (ops.AvgPool2d, ops.AdaptiveAvgPool2d, ops.Mean)
"""Operations whose matrix is made of 1 / n for whole numbers n, and zeros."""

Row = tuple[Fraction, tuple[tuple[int, int, Fraction], ...]]
"""One unit of a linear operation: its offset, and (which input, which element of it, weight)."""


@dataclass(frozen=True, slots=True, eq=False)
class ExactLayer:
    """One node: a linear operation by its rows, or a ReLU by its slope below zero."""

    node: Node
    rows: tuple[Row, ...] = ()
    slope: Fraction | None = None


def size_of(graph: Graph) -> int | None:
    """At most how many weights and units the graph has written out; None if it cannot be.

    The graph is a lowered one, without Clip and MaxPool2d.
    """
    total = 0
    for node in graph.nodes:
        op = node.op
        if isinstance(op, (*LINEAR, *AVERAGES, ops.Divide)):
            total += op.terms * math.prod(node.shape)
        elif isinstance(op, ops.ReLU | ops.LeakyReLU | ops.Constant | ops.Input):
            total += math.prod(node.shape)
        else:
            return None
    return total


class RationalNetwork:
    """A lowered graph with its weights as rational numbers.

    Args:
        graph: the graph.
        deadline: when to give up.
        at_once: unit rows that are pulled back together, so that large layers take little memory.
    """

    def __init__(
        self, graph: Graph, deadline: Deadline, at_once: int = DEFAULT.exact.rows_at_once
    ) -> None:
        self.graph = graph
        self.layers = {node.name: _layer(graph, node, deadline, at_once) for node in graph.nodes}

    def run(
        self,
        atoms: Atoms,
        inputs: Sequence[Form],
        deadline: Deadline,
        mask: CircuitMask = NOTHING_REMOVED,
        patches: Mapping[str, Mapping[int, Form]] | None = None,
    ) -> dict[str, list[Form]]:
        """Every tensor of the network, flat; of a circuit, the outputs.

        Args:
            atoms: where new variables of ReLUs are noted.
            inputs: the input, flat.
            deadline: when to stop.
            mask: the circuit; the network itself by default.
            patches: by tensor and element, the patch of every unit that some reader does not see.
        """
        forms = _Forms(self, atoms, inputs, deadline, mask, patches or {})
        names = [node.name for node in self.graph.nodes]
        return interpret(self.graph, mask, forms, self.graph.outputs if mask.sources else names)


class _Forms(Arithmetic[list[Form]]):
    """Rational forms, element by element; what no reader sees is not computed."""

    def __init__(
        self,
        network: RationalNetwork,
        atoms: Atoms,
        inputs: Sequence[Form],
        deadline: Deadline,
        mask: CircuitMask,
        patches: Mapping[str, Mapping[int, Form]],
    ) -> None:
        self.network = network
        self.atoms = atoms
        self.inputs = list(inputs)
        self.deadline = deadline
        self.mask = mask
        self.patches = patches

    def own(self, node: Node) -> list[Form]:
        return self.inputs

    def apply(self, node: Node, inputs: Sequence[list[Form]]) -> list[Form]:
        layer, unread = self.network.layers[node.name], self._unread(node)
        values = []
        if layer.slope is not None:
            (source,) = inputs
            for i, form in enumerate(source):
                self.deadline.check()
                values.append(form if i in unread else _bend(self.atoms, form, layer.slope))
            return values
        for i, (offset, terms) in enumerate(layer.rows):
            self.deadline.check()
            picked = () if i in unread else terms
            values.append(combination([(w, inputs[k][j]) for k, j, w in picked], offset))
        return values

    def _unread(self, node: Node) -> frozenset[int]:
        read = self.mask.read_in(self.network.graph, node.name)
        return frozenset() if read is None else frozenset(_outside(node, read))

    def patched(self, node: Node, value: list[Form], kept: Tensor) -> list[Form]:
        patch, found = self.patches[node.name], list(value)
        for i in _outside(node, kept):
            found[i] = patch[i]
        return found


def _outside(node: Node, kept: Tensor) -> list[int]:
    """The flat positions of units outside a mask of one circuit, [1, ...]."""
    found: list[int] = (~kept[0].expand(node.shape)).flatten().nonzero().flatten().tolist()
    return found


def _bend(atoms: Atoms, form: Form, slope: Fraction) -> Form:
    return atoms.leaky(form, slope) if slope else atoms.relu(form)


def _layer(graph: Graph, node: Node, deadline: Deadline, at_once: int) -> ExactLayer:
    op = node.op.to(torch.float64, torch.device("cpu"))
    if isinstance(op, ops.Input):
        return ExactLayer(node)
    if isinstance(op, ops.ReLU):
        return ExactLayer(node, slope=Fraction(0))
    if isinstance(op, ops.LeakyReLU):
        return ExactLayer(node, slope=Fraction(op.slope))
    if isinstance(op, ops.Constant):
        return ExactLayer(node, tuple((Fraction(v), ()) for v in op.value.flatten().tolist()))
    if isinstance(op, ops.Divide):
        divisors = op.divisor.expand(node.shape).flatten().tolist()
        rows = [(Fraction(0), ((0, i, 1 / Fraction(d)),)) for i, d in enumerate(divisors)]
        return ExactLayer(node, tuple(rows))
    if isinstance(op, ops.LinearOp):
        return ExactLayer(node, _rows(graph, node, op, deadline, at_once))
    raise TypeError(f"{op.name} is not piecewise linear")


def _rows(
    graph: Graph, node: Node, op: ops.LinearOp, deadline: Deadline, at_once: int
) -> tuple[Row, ...]:
    """The rows of a linear operation, read off by pulling unit rows back."""
    size = math.prod(node.shape)
    shapes = [graph[name].shape for name in node.inputs]
    offset = op.offset()
    offsets = [0.0] * size if offset is None else offset.expand(node.shape).flatten().tolist()
    convert = _reciprocal if isinstance(op, AVERAGES) else Fraction
    rows: list[Row] = []
    for start in range(0, size, at_once):
        deadline.check()
        units = torch.arange(start, min(start + at_once, size))
        unit_rows = torch.zeros(len(units), size, dtype=torch.float64)
        unit_rows[torch.arange(len(units)), units] = 1.0
        subdomains = op.pullback(unit_rows.reshape(-1, *node.shape), *shapes)
        terms: list[list[tuple[int, int, Fraction]]] = [[] for _ in units]
        for k, part in enumerate(subdomains):
            flat: Tensor = part.detach().reshape(len(units), -1)
            places = flat.nonzero()
            for (i, j), weight in zip(places.tolist(), flat[tuple(places.T)].tolist(), strict=True):
                terms[i].append((k, j, convert(weight)))
        rows.extend((Fraction(offsets[start + i]), tuple(t)) for i, t in enumerate(terms))
    return tuple(rows)


def _reciprocal(share: float) -> Fraction:
    """1 / n, from the nearest that a float comes to it."""
    count = round(1 / share)
    if abs(share * count - 1) > 1e-12:
        raise ValueError(f"{share} is not the reciprocal of a whole number")
    return Fraction(1, count)
