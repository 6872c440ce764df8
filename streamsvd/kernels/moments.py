"""Kernels over samples: sums and sums of squares, centring, scaling."""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit, jit_that_allocates

LANES = 8
"""Partial sums of a row: sample k of it goes to lane ``k % LANES``, whatever the chunking."""


FLUSH = 4096
"""Samples after which the lanes are added to the row's sum, so that errors do not grow with N."""

# ------------------------------------------------------------------------- sums over samples


@jit
def add_moments(
    x: Array, first: int, stop: int, start: int, shift: Array, lanes: Array, sums: Array
) -> None:
    """Add the samples ``x[:, first:stop]`` to the sums; ``x[:, 0]`` is sample `start` of all.

    ``sums[0, i]`` gathers ``x - shift`` and ``sums[1, i]`` its square, float64, for each feature
    i, through `lanes` (2, n, LANES). The order of the additions depends on the numbers of the
    samples alone, never on how they come in pieces. `flush_lanes` adds what the lanes hold.
    """
    for i in range(x.shape[0]):
        row, s = x[i], shift[i]
        total, squares = lanes[0, i], lanes[1, i]
        k = first
        while k < stop:
            end = k + FLUSH - (start + k) % FLUSH
            end = end if end < stop else stop
            for m in range(lanes.shape[2]):  # a lane at a time: its sums stay in registers
                t, q = total[m], squares[m]
                for c in range(np.uint64(k + (m - start - k) % LANES), np.uint64(end), LANES):
                    z = np.float64(row[c]) - s
                    t += z
                    q += z * z
                total[m], squares[m] = t, q
            k = end
            if (start + k) % FLUSH == 0:
                t = q = 0.0  # as `flush_lanes` does
                for m in range(lanes.shape[2]):
                    t, q = t + total[m], q + squares[m]
                    total[m], squares[m] = 0.0, 0.0
                sums[0, i] += t
                sums[1, i] += q


def flush_lanes(lanes: Array, sums: Array) -> None:
    """Add the lanes to the sums, lane 0 first, and clear them."""
    total = np.zeros_like(sums)
    for m in range(LANES):
        total += lanes[:, :, m]
    lanes[:] = 0.0
    sums += total


@jit_that_allocates
def add_row_moments(z: Array, moments: Array) -> None:
    """Add to ``moments`` (3, n) the sums of the rows of `z` (n, c), of their squares, and `c`."""
    lanes = np.zeros((2, LANES))
    width = z.shape[1]
    whole = width - width % LANES
    for i in range(z.shape[0]):
        row = z[i]
        lanes[:] = 0.0
        for k in range(0, whole, LANES):
            for m in range(LANES):
                v = row[k + m]
                lanes[0, m] += v
                lanes[1, m] += v * v
        for k in range(whole, width):
            v = row[k]
            lanes[0, k - whole] += v
            lanes[1, k - whole] += v * v
        for q in range(2):
            total = 0.0
            for m in range(LANES):
                total += lanes[q, m]
            moments[q, i] += total
        moments[2, i] += width


@jit
def add_weighted_moments(
    x: Array, first: int, stop: int, weights: Array, shift: Array, sums: Array
) -> None:
    """Add to ``sums[0, i]`` the weighted ``x - shift``, to ``sums[1, i]`` its weighted square.

    Of the samples ``x[:, first:stop]``; `weights` has one for each column. One by one, so that the
    bits do not depend on how samples come in pieces.
    """
    for i in range(x.shape[0]):
        row, s = x[i], shift[i]
        total, squares = sums[0, i], sums[1, i]
        for k in range(first, stop):
            z = np.float64(row[k]) - s
            wz = weights[k] * z
            total += wz
            squares += wz * z
        sums[0, i], sums[1, i] = total, squares


@jit_that_allocates
def center_samples(x: Array) -> None:
    """Subtract from each column its mean over the rows, added from the first row to the last."""
    n, width = x.shape
    total = np.zeros(width)
    for i in range(n):
        for k in range(width):
            total[k] += x[i, k]
    for i in range(n):
        for k in range(width):
            x[i, k] = x[i, k] - total[k] / n


@jit_that_allocates
def normalize_samples(x: Array) -> None:
    """Divide each column by its Euclidean norm; a zero column stays zero."""
    n, width = x.shape
    norm = np.zeros(width)
    for i in range(n):
        for k in range(width):
            norm[k] += np.float64(x[i, k]) * np.float64(x[i, k])
    for k in range(width):
        norm[k] = np.sqrt(norm[k]) if norm[k] > 0.0 else 1.0
    for i in range(n):
        for k in range(width):
            x[i, k] = x[i, k] / norm[k]
