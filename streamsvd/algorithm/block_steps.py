"""The block form of Algorithm 1 (the paper's Remark 4): 2p rows and columns a step.

Each step takes the `p` columns with the largest best score (over ``i < p``; ties to the lowest),
joins them with ``0..p-1``, fills up with the lowest unused indices when these are fewer than
``2 p``, and diagonalises the block with those rows and columns: ``M = G S H^T``, ``X <- G^T X H``.
The trace of the first `p` diagonal entries becomes the sum of the `p` largest singular values of
`M`, so it never decreases, whatever the indices.

Where indices lie beyond the rows (``j >= n``), `M` has fewer rows than columns and `H` a null
space, on which the other rows do depend; `block_factors` says which basis is taken, and why.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import svd

from streamsvd.algorithm.block_log import BlockLog, rotate_panel
from streamsvd.algorithm.seam import Executor, Leading
from streamsvd.algorithm.supports import BlockSupports
from streamsvd.arrays import Array
from streamsvd.kernels.scores import SELECTION_CODES
from streamsvd.kernels.tiles import best_of_held
from streamsvd.matrix.partition import Partition
from streamsvd.sizes import block_width
from streamsvd.system import one_blas_thread

UNSCORED = -1
"""The selection of steps whose columns are given from outside."""


def block_factors(block: Array, symmetric: bool = False) -> tuple[Array, Array]:
    """Orthogonal G (r x r) and H (c x c) with ``G^T M H`` diagonal, descending, not negative.

    Equal, of the eigenvectors, for a symmetric positive semidefinite block.

    Where ``r < c`` the last columns of `H` are an arbitrary basis of the null space of `M`, and
    later picks depend on it. We take that of the author's code, which pads the block with rows of
    zeros and calls LAPACK's ``gesvd`` (in Octave): so our steps are his. The left factor of the
    padded block, cut to the real rows, is orthogonal only where `M` has full rank; his code loses
    orthogonality there, here its columns are made whole by Householder's method.
    """
    r, c = block.shape
    if symmetric:
        vectors = np.linalg.eigh(0.5 * (block + block.T))[1][:, ::-1]
        return vectors, vectors
    if r >= c:
        g, _, ht = np.linalg.svd(block)
        return g, ht.T
    padded = np.zeros((c, c))
    padded[:r] = block
    g, _, ht = svd(padded, lapack_driver="gesvd", check_finite=False)
    g = g[:r, :r]
    if np.max(np.abs(g.T @ g - np.eye(r))) > 1e-14 * c:
        g, triangle = np.linalg.qr(g)
        g = g * np.where(np.diag(triangle) < 0, -1.0, 1.0)
    return g, ht.T


class BlockCoordinator:
    """What picks and factors block steps: the leading columns and the diagonal.

    Parameters
    ----------
    lead : (p, n) array
        The columns ``X[:, :p]``, as rows.
    diag : (n,) array
        ``X[j, j]``; zero beyond `n_samples`.
    n_samples : int
        `N`.
    selection : int
        ``scores.NUCLEAR``, ``GAIN`` or ``KOGBETLIANTZ``, or `UNSCORED`.
    symmetric : bool
        `X` is symmetric positive semidefinite.
    """

    def __init__(
        self, lead: Array, diag: Array, n_samples: int, selection: int, symmetric: bool = False
    ) -> None:
        self.lead, self.diag, self.n_samples = lead, diag, n_samples
        self.n_components, self.n_features = lead.shape
        self.selection, self.symmetric = selection, symmetric
        self.width = block_width(self.n_components, self.n_features, n_samples)

    def best(self, reports: list[tuple[Array, Array]]) -> tuple[Array, float]:
        """The indices of the next step, ascending, and the best score.

        `reports` are the partitions' best columns, see `Partition.best_columns`. The score is -inf
        where there is no pair at all.
        """
        scores, columns = (
            np.concatenate(part) for part in zip(self._unreported(), *reports, strict=True)
        )
        order = np.lexsort((columns, -scores))[: self.n_components]
        return self.fill_up(columns[order]), float(scores[order[0]])

    @property
    def held(self) -> tuple[Array, Array]:
        """The leading columns and the diagonal."""
        return self.lead, self.diag

    def fill_up(self, columns: Array) -> Array:
        """`columns`, the first `p`, and the lowest unused indices up to the width of a step."""
        chosen = np.union1d(np.arange(self.n_components), columns)
        unused = np.setdiff1d(np.arange(min(2 * self.width, self._last)), chosen)
        return np.union1d(chosen, unused[: self.width - len(chosen)])

    @property
    def _last(self) -> int:
        return max(self.n_features, self.n_samples)

    def _unreported(self) -> tuple[Array, Array]:
        """Scores of the columns that no partition scores: below `p`, and beyond the last."""
        p, n, selection = self.n_components, self.n_features, self.selection
        columns = np.concatenate([np.arange(p), np.arange(self.n_samples, n)])
        best = np.full(len(columns), -np.inf)
        if selection != UNSCORED:
            best_of_held(selection, self.lead, columns, self.diag, best)
        return best, columns

    def beyond(self, indices: Array) -> Array:
        """The columns of a step that partitions hold."""
        return indices[(indices >= self.n_components) & (indices < self.n_samples)]

    def rotate(self, indices: Array, g: Array, h: Array, panel: Array) -> Array:
        """Take a step on its columns `panel` (n, c); returns those that partitions hold."""
        p = self.n_components
        panel = rotate_panel(panel, indices, g, h)
        self.lead = np.ascontiguousarray(panel[:, :p].T)
        on = np.arange(min(len(g), len(h)))
        self.diag[indices[on]] = panel[indices[on], on]
        return np.ascontiguousarray(panel[:, p:])


@one_blas_thread
def block_algorithm(
    coordinator: BlockCoordinator,
    executor: Executor,
    log: BlockLog,
    n_transforms: int,
    threshold: float = 0.0,
    picks: Iterator[Array] | None = None,
    after_step: Callable[[int], bool] = lambda count: False,
    supports: BlockSupports | None = None,
) -> str:
    """Take block steps until `n_transforms` are logged; arguments as in `algorithm_1`.

    Parameters
    ----------
    picks : iterator of (p,) arrays, optional
        Columns given from outside (random selection) instead of the best ones.
    supports : BlockSupports, optional
        Stops before the step that would pass the budget, and says ``"budget"``.

    Notes
    -----
    Two calls of each partition a step: its columns among those chosen (`Partition.take_columns`),
    and the step itself, whose answer are the next candidates (`Partition.apply_block`). Memory:
    three arrays of n x 2p.
    """
    selection = coordinator.selection
    reports = executor.broadcast(Partition.best_columns, selection, *coordinator.held)
    for _ in range(len(log), n_transforms):
        if picks is None:
            indices, score = coordinator.best(reports)
            if score <= threshold:
                return "converged"
        else:
            indices = coordinator.fill_up(next(picks))
        beyond = coordinator.beyond(indices)
        taken = executor.broadcast(Partition.take_columns, beyond)
        panel = np.concatenate([coordinator.lead.T, *taken], axis=1)
        rows = indices[indices < coordinator.n_features]
        g, h = block_factors(panel[rows].astype(np.float64), coordinator.symmetric)
        if supports is not None and not supports.take_in(rows, g):
            return "budget"
        columns = coordinator.rotate(indices, g, h, panel)
        reports = executor.broadcast(
            Partition.apply_block, selection, rows, g, beyond, columns, *coordinator.held
        )
        log.append(indices, g, h, coordinator.diag[: log.n_components])
        if after_step(1):
            return "stopped"
    return "n_transforms"


def random_blocks(coordinator: BlockCoordinator, seed: int, first: int = 0) -> Iterator[Array]:
    """Columns of random steps, from step `first` on: each a draw of its own.

    `p` different columns beyond the first `p`, uniform below `N` and below `n` in turn, as the
    paper's second baseline draws pairs; fewer where there are not as many.
    """
    p, step = coordinator.n_components, first
    while True:
        limit = (coordinator.n_samples, coordinator.n_features)[step % 2]
        draw = np.random.default_rng((seed, step))
        yield p + draw.choice(limit - p, size=min(p, limit - p), replace=False)
        step += 1


def make_block_coordinator(
    working: Leading, n_components: int, selection: str, symmetric: bool = False
) -> BlockCoordinator:
    """The coordinator of block steps, with copies of what it holds."""
    diag = np.zeros(working.n_features, dtype=working.dtype)
    held = working.diagonal()
    diag[: len(held)] = held
    lead = np.array(working.columns(n_components).T, order="C")
    code = UNSCORED if selection == "random" else SELECTION_CODES[selection]
    return BlockCoordinator(lead, diag, working.n_samples, code, symmetric)
