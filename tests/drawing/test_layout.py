from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from tests.drawing.diagrams import compared, diagram, gathered, residual

from provable_circuits.drawing.diagram import Column, Diagram, DiagramNode, Link
from provable_circuits.drawing.layout import MARGIN, Layout, Route, arrange
from provable_circuits.drawing.panels import HEAD, HEADING, LABEL, NOTE, Panel
from provable_circuits.drawing.scene import Rectangle
from provable_circuits.drawing.text import text_width

SIZES = {
    "one": [1],
    "mnist": [13, 11, 10],
    "resnet": [8, 16, 16, 16, 16],
    "200": [64, 64, 32, 40],
    "one layer of 200": [200],
    "200 layers of one": [1] * 200,
}


def boxes(panel: Panel) -> list[Rectangle]:
    return [spot.box for spot in panel.spots]


def apart(a: Rectangle, b: Rectangle, gap: float = 0.0) -> bool:
    return (
        a.right + gap <= b.x
        or b.right + gap <= a.x
        or a.bottom + gap <= b.y
        or b.bottom + gap <= a.y
    )


def inside(inner: Rectangle, outer: Rectangle) -> bool:
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and inner.right <= outer.right
        and inner.bottom <= outer.bottom
    )


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_nodes_are_apart_and_inside_their_panel(sizes: list[int]) -> None:
    layout = arrange(compared(sizes))
    nodes = [box for panel in layout.panels for box in boxes(panel)]
    assert len(nodes) == sum(sizes)
    for panel in layout.panels:
        assert all(inside(box, panel.box) for box in boxes(panel))
        assert all(apart(a, b, 4) for a, b in itertools.combinations(boxes(panel), 2))
    for a, b in itertools.combinations(layout.panels, 2):
        assert apart(a.box, b.box, 30), "room for the connections"


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_labels_fit_their_nodes_and_are_below_the_heading(sizes: list[int]) -> None:
    for panel in arrange(compared(sizes)).panels:
        for spot in panel.spots:
            assert text_width(spot.label, LABEL, bold=True) <= spot.box.width - 8
            assert spot.box.y >= panel.box.y + HEAD
        assert text_width(panel.heading, HEADING, bold=True) <= panel.box.width
        assert text_width(panel.note, NOTE) <= panel.box.width


@pytest.mark.parametrize("sizes", [[13, 11, 10], [8, 16, 16, 16, 16], [64, 64, 32, 40], [200]])
def test_it_fills_a_page(sizes: list[int]) -> None:
    layout = arrange(compared(sizes))
    assert layout.width < 1300, "labels of 11 pixels stay readable on a laptop"
    assert layout.height < 800


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_legend_is_apart_and_inside(sizes: list[int]) -> None:
    layout = arrange(compared(sizes))
    keys = [
        Rectangle(key.box.x, key.box.y, 30 + text_width(key.words, NOTE), key.box.height, "key")
        for key in layout.keys
    ]
    assert all(inside(key, Rectangle(0, 0, layout.width, layout.height, "paper")) for key in keys)
    assert all(apart(a, b) for a, b in itertools.combinations(keys, 2))
    lowest = max(panel.box.bottom for panel in layout.panels)
    assert all(key.y > lowest for key in keys)


def way_boxes(layout: Layout, routes: Sequence[Route] | None = None) -> list[Rectangle]:
    """The segments of ways around panels: of some connections, or of all."""
    boxes = []
    for route in layout.routes if routes is None else routes:
        for (x, y), (u, v) in itertools.pairwise(route.way):
            boxes.append(Rectangle(min(x, u), min(y, v), abs(x - u), abs(y - v), "segment"))
    return boxes


def deep() -> Diagram:
    """A network of many layers, in several lines, with connections near and far."""
    near = [Link(i, i + 1) for i in range(31)]
    around = [Link(i, i + 3, dashed=True) for i in range(1, 28, 2)]
    far = [Link(1, 30, dashed=True), Link(2, 29, dashed=True), Link(0, 31, dashed=True)]
    return diagram([8, 16, 4] * 10, links=near + around + far)


DRAWN = {
    "one line": compared([8, 16, 4, 16, 30]),
    "deep": deep(),
    "residual": residual(2, 40),
    "many blocks": residual(9, 3),
    "concatenated": gathered([2, 3, 4, 5, 2]),
}


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
def test_ways_around_cross_no_panel_and_no_legend(drawn: Diagram) -> None:
    layout = arrange(drawn)
    assert {route.link for route in layout.routes} == set(drawn.links)
    assert all(bool(route.way) != bool(route.band) for route in layout.routes)
    panels = [panel for panel in layout.panels if not panel.joins]
    for segment in way_boxes(layout):
        assert inside(segment, Rectangle(0, 0, layout.width, layout.height, "paper"))
        assert all(apart(segment, panel.box) for panel in panels)
        assert all(apart(segment, key.box) for key in layout.keys)


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
def test_ways_around_pass_by_the_circles_of_others(drawn: Diagram) -> None:
    layout = arrange(drawn)
    for route in layout.routes:
        ends = {route.link.source, route.link.target}
        others = [p.box for i, p in enumerate(layout.panels) if p.joins and i not in ends]
        segments = way_boxes(layout, [route])
        assert all(apart(a, b, 3) for a, b in itertools.product(segments, others))


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
@pytest.mark.parametrize("upright", [False, True])
def test_no_two_ways_run_in_one_place(upright: bool, drawn: Diagram) -> None:
    segments = [box for box in way_boxes(arrange(drawn)) if (box.width == 0) == upright]
    assert segments
    assert all(apart(a, b, 0.5) for a, b in itertools.combinations(segments, 2))


