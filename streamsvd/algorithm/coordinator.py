"""The global best-score index: what is needed to pick the next pair, O(p (n + N)) numbers at most.

Held here, for a working matrix `X` (n x N): ``lead = X[:, :p]``, ``head = X[:p, :n]``, the
diagonal, the head scores (p x n), and for each leading row the largest tail entry of each
partition. A pick costs O(p), an update O(p + n): nothing rescans the ``p x N`` scores.
"""

import numpy as np

from streamsvd.algorithm.log import Moves
from streamsvd.algorithm.seam import Leading
from streamsvd.algorithm.supports import Supports
from streamsvd.arrays import Array
from streamsvd.kernels.rotations import move_lead, pair_factors, symmetric_factors
from streamsvd.kernels.scores import SELECTION_CODES, best_pairs, update_scores
from streamsvd.kernels.steps import Fill, Index
from streamsvd.matrix.partition import Report


class Coordinator:
    """State from which pairs are picked.

    Parameters
    ----------
    lead : (p, n) array
        The columns ``X[:, :p]``, as rows.
    head : (p, n) array
        ``X[:p, :n]``; zero beyond `n_samples`.
    diag : (n,) array
        ``X[j, j]``; zero beyond `n_samples`.
    n_samples : int
        `N`.
    selection : int
        ``scores.NUCLEAR``, ``GAIN`` or ``KOGBETLIANTZ``.
    supports : Supports, optional
        Where fill counts: penalises and limits what pairs add.
    symmetric : bool
        `X` is symmetric positive semidefinite: both factors of a pair are the same.
    """

    def __init__(
        self,
        lead: Array,
        head: Array,
        diag: Array,
        n_samples: int,
        selection: int,
        supports: Supports | None = None,
        symmetric: bool = False,
    ) -> None:
        self.lead, self.head, self.diag = lead, head, diag
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
        self._work = np.empty((2, self.n_components))
        self._where = np.empty(self.n_components, dtype=np.int64)
        self._moves = Moves.room(0)

    def start_up(self, reports: list[Report]) -> None:
        """Take the first reports, of all partitions, and build the scores."""
        self._tail_value = np.array([report.tail_value for report in reports])
        self._tail_where = np.array([report.tail_where for report in reports])
        self._update_scores(np.full((1, 2), -1), np.empty((1, 2)))

    def best(self, count: int, threshold: float = 0.0) -> Moves:
        """Pick the pairs with the largest scores; what is returned holds until the next call.

        Of each row's best pair those that share no index, best first, ties to the lowest i, then
        the lowest j; at most `count`, and none where no score is above `threshold`.
        """
        room = 0 if self._supports is None else self._supports.room
        moves = self._room_for(count)
        found = best_pairs(
            self.selection,
            self.diag,
            self._scores,
            self._head_best,
            self._tail_value,
            self._tail_where,
            self._added,
            room,
            threshold,
            self._work,
            self._where,
            moves.pairs,
            moves.tails,
        )
        return moves.first(found)

    def is_held_back(self, threshold: float) -> bool:
        """Whether there are pairs to pick but for the limits of nonzeros, which it lifts."""
        if self._supports is None:
            return False
        self._supports.lift()
        self._update_scores(np.full((1, 2), -1), np.empty((1, 2)))
        return len(self.best(1, threshold).pairs) > 0

    def given(self, pick: tuple[int, int, float] | None) -> Moves:
        """As `best`, of one pair ``(i, j, X[i, j])`` that comes from outside, or none."""
        moves = self._room_for(1)
        if pick is None:
            return moves.first(0)
        moves.pairs[0, 0], moves.pairs[0, 1], moves.tails[0] = pick
        return moves

    def _room_for(self, count: int) -> Moves:
        if len(self._moves.pairs) != count:
            self._moves = Moves.room(count)
        return self._moves

    def factor(self, moves: Moves) -> None:
        """Write the factors of the SVD of each pair's 2x2 block, ``M = G S H^T``."""
        pairs, tails, g, h, _ = moves
        state = (self.head, self.lead, self.diag, pairs)
        if self.symmetric:
            symmetric_factors(*state, g, h)
        else:
            pair_factors(*state, tails, self.n_samples, g, h)

    def rotate(self, moves: Moves) -> Array:
        """Apply the moves to the columns held here; returns the columns i, which travel with them.

        (k, n): each as it is when its own move comes to the columns.
        """
        pairs, _, g, h, _ = moves
        columns = np.empty((len(pairs), self.n_features), dtype=self.lead.dtype)
        move_lead(self.lead, pairs, g, h, columns)
        if self._supports is not None:
            self._supports.take_in(pairs, g)
        return columns

    def update(self, moves: Moves, reports: list[Report]) -> None:
        """Take the partitions' reports of a batch, and write the diagonal after each move."""
        pairs, p = moves.pairs.tolist(), self.n_components
        for k, report in enumerate(reports):
            self._tail_value[k] = report.tail_value
            self._tail_where[k] = report.tail_where
            if report.head_rows is not None:
                stop = report.start + report.head_rows.shape[1]
                for r, row in enumerate(report.rows):
                    self.head[row, report.start : stop] = report.head_rows[r]
            if report.columns is not None:
                for c, m in enumerate(report.held):
                    self.lead[pairs[m][0]] = report.columns[c]
            if report.head_columns is not None:
                for c, j in enumerate(report.heads):
                    self.head[:, j] = report.head_columns[c, :p]
                    self.diag[j] = report.head_columns[c, p]
        self._update_scores(moves.pairs, moves.values)

    @property
    def index(self) -> Index:
        """What pairs are picked from, as arrays."""
        return Index(
            self.lead,
            self.head,
            self.diag,
            self._scores,
            self._head_best,
            self._work,
            self._where,
            self._added,
            self._weights,
        )

    @property
    def fill(self) -> Fill:
        """The supports, as arrays, empty where fill does not count."""
        if self._supports is not None:
            return self._supports.arrays
        none = np.empty((0, 0), dtype=np.int64)
        bits = none.view(np.uint64)
        return Fill(bits, none.ravel(), none, bits, 0, 0)

    def _update_scores(self, pairs: Array, values: Array) -> None:
        update_scores(
            self.selection,
            self.head,
            self.lead,
            self.diag,
            self._scores,
            self._head_best,
            pairs,
            self._added,
            self._weights,
            0 if self._supports is None else self._supports.room,
            values,
        )


def make_coordinator(
    working: Leading,
    n_components: int,
    selection: str,
    supports: Supports | None = None,
    symmetric: bool = False,
) -> Coordinator:
    """The coordinator of a working matrix, with copies of what it holds."""
    n, n_samples, p = working.n_features, working.n_samples, n_components
    shared = min(n, n_samples)
    head = np.zeros((p, n), dtype=working.dtype)
    head[:, :shared] = working.rows(p, shared)
    diag = np.zeros(n, dtype=working.dtype)
    diag[:shared] = working.diagonal()
    lead = np.array(working.columns(p).T, order="C")
    code = SELECTION_CODES[selection]
    return Coordinator(lead, head, diag, n_samples, code, supports, symmetric)
