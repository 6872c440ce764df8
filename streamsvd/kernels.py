"""Numba kernels: arrays in, arrays out.

Kernels are serial and release the GIL; parallelism lives outside. Arithmetic is strict IEEE (no
reassociation, no fused multiply-add) with ``+ - * /`` and ``sqrt`` alone, all correctly rounded, so
results have the same bits on every processor and for every way of cutting the columns into blocks.
Nothing is compiled at import.

Symbols: `n` features (rows), `N` samples (columns), `p` components; a *block* is an ``(n, c)``
C-contiguous array of columns of the working matrix; its first `p` rows, which every move touches,
are given apart as `top` (p, c), a view of the block or a copy that replaces them; the *head* are
the columns below `n`, the *tail* those from `n` on. The tail of a block is cut into *tiles* of
`TILE` columns, and ``peaks[i, t]`` is the largest absolute entry of row ``i < p`` in the tail part
of tile ``t`` (-1 where a tile has none). Peaks are kept as the bits of the float, an integer of the
same size: absolute values order like their bits, and only integer maxima are vectorised without
licence to break NaNs (a factor of fifteen).

Inner loops run over slices from zero: a range with a variable start makes Numba test for negative
indices, which keeps the loop from being vectorised.
"""

from typing import Any

import numpy as np

from streamsvd.jit import jit

Array = np.ndarray[Any, Any]

TILE = 1024
"""Columns in a tile: small enough to be in the first-level cache when it is searched."""

NUCLEAR, GAIN, KOGBETLIANTZ = 0, 1, 2


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
def svd_2x2(a: float, b: float, c: float, d: float, left: Array, right: Array) -> None:
    """SVD of ``[[a, b], [c, d]] = left @ diag(s1, s2) @ right.T`` with ``s1 >= s2 >= 0``.

    `left` is a rotation, `right` a rotation or (when ``a d < b c``) a reflection; both are
    written in place, shape (2, 2). With ``q e^{i beta} = (a + d) + i (c - b)`` and
    ``r e^{i alpha} = (a - d) + i (c + b)`` the angles of the factors are
    ``(alpha + beta) / 2`` and ``(alpha - beta) / 2``, and ``s1, s2 = (q + r) / 2, |q - r| / 2``.
    """
    x, y, q = _unit(a + d, c - b)
    u, v, r = _unit(a - d, c + b)
    # A multiple of a rotation or of a reflection leaves one angle free: right has none then.
    if r == 0.0:
        u, v = x, y
    elif q == 0.0:
        x, y = u, v
    gc, gs = _half_angle(u * x - v * y, u * y + v * x)
    hc, hs = u * gc + v * gs, v * gc - u * gs
    hc, hs = _normalized(hc, hs)
    left[0, 0], left[0, 1], left[1, 0], left[1, 1] = gc, -gs, gs, gc
    sign = -1.0 if q < r else 1.0
    right[0, 0], right[0, 1], right[1, 0], right[1, 1] = hc, -sign * hs, hs, sign * hc


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
    left: Array,
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
    n = left.shape[1]
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        a = np.float64(diag[i])
        if symmetric:
            eigen_2x2(a, 0.5 * (head[i, j] + left[i, j]), diag[j], g[k], h[k])
        elif j >= n:
            g[k, 0, 0], g[k, 0, 1], g[k, 1, 0], g[k, 1, 1] = 1.0, 0.0, 0.0, 1.0
            rotation_to_first(a, tails[k], h[k])
        elif j >= n_samples:
            rotation_to_first(a, np.float64(left[i, j]), g[k])
            h[k, 0, 0], h[k, 0, 1], h[k, 1, 0], h[k, 1, 1] = 1.0, 0.0, 0.0, 1.0
        else:
            b, c, d = np.float64(head[i, j]), np.float64(left[i, j]), np.float64(diag[j])
            svd_2x2(a, b, c, d, g[k], h[k])


# ------------------------------------------------------------------------------------- scores


