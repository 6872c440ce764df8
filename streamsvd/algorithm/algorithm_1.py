"""Algorithm 1 of the paper, as one loop."""

from collections.abc import Callable, Iterator

import numpy as np

from streamsvd.algorithm.coordinator import Coordinator
from streamsvd.algorithm.log import TransformLog
from streamsvd.algorithm.seam import Executor
from streamsvd.arrays import Array


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
    tails = np.empty(batch_size)  # X[i, j] of pairs beyond the rows
    while len(log) < n_transforms:
        pairs, left, right, values = log.draft(min(batch_size, n_transforms - len(log)))
        if picks is None:
            count = coordinator.best(pairs, tails, threshold)
        else:
            count = _take(picks, pairs, tails)
        if not count:
            return "converged"
        if count < len(pairs):
            pairs, left, right, values = log.draft(count)
        coordinator.factors(pairs, tails, left, right)  # M = G S H^T
        columns = coordinator.rotate(pairs, left, right)  # X <- G^T X H, in the leading columns
        reports = executor.broadcast("apply", pairs, left, right, columns)  # and in all others
        coordinator.update(pairs, reports, values)
        log.append(count)  # U <- U G, V <- V H
        if after_step(count):
            return "stopped"
    return "n_transforms"


def _take(picks: Iterator[tuple[int, int, float]], pairs: Array, tails: Array) -> int:
    """Write the next pair, as `Coordinator.best` does; the number written, 0 at the end."""
    pick = next(picks, None)
    if pick is None:
        return 0
    pairs[0, 0], pairs[0, 1], tails[0] = pick
    return 1


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
            value = sum(executor.broadcast("entry", i, j)) if j >= n else 0.0
            yield i, j, value
        step += 1
