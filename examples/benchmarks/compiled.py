"""Algorithm 1 as one compiled loop over one block in memory: what the package is timed against.

The same kernels as streamsvd's, without partitions, reports, log objects or Python between the
steps. Only for benchmarks.
"""

import numpy as np
from numba import njit

from streamsvd.arrays import Array
from streamsvd.kernels import rotations
from streamsvd.kernels.scores import best_pairs, update_scores


@njit(error_model="numpy")  # type: ignore[untyped-decorator]
def compiled_loop(
    x: Array, p: int, m: int, peaks: Array, pairs: Array, left_log: Array, right_log: Array
) -> None:
    """`m` transforms (nuclear) on `x` (n x N, C-contiguous, ``N > n``), in place.

    `peaks` (p, tiles) is work space, `pairs` (m, 2), `left_log` and `right_log` (m, 2, 2) the log.
    """
    n, n_samples = x.shape
    top = x[:p]
    left = x[:, :p].T.copy()
    head = x[:p, :n].copy()
    diag = np.diag(x[:, :n]).copy()
    scores = np.full((p, n), -np.inf)
    head_best = np.full(p, -1)
    value = np.zeros((1, p), x.dtype)
    where = np.full((1, p), -1)
    stale = np.empty(p, np.int64)
    none, weights = np.empty((0, 0), np.int64), np.empty(0)
    pair, tail = np.empty((1, 2), np.int64), np.empty(1)
    rotations.find_peaks(top, n, n_samples, peaks, 0)
    for i in range(p):
        rotations.look_up(top, i, 0, n, n_samples, peaks, 0, value[0], where[0])
    pair[0] = -1
    values = np.empty((1, 2))
    update_scores(0, head, left, diag, scores, head_best, pair, none, weights, 0, values)
    for step in range(m):
        best_pairs(0, diag, scores, head_best, value, where, none, 0, 0.0, pair, tail)
        i, j = pair[0, 0], pair[0, 1]
        g, h = left_log[step], right_log[step]
        pairs[step, 0], pairs[step, 1] = i, j
        part = slice(step, step + 1)
        factors = left_log[part], right_log[part]
        rotations.pair_factors(
            head, left, diag, pair, tail, n_samples, False, factors[0], factors[1]
        )
        if j < n:
            rotations.rotate_lead(left, i, j, g)
            rotations.rotate_rows(top, x, i, j, g, n, n_samples, peaks, 0)
            rotations.look_up(top, i, 0, n, n_samples, peaks, 0, value[0], where[0])
            head[i, p:] = x[i, p:n]
        if j < p:
            rotations.rotate_pair(left[i], left[j], h)
            rotations.look_up(top, j, 0, n, n_samples, peaks, 0, value[0], where[0])
            head[j, p:] = x[j, p:n]
        else:
            rotations.rotate_column(
                top, x, j, 0, left[i], h, n, n_samples, peaks, 0, value[0], where[0], stale
            )
            if j < n:
                head[:, j] = x[:p, j]
                diag[j] = x[j, j]
        update_scores(0, head, left, diag, scores, head_best, pair, none, weights, 0, values)
