"""Sums and sums of squares of rows, the same bits for any chunking and any number of workers."""

from collections.abc import Iterable

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.moments import LANES, add_moments, add_weighted_moments, flush_lanes
from streamsvd.matrix.working import WorkingMatrix


class Moments:
    """Sums and sums of squares of each feature, the same bits for any chunking of the samples.

    The samples are summed up in leaves of `moment_leaf` samples, and the leaves in order: so are
    those of several workers, each of which has whole leaves.

    Parameters
    ----------
    n_features, n_samples : int
        Of all the data.
    shift : (n,) array, optional
        Subtracted first; the first sample by default. With a value of the same feature, a large
        mean costs no digits, and a constant feature has sums of exactly zero.
    """

    def __init__(self, n_features: int, n_samples: int, shift: Array | None = None) -> None:
        self.shift = None if shift is None else np.array(shift, dtype=np.float64)
        self.leaves: list[Array] = []
        self._leaf, self._n_samples = moment_leaf(n_samples), n_samples
        self._lanes = np.zeros((2, n_features, LANES))
        self._sums = np.zeros((2, n_features))

    def add(
        self, start: int, strip: Array, stop: int | None = None, weights: Array | None = None
    ) -> None:
        """Add ``strip[:, :stop]``, of which the first is sample `start`. Samples come in order.

        Each counts as often as `weights` say, if there are any.
        """
        if self.shift is None:
            self.shift = strip[:, 0].astype(np.float64)
        done, stop = 0, strip.shape[1] if stop is None else stop
        while done < stop:
            end = min(stop, done + self._leaf - (start + done) % self._leaf)
            if weights is None:
                add_moments(strip, done, end, start, self.shift, self._lanes, self._sums)
            else:
                add_weighted_moments(strip, done, end, weights, self.shift, self._sums)
            done = end
            if (start + done) % self._leaf == 0 or start + done == self._n_samples:
                self._close_leaf()

    def _close_leaf(self) -> None:
        flush_lanes(self._lanes, self._sums)
        self.leaves.append(self._sums.copy())
        self._sums[:] = 0.0


def moment_leaf(n_samples: int) -> int:
    """Samples in a leaf of `Moments`: at most 256 leaves, whatever reads them."""
    return LANES * max(8, -(-n_samples // (256 * LANES)))


def add_up(leaves: Iterable[Array]) -> Array:
    """Sums of ``x - shift`` and of its square, (2, n), from all leaves in order."""
    total: Array | float = 0.0
    for leaf in leaves:
        total = total + leaf
    return np.asarray(total)


def pivot_order(energies: Array, p: int) -> Array:
    """The features with the `p` rows of largest energy exchanged into the first `p` places.

    By decreasing energy, ties to the lowest feature; ``order[r]`` is the feature in place r.
    """
    order = np.arange(len(energies))
    place = np.arange(len(energies))
    for i, feature in enumerate(np.argsort(-energies, kind="stable")[:p]):
        j, other = place[feature], order[i]
        order[i], order[j] = feature, other
        place[feature], place[other] = i, j
    return order


def row_energies(working: WorkingMatrix, p: int) -> Array:
    """Sums of squares of the first `p` rows, (p,)."""
    return add_up(row_moments(working, p, 0, working.n_samples))[1]


def row_moments(working: WorkingMatrix, p: int, first: int, n_samples: int) -> list[Array]:
    """Leaves of the moments of the first `p` rows, of columns that are `first` and on of all."""
    moments = Moments(p, n_samples, np.zeros(p))
    for start, stop, chunk in working:
        moments.add(first + start, chunk[:p], stop - start)
    return moments.leaves
