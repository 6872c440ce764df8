"""What no sparse components can explain: an upper bound, from the dual of a convex relaxation.

For orthonormal `U` (n x p) with at most `K` nonzeros, ``Z = U U^T`` has trace `p`, eigenvalues in
[0, 1] (it lies in the Fantope), and ``sum |Z_ij| <= K``, since ``|u|_1^2 <= k |u|_2^2`` for a
column with `k` nonzeros. So for any symmetric `M`

    trace(U^T A U) = <A - M, Z> + <M, Z> <= (sum of the p largest eigenvalues of A - M) + K max |M|

The best `M` solves the dual of "Fantope projection and selection" (Vu, Cho, Lei and Rohe, 2013;
for p = 1 d'Aspremont, El Ghaoui, Jordan and Lanckriet, 2007). Clipping `A` at the best level is a
first one; the scaled multiplier of the alternating direction method is a better one, whose level
goes where ``sum |Z_ij| = K``.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar

from streamsvd.arrays import Array
from streamsvd.system import one_blas_thread

LEVELS = 20  # at which clipping is tried
CHECK = 5  # steps between two bounds
STRENGTH = 0.7  # of a correction of the level, in logarithms
CORRECTION = 1.25  # the most of one


class Bound(NamedTuple):
    """An upper bound of ``trace(U^T A U)``."""

    energy: float
    """What no orthonormal components of so many nonzeros exceed; rounding is allowed for."""
    level: float
    """``max |M|``."""


class Posed(NamedTuple):
    """What is bounded."""

    matrix: Array
    """(m, m) `A`, of the features where ``A - M`` may be other than zero."""
    n_components: int
    """`p`."""
    max_nonzeros: int
    """`K`."""
    floor: float
    """What no entry of `A` beyond these features exceeds; there, `M` is `A`."""


@one_blas_thread
def upper_bound(
    matrix: Array, n_components: int, max_nonzeros: int, steps: int = 30, floor: float = 0.0
) -> Bound:
    """What orthonormal components with at most so many nonzeros in all explain at most.

    Parameters
    ----------
    matrix : (n, n) array
        `A`, symmetric positive semidefinite.
    n_components : int
        `p`.
    max_nonzeros : int
        `K`.
    steps : int
        Of the alternating direction method; 0 for clipping alone.
    floor : float
        Where `matrix` has only some of the features: the largest absolute value that any other
        entry of `A` may have.

    Notes
    -----
    Cost: some twenty times the `p` largest eigenvalues, and all of them for each step.
    """
    posed = Posed(matrix, min(n_components, len(matrix)), max_nonzeros, floor)
    best = _clipped(posed)
    if (
        steps and best.energy > 0.0
    ):  # a level that is worth a tenth of it, where clipping found none
        level = max(best.level, 0.1 * best.energy / max_nonzeros)
        best = min(best, _alternating(posed, level, steps))
    return best


def bound_of(posed: Posed, multiplier: Array) -> Bound:
    """The bound that a symmetric `M` proves.

    Computed eigenvalues of a symmetric matrix are off by at most a small multiple of `n` times the
    rounding unit times its norm (Weyl; LAPACK Users' Guide, section 4.7): that is added.
    """
    rest = posed.matrix - multiplier
    level = max(posed.floor, float(np.abs(multiplier).max(initial=0.0)))
    # beyond these features A - M has eigenvalues of zero
    energy = float(np.maximum(_largest(rest, posed.n_components), 0.0).sum())
    energy += posed.max_nonzeros * level
    rounding = 4.0 * posed.n_components * len(rest) * np.finfo(float).eps
    return Bound(energy * (1.0 + 1e-14) + rounding * float(np.linalg.norm(rest)), level)


def _largest(matrix: Array, p: int) -> Array:
    n = len(matrix)
    return np.asarray(eigh(matrix, subset_by_index=[n - p, n - 1], eigvals_only=True))


def _clipped(posed: Posed) -> Bound:
    """The best of clipping at a level, which the bound is convex in."""
    matrix = posed.matrix
    most = max(posed.floor, float(np.abs(matrix).max(initial=0.0)))

    def at(share: float) -> Bound:
        level = posed.floor + share * (most - posed.floor)
        return bound_of(posed, np.clip(matrix, -level, level))

    found = minimize_scalar(
        lambda share: at(share).energy,
        bounds=(0.0, 1.0),
        method="bounded",
        options={"maxiter": LEVELS},
    )
    return min(at(0.0), at(float(found.x)))


def _alternating(posed: Posed, level: float, steps: int) -> Bound:
    """The alternating direction method, at a level that follows ``sum |Z_ij|``."""
    matrix, p, budget = posed.matrix, posed.n_components, posed.max_nonzeros
    penalty = float(np.maximum(_largest(matrix, p), 0.0).sum()) / (2.0 * p)
    if penalty == 0.0:
        return Bound(np.inf, level)
    sparse, scaled = np.zeros_like(matrix), np.zeros_like(matrix)
    best = Bound(np.inf, level)
    for step in range(1, steps + 1):
        projected = _onto_fantope(sparse - scaled + matrix / penalty, p) + scaled
        scaled = np.clip(projected, -level / penalty, level / penalty)
        sparse = projected - scaled  # soft thresholding
        if step % CHECK == 0 or step == steps:
            best = min(best, bound_of(posed, penalty * scaled))
        if step % 3 == 0:
            share = float(np.abs(sparse).sum()) / budget
            level *= float(np.clip(share, 1 / CORRECTION, CORRECTION)) ** STRENGTH
            level = max(level, posed.floor)
    return best


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
