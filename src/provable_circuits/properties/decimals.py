"""Counterexamples in decimals, such that whoever reads them finds what the file asked for.

The numbers of a VNN-LIB file are decimals, and mean what they say; a point that is found is one of
float64 numbers. The shortest decimal that float64 reads as a number may lie a little beside it: on
the wrong side of a bound, or where an output that only just meets its bound does not. It is printed
if every point between meets the case, and the number itself, to its last digit, if not.

An input whose bounds no float64 lies between, such as one that is fixed to 0.1, has a decimal of
the file. Where an output reaches its bound in one point only, that may be a fraction which no
decimal is, 1/3 for one: it is printed as SMT-LIB writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

from provable_circuits.properties.vnnlib import Case, decimal_text


def fraction_text(value: Fraction) -> str:
    """A rational number: a decimal if it is one, else a quotient.

    >>> fraction_text(Fraction(1, 8)), fraction_text(Fraction(-2)), fraction_text(Fraction(1, 3))
    ('0.125', '-2.0', '(/ 1.0 3.0)')
    """
    twos, fives, rest = 0, 0, value.denominator
    while rest % 2 == 0:
        twos, rest = twos + 1, rest // 2
    while rest % 5 == 0:
        fives, rest = fives + 1, rest // 5
    if rest != 1:
        top = f"{abs(value.numerator)}.0"
        quotient = f"(/ {top} {value.denominator}.0)"
        return f"(- {quotient})" if value < 0 else quotient
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    whole, after = (digits[:-places], digits[-places:]) if places else (digits, "0")
    return f"{'-' if value < 0 else ''}{whole}.{after}"


def is_float(value: Fraction) -> bool:
    """Whether float64 holds a number."""
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False


def unheld(case: Case) -> list[int]:
    """The inputs whose bounds no float64 lies between."""
    return [int(i) for i in (case.inner_lower > case.inner_upper).nonzero().flatten()]


def decimals(
    case: Case, x: Sequence[float], meets: Callable[[Sequence[Fraction]], bool]
) -> tuple[str, ...]:
    """A point of floats in decimals that lie inside the box as written and meet the case.

    Args:
        case: the case.
        x: inputs that meet it; those that float64 does not hold have their lower bounds instead.
        meets: whether a point certainly meets the case.
    """
    numbers = case.numbers
    given = {i: Fraction(numbers.lower[i]) for i in unheld(case)}
    short = [given.get(i, Fraction(Decimal(repr(v)))) for i, v in enumerate(x)]
    ends = zip(numbers.lower, short, numbers.upper, strict=True)
    inside = all(Fraction(low) <= value <= Fraction(high) for low, value, high in ends)
    same = all(i in given or Fraction(v) == short[i] for i, v in enumerate(x))
    brief = inside and (same or meets(short))
    return tuple(
        fraction_text(given[i]) if i in given else repr(v) if brief else decimal_text(v)
        for i, v in enumerate(x)
    )
