"""Engine: the loop on ``X X^T``, from one pass over the source."""

from typing import Any

import numpy as np

from streamsvd.algorithm.block_log import Log
from streamsvd.algorithm.seam import Executor, executor_of
from streamsvd.arrays import Array
from streamsvd.cluster.tasks import cluster_gram
from streamsvd.data.source import Source
from streamsvd.matrix.partition import make_partitions
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.options import Options
from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.ingest import Ingested
from streamsvd.passes.moments import pivot_order
from streamsvd.plan import Plan, Problem
from streamsvd.progress import Progress, progress_bar
from streamsvd.refinement import Covariance, Gram
from streamsvd.system import n_cpus


class Reduced:
    """The Gram matrix in memory, its rows and columns in the order of the pivot."""

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
    ) -> None:
        self._source, self._problem, self._options = source, problem, options
        self._plan, self._client, self._progress = plan, client, progress

    def prepare(self, log: Log) -> Ingested:
        """Sum up ``X X^T``, here or by tasks of a cluster."""
        options, source, p = self._options, self._source, self._problem.n_components
        asked = (source, options.center, options.normalize)
        with progress_bar(self._progress, "gram", source.n_samples) as advance:
            if self._client is not None:
                gram, preprocessing = cluster_gram(self._client, *asked, advance)
            else:
                threads = options.n_threads or n_cpus()
                width = self._plan.strip_samples
                gram, preprocessing = gram_matrix(*asked, width, threads, advance)
        energies = np.diag(gram).copy()
        if options.pivot:
            log.order = pivot_order(energies, p)
        self.covariance = Gram(gram)
        self.leading = WorkingMatrix([gram[np.ix_(log.order, log.order)]], len(gram))
        return Ingested(preprocessing, energies, energies[log.order[:p]])

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
