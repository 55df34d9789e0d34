"""Where the parts of a circuit drawing go.

Layers are panels from the left to the right, their middles on one line. A layer of many components
is wrapped into several columns of equal height within its panel, and a network of many layers into
several lines, as words are: so components are drawn at the same size whether they are 34 or 200,
and fill a page of about the same shape. Connections to the next panel are a quiet band between the
two; if few components are kept, there is a line for each pair of them too. Other connections run
below the panels: see ``routes``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from provable_circuits.drawing.diagram import Column, Diagram, Link, Node
from provable_circuits.drawing.routes import (
    Frame,
    find_ways,
    lanes_of,
    margin,
    neighbours,
    points,
)
from provable_circuits.drawing.scene import Box, Point
from provable_circuits.drawing.text import shortened, text_width

LABEL, HEADING, NOTE, TITLE = 11.0, 12.0, 11.0, 15.0
"""Sizes of the text on components, of the names and notes of layers, and of the title."""

NODE_HEIGHT, NODE_WIDTH, NODE_GAP = 24.0, 30.0, 7.0
NODE_MOST = 96.0
PADDING, PANEL_GAP, MARGIN = 12.0, 64.0, 20.0
HEAD = 36.0
"""Room for the two lines of text at the top of a panel."""

HEADING_MOST = 140.0
TITLE_ROOM, LANE, LINE_GAP = 38.0, 16.0, 34.0
LINE_MOST = 1180.0
"""Panels side by side are at most so wide; the others go into the next line."""

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


@dataclass(frozen=True, slots=True)
class Route:
    """The place of a connection.

    Attributes:
        link: the connection.
        band: the corners of the band between neighbouring panels; else empty.
        edges: lines between kept components of the two.
        way: the corners of its way around panels; empty between neighbours.
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
    lines = _lines([size.width for size in sizes])
    across = max((_across([sizes[i].width for i in line]) for line in lines), default=0.0)
    title = text_width(diagram.title, TITLE, bold=True)
    side = margin(diagram.links, _frames(sizes, lines, MARGIN))
    width = max(across + side, title, _widest_key(diagram)) + 2 * MARGIN
    frames = _frames(sizes, lines, MARGIN + side)
    ways = find_ways(diagram.links, frames, MARGIN + side)
    lanes = lanes_of(ways)
    panels: list[Panel] = []
    depths: dict[tuple[int, int], float] = {}
    y = MARGIN + (TITLE_ROOM if diagram.title else 0.0)
    for number, line in enumerate(lines):
        tallest = max(sizes[i].height for i in line)
        for i in line:
            top = y + (tallest - sizes[i].height) / 2
            panels.append(_panel(diagram.columns[i], sizes[i], frames[i].left, top))
        floor = y + tallest
        depths |= {(number, lane): floor + LANE * (lane + 1) for lane in range(lanes[number])}
        y = floor + LANE * lanes[number] + (LINE_GAP if number + 1 < len(lines) else 0.0)
    routes = [
        _beside(link, panels[link.source], panels[link.target])
        for link in diagram.links
        if neighbours(link, frames)
    ]
    for way in ways:
        source, target = panels[way.link.source].box, panels[way.link.target].box
        end = target.bottom if way.rises else target.y
        routes.append(Route(way.link, way=tuple(points(way, source.bottom, end, depths))))
    keys, bottom = _keys(diagram, width, y + MARGIN)
    return Layout(width, bottom + MARGIN, tuple(panels), tuple(routes), tuple(keys))


def _across(widths: Sequence[float]) -> float:
    """The width of panels side by side."""
    return sum(widths) + PANEL_GAP * max(len(widths) - 1, 0)


def _lines(widths: Sequence[float]) -> list[list[int]]:
    """The places of panels, in as few lines as they need, of about the same width."""
    lines = _broken(widths, LINE_MOST)
    for limit in range(int(_across(widths) / max(len(lines), 1)), int(LINE_MOST), 10):
        even = _broken(widths, limit)
        if len(even) == len(lines):
            return even
    return lines


def _broken(widths: Sequence[float], most: float) -> list[list[int]]:
    """The places of panels in lines, each filled before the next."""
    lines: list[list[int]] = []
    for i in range(len(widths)):
        if lines and _across([widths[k] for k in [*lines[-1], i]]) <= most:
            lines[-1].append(i)
        else:
            lines.append([i])
    return lines


def _frames(sizes: Sequence[_Size], lines: Sequence[Sequence[int]], left: float) -> list[Frame]:
    """Where panels are across."""
    frames = []
    for number, line in enumerate(lines):
        x = left
        for i in line:
            frames.append(Frame(x, sizes[i].width, number))
            x += sizes[i].width + PANEL_GAP
    return frames


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
    labels = [text_width(node.label, LABEL, bold=True) for node in column.nodes]
    node_width = min(max([NODE_WIDTH, *(label + 12 for label in labels)]), NODE_MOST)
    across = math.ceil(len(labels) / most_rows)
    rows = math.ceil(len(labels) / across) if labels else 0
    inner = across * (node_width + NODE_GAP) - NODE_GAP if labels else 0.0
    heading = shortened(column.title, HEADING, max(HEADING_MOST, inner), bold=True)
    note = _note(column)
    inner = max(inner, text_width(heading, HEADING, bold=True), text_width(note, NOTE))
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
        nodes.append((node, shortened(node.label, LABEL, size.node_width - 8, bold=True), box))
    box = Box(x, y, size.width, size.height, "panel", 10.0)
    return Panel(box, size.heading, size.note, tuple(nodes))


def _beside(link: Link, source: Panel, target: Panel) -> Route:
    """The connection of two neighbours."""
    return Route(link, _band(source.box, target.box), _edges(source, target))


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
