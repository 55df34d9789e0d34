"""Matrices that many rows and many points are multiplied by, in plain floating point.

What a layer far down reads are few inputs each, so that most of its matrix is zero. Where PyTorch
has kernels for that, they take a third of the time.
"""

from __future__ import annotations

import warnings

from torch import Tensor

SPARSE = 0.2
"""A matrix with no larger a share of nonzero entries is treated as sparse."""

MANY = 8
"""So many rows or points at once are worth it."""


class Matrix:
    """A matrix [r, n] for products from both sides."""

    def __init__(self, matrix: Tensor) -> None:
        self.dense = matrix
        self._tried = False
        self._compressed: tuple[Tensor, Tensor] | None = None

    def rows(self, coefficients: Tensor) -> Tensor:
        """Sums of rows, with coefficients [k, r]: [k, n]."""
        sparse = self._sparse(len(coefficients))
        if sparse is None:
            return coefficients @ self.dense
        return (sparse[1] @ coefficients.T).T

    def at(self, points: Tensor) -> Tensor:
        """What the rows are at points [k, n]: [k, r]."""
        sparse = self._sparse(len(points))
        if sparse is None:
            return points @ self.dense.T
        return (sparse[0] @ points.T).T

    def _sparse(self, many: int) -> tuple[Tensor, Tensor] | None:
        """The matrix and its transpose, compressed, for so many products at once."""
        if many < MANY:
            return None
        if not self._tried:
            self._tried = True
            if int((self.dense != 0).sum()) <= SPARSE * self.dense.numel():
                self._compressed = _compressed(self.dense)
        return self._compressed


def _compressed(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    """A matrix and its transpose in compressed rows; None where PyTorch cannot multiply by them."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
            both = matrix.to_sparse_csr(), matrix.T.contiguous().to_sparse_csr()
        both[0] @ matrix.new_zeros(matrix.shape[1], 1)
    except RuntimeError:
        return None
    return both
