"""How far components may be from the best: what is found beside what is provably impossible."""

from dataclasses import dataclass

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.refinement import Covariance, Factor, Gram
from streamsvd.refinement.certificate import upper_bound
from streamsvd.result.refining import Work, measure_exactly, refitted
from streamsvd.result.solution import Solution

MOST_CERTIFIED = 1000
"""Features of largest variance that are looked at one by one where there is no n x n matrix."""


@dataclass(frozen=True)
class Certificate:
    """A bound that holds for all components of the same number and nonzeros.

    Attributes
    ----------
    explained_variance_ratio : float
        What the components explain of the total variance.
    bound : float
        What no `n_components` orthonormal components with at most `max_nonzeros` nonzeros in all
        explain more than. A bound in floating point too: rounding errors are added.
    n_components, max_nonzeros : int
        For which it holds.
    """

    explained_variance_ratio: float
    bound: float
    n_components: int
    max_nonzeros: int

    @property
    def gap(self) -> float:
        """`bound` less what is explained: at most so much of the total variance is missed."""
        return self.bound - self.explained_variance_ratio

    def __str__(self) -> str:
        return (
            f"{self.explained_variance_ratio:.2%} of the variance explained; no "
            f"{self.n_components} orthonormal components with {self.max_nonzeros} nonzeros explain "
            f"more than {self.bound:.2%}"
        )


def certified(made: Solution, source: Source | None, work: Work, steps: int) -> Certificate:
    """The certificate of a solution; `source` is the data, where the covariance is not there."""
    if not made.is_exact:
        raise OptionError(
            "the variances of this result are those of a factor: refine(X) makes them exact, and a "
            "certificate worth something"
        )
    cov = made.covariance
    if cov is None:
        if source is None:
            raise OptionError("certificate() needs the data of the fit: pass it as X")
        cov = refitted(made, source, work)
    matrix, floor = _looked_at(made, cov, source, work)
    p, budget, total = made.n_components, made.n_nonzeros, made.total_energy
    bound = min(upper_bound(matrix, p, budget, steps, floor).energy, total)
    if floor and _is_exact(cov):  # no n x n matrix, but its eigenvalues
        bound = min(bound, float(cov.leading(p)[0].sum()) * (1 + 1e-9))
    explained = float(made.explained_variance_ratio.sum())
    return Certificate(explained, bound / total if total > 0 else 0.0, p, budget)


def _is_exact(cov: Covariance) -> bool:
    return not isinstance(cov, Factor) or cov.rest is None


def _looked_at(
    made: Solution, cov: Covariance, source: Source | None, work: Work
) -> tuple[Array, float]:
    """The exact matrix of some features, and what no other entry of ``X X^T`` exceeds.

    ``|A_ij| <= sqrt(A_ii A_jj)``, so features of little variance need no look at a level that is
    above that (Zhang and El Ghaoui, "Large-scale sparse principal component analysis with
    application to text data", 2011).
    """
    if isinstance(cov, Gram):
        return cov.matrix, 0.0
    variances = cov.diagonal()
    order = np.argsort(-variances, kind="stable")
    features, others = np.sort(order[:MOST_CERTIFIED]), order[MOST_CERTIFIED:]
    floor = 0.0
    if len(others):
        floor = float(np.sqrt(variances[order[0]] * variances[others[0]])) * (1 + 1e-12)
    if _is_exact(cov):
        return cov.restricted(features).dense(), floor
    if source is None:
        raise OptionError("certificate() needs the data of the fit: pass it as X")
    return measure_exactly(made, source, work, features=features).gram, floor
