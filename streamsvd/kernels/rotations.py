"""Kernels of the moves: the 2x2 SVD, two rows, two columns, the largest entries of rows."""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit

SPAN = 1024
"""Columns in a span: small enough to be in the first-level cache when it is searched."""


# ------------------------------------------------------------------------------------ 2x2 SVD


@jit
def _normalized(c: float, s: float) -> tuple[float, float]:
    """A unit vector to the last bit, by a Newton step from one that is nearly so.

    In this form rounding has no bias; as ``c * (1.5 - 0.5 * (c * c + s * s))`` it has one of 3e-17,
    which tens of thousands of factors add up to more than 1e-12.
    """
    k = 0.5 * ((1.0 - c * c) - s * s)
    return c + c * k, s + s * k


@jit
def _half_angle(x: float, y: float) -> tuple[float, float]:
    """Unit vector at half the angle of the unit vector `(x, y)`."""
    if x >= 0.0:
        c = np.sqrt(0.5 * (1.0 + x))
        s = 0.5 * y / c
    else:
        s = np.sqrt(0.5 * (1.0 - x))
        c = 0.5 * y / s
    return _normalized(c, s)


@jit
def _unit(x: float, y: float) -> tuple[float, float, float]:
    """``(x / r, y / r, r)`` with ``r = hypot(x, y)``; ``(1, 0, 0)`` for the zero vector.

    Squares of what rounding leaves behind can vanish, hence the factor, a power of two, where both
    are small; large data are refused at ingest.
    """
    size = max(abs(x), abs(y))
    if size == 0.0:
        return 1.0, 0.0, 0.0
    scale = 2.0**600 if size < 1e-140 else 1.0
    x, y = x * scale, y * scale
    r = np.sqrt(x * x + y * y)
    return x / r, y / r, r / scale


@jit
def svd_2x2(a: float, b: float, c: float, d: float, g: Array, h: Array) -> None:
    """SVD of ``[[a, b], [c, d]] = g @ diag(s1, s2) @ h.T`` with ``s1 >= s2 >= 0``.

    `g` is a rotation, `h` a rotation or (when ``a d < b c``) a reflection; both are
    written in place, shape (2, 2). With ``q e^{i beta} = (a + d) + i (c - b)`` and
    ``r e^{i alpha} = (a - d) + i (c + b)`` the angles of the factors are
    ``(alpha + beta) / 2`` and ``(alpha - beta) / 2``, and ``s1, s2 = (q + r) / 2, |q - r| / 2``.
    """
    x, y, q = _unit(a + d, c - b)
    u, v, r = _unit(a - d, c + b)
    # A multiple of a rotation or of a reflection leaves one angle free: h has none then.
    if r == 0.0:
        u, v = x, y
    elif q == 0.0:
        x, y = u, v
    gc, gs = _half_angle(u * x - v * y, u * y + v * x)
    hc, hs = u * gc + v * gs, v * gc - u * gs
    hc, hs = _normalized(hc, hs)
    g[0, 0], g[0, 1], g[1, 0], g[1, 1] = gc, -gs, gs, gc
    sign = -1.0 if q < r else 1.0
    h[0, 0], h[0, 1], h[1, 0], h[1, 1] = hc, -sign * hs, hs, sign * hc


@jit
def rotation_to_first(a: float, b: float, out: Array) -> None:
    """Rotation with ``(a, b) @ out = (hypot(a, b), 0)``; the identity for ``(0, 0)``."""
    c, s, _ = _unit(a, b)
    c, s = _normalized(c, s)
    out[0, 0], out[0, 1], out[1, 0], out[1, 1] = c, -s, s, c


@jit
def eigen_2x2(a: float, b: float, d: float, g: Array, h: Array) -> None:
    """Eigenvectors of ``[[a, b], [b, d]]``, the larger eigenvalue first, to `g` and `h` (equal).

    An exchange, not a rotation by nearly a right angle, where ``b = 0``: supports stay apart.
    """
    x, y, _ = _unit(a - d, 2.0 * b)
    c, s = _half_angle(x, y)
    for f in (g, h):
        f[0, 0], f[0, 1], f[1, 0], f[1, 1] = c, -s, s, c


