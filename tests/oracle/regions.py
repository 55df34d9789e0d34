"""Sets of inputs, as the oracle sees them: a box, and in it perhaps a ball of the 1- or 2-norm."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.oracle.network import exact

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Region:
    """Flat inputs z with ``||z - center||_p <= eps``, clipped; masked entries stay at the centre.

    ``p`` None means the plain box from ``low`` to ``high``, whatever the centre. For p = inf
    ``eps`` may be one number for each entry.
    """

    center: Floats
    low: Floats
    high: Floats
    p: float | None = None
    eps: Any = 0.0
    free: NDArray[np.bool_] | None = None

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """The smallest box around it."""
        if self.p is None:
            return self.low, self.high
        lower = np.maximum(self.center - self.eps, self.low)
        upper = np.minimum(self.center + self.eps, self.high)
        if self.free is not None:
            lower = np.where(self.free, lower, self.center)
            upper = np.where(self.free, upper, self.center)
        return lower, upper

    @property
    def is_round(self) -> bool:
        """Whether it is more than a polyhedron can say: a ball of the 2-norm."""
        return self.p == 2

    def contains(self, z: Floats) -> bool:
        """In exact arithmetic."""
        if (z < self.low).any() or (z > self.high).any():
            return False
        point, center = exact(z), exact(self.center)
        if self.free is not None and any((point != center) & ~self.free):
            return False
        moved = abs(point - center)
        if self.p is None:
            return True
        if self.p == math.inf:
            return bool((moved <= exact(np.broadcast_to(self.eps, moved.shape))).all())
        eps = Fraction(float(self.eps))
        return bool(sum(moved) <= eps if self.p == 1 else sum(moved * moved) <= eps * eps)

    def sample(self, count: int, generator: np.random.Generator) -> Iterator[Floats]:
        """Points inside up to rounding: corners and random ones."""
        lower, upper = self.ends
        for i in range(count):
            share = generator.random(len(lower))
            if i % 2:
                share = np.round(share)
            point = lower + share * (upper - lower)
            if self.p in (1, 2):
                length = float(np.linalg.norm(point - self.center, self.p))
                if length > self.eps:
                    point = self.center + (point - self.center) * (self.eps / length)
            yield np.clip(point, lower, upper)

    def directions(self, outer: bool, count: int = 96) -> Iterator[tuple[Floats, float]]:
        """Half-planes a.(z - center) <= b of a polygon around, or inside, a disc of two inputs."""
        places = [i for i in range(len(self.center)) if self.free is None or self.free[i]]
        if len(places) > 2:
            raise ValueError("polygons are for discs: at most two inputs may move")
        for k in range(count):
            normal = np.zeros(len(self.center))
            angle = 2 * math.pi * k / count
            normal[places] = [math.cos(angle), math.sin(angle)][: len(places)]
            yield normal, self.eps * (1.0 if outer else math.cos(math.pi / count))
