"""Where the parts of a circuit drawing go.

Layers are panels from the left to the right, their middles at one height. A network of many layers
is wrapped into several lines, as words are, and a layer of many components within its panel: so
components are drawn at the same size whether they are 34 or 200, and can be read on a page.
Connections to the next panel are a quiet band between the two; if few components are kept, there is
a line for each pair of them too. Other connections run below the panels: see ``routes``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from provable_circuits.drawing.diagram import Diagram, Link
from provable_circuits.drawing.panels import NOTE, Panel, Plan, plan
from provable_circuits.drawing.routes import (
    Frame,
    Way,
    corners,
    find_ways,
    lanes_of,
    margin,
    neighbours,
)
from provable_circuits.drawing.scene import Box, Point
from provable_circuits.drawing.text import text_width

TITLE, TITLE_ROOM = 15.0, 38.0
"""The size of the title, and the room that it takes."""

ROWS = 14
"""A layer of up to so many components is one column."""

EDGES = 160
"""Up to so many pairs of kept components get a line each."""

MARGIN, PANEL_GAP = 20.0, 56.0
LINE_MOST = 1240.0
"""Panels side by side are at most so wide; the others go into the next line."""

LANE, LINE_GAP = 16.0, 34.0
"""The room between two connections below the panels, and below those to the next line."""

KEY, KEY_HEIGHT, KEY_ROOM = 22.0, 16.0, 30.0
"""The width and height of a shape in the legend, and the room for a line of it."""


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
class Key:
    """An entry of the legend: the status it explains, or ``"residual"``; words, and a place."""

    status: str
    words: str
    box: Box


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes, in pixels.

    Attributes:
        width, height: the size of the drawing.
        panels: the layers.
        routes: the connections.
        keys: the legend.
    """

    width: float
    height: float
    panels: tuple[Panel, ...]
    routes: tuple[Route, ...]
    keys: tuple[Key, ...]


def arrange(diagram: Diagram) -> Layout:
    """Place the parts of a diagram."""
    most = max(ROWS, math.ceil(math.sqrt(len(diagram.nodes))))
    plans = [plan(column, most) for column in diagram.columns]
    lines = _lines([plan.width for plan in plans])
    side = margin(diagram.links, _frames(plans, lines, 0.0))
    frames = _frames(plans, lines, MARGIN + side)
    right = max((frame.left + frame.width for frame in frames), default=0.0)
    title = text_width(diagram.title, TITLE, bold=True)
    width = max(right, MARGIN + title, MARGIN + _widest_key(diagram)) + MARGIN
    ways = find_ways(diagram.links, frames, MARGIN + side)
    top = MARGIN + (TITLE_ROOM if diagram.title else 0.0)
    panels, depths, bottom = _stacked(plans, lines, frames, ways, top)
    routes = [
        _beside(link, panels[link.source], panels[link.target])
        for link in diagram.links
        if neighbours(link, frames)
    ]
    routes += [_around(way, panels, depths) for way in ways]
    keys, bottom = _keys(diagram, width, bottom + MARGIN)
    return Layout(width, bottom + MARGIN, tuple(panels), tuple(routes), tuple(keys))


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


def _across(widths: Sequence[float]) -> float:
    """The width of panels side by side."""
    return sum(widths) + PANEL_GAP * max(len(widths) - 1, 0)


def _frames(plans: Sequence[Plan], lines: Sequence[Sequence[int]], left: float) -> list[Frame]:
    """Where panels are across."""
    frames = []
    for number, line in enumerate(lines):
        x = left
        for i in line:
            frames.append(Frame(x, plans[i].width, number))
            x += plans[i].width + PANEL_GAP
    return frames


def _stacked(
    plans: Sequence[Plan],
    lines: Sequence[Sequence[int]],
    frames: Sequence[Frame],
    ways: Sequence[Way],
    top: float,
) -> tuple[list[Panel], dict[tuple[int, int], float], float]:
    """The panels line below line, how far down each lane is, and where all that ends."""
    lanes = lanes_of(ways)
    panels = []
    depths: dict[tuple[int, int], float] = {}
    floor = top
    for number, line in enumerate(lines):
        y = floor + LANE * lanes[number - 1] + LINE_GAP if number else top
        tallest = max(plans[i].height for i in line)
        for i in line:
            panels.append(plans[i].at(frames[i].left, y + (tallest - plans[i].height) / 2))
        floor = y + tallest
        depths |= {(number, lane): floor + LANE * (lane + 1) for lane in range(lanes[number])}
    return panels, depths, max([floor, *depths.values()])


def _around(way: Way, panels: Sequence[Panel], depths: dict[tuple[int, int], float]) -> Route:
    """A connection around panels."""
    source, target = panels[way.link.source].box, panels[way.link.target].box
    end = target.bottom if way.rises else target.y
    return Route(way.link, way=corners(way, source.bottom, end, depths))


def _beside(link: Link, source: Panel, target: Panel) -> Route:
    """The connection of two neighbours."""
    left, right = source.box, target.box
    band = (
        (left.right, left.y + left.radius),
        (right.x, right.y + right.radius),
        (right.x, right.bottom - right.radius),
        (left.right, left.bottom - left.radius),
    )
    return Route(link, band, _edges(source, target))


def _edges(source: Panel, target: Panel) -> tuple[tuple[Point, Point], ...]:
    """A line for each pair that one circuit keeps, if they are few and nothing is in between."""
    if source.wrapped or target.wrapped:
        return ()
    pairs = [
        ((left.box.right, left.box.middle[1]), (right.box.x, right.box.middle[1]))
        for left in source.spots
        for right in target.spots
        if _together(left.node.status, right.node.status)
    ]
    return tuple(pairs) if len(pairs) <= EDGES else ()


def _together(first: str, second: str) -> bool:
    """Whether some circuit keeps both components, by their statuses."""
    both = {first, second}
    return "removed" not in both and both != {"first only", "second only"}


def _entries(diagram: Diagram) -> list[tuple[str, str]]:
    entries = list(diagram.legend)
    if any(link.dashed for link in diagram.links):
        entries.append(("residual", "residual connection"))
    return entries


def _key_width(words: str) -> float:
    return KEY + 8 + text_width(words, NOTE)


def _widest_key(diagram: Diagram) -> float:
    return max((_key_width(words) for _, words in _entries(diagram)), default=0.0)


def _keys(diagram: Diagram, width: float, y: float) -> tuple[list[Key], float]:
    """The legend, in as many lines as it needs, and where it ends."""
    keys: list[Key] = []
    x = MARGIN
    for status, words in _entries(diagram):
        if keys and x + _key_width(words) > width - MARGIN:
            x, y = MARGIN, y + KEY_ROOM
        keys.append(Key(status, words, Box(x, y, KEY, KEY_HEIGHT, "key")))
        x += _key_width(words) + KEY
    return keys, y + (KEY_HEIGHT if keys else 0.0)
