from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from tests.drawing.diagrams import compared, diagram

from provable_circuits.drawing.diagram import Column, Diagram, DiagramNode
from provable_circuits.drawing.style import DARK, LIGHT, LOOKS
from provable_circuits.drawing.svg import svg

NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def components(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [g for g in root.iterfind(".//svg:g", NAMESPACE) if "data-component" in g.attrib]


def text_of(element: ElementTree.Element, kind: str) -> str:
    return element.findtext(f"svg:{kind}", "", NAMESPACE)


@pytest.mark.parametrize("sizes", [[13, 11, 10], [8, 16, 16, 16, 16], [64, 64, 32, 40]])
def test_every_component_is_there_with_its_status(sizes: list[int]) -> None:
    drawn = compared(sizes)
    found = components(parsed(svg(drawn)))
    assert [g.attrib["data-component"] for g in found] == [node.name for node in drawn.nodes]
    assert [text_of(g, "text") for g in found] == [node.label for node in drawn.nodes]
    classes = [f"component {node.status.replace(' ', '-')}" for node in drawn.nodes]
    assert [g.attrib["class"] for g in found] == classes
    assert text_of(found[2], "title") == "conv0/2: only in mine"
    assert text_of(found[1], "title") == "conv0/1: removed by both"


def test_each_status_has_a_shape_of_its_own() -> None:
    shapes = []
    for g in components(parsed(svg(compared([4])))):
        rect = g.find("svg:rect", NAMESPACE)
        shapes.append("path" if rect is None else f"rect {rect.get('rx')}")
    kept, removed, first, second = shapes
    assert kept == removed == "rect 12"
    assert first == "rect None"
    assert second == "path"


def test_it_scales_and_explains_itself() -> None:
    root = parsed(svg(diagram([3])))
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    assert root.attrib["role"] == "img"
    assert text_of(root, "title") == "A title"
    assert text_of(root, "desc") == "conv0: kept 0, 2; removed 1."


def test_only_an_interactive_drawing_can_be_walked_through() -> None:
    still, live = (parsed(svg(diagram([2]), interactive=live)) for live in (False, True))
    assert all("tabindex" not in g.attrib for g in components(still))
    assert live.attrib["role"] == "group", "an image would hide its buttons from screen readers"
    for g in components(live):
        assert g.attrib["tabindex"] == "0"
        assert g.attrib["role"] == "button"
    assert [g.attrib["aria-label"] for g in components(live)] == [
        "conv0/0: kept",
        "conv0/1: removed",
    ]


def test_names_are_escaped() -> None:
    name = """<script>"&' ]]>é 漢\x00"""
    drawn = Diagram((Column(name, (DiagramNode(name, name, "kept"),)),), title=name)
    text = svg(drawn, interactive=True)
    assert "<script>" not in text
    (g,) = components(parsed(text))
    legible = name.replace("\x00", "\ufffd")
    assert g.attrib["data-component"] == legible
    assert g.attrib["aria-label"] == f"{legible}: kept"
    assert text_of(parsed(text), "title") == legible


def test_residual_connections_are_dashed() -> None:
    root = parsed(svg(compared([2, 2, 2])))
    dashed = [p for p in root.iterfind(".//svg:path", NAMESPACE) if p.get("class") == "arc dashed"]
    assert len(dashed) == 1 + 1, "one connection, and its entry in the legend"
    style = text_of(root, "style")
    assert re.search(r"\.arc\.dashed \{[^}]*stroke-dasharray: 6 4", style)


def test_the_legend_tells_what_occurs() -> None:
    def legend(drawn: Diagram) -> list[str]:
        keys = parsed(svg(drawn)).iterfind(".//svg:g[@class='key']", NAMESPACE)
        return [text_of(key, "text") for key in keys]

    assert legend(diagram([3])) == ["kept (2)", "removed (1)"]
    assert legend(diagram([3], statuses=("kept",))) == ["kept (3)"]
    assert legend(compared([5, 4, 4])) == [
        "kept by both (4)",
        "removed by both (3)",
        "only in mine (3)",
        "only in yours (3)",
        "residual connection",
    ]


def test_its_style_holds_inside_it_alone() -> None:
    style = text_of(parsed(svg(compared([8]), interactive=True)), "style")
    rules = [line for line in style.splitlines() if "{" in line and not line.startswith("@")]
    assert len(rules) > 10
    for rule in rules:
        selectors = rule.split("{")[0].split(",")
        assert all(s.strip().startswith(".provable-circuits-picture ") for s in selectors)
    assert style.count("prefers-color-scheme: dark") == 1


def luminance(colour: str) -> float:
    def linear(part: str) -> float:
        value = int(part, 16) / 255
        return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)

    red, green, blue = (linear(colour[i : i + 2]) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(palette: dict[str, str]) -> None:
    kinds = [role.removeprefix("shape ") for role in LOOKS if role.startswith("shape ")]
    assert {"kept", "removed", "first-only", "second-only", "undecided"} <= set(kinds)
    for kind in kinds:
        ground, ink = LOOKS[f"shape {kind}"].fill, LOOKS[f"label {kind}"].fill
        assert ground is not None
        assert ink is not None
        assert contrast(palette[ground], palette[ink]) >= 4.5, kind
    for ink in ("ink", "muted"):
        assert all(contrast(palette[ink], palette[g]) >= 4.5 for g in ("paper", "panel", "band"))


def test_both_palettes_name_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()
    used = {colour for look in LOOKS.values() for colour in (look.fill, look.stroke) if colour}
    assert used <= LIGHT.keys()


def test_an_empty_circuit_is_drawn() -> None:
    root = parsed(svg(Diagram((Column("fc", (DiagramNode("fc/0", "0", "removed"),)),))))
    assert len(components(root)) == 1
    assert parsed(svg(Diagram(()))).attrib["role"] == "img"
    assert Counter(g.attrib["class"] for g in components(root)) == {"component removed": 1}
