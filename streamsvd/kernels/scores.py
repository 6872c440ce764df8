"""Kernels of the scores: of pairs, of the best of them, and of what a move changes.

As in `streamsvd.kernels`: serial, strict IEEE, compiled at first use.
"""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit
from streamsvd.kernels.rotations import argmax

NUCLEAR, GAIN, KOGBETLIANTZ = 0, 1, 2
"""Codes of what pairs are scored by."""


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
    in the order of the columns, and its column or -1. `added` and `room` as in `update_scores`:
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
    lead: Array,
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

    `head` (p, n) holds ``X[:p, :n]``, `lead` (p, n) the columns ``X[:, :p]`` as rows, `diag` (n,)
    the diagonal, `scores` (p, n) float64, `head_best` (p,) the column of each row's best score or
    -1. A move changes rows i and j, columns i and j and two diagonal entries, so: the rows i and j
    of the scores, and two entries of each other row. What `head` and `diag` share with `lead` is
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
                diag[row] = lead[row, row]
                for k in range(p):
                    head[row, k] = lead[k, row]
                    head[k, row] = lead[row, k]
        for k in range(p):
            a = np.float64(diag[k])
            if i < 0 or k in (i, j):
                score_row(selection, a, head[k], lead[k], diag, p, k + 1, n, scores[k])
                weigh(scores, added, weights, k, k + 1, n)
                head_best[k] = best_in_row(scores, added, k, room)
                continue
            held = head_best[k]
            for col in (i, j):
                if k < col < n:
                    score_row(selection, a, head[k], lead[k], diag, p, col, col + 1, scores[k])
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


SELECTION_CODES = {
    "nuclear": NUCLEAR,
    "gain": GAIN,
    "kogbetliantz": KOGBETLIANTZ,
    "random": NUCLEAR,
}
