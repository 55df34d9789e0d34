"""Axes of a chart: round numbers to mark, where values go, and what is written beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from provable_circuits.drawing.scene import Item, Path, Point, Rectangle, Text
from provable_circuits.drawing.text import text_width
from provable_circuits.errors import ArgumentError

NOTE, TITLE = 11.0, 14.0
MARGIN = 16.0
TICKS = 6
"""About how many numbers are written along an axis."""


def ticks(values: Sequence[float], whole: bool | None = None) -> tuple[float, ...]:
    """Round numbers, evenly spaced, from zero or below to the greatest value or above.

    Args:
        values: what is to be shown; finite.
        whole: only whole numbers; by default if all values are whole.
    """
    if not all(math.isfinite(value) for value in values):
        raise ArgumentError("The values of a chart must be finite numbers: leave others out.")
    low, high = min([0.0, *values]), max([0.0, *values])
    if low == high:
        high = 1.0
    if whole is None:
        whole = all(float(value).is_integer() for value in values)
    rough = (high - low) / (TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= 0.999 * rough)
    step = max(step, 1.0) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(step * place for place in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class Axes:
    """A frame, and the values at its edges.

    Attributes:
        frame: where values are shown.
        x_ticks, y_ticks: the numbers along the lower and the left edge; the first and the last are
            at the corners.
    """

    frame: Rectangle
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]

    def place(self, x: float, y: float) -> Point:
        """Where a point goes."""
        frame = self.frame
        return (
            frame.x + frame.width * _share(x, self.x_ticks),
            frame.bottom - frame.height * _share(y, self.y_ticks),
        )

    def items(self, x_label: str, y_label: str) -> list[Item]:
        """Grid, numbers and labels."""
        frame = self.frame
        along = [self.place(tick, self.y_ticks[0]) for tick in self.x_ticks]
        up = [self.place(self.x_ticks[0], tick) for tick in self.y_ticks]
        items: list[Item] = [
            Path(tuple(((frame.x, y), (frame.right, y)) for _, y in up), "grid"),
            Path((((frame.x, frame.bottom), (frame.right, frame.bottom)),), "axis"),
            Path(tuple(((x, y), (x, y + 4)) for x, y in along), "axis"),
        ]
        for tick, (x, y) in zip(self.x_ticks, along, strict=True):
            items.append(Text(x, y + 14, f"{tick:g}", "note", NOTE))
        for tick, (x, y) in zip(self.y_ticks, up, strict=True):
            items.append(Text(x - 7, y, f"{tick:g}", "note", NOTE, "end"))
        middle_x, middle_y = frame.middle
        items.append(Text(middle_x, frame.bottom + 34, x_label, "note", NOTE))
        items.append(Text(MARGIN + 4, middle_y, y_label, "note", NOTE, upright=True))
        return items


def _share(value: float, marks: tuple[float, ...]) -> float:
    return (value - marks[0]) / (marks[-1] - marks[0])


def left_room(y_ticks: tuple[float, ...]) -> float:
    """The room left of a frame, for its numbers and its label."""
    return MARGIN + 16 + max(text_width(f"{tick:g}", NOTE) for tick in y_ticks) + 8
