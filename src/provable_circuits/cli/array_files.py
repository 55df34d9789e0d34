"""Inputs from ``.npz`` and ``.npy`` files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from provable_circuits.archives import read_arrays
from provable_circuits.errors import DataError
from provable_circuits.network.graph import Graph

Array = NDArray[Any]


class ArrayFile:
    """The inputs ``x`` and labels ``y`` of an ``.npz`` file, or the one array of an ``.npy``."""

    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path, graph: Graph, divide: float | None) -> None:
        self.divide = 1.0 if divide is None else divide
        x, y = _arrays(path)
        self.integers = x.dtype.kind in "iu"
        called = f"array 'x' of '{path}'" if path.suffix != ".npy" else f"array of '{path}'"
        self._values = _inputs(x, called, graph) / self.divide
        self.count = len(self._values)
        self.labels = None if y is None else _labels(y, self.count, path)

    def pixels(self, places: Sequence[int]) -> Tensor:
        return self._values[list(places)]


def _arrays(path: Path) -> tuple[Array, Array | None]:
    """The two arrays as they stand in the file."""
    try:
        arrays = read_arrays(path, ("x", "y"))
        if "" in arrays:
            return arrays[""], None
    except (OSError, ValueError):
        raise DataError(
            f"The file '{path}' is not an .npz file of plain arrays, nor an .npy file or an image."
        ) from None
    if "x" not in arrays:
        raise DataError(f"The file '{path}' has no array named 'x', which holds the inputs.")
    return arrays["x"], arrays.get("y")


def _inputs(x: Array, called: str, graph: Graph) -> Tensor:
    """Inputs of the network, float64 [n, *shape]."""
    if x.dtype.kind not in "fiub" or x.ndim == 0:
        raise DataError(f"The {called} must hold numbers. It holds {x.dtype} instead.")
    if len(x) and not _fits(x.shape[1:], graph.input_shape) and x.shape == graph.input_shape:
        x = x[None]
    if len(x) == 0 or not _fits(x.shape[1:], graph.input_shape):
        raise DataError(
            f"The {called} has the shape {list(x.shape)}, and the network takes "
            f"{list(graph.input_shape)} per input: the first axis must count the inputs, and the "
            "others must be the network's (channels first), or one flat axis."
        )
    values = torch.from_numpy(x.astype(np.float64)).reshape(len(x), *graph.input_shape)
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"The {called} holds NaN or infinity.")
    return values


def _labels(y: Array, count: int, path: Path) -> Tensor:
    if y.dtype.kind not in "iu" or y.shape != (count,):
        raise DataError(
            f"The array 'y' of '{path}' must hold one whole number for each of the {count} "
            f"inputs. It has the shape {list(y.shape)} and holds {y.dtype}."
        )
    return torch.from_numpy(y.astype(np.int64))


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether numbers of one shape are inputs of another: alike but for axes of one, or flat."""
    alike = [n for n in shape if n != 1] == [n for n in wanted if n != 1]
    flat = len(shape) == 1 or len(wanted) == 1
    return alike or (flat and math.prod(shape) == math.prod(wanted))
