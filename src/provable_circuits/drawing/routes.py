"""Where the connections of a circuit drawing go.

Panels stand in lines, like words. Neighbours are joined by a band. Any other connection leaves its
panel at the bottom and runs in the gutter below that line, in a lane where nothing else runs; then
it comes up again to a panel of the same line, or down to one of the next. To a line further down it
takes the left margin from one gutter to the other. So no connection crosses a panel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from provable_circuits.drawing.diagram import Link
from provable_circuits.drawing.scene import Point

SIDE = 10.0
"""The room in the left margin for each connection that takes it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a panel is across, in which line, and whether it is the circle of a join."""

    left: float
    width: float
    line: int
    join: bool = False

    @property
    def middle(self) -> float:
        """Half way across."""
        return self.left + self.width / 2


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a way: along a lane of a gutter, to some place across."""

    gutter: int
    lane: int
    to: float


@dataclass(frozen=True, slots=True)
class Way:
    """The way of a connection, before it is known how far down the gutters are.

    Attributes:
        link: the connection.
        start: where it leaves its panel, across.
        legs: its parts along gutters; the last leads to below or above its target.
        rises: it comes up to its target, rather than down.
    """

    link: Link
    start: float
    legs: tuple[Leg, ...]
    rises: bool


def neighbours(link: Link, frames: Sequence[Frame]) -> bool:
    """Whether a connection is between panels side by side."""
    same_line = frames[link.source].line == frames[link.target].line
    return link.target == link.source + 1 and same_line


def margin(links: Sequence[Link], frames: Sequence[Frame]) -> float:
    """The room that connections need at the left."""
    return SIDE * sum(_aside(link, frames) for link in links)


def _aside(link: Link, frames: Sequence[Frame]) -> bool:
    return frames[link.target].line > frames[link.source].line + 1


def find_ways(links: Sequence[Link], frames: Sequence[Frame], left: float) -> list[Way]:
    """The ways of all connections but those between neighbours; ``left`` is the inner margin."""
    far = [link for link in links if not neighbours(link, frames)]
    leaving, arriving = _ports(far, frames)
    lanes: dict[int, list[list[tuple[float, float]]]] = {}
    ways = []
    for link in sorted(far, key=lambda link: _depth(link, frames)):
        start, end = leaving[link], arriving[link]
        first, last = frames[link.source].line, frames[link.target].line
        stops = [(first, end)]
        if _aside(link, frames):
            left -= SIDE
            stops = [(first, left), (last - 1, end)]
        legs = []
        for (_, before), (gutter, to) in pairwise([(first, start), *stops]):
            span = (min(before, to), max(before, to))
            legs.append(Leg(gutter, _free_lane(lanes.setdefault(gutter, []), span), to))
        ways.append(Way(link, start, tuple(legs), rises=first == last))
    return ways


def _depth(link: Link, frames: Sequence[Frame]) -> tuple[float, ...]:
    """Connections are given lanes in this order, from the highest.

    Those within a line come first, the shorter above. Below them are those that go back to the left
    and down: the further to the left, the higher, so that none comes down through another.
    """
    source, target = frames[link.source], frames[link.target]
    within = source.line == target.line
    return (not within, link.target - link.source if within else target.left, link.source)


def lanes_of(ways: Sequence[Way]) -> Counter[int]:
    """How many lanes each gutter has."""
    count: Counter[int] = Counter()
    for way in ways:
        for leg in way.legs:
            count[leg.gutter] = max(count[leg.gutter], leg.lane + 1)
    return count


def _ports(
    links: Sequence[Link], frames: Sequence[Frame]
) -> tuple[dict[Link, float], dict[Link, float]]:
    """Where connections leave and arrive across, such that those of one panel do not cross.

    They leave in the right half of a panel and arrive in its left half; at a join, which is narrow,
    they are spread evenly. Of those that arrive, the longer ones, which run deeper, arrive further
    to the right. Those that go to the left leave to the left of those that go to the right, and of
    the latter the longer ones, which run deeper, leave further to the left.
    """
    leaving: dict[Link, float] = {}
    arriving: dict[Link, float] = {}
    for place, frame in enumerate(frames):
        out = sorted((k for k in links if k.source == place), key=lambda k: _turn(k, frames))
        into = sorted((k for k in links if k.target == place), key=lambda k: -k.source)
        rising = [k for k in into if frames[k.source].line == frame.line]
        falling = [k for k in into if k not in rising]
        if frame.join:
            below = _spread([*rising, *out], frame.left, frame.width)
            leaving |= {k: below[k] for k in out}
            arriving |= {k: below[k] for k in rising}
            arriving |= _spread(falling, frame.left, frame.width)
        else:
            half = frame.width / 2
            leaving |= _spread(out, frame.left + half, half)
            arriving |= _spread(into, frame.left, half)
    return leaving, arriving


def _turn(link: Link, frames: Sequence[Frame]) -> tuple[float, float]:
    """The order in which connections leave a panel, from the left."""
    source, target = frames[link.source].middle, frames[link.target].middle
    return (0, target) if target < source else (1, -link.target)


def _spread(links: Sequence[Link], left: float, width: float) -> dict[Link, float]:
    """Places across at even distances."""
    return {k: left + width * i / (len(links) + 1) for i, k in enumerate(links, start=1)}


def _free_lane(lanes: list[list[tuple[float, float]]], span: tuple[float, float]) -> int:
    """The highest lane in which nothing else runs there; it is taken from now on."""
    for i, taken in enumerate(lanes):
        if all(span[1] < low or high < span[0] for low, high in taken):
            taken.append(span)
            return i
    lanes.append([span])
    return len(lanes) - 1


def corners(
    way: Way, top: float, bottom: float, depths: Mapping[tuple[int, int], float]
) -> tuple[Point, ...]:
    """The corners of a way, from the lower edge of its source to an edge of its target.

    Args:
        way: the way.
        top: the lower edge of the panel that it leaves.
        bottom: the edge of the panel at which it arrives.
        depths: how far down each lane of each gutter is.
    """
    x = way.start
    found = [(x, top)]
    for leg in way.legs:
        y = depths[leg.gutter, leg.lane]
        found += [(x, y), (leg.to, y)]
        x = leg.to
    return (*found, (x, bottom))
