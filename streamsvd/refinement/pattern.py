"""Matrices with orthonormal columns and a fixed sparsity pattern: the algebra of the moves."""

from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from streamsvd.arrays import Array
from streamsvd.kernels.pattern import combined_entries, cross_entries, normal_entries

Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]

PANEL = 2048  # rows that are multiplied at once
STEPS = 60  # of conjugate gradients for multipliers
EXACT_STEPS = 500  # of those where the answer must be exact
CHEAP = 200  # constraints up to which all steps of Newton's method are tried
SLOW = 2  # of those that do not halve the defect, after which a search looks elsewhere
DIRECT = 1500  # constraints up to which their normal matrix is factorised


@cache
def upper(p: int) -> tuple[Indices, Indices]:
    """The indices ``a <= c`` of a symmetric (p, p) matrix; they are asked for at each step."""
    return np.triu_indices(p)


class Pattern:
    """A sparsity pattern and the algebra of its orthonormal matrices.

    A matrix `U` on the pattern is orthonormal where ``U^T U = I``; the normal directions there are
    ``mask * (U L)``, `L` symmetric and zero where two columns share no row.

    Parameters
    ----------
    shape : (n, p)
    listed : (k,) array
        Ascending ``row * p + column`` of the entries.
    """

    def __init__(self, shape: tuple[int, int], listed: Indices) -> None:
        self.n, self.p = shape
        self.listed = listed
        self.row, self.col = np.divmod(listed, self.p)
        new = np.flatnonzero(np.diff(self.row, prepend=-1))
        self.rows = self.row[new]
        self.row_start = np.append(new, len(listed))
        self.sizes = np.bincount(self.col, minlength=self.p)
        # where rows are full, BLAS on dense arrays is the faster way
        counts = np.diff(self.row_start)
        self.wide = 10.0 * float(np.sum(counts.astype(float) ** 2)) > len(new) * self.p**2

    @classmethod
    def of(cls, mask: Mask) -> "Pattern":
        """The pattern of an (n, p) mask."""
        return cls((mask.shape[0], mask.shape[1]), np.flatnonzero(mask))

    def __len__(self) -> int:
        return len(self.listed)

    @cached_property
    def by_column(self) -> Indices:
        """(k,) the entries column by column."""
        return np.argsort(self.col.astype(np.uint16 if self.p < 2**16 else np.int64), kind="stable")

    @cached_property
    def column_start(self) -> Indices:
        """(p + 1,) where each column begins in `by_column`."""
        return np.concatenate(([0], np.cumsum(self.sizes)))

    @cached_property
    def _compact_listed(self) -> Indices:
        local = np.repeat(np.arange(len(self.rows)), np.diff(self.row_start))
        return local * self.p + self.col

    @cached_property
    def common(self) -> Array:
        """(p, p) how many rows two columns share."""
        ones = np.ones(len(self))
        return self.cross(ones, ones)

    @cached_property
    def pair(self) -> Indices:
        """(p, p) the number of the constraint of two columns; -1 where they share no row."""
        a, b = self.pairs
        pair = np.full((self.p, self.p), -1)
        pair[a, b] = pair[b, a] = np.arange(len(a))
        return pair

    @cached_property
    def pairs(self) -> tuple[Indices, Indices]:
        """The columns ``a <= b`` of each constraint."""
        a, b = np.nonzero(np.triu(self.common > 0.0))
        return a, b

    # -------------------------------------------------------------- values

    def compact(self, values: Array) -> Array:
        """The rows that are not zero, dense: (q, p)."""
        full = np.zeros((len(self.rows), self.p))
        full.flat[self._compact_listed] = values
        return full

    def pick(self, compact: Array) -> Array:
        """The values of a (q, p) matrix on the pattern."""
        return np.take(compact, self._compact_listed)

    def dense(self, values: Array) -> Array:
        """The (n, p) matrix."""
        full = np.zeros((self.n, self.p))
        full.flat[self.listed] = values
        return full

    def keep(self, kept: Mask) -> "Pattern":
        """The pattern of these entries alone."""
        return Pattern((self.n, self.p), self.listed[kept])

    def column_squares(self, values: Array) -> Array:
        """(p,) squared norms of the columns."""
        return np.bincount(self.col, values * values, self.p)

    # -------------------------------------------------------------- algebra

    def cross(self, left: Array, right: Array) -> Array:
        """``L^T R`` (p, p) of two matrices on the pattern."""
        if self.wide:
            return self.compact(left).T @ self.compact(right)
        out = np.zeros((self.p, self.p))
        cross_entries(self.row_start, self.col, left, right, out)
        return out

    def combine(self, values: Array, matrix: Array) -> Array:
        """The entries of ``U L`` on the pattern."""
        if self.wide:
            return self.pick(self.compact(values) @ matrix)
        out = np.zeros(len(self))
        combined_entries(self.row_start, self.col, values, matrix, out)
        return out

    def normal(self, values: Array) -> Array:
        """(m, m) the normal matrix of the m constraints."""
        m = len(self.pairs[0])
        if not self.wide:
            out = np.zeros((m, m))
            normal_entries(self.row_start, self.col, values, self.pair, out)
            return out
        full, (a, c), (cells, sources) = self.compact(values), upper(self.p), self._normal
        moments = np.zeros((self.p, len(a)))  # of columns a and c on the support of b
        for first in range(0, len(full), PANEL):
            rows = full[first : first + PANEL]
            moments += self._mask[first : first + PANEL].T @ (rows[:, a] * rows[:, c])
        return np.bincount(cells, moments.ravel()[sources], m * m).reshape(m, m)

    @cached_property
    def _normal(self) -> tuple[Indices, Indices]:
        """Where the moments on the support of b go in the normal matrix."""
        triangle = np.zeros((self.p, self.p), dtype=np.intp)
        a, c = upper(self.p)
        triangle[a, c] = triangle[c, a] = np.arange(len(a))
        b, a, c = np.indices((self.p,) * 3).reshape(3, -1)
        own, other = self.pair[a, b], self.pair[c, b]
        met = (own >= 0) & (other >= 0)
        cells = own * len(self.pairs[0]) + other
        return cells[met], (b * triangle.max(initial=0) + b + triangle[a, c])[met]

    @cached_property
    def _mask(self) -> Array:
        return self.compact(np.ones(len(self)))

    def solver(self, values: Array) -> "Multipliers":
        """What solves for multipliers at these values."""
        return Multipliers(self, values)

    def retract(self, values: Array, goal: float = 1e-14) -> Array | None:
        """The nearby orthonormal matrix, by Newton's method; None if none is."""
        norms = np.sqrt(self.column_squares(values))
        if norms.min() < 1e-8:
            return None
        values = values / norms[self.col]
        last, steps, slow = np.inf, 0, 0
        for _ in range(30):
            defect = self.cross(values, values) - np.eye(self.p)
            size = float(np.max(np.abs(defect)))
            if size < goal or (size < 1e-13 and size >= last):
                return values
            if not size < 0.9 or (size > 10.0 * last and not steps):
                return None
            slow += size > 0.5 * last
            if slow == SLOW and goal > 1e-13 and len(self.pairs[0]) > CHEAP:
                return None
            if goal < 1e-13 and size > 0.1 * last:
                steps = EXACT_STEPS  # what the ridge of a singular normal matrix keeps back
            last = size
            multipliers = self.solver(values)(defect, 0.1 * min(size, 0.1), steps)
            values = values - self.combine(values, multipliers)
        return None


