"""One fit from end to end: plan, ingest or resume, rotate, keep what is needed to go on."""

import errno
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.algorithm.algorithm_1 import algorithm_1, random_pairs
from streamsvd.algorithm.block_log import BlockLog, new_log
from streamsvd.algorithm.block_steps import (
    BlockCoordinator,
    block_algorithm,
    make_block_coordinator,
    random_blocks,
)
from streamsvd.algorithm.coordinator import Coordinator, make_coordinator
from streamsvd.algorithm.log import TransformLog
from streamsvd.algorithm.replay import replay
from streamsvd.algorithm.replay_blocks import replay_blocks
from streamsvd.algorithm.seam import Executor, SerialExecutor, ThreadExecutor
from streamsvd.algorithm.supports import BlockSupports, Supports
from streamsvd.arrays import Array
from streamsvd.cluster.engine import ClusterMatrix
from streamsvd.cluster.tasks import cluster_gram
from streamsvd.data.kinds import open_data
from streamsvd.data.source import Source
from streamsvd.data.zarr_sources import ZarrSource
from streamsvd.errors import ResourceError, StreamSVDError
from streamsvd.fitting.interrupts import StopRequest, raise_for, stop_requests
from streamsvd.fitting.planning import plan_fit
from streamsvd.fitting.shorter import shortened
from streamsvd.fitting.workspace import Workspace
from streamsvd.matrix.partition import make_partitions
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.options import Ask, Options, working_dtype, workspace_path
from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.ingest import ingest
from streamsvd.passes.moments import pivot_order, row_energies
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.plan import Plan
from streamsvd.progress import Progress, progress_bar
from streamsvd.result.svd_result import SVDResult
from streamsvd.storage.raw import create_raw_array, intact_chunks, raw_chunk_paths, reserve_files
from streamsvd.system import check_free_disk, n_cpus, page_cache
from streamsvd.version import __version__

logger = logging.getLogger("streamsvd")


CHECKPOINT_SECONDS = 5.0
"""How much work a killed run may lose."""


def fit(x: Any, options: Options, progress: Progress, client: Any = None) -> SVDResult:
    """Run `streamsvd.sparse_svd` with checked options, on the cluster of `client` if given."""
    began = time.monotonic()
    source = open_data(x, Ask.of(options))
    options.check_shape(source.n_features, source.n_samples)
    plan = plan_fit(source, options, client)
    logger.info(plan.describe())
    with (
        stop_requests() as stop,
        _workspace(options, plan.in_memory or client is not None) as space,
    ):
        if options.workspace is not None:
            stop.message = (
                "stopped before the first transform; go on with the same call and resume=True "
                f"(workspace {options.workspace})"
            )
        try:
            result = _Run(source, options, plan, space, progress, stop, client).result()
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise ResourceError(
                f"{error}: each chunk of the working store is an open file; raise the limit "
                "(ulimit -n)"
            ) from error
    seconds = time.monotonic() - began
    return replace(result, seconds=seconds, bytes_read=source.bytes_read)


@contextmanager
def _workspace(options: Options, needs_none: bool) -> Iterator[Workspace | None]:
    """The folder of the working store: given, temporary, or None when none is needed."""
    if options.workspace is not None:
        with Workspace(workspace_path(options.workspace)) as space:
            try:
                yield space
            except StreamSVDError:
                space.abandon()
                raise
    elif needs_none or options.overwrite_x:
        yield None
    else:
        folder = Path(tempfile.mkdtemp(prefix="streamsvd-"))
        with Workspace(folder) as space:
            try:
                yield space
            finally:
                if space.is_held:  # not by a child that was forked meanwhile
                    shutil.rmtree(folder, ignore_errors=True)


