"""From the atoms of a VNN-LIB property to its cases.

An atom bounds one input, or a linear function of outputs and inputs. Each case is one choice of an
alternative from every ``or``: a box from its atoms on inputs, rows from its other atoms. All
numbers are exact until here, and are rounded once: down and up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import torch
from torch import Tensor

from provable_circuits.errors import PropertyError
from provable_circuits.properties.vnnlib import Case, Number, Numbers, WrittenCase
from provable_circuits.verify.deadline import Deadline

MOST_CASES = 200_000
MOST_WORK = 20_000_000
"""Cases, and constraints met while cases are made, beyond which a property is refused."""

STEPS_BETWEEN_CHECKS = 512
"""Steps of reading, each of microseconds, between looks at the clock."""


@dataclass(frozen=True, slots=True)
class End:
    """An input atom: X_i is at least, or at most, a number."""

    variable: int
    upper: bool
    value: Number
    start: int


@dataclass(frozen=True, slots=True)
class Row:
    """A sum over outputs and inputs is at most a number, or below it.

    Attributes:
        coefficients: i stands for output i, and -1 - i for input i.
        bound: the number.
        start: where in the text it is.
        strict: whether the sum is below it.
    """

    coefficients: Mapping[int, Fraction]
    bound: Fraction
    start: int
    strict: bool = False

    @property
    def related(self) -> bool:
        """Whether it is about inputs."""
        return any(i < 0 for i in self.coefficients)


Atom = End | Row
Branch = list[Atom]


class Source:
    """The text that is read: says where in it something is wrong, and limits the work it makes.

    Args:
        text: the text.
        name: what errors call it.
        deadline: when to stop reading.
    """

    def __init__(self, text: str, name: str, deadline: Deadline | None = None) -> None:
        self.text = text
        self.name = name
        self._deadline = deadline or Deadline()
        self._work = 0
        self._steps = 0

    def error(self, start: int, sentence: str) -> PropertyError:
        """An error that says where."""
        line = self.text.count("\n", 0, start) + 1
        column = start - self.text.rfind("\n", 0, start)
        return PropertyError(f"{self.name}, line {line}, column {column}: {sentence}")

    def step(self) -> None:
        """Count one step of reading; stop if the time has passed, which every some steps show."""
        self._steps += 1
        if not self._steps % STEPS_BETWEEN_CHECKS:
            self._deadline.check()

    def spend(self, work: int, start: int) -> None:
        """Count work, and refuse a property that multiplies out to too much."""
        self._work += work
        if self._work >= MOST_WORK:
            raise self.error(
                start, f"this multiplies out to too many cases; {MOST_CASES:,} are the most."
            )


@dataclass(slots=True)
class _Ends:
    """The ends of a box as written, by variable."""

    lower: dict[int, End]
    upper: dict[int, End]

    def tighten(self, atoms: Sequence[Atom]) -> set[int]:
        """Take in more ends; returns the variables named."""
        named = set()
        for atom in atoms:
            if isinstance(atom, Row):
                continue
            named.add(atom.variable)
            known = self.upper if atom.upper else self.lower
            before = known.get(atom.variable)
            if before is None or _above(*((before, atom) if atom.upper else (atom, before))):
                known[atom.variable] = atom
        return named


@dataclass(frozen=True, slots=True, eq=False)
class _Box:
    """The bounds of a box: lower, upper, inner lower and inner upper ones; and as written."""

    ends: tuple[Tensor, Tensor, Tensor, Tensor]
    written: tuple[Sequence[Number], Sequence[Number]]


def _above(one: End, other: End) -> bool:
    if isinstance(one.value, Decimal) and isinstance(other.value, Decimal):
        return one.value > other.value
    return Fraction(one.value) > Fraction(other.value)


class Cases:
    """Multiplies a property's alternatives out."""

    def __init__(
        self,
        source: Source,
        always: Branch,
        choices: Sequence[Sequence[Branch]],
        inputs: int,
        outputs: int,
    ) -> None:
        self.source = source
        self.choices = choices
        self.inputs = inputs
        self.outputs = outputs
        self.base = _Ends({}, {})
        self.base.tighten(always)
        self.rows = [atom for atom in always if isinstance(atom, Row)]
        branches = (branch for choice in choices for branch in choice)
        others = (atom for branch in branches for atom in branch if isinstance(atom, Row))
        self.related = any(atom.related for atom in (*self.rows, *others))
        """Whether rows have columns for inputs."""

    def made(self) -> tuple[Case, ...]:
        """The cases, in the order of the text."""
        source, choices = self.source, self.choices
        if math.prod(map(len, choices)) > MOST_CASES:
            source.spend(MOST_WORK, choices[-1][0][0].start)
        self._check(self.base, set(self.base.lower), combined=False)
        shared = None
        cases = []
        for branches in product(*choices):
            source.step()
            atoms = [atom for branch in branches for atom in branch]
            rows = [*self.rows, *(atom for atom in atoms if isinstance(atom, Row))]
            source.spend(len(rows), rows[-1].start if rows else 0)
            if any(isinstance(atom, End) for atom in atoms):
                ends = _Ends(dict(self.base.lower), dict(self.base.upper))
                if not self._check(ends, ends.tighten(atoms), combined=len(branches) > 1):
                    continue
                source.spend(self.inputs, atoms[0].start)
                box = self._box(ends)
            else:
                shared = box = shared or self._box(self.base)
            cases.append(self._case(box, rows))
        if not cases:
            raise PropertyError(f"{source.name} contradicts itself: no input fits any of it.")
        return tuple(cases)

    def _check(self, ends: _Ends, variables: set[int], combined: bool) -> bool:
        """Whether a box has points; an empty one is refused, unless several ``or`` made it."""
        for i in variables:
            lower, upper = ends.lower.get(i), ends.upper.get(i)
            if lower is not None and upper is not None and _above(lower, upper):
                if combined:
                    return False
                raise self.source.error(
                    max(lower.start, upper.start),
                    f"the bounds of X_{i} contradict each other: at least {_decimal(lower)} and at "
                    f"most {_decimal(upper)}.",
                )
        return True

    def _box(self, ends: _Ends) -> _Box:
        for i in range(self.inputs):
            for what, known in (("lower", ends.lower), ("upper", ends.upper)):
                if i not in known:
                    raise PropertyError(
                        f"{self.source.name} gives X_{i} no {what} bound: every input needs both."
                    )
        lower = [self._floats(ends.lower[i]) for i in range(self.inputs)]
        upper = [self._floats(ends.upper[i]) for i in range(self.inputs)]
        columns = np.array((*zip(*lower, strict=True), *zip(*upper, strict=True)))
        low, inner_low, inner_high, high = torch.from_numpy(columns)
        written = (
            tuple(ends.lower[i].value for i in range(self.inputs)),
            tuple(ends.upper[i].value for i in range(self.inputs)),
        )
        return _Box((low, high, inner_low, inner_high), written)

    def _floats(self, end: End) -> tuple[float, float]:
        try:
            return _around(end.value)
        except OverflowError:
            raise self.source.error(
                end.start, f"the bound of X_{end.variable} is out of the range of float64."
            ) from None

    def _case(self, box: _Box, atoms: Sequence[Row]) -> Case:
        rows = np.zeros((len(atoms), self.outputs + (self.inputs if self.related else 0)))
        bounds = np.zeros((2, len(atoms)))
        written: list[Number] = []
        for i, atom in enumerate(atoms):
            coefficients, bound = self._exact(atom)
            columns = [j if j >= 0 else self.outputs - 1 - j for j in coefficients]
            rows[i, columns] = list(coefficients.values())
            written.append(bound)
            try:
                bounds[:, i] = _around(bound)
            except OverflowError:
                raise self.source.error(
                    atom.start, "a number here is out of the range of float64."
                ) from None
        lower, upper, inner_lower, inner_upper = box.ends
        inner_bounds, outer_bounds = torch.from_numpy(bounds)
        return WrittenCase(
            lower,
            upper,
            torch.from_numpy(rows),
            outer_bounds,
            inner_lower,
            inner_upper,
            inner_bounds,
            Numbers(*box.written, written),
            strict=frozenset(i for i, atom in enumerate(atoms) if atom.strict),
        )

    def _exact(self, atom: Row) -> tuple[dict[int, float], Fraction]:
        """The constraint with coefficients that float64 holds, multiplied through if need be."""
        values = atom.coefficients
        found = _held(values)
        if found is not None:
            return found, atom.bound
        factor = Fraction(
            math.lcm(*(value.denominator for value in values.values())),
            math.gcd(*(value.numerator for value in values.values())),
        )
        found = _held({i: value * factor for i, value in values.items()})
        if found is None:
            raise self.source.error(
                atom.start,
                "a coefficient here has more digits than float64 holds; write it with 15 at most.",
            )
        return found, atom.bound * factor


def _held(values: Mapping[int, Fraction]) -> dict[int, float] | None:
    """The same numbers in float64, if it holds all of them."""
    try:
        floats = {i: float(value) for i, value in values.items()}
    except OverflowError:
        return None
    return floats if all(Fraction(floats[i]) == value for i, value in values.items()) else None


def _around(value: Number) -> tuple[float, float]:
    """The float64 at or next below a number, and the one at or next above it."""
    near = float(value)
    if math.isinf(near):
        raise OverflowError
    exact = Decimal(near) if isinstance(value, Decimal) else Fraction(near)
    if exact == value:
        return near, near
    if exact > value:
        return math.nextafter(near, -math.inf), near
    return near, math.nextafter(near, math.inf)


def _decimal(end: End) -> str:
    return str(end.value) if isinstance(end.value, Decimal) else f"{float(end.value):g}"
