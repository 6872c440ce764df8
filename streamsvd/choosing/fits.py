"""The search at all points of a grid: each answer a start of the next."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.refinement import Gram, Refined, refine_path


def fit_grid(
    gram: Array,
    numbers: Sequence[int],
    budgets: Array,
    cap: int | None,
    n_threads: int = 1,
    advance: Callable[[int], None] = lambda n: None,
) -> list[list[Refined]]:
    """Refined components for each number and each budget.

    Fills go from the largest to the smallest, see `refine_path`; numbers from the smallest to the
    largest, with the answers for fewer components among the starts. Where supports meet, a search
    that begins with all components at once does not always find those that begin one by one.

    Parameters
    ----------
    gram : (n, n) array
    numbers : sequence of int
        `a` of them, in any order.
    budgets : (a, b) array of int
    cap : int or None
        The most nonzeros of one component.
    n_threads : int
    advance : callable
        Told of each number that is done.

    Returns
    -------
    list of list of Refined
        In the order of `budgets`.
    """
    found: dict[int, list[Refined]] = {}
    fewer: list[Refined] = []
    diagonal = np.diag(gram)
    for i in np.argsort(numbers, kind="stable").tolist():
        widened = [with_features(one.components, numbers[i], diagonal) for one in fewer]
        starts = [rows for rows in widened if rows is not None]
        fewer = found[i] = refine_path(
            Gram(gram), numbers[i], budgets[i].tolist(), cap, starts, n_threads
        )
        advance(1)
    return [found[i] for i in range(len(numbers))]


def with_features(rows: sparse.csr_array, p: int, diagonal: Array) -> sparse.csr_array | None:
    """(p, n) orthonormal rows: those given, and features of largest variance that are in none.

    None where there are not so many.
    """
    more = p - rows.shape[0]
    free = np.setdiff1d(np.arange(len(diagonal)), rows.indices)
    if len(free) < more:
        return None
    best = free[np.argsort(-diagonal[free], kind="stable")[:more]]
    indptr = np.append(rows.indptr, rows.nnz + np.arange(1, more + 1))
    data, indices = np.append(rows.data, np.ones(more)), np.append(rows.indices, best)
    return sparse.csr_array((data, indices, indptr), shape=(p, len(diagonal)))
