"""Algorithm 1 of the paper, as one loop."""

from collections.abc import Callable, Iterator

import numpy as np

from streamsvd.algorithm.coordinator import Coordinator
from streamsvd.algorithm.log import TransformLog
from streamsvd.algorithm.seam import Executor
from streamsvd.matrix.partition import Partition


def algorithm_1(
    coordinator: Coordinator,
    executor: Executor,
    log: TransformLog,
    n_transforms: int,
    threshold: float = 0.0,
    batch_size: int = 1,
    picks: Iterator[tuple[int, int, float]] | None = None,
    after_step: Callable[[int], bool] = lambda count: False,
) -> str:
    """Rotate the working matrix until `n_transforms` transforms are logged.

    Parameters
    ----------
    coordinator, executor
        The state that picks, and the columns that are rewritten.
    log : TransformLog
        Continued at its end.
    threshold : float
        Stop when the best score is not above it.
    batch_size : int
        Pairs that are picked at a time, from one state. They share no index, so none changes the
        2x2 block of another; the paper's algorithm has 1.
    picks : iterator of (i, j, value), optional
        Pairs given from outside (random selection) instead of the best ones, and ``X[i, j]`` where
        ``j >= n``.
    after_step : callable
        Called with the number of transforms after each batch; True asks to stop.

    Returns
    -------
    str
        Why it ended: ``"n_transforms"``, ``"converged"`` or ``"stopped"``.
    """
    while len(log) < n_transforms:
        if picks is None:
            moves = coordinator.best(min(batch_size, n_transforms - len(log)), threshold)
        else:
            moves = coordinator.given(next(picks, None))
        count = len(moves.pairs)
        if not count:
            return "converged"
        pairs, _, g, h, _ = moves
        coordinator.factor(moves)  # M = G S H^T
        columns = coordinator.rotate(moves)  # X <- G^T X H, in the leading columns
        reports = executor.broadcast(Partition.apply, pairs, g, h, columns)  # and in all others
        coordinator.update(moves, reports)
        log.append(moves)  # U <- U G, V <- V H
        if after_step(count):
            return "stopped"
    return "n_transforms"


def random_pairs(
    coordinator: Coordinator, executor: Executor, seed: int, first: int = 0
) -> Iterator[tuple[int, int, float]]:
    """Pairs of the paper's second baseline, without end: ``(i, j, X[i, j])``.

    `i` is uniform below `p`, and `j` above `i` uniform below `N` and below `n` in turn. The same
    for any chunking; a run of more steps begins alike, and one that goes on from step `first` draws
    what came before again.
    """
    random = np.random.default_rng(seed)
    p, n, n_samples = coordinator.n_components, coordinator.n_features, coordinator.n_samples
    last = max(n, n_samples)
    limits = (n_samples, n)
    step = 0
    while last > 1:
        i = int(random.integers(min(p, last - 1)))
        limit = limits[step % 2]
        j = int(random.integers(i + 1, limit if limit > i + 1 else last))
        if step >= first:
            # zero where column j is not held
            value = sum(executor.broadcast(Partition.entry, i, j)) if j >= n else 0.0
            yield i, j, value
        step += 1
