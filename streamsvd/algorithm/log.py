"""The transform log, from which everything else follows: pairs and 2x2 factors."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.kernels.products import multiply_back, replay_panel, replay_rows, trace_path
from streamsvd.kernels.supports import count_supports, identity_bits
from streamsvd.matrix.working import WorkingMatrix

SLICE = 4096
"""Features whose supports are counted at a time: 64 words of 64 bits for each touched column."""

STRETCH = 1000
"""Transforms that numbers can be halved by and not vanish."""

PANEL = 16
"""Components whose structure is found at a time."""


class Moves(NamedTuple):
    """A batch of transforms on their way into the log: k pairs, no two of which share an index."""

    pairs: Array
    """(k, 2) int64, ``i < p``, ``j > i``."""
    tails: Array
    """(k,) ``X[i, j]`` where ``j >= n``, else 0."""
    g: Array
    """(k, 2, 2) the left factors."""
    h: Array
    """(k, 2, 2) the right factors."""
    values: Array
    """(k, 2) the diagonal at i and j after each, 0 beyond the rows."""

    @classmethod
    def room(cls, count: int) -> "Moves":
        """Of so many, to be written to."""
        g, h = np.empty((2, count, 2, 2))
        pairs, values = np.empty((count, 2), dtype=np.int64), np.empty((count, 2))
        return cls(pairs, np.empty(count), g, h, values)

    def first(self, count: int) -> "Moves":
        """The first `count`, views of these."""
        return self if count == len(self.pairs) else Moves(*(array[:count] for array in self))


class TransformLog:
    """The transforms ``U = G_1 G_2 ... G_m``, ``V = H_1 H_2 ... H_m``, in order.

    Parameters
    ----------
    n_components, n_features, n_samples : int
        `p`, `n`, `N`.

    Notes
    -----
    96 bytes a transform.

    Attributes
    ----------
    order : (n,) int array
        Row r of the working matrix is feature ``order[r]``: ``U`` begins with this permutation,
        which costs no fill.
    """

    NAMES = ("pairs", "g", "h", "values")

    def __init__(self, n_components: int, n_features: int, n_samples: int) -> None:
        self.n_components, self.n_features = n_components, n_features
        self.n_samples = n_samples
        self.order: Array = np.arange(n_features)
        self._pairs, self._values = np.zeros((0, 2), dtype=np.int64), np.zeros((0, 2))
        self._g, self._h = np.zeros((0, 2, 2)), np.zeros((0, 2, 2))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, moves: Moves) -> None:
        """Add a batch."""
        self.extend(moves.pairs, moves.g, moves.h, moves.values)

    def extend(self, pairs: Array, g: Array, h: Array, values: Array) -> None:
        """Add transforms by their arrays, see `arrays`."""
        first, last = self._size, self._size + len(pairs)
        if last > len(self._pairs):
            self._reserve(max(1024, 2 * last))
        self._pairs[first:last], self._values[first:last] = pairs, values
        self._g[first:last], self._h[first:last] = g, h
        self._size = last

    def _reserve(self, capacity: int) -> None:
        """Make room for so many transforms in all."""
        more = capacity - len(self._pairs)
        self._pairs, self._values, self._g, self._h = (
            np.concatenate([array, np.zeros((more, *array.shape[1:]), dtype=array.dtype)])
            for array in (self._pairs, self._values, self._g, self._h)
        )

    def arrays(self, first: int = 0, last: int | None = None) -> dict[str, Array]:
        """Transforms first..last-1 as the arrays that `extend` takes, by `NAMES`."""
        return {name: getattr(self, name)[first:last] for name in self.NAMES}

    @property
    def pairs(self) -> Array:
        """(m, 2) int64, the pairs ``i < p``, ``j > i`` logged so far."""
        return self._pairs[: self._size]

    @property
    def g(self) -> Array:
        """(m, 2, 2), the factor G of each transform; the identity where ``j >= n``."""
        return self._g[: self._size]

    @property
    def h(self) -> Array:
        """(m, 2, 2), the factor H of each transform; the identity where ``j >= N``."""
        return self._h[: self._size]

    @property
    def values(self) -> Array:
        """(m, 2), the diagonal of the working matrix at i and j after each transform.

        Zero at a ``j`` beyond the rows.
        """
        return self._values[: self._size]

    def components(self, k: int) -> sparse.csr_array:
        """First `p` columns of U after `k` transforms, as the rows of a (p, n) matrix."""
        rows = self._leading(self.g, self.n_features, k)
        return in_feature_order(rows, self.order)

    def right_vectors(self, k: int) -> sparse.csr_array:
        """First `p` columns of V after `k` transforms, as the columns of a (N, p) matrix, by rows.

        Returned as (p, N), like `components`.
        """
        return self._leading(self.h, self.n_samples, k)

    def diagonal(self, start: Array, k: int) -> Array:
        """First `p` diagonal entries after `k` transforms, from those at the start; (p,)."""
        diag = np.array(start, dtype=np.float64)
        places, values = self.pairs[:k].ravel(), self.values[:k].ravel()
        leading = places < len(diag)
        diag[places[leading]] = values[leading]  # of those in one place, the last remains
        return diag

    def trace(self, start: Array, k: int) -> Array:
        """Sum of the first `p` diagonal entries after each of `k` transforms; (k,)."""
        out = np.empty(k)
        trace_path(np.array(start, dtype=np.float64), self.pairs[:k], self.values[:k], out)
        return out

    def n_nonzeros(self, k: int) -> Array:
        """Nonzeros of the components after each of `k` transforms, from the supports; (k,).

        Cost: ``k * touched / 64`` word operations, `touched` the features in play, and
        ``512 * touched`` bytes.
        """
        p = self.n_components
        acts = self.pairs[:k, 1] < self.n_features
        touched, rows = self._touched(self.pairs[:k][acts])
        factors = self.g[:k][acts]
        counts = np.zeros(len(rows), dtype=np.int64)
        for first in range(0, len(touched), SLICE):
            last = min(first + SLICE, len(touched))
            support = identity_bits(len(touched), first, last)
            count_supports(support, rows, factors, p, counts)
        return np.concatenate([[p], counts])[np.cumsum(acts)]

    def _leading(self, factors: Array, size: int, k: int) -> sparse.csr_array:
        """First `p` columns of the product of `k` factors of one side, with their structure.

        Entries are stored where the supports say so, also in the rare case that one cancels to
        zero. Memory: ``9/8 p + 16`` numbers for each row in play.
        """
        p = self.n_components
        acts = self.pairs[:k, 1] < size
        touched, rows = self._touched(self.pairs[:k][acts])
        factors = factors[:k][acts]
        panel = np.eye(len(touched), p)
        multiply_back(panel, rows, factors)
        return rows_of_panel(panel, reached(len(touched), p, rows, factors), touched, size)

    def _touched(self, pairs: Array) -> tuple[Array, Array]:
        """Indices in play, ascending (the first `p` among them), and the pairs in terms of them."""
        p = self.n_components
        touched, place = np.unique(
            np.concatenate([np.arange(p), pairs.ravel()]), return_inverse=True
        )
        return touched, place[p:].reshape(-1, 2)

    # ------------------------------------------------------------------------------- replay

    @property
    def least_room(self) -> int:
        """Columns that any transform combines, with the first `p`."""
        return self.n_components + 1

    def stretch(self, start: int, room: int) -> int:
        """Where to stop so that the transforms from `start` combine at most `room` columns."""
        p, js = self.n_components, self.pairs[start:, 1]
        _, first = np.unique(js, return_index=True)
        is_new = np.zeros(len(js), dtype=bool)
        is_new[first] = True
        is_new &= (js >= p) & (js < self.n_samples)
        return start + int(np.sum(p + np.cumsum(is_new) <= room))

    def combined(self, steps: range) -> Array:
        """The columns that some transforms combine, and the first `p`; ascending."""
        js = self.pairs[steps.start : steps.stop, 1]
        return np.unique(np.concatenate([np.arange(self.n_components), js[js < self.n_samples]]))

    def replay_combined(self, panel: Array, columns: Array, steps: range) -> None:
        """Apply some transforms to the `columns` that they combine, `panel` (n, any), in place."""
        part = slice(steps.start, steps.stop)
        pairs, held = self.pairs[part], self.pairs[part, 1] < self.n_samples
        places = np.full(pairs.shape, -1)
        places[held] = np.searchsorted(columns, pairs[held])
        replay_panel(panel, pairs, places, self.g[part], self.h[part])

    def replay_rows(
        self,
        working: WorkingMatrix,
        first: int,
        steps: range,
        on_samples: Callable[[int], None] = lambda n: None,
    ) -> None:
        """Apply the row rotations of some transforms to `working`, the columns `first` and on."""
        part = slice(steps.start, steps.stop)
        rotates = self.pairs[part, 1] < self.n_features
        rows, factors = self.pairs[part][rotates], self.g[part][rotates]
        for start, stop, chunk in working.sweep():
            replay_rows(chunk, stop - start, rows, factors)
            on_samples(stop - start)


def in_feature_order(rows: sparse.csr_array, order: Array) -> sparse.csr_array:
    """Components on rows of the working matrix as components on features; see `TransformLog`."""
    permuted = sparse.csr_array((rows.data, order[rows.indices], rows.indptr), shape=rows.shape)
    permuted.sort_indices()
    return permuted


def reached(size: int, n_components: int, rows: Array, factors: Array) -> Array:
    """Where the first `p` columns of a product of factors are not zero; (size, p) booleans.

    By the supports: exact zeros of the factors join nothing, and nothing cancels.
    """
    found = np.empty((size, n_components), dtype=bool)
    for column in range(0, n_components, PANEL):
        panel = np.eye(size, min(PANEL, n_components - column), -column)
        for last in range(len(rows), 0, -STRETCH):
            part = slice(max(last - STRETCH, 0), last)
            multiply_back(panel, rows[part], np.where(factors[part] != 0.0, 0.5, 0.0))
            np.sign(panel, out=panel)
        found[:, column : column + PANEL] = panel != 0.0
    return found


def rows_of_panel(panel: Array, stored: Array, touched: Array, size: int) -> sparse.csr_array:
    """The columns of `panel`, the rows `touched` of `size`, as rows; the entries `stored`."""
    p = panel.shape[1]
    component, row = np.nonzero(stored.T)
    indptr = np.concatenate([[0], np.cumsum(stored.sum(axis=0, dtype=np.int64))])
    return sparse.csr_array((panel[row, component], touched[row], indptr), shape=(p, size))
