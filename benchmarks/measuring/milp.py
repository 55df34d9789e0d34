"""A peer: the same query as mixed-integer programs, solved by HiGHS through scipy.

The merged graph of a query, in dense form, is linear layers and ReLUs; the network's tensors that
the circuit shares are there once. For one input of the claim, with x in its box,

    a = what a ReLU reads, one variable and one equation for each unit that can be above zero
    h = a                                      where a >= 0 everywhere
    h = 0                                      where a <= 0 everywhere
    a <= h <= a - l (1 - d),  0 <= h <= u d,   d = 0 or 1,  elsewhere: l < a < u

and each constraint of the specification is a program: maximise rows . y + offset. The claim holds
if no maximum is above zero. The ends l and u come from interval propagation, as is usual; or, which
helps the solver, from this package's backward bounds. The time they take is not counted.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds as Ends
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_array, vstack

from provable_circuits.network.dense import dense
from provable_circuits.network.graph import Graph
from provable_circuits.network.ops import Add, Constant, Input, Linear, ReLU
from provable_circuits.verify.bounding.bounds import Bounds, Structure
from provable_circuits.verify.bounding.region import Region
from provable_circuits.verify.encoding.problem import InputRange
from provable_circuits.verify.encoding.query import Query

Floats = NDArray[np.float64]
Form = tuple[csr_array, Floats]
"""A linear function of the variables: a matrix of as many columns as there were, and offsets."""

TOLERANCE = 1e-6
"""Maxima closer to zero than this are the solver's rounding, not an answer."""


