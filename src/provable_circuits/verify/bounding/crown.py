"""Backward linear bounds: how small can a linear function of one tensor get?

Start with rows A at a tensor y and walk towards the inputs, keeping the invariant

    A_start . y  >=  sum over reached tensors of A_t . x_t  +  constant - error.

A linear operation replaces A by its pullback and adds A . b to the constant. An activation
replaces each entry by the slope of its line below (where A >= 0) or above (where A < 0) and adds
the offsets. At the inputs the least value over their region is taken. A unit whose sign is fixed
by a split adds a multiplier: on {s x >= 0}, subtracting beta * s * x with beta >= 0 can only lower
the value.

Rounding: a computed pullback differs from the exact one, entry by entry, by at most gamma(n) times
the pullback of absolute values, so against tensors bounded by |x| <= X it moves the value by at
most

    gamma(n) * ||A||_1 * (gain * X + |b|),

gain being the largest row sum of |L| (or gain * X + |b| replaced by the largest |L||x| + |b|). The
same shape bounds the error of each slope's product, each sum of offsets, each weight rounded to
float32 and each addition where paths meet. Norms need not be exact: ||A L||_1 <= gain ||A||_1
carries a bound along for nothing, and only where that has grown far is the norm itself measured.
Products that underflow lose up to TINY each, which tensors of large values can make large again:
an entry of a pullback loses up to n TINY, and m such entries move the value by at most m n TINY X.
All of it is collected in one number and taken off in the end. With ``rigorous=False`` it is left
out; such a value may guide, never prove.

Known as CROWN: Zhang, Weng, Chen, Hsieh and Daniel (2018), Efficient Neural Network Robustness
Certification with General Activation Functions. Ours beyond it: every rounding error is enclosed,
in any order of summation, and one pass serves network, circuit and patch source with shared nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Constant, Input, LinearOp, Op
from provable_circuits.rounding import TINY, UNIT_ROUNDOFF, Interval, gamma, unit_roundoff
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.bounding.relaxation import Lines

TINY_SINGLE = 2.0**-125
"""Twice the smallest normal float32: more than any underflow can lose there. Soundness rests on it,
so that it is no tuning."""


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
        error: what was taken off for rounding, [problems, rows]; zero unless it was asked for.
    """

    value: Tensor
    inputs: dict[str, Tensor] = field(default_factory=dict)
    activations: dict[str, Tensor] = field(default_factory=dict)
    error: Tensor = field(default_factory=lambda: torch.zeros(()))


def measured_norm(rows: Tensor) -> Tensor:
    """Upper bounds [problems, rows] of the 1-norms of rows [problems, rows, *shape].

    A sum of n float32 terms is off by at most gamma(n); 1e-2 covers every n for which that is
    finite.
    """
    slack = 1e-6 if rows.dtype == torch.float64 else 1e-2
    norms: Tensor = torch.linalg.vector_norm(rows.flatten(2), 1, dim=2)
    return norms.double() * (1 + slack)


