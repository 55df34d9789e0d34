"""The same pictures as PNG, through matplotlib (extra ``plot``), in the light style."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any

from provable_circuits.drawing.diagram import Diagram
from provable_circuits.drawing.picture import scene_of
from provable_circuits.drawing.scene import (
    Group,
    Item,
    Path,
    Picture,
    Point,
    Rectangle,
    Scene,
    Text,
)
from provable_circuits.drawing.style import LIGHT, LOOKS
from provable_circuits.drawing.text import writable
from provable_circuits.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 72
"""Pixels of a scene to an inch, so that sizes of text in points are pixels as well."""

QUARTER = 0.5522847498
"""How far the control points of a cubic curve are along the sides of a quarter of a circle."""


def raster(picture: Diagram | Scene, scale: float = 2.0) -> bytes:
    """A picture as a PNG file, ``scale`` times as large as its size in pixels.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "A picture as PNG") from None
    scene = scene_of(picture) if isinstance(picture, Diagram) else picture
    figure = Figure(figsize=(scene.width / POINTS, scene.height / POINTS))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.axis("off")
    _draw(axes, scene.items)
    axes.set(xlim=(0, scene.width), ylim=(scene.height, 0))
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks becomes an empty box, which says it well enough.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format="png", dpi=POINTS * scale)
    return file.getvalue()


def _draw(axes: Axes, items: tuple[Item, ...]) -> None:
    for item in items:
        match item:
            case Group():
                _draw(axes, item.items)
            case Rectangle():
                axes.add_patch(_box(item))
            case Path():
                axes.add_patch(_path(item))
            case Text():
                _write(axes, item)
            case Picture():
                _image(axes, item)


def _box(box: Rectangle) -> Any:
    """A rectangle; round corners are quarters of circles, as cubic curves come within 0.03 %."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    radius = min(box.radius, box.width / 2, box.height / 2)
    bend = radius * (1 - QUARTER)
    left, right, top, bottom = box.x, box.right, box.y, box.bottom
    points: list[Point] = [(left + radius, top)]
    codes: list[Any] = [Outline.MOVETO]
    for x, y, dx, dy in [
        (right, top, -1, 1),
        (right, bottom, -1, -1),
        (left, bottom, 1, -1),
        (left, top, 1, 1),
    ]:
        across, down = (x + dx * radius, y), (x, y + dy * radius)
        near, far = (x + dx * bend, y), (x, y + dy * bend)
        corner = [across, near, far, down] if dx * dy < 0 else [down, far, near, across]
        points += corner
        codes += [Outline.LINETO] + [Outline.CURVE4] * 3
    points.append(points[0])
    codes.append(Outline.CLOSEPOLY)
    return PathPatch(Outline(points, codes), **_settings(box.role))


def _path(path: Path) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    points: list[Point] = []
    codes: list[Any] = []
    for stroke in path.strokes:
        points += stroke
        codes += [Outline.MOVETO] + [Outline.LINETO] * (len(stroke) - 1)
        if path.closed:
            points.append(stroke[0])
            codes.append(Outline.CLOSEPOLY)
    return PathPatch(Outline(points, codes), **_settings(path.role))


def _write(axes: Axes, text: Text) -> None:
    look = LOOKS[text.role]
    axes.text(
        text.x,
        text.y,
        " ".join(writable(text.text).split()),
        color=LIGHT[look.fill or "ink"],
        fontsize=text.size,
        fontweight="bold" if look.bold else "normal",
        ha={"start": "left", "middle": "center", "end": "right"}[text.anchor],
        va="center_baseline" if not text.upright else "center",
        rotation=90 if text.upright else 0,
        parse_math=False,
        zorder=2,
    )


def _image(axes: Axes, picture: Picture) -> None:
    extent = (picture.x, picture.x + picture.width, picture.y + picture.height, picture.y)
    axes.imshow(
        picture.pixels,
        cmap="gray",
        vmin=0,
        vmax=255,
        extent=extent,
        aspect="auto",
        interpolation="nearest",
        zorder=2,
    )


def _settings(role: str) -> dict[str, Any]:
    look = LOOKS[role]
    settings: dict[str, Any] = {
        "facecolor": "none" if look.fill is None else LIGHT[look.fill],
        "edgecolor": "none" if look.stroke is None else LIGHT[look.stroke],
        "linewidth": look.width if look.stroke else 0.0,
        "zorder": 2,
    }
    if look.dashes:
        settings["linestyle"] = (0, tuple(dash / look.width for dash in look.dashes))
    return settings
