"""Where the parts of a circuit drawing go.

Layers are panels from the left to the right, their middles at one height. A network of many layers
is wrapped into several lines, as words are, and a layer of many components within its panel: so
components are drawn at the same size whether they are 34 or 200, and can be read on a page.
Connections to the next panel are a quiet band between the two; if few components are kept, there is
a line for each connected pair of them too. Other connections run below the panels: see ``routes``.
Where connections meet, in a residual sum say, there is a small circle instead of a panel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from provable_circuits.drawing.diagram import JOINS, Diagram, Link
from provable_circuits.drawing.panels import NOTE, Panel, PanelPlan, plan
from provable_circuits.drawing.routes import (
    Frame,
    Way,
    corners,
    find_ways,
    lanes_of,
    margin,
    neighbours,
)
from provable_circuits.drawing.scene import Point, Rectangle
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

JOIN_BAND = 7.0
"""Half the width of a band where it meets the circle of a join."""

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
    """An entry of the legend: the status or join it explains, or ``"residual"``; words; a place."""

    status: str
    words: str
    box: Rectangle


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
    arriving = Counter(link.target for link in diagram.links)
    plans = [plan(column, most, arriving[i]) for i, column in enumerate(diagram.columns)]
    lines = _lines([plan.width for plan in plans], [bool(c.join) for c in diagram.columns])
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


def _lines(widths: Sequence[float], joins: Sequence[bool]) -> list[list[int]]:
    """The places of panels, in as few lines as they need, of about the same width."""
    lines = _broken(widths, joins, LINE_MOST)
    for limit in range(int(_across(widths) / max(len(lines), 1)), int(LINE_MOST), 10):
        even = _broken(widths, joins, limit)
        if len(even) == len(lines):
            return even
    return lines


def _broken(widths: Sequence[float], joins: Sequence[bool], most: float) -> list[list[int]]:
    """The places of panels in lines, each filled before the next; a join follows its panel."""
    lines: list[list[int]] = []
    for i, joined in enumerate(joins):
        ahead = i + 1
        while ahead < len(joins) and joins[ahead]:
            ahead += 1
        line = [*lines[-1], *range(i, ahead)] if lines else []
        if lines and (joined or _across([widths[k] for k in line]) <= most):
            lines[-1].append(i)
        else:
            lines.append([i])
    return lines


def _across(widths: Sequence[float]) -> float:
    """The width of panels side by side."""
    return sum(widths) + PANEL_GAP * max(len(widths) - 1, 0)


def _frames(plans: Sequence[PanelPlan], lines: Sequence[Sequence[int]], left: float) -> list[Frame]:
    """Where panels are across."""
    frames = []
    for number, line in enumerate(lines):
        x = left
        for i in line:
            frames.append(Frame(x, plans[i].width, number, bool(plans[i].column.join)))
            x += plans[i].width + PANEL_GAP
    return frames


def _stacked(
    plans: Sequence[PanelPlan],
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
    source, target = panels[way.link.source], panels[way.link.target]
    arrives = way.legs[-1].to
    end = target.below(arrives) if way.rises else target.above(arrives)
    return Route(way.link, way=corners(way, source.below(way.start), end, depths))


def _beside(link: Link, source: Panel, target: Panel) -> Route:
    """The connection of two neighbours."""
    (left, top, low), (right, upper, lower) = _side(source, 1), _side(target, 0)
    band = ((left, top), (right, upper), (right, lower), (left, low))
    return Route(link, band, _edges(link, source, target))


def _side(panel: Panel, right: int) -> tuple[float, float, float]:
    """Where a band begins or ends: across, its upper and its lower corner."""
    box = panel.box
    if panel.joins:
        radius, middle = box.height / 2, box.middle[1]
        short = radius - math.sqrt(radius**2 - JOIN_BAND**2)
        across = box.right - short if right else box.x + short
        return across, middle - JOIN_BAND, middle + JOIN_BAND
    across = box.right if right else box.x
    return across, box.y + box.radius, box.bottom - box.radius


def _edges(link: Link, source: Panel, target: Panel) -> tuple[tuple[Point, Point], ...]:
    """A line for each pair that one circuit keeps, if they are few and nothing is in between."""
    if source.wrapped or target.wrapped:
        return ()
    starts = [
        (i, (spot.box.right, spot.box.middle[1]), spot.node.status)
        for i, spot in enumerate(source.spots)
    ]
    ends = [
        (i, (spot.box.x, spot.box.middle[1]), spot.node.status)
        for i, spot in enumerate(target.spots)
    ]
    if source.joins:
        starts = [(0, (source.box.right, source.box.middle[1]), "kept")]
    if target.joins:
        ends = [(0, (target.box.x, target.box.middle[1]), "kept")]
    known = None if link.pairs is None else set(link.pairs)
    lines = [
        (start, end)
        for i, start, first in starts
        for j, end, second in ends
        if _together(first, second) and (known is None or (i, j) in known)
    ]
    return tuple(lines) if len(lines) <= EDGES else ()


def _together(first: str, second: str) -> bool:
    """Whether some circuit keeps both components, by their statuses."""
    both = {first, second}
    return "removed" not in both and both != {"first only", "second only"}


def _entries(diagram: Diagram) -> list[tuple[str, str]]:
    entries = list(diagram.legend)
    if any(link.dashed for link in diagram.links):
        entries.append(("residual", "residual connection"))
    return [*entries, *((symbol, JOINS[symbol]) for symbol in diagram.joins)]


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
        keys.append(Key(status, words, Rectangle(x, y, KEY, KEY_HEIGHT, "key")))
        x += _key_width(words) + KEY
    return keys, y + (KEY_HEIGHT if keys else 0.0)
