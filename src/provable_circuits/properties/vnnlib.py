"""VNN-LIB 1.0: what must not happen, as VNN-COMP writes it down.

A file names inputs X_i and outputs Y_i and asserts, about them, everything that makes a
counterexample: bounds on the inputs, and linear constraints on the outputs. ``sat`` means that some
input satisfies all of it, ``unsat`` that none does. Here such a file is a list of cases, of which
one is enough for a counterexample: each a box of inputs and a conjunction

    rows @ y <= bounds,

some of it strictly. Where inputs are related to each other or to outputs, or bounded strictly, y
has the inputs behind the outputs (``related``).

An ``or`` over inputs, outputs or both becomes several cases.

Numbers are decimals, and mean exactly what they say. A float64 mostly cannot hold them, so every
end is kept twice: rounded so that the case is *larger* than written, which serves proofs, and so
that it is *smaller*, which serves counterexamples. Coefficients are held exactly, or refused.

    >>> found = parse_property('''
    ...     (declare-const X_0 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
    ...     (assert (>= X_0 -0.5)) (assert (<= X_0 1e-1))
    ...     (assert (or (and (>= Y_0 Y_1)) (and (<= Y_1 2.0) (>= Y_0 1.0))))
    ... ''')
    >>> found
    Property(1 inputs, 2 outputs, 2 cases)
    >>> found.cases[1].rows.tolist(), found.cases[1].bounds.tolist()
    ([[0.0, 1.0], [-1.0, 0.0]], [2.0, -1.0])
    >>> float(found.cases[0].upper) - float(found.cases[0].inner_upper)
    1.3...e-17
"""

from __future__ import annotations

import gc
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from io import BufferedReader
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError, PropertyError
from provable_circuits.files import write_file
from provable_circuits.network.graph import Graph
from provable_circuits.verify.deadline import Deadline

LARGEST_TEXT = 2**30
"""Characters of a property, unpacked, that are read at most."""

PIECE = 2**24
"""Bytes that are read at once."""

Number = Decimal | Fraction

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The numbers of a case as they are written: no float64 need hold them.

    Attributes:
        lower, upper: the bounds of each input.
        bounds: right-hand sides.
    """

    lower: Sequence[Number]
    upper: Sequence[Number]
    bounds: Sequence[Number]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One way to a counterexample: an x in the box whose y has ``rows @ y <= bounds``.

    Attributes:
        lower, upper: ends [inputs] of the box, rounded outward: it contains the box as written.
        rows: coefficients [constraints, outputs], exact.
        bounds: right-hand sides [constraints], rounded up.
        inner_lower, inner_upper: the bounds rounded inward. Where a decimal that float64 does not
            hold is given as both bounds, they cross: the box has points there, but none in float64.
        inner_bounds: right-hand sides rounded down.
        strict: the constraints that exclude their ends, by number.
    """

    lower: Tensor
    upper: Tensor
    rows: Tensor
    bounds: Tensor
    inner_lower: Tensor
    inner_upper: Tensor
    inner_bounds: Tensor
    strict: frozenset[int] = field(default=frozenset(), kw_only=True)

    @classmethod
    def exact(cls, lower: Tensor, upper: Tensor, rows: Tensor, bounds: Tensor) -> Case:
        """A case whose numbers are float64 themselves."""
        return cls(lower, upper, rows, bounds, lower, upper, bounds)

    @property
    def numbers(self) -> Numbers:
        """The numbers as they are written: those of float64, unless ``WrittenCase`` has others."""
        subdomains = (self.lower, self.upper, self.bounds)
        return Numbers(*([Fraction(value) for value in part.tolist()] for part in subdomains))


@dataclass(frozen=True, slots=True, eq=False)
class WrittenCase(Case):
    """A case that was read from a file.

    Attributes:
        written: its numbers, none of them rounded.
    """

    written: Numbers

    @property
    def numbers(self) -> Numbers:
        """The numbers of the file."""
        return self.written


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Property:
    """What must not happen: any of ``cases``, over flat inputs and outputs.

    Attributes:
        inputs, outputs: how many there are.
        cases: each of them is enough.
        related: whether rows have a column for each input behind those of the outputs.
    """

    inputs: int
    outputs: int
    cases: tuple[Case, ...]
    related: bool = False

    def __repr__(self) -> str:
        return f"Property({self.inputs} inputs, {self.outputs} outputs, {len(self.cases)} cases)"

    def check(self, graph: Graph) -> None:
        """Refuse a network of other sizes."""
        for what, mine, shape in (
            ("inputs", self.inputs, graph.input_shape),
            ("outputs", self.outputs, graph.output_shape),
        ):
            if mine != math.prod(shape):
                raise PropertyError(
                    f"The property is about {mine} {what}, the network has {math.prod(shape)}: "
                    "give the network that it was written for."
                )


