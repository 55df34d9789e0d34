"""Arguments as users give them: taken if they are of the right kind, or refused with a sentence.

Every sentence names the parameter, what it must be, what came, and what to do where that is not
plain. Numbers may be Python's, numpy's, or tensors of one element without a shape; booleans are no
numbers.

    >>> number("timeout", 2, above=0)
    2
    >>> number("timeout", 0, above=0)
    Traceback (most recent call last):
    ...
    provable_circuits.errors.ArgumentError: The 'timeout' parameter must be a number above 0. Got 0
    instead.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from provable_circuits.errors import ArgumentError

SEEDS = 2**63
"""Seeds are below this."""

LONGEST = 60
"""Texts of what came are cut after so many characters."""


def got(value: Any) -> str:
    """What came, in a few words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, bool | int | float | complex | str):
        text = repr(value)
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    if _scalar(value):
        return f"{value.item()!r} ({type(value).__name__})"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{type(value).__name__} of shape {list(shape)}"
    return type(value).__name__


def refused(what: str, expected: str, value: Any, advice: str = "") -> ArgumentError:
    """The error about an argument of the wrong kind.

    Args:
        what: what is wrong, such as ``The 'x' parameter of Ball``.
        expected: what it must be.
        value: what came.
        advice: what to do, if more is to be said.
    """
    if isinstance(value, type) and not advice:
        advice = f"make one of it, as in {value.__name__}(...)"
    end = f": {advice}." if advice else "."
    return ArgumentError(f"{what} must be {expected}. Got {got(value)} instead{end}")


def parameter(name: str, owner: str = "") -> str:
    """How a sentence begins that is about a parameter."""
    return f"The '{name}' parameter of {owner}" if owner else f"The '{name}' parameter"


def instance(
    name: str, value: Any, kind: type[Any], expected: str, owner: str = "", advice: str = ""
) -> Any:
    """A value that must be of some class."""
    if not isinstance(value, kind):
        raise refused(parameter(name, owner), expected, value, advice)
    return value


def number(
    name: str,
    value: Any,
    owner: str = "",
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> int | float:
    """A finite number, within limits if there are any."""
    expected = _range_words("a number", least, above, most)
    plain = value.item() if _scalar(value) else value
    fits = isinstance(plain, int | float) and not isinstance(plain, bool)
    if not fits or not math.isfinite(plain) or not _within(plain, least, above, most):
        raise refused(parameter(name, owner), expected, value)
    return plain  # type: ignore[no-any-return]


def whole(
    name: str, value: Any, owner: str = "", *, least: int | None = None, most: int | None = None
) -> int:
    """A whole number, within limits if there are any."""
    expected = _range_words("a whole number", least, None, most)
    try:
        plain = operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        raise refused(parameter(name, owner), expected, value) from None
    if _is_boolean(value) or not _within(plain, least, None, most):
        raise refused(parameter(name, owner), expected, value)
    return plain


def time_limit(name: str, value: Any) -> float:
    """A limit of time in seconds; infinite for none."""
    plain = value.item() if _scalar(value) else value
    fits = isinstance(plain, int | float) and not isinstance(plain, bool)
    if not fits or not plain > 0:
        raise refused(parameter(name), "a positive number of seconds", value)
    return float(plain)


def seed(value: Any) -> int:
    """The seed of a random generator."""
    return whole("seed", value, least=0, most=SEEDS - 1)


def flag(name: str, value: Any, owner: str = "") -> bool:
    """True or False."""
    if not _is_boolean(value):
        raise refused(parameter(name, owner), "True or False", value)
    return bool(value)


def order_of_norm(value: Any, owner: str) -> int | float:
    """The p of a p-norm that is known here: 1, 2 or infinity."""
    plain = value.item() if _scalar(value) else value
    known = isinstance(plain, int | float) and not isinstance(plain, bool)
    if not known or plain not in (1, 2, math.inf):
        raise refused(parameter("p", owner), "1, 2 or inf", value)
    return plain  # type: ignore[no-any-return]


def each(
    name: str, values: Any, kind: type[Any], expected: str, owner: str = ""
) -> tuple[Any, ...]:
    """Several values of some class; one of another kind is named by its place, counted from 0."""
    what = parameter(name, owner)
    if isinstance(values, str | type) or not isinstance(values, Iterable):
        raise refused(what, f"several, each {expected}", values)
    found = tuple(values)
    for place, value in enumerate(found):
        if not isinstance(value, kind):
            raise refused(f"Item {place} of the '{name}' parameter{_of(owner)}", expected, value)
    return found


def _of(owner: str) -> str:
    return f" of {owner}" if owner else ""


def _scalar(value: Any) -> bool:
    """Whether it is a number of numpy or torch: it has a shape, which is empty."""
    return (
        not isinstance(value, type)
        and getattr(value, "shape", None) is not None
        and tuple(value.shape) == ()
        and hasattr(value, "item")
    )


def _is_boolean(value: Any) -> bool:
    return isinstance(value.item() if _scalar(value) else value, bool)


def _within(value: float, least: float | None, above: float | None, most: float | None) -> bool:
    return (
        (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
    )


def _range_words(kind: str, least: float | None, above: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return (
            f"{kind} from {least:g} to {most:g}"
            if most < 10**6
            else f"{kind} of at least {least:g}"
        )
    if least is not None:
        return f"{kind} of at least {least:g}"
    if above is not None:
        return f"{kind} above {above:g}"
    return f"a finite {kind.removeprefix('a ')}"
