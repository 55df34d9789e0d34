from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provable_circuits.drawing.axes import Axes, ticks
from provable_circuits.drawing.charts import Series, bars, lines, scatter, steps
from provable_circuits.drawing.scene import Group, Item, Path, Rectangle, Scene, Text
from provable_circuits.drawing.svg import svg
from provable_circuits.drawing.text import text_width
from provable_circuits.errors import ArgumentError

NAMES = {"title": "A chart", "x": "seconds", "y": "components"}
FINITE = st.floats(-1e9, 1e9, allow_subnormal=False).map(lambda value: round(value, 3))


def parts(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item, Group):
            yield from parts(item.items)


def shapes(scene: Scene, role: str) -> list[Rectangle | Path]:
    return [i for i in parts(scene.items) if isinstance(i, Rectangle | Path) and i.role == role]


def texts(scene: Scene) -> list[Text]:
    return [item for item in parts(scene.items) if isinstance(item, Text)]


def frame(scene: Scene) -> tuple[float, float, float, float]:
    """Left, right, top and bottom of the grid."""
    (grid,) = (shape for shape in shapes(scene, "grid") if isinstance(shape, Path))
    xs, ys = zip(*(point for stroke in grid.strokes for point in stroke), strict=True)
    return min(xs), max(xs), min(ys), max(ys)


@given(st.lists(FINITE, max_size=8))
def test_ticks_are_few_evenly_spaced_and_around_all_values(values: list[float]) -> None:
    marks = ticks(values)
    assert 2 <= len(marks) <= 8
    gaps = [b - a for a, b in pairwise(marks)]
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-6)
    slack = 1e-6 * (marks[-1] - marks[0])
    assert marks[0] - slack <= min([0.0, *values])
    assert max([0.0, *values]) <= marks[-1] + slack


def test_counts_have_whole_ticks() -> None:
    assert ticks([0, 2]) == (0, 1, 2)
    assert ticks([34, 13]) == (0, 10, 20, 30, 40)
    assert ticks([0.03, 0.05]) == pytest.approx((0, 0.01, 0.02, 0.03, 0.04, 0.05))
    assert ticks([]) == (0, 1)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_only_finite_numbers_are_shown(value: float) -> None:
    with pytest.raises(ArgumentError, match="must be finite numbers"):
        steps([Series("size", ((0, value),))], **NAMES)


def test_places_run_to_the_right_and_upwards() -> None:
    axes = Axes(Rectangle(10, 20, 100, 50, "frame"), (0, 1, 2), (0, 5))
    assert axes.place(0, 0) == (10, 70)
    assert axes.place(2, 5) == (110, 20)


@pytest.mark.parametrize("chart", [steps, lines, scatter])
@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=6))
def test_every_point_is_inside_the_frame(
    chart: Callable[..., Scene], points: list[tuple[float, float]]
) -> None:
    scene = chart([Series("one", tuple(points))], **NAMES)
    left, right, top, bottom = frame(scene)
    assert 0 < left < right < scene.width
    assert 0 < top < bottom < scene.height
    drawn = []
    for shape in shapes(scene, "line series-1") + shapes(scene, "mark series-1"):
        if isinstance(shape, Path):
            drawn += [point for stroke in shape.strokes for point in stroke]
        else:
            drawn.append(shape.middle)
    assert drawn
    for x, y in drawn:
        assert left - 1e-3 <= x <= right + 1e-3
        assert top - 1e-3 <= y <= bottom + 1e-3


def test_steps_hold_until_the_next() -> None:
    scene = steps([Series("size", ((0, 4), (1, 2), (2, 2)))], **NAMES)
    left, right, top, bottom = frame(scene)
    (line,) = shapes(scene, "line series-1")
    assert isinstance(line, Path)
    middle = (left + right) / 2
    half = (top + bottom) / 2
    xs, ys = zip(*line.strokes[0], strict=True)
    assert xs == pytest.approx((left, middle, middle, right, right))
    assert ys == pytest.approx((top, top, half, half, half))


