"""Backward linear bounds: how small can a linear function of one tensor get?

Start with rows A at a tensor y and walk towards the inputs, keeping the invariant

    A_start . y  >=  sum over reached tensors of A_t . x_t  +  constant - error.

A linear operation replaces A by its pullback and adds A . b to the constant. An activation replaces
each entry by the slope of its line below (where A >= 0) or above (where A < 0) and adds the offsets.
At the inputs the least value over their region is taken. A unit whose sign is fixed by a split adds
a multiplier: on {s x >= 0}, subtracting beta * s * x with beta >= 0 can only lower the value.

Rounding: a computed pullback differs from the exact one, entry by entry, by at most gamma(n) times
the pullback of absolute values, so against tensors bounded by |x| <= X it moves the value by at most

    gamma(n) * ||A||_1 * (gain * X + |b|),

gain being the largest row sum of |L|. The same shape bounds the error of each slope's product, each
sum of offsets and each addition where paths meet. Norms need not be exact: ||A L||_1 <= gain ||A||_1
carries a bound along for nothing, and only where that has grown far is the norm itself measured.
Products that underflow lose up to TINY each, which tensors of large values can make large again: an
entry of a pullback loses up to n TINY, and m such entries move the value by at most m n TINY X.
All of it is collected in one number and taken off in the end. With ``rigorous=False`` it is left
out; such a value may guide, never prove.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Constant, Input, LinearOp, Op
from provable_circuits.rounding import TINY, Interval, gamma
from provable_circuits.verify.region import Region
from provable_circuits.verify.relaxation import Lines

GROWTH = 1e4
"""How far a carried bound of a norm may grow before the norm is measured."""


class Sizes:
    """The largest absolute value of each tensor over all problems, looked up once."""

    def __init__(self, ends: Mapping[str, Interval]) -> None:
        self._ends = ends
        self._found: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        size = self._found.get(name)
        if size is None:
            lower, upper = self._ends[name]
            size = float(torch.maximum(lower.abs().amax(), upper.abs().amax()))
            self._found[name] = size
        return size


@dataclass(slots=True, eq=False)
class Pass:
    """What one backward walk found.

    Attributes:
        value: lower bounds [problems, rows].
        inputs: the rows that reached each input, [problems, rows, *shape].
        activations: the rows that stood at the output of each activation.
    """

    value: Tensor
    inputs: dict[str, Tensor] = field(default_factory=dict)
    activations: dict[str, Tensor] = field(default_factory=dict)


def measured_norm(rows: Tensor) -> float:
    """An upper bound of the largest 1-norm of rows [problems, rows, *shape]."""
    return float(torch.linalg.vector_norm(rows.flatten(2), 1, dim=2).amax()) * (1 + 1e-6)


class _Error:
    """Collects rounding errors in plain numbers, along with bounds of ||A||_1 at each tensor."""

    def __init__(self, sizes: Sizes, start: str, rows: Tensor) -> None:
        self.sizes = sizes
        self.total = 0.0
        self.reach = 0.0
        first = measured_norm(rows)
        self.norms = {start: first}
        self.limit = GROWTH * max(first, 1e-300)

    def at(self, name: str, rows: Tensor) -> float:
        """A bound of the norm of the rows held at a tensor."""
        norm = self.norms[name]
        if norm > self.limit:
            norm = min(norm, measured_norm(rows))
            self.norms[name] = norm
        return norm

    def add(self, norm: float, terms: int, size: float) -> None:
        """A rounding of ``terms`` products against values up to ``size``."""
        self.total += gamma(terms) * 1.01 * norm * size + TINY
        self.reach += norm * size

    def underflow(self, entries: int, terms: int, size: float) -> float:
        """Products lost in a tensor of ``entries`` sums of ``terms``; returns how far norms may be."""
        lost = entries * terms * TINY
        self.total += lost * (size + 1)
        return lost

    def carry(self, name: str, norm: float, merged: bool) -> None:
        """Rows of this norm arrive at a tensor, where others may be waiting."""
        self.norms[name] = norm + self.norms.get(name, 0.0) if merged else norm
        if merged:
            self.add(self.norms[name], 2, self.sizes[name])

    def result(self, nodes: int) -> float:
        """The bound of the error of the whole pass."""
        return (self.total + gamma(4 * nodes + 16) * self.reach) * (1 + 1e-6) + TINY


def backward(
    graph: Graph,
    ops: Mapping[str, Op],
    region: Region,
    sizes: Sizes,
    relaxations: Mapping[str, Lines],
    start: str,
    rows: Tensor,
    *,
    multipliers: Mapping[str, Tensor] | None = None,
    rigorous: bool = True,
    keep_rows: bool = False,
) -> Pass:
    """Lower bounds of ``rows . tensor`` for every problem of the region.

    Args:
        graph: the merged graph.
        ops: its operations in float64.
        region: where its inputs range.
        sizes: the largest absolute value of every tensor.
        relaxations: lines for every activation that ``start`` depends on, by name.
        start: the tensor bounded.
        rows: [problems, rows, *shape of start].
        multipliers: for activations, signed multipliers s * beta of their input's splits,
            [problems, 1, *shape].
        rigorous: whether rounding errors are taken off.
        keep_rows: whether the rows at activations are returned.
    """
    problems, count = rows.shape[:2]
    held: dict[str, Tensor] = {start: rows}
    parts: list[Tensor] = []
    found = Pass(rows)
    error = _Error(sizes, start, rows) if rigorous else None
    for node in reversed(graph.nodes):
        coefficients = held.pop(node.name, None)
        if coefficients is None:
            continue
        op = ops[node.name]
        norm = error.at(node.name, coefficients) if error is not None else 0.0
        if isinstance(op, Input):
            found.inputs[node.name] = coefficients
            parts.append(region.least(node.name, coefficients))
            if error is not None:
                error.add(norm, 8 * math.prod(node.shape) + 32, 2 * sizes[node.name])
                error.underflow(math.prod(node.shape), 8, 0.0)
        elif isinstance(op, Constant):
            parts.append(coefficients.flatten(2) @ op.value.flatten())
            if error is not None:
                error.add(norm, op.value.numel() + 8, sizes[node.name])
                error.underflow(op.value.numel(), 2, 0.0)
        elif isinstance(op, LinearOp):
            pulled = op.pullback(coefficients.flatten(0, 1), *(graph[n].shape for n in node.inputs))
            offset = op.offset()
            if offset is not None:
                parts.append(_dot(coefficients, offset))
            passed_on = norm * op.back_gain * (1 + 1e-9)
            if error is not None and not op.exact:
                largest = max(sizes[name] for name in node.inputs)
                terms = max(op.back_terms, math.prod(node.shape)) + 8
                error.add(norm, terms, largest * op.gain + op.offset_size)
                entries = sum(math.prod(graph[name].shape) for name in node.inputs)
                passed_on += error.underflow(entries, terms, largest)
            for name, piece in zip(node.inputs, pulled, strict=True):
                _arrive(held, name, piece.unflatten(0, (problems, count)), passed_on, error)
        else:
            if keep_rows:
                found.activations[node.name] = coefficients
            line = relaxations[node.name]
            piece, part = _through(coefficients, line)
            if part is not None:
                parts.append(part)
            steepest = line.steepest
            passed_on = norm * steepest
            if multipliers is not None and node.name in multipliers:
                piece = piece - multipliers[node.name]
                if error is not None:
                    passed_on += measured_norm(multipliers[node.name])
            (source,) = node.inputs
            if error is not None:
                error.add(norm, math.prod(node.shape) + 8, line.highest(sizes[source]))
                error.add(passed_on, 4, sizes[source])
                passed_on += error.underflow(math.prod(node.shape), 4, sizes[source])
            _arrive(held, source, piece, passed_on, error)
    value = torch.stack(parts).sum(0) if parts else rows.new_zeros(problems, count)
    if error is not None:
        value = (value - error.result(len(graph))).nan_to_num(
            nan=-math.inf, posinf=-math.inf, neginf=-math.inf
        )
    found.value = value
    return found


def _through(rows: Tensor, line: Lines) -> tuple[Tensor, Tensor | None]:
    """Rows behind an activation as rows before it, and what its offsets add."""
    below = line.below_slope.unsqueeze(1)
    if line.settled:
        return rows * below, None
    piece = rows * torch.where(rows >= 0, below, line.above_slope.unsqueeze(1))
    part = _offsets(rows.clamp_max(0.0), line.above_offset)
    if line.below_offset is not None:
        part = part + _offsets(rows.clamp_min(0.0), line.below_offset)
    return piece, part


def _offsets(rows: Tensor, offsets: Tensor) -> Tensor:
    return (rows.flatten(2) @ offsets.flatten(1).unsqueeze(2)).squeeze(2)


def _dot(rows: Tensor, offset: Tensor) -> Tensor:
    """rows . b for a per-sample b that broadcasts: channel sums first, where b is per channel."""
    if offset.ndim == 3 and offset.shape[1:] == (1, 1) and rows.ndim == 5:
        return rows.sum((3, 4)) @ offset.flatten()
    return rows.flatten(2) @ offset.expand(rows.shape[2:]).flatten()


def _arrive(
    held: dict[str, Tensor], name: str, piece: Tensor, norm: float, error: _Error | None
) -> None:
    before = held.get(name)
    held[name] = piece if before is None else before + piece
    if error is not None:
        error.carry(name, norm, before is not None)
