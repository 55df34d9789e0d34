from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from provable_circuits.drawing.pixels import (
    NEGATIVE,
    NEUTRAL,
    POSITIVE,
    data_uri,
    difference_pixels,
    image_pixels,
    png,
)
from provable_circuits.drawing.scene import Pixels
from provable_circuits.errors import ArgumentError

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (28, 28), (3, 4, 3), (300, 257, 3)])
def test_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with Image.open(io.BytesIO(png(pixels))) as image:
        image.load()
        assert image.format == "PNG"
        assert image.mode == ("L" if len(shape) == 2 else "RGB")
        assert np.array_equal(np.asarray(image), pixels)


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((2, 2)),
        np.zeros(4, np.uint8),
        np.zeros((2, 2, 4), np.uint8),
        np.zeros((0, 3), np.uint8),
    ],
)
def test_other_arrays_are_no_png(pixels: Pixels) -> None:
    with pytest.raises(ArgumentError, match="must be uint8 of shape"):
        png(pixels)


def test_data_uri_carries_the_file() -> None:
    file = png(np.zeros((2, 2), np.uint8))
    kind, _, content = data_uri(file).partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content) == file


def test_values_from_zero_to_one_are_shown_as_they_are() -> None:
    pixels = image_pixels([[0.2, 0.4], [0.6, 0.8]])
    assert pixels is not None
    assert pixels.tolist() == [[51, 102], [153, 204]]


def test_other_values_are_stretched() -> None:
    pixels = image_pixels([[-1.0, 3.0], [1.0, 1.0]])
    assert pixels is not None
    assert pixels.tolist() == [[0, 255], [128, 128]]


def test_shapes_of_images() -> None:
    def shape(*of: int) -> tuple[int, ...] | None:
        pixels = image_pixels(np.ones(of))
        return None if pixels is None else pixels.shape

    assert shape(784) == (28, 28)
    assert shape(5, 9) == (5, 9)
    assert shape(1, 27, 54) == (27, 54)
    assert shape(3, 32, 30) == (32, 30, 3)
    assert shape(5) is None
    assert shape(4) is None, "four numbers are a square, but no image"
    assert shape(1, 5) is None
    assert shape(2, 8, 8) is None
    assert shape(0) is None
    assert image_pixels(np.full((8, 8), np.nan)) is None


def test_channels_are_colours() -> None:
    red = np.zeros((3, 2, 2))
    red[0] = 1
    pixels = image_pixels(red)
    assert pixels is not None
    assert pixels[0, 0].tolist() == [255, 0, 0]


def test_a_constant_image_is_shown() -> None:
    pixels = image_pixels(np.full((2, 2), 7.0))
    assert pixels is not None
    assert pixels.tolist() == [[0, 0], [0, 0]]


def test_a_difference_is_neutral_at_zero_and_symmetric() -> None:
    pixels = difference_pixels([[-2.0, 0.0], [1.0, 2.0]])
    assert pixels is not None
    assert tuple(pixels[0, 0]) == NEGATIVE
    assert tuple(pixels[0, 1]) == NEUTRAL
    assert tuple(pixels[1, 1]) == POSITIVE
    halfway = (np.array(NEUTRAL) + np.array(POSITIVE)) / 2
    assert np.abs(pixels[1, 0] - halfway).max() <= 0.5


def test_no_difference_is_neutral_everywhere() -> None:
    pixels = difference_pixels(np.zeros((3, 8, 8)))
    assert pixels is not None
    assert (pixels == np.array(NEUTRAL)).all()
    assert difference_pixels(np.zeros(5)) is None


def test_differences_of_channels_are_added() -> None:
    values = np.zeros((3, 2, 2))
    values[:, 0, 0] = 1, -1, 0
    values[:, 1, 1] = 1, 1, 0
    pixels = difference_pixels(values)
    assert pixels is not None
    assert tuple(pixels[0, 0]) == NEUTRAL
    assert tuple(pixels[1, 1]) == POSITIVE
