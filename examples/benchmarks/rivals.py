"""The other methods that `quality.py` compares with, each from the Gram matrix ``A = X X^T``.

Components are the columns of an (n, p) array of unit vectors with exact zeros. Only those of
`orthonormal` are orthogonal; `explained` measures any of them by what their span explains.
"""

import time
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.decomposition import MiniBatchSparsePCA, SparsePCA
from sklearn.exceptions import ConvergenceWarning

Array = NDArray[np.float64]
Start = Literal["eigenvector", "diagonal", "dense"]

STARTS: tuple[Start, ...] = ("eigenvector", "diagonal", "dense")


# -------------------------------------------------------------------------------- measures


def explained(gram: Array, components: Array) -> float:
    """Energy of the data within the span of the components: ``trace(Q^T A Q)``, Q a basis of it.

    For orthonormal components it is the sum of their variances (times the divisor). Components
    that are not orthogonal count what they share once.
    """
    basis = linalg.orth(components)
    return float(np.vdot(basis, gram @ basis))


def orthogonality_error(components: Array) -> float:
    """Largest entry of ``|U^T U - I|``."""
    return float(np.abs(components.T @ components - np.eye(components.shape[1])).max())


def orthonormal(components: Array, tol: float = 1e-12) -> Array:
    """Orthonormal components of the same span, column by column, with the fill that this costs.

    The `Q` of a QR factorisation up to signs, by Gram-Schmidt (twice, which is enough for
    orthogonality to rounding) instead of reflections, so that zeros stay exact: a column takes up
    the support of an earlier one only when the two are not orthogonal (to `tol`). Columns that
    depend on earlier ones become zero.
    """
    q = np.zeros_like(components)
    for c, column in enumerate(components.T):
        x = column.copy()
        for _ in range(2):
            for b in range(c):
                product = q[:, b] @ x
                if abs(product) > tol * np.linalg.norm(column):
                    x -= product * q[:, b]
        size = np.linalg.norm(x)
        if size > tol * np.linalg.norm(column):
            q[:, c] = x / size
    return q


# --------------------------------------------------------------------------- thresholded PCA


def leading_eigenvectors(gram: Array, count: int) -> Array:
    """(n, count) eigenvectors of the largest eigenvalues, descending: PCA."""
    n = len(gram)
    return linalg.eigh(gram, subset_by_index=[n - count, n - 1])[1][:, ::-1]


def truncated(x: Array, cardinality: int) -> Array:
    """`x` with all but its `cardinality` largest entries by absolute value zero, of unit norm.

    The operator of Yuan & Zhang (2013), Algorithm 1. The first of equal entries is kept.
    """
    kept = np.argsort(-np.abs(x), kind="stable")[:cardinality]
    y = np.zeros_like(x)
    y[kept] = x[kept]
    return y / np.linalg.norm(y)


def thresholded_pca(gram: Array, cardinalities: list[int]) -> Array:
    """The largest loadings of each principal component, scaled to unit norm; not orthogonal.

    Known since long before sparse PCA; its faults are the subject of J. Cadima and I. T. Jolliffe,
    "Loading and correlations in the interpretation of principal components", Journal of Applied
    Statistics 22, 1995.
    """
    vectors = leading_eigenvectors(gram, len(cardinalities))
    return np.column_stack([truncated(x, k) for x, k in zip(vectors.T, cardinalities, strict=True)])


# --------------------------------------------------------------------------- truncated power


def truncated_power(
    gram: Array, x: Array, cardinality: int, *, max_iter: int = 300, tol: float = 1e-9
) -> Array:
    """A sparse leading eigenvector: multiply by `gram`, keep the largest entries, repeat.

    X.-T. Yuan and T. Zhang, "Truncated power method for sparse eigenvalue problems", Journal of
    Machine Learning Research 14, 2013: Algorithm 1.

    Parameters
    ----------
    gram : (n, n) array
        Symmetric positive semidefinite, so that ``x^T A x`` never decreases.
    x : (n,) array
        Start, not zero; truncated first.
    cardinality : int
        `k`, nonzeros of the answer at most.
    max_iter, tol : int, float
        Stop when ``x^T A x`` gains less than `tol` of itself.

    Returns
    -------
    (n,) array
        Of unit norm.
    """
    y, reached = truncated(x, cardinality), 0.0
    for _ in range(max_iter):
        product = gram @ y
        value = float(y @ product)
        if value - reached <= tol * value:
            break
        y, reached = truncated(product, cardinality), value
    return y


def project_out(gram: Array, x: Array) -> Array:
    """``(I - x x^T) A (I - x x^T)`` for a unit vector `x`: projection deflation.

    L. Mackey, "Deflation methods for sparse PCA", Advances in Neural Information Processing
    Systems 21, 2008. Unlike Hotelling's deflation it stays positive semidefinite, and annihilates
    `x` even where that is no eigenvector, as sparse vectors are not.
    """
    product = gram @ x
    cross = np.outer(x, product - 0.5 * (x @ product) * x)
    return gram - (cross + cross.T)


