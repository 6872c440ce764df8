"""Kernels of the long sweeps: over all samples (sums, scaling), over all transforms (products).

As in `streamsvd.kernels`: serial, strict IEEE, compiled at first use.
"""

from typing import Any

import numpy as np

from streamsvd.jit import jit
from streamsvd.kernels import Array, rotate_pair

LANES = 8
"""Partial sums of a row: sample k of it goes to lane ``k % LANES``, whatever the chunking."""

REPLAY = 128
"""Columns to which all row rotations are applied at a time."""

FLUSH = 4096
"""Samples after which the lanes are added to the row's sum, so that errors do not grow with N."""

# ------------------------------------------------------------------------- sums over samples


@jit
def add_moments(x: Array, stop: int, start: int, shift: Array, lanes: Array, sums: Array) -> None:
    """Add the samples ``x[:, :stop]``, the first of which is sample `start` of all, to the sums.

    ``sums[0, i]`` gathers ``x - shift`` and ``sums[1, i]`` its square, float64, for each feature
    i, through `lanes` (2, n, LANES). The order of the additions depends on the numbers of the
    samples alone, never on how they come in pieces. `close_moments` adds what the lanes hold.
    """
    for i in range(x.shape[0]):
        row, s = x[i], shift[i]
        k = 0
        while k < stop:
            # up to the next flush, the next multiple of LANES first
            end = min(stop, k + FLUSH - (start + k) % FLUSH)
            while k < end and (start + k) % LANES:
                z = np.float64(row[k]) - s
                lanes[0, i, (start + k) % LANES] += z
                lanes[1, i, (start + k) % LANES] += z * z
                k += 1
            while k + LANES <= end:
                for m in range(LANES):
                    z = np.float64(row[k + m]) - s
                    lanes[0, i, m] += z
                    lanes[1, i, m] += z * z
                k += LANES
            while k < end:
                z = np.float64(row[k]) - s
                lanes[0, i, (start + k) % LANES] += z
                lanes[1, i, (start + k) % LANES] += z * z
                k += 1
            if (start + k) % FLUSH == 0:
                flush_lanes(lanes, sums, i)


@jit
def flush_lanes(lanes: Array, sums: Array, i: int) -> None:
    """Add the lanes of feature `i` to its sums, lane 0 first, and clear them."""
    for q in range(2):
        total = 0.0
        for m in range(LANES):
            total += lanes[q, i, m]
            lanes[q, i, m] = 0.0
        sums[q, i] += total


@jit
def subtract_shift(x: Array, shift: Array, out: Array) -> None:
    """Write ``x - shift`` to `out`, both (n, c), in float64."""
    for i in range(x.shape[0]):
        s = shift[i]
        for k in range(x.shape[1]):
            out[i, k] = np.float64(x[i, k]) - s


@jit
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


@jit
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


# ------------------------------------------------------------------------------ the transforms


@jit
def multiply_back(panel: Array, rows: Array, factors: Array) -> None:
    """``F_1 F_2 ... F_m @ panel`` in place, transform k on the rows ``rows[k]`` by ``factors[k]``.

    From the last transform to the first, so that only the panel's columns are ever formed.
    """
    for m in range(rows.shape[0] - 1, -1, -1):
        a, b = rows[m, 0], rows[m, 1]
        f = factors[m]
        for k in range(panel.shape[1]):
            u, v = panel[a, k], panel[b, k]
            panel[a, k] = f[0, 0] * u + f[0, 1] * v
            panel[b, k] = f[1, 0] * u + f[1, 1] * v


@jit
def support_back(panel: Array, rows: Array, factors: Array) -> None:
    """The pattern of `multiply_back`: `panel` holds bits (uint64 words).

    Exact zeros of the factors join nothing.
    """
    for m in range(rows.shape[0] - 1, -1, -1):
        a, b = rows[m, 0], rows[m, 1]
        f = factors[m]
        aa, ab, ba, bb = f[0, 0] != 0.0, f[0, 1] != 0.0, f[1, 0] != 0.0, f[1, 1] != 0.0
        for k in range(panel.shape[1]):
            u, v = panel[a, k], panel[b, k]
            panel[a, k] = (u if aa else np.uint64(0)) | (v if ab else np.uint64(0))
            panel[b, k] = (u if ba else np.uint64(0)) | (v if bb else np.uint64(0))


