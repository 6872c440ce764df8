"""Kernels over samples of which some entries are missing: NaN, or equal to a code."""

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
def find_first(x: Array, code: float, first: Array, is_known: Array) -> None:
    """Note in ``first[i]`` the first value of row i that is there, unless one is known."""
    for i in range(x.shape[0]):
        if not is_known[i]:
            for k in range(x.shape[1]):
                v = x[i, k]
                if v == v and v != code:
                    first[i], is_known[i] = v, True
                    break


@jit
def count_missing(x: Array, code: float, counts: Array) -> None:
    """Add to ``counts[i]`` how many entries of row i of `x` (n, c) are missing."""
    for i in range(x.shape[0]):
        row = x[i]
        missing = 0
        for k in range(row.shape[0]):
            v = row[k]
            missing += (v != v) | (v == code)
        counts[i] += missing
