"""The exact maximum of a metric over a segment of inputs, in rational arithmetic.

On a segment every unit of a ReLU network is a piecewise-linear function of one number. Its bends
are found layer by layer: between two neighbouring bends met so far a unit's input is linear, so
where it changes sign the bend of its ReLU is one division away. A linear constraint on two runs is
largest at an end of the segment or at a bend of either run.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from tests.oracle.network import Network, Vector, exact

Masks = Mapping[int, NDArray[np.bool_]]


def bends(
    net: Network, start: Vector, end: Vector, removed: Masks, patch: Mapping[int, Vector]
) -> set[Fraction]:
    """Shares of the way from ``start`` to ``end`` (Fractions) between which the run is linear."""
    places = {Fraction(0), Fraction(1)}
    for index, step in enumerate(net.steps):
        if step.kind not in ("relu", "max"):
            continue
        points = sorted(places)
        (source,) = step.inputs
        values = [
            start + share * (end - start)
            if source < 0
            else net.run(start + share * (end - start), removed, patch, until=index)[source]
            for share in points
        ]
        for (low, here), (high, there) in zip(
            zip(points, values, strict=True),
            zip(points[1:], values[1:], strict=True),
            strict=False,
        ):
            pairs = _crossings(step.windows, here, there)
            places.update(low + (high - low) * share for share in pairs)
    return places


def _crossings(
    windows: tuple[NDArray[np.int64], ...], here: Vector, there: Vector
) -> set[Fraction]:
    """Where a unit changes sign, or two units of a window change places, on the way."""
    gaps = list(zip(here, there, strict=True))
    if windows:
        gaps = [
            (here[i] - here[j], there[i] - there[j])
            for window in windows
            for n, i in enumerate(window)
            for j in window[:n]
        ]
    return {a / (a - b) for a, b in gaps if a * b < 0}


def maximum(
    net: Network,
    removed: Masks,
    patch: Mapping[int, Vector],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    rows: NDArray[np.float64],
    against_network: bool = True,
) -> Fraction:
    """The largest entry of rows @ (f_C - f_G), or of rows @ f_C, from ``lower`` to ``upper``."""
    start, end = exact(lower), exact(upper)
    patches = {step: exact(value) for step, value in patch.items()}
    shares = bends(net, start, end, removed, patches)
    if against_network:
        shares |= bends(net, start, end, {}, {})
    matrix = exact(rows).reshape(rows.shape)
    best: Fraction | None = None
    for share in shares:
        point = start + share * (end - start)
        value = net.run(point, removed, patches)[-1]
        if against_network:
            value = value - net.run(point)[-1]
        most = max(matrix @ value)
        best = most if best is None or most > best else best
    if best is None:
        raise ValueError("a segment has ends")
    return best
