"""The machine: whether its linear algebra keeps the error bounds of the arithmetic."""

from __future__ import annotations

import numpy as np

from .arithmetic import RefusedError


def check_products() -> None:
    """Refuse a linear algebra that does not form plain products.

    The error bound above holds for sums of the products a_ik b_kj alone, in any order. Fast
    multiplication adds and subtracts entries of other rows and columns: halves above and below, or
    every second one; huge ones there would show. So would
    products of fewer than 53 bits, and numbers below 2^-1022 that are taken for zero.
    """
    size = 96
    left, right = np.ones((size, size)), np.ones((size, size))
    huge = (np.arange(size) < size // 2) == (np.arange(size) % 2 == 1)
    left[huge], right[:, huge] = 2.0**600, 2.0**400
    fine, small = np.eye(size) * (1 + 2.0**-26), np.eye(size) * 2.0**-530
    plain = left @ right == size * np.outer(left[:, 0], right[0])
    plain &= fine @ fine == np.eye(size) * (1 + 2.0**-25 + 2.0**-52)
    plain &= small @ small == np.eye(size) * 2.0**-1060
    if not plain.all():
        raise RefusedError("The linear algebra of this machine does not form plain products.")
