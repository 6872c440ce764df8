"""The log of block steps: `streamsvd.algorithm.log.TransformLog` for factors on 2p indices.

A block step mixes many columns of `U` at once: ``U[:, rows] <- U[:, rows] G``. Each new column gets
the union of the supports of the old ones, but of those only that its factors are not exactly zero
for, as with pairs; the fill is counted from these unions, never from the values.
"""

from collections.abc import Callable

import numpy as np
from scipy import sparse

from streamsvd.algorithm.log import SLICE, TransformLog, in_feature_order, rows_of_panel
from streamsvd.arrays import Array
from streamsvd.kernels.supports import identity_bits, mix_supports, popcount
from streamsvd.matrix.tiled import RowProduct, TiledColumns
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.sizes import block_width
from streamsvd.system import one_blas_thread


class BlockLog:
    """The block steps ``U = G_1 G_2 ... G_m``, ``V = H_1 H_2 ... H_m``, in order.

    Parameters
    ----------
    n_components, n_features, n_samples : int
        `p`, `n`, `N`.

    Notes
    -----
    ``64 p^2`` bytes a step: 625 kiB for 100 components.

    Attributes
    ----------
    order : (n,) int array
        As of `TransformLog`.
    """

    NAMES = ("indices", "g", "h", "values")

    def __init__(self, n_components: int, n_features: int, n_samples: int) -> None:
        self.n_components, self.n_features = n_components, n_features
        self.n_samples = n_samples
        self.order: Array = np.arange(n_features)
        self._steps: list[tuple[Array, Array, Array, Array]] = []

    @property
    def width(self) -> int:
        """Indices of a step: ``2 p``, or as many as there are."""
        return block_width(self.n_components, self.n_features, self.n_samples)

    def __len__(self) -> int:
        return len(self._steps)

    def extend(self, indices: Array, g: Array, h: Array, values: Array) -> None:
        """Add steps that were logged elsewhere."""
        self._steps += zip(indices, g, h, values, strict=True)

    def append(self, indices: Array, g: Array, h: Array, values: Array) -> None:
        """Log a step: its indices, ascending, its factors, the first `p` diagonal entries after it.

        `g` (r, r) is for the indices below `n`, `h` (c, c) for those below `N`; what is missing to
        the width of a step is kept as an identity.
        """
        whole_g, whole_h = np.eye(self.width), np.eye(self.width)
        whole_g[: len(g), : len(g)], whole_h[: len(h), : len(h)] = g, h
        self._steps.append((indices, whole_g, whole_h, np.array(values, dtype=np.float64)))

    def arrays(self, first: int = 0, last: int | None = None) -> dict[str, Array]:
        """Steps first..last-1 as the arrays that `extend` takes."""
        return {name: self._stacked(name, first, last) for name in self.NAMES}

    def _stacked(self, name: str, first: int = 0, last: int | None = None) -> Array:
        steps, k, w = self._steps[first:last], self.NAMES.index(name), self.width
        shape = ((w,), (w, w), (w, w), (self.n_components,))[k]
        out = np.empty((len(steps), *shape), dtype=np.float64 if k else np.int64)
        for row, step in zip(out, steps, strict=True):
            row[...] = step[k]
        return out

    def step(self, k: int) -> tuple[Array, Array, Array]:
        """Indices and factors G (of those below `n`), H (of those below `N`) of step `k`."""
        indices, g, h, _ = self._steps[k]
        r, c = np.searchsorted(indices, [self.n_features, self.n_samples])
        return indices, g[:r, :r], h[:c, :c]

    @property
    def indices(self) -> Array:
        """(m, 2p) int64, the indices of each step, ascending; the first `p` among them."""
        return self._stacked("indices")

    @property
    def g(self) -> Array:
        """(m, 2p, 2p), a copy of the factors G."""
        return self._stacked("g")

    @property
    def h(self) -> Array:
        """(m, 2p, 2p), a copy of the factors H."""
        return self._stacked("h")

    @property
    def values(self) -> Array:
        """(m, p), the first `p` diagonal entries of the working matrix after each step."""
        return self._stacked("values")

    def components(self, k: int) -> sparse.csr_array:
        """First `p` columns of U after `k` steps, as the rows of a (p, n) matrix."""
        rows = self._leading(0, self.n_features, k)
        return in_feature_order(rows, self.order)

    def right_vectors(self, k: int) -> sparse.csr_array:
        """First `p` columns of V after `k` steps, as the rows of a (p, N) matrix."""
        return self._leading(1, self.n_samples, k)

    def diagonal(self, start: Array, k: int) -> Array:
        """First `p` diagonal entries after `k` steps, from those at the start; (p,)."""
        return np.array(self._steps[k - 1][3] if k else start, dtype=np.float64)

    def trace(self, start: Array, k: int) -> Array:
        """Sum of the first `p` diagonal entries after each of `k` steps; (k,)."""
        return np.array([step[3].sum() for step in self._steps[:k]])

    def n_nonzeros(self, k: int) -> Array:
        """Nonzeros of the components after each of `k` steps, from the supports; (k,).

        Cost: ``4 k p^2 * touched / 64`` word operations, and ``512 * touched`` bytes, `touched` the
        features in play.
        """
        touched, rows = self._touched(0, self.n_features, k)
        counts = np.zeros(k, dtype=np.int64)
        for first in range(0, len(touched), SLICE):
            last = min(first + SLICE, len(touched))
            support = identity_bits(len(touched), first, last)
            for m in range(k):
                mix_supports(support, rows[m], self.step(m)[1])
                counts[m] += popcount(support[: self.n_components].ravel())
        return counts

    @one_blas_thread
    def _leading(self, side: int, size: int, k: int) -> sparse.csr_array:
        """First `p` columns of the product of `k` factors of one side, with their structure.

        Entries are stored where the supports say so. From the last step to the first, so that only
        `p` columns are ever formed. Memory: ``9/8 p`` numbers for each index in play.
        """
        p = self.n_components
        touched, rows = self._touched(side, size, k)
        panel, stored = np.eye(len(touched), p), np.eye(len(touched), p, dtype=bool)
        for m in range(k - 1, -1, -1):
            factor = self.step(m)[1 + side]
            panel[rows[m]] = factor @ panel[rows[m]]
            joins = (factor != 0.0).astype(float)  # products of booleans are not by BLAS
            stored[rows[m]] = joins @ stored[rows[m]].astype(float) > 0.0
        return rows_of_panel(panel, stored, touched, size)

    def _touched(self, side: int, size: int, k: int) -> tuple[Array, list[Array]]:
        """Indices in play, ascending (the first `p` among them), and each step's in terms of them.

        Of those below `size` alone.
        """
        held = [step[0][step[0] < size] for step in self._steps[:k]]
        touched = np.unique(np.concatenate([np.arange(self.n_components), *held]))
        return touched, [np.searchsorted(touched, indices) for indices in held]

    # ------------------------------------------------------------------------------- replay

    @property
    def least_room(self) -> int:
        """Columns that any step combines, the first `p` among them."""
        return self.width

    def stretch(self, start: int, room: int) -> int:
        """Where to stop so that the steps from `start`, one at least, combine `room` columns."""
        seen = np.empty(0, dtype=np.int64)
        for k in range(start, len(self)):
            indices, _, h = self.step(k)
            seen = np.union1d(seen, indices[: len(h)])
            if k > start and len(seen) > room:
                return k
        return len(self)

    def combined(self, steps: range) -> Array:
        """The columns that some steps combine, and the first `p`; ascending."""
        indices = [self.step(k)[0] for k in steps]
        columns = np.unique(np.concatenate([np.arange(self.n_components), *indices]))
        return columns[columns < self.n_samples]

    @one_blas_thread
    def replay_combined(self, panel: Array, columns: Array, steps: range) -> None:
        """Apply some steps to the `columns` that they combine, `panel` (n, any), in place."""
        tiled = TiledColumns([panel], [panel], 0, panel.shape[1])
        for k in steps:
            indices, g, h = self.step(k)
            places = np.searchsorted(columns, indices[: len(h)])
            stepped = rotate_panel(panel[:, places], indices, g, h)
            RowProduct(indices[: len(g)], g, tiled).on_panel(panel, columns)
            panel[:, places] = stepped

    @one_blas_thread
    def replay_rows(
        self,
        working: WorkingMatrix,
        first: int,
        steps: range,
        on_samples: Callable[[int], None] = lambda n: None,
    ) -> None:
        """Multiply the rows of `working`, the columns `first` and on, as some steps did."""
        tiled = TiledColumns(working.chunks, working.chunks, first, first + working.n_samples)
        products = []
        for k in steps:
            indices, g, _ = self.step(k)
            products.append(RowProduct(indices[: len(g)], g, tiled))
        opened, chunks = first, working.sweep()
        for lo, hi, at in tiled.tiles():
            while opened < hi:  # a tile can begin in the chunk before: read again then
                next(chunks)
                opened += working.width
            for product in products:
                product.on_tile(lo, hi, at)
            on_samples(hi - lo)
        next(chunks, None)


def rotate_panel(panel: Array, indices: Array, g: Array, h: Array) -> Array:
    """``G^T X H`` on the columns of a step (n, c), in float64 whatever the data.

    Always on arrays of one layout, so that a replay calls BLAS as the run did.
    """
    rows = indices[: len(g)]
    rotated = np.array(panel, dtype=np.float64, order="C") @ np.ascontiguousarray(h)
    rotated[rows] = np.ascontiguousarray(g.T) @ rotated[rows]
    return rotated.astype(panel.dtype)


Log = TransformLog | BlockLog


def new_log(algorithm: str, n_components: int, n_features: int, n_samples: int) -> Log:
    """An empty log of `algorithm`."""
    kind = BlockLog if algorithm == "block" else TransformLog
    return kind(n_components, n_features, n_samples)