class _Error:
    """Collects rounding errors, along with bounds of ||A||_1 at each tensor.

    In float64 norms are carried along as plain numbers, the same for all rows. In float32, where
    errors matter, they are measured at every tensor, row by row, and the size of what a row meets
    is that of |L||x| + |b| itself.
    """

    def __init__(self, view: View, start: str, rows: Tensor) -> None:
        self.view = view
        self.unit = unit_roundoff(rows.dtype)
        self.tiny = TINY if rows.dtype == torch.float64 else TINY_SINGLE
        self.measured = rows.dtype != torch.float64
        self.total: Tensor | float = 0.0
        self.reach: Tensor | float = 0.0
        first = 0.0 if self.measured else float(measured_norm(rows).amax())
        self.norms: dict[str, float] = {start: first}
        self.merged: set[str] = set()
        self.limit = view.norm_growth * max(first, 1e-300)

    def at(self, name: str, rows: Tensor) -> Tensor | float:
        """A bound of the norm of the rows held at a tensor."""
        if self.measured:
            norm: Tensor | float = measured_norm(rows)
        else:
            carried = self.norms[name]
            if carried > self.limit:
                carried = min(carried, float(measured_norm(rows).amax()))
                self.norms[name] = carried
            norm = carried
        if name in self.merged:
            self.add(norm, 2, self.view.sizes[name])
        return norm

    def add(self, norm: Tensor | float, terms: int, size: float, unit: float | None = None) -> None:
        """A rounding of ``terms`` products against values up to ``size``."""
        self.total = self.total + norm * (gamma(terms, unit or self.unit) * 1.01 * size)
        self.reach = self.reach + norm * size

    def underflow(self, entries: int, terms: int, size: float) -> float:
        """Products lost in ``entries`` sums of ``terms``; how far a norm may be off by them."""
        lost = entries * terms * self.tiny
        self.total = self.total + lost * (size + 1)
        return lost

    def weights(self, norm: Tensor | float, op: LinearOp, size: float) -> None:
        """Weights and offsets that a narrower type cannot hold, against values up to ``size``."""
        if self.measured:
            self.total = self.total + norm * (self.tiny * (op.terms * size + 1))

    def carry(self, name: str, norm: Tensor | float, merged: bool) -> None:
        """Rows of this norm arrive at a tensor, where others may be waiting."""
        if merged:
            self.merged.add(name)
        if not self.measured:
            arrived = float(norm.amax()) if isinstance(norm, Tensor) else norm
            self.norms[name] = self.norms[name] + arrived if merged else arrived

    def result(self, nodes: int) -> Tensor | float:
        """The bound of the error of the whole pass; its parts are added up in float64."""
        return (self.total + gamma(4 * nodes + 16) * self.reach) * (1 + 1e-5) + TINY


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A graph's operations, region, lines and sizes, in the arithmetic of one dtype.

    Attributes:
        graph: the merged graph.
        ops: its operations.
        region: where its inputs range (always float64).
        lines: for every activation, its lines.
        sizes: the largest absolute value of every tensor.
        reaches: for a linear operation, the largest entry of |L||x| + |b|.
        norm_growth: how far a carried bound of a norm may grow before the norm is measured.
    """

    graph: Graph
    ops: Mapping[str, Op]
    region: Region
    lines: Mapping[str, Lines]
    sizes: Sizes
    reaches: Callable[[str], float]
    norm_growth: float


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """Units of an activation that, in some rows, follow one slope through zero: no relaxation.

    It asks what a split would bring without making the problem that the split leads to.

    Attributes:
        problems, rows, units: where, [n] each; units are counted over the flat tensor.
        slopes: the slopes, [n].
    """

    problems: Tensor
    rows: Tensor
    units: Tensor
    alpha: Tensor

    def put(
        self, coefficients: Tensor, line: Lines, piece: Tensor, part: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The rows before the activation, and what its offsets add, with these units fixed."""
        place = (self.problems, self.rows, self.units)
        own = coefficients.flatten(2)[place]
        piece = piece.flatten(2).index_put(place, own * self.alpha.to(own)).reshape(piece.shape)
        if part is None:
            return piece, None
        paid = own.clamp_max(0.0) * line.above_offset.flatten(1)[self.problems, self.units]
        if line.below_offset is not None:
            paid += own.clamp_min(0.0) * line.below_offset.flatten(1)[self.problems, self.units]
        return piece, part.index_put((self.problems, self.rows), -paid, accumulate=True)


