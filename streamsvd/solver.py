"""Algorithm 1 of the paper, as one loop."""

from collections.abc import Callable, Iterator

import numpy as np

from streamsvd.coordinator import Coordinator
from streamsvd.executor import Executor
from streamsvd.transforms import TransformLog


def algorithm_1(
    coordinator: Coordinator,
    executor: Executor,
    log: TransformLog,
    n_transforms: int,
    threshold: float = 0.0,
    picks: Iterator[tuple[int, int, float, float]] | None = None,
    after_step: Callable[[], bool] = lambda: False,
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
    picks : iterator of (i, j, score, value), optional
        Pairs given from outside (random selection) instead of the best ones.
    after_step : callable
        Called after each transform; True asks to stop.

    Returns
    -------
    str
        Why it ended: ``"n_transforms"``, ``"converged"`` or ``"stopped"``.
    """
    for _ in range(len(log), n_transforms):
        i, j, score, value = coordinator.best() if picks is None else next(picks)
        if score <= threshold:
            return "converged"
        g, h = log.next_factors()
        coordinator.factors(i, j, value, g, h)  # M = G S H^T
        column = coordinator.rotate(i, j, g, h)  # X <- G^T X H, in the leading columns
        reports = executor.broadcast("apply", i, j, g, h, column)  # and in all others
        values = coordinator.update(i, j, reports)
        log.append(i, j, values)  # U <- U G, V <- V H
        if after_step():
            return "stopped"
    return "n_transforms"


def random_pairs(
    coordinator: Coordinator, executor: Executor, seed: int, first: int = 0
) -> Iterator[tuple[int, int, float, float]]:
    """Pairs of the paper's second baseline, without end: ``(i, j, inf, X[i, j])``.

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
            yield i, j, np.inf, value
        step += 1
    yield 0, 0, -np.inf, 0.0
