"""Kernels of the moves: the 2x2 SVD, two rows, two columns, the largest entries of rows."""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import inner, jit

SPAN = 1024
"""Columns in a span: small enough to be in the first-level cache when it is searched."""


# ------------------------------------------------------------------------------------ 2x2 SVD


@inner
def _normalized(c: float, s: float) -> tuple[float, float]:
    """A unit vector to the last bit, by a Newton step from one that is nearly so.

    In this form rounding has no bias; as ``c * (1.5 - 0.5 * (c * c + s * s))`` it has one of 3e-17,
    which tens of thousands of factors add up to more than 1e-12.
    """
    k = 0.5 * ((1.0 - c * c) - s * s)
    return c + c * k, s + s * k


@inner
def _half_angle(x: float, y: float) -> tuple[float, float]:
    """Unit vector at half the angle of the unit vector `(x, y)`."""
    if x >= 0.0:
        c = np.sqrt(0.5 * (1.0 + x))
        s = 0.5 * y / c
    else:
        s = np.sqrt(0.5 * (1.0 - x))
        c = 0.5 * y / s
    return _normalized(c, s)


@inner
def _unit(x: float, y: float) -> tuple[float, float, float]:
    """``(x / r, y / r, r)`` with ``r = hypot(x, y)``; ``(1, 0, 0)`` for the zero vector.

    Squares of what rounding leaves behind can vanish, hence the factor, a power of two, where both
    are small; large data are refused at ingest.
    """
    if x == 0.0 and y == 0.0:
        return 1.0, 0.0, 0.0
    scale = 2.0**600 if abs(x) < 1e-140 and abs(y) < 1e-140 else 1.0
    x, y = x * scale, y * scale
    r = np.sqrt(x * x + y * y)
    return x / r, y / r, r / scale


@inner
def svd_2x2(a: float, b: float, c: float, d: float) -> tuple[float, float, float, float, float]:
    """SVD of ``[[a, b], [c, d]] = g @ diag(s1, s2) @ h.T`` with ``s1 >= s2 >= 0``.

    Returns ``(gc, gs, hc, hs, sign)``: the rotation ``g = [[gc, -gs], [gs, gc]]`` and
    ``h = [[hc, -sign hs], [hs, sign hc]]``, a rotation or (when ``a d < b c``) a reflection. With
    ``q e^{i beta} = (a + d) + i (c - b)`` and ``r e^{i alpha} = (a - d) + i (c + b)`` the angles
    are ``(alpha + beta) / 2`` and ``(alpha - beta) / 2``, and
    ``s1, s2 = (q + r) / 2, |q - r| / 2``.
    """
    x, y, q = _unit(a + d, c - b)
    u, v, r = _unit(a - d, c + b)
    # A multiple of a rotation or of a reflection leaves one angle free: h has none then.
    if r == 0.0:
        u, v = x, y
    elif q == 0.0:
        x, y = u, v
    gc, gs = _half_angle(u * x - v * y, u * y + v * x)
    hc, hs = _normalized(u * gc + v * gs, v * gc - u * gs)
    return gc, gs, hc, hs, -1.0 if q < r else 1.0


@inner
def rotation_to_first(a: float, b: float) -> tuple[float, float]:
    """``(c, s)`` of the rotation with ``(a, b) @ [[c, -s], [s, c]] = (hypot(a, b), 0)``.

    The identity for ``(0, 0)``.
    """
    c, s, _ = _unit(a, b)
    return _normalized(c, s)


@inner
def eigen_2x2(a: float, b: float, d: float) -> tuple[float, float]:
    """``(c, s)``: eigenvectors of ``[[a, b], [b, d]]`` are ``(c, s)``, the first, and ``(-s, c)``.

    An exchange, not a rotation by nearly a right angle, where ``b = 0``: supports stay apart.
    """
    x, y, _ = _unit(a - d, 2.0 * b)
    return _half_angle(x, y)


@inner
def _write(f: Array, k: int, a: float, b: float, c: float, d: float) -> None:
    """``f[k] = [[a, b], [c, d]]``."""
    f[k, 0, 0], f[k, 0, 1], f[k, 1, 0], f[k, 1, 1] = a, b, c, d