@jit
def pair_factors(
    head: Array,
    lead: Array,
    diag: Array,
    pairs: Array,
    tails: Array,
    n_samples: int,
    symmetric: bool,
    g: Array,
    h: Array,
) -> None:
    """Write the factors of each of `pairs` (k, 2) to `g` and `h` (k, 2, 2).

    ``tails[k]`` is ``X[i, j]`` of a tail pair. A pair beyond the rows (``j >= n``) or beyond the
    columns (``j >= N``) has zeros there, and one of its factors is the identity. Both are the same
    for a symmetric positive semidefinite matrix. State as in `update_scores`.
    """
    n = lead.shape[1]
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        a = np.float64(diag[i])
        if symmetric:
            eigen_2x2(a, 0.5 * (head[i, j] + lead[i, j]), diag[j], g[k], h[k])
        elif j >= n:
            g[k, 0, 0], g[k, 0, 1], g[k, 1, 0], g[k, 1, 1] = 1.0, 0.0, 0.0, 1.0
            rotation_to_first(a, tails[k], h[k])
        elif j >= n_samples:
            rotation_to_first(a, np.float64(lead[i, j]), g[k])
            h[k, 0, 0], h[k, 0, 1], h[k, 1, 0], h[k, 1, 1] = 1.0, 0.0, 0.0, 1.0
        else:
            b, c, d = np.float64(head[i, j]), np.float64(lead[i, j]), np.float64(diag[j])
            svd_2x2(a, b, c, d, g[k], h[k])


# ---------------------------------------------------------------------------------- rotations


@jit
def argmax(x: Array, first: int) -> int:
    """Index of the largest of ``x[first:]``, the lowest on ties; -1 when there is none."""
    where = -1
    for k in range(first, x.shape[0]):
        # entry against entry: bits of float64 as integers would lose digits as floats
        if where < 0 or x[k] > x[where]:
            where = k
    return where


@jit
def peak(x: Array, peaks: Array) -> int:
    """Bits of the largest absolute entry of `x` (contiguous), -1 when it is empty."""
    bits = x.view(peaks.dtype)
    mask = np.iinfo(peaks.dtype).max
    best = peaks.dtype.type(-1)
    for k in range(bits.shape[0]):
        size = bits[k] & mask
        best = size if size > best else best
    return best


@jit
def find(x: Array, size: int, peaks: Array) -> int:
    """First place in `x` (contiguous) of an entry whose absolute value has the bits `size`."""
    bits = x.view(peaks.dtype)
    mask = np.iinfo(peaks.dtype).max
    for k in range(bits.shape[0]):
        if bits[k] & mask == size:
            return k
    return -1


@jit
def rotate_pair(x: Array, y: Array, f: Array) -> None:
    """``[x, y] @ f`` in place: rows or columns, both contiguous, of the same length."""
    f00, f01, f10, f11 = f[0, 0], f[0, 1], f[1, 0], f[1, 1]
    for k in range(x.shape[0]):
        u, v = x[k], y[k]
        x[k] = f00 * u + f10 * v
        y[k] = f01 * u + f11 * v


@jit
def find_peaks(top: Array, first: int, stop: int, peaks: Array, span: int) -> None:
    """The peaks of all rows below `p`; arguments as in `rotate_rows`."""
    for lo in range(0, stop, SPAN):
        hi = min(lo + SPAN, stop)
        for i in range(peaks.shape[0]):
            peaks[i, span] = peak(top[i, min(max(lo, first), hi) : hi], peaks)
        span += 1


@jit
def look_up(
    top: Array,
    i: int,
    start: int,
    first: int,
    stop: int,
    peaks: Array,
    span: int,
    tail_value: Array,
    tail_where: Array,
) -> int:
    """Write row i's largest tail entry and its column to `tail_value`, `tail_where` (p,).

    Works only when that entry lies in this chunk, which begins with column `start`; returns its
    span in any case, -1 when there is no tail. Other arguments as in `rotate_rows`.
    """
    best = argmax(peaks[i], 0)
    if peaks[i, best] < 0:
        return -1
    lo = (best - span) * SPAN
    if 0 <= lo < stop:
        hi = min(lo + SPAN, stop)
        lo = max(lo, first)
        k = lo + find(top[i, lo:hi], peaks[i, best], peaks)
        tail_value[i] = top[i, k]
        tail_where[i] = start + k
    return best


