"""Replay of block steps, as `streamsvd.algorithm.replay` of pairs."""

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvd.algorithm.block_log import BlockLog
from streamsvd.algorithm.block_steps import rotate_panel
from streamsvd.arrays import Array
from streamsvd.matrix.tiled import RowProduct, TiledColumns
from streamsvd.matrix.working import WorkingMatrix


def replay_blocks(working: WorkingMatrix, log: BlockLog, panel_bytes: int) -> None:
    """Apply the steps of `log` to `working`, which holds the ingested source.

    As `streamsvd.algorithm.replay` does with pairs: the touched columns in a panel of at most about
    `panel_bytes`, then all others, a pass over the working matrix each time the panel is full. The
    same bits as in the run that wrote the log, since products are on the same tiles.
    """
    column = working.n_features * working.dtype.itemsize
    room = max(panel_bytes // column, log.width)
    start = 0
    while start < len(log):
        stop, touched = _stretch(log, start, room)
        _replay_stretch(working, log, range(start, stop), touched)
        start = stop


def touched_columns(log: BlockLog, steps: range) -> Array:
    """The columns that some steps of the log combine, and the first `p`; ascending."""
    indices = [log.step(k)[0] for k in steps]
    touched = np.unique(np.concatenate([np.arange(log.n_components), *indices]))
    return touched[touched < log.n_samples]


def _stretch(log: BlockLog, start: int, room: int) -> tuple[int, Array]:
    """Where to stop so that the steps from `start`, one at least, touch at most `room` columns."""
    touched = np.empty(0, dtype=np.int64)
    for k in range(start, len(log)):
        indices, _, h = log.step(k)
        more = np.union1d(touched, indices[: len(h)])
        if k > start and len(more) > room:
            return k, touched
        touched = more
    return len(log), touched


def _replay_stretch(working: WorkingMatrix, log: BlockLog, steps: range, touched: Array) -> None:
    panel = working.gather(touched)
    replay_touched(panel, touched, log, steps)
    replay_columns(working, log, steps, touched, panel)


@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator]  # same bits
def replay_touched(panel: Array, touched: Array, log: BlockLog, steps: range) -> None:
    """Apply some steps to the columns that they combine, (n, any), in place."""
    columns = TiledColumns([panel], [panel], 0, panel.shape[1])
    for k in steps:
        indices, g, h = log.step(k)
        places = np.searchsorted(touched, indices[: len(h)])
        stepped = rotate_panel(panel[:, places], indices, g, h)
        RowProduct(indices[: len(g)], g, columns).on_panel(panel, touched)
        panel[:, places] = stepped


@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator]  # same bits
def replay_columns(
    working: WorkingMatrix,
    log: BlockLog,
    steps: range,
    touched: Array,
    panel: Array,
    first: int = 0,
) -> None:
    """Multiply the rows of all columns, then put the touched ones (ascending) in place.

    `working` holds the columns `first` and on of all.
    """
    columns = TiledColumns(working.blocks, working.blocks, first, first + working.n_samples)
    products = []
    for k in steps:
        indices, g, _ = log.step(k)
        products.append(RowProduct(indices[: len(g)], g, columns))
    opened, blocks = first, working.sweep()
    for lo, hi, at in columns.tiles():
        while opened < hi:  # a tile can begin in the block before: read again then
            next(blocks)
            opened += working.width
        for product in products:
            product.on_tile(lo, hi, at)
    next(blocks, None)
    working.scatter(touched - first, panel)
