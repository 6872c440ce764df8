"""An upper bound for any number of features, from the entries of ``X X^T`` that are not small.

``A - clip(A, -level, level)`` is zero but for the entries beyond the level. Those of a pair of
features are below it where ``A_ii A_jj <= level^2``, so most pairs need no look (safe elimination:
Zhang and El Ghaoui, "Large-scale sparse principal component analysis with application to text
data", 2011), and a feature that has none beside the diagonal is an eigenvector. Where 1000 features
are all that matter, the relaxation goes on with these.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh

from streamsvd.arrays import Array
from streamsvd.problem import MOST_RELAXED
from streamsvd.progress import Progress, progress_bar
from streamsvd.refinement.covariance import Covariance
from streamsvd.refinement.relaxation import Bound, Posed, best_level, most_energy, relax
from streamsvd.system import one_blas_thread

MOST_ENTRIES = 4_000_000
"""Pairs of features that are kept, each in both orders, in 12 bytes."""

ASKED = 256  # features that say how large the entries are
BLOCK_BYTES = 2**25
NEAR = 0.04  # the best level, as eigenvalues are dear
DIGITS = 1e-6  # relative, of eigenvalues by Lanczos; added to the bound


class Beyond(NamedTuple):
    """Features of which less is known."""

    variances: Array
    """(q,) of these."""
    floor: float
    """What no entry of ``X X^T`` exceeds that is with one of these, but for their variances."""


class Large(NamedTuple):
    """The entries of `A` beyond a floor, beside the diagonal."""

    features: Array
    """(m,) that have any."""
    entries: sparse.csr_array
    """(m, m) symmetric, of these features."""
    diagonal: Array
    """(m,) of these features."""
    others: Array
    """Diagonal at all other features."""
    floor: float


def upper_bound(
    cov: Covariance,
    n_components: int,
    max_nonzeros: int,
    steps: int = 30,
    beyond: Beyond | None = None,
    n_threads: int = 1,
    progress: Progress = False,
) -> Bound:
    """What orthonormal components with at most so many nonzeros in all explain at most.

    Parameters
    ----------
    cov : Covariance
        `A`, exactly.
    n_components, max_nonzeros : int
        `p` and `K`.
    steps : int
        Of the alternating direction method; 0 for clipping alone.
    beyond : Beyond, optional
        Features that `cov` leaves out.
    n_threads : int
        That look at the entries.
    progress : bool, callable or None
        Told of blocks of entries as ``"entries"``, and of steps as ``"relaxation"``.

    Returns
    -------
    Bound
        Of very many features never more than PCA explains, and no less where the entries that
        matter are too many to be looked at.
    """
    others, floor = (np.zeros(0), 0.0) if beyond is None else beyond
    if cov.n <= MOST_RELAXED:
        posed = Posed(cov.dense(), n_components, max_nonzeros, floor, others)
        return _watched(posed, steps, progress)
    with one_blas_thread:
        best = _pca(cov, n_components, others, floor)
        large = _large(cov, best, max_nonzeros, others, floor, n_threads, progress)
        if large is None:
            return best
        clipped = _clipped(large, n_components, max_nonzeros)
        if steps:
            asked = (n_components, max_nonzeros, steps, progress)
            clipped = _relaxed(cov, large, clipped, *asked)
        return min(best, clipped)


def _watched(posed: Posed, steps: int, progress: Progress) -> Bound:
    """By the relaxation."""
    with progress_bar(progress, "relaxation", steps, unit="steps") as advance:
        return relax(posed, steps, lambda step, steps: advance(1)).bound


def _pca(cov: Covariance, p: int, others: Array, floor: float) -> Bound:
    """What components without zeros explain; nothing is known where features are left out."""
    if len(others):
        return Bound(np.inf, floor)
    return Bound(float(cov.leading(p)[0].sum()) * (1.0 + 10.0 * DIGITS), 0.0)


def _large(
    cov: Covariance,
    pca: Bound,
    budget: int,
    others: Array,
    floor: float,
    n_threads: int,
    progress: Progress,
) -> Large | None:
    """The `MOST_ENTRIES` largest entries or fewer; none where bounds at their level are useless."""
    variances = cov.diagonal()
    order = np.argsort(-variances, kind="stable")
    floor = max(floor, _floor(cov, order))
    if budget * floor >= min(pca.energy, variances.sum() + others.sum()):
        return None
    ordered = cov.restricted(order)
    blocks = list(_blocks(variances[order], floor))
    found = []
    with (
        progress_bar(progress, "entries", len(blocks), unit="blocks") as advance,
        ThreadPoolExecutor(n_threads, thread_name_prefix="streamsvd-bound") as threads,
    ):
        for part in threads.map(lambda block: _beyond(ordered, floor, *block), blocks):
            found.append(part)
            advance(1)
    n_rows = sum(part.shape[0] for part in found)
    half = sparse.vstack([*found, sparse.csr_array((cov.n - n_rows, cov.n))])
    entries = sparse.csr_array(half + half.T)
    has_any = np.diff(entries.indptr) > 0
    return Large(
        order[has_any],
        entries[has_any][:, has_any],
        variances[order[has_any]],
        np.concatenate([variances[order[~has_any]], others]),
        floor,
    )


def _blocks(variances: Array, floor: float) -> Iterator[tuple[slice, slice]]:
    """Rows and columns, right of the diagonal, of the pairs that may be beyond the floor.

    Of features by descending variance: those of too low a variance are at the end.
    """
    first, n = 0, len(variances)
    while first < n:
        last = int(np.searchsorted(-variances * variances[first], -(floor**2)))
        if last <= first + 1:
            return
        height = max(1, BLOCK_BYTES // (8 * (last - first)))
        yield slice(first, min(first + height, n)), slice(first, last)
        first += height


def _beyond(cov: Covariance, floor: float, rows: slice, columns: slice) -> sparse.csr_array:
    """The entries of these rows that are right of the diagonal and beyond the floor."""
    features = np.arange(cov.n)
    block = cov.block(features[rows], features[columns])
    i, j = np.nonzero(np.abs(block) > floor)
    right = j > i
    place = (i[right], columns.start + j[right])
    shape = (rows.stop - rows.start, cov.n)
    return sparse.csr_array((block[i[right], j[right]], place), shape=shape)


def _floor(cov: Covariance, order: Array) -> float:
    """A level that about `MOST_ENTRIES` pairs exceed, by some features among all variances."""
    asked = order[:: max(1, cov.n // ASKED)]
    count = int(2 * MOST_ENTRIES * (len(asked) / cov.n))  # of the entries of these, to be kept
    if count >= len(asked) * cov.n:
        return 0.0
    largest = np.zeros(0)
    for some in np.array_split(asked, -(-len(asked) * cov.n * 8 // BLOCK_BYTES)):
        sizes = np.concatenate([largest, np.abs(cov.block(some, order)).ravel()])
        largest = np.partition(sizes, -min(count, len(sizes)))[-min(count, len(sizes)) :]
    return float(largest.min())


def _clipped(large: Large, p: int, budget: int) -> Bound:
    """The best of clipping at a level above the floor."""
    posed = Posed(np.zeros((0, 0)), p, budget, large.floor, large.others)
    entries, diagonal = large.entries, large.diagonal

    def at(level: float) -> Bound:
        rest = entries.copy()
        rest.data = np.sign(rest.data) * np.maximum(np.abs(rest.data) - level, 0.0)
        rest.eliminate_zeros()
        rest = rest + sparse.diags_array(np.maximum(diagonal - level, 0.0))
        return Bound(most_energy(_largest(rest, p), level, posed), level)

    most = float(max(diagonal.max(initial=0.0), large.others.max(initial=0.0)))
    return best_level(at, large.floor, most, NEAR)


def _largest(matrix: sparse.csr_array, p: int) -> Array:
    """The p largest eigenvalues, none of them too small.

    Those of each connected part for itself: Lanczos sees equal ones of two parts as one.
    """
    from scipy.sparse.csgraph import connected_components  # slow, and not needed but for proofs

    n_parts, label = connected_components(matrix, directed=False)
    reach = np.zeros(n_parts)  # what no eigenvalue of the part exceeds
    np.maximum.at(reach, label, abs(matrix).sum(axis=1))
    members = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
    largest = np.full(p, -np.inf)
    for part in np.argsort(-reach, kind="stable"):
        if reach[part] <= largest[0]:
            break
        values = _largest_of_part(matrix[members[part]][:, members[part]], p)
        largest = np.sort(np.concatenate([largest, values]))[-p:]
    return largest[np.isfinite(largest)]


def _largest_of_part(matrix: sparse.csr_array, p: int) -> Array:
    if matrix.shape[0] <= max(MOST_RELAXED, 2 * p):
        return np.linalg.eigvalsh(matrix.toarray())[-p:]
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    values = eigsh(matrix, p, which="LA", v0=start, tol=DIGITS, return_eigenvectors=False)
    return np.asarray(values + DIGITS * np.abs(values).max())


def _relaxed(
    cov: Covariance,
    large: Large,
    clipped: Bound,
    p: int,
    budget: int,
    steps: int,
    progress: Progress,
) -> Bound:
    """At least as good: by the relaxation on the features with the largest entries.

    If the others have only small ones.
    """
    most = abs(large.entries).max(axis=1).toarray().ravel()
    order = np.argsort(-most, kind="stable")
    few, rest = np.sort(order[:MOST_RELAXED]), order[MOST_RELAXED:]
    floor = float(most[rest].max(initial=large.floor))
    if floor >= clipped.level:
        return clipped
    others = np.concatenate([large.diagonal[rest], large.others])
    matrix = cov.restricted(large.features[few]).dense()
    return min(clipped, _watched(Posed(matrix, p, budget, floor, others), steps, progress))
