"""The covariance ``A = X X^T`` in three forms, as far as refinement needs it.

======== ============================== ============== ===================
form     A                              memory         ``A @ U``
======== ============================== ============== ===================
Gram     the matrix itself (n, n)       ``n^2``        ``n^2 p``
Samples  ``B B^T``, B the data (n, N)   ``n N``        ``2 n N p``
Factor   ``B B^T + diag(d)``, B (n, r)  ``n (r + 1)``  ``2 n r p``
======== ============================== ============== ===================
"""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh, qr
from scipy.sparse.linalg import LinearOperator, eigsh

from streamsvd.arrays import Array
from streamsvd.kernels.pattern import factor_entries, gram_entries
from streamsvd.refinement.pattern import Pattern

LAPACK = 1000  # features up to which it finds eigenvectors at once
FEW = 20  # times fewer eigenvectors than features are found by Lanczos

Entries = Callable[[Array], Array]
"""From the values of `U` on a pattern to those of ``A @ U``."""


class Covariance(Protocol):
    """A symmetric positive semidefinite matrix ``A`` of n x n."""

    @property
    def n(self) -> int:
        """Number of features."""

    def diagonal(self) -> Array:
        """(n,) the variances of the features."""

    def times(self, pattern: Pattern, values: Array) -> Array:
        """``A @ U`` (n, p) for a `U` on a pattern."""

    def entries(self, pattern: Pattern) -> Entries:
        """The product with `A`, on a pattern alone."""

    def leading(self, p: int) -> tuple[Array, Array]:
        """The p largest eigenvalues, descending, and their eigenvectors (n, p)."""

    def restricted(self, features: NDArray[np.intp]) -> "Covariance":
        """The covariance of these features alone."""

    def block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
        """The matrix at these features."""

    def dense(self) -> Array:
        """(n, n) the matrix itself, for few features."""

    def compressed(self, rank: int) -> "Covariance":
        """What may stand for it in a search: a factor of this rank, where that is cheaper."""

    def scaled(self, exponent: int) -> "Covariance":
        """``A * 4**exponent``."""


