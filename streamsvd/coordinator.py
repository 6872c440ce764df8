"""The global best-score index: what is needed to pick the next pair, O(p (n + N)) numbers at most.

Held here, for a working matrix `X` (n x N): ``left = X[:, :p]``, ``head = X[:p, :n]``, the
diagonal, the head scores (p x n), and for each leading row the largest tail entry of each
partition. A pick costs O(p), an update O(p + n): nothing rescans the ``p x N`` scores.
"""

import numpy as np

from streamsvd.kernels import (
    Array,
    best_pair,
    drop_unfit,
    pair_factors,
    rotate_left,
    rotate_pair,
    update_scores,
)
from streamsvd.partition import Report
from streamsvd.supports import Supports


class Coordinator:
    """State from which pairs are picked.

    Parameters
    ----------
    left : (p, n) array
        The columns ``X[:, :p]``, as rows.
    head : (p, n) array
        ``X[:p, :n]``; zero beyond `n_samples`.
    diag : (n,) array
        ``X[j, j]``; zero beyond `n_samples`.
    n_samples : int
        `N`.
    selection : int
        ``kernels.NUCLEAR``, ``GAIN`` or ``KOGBETLIANTZ``.
    supports : Supports, optional
        Where fill counts: penalises and limits what pairs add.
    symmetric : bool
        `X` is symmetric positive semidefinite: both factors of a pair are the same.
    """

    def __init__(
        self,
        left: Array,
        head: Array,
        diag: Array,
        n_samples: int,
        selection: int,
        supports: Supports | None = None,
        symmetric: bool = False,
    ) -> None:
        self.left, self.head, self.diag = left, head, diag
        self.n_components, self.n_features = head.shape
        self.n_samples = n_samples
        self.selection, self.symmetric = selection, symmetric
        self._supports = supports
        self._added = np.empty((0, 0), dtype=np.int64) if supports is None else supports.added
        self._weights = np.empty(0) if supports is None else supports.weights
        self._scores = np.full(head.shape, -np.inf)
        self._head_best = np.full(self.n_components, -1, dtype=np.int64)
        self._tail_value = np.zeros((0, self.n_components), dtype=head.dtype)
        self._tail_where = np.zeros((0, self.n_components), dtype=np.int64)

    def start_up(self, reports: list[Report]) -> None:
        """Take the first reports, of all partitions, and build the scores."""
        self._tail_value = np.array([report.tail_value for report in reports])
        self._tail_where = np.array([report.tail_where for report in reports])
        self.update(-1, -1, reports)

    def best(self) -> tuple[int, int, float, float]:
        """The pair with the largest score, ties to the lowest i, then the lowest j.

        Returns
        -------
        i, j, score, value
            `value` is ``X[i, j]`` of a tail pair, 0 of a head pair; the score is -inf when there
            is no pair at all (a matrix of one entry).
        """
        if self._supports is not None:
            drop_unfit(self._scores, self._added, self._head_best, self._supports.room)
        return best_pair(
            self.selection,
            self.diag,
            self._scores,
            self._head_best,
            self._tail_value,
            self._tail_where,
        )

    def factors(self, i: int, j: int, value: float, g: Array, h: Array) -> None:
        """Write the factors of the SVD of the pair's 2x2 block to `g` and `h` (2, 2)."""
        pair_factors(
            self.head,
            self.left,
            self.diag,
            i,
            j,
            value,
            self.n_samples,
            self.symmetric,
            g,
            h,
        )

    def rotate(self, i: int, j: int, g: Array, h: Array) -> Array:
        """Apply the move to the columns held here; returns column i, which travels with it."""
        if j < self.n_features:
            rotate_left(self.left, i, j, g)
            if self._supports is not None:
                self._supports.join(i, j, g)
        if j < self.n_components:
            rotate_pair(self.left[i], self.left[j], h)
        return self.left[i]

    def update(self, i: int, j: int, reports: list[Report]) -> tuple[float, float]:
        """Take the partitions' reports of the move; returns the diagonal at i and j after it."""
        for k, report in enumerate(reports):
            self._tail_value[k] = report.tail_value
            self._tail_where[k] = report.tail_where
            if report.head_rows is not None:
                start, stop = report.start, report.start + report.head_rows.shape[1]
                self.head[i, start:stop] = report.head_rows[0]
                if j < self.n_components:
                    self.head[j, start:stop] = report.head_rows[1]
            if report.column is not None:
                self.left[i] = report.column
            if report.head_column is not None:
                self.head[:, j] = report.head_column[: self.n_components]
                self.diag[j] = report.head_column[j]
        return update_scores(
            self.selection,
            self.head,
            self.left,
            self.diag,
            self._scores,
            self._head_best,
            i,
            j,
            self._added,
            self._weights,
            0 if self._supports is None else self._supports.room,
        )