@jit
def pair_factors(
    head: Array,
    lead: Array,
    diag: Array,
    pairs: Array,
    tails: Array,
    n_samples: int,
    g: Array,
    h: Array,
) -> None:
    """Write the factors of each of `pairs` (k, 2) to `g` and `h` (k, 2, 2).

    ``tails[k]`` is ``X[i, j]`` of a tail pair. A pair beyond the rows (``j >= n``) or beyond the
    columns (``j >= N``) has zeros there, and one of its factors is the identity. State as in
    `update_scores`.
    """
    n = lead.shape[1]
    for k in range(pairs.shape[0]):
        i, j = pairs[k, 0], pairs[k, 1]
        a = np.float64(diag[i])
        if j >= n:
            c, s = rotation_to_first(a, tails[k])
            _write(g, k, 1.0, 0.0, 0.0, 1.0)
            _write(h, k, c, -s, s, c)
        elif j >= n_samples:
            c, s = rotation_to_first(a, np.float64(lead[i, j]))
            _write(g, k, c, -s, s, c)
            _write(h, k, 1.0, 0.0, 0.0, 1.0)
        else:
            b, d = np.float64(head[i, j]), np.float64(diag[j])
            c, s, u, v, sign = svd_2x2(a, b, np.float64(lead[i, j]), d)
            _write(g, k, c, -s, s, c)
            _write(h, k, u, -sign * v, v, sign * u)


@jit
def symmetric_factors(
    head: Array, lead: Array, diag: Array, pairs: Array, g: Array, h: Array
) -> None:
    """The same of a symmetric positive semidefinite matrix: both factors are equal."""
    for k in range(pairs.shape[0]):
        i, j = pairs[k, 0], pairs[k, 1]
        c, s = eigen_2x2(np.float64(diag[i]), 0.5 * (head[i, j] + lead[i, j]), diag[j])
        _write(g, k, c, -s, s, c)
        _write(h, k, c, -s, s, c)


# ---------------------------------------------------------------------------------- rotations


@jit
def rotate(x: Array, i: int, y: Array, j: int, first: int, stop: int, f: Array) -> None:
    """``[x[i], y[j]] @ f`` in place, between `first` and `stop`."""
    f00, f01, f10, f11 = f[0, 0], f[0, 1], f[1, 0], f[1, 1]
    for k in range(np.uint64(first), np.uint64(stop)):
        u, v = x[i, k], y[j, k]
        x[i, k] = f00 * u + f10 * v
        y[j, k] = f01 * u + f11 * v


@jit
def rotate_lead(lead: Array, i: int, j: int, g: Array) -> None:
    """Rows i, j of ``g.T @ X[:, :p]`` in place, where `lead` (p, n) holds those columns as rows."""
    g00, g01, g10, g11 = g[0, 0], g[0, 1], g[1, 0], g[1, 1]
    for k in range(lead.shape[0]):
        u, v = lead[k, i], lead[k, j]
        lead[k, i] = g00 * u + g10 * v
        lead[k, j] = g01 * u + g11 * v


@jit
def move_lead(lead: Array, pairs: Array, g: Array, h: Array, columns: Array) -> None:
    """Moves on `pairs` (k, 2), in order, as far as they touch ``X[:, :p]``, whose rows `lead` has.

    ``columns[k]`` becomes the column i after the rows of its move. Where ``j >= p`` it is combined
    with column j elsewhere, and `lead` is stale there.
    """
    p, n = lead.shape
    for k in range(pairs.shape[0]):
        i, j = pairs[k, 0], pairs[k, 1]
        if j < n:
            rotate_lead(lead, i, j, g[k])
        if j < p:
            rotate(lead, i, lead, j, np.int64(0), n, h[k])  # compiled anew for a literal
        for c in range(n):  # ``columns[k] = lead[i]`` takes seconds to compile: it could raise
            columns[k, c] = lead[i, c]


# ------------------------------------------------------------------------ the largest entries


