"""Matrices that many rows and many points are multiplied by, in plain floating point.

What a layer far down reads are few inputs each, so that most of its matrix is zero. Where PyTorch
has kernels for that, they take a third of the time.
"""

from __future__ import annotations

import warnings

from torch import Tensor


class HullMatrix:
    """A matrix [r, n] for products from both sides.

    Args:
        matrix: the matrix.
        sparse_share: with no larger a share of nonzero entries it is treated as sparse.
    """

    def __init__(self, matrix: Tensor, sparse_share: float) -> None:
        self.dense = matrix
        few = int((matrix != 0).sum()) <= sparse_share * matrix.numel()
        self.compressed = _compressed(matrix) if few else None
        """The matrix and its transpose in compressed rows, if that pays."""

    def rows(self, coefficients: Tensor) -> Tensor:
        """Sums of rows, with coefficients [k, r]: [k, n]."""
        if self.compressed is None:
            return coefficients @ self.dense
        return (self.compressed[1] @ coefficients.T).T

    def at(self, points: Tensor) -> Tensor:
        """What the rows are at points [k, n]: [k, r]."""
        if self.compressed is None:
            return points @ self.dense.T
        return (self.compressed[0] @ points.T).T


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
