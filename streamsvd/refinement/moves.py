"""The three moves on all components at once: polish, grow, shrink."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.refinement.covariance import Covariance
from streamsvd.refinement.pattern import DIRECT, Indices, Mask, Multipliers, Pattern

KEEP = 0.85  # share of the nonzeros kept by one step of shrinking
STEPS, STEP_TOL = 5, 1e-5  # polishing within a cycle
WAY_STEPS = 5  # polishing on the way down
FREE = 400  # constraints among which new entries find their way
GOAL = 1e-10  # defect of orthonormality within a cycle


class Goal(NamedTuple):
    """What is to be maximised, and within what."""

    cov: Covariance
    diagonal: Array
    """(n,) of the covariance."""
    budget: int
    """Nonzeros of all components together."""
    cap: int
    """The most nonzeros of one component."""
    told: Callable[[float], None] = lambda explained: None
    """Hears of each cycle, and what is explained after it."""


class Point(NamedTuple):
    """A feasible point: a pattern, the values on it, the explained variance."""

    pattern: Pattern
    values: Array
    explained: float


def enter(
    cov: Covariance, pattern: Pattern, values: Array, steps: int = STEPS, tol: float = STEP_TOL
) -> Point | None:
    """A point near `values` (any), polished; None where orthonormality cannot be had there."""
    pattern, values = separate(pattern, values)
    feasible = pattern.retract(values, goal=GOAL)
    if feasible is None:
        return None
    return polish(cov, pattern, feasible, steps, tol)


def separate(pattern: Pattern, values: Array) -> tuple[Pattern, Array]:
    """Drop the smaller entry where two supports meet in a single row.

    Orthogonality then asks for a zero there, and the feasible set has a corner that Newton's
    method cannot cross.
    """
    while True:
        a, b = np.nonzero(np.triu(pattern.common == 1.0, 1))
        if len(a) == 0:
            return pattern, values
        rows = pattern.cross(pattern.row.astype(np.float64), np.ones(len(pattern)))[a, b]
        first = np.searchsorted(pattern.listed, rows.astype(np.intp) * pattern.p + a)
        second = np.searchsorted(pattern.listed, rows.astype(np.intp) * pattern.p + b)
        kept = np.ones(len(pattern), dtype=bool)
        kept[np.where(np.abs(values[first]) < np.abs(values[second]), first, second)] = False
        pattern, values = pattern.keep(kept), values[kept]


def polish(cov: Covariance, pattern: Pattern, values: Array, steps: int, tol: float) -> Point:
    """Conjugate gradients on the orthonormal matrices with this pattern.

    The step is exact for the quadratic model; the explained variance never falls.
    """
    entries = cov.entries(pattern)
    product = entries(values)
    explained = float(values @ product)
    previous: tuple[Array, Array] | None = None
    for _ in range(steps):
        solver = pattern.solver(values)
        gradient, multipliers = project(pattern, values, solver, product)
        slope = float(gradient @ gradient)
        if slope <= 1e-30 * explained**2:
            break
        direction = gradient
        if previous is not None:
            old_gradient, old_direction = previous
            turn = gradient @ (gradient - old_gradient) / (old_gradient @ old_gradient)
            if turn > 0.0:
                carried, _ = project(pattern, values, solver, old_direction)
                direction = gradient + turn * carried
            if direction @ gradient <= 0.0:
                direction = gradient
        bend = float(direction @ pattern.combine(direction, multipliers))
        bend -= float(direction @ entries(direction))
        # no column turns by more than about half a radian
        step = 0.5 / np.sqrt(pattern.column_squares(direction).max())
        if bend > 0.0:
            step = min(step, float(direction @ gradient) / bend)
        for _ in range(6):
            trial = pattern.retract(values + step * direction, GOAL)
            if trial is not None:
                trial_product = entries(trial)
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
    return Point(pattern, values, explained)


def project(
    pattern: Pattern, values: Array, solver: Multipliers, ambient: Array
) -> tuple[Array, Array]:
    """A direction's tangent part at `values`, and its multipliers (p, p)."""
    inner = pattern.cross(values, ambient)
    multipliers = solver(inner + inner.T, 1e-4)
    return ambient - pattern.combine(values, multipliers), multipliers


