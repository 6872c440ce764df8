"""The working matrix: chunks of columns that are rewritten in place, in memory or mapped files.

On disk it is a Zarr array without compression, so that each chunk file is the raw bytes of one
chunk: a map of the file rewrites two rows for the price of two rows, while any Zarr library can
read the array.
"""

import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import ResourceError
from streamsvd.matrix.held import HeldColumns
from streamsvd.matrix.prefetch import PagePrefetch
from streamsvd.sizes import PAGE
from streamsvd.system import drop_pages


class WorkingMatrix:
    """Chunks of columns of an n x N matrix, all of one width.

    Iterating gives ``(start, stop, chunk)``; columns of a chunk beyond ``stop - start`` are
    padding, without meaning.

    Parameters
    ----------
    chunks : list of (n, c) C-contiguous arrays
    n_samples : int
        `N`.
    paths, maps : lists of Path and of mmap
        What backs the chunks on disk, empty in memory.

    Attributes
    ----------
    tops : list of (n_rows, c) arrays, or None
        The first rows of each chunk while they are held in memory.
    crowds_cache : bool
        Whether the chunks on disk are more than the page cache can hold. Then passes over whole
        chunks leave nothing of them in the cache: moves read the pages that they need.
    most_mapped : int or None
        Bytes of pages that may be mapped, where they count as memory of the process, as in workers
        of Dask.
    held : list of HeldColumns
        Columns of each chunk that are in memory too, empty where none may be.
    """

    def __init__(
        self,
        chunks: list[Array],
        n_samples: int,
        paths: Sequence[Path] = (),
        maps: Sequence[mmap.mmap] = (),
    ) -> None:
        self.chunks, self.paths, self.maps = chunks, paths, maps
        self.n_features, self.width = chunks[0].shape
        self.n_samples = n_samples
        self.dtype: np.dtype[Any] = chunks[0].dtype
        self.tops: list[Array] | None = None
        self.crowds_cache = False
        self.most_mapped: int | None = None
        self.held: list[HeldColumns] = []
        self._is_new = False

    @classmethod
    def in_memory(cls, n_features: int, n_samples: int, dtype: np.dtype[Any]) -> "WorkingMatrix":
        """One chunk in memory, not yet filled; a strip that fills it is taken as it is."""
        made = cls([np.empty((n_features, n_samples), dtype=dtype)], n_samples)
        made._is_new = True
        return made

    @classmethod
    def map(
        cls, paths: list[Path], n_features: int, n_samples: int, width: int, dtype: np.dtype[Any]
    ) -> "WorkingMatrix":
        """The chunk files `paths`, mapped for reading and writing."""
        maps = _mapped(paths, n_features * width * dtype.itemsize)
        chunks: list[Array] = [
            np.frombuffer(mapped, dtype=dtype).reshape(n_features, width) for mapped in maps
        ]
        return cls(chunks, n_samples, paths, maps)

    def __iter__(self) -> Iterator[tuple[int, int, Array]]:
        for b, chunk in enumerate(self.chunks):
            start = b * self.width
            yield start, min(start + self.width, self.n_samples), chunk

    def sweep(self) -> Iterator[tuple[int, int, Array]]:
        """Like iterating, for work on whole chunks: they are read ahead."""
        for b, part in enumerate(self):
            if self.maps and hasattr(mmap, "MADV_SEQUENTIAL"):
                self.maps[b].madvise(mmap.MADV_SEQUENTIAL)
            yield part
            if self.held:
                self.held[b].offer(0, part[2][:, : part[1] - part[0]])
            if self.maps and hasattr(mmap, "MADV_RANDOM"):
                self.maps[b].madvise(mmap.MADV_RANDOM)
            if self.crowds_cache:
                self.maps[b].flush()
                self.maps[b].madvise(mmap.MADV_DONTNEED)  # of this map; mapped pages are kept
                with open(self.paths[b], "rb") as file:
                    drop_pages(file.fileno())

    def write(self, start: int, strip: Array, is_last: bool = False) -> None:
        """Write the columns `strip` (n, c), C-contiguous, from column `start` on.

        `is_last` says that nothing is to be done to them before the moves.
        """
        is_new, self._is_new = self._is_new, False
        if is_new and strip.shape == self.chunks[0].shape:
            self.chunks = [strip]
            return
        done = 0
        while done < strip.shape[1]:
            b, k = divmod(start + done, self.width)
            count = min(self.width - k, strip.shape[1] - done)
            part = strip[:, done : done + count]
            self._write_in(b, k, part)
            if self.held and is_last:
                self.held[b].offer(k, part)
            done += count

    @contextmanager
    def write_behind(self, is_last: bool = False) -> Iterator[Callable[[int, Array], None]]:
        """A `write` that returns at once, for strips that come in order and stay as they are.

        On the disk, one strip is written while the caller works on the next.
        """
        if not self.paths:
            yield self.write
            return
        with ThreadPoolExecutor(1, thread_name_prefix="streamsvd-write") as writer:
            pending: Future[None] | None = None

            def write(start: int, strip: Array) -> None:
                nonlocal pending
                if pending is not None:
                    pending.result()
                pending = writer.submit(self.write, start, strip, is_last)

            yield write
            if pending is not None:
                pending.result()

    def _write_in(self, b: int, k: int, part: Array) -> None:
        if not self.paths:
            self.chunks[b][:, k : k + part.shape[1]] = part
            return
        try:
            with open(self.paths[b], "r+b", buffering=0) as file:
                fd = file.fileno()
                piece_bytes = sys.maxsize if self.crowds_cache else PAGE
                if part.shape[1] == self.width and part.flags.c_contiguous:
                    _write(fd, part, 0, piece_bytes)
                else:
                    for i, row in enumerate(part):
                        _write(fd, row, (i * self.width + k) * part.itemsize, piece_bytes)
                if self.crowds_cache and k + part.shape[1] == self.width:
                    os.fsync(fd)
                    drop_pages(fd)
        except OSError as error:
            raise ResourceError(
                f"cannot write {self.paths[b]}: {error}; make room, or raise the limit of open "
                "files (ulimit -n)"
            ) from error

    def columns(self, stop: int) -> Array:
        """A copy of the columns below `stop`, (n, stop)."""
        return self.rows(self.n_features, stop)

    def rows(self, n_rows: int, stop: int) -> Array:
        """A copy of the first rows, columns below `stop`, (n_rows, stop)."""
        return np.concatenate(
            [
                chunk[:n_rows, : max(0, stop - start)]
                for start, _, chunk in self
                if start < stop or start == 0
            ],
            axis=1,
        )

    def diagonal(self, first: int = 0) -> Array:
        """The entries ``[first + k, k]``, as many as there are."""
        size = max(0, min(self.n_features - first, self.n_samples))
        k = np.arange(size)
        out = np.empty(size, dtype=self.dtype)
        for start, stop, chunk in self:
            here = k[start : min(stop, size)]
            out[here] = chunk[first + here, here - start]
        return out

    def gather(self, columns: Array) -> Array:
        """A copy of the given columns (ascending), (n, len(columns))."""
        out = np.empty((self.n_features, len(columns)), dtype=self.dtype)
        for start, here, chunk in self._holding(columns):
            out[:, here] = chunk[:, columns[here] - start]
        return out

    def scatter(self, columns: Array, values: Array) -> None:
        """Write the given columns (ascending) from `values` (n, len(columns))."""
        for start, here, chunk in self._holding(columns):
            chunk[:, columns[here] - start] = values[:, here]
            if self.held:
                self.held[start // self.width].forget(columns[here] - start)

    def _holding(self, columns: Array) -> Iterator[tuple[int, slice, Array]]:
        for start, stop, chunk in self:
            a, b = np.searchsorted(columns, [start, stop])
            if a < b:
                yield start, slice(a, b), chunk

    def swap_rows(self, order: Array) -> None:
        """Reorder the rows: row r becomes what row ``order[r]`` was. Touches those that move."""
        moved = np.flatnonzero(order != np.arange(len(order)))
        for chunk in self.chunks:
            chunk[moved] = chunk[order[moved]]
        for held in self.held:
            held.swap_rows(order)

    def hold_rows(self, n_rows: int) -> None:
        """Keep the first rows in memory from now on, in `tops`."""
        self.tops = [self._asked_for(b, n_rows).copy() for b in range(len(self.chunks))]

    def release_rows(self) -> None:
        """Write the rows that are held in memory back to their chunks."""
        for b, top in enumerate(self.tops or []):
            self._asked_for(b, len(top))[:] = top
        self.tops = None

    def _asked_for(self, b: int, n_rows: int) -> Array:
        """The first rows of a chunk, on their way from the disk: not a page at a time."""
        if self.crowds_cache and n_rows:
            n_bytes = n_rows * self.width * self.dtype.itemsize
            self.maps[b].madvise(mmap.MADV_WILLNEED, 0, n_bytes)
        return self.chunks[b][:n_rows]

    def prefetch(self, part: slice = slice(None)) -> PagePrefetch | None:
        """Asks for pages of some chunks ahead of moves, where they may not be in the cache."""
        if not self.crowds_cache:
            return None
        n_held = len(self.tops[0]) if self.tops else 0
        sizes = (self.width, self.n_features, n_held, self.dtype.itemsize)
        return PagePrefetch(self.maps[part], *sizes, self.most_mapped)

    def hold_columns(self, room: int) -> None:
        """Keep as many columns of each chunk in memory from now on, in `held`."""
        if room:
            self.held = [HeldColumns(self.n_features, room, self.dtype) for _ in self.chunks]

    def release_columns(self, n_components: int) -> None:
        """Write what moves have combined, but for the first rows, back to the chunks."""
        if (prefetch := self.prefetch()) is not None:
            for b, held in enumerate(self.held):
                held.write_back(n_components, self.chunks[b], partial(prefetch.column, b))
        self.held = []

    def flush(self) -> None:
        """Wait until all chunks are on the disk."""
        for mapped in self.maps:
            mapped.flush()


def _mapped(paths: Sequence[Path], n_bytes: int) -> list[mmap.mmap]:
    """The first `n_bytes` of each file, mapped for reading and writing."""
    maps: list[mmap.mmap] = []
    for path in paths:
        try:
            with open(path, "r+b") as file:
                maps.append(mmap.mmap(file.fileno(), n_bytes))
        except (OSError, ValueError) as error:
            for opened in maps:
                opened.close()  # the files may have to be removed
            raise ResourceError(
                f"{path} cannot be mapped for writing: {error}; "
                + (
                    f"{len(paths)} files are needed: raise the limit (ulimit -n)"
                    if isinstance(error, OSError) and error.errno == errno.EMFILE
                    else "use a workspace on a local disk"
                )
            ) from error
        # Moves touch two rows of pages: reading ahead would read the rest of the chunk.
        if hasattr(mmap, "MADV_RANDOM"):
            maps[-1].madvise(mmap.MADV_RANDOM)
    return maps


def _write(fd: int, values: Array, offset: int, piece_bytes: int) -> None:
    """Write contiguous `values` at `offset`, in pieces that end at multiples of `piece_bytes`.

    What is written in one call is cached in pieces as large, and such a piece is written back whole
    when a map changes one number of it: eight times the bytes for a column move, measured on Linux
    6.18 with ext4. So what is to stay in the cache is written a page at a time. Storing through the
    map keeps single pages too, but costs a fault for each, twice the time.
    """
    data = memoryview(values).cast("B")  # type: ignore[arg-type]
    first = piece_bytes - offset % piece_bytes
    for start in (0, *range(first, len(data), piece_bytes)):
        stop = first if start == 0 else start + piece_bytes
        piece = data[start:stop]
        while piece:
            written = os.pwrite(fd, piece, offset + start)
            piece, start = piece[written:], start + written
