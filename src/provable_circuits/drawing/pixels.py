"""Images as pixels: PNG files, inputs of networks, and signed differences."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provable_circuits.drawing.scene import Pixels
from provable_circuits.errors import ArgumentError

NEGATIVE, NEUTRAL, POSITIVE = (33, 102, 172), (247, 247, 247), (178, 24, 43)
"""The colours of a difference: blue below zero, nearly white at zero, red above."""


def png(pixels: Pixels) -> bytes:
    """A PNG file of uint8 pixels: grey [height, width] or colours [height, width, 3]."""
    pixels = np.asarray(pixels)
    grey = pixels.ndim == 2
    colours = pixels.ndim == 3 and pixels.shape[2] == 3
    if pixels.dtype != np.uint8 or not (grey or colours) or 0 in pixels.shape:
        raise ArgumentError(
            "The 'pixels' of a PNG must be uint8 of shape [height, width] or [height, width, 3]. "
            f"Got {pixels.dtype} of shape {list(pixels.shape)} instead."
        )
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    unfiltered = np.hstack([np.zeros((height, 1), np.uint8), rows])
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if grey else 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(unfiltered.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def data_uri(file: bytes) -> str:
    """A PNG file as an address that carries the file itself."""
    return f"data:image/png;base64,{base64.b64encode(file).decode('ascii')}"


def image_pixels(values: ArrayLike, ends: tuple[float, float] | None = None) -> Pixels | None:
    """An input of a network as an image; None if it is none.

    Args:
        values: [height, width], [channels, height, width] with one or three channels, or a flat
            square of at least 8 by 8.
        ends: the values that become black and white; see ``image_ends``, of which these are the
            own by default.
    """
    image = as_image(values)
    if image is None:
        return None
    low, high = image_ends(image) if ends is None else ends
    shares = np.clip((image - low) / ((high - low) or 1.0), 0, 1)
    return np.rint(shares * 255).astype(np.uint8)


def image_ends(*images: ArrayLike) -> tuple[float, float]:
    """What black and white stand for in images that are to be compared.

    Zero and one if all values are within, else the least and the greatest.
    """
    low = min(float(np.min(image)) for image in images)
    high = max(float(np.max(image)) for image in images)
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def difference_pixels(values: ArrayLike) -> Pixels | None:
    """A signed difference as a heat map; None if it is no image.

    Channels are added up. The scale is the same in both directions, neutral at zero.
    """
    image = as_image(values)
    if image is None:
        return None
    image = image.sum(2) if image.ndim == 3 else image
    most = float(np.abs(image).max()) or 1.0
    share = np.abs(image)[:, :, None] / most
    ends = np.where((image < 0)[:, :, None], np.array(NEGATIVE), np.array(POSITIVE))
    pixels: Pixels = np.rint(np.array(NEUTRAL) * (1 - share) + ends * share).astype(np.uint8)
    return pixels


def as_image(values: ArrayLike) -> NDArray[Any] | None:
    """Values as [height, width] or [height, width, 3], in float64; None if they are no image."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not np.isfinite(array).all():
        return None
    if array.ndim == 1:
        side = math.isqrt(len(array))
        return array.reshape(side, side) if side * side == len(array) and side >= 8 else None
    if array.ndim == 3 and len(array) in (1, 3):
        return array[0] if len(array) == 1 else np.moveaxis(array, 0, 2)
    return array if array.ndim == 2 and min(array.shape) > 1 else None
