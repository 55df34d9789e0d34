"""What operations are defined to compute, in exact rational arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from tests.network.smooth_definitions import smooth
from torch import Tensor

from provable_circuits.network import ops
from provable_circuits.network.ops import Op, Shape
from provable_circuits.rounding import Interval

Exact = Any
"""A numpy array of fractions."""


def rational(value: Tensor) -> Exact:
    """The same numbers as exact fractions."""
    found = np.empty(tuple(value.shape), dtype=object)
    for place in np.ndindex(found.shape):
        found[place] = Fraction(float(value[place]))
    return found


def _average(values: Exact, count: int) -> Fraction:
    return sum(values.flatten().tolist(), Fraction(0)) / count


def _windows(op: Any, length: int, axis: int, out: int) -> Iterator[tuple[int, int, int]]:
    """Start, end and end within the padding of each pooling window, by PyTorch's definition."""
    for i in range(out):
        start = i * op.stride[axis] - op.padding[axis]
        yield start, start + op.kernel[axis], length + op.padding[axis]


def _exact_linear(op: ops.Linear, x: Exact) -> Exact:
    product = x @ rational(op.weight).T
    return product if op.bias is None else product + rational(op.bias)


def _exact_conv(op: ops.Conv2d, x: Exact, out: Shape) -> Exact:
    (top, left), weight = op.padding, rational(op.weight)
    padded = np.pad(x, ((0, 0), (top, top), (left, left)), constant_values=0)
    result = np.empty(out, dtype=object)
    inputs, outputs = weight.shape[1], out[0] // op.groups
    for o, i, j in np.ndindex(out):
        first = o // outputs * inputs
        total = Fraction(0) if op.bias is None else Fraction(float(op.bias[o]))
        for c, h, w in np.ndindex(weight.shape[1:]):
            y, z = i * op.stride[0] + h * op.dilation[0], j * op.stride[1] + w * op.dilation[1]
            total += weight[o, c, h, w] * padded[first + c, y, z]
        result[o, i, j] = total
    return result