def grow(goal: Goal, point: Point, count: int) -> Point:
    """Give nonzeros to the `count` entries that promise most to first order.

    An entry promises its gradient's square over its curvature, ``energy_c - A[r, r]``.
    """
    pattern, values, _ = point
    product = goal.cov.times(pattern, values)
    on_pattern = np.take(product, pattern.listed)
    _, multipliers = project(pattern, values, pattern.solver(values), on_pattern)
    energies = np.bincount(pattern.col, values * on_pattern, pattern.p)
    product[pattern.rows] -= pattern.compact(values) @ multipliers
    promise = product**2 / curvature(goal.diagonal[:, None], energies)
    promise.flat[pattern.listed] = 0.0
    flat = promise.ravel()
    count = min(count, flat.size - len(pattern))
    if count <= 0:
        return point
    chosen = np.argpartition(-flat, count - 1)[:count]
    chosen = chosen[np.argsort(-flat[chosen], kind="stable")]
    chosen = chosen[flat[chosen] > 0.0]
    while True:
        grown, start = _joined(point, chosen)
        if len(grown.pairs[0]) <= FREE:
            made = polish(goal.cov, grown, start, STEPS, STEP_TOL)
            if made.explained > point.explained * (1.0 + STEP_TOL):
                return made
        grown, start = separate(grown, start)  # new entries that would have to stay zero
        if len(grown.pairs[0]) <= max(DIRECT, len(pattern.pairs[0])):
            return polish(goal.cov, grown, start, STEPS, STEP_TOL)
        chosen = chosen[: len(chosen) // 2]


def _joined(point: Point, chosen: Indices) -> tuple[Pattern, Array]:
    """The pattern with the `chosen` entries, which are zero."""
    pattern, values, _ = point
    listed = np.concatenate([pattern.listed, chosen])
    order = np.argsort(listed, kind="stable")
    values = np.concatenate([values, np.zeros(len(chosen))])
    return Pattern((pattern.n, pattern.p), listed[order]), values[order]


def curvature(variances: Array, energies: Array) -> Array:
    """``energy_c - A[r, r]``, kept positive: what an entry (r, c) costs squared."""
    floor = np.maximum(0.05 * energies, 1e-12 * energies.max(initial=0.0) + np.finfo(float).tiny)
    return np.maximum(energies - variances, floor)


def shrink(goal: Goal, point: Point) -> Point | None:
    """Down to the budget in all and the cap in each component; None where that cannot be.

    The entries that cost least go, a share of them at a time, with polishing in between.
    """
    while len(point.values) > goal.budget or point.pattern.sizes.max() > goal.cap:
        pattern, values, _ = point
        order, drop = _dropping_order(goal, point)
        smaller = None
        while smaller is None and drop > 0:
            kept = np.ones(len(values), dtype=bool)
            kept[order[:drop]] = False
            last = len(values) - drop <= goal.budget
            smaller = enter(
                goal.cov, pattern.keep(kept), values[kept], STEPS if last else WAY_STEPS
            )
            drop //= 2
        if smaller is None:
            return None
        point = smaller
    return point


def _dropping_order(goal: Goal, point: Point) -> tuple[Indices, int]:
    """The entries, the first to go first, and how many go now."""
    pattern, values, _ = point
    energies = np.bincount(pattern.col, values * goal.cov.entries(pattern)(values), pattern.p)
    loss = values**2 * curvature(goal.diagonal[pattern.row], energies[pattern.col])
    loss[largest_entries(pattern, values)] = np.inf
    order = np.argsort(loss, kind="stable")
    drop = max(0, len(values) - max(goal.budget, int(KEEP * len(values))))
    if pattern.sizes.max() > goal.cap:
        most = np.maximum(goal.cap, (KEEP * pattern.sizes).astype(int))
        must = _beyond(pattern.col, order, most)
        order = np.concatenate([order[must], order[~must]])
        drop = max(drop, int(must.sum()))
    return order, drop


def largest_entries(pattern: Pattern, values: Array) -> Indices:
    """Where the largest entry of each column is listed."""
    sizes = np.abs(values[pattern.by_column])
    largest = np.maximum.reduceat(sizes, pattern.column_start[:-1])
    hits = np.flatnonzero(sizes == np.repeat(largest, pattern.sizes))
    first = np.searchsorted(hits, pattern.column_start[:-1])
    return pattern.by_column[hits[first]]


def _beyond(col: Array, order: Indices, most: Array) -> Mask:
    """Which entries, in this `order`, have as many as `most` of their column after them."""
    by_column = np.argsort(col[order], kind="stable")
    counts = np.bincount(col, minlength=len(most))
    after = np.repeat(np.cumsum(counts), counts) - 1 - np.arange(len(order))
    beyond = np.empty(len(order), dtype=bool)
    beyond[by_column] = after >= np.repeat(most, counts)
    return beyond
