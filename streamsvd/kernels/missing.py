"""Kernels over samples of which some entries are missing: NaN, or equal to a code."""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit
from streamsvd.kernels.moments import FLUSH


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
def add_present(
    x: Array, start: int, code: float, shift: Array, sums: Array, counts: Array
) -> None:
    """Add what is there of `x` (n, c), less `shift`, to the sums, what is not to the counts.

    ``x[:, 0]`` is sample `start` of all. ``sums[1, i]`` gathers up to `FLUSH` samples, in their
    order, and is then added to ``sums[0, i]``: the same bits however samples come in pieces, and
    errors that do not grow with N.
    """
    for i in range(x.shape[0]):
        s = np.float64(shift[i])
        done = 0
        while done < x.shape[1]:
            stop = min(x.shape[1], done + FLUSH - (start + done) % FLUSH)
            part, total, missing = x[i, done:stop], sums[1, i], 0
            for k in range(part.shape[0]):
                v = part[k]
                lacks = (v != v) | (v == code)
                missing += lacks
                total += 0.0 if lacks else np.float64(v) - s
            sums[1, i] = total
            counts[i] += missing
            if (start + stop) % FLUSH == 0:
                sums[0, i] += total
                sums[1, i] = 0.0
            done = stop
