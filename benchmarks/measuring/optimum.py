"""The exact optimum of what is asked of small networks, by HiGHS through scipy.

Nothing here is this package's: a network is dense numpy arrays, and the optimum is that of a
mixed-integer program written from the definitions, one binary for each unit of either sign,

    a = w x + b,    h >= 0,    h >= a,    h <= a - l (1 - d),    h <= u d,    d = 0 or 1,

whose output is s a + (1 - s) h for the slope s left of zero. The bounds l <= a <= u come from
interval arithmetic, then from the program's own relaxation. A circuit whose removed components are
zero is a second run of the network over the same input, from the first unit in which it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import coo_array

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SURE = 1e-5
"""By how much a bound and the value at its point may differ; thresholds are 1e-3 off."""


@dataclass(frozen=True, eq=False)
class Block:
    """One layer: y = activation(keep * (w x + b) + skip).

    Attributes:
        weight, bias: of the linear map, written out.
        slope: of the activation left of zero; None where there is no activation.
        skip: which block's output is added before the activation; None for no such sum.
    """

    weight: Floats
    bias: Floats
    slope: float | None = 0.0
    skip: int | None = None


Net = Sequence[Block]


def run(net: Net, x: Floats, keep: Sequence[Mask] | None = None) -> list[Floats]:
    """The outputs of every block at x; units that are not kept are zero."""
    found: list[Floats] = []
    for place, block in enumerate(net):
        kept = np.ones(len(block.bias)) if keep is None else keep[place].astype(float)
        x = (block.weight @ x + block.bias) * kept
        if block.skip is not None:
            x = x + found[block.skip]
        if block.slope is not None:
            x = np.where(x > 0, x, block.slope * x)
        found.append(x)
    return found


def unstable(net: Net, lower: Floats, upper: Floats) -> int:
    """How many units interval arithmetic leaves unstable."""
    count = 0
    found: list[tuple[Floats, Floats]] = []
    for block in net:
        up, down = np.maximum(block.weight, 0), np.minimum(block.weight, 0)
        ends = up @ lower + down @ upper + block.bias, up @ upper + down @ lower + block.bias
        if block.skip is not None:
            ends = ends[0] + found[block.skip][0], ends[1] + found[block.skip][1]
        if block.slope is not None:
            count += int(((ends[0] < 0) & (ends[1] > 0)).sum())
            ends = (
                np.where(ends[0] > 0, ends[0], block.slope * ends[0]),
                np.where(ends[1] > 0, ends[1], block.slope * ends[1]),
            )
        lower, upper = ends
        found.append(ends)
    return count


@dataclass(eq=False)
class Program:
    """Variables and rows of a mixed-integer program."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    binary: list[bool] = field(default_factory=list)
    entries: list[tuple[int, int, float]] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def variable(self, lower: float, upper: float, binary: bool = False) -> int:
        """A new variable between two bounds."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.binary.append(binary)
        return len(self.lower) - 1

    def row(self, terms: Sequence[tuple[int, float]], most: float) -> None:
        """The sum of coefficient times variable is at most a number."""
        self.entries.extend((len(self.most), i, v) for i, v in terms if v)
        self.most.append(most)

    def _matrix(self) -> coo_array | None:
        if not self.entries:
            return None
        rows, columns, values = (list(part) for part in zip(*self.entries, strict=True))
        return coo_array((values, (rows, columns)), (len(self.most), len(self.lower)))

    def _cost(self, terms: Sequence[tuple[int, float]]) -> Floats:
        cost = np.zeros(len(self.lower))
        for i, v in terms:
            cost[i] -= v
        return cost

    def relaxed(self, terms: Sequence[tuple[int, float]]) -> float:
        """About the largest value of a linear function where binaries may be fractions."""
        matrix = self._matrix()
        limits = np.stack([self.lower, self.upper], axis=1)
        found = linprog(
            self._cost(terms),
            A_ub=None if matrix is None else matrix.tocsr(),
            b_ub=None if matrix is None else self.most,
            bounds=limits,
        )
        return -float(found.fun) if found.status == 0 else np.inf

    def maximum(self, terms: Sequence[tuple[int, float]], seconds: float) -> tuple[float, Floats]:
        """An upper bound of the maximum, which it meets but for the solver's gap, and its point."""
        matrix = self._matrix()
        found = milp(
            self._cost(terms),
            integrality=np.array(self.binary, dtype=int),
            bounds=Bounds(np.array(self.lower), np.array(self.upper)),
            constraints=[] if matrix is None else LinearConstraint(matrix.tocsr(), ub=self.most),
            options={"mip_rel_gap": 1e-9, "time_limit": seconds},
        )
        if found.status != 0:
            return np.inf, np.zeros(len(self.lower))
        return -float(found.mip_dual_bound), np.asarray(found.x)