@jit
def score_row(
    selection: int,
    a: float,
    b: Array,
    c: Array,
    d: Array,
    n_components: int,
    first: int,
    stop: int,
    out: Array,
) -> None:
    """Scores of the head pairs `(i, j)`, ``first <= j < stop``, of one row `i`, into `out`.

    ``a = X[i, i]``, ``b[j] = X[i, j]``, ``c[j] = X[j, i]``, ``d[j] = X[j, j]``. All in float64,
    whatever the data: the paper's Result 2 (nuclear), the exact increase of the objective (gain),
    the off-diagonal sum (kogbetliantz).
    """
    if selection == KOGBETLIANTZ:
        _score_kogbetliantz(b[first:stop], c[first:stop], out[first:stop])
        return
    middle = stop if selection == NUCLEAR else max(first, min(stop, n_components))
    _score_nuclear(a, b[first:middle], c[first:middle], d[first:middle], out[first:middle])
    _score_gain(a, b[middle:stop], c[middle:stop], d[middle:stop], out[middle:stop])


@jit
def _score_kogbetliantz(b: Array, c: Array, out: Array) -> None:
    """``|b| + |c|``."""
    for j in range(out.shape[0]):
        out[j] = abs(np.float64(b[j])) + abs(np.float64(c[j]))


@jit
def _score_nuclear(a: float, b: Array, c: Array, d: Array, out: Array) -> None:
    """``s1 + s2 - (a + d) = max(hypot(a + d, b - c), hypot(a - d, b + c)) - (a + d)``.

    The sum in brackets comes first, so that the score of a diagonal block is exactly zero.
    """
    for j in range(out.shape[0]):
        bj, cj, dj = np.float64(b[j]), np.float64(c[j]), np.float64(d[j])
        x, y, u, v = a + dj, bj - cj, a - dj, bj + cj
        q, r = x * x + y * y, u * u + v * v
        # The larger of two roots is the root of the larger: one sqrt, the same bits.
        out[j] = np.sqrt(q if q > r else r) - x


@jit
def _score_gain(a: float, b: Array, c: Array, d: Array, out: Array) -> None:
    """``s1 - a = (hypot(a + d, b - c) + hypot(a - d, b + c)) / 2 - a``."""
    for j in range(out.shape[0]):
        bj, cj, dj = np.float64(b[j]), np.float64(c[j]), np.float64(d[j])
        x, y, u, v = a + dj, bj - cj, a - dj, bj + cj
        out[j] = 0.5 * (np.sqrt(x * x + y * y) + np.sqrt(u * u + v * v)) - a


@jit
def tail_score(selection: int, a: float, b: float) -> float:
    """Score of a tail pair: ``X[i, i] = a``, ``X[i, j] = b``, no row `j`."""
    if selection == KOGBETLIANTZ:
        return abs(b)
    return np.sqrt(a * a + b * b) - a


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
def best_pairs(
    selection: int,
    diag: Array,
    scores: Array,
    head_best: Array,
    tail_value: Array,
    tail_where: Array,
    added: Array,
    room: int,
    threshold: float,
    pairs: Array,
    values: Array,
) -> int:
    """Of each row's best pair those that are disjoint, best first; how many there are.

    At most ``len(pairs)``, written to `pairs` (k, 2) with ``X[i, j]`` of tail pairs, else 0, to
    `values` (k,); the first is the best of all. Scores are above `threshold`; ties go to the lowest
    i, then j. `head_best` (p,) holds the best column of each row's head scores or -1;
    `tail_value`, `tail_where` (partitions, p) the largest tail entry of each row in each partition,
    in the order of the columns, and its column or -1. `added` and `room` as of `update_scores`:
    all the pairs together fit.
    """
    p = scores.shape[0]
    best, where, value = np.empty(p), np.empty(p, np.int64), np.empty(p)
    for i in range(p):
        best[i], where[i], value[i] = threshold, -1, 0.0
        j = head_best[i]
        if j >= 0 and scores[i, j] > threshold:
            best[i], where[i] = scores[i, j], j
        tail, size = -1, 0.0
        for t in range(tail_where.shape[0]):
            if tail_where[t, i] >= 0 and (tail < 0 or abs(tail_value[t, i]) > abs(size)):
                tail, size = tail_where[t, i], np.float64(tail_value[t, i])
        if tail >= 0:
            score = tail_score(selection, np.float64(diag[i]), size)
            if score > best[i]:
                best[i], where[i], value[i] = score, tail, size
    count = 0
    while True:
        top = -1
        for i in range(p):
            if where[i] >= 0 and (top < 0 or best[i] > best[top]):
                top = i
        if top < 0:
            break
        j = where[top]
        pairs[count, 0], pairs[count, 1], values[count] = top, j, value[top]
        count += 1
        if count == pairs.shape[0]:
            break
        if len(added) and j < scores.shape[1]:
            room -= added[top, j]
        for i in range(p):
            k = where[i]
            adds = added[i, k] if len(added) and 0 <= k < scores.shape[1] else 0
            if i in (top, j) or k in (top, j) or adds > room:
                where[i] = -1
    return count


