"""Inputs of a network from a file: which ones, in which scale."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from provable_circuits.errors import ArgumentError, DataError
from provable_circuits.network.graph import Graph

MOST = 100
"""Inputs that are taken without being chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """How the network's inputs follow from pixels: ``(pixel - mean) / std``, by channel.

    Attributes:
        mean, std: float64, one for each channel, or one for all; None if the network takes pixels.
    """

    mean: Tensor | None
    std: Tensor | None

    @classmethod
    def of(cls, mean: str | None, std: str | None) -> Scale:
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


def read_inputs(path: Path, graph: Graph, divide: float) -> tuple[Tensor, Tensor | None]:
    """The arrays ``x`` and ``y`` of an ``.npz`` file: float64 [n, *shape], and labels [n]."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name in ("x", "y")}
    except FileNotFoundError:
        raise DataError(f"There is no file '{path}'.") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        raise DataError(f"The file '{path}' is not an .npz file of plain arrays.") from None
    if "x" not in arrays:
        raise DataError(f"The file '{path}' has no array named 'x', which holds the inputs.")
    x = arrays["x"]
    if x.dtype.kind not in "fiub" or x.ndim == 0:
        raise DataError(f"The array 'x' of '{path}' must hold numbers. It holds {x.dtype} instead.")
    if len(x) == 0 or not _fits(x.shape[1:], graph.input_shape):
        raise DataError(
            f"The array 'x' of '{path}' has the shape {list(x.shape)}, and the network takes "
            f"{list(graph.input_shape)} per input: the first axis must count the inputs, and the "
            "others must be the network's (channels first), or one flat axis."
        )
    values = torch.from_numpy(x.astype(np.float64)).reshape(len(x), *graph.input_shape) / divide
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"The array 'x' of '{path}' holds NaN or infinity.")
    labels = arrays.get("y")
    if labels is None:
        return values, None
    if labels.dtype.kind not in "iu" or labels.shape != (len(x),):
        raise DataError(
            f"The array 'y' of '{path}' must hold one whole number for each of the {len(x)} "
            f"inputs. It has the shape {list(labels.shape)} and holds {labels.dtype}."
        )
    return values, torch.from_numpy(labels.astype(np.int64))


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether numbers of one shape are inputs of another: alike but for axes of one, or flat."""
    alike = [n for n in shape if n != 1] == [n for n in wanted if n != 1]
    flat = len(shape) == 1 or len(wanted) == 1
    return alike or (flat and math.prod(shape) == math.prod(wanted))


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
