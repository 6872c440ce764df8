"""The transform log, from which everything else follows: pairs and 2x2 factors."""

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.kernels.products import multiply_back, trace_path
from streamsvd.kernels.supports import count_supports, identity_bits, support_back

SLICE = 4096
"""Features whose supports are counted at a time: 64 words of 64 bits for each touched column."""


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
    left, right : (m or more, 2, 2) float64 arrays
        The factors G and H of each transform, on the coordinates of its pair. G is the identity
        where ``j >= n``, H where ``j >= N``.
    order : (n,) int array
        Row r of the working matrix is feature ``order[r]``: ``U`` begins with this permutation,
        which costs no fill.
    """

    NAMES = ("pairs", "left", "right", "values")

    def __init__(self, n_components: int, n_features: int, n_samples: int) -> None:
        self.n_components, self.n_features = n_components, n_features
        self.n_samples = n_samples
        self.order: Array = np.arange(n_features)
        self.left, self.right = np.zeros((0, 2, 2)), np.zeros((0, 2, 2))
        self._pairs, self._values = np.zeros((0, 2), dtype=np.int64), np.zeros((0, 2))
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def extend(self, pairs: Array, left: Array, right: Array, values: Array) -> None:
        """Add transforms that were logged elsewhere."""
        m = self._size + len(pairs)
        self.reserve(m)
        part = slice(self._size, m)
        self._pairs[part], self._values[part] = pairs, values
        self.left[part], self.right[part] = left, right
        self._size = m

    def reserve(self, capacity: int) -> None:
        """Make room for so many transforms in all."""
        more = capacity - len(self._pairs)
        if more > 0:
            self._pairs, self._values, self.left, self.right = (
                np.concatenate([array, np.zeros((more, *array.shape[1:]), dtype=array.dtype)])
                for array in (self._pairs, self._values, self.left, self.right)
            )

    def arrays(self, first: int = 0, last: int | None = None) -> dict[str, Array]:
        """Transforms first..last-1 as the arrays that `extend` takes, by `NAMES`."""
        part = slice(first, self._size if last is None else last)
        return {name: getattr(self, name)[part] for name in self.NAMES}

    @property
    def pairs(self) -> Array:
        """(m, 2) int64, the pairs ``i < p``, ``j > i`` logged so far."""
        return self._pairs[: self._size]

    @property
    def values(self) -> Array:
        """(m, 2), the diagonal of the working matrix at i and j after each transform.

        Zero at a ``j`` beyond the rows.
        """
        return self._values[: self._size]

    def draft(self, count: int) -> tuple[Array, Array, Array, Array]:
        """Where to write pairs, factors G and H, and values of the next transforms.

        Logged by `append`.
        """
        stop = self._size + count
        if stop > len(self._pairs):
            self.reserve(max(1024, 2 * stop))
        part = slice(self._size, stop)
        return self._pairs[part], self.left[part], self.right[part], self._values[part]

    def append(self, count: int) -> None:
        """Log the transforms that were written to `draft`."""
        self._size += count

    def components(self, k: int) -> sparse.csr_array:
        """First `p` columns of U after `k` transforms, as the rows of a (p, n) matrix."""
        rows = self._leading(self.left, self.n_features, k)
        columns = self.order[rows.indices]
        permuted = sparse.csr_array((rows.data, columns, rows.indptr), shape=rows.shape)
        permuted.sort_indices()
        return permuted

    def right_vectors(self, k: int) -> sparse.csr_array:
        """First `p` columns of V after `k` transforms, as the columns of a (N, p) matrix, by rows.

        Returned as (p, N), like `components`.
        """
        return self._leading(self.right, self.n_samples, k)

    def diagonal(self, start: Array, k: int) -> Array:
        """First `p` diagonal entries after `k` transforms, from those at the start; (p,)."""
        diag = np.array(start, dtype=np.float64)
        trace_path(diag, self.pairs[:k], self.values[:k], np.empty(k))
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
        factors = self.left[:k][acts]
        counts = np.zeros(len(rows), dtype=np.int64)
        for first in range(0, len(touched), SLICE):
            last = min(first + SLICE, len(touched))
            support = identity_bits(len(touched), first, last)
            count_supports(support, rows, factors, p, counts)
        return np.concatenate([[p], counts])[np.cumsum(acts)]

    def _leading(self, factors: Array, size: int, k: int) -> sparse.csr_array:
        """First `p` columns of the product of `k` factors of one side, with their structure.

        Entries are stored where the supports say so, also in the rare case that one cancels to
        zero. Memory: ``p`` numbers for each row in play.
        """
        p = self.n_components
        acts = self.pairs[:k, 1] < size
        touched, rows = self._touched(self.pairs[:k][acts])
        factors = factors[:k][acts]
        panel = np.eye(len(touched), p)
        multiply_back(panel, rows, factors)
        bits = identity_bits(len(touched), 0, p)
        support_back(bits, rows, factors)
        as_bytes = bits.astype("<u8", copy=False).view(np.uint8)
        mask = np.unpackbits(as_bytes, axis=1, count=p, bitorder="little").T
        component, row = np.nonzero(mask)
        indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1, dtype=np.int64))])
        return sparse.csr_array((panel[row, component], touched[row], indptr), shape=(p, size))

    def _touched(self, pairs: Array) -> tuple[Array, Array]:
        """Indices in play, ascending (the first `p` among them), and the pairs in terms of them."""
        p = self.n_components
        touched, place = np.unique(
            np.concatenate([np.arange(p), pairs.ravel()]), return_inverse=True
        )
        return touched, place[p:].reshape(-1, 2)
