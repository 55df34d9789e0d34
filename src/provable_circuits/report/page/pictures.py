"""Inputs and witnesses as pictures, or as numbers where they are no pictures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provable_circuits.discover.results.run import Run
from provable_circuits.drawing.pixels import (
    as_image,
    data_uri,
    difference_pixels,
    image_ends,
    image_pixels,
    png,
)
from provable_circuits.drawing.scene import Pixels
from provable_circuits.errors import ArgumentError

Array = NDArray[Any]

BUDGET = 2_000_000
"""Numbers that all pictures of a page may hold together; larger ones are shown smaller."""

LISTED = 8
"""Values of an input that are listed where it is no picture."""


@dataclass(frozen=True, slots=True)
class PagePicture:
    """An image that the page carries in itself: its address, its words, and what is below it."""

    address: str
    words: str
    caption: str


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

    def image(self, values: Array, words: str, caption: str) -> PagePicture:
        """An input as a picture."""
        return self._picture(image_pixels(self.run.pixels(values), self._ends), words, caption)

    def difference(self, clean: Array, other: Array) -> PagePicture:
        """What was changed, as a heat map."""
        furthest = self.furthest(clean, other)
        return self._picture(
            difference_pixels(self._moved(clean, other)),
            f"What was changed, by at most {furthest:.3g}: blue is less, red is more",
            f"Difference, at most {furthest:.3g}",
        )

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

    def numbers(self, clean: Array) -> str:
        """The first values of an input, as a text."""
        values = self.run.pixels(clean).flatten()
        listed = ", ".join(number(value) for value in values[:LISTED].tolist())
        return listed if len(values) <= LISTED else f"{listed}, …"

    def _picture(self, pixels: Pixels | None, words: str, caption: str) -> PagePicture:
        if pixels is None:
            raise ArgumentError("Inputs of this run are no pictures.")
        return PagePicture(data_uri(png(pixels[:: self.step, :: self.step])), words, caption)

    def _moved(self, clean: Array, perturbed: Array) -> Array:
        return np.asarray(self.run.pixels(perturbed) - self.run.pixels(clean))


def number(value: float) -> str:
    """Four significant digits, with a real minus sign."""
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def _place(index: Iterable[Any]) -> str:
    return ", ".join(str(int(i)) for i in index)
