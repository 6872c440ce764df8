"""Kernels over the transforms of a log: products of factors, the trace, the replay."""

from streamsvd.arrays import Array
from streamsvd.kernels.jit import jit
from streamsvd.kernels.rotations import rotate

REPLAY = 128
"""Columns to which all row rotations are applied at a time."""


# ------------------------------------------------------------------------------ the transforms


@jit
def multiply_back(panel: Array, rows: Array, factors: Array) -> None:
    """``F_1 F_2 ... F_m @ panel`` in place, transform k on the rows ``rows[k]`` by ``factors[k]``.

    From the last transform to the first, so that only the panel's columns are ever formed.
    """
    for m in range(rows.shape[0] - 1, -1, -1):
        a, b = rows[m, 0], rows[m, 1]
        f = factors[m]
        for k in range(panel.shape[1]):
            u, v = panel[a, k], panel[b, k]
            panel[a, k] = f[0, 0] * u + f[0, 1] * v
            panel[b, k] = f[1, 0] * u + f[1, 1] * v


@jit
def trace_path(diag: Array, pairs: Array, values: Array, out: Array) -> None:
    """Write to ``out[k]`` the sum of the first `p` diagonal entries after transform k.

    `diag` (p,) holds them at the start and is brought to the end; ``values[k]`` are the diagonal
    entries at ``pairs[k]`` after the transform.
    """
    p = diag.shape[0]
    for m in range(pairs.shape[0]):
        diag[pairs[m, 0]] = values[m, 0]
        if pairs[m, 1] < p:
            diag[pairs[m, 1]] = values[m, 1]
        total = 0.0
        for k in range(p):
            total += diag[k]
        out[m] = total


# ----------------------------------------------------------------------------------- replay


@jit
def replay_panel(panel: Array, pairs: Array, columns: Array, g: Array, h: Array) -> None:
    """Apply moves to a panel (n, S) of columns that the moves do not leave.

    ``columns[k]`` are the places of the columns ``pairs[k]`` in the panel, -1 for a column that
    does not exist.
    """
    n = panel.shape[0]
    for m in range(pairs.shape[0]):
        i, j = pairs[m, 0], pairs[m, 1]
        if j < n:
            rotate(panel, i, panel, j, 0, panel.shape[1], g[m])
        a, b = columns[m, 0], columns[m, 1]
        if b >= 0:
            f = h[m]
            for r in range(n):
                u, v = panel[r, a], panel[r, b]
                panel[r, a] = f[0, 0] * u + f[1, 0] * v
                panel[r, b] = f[0, 1] * u + f[1, 1] * v


@jit
def replay_rows(chunk: Array, stop: int, pairs: Array, factors: Array) -> None:
    """Apply row rotations, in order, to the columns of `chunk` below `stop`.

    A few columns at a time, so that they stay in the cache for all rotations.
    """
    for lo in range(0, stop, REPLAY):
        hi = min(lo + REPLAY, stop)
        for m in range(pairs.shape[0]):
            rotate(chunk, pairs[m, 0], chunk, pairs[m, 1], lo, hi, factors[m])
