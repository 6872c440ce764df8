"""Engine: ``X X^T`` for any number of features, as the data themselves or a factor.

No transforms are made: the p features of largest variance are what the refinement starts from.
"""

from typing import Any

from streamsvd.algorithm.block_log import Log
from streamsvd.algorithm.seam import Executor, Leading
from streamsvd.arrays import Array
from streamsvd.cluster.factor import cluster_factor
from streamsvd.data.source import Source
from streamsvd.options import Options
from streamsvd.passes.factor import Factored, Sampled, data_of, factor_of
from streamsvd.passes.ingest import Ingested
from streamsvd.passes.moments import pivot_order
from streamsvd.plan import Plan, Problem
from streamsvd.progress import Progress, progress_bar
from streamsvd.refinement import Covariance, Factor, Samples
from streamsvd.system import n_cpus


class Modelled:
    """What stands for the Gram matrix, in memory."""

    covariance: Covariance | None = None

    def __init__(
        self,
        source: Source,
        problem: Problem,
        options: Options,
        plan: Plan,
        client: Any,
        progress: Progress,
    ) -> None:
        self._source, self._problem, self._options = source, problem, options
        self._plan, self._client, self._progress = plan, client, progress
        self._initial: Array

    def prepare(self, log: Log) -> Ingested:
        """Read the source, here or by tasks of a cluster."""
        made = self._samples() if self._problem.reduction == "samples" else self._factor()
        if isinstance(made, Sampled):
            self.covariance = Samples(made.data)
        else:
            self.covariance = Factor(made.factor, made.rest)
        p = self._problem.n_components
        log.order = pivot_order(made.diagonal, p)
        self._initial = made.diagonal[log.order[:p]]
        return Ingested(made.preprocessing, made.diagonal, self._initial)

    def _samples(self) -> Sampled:
        source, options = self._source, self._options
        with progress_bar(self._progress, "samples", source.n_samples) as advance:
            asked = (source, options.center, options.normalize)
            return data_of(*asked, width=self._plan.strip_samples, on_samples=advance)

    def _factor(self) -> Factored:
        source, options = self._source, self._options
        asked = (source, options.center, options.normalize, self._problem.factor_rank)
        with progress_bar(self._progress, "factor", 2 * source.n_samples) as advance:
            if self._client is not None:
                return cluster_factor(self._client, *asked, advance)
            return factor_of(
                *asked,
                width=self._plan.strip_samples,
                n_threads=options.n_threads or n_cpus(),
                on_samples=advance,
            )

    @property
    def leading(self) -> Leading:
        """Nothing is rotated."""
        raise NotImplementedError

    def begin(self) -> Executor:
        """Nothing is rotated."""
        raise NotImplementedError

    def end(self, lead: Array) -> None:
        """Nothing was rotated."""

    def settle(self, ingested: Ingested, n_logged: int) -> None:
        """Nothing is kept on the disk."""

    def energies(self) -> Array:
        """Of the features that the refinement starts from."""
        return self._initial

    def release(self) -> None:
        """Nothing is left anywhere."""
