"""Engine: the columns on the workers of a Dask cluster, made, moved, and made again when lost."""

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from streamsvd.algorithm.block_log import Log
from streamsvd.arrays import Array
from streamsvd.cluster.actors import Actors
from streamsvd.cluster.parts import Part
from streamsvd.cluster.submitted import key_of
from streamsvd.cluster.waiting import Advance, answer_of, workers_of
from streamsvd.cluster.worker import Share, read_columns
from streamsvd.data.source import Source
from streamsvd.matrix.partition import Partition
from streamsvd.options import Options
from streamsvd.passes.ingest import Ingested
from streamsvd.passes.moments import add_up, moment_leaf, pivot_order
from streamsvd.passes.preprocessing import Preprocessing, learn
from streamsvd.plan import Plan
from streamsvd.problem import Problem
from streamsvd.progress import Progress, progress_bar
from streamsvd.refinement import Covariance

logger = logging.getLogger("streamsvd")


WORKER_SHARE = 0.5
"""Of a worker's memory limit, what its columns and the work on them may take."""


MADE, READ, SETTLED, ORDERED, REPLAYED, BEGUN = range(6)
"""How far the columns of all workers have come."""


class ClusterColumns(Actors):
    """The working matrix in the columns of workers; the engine and the executor in one.

    Parameters
    ----------
    client : distributed.Client
    source : Source
        That workers can open.
    problem : Problem
    options : Options
    plan : Plan
        Of the largest share.
    progress
        As in `sparse_svd`.
    """

    covariance: Covariance | None = None

    def __init__(
        self,
        client: Any,
        source: Source,
        problem: Problem,
        options: Options,
        plan: Plan,
        progress: Progress,
    ) -> None:
        self._source, self._options, self._progress = source, options, progress
        self.n_features, self.n_samples = source.n_features, source.n_samples
        self.dtype = problem.dtype
        self._log: Log
        self._of_features = "features" in (options.center, options.scales)
        self._preprocessing: Preprocessing | None = None
        self._order: Array | None = None
        self._stage = MADE
        bounds = share_bounds(source, len(workers_of(client)))
        shares = [
            Share(
                source,
                start,
                stop,
                options.center,
                options.scales,
                problem.dtype,
                options.n_components,
                plan.in_memory,
                plan.hold_rows,
                min(plan.chunk_width, stop - start),
                plan.strip_samples,
                plan.held_columns,
            )
            for start, stop in pairwise(bounds)
        ]
        super().__init__(client, shares)
        p, n, dtype = options.n_components, self.n_features, self.dtype
        self._parts = [Part(share.start, share.stop, p, n, dtype) for share in shares]

    # ----------------------------------------------------------------------- the executor

    here = None

    def broadcast(self, method: Callable[..., Any], *args: Any) -> list[Any]:
        """Call `method`, of `Partition`, of each; the answers in the order of the columns."""
        if self._stage < BEGUN:
            self._stage = REPLAYED
            begun = zip(self._parts, self._all("begin"), strict=True)
            reports = [part.begin(report) for part, report in begun]
            self._stage = BEGUN
            if method is Partition.start_up:
                return reports
        name, step = method.__name__, len(self._log)
        sent = [part.sent(name, args) for part in self._parts]
        calls = [None if own is None else (step, name, *own) for own in sent]
        answers = zip(self._parts, self._each("call", calls), strict=True)
        return [part.told(name, args, answer) for part, answer in answers]

    def close(self) -> None:
        """The columns are needed after the moves; see `release`."""

    # ------------------------------------------------------------------------- the engine

    def prepare(self, log: Log) -> Ingested:
        """Read the source on the workers; what a stopped run logged is replayed."""
        self._log = log
        p = self._options.n_components
        with progress_bar(self._progress, "ingest", self.n_samples) as advance:
            preprocessing, energies = self._ingest(advance)
        if self._options.pivot:
            self._order = log.order = pivot_order(energies, p)
        self._fetch(self._all("head", self._order))
        self._stage = ORDERED
        initial = self.diagonal()[:p].astype(np.float64)
        if len(log):
            logger.info("replaying %d transforms", len(log))
            self._each("replay", [(log, None, *own) for own in self._cut(*self._combined())])
            self._stage = REPLAYED
            self._fetch(self._all("head", None))
        return Ingested(preprocessing, energies, initial)

    @property
    def leading(self) -> "ClusterColumns":
        """What the coordinator holds is kept here."""
        return self

    def begin(self) -> "ClusterColumns":
        """The columns are moved where they are."""
        return self

    def end(self, lead: Array) -> None:
        """Take the leading columns back."""
        self._lead = np.ascontiguousarray(lead.T)

    def settle(self, ingested: Ingested, n_logged: int) -> None:
        """Nothing is kept but the log."""

    def energies(self) -> Array:
        """Sums of squares of the first `p` rows."""
        lead = self._cut(np.arange(self._lead.shape[1]), self._lead)
        leaves = self._each("finish", [(own,) for _, own in lead])
        return np.array(add_up(leaf for part in leaves for leaf in part)[1])

    def release(self) -> None:
        """Remove the actors and what they have on disk, as far as they are there."""
        self._remove()

    # ------------------------------------------------------- as the coordinator asks for it

    def rows(self, n_rows: int, stop: int) -> Array:
        """The first rows, columns below `stop`."""
        return self._rows[:n_rows, :stop]

    def columns(self, stop: int) -> Array:
        """The columns below `stop`, which is `p`."""
        return self._lead[:, :stop]

    def diagonal(self) -> Array:
        """The diagonal."""
        return self._diagonal

    # ------------------------------------------------------------------------- the ingest

    def _ingest(self, advance: Advance) -> tuple[Preprocessing, Array]:
        """Read the source on all workers; what is learned, and the energies, as in one process."""
        options, source = self._options, self._source
        shift = None
        if self._of_features:
            shift = self._each("first_sample", [(), *[None] * (len(self._shares) - 1)])[0]
        leaves = self._all("read", shift, advance=advance)
        moments = add_up(leaf for part in leaves for leaf in part)
        shift = np.zeros(self.n_features) if shift is None else shift
        asked = (source.name, options.center, options.scales)
        self._preprocessing = learn(*asked, moments, shift, self.n_samples, source.present)
        self._stage = READ
        if self._of_features:
            leaves = self._all("settle", self._preprocessing)
            moments = add_up(leaf for part in leaves for leaf in part)
        self._stage = SETTLED
        return self._preprocessing, moments[1]

    def _fetch(self, parts: list[tuple[Array, Array, Array]]) -> None:
        """Keep what the coordinator asks for."""
        self._lead, self._rows = (
            np.concatenate([part[k] for part in parts], axis=1) for k in range(2)
        )
        self._diagonal = np.concatenate([diagonal for _, _, diagonal in parts])

    # --------------------------------------------------------------------------- recovery

    def _catch_up(self, k: int) -> None:
        """As far as all have come."""
        if self._stage >= READ:
            self._call(k, "read", np.zeros(self.n_features))  # the shift is for moments only
        if self._stage >= SETTLED and self._of_features:
            self._call(k, "settle", self._preprocessing)
        if self._stage == ORDERED:
            self._call(k, "head", self._order)
        if self._stage >= REPLAYED:
            own = self._cut(*self._combined())[k]
            self._call(k, "replay", self._log, self._order, *own)
        if self._stage >= BEGUN:
            self._call(k, "begin")

    def _cut(self, columns: Array, panel: Array) -> list[tuple[Array, Array]]:
        """Of some columns, ascending, and what they are, `panel` (n, any): those of each share."""
        bounds = [self._shares[0].start, *(share.stop for share in self._shares)]
        places = pairwise(np.searchsorted(columns, bounds).tolist())
        return [(columns[a:b], np.ascontiguousarray(panel[:, a:b])) for a, b in places]

    def _combined(self) -> tuple[Array, Array]:
        """The columns that the log combines, and what they are at its end, read by all workers."""
        log, steps = self._log, range(len(self._log))
        columns = log.combined(steps)
        parts = [
            self._submitted.submit(
                read_columns, share, columns, self._preprocessing,
                key=key_of("combined"),
            )
            for share in self._shares
        ]  # fmt: skip
        panel = np.concatenate([answer_of(self._client, part) for part in parts], axis=1)
        panel = np.array(panel if self._order is None else panel[self._order], order="C")
        log.replay_combined(panel, columns, steps)
        return columns, panel


def share_bounds(source: Source, n_workers: int) -> list[int]:
    """Columns of the shares: whole leaves of moments, near the chunks of the source."""
    n_samples, leaf = source.n_samples, moment_leaf(source.n_samples)
    bounds = {0, n_samples}
    for k in range(1, n_workers):
        near = round(k * n_samples / n_workers / source.chunk) * source.chunk
        bounds.add(min(round(near / leaf) * leaf, n_samples))
    return sorted(bounds)