def read_property(path: str | PathLike[str], deadline: Deadline | None = None) -> Property:
    """Read a VNN-LIB file, gzipped or not.

    Args:
        path: the file.
        deadline: when to stop reading; None for never.

    Raises:
        PropertyError: the file is missing, damaged, malformed or contradictory.
        OutOfTime: the deadline has passed.
    """
    if not isinstance(path, str | PathLike):
        raise ArgumentError(
            f"The 'path' parameter must be the name of a VNN-LIB file. Got {path!r} instead."
        )
    place = Path(path)
    if place.is_dir():
        raise PropertyError(f"'{place}' is a folder; give the path of the VNN-LIB file inside it.")
    try:
        with place.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        opened = gzip.open(place, "rb") if packed else place.open("rb")  # noqa: SIM115
        with opened as file:
            data = _read(file, deadline)
    except FileNotFoundError:
        raise PropertyError(f"There is no file '{place}'; give a VNN-LIB property.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise PropertyError(
            f"The file '{place}' is packed with gzip but cut short or damaged; copy it again."
        ) from None
    except (OSError, ValueError) as error:
        raise PropertyError(f"The file '{place}' cannot be read: {error}.") from error
    if len(data) > LARGEST_TEXT:
        raise PropertyError(
            f"The file '{place}' is too large: {LARGEST_TEXT:,} bytes are the most."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PropertyError(f"The file '{place}' is not text; give a VNN-LIB property.") from None
    return parse_property(text, str(place), deadline)


def _read(file: gzip.GzipFile | BufferedReader, deadline: Deadline | None) -> bytes:
    """All bytes, or more than are allowed; in pieces, between which time may run out."""
    data = bytearray()
    while len(data) <= LARGEST_TEXT and (piece := file.read(PIECE)):
        data += piece
        if deadline is not None:
            deadline.check()
    return bytes(data)


def parse_property(
    text: str, name: str = "the property", deadline: Deadline | None = None
) -> Property:
    """Read VNN-LIB text; ``name`` is what errors call it, ``deadline`` when reading stops."""
    from provable_circuits.properties.vnnlib_reader import Reader

    with _uncollected():
        return Reader(text, name, deadline).read()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector of cycles: it takes half of the time to walk what has none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def write_property(
    question: Property, path: str | PathLike[str], comment: Sequence[str] = ()
) -> None:
    """Write a property as a VNN-LIB file, gzipped if its name ends in ``.gz``."""
    data = property_text(question, comment).encode()
    place = Path(path)
    if place.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        write_file(place, data)
    except OSError as error:
        raise PropertyError(f"The file '{path}' cannot be written: {error}.") from error


def property_text(question: Property, comment: Sequence[str] = ()) -> str:
    """A property as VNN-LIB text.

    Each number is written as the decimal that it is, to the last digit and without an exponent, so
    that readers of every kind (those that round to nearest, in float64 or float32; those that round
    outward; those that compute with rationals) read the same number. The outward ends are written.
    """
    lines = [f"; {line}" for line in comment]
    for kind, count in (("X", question.inputs), ("Y", question.outputs)):
        lines += [f"(declare-const {kind}_{i} Real)" for i in range(count)]
    first = question.cases[0]
    if all(_same_box(case, first) for case in question.cases):
        lines += [f"(assert {atom})" for atom in _box_atoms(first)]
        ways = [_row_atoms(case, question.outputs) for case in question.cases]
    else:
        ways = [[*_box_atoms(case), *_row_atoms(case, question.outputs)] for case in question.cases]
    if not all(ways):
        ways = []  # a case without constraints on outputs: any input of the box will do
    if len(ways) == 1:
        lines += [f"(assert {atom})" for atom in ways[0]]
    elif ways:
        lines += ["(assert (or", *(f"    (and {' '.join(way)})" for way in ways), "))"]
    return "\n".join(lines) + "\n"


def _same_box(one: Case, other: Case) -> bool:
    if one.lower is other.lower and one.upper is other.upper:
        return True
    return torch.equal(one.lower, other.lower) and torch.equal(one.upper, other.upper)


def _box_atoms(case: Case) -> list[str]:
    ends = zip(case.lower.tolist(), case.upper.tolist(), strict=True)
    return [
        atom
        for i, (lower, upper) in enumerate(ends)
        for atom in (f"(>= X_{i} {decimal_text(lower)})", f"(<= X_{i} {decimal_text(upper)})")
    ]


def _row_atoms(case: Case, outputs: int) -> list[str]:
    def name(column: int) -> str:
        return f"Y_{column}" if column < outputs else f"X_{column - outputs}"

    pairs = zip(case.rows.tolist(), case.bounds.tolist(), strict=True)
    return [
        _row_text(
            {name(i): value for i, value in enumerate(row) if value}, bound, number in case.strict
        )
        for number, (row, bound) in enumerate(pairs)
    ]


def _row_text(row: Mapping[str, float], bound: float, strict: bool) -> str:
    """One constraint, in the forms that every tool of VNN-COMP reads where it has one of them."""
    end = "" if strict else "="
    if sorted(row.values()) == [-1.0, 1.0] and bound == 0:
        less, more = sorted(row, key=lambda name: -row[name])
        return f"(<{end} {less} {more})"
    if len(row) == 1:
        ((name, value),) = row.items()
        if value == 1.0:
            return f"(<{end} {name} {decimal_text(bound)})"
        if value == -1.0:
            return f"(>{end} {name} {decimal_text(-bound)})"
    terms = [f"(* {decimal_text(value)} {name})" for name, value in row.items()]
    total = terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"
    return f"(<{end} {total} {decimal_text(bound)})"


def decimal_text(value: float) -> str:
    """A finite number as the decimal that it is.

    >>> decimal_text(0.1)
    '0.1000000000000000055511151231257827021181583404541015625'
    >>> decimal_text(-2.0), decimal_text(1e22), decimal_text(-0.0)
    ('-2.0', '10000000000000000000000.0', '0.0')
    """
    if not math.isfinite(value):
        raise ArgumentError(f"A property holds finite numbers. Got {value} instead.")
    text = format(Decimal(value + 0.0), "f")
    return text if "." in text else f"{text}.0"
