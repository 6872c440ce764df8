"""Bring a freshly ingested working matrix to where the log stands, in one pass.

The working matrix is a cache: the source and the log determine it. The touched columns together
with the first `p` are closed under the column rotations, and row rotations act on each column
alone. So the touched columns are gathered into a panel on which all moves are applied in order;
then the row rotations go over all other columns, block by block. The same operations on the same
operands in the same order as in the run that wrote the log, hence the same bits.
"""

import numpy as np

from streamsvd.algorithm.log import TransformLog
from streamsvd.arrays import Array
from streamsvd.kernels.products import replay_panel, replay_rows
from streamsvd.matrix.working import WorkingMatrix


def replay(working: WorkingMatrix, log: TransformLog, panel_bytes: int) -> None:
    """Apply the transforms of `log` to `working`, which holds the ingested source.

    The panel takes at most about `panel_bytes`: with more touched columns than that, the log is
    replayed in stretches, a pass over the working matrix each.
    """
    column = working.n_features * working.dtype.itemsize
    room = max(panel_bytes // column, log.n_components + 1)
    start = 0
    while start < len(log):
        stop = _stretch(log, start, room, working.n_samples)
        _replay_stretch(working, log, range(start, stop))
        start = stop


def _stretch(log: TransformLog, start: int, room: int, n_samples: int) -> int:
    """Where to stop so that the moves from `start` touch at most `room` columns."""
    p = log.n_components
    js = log.pairs[start:, 1]
    _, first = np.unique(js, return_index=True)
    is_new = np.zeros(len(js), dtype=bool)
    is_new[first] = True
    is_new &= (js >= p) & (js < n_samples)
    within = p + np.cumsum(is_new) <= room
    return start + int(within.sum())


def _replay_stretch(working: WorkingMatrix, log: TransformLog, steps: range) -> None:
    touched = touched_columns(log, steps)
    panel = working.gather(touched)
    replay_touched(panel, touched, log, steps)
    replay_columns(working, log, steps, touched, panel)


def touched_columns(log: TransformLog, steps: range) -> Array:
    """The columns that the moves of a part of the log combine, and the first `p`; ascending."""
    js = log.pairs[steps.start : steps.stop, 1]
    return np.unique(np.concatenate([np.arange(log.n_components), js[js < log.n_samples]]))


def replay_touched(panel: Array, touched: Array, log: TransformLog, steps: range) -> None:
    """Apply the moves of a part of the log to the touched columns (n, any), in place."""
    part = slice(steps.start, steps.stop)
    pairs, held = log.pairs[part], log.pairs[part, 1] < log.n_samples
    columns = np.full(pairs.shape, -1)
    columns[held] = np.searchsorted(touched, pairs[held])
    replay_panel(panel, pairs, columns, log.left[part], log.right[part])


def replay_columns(
    working: WorkingMatrix,
    log: TransformLog,
    steps: range,
    touched: Array,
    panel: Array,
    first: int = 0,
) -> None:
    """Apply the row rotations to all columns, then put the touched ones (ascending) in place.

    `working` holds the columns `first` and on of all.
    """
    part = slice(steps.start, steps.stop)
    rotates = log.pairs[part, 1] < log.n_features
    rows, factors = log.pairs[part][rotates], log.left[part][rotates]
    for start, stop, block in working.sweep():
        replay_rows(block, stop - start, rows, factors)
    working.scatter(touched - first, panel)
