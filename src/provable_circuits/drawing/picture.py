"""A circuit diagram as shapes."""

from __future__ import annotations

import math
from itertools import pairwise

from provable_circuits.drawing.diagram import JOINS, Diagram
from provable_circuits.drawing.layout import MARGIN, TITLE, Route, arrange
from provable_circuits.drawing.panels import HEADING, LABEL, NOTE, Panel, Spot
from provable_circuits.drawing.scene import Group, Item, Path, Point, Rectangle, Scene, Text

CORNER = 8.0
"""The radius of the corners of a way."""

SYMBOL = 18.0
"""The size of the symbol of a join."""


def scene_of(diagram: Diagram) -> Scene:
    """The drawing of a diagram."""
    layout = arrange(diagram)
    items: list[Item] = [Rectangle(0, 0, layout.width, layout.height, "paper")]
    if diagram.title:
        items.append(Text(MARGIN, MARGIN + 10, diagram.title, "title", TITLE, "start"))
    items += [item for route in layout.routes if route.band for item in _band(route)]
    items += [item for panel in layout.panels for item in _panel(panel)]
    items += [Path(route.edges, "edge") for route in layout.routes if route.edges]
    items += [item for route in layout.routes if route.way for item in _way(route)]
    items += [_component(spot, diagram) for panel in layout.panels for spot in panel.spots]
    for key in layout.keys:
        text = Text(key.box.right + 8, key.box.middle[1], key.words, "note", NOTE, "start")
        items.append(Group("key", (*_key(key.box, key.status), text)))
    return Scene(
        layout.width, layout.height, diagram.title, diagram.description, tuple(items), "circuit"
    )


def _component(spot: Spot, diagram: Diagram) -> Group:
    node = spot.node
    kind = node.status.replace(" ", "-")
    label = Text(*spot.box.middle, spot.label, f"label {kind}", LABEL)
    title = f"{node.name}: {diagram.words(node.status)}"
    return Group(f"component {kind}", (_shape(spot.box, node.status), label), title, node.name)


def _shape(box: Rectangle, status: str) -> Rectangle | Path:
    """The shape of a component; those of one circuit differ in fill and outline alone."""
    role = f"shape {status.replace(' ', '-')}"
    if status == "second only":
        x, y, right, bottom, slope = box.x, box.y, box.right, box.bottom, 8.0
        middle = box.middle[1]
        corners = (
            (x, middle),
            (x + slope, y),
            (right - slope, y),
            (right, middle),
            (right - slope, bottom),
            (x + slope, bottom),
        )
        return Path((corners,), role, closed=True)
    radius = 0.0 if status == "first only" else box.height / 2
    return Rectangle(box.x, box.y, box.width, box.height, role, radius)


def _key(box: Rectangle, status: str) -> tuple[Rectangle | Path | Text, ...]:
    if status == "residual":
        y = box.middle[1]
        return (Path((((box.x, y), (box.right, y)),), "arc dashed"),)
    if status in JOINS:
        radius = box.height / 2
        circle = Rectangle(box.middle[0] - radius, box.y, box.height, box.height, "join", radius)
        return circle, Text(*circle.middle, status, "join-symbol", LABEL)
    return (_shape(box, status),)


def _panel(panel: Panel) -> list[Item]:
    box = panel.box
    middle = box.middle[0]
    if panel.joins:
        symbol = Text(*box.middle, panel.heading, "join-symbol", SYMBOL)
        return [Group("join", (box, symbol), JOINS[panel.heading])]
    if not panel.spots:
        return [box, Text(*box.middle, panel.heading, "heading", HEADING)]
    return [
        box,
        Text(middle, box.y + 16, panel.heading, "heading", HEADING),
        Text(middle, box.y + 31, panel.note, "note", NOTE),
    ]


def _band(route: Route) -> list[Item]:
    """The band between two neighbours, with dashed borders if it is residual."""
    upper, lower = route.band[:2], route.band[2:]
    items: list[Item] = [Path((route.band,), "band", closed=True)]
    return [*items, Path((upper, lower), "arc dashed")] if route.link.dashed else items


def _way(route: Route) -> list[Item]:
    """A line with round corners, and an arrow at its end."""
    (_, before), (x, y) = route.way[-2:]
    back = 1.0 if before > y else -1.0
    arrow = ((x, y + back), (x - 4, y + 9 * back), (x + 4, y + 9 * back))
    stroke = _rounded((*route.way[:-1], (x, y + 8 * back)))
    role = "arc dashed" if route.link.dashed else "arc"
    return [Path((stroke,), role), Path((arrow,), "arrow", closed=True)]


def _rounded(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """The same stroke with each corner replaced by a curve through a few points."""
    found = [points[0]]
    for (before, corner), (_, after) in pairwise(pairwise(points)):
        start, end = _towards(corner, before), _towards(corner, after)
        for step in range(5):
            t = step / 4
            found.append(
                (
                    (1 - t) ** 2 * start[0] + 2 * t * (1 - t) * corner[0] + t**2 * end[0],
                    (1 - t) ** 2 * start[1] + 2 * t * (1 - t) * corner[1] + t**2 * end[1],
                )
            )
    return (*found, points[-1])


def _towards(corner: Point, other: Point) -> Point:
    """The point at the start of a round corner, on the way to another."""
    length = math.dist(corner, other)
    share = min(CORNER, length / 2) / length if length else 0.0
    return (
        corner[0] + share * (other[0] - corner[0]),
        corner[1] + share * (other[1] - corner[1]),
    )
