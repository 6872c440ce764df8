"""Matrices with orthonormal columns and a fixed sparsity pattern: the algebra of `refine`."""

import numpy as np
from numpy.typing import NDArray

from streamsvd.jit import jit
from streamsvd.kernels import Array


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
        return _product(gram, self.row, self.by_column, self.column_start, values)

    def cross(self, left: Array, right: Array) -> Array:
        """``L^T R`` of two matrices on the pattern."""
        if self.wide:
            return self.dense(left).T @ self.dense(right)
        return _cross(self.row_start, self.col, left, right, self.p)

    def combine(self, values: Array, matrix: Array) -> Array:
        """The entries of ``U L`` on the pattern."""
        if self.wide:
            return self.pick(self.dense(values) @ matrix)
        return _combine(self.row_start, self.col, values, matrix)

    def moments(self, values: Array) -> Array:
        """``B[b] = U[S_b]^T U[S_b]``, ``S_b`` the support of column b."""
        if not self.wide:
            return _moments(self.row_start, self.col, values, self.p)
        full = self.dense(values)
        blocks = (full[self.mask[:, b]] for b in range(self.p))
        return np.stack([block.T @ block for block in blocks])

    def project(self, values: Array, moments: Array, ambient: Array) -> tuple[Array, Array]:
        """A direction's tangent part at ``values``, and its multipliers."""
        inner = self.cross(values, ambient)
        multipliers = _multipliers(moments, inner + inner.T, 1e-4)
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
            values = values - self.combine(values, _multipliers(moments, defect, accuracy))
        return None


@jit
def _product(
    gram: Array, row: Array, by_column: Array, column_start: Array, values: Array
) -> Array:
    """Entries of ``gram @ U`` on the pattern of `U`, column by column."""
    out = np.zeros_like(values)
    for c in range(len(column_start) - 1):
        first, end = column_start[c], column_start[c + 1]
        for k in range(first, end):
            e = by_column[k]
            r, x = row[e], values[e]
            total = gram[r, r] * x
            for m in range(first, k):  # the other half by symmetry
                g = by_column[m]
                a = gram[r, row[g]]
                total += a * values[g]
                out[g] += a * x
            out[e] += total
    return out


@jit
def _cross(row_start: Array, col: Array, left: Array, right: Array, p: int) -> Array:
    """``L^T R`` of two matrices on one pattern."""
    out = np.zeros((p, p))
    for r in range(len(row_start) - 1):
        for e in range(row_start[r], row_start[r + 1]):
            for g in range(row_start[r], row_start[r + 1]):
                out[col[e], col[g]] += left[e] * right[g]
    return out


@jit
def _combine(row_start: Array, col: Array, values: Array, matrix: Array) -> Array:
    """Entries of ``U @ matrix`` on the pattern of `U`."""
    out = np.zeros_like(values)
    for r in range(len(row_start) - 1):
        for e in range(row_start[r], row_start[r + 1]):
            for g in range(row_start[r], row_start[r + 1]):
                out[e] += values[g] * matrix[col[g], col[e]]
    return out


@jit
def _moments(row_start: Array, col: Array, values: Array, p: int) -> Array:
    """``B[b]``, the Gram matrix of the rows of `U` in the support of column b; (p, p, p)."""
    out = np.zeros((p, p, p))
    for r in range(len(row_start) - 1):
        first, end = row_start[r], row_start[r + 1]
        for e in range(first, end):
            for g in range(first, end):
                for h in range(first, g + 1):
                    out[col[e], col[g], col[h]] += values[g] * values[h]
    for b in range(p):
        for a in range(p):
            for c in range(a):
                out[b, c, a] = out[b, a, c]
    return out


@jit
def _multipliers(moments: Array, right: Array, accuracy: float) -> Array:
    """Solve ``(B_b L_b)_a + (B_a L_a)_b = right[a, b]`` for a symmetric ``L``.

    Conjugate gradients, scaled by the diagonal.  Pairs of columns that share no
    row carry no constraint and stay zero.
    """
    p = len(right)
    scale = np.zeros((p, p))
    for a in range(p):
        for b in range(p):
            weight = moments[b, a, a] + moments[a, b, b]
            scale[a, b] = 1.0 / weight if weight > 1e-12 else 0.0
    solution = np.zeros((p, p))
    residual = right.copy()
    scaled = scale * residual
    direction = scaled.copy()
    image = np.empty((p, p))
    size = np.sum(residual * scaled)
    goal = accuracy * accuracy * size
    for _ in range(200):
        if size <= goal:
            break
        for b in range(p):
            image[b] = 0.0
            for c in range(p):
                factor = direction[b, c]
                if factor != 0.0:
                    for a in range(p):
                        image[b, a] += moments[b, c, a] * factor
        both = image + image.T
        bend = np.sum(direction * both)
        if bend <= 0.0:
            break
        step = size / bend
        solution += step * direction
        residual -= step * both
        scaled = scale * residual
        new_size = np.sum(residual * scaled)
        direction = scaled + (new_size / size) * direction
        size = new_size
    return solution
