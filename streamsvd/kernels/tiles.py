"""Kernels of block steps: rows and columns in and out of tiles, the best scores of a tile."""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit, jit_that_allocates
from streamsvd.kernels.scores import KOGBETLIANTZ, score_row


@jit
def read_rows(top: Array, chunk: Array, rows: Array, lo: int, hi: int, out: Array, at: int) -> None:
    """Columns lo..hi-1 of `rows` of a chunk to the columns from `at` on of `out`, row by row."""
    for r in range(rows.shape[0]):
        i = rows[r]
        x = top[i, lo:hi] if i < top.shape[0] else chunk[i, lo:hi]
        y = out[r, at : at + hi - lo]
        for k in range(x.shape[0]):
            y[k] = x[k]


@jit
def write_rows(top: Array, chunk: Array, rows: Array, lo: int, hi: int, x: Array, at: int) -> None:
    """Undoes `read_rows`."""
    for r in range(rows.shape[0]):
        i = rows[r]
        y = top[i, lo:hi] if i < top.shape[0] else chunk[i, lo:hi]
        z = x[r, at : at + hi - lo]
        for k in range(y.shape[0]):
            y[k] = z[k]


@jit
def read_columns(top: Array, chunk: Array, places: Array, out: Array) -> None:
    """The columns `places` of a chunk to `out`, (n, len(places))."""
    for i in range(chunk.shape[0]):
        x, y = top[i] if i < top.shape[0] else chunk[i], out[i]
        for k in range(places.shape[0]):
            y[k] = x[places[k]]


@jit
def write_columns(top: Array, chunk: Array, places: Array, x: Array) -> None:
    """Undoes `read_columns`."""
    for i in range(chunk.shape[0]):
        y, z = top[i] if i < top.shape[0] else chunk[i], x[i]
        for k in range(places.shape[0]):
            y[places[k]] = z[k]


@jit
def keep_larger(best: Array, scores: Array) -> None:
    """``best = max(best, scores)`` in place."""
    for k in range(best.shape[0]):
        best[k] = scores[k] if scores[k] > best[k] else best[k]


@jit
def keep_larger_tail(selection: int, a: float, b: Array, best: Array) -> None:
    """`keep_larger` for the scores of the tail pairs of one row, see `scores.tail_score`."""
    if selection == KOGBETLIANTZ:
        for k in range(best.shape[0]):
            score = abs(np.float64(b[k]))
            best[k] = score if score > best[k] else best[k]
        return
    for k in range(best.shape[0]):
        bk = np.float64(b[k])
        score = np.sqrt(a * a + bk * bk) - a
        best[k] = score if score > best[k] else best[k]


@jit_that_allocates
def best_of_tile(
    selection: int, tile: Array, at: int, start: int, lead: Array, diag: Array, best: Array
) -> None:
    """Best score over ``i < p`` of each of the columns from `start` (``>= p``) on, to `best`.

    The first p rows of these columns are ``tile[:p, at:]``; `lead` (p, n) holds the columns
    ``X[:, :p]`` as rows, `diag` (n,) the diagonal.
    """
    p, n = lead.shape
    width = best.shape[0]
    head = min(max(n - start, 0), width)
    scores = np.empty(head)
    best[:] = -np.inf
    for i in range(p):
        a = np.float64(diag[i])
        b = tile[i, at : at + width]
        if head > 0:
            c, d = lead[i, start : start + head], diag[start : start + head]
            # all of them beyond the first p columns, hence the zero
            score_row(selection, a, b[:head], c, d, 0, 0, head, scores)
            keep_larger(best[:head], scores)
        keep_larger_tail(selection, a, b[head:], best[head:])


@jit_that_allocates
def best_of_held(selection: int, lead: Array, columns: Array, diag: Array, best: Array) -> None:
    """Best score over ``i < p`` of each of `columns`: ``0..p-1``, then some beyond the last.

    `lead` and `diag` as in `best_of_tile`. The latter columns are zero, their rows are not.
    """
    p, last = lead.shape[0], columns.shape[0]
    b, scores = np.zeros(last, dtype=lead.dtype), np.empty(last)
    d = diag[columns]
    best[:] = -np.inf
    for i in range(p):
        for k in range(p):
            b[k] = lead[k, i]
        score_row(selection, np.float64(diag[i]), b, lead[i][columns], d, p, i + 1, last, scores)
        keep_larger(best[i + 1 :], scores[i + 1 :])
