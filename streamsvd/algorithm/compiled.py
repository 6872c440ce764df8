"""Algorithm 1 where all of it is in this process: the loop of `algorithm_1`, compiled whole."""

import time
from collections.abc import Callable

from streamsvd.algorithm.algorithm_1 import algorithm_1
from streamsvd.algorithm.coordinator import Coordinator
from streamsvd.algorithm.log import Moves, TransformLog
from streamsvd.algorithm.seam import SerialExecutor
from streamsvd.kernels.jit import is_compiled
from streamsvd.kernels.steps import make_transforms
from streamsvd.matrix.partition import Partition

FEW = 10_000
"""Transforms that a process makes by the loop in Python, at 20 microseconds more each, before it
spends the seconds that the compiled one takes to compile, once on a machine."""

SECONDS = 0.05
"""How long to stay away: from progress, checkpoints and whoever asks to stop."""

_made = 0


def algorithm_1_here(
    coordinator: Coordinator,
    partition: Partition,
    log: TransformLog,
    n_transforms: int,
    threshold: float = 0.0,
    batch_size: int = 1,
    after_step: Callable[[int], bool] = lambda count: False,
) -> str:
    """As `algorithm_1`, with the same bits; `partition` holds all columns.

    Not for pairs from outside. `after_step` is called after as many batches as take `SECONDS`.
    """
    index, fill = coordinator.index, coordinator.fill
    how = (coordinator.selection, coordinator.n_samples, coordinator.symmetric, threshold)
    arguments = (partition.blocks, index, fill, *how, 1, *Moves.room(1))
    if _made < FEW and not is_compiled(make_transforms, arguments):
        asked = False

        def after(count: int) -> bool:
            global _made
            nonlocal asked
            _made += count
            asked = after_step(count)
            return asked or _made >= FEW

        executor = SerialExecutor([partition])
        why = algorithm_1(
            coordinator, executor, log, n_transforms, threshold, batch_size, after_step=after
        )
        if asked or why != "stopped":
            return why
    batches = 1
    while (left := n_transforms - len(log)) > 0:
        batch = min(batch_size, left)
        moves = Moves.room(min(batches, left // batch) * batch)
        began = time.perf_counter()
        count = make_transforms(partition.blocks, index, fill, *how, batch, *moves)
        took = time.perf_counter() - began
        if not count:
            return "converged"
        log.append(moves.first(count))
        if after_step(count):
            return "stopped"
        batches = 2 * batches if took < SECONDS / 2 else max(1, batches // 2)
    return "n_transforms"
