"""The shape of a JSON document: what a file must hold before anything is made of it.

A shape is a type, ``None`` for null, a list with the shape of its items, an object with the shapes
of its fields (others may stand beside them), ``{str: shape}`` for any names, or a tuple of shapes
one of which must fit.

    >>> fits({"size": 3, "names": ["a"], "other": 1}, {"size": int, "names": [str]})
    >>> fits({"size": "3"}, {"size": (int, None)}, "result")
    Traceback (most recent call last):
    ...
    provable_circuits.errors.DataError: 'result.size' must be a whole number or null.
"""

from __future__ import annotations

import math
from typing import Any
from unicodedata import category

from provable_circuits.errors import DataError

EXACT = 2**53
"""Up to here, whole numbers of JSON are exact everywhere."""

WORDS = {
    str: "a text without control characters",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
}


def fits(value: Any, shape: Any, where: str = "document") -> None:
    """Refuse a value that does not have a shape, and name the place where it departs."""
    if isinstance(shape, dict) and isinstance(value, dict):
        if set(shape) == {str}:
            for name, item in value.items():
                fits(item, shape[str], f"{where}.{name}")
            return
        for name, field in shape.items():
            if name not in value:
                raise DataError(f"'{where}.{name}' is missing.")
            fits(value[name], field, f"{where}.{name}")
    elif isinstance(shape, list) and isinstance(value, list):
        for place, item in enumerate(value):
            fits(item, shape[0], f"{where}[{place}]")
    elif isinstance(shape, tuple):
        kinds = [kind for kind in shape if _is(value, kind)]
        if not kinds:
            raise DataError(f"'{where}' must be {' or '.join(map(_words, shape))}.")
        fits(value, kinds[0], where)
    elif not _is(value, shape):
        raise DataError(f"'{where}' must be {_words(shape)}.")


def _is(value: Any, shape: Any) -> bool:
    """Whether a value is of a shape's kind, whatever it holds."""
    if shape is None:
        return value is None
    if isinstance(shape, dict | list):
        return isinstance(value, type(shape))
    if shape is float:
        return _is(value, int) or (isinstance(value, float) and math.isfinite(value))
    if shape is str:
        return isinstance(value, str) and not any(category(c) == "Cc" for c in value)
    if shape is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= EXACT
    return isinstance(value, shape)


def _words(shape: Any) -> str:
    if shape is None:
        return "null"
    if isinstance(shape, dict):
        return "an object"
    return "a list" if isinstance(shape, list) else WORDS[shape]
