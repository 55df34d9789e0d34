"""Numbers: float64 with every rounding error enclosed, or exact rational numbers.

The standard model of float64: each operation is off by at most the relative error u = 2^-53, and
by the absolute error 2^-1074 where it underflows. A sum of n products, formed in any order,
is therefore off by at most

    gamma(n) * (the same sum with absolute values) + n 2^-1074,      gamma(n) = n u / (1 - n u).

Error terms are sums of n numbers that are not negative, and are computed in float64 themselves:
their own relative error is below gamma(n + 2), so multiplying them by 1 + 2 gamma(n + 4) encloses
it. In rational arithmetic there is no error, and u is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any
"""A NumPy array, of float64 or of ``Fraction``."""

Number = Any
"""One such number."""

MOST_TERMS = 2**21
"""No sum may be longer, and no tensor may have more units."""

LARGEST = 2.0**60
"""No unit may be larger, so that what underflow takes from a coefficient stays without effect."""


class RefusedError(Exception):
    """A certificate that is not accepted, and why, in one sentence."""


@dataclass(frozen=True)
class Arithmetic:
    """How numbers are computed with: ``exact`` or in float64."""

    exact: bool = False

    @property
    def u(self) -> Number:
        """The unit roundoff; a fraction where numbers are, since a float would round them."""
        return Fraction(0) if self.exact else 2.0**-53

    def gamma(self, terms: int) -> Number:
        """The relative error of a sum of so many products."""
        if terms > MOST_TERMS + 8:
            raise RefusedError(f"A sum of {terms} terms is longer than its errors allow for.")
        return terms * self.u / (1 - terms * self.u)

    def tiny(self, terms: int) -> Number:
        """What underflow can take from a sum of so many products, each times a unit's value.

        A product loses at most 2^-1075, an operation has at most 2^21 of them for each of its
        2^21 inputs, and each of those is at most 2^60.
        """
        return Fraction(0) if self.exact else terms * 2.0**-960

    def array(self, values: Any) -> Array:
        """Numbers of this arithmetic, flat or of any shape; they must be finite."""
        array = np.asarray(values)
        if array.dtype == object:
            return array
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise RefusedError("A number is not finite.")
        if not self.exact:
            return array
        exact = np.empty(array.shape, dtype=object)
        exact.reshape(-1)[:] = [Fraction(float(value)) for value in array.reshape(-1)]
        return exact

    def zeros(self, *shape: int) -> Array:
        """An array of zeros."""
        return self.array(np.zeros(shape))

    def grown(self, error: Array, terms: int = MOST_TERMS) -> Array:
        """An error term, with the error of computing it from so many terms."""
        return error if self.exact else error * (1 + 2 * self.gamma(terms + 4))

    def down(self, values: Array) -> Array:
        """At most the exact value of one rounded operation."""
        return values if self.exact else np.nextafter(values, -np.inf)

    def up(self, values: Array) -> Array:
        """At least the exact value of one rounded operation."""
        return values if self.exact else np.nextafter(values, np.inf)

    def half(self, values: Array) -> Array:
        """Half of each number."""
        return values * (Fraction(1, 2) if self.exact else 0.5)


def centred(arithmetic: Arithmetic, lower: Array, upper: Array) -> tuple[Array, Array]:
    """A middle m and a radius r with  m - r <= lower <= upper <= m + r."""
    if (lower > upper).any():
        raise RefusedError("A lower bound lies above its upper bound.")
    middle = arithmetic.half(lower) + arithmetic.half(upper)
    radius = np.maximum(middle - lower, upper - middle)
    return middle, np.where(radius == 0, radius, arithmetic.up(radius))


def magnitude(lower: Array, upper: Array) -> Array:
    """The largest absolute value between two bounds."""
    return np.maximum(np.abs(lower), np.abs(upper))