@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
def test_ways_end_at_their_panels(drawn: Diagram) -> None:
    layout = arrange(drawn)
    for route in layout.routes:
        if route.way:
            ends = (layout.panels[i] for i in (route.link.source, route.link.target))
            for panel, (x, y) in zip(ends, (route.way[0], route.way[-1]), strict=True):
                assert panel.box.x < x < panel.box.right
                assert min(abs(y - edge) for edge in on_edge(panel, x)) < 1e-9
            assert route.way[0][1] > layout.panels[route.link.source].box.middle[1]


def on_edge(panel: Panel, x: float) -> list[float]:
    """How far down the edge of a panel is at some place across: twice."""
    box = panel.box
    if not panel.joins:
        return [box.y, box.bottom]
    radius = box.height / 2
    aside = max(box.x + radius - x, x - (box.right - radius), 0.0)
    rise = (radius**2 - aside**2) ** 0.5
    return [box.middle[1] - rise, box.middle[1] + rise]


def crossings(layout: Layout) -> int:
    """How often ways around panels cross each other."""
    segments = way_boxes(layout)
    return sum(
        not apart(a, b)
        for a, b in itertools.product(segments, segments)
        if a.width == 0 != b.width and not touching(a, b, layout)
    )


def touching(a: Rectangle, b: Rectangle, layout: Layout) -> bool:
    """Whether two segments are of the same way."""
    return any({a, b} <= set(way_boxes(layout, [route])) for route in layout.routes)


def test_ways_to_the_next_line_do_not_cross() -> None:
    layout = arrange(residual(2, 40))
    assert len({panel.box.middle[1] for panel in layout.panels}) > 1
    assert len([route for route in layout.routes if route.way]) >= 3
    assert crossings(layout) == 0


def test_arrows_that_meet_in_a_circle_are_apart() -> None:
    layout = arrange(gathered([2, 3, 4, 5, 2]))
    gaps = []
    for i, panel in enumerate(layout.panels):
        into = [route.way for route in layout.routes if route.link.target == i and route.way]
        for rises in (False, True) if panel.joins else ():
            ends = sorted(way[-1][0] for way in into if (way[-2][1] > way[-1][1]) == rises)
            gaps += [right - left for left, right in itertools.pairwise(ends)]
    assert len(gaps) > 3
    assert min(gaps) > 10, "arrows are 8 wide"


def test_a_join_is_in_the_line_of_the_panel_before_it() -> None:
    layout = arrange(residual(9, 3))
    lines = [panel.box.middle[1] for panel in layout.panels]
    assert len(set(lines)) > 1
    assert all(lines[i] == lines[i - 1] for i, p in enumerate(layout.panels) if p.joins)


def test_many_layers_are_wrapped_into_lines() -> None:
    layout = arrange(deep())
    assert layout.width < 1300
    tops = [panel.box.middle[1] for panel in layout.panels]
    assert tops == sorted(tops)
    lines = [list(line) for _, line in itertools.groupby(layout.panels, lambda p: p.box.middle[1])]
    assert 2 < len(lines) < 6
    for above, below in itertools.pairwise(lines):
        assert max(p.box.bottom for p in above) < min(p.box.y for p in below)
    widths = [line[-1].box.right - line[0].box.x for line in lines]
    assert min(widths) > 0.6 * max(widths), "lines of about the same width"


def test_few_kept_components_have_a_line_for_each_pair() -> None:
    (route,) = arrange(diagram([6, 4], links=[Link(1, 2)])).routes
    assert len(route.edges) == 3 * 2
    assert len(route.band) == 4


def test_no_line_joins_what_no_single_circuit_keeps() -> None:
    both = diagram([4, 4], ("kept", "removed", "first only", "second only"), [Link(1, 2)])
    (route,) = arrange(both).routes
    assert len(route.edges) == 3 * 3 - 2


@pytest.mark.parametrize("sizes", [[30, 4], [14, 14]])
def test_many_kept_components_have_a_band_alone(sizes: list[int]) -> None:
    (route,) = arrange(diagram(sizes, statuses=("kept",), links=[Link(1, 2)])).routes
    assert route.edges == ()
    assert len(route.band) == 4


def test_long_names_are_shortened_in_the_middle() -> None:
    name = "/backbone/stages.3/blocks.11/conv2/Conv"
    column = Column(
        name, (DiagramNode(f"{name}/a group of many pixels", "a group of many pixels", "kept"),)
    )
    (panel,) = arrange(Diagram((column,))).panels
    assert panel.heading.startswith("/back")
    assert "…" in panel.heading
    assert panel.heading.endswith("/Conv")
    (spot,) = panel.spots
    assert spot.label.startswith("a gro")
    assert spot.label.endswith("xels")
    assert spot.box.width <= 100


def test_notes_count_what_is_kept() -> None:
    assert [panel.note for panel in arrange(diagram([5])).panels] == ["", "3 of 5", ""]
    statuses = ("kept", "kept", "first only")
    notes = [panel.note for panel in arrange(diagram([3], statuses)).panels]
    assert notes == ["", "3 and 2 of 3", ""]


def test_nothing_at_all_still_has_a_size() -> None:
    layout = arrange(Diagram(()))
    assert not any((layout.panels, layout.routes, layout.keys))
    assert layout.width >= 2 * MARGIN
