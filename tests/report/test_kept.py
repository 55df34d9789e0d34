"""Why components are kept can be seen: on the page, in drawings as files, and in the summary."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from tests.report.browser import chromium
from tests.report.runs import digits, network, search

import provable_circuits as pc
from provable_circuits.discover.results.guarantees import NECESSITY, Kept
from provable_circuits.drawing.diagram import KEPT
from provable_circuits.drawing.layout import arrange
from provable_circuits.drawing.raster import raster
from provable_circuits.drawing.style import DARK, LIGHT, LOOKS
from provable_circuits.network.diagram import diagram_of
from provable_circuits.report.page.build import report_page

SVG = {"svg": "http://www.w3.org/2000/svg"}
STATUSES = tuple(NECESSITY)


def result_of_every_status() -> pc.Result:
    """A result whose components are kept for every reason there is."""
    result = search(network(("fc1", "fc2")), tolerance=0.001)
    assert len(result.kept) >= len(STATUSES)
    kept = {
        name: Kept(STATUSES[i % len(STATUSES)], reason.verdict)
        for i, (name, reason) in enumerate(result.kept.items())
    }
    return replace(result, kept=kept)


def classes(text: str) -> dict[str, str]:
    """The class of each component of a drawing, in a page or alone."""
    drawing = re.findall(r"<svg.*?</svg>", text, re.DOTALL)[0]
    groups = ElementTree.fromstring(drawing).iterfind(".//svg:g[@data-component]", SVG)
    return {g.attrib["data-component"]: g.attrib["class"].split()[1] for g in groups}


def test_every_reason_to_keep_a_component_has_a_look() -> None:
    assert set(KEPT) == set(NECESSITY)
    looks = [LOOKS[f"shape {status}"] for status in NECESSITY]
    for palette in (LIGHT, DARK):
        assert len({palette[look.fill or ""] for look in looks}) == len(looks)
    assert len({(look.stroke, look.dashes) for look in looks}) >= 3, "without colours too"


def test_the_page_tells_undecided_components_from_necessary_ones() -> None:
    result = result_of_every_status()
    drawn = classes(report_page(result.record()))
    for name, reason in result.kept.items():
        assert drawn[name] == reason.status
    assert {drawn[name] for name in drawn if name not in result.kept} <= {"removed"}


def test_a_legend_explains_every_fill() -> None:
    result = result_of_every_status()
    for text in (report_page(result.record()), result.draw(), result._repr_html_()):
        for status, words in KEPT.items():
            count = sum(reason.status == status for reason in result.kept.values())
            assert f"{words} ({count})" in text


def test_drawings_as_files_tell_them_apart(tmp_path: Path) -> None:
    result = result_of_every_status()
    result.draw(tmp_path / "circuit.svg")
    drawn = classes((tmp_path / "circuit.svg").read_text())
    assert {name: drawn[name] for name in result.kept} == {
        name: reason.status for name, reason in result.kept.items()
    }
    result.draw(tmp_path / "circuit.png")
    assert (tmp_path / "circuit.png").stat().st_size > 1000
    diagram = diagram_of(result.circuit).explained({n: k.status for n, k in result.kept.items()})
    pixels = np.asarray(Image.open(io.BytesIO(raster(diagram, scale=1.0))).convert("RGB"))
    for panel in arrange(diagram).panels:
        for spot in panel.spots:
            fill = LIGHT[LOOKS[f"shape {spot.node.status}"].fill or ""]
            x, y = round(spot.box.middle[0]), round(spot.box.y + 4)
            wanted = [int(fill[i : i + 2], 16) for i in (1, 3, 5)]
            assert pixels[y, x].tolist() == wanted, spot.node


def test_panels_count_what_is_kept_for_any_reason() -> None:
    result = result_of_every_status()
    notes = [panel.note for panel in arrange(diagram_of(result.circuit)).panels]
    told = diagram_of(result.circuit).explained({n: k.status for n, k in result.kept.items()})
    assert [panel.note for panel in arrange(told).panels] == notes


def test_the_summary_names_what_was_not_shown_necessary() -> None:
    result = result_of_every_status()
    lines = str(result).splitlines()
    for status, words in NECESSITY.items():
        names = [name for name, reason in result.kept.items() if reason.status == status]
        place = lines.index(f"  {len(names):>3} {words}")
        if status != "necessary":
            assert lines[place + 1] == f"      {', '.join(names)}"


@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_fills_them_differently(tmp_path: Path, dark: bool) -> None:
    result = result_of_every_status()
    page = tmp_path / "report.html"
    page.write_text(report_page(result.record()))
    with chromium() as browser:
        browser.open(page, dark=dark)
        fills = {
            status: browser.run(
                f"getComputedStyle(document.querySelector('.component.{status} .shape')).fill"
            )
            for status in STATUSES
        }
        assert browser.barriers() == []
    assert len(set(fills.values())) == len(STATUSES)


def test_inputs_and_outputs_are_counted_from_zero() -> None:
    run = digits()
    page = report_page(run)
    assert "Inputs and outputs are counted from 0." in page
    titles = re.findall(r'class="input-title">([^<]*)<', page)
    assert titles == [f"Input {i}" for i in range(len(run.inputs))]
    assert f"Input {len(run.inputs)}" not in page
    for told in run.document["witnesses"].values():
        assert f"near input {told['input']}, {told['in_words']}".replace("'", "&#39;") in page
    places = {int(place) for place in re.findall(r"near input (\d+)", page)}
    assert places == {told["input"] for told in run.document["witnesses"].values()}
