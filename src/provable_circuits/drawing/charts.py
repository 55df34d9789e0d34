"""Small charts from plain data: steps and lines, scattered points, bars.

Zero is always shown, so that sizes can be compared by eye. Series differ by their dashes or marks
as well as by their colours, and bars have their numbers beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from provable_circuits.drawing.axes import MARGIN, NOTE, TITLE, Axes, left_room, ticks
from provable_circuits.drawing.scene import Group, Item, Path, Point, Rectangle, Scene, Text
from provable_circuits.drawing.style import SERIES
from provable_circuits.drawing.text import shortened, text_width
from provable_circuits.errors import ArgumentError

WIDTH, HEIGHT = 560.0, 220.0
"""The size of a chart, and the height of its frame."""

KEY = 26.0
LINE = 20.0
BAR, BAR_GAP, BAR_LEAST = 16.0, 10.0, 60.0
"""The height of a bar, the gap to the next, and the length that the longest has at least."""

LABEL_MOST = 150.0


@dataclass(frozen=True, slots=True)
class Series:
    """A named list of points (x, y)."""

    name: str
    points: tuple[Point, ...]


def steps(series: Sequence[Series], *, title: str, x: str, y: str) -> Scene:
    """Values that hold until the next one; ``x`` and ``y`` say what the axes are."""
    return _chart(series, title, x, y, _stepped, _line_key)


def lines(series: Sequence[Series], *, title: str, x: str, y: str) -> Scene:
    """Values joined by straight lines, each with a mark."""
    return _chart(series, title, x, y, _joined, _line_key)


def scatter(series: Sequence[Series], *, title: str, x: str, y: str) -> Scene:
    """Points; those that coincide are one larger mark."""
    return _chart(series, title, x, y, _scattered, _mark_key)


def bars(
    rows: Mapping[str, Mapping[str, float]],
    *,
    title: str,
    x: str,
    parts: Sequence[str] | None = None,
) -> Scene:
    """A horizontal bar for each row, made of its parts one after the other.

    Args:
        rows: by the name of a row, its parts by their names.
        title: what the chart shows.
        x: what is counted.
        parts: all parts, in the order of their colours; by default as they first occur.
    """
    if parts is None:
        parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    _check_count(len(parts))
    labels = [shortened(name, NOTE, LABEL_MOST) for name in rows]
    notes = [_count(row, parts) for row in rows.values()]
    left = MARGIN + max((text_width(label, NOTE) for label in labels), default=0.0) + 10
    room = WIDTH - MARGIN - 8 - left
    short = [shortened(note, NOTE, room - BAR_LEAST) for note in notes]
    scale = _scale(rows, short, room)
    shown = [
        (place, part)
        for place, part in enumerate(parts)
        if any(row.get(part) for row in rows.values())
    ]
    items, top = _head(title, shown, _bar_key)
    y = top + BAR_GAP
    told = [f"{name}: {note}" for name, note in zip(rows, notes, strict=True)]
    for row, label, note, title_of_bar in zip(rows.values(), labels, short, told, strict=True):
        bar = _bar(left, y, scale, row, parts)
        items.append(Text(left - 8, y + BAR / 2, label, "note", NOTE, "end"))
        items.append(Group("bar", bar, title_of_bar))
        end = bar[-1].right if bar else left
        items.append(Text(end + 8, y + BAR / 2, note, "note", NOTE, "start"))
        y += BAR + BAR_GAP
    items.append(Path((((left, top), (left, y)),), "axis"))
    items.append(Text(left, y + 12, x, "note", NOTE, "start"))
    return _scene(title, " ".join(f"{line}." for line in told), items, y + 12 + MARGIN)


def _scale(rows: Mapping[str, Mapping[str, float]], notes: Sequence[str], room: float) -> float:
    """Pixels for one, so that every bar and its note fit."""
    fits = [
        (room - text_width(note, NOTE)) / sum(row.values())
        for row, note in zip(rows.values(), notes, strict=True)
        if sum(row.values())
    ]
    return min(fits, default=1.0)


def _bar(
    x: float, y: float, scale: float, row: Mapping[str, float], parts: Sequence[str]
) -> tuple[Rectangle, ...]:
    boxes = []
    for place, part in enumerate(parts):
        if row.get(part):
            boxes.append(Rectangle(x, y, scale * row[part], BAR, f"mark series-{place + 1}"))
            x = boxes[-1].right
    return tuple(boxes)


def _count(row: Mapping[str, float], parts: Sequence[str]) -> str:
    """The parts of a row in words."""
    return ", ".join(f"{row[part]:,} {part}" for part in parts if row.get(part)) or "none"


Drawn = Callable[[Axes, Series, int], list[Item]]
Key = Callable[[float, float, int], Item]


def _chart(series: Sequence[Series], title: str, x: str, y: str, draw: Drawn, key: Key) -> Scene:
    """Axes with some series in them, and a legend if there are several."""
    _check_count(len(series))
    x_ticks = ticks([point[0] for one in series for point in one.points], whole=False)
    y_ticks = ticks([point[1] for one in series for point in one.points])
    entries = [(place, one.name) for place, one in enumerate(series)]
    head, top = _head(title, entries if len(series) > 1 else [], key)
    left = left_room(y_ticks)
    frame = Rectangle(left, top + 6, WIDTH - left - MARGIN - 8, HEIGHT, "frame")
    axes = Axes(frame, x_ticks, y_ticks)
    items = [*head, *axes.items(x, y)]
    for place, one in enumerate(series):
        items += draw(axes, one, place) if one.points else []
    if not any(one.points for one in series):
        items.append(Text(*frame.middle, "nothing to show", "note", NOTE))
    description = f"{y} over {x}. " + " ".join(_told(one) for one in series)
    return _scene(title, description, items, frame.bottom + 34 + MARGIN)


def _told(series: Series) -> str:
    """A series in words."""
    if not series.points:
        return f"{series.name}: no points."
    (x, y), (u, v) = series.points[0], series.points[-1]
    if len(series.points) == 1:
        return f"{series.name}: {y:g} at {x:g}."
    return f"{series.name}: {len(series.points)} points, {y:g} at {x:g} to {v:g} at {u:g}."


def _stepped(axes: Axes, series: Series, place: int) -> list[Item]:
    points = [series.points[0]]
    for (_, before), (x, y) in pairwise(series.points):
        points += [(x, before), (x, y)]
    stroke = tuple(axes.place(*point) for point in points)
    return [Path((stroke,), f"line series-{place + 1}")]


def _joined(axes: Axes, series: Series, place: int) -> list[Item]:
    stroke = tuple(axes.place(*point) for point in series.points)
    line: list[Item] = [Path((stroke,), f"line series-{place + 1}")]
    return line + _scattered(axes, series, place)


def _scattered(axes: Axes, series: Series, place: int) -> list[Item]:
    items: list[Item] = []
    for (x, y), count in Counter(series.points).items():
        mark = _mark(axes.place(x, y), 4.0 * min(count, 9) ** 0.5, place)
        times = f" ({count} times)" if count > 1 else ""
        items.append(Group("point", (mark,), f"{series.name}: {y:g} at {x:g}{times}"))
    return items


def _mark(middle: Point, size: float, place: int) -> Rectangle | Path:
    """A circle, square, triangle or diamond, by turns."""
    x, y = middle
    role = f"mark series-{place + 1}"
    kind = place % 4
    if kind < 2:
        return Rectangle(x - size, y - size, 2 * size, 2 * size, role, size if kind == 0 else 0.0)
    wide = 1.2 * size
    corners = {
        2: ((x, y - wide), (x + wide, y + size), (x - wide, y + size)),
        3: ((x, y - wide), (x + wide, y), (x, y + wide), (x - wide, y)),
    }[kind]
    return Path((corners,), role, closed=True)


def _line_key(x: float, y: float, place: int) -> Item:
    return Path((((x, y), (x + KEY, y)),), f"line series-{place + 1}")


def _mark_key(x: float, y: float, place: int) -> Item:
    return _mark((x + KEY / 2, y), 5.0, place)


def _bar_key(x: float, y: float, place: int) -> Item:
    return Rectangle(x + 6, y - 6, KEY - 6, 12, f"mark series-{place + 1}")


def _head(title: str, entries: Sequence[tuple[int, str]], key: Key) -> tuple[list[Item], float]:
    """The title and the legend, and where they end."""
    items: list[Item] = [Text(MARGIN, MARGIN + 6, title, "title", TITLE, "start")]
    x, y = MARGIN, MARGIN + 30
    for place, name in entries:
        words = shortened(name, NOTE, WIDTH - 2 * MARGIN - KEY - 10)
        width = KEY + 8 + text_width(words, NOTE) + 18
        if x > MARGIN and x + width > WIDTH:
            x, y = MARGIN, y + LINE
        items += [key(x, y, place), Text(x + KEY + 8, y, words, "note", NOTE, "start")]
        x += width
    return items, y + (LINE if entries else 0.0) - 4


def _scene(
    title: str, description: str, items: Sequence[Item], height: float, width: float = WIDTH
) -> Scene:
    paper = Rectangle(0, 0, width, height, "paper")
    return Scene(width, height, title, description, (paper, *items))


def _check_count(count: int) -> None:
    if count > SERIES:
        raise ArgumentError(f"A chart has room for {SERIES} series. Got {count}: show fewer.")
