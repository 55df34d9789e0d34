"""A picture as a list of shapes, before it is written as SVG or PNG.

Shapes say what they are (``role``), not how they look: see ``style``. Coordinates are in pixels,
from the upper left corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle, with round corners if ``radius`` is not zero."""

    x: float
    y: float
    width: float
    height: float
    role: str
    radius: float = 0.0

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> Point:
        """The centre."""
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Path:
    """Strokes through points; closed ones are areas."""

    strokes: tuple[tuple[Point, ...], ...]
    role: str
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; ``y`` is its middle, ``anchor`` says which part of it is at ``x``."""

    x: float
    y: float
    text: str
    role: str
    size: float = 11.0
    anchor: str = "middle"
    upright: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """An image of uint8 pixels, [height, width] or [height, width, 3], stretched over a box."""

    x: float
    y: float
    width: float
    height: float
    pixels: Pixels
    role: str = "picture"


@dataclass(frozen=True, slots=True)
class Group:
    """Shapes that belong together.

    Attributes:
        role: what they are.
        items: the shapes.
        title: what is told of them when they are pointed at.
        component: the component that they stand for, if they do.
    """

    role: str
    items: tuple[Rectangle | Path | Text | Picture, ...]
    title: str = ""
    component: str | None = None


Item = Rectangle | Path | Text | Picture | Group


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A whole picture.

    Attributes:
        width, height: its size.
        title: what it shows, in a few words.
        description: the same in full, for those who do not see it.
        items: the shapes, from the back to the front.
        kind: what sort of picture it is.
    """

    width: float
    height: float
    title: str
    description: str
    items: tuple[Item, ...]
    kind: str = "chart"
