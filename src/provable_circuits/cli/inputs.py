"""Inputs of a network from files: which ones, in which scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.network.graph import Graph

MOST = 100
"""Inputs that are taken without being chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class InputScale:
    """How the network's inputs follow from pixels: ``(pixel - mean) / std``, by channel.

    Attributes:
        mean, std: float64, one for each channel, or one for all; None if the network takes pixels.
    """

    mean: Tensor | None
    std: Tensor | None

    @classmethod
    def of(cls, mean: str | None, std: str | None) -> InputScale:
        """From numbers as they are written on the command line."""
        if mean is None and std is None:
            return cls(None, None)
        means = numbers("mean", "0" if mean is None else mean)
        stds = numbers("std", "1" if std is None else std)
        if not bool(((stds > 0) & stds.isfinite() & means.isfinite().all()).all()):
            raise ArgumentError(
                "The '--std' option must be positive, and '--mean' finite. "
                f"Got {std} and {mean} instead."
            )
        return cls(means, stds)

    def inputs(self, pixels: Tensor) -> Tensor:
        """What the network takes, from pixels [..., *shape]."""
        if self.mean is None or self.std is None:
            return pixels
        return (pixels - self._by_channel(self.mean, pixels)) / self._by_channel(self.std, pixels)

    def widths(self, width: float, like: Tensor) -> Tensor:
        """A width in pixels as widths of inputs."""
        whole = torch.full_like(like, width)
        return whole if self.std is None else whole / self._by_channel(self.std, like)

    def _by_channel(self, values: Tensor, like: Tensor) -> Tensor:
        if len(values) == 1:
            return values
        shape = like.shape[-3:]
        if like.ndim < 3 or shape[0] != len(values):
            raise ArgumentError(
                f"The '--mean' and '--std' options give {len(values)} values, the network's inputs "
                f"have the shape {list(like.shape)}: give one, or one for each channel."
            )
        return values.reshape(-1, 1, 1)


class InputSource(Protocol):
    """Inputs that wait in a file or folder.

    Attributes:
        count: how many there are.
        labels: what they show, int64 [count], if that is known.
        divide: what numbers of the file were divided by to give pixels.
        integers: the file holds an array of integers.
        names: the file of each input, where each has its own.
        notes: sentences that the user should see.
    """

    count: int
    labels: Tensor | None
    divide: float
    integers: bool
    names: tuple[str, ...] | None
    notes: tuple[str, ...]

    def pixels(self, places: Sequence[int]) -> Tensor:
        """Some of them, before normalisation: float64 [n, *shape]."""


def open_source(path: Path, graph: Graph, divide: float | None) -> InputSource:
    """The inputs in a file of arrays, an image, or a folder of images.

    Args:
        path: the file or folder.
        graph: the network that they are inputs of.
        divide: what the data is divided by; None for what is usual for its kind.
    """
    from provable_circuits.cli.array_files import ArrayFile
    from provable_circuits.cli.images import SUFFIXES, LoadedImages

    if not path.exists():
        raise DataError(f"There is no file '{path}'.")
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        return LoadedImages(path, graph, divide)
    return ArrayFile(path, graph, divide)


def scale_warning(values: Tensor, integers: bool, eps: float | None = None) -> str | None:
    """What to say of data without a scale that looks like pixels of 0 to 255; None if it does not.

    Args:
        values: the data.
        integers: the file holds integers.
        eps: how far inputs may move, if that is asked.
    """
    low, high = float(values.min()), float(values.max())
    small = eps is not None and eps < 1 and low >= 0
    if high <= 1 or not (integers or small):
        return None
    kind = "integers" if integers else "values"
    taken = "" if eps is None else f", and epsilon {eps:g} is taken in that scale"
    scale = 65535 if high > 255 else 255
    return (
        f"Warning: the data holds {kind} from {low:g} to {high:g}, no --scale is given{taken}: "
        f"give --scale {scale} if the network takes pixels of 0 to 1 (with --mean and --std if it "
        "takes them normalised), or --scale 1 if it takes the data as it is."
    )


def chosen(index: str | None, count: int) -> list[int]:
    """Which inputs are taken: ``0,1,2`` or all of a small file."""
    if index is None:
        if count > MOST:
            raise ArgumentError(
                f"The data holds {count} inputs: choose some, such as --index 0,1,2."
            )
        return list(range(count))
    try:
        places = [int(part) for part in index.split(",")]
    except ValueError:
        raise ArgumentError(
            f"The '--index' option must be numbers such as 0,1,2. Got {index!r} instead."
        ) from None
    for place in places:
        if not 0 <= place < count:
            raise ArgumentError(
                f"The '--index' option names input {place}; the data holds 0 to {count - 1}."
            )
    return places


def numbers(option: str, text: str) -> Tensor:
    """Numbers with commas between them."""
    try:
        return torch.tensor([float(part) for part in text.split(",")], dtype=torch.float64)
    except ValueError:
        raise ArgumentError(
            f"The '--{option}' option must be numbers with commas between them. "
            f"Got {text!r} instead."
        ) from None