def _exact_average(op: ops.AvgPool2d, x: Exact, out: Shape) -> Exact:
    _, height, width = x.shape
    result = np.empty(out, dtype=object)
    rows = list(_windows(op, height, 0, out[1]))
    columns = list(_windows(op, width, 1, out[2]))
    for c, i, j in np.ndindex(out):
        (top, bottom, last_row), (left, right, last_column) = rows[i], columns[j]
        inside = x[c, max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        padded = (min(bottom, last_row) - top) * (min(right, last_column) - left)
        result[c, i, j] = _average(inside, padded if op.count_include_pad else inside.size)
    return result


def _exact_adaptive(op: ops.AdaptiveAvgPool2d, x: Exact, out: Shape) -> Exact:
    def window(i: int, axis: int) -> slice:
        length, size = op.length[axis], op.size[axis]
        return slice(
            math.floor(Fraction(i * length, size)), math.ceil(Fraction((i + 1) * length, size))
        )

    result = np.empty(out, dtype=object)
    for c, i, j in np.ndindex(out):
        inside = x[c, window(i, 0), window(j, 1)]
        result[c, i, j] = _average(inside, inside.size)
    return result


def _exact_max(op: ops.MaxPool2d, x: Exact, out: Shape) -> Exact:
    result = np.empty(out, dtype=object)
    for c, i, j in np.ndindex(out):
        places = itertools.product(
            [i * op.stride[0] - op.padding[0] + h * op.dilation[0] for h in range(op.kernel[0])],
            [j * op.stride[1] - op.padding[1] + w * op.dilation[1] for w in range(op.kernel[1])],
        )
        inside = [x[c, h, w] for h, w in places if 0 <= h < x.shape[1] and 0 <= w < x.shape[2]]
        result[c, i, j] = max(inside)
    return result


def _exact_scatter(op: ops.Scatter, x: Exact) -> Exact:
    result = np.full(math.prod(op.size), Fraction(0), dtype=object)
    result[op.index.flatten().numpy()] = x.flatten()
    return result.reshape(op.size)


def _exponential(x: Fraction) -> Decimal:
    return (Decimal(x.numerator) / Decimal(x.denominator)).exp()


def sigmoid(x: Fraction) -> Fraction:
    """To sixty digits."""
    if abs(x) > 800:
        return Fraction(int(x > 0))
    with localcontext() as context:
        context.prec = 60
        return Fraction(1 / (1 + _exponential(-x)))


def tanh(x: Fraction) -> Fraction:
    """To sixty digits, however small x is: as many more are carried as the difference cancels."""
    if abs(x) > 800:
        return Fraction(1 if x > 0 else -1)
    with localcontext() as context:
        smallness = x.denominator.bit_length() - abs(x.numerator).bit_length()
        context.prec = 60 + max(0, smallness) // 3
        square = _exponential(2 * x)
        return Fraction((square - 1) / (square + 1))


def exact(op: Op, *inputs: Exact) -> Exact:
    """What the operation is defined to compute for one sample, in exact rational arithmetic."""
    out = op.shape(*(value.shape for value in inputs))
    x = inputs[0]
    each_value = np.frompyfunc
    match op:
        case ops.Linear():
            return _exact_linear(op, x)
        case ops.Conv2d():
            return _exact_conv(op, x, out)
        case ops.Affine():
            value = x if op.scale is None else x * rational(op.scale)
            return value if op.shift is None else value + rational(op.shift)
        case ops.Divide():
            return x / rational(op.divisor)
        case ops.Add():
            return inputs[0] + inputs[1]
        case ops.Subtract():
            return inputs[0] - inputs[1]
        case ops.AvgPool2d():
            return _exact_average(op, x, out)
        case ops.AdaptiveAvgPool2d():
            return _exact_adaptive(op, x, out)
        case ops.MaxPool2d():
            return _exact_max(op, x, out)
        case ops.Mean():
            total = x.sum(axis=tuple(op.dims), keepdims=op.keepdim)
            return total / Fraction(op.count)
        case ops.Reshape():
            return x.reshape(op.size)
        case ops.Permute():
            return x.transpose(op.dims)
        case ops.Concat():
            return np.concatenate(inputs, axis=op.dim)
        case ops.Pad():
            top, left, bottom, right = op.padding
            return np.pad(x, ((0, 0), (top, bottom), (left, right)), constant_values=0)
        case ops.Gather():
            return x.flatten()[op.index.numpy()]
        case ops.Scatter():
            return _exact_scatter(op, x)
        case ops.ReLU():
            return each_value(lambda v: max(v, Fraction(0)), 1, 1)(x)
        case ops.LeakyReLU(slope=slope):
            return each_value(lambda v: v if v > 0 else v * Fraction(slope), 1, 1)(x)
        case ops.Clip(low=low, high=high):
            # Comparing a fraction with an infinite float is exact.
            return each_value(
                lambda v: Fraction(low) if v < low else Fraction(high) if v > high else v, 1, 1
            )(x)
        case ops.Sigmoid():
            return each_value(sigmoid, 1, 1)(x)
        case ops.Tanh():
            return each_value(tanh, 1, 1)(x)
        case ops.Square():
            return x * x
        case ops.Slice():
            places = [slice(None)] * op.dim + [slice(op.start, op.stop, op.step)]
            return x[tuple(places)]
        case ops.Expand():
            return np.broadcast_to(x, op.size)
        case ops.Sum():
            return x.sum(axis=tuple(op.dims), keepdims=op.keepdim)
        case ops.Multiply():
            return inputs[0] * inputs[1]
        case ops.MatMul():
            return np.matmul(inputs[0], inputs[1])
        case ops.Fill():
            filled = x.copy()
            filled[np.broadcast_to(op.mask.numpy(), x.shape)] = Fraction(op.value)
            return filled
        case ops.Power(exponent=exponent):
            return x**exponent
        case ops.Reciprocal():
            return 1 / x
        case ops.Embedding():
            last = len(op.weight) - 1
            rows = [min(max(math.floor(v), 0), last) for v in x.flatten()]
            return rational(op.weight)[rows].reshape(out)
    return smooth(op, *inputs)


def encloses(ends: Interval, sample: int, values: Exact) -> bool:
    """Whether exact values lie within the ends of one sample."""
    lower, upper = (end[sample] for end in ends)
    assert tuple(lower.shape) == tuple(upper.shape) == values.shape
    return all(
        float(lower[place]) <= values[place] <= float(upper[place])
        for place in np.ndindex(values.shape)
    )


def sound(ends: Interval) -> bool:
    """Whether ends are float64, free of NaN, and in order."""
    lower, upper = ends
    return lower.dtype == upper.dtype == torch.float64 and bool((lower <= upper).all())
