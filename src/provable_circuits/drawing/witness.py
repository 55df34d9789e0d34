"""What breaks a circuit: an input as it was, as it is moved, and the difference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from provable_circuits.drawing.axes import MARGIN, NOTE, TITLE
from provable_circuits.drawing.charts import Series, lines
from provable_circuits.drawing.pixels import difference_pixels, image_ends, image_pixels
from provable_circuits.drawing.scene import Item, Picture, Pixels, Rectangle, Scene, Text
from provable_circuits.drawing.text import text_width

SIDE, GAP = 168.0, 20.0
"""The width of an image, and the room between two."""


def witness_picture(
    clean: ArrayLike, moved: ArrayLike, *, title: str, patch: ArrayLike | None = None
) -> Scene:
    """Both inputs and a heat map of what was added; as lines of numbers if they are no images.

    Args:
        clean: the input as it was.
        moved: the input that breaks the circuit, of the same shape.
        title: what is written above.
        patch: the input at which removed components were computed, if that was another one.
    """
    before, after = np.asarray(clean, dtype=np.float64), np.asarray(moved, dtype=np.float64)
    inputs = {"clean": before, "moved": after}
    if patch is not None:
        inputs["patched from"] = np.asarray(patch, dtype=np.float64)
    difference = after - before
    most = float(np.abs(difference).max(initial=0.0))
    ends = image_ends(*inputs.values())
    images = {caption: image_pixels(values, ends) for caption, values in inputs.items()}
    images[f"difference, at most {most:.3g}"] = difference_pixels(difference)
    pictures = {caption: pixels for caption, pixels in images.items() if pixels is not None}
    if len(pictures) < len(images):
        series = [_numbers(name, values) for name, values in inputs.items()]
        return lines(series, title=title, x="place in the input", y="value")
    description = (
        "The input as it was, the input moved, and the difference: blue where it was lowered, red "
        f"where it was raised, by at most {most:.3g}."
    )
    return _side_by_side(pictures, title, description)


def _side_by_side(pictures: Mapping[str, Pixels], title: str, description: str) -> Scene:
    """Images in a row, each above its caption."""
    across = len(pictures) * (SIDE + GAP) - GAP
    width = max(across, text_width(title, TITLE)) + 2 * MARGIN
    items: list[Item] = [Text(MARGIN, MARGIN + 6, title, "title", TITLE, "start")]
    x, top, bottom = MARGIN, MARGIN + 26, MARGIN + 26
    for caption, pixels in pictures.items():
        height = SIDE * pixels.shape[0] / pixels.shape[1]
        items.append(Picture(x, top, SIDE, height, pixels))
        items.append(Rectangle(x, top, SIDE, height, "frame"))
        items.append(Text(x, top + height + 14, caption, "note", NOTE, "start"))
        x, bottom = x + SIDE + GAP, max(bottom, top + height + 14 + MARGIN)
    paper = Rectangle(0, 0, width, bottom, "paper")
    return Scene(width, bottom, title, description, (paper, *items))


def _numbers(name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Series:
    flat = values.reshape(-1)
    return Series(name, tuple((float(i), float(value)) for i, value in enumerate(flat)))
