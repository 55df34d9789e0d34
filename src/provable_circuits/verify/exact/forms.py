"""Affine forms with rational coefficients, over variables and over ReLUs of earlier forms.

A piecewise-linear network is a set of affine forms over *atoms*. An atom is a variable between two
ends, or relu(g) for a form g over atoms before it. Every other bend is written with these:

    leaky(f) = s f + (1 - s) relu(f)                    s the slope
    relu(s g) = s relu(g)        for s > 0              so that g has coprime integer coefficients
    relu(-g) = relu(g) - g                              if relu(g) is there

An atom with the same g is there once. So units that compute the same, in the network or in its
circuit, are one atom, whatever their names and scales; and what cancels between network and circuit
cancels exactly: a difference that is identically zero is the empty form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from provable_circuits.verify.exact.rational import whole

ZERO = Fraction(0)
Ends = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Form:
    """``constant + sum of terms[i] * atom i``; no coefficient is zero."""

    constant: Fraction = ZERO
    terms: Mapping[int, Fraction] = field(default_factory=dict)

    def __neg__(self) -> Form:
        return Form(-self.constant, {i: -c for i, c in self.terms.items()})

    def over(self, ends: Mapping[int, Ends] | Sequence[Ends]) -> Ends:
        """The least and the largest value where each atom ranges between its bounds."""
        low = high = self.constant
        for i, c in self.terms.items():
            first, last = ends[i]
            if c > 0:
                low += c * first
                high += c * last
            else:
                low += c * last
                high += c * first
        return low, high

    def at(self, values: Mapping[int, Fraction] | Sequence[Fraction]) -> Fraction:
        """The value where the atoms have these values."""
        return self.constant + sum((c * values[i] for i, c in self.terms.items()), ZERO)

    def replaced(self, known: Mapping[int, Form]) -> Form:
        """The form with some atoms replaced by forms."""
        if not any(i in known for i in self.terms):
            return self
        subdomains = [(c, known[i]) for i, c in self.terms.items() if i in known]
        rest = {i: c for i, c in self.terms.items() if i not in known}
        return combination([(Fraction(1), Form(self.constant, rest)), *subdomains])


NOTHING = Form()


def combination(subdomains: Iterable[tuple[Fraction, Form]], constant: Fraction = ZERO) -> Form:
    """``constant`` plus the sum of factor times form."""
    total: dict[int, Fraction] = {}
    for factor, form in subdomains:
        if not factor:
            continue
        if form.constant:
            constant += factor * form.constant
        for i, c in form.terms.items():
            have = total.get(i)
            total[i] = factor * c if have is None else have + factor * c
    return Form(constant, {i: c for i, c in total.items() if c})


class Atoms:
    """Variables and ReLUs, numbered in an order in which each comes after what it is made of.

    Attributes:
        ends: for each atom, numbers between which it lies.
        inner: for each ReLU, the form that it is the positive part of.
        limits: forms over variables that may not be negative.
    """

    def __init__(self) -> None:
        self.ends: list[Ends] = []
        self.inner: dict[int, Form] = {}
        self.limits: list[Form] = []
        self._numbers: dict[tuple[Fraction, frozenset[tuple[int, Fraction]]], int] = {}

    def copy(self) -> Atoms:
        """The same atoms, to which others may be added."""
        other = Atoms()
        other.ends, other.limits = list(self.ends), list(self.limits)
        other.inner, other._numbers = dict(self.inner), dict(self._numbers)
        return other

    def variable(self, low: Fraction, high: Fraction) -> Form:
        """A new variable between two bounds; a number if they are the same."""
        if low == high:
            return Form(low)
        self.ends.append((low, high))
        return Form(ZERO, {len(self.ends) - 1: Fraction(1)})

    def relu(self, form: Form) -> Form:
        """``max(form, 0)``."""
        low, high = form.over(self.ends)
        if low >= 0:
            return form
        if high <= 0:
            return NOTHING
        scale, inner = _primitive(form)
        number = self._numbers.get(_key(inner))
        if number is not None:
            return Form(ZERO, {number: scale})
        number = self._numbers.get(_key(-inner))
        if number is not None:
            return combination([(Fraction(1), form), (scale, Form(ZERO, {number: Fraction(1)}))])
        number = len(self.ends)
        self.ends.append((ZERO, high / scale))
        self.inner[number] = inner
        self._numbers[_key(inner)] = number
        return Form(ZERO, {number: scale})

    def leaky(self, form: Form, slope: Fraction) -> Form:
        """``form`` where it is positive, ``slope * form`` elsewhere."""
        return combination([(slope, form), (1 - slope, self.relu(form))])

    def below(self, forms: Iterable[Form]) -> list[int]:
        """All ReLUs that these forms depend on, in order."""
        found: set[int] = set()
        stack = [i for form in forms for i in form.terms]
        while stack:
            i = stack.pop()
            if i in self.inner and i not in found:
                found.add(i)
                stack.extend(self.inner[i].terms)
        return sorted(found)


def _primitive(form: Form) -> tuple[Fraction, Form]:
    """A positive number and a form of coprime integers whose product is the form."""
    numbers, factor = whole([form.constant, *form.terms.values()])
    terms = {i: Fraction(n) for i, n in zip(form.terms, numbers[1:], strict=True)}
    return 1 / factor, Form(Fraction(numbers[0]), terms)


def _key(form: Form) -> tuple[Fraction, frozenset[tuple[int, Fraction]]]:
    return form.constant, frozenset(form.terms.items())
