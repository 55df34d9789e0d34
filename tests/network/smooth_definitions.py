"""What smooth operations are defined to compute, to sixty digits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from provable_circuits.network import ops
from provable_circuits.network.ops import Op

HUGE = Fraction(2) ** 1100
"""Stands for exponentials beyond every double."""


def number(x: Fraction) -> Any:
    """The fraction as a number of mpmath."""
    return mpmath.mpf(x.numerator) / mpmath.mpf(x.denominator)


def fraction(value: Any) -> Fraction:
    """A number of mpmath as the fraction that it is; what is below all doubles as zero."""
    if value == 0 or abs(value) < mpmath.mpf(2) ** -1200:
        return Fraction(0)
    sign, man, exp, _ = value._mpf_
    return (-1 if sign else 1) * int(man) * Fraction(2) ** int(exp)


def exponential(x: Fraction) -> Fraction:
    """e to a power that is not beyond all reason."""
    if x > 720:
        return HUGE
    return Fraction(0) if x < -900 else fraction(mpmath.exp(number(x)))


def gelu(x: Fraction, tanh: bool) -> Fraction:
    """x times the normal distribution function, or its approximation."""
    if abs(x) > 60:
        return max(x, Fraction(0))
    v = number(x)
    if tanh:
        inner = mpmath.sqrt(2 / mpmath.pi) * (v + mpmath.mpf("0.044715") * v**3)
        return fraction(v * (1 + mpmath.tanh(inner)) / 2)
    return fraction(v * mpmath.erfc(-v / mpmath.sqrt(2)) / 2)


def silu(x: Fraction) -> Fraction:
    """x times the logistic function."""
    if abs(x) > 900:
        return max(x, Fraction(0))
    return fraction(number(x) / (1 + mpmath.exp(-number(x))))


def erf(x: Fraction) -> Fraction:
    """The error function."""
    return Fraction(1 if x > 0 else -1) if abs(x) > 30 else fraction(mpmath.erf(number(x)))


def softmax(x: Any, axis: int) -> Any:
    """Weights along one axis."""
    top = x.max(axis=axis, keepdims=True)
    powers = np.frompyfunc(exponential, 1, 1)(x - top)
    return powers / powers.sum(axis=axis, keepdims=True)


def normalise(op: ops.Normalise, x: Any) -> Any:
    """Centred, over the root of the mean square."""
    rows = x.reshape(*x.shape[: x.ndim - op.rank], -1)
    if op.centred:
        rows = rows - rows.sum(axis=-1, keepdims=True) / Fraction(rows.shape[-1])
    square = (rows * rows).sum(axis=-1, keepdims=True) / Fraction(rows.shape[-1])
    root = np.frompyfunc(lambda v: fraction(mpmath.sqrt(number(v))), 1, 1)
    return (rows / root(square + Fraction(op.epsilon))).reshape(x.shape)


def smooth(op: Op, *inputs: Any) -> Any:
    """The definition of an operation of ``smooth``, ``softmax`` or ``normalisation``."""
    x = inputs[0]
    with mpmath.workdps(400 if isinstance(op, ops.Normalise) else 80):
        match op:
            case ops.GELU(tanh=tanh):
                return np.frompyfunc(lambda v: gelu(v, tanh), 1, 1)(x)
            case ops.SiLU():
                return np.frompyfunc(silu, 1, 1)(x)
            case ops.Exp():
                return np.frompyfunc(exponential, 1, 1)(x)
            case ops.Erf():
                return np.frompyfunc(erf, 1, 1)(x)
            case ops.Softmax(dim=dim):
                return softmax(x, dim)
            case ops.Normalise():
                return normalise(op, x)
            case ops.Sqrt():
                return np.frompyfunc(lambda v: fraction(mpmath.sqrt(number(v))), 1, 1)(x)
    raise NotImplementedError(f"{op.name} has no exact definition yet")
