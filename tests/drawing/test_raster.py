from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from tests.drawing.diagrams import compared

from provable_circuits.drawing.charts import Series, lines
from provable_circuits.drawing.diagram import Column, Diagram, DiagramNode
from provable_circuits.drawing.layout import arrange
from provable_circuits.drawing.raster import raster
from provable_circuits.drawing.scene import Picture, Pixels, Rectangle, Scene
from provable_circuits.drawing.style import LIGHT
from provable_circuits.errors import MissingExtraError

pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")


def drawn(file: bytes) -> Pixels:
    with Image.open(io.BytesIO(file)) as image:
        return np.asarray(image.convert("RGB"), dtype=np.uint8)


def colour(name: str) -> list[int]:
    return [int(LIGHT[name][i : i + 2], 16) for i in (1, 3, 5)]


def test_components_have_their_colours_where_the_layout_puts_them() -> None:
    diagram = compared([13, 40, 10])
    pixels = drawn(raster(diagram, scale=1.0))
    layout = arrange(diagram)
    assert abs(pixels.shape[0] - layout.height) <= 1
    assert abs(pixels.shape[1] - layout.width) <= 1
    names = {"kept": "kept", "removed": "removed", "first only": "first", "second only": "second"}
    for panel in layout.panels:
        for spot in panel.spots:
            x, y = round(spot.box.middle[0]), round(spot.box.y + 4)
            assert pixels[y, x].tolist() == colour(names[spot.node.status]), spot.node.name


def test_the_scale_is_a_factor() -> None:
    one, two = (drawn(raster(compared([3]), scale=scale)) for scale in (1.0, 2.0))
    assert two.shape[0] == pytest.approx(2 * one.shape[0], abs=2)


def test_images_keep_their_pixels() -> None:
    image = np.array([[0, 255], [100, 200]], np.uint8)
    scene = Scene(
        60, 40, "", "", (Rectangle(0, 0, 60, 40, "paper"), Picture(10, 10, 40, 20, image))
    )
    pixels = drawn(raster(scene, scale=1.0))
    assert [int(pixels[y, x, 0]) for y in (15, 25) for x in (20, 40)] == [0, 255, 100, 200]
    assert pixels[5, 5].tolist() == [255, 255, 255]


def test_odd_names_and_characters_without_a_glyph_are_drawn() -> None:
    names = ["$x_{1}$ & <b>", "漢字", "two\nlines", "a \x00 byte", ""]
    nodes = tuple(DiagramNode(name, name, "kept") for name in names)
    assert drawn(raster(Diagram((Column("$", nodes),), title="$"))).size
    assert drawn(raster(lines([Series("$", ((0, 1),))], title="$", x="$", y="^"))).size


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"A picture as PNG needs the package 'matplotlib'"):
        raster(compared([3]))
