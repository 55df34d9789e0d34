"""The panel of one layer: its name, how many of its components are kept, and the components.

A layer of many components is wrapped into several columns of about equal height. All components of
a layer are drawn at the same width, that of the longest label; very long ones are shortened.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from provable_circuits.drawing.diagram import Column, DiagramNode
from provable_circuits.drawing.scene import Rectangle
from provable_circuits.drawing.text import shortened, text_width

LABEL, HEADING, NOTE = 11.0, 12.0, 11.0
"""The sizes of the text on components, of the names of layers, and of the notes below."""

NODE_HEIGHT, NODE_LEAST, NODE_MOST, NODE_GAP = 24.0, 30.0, 96.0, 7.0
"""The height of a component, its least and greatest width, and the gap between two."""

HEADING_MOST = 140.0
"""Names of layers may be so long, even if the components need less."""

HEAD, PADDING, CORNER = 38.0, 12.0, 10.0
"""Room for the text at the top, room around the components, and the radius of the corners."""

JOIN, JOIN_MORE = 28.0, 14.0
"""The diameter of the circle where connections meet; by how much it is wider for each above two."""


@dataclass(frozen=True, slots=True)
class Spot:
    """The place of a component, and what is written there."""

    node: DiagramNode
    label: str
    box: Rectangle


@dataclass(frozen=True, slots=True)
class Panel:
    """The place of a layer, with its two lines of text and its components."""

    box: Rectangle
    heading: str
    note: str
    spots: tuple[Spot, ...]

    @property
    def wrapped(self) -> bool:
        """Whether the components are in several columns."""
        return len({spot.box.x for spot in self.spots}) > 1

    @property
    def joins(self) -> bool:
        """Whether it is a circle where connections meet, and no layer."""
        return self.box.role == "join"

    def below(self, x: float) -> float:
        """How far down its lower edge is at some place across."""
        if not self.joins:
            return self.box.bottom
        return self.box.middle[1] + self._rise(x)

    def above(self, x: float) -> float:
        """How far down its upper edge is there."""
        return self.box.y if not self.joins else self.box.middle[1] - self._rise(x)

    def _rise(self, x: float) -> float:
        radius = self.box.height / 2
        aside = max(abs(x - self.box.middle[0]) - (self.box.width / 2 - radius), 0.0)
        return math.sqrt(max(radius**2 - aside**2, 0.0))


@dataclass(frozen=True, slots=True)
class PanelPlan:
    """The size of a panel, before it has a place: its components in so many rows, and so wide."""

    column: Column
    heading: str
    note: str
    width: float
    height: float
    rows: int
    node_width: float

    @property
    def inner(self) -> float:
        """The width of the components side by side."""
        return _side_by_side(len(self.column.nodes), self.rows, self.node_width)

    def at(self, x: float, y: float) -> Panel:
        """The panel with its upper left corner there."""
        if self.column.join:
            circle = Rectangle(x, y, self.width, self.height, "join", self.height / 2)
            return Panel(circle, self.heading, self.note, ())
        left = x + (self.width - self.inner) / 2
        top = y + HEAD + PADDING / 2
        spots = []
        for i, node in enumerate(self.column.nodes):
            place, row = divmod(i, self.rows)
            box = Rectangle(
                left + place * (self.node_width + NODE_GAP),
                top + row * (NODE_HEIGHT + NODE_GAP),
                self.node_width,
                NODE_HEIGHT,
                "node",
            )
            label = shortened(node.label, LABEL, self.node_width - 8, bold=True)
            spots.append(Spot(node, label, box))
        box = Rectangle(x, y, self.width, self.height, "panel", CORNER)
        return Panel(box, self.heading, self.note, tuple(spots))


def plan(column: Column, most_rows: int, arriving: int = 1) -> PanelPlan:
    """The size of the panel of a layer, of at most so many rows.

    Args:
        column: the layer.
        most_rows: how many rows of components are at most below each other.
        arriving: how many connections it has from others.
    """
    if column.join:
        return PanelPlan(
            column, column.join, "", JOIN + JOIN_MORE * max(arriving - 2, 0), JOIN, 0, 0.0
        )
    count = len(column.nodes)
    labels = [text_width(node.label, LABEL, bold=True) + 12 for node in column.nodes]
    node_width = min(max([NODE_LEAST, *labels]), NODE_MOST)
    rows = math.ceil(count / math.ceil(count / most_rows)) if count else 0
    inner = _side_by_side(count, rows, node_width)
    heading = shortened(column.title, HEADING, max(HEADING_MOST, inner), bold=True)
    note = _note(column)
    texts = text_width(heading, HEADING, bold=True), text_width(note, NOTE)
    height = HEAD + (rows * (NODE_HEIGHT + NODE_GAP) - NODE_GAP + 1.5 * PADDING if count else 0.0)
    width = max(inner, *texts) + 2 * PADDING
    return PanelPlan(column, heading, note, width, height, rows, node_width)


def _side_by_side(count: int, rows: int, node_width: float) -> float:
    across = math.ceil(count / rows) if count else 0
    return max(across * (node_width + NODE_GAP) - NODE_GAP, 0.0)


def _note(column: Column) -> str:
    """How many components are kept; by each of two circuits, where they differ here."""
    counts = Counter(node.status for node in column.nodes)
    both = len(column.nodes) - sum(counts[s] for s in ("removed", "first only", "second only"))
    first, second = (both + counts[f"{which} only"] for which in ("first", "second"))
    differ = counts["first only"] or counts["second only"]
    kept = f"{first} and {second}" if differ else f"{first}"
    return f"{kept} of {len(column.nodes)}" if column.nodes else ""