@inner
def peak(bits: Array, i: int, first: int, stop: int) -> int:
    """The largest of ``bits[i, first:stop]`` without the sign, -1 when that is empty."""
    best, mask = -1, magnitude(bits)
    for k in range(np.uint64(first), np.uint64(stop)):
        size = bits[i, k] & mask
        best = size if size > best else best
    return best


@inner
def magnitude(bits: Array) -> int:
    """All bits but the sign, for floats of the size of these integers."""
    return (1 << (8 * bits.itemsize - 1)) - 1


@jit
def look_up(
    top: Array,
    bits: Array,
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
    span in any case, -1 when there is no tail. Ties go to the lowest column. Other arguments as in
    `rotate_rows`.
    """
    best = 0
    for t in range(peaks.shape[1]):
        if peaks[i, t] > peaks[i, best]:
            best = t
    size = peaks[i, best]
    if size < 0:
        return -1
    lo = (best - span) * SPAN
    if 0 <= lo < stop:
        mask = magnitude(bits)
        hi = lo + SPAN if lo + SPAN < stop else stop
        for k in range(np.uint64(lo if lo > first else first), np.uint64(hi)):
            if bits[i, k] & mask == size:
                tail_value[i] = top[i, k]
                tail_where[i] = start + np.int64(k)
                break
    return best


@jit
def rotate_rows(
    top: Array,
    bits: Array,
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

    `bits` is `top` as integers. Columns from `stop` on are padding; the tail begins at `first`; the
    chunk's spans begin at `span` in `peaks` (p, spans).
    """
    is_top = j < top.shape[0]
    other = top if is_top else chunk
    for lo in range(0, stop, SPAN):
        hi = lo + SPAN if lo + SPAN < stop else stop
        rotate(top, i, other, j, lo, hi, g)
        # The span is still in the cache.
        tail = lo if lo > first else first
        tail = tail if tail < hi else hi
        peaks[i, span] = peak(bits, i, tail, hi)
        if is_top:
            peaks[j, span] = peak(bits, j, tail, hi)
        span += 1


@jit
def rotate_column(top: Array, chunk: Array, k: int, column: Array, h: Array, before: Array) -> None:
    """``[column, X[:, j]] @ h`` in place, column j of `X` being column `k` of the chunk.

    The first p entries of the latter, as they were, go to `before` (p,).
    """
    p = top.shape[0]
    h00, h01, h10, h11 = h[0, 0], h[0, 1], h[1, 0], h[1, 1]
    for i in range(chunk.shape[0]):
        part = top if i < p else chunk
        u, v = column[i], part[i, k]
        if i < p:
            before[i] = v
        column[i] = h00 * u + h10 * v
        part[i, k] = h01 * u + h11 * v


@jit
def update_tail(
    top: Array,
    bits: Array,
    k: int,
    start: int,
    before: Array,
    first: int,
    stop: int,
    peaks: Array,
    span: int,
    tail_value: Array,
    tail_where: Array,
    stale: Array,
) -> int:
    """The peaks and the largest tail entries after column `k`, of the tail, is not what it was.

    `before` (p,) are the bits that it had. The chunk begins with column `start` of `X`; other
    arguments as in `look_up`. Rows whose largest tail entry now lies in another chunk are written
    to `stale` (p,), and counted.
    """
    n_stale = 0
    t = span + k // SPAN
    lo = k // SPAN * SPAN
    hi = lo + SPAN if lo + SPAN < stop else stop
    lo = lo if lo > first else first
    mask = magnitude(bits)
    for i in range(top.shape[0]):
        size = bits[i, k] & mask
        if size >= peaks[i, t]:
            peaks[i, t] = size
        elif before[i] & mask == peaks[i, t]:
            peaks[i, t] = peak(bits, i, lo, hi)
        if tail_where[i] == start + k or abs(top[i, k]) >= abs(tail_value[i]):
            best = look_up(top, bits, i, start, first, stop, peaks, span, tail_value, tail_where)
            if not span <= best < span + -(-stop // SPAN):
                stale[n_stale] = i
                n_stale += 1
    return n_stale