@dataclass(eq=False)
class _Program:
    """Variables and rows of the programs of one input of the claim."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    binary: list[bool] = field(default_factory=list)
    rows: list[csr_array] = field(default_factory=list)
    least: list[Floats] = field(default_factory=list)
    most: list[Floats] = field(default_factory=list)

    def variables(self, lower: Floats, upper: Floats, binary: bool = False) -> Form:
        """New variables between two ends, as a linear function."""
        start, count = len(self.lower), len(lower)
        self.lower += lower.tolist()
        self.upper += upper.tolist()
        self.binary += [binary] * count
        places = (np.arange(count), np.arange(start, start + count))
        return csr_array((np.ones(count), places), (count, start + count)), np.zeros(count)

    def above_zero(self, *forms: tuple[float | Floats, Form]) -> None:
        """The sum of scaled linear functions is at least zero."""
        matrix, offset = self.total(*forms)
        self.rows.append(matrix)
        self.least.append(-offset)
        self.most.append(np.full(len(offset), np.inf))

    def zero(self, *forms: tuple[float | Floats, Form]) -> None:
        """The sum of scaled linear functions is zero."""
        matrix, offset = self.total(*forms)
        self.rows.append(matrix)
        self.least.append(-offset)
        self.most.append(-offset)

    def total(self, *forms: tuple[float | Floats, Form]) -> Form:
        """The sum of linear functions, each scaled by a number or row by row."""
        width = len(self.lower)
        matrix, offset = None, None
        for scale, (part, shift) in forms:
            scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), shift.shape)
            scaled = csr_array(_wide(part, width).multiply(scales[:, None]))
            matrix = scaled if matrix is None else matrix + scaled
            offset = scales * shift if offset is None else offset + scales * shift
        if matrix is None or offset is None:
            raise ValueError("a sum of nothing")
        return matrix, offset

    def maximise(self, row: Floats, output: Form, seconds: float) -> tuple[float, float]:
        """The largest value found, and a bound of all values."""
        width = len(self.lower)
        matrix, offset = output
        cost = -(_wide(matrix, width).T @ row)
        parts = [_wide(part, width) for part in self.rows]
        constraints = LinearConstraint(
            vstack(parts).tocsr(), np.concatenate(self.least), np.concatenate(self.most)
        )
        found = milp(
            cost,
            integrality=np.array(self.binary, dtype=np.int64),
            bounds=Ends(np.array(self.lower), np.array(self.upper)),
            constraints=constraints if parts else (),
            options={"time_limit": seconds},
        )
        still = float(row @ offset)
        best = -math.inf if found.fun is None else still - float(found.fun)
        bound = getattr(found, "mip_dual_bound", None)
        if bound is None:  # Without binaries it is a linear program, and that has no gap.
            return best, best if found.status == 0 else math.inf
        return best, still - float(bound)


def _wide(matrix: csr_array, width: int) -> csr_array:
    """The same matrix with columns for variables that came later."""
    return csr_array((matrix.data, matrix.indices, matrix.indptr), (matrix.shape[0], width))


@dataclass(frozen=True, slots=True)
class Solved:
    """What the programs say of one query, how long they took, and how many were solved."""

    kind: str
    seconds: float
    programs: int


def solve(query: Query, timeout: float, *, closer: bool = False) -> Solved:
    """Decide a query by one program for each input and constraint, until one is violated.

    Args:
        query: over boxes, of ReLUs.
        timeout: seconds for all of the query's programs together.
        closer: whether ends come from backward bounds instead of interval propagation.
    """
    graph = dense(query.graph)
    ends = _ends(query, graph, closer)
    seconds, programs, open_ = 0.0, 0, False
    for index in range(query.rows.shape[0]):
        started = time.perf_counter()
        program, output = _written(graph, ends, index)
        seconds += time.perf_counter() - started
        for row, offset in _constraints(query, index):
            if seconds >= timeout:
                return Solved("undecided", seconds, programs)
            started = time.perf_counter()
            with _silence():
                best, bound = program.maximise(row, output, timeout - seconds)
            seconds += time.perf_counter() - started
            programs += 1
            if best + offset > TOLERANCE:
                return Solved("refuted", seconds, programs)
            open_ |= bound + offset > TOLERANCE
    return Solved("undecided" if open_ else "proved", seconds, programs)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps what HiGHS prints, though it is told to be quiet, out of the tables."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _constraints(query: Query, index: int) -> Iterator[tuple[Floats, float]]:
    for row, offset in zip(query.rows[index], query.offsets[index], strict=True):
        yield row.double().numpy(), float(offset)


def _ends(query: Query, graph: Graph, closer: bool) -> dict[str, tuple[Floats, Floats]]:
    """Ends of every tensor of the dense graph, for each input of the claim, [k, units]."""
    count = query.rows.shape[0]
    ranges = {
        name: InputRange(box.lower.flatten(1), box.upper.flatten(1))
        for name, box in query.ranges.items()
    }
    bounds = Bounds(Structure(graph, torch.device("cpu")), Region(ranges), count)
    bounds.compute(refine=closer)
    return {
        name: (
            lower.expand(count, -1).double().numpy(),
            upper.expand(count, -1).double().numpy(),
        )
        for name, (lower, upper) in bounds.ends.items()
    }


def _written(
    graph: Graph, ends: dict[str, tuple[Floats, Floats]], index: int
) -> tuple[_Program, Form]:
    """The program of one input, and the output y in its variables."""
    program = _Program()
    forms: dict[str, Form] = {}
    for node in graph.nodes:
        op, given = node.op, [forms[name] for name in node.inputs]
        if isinstance(op, Input):
            lower, upper = (end[index] for end in ends[node.name])
            forms[node.name] = program.variables(lower, upper)
        elif isinstance(op, Constant):
            offset = op.value.double().numpy()
            forms[node.name] = csr_array((len(offset), len(program.lower))), offset
        elif isinstance(op, Linear):
            weight = op.weight.double().numpy()
            matrix, offset = given[0]
            moved = weight @ offset
            if op.bias is not None:
                moved = moved + op.bias.double().numpy()
            forms[node.name] = csr_array(csr_array(weight) @ matrix), moved
        elif isinstance(op, Add):
            forms[node.name] = program.total((1.0, given[0]), (1.0, given[1]))
        elif isinstance(op, ReLU):
            lower, upper = (end[index] for end in ends[node.inputs[0]])
            forms[node.name] = _relu(program, given[0], lower, upper)
        else:
            raise TypeError(f"{op.name} is no part of a mixed-integer program of linear layers")
    return program, forms[graph.outputs[0]]


def _relu(program: _Program, form: Form, lower: Floats, upper: Floats) -> Form:
    """What ReLUs give, with a variable for each that is not shut."""
    matrix, offset = form
    awake = np.flatnonzero(upper > 0)
    if len(awake) == 0:
        return csr_array((len(offset), len(program.lower))), np.zeros(len(offset))
    low, high = lower[awake], upper[awake]
    before = program.variables(low, high)
    program.zero((1.0, (csr_array(matrix[awake]), offset[awake])), (-1.0, before))
    split = np.flatnonzero(low < 0)
    after = before
    if len(split):
        small, large = low[split], high[split]
        read = (csr_array(before[0][split]), before[1][split])
        given = program.variables(np.zeros(len(split)), large)
        choice = program.variables(np.zeros(len(split)), np.ones(len(split)), binary=True)
        program.above_zero((1.0, given), (-1.0, read))
        program.above_zero((1.0, read), (-1.0, given), (small, choice), (1.0, _number(-small)))
        program.above_zero((large, choice), (-1.0, given))
        open_ = np.flatnonzero(low >= 0)
        kept = (csr_array(before[0][open_]), before[1][open_])
        after = program.total(
            (1.0, _placed(kept, open_, len(awake))), (1.0, _placed(given, split, len(awake)))
        )
    return _placed(after, awake, len(offset))


def _number(values: Floats) -> Form:
    """Numbers as linear functions of nothing."""
    return csr_array((len(values), 0)), values


def _placed(form: Form, places: NDArray[np.int64], count: int) -> Form:
    """Rows put at some places of a longer vector, zeros elsewhere."""
    matrix, offset = form
    spread = csr_array(
        (np.ones(len(places)), (places, np.arange(len(places)))), (count, len(places))
    )
    return csr_array(spread @ matrix), spread @ offset
