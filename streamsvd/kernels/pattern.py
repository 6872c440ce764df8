"""Kernels of matrices on a fixed sparsity pattern, see `streamsvd.refinement.pattern`."""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit


@jit
def pattern_product(
    gram: Array, row: Array, by_column: Array, column_start: Array, values: Array
) -> Array:
    """Entries of ``gram @ U`` on the pattern of `U`, column by column."""
    out = np.zeros_like(values)
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
    return out


@jit
def pattern_cross(row_start: Array, col: Array, left: Array, right: Array, p: int) -> Array:
    """``L^T R`` of two matrices on one pattern."""
    out = np.zeros((p, p))
    for r in range(len(row_start) - 1):
        for e in range(row_start[r], row_start[r + 1]):
            for g in range(row_start[r], row_start[r + 1]):
                out[col[e], col[g]] += left[e] * right[g]
    return out


@jit
def pattern_combine(row_start: Array, col: Array, values: Array, matrix: Array) -> Array:
    """Entries of ``U @ matrix`` on the pattern of `U`."""
    out = np.zeros_like(values)
    for r in range(len(row_start) - 1):
        for e in range(row_start[r], row_start[r + 1]):
            for g in range(row_start[r], row_start[r + 1]):
                out[e] += values[g] * matrix[col[g], col[e]]
    return out


@jit
def pattern_moments(row_start: Array, col: Array, values: Array, p: int) -> Array:
    """``B[b]``, the Gram matrix of the rows of `U` in the support of column b; (p, p, p)."""
    out = np.zeros((p, p, p))
    for r in range(len(row_start) - 1):
        first, end = row_start[r], row_start[r + 1]
        for e in range(first, end):
            for g in range(first, end):
                for h in range(first, g + 1):
                    out[col[e], col[g], col[h]] += values[g] * values[h]
    for b in range(p):
        for a in range(p):
            for c in range(a):
                out[b, c, a] = out[b, a, c]
    return out


@jit
def solve_multipliers(moments: Array, right: Array, accuracy: float) -> Array:
    """Solve ``(B_b L_b)_a + (B_a L_a)_b = right[a, b]`` for a symmetric ``L``.

    Conjugate gradients, scaled by the diagonal.  Pairs of columns that share no
    row carry no constraint and stay zero.
    """
    p = len(right)
    scale = np.zeros((p, p))
    for a in range(p):
        for b in range(p):
            weight = moments[b, a, a] + moments[a, b, b]
            scale[a, b] = 1.0 / weight if weight > 1e-12 else 0.0
    solution = np.zeros((p, p))
    residual = right.copy()
    scaled = scale * residual
    direction = scaled.copy()
    image = np.empty((p, p))
    size = np.sum(residual * scaled)
    goal = accuracy * accuracy * size
    for _ in range(200):
        if size <= goal:
            break
        for b in range(p):
            image[b] = 0.0
            for c in range(p):
                factor = direction[b, c]
                if factor != 0.0:
                    for a in range(p):
                        image[b, a] += moments[b, c, a] * factor
        both = image + image.T
        bend = np.sum(direction * both)
        if bend <= 0.0:
            break
        step = size / bend
        solution += step * direction
        residual -= step * both
        scaled = scale * residual
        new_size = np.sum(residual * scaled)
        direction = scaled + (new_size / size) * direction
        size = new_size
    return solution
