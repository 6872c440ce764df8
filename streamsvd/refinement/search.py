"""Refinement of sparse orthonormal components under one shared budget of nonzeros.

Maximise ``trace(U^T A U)`` over the n x p matrices with ``U^T U = I`` and at most `K` nonzeros:
several starts (`starts`, `disjoint`), one cycle each, and the best of them taken through rounds of
growing and shrinking back (`moves`) while that pays.  All of `A` that is needed is in `covariance`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.progress import EVERY, Progress, progress_bar
from streamsvd.refinement.covariance import Covariance
from streamsvd.refinement.disjoint import disjoint
from streamsvd.refinement.groups import groups
from streamsvd.refinement.moves import (
    STEP_TOL,
    STEPS,
    Goal,
    Point,
    enter,
    grow,
    largest_entries,
    polish,
    separate,
    shrink,
)
from streamsvd.refinement.pattern import DIRECT, Indices, Pattern
from streamsvd.refinement.starts import Basis, Rotated, cut, relaxed_basis
from streamsvd.refinement.watching import Cycles
from streamsvd.sizes import search_threads
from streamsvd.system import one_blas_thread

DIGITS = 1e-12  # of the largest eigenvalue, what eigenvectors by LAPACK are at most beside
GROWTH = (3.0, 1.0, 0.3, 0.1)  # growth of a cycle, in budgets
FULLEST = 0.5  # of all entries, that a cycle grows to
FIRST_CYCLE = (1.0, 0.3)  # growth of the cycle that tells which starts, or which one, go on
PROMISING = 0.9  # of the best start, what a start must explain to be tried
WORK = 1200  # nonzeros up to which more than one start goes on
WIDE, LARGE = 2000, 10000  # nonzeros up to which cycles are of any width, and not narrow
TOL, ROUNDS = 1e-4, 30  # a round that gains less is the last
LAST_STEPS, LAST_TOL = 100, 1e-8  # polishing of the answer
CUTS = (3, 12, 6)  # budgets that the first cut of the eigenvectors leaves
GROUPS = (0.7, 0.5, 0.35, 0.25, 0.2, 0.15, 0.1)  # number of groups, over that of components
RANK = 8  # of the factor that stands for the data in the search, in components


Start = Callable[[], Point | None]
"""To be called."""


class Refined(NamedTuple):
    """Refined components, in no order."""

    components: sparse.csr_array
    """(p, n) the components as rows; orthonormal to rounding."""
    energies: Array
    """(p,) sum of squares of the scores of each component, ``x^T A x``."""
    is_exact: bool = True
    """Whether `A` was ``X X^T`` itself there, not a factor of it."""
    bound: float | None = None
    """What no components within the budget explain more than, where the search has proven one."""


def refine(
    cov: Covariance,
    n_components: int,
    max_nonzeros: int,
    cap: int | None = None,
    starts: Sequence[sparse.csr_array] = (),
    n_threads: int = 1,
    effort: str = "normal",
) -> Refined:
    """Sparse orthonormal components that explain as much as can be found.

    Parameters
    ----------
    cov : Covariance
        `A`, n x n.
    n_components : int
        `p`, at most n.
    max_nonzeros : int
        `K`, of all components together; at least p.
    cap : int, optional
        The most nonzeros of one component.
    starts : sequence of (p, n) csr_array
        Orthonormal rows, further starts: the best of those within the budget is one, and the
        answer explains at least as much.
    n_threads : int
        That try starts.
    effort : {"normal", "high"}
        Whether to start from the convex relaxation too.

    Returns
    -------
    Refined
        Orthonormal to rounding, exactly sparse; the same bits for any number of threads.
    """
    return refine_path(cov, n_components, [max_nonzeros], cap, starts, n_threads, effort)[0]


@one_blas_thread
def refine_path(
    cov: Covariance,
    n_components: int,
    budgets: Sequence[int],
    cap: int | None = None,
    starts: Sequence[sparse.csr_array] = (),
    n_threads: int = 1,
    effort: str = "normal",
    progress: Progress = False,
) -> list[Refined]:
    """The same at many budgets, the answer of each a start of the next smaller one.

    Parameters
    ----------
    cov, n_components, cap, starts, n_threads, effort
        See `refine`.
    budgets : sequence of int
        In any order.
    progress : bool, callable or None
        Told of cycles of growing and shrinking, as ``"refinement"``: how many there will be depends
        on what they find.

    Returns
    -------
    list of Refined
        One for each budget, in their order.
    """
    n, p = cov.n, n_components
    exponent = _exponent(cov.diagonal())
    cov = cov.scaled(-exponent)
    features = _with_variance(cov.diagonal(), p, starts)
    cov = cov.restricted(features) if len(features) < n else cov
    basis = Basis.of(cov, p)
    search = cov.compressed(RANK * p)
    found: dict[int, Refined] = {}
    larger: Point | None = None
    begun = [_given(cov, rows[:, features]) for rows in starts]
    begun.sort(key=lambda point: -point.explained)
    threads = search_threads(cov.n, p, n_threads)
    with progress_bar(progress, "refinement", None, unit="cycles") as advance:
        cycles = Cycles(advance, float(basis.diagonal.sum()))
        for budget in sorted(set(budgets), reverse=True):
            budget, most = min(budget, p * cov.n), min(cap or n, cov.n)
            goal = Goal(search, basis.diagonal, budget, most, cycles.add)
            given = [point for point in begun if _is_within(goal, point)]
            cycles.begin(f" of {budget} nonzeros" if len(budgets) > 1 else "")
            with _each(threads, cycles.tell) as each:
                asked = _starts(goal, basis, given[:1], larger)
                larger, bound = _best(goal, cov, basis, given[:1], asked, each), None
                if effort == "high":
                    relaxed, bound = relaxed_basis(cov, basis, budget, cycles.relaxation)
                    asked = _cuts(goal, relaxed, len(CUTS))
                    larger = _best(goal, cov, basis, [larger], asked, each)
            found[budget] = _as_refined(cov, larger, features, n, exponent, bound)
    return [found[min(budget, p * cov.n)] for budget in budgets]


@one_blas_thread
def repolish(cov: Covariance, rows: sparse.csr_array) -> Refined:
    """Orthonormal `rows` (p, n), the best on their supports; explain no less."""
    exponent = _exponent(cov.diagonal())
    scaled = cov.scaled(-exponent)
    start = _given(scaled, rows)
    end = polish(scaled, start.pattern, start.values, LAST_STEPS, LAST_TOL)
    return _as_refined(scaled, end, np.arange(cov.n), cov.n, exponent)


@contextmanager
def _each(count: int, tell: Callable[[], None]) -> Iterator[Callable[..., Iterable[Any]]]:
    """`map`, here or on threads, for which an interruption does not wait.

    Calls `tell` while it waits for them.
    """
    if count == 1:
        yield map
        return
    threads = ThreadPoolExecutor(count, thread_name_prefix="streamsvd-search")

    def together(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        begun, are_left = [threads.submit(function, item) for item in items], True
        while are_left:
            ended, left = wait(begun, EVERY, FIRST_EXCEPTION)
            for future in ended:
                future.result()  # one that failed is not to wait for the others
            are_left = bool(left)
            tell()
        return [future.result() for future in begun]

    try:
        yield together
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _best(
    goal: Goal,
    cov: Covariance,
    basis: Basis,
    given: Sequence[Point],
    starts: Iterable[Start],
    each: Callable[..., Iterable[Any]],
) -> Point:
    """The best point found from `starts`, polished on the exact `cov`, or a given one."""
    if goal.budget >= basis.vectors.size and goal.cap >= cov.n:  # the answer is known: PCA
        return _principal(cov, basis)
    found = each(lambda start: _within(goal, start()), starts)
    tried = [point for point in found if point is not None]
    if not tried:  # of cuts alone, where the budget is next to none
        return max([*given, _largest(cov, basis)], key=lambda point: point.explained)
    least = PROMISING * max(point.explained for point in tried)
    tried = [point for point in tried if point.explained >= least]
    first = FIRST_CYCLE[_effort(goal) == 1]
    tried = list(each(lambda point: _cycle(goal, point, first), tried))
    tried.sort(key=lambda point: -point.explained)
    growth = GROWTH[_first_growth(goal, basis.p) :]
    is_model = goal.cov is not cov
    tried = tried[: max(_effort(goal), 1 + is_model)]
    ends = list(each(lambda point: _rounds(goal, point, growth), tried))
    if is_model:  # from the model to the truth, where another may be the best
        true = goal._replace(cov=cov)
        ends = list(each(lambda end: _taken_to(true, end), ends))
    end = max(ends, key=lambda point: point.explained)
    if is_model:
        end = _rounds(true, end, GROWTH[1:])
    end = polish(cov, end.pattern, end.values, LAST_STEPS, LAST_TOL)
    return max([end, *given, _largest(cov, basis)], key=lambda point: point.explained)


def _principal(cov: Covariance, basis: Basis) -> Point:
    """The eigenvectors, where these have all their digits; else they get them from polishing.

    That finds their span: steps as small as rounding turn the vectors in it, which explain as much.
    """
    vectors, energies = basis.vectors, basis.energies
    pattern = Pattern(vectors.shape, np.arange(vectors.size))
    product = cov.times(pattern, vectors.ravel())
    if np.linalg.norm(product - vectors * energies) <= DIGITS * energies[0]:
        return polish(cov, pattern, vectors.ravel(), 0, 0.0)
    end = polish(cov, pattern, vectors.ravel(), LAST_STEPS, LAST_TOL)
    span = pattern.dense(end.values)
    _, turn = np.linalg.eigh(span.T @ cov.times(pattern, end.values))
    return polish(cov, pattern, (span @ turn[:, ::-1]).ravel(), 0, 0.0)


def _within(goal: Goal, start: Point | None) -> Point | None:
    return None if start is None else shrink(goal, start)


def _taken_to(goal: Goal, point: Point) -> Point:
    """A point of another covariance as one of the goal's."""
    polished = polish(goal.cov, point.pattern, point.values, STEPS, STEP_TOL)
    return _cycles(goal, polished, GROWTH[2:])