class Gram:
    """The matrix itself, for n up to some thousands.

    Parameters
    ----------
    matrix : (n, n) array
        Symmetric positive semidefinite.
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix

    @property
    def n(self) -> int:
        """Number of features."""
        return len(self.matrix)

    def diagonal(self) -> Array:
        """(n,) the variances of the features."""
        return np.diag(self.matrix).copy()

    def times(self, pattern: Pattern, values: Array) -> Array:
        """``A @ U`` (n, p); ``n q p`` where `U` has `q` rows that are not zero."""
        if 2 * len(pattern.rows) < self.n:
            return self.matrix[pattern.rows].T @ pattern.compact(values)
        return self.matrix @ pattern.dense(values)

    def entries(self, pattern: Pattern) -> Entries:
        """Loops over the nonzeros of each column, or BLAS where supports are wide."""
        rows, sizes = pattern.rows, pattern.sizes
        if 25.0 * float(np.sum(sizes.astype(float) ** 2)) > len(rows) ** 2 * pattern.p:
            part = self.matrix if len(rows) == self.n else self.matrix[np.ix_(rows, rows)]
            return lambda values: pattern.pick(part @ pattern.compact(values))
        order, start = pattern.by_column, pattern.column_start

        def product(values: Array) -> Array:
            out = np.zeros(len(values))
            gram_entries(self.matrix, pattern.row, order, start, values, out)
            return out

        return product

    def block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
        """The matrix at these features."""
        return self.matrix[np.ix_(rows, columns)]

    def dense(self) -> Array:
        """The matrix itself."""
        return self.matrix

    def leading(self, p: int) -> tuple[Array, Array]:
        """By LAPACK, ``4 n^3 / 3``; by Lanczos for few of many."""
        if self.n <= LAPACK or FEW * p > self.n:
            return _leading(self.matrix, p)
        return _lanczos(self.n, lambda x: self.matrix @ x, p, np.sqrt(self.diagonal()))

    def restricted(self, features: NDArray[np.intp]) -> "Gram":
        """The covariance of these features alone."""
        return Gram(self.matrix[np.ix_(features, features)])

    def compressed(self, rank: int) -> "Gram":
        """Itself."""
        return self

    def scaled(self, exponent: int) -> "Gram":
        """``A * 4**exponent``."""
        return Gram(np.ldexp(self.matrix, 2 * exponent)) if exponent else self


class Factor:
    """``B B^T + diag(d)``: low rank and what it leaves of each feature's variance.

    Parameters
    ----------
    factor : (n, r) array
        `B`.
    rest : (n,) array, optional
        `d`, not negative; zero by default.
    """

    def __init__(self, factor: Array, rest: Array | None = None) -> None:
        self.factor = np.ascontiguousarray(factor, dtype=np.float64)
        self.rest = rest

    @property
    def n(self) -> int:
        """Number of features."""
        return len(self.factor)

    def diagonal(self) -> Array:
        """(n,) the variances of the features."""
        squares = np.einsum("ir,ir->i", self.factor, self.factor)
        return squares if self.rest is None else squares + self.rest

    def times(self, pattern: Pattern, values: Array) -> Array:
        """``A @ U`` (n, p); ``n r p`` and as much for the rows of `U` that are not zero."""
        few = 2 * len(pattern.rows) < self.n
        part = self.factor[pattern.rows] if few else self.factor
        right = pattern.compact(values) if few else pattern.dense(values)
        product = self.factor @ (part.T @ right)
        if self.rest is not None:
            product[pattern.row, pattern.col] += self.rest[pattern.row] * values
        return product

    def entries(self, pattern: Pattern) -> Entries:
        """Loops over the nonzeros, or BLAS on the rows that have some where they have many."""
        row, col, p = pattern.row, pattern.col, pattern.p
        rest = None if self.rest is None else self.rest[row]
        product: Entries
        if 8 * len(row) > len(pattern.rows) * p:
            part = self.factor[pattern.rows]

            def product(values: Array) -> Array:
                return pattern.pick(part @ (part.T @ pattern.compact(values)))
        else:

            def product(values: Array) -> Array:
                out, scores = np.empty(len(values)), np.zeros((p, self.factor.shape[1]))
                factor_entries(self.factor, row, col, values, scores, out)
                return out

        if rest is None:
            return product
        return lambda values: product(values) + rest * values

    def block(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Array:
        """The matrix at these features."""
        block = self.factor[rows] @ self.factor[columns].T
        if self.rest is not None:
            block += np.where(rows[:, None] == columns, self.rest[rows, None], 0.0)
        return block

    def dense(self) -> Array:
        """(n, n) the matrix itself, for few features."""
        matrix = self.factor @ self.factor.T
        if self.rest is not None:
            matrix[np.diag_indices(self.n)] += self.rest
        return matrix

    def leading(self, p: int) -> tuple[Array, Array]:
        """From the (r, r) Gram matrix, or by Lanczos where there is a rest."""
        values, right = _leading(self._inner, min(p, self.factor.shape[1]))
        vectors = _orthonormal(self.factor @ right, p)
        if self.rest is None:
            return np.concatenate([values, np.zeros(p - len(values))]), vectors
        n, factor, rest = self.n, self.factor, self.rest
        if n <= max(3 * p, 64):
            return _leading(self.dense(), p)
        start = vectors.sum(axis=1)
        return _lanczos(n, lambda x: factor @ (factor.T @ x) + rest * x.ravel(), p, start)

    def restricted(self, features: NDArray[np.intp]) -> "Factor":
        """The covariance of these features alone."""
        return Factor(self.factor[features], None if self.rest is None else self.rest[features])

    def compressed(self, rank: int) -> "Factor":
        """The leading eigenvectors as a factor, and what these leave of the diagonal."""
        if 2 * rank > self.factor.shape[1] or self.rest is not None:
            return self
        _, right = _leading(self._inner, rank)
        factor = self.factor @ right
        rest = self.diagonal() - np.einsum("ir,ir->i", factor, factor)
        return Factor(factor, np.maximum(rest, 0.0))

    @cached_property
    def _inner(self) -> Array:
        return self.factor.T @ self.factor

    def scaled(self, exponent: int) -> "Factor":
        """``A * 4**exponent``."""
        if exponent == 0:
            return self
        rest = None if self.rest is None else np.ldexp(self.rest, 2 * exponent)
        return Factor(np.ldexp(self.factor, exponent), rest)


class Samples(Factor):
    """The data themselves, ``A = X X^T`` exactly: for few samples.

    Parameters
    ----------
    data : (n, N) array
        Centred and scaled already.
    """

    def __init__(self, data: Array) -> None:
        super().__init__(data)


def fewest(cov: Covariance, share: float, most: int) -> int:
    """The fewest eigenvectors that explain more than a share of the trace, at most `most`.

    As scikit-learn's PCA counts them. All eigenvalues, ``4 n^3 / 3`` operations and a copy of the
    matrix; of data those of the smaller (N, N) matrix.
    """
    assert isinstance(cov, Gram | Samples)  # noqa: S101  (a factor tells of the leading ones alone)
    matrix = cov.matrix if isinstance(cov, Gram) else cov.factor.T @ cov.factor
    values = np.maximum(eigvalsh(matrix)[::-1], 0.0)
    total = values.sum()
    explained = np.cumsum(values / total) if total > 0 else np.ones(1)
    return min(int(np.searchsorted(explained, share, side="right")) + 1, most)


def _leading(matrix: Array, p: int) -> tuple[Array, Array]:
    n = len(matrix)
    if p == 0:
        return np.zeros(0), np.zeros((n, 0))
    values, vectors = eigh(matrix, subset_by_index=[n - p, n - 1])
    return values[::-1], vectors[:, ::-1]


def _lanczos(n: int, times: Callable[[Array], Array], p: int, start: Array) -> tuple[Array, Array]:
    """The leading eigenvectors are only where a search starts: no more digits than it needs."""
    values, vectors = eigsh(LinearOperator((n, n), matvec=times), p, v0=start, tol=1e-6)
    return values[::-1], vectors[:, ::-1]


def _orthonormal(columns: Array, p: int) -> Array:
    """(n, p) orthonormal, the columns first; some may be zero or missing."""
    n = len(columns)
    norms = np.linalg.norm(columns, axis=0)
    good = norms > 1e-7 * norms.max(initial=0.0)
    columns = columns[:, good] / norms[good]
    if columns.shape[1] < p:
        columns = np.concatenate([columns, np.eye(n, min(n, p))], axis=1)
        return qr(columns, mode="economic", pivoting=True)[0][:, :p]
    return np.linalg.qr(columns)[0]
