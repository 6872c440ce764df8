"""Kernels of the refinement: matrices on a sparsity pattern, listed row by row.

A pattern of `k` entries has ``row`` and ``col`` (k,), row by row; ``row_start`` says where each of
its rows begins. Values on it are (k,) arrays. Results are added to `out`, zeros at first.
"""

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit


@jit
def gram_entries(
    gram: Array, row: Array, by_column: Array, column_start: Array, values: Array, out: Array
) -> None:
    """Entries of ``gram @ U`` on the pattern of `U`, column by column; ``sum k_c^2 / 2``."""
    for c in range(len(column_start) - 1):
        first, end = column_start[c], column_start[c + 1]
        for k in range(first, end):
            e = by_column[k]
            r, x = row[e], values[e]
            total = gram[r, r] * x
            for m in range(first, k):  # the other half by symmetry
                g = by_column[m]
                a = gram[r, row[g]]
                total += a * values[g]
                out[g] += a * x
            out[e] += total


@jit
def factor_entries(
    factor: Array, row: Array, col: Array, values: Array, scores: Array, out: Array
) -> None:
    """Entries of ``B (B^T U)`` on the pattern of `U`, `B` being the `factor` (n, r); ``2 k r``.

    `scores` (p, r) become ``U^T B``; zeros at first.
    """
    r = factor.shape[1]
    for e in range(len(values)):
        b, s, x = factor[row[e]], scores[col[e]], values[e]
        for m in range(r):
            s[m] += x * b[m]
    for e in range(len(values)):
        b, s = factor[row[e]], scores[col[e]]
        t0 = t1 = t2 = t3 = 0.0  # four sums, as one would wait for each addition
        for m in range(0, r - 3, 4):
            t0 += b[m] * s[m]
            t1 += b[m + 1] * s[m + 1]
            t2 += b[m + 2] * s[m + 2]
            t3 += b[m + 3] * s[m + 3]
        for m in range(r - r % 4, r):
            t0 += b[m] * s[m]
        out[e] = (t0 + t1) + (t2 + t3)


@jit
def cross_entries(row_start: Array, col: Array, left: Array, right: Array, out: Array) -> None:
    """``L^T R`` (p, p) of two matrices on one pattern; ``sum k_r^2``."""
    for r in range(len(row_start) - 1):
        for e in range(row_start[r], row_start[r + 1]):
            for g in range(row_start[r], row_start[r + 1]):
                out[col[e], col[g]] += left[e] * right[g]


@jit
def combined_entries(
    row_start: Array, col: Array, values: Array, matrix: Array, out: Array
) -> None:
    """Entries of ``U @ matrix`` on the pattern of `U`; ``sum k_r^2``."""
    for r in range(len(row_start) - 1):
        for e in range(row_start[r], row_start[r + 1]):
            for g in range(row_start[r], row_start[r + 1]):
                out[e] += values[g] * matrix[col[g], col[e]]


@jit
def normal_entries(row_start: Array, col: Array, values: Array, pair: Array, out: Array) -> None:
    """The (m, m) normal matrix of the constraints ``u_a . u_b``; ``sum k_r^3``.

    Row ``pair[a, b]`` is the constraint of the columns a and b, whose gradient is `u_b` on the
    support of `u_a`, and `u_a` on that of `u_b`.
    """
    for r in range(len(row_start) - 1):
        first, end = row_start[r], row_start[r + 1]
        for e in range(first, end):
            own = pair[col[e]]
            for g in range(first, end):
                line, x = out[own[col[g]]], values[g]
                for h in range(first, end):
                    line[own[col[h]]] += x * values[h]