Value = tuple[list[tuple[int, float]], float]
"""A linear function of variables: terms and a constant."""


def _written(
    program: Program,
    net: Net,
    inputs: list[Value],
    keep: Sequence[Mask] | None = None,
    twin: list[list[Value]] | None = None,
) -> list[list[Value]]:
    """The outputs of every block as functions of variables; those of ``twin`` where they agree."""
    found: list[list[Value]] = []
    for place, block in enumerate(net):
        before = found[-1] if found else inputs
        shared = [before] if block.skip is None else [before, found[block.skip]]
        same = twin is not None and all(
            p is q
            for mine, theirs in zip(shared, _sources(twin, block, place, inputs), strict=True)
            for p, q in zip(mine, theirs, strict=True)
        )
        outputs: list[Value] = []
        for unit in range(len(block.bias)):
            kept = keep is None or bool(keep[place][unit])
            if kept and same and twin is not None:
                outputs.append(twin[place][unit])
                continue
            value: Value = [], 0.0
            if kept:
                value = _sum(block.weight[unit], before, float(block.bias[unit]))
            if block.skip is not None:
                value = _sum(np.ones(2), [value, found[block.skip][unit]], 0.0)
            outputs.append(value if block.slope is None else _bent(program, value, block.slope))
        found.append(outputs)
    return found


def _sources(
    twin: list[list[Value]], block: Block, place: int, inputs: list[Value]
) -> list[list[Value]]:
    before = twin[place - 1] if place else inputs
    return [before] if block.skip is None else [before, twin[block.skip]]


def _sum(weights: Floats, x: Sequence[Value], constant: float) -> Value:
    total: dict[int, float] = {}
    for weight, (terms, offset) in zip(weights.tolist(), x, strict=True):
        constant += weight * offset
        for i, v in terms:
            total[i] = total.get(i, 0.0) + weight * v
    return list(total.items()), constant


def _bent(program: Program, value: Value, slope: float) -> Value:
    """The activation of a linear function."""
    terms, constant = value
    low = constant + sum(v * (program.lower[i] if v > 0 else program.upper[i]) for i, v in terms)
    high = constant + sum(v * (program.upper[i] if v > 0 else program.lower[i]) for i, v in terms)
    if low < 0 < high:
        high = min(high, program.relaxed(terms) + constant + 1e-6)
        low = max(low, constant - program.relaxed([(i, -v) for i, v in terms]) - 1e-6)
    if low >= 0:
        return value
    if high <= 0:
        return _sum(np.array([slope]), [value], 0.0)
    h, d = program.variable(0.0, high), program.variable(0.0, 1.0, binary=True)
    program.row([*terms, (h, -1.0)], -constant)
    program.row([(h, 1.0), *((i, -v) for i, v in terms), (d, -low)], constant - low)
    program.row([(h, 1.0), (d, -high)], 0.0)
    return _sum(np.array([slope, 1 - slope]), [value, ([(h, 1.0)], 0.0)], 0.0)


def _inputs(program: Program, lower: Floats, upper: Floats) -> list[Value]:
    ends = zip(lower.tolist(), upper.tolist(), strict=True)
    return [([(program.variable(a, b), 1.0)], 0.0) for a, b in ends]


def largest_output(
    net: Net, lower: Floats, upper: Floats, row: Floats, seconds: float
) -> float | None:
    """The maximum of row . y over a box; None if the solver is not sure of it."""
    program = Program()
    outputs = _written(program, net, _inputs(program, lower, upper))[-1]
    terms, constant = _sum(row, outputs, 0.0)
    bound, point = program.maximum(terms, seconds)
    inside = np.clip(point[: len(lower)], lower, upper)
    return _agreed(bound + constant, float(row @ run(net, inside)[-1]))


def largest_difference(
    net: Net, lower: Floats, upper: Floats, keep: Sequence[Mask], seconds: float
) -> float | None:
    """The maximum of |f_C - f_G| over outputs and a box; None if the solver is not sure of it."""
    program = Program()
    x = _inputs(program, lower, upper)
    network = _written(program, net, x)
    circuit = _written(program, net, x, keep, network)
    largest = 0.0
    for place, (f, c) in enumerate(zip(network[-1], circuit[-1], strict=True)):
        for sign in (1.0, -1.0):
            terms, constant = _sum(np.array([sign, -sign]), [c, f], 0.0)
            bound, point = program.maximum(terms, seconds)
            inside = np.clip(point[: len(lower)], lower, upper)
            gap = run(net, inside, keep)[-1] - run(net, inside)[-1]
            found = _agreed(bound + constant, sign * float(gap[place]))
            if found is None:
                return None
            largest = max(largest, found)
    return largest


def _agreed(bound: float, attained: float) -> float | None:
    """The optimum, if bound and point agree to far less than the margins asked about."""
    return attained if abs(bound - attained) < SURE else None