def test_points_that_coincide_are_one_larger_mark() -> None:
    scene = scatter([Series("greedy", ((1, 2), (1, 2), (3, 4)))], **NAMES)
    first, second = (s for s in shapes(scene, "mark series-1") if isinstance(s, Rectangle))
    assert first.width > second.width
    titles = [item.title for item in scene.items if isinstance(item, Group)]
    assert titles == ["greedy: 2 at 1 (2 times)", "greedy: 4 at 3"]


def test_series_differ_without_colours() -> None:
    scene = scatter([Series(f"{i}", ((i, i),)) for i in range(4)], **NAMES)
    kinds = []
    for i in range(1, 5):
        shape = shapes(scene, f"mark series-{i}")[-1]
        is_box = isinstance(shape, Rectangle)
        kinds.append(shape.radius > 0 if is_box else len(shape.strokes[0]))  # type: ignore[union-attr]
    assert len(set(kinds)) == 4


def test_a_chart_tells_what_it_shows() -> None:
    both = [Series("size", ((0, 9), (2.5, 3))), Series("bound", ((1, 2),)), Series("none", ())]
    root = ElementTree.fromstring(svg(steps(both, **NAMES)))
    assert root.findtext("{*}title") == "A chart"
    assert root.findtext("{*}desc") == (
        "components over seconds. size: 2 points, 9 at 0 to 3 at 2.5. bound: 2 at 1. "
        "none: no points."
    )
    written = [text.text for text in root.iterfind(".//{*}text")]
    assert {"size", "bound", "seconds", "components", "0", "0.5", "10"} <= set(written)


def test_nothing_to_show_is_said() -> None:
    assert "nothing to show" in [text.text for text in texts(lines([], **NAMES))]
    assert svg(bars({}, title="Nothing", x="questions")).count("<text") == 2


def test_bars_are_as_long_as_their_parts() -> None:
    rows = {"bounds": {"proved": 6, "refuted": 2}, "attack": {"refuted": 4}, "exact": {}}
    scene = bars(rows, title="Verdicts", x="questions", parts=("proved", "refuted", "undecided"))
    proved = [b for b in shapes(scene, "mark series-1") if isinstance(b, Rectangle)][-1]
    refuted = [b for b in shapes(scene, "mark series-2") if isinstance(b, Rectangle)][-2:]
    assert proved.width == pytest.approx(3 * refuted[0].width)
    assert refuted[1].width == pytest.approx(2 * refuted[0].width)
    assert refuted[0].x == pytest.approx(proved.right)
    assert refuted[1].x == pytest.approx(proved.x)
    written = [text.text for text in texts(scene)]
    assert {"6 proved, 2 refuted", "4 refuted", "none"} <= set(written)
    assert "undecided" not in written, "it does not occur"
    assert scene.description == "bounds: 6 proved, 2 refuted. attack: 4 refuted. exact: none."


@pytest.mark.parametrize("count", [1, 10**6])
def test_text_of_bars_is_inside(count: int) -> None:
    parts_of_all = {f"a kind of {i}": count for i in range(3)}
    scene = bars({"a name that is very long " * 4: parts_of_all}, title="Bars", x="questions")
    for text in texts(scene):
        room = text_width(text.text, text.size)
        left = {"start": text.x, "middle": text.x - room / 2, "end": text.x - room}[text.anchor]
        assert left >= 0
        assert left + room <= scene.width


def test_too_many_series_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"room for 6 series\. Got 7: show fewer"):
        lines([Series(f"{i}", ()) for i in range(7)], **NAMES)


def test_names_are_escaped() -> None:
    text = svg(bars({"<a> & b": {"<i>": 1}}, title="<script>", x='"'))
    root = ElementTree.fromstring(text)
    assert root.findtext("{*}title") == "<script>"
    assert "<script>" not in text
