"""Refinement of sparse orthonormal components under one shared budget of nonzeros.

Maximise ``trace(U^T A U)`` over the ``n x p`` matrices with ``U^T U = I`` and at
most ``K`` nonzeros, from a feasible start, by three moves on all components at
once:

polish
    With the supports fixed, the feasible set is a smooth manifold.  Conjugate
    gradients along its tangent space, with an exact step for the quadratic
    model, and Newton's method back onto it: orthonormal to rounding each time.
grow
    Give nonzeros to the entries that promise most to first order, wherever they
    are: components compete for them.
shrink
    Take away the entries that cost least, a few at a time, polishing in between.

A cycle grows by 300, 100, 30 or 10 % of the budget and shrinks back to it; it is
kept only where the explained variance rose.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from streamsvd.arrays import Array
from streamsvd.refinement.pattern import Pattern
from streamsvd.system import one_blas_thread

GROWTH = (3.0, 1.0, 0.3, 0.1)  # growth of a cycle, in budgets


KEEP = 0.85  # share of the nonzeros kept by one step of shrinking


FIRST_CUT = 0.5  # share of the dense PCA kept by the first cut


STEPS, STEP_TOL = 5, 1e-5  # polishing within a cycle


LAST_STEPS, LAST_TOL = 100, 1e-9  # polishing of the answer


class Refined(NamedTuple):
    """Refined components, in no order."""

    components: sparse.csr_array
    """(p, n) the components as rows; orthonormal to rounding."""
    energies: Array
    """(p,) sum of squares of the scores of each component, ``x^T A x``."""


class _Answer(NamedTuple):
    """Components of shape (n, p), their explained variance, the rounds taken."""

    components: Array
    explained: float
    rounds: int


class _Point(NamedTuple):
    """A feasible point: a pattern, the values on it, the explained variance."""

    pattern: Pattern
    values: Array
    explained: float


@one_blas_thread
def refine_rows(
    gram: Array, rows: sparse.csr_array, max_nonzeros: int, cap: int | None = None
) -> Refined:
    """Refine the components `rows` (p, n) on ``A = X X^T`` within a budget of nonzeros.

    No component gets more than `cap` of them. Two starts: the given components, and the rotated
    PCA shrunk to the budget. With no zero asked for, the answer is PCA itself.
    """
    p, n = rows.shape
    if max_nonzeros >= p * n:  # nothing has to be zero: the answer is known
        vectors = eigh(gram, subset_by_index=[n - p, n - 1])[1]
        return _as_refined(gram, vectors)
    cap = n if cap is None else min(cap, n)
    starts = [rows.toarray().T]
    shrunk = shrunk_pca(gram, p, max_nonzeros, cap=cap)
    if shrunk is not None:
        starts.append(shrunk)
    return _as_refined(gram, refine_components(gram, starts, max_nonzeros, cap).components)


def _as_refined(gram: Array, components: Array) -> Refined:
    energies = np.einsum("rc,rc->c", components, gram @ components)
    return Refined(sparse.csr_array(components.T), energies)


@one_blas_thread
def refine_components(
    gram: Array,
    starts: Sequence[Array],
    max_nonzeros: int,
    cap: int,
    *,
    tol: float = 5e-5,
    max_rounds: int = 50,
) -> _Answer:
    """Raise the explained variance of sparse orthonormal components.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Symmetric positive semidefinite ``X X^T``.
    starts : sequence of ndarray of shape (n, p)
        Orthonormal components within the budget.  Each is taken through one
        round; the best goes on.  The answer explains at least as much as any.
    max_nonzeros : int
        Budget of nonzeros for all components together.
    cap : int
        The most nonzeros of one component.
    tol : float
        Stop when a round gains less than this share of the explained variance.
    max_rounds : int
        Upper bound on the number of rounds.

    Returns
    -------
    _Answer
        The best components found; orthonormal to rounding, exactly sparse.
    """
    gram, unit = _in_range(gram)
    best: _Answer | None = None
    first: _Point | None = None
    for start in starts:
        kept = float(np.vdot(start, gram @ start))
        if best is None or kept > best.explained:
            best = _Answer(start, kept, 0)
        point = _enter(gram, start)
        if point is not None:
            point = _round(gram, point, max_nonzeros, cap)
            if first is None or point.explained > first.explained:
                first = point
    if best is None:
        raise ValueError("refinement needs at least one start")
    if first is None:
        return best._replace(explained=best.explained * unit)
    point, rounds = first, 1
    while rounds < max_rounds:
        before = point.explained
        point = _round(gram, point, max_nonzeros, cap)
        rounds += 1
        if point.explained - before <= tol * before:
            break
    point = _polish(gram, point.pattern, point.values, LAST_STEPS, LAST_TOL)
    if point.explained > best.explained:
        dense = point.pattern.dense(point.values)
        best = _Answer(dense, point.explained, rounds)
    return best._replace(explained=best.explained * unit)


@one_blas_thread
def shrunk_pca(
    gram: Array,
    n_components: int,
    max_nonzeros: int,
    vectors: Array | None = None,
    cap: int | None = None,
) -> Array | None:
    """Sparse components by shrinking a rotated PCA, a second start.

    Any rotation of the leading eigenvectors explains as much; varimax takes
    the one whose entries are most uneven, and shrinking does the rest.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Symmetric positive semidefinite ``X X^T``.
    n_components : int
        Number of components ``p``.
    max_nonzeros : int
        Budget of nonzeros for all components together, at least ``p``.
    vectors : ndarray of shape (n, p), optional
        The leading eigenvectors of ``gram``, where they are known already.
    cap : int, optional
        The most nonzeros of one component.

    Returns
    -------
    ndarray of shape (n, p) or None
        Orthonormal components, or None where the budget is too small for the
        way down to stay feasible.
    """
    n = len(gram)
    gram, _ = _in_range(gram)
    if vectors is None:
        _, vectors = eigh(gram, subset_by_index=[n - n_components, n - 1])
    pattern = Pattern(np.ones((n, n_components), dtype=bool))
    point = _polish(gram, pattern, _varimax(vectors).ravel(), 0, STEP_TOL)
    cut = max(max_nonzeros, int(FIRST_CUT * n * n_components))
    for budget, keep, most in ((cut, 0.0, n), (max_nonzeros, KEEP, n if cap is None else cap)):
        shrunk = _shrink(gram, point, budget, keep, most)
        if shrunk is None:
            return None
        point = shrunk
    return point.pattern.dense(point.values)


# ---------------------------------------------------------------- the moves


def _in_range(gram: Array) -> tuple[Array, float]:
    """The matrix over a power of two, where squares would leave float64."""
    _, exponent = np.frexp(np.max(np.diag(gram)))
    if abs(int(exponent)) < 200:
        return gram, 1.0
    return np.ldexp(gram, -exponent), float(np.ldexp(1.0, exponent))


def _enter(gram: Array, start: Array) -> _Point | None:
    pattern = Pattern(_separate(start, start != 0.0))
    values = pattern.retract(pattern.pick(start))
    if values is None:
        return None
    return _polish(gram, pattern, values, STEPS, STEP_TOL)


def _round(gram: Array, point: _Point, budget: int, cap: int) -> _Point:
    for share in GROWTH:
        room = budget - len(point.values)
        grown = _grow(gram, point, max(1, int(share * budget)) + room)
        cycled = _shrink(gram, grown, budget, KEEP, cap)
        if cycled is not None and cycled.explained > point.explained:
            point = cycled
    return point


def _curvature(gram: Array, energies: Array) -> Array:
    """``energy_c - A[r, r]``, kept positive: what an entry (r, c) costs squared."""
    scale = energies.max(initial=0.0)
    floor = np.maximum(0.05 * energies, 1e-12 * scale + np.finfo(float).tiny)
    return np.maximum(energies - np.diag(gram)[:, None], floor)


def _grow(gram: Array, point: _Point, count: int) -> _Point:
    pattern, values, _ = point
    dense = pattern.dense(values)
    product = gram @ dense
    moments = pattern.moments(values)
    _, multipliers = pattern.project(values, moments, pattern.pick(product))
    residual = product - dense @ multipliers
    promise = residual**2 / _curvature(gram, np.einsum("rc,rc->c", dense, product))
    promise[pattern.mask] = 0.0
    chosen = np.argsort(-promise, axis=None, kind="stable")[:count]
    mask = pattern.mask.copy()
    mask.flat[chosen[promise.flat[chosen] > 0.0]] = True
    grown = Pattern(mask)
    return _polish(gram, grown, grown.pick(dense), STEPS, STEP_TOL)


def _shrink(gram: Array, point: _Point, budget: int, keep: float, cap: int) -> _Point | None:
    """Down to `budget` nonzeros in all and `cap` in each component; None where that cannot be."""
    while True:
        pattern, values, _ = point
        sizes = np.bincount(pattern.col, minlength=pattern.p)
        if len(values) <= budget and sizes.max() <= cap:
            return point
        energies = np.bincount(pattern.col, values * pattern.product(gram, values), pattern.p)
        loss = values**2 * pattern.pick(_curvature(gram, energies))
        dense = pattern.dense(values)
        loss[pattern.find(np.argmax(np.abs(dense), axis=0))] = np.inf
        order = np.argsort(loss, kind="stable")
        drop = max(0, len(values) - max(budget, int(keep * len(values))))
        must = _beyond(pattern.col, order, np.maximum(cap, (keep * sizes).astype(int)))
        order = np.concatenate([order[must], order[~must]])
        drop = max(drop, int(must.sum()))
        while True:
            mask = pattern.mask.copy()
            mask[pattern.row[order[:drop]], pattern.col[order[:drop]]] = False
            smaller = Pattern(_separate(dense, mask))
            feasible = smaller.retract(smaller.pick(dense))
            if feasible is not None:
                break
            if drop <= 1:
                return None
            drop //= 2
        point = _polish(gram, smaller, feasible, STEPS, STEP_TOL)


def _beyond(col: Array, order: Array, most: Array) -> NDArray[np.bool_]:
    """Which entries, in this `order`, have as many as `most` of their column after them."""
    by_column = np.argsort(col[order], kind="stable")
    counts = np.bincount(col, minlength=len(most))
    ends = np.cumsum(counts)
    after = np.repeat(ends, counts) - 1 - np.arange(len(order))
    beyond = np.empty(len(order), dtype=bool)
    beyond[by_column] = after >= np.repeat(most, counts)
    return beyond


def _separate(dense: Array, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Drop the smaller entry where two supports meet in a single row.

    Orthogonality then asks for a zero there, and the feasible set has a corner
    that Newton's method cannot cross.
    """
    mask = mask.copy()
    while True:
        counts = mask.astype(np.float64)
        left, right = np.nonzero(np.triu(counts.T @ counts == 1.0, 1))
        if not len(left):
            return mask
        for a, b in zip(left, right, strict=True):
            shared = np.flatnonzero(mask[:, a] & mask[:, b])
            if len(shared) == 1:  # an earlier drop may have parted them
                r = shared[0]
                mask[r, a if abs(dense[r, a]) < abs(dense[r, b]) else b] = False


