"""Engine: ``X X^T``, from one pass over the source, or two to a factor of it.

The loop rotates the Gram matrix; of its other forms, which are for any number of features, the Gram
matrix of those features that the leading components explain most.
"""

from typing import Any

import numpy as np

from streamsvd.algorithm.block_log import Log
from streamsvd.algorithm.seam import Executor, executor_of
from streamsvd.arrays import Array
from streamsvd.cluster.forms import Formed, covariance_of
from streamsvd.data.source import Source
from streamsvd.matrix.partition import make_partitions
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.options import Options
from streamsvd.passes.ingest import Ingested
from streamsvd.passes.moments import pivot_order
from streamsvd.plan import Plan
from streamsvd.problem import Problem
from streamsvd.progress import Progress
from streamsvd.refinement import Covariance
from streamsvd.system import n_cpus, one_blas_thread


def formed(
    source: Source,
    problem: Problem,
    options: Options,
    plan: Plan,
    client: Any,
    progress: Progress,
) -> Formed:
    """Sum up ``X X^T``, here or by tasks of a cluster."""
    assert problem.reduction is not None  # noqa: S101  (it is for those)
    return covariance_of(
        problem.reduction,
        source,
        options.center,
        options.scales,
        problem.factor_rank,
        client=client,
        width=plan.strip_samples,
        n_threads=options.n_threads or n_cpus(),
        progress=progress,
    )


class Reduced:
    """``X X^T`` in memory, and a copy, in the order of the pivot, that is rotated."""

    covariance: Covariance | None = None
    leading: WorkingMatrix

    def __init__(
        self,
        source: Source,
        problem: Problem,
        options: Options,
        plan: Plan,
        client: Any,
        progress: Progress,
        made: Formed | None = None,
    ) -> None:
        self._asked, self._made = (source, problem, options, plan, client, progress), made
        self._problem, self._options = problem, options

    def prepare(self, log: Log) -> Ingested:
        """Sum up ``X X^T``, unless it is there."""
        options, problem = self._options, self._problem
        made, self._made = self._made or formed(*self._asked), None
        self.covariance, p, m = made.covariance, problem.n_components, problem.n_rotated
        with one_blas_thread:
            if m < problem.n_features:
                log.order = _best_first(made.covariance, p, m)
            if options.pivot:
                log.order[:m] = log.order[pivot_order(made.diagonal[log.order[:m]], p)]
            rotated = made.covariance.restricted(log.order[:m]).dense()
        self.leading = WorkingMatrix([rotated], m)
        return Ingested(made.preprocessing, made.diagonal, made.diagonal[log.order[:p]])

    def begin(self) -> Executor:
        """The columns, on threads where there are several chunks."""
        threads = self._options.n_threads or 1
        return executor_of(make_partitions(self.leading, self._problem.n_components, threads))

    def end(self, lead: Array) -> None:
        """Take the leading columns back."""
        self.leading.write(0, np.ascontiguousarray(lead.T))

    def settle(self, ingested: Ingested, n_logged: int) -> None:
        """Nothing is kept on the disk."""

    def energies(self) -> Array:
        """The diagonal of ``U^T X X^T U`` itself."""
        return self.leading.diagonal()[: self._problem.n_components]

    def release(self) -> None:
        """Free the matrix that was rotated."""
        vars(self).pop("leading", None)


def _best_first(cov: Covariance, p: int, m: int) -> Array:
    """All features, in front the `m` of which p components explain most; both parts ascend."""
    energies, vectors = cov.leading(p)
    best = np.sort(np.argsort(-(vectors**2 @ energies), kind="stable")[:m])
    return np.concatenate([best, np.setdiff1d(np.arange(cov.n), best)])
