"""One fit from end to end: plan, ingest or resume, rotate, keep what is needed to go on."""

import errno
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamsvd.algorithm.method import METHODS
from streamsvd.data import Source, open_data
from streamsvd.data.masks import described, taking_part
from streamsvd.errors import ResourceError, StreamSVDError
from streamsvd.fitting.engines import Engine, choose_engine
from streamsvd.fitting.interrupts import StopRequest, raise_for, stop_requests
from streamsvd.fitting.missing import fit_present
from streamsvd.fitting.planning import plan_fit, resolve, weighed
from streamsvd.fitting.reduced import formed
from streamsvd.fitting.shorter import shortened
from streamsvd.fitting.workspace import Workspace
from streamsvd.kernels.compiling import compiling_shown
from streamsvd.options import Ask, Options
from streamsvd.options.rules import workspace_path
from streamsvd.passes.ingest import Ingested
from streamsvd.passes.summed import SummedSamples
from streamsvd.plan import Plan
from streamsvd.problem import Problem
from streamsvd.progress import Advance, Progress, progress_bar
from streamsvd.refinement.covariance import fewest
from streamsvd.result.svd_result import SVDResult
from streamsvd.version import __version__

logger = logging.getLogger("streamsvd")

CHECKPOINT_SECONDS = 5.0
"""How much work a killed run may lose."""


def fit(x: Any, options: Options, progress: Progress, client: Any = None) -> SVDResult:
    """Run `streamsvd.sparse_svd` with checked options, on the cluster of `client` if given."""
    with compiling_shown(progress):
        return _whole_fit(x, options, progress, client)


def _whole_fit(x: Any, options: Options, progress: Progress, client: Any) -> SVDResult:
    began = time.monotonic()
    source = open_data(x, Ask.of(options))
    if options.normalize == "variables":
        source.scale_variables(source.features)
    source = taking_part(source, options.feature_mask)
    options = weighed(source, options)

    def fit_one(source: Source) -> SVDResult:
        return _fit(source, options, progress, client)

    if (options.missing, options.missing_value) == ("error", None) or not source.is_readable:
        result = fit_one(source)
        if isinstance(source, SummedSamples):
            result = replace(result, missing=source.missing)
    else:
        result = fit_present(source, options, fit_one, progress, client)
    seconds = time.monotonic() - began
    read = source.bytes_read
    return replace(result, feature_mask=source.mask, seconds=seconds, bytes_read=read)


def _fit(source: Source, options: Options, progress: Progress, client: Any) -> SVDResult:
    """The fit of what `source` says, where nothing is missing or all of it is filled."""
    problem = resolve(source, options)
    plan = plan_fit(source, problem, options, client)
    logger.info(plan.describe())
    if options.takes_all:
        options = replace(options, n_components=problem.n_components)
    share, made = options.share, None
    if share is not None:
        made = formed(source, problem, options, plan, client, progress)
        p = fewest(made.covariance, share, min(source.n_features, source.n_samples))
        logger.info("n_components=%g: %d components of PCA explain that share", share, p)
        options = replace(options, n_components=p)
        problem = resolve(source, options)
        plan = plan_fit(source, problem, options, client)
    with stop_requests() as stop, _workspace(options, plan, client) as space:
        engine = choose_engine(source, problem, options, plan, space, client, progress, made)
        made = None  # the engine frees it
        try:
            result = _Run(source, problem, options, engine, space, progress, stop).result()
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            raise ResourceError(
                f"{error}: each chunk of the working store is an open file; raise the limit "
                "(ulimit -n)"
            ) from error
        finally:
            engine.release()
        if result.n_transforms < len(result.log):
            result = shortened(result, source, progress)
        if options.refine:
            result = result.refine(
                source if problem.reduction in (None, "factor") and source.is_readable else None,
                max_nonzeros=problem.budget,
                max_nonzeros_per_component=options.max_nonzeros_per_component,
                effort=options.effort,
                n_threads=options.n_threads,
                client=client,
                progress=progress,
            )
    if share is not None:
        result = replace(result, settings=result.settings | {"share": share})
    return result


