"""Refinement of solutions: the form of ``X X^T`` it works on, and what is exact of its answer."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.cluster.factor import cluster_exact
from streamsvd.cluster.forms import covariance_of
from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.passes.exact import Exact, exact_of
from streamsvd.plan import choose_reduction
from streamsvd.problem import Problem
from streamsvd.progress import Progress, progress_bar
from streamsvd.refinement import Covariance, Factor, Gram, Refined, refine_path, repolish
from streamsvd.result.solution import Solution
from streamsvd.system import free_memory, n_cpus


class Work(NamedTuple):
    """Who does the work, and who is told of it."""

    n_threads: int
    client: Any = None
    progress: Progress = None

    @classmethod
    def by(cls, n_threads: int | None, client: Any, progress: Progress) -> "Work":
        """All processors by default."""
        return cls(n_cpus() if n_threads is None else n_threads, client, progress)


MOST_EXACT = 3000
"""Features that components may have in all for the exact Gram matrix of these to be made."""


def refined_at(
    made: Solution,
    budgets: list[int],
    cap: int | None,
    effort: str,
    source: Source | None,
    work: Work,
) -> list[Refined]:
    """The components of `made`, refined within each of the budgets.

    They start from `made`, or from the last point of its path that is within the budget. `source`
    is the data of the fit. It is needed where the covariance of the fit is not there, or is a
    factor: then one more pass for each budget makes the variances exact. After batches, which are
    not there again, it may be left out: the variances are those of the factor.
    """
    cov = made.covariance
    if source is None and (cov is None or (is_model(cov) and not made.settings.get("batches"))):
        raise OptionError("refine() needs the data of the fit: pass it as X")
    if cov is None and source is not None:
        cov = refitted(made, source, work)
    assert cov is not None  # noqa: S101  (one of the two is there)
    entries = made.n_components * made.n_fitted
    smaller = [budget / entries for budget in budgets if budget < made.n_nonzeros]
    starts = [made.fitted_components]
    starts += [made.at(fill=fill).fitted_components for fill in smaller]
    asked = (made.n_components, budgets, cap, starts, work.n_threads, effort)
    found = refine_path(cov, *asked, work.progress)
    if not is_model(cov):
        return found
    if source is None:
        return [one._replace(is_exact=False, bound=None) for one in found]
    return [_exactly(made, one, source, work) for one in found]


def is_model(cov: Covariance) -> bool:
    """Whether it is ``X X^T`` only nearly."""
    return isinstance(cov, Factor) and cov.rest is not None


def refitted(made: Solution, source: Source, work: Work, form: str | None = None) -> Covariance:
    """``X X^T`` of the data of a fit: in its form, or one that suits the data."""
    if source.n_samples != made.n_samples:
        raise OptionError(
            f"{source.name} has {source.n_samples} samples, the fit had {made.n_samples}; "
            "refine with the data of the fit"
        )
    weigh_as_fitted(made, source)
    problem = Problem(
        **source.sizes(),
        n_components=made.n_components,
        n_transforms=0,
        dtype=np.dtype(np.float64),
        rank=made.settings.get("rank"),
    )
    form = form or made.settings["reduction"] or choose_reduction(problem, free_memory())[0]
    return covariance_of(
        form,
        source,
        made.preprocessing.center,
        made.preprocessing.normalize,
        problem.factor_rank,
        **work._asdict(),
    ).covariance


def weigh_as_fitted(made: Solution, source: Source) -> None:
    """Let the samples of the data of the fit count as they did there."""
    if made.weight is not None and made.sample_weights is None:
        raise OptionError(
            "samples were weighted in batches, and their weights are not known any more: fit all "
            "of them, with sample_weights="
        )
    weights = made.sample_weights
    if weights is not None and len(weights) != source.n_samples:
        raise OptionError(
            f"{source.name} has {source.n_samples} samples, the fit weighted {len(weights)}; pass "
            "the data of the fit"
        )
    source.sample_weights = weights


def _exactly(made: Solution, found: Refined, source: Source, work: Work) -> Refined:
    """Components of a factor with their true variances; polished on the truth where that is small.

    One pass: the exact Gram matrix of the features that they have, or the covariance of the scores.
    """
    features = np.unique(found.components.indices)
    if len(features) > MOST_EXACT:
        exact = measure_exactly(made, source, work, components=found.components)
        return Refined(found.components, np.diag(exact.scores).copy())
    exact = measure_exactly(made, source, work, features=features)
    rows = found.components
    few = sparse.csr_array(
        (rows.data, np.searchsorted(features, rows.indices), rows.indptr),
        shape=(rows.shape[0], len(features)),
    )
    few, energies, *_ = repolish(Gram(exact.gram), few)
    whole = sparse.csr_array((few.data, features[few.indices], few.indptr), shape=rows.shape)
    return Refined(whole, energies)


def measure_exactly(
    made: Solution,
    source: Source,
    work: Work,
    components: sparse.csr_array | None = None,
    features: Array | None = None,
) -> Exact:
    """What is exact of components, or of a few features, in one pass over the data."""
    weigh_as_fitted(made, source)
    with progress_bar(work.progress, "variance", source.n_samples) as advance:
        asked = (source, made.preprocessing, components, features)
        if work.client is not None:
            return cluster_exact(work.client, *asked, advance)
        return exact_of(*asked, n_threads=work.n_threads, on_samples=advance)
