"""Engine: `X` itself, rewritten in memory, in a working store, or in the source."""

import logging
from pathlib import Path

import numpy as np
from dask.utils import format_bytes

from streamsvd.algorithm.block_log import Log
from streamsvd.algorithm.replay import replay
from streamsvd.algorithm.seam import Executor, executor_of
from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.errors import ResourceError
from streamsvd.fitting.workspace import Workspace
from streamsvd.matrix.partition import make_partitions
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.options import Options
from streamsvd.passes.ingest import Ingested, ingest, n_passes
from streamsvd.passes.moments import pivot_order, row_energies
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.plan import Plan
from streamsvd.problem import Problem
from streamsvd.progress import Progress, progress_of_passes
from streamsvd.refinement import Covariance
from streamsvd.storage.raw import create_raw_array, intact_chunks, reserve_files
from streamsvd.system import check_free_disk, n_cpus, page_cache

logger = logging.getLogger("streamsvd")


class InPlace:
    """The working matrix in this process.

    In memory without a workspace, or in the source itself with ``overwrite_x``; else in the store
    of the workspace, which is temporary unless the user asked for one.
    """

    covariance: Covariance | None = None
    leading: WorkingMatrix

    def __init__(
        self,
        source: Source,
        problem: Problem,
        options: Options,
        plan: Plan,
        space: Workspace | None,
        progress: Progress,
    ) -> None:
        self._source, self._problem, self._options = source, problem, options
        self._plan, self._space, self._progress = plan, space, progress
        self._n_threads = options.n_threads or n_cpus()  # to read a working store
        self._is_clean = False  # the working store of a clean stop, not written to since

    def prepare(self, log: Log) -> Ingested:
        """Take up the store of a run that was stopped cleanly, or ingest and replay."""
        space = self._space
        if space is None:
            self.leading = self._overwritten() if self._options.overwrite_x else self._in_memory()
            return self._ingest(log)
        if self._options.workspace is not None:
            kept = self._reopen(space, log)
            if kept is not None:
                return kept
        space.discard_store()
        self.leading = self._create(space.store)
        ingested = self._ingest(log)
        if len(log):
            logger.info("replaying %d transforms", len(log))
            replay(self.leading, log, self._plan.panel, self._progress)
        return ingested

    def begin(self) -> Executor:
        """The columns, on threads if asked for.

        Not for pairs that are all at hand: handing each move over takes longer than the move.
        """
        p, self._is_clean = self._problem.n_components, False
        if self._plan.hold_rows:
            self.leading.hold_rows(p)
        on_threads = self.leading.crowds_cache or self._options.algorithm == "block"
        n_threads = (self._options.n_threads or 1) if on_threads else 1
        return executor_of(make_partitions(self.leading, p, n_threads))

    def end(self, lead: Array) -> None:
        """Take the leading columns, and the rows that were held in memory, back.

        And the columns, where the store is kept: of one that goes with the fit only the first rows
        are asked for after this.
        """
        if self._options.workspace is not None:
            self.leading.release_columns(self._problem.n_components)
        self.leading.release_rows()
        self.leading.write(0, np.ascontiguousarray(lead.T))

    def settle(self, ingested: Ingested, n_logged: int) -> None:
        """Flush what is kept, and say in which state it is."""
        if self._is_clean:
            return
        if self._options.workspace is not None and self._space is not None:
            self.leading.flush()
            learned = ingested.preprocessing
            self._space.save_ingested(
                {
                    "mean": learned.mean,
                    "scale": learned.scale,
                    "energies": ingested.energies,
                    "initial": ingested.initial,
                }
            )
            how = (self._n_threads, self.leading.crowds_cache, self._progress)
            self._space.set_clean(n_logged, *how)
        elif self._options.overwrite_x:
            self.leading.flush()
            self._source.mark("its content was overwritten by sparse_svd(overwrite_x=True)")

    def energies(self) -> Array:
        """Sums of squares of the first `p` rows."""
        return row_energies(self.leading, self._problem.n_components)

    def release(self) -> None:
        """Free the working matrix; its folder, if any, is that of the workspace."""
        vars(self).pop("leading", None)

    # ------------------------------------------------------------------ the working matrix

    def _in_memory(self) -> WorkingMatrix:
        problem = self._problem
        return WorkingMatrix.in_memory(problem.n_features, problem.n_samples, problem.dtype)

    def _create(self, path: Path) -> WorkingMatrix:
        """A new working store of zeros."""
        problem, width = self._problem, self._plan.chunk_width
        check_free_disk(path.parent, self._plan.disk)
        try:
            paths = create_raw_array(
                path, problem.n_features, problem.n_samples, width, problem.dtype
            )
            reserve_files(paths, self._plan.disk // self._plan.n_chunks)
        except OSError as error:
            raise ResourceError(
                f"cannot write the working store {path} of {format_bytes(self._plan.disk)}: "
                f"{error}; make room, or pass workspace= on another disk"
            ) from error
        return self._map(paths, width)

    def _map(self, paths: list[Path], width: int) -> WorkingMatrix:
        problem = self._problem
        n, n_samples = problem.n_features, problem.n_samples
        working = WorkingMatrix.map(paths, n, n_samples, width, problem.dtype)
        n_bytes = n * n_samples * problem.source_itemsize
        working.crowds_cache = self._plan.disk + n_bytes > page_cache()
        if working.crowds_cache:
            working.hold_columns(self._plan.held_columns)
        return working

    def _reopen(self, space: Workspace, log: Log) -> Ingested | None:
        """What a run that was stopped cleanly left, None when it cannot be trusted."""
        problem, options = self._problem, self._options
        arrays = space.load_ingested()
        if arrays is None or space.clean_step() != len(log):
            return None
        if not space.is_as_left(self._n_threads, self._plan.disk > page_cache(), self._progress):
            logger.warning("%s is damaged: it is made again from the source", space.store)
            return None
        chunks = intact_chunks(space.store, (problem.n_features, problem.n_samples), problem.dtype)
        if chunks is None:
            return None
        self.leading, self._is_clean = self._map(*chunks), True
        energies = arrays["energies"]
        if options.pivot:
            log.order = pivot_order(energies, problem.n_components)
        asked, weights = (options.center, options.scales), self._source.present.weights
        learned = Preprocessing(*asked, arrays["mean"], arrays["scale"], weights)
        return Ingested(learned, energies, arrays["initial"])

    def _overwritten(self) -> WorkingMatrix:
        """The memory or the store of the source itself, which is marked before it is written."""
        source, dtype = self._source, self._problem.dtype
        array = source.own_memory(dtype)
        if array is not None:
            return WorkingMatrix([array], source.n_samples)
        working = self._map(*source.raw_chunks(dtype))
        source.mark("its content is being rewritten by sparse_svd(overwrite_x=True)")
        return working

    def _ingest(self, log: Log) -> Ingested:
        options, source, working = self._options, self._source, self.leading
        source.drops_pages = working.crowds_cache
        width = self._plan.strip_samples
        asked = (options.center, options.scales)
        bar = progress_of_passes(self._progress, "ingest", source.n_samples, n_passes(*asked))
        with bar as advance:
            preprocessing, energies = ingest(source, working, *asked, width, advance)
        if options.pivot:
            log.order = pivot_order(energies, self._problem.n_components)
            working.swap_rows(log.order)
        initial = working.diagonal()[: self._problem.n_components].astype(np.float64)
        return Ingested(preprocessing, energies, initial)
