"""Bring a freshly ingested working matrix to where the log stands, in one pass.

The working matrix is a cache: the source and the log determine it. The columns that transforms
combine, together with the first `p`, are closed under the column rotations, and row rotations act
on each column alone. So the combined columns are gathered into a panel on which all transforms are
applied in order; then the row rotations go over all other columns. The same operations on the same
operands in the same order as in the run that wrote the log, hence the same bits: of pairs and of
block steps, whose logs know how each is done.
"""

from streamsvd.algorithm.block_log import Log
from streamsvd.arrays import Array
from streamsvd.matrix.working import WorkingMatrix


def replay(working: WorkingMatrix, log: Log, panel_bytes: int) -> None:
    """Apply the transforms of `log` to `working`, which holds the ingested source.

    The panel takes at most about `panel_bytes`: where more columns are combined, the log is
    replayed in stretches, a pass over the working matrix each.
    """
    room = max(panel_bytes // (working.n_features * working.dtype.itemsize), log.least_room)
    start = 0
    while start < len(log):
        stop = log.stretch(start, room)
        steps = range(start, stop)
        columns = log.combined(steps)
        panel = working.gather(columns)
        log.replay_combined(panel, columns, steps)
        replay_columns(working, log, steps, columns, panel)
        start = stop


def replay_columns(
    working: WorkingMatrix, log: Log, steps: range, columns: Array, panel: Array, first: int = 0
) -> None:
    """Apply the row rotations to all columns, then put the combined ones (ascending) in place.

    `working` holds the columns `first` and on of all.
    """
    log.replay_rows(working, first, steps)
    working.scatter(columns - first, panel)
