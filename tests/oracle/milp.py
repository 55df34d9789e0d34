"""The exact maximum of a metric's excess, by mixed-integer programming, from the definitions.

One variable for every unit of the network's run at z, of the circuit's run at z and, for Reachable
patching, of the network's run at z'. A ReLU whose sign is open has one binary variable, with big-M
constants from plain interval arithmetic. Where a run computes the same thing from the same values
as the network's run, it is the same variable.

    maximise  t   with  t <= rows_i . y + M (1 - b_i),   sum b_i = 1,    b binary

picks the worst of a metric's linear constraints; the 1-norm takes a binary for each sign.
Disc-shaped regions (2-norm, two inputs that move) and the 2-norm of two outputs are enclosed from
both sides by polygons, so the answer is a pair of numbers around the truth, equal where everything
is polyhedral.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from tests.oracle.network import INPUT, Network
from tests.oracle.regions import Floats, Region

Indices = NDArray[np.int64]
Patch = Mapping[int, Floats] | Region | Mapping[int, tuple[Floats, Floats]]
"""Fixed values by step; or the region of z' for Reachable; or boxes by step for IntervalHull."""

NODES = 20_000
"""Nodes after which a program counts as too hard for the solver."""

SIDES = 96
"""Sides of a polygon that stands for a disc: it is off by the factor cos(pi / 96) = 1 - 5.4e-4."""


@dataclass(eq=False)
class Program:
    """A mixed-integer program, written row by row; ``slack`` is by how much ends are enlarged."""

    slack: float = 1e-3
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[int] = field(default_factory=list)
    entries: list[tuple[int, int, float]] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def variables(self, lower: Floats, upper: Floats, integer: bool = False) -> Indices:
        """New variables between the given ends."""
        start = len(self.lower)
        self.lower.extend(np.asarray(lower, dtype=float).tolist())
        self.upper.extend(np.asarray(upper, dtype=float).tolist())
        self.integer.extend([int(integer)] * (len(self.lower) - start))
        return np.arange(start, len(self.lower))

    def binary(self) -> int:
        """A new variable that is 0 or 1."""
        return int(self.variables(np.zeros(1), np.ones(1), integer=True)[0])

    def row(
        self, terms: Sequence[tuple[int, float]], least: float = -np.inf, most: float = np.inf
    ) -> None:
        """least <= sum of coefficient * variable <= most."""
        number = len(self.least)
        self.entries.extend((number, int(index), float(value)) for index, value in terms if value)
        self.least.append(least)
        self.most.append(most)

    def range_of(self, terms: Sequence[tuple[int, float]]) -> tuple[float, float]:
        """Ends of a linear function over the variables' ends."""
        low = sum(v * (self.lower[i] if v > 0 else self.upper[i]) for i, v in terms)
        high = sum(v * (self.upper[i] if v > 0 else self.lower[i]) for i, v in terms)
        return low, high

    def maximise(
        self, index: int, nodes: int, presolves: Sequence[bool] = (True, False)
    ) -> Floats | None:
        """The variables at the maximum of one of them; None if the nodes ran out."""
        cost = np.zeros(len(self.lower))
        cost[index] = -1.0
        rows, columns, values = (list(part) for part in zip(*self.entries, strict=True))
        matrix = coo_array((values, (rows, columns)), (len(self.least), len(self.lower)))
        for presolve in presolves:  # now and then presolve loses its way
            answer = milp(
                cost,
                integrality=self.integer,
                bounds=Bounds(np.array(self.lower), np.array(self.upper)),
                constraints=LinearConstraint(matrix.tocsr(), self.least, self.most),
                options={"mip_rel_gap": 1e-7, "node_limit": nodes, "presolve": presolve},
            )
            if answer.status == 0:
                return np.asarray(answer.x)
            if answer.status == 1:
                break  # out of nodes
        return None


