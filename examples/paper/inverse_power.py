"""Sparse PCA of Hein and Buehler: the inverse power method, one component after the other.

M. Hein and T. Buehler, "An inverse power method for nonlinear eigenproblems with applications in
1-spectral clustering and sparse PCA", Advances in Neural Information Processing Systems 23, 2010.

The ratio ``((1 - a) |f|_2 + a |f|_1) / sqrt(f^T A f)`` is minimised for a weight `a` of the 1-norm;
bisection finds the weight that gives the wanted number of nonzeros. All from the Gram matrix
``A = X X^T``. Not orthogonal.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Array = NDArray[np.float64]


def ratio(gram: Array, f: Array, alpha: float) -> float:
    """The objective, for one vector that is not zero."""
    norm = (1 - alpha) * float(np.linalg.norm(f)) + alpha * float(np.abs(f).sum())
    return norm / float(np.sqrt(f @ gram @ f))


def inverse_power(
    gram: Array, start: Array, alpha: float, *, max_iter: int = 100, tol: float = 1e-5
) -> Array:
    """A critical point of `ratio`, from `start` (their Algorithm 4); each step lowers it.

    The inner problem has the solution ``sign(mu) max(0, lambda |mu| - alpha)``, where
    ``mu = A f / sqrt(f^T A f)`` and lambda is the ratio at f.

    Parameters
    ----------
    gram : (n, n) array
        Symmetric positive semidefinite.
    start : (n,) array
        With ``start^T A start > 0``.
    alpha : float
        From 0 (the leading eigenvector, by power iteration) to below 1.
    max_iter, tol : int, float
        Stop when the ratio falls by less than `tol` of itself.

    Returns
    -------
    (n,) array
        With ``f^T A f = 1``.
    """
    f, product = _scaled(gram, start)
    value = _norm(f, alpha)
    for _ in range(max_iter):
        size = value * np.abs(product) - alpha
        f, product = _scaled(gram, np.where(size > 0, np.sign(product) * size, 0.0))
        before, value = value, _norm(f, alpha)
        if before - value <= tol * before:
            break
    return f


def _norm(f: Array, alpha: float) -> float:
    return (1 - alpha) * float(np.linalg.norm(f)) + alpha * float(np.abs(f).sum())


def _scaled(gram: Array, f: Array) -> tuple[Array, Array]:
    """`f` over ``sqrt(f^T A f)``, and A times that; costs n times the nonzeros of `f`."""
    support = np.flatnonzero(f)
    product = gram[support].T @ f[support]
    scale = np.sqrt(f @ product)
    return f / scale, product / scale


def best_on(gram: Array, support: NDArray[np.intp]) -> Array:
    """(n,) unit vector of the most variance on a support: an eigenvector of the submatrix."""
    x = np.zeros(len(gram))
    last = len(support) - 1
    x[support] = linalg.eigh(gram[np.ix_(support, support)], subset_by_index=[last, last])[1][:, 0]
    return x


def sparse_component(gram: Array, cardinality: int, *, steps: int = 20) -> Array:
    """(n,) unit vector of at most `cardinality` nonzeros, of much variance.

    At most `steps` bisections of the weight, each from the feature of largest variance, as in the
    authors' code; where they miss the cardinality, the sparser side is filled up with the features
    of largest ``|A x|``. The entries are then those of the most variance on the support.
    """
    start = np.zeros(len(gram))
    start[np.argmax(gram.diagonal())] = 1.0
    low, high = 0.0, 1.0
    support = np.flatnonzero(start)
    for _ in range(steps):
        alpha = (low + high) / 2
        found = np.flatnonzero(inverse_power(gram, start, alpha))
        if len(found) > cardinality:
            low = alpha
            continue
        high = alpha
        if len(found) > len(support):
            support = found
        if len(found) == cardinality:
            break
    while len(support) < cardinality:
        pull = np.abs(gram @ best_on(gram, support))
        pull[support] = -1.0
        support = np.append(support, np.argsort(-pull, kind="stable")[: -(-len(support) // 4)])
        support = np.sort(support[:cardinality])
    return best_on(gram, support)


def sparse_components(gram: Array, cardinalities: list[int]) -> Array:
    """(n, p) components, each on what the earlier ones leave.

    The samples are made orthogonal to the scores of each component that was found,
    ``A - A x x^T A / (x^T A x)``, as in the authors' code (L. Mackey's Schur complement deflation,
    "Deflation methods for sparse PCA", 2008). Components left without variance are zero.
    """
    gram = gram.copy()
    floor = 1e-12 * float(gram.trace())
    components = np.zeros((len(gram), len(cardinalities)))
    for c, cardinality in enumerate(cardinalities):
        if gram.diagonal().max() <= floor:
            break
        x = sparse_component(gram, cardinality)
        components[:, c] = x
        product = gram @ x
        gram -= np.outer(product, product / (x @ product))
        np.fill_diagonal(gram, np.maximum(gram.diagonal(), 0.0))
    return components
