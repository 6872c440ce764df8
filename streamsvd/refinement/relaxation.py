"""What no sparse components can explain, and where to look for good ones: a convex relaxation.

For orthonormal `U` (n x p) with at most `K` nonzeros, ``Z = U U^T`` has trace `p`, eigenvalues in
[0, 1] (it lies in the Fantope), and ``sum |Z_ij| <= K``, since ``|u|_1^2 <= k |u|_2^2`` for a
column with `k` nonzeros. So for any symmetric `M`

    trace(U^T A U) = <A - M, Z> + <M, Z> <= (sum of the p largest eigenvalues of A - M) + K max |M|

The best `M` solves the dual of "Fantope projection and selection" (Vu, Cho, Lei and Rohe, 2013;
for p = 1 d'Aspremont, El Ghaoui, Jordan and Lanckriet, 2007). Clipping `A` at the best level is a
first one; the scaled multiplier of the alternating direction method is a better one, whose level
goes where ``sum |Z_ij| = K``. The leading eigenvectors of its `Z` are near sparse components.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from streamsvd.arrays import Array
from streamsvd.system import one_blas_thread

LEVELS = 20  # at which clipping is tried, at most
CHECK = 5  # steps between two bounds
FOLLOW = 3  # steps between two corrections of the level
STRENGTH = 0.7  # of a correction, in logarithms
CORRECTION = 1.25  # the most of one
OVER = 1.6  # over-relaxation: Boyd et al., "Distributed optimization ...", 2011, section 3.4.3
LOWEST = 0.1  # of what is explained, that a level is worth at first


class Bound(NamedTuple):
    """An upper bound of ``trace(U^T A U)``."""

    energy: float
    """What no orthonormal components of so many nonzeros exceed; rounding is allowed for."""
    level: float
    """``max |M|``."""


class Posed(NamedTuple):
    """What is bounded."""

    matrix: Array
    """(m, m) `A`, of the features that have entries above `floor` beside the diagonal."""
    n_components: int
    """`p`."""
    max_nonzeros: int
    """`K`."""
    floor: float = 0.0
    """What no other entry of `A` exceeds, but for the diagonal; there, `M` is `A`."""
    others: Array = np.zeros(0)
    """Diagonal of `A` at the other features; there, `M` is clipped."""


class Relaxed(NamedTuple):
    """What the relaxation says."""

    bound: Bound
    vectors: Array | None
    """(m, p) the leading eigenvectors of its `Z`."""


AfterStep = Callable[[int, int], None]
"""Told of each step: its number, from 1, and how many there are."""


def unwatched(step: int, steps: int) -> None:
    """Nobody is told."""


@one_blas_thread
def relax(posed: Posed, steps: int, after_step: AfterStep = unwatched) -> Relaxed:
    """The best bound of clipping and of so many steps of the alternating direction method.

    Notes
    -----
    Cost: some twenty times the `p` largest eigenvalues, and all of them for each step; memory:
    eight m x m matrices.
    """
    best = _clipped(posed)
    if steps == 0 or best.energy <= 0.0:
        return Relaxed(best, None)
    # clipping may find no level at all: one that is worth something
    level = max(best.level, LOWEST * best.energy / posed.max_nonzeros)
    found = _alternating(posed, level, steps, after_step)
    return found._replace(bound=min(best, found.bound))


def bound_of(posed: Posed, multiplier: Array) -> Bound:
    """The bound that a symmetric `M` proves.

    Computed eigenvalues of a symmetric matrix are off by at most a small multiple of `m` times the
    rounding unit times its norm (Weyl; LAPACK Users' Guide, section 4.7): that is added.
    """
    rest = posed.matrix - multiplier
    level = max(posed.floor, float(np.abs(multiplier).max(initial=0.0)))
    energy = most_energy(_largest(rest, posed.n_components), level, posed)
    rounding = 4.0 * posed.n_components * len(rest) * np.finfo(float).eps
    return Bound(energy + rounding * float(np.linalg.norm(rest)), level)


def most_energy(largest: Array, level: float, posed: Posed) -> float:
    """The bound, from the largest eigenvalues of ``A - M`` on the features in question."""
    found = np.concatenate([largest, posed.others - level])
    p = min(posed.n_components, len(found))
    energy = float(np.maximum(np.partition(found, -p)[-p:], 0.0).sum())
    return (energy + posed.max_nonzeros * level) * (1.0 + 1e-14)


def _largest(matrix: Array, p: int) -> Array:
    n = len(matrix)
    if n == 0:
        return np.zeros(0)
    return np.asarray(eigh(matrix, subset_by_index=[max(n - p, 0), n - 1], eigvals_only=True))


def _clipped(posed: Posed) -> Bound:
    """The best of clipping at a level, which the bound is convex in."""
    matrix = posed.matrix
    most = float(np.abs(matrix).max(initial=posed.others.max(initial=posed.floor)))
    return best_level(
        lambda level: bound_of(posed, np.clip(matrix, -level, level)), posed.floor, most
    )


def best_level(
    at: Callable[[float], Bound], least: float, most: float, near: float = 0.01
) -> Bound:
    """The best of the bounds at levels from `least` to `most`, of which low ones are likely."""
    from scipy.optimize import minimize_scalar  # slow, and not needed by every fit

    tried = [at(least)]

    def energy(root: float) -> float:
        tried.append(at(least + root**3 * (most - least)))
        return tried[-1].energy

    minimize_scalar(
        energy, bounds=(0.0, 1.0), method="bounded", options={"maxiter": LEVELS, "xatol": near}
    )
    return min(tried)


def _alternating(posed: Posed, level: float, steps: int, after_step: AfterStep) -> Relaxed:
    """The alternating direction method, at a level that follows ``sum |Z_ij|``."""
    matrix, p = posed.matrix, min(posed.n_components, len(posed.matrix))
    best = Bound(np.inf, level)
    penalty = float(np.maximum(_largest(matrix, p), 0.0).mean()) if p else 0.0
    if penalty == 0.0:
        return Relaxed(best, None)
    sparse, scaled = np.zeros_like(matrix), np.zeros_like(matrix)
    for step in range(1, steps + 1):
        projected = _onto_fantope(sparse - scaled + matrix / penalty, p)
        projected = OVER * projected + (1.0 - OVER) * sparse + scaled
        scaled = np.clip(projected, -level / penalty, level / penalty)
        sparse = projected - scaled  # soft thresholding
        if step % CHECK == 0 or step == steps:
            best = min(best, bound_of(posed, penalty * scaled))
        if step % FOLLOW == 0:
            share = float(np.abs(sparse).sum()) / posed.max_nonzeros
            level *= float(np.clip(share, 1 / CORRECTION, CORRECTION)) ** STRENGTH
            level = max(level, posed.floor)
        after_step(step, steps)
    _, vectors = eigh(sparse, subset_by_index=[len(matrix) - p, len(matrix) - 1])
    return Relaxed(best, vectors)


def _onto_fantope(matrix: Array, p: int) -> Array:
    """The nearest matrix with eigenvalues in [0, 1] that sum to `p`."""
    values, vectors = eigh(matrix)
    low, high = values[0] - 1.0, values[-1]
    for _ in range(60):
        shift = 0.5 * (low + high)
        if np.clip(values - shift, 0.0, 1.0).sum() > p:
            low = shift
        else:
            high = shift
    weights = np.clip(values - low, 0.0, 1.0)
    kept = weights > 0.0
    return (vectors[:, kept] * weights[kept]) @ vectors[:, kept].T
