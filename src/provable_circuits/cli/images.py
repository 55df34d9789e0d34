"""Inputs from image files: one image, a folder of them, or a folder with one folder for each class.

Images are read as 8-bit grey or RGB, as the network takes one channel or three, and divided by 255.
Their height and width must be the network's: nothing is resized or cropped on the quiet, because
that would be a part of the claim that nobody stated.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from provable_circuits.errors import DataError, MissingExtraError
from provable_circuits.network.graph import Graph

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
MODES = frozenset({"1", "CMYK", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "YCbCr"})
"""Pillow's words for images of eight bits and less."""

WHITE = 255.0


class LoadedImages:
    """The images of a folder, in the order of their names, or one image."""

    integers = False

    def __init__(self, path: Path, graph: Graph, divide: float | None) -> None:
        _pillow()
        self.divide = WHITE if divide is None else divide
        self._shape = graph.input_shape
        self.labels: Tensor | None = None
        self.notes: tuple[str, ...] = ()
        if path.is_dir():
            self._files = self._listed(path)
        else:
            self._files = [path]
        self.count = len(self._files)
        root = path if path.is_dir() else path.parent
        self.names: tuple[str, ...] | None = tuple(
            file.relative_to(root).as_posix() for file in self._files
        )

    def pixels(self, places: Sequence[int]) -> Tensor:
        images = [_read(self._files[place], self._shape) for place in places]
        return torch.from_numpy(np.stack(images)) / self.divide

    def _listed(self, folder: Path) -> list[Path]:
        """All images of a folder; with folders in it, those are the classes."""
        entries = _entries(folder)
        classes = [entry for entry in entries if entry.is_dir()]
        if not classes:
            return self._images(folder, entries)
        if any(entry.suffix.lower() in SUFFIXES for entry in entries if entry.is_file()):
            raise DataError(
                f"The folder '{folder}' holds both images and folders: put every image into the "
                "folder of its class, or all of them into one folder."
            )
        numbers = _class_numbers([entry.name for entry in classes])
        files: list[Path] = []
        labels: list[int] = []
        for entry, number in zip(classes, numbers, strict=True):
            own = [file for file in _entries(entry) if file.suffix.lower() in SUFFIXES]
            files += own
            labels += [number] * len(own)
        if not all(entry.name.isdecimal() for entry in classes):
            told = ", ".join(
                f"{entry.name} is {number}" for entry, number in zip(classes, numbers, strict=True)
            )
            self.notes += (f"Classes: {told} (folders in the order of their names)",)
        if not files:
            raise DataError(f"The folders in '{folder}' hold no images ({_kinds()}).")
        self.labels = torch.tensor(labels)
        return files

    def _images(self, folder: Path, entries: Sequence[Path]) -> list[Path]:
        files = [entry for entry in entries if entry.suffix.lower() in SUFFIXES]
        if not files:
            raise DataError(f"The folder '{folder}' holds no images ({_kinds()}).")
        if len(files) < len(entries):
            others = [entry.name for entry in entries if entry not in files]
            few = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            self.notes += (f"Left out: {len(others)} file(s) that are no images ({few})",)
        return files


def _kinds() -> str:
    return ", ".join(sorted(SUFFIXES))


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder, in the order of names, without what is hidden."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"The folder '{folder}' cannot be read: {error.strerror}.") from None


def _class_numbers(names: Sequence[str]) -> list[int]:
    """The numbers that the names are, or else the places of the names."""
    if all(name.isdecimal() for name in names):
        return [int(name) for name in names]
    return list(range(len(names)))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("pillow", "images", "Reading images") from None
    return Image


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One image as an input of the network, in numbers from 0 to 255."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with _no_bombs(), Image.open(path) as image:
            channels = _channels(image, path, shape)
            if getattr(image, "n_frames", 1) > 1:
                raise DataError(f"The image '{path}' has several frames: save one of them.")
            upright = ImageOps.exif_transpose(image)
            plain = _opaque(upright, path).convert("L" if channels == 1 else "RGB")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"The image '{path}' is far too large.") from None
    except UnidentifiedImageError:
        raise DataError(f"The file '{path}' is not an image that can be read.") from None
    except (DataError, MissingExtraError):
        raise
    except Exception as error:  # Pillow fails over damaged files in as many ways as there are tags
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise DataError(f"The image '{path}' cannot be read: {reason}.") from None
    values = np.asarray(plain, dtype=np.float64)
    if channels == 3:
        values = values.transpose(2, 0, 1)
    return values.reshape(shape)


@contextlib.contextmanager
def _no_bombs() -> Iterator[None]:
    """Have Pillow refuse images that are small files and huge pictures, without a warning."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd tags, in several lines
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _channels(image: Image, path: Path, shape: tuple[int, ...]) -> int:
    """How many channels of the image the network takes; before any of its pixels is decoded."""
    if image.mode not in MODES:
        raise DataError(
            f"The image '{path}' does not have 8 bits per channel (its mode is {image.mode}): "
            "convert it, or give the pixels as an .npy file with --scale."
        )
    width, height = image.size
    turned = image.getexif().get(0x0112, 1) >= 5
    if turned:
        width, height = height, width
    if len(shape) == 1 and shape[0] in (height * width, 3 * height * width):
        return shape[0] // (height * width)
    channels = shape[0] if len(shape) == 3 else 1
    if channels not in (1, 3) or shape[-2:] != (height, width) or len(shape) not in (2, 3):
        raise DataError(
            f"The image '{path}' is {height} high and {width} wide, and the network takes "
            f"{_wanted(shape)}."
        )
    return channels


def _wanted(shape: tuple[int, ...]) -> str:
    if len(shape) == 3 and shape[0] in (1, 3):
        kind = "grey" if shape[0] == 1 else "RGB"
        return f"{kind} images {shape[1]} high and {shape[2]} wide: resize or crop it first"
    if len(shape) == 2:
        return f"grey images {shape[0]} high and {shape[1]} wide: resize or crop it first"
    if len(shape) == 1:
        return f"{math.prod(shape)} numbers: give images of as many pixels, or an .npy file"
    return f"inputs of shape {list(shape)}, which are no images: give an .npy file"


def _opaque(image: Image, path: Path) -> Image:
    """The image without its alpha channel, if nothing shines through."""
    if not image.has_transparency_data:
        return image
    full = image.convert("RGBA")
    if full.getchannel("A").getextrema() != (255, 255):
        raise DataError(
            f"The image '{path}' has transparent pixels, whose colour is open: "
            "save it on a background."
        )
    return full.convert("RGB")
