"""The columns of one Dask worker, as an actor: ingested there, kept there, moved there.

What a worker holds follows from the source and the log, so a lost one is made again elsewhere, with
the same bits.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.algorithm.block_log import Log
from streamsvd.algorithm.replay import replay_columns
from streamsvd.arrays import Array
from streamsvd.cluster.line import Listener
from streamsvd.cluster.parts import CALLS
from streamsvd.data.source import Source
from streamsvd.matrix.partition import Report, make_partitions
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.passes.ingest import Ingest
from streamsvd.passes.moments import row_moments
from streamsvd.passes.preprocessing import Preprocessing
from streamsvd.passes.strips import StripReader
from streamsvd.storage.raw import create_raw_array, reserve_files
from streamsvd.system import one_blas_thread

MAPPED_BYTES = 32 * 2**20
"""Dask counts mapped pages as memory of the worker: beyond so many they are unmapped."""


@dataclass(frozen=True)
class Share:
    """What a worker is to hold: columns ``start..stop-1`` of the ingested source.

    Attributes
    ----------
    source : Source
        Opened again on the worker.
    center, normalize : {None, "features", "samples"}
    dtype : numpy.dtype
        Of the working matrix.
    n_components : int
        `p`.
    in_memory, hold_rows : bool
        Whether the columns are in memory; whether their first `p` rows are.
    width, strip_width : int
        Columns in a chunk of the working store; samples to read at a time.
    held_columns : int
        Columns of each chunk of the working store that are in memory.
    """

    source: Source
    start: int
    stop: int
    center: str | None
    normalize: str | None
    dtype: np.dtype[Any]
    n_components: int
    in_memory: bool
    hold_rows: bool
    width: int
    strip_width: int
    held_columns: int


class Columns(Listener):
    """An actor. Batches of moves carry the number of their first, and are applied once."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._folder: Path | None = None
        self._working = self._make()
        self._ingest = Ingest(
            share.source, self._working, share.center, share.normalize, share.start
        )
        self._last = -1
        self._answer: Any = None

    def _make(self) -> WorkingMatrix:
        share = self.share
        n, count = share.source.n_features, share.stop - share.start
        if share.in_memory:
            return WorkingMatrix.in_memory(n, count, share.dtype)
        self._folder = Path(tempfile.mkdtemp(prefix="streamsvd-", dir=_local()))
        paths = create_raw_array(self._folder / "x.zarr", n, count, share.width, share.dtype)
        reserve_files(paths, n * share.width * share.dtype.itemsize)
        working = WorkingMatrix.map(paths, n, count, share.width, share.dtype)
        working.crowds_cache, working.most_mapped = True, MAPPED_BYTES
        working.hold_columns(share.held_columns)
        share.source.drops_pages = True
        return working

    # ----------------------------------------------------------------------------- ingest

    def first_sample(self) -> Array:
        """See `Ingest.first_sample`."""
        return self._ingest.first_sample()

    def read(self, shift: Array | None) -> list[Array]:
        """Read the samples; the leaves of their moments."""
        return self._ingest.read(shift, self.share.strip_width)

    def settle(self, preprocessing: Preprocessing) -> list[Array]:
        """Centre and scale by what was learned from all workers; the leaves anew."""
        return self._ingest.settle(preprocessing)

    def head(self, order: Array | None) -> tuple[Array, Array, Array]:
        """Reorder the rows, and tell what the coordinator holds of these columns.

        Columns below `p` (n, any), the first `p` rows of columns below `n`, their diagonal.
        """
        share, working = self.share, self._working
        if order is not None:
            working.swap_rows(order)
        p, n = share.n_components, working.n_features
        lead = working.columns(min(max(p - share.start, 0), working.n_samples))
        rows = working.rows(p, min(max(n - share.start, 0), working.n_samples))
        return lead, rows, working.diagonal(share.start)

    def replay(self, log: Log, order: Array | None, columns: Array, panel: Array) -> None:
        """Bring the columns, which have been read, to the end of the log.

        `columns` are those of them that it combines, and `panel` (n, any) what they are then.
        """
        if order is not None:
            self._working.swap_rows(order)
        replay_columns(self._working, log, range(len(log)), columns, panel, self.share.start)

    # ------------------------------------------------------------------------------- moves

    def begin(self) -> Report:
        """The columns stand where the log does; the first report."""
        if self.share.hold_rows:
            self._working.hold_rows(self.share.n_components)
        share = self.share
        (self._partition,) = make_partitions(self._working, share.n_components, 1, share.start)
        self._last, self._answer = -1, None
        return self._partition.start_up()

    def call(self, step: int, method: str, *args: Any) -> Any:
        """Call what `parts.CALLS` has for `method`, at `step`; again is the same as once."""
        if step == self._last:
            return self._answer
        if method == "apply":
            answer = CALLS[method](self._partition, *args)
        else:
            with one_blas_thread:
                answer = CALLS[method](self._partition, *args)
        if method in ("apply", "apply_block"):
            self._last, self._answer = step, answer
        return answer

    def finish(self, lead: Array) -> list[Array]:
        """Take the first columns, as far as they are of these, from the coordinator.

        Returns moments of the first `p` rows.
        """
        share, working = self.share, self._working
        working.release_rows()
        if lead.shape[1]:
            working.write(0, lead)
        return row_moments(working, share.n_components, share.start, share.source.n_samples)

    def close(self) -> None:
        """Remove what is on the disk."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def read_columns(share: Share, touched: Array, preprocessing: Preprocessing) -> Array:
    """Those of the columns `touched` (ascending) that are of this share, as they were ingested."""
    source, step, dtype = share.source, share.strip_width, share.dtype
    parts = [np.empty((source.n_features, 0), dtype=dtype)]
    for lo in range(share.start - share.start % step, share.stop, step):
        first, last = max(lo, share.start), min(lo + step, share.stop)
        inside = touched[slice(*np.searchsorted(touched, [first, last]))]
        if len(inside):
            for at, strip in StripReader(source, dtype, step, start=first, stop=last):
                preprocessing.apply(strip)
                parts.append(strip[:, inside - at])
    return np.concatenate(parts, axis=1)


def _local() -> str:
    """The directory of this worker."""
    from distributed import get_worker

    return str(get_worker().local_directory)