@jit
def weigh(scores: Array, added: Array, weights: Array, i: int, first: int, stop: int) -> None:
    """Multiply the scores ``scores[i, first:stop]`` by the weights of what the pairs add."""
    if len(added) == 0:
        return
    for j in range(first, stop):
        scores[i, j] *= weights[max(added[i, j], 0)]


@jit
def best_in_row(scores: Array, added: Array, i: int, room: int) -> int:
    """Column of the best score of row `i` among pairs that fit, the lowest on ties, or -1."""
    if len(added) == 0:
        return argmax(scores[i], i + 1)
    best, where = -np.inf, -1
    for j in range(i + 1, scores.shape[1]):
        if scores[i, j] > best and added[i, j] <= room:
            best, where = scores[i, j], j
    return where


@jit
def drop_unfit(scores: Array, added: Array, head_best: Array, room: int) -> None:
    """Look for another best column in rows whose best pair does not fit any more."""
    for i in range(scores.shape[0]):
        j = head_best[i]
        if j >= 0 and added[i, j] > room:
            head_best[i] = best_in_row(scores, added, i, room)


@jit
def update_scores(
    selection: int,
    head: Array,
    left: Array,
    diag: Array,
    scores: Array,
    head_best: Array,
    pairs: Array,
    added: Array,
    weights: Array,
    room: int,
    values: Array,
) -> None:
    """Bring the head scores up to date after moves on `pairs` (k, 2); a full build with (-1, -1).

    `head` (p, n) holds ``X[:p, :n]``, `left` (p, n) the columns ``X[:, :p]`` as rows, `diag` (n,)
    the diagonal, `scores` (p, n) float64, `head_best` (p,) the column of each row's best score or
    -1. A move changes rows i and j, columns i and j and two diagonal entries, so: the rows i and j
    of the scores, and two entries of each other row. What `head` and `diag` share with `left` is
    taken from there first. The diagonal at i and j (0 beyond the rows) is written to `values`
    (k, 2).

    Where fill counts, `added` (p, n) are the nonzeros that a pair would add, scores are multiplied
    by ``weights[added]``, and pairs that add more than `room` are no candidates; else `added` is
    empty.
    """
    p, n = scores.shape
    for m in range(pairs.shape[0]):
        i, j = pairs[m, 0], pairs[m, 1]
        for row in (i, j):
            if 0 <= row < p:
                diag[row] = left[row, row]
                for k in range(p):
                    head[row, k] = left[k, row]
                    head[k, row] = left[row, k]
        for k in range(p):
            a = np.float64(diag[k])
            if i < 0 or k in (i, j):
                score_row(selection, a, head[k], left[k], diag, p, k + 1, n, scores[k])
                weigh(scores, added, weights, k, k + 1, n)
                head_best[k] = best_in_row(scores, added, k, room)
                continue
            held = head_best[k]
            for col in (i, j):
                if k < col < n:
                    score_row(selection, a, head[k], left[k], diag, p, col, col + 1, scores[k])
                    weigh(scores, added, weights, k, col, col + 1)
                    top = head_best[k]
                    fits = len(added) == 0 or added[k, col] <= room
                    if fits and (
                        top < 0
                        or scores[k, col] > scores[k, top]
                        or (scores[k, col] == scores[k, top] and col < top)
                    ):
                        head_best[k] = col
            if held in (i, j):
                head_best[k] = best_in_row(scores, added, k, room)
        if i >= 0:
            values[m, 0] = diag[i]
            values[m, 1] = diag[j] if j < n else 0.0


