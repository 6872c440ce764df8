"""Bring a freshly ingested working matrix to where the log stands, in one pass.

The working matrix is a cache: the source and the log determine it. The columns that transforms
combine, together with the first `p`, are closed under the column rotations, and row rotations act
on each column alone. So the combined columns are gathered into a panel on which all transforms are
applied in order; then the row rotations go over all other columns. The same operations on the same
operands in the same order as in the run that wrote the log, hence the same bits: of pairs and of
block steps, whose logs know how each is done.
"""

from collections.abc import Callable

from streamsvd.algorithm.block_log import Log
from streamsvd.arrays import Array
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.progress import Progress, progress_of_passes


def replay(working: WorkingMatrix, log: Log, panel_bytes: int, progress: Progress = False) -> None:
    """Apply the transforms of `log` to `working`, which holds the ingested source.

    The panel takes at most about `panel_bytes`: where more columns are combined, the log is
    replayed in stretches, a pass over the working matrix each.
    """
    room = max(panel_bytes // (working.n_features * working.dtype.itemsize), log.least_room)
    stretches: list[range] = []
    while (start := stretches[-1].stop if stretches else 0) < len(log):
        stretches.append(range(start, log.stretch(start, room)))
    bar = progress_of_passes(progress, "replay", working.n_samples, len(stretches))
    with bar as advance:
        for steps in stretches:
            columns = log.combined(steps)
            panel = working.gather(columns)
            log.replay_combined(panel, columns, steps)
            replay_columns(working, log, steps, columns, panel, on_samples=advance)


def replay_columns(
    working: WorkingMatrix,
    log: Log,
    steps: range,
    columns: Array,
    panel: Array,
    first: int = 0,
    on_samples: Callable[[int], None] = lambda n: None,
) -> None:
    """Apply the row rotations to all columns, then put the combined ones (ascending) in place.

    `working` holds the columns `first` and on of all.
    """
    log.replay_rows(working, first, steps, on_samples)
    working.scatter(columns - first, panel)