@jit
def bits_set(word: Any) -> int:
    """Number of set bits of a uint64."""
    x = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low = np.uint64(0x3333333333333333)
    x = (x & low) + ((x >> np.uint64(2)) & low)
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def popcount(words: Array) -> int:
    """Number of set bits of uint64 `words`."""
    total = 0
    for word in words:
        total += bits_set(word)
    return total


@jit
def count_supports(
    support: Array, rows: Array, factors: Array, n_components: int, counts: Array
) -> None:
    """Add to ``counts[k]`` the set bits of the first `p` rows of `support` after transform k.

    Row r of `support` (uint64 words) holds the nonzeros of column r of a factor, which the
    transforms mix: ``U <- U F``.
    """
    total = 0
    for r in range(n_components):
        total += popcount(support[r])
    for m in range(rows.shape[0]):
        a, b = rows[m, 0], rows[m, 1]
        f = factors[m]
        aa, ab, ba, bb = f[0, 0] != 0.0, f[0, 1] != 0.0, f[1, 0] != 0.0, f[1, 1] != 0.0
        total -= popcount(support[a]) + (popcount(support[b]) if b < n_components else 0)
        for k in range(support.shape[1]):
            u, v = support[a, k], support[b, k]
            support[a, k] = (u if aa else np.uint64(0)) | (v if ba else np.uint64(0))
            support[b, k] = (u if ab else np.uint64(0)) | (v if bb else np.uint64(0))
        total += popcount(support[a]) + (popcount(support[b]) if b < n_components else 0)
        counts[m] += total


@jit
def trace_path(diag: Array, pairs: Array, values: Array, out: Array) -> None:
    """Write to ``out[k]`` the sum of the first `p` diagonal entries after transform k.

    `diag` (p,) holds them at the start and is brought to the end; ``values[k]`` are the diagonal
    entries at ``pairs[k]`` after the transform.
    """
    p = diag.shape[0]
    for m in range(pairs.shape[0]):
        diag[pairs[m, 0]] = values[m, 0]
        if pairs[m, 1] < p:
            diag[pairs[m, 1]] = values[m, 1]
        total = 0.0
        for k in range(p):
            total += diag[k]
        out[m] = total


# ----------------------------------------------------------------------------------- replay


@jit
def replay_panel(panel: Array, pairs: Array, columns: Array, left: Array, right: Array) -> None:
    """Apply moves to a panel (n, S) of columns that the moves do not leave.

    ``columns[k]`` are the places of the columns ``pairs[k]`` in the panel, -1 for a column that
    does not exist.
    """
    n = panel.shape[0]
    for m in range(pairs.shape[0]):
        i, j = pairs[m, 0], pairs[m, 1]
        if j < n:
            rotate_pair(panel[i], panel[j], left[m])
        a, b = columns[m, 0], columns[m, 1]
        if b >= 0:
            h = right[m]
            for r in range(n):
                u, v = panel[r, a], panel[r, b]
                panel[r, a] = h[0, 0] * u + h[1, 0] * v
                panel[r, b] = h[0, 1] * u + h[1, 1] * v


@jit
def replay_rows(block: Array, stop: int, pairs: Array, factors: Array) -> None:
    """Apply row rotations, in order, to the columns of `block` below `stop`.

    A few columns at a time, so that they stay in the cache for all rotations.
    """
    for lo in range(0, stop, REPLAY):
        hi = min(lo + REPLAY, stop)
        for m in range(pairs.shape[0]):
            rotate_pair(block[pairs[m, 0], lo:hi], block[pairs[m, 1], lo:hi], factors[m])