# ---------------------------------------------------------------------------------- rotations


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
def find_peaks(top: Array, first: int, stop: int, peaks: Array, tile: int) -> None:
    """The peaks of all rows below `p`; arguments as of `rotate_rows`."""
    for lo in range(0, stop, TILE):
        hi = min(lo + TILE, stop)
        for i in range(peaks.shape[0]):
            peaks[i, tile] = peak(top[i, min(max(lo, first), hi) : hi], peaks)
        tile += 1


@jit
def look_up(
    top: Array,
    i: int,
    start: int,
    first: int,
    stop: int,
    peaks: Array,
    tile: int,
    tail_value: Array,
    tail_where: Array,
) -> int:
    """Write row i's largest tail entry and its column to `tail_value`, `tail_where` (p,).

    Works only when that entry lies in this block, which begins with column `start`; returns its
    tile in any case, -1 when there is no tail. Other arguments as of `rotate_rows`.
    """
    best = argmax(peaks[i], 0)
    if peaks[i, best] < 0:
        return -1
    lo = (best - tile) * TILE
    if 0 <= lo < stop:
        hi = min(lo + TILE, stop)
        lo = max(lo, first)
        k = lo + find(top[i, lo:hi], peaks[i, best], peaks)
        tail_value[i] = top[i, k]
        tail_where[i] = start + k
    return best


@jit
def rotate_rows(
    top: Array,
    block: Array,
    i: int,
    j: int,
    g: Array,
    first: int,
    stop: int,
    peaks: Array,
    tile: int,
) -> None:
    """Rows i, j of ``g.T @ block`` in place, and the peaks of those below `p`, in one pass.

    Columns from `stop` on are padding; the tail begins at `first`; the block's tiles begin at
    `tile` in `peaks` (p, tiles).
    """
    p = top.shape[0]
    for lo in range(0, stop, TILE):
        hi = min(lo + TILE, stop)
        x = top[i, lo:hi]
        y = top[j, lo:hi] if j < p else block[j, lo:hi]
        rotate_pair(x, y, g)
        # The tile is still in the cache.
        skip = min(max(first - lo, 0), hi - lo)
        peaks[i, tile] = peak(x[skip:], peaks)
        if j < p:
            peaks[j, tile] = peak(y[skip:], peaks)
        tile += 1


@jit
def rotate_left(left: Array, i: int, j: int, g: Array) -> None:
    """Rows i, j of ``g.T @ X[:, :p]`` in place, where `left` (p, n) holds those columns as rows."""
    for k in range(left.shape[0]):
        u, v = left[k, i], left[k, j]
        left[k, i] = g[0, 0] * u + g[1, 0] * v
        left[k, j] = g[0, 1] * u + g[1, 1] * v


@jit
def rotate_leading(left: Array, pairs: Array, g: Array, h: Array, columns: Array) -> None:
    """Moves on `pairs` (k, 2), in order, as far as they touch ``X[:, :p]``, whose rows `left` has.

    ``columns[k]`` becomes the column i after the rows of its move. Where ``j >= p`` it is combined
    with column j elsewhere, and `left` is stale there.
    """
    p, n = left.shape
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        if j < n:
            rotate_left(left, i, j, g[k])
        if j < p:
            rotate_pair(left[i], left[j], h[k])
        columns[k] = left[i]


@jit
def rotate_column(
    top: Array,
    block: Array,
    j: int,
    start: int,
    column: Array,
    h: Array,
    first: int,
    stop: int,
    peaks: Array,
    tile: int,
    tail_value: Array,
    tail_where: Array,
    stale: Array,
) -> int:
    """Columns ``[column, X[:, j]] @ h`` in place, with the peaks and the largest tail entries.

    The block begins with column `start` of `X`; other arguments as of `look_up`. Rows whose
    largest tail entry now lies in another block are written to `stale` (p,), and counted.
    """
    p, k = top.shape[0], j - start
    for i in range(p, block.shape[0]):
        u, v = column[i], block[i, k]
        column[i] = h[0, 0] * u + h[1, 0] * v
        block[i, k] = h[0, 1] * u + h[1, 1] * v
    n_stale = 0
    t = tile + k // TILE
    lo = k // TILE * TILE
    lo, hi = max(lo, first), min(lo + TILE, stop)
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
            best = look_up(top, i, start, first, stop, peaks, tile, tail_value, tail_where)
            if not tile <= best < tile + -(-stop // TILE):
                stale[n_stale] = i
                n_stale += 1
    return n_stale
