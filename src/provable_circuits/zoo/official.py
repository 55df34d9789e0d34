"""Images from the data sets' own distributions, as they are unpacked.

    CIFAR-10  cifar-10-batches-bin/data_batch_1.bin ... test_batch.bin (the binary version)
    GTSRB     GTSRB/Final_Training/Images/00000/GT-00000.csv and *.ppm, ...
              GTSRB/Final_Test/Images/*.ppm and GT-final_test.csv
    TaxiNet   a folder of images beside ``labels.csv`` with the columns ``filename`` and ``cte``

GTSRB and TaxiNet need Pillow (the extra ``images``). Images become uint8 arrays [n, channels,
height, width]: GTSRB's are resized to 32 x 32, TaxiNet's made grey and resized to 27 x 54.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provable_circuits.errors import DataError, MissingExtraError

CIFAR_FOLDER = "cifar-10-batches-bin"
CIFAR_FILES = {
    "train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    "test": ("test_batch.bin",),
}
CIFAR_RECORD = 1 + 3 * 32 * 32
GTSRB_TRAIN = Path("GTSRB", "Final_Training", "Images")
GTSRB_TEST = Path("GTSRB", "Final_Test", "Images")
TAXI_LABELS = "labels.csv"


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Images uint8 [n, channels, height, width], and what they show: classes, or quantities."""

    images: NDArray[np.uint8]
    labels: NDArray[Any]


def cifar10_images(folder: Path, split: str) -> Images:
    """CIFAR-10 from its binary distribution."""
    images, labels = [], []
    for name in CIFAR_FILES[split]:
        path = folder / CIFAR_FOLDER / name
        if not path.is_file():
            raise DataError(
                f"CIFAR-10 needs the file '{CIFAR_FOLDER}/{name}' of its binary version in "
                f"'{folder}'; it is not there."
            )
        data = np.frombuffer(path.read_bytes(), dtype=np.uint8)
        if len(data) == 0 or len(data) % CIFAR_RECORD:
            raise DataError(f"The file '{path}' is not a batch of CIFAR-10: {len(data)} bytes.")
        records = data.reshape(-1, CIFAR_RECORD)
        labels.append(records[:, 0].astype(np.int64))
        images.append(records[:, 1:].reshape(-1, 3, 32, 32))
    return Images(np.concatenate(images), np.concatenate(labels))


def gtsrb_images(folder: Path, split: str) -> Images:
    """GTSRB from its folders and lists; with a region of interest in the list, nothing is cut."""
    if split == "train":
        lists = sorted((folder / GTSRB_TRAIN).glob("*/GT-*.csv"))
        wanted = GTSRB_TRAIN / "00000" / "GT-00000.csv"
    else:
        lists = sorted((folder / GTSRB_TEST).glob("GT-*.csv"))
        wanted = GTSRB_TEST / "GT-final_test.csv"
    if not lists:
        raise DataError(f"GTSRB needs '{wanted}' and the images beside it in '{folder}'.")
    images, labels = [], []
    for path in lists:
        for row in _rows(path, ";", ("Filename", "ClassId")):
            images.append(_image(path.parent / row["Filename"], "RGB", (32, 32)))
            labels.append(int(row["ClassId"]))
    return Images(np.stack(images), np.array(labels, dtype=np.int64))


def taxinet_images(folder: Path) -> Images:
    """TaxiNet from a folder of images with a list of cross-track errors."""
    path = folder / TAXI_LABELS
    if not path.is_file():
        raise DataError(
            f"TaxiNet needs '{TAXI_LABELS}' with the columns filename and cte, and the images "
            f"beside it, in '{folder}'."
        )
    images, labels = [], []
    for row in _rows(path, ",", ("filename", "cte")):
        images.append(_image(path.parent / row["filename"], "L", (54, 27)))
        labels.append(float(row["cte"]))
    return Images(np.stack(images), np.array(labels))


def _rows(path: Path, separator: str, columns: Sequence[str]) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file, delimiter=separator)
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise DataError(f"The list '{path}' has no column '{missing[0]}'.")
        found = list(reader)
    if not found:
        raise DataError(f"The list '{path}' is empty.")
    return found


def _image(path: Path, mode: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    """An image [channels, height, width], resized to (width, height)."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError("pillow", "images", "Reading image files") from None
    try:
        with Image.open(path) as image:
            resized = image.convert(mode).resize(size, Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise DataError(f"The image '{path}' is in the list, but not in the folder.") from None
    except (OSError, UnidentifiedImageError):
        raise DataError(f"The file '{path}' is not an image.") from None
    values = np.asarray(resized, dtype=np.uint8)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))
