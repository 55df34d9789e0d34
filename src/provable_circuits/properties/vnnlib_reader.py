"""The reader of VNN-LIB text: from characters to a ``Property``.

    text -> lists in parentheses -> alternatives of atoms -> cases

An atom bounds one input, or a linear function of outputs and inputs. An equality is two of them; a
strict bound of an input is one that includes its end, and a strict row besides. A formula becomes
alternatives, each a conjunction of atoms, by multiplying ``and`` out over ``or``. Arithmetic is in
exact fractions, and rounded once, at the end. No function here calls itself, so nesting may be of
any depth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from fractions import Fraction

from provable_circuits.errors import PropertyError
from provable_circuits.properties.vnnlib import Property
from provable_circuits.properties.vnnlib_cases import (
    MOST_CASES,
    MOST_WORK,
    Branch,
    Cases,
    End,
    Row,
    Source,
)
from provable_circuits.verify.deadline import Deadline

MOST_BITS = 100_000
"""Binary digits of an exact number beyond which it is refused."""

MOST_DIGITS = 10_000
"""Characters of a written number beyond which it is refused."""

_TOKEN = re.compile(r"[()]|[^\s();]+|;[^\n]*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_VARIABLE = re.compile(r"([XY])_(0|[1-9]\d{0,8})", re.ASCII)
_NEWER = frozenset({"vnnlib-version", "declare-network", "declare-input", "declare-output"})
_COMPARISONS = ("<=", ">=", "<", ">", "=")
_IGNORED = frozenset({"set-logic", "set-info", "set-option", "check-sat", "get-model", "exit"})

Item = tuple[int, "str | list[Item]"]
"""A word or a list in parentheses, behind the place in the text where it starts."""


@dataclass(slots=True)
class _Frame:
    """An ``and`` or ``or`` that is being read: what is left of it, and its branches so far."""

    operator: str
    pending: list[Item]
    branches: list[Branch]


@dataclass(slots=True)
class _Linear:
    """``constant`` plus a sum over variables, by name."""

    constant: Fraction
    terms: dict[str, Fraction]


class Reader:
    """One property while it is read.

    Args:
        text: the text.
        name: what errors call it.
        deadline: when to stop reading.
    """

    def __init__(self, text: str, name: str, deadline: Deadline | None = None) -> None:
        self.source = Source(text, name, deadline)
        self.declared: dict[str, set[int]] = {"X": set(), "Y": set()}
        self.always: Branch = []
        self.choices: list[list[Branch]] = []

    def read(self) -> Property:
        """The property.

        Raises:
            PropertyError: the text is malformed or contradictory.
            OutOfTime: the deadline has passed.
        """
        for form in self._forms():
            self._command(form)
        sizes = {kind: self._count(kind) for kind in ("X", "Y")}
        if sizes["X"] == 0:
            raise PropertyError(f"{self.source.name} declares no inputs: (declare-const X_0 Real).")
        cases = Cases(self.source, self.always, self.choices, sizes["X"], sizes["Y"])
        return Property(sizes["X"], sizes["Y"], cases.made(), cases.related)

    def _forms(self) -> Iterator[tuple[int, list[Item]]]:
        """The lists in parentheses at the top, one after the other."""
        open_: list[tuple[int, list[Item]]] = []
        for match in _TOKEN.finditer(self.source.text):
            self.source.step()
            token = match.group()
            if token == "(":
                open_.append((match.start(), []))
            elif token == ")":
                if not open_:
                    raise self.source.error(match.start(), "there is a ')' without its '('.")
                done = open_.pop()
                if open_:
                    open_[-1][1].append(done)
                else:
                    yield done
            elif token[0] == ";":
                continue
            elif open_:
                open_[-1][1].append((match.start(), token))
            else:
                raise self.source.error(
                    match.start(), f"{_shown(token)} stands outside of parentheses."
                )
        if open_:
            raise self.source.error(
                open_[-1][0], "this '(' is never closed; is the file cut short?"
            )

    def _command(self, form: tuple[int, list[Item]]) -> None:
        start, items = form
        head = items[0][1] if items else None
        if not isinstance(head, str):
            raise self.source.error(start, "a command such as (assert ...) was expected.")
        if head == "assert":
            if len(items) != 2:
                raise self.source.error(
                    start, f"'assert' takes one formula. Got {len(items) - 1} instead."
                )
            self._assert(items[1])
        elif head in ("declare-const", "declare-fun"):
            self._declare(start, items)
        elif head in _NEWER:
            raise self.source.error(
                start, f"'{head}' belongs to VNN-LIB 2.0; give the property in VNN-LIB 1.0."
            )
        elif head not in _IGNORED:
            raise self.source.error(start, f"{_shown(head)} is no command of VNN-LIB known here.")

    def _declare(self, start: int, items: Sequence[Item]) -> None:
        words = [item[1] for item in items]
        if words[0] == "declare-fun" and len(words) == 4 and words[2] == []:
            del words[2]
        name = words[1] if len(words) == 3 else None
        match = _VARIABLE.fullmatch(name) if isinstance(name, str) else None
        if match is None or words[2] != "Real":
            raise self.source.error(
                start, "a declaration was expected, such as (declare-const X_0 Real) for an input."
            )
        kind, index = match[1], int(match[2])
        if index in self.declared[kind]:
            raise self.source.error(start, f"{name} is declared twice.")
        self.declared[kind].add(index)

    def _count(self, kind: str) -> int:
        """How many variables of a kind there are; they must be numbered from 0 without gaps."""
        found = self.declared[kind]
        count = len(found)
        missing = next((i for i in range(count) if i not in found), None)
        if missing is not None:
            raise PropertyError(
                f"{self.source.name} declares {kind}_{max(found)} but not {kind}_{missing}: "
                "variables are numbered from 0 without gaps."
            )
        return count

    # --- formulas -------------------------------------------------------------------------------

    def _assert(self, formula: Item) -> None:
        branches = self._branches(formula)
        if len(branches) == 1:
            self.always.extend(branches[0])
        else:
            self.choices.append(branches)

    def _branches(self, formula: Item) -> list[Branch]:
        """A formula as alternatives, each a conjunction of atoms."""
        stack = [_Frame("and", [formula], [[]])]
        while True:
            self.source.step()
            top = stack[-1]
            if not top.pending:
                stack.pop()
                if not stack:
                    return top.branches
                self._join(stack[-1], top.branches, formula[0])
                continue
            start, body = top.pending.pop()
            head = body[0][1] if isinstance(body, list) and body else None
            if not isinstance(head, str) or isinstance(body, str):
                raise self.source.error(start, "a formula such as (<= X_0 1.0) was expected.")
            if head not in ("and", "or"):
                self._join(top, [self._atoms(start, head, body)], start)
                continue
            if len(body) == 1:
                raise self.source.error(start, f"there is nothing in this '{head}'.")
            inner = body[:0:-1]
            if head == top.operator:
                top.pending.extend(inner)
            else:
                stack.append(_Frame(head, inner, [[]] if head == "and" else []))

    def _join(self, index_map: _Frame, branches: list[Branch], start: int) -> None:
        """Add the alternatives of one subdomain to the ``and`` or ``or`` it is a subdomain of."""
        if index_map.operator == "or":
            index_map.branches.extend(branches)
        elif len(branches) == 1:
            self.source.spend(len(index_map.branches) * len(branches[0]), start)
            for branch in index_map.branches:
                branch.extend(branches[0])
        else:
            size = sum(map(len, index_map.branches)) * len(branches)
            self.source.spend(size + sum(map(len, branches)) * len(index_map.branches), start)
            index_map.branches = [mine + more for mine in index_map.branches for more in branches]
        if len(index_map.branches) > MOST_CASES:
            self.source.spend(MOST_WORK, start)

    def _atoms(self, start: int, operator: str, items: Sequence[Item]) -> Branch:
        """A comparison: one atom, or two."""
        if operator not in _COMPARISONS:
            known = ", ".join(_COMPARISONS)
            raise self.source.error(
                start, f"{_shown(operator)} is none of {known}, and, or, which are known here."
            )
        if len(items) != 3:
            raise self.source.error(
                start, f"'{operator}' compares two terms. Got {len(items) - 1} instead."
            )
        (_, left), (place, right) = items[1:]
        # By far the most common atom is an input against a number; it needs no arithmetic.
        bounded = isinstance(left, str) and left[0] == "X" and operator in ("<=", ">=")
        if bounded and isinstance(left, str) and isinstance(right, str) and right[0] != "X":
            number = self._number(place, right)
            if number is not None:
                return [End(self._variable(items[1][0], left), operator == "<=", number, start)]
        if operator != "=":
            return self._linear_atoms(start, operator, items)
        return [
            *self._linear_atoms(start, "<=", items),
            *self._linear_atoms(start, ">=", items),
        ]

    def _linear_atoms(self, start: int, operator: str, items: Sequence[Item]) -> Branch:
        less, more = (self._linear(item) for item in items[1:])
        if operator[0] == ">":
            less, more = more, less
        for name, value in more.terms.items():
            less.terms[name] = less.terms.get(name, Fraction(0)) - value
        terms = {name: value for name, value in less.terms.items() if value}
        bound = more.constant - less.constant
        if not terms:
            raise self.source.error(start, "this comparison does not depend on any variable.")
        strict = operator in ("<", ">")
        row = Row({_column(name): value for name, value in terms.items()}, bound, start, strict)
        name, value = next(iter(terms.items()))
        if len(terms) > 1 or name[0] == "Y":
            return [row]
        end = End(int(name[2:]), value > 0, bound / value, start)
        return [end, row] if strict else [end]

    def _linear(self, term: Item) -> _Linear:
        """A term as a linear form, computed exactly."""
        stack: list[tuple[int, str, list[Item], list[_Linear]]] = []
        start, body = term
        while True:
            self.source.step()
            if isinstance(body, str):
                done = self._word(start, body)
            else:
                head = body[0][1] if body else None
                if head not in ("+", "-", "*") or not isinstance(head, str) or len(body) < 2:
                    raise self.source.error(start, "a number, a variable or a sum was expected.")
                stack.append((start, head, body[:0:-1], []))
                start, body = stack[-1][2].pop()
                continue
            while stack:
                place, operator, pending, values = stack[-1]
                values.append(done)
                if pending:
                    start, body = pending.pop()
                    break
                stack.pop()
                done = self._combined(place, operator, values)
            else:
                return done

    def _combined(self, start: int, operator: str, values: list[_Linear]) -> _Linear:
        if operator == "*":
            varying = [value for value in values if value.terms]
            if len(varying) > 1:
                raise self.source.error(start, "a product of variables is not linear.")
            factor = math.prod((v.constant for v in values if not v.terms), start=Fraction(1))
            product_ = _scaled(varying[0] if varying else _Linear(Fraction(1), {}), factor)
            for number in (product_.constant, *product_.terms.values()):
                if max(number.numerator.bit_length(), number.denominator.bit_length()) > MOST_BITS:
                    raise self.source.error(start, "a number here is out of the range of float64.")
            return product_
        if operator == "-":
            if len(values) == 1:
                return _scaled(values[0], Fraction(-1))
            values = [values[0], *(_scaled(value, Fraction(-1)) for value in values[1:])]
        largest = max(values, key=lambda value: len(value.terms))
        for value in values:
            if value is largest:
                continue
            largest.constant += value.constant
            for name, part in value.terms.items():
                largest.terms[name] = largest.terms.get(name, Fraction(0)) + part
        return largest

    def _word(self, start: int, word: str) -> _Linear:
        number = self._number(start, word)
        if number is not None:
            return _Linear(Fraction(number), {})
        self._variable(start, word)
        return _Linear(Fraction(0), {word: Fraction(1)})

    def _variable(self, start: int, word: str) -> int:
        match = _VARIABLE.fullmatch(word)
        if match is None:
            raise self.source.error(
                start, f"{_shown(word)} is neither a number nor a variable X_i or Y_i."
            )
        index = int(match[2])
        if index not in self.declared[match[1]]:
            raise self.source.error(start, f"{_shown(word)} is not declared.")
        return index

    def _number(self, start: int, word: str) -> Decimal | None:
        """The number a word is, if it is one."""
        if _NUMBER.fullmatch(word) is None:
            return None
        if len(word) > MOST_DIGITS:
            raise self.source.error(
                start, f"a number here has {len(word):,} digits; {MOST_DIGITS:,} are the most."
            )
        try:
            value = Decimal(word)
            if not value:
                return Decimal(0)
            if -1100 < value.adjusted() < 310:
                return value
        except DecimalException:
            pass
        raise self.source.error(start, f"the number {_shown(word)} is out of the range of float64.")


def _column(name: str) -> int:
    """The key of a variable in rows."""
    return int(name[2:]) if name[0] == "Y" else -1 - int(name[2:])


def _shown(word: str) -> str:
    return repr(word if len(word) <= 40 else f"{word[:37]}...")


def _scaled(value: _Linear, factor: Fraction) -> _Linear:
    return _Linear(
        value.constant * factor, {name: part * factor for name, part in value.terms.items()}
    )
