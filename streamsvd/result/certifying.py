"""Certificates of solutions: the covariance that they need, exactly."""

import numpy as np

from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.refinement import Beyond, Covariance, Gram, upper_bound
from streamsvd.result.certificate import Certificate
from streamsvd.result.refining import MOST_EXACT, Work, is_model, measure_exactly, refitted
from streamsvd.result.solution import Solution

STEPS = {"low": 0, "normal": 40, "high": 120}
"""Steps of the relaxation, by effort."""


def certified(made: Solution, source: Source | None, work: Work, effort: str) -> Certificate:
    """The certificate of a solution; `source` is the data, where the covariance is not there."""
    if np.isnan(made.explained_variance_ratio).any() or not made.is_exact:
        raise OptionError(
            "the variances of this result are not those of the data, and a bound says nothing "
            "beside them: refine(X) makes them exact"
        )
    cov = made.covariance
    if cov is None and source is not None:
        cov = refitted(made, source, work)
    if cov is None or (is_model(cov) and source is None):
        raise OptionError("certificate() needs the data of the fit: pass it as X")
    p, budget, total = made.n_components, made.n_nonzeros, made.total_energy
    asked = (p, budget, STEPS[effort])
    if is_model(cov):
        assert source is not None  # noqa: S101  (asked for above)
        energy = _of_some(made, cov, source, work, *asked)
    else:
        energy = upper_bound(cov, *asked, n_threads=work.n_threads, progress=work.progress).energy
    return certificate_of(made, min(energy, total), budget)


def certificate_of(made: Solution, energy: float, budget: int) -> Certificate:
    """A bound of sums of squares as one of shares."""
    total, p = made.total_energy, made.n_components
    explained = float(made.explained_variance_ratio.sum())
    return Certificate(explained, energy / total if total > 0 else 0.0, p, budget)


def _of_some(
    made: Solution, cov: Covariance, source: Source, work: Work, p: int, budget: int, steps: int
) -> float:
    """The bound from the exact matrix of the features of largest variance.

    The factor knows those exactly, and ``|A_ij| <= sqrt(A_ii A_jj)`` bounds all entries with the
    other features.
    """
    variances = cov.diagonal()
    order = np.argsort(-variances, kind="stable")
    features, others = np.sort(order[:MOST_EXACT]), order[MOST_EXACT:]
    floor = 0.0
    if len(others):
        floor = float(np.sqrt(variances[order[0]] * variances[others[0]])) * (1 + 1e-9)
    exact = Gram(measure_exactly(made, source, work, features=features).gram)
    beyond = Beyond(variances[others], floor)
    asked = (p, budget, steps, beyond, work.n_threads, work.progress)
    return upper_bound(exact, *asked).energy