def backward(
    view: View,
    start: str,
    rows: Tensor,
    *,
    multipliers: Mapping[str, Tensor] | None = None,
    fixed: Mapping[str, Fixed] | None = None,
    rigorous: bool = True,
    keep_rows: bool = False,
) -> Pass:
    """Lower bounds of ``rows . tensor`` for every problem of the region.

    Args:
        view: the graph in the rows' arithmetic.
        start: the tensor bounded.
        rows: [problems, rows, *shape of start].
        multipliers: for activations, signed multipliers s * beta of their input's splits,
            [problems, 1, *shape].
        fixed: for activations, units that have one known slope in single rows.
        rigorous: whether rounding errors are taken off.
        keep_rows: whether the rows at activations are returned.
    """
    graph, ops, sizes = view.graph, view.ops, view.sizes
    problems, count = rows.shape[:2]
    held: dict[str, Tensor] = {start: rows}
    subdomains: list[Tensor] = []
    found = Pass(rows)
    error = _Error(view, start, rows) if rigorous else None
    for node in reversed(graph.nodes):
        coefficients = held.pop(node.name, None)
        if coefficients is None:
            continue
        op = ops[node.name]
        norm = error.at(node.name, coefficients) if error is not None else 0.0
        if isinstance(op, Input):
            found.inputs[node.name] = coefficients
            subdomains.append(view.region.least(node.name, coefficients.double()))
            if error is not None:
                terms = 8 * math.prod(node.shape) + 32
                error.add(norm, terms, 2 * sizes[node.name], UNIT_ROUNDOFF)
                error.underflow(math.prod(node.shape), 8, 0.0)
        elif isinstance(op, Constant):
            subdomains.append((coefficients.flatten(2) @ op.value.flatten()).double())
            if error is not None:
                error.add(norm, op.value.numel() + 8, sizes[node.name])
                error.underflow(op.value.numel(), 2, 0.0)
        elif isinstance(op, LinearOp):
            pulled = op.pullback(coefficients.flatten(0, 1), *(graph[n].shape for n in node.inputs))
            offset = op.offset()
            if offset is not None:
                subdomains.append(_dot(coefficients, offset).double())
            passed_on = norm * (op.back_gain * (1 + 1e-9))
            if error is not None and not op.exact:
                error.add(norm, op.back_terms + 8, view.reaches(node.name))
                if offset is not None:
                    error.add(norm, math.prod(node.shape) + 8, op.offset_size)
                    error.underflow(math.prod(node.shape), 2, 0.0)
                largest = max(sizes[name] for name in node.inputs)
                entries = sum(math.prod(graph[name].shape) for name in node.inputs)
                passed_on = passed_on + error.underflow(entries, op.back_terms, largest)
                error.weights(norm, op, largest)
            for name, piece in zip(node.inputs, pulled, strict=True):
                _arrive(held, name, piece.unflatten(0, (problems, count)), passed_on, error)
        else:
            if keep_rows:
                found.activations[node.name] = coefficients
            line = view.lines[node.name]
            piece, part = _through(coefficients, line)
            if fixed is not None and node.name in fixed:
                piece, part = fixed[node.name].put(coefficients, line, piece, part)
            if part is not None:
                subdomains.append(part.double())
            passed_on = norm * line.steepest
            if multipliers is not None and node.name in multipliers:
                piece = piece - multipliers[node.name]
                if error is not None:
                    passed_on = passed_on + measured_norm(multipliers[node.name])
            (source,) = node.inputs
            if error is not None:
                error.add(norm, math.prod(node.shape) + 8, line.highest)
                error.add(passed_on, 4, sizes[source])
                passed_on = passed_on + error.underflow(math.prod(node.shape), 4, sizes[source])
            _arrive(held, source, piece, passed_on, error)
    if subdomains:
        value = torch.stack(subdomains).sum(0)
    else:
        value = torch.zeros(problems, count, dtype=torch.float64, device=rows.device)
    if error is not None:
        taken = torch.as_tensor(error.result(len(graph)), dtype=torch.float64)
        found.error = taken.to(value).expand_as(value)
        value = (value - found.error).nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
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
    """Rows . b for a per-sample b that broadcasts: channel sums first, where b is per channel."""
    if rows.ndim == 5 and offset.shape == (rows.shape[2], 1, 1):
        return rows.sum((3, 4)) @ offset.flatten()
    return rows.flatten(2) @ offset.expand(rows.shape[2:]).flatten()


def _arrive(
    held: dict[str, Tensor],
    name: str,
    piece: Tensor,
    norm: Tensor | float,
    error: _Error | None,
) -> None:
    before = held.get(name)
    held[name] = piece if before is None else before + piece
    if error is not None:
        error.carry(name, norm, before is not None)
