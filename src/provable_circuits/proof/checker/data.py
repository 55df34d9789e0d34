"""Plain data: JSON that is read strictly and asked for by type."""

from __future__ import annotations

import json
import math
import re
import sys
from fractions import Fraction
from typing import Any

from .arithmetic import RefusedError

DEEPEST = 32
"""The manifest may not be nested deeper."""


def plain(text: str, longest: int = 80) -> str:
    """A text of bounded length without what a terminal cannot show."""
    return "".join(c if c.isprintable() else "?" for c in text[:longest])


class Data:
    """Parsed JSON that is asked for by type; whatever does not fit is refused."""

    def __init__(self, value: Any, what: str) -> None:
        self.value, self.what = value, what

    def wrong(self, expected: str) -> RefusedError:
        return RefusedError(f"{self.what} is not {expected}.")

    def __getitem__(self, key: str) -> Data:
        if not isinstance(self.value, dict) or key not in self.value:
            raise RefusedError(f"{self.what} has no {key!r}.")
        return Data(self.value[key], f"{self.what}.{plain(key)}"[:200])

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def only(self, *keys: str) -> Data:
        """Refuse other keys than these."""
        if not isinstance(self.value, dict) or set(self.value) - set(keys):
            raise self.wrong(f"an object with no more than {', '.join(keys)}")
        return self

    def items(self) -> list[Data]:
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Data(item, f"{self.what}[{i}]"[:200]) for i, item in enumerate(self.value)]

    def nth(self, place: int) -> Data:
        """The item at a place of a list that has one for each input."""
        items = self.items()
        if place >= len(items):
            raise self.wrong("complete: it has not one item for each input")
        return items[place]

    def pairs(self) -> list[tuple[str, Data]]:
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return [(key, self[key]) for key in self.value]

    def text(self, *allowed: str) -> str:
        if not isinstance(self.value, str) or (allowed and self.value not in allowed):
            raise self.wrong("one of " + ", ".join(allowed) if allowed else "a text")
        return self.value

    def integer(self, below: int) -> int:
        if type(self.value) is not int or not 0 <= self.value < below:
            raise self.wrong(f"an integer from 0 to {below - 1}")
        return self.value

    def fraction(self) -> Fraction:
        if not re.fullmatch(r"[0-9]{1,400}(/0*[1-9][0-9]{0,399})?", self.text(), re.ASCII):
            raise self.wrong("a fraction")
        return Fraction(self.text())

    def number(self) -> float:
        if type(self.value) not in (int, float) or not abs(self.value) <= sys.float_info.max:
            raise self.wrong("a finite number")
        return float(self.value)


def plain_json(data: bytes) -> Any:
    """The value of a JSON document without repeated keys, NaN and infinities."""
    try:
        value = json.loads(
            data, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_float
        )
    except (ValueError, RecursionError) as error:
        raise RefusedError("The manifest is not plain JSON.") from error
    _shallow([value], DEEPEST)
    return value


def _shallow(value: Any, left: int) -> None:
    if not left:
        raise RefusedError(f"The manifest is nested more than {DEEPEST} deep.")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _shallow(item, left - 1)


def _float(text: str) -> float:
    if not math.isfinite(float(text)):
        raise RefusedError("The manifest has a number that is too large.")
    return float(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise RefusedError("The manifest has a key twice.")
    return made


def _constant(name: str) -> Any:
    raise RefusedError(f"The manifest has the number {name}.")
