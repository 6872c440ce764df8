"""Kernels of the scores: of pairs, of the best of them, and of what a move changes.

As in `streamsvd.kernels`: serial, strict IEEE, compiled at first use.
"""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import inner, jit

NUCLEAR, GAIN, KOGBETLIANTZ = 0, 1, 2
"""Codes of what pairs are scored by."""


@inner
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
    # unsigned: else each index would be tested for being negative, and no loop vectorised
    lo, hi = np.uint64(first), np.uint64(stop)
    if selection == KOGBETLIANTZ:
        for j in range(lo, hi):
            out[j] = abs(np.float64(b[j])) + abs(np.float64(c[j]))
        return
    middle = hi
    if selection != NUCLEAR and n_components < stop:
        middle = np.uint64(n_components) if n_components > first else lo
    for j in range(lo, middle):
        out[j] = nuclear_score(a, np.float64(b[j]), np.float64(c[j]), np.float64(d[j]))
    for j in range(middle, hi):
        out[j] = gain_score(a, np.float64(b[j]), np.float64(c[j]), np.float64(d[j]))


@inner
def score(selection: int, a: float, b: float, c: float, d: float, inside: bool) -> float:
    """The score of one head pair, of two components if it is `inside`."""
    if selection == KOGBETLIANTZ:
        return abs(b) + abs(c)
    if selection == NUCLEAR or inside:
        return nuclear_score(a, b, c, d)
    return gain_score(a, b, c, d)


@inner
def nuclear_score(a: float, b: float, c: float, d: float) -> float:
    """``s1 + s2 - (a + d) = max(hypot(a + d, b - c), hypot(a - d, b + c)) - (a + d)``.

    The sum in brackets first, so that the score of a diagonal block is exactly zero; the larger of
    two roots is the root of the larger.
    """
    x, y, u, v = a + d, b - c, a - d, b + c
    q, r = x * x + y * y, u * u + v * v
    return np.sqrt(q if q > r else r) - x


@inner
def gain_score(a: float, b: float, c: float, d: float) -> float:
    """``s1 - a = (hypot(a + d, b - c) + hypot(a - d, b + c)) / 2 - a``."""
    x, y, u, v = a + d, b - c, a - d, b + c
    return 0.5 * (np.sqrt(x * x + y * y) + np.sqrt(u * u + v * v)) - a


@inner
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
    work: Array,
    where: Array,
    pairs: Array,
    values: Array,
) -> int:
    """Of each row's best pair those that are disjoint, best first; how many there are.

    At most ``len(pairs)``, written to `pairs` (k, 2) with ``X[i, j]`` of tail pairs, else 0, to
    `values` (k,); the first is the best of all. Scores are above `threshold`; ties go to the lowest
    i, then j. `head_best` (p,) holds the best column of each row's head scores or -1, and another
    of those that fit where that one does not any more; `tail_value`, `tail_where` (partitions, p)
    the largest tail entry of each row in each partition, in the order of the columns, and its
    column or -1. `added` and `room` as in `update_scores`: all the pairs together fit. `work`
    (2, p) float64 and `where` (p,) int64 are work space.
    """
    p, n = scores.shape
    best, value = work[0], work[1]
    counts = len(added) > 0
    for i in range(p):
        best[i], where[i], value[i] = threshold, -1, 0.0
        j = head_best[i]
        if counts and j >= 0 and added[i, j] > room:  # it did fit when it was found
            j = best_in_row(scores, added, i, room)
            head_best[i] = j
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
    while count < pairs.shape[0]:
        top = -1
        for i in range(p):
            j = where[i]
            if j < 0 or (top >= 0 and best[i] <= best[top]):
                continue
            is_free = not counts or j >= n or added[i, j] <= room
            for c in range(count):
                a, b = pairs[c, 0], pairs[c, 1]
                if i == a or i == b or j == a or j == b:
                    is_free = False
            if is_free:
                top = i
            else:
                where[i] = -1
        if top < 0:
            break
        i, j = top, where[top]
        pairs[count, 0], pairs[count, 1], values[count] = i, j, value[i]
        where[i] = -1
        count += 1
        if counts and j < n:
            room -= added[i, j]
    return count


@inner
def weigh(scores: Array, added: Array, weights: Array, i: int, first: int, stop: int) -> None:
    """Multiply the scores ``scores[i, first:stop]`` by the weights of what the pairs add."""
    if len(added) == 0:
        return
    for j in range(first, stop):
        scores[i, j] *= weights[added[i, j]]


@inner
def best_in_row(scores: Array, added: Array, i: int, room: int) -> int:
    """Column of the best score of row `i` among pairs that fit, the lowest on ties, or -1."""
    counts = len(added) > 0
    best, where = -np.inf, -1
    for j in range(i + 1, scores.shape[1]):
        if scores[i, j] > best and (not counts or added[i, j] <= room):
            best, where = scores[i, j], j
    return where


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
        for side in range(pairs.shape[1]):  # a literal 2 would be compiled as two loops
            row = pairs[m, side]
            if 0 <= row < p:
                diag[row] = lead[row, row]
                for k in range(p):
                    head[row, k] = lead[k, row]
                    head[k, row] = lead[row, k]
        for k in range(p):
            best = head_best[k]
            if i < 0 or k == i or k == j:
                a = np.float64(diag[k])
                score_row(selection, a, head[k], lead[k], diag, p, k + 1, n, scores[k])
                weigh(scores, added, weights, k, k + 1, n)
                again = True
            else:
                again = best == i or best == j
                for side in range(pairs.shape[1]):
                    col = pairs[m, side]
                    if k < col < n:
                        a, b = np.float64(diag[k]), np.float64(head[k, col])
                        c, d = np.float64(lead[k, col]), np.float64(diag[col])
                        now, fits = score(selection, a, b, c, d, col < p), True
                        if len(added):
                            now *= weights[added[k, col]]
                            fits = added[k, col] <= room
                        scores[k, col] = now
                        if again or not fits:
                            continue
                        held = scores[k, best] if best >= 0 else -np.inf
                        if now > held or (now == held and col < best):
                            head_best[k] = best = col
            if again:
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