def _largest(cov: Covariance, basis: Basis) -> Point:
    """The features of largest variance themselves: what a search should never fall behind."""
    p = basis.p
    rows = np.sort(np.argsort(-basis.diagonal, kind="stable")[:p])
    pattern = Pattern((cov.n, p), rows * p + np.arange(p))
    return polish(cov, pattern, np.ones(p), 0, 0.0)


def _effort(goal: Goal) -> int:
    """How many starts go on: several where a round is cheap, as chance has the last word there."""
    return min(max(WORK // goal.budget, 1), 4)


def _first_growth(goal: Goal, p: int) -> int:
    """Where in `GROWTH` cycles begin to bring more than they cost."""
    if p * (p + 1) // 2 > DIRECT:
        return 2
    return int(goal.budget > WIDE) + int(goal.budget > LARGE)


def _starts(
    goal: Goal, basis: Basis, given: Sequence[Point], larger: Point | None
) -> Iterator[Start]:
    """All that may lead somewhere."""
    cov, p = goal.cov, basis.p
    for point in given:
        yield partial(enter, cov, point.pattern, point.values)
    if larger is not None:
        yield partial(shrink, goal, larger)
    effort = _effort(goal)
    rotations = [basis.rotated, basis.rotated_loadings]
    for rotation in rotations:
        yield partial(_disjoint_start, goal, rotation)
    if p * (p + 1) // 2 > DIRECT:  # supports that meet anywhere have too many constraints
        yield partial(_group_start, goal, basis)
    else:
        yield from _cuts(goal, basis, effort)


def _cuts(goal: Goal, basis: Basis, effort: int) -> Iterator[Start]:
    for rotation in [basis.rotated, basis.rotated_loadings][:effort]:
        for budgets in CUTS[:effort]:
            yield partial(cut, goal, rotation.vectors, budgets)


def _disjoint_start(goal: Goal, rotation: Rotated) -> Point | None:
    found = disjoint(goal.cov, rotation.vectors, rotation.stds, goal.budget, goal.cap)
    return enter(goal.cov, *found)


def _group_start(goal: Goal, basis: Basis) -> Point | None:
    """The best of many numbers of groups."""
    made = []
    for share in GROUPS:
        found = groups(goal.cov, basis, max(1, int(share * basis.p)), goal.budget, goal.cap)
        made.append(None if found is None else enter(goal.cov, *found))
    points = [point for point in made if point is not None]
    return max(points, default=None, key=lambda point: point.explained)


def _rounds(goal: Goal, point: Point, growth: Sequence[float]) -> Point:
    for _ in range(min(max(2 * LARGE // goal.budget, 1), ROUNDS)):
        before = point.explained
        point = _cycles(goal, point, growth)
        if point.explained - before <= TOL * before:
            break
    return point


def _cycles(goal: Goal, point: Point, growth: Sequence[float]) -> Point:
    for share in growth:
        point = _cycle(goal, point, share)
    return point


def _cycle(goal: Goal, point: Point, share: float) -> Point:
    """Grow by a share of the budget and shrink back; kept where that has paid."""
    budget, size = goal.budget, point.pattern.n * point.pattern.p
    most = budget + max(1, int(share * budget))
    most = min(most, max(int(FULLEST * size), budget + max(1, int(0.1 * budget))))
    cycled = shrink(goal, grow(goal, point, most - len(point.values)))
    better = cycled if cycled is not None and cycled.explained > point.explained else point
    goal.told(better.explained)
    return better


def _exponent(diagonal: Array) -> int:
    """Of the power of four that the largest variance is about."""
    return int(np.frexp(diagonal.max(initial=0.0))[1]) // 2


def _with_variance(diagonal: Array, p: int, starts: Sequence[sparse.csr_array]) -> Indices:
    """Features that vary or are in a start, filled up to p with others."""
    varies = diagonal > 0.0
    for rows in starts:
        varies[rows.indices] = True
    if np.count_nonzero(varies) < p:
        varies[np.flatnonzero(~varies)[: p - np.count_nonzero(varies)]] = True
    return np.flatnonzero(varies)


def _given(cov: Covariance, rows: sparse.csr_array) -> Point:
    dense = np.ascontiguousarray(rows.toarray().T)
    pattern = Pattern.of(dense != 0.0)
    return polish(cov, pattern, dense.ravel()[pattern.listed], 0, 0.0)


def _is_within(goal: Goal, point: Point) -> bool:
    return len(point.values) <= goal.budget and point.pattern.sizes.max() <= goal.cap


def _as_refined(
    cov: Covariance,
    point: Point,
    features: Indices,
    n: int,
    exponent: int,
    bound: float | None = None,
) -> Refined:
    pattern, values = _exact(point)
    is_more = np.abs(values) > np.finfo(float).eps / (4 * pattern.sizes[pattern.col])
    if not np.all(is_more):  # the others are what rounding left of zeros, and change no product
        pattern, values = pattern.keep(is_more), values[is_more]
    energies = np.bincount(pattern.col, values * cov.entries(pattern)(values), pattern.p)
    order = pattern.by_column
    rows = sparse.csr_array(
        (values[order], features[pattern.row[order]], pattern.column_start), shape=(pattern.p, n)
    )
    bound = None if bound is None else float(np.ldexp(bound, 2 * exponent))
    return Refined(rows, np.ldexp(energies, 2 * exponent), bound=bound)


def _exact(point: Point) -> tuple[Pattern, Array]:
    """The point, orthonormal to rounding; without its smallest entries where it cannot be."""
    pattern, values, _ = point
    while True:
        exact = pattern.retract(values)
        if exact is not None:
            return pattern, exact
        order = np.argsort(np.abs(values), kind="stable")
        kept = np.ones(len(values), dtype=bool)
        kept[order[: max(1, len(values) // 20)]] = False
        kept[largest_entries(pattern, values)] = True
        if kept.all():  # one entry a component, no two in a row: never from a feasible point
            raise RuntimeError("no orthonormal matrix on this pattern")
        pattern, values = separate(pattern.keep(kept), values[kept])