@jit
def rotate_rows(
    top: Array,
    chunk: Array,
    i: int,
    j: int,
    g: Array,
    first: int,
    stop: int,
    peaks: Array,
    span: int,
) -> None:
    """Rows i, j of ``g.T @ chunk`` in place, and the peaks of those below `p`, in one pass.

    Columns from `stop` on are padding; the tail begins at `first`; the chunk's spans begin at
    `span` in `peaks` (p, spans).
    """
    p = top.shape[0]
    for lo in range(0, stop, SPAN):
        hi = min(lo + SPAN, stop)
        x = top[i, lo:hi]
        y = top[j, lo:hi] if j < p else chunk[j, lo:hi]
        rotate_pair(x, y, g)
        # The span is still in the cache.
        skip = min(max(first - lo, 0), hi - lo)
        peaks[i, span] = peak(x[skip:], peaks)
        if j < p:
            peaks[j, span] = peak(y[skip:], peaks)
        span += 1


@jit
def rotate_lead(lead: Array, i: int, j: int, g: Array) -> None:
    """Rows i, j of ``g.T @ X[:, :p]`` in place, where `lead` (p, n) holds those columns as rows."""
    for k in range(lead.shape[0]):
        u, v = lead[k, i], lead[k, j]
        lead[k, i] = g[0, 0] * u + g[1, 0] * v
        lead[k, j] = g[0, 1] * u + g[1, 1] * v


@jit
def move_lead(lead: Array, pairs: Array, g: Array, h: Array, columns: Array) -> None:
    """Moves on `pairs` (k, 2), in order, as far as they touch ``X[:, :p]``, whose rows `lead` has.

    ``columns[k]`` becomes the column i after the rows of its move. Where ``j >= p`` it is combined
    with column j elsewhere, and `lead` is stale there.
    """
    p, n = lead.shape
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        if j < n:
            rotate_lead(lead, i, j, g[k])
        if j < p:
            rotate_pair(lead[i], lead[j], h[k])
        for c in range(n):  # ``columns[k] = lead[i]`` takes seconds to compile: it could raise
            columns[k, c] = lead[i, c]


@jit
def rotate_column(
    top: Array,
    chunk: Array,
    j: int,
    start: int,
    column: Array,
    h: Array,
    first: int,
    stop: int,
    peaks: Array,
    span: int,
    tail_value: Array,
    tail_where: Array,
    stale: Array,
) -> int:
    """Columns ``[column, X[:, j]] @ h`` in place, with the peaks and the largest tail entries.

    The chunk begins with column `start` of `X`; other arguments as in `look_up`. Rows whose
    largest tail entry now lies in another chunk are written to `stale` (p,), and counted.
    """
    p, k = top.shape[0], j - start
    for i in range(p, chunk.shape[0]):
        u, v = column[i], chunk[i, k]
        column[i] = h[0, 0] * u + h[1, 0] * v
        chunk[i, k] = h[0, 1] * u + h[1, 1] * v
    n_stale = 0
    t = span + k // SPAN
    lo = k // SPAN * SPAN
    lo, hi = max(lo, first), min(lo + SPAN, stop)
    for i in range(p):
        was_peak = peak(top[i, k : k + 1], peaks) == peaks[i, t]
        u, v = column[i], top[i, k]
        column[i] = h[0, 0] * u + h[1, 0] * v
        top[i, k] = h[0, 1] * u + h[1, 1] * v
        if k < first:
            continue
        size = peak(top[i, k : k + 1], peaks)
        if size >= peaks[i, t]:
            peaks[i, t] = size
        elif was_peak:
            peaks[i, t] = peak(top[i, lo:hi], peaks)
        if tail_where[i] == j or abs(top[i, k]) >= abs(tail_value[i]):
            best = look_up(top, i, start, first, stop, peaks, span, tail_value, tail_where)
            if not span <= best < span + -(-stop // SPAN):
                stale[n_stale] = i
                n_stale += 1
    return n_stale