class _Run:
    """The state of one fit."""

    def __init__(
        self,
        source: Source,
        options: Options,
        plan: Plan,
        space: Workspace | None,
        progress: Progress,
        stop: StopRequest,
        client: Any,
    ) -> None:
        self.source, self.options, self.plan = source, options, plan
        self.space, self.progress, self.stop = space, progress, stop
        self.client = client
        self.cluster: ClusterMatrix | None = None
        self.keeps = options.workspace is not None
        self.is_clean = False  # the working store of a clean stop, not written to since
        self.reduces = options.reduction == "gram"
        n, n_samples = source.n_features, source.n_samples
        self.dtype = np.dtype(np.float64)
        if not self.reduces:
            self.dtype = working_dtype(source.dtype, options.dtype)
        self.n_transforms = options.transforms_for(n)
        self.budget = options.budget(n)
        n_columns = n if self.reduces else n_samples
        self.log = new_log(options.algorithm, options.n_components, n, n_columns)
        self.seed = options.seed()
        self.gram: Array | None = None

    def result(self) -> SVDResult:
        """Do all of it, and leave nothing on the cluster."""
        try:
            return self._result()
        finally:
            if self.cluster is not None:
                self.cluster.release()

    def _result(self) -> SVDResult:
        options, p = self.options, self.options.n_components
        working, ingested = self._prepare()
        stopped = "n_transforms"
        if len(self.log) < self.n_transforms:
            stopped = self._rotate(working, ingested)
        if len(self.log) or not self.keeps:
            self._finish(working, ingested)
        if self.keeps:
            self.stop.deferred, self.stop.message = False, self._how_to_go_on()
            if self.stop.signal is not None:
                raise_for(self.stop.signal, self.stop.message)
        if self.reduces:
            energies = working.diagonal()[:p]
        elif isinstance(working, ClusterMatrix):
            energies = working.row_energies()
        else:
            energies = row_energies(working, p)
        result = SVDResult(
            log=self.log,
            n_transforms=min(self.n_transforms, len(self.log)),
            n_samples=self.source.n_samples,
            initial_diagonal=ingested["initial"],
            total_energy=float(ingested["energies"].sum()),
            final_energies=energies,
            preprocessing=Preprocessing(
                options.center, options.normalize, ingested["mean"], ingested["scale"]
            ),
            sample_axis=self.source.sample_axis,
            dtype=self.dtype,
            stopped=stopped,
            settings=self._settings()
            | {
                "random_state": self.seed if options.selection == "random" else None,
                "n_transforms": self.n_transforms,
                "streamsvd": __version__,
            },
            gram=self.gram,
            features=self.source.features,
            samples=self.source.samples,
        )
        del working
        if result.n_transforms < len(self.log):
            result = shortened(result, self.source, self.progress)
        if options.refine:
            x = None if self.reduces else self.source
            return result.refine(
                x,
                max_nonzeros=self.budget,
                max_nonzeros_per_component=options.max_nonzeros_per_component,
                progress=self.progress,
            )
        return result

    # ------------------------------------------------------------------ the working matrix

    def _prepare(self) -> tuple[WorkingMatrix | ClusterMatrix, dict[str, Array]]:
        """The working matrix where the log stands, and the statistics of the ingested source."""
        space = self.space
        if self.reduces:
            return self._reduce()
        if self.client is not None:
            return self._distribute()
        if space is None:
            working = self._overwritten() if self.options.overwrite_x else self._in_memory()
            return working, self._ingest(working)
        if self.keeps and space.begin(self._identity(), self.options.resume):
            space.load_log(self.log)
            kept = self._reopen(space)
            if kept is not None:
                return kept
        space.discard_store()
        working = self._create(space.store)
        ingested = self._ingest(working)
        if len(self.log):
            logger.info("replaying %d transforms", len(self.log))
            if isinstance(self.log, BlockLog):
                replay_blocks(working, self.log, self.plan.panel)
            else:
                replay(working, self.log, self.plan.panel)
        return working, ingested

    def _reduce(self) -> tuple[WorkingMatrix, dict[str, Array]]:
        """``X X^T`` as the working matrix, its rows and columns in the order of the pivot."""
        options = self.options
        with progress_bar(self.progress, "gram", self.source.n_samples) as advance:
            asked = (self.source, options.center, options.normalize)
            if self.client is not None:
                self.gram, preprocessing = cluster_gram(self.client, *asked, advance)
            else:
                threads = options.n_threads or n_cpus()
                self.gram, preprocessing = gram_matrix(
                    *asked, self.plan.strip_samples, threads, advance
                )
        energies = np.diag(self.gram).copy()
        if options.pivot:
            self.log.order = pivot_order(energies, options.n_components)
        order = self.log.order
        working = WorkingMatrix([self.gram[np.ix_(order, order)]], len(order))
        return working, {
            "mean": preprocessing.mean,
            "scale": preprocessing.scale,
            "energies": energies,
            "initial": energies[order[: options.n_components]],
        }

    def _distribute(self) -> tuple[ClusterMatrix, dict[str, Array]]:
        """The columns on the workers of the cluster; what a stopped run logged is replayed."""
        options, space = self.options, self.space
        if space is not None and space.begin(self._identity(), options.resume):
            space.load_log(self.log)
        working = ClusterMatrix(self.client, self.source, options, self.plan, self.dtype, self.log)
        self.cluster = working
        with progress_bar(self.progress, "ingest", self.source.n_samples) as advance:
            ingested = working.ingest(advance)
        order = None
        if options.pivot:
            order = self.log.order = pivot_order(ingested["energies"], options.n_components)
        working.take_order(order)
        initial = working.diagonal()[: options.n_components].astype(np.float64)
        if len(self.log):
            logger.info("replaying %d transforms", len(self.log))
            working.replay()
        return working, ingested | {"initial": initial}

    def _in_memory(self) -> WorkingMatrix:
        return WorkingMatrix.in_memory(self.source.n_features, self.source.n_samples, self.dtype)

    def _create(self, path: Path) -> WorkingMatrix:
        """A new working store of zeros."""
        n, n_samples, width = self.source.n_features, self.source.n_samples, self.plan.chunk_width
        check_free_disk(path.parent, self.plan.disk)
        try:
            paths = create_raw_array(path, n, n_samples, width, self.dtype)
            reserve_files(paths, self.plan.disk // self.plan.n_chunks)
        except OSError as error:
            raise ResourceError(
                f"cannot write the working store {path} of {self.plan.disk:,} bytes: {error}; make "
                "room, or pass workspace= on another disk"
            ) from error
        return self._map(paths, width)

    def _map(self, paths: list[Path], width: int) -> WorkingMatrix:
        source = self.source
        working = WorkingMatrix.map(paths, source.n_features, source.n_samples, width, self.dtype)
        n_bytes = source.n_features * source.n_samples * source.dtype.itemsize
        working.crowds_cache = self.plan.disk + n_bytes > page_cache()
        return working

    def _reopen(self, space: Workspace) -> tuple[WorkingMatrix, dict[str, Array]] | None:
        """The working store of a run that was stopped cleanly, None when it cannot be trusted."""
        ingested = space.load_ingested()
        if ingested is None or space.clean_step() != len(self.log):
            return None
        threads = self.options.n_threads or n_cpus()
        if not space.is_as_left(threads, drops_pages=self.plan.disk > page_cache()):
            logger.warning("%s is damaged: it is made again from the source", space.store)
            return None
        shape = (self.source.n_features, self.source.n_samples)
        chunks = intact_chunks(space.store, shape, self.dtype)
        if chunks is None:
            return None
        paths, width = chunks
        working = self._map(paths, width)
        if self.options.pivot:
            self.log.order = pivot_order(ingested["energies"], self.options.n_components)
        self.is_clean = True
        return working, ingested

    def _overwritten(self) -> WorkingMatrix:
        """The memory or the store of the source itself, which is marked before it is written."""
        source = self.source
        if not isinstance(source, ZarrSource):
            return WorkingMatrix([source.array], source.n_samples)
        paths = raw_chunk_paths(source.array, self.dtype)
        working = self._map(paths, source.array.chunks[1])
        source.mark("its content is being rewritten by sparse_svd(overwrite_x=True)")
        return working

    def _ingest(self, working: WorkingMatrix) -> dict[str, Array]:
        options = self.options
        if isinstance(self.source, ZarrSource):
            self.source.drops_pages = working.crowds_cache
        with progress_bar(self.progress, "ingest", self.source.n_samples) as advance:
            preprocessing, energies = ingest(
                self.source,
                working,
                options.center,
                options.normalize,
                self.plan.strip_samples,
                advance,
            )
        if options.pivot:
            self.log.order = pivot_order(energies, options.n_components)
            working.swap_rows(self.log.order)
        return {
            "mean": preprocessing.mean,
            "scale": preprocessing.scale,
            "energies": energies,
            "initial": working.diagonal()[: options.n_components].astype(np.float64),
        }

    # -------------------------------------------------------------------------- the loop

    def _rotate(self, working: WorkingMatrix | ClusterMatrix, ingested: dict[str, Array]) -> str:
        """Algorithm 1, or its block form, from where the log stands; says why it ended."""
        options, first = self.options, len(self.log)
        coordinator, solve = self._solver(working)
        executor = self._executor(working)
        total = float(ingested["energies"].sum())
        threshold = options.tol * (total if self.reduces else total**0.5)
        if self.reduces and options.n_transforms is None:  # where rounding errors begin
            threshold = max(threshold, 1e-15 * total)
        try:
            with progress_bar(
                self.progress, "transforms", self.n_transforms, len(self.log)
            ) as advance:
                return solve(executor, threshold, self._keeper(advance))
        finally:
            executor.close()
            if len(self.log) > first:
                if isinstance(working, WorkingMatrix):
                    working.release_rows()
                working.write(0, np.ascontiguousarray(coordinator.left.T))

    def _executor(self, working: WorkingMatrix | ClusterMatrix) -> Executor:
        """Where the columns are moved: on the cluster, on threads, or here."""
        if isinstance(working, ClusterMatrix):
            return working
        if self.plan.hold_rows:
            working.hold_rows(self.options.n_components)
        partitions = make_partitions(
            working, self.options.n_components, self.options.n_threads or 1
        )
        return ThreadExecutor(partitions) if len(partitions) > 1 else SerialExecutor(partitions)

    def _solver(
        self, working: WorkingMatrix | ClusterMatrix
    ) -> tuple[Coordinator | BlockCoordinator, Callable[..., str]]:
        """What picks, and what runs: a function of the executor, the threshold, and `_keeper`."""
        p, score = self.options.n_components, self.options.score
        if isinstance(self.log, BlockLog):
            blocks = make_block_coordinator(working, p, score, self.reduces)
            return blocks, partial(self._take_blocks, self.log, blocks)
        supports = None
        if self.options.fill_penalty or self.budget is not None:
            n = working.n_features
            supports = Supports(
                p,
                n,
                self.options.fill_penalty,
                self.budget or p * n,
                self.options.max_nonzeros_per_component,
            )
            supports.replay(self.log)
        pairs = make_coordinator(working, p, score, supports, self.reduces)
        return pairs, partial(self._take_pairs, self.log, pairs)

    def _take_pairs(
        self,
        log: TransformLog,
        coordinator: Coordinator,
        executor: Executor,
        threshold: float,
        after_step: Callable[[int], bool],
    ) -> str:
        picks = None
        if self.options.selection == "random":
            picks = random_pairs(coordinator, executor, self.seed, len(log))
        coordinator.start_up(executor.broadcast("start_up"))
        self._begin_writing()
        return algorithm_1(
            coordinator,
            executor,
            log,
            self.n_transforms,
            threshold,
            self.options.batch_size,
            picks,
            after_step,
        )

    def _take_blocks(
        self,
        log: BlockLog,
        coordinator: BlockCoordinator,
        executor: Executor,
        threshold: float,
        after_step: Callable[[int], bool],
    ) -> str:
        picks = supports = None
        if self.options.selection == "random":
            picks = random_blocks(coordinator, self.seed, len(log))
        if self.budget is not None:
            supports = BlockSupports(log.n_components, log.n_features, self.budget)
            supports.replay(log)
        self._begin_writing()
        return block_algorithm(
            coordinator, executor, log, self.n_transforms, threshold, picks, after_step, supports
        )

    def _begin_writing(self) -> None:
        """From here on the working store is in the middle of a step."""
        if self.keeps and self.space is not None:
            self.stop.deferred, self.is_clean = True, False
            self.space.set_dirty()

    def _keeper(self, advance: Callable[[int], None]) -> Callable[[int], bool]:
        """What is done after some transforms: progress, and a checkpoint when it is time."""
        last = time.monotonic()

        def after_step(count: int) -> bool:
            nonlocal last
            advance(count)
            if self.keeps and time.monotonic() - last > CHECKPOINT_SECONDS:
                self.space.append(self.log)  # type: ignore[union-attr]
                last = time.monotonic()
            return self.stop.signal is not None

        return after_step

    def _finish(self, working: WorkingMatrix | ClusterMatrix, ingested: dict[str, Array]) -> None:
        """Leave the working store, the log and the marks in order."""
        if isinstance(working, ClusterMatrix):
            if self.space is not None:
                self.space.append(self.log)
        elif self.keeps and self.space is not None:
            if self.is_clean:
                return
            self.space.append(self.log)
            working.flush()
            self.space.save_ingested(ingested)
            threads = self.options.n_threads or n_cpus()
            self.space.set_clean(len(self.log), threads, working.crowds_cache)
        elif self.options.overwrite_x and isinstance(self.source, ZarrSource):
            working.flush()
            self.source.mark("its content was overwritten by sparse_svd(overwrite_x=True)")

    def _how_to_go_on(self) -> str:
        return (
            f"stopped after {len(self.log)} of {self.n_transforms} transforms; go on with the same "
            f"call and resume=True (workspace {self.options.workspace})"
        )

    # ----------------------------------------------------------------------- for the record

    def _settings(self) -> dict[str, Any]:
        """The options that determine the result."""
        record = asdict(self.options)
        names = (
            "n_components", "algorithm", "batch_size", "reduction", "fill_penalty", "max_fill",
            "max_nonzeros",
            "max_nonzeros_per_component",
            "pivot", "sample_dim", "layer", "center", "normalize", "missing_chunks", "tol",
            "random_state",
        )  # fmt: skip
        settings = {name: record[name] for name in names}
        return settings | {
            "sample_axis": self.source.sample_axis,
            "selection": self.options.score,
            "dtype": self.dtype.name,
        }

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on: the options and the source."""
        source = self.source
        return self._settings() | {
            "streamsvd": __version__,  # another version may round in another way
            "n_features": source.n_features,
            "n_samples": source.n_samples,
            "source": source.fingerprint() if isinstance(source, ZarrSource) else None,
        }