class Multipliers:
    """Solves ``C + C^T = right`` for a symmetric `L`, where ``C = U^T (mask * (U L))``.

    Few constraints: by Cholesky's factors of their normal matrix, made once.  Many: by conjugate
    gradients, scaled by the diagonal, each step at the cost of the nonzeros.
    """

    def __init__(self, pattern: Pattern, values: Array) -> None:
        self.pattern, self.values = pattern, values
        self.factors: Array | None = None
        m = len(pattern.pairs[0])
        if m <= DIRECT:
            normal = pattern.normal(values)
            diagonal = normal.diagonal()
            ridge = 1e-9 * diagonal.max(initial=0.0) + np.finfo(float).tiny
            for _ in range(4):
                normal[np.arange(m), np.arange(m)] += ridge
                factors, failed = dpotrf(normal, lower=1)
                if not failed:
                    self.factors = factors
                    return
                ridge *= 100.0

    def __call__(self, right: Array, accuracy: float, steps: int = 0) -> Array:
        """The symmetric (p, p) `L`, to a relative `accuracy`.

        By the factors alone, as exact as these are, or with so many `steps` at most beyond them.
        """
        if self.factors is not None and not steps:
            return self._scaled(right)
        return self._iterated(right, accuracy, steps or STEPS)

    def _scaled(self, right: Array) -> Array:
        """Nearly the solution: by the factors, or by the diagonal."""
        if self.factors is None:
            return self._scale * right
        a, b = self.pattern.pairs
        solution, _ = dpotrs(self.factors, np.where(a == b, 0.5, 1.0) * right[a, b], lower=1)
        full = np.zeros_like(right)
        full[a, b] = full[b, a] = solution
        return full

    def _iterated(self, right: Array, accuracy: float, steps: int) -> Array:
        pattern, values = self.pattern, self.values
        solution = np.zeros_like(right)
        residual = right.copy()
        scaled = self._scaled(residual)
        direction = scaled
        size = float(np.vdot(residual, scaled))
        goal = accuracy * accuracy * size
        for _ in range(steps):
            if size <= goal:
                break
            image = pattern.cross(values, pattern.combine(values, direction))
            image = image + image.T
            bend = float(np.vdot(direction, image))
            if bend <= 0.0:
                break
            step = size / bend
            solution += step * direction
            residual -= step * image
            scaled = self._scaled(residual)
            size, before = float(np.vdot(residual, scaled)), size
            direction = scaled + (size / before) * direction
        return solution

    @cached_property
    def _scale(self) -> Array:
        pattern = self.pattern
        weight = pattern.cross(np.ones(len(pattern)), self.values**2)
        weight = weight + weight.T
        return np.where(weight > 1e-12, 1.0 / np.maximum(weight, 1e-12), 0.0)
