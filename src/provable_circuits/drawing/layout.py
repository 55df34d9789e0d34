"""Where the parts of a circuit drawing go.

Layers are panels from the left to the right, their middles on one line. A layer of many components
is wrapped into several columns of equal height within its panel, so that 34 components and 200 are
drawn at the same size and fill a page of about the same shape. Connections to the next panel are a
quiet band between the two; if few components are kept, there is a line for each pair of them too.
A connection that skips panels runs below all of them and comes up again, so that it crosses none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from provable_circuits.drawing.diagram import Column, Diagram, Link, Node
from provable_circuits.drawing.scene import Box, Point
from provable_circuits.drawing.text import shortened, text_width

LABEL, HEADING, NOTE, TITLE = 11.0, 12.0, 11.0, 15.0
"""Sizes of the text on components, of the names and notes of layers, and of the title."""

NODE_HEIGHT, NODE_WIDTH, NODE_GAP = 24.0, 30.0, 7.0
NODE_MOST = 96.0
PADDING, PANEL_GAP, MARGIN = 12.0, 64.0, 20.0
HEAD = 36.0
"""Room for the two lines of text at the top of a panel."""

HEADING_MOST = 132.0
TITLE_ROOM, LANE = 38.0, 16.0
KEY, KEY_ROOM = 22.0, 30.0
"""The size of a shape in the legend, and the height of its lines."""

ROWS = 14
"""A layer of up to so many components is one column."""

EDGES = 160
"""Up to so many pairs of kept components get a line each."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The place of a layer: its box, the two lines of text in it, and the boxes of its nodes."""

    box: Box
    heading: str
    note: str
    nodes: tuple[tuple[Node, str, Box], ...]

    @property
    def port_out(self) -> Point:
        """Where connections that skip panels leave it."""
        return self.box.x + 0.66 * self.box.width, self.box.bottom

    @property
    def port_in(self) -> Point:
        """Where they arrive."""
        return self.box.x + 0.34 * self.box.width, self.box.bottom


@dataclass(frozen=True, slots=True)
class Route:
    """The place of a connection.

    Attributes:
        link: the connection.
        band: the corners of the band between neighbouring panels; empty if it skips some.
        edges: lines between kept components of the two.
        way: the points of a way below the panels; empty between neighbours.
    """

    link: Link
    band: tuple[Point, ...] = ()
    edges: tuple[tuple[Point, Point], ...] = ()
    way: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes: all sizes in pixels.

    Attributes:
        width, height: the size of the drawing.
        panels: the layers.
        routes: the connections.
        keys: the place of each entry of the legend: the box of its shape, and its text.
    """

    width: float
    height: float
    panels: tuple[Panel, ...]
    routes: tuple[Route, ...]
    keys: tuple[tuple[str, str, Box], ...]


def arrange(diagram: Diagram) -> Layout:
    """Place the parts of a diagram."""
    most = max(ROWS, math.ceil(math.sqrt(len(diagram.nodes))))
    sizes = [_size(column, most) for column in diagram.columns]
    top = MARGIN + (TITLE_ROOM if diagram.title else 0.0)
    tallest = max((size.height for size in sizes), default=0.0)
    across = sum(size.width for size in sizes) + PANEL_GAP * max(len(sizes) - 1, 0)
    width = max(across, text_width(diagram.title, TITLE), _widest_key(diagram)) + 2 * MARGIN
    x = (width - across) / 2
    panels = []
    for column, size in zip(diagram.columns, sizes, strict=True):
        panels.append(_panel(column, size, x, top + (tallest - size.height) / 2))
        x += size.width + PANEL_GAP
    routes, bottom = _routes(diagram, panels, top + tallest)
    keys, bottom = _keys(diagram, width, bottom + MARGIN)
    return Layout(width, bottom + MARGIN, tuple(panels), tuple(routes), tuple(keys))


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of a panel: its nodes in so many rows, each of one width."""

    width: float
    height: float
    rows: int
    node_width: float
    heading: str
    note: str


def _size(column: Column, most_rows: int) -> _Size:
    labels = [text_width(node.label, LABEL) for node in column.nodes]
    node_width = min(max([NODE_WIDTH, *(label + 12 for label in labels)]), NODE_MOST)
    across = math.ceil(len(labels) / most_rows)
    rows = math.ceil(len(labels) / across) if labels else 0
    inner = across * (node_width + NODE_GAP) - NODE_GAP if labels else 0.0
    heading = shortened(column.title, HEADING, max(HEADING_MOST, inner))
    note = _note(column)
    inner = max(inner, text_width(heading, HEADING), text_width(note, NOTE))
    height = HEAD + rows * (NODE_HEIGHT + NODE_GAP) - NODE_GAP + 1.6 * PADDING if labels else HEAD
    return _Size(inner + 2 * PADDING, height, rows, node_width, heading, note)


