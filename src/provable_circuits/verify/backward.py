"""Backward linear bounds: how small can a linear function of one tensor get?

Start with rows A at a tensor y and walk towards the inputs, keeping the invariant

    A_start . y  >=  sum over reached tensors of A_t . x_t  +  constant - error.

A linear operation replaces A by its pullback and adds A . b to the constant. An activation replaces
each entry by the slope of its line below (where A >= 0) or above (where A < 0) and adds the offsets.
At the inputs the least value over their region is taken. A unit whose sign is fixed by a split adds
a multiplier: on {s x >= 0}, subtracting beta * s * x with beta >= 0 can only lower the value.

Rounding: A computed pullback differs from the exact one, entry by entry, by at most gamma(n) times
the pullback of absolute values, so against tensors bounded by |x| <= X it moves the value by at most

    gamma(n) * ||A||_1 * (gain * X + |b|),

gain being the largest row sum of |L|. The same shape bounds the error of each slope's product, each
sum of offsets and each addition where paths meet. All of it is collected in ``error`` and taken off
in the end. With ``rigorous=False`` that is left out; such a value may guide, never prove.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Constant, Input, LinearOp, Op
from provable_circuits.rounding import TINY, UNIT_ROUNDOFF, Interval, gamma
from provable_circuits.verify.region import Region
from provable_circuits.verify.relaxation import Lines


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


def backward(
    graph: Graph,
    ops: Mapping[str, Op],
    region: Region,
    ends: Mapping[str, Interval],
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
        ends: enclosures of its tensors, [problems or 1, *shape].
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
    value = rows.new_zeros(problems, count)
    error = rows.new_zeros(problems, count)
    size = rows.new_zeros(problems, count)
    found = Pass(value)
    for node in reversed(graph.nodes):
        coefficients = held.pop(node.name, None)
        if coefficients is None:
            continue
        op = ops[node.name]
        if isinstance(op, Input):
            found.inputs[node.name] = coefficients
            part = region.least(node.name, coefficients)
            if rigorous:
                error += region.least_error(node.name, coefficients, _size(ends[node.name]))
        elif isinstance(op, Constant):
            part = coefficients.flatten(2) @ op.value.flatten()
            if rigorous:
                error += _error(coefficients, op.value.numel() + 2, _size(ends[node.name]))
        elif isinstance(op, LinearOp):
            shapes = [graph[name].shape for name in node.inputs]
            pulled = op.pullback(coefficients.flatten(0, 1), *shapes)
            offset = op.offset()
            part = None if offset is None else _dot(coefficients, offset)
            if rigorous and not op.exact:
                largest = max(_size(ends[name]).amax() for name in node.inputs)
                terms = max(op.back_terms, math.prod(node.shape)) + 8
                error += _error(
                    coefficients, terms, largest * op.gain + op.offset_size
                )
            for name, piece in zip(node.inputs, pulled, strict=True):
                _accumulate(
                    held, name, piece.unflatten(0, (problems, count)), ends, error, rigorous
                )
        else:
            if keep_rows:
                found.activations[node.name] = coefficients
            (source,) = node.inputs
            line = relaxations[node.name]
            positive, negative = coefficients.clamp_min(0.0), coefficients.clamp_max(0.0)
            above, below = _row(line.above_slope), _row(line.below_slope)
            piece = positive * below + negative * above
            part = _rowdot(negative, line.above_offset)
            largest_offset = line.above_offset.abs().amax()
            if line.below_offset is not None:
                part = part + _rowdot(positive, line.below_offset)
                largest_offset = torch.maximum(largest_offset, line.below_offset.abs().amax())
            if multipliers is not None and node.name in multipliers:
                piece = piece - multipliers[node.name]
            if rigorous:
                error += _error(coefficients, math.prod(node.shape) + 8, largest_offset)
                error += _error(piece, 4, _size(ends[source]))
            _accumulate(held, source, piece, ends, error, rigorous)
        if part is not None:
            value = value + part
            if rigorous:
                size += part.abs()
    if rigorous:
        error = error * (1 + 1e-6) + gamma(4 * len(graph) + 8) * size + TINY
        value = (value - error).nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    found.value = value
    return found


def _row(line: Tensor) -> Tensor:
    """Lines [problems, *shape] against rows [problems, rows, *shape]."""
    return line.unsqueeze(1)


def _rowdot(rows: Tensor, offsets: Tensor) -> Tensor:
    return (rows.flatten(2) @ offsets.flatten(1).unsqueeze(2)).squeeze(2)


def _dot(rows: Tensor, offset: Tensor) -> Tensor:
    """rows . b for a per-sample b that broadcasts: channel sums first, where b is per channel."""
    if offset.ndim == 3 and offset.shape[1:] == (1, 1) and rows.ndim == 5:
        return rows.sum((3, 4)) @ offset.flatten()
    return rows.flatten(2) @ offset.expand(rows.shape[2:]).flatten()


def _size(ends: Interval) -> Tensor:
    """The largest absolute value of each problem, [problems, 1]."""
    lower, upper = ends
    return torch.maximum(-lower.flatten(1).amin(1), upper.flatten(1).amax(1)).clamp_min(0).unsqueeze(1)


def _error(rows: Tensor, terms: int, size: Tensor | float) -> Tensor:
    return gamma(terms) * 1.01 * size * torch.linalg.vector_norm(rows.flatten(2), 1, dim=2)


def _accumulate(
    held: dict[str, Tensor],
    name: str,
    piece: Tensor,
    ends: Mapping[str, Interval],
    error: Tensor,
    rigorous: bool,
) -> None:
    before = held.get(name)
    if before is None:
        held[name] = piece
        return
    held[name] = total = before + piece
    if rigorous:
        error += _error(total, 2, _size(ends[name]))
