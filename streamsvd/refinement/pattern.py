"""Matrices with orthonormal columns and a fixed sparsity pattern: the algebra of `refine`."""

import numpy as np
from numpy.typing import NDArray

from streamsvd.arrays import Array
from streamsvd.kernels.pattern import (
    pattern_combine,
    pattern_cross,
    pattern_moments,
    pattern_product,
    solve_multipliers,
)


class Pattern:
    """A sparsity pattern and the algebra of its orthonormal matrices.

    Values are listed row by row.  A matrix ``U`` on the pattern is orthonormal
    where ``U^T U = I``; the normal directions there are ``mask * (U L)``, ``L``
    symmetric, so projections and Newton steps solve for a p x p ``L`` in
    ``B_b L_b`` summed over both sides, where ``B_b`` is the Gram matrix of the
    rows of ``U`` in the support of column ``b``.
    """

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self.mask = mask
        self.n, self.p = mask.shape
        self.row, self.col = np.nonzero(mask)
        self.row_start = np.concatenate(([0], np.cumsum(mask.sum(axis=1))))
        self.by_column = np.argsort(self.col, kind="stable")
        sizes = mask.sum(axis=0)
        self.column_start = np.concatenate(([0], np.cumsum(sizes)))
        # Where the supports are wide, BLAS on dense arrays is the faster way.
        self.wide = 25.0 * float(np.sum(sizes.astype(float) ** 2)) > self.n**2 * self.p

    def dense(self, values: Array) -> Array:
        """The (n, p) matrix."""
        full = np.zeros(self.mask.shape)
        full[self.row, self.col] = values
        return full

    def pick(self, full: Array) -> Array:
        """The values of an (n, p) matrix on the pattern."""
        return np.ascontiguousarray(full[self.row, self.col])

    def find(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the entries (rows[c], c) of the pattern are listed."""
        listed = self.row * self.p + self.col
        return np.searchsorted(listed, rows * self.p + np.arange(self.p))

    def column_squares(self, values: Array) -> Array:
        """Squared norms of the columns."""
        return np.bincount(self.col, values**2, self.p)

    def product(self, gram: Array, values: Array) -> Array:
        """The entries of ``A U`` on the pattern."""
        if self.wide:
            transposed = np.zeros((self.p, self.n))
            transposed[self.col, self.row] = values
            return (transposed @ gram)[self.col, self.row]
        return pattern_product(gram, self.row, self.by_column, self.column_start, values)

    def cross(self, left: Array, right: Array) -> Array:
        """``L^T R`` of two matrices on the pattern."""
        if self.wide:
            return self.dense(left).T @ self.dense(right)
        return pattern_cross(self.row_start, self.col, left, right, self.p)

    def combine(self, values: Array, matrix: Array) -> Array:
        """The entries of ``U L`` on the pattern."""
        if self.wide:
            return self.pick(self.dense(values) @ matrix)
        return pattern_combine(self.row_start, self.col, values, matrix)

    def moments(self, values: Array) -> Array:
        """``B[b] = U[S_b]^T U[S_b]``, ``S_b`` the support of column b."""
        if not self.wide:
            return pattern_moments(self.row_start, self.col, values, self.p)
        full = self.dense(values)
        blocks = (full[self.mask[:, b]] for b in range(self.p))
        return np.stack([block.T @ block for block in blocks])

    def project(self, values: Array, moments: Array, ambient: Array) -> tuple[Array, Array]:
        """A direction's tangent part at ``values``, and its multipliers."""
        inner = self.cross(values, ambient)
        multipliers = solve_multipliers(moments, inner + inner.T, 1e-4)
        return ambient - self.combine(values, multipliers), multipliers

    def retract(self, values: Array) -> Array | None:
        """The nearby orthonormal matrix, by Newton's method; None if none is."""
        norms = np.sqrt(self.column_squares(values))
        if norms.min() < 1e-8:
            return None
        values = values / norms[self.col]
        last = np.inf
        for _ in range(12):
            defect = self.cross(values, values) - np.eye(self.p)
            size = float(np.max(np.abs(defect)))
            if size < 1e-14 or (size < 1e-13 and size >= last):
                return values
            if not size < 0.9 or size > 10.0 * last:
                return None
            last = size
            moments = self.moments(values)
            accuracy = max(0.1 * min(size, 0.1), 1e-13)
            values = values - self.combine(values, solve_multipliers(moments, defect, accuracy))
        return None
