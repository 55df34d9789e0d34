"""Tuning: numbers that decide how fast something is decided, or whether, and never what is true.

A group of such numbers is a frozen data class with a field for each, written by ``tuned`` with its
unit, its explanation and the values that make sense. Whatever they are, every proof is a rigorous
bound and every witness is replayed. Constants on which that rests, such as the unit roundoff and
the slack of a rounded line, are none of these: they stand beside the mathematics that needs them.

    >>> @dataclass(frozen=True, slots=True)
    ... class Steps(Tuning):
    ...     first: int = tuned(20, "steps", "Steps of ascent at the root.", least=1)
    >>> Steps().first
    20
    >>> Steps(first=0)
    Traceback (most recent call last):
    ...
    provable_circuits.errors.ArgumentError: The 'first' parameter of Steps must be a whole number of
    at least 1. Got 0 instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar

from provable_circuits.arguments import number, refused, whole

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sense:
    """What a field means, and which values make sense.

    Attributes:
        unit: what it counts, or what it is a share of.
        explanation: one sentence.
        least, above, most: the least value, the value that it must exceed, the largest value.
    """

    unit: str
    explanation: str
    least: float | None = None
    above: float | None = None
    most: float | None = None


def tuned(
    default: T,
    unit: str,
    explanation: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> T:
    """A field of a group: a whole number, a number, or a tuple of numbers, as its default is."""
    sense = Sense(unit, explanation, least, above, most)
    made: Any = field(default=default, metadata={"sense": sense})
    return made  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Tuning:
    """A group of numbers. Values that make no sense are refused.

    Raises:
        ArgumentError: a field has a value of the wrong kind, or beyond its limits.
    """

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for one in fields(self):
            value, sense = getattr(self, one.name), one.metadata["sense"]
            if not isinstance(one.default, tuple):
                _check(one.name, value, owner, sense, isinstance(one.default, int))
                continue
            if not isinstance(value, tuple):
                what = f"The '{one.name}' parameter of {owner}"
                raise refused(what, "a tuple of numbers", value)
            for part in value:
                _check(one.name, part, owner, sense, isinstance(one.default[0], int))

    @classmethod
    def senses(cls) -> dict[str, Sense]:
        """What each field means, by name."""
        return {one.name: one.metadata["sense"] for one in fields(cls)}

    def changed(self, values: Mapping[str, Any]) -> Self:
        """The group with other values of some fields."""
        for name in values:
            if name not in self.senses():
                known = ", ".join(self.senses())
                raise refused(f"A field of {type(self).__name__}", f"one of {known}", name)
        return replace(self, **values)


def _check(name: str, value: Any, owner: str, sense: Sense, is_whole: bool) -> None:
    """Refuse a value that makes no sense."""
    if is_whole:
        whole(name, value, owner, least=None if sense.least is None else int(sense.least))
    number(name, value, owner, least=sense.least, above=sense.above, most=sense.most)