def _polish(gram: Array, pattern: Pattern, values: Array, steps: int, tol: float) -> _Point:
    """Conjugate gradients on the orthonormal matrices with this pattern."""
    product = pattern.product(gram, values)
    explained = float(values @ product)
    previous: tuple[Array, Array] | None = None
    for _ in range(steps):
        moments = pattern.moments(values)
        gradient, multipliers = pattern.project(values, moments, product)
        slope = float(gradient @ gradient)
        if slope <= 1e-30 * explained**2:
            break
        direction = gradient
        if previous is not None:
            old_gradient, old_direction = previous
            turn = gradient @ (gradient - old_gradient) / (old_gradient @ old_gradient)
            carried, _ = pattern.project(values, moments, old_direction)
            direction = gradient + max(0.0, float(turn)) * carried
            if direction @ gradient <= 0.0:
                direction = gradient
        bend = direction @ pattern.combine(direction, multipliers)
        bend -= direction @ pattern.product(gram, direction)
        longest = np.sqrt(pattern.column_squares(direction).max())
        step = 0.5 / longest  # no column turns by more than about half a radian
        if bend > 0.0:
            step = min(step, float(direction @ gradient) / float(bend))
        for _ in range(6):
            trial = pattern.retract(values + step * direction)
            if trial is not None:
                trial_product = pattern.product(gram, trial)
                trial_explained = float(trial @ trial_product)
                if trial_explained > explained:
                    break
            step /= 3.0
        else:
            break
        gain = trial_explained - explained
        values, product, explained = trial, trial_product, trial_explained
        previous = gradient, direction
        if gain <= tol * explained:
            break
    return _Point(pattern, values, explained)


def _varimax(vectors: Array, max_iter: int = 200, tol: float = 1e-7) -> Array:
    rotation = np.eye(vectors.shape[1])
    reached = 0.0
    for _ in range(max_iter):
        loadings = vectors @ rotation
        target = loadings**3 - loadings * np.mean(loadings**2, axis=0)
        left, sizes, right = np.linalg.svd(vectors.T @ target)
        rotation = left @ right
        if sizes.sum() <= reached * (1.0 + tol):
            break
        reached = sizes.sum()
    return vectors @ rotation