@contextmanager
def _workspace(options: Options, plan: Plan, client: Any) -> Iterator[Workspace | None]:
    """The folder of the working store: given, temporary, or None when none is needed."""
    if options.workspace is not None:
        with Workspace(workspace_path(options.workspace)) as space:
            try:
                yield space
            except StreamSVDError:
                space.abandon()
                raise
    elif plan.in_memory or client is not None or options.overwrite_x:
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
        problem: Problem,
        options: Options,
        engine: Engine,
        space: Workspace | None,
        progress: Progress,
        stop: StopRequest,
    ) -> None:
        self._source, self._problem, self._options = source, problem, options
        self._engine, self._progress, self._stop = engine, progress, stop
        self._kept = space if options.workspace is not None else None
        self._method = METHODS[problem.algorithm](problem, options)
        self._log = self._method.log
        self._counts_nonzeros = options.ends_with_budget(problem.n_features)

    def result(self) -> SVDResult:
        """Do all of it."""
        self._take_up()
        ingested = self._engine.prepare(self._log)
        stopped = "n_transforms"
        if len(self._log) < self._problem.n_transforms:
            stopped = self._rotate(ingested)
        if len(self._log) or self._kept is None:
            self._settle(ingested)
        self._leave_if_asked()
        return self._described(ingested, stopped)

    def _take_up(self) -> None:
        """The log of the run that is to go on, if there is one."""
        if self._kept is None:
            return
        self._stop.message = (
            "stopped before the first transform; go on with the same call and resume=True "
            f"(workspace {self._options.workspace})"
        )
        if self._kept.begin(self._identity(), self._options.resume, self._source.places()):
            self._kept.load_log(self._log)

    def _rotate(self, ingested: Ingested) -> str:
        """Make transforms from where the log stands; says why they ended."""
        log, method = self._log, self._method
        first, executor = len(log), self._engine.begin()
        try:
            with self._bar(first) as advance:
                method.take_up(self._engine.leading, executor)
                self._begin_writing()
                return method.run(executor, self._threshold(ingested), self._keeper(advance))
        finally:
            executor.close()
            if len(log) > first:
                self._engine.end(method.lead)

    def _bar(self, first: int) -> AbstractContextManager[Advance]:
        """Of what ends the run: its transforms, or a budget of nonzeros."""
        problem, name = self._problem, "transforms"
        if self._counts_nonzeros:
            return progress_bar(
                self._progress, name, problem.budget, unit="nonzeros", is_steady=False
            )
        return progress_bar(
            self._progress,
            name,
            problem.n_transforms,
            first,
            unit="block steps" if problem.is_block else name,
            is_steady=problem.budget is None,  # else that may end it before
        )

    def _threshold(self, ingested: Ingested) -> float:
        """The score that a transform must be above."""
        total, tol = ingested.total, self._options.tol
        if not self._problem.is_reduced:
            return tol * total**0.5
        if self._options.n_transforms is None:  # where rounding errors begin
            tol = max(tol, 1e-15)
        return tol * total

    def _begin_writing(self) -> None:
        """From here on the working store is in the middle of a step."""
        if self._kept is not None:
            self._stop.deferred = True
            self._kept.set_dirty()

    def _keeper(self, advance: Advance) -> Callable[[int], bool]:
        """What is done after some transforms: progress, and a checkpoint when it is time."""
        last, told = time.monotonic(), 0 if self._counts_nonzeros else len(self._log)

        def after_step(count: int) -> bool:
            nonlocal last, told
            done = self._method.done
            note = f"{len(self._log)} transforms" if self._counts_nonzeros else ""
            advance(done - told, note)
            told = done
            if self._kept is not None and time.monotonic() - last > CHECKPOINT_SECONDS:
                self._kept.append(self._log)
                last = time.monotonic()
            return self._stop.signal is not None

        return after_step

    def _settle(self, ingested: Ingested) -> None:
        """Leave the log, the working store and the marks in order."""
        if self._kept is not None:
            self._kept.append(self._log)
        self._engine.settle(ingested, len(self._log))

    def _leave_if_asked(self) -> None:
        """As the signal that came would, now that all is in order, and say how to go on."""
        if self._kept is None:
            return
        stop = self._stop
        stop.deferred = False
        stop.message = (
            f"stopped after {len(self._log)} of {self._problem.n_transforms} transforms; go on "
            f"with the same call and resume=True (workspace {self._options.workspace})"
        )
        if stop.signal is not None:
            raise_for(stop.signal, stop.message)

    # ----------------------------------------------------------------------- for the record

    def _described(self, ingested: Ingested, stopped: str) -> SVDResult:
        problem, source = self._problem, self._source
        return SVDResult(
            log=self._log,
            n_transforms=min(problem.n_transforms, len(self._log)),
            n_samples=source.n_samples,
            initial_diagonal=ingested.initial,
            total_energy=ingested.total,
            final_energies=self._engine.energies(),
            preprocessing=ingested.preprocessing,
            sample_axis=source.sample_axis,
            dtype=problem.dtype,
            stopped=stopped,
            settings=self._settings()
            | {
                "random_state": problem.seed if problem.selection == "random" else None,
                "n_transforms": problem.n_transforms,
                "batches": problem.in_batches,
                "packing": None if source.packing is None else source.packing.text,
                "streamsvd": __version__,
            },
            covariance=self._engine.covariance,
            features=source.features,
            samples=source.samples,
            weight=source.weight,
            sample_weights=source.sample_weights,
        )

    def _settings(self) -> dict[str, Any]:
        """The options that determine the result, as they were resolved."""
        return self._options.recorded() | {
            "sample_axis": self._source.sample_axis,
            "feature_mask": described(self._source.mask),
            "selection": self._problem.selection,
            "dtype": self._problem.dtype.name,
        }

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a run to go on: the options and the source."""
        source = self._source
        return self._settings() | {
            "streamsvd": __version__,  # another version may round in another way
            "n_features": source.n_features,
            "n_samples": source.n_samples,
            "source": source.fingerprint(),
        }