@dataclass(frozen=True, eq=False)
class Optimum:
    """Numbers around the largest excess, and where the lower one is attained."""

    attained: float
    bound: float
    z: Floats
    source: Floats | None
    patch: dict[int, Floats]


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked: the largest excess, at tolerance zero, over one region.

    ``metric`` is one of: ``("rows", matrix)``, the largest entry of matrix @ (f_C - f_G);
    ``("circuit", matrix)``, the same of f_C alone; ``("norm1",)``; ``("norm2",)``.
    """

    net: Network
    removed: Mapping[int, NDArray[np.bool_]]
    region: Region
    patch: Patch
    metric: tuple[str, Floats] | tuple[str]


def solve(
    question: Question, nodes: int = NODES, presolves: Sequence[bool] = (True, False)
) -> Optimum | None:
    """The optimum, or None if the solver ran out of nodes."""
    round_ = question.region.is_round or question.metric[0] == "norm2"
    round_ = round_ or (isinstance(question.patch, Region) and question.patch.is_round)
    inner = _first(question, False, nodes, presolves)
    if inner is None:
        return None
    attained, z, source, patch = inner
    bound = attained
    if round_:
        outer = _first(question, True, nodes, presolves)
        if outer is None:
            return None
        bound = outer[0]
    return Optimum(attained, bound, z, source, patch)


Found = tuple[float, Floats, Floats | None, dict[int, Floats]]


def _first(question: Question, outer: bool, nodes: int, presolves: Sequence[bool]) -> Found | None:
    """The first answer: now and then the solver calls its own optimum infeasible by a hair."""
    for slack in (1e-3, 3e-2):
        found = _solve(question, outer, nodes, slack, presolves)
        if found is not None:
            return found
    return None


def _solve(
    question: Question, outer: bool, nodes: int, slack: float, presolves: Sequence[bool]
) -> Found | None:
    net, patch = question.net, question.patch
    program = Program(slack=slack)
    z = _input(program, question.region, outer)
    ends = question.region.ends
    plain = net.intervals(*ends)
    network = _run(program, net, z, plain, {}, {}, {})
    source: Indices | None = None
    patched: dict[int, Indices] = {}
    patch_ends: dict[int, tuple[Floats, Floats]] = {}
    if isinstance(patch, Region):
        source = _input(program, patch, outer)
        boxes = net.intervals(*patch.ends)
        run = _run(program, net, source, boxes, {}, {}, {})
        patched = {i: run[i] for i in question.removed}
        patch_ends = {i: boxes[i] for i in question.removed}
    else:
        for i in question.removed:
            value = patch[i]
            low, high = value if isinstance(value, tuple) else (value, value)
            patched[i] = program.variables(low, high)
            patch_ends[i] = (low, high)
    around = net.intervals(*ends, question.removed, patch_ends)
    circuit = _run(program, net, z, around, question.removed, patched, dict(enumerate(network)))
    goal = _metric(program, question.metric, network[-1], circuit[-1], outer)
    found = program.maximise(goal, nodes, presolves)
    if found is None:
        return None
    largest = float(found[goal])
    if question.metric[0] == "norm2" and outer:
        largest /= math.cos(math.pi / SIDES)
    patches = {i: found[v] for i, v in patched.items()}
    return largest, found[z], None if source is None else found[source], patches


def _input(program: Program, region: Region, outer: bool) -> Indices:
    lower, upper = region.ends
    z = program.variables(lower, upper)
    if region.p == 1:
        moved = program.variables(np.zeros(len(z)), np.maximum(upper, -lower) + abs(region.center))
        for i, m, c in zip(z, moved, region.center, strict=True):
            program.row([(m, 1.0), (i, -1.0)], least=-c)
            program.row([(m, 1.0), (i, 1.0)], least=c)
        program.row([(m, 1.0) for m in moved], most=region.eps)
    elif region.p == 2:
        for normal, most in region.directions(outer, SIDES):
            terms = [(i, v) for i, v in zip(z, normal, strict=True) if v]
            program.row(terms, most=most + float(normal @ region.center))
    return z


def _run(
    program: Program,
    net: Network,
    z: Indices,
    ends: Sequence[tuple[Floats, Floats]],
    removed: Mapping[int, NDArray[np.bool_]],
    patched: Mapping[int, Indices],
    twin: Mapping[int, Indices],
) -> list[Indices]:
    """Variables of every step of one run; those of ``twin`` where nothing differs from it."""
    values: list[Indices] = []
    for place, step in enumerate(net.steps):
        given = [z if i == INPUT else values[i] for i in step.inputs]
        same = place in twin and all(i == INPUT or values[i] is twin[i] for i in step.inputs)
        if same:
            value = twin[place]
        else:
            before = [None if i == INPUT else ends[i] for i in step.inputs]
            value = _step(program, net, place, given, before, ends[place], removed.get(place))
        if place in removed:
            value = np.where(removed[place], patched[place], value)
        values.append(value)
    return values


def _step(
    program: Program,
    net: Network,
    place: int,
    given: Sequence[Indices],
    before: Sequence[tuple[Floats, Floats] | None],
    ends: tuple[Floats, Floats],
    gone: NDArray[np.bool_] | None,
) -> Indices:
    step = net.steps[place]
    # A removed unit's ends are its patch's, which do not bound what the step computes there; the
    # value is not used, so any ends that admit one will do.
    slack = program.slack * (1 + np.maximum(abs(ends[0]), abs(ends[1])))
    lower, upper = ends[0] - slack, ends[1] + slack
    if gone is not None:
        lower, upper = np.where(gone, -np.inf, lower), np.where(gone, np.inf, upper)
    out = program.variables(lower, upper)
    skip = np.zeros(step.size, dtype=bool) if gone is None else gone
    for unit in (~skip).nonzero()[0]:
        y = int(out[unit])
        if step.kind == "affine":
            if step.matrix is None or step.vector is None:
                raise ValueError("an affine step has a matrix and a vector")
            weights = step.matrix[unit]
            terms = [(int(i), float(w)) for i, w in zip(given[0], weights, strict=True) if w]
            bias = float(step.vector[unit])
            program.row([(y, -1.0), *terms], least=-bias, most=-bias)
        elif step.kind == "add":
            program.row([(y, -1.0), (int(given[0][unit]), 1.0), (int(given[1][unit]), 1.0)], 0, 0)
        elif step.kind == "max":
            places = [int(given[0][i]) for i in step.windows[unit]]
            chosen = []
            for x in places:
                program.row([(y, 1.0), (x, -1.0)], least=0)
                pick = program.binary()
                room = float(upper[unit]) - program.lower[x]
                program.row([(y, 1.0), (x, -1.0), (pick, room)], most=room)
                chosen.append(pick)
            program.row([(pick, 1.0) for pick in chosen], 1, 1)
        else:
            x = int(given[0][unit])
            _relu(program, x, y, program.lower[x], program.upper[x], step.slope)
    return out


def _relu(program: Program, x: int, y: int, low: float, high: float, slope: float) -> None:
    """y = max(x, slope x), for slope in [0, 1)."""
    if low >= 0:
        program.row([(y, 1.0), (x, -1.0)], 0, 0)
        return
    if high <= 0:
        program.row([(y, 1.0), (x, -slope)], 0, 0)
        return
    on = program.binary()
    program.row([(y, 1.0), (x, -1.0)], least=0)
    program.row([(y, 1.0), (x, -slope)], least=0)
    # on: y <= x;  off: y <= slope x. Each is slack by the most that the other may need.
    rest = 1 - slope
    program.row([(y, 1.0), (x, -1.0), (on, -low * rest)], most=-low * rest)
    program.row([(y, 1.0), (x, -slope), (on, -high * rest)], most=0)


def _metric(
    program: Program,
    metric: tuple[str, Floats] | tuple[str],
    network: Indices,
    circuit: Indices,
    outer: bool,
) -> int:
    """A variable that is at most the excess, and can reach it."""
    outputs = len(circuit)
    if metric[0] == "norm1":
        sizes = []
        for f, c in zip(network, circuit, strict=True):
            difference = [(int(c), 1.0), (int(f), -1.0)] if c != f else []
            low, high = program.range_of(difference)
            room = 2 * max(abs(low), abs(high)) + 1
            size = int(program.variables(np.zeros(1), np.array([room]))[0])
            sign = program.binary()
            negative = [(i, -v) for i, v in difference]
            program.row([(size, 1.0), *negative, (sign, room)], most=room)
            program.row([(size, 1.0), *difference, (sign, -room)], most=0)
            sizes.append(size)
        most = sum(program.upper[size] for size in sizes)
        goal = int(program.variables(np.zeros(1), np.array([most]))[0])
        program.row([(goal, 1.0), *((size, -1.0) for size in sizes)], 0, 0)
        return goal
    if metric[0] == "norm2":
        if outputs != 2:
            raise ValueError("the 2-norm is enclosed for two outputs")
        angles = 2 * np.pi * np.arange(SIDES) / SIDES
        rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    elif len(metric) == 2:
        rows = metric[1]
    else:
        raise ValueError(f"the metric {metric[0]!r} has no rows")
    expressions = []
    for row in rows:
        terms = [(int(c), float(v)) for c, v in zip(circuit, row, strict=True) if v]
        if metric[0] != "circuit":
            terms += [(int(f), -float(v)) for f, v in zip(network, row, strict=True) if v]
        expressions.append(_collected(terms))
    ranges = [program.range_of(terms) for terms in expressions]
    best = max(high for _, high in ranges) + 1
    least = min(low for low, _ in ranges) - 1
    goal = int(program.variables(np.array([least]), np.array([best]))[0])
    picks = []
    for terms, (low, _) in zip(expressions, ranges, strict=True):
        pick = program.binary()
        room = best - low + 1
        program.row([(goal, 1.0), *((i, -v) for i, v in terms), (pick, room)], most=room)
        picks.append(pick)
    program.row([(pick, 1.0) for pick in picks], 1, 1)
    return goal


def _collected(terms: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Terms of the same variable added up: a shared variable may appear on both sides."""
    total: dict[int, float] = {}
    for index, value in terms:
        total[index] = total.get(index, 0.0) + value
    return [(index, value) for index, value in total.items() if value]
