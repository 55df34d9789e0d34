"""Inputs and witnesses as pictures, or as numbers where they are no pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provable_circuits.discover.run import Run
from provable_circuits.drawing.pixels import (
    as_image,
    data_uri,
    difference_pixels,
    image_ends,
    image_pixels,
    png,
)

Array = NDArray[Any]

BUDGET = 2_000_000
"""Numbers that all pictures of a page may hold together; larger ones are shown smaller."""

LISTED = 8
"""Values of an input that are listed where it is no picture."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One value of an input, before and after."""

    place: str
    clean: float
    perturbed: float

    @property
    def difference(self) -> float:
        """How far it moved."""
        return self.perturbed - self.clean


class Gallery:
    """Makes the pictures of a run, all in one scale.

    Args:
        run: the run.
        share: the part of ``BUDGET`` that is its own.
    """

    def __init__(self, run: Run, share: float = 1.0) -> None:
        self.run = run
        arrays = [run.inputs, *(a for a in run.witnesses.values() if a.shape == self._shape)]
        self._ends = image_ends(*(run.pixels(values) for values in arrays))
        numbers = int(run.inputs.size + 3 * len(arrays) * np.prod(self._shape))
        self.step = 1
        while numbers / self.step**2 > BUDGET * share:
            self.step += 1

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.run.inputs.shape[1:]

    @property
    def pictures(self) -> bool:
        """Whether inputs are pictures."""
        return as_image(self.run.inputs[0]) is not None

    def image(self, values: Array) -> str | None:
        """An input as the address of a picture; None if it is none."""
        return _address(image_pixels(self.run.pixels(values), self._ends), self.step)

    def difference(self, clean: Array, perturbed: Array) -> str | None:
        """What a witness changed, as the address of a heat map; None if inputs are no pictures."""
        return _address(difference_pixels(self._moved(clean, perturbed)), self.step)

    def furthest(self, clean: Array, perturbed: Array) -> float:
        """How far the value that moved most moved, in the scale of pictures."""
        return float(np.abs(self._moved(clean, perturbed)).max())

    def moves(self, clean: Array, perturbed: Array) -> list[Moved]:
        """The values that moved most, the furthest first."""
        before, after = self.run.pixels(clean), self.run.pixels(perturbed)
        order = np.argsort(-np.abs(after - before), axis=None, kind="stable")[:LISTED]
        return [
            Moved(_place(index), float(before[index]), float(after[index]))
            for index in (np.unravel_index(int(i), before.shape) for i in order)
        ]

    def values(self, clean: Array) -> list[Moved]:
        """The first values of an input."""
        values = self.run.pixels(clean)
        places: Iterable[tuple[int, ...]] = list(np.ndindex(values.shape))[:LISTED]
        return [Moved(_place(p), float(values[p]), float(values[p])) for p in places]

    def _moved(self, clean: Array, perturbed: Array) -> Array:
        return np.asarray(self.run.pixels(perturbed) - self.run.pixels(clean))


def _address(pixels: NDArray[np.uint8] | None, step: int) -> str | None:
    return None if pixels is None else data_uri(png(pixels[::step, ::step]))


def _place(index: Iterable[Any]) -> str:
    return ", ".join(str(int(i)) for i in index)
