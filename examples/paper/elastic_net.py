"""Sparse PCA of Zou, Hastie and Tibshirani: regressions on the components, by elastic net.

H. Zou, T. Hastie and R. Tibshirani, "Sparse principal component analysis", Journal of
Computational and Graphical Statistics 15, 2006: their Algorithm 1, from the Gram matrix
``A = X X^T``. scikit-learn's SparsePCA solves another problem (a penalised factorisation), but its
`lars_path_gram` is the LARS-EN that the algorithm calls. Not orthogonal.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lars_path_gram

Array = NDArray[np.float64]


def elastic_net(gram: Array, target: Array, cardinality: int) -> Array:
    """(n,) the point of the lasso path after `cardinality` steps: as many nonzeros at most.

    Minimises ``b^T A b / 2 - target^T b + t |b|_1`` for the `t` that the path has come to. With a
    ridge on the diagonal of `gram` this is the elastic net (their Lemma 1 of the 2005 paper).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a step left out: others remain
        return lars_path_gram(
            target, gram, n_samples=1, max_iter=cardinality, method="lasso", return_path=False
        )[2]


def sparse_components(
    gram: Array,
    cardinalities: list[int],
    *,
    ridge: float = 1e-6,
    max_iter: int = 200,
    tol: float = 1e-3,
) -> Array:
    """(n, p) unit loadings, with the given numbers of nonzeros at most.

    Alternates between the loadings B, one elastic net for each component with A fixed, and the
    orthonormal A nearest to ``gram @ B``, from PCA on.

    Parameters
    ----------
    gram : (n, n) array
    cardinalities : list of int
        Nonzeros of each component (``sparse="varnum"`` in the authors' R package elasticnet).
    ridge : float
        Quadratic penalty over the mean of the diagonal. The defaults are the R package's.
    max_iter, tol : int, float
        Stop when no loading changes by more than `tol`.
    """
    n, p = len(gram), len(cardinalities)
    penalised = gram + ridge * np.trace(gram) / n * np.eye(n)
    a = linalg.eigh(gram, subset_by_index=[n - p, n - 1])[1][:, ::-1]
    b = np.zeros((n, p))
    for _ in range(max_iter):
        before = b
        targets = gram @ a
        b = np.column_stack(
            [elastic_net(penalised, y, k) for y, k in zip(targets.T, cardinalities, strict=True)]
        )
        u, _, vt = linalg.svd(gram @ b, full_matrices=False)
        a = u @ vt
        sizes = np.linalg.norm(b, axis=0)
        b = b / np.where(sizes > 0, sizes, 1.0)
        if np.max(np.abs(b - before)) < tol:
            break
    return b
