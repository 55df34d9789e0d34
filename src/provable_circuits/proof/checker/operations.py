"""Operations: what each does to intervals, and how it carries coefficients backward.

Tensors are flat here, one number for each unit of one sample. A linear operation y = L x + b has

    interval:   y in  L m + b +- (|L| r + gamma (|L| |m| + |b|))    for x in m +- r
    backward:   a . y = (L^T a) . x + a . b

and what rounding takes from the latter is at most gamma |a| . (|L| |x| + |b|). The operation keeps
``reach``, an upper bound of |L| |x| + |b|, from the interval, so that the error of a backward step
is one scalar product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Arithmetic, Array, RefusedError, centred

Bounds = tuple[Array, Array]


class Linear:
    """A linear operation of one or more tensors; others below say what L is."""

    terms: int
    """How many products are summed for one unit, forward or backward, at most."""
    bias: Array | None = None

    def forward(self, kind: str, *inputs: Array) -> Array:
        """L x, |L| x or (L != 0) x for ``kind`` value, size or touch; x is [k, units]."""
        raise NotImplementedError

    def backward(self, coefficients: Array) -> tuple[Array, ...]:
        """L^T a for each row a of [k, units], one result for each input."""
        raise NotImplementedError

    def interval(self, arithmetic: Arithmetic, *inputs: Bounds) -> tuple[Bounds, Array]:
        """Bounds of the units, and their reach."""
        parts = [centred(arithmetic, *bounds) for bounds in inputs]
        middle = self.forward("value", *(m[None] for m, _ in parts))[0]
        spread = self.forward("size", *(r[None] for _, r in parts))[0]
        reach = spread + self.forward("size", *(np.abs(m)[None] for m, _ in parts))[0]
        if self.bias is not None:
            bias = arithmetic.array(self.bias)
            middle, reach = middle + bias, reach + np.abs(bias)
        gamma, tiny = arithmetic.gamma(self.terms + 2), arithmetic.tiny(self.terms + 2)
        radius = arithmetic.grown(spread + gamma * reach if gamma else spread, self.terms) + tiny
        bounds = arithmetic.down(middle - radius), arithmetic.up(middle + radius)
        return bounds, arithmetic.grown(reach, self.terms) + tiny


@dataclass
class Matrix(Linear):
    """Rows of numbers, one after the other, times a weight [inner, outer]."""

    weight: Array
    bias: Array | None = None

    def __post_init__(self) -> None:
        self.terms = max(self.weight.shape)
        self._kinds = _kinds(self.weight)

    def forward(self, kind: str, *inputs: Array) -> Array:
        rows = inputs[0].reshape(-1, len(self.weight))
        return (rows @ self._kinds[kind]).reshape(len(inputs[0]), -1)

    def backward(self, coefficients: Array) -> tuple[Array, ...]:
        rows = coefficients.reshape(-1, self.weight.shape[1])
        return ((rows @ self.weight.T).reshape(len(coefficients), -1),)


@dataclass
class Convolution(Linear):
    """Cross-correlation with zeros around: weight [out, in / groups, height, width]."""

    weight: Array
    size: tuple[int, int, int]
    out: tuple[int, int, int]
    stride: tuple[int, int]
    pads: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    bias: Array | None = None

    def __post_init__(self) -> None:
        filters, channels, high, wide = self.weight.shape
        self.terms = max(channels, filters // self.groups) * high * wide
        grouped = self.weight.reshape(self.groups, filters // self.groups, channels, high, wide)
        self._kinds = _kinds(grouped)

    def _windows(self) -> Iterator[tuple[int, int, slice, slice]]:
        """For each place of the kernel, what it reads of the padded maps."""
        (down, across), (step, stride), (_, high, wide) = self.dilation, self.stride, self.out
        for i, j in np.ndindex(*self.weight.shape[2:]):
            rows = slice(i * down, i * down + step * high, step)
            yield i, j, rows, slice(j * across, j * across + stride * wide, stride)

    def _padded(self, count: int, dtype: Any) -> tuple[Array, Array]:
        """Maps of zeros with padding, and their inside."""
        (channels, high, wide), (top, side) = self.size, self.pads
        maps = np.zeros((count, channels, high + 2 * top, wide + 2 * side), dtype=dtype)
        return maps, maps[:, :, top : top + high, side : side + wide]

    def forward(self, kind: str, *inputs: Array) -> Array:
        count, weight, total = len(inputs[0]), self._kinds[kind], 0
        maps, inside = self._padded(count, inputs[0].dtype)
        inside[:] = inputs[0].reshape(inside.shape)
        for i, j, rows, columns in self._windows():
            read = maps[:, :, rows, columns].reshape(count, self.groups, weight.shape[2], -1)
            total = total + weight[:, :, :, i, j] @ read
        return np.asarray(total).reshape(count, -1)

    def backward(self, coefficients: Array) -> tuple[Array, ...]:
        count, weight = len(coefficients), self._kinds["value"]
        maps, inside = self._padded(count, coefficients.dtype)
        value = coefficients.reshape(count, self.groups, weight.shape[1], -1)
        turned = weight.transpose(0, 3, 4, 2, 1).reshape(self.groups, -1, weight.shape[1])
        places = (turned @ value).reshape(count, self.groups, -1, weight.shape[2], *self.out[1:])
        for k, (_, _, rows, columns) in enumerate(self._windows()):
            maps[:, :, rows, columns] += places[:, :, k].reshape(count, -1, *self.out[1:])
        return (inside.reshape(count, -1),)


@dataclass
class Scale(Linear):
    """Each unit times a factor, or divided by one; and a shift."""

    factor: Array
    divides: bool = False
    bias: Array | None = None
    terms: int = 1

    def __post_init__(self) -> None:
        self._kinds = _kinds(self.factor)

    def forward(self, kind: str, *inputs: Array) -> Array:
        factor = self._kinds[kind]
        return inputs[0] / factor if self.divides else inputs[0] * factor

    def backward(self, coefficients: Array) -> tuple[Array, ...]:
        return (self.forward("value", coefficients),)


@dataclass
class Sum(Linear):
    """Two tensors added, or the second subtracted from the first."""

    minus: bool = False
    terms: int = 2

    def forward(self, kind: str, *inputs: Array) -> Array:
        first, second = inputs[:2]
        return first - second if self.minus and kind == "value" else first + second

    def backward(self, coefficients: Array) -> tuple[Array, ...]:
        return coefficients, (-coefficients if self.minus else coefficients)


@dataclass
class Larger(Sum):
    """max(a, b), as b + relu(a - b), of the inputs b, relu(a - b) and a.

    Backward it is the sum of the first two; the third serves the interval.
    """

    def interval(self, arithmetic: Arithmetic, *inputs: Bounds) -> tuple[Bounds, Array]:
        (low, high), _, (other_low, other_high) = inputs
        _, reach = super().interval(arithmetic, *inputs[:2])
        return (np.maximum(low, other_low), np.maximum(high, other_high)), reach


@dataclass
class Gather(Linear):
    """Sums of some units of tensors laid end to end, each sum divided by a number.

    ``index`` [outputs, places] says which; -1 is a zero. Pooling by averages is of this kind, and
    with one place so are reshaping, transposing, padding, slicing and concatenation.
    """

    index: Array
    sizes: Sequence[int]
    divisor: Array | None = None

    def __post_init__(self) -> None:
        reads = np.bincount(self.index[self.index >= 0]).max(initial=1)
        self.terms = max(self.index.shape[1], int(reads)) + 1

    def forward(self, kind: str, *inputs: Array) -> Array:
        joined = np.concatenate([*inputs, np.zeros_like(inputs[0][:, :1])], axis=1)
        if self.divisor is None:
            return joined[:, self.index[:, 0]]
        return joined[:, self.index].sum(axis=2) / self.divisor

    def backward(self, coefficients: Array) -> tuple[Array, ...]:
        shares = coefficients if self.divisor is None else coefficients / self.divisor
        carried = np.zeros((sum(self.sizes) + 1, len(shares)), dtype=shares.dtype)
        for place in self.index.T:
            np.add.at(carried, place, shares.T)
        return tuple(np.split(carried[:-1].T, np.cumsum(self.sizes)[:-1], axis=1))


def _kinds(weight: Array) -> dict[str, Array]:
    return {"value": weight, "size": np.abs(weight), "touch": (weight != 0).astype(weight.dtype)}


@dataclass
class Lines:
    """Lines below and above an activation, for each unit: y >= s x + c, and y <= t x + d."""

    below: Array
    below_at: Array
    above: Array
    above_at: Array


@dataclass
class Bend:
    """y = x for x >= 0 and y = slope * x below, with slope <= 1: ReLU, leaky ReLU, |x|."""

    slope: float

    def interval(self, arithmetic: Arithmetic, bounds: Bounds) -> Bounds:
        low, high = bounds
        if self.slope == 0:
            return np.maximum(low, 0), np.maximum(high, 0)
        slope = arithmetic.array([self.slope])[0]
        ends = [np.where(end >= 0, end, slope * end) for end in bounds]
        least, most = arithmetic.down(np.minimum(*ends)), arithmetic.up(np.maximum(*ends))
        turns = (slope < 0) & (low <= 0) & (high >= 0)
        return np.where(turns, 0, least), most

    def lines(self, arithmetic: Arithmetic, bounds: Bounds, alpha: Array | None) -> Lines:
        """Below, a line through 0 of a slope between the two; above, one that is so at both bounds.

        The function is convex. ``alpha`` [k, units] in 0..1 chooses the line below; where it is
        negative or not given, that is the one of the wider side. With q = |slope low| + high, each
        product with the line above is at most q, and so is the gap: it is off by at most 3 u q, and
        by 2 u q where the error is added.
        """
        low, high = bounds
        slope, one = arithmetic.array([self.slope, 1.0])
        unstable = (low < 0) & (high > 0)
        fixed, wider = np.where(low >= 0, one, slope), np.where(high > -low, one, slope)[None]
        chosen = wider
        if alpha is not None:
            chosen = np.where(alpha < 0, wider, np.clip(slope + alpha * (one - slope), slope, one))
        above = (high - slope * low) / np.where(unstable, high - low, one)
        above = np.where(unstable, above, fixed)
        gap = np.maximum(slope * low - above * low, high - above * high)
        error = 8 * arithmetic.u * (abs(slope) * np.abs(low) + np.abs(high))
        gap = np.where(unstable, gap + error + arithmetic.tiny(4), 0)
        return Lines(np.where(unstable, chosen, fixed), np.zeros_like(gap), above[None], gap)


@dataclass
class Square:
    """y = x^2: below, a tangent; above, the chord."""

    def interval(self, arithmetic: Arithmetic, bounds: Bounds) -> Bounds:
        low, high = bounds
        squares = low * low, high * high
        most = arithmetic.up(np.maximum(*squares))
        least = arithmetic.down(np.minimum(*squares))
        return np.where((low <= 0) & (high >= 0), 0, least), most

    def lines(self, arithmetic: Arithmetic, bounds: Bounds, alpha: Array | None) -> Lines:
        low, high = bounds
        tangent = arithmetic.half(low) + arithmetic.half(high)
        size = np.maximum(np.abs(low), np.abs(high))
        error = 8 * arithmetic.u * size * size + arithmetic.tiny(8)  # 5 u size^2 would do
        below, above = -tangent * tangent - error, error - low * high
        return Lines((2 * tangent)[None], below, (low + high)[None], above)


CURVE_ERROR = 2.0**-40
"""The absolute error of ``_sigmoid``, of its double argument, and of sums of a few of them."""


@dataclass
class Curve:
    """y = sigmoid(x) or tanh(x), whose derivative rises up to x = 0, and then falls.

    So it is nowhere between two bounds below the smaller one of its values there. With a slope s of
    at most that, f - s x does not fall: it is least at the lower bound, and most at the upper one.
    """

    tanh: bool

    def value(self, x: Array) -> Array:
        """The function, within CURVE_ERROR."""
        if x.dtype == object:
            raise RefusedError("Rational arithmetic knows no sigmoid and no tanh.")
        return 2 * _sigmoid(2 * x) - 1 if self.tanh else _sigmoid(x)

    def interval(self, arithmetic: Arithmetic, bounds: Bounds) -> Bounds:
        least, most = (-1.0, 1.0) if self.tanh else (0.0, 1.0)
        low, high = (self.value(end) for end in bounds)
        return np.maximum(low - CURVE_ERROR, least), np.minimum(high + CURVE_ERROR, most)

    def lines(self, arithmetic: Arithmetic, bounds: Bounds, alpha: Array | None) -> Lines:
        low, high = bounds
        ends = self.value(low), self.value(high)
        slopes = [1 - y * y if self.tanh else y * (1 - y) for y in ends]
        slope = np.maximum(np.minimum(*slopes) - 4 * CURVE_ERROR, 0)
        slack = 2 * CURVE_ERROR  # of f, and of products s x, which are below 1 at both bounds
        below, above = ends[0] - slope * low - slack, ends[1] - slope * high + slack
        return Lines(slope[None], below, slope[None], above)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), with an exponential of our own whose error is known."""
    return 1 / (1 + _exponential(-x))


def _exponential(x: Array) -> Array:
    """exp(x) to the relative error 2^-44, for x cut to [-700, 700].

    x = k log 2 + r with |r| < 0.35, where k times the leading bits of log 2 is exact; exp(r) by its
    series to the 14th power, whose remainder is below 2^-60.
    """
    x = np.clip(x, -700.0, 700.0)
    count = np.rint(x / 0.6931471805599453)
    rest = (x - count * 0.693145751953125) - count * 1.4286068203094172e-06
    total = np.ones_like(x)
    for k in range(14, 0, -1):
        total = 1 + rest * total / k
    return np.ldexp(total, count.astype(np.int64))


Operation = Linear | Bend | Square | Curve
