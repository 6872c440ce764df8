"""Components of disjoint supports, for which orthogonality costs nothing.

``sum_j u_j^T A u_j`` over unit vectors of disjoint supports, at most K nonzeros in all, by
generalised power steps (Journee, Nesterov, Richtarik and Sepulchre, "Generalized power method for
sparse principal component analysis", Journal of Machine Learning Research 11, 2010): with
``Y = A U``, each feature goes to the component where it adds most to ``sum_j |Y_j|`` on the
supports, ``Y[r, j]^2 / c_j`` to first order, ``c_j`` the norm of ``Y_j`` on its present support.
"""

import numpy as np

from streamsvd.arrays import Array
from streamsvd.refinement.covariance import Covariance
from streamsvd.refinement.pattern import Indices, Pattern

STEPS, TOL = 60, 1e-5  # of the last budget
WAY_STEPS = 4  # of those on the way
SHRINK, LEVELS = 0.7, 6  # share of the features kept from one budget to the next; how often


def disjoint(
    cov: Covariance, rotated: Array, stds: Array, budget: int, cap: int
) -> tuple[Pattern, Array]:
    """From rotated loadings (n, p) whose scores have the standard deviations `stds` (p,)."""
    n, p = rotated.shape
    label, weight = _assigned(np.abs(rotated) * stds, min(n, p * cap), cap)
    values = _picked(rotated, label, weight)
    size, keep = float(n), min(SHRINK, (budget / n) ** (1.0 / LEVELS))
    while True:
        size = max(float(min(budget, n)), keep * size)
        steps = STEPS if size <= budget or size >= n else WAY_STEPS
        label, values = _power_steps(cov, label, values, p, int(size), cap, steps)
        if size <= budget or size >= n:
            break
    return _as_pattern(label, values, p)


def _as_pattern(label: Indices, values: Array, p: int) -> tuple[Pattern, Array]:
    rows = np.flatnonzero(values)
    pattern = Pattern((len(label), p), rows * p + label[rows])
    norms = np.sqrt(pattern.column_squares(values[rows]))
    return pattern, values[rows] / norms[pattern.col]


def _power_steps(
    cov: Covariance, label: Indices, values: Array, p: int, budget: int, cap: int, steps: int
) -> tuple[Indices, Array]:
    best, kept = -np.inf, (label, values)
    for _ in range(steps):
        pattern, unit = _as_pattern(label, values, p)
        product = cov.times(pattern, unit)
        on_support = product[pattern.row, pattern.col]
        explained = float(unit @ on_support)
        if len(pattern) <= budget:
            if explained <= best * (1.0 + TOL):
                break
            best, kept = explained, (label, values)
        norms = np.sqrt(np.bincount(pattern.col, on_support**2, p))
        norms = np.maximum(norms, np.finfo(float).tiny)
        label, weight = _assigned(np.abs(product) / np.sqrt(norms), budget, cap)
        values = _picked(product, label, weight)
    return kept


def _picked(product: Array, label: Indices, weight: Array) -> Array:
    """(n,) each feature's value where it weighs; a component without any gets a one."""
    n, p = product.shape
    values = np.where(weight > 0.0, product[np.arange(n), label], 0.0)
    sizes = np.bincount(label, np.abs(values), p)
    for c in np.flatnonzero(sizes <= np.finfo(float).tiny):
        values[label == c] = 0.0
        values[np.flatnonzero((label == c) & (weight > 0.0))[0]] = 1.0
    return values


def _assigned(score: Array, budget: int, cap: int) -> tuple[Indices, Array]:
    """Each feature's component of the largest `score` (n, p); the best `budget` of them weigh."""
    n, p = score.shape
    label = np.argmax(score, axis=1)
    weight = score[np.arange(n), label]
    stays = np.zeros(n, dtype=bool)  # the best feature of each component
    stays[_ranks(label, weight, p) == 0] = True
    for c in np.flatnonzero(np.bincount(label, minlength=p) == 0):
        best = int(np.argmax(np.where(stays, -1.0, score[:, c])))
        label[best], stays[best] = c, True
    weight = np.where(stays, 2.0 * weight.max(initial=0.0) + 1.0, weight)
    weight[_ranks(label, weight, p) >= cap] = 0.0
    if budget < n:
        weight[np.argsort(-weight, kind="stable")[budget:]] = 0.0
    return label, weight


def _ranks(label: Indices, weight: Array, p: int) -> Indices:
    """(n,) how many features of the same component weigh more."""
    order = np.lexsort((-weight, label))
    start = np.searchsorted(label[order], np.arange(p))
    ranks = np.empty(len(label), dtype=np.intp)
    ranks[order] = np.arange(len(label)) - start[label[order]]
    return ranks
