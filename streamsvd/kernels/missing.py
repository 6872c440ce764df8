"""Kernels over samples of which some entries are missing: NaN, or equal to a code."""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit


@jit
def fill_missing(x: Array, code: float, values: Array) -> int:
    """Write ``values[i]`` to what is missing in row i of `x` (n, c); how many entries were.

    `code` and `values` are of the type of `x`; a NaN as `code` means none.
    """
    total = 0
    for i in range(x.shape[0]):
        row, value = x[i], values[i]
        missing = 0
        for k in range(row.shape[0]):
            v = row[k]
            lacks = (v != v) | (v == code)
            missing += lacks
            row[k] = value if lacks else v
        total += missing
    return total


@jit
def add_weighted_present(
    x: Array,
    first: int,
    stop: int,
    code: float,
    weights: Array,
    shift: Array,
    total: Array,
    present: Array,
    weight: Array,
) -> None:
    """`add_present` of samples that count `weights` times, one for each column of `x`.

    ``weight[i]`` adds up those of the values that are there.
    """
    for i in range(x.shape[0]):
        row = x[i]
        for k in range(first, stop):
            v, w = row[k], weights[k]
            if v == v and v != code:
                present[i] += 1
                if w > 0.0:
                    if weight[i] == 0.0:
                        shift[i] = v
                    total[i] += w * (np.float64(v) - shift[i])
                    weight[i] += w


@jit
def add_present(
    x: Array, first: int, stop: int, code: float, shift: Array, total: Array, present: Array
) -> None:
    """Add what is there of the samples ``x[:, first:stop]``, less `shift`, and count it.

    ``shift[i]`` becomes the first value of feature i, where there is none yet: a constant feature
    adds zeros. Sums run in the order of the samples, so they have the same bits however these come
    in pieces. `code` is of the type of `x`.
    """
    for i in range(x.shape[0]):
        part = x[i, first:stop]
        if present[i] == 0:
            for k in range(part.shape[0]):
                v = part[k]
                if v == v and v != code:
                    shift[i] = v
                    break
        s, t, missing = shift[i], total[i], 0
        for k in range(part.shape[0]):
            v = part[k]
            lacks = (v != v) | (v == code)
            missing += lacks
            t += 0.0 if lacks else np.float64(v) - s
        total[i] = t
        present[i] += part.shape[0] - missing