def truncated_power_components(gram: Array, cardinalities: list[int], start: Start) -> Array:
    """Truncated power method for one component after the other, with projection deflation.

    Parameters
    ----------
    gram : (n, n) array
    cardinalities : list of int
        Nonzeros of each component.
    start : {"eigenvector", "diagonal", "dense"}
        Where each component begins: the leading eigenvector of the deflated matrix, its column of
        largest diagonal entry, or that eigenvector taken through cardinalities halved from `n`
        down, each the start of the next.

    Returns
    -------
    (n, p) array
        Not orthogonal: deflation only removes the variance that was found already.
    """
    found = []
    for cardinality in cardinalities:
        x = truncated_power(gram, _start(gram, cardinality, start), cardinality)
        found.append(x)
        gram = project_out(gram, x)
    return np.column_stack(found)


def _start(gram: Array, cardinality: int, start: Start) -> Array:
    if start == "diagonal":
        return gram[:, np.argmax(np.diag(gram))]
    x = leading_eigenvectors(gram, 1)[:, 0]
    if start == "dense":
        wide = len(gram) // 2
        while wide > cardinality:
            x = truncated_power(gram, x, wide)
            wide //= 2
    return x


def best_truncated_power(gram: Array, cardinalities: list[int]) -> Array:
    """`truncated_power_components` of all `STARTS`, the one whose span explains most."""
    tried = [truncated_power_components(gram, cardinalities, start) for start in STARTS]
    return max(tried, key=lambda components: explained(gram, components))


# ------------------------------------------------------------------------------ scikit-learn


def centred_root(gram: Array) -> Array:
    """(2 n, n) samples by features of mean zero and ``Y^T Y = A``: data that stand for the data.

    SparsePCA minimises ``||X^T - U V||^2`` and a penalty of `V`, which does not change when the
    samples are rotated. So fitting the 2 n samples ``+-A^(1/2) / sqrt(2)`` is the same problem as
    fitting all `N`, in a fraction of the time, and the mean that scikit-learn subtracts is zero.
    """
    values, vectors = linalg.eigh(gram)
    root = (vectors * np.sqrt(np.maximum(values, 0.0) / 2)).T
    return np.vstack([root, -root])


ESTIMATORS: dict[str, Any] = {
    "SparsePCA": lambda p, alpha: SparsePCA(
        p, alpha=alpha, method="cd", tol=1e-6, max_iter=300, random_state=0
    ),
    "MiniBatchSparsePCA": lambda p, alpha: MiniBatchSparsePCA(
        p,
        alpha=alpha,
        method="cd",
        batch_size=16,
        tol=0.0,
        max_no_improvement=None,
        max_iter=50,
        random_state=0,
    ),
}
"""Run to convergence or nearly: by default the second stops after two passes, far from it here."""


@dataclass(frozen=True)
class PenaltyFit:
    """One fit: its penalty, unit components as columns (zeros for empty ones), its seconds."""

    alpha: float
    components: Array
    seconds: float

    @property
    def fill(self) -> float:
        """Share of entries that are not zero."""
        return float(np.mean(self.components != 0))


@dataclass
class PenaltySearch:
    """Finds the penalty `alpha` of a scikit-learn estimator that gives a wanted fill.

    J. Mairal, F. Bach, J. Ponce and G. Sapiro, "Online dictionary learning for sparse coding",
    ICML 2009, is what both estimators solve, with a sparse dictionary.

    Parameters
    ----------
    estimator : {"SparsePCA", "MiniBatchSparsePCA"}
    gram : (n, n) array
    n_components : int
    max_seconds : float
        After a fit that took longer there are no more.
    """

    estimator: str
    gram: Array
    n_components: int
    max_seconds: float = 60.0
    fits: list[PenaltyFit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._data = centred_root(self.gram)
        self._largest = float(np.sqrt(self.gram.diagonal().max()))  # all is zero from there on

    def nearest(self, fill: float, *, steps: int = 7, tol: float = 0.03) -> PenaltyFit:
        """The fit of fill nearest to `fill`, after at most `steps` bisections of log(alpha).

        Fewer when the fill is met within `tol` of itself; earlier fits narrow the search.
        """
        for _ in range(steps):
            if self.fits and (self._is_met(fill, tol) or self.fits[-1].seconds > self.max_seconds):
                break
            self.fits.append(self._fit(self._between(fill)))
        return min(self.fits, key=lambda f: abs(f.fill - fill))

    def _is_met(self, fill: float, tol: float) -> bool:
        return any(abs(f.fill - fill) <= tol * fill for f in self.fits)

    def _between(self, fill: float) -> float:
        low = max((f.alpha for f in self.fits if f.fill > fill), default=1e-3 * self._largest)
        high = min((f.alpha for f in self.fits if f.fill <= fill), default=self._largest)
        return float(np.sqrt(low * high))

    def _fit(self, alpha: float) -> PenaltyFit:
        model = ESTIMATORS[self.estimator](self.n_components, alpha)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self._data)
        return PenaltyFit(alpha, model.components_.T, time.perf_counter() - start)