def _note(column: Column) -> str:
    """How many components are kept; by each of two circuits, where they differ here."""
    counts = Counter(node.status for node in column.nodes)
    first, second = (counts["kept"] + counts[f"{which} only"] for which in ("first", "second"))
    differ = counts["first only"] or counts["second only"]
    kept = f"{first} and {second}" if differ else f"{first}"
    return f"{kept} of {len(column.nodes)}" if column.nodes else ""


def _panel(column: Column, size: _Size, x: float, y: float) -> Panel:
    across = math.ceil(len(column.nodes) / size.rows) if size.rows else 0
    inner = across * (size.node_width + NODE_GAP) - NODE_GAP
    left = x + (size.width - inner) / 2
    first = y + HEAD + 0.6 * PADDING
    nodes = []
    for i, node in enumerate(column.nodes):
        place, row = divmod(i, size.rows)
        box = Box(
            left + place * (size.node_width + NODE_GAP),
            first + row * (NODE_HEIGHT + NODE_GAP),
            size.node_width,
            NODE_HEIGHT,
            "node",
        )
        nodes.append((node, shortened(node.label, LABEL, size.node_width - 8), box))
    box = Box(x, y, size.width, size.height, "panel", 10.0)
    return Panel(box, size.heading, size.note, tuple(nodes))


def _routes(diagram: Diagram, panels: Sequence[Panel], floor: float) -> tuple[list[Route], float]:
    """The connections, and how far down they reach."""
    routes = []
    lanes: list[list[tuple[float, float]]] = []
    for link in sorted(diagram.links, key=lambda link: (link.target - link.source, link.source)):
        source, target = panels[link.source], panels[link.target]
        if link.target == link.source + 1:
            routes.append(Route(link, _band(source.box, target.box), _edges(source, target)))
            continue
        (start, high), (end, low) = source.port_out, target.port_in
        lane = _free_lane(lanes, start, end)
        depth = floor + LANE * (lane + 1)
        way = ((start, high), (start, depth), (end, depth), (end, low))
        routes.append(Route(link, way=way))
    return routes, floor + LANE * len(lanes)


def _free_lane(lanes: list[list[tuple[float, float]]], start: float, end: float) -> int:
    """The highest lane in which nothing else runs from here to there."""
    for i, taken in enumerate(lanes):
        if all(end < left or right < start for left, right in taken):
            taken.append((start, end))
            return i
    lanes.append([(start, end)])
    return len(lanes) - 1


def _band(source: Box, target: Box) -> tuple[Point, ...]:
    return (
        (source.right, source.y + source.radius),
        (target.x, target.y + target.radius),
        (target.x, target.bottom - target.radius),
        (source.right, source.bottom - source.radius),
    )


def _edges(source: Panel, target: Panel) -> tuple[tuple[Point, Point], ...]:
    """A line for each pair that one circuit keeps, if they are few and nothing is in between."""
    if any(len({box.x for _, _, box in panel.nodes}) > 1 for panel in (source, target)):
        return ()
    pairs = [
        ((left.right, left.middle[1]), (right.x, right.middle[1]))
        for a, _, left in source.nodes
        for b, _, right in target.nodes
        if "removed" not in (a.status, b.status)
        and {a.status, b.status} != {"first only", "second only"}
    ]
    return tuple(pairs) if len(pairs) <= EDGES else ()


def _entries(diagram: Diagram) -> list[tuple[str, str]]:
    entries = list(diagram.legend)
    if any(link.dashed for link in diagram.links):
        entries.append(("residual", "residual connection"))
    return entries


def _key_width(words: str) -> float:
    return KEY + 8 + text_width(words, NOTE) + 22


def _widest_key(diagram: Diagram) -> float:
    return max((_key_width(words) for _, words in _entries(diagram)), default=0.0)


def _keys(diagram: Diagram, width: float, y: float) -> tuple[list[tuple[str, str, Box]], float]:
    """The legend, in as many lines as it needs, and where it ends."""
    keys = []
    x = MARGIN
    for status, words in _entries(diagram):
        if x > MARGIN and x + _key_width(words) > width - MARGIN:
            x, y = MARGIN, y + KEY_ROOM
        keys.append((status, words, Box(x, y, KEY, KEY - 6, "key")))
        x += _key_width(words)
    return keys, y + (KEY - 6 if keys else 0)
