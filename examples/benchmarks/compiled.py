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
    x: Array,
    bits: Array,
    p: int,
    m: int,
    peaks: Array,
    pairs: Array,
    left_log: Array,
    right_log: Array,
) -> None:
    """`m` transforms (nuclear) on `x` (n x N, C-contiguous, ``N > n``), in place.

    `bits` is `x` as integers, `peaks` (p, tiles) of them work space, `pairs` (m, 2), `left_log` and
    `right_log` (m, 2, 2) the log.
    """
    n, n_samples = x.shape
    top, top_bits = x[:p], bits[:p]
    left = x[:, :p].T.copy()
    head = x[:p, :n].copy()
    diag = np.diag(x[:, :n]).copy()
    scores = np.full((p, n), -np.inf)
    head_best = np.full(p, -1)
    value = np.zeros((1, p), x.dtype)
    where = np.full((1, p), -1)
    stale = np.empty(p, np.int64)
    before = np.empty(p, bits.dtype)
    work, places = np.empty((2, p)), np.empty(p, np.int64)
    none, weights = np.empty((0, 0), np.int64), np.empty(0)
    pair, tail = np.empty((1, 2), np.int64), np.empty(1)
    for t in range(peaks.shape[1]):
        lo = t * rotations.SPAN
        for i in range(p):
            stop = min(lo + rotations.SPAN, n_samples)
            peaks[i, t] = rotations.peak(top_bits, i, min(max(lo, n), stop), stop)
    for i in range(p):
        rotations.look_up(top, top_bits, i, 0, n, n_samples, peaks, 0, value[0], where[0])
    pair[0] = -1
    values = np.empty((1, 2))
    update_scores(0, head, left, diag, scores, head_best, pair, none, weights, 0, values)
    for step in range(m):
        best_pairs(0, diag, scores, head_best, value, where, none, 0, 0.0, work, places, pair, tail)
        i, j = pair[0, 0], pair[0, 1]
        g, h = left_log[step], right_log[step]
        pairs[step, 0], pairs[step, 1] = i, j
        part = slice(step, step + 1)
        rotations.pair_factors(
            head, left, diag, pair, tail, n_samples, left_log[part], right_log[part]
        )
        if j < n:
            rotations.rotate_lead(left, i, j, g)
            rotations.rotate_rows(top, top_bits, x, i, j, g, n, n_samples, peaks, 0)
            rotations.look_up(top, top_bits, i, 0, n, n_samples, peaks, 0, value[0], where[0])
            head[i, p:] = x[i, p:n]
        if j < p:
            rotations.rotate(left, i, left, j, np.int64(0), n, h)
            rotations.look_up(top, top_bits, j, 0, n, n_samples, peaks, 0, value[0], where[0])
            head[j, p:] = x[j, p:n]
        else:
            rotations.rotate_column(top, x, j, left[i], h, before.view(x.dtype))
            if j >= n:
                count = rotations.update_tail(
                    top,
                    top_bits,
                    j,
                    0,
                    before,
                    n,
                    n_samples,
                    peaks,
                    0,
                    value[0],
                    where[0],
                    stale,
                )
                for k in range(count):
                    rotations.look_up(
                        top, top_bits, stale[k], 0, n, n_samples, peaks, 0, value[0], where[0]
                    )
            else:
                head[:, j] = x[:p, j]
                diag[j] = x[j, j]
        update_scores(0, head, left, diag, scores, head_best, pair, none, weights, 0, values)
