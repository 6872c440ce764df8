"""Pages of mapped files, asked for ahead of the moves that touch them."""

import mmap
from collections.abc import Sequence

from streamsvd.arrays import Array
from streamsvd.sizes import PAGE


class PagePrefetch:
    """Starts reading the pages that are about to be touched, all at once, without waiting.

    A page fault waits for one page; asked for together, the pages of many chunks come as fast as
    the disk can. See `streamsvd.matrix.partition.Prefetch`.

    Parameters
    ----------
    maps : sequence of mmap
        One for each chunk.
    width, n_features : int
        Columns and rows of a chunk.
    n_skipped : int
        How many of the first rows are held elsewhere.
    itemsize : int
        Bytes of a number.
    most_mapped : int, optional
        Bytes beyond which what was asked for before is unmapped.
    """

    def __init__(
        self,
        maps: Sequence[mmap.mmap],
        width: int,
        n_features: int,
        n_skipped: int,
        itemsize: int,
        most_mapped: int | None = None,
    ) -> None:
        self._most_mapped, self._mapped = most_mapped, 0
        self._maps, self._row_bytes, self._itemsize = maps, width * itemsize, itemsize
        self._rows = range(n_skipped, n_features)

    def row(self, i: int) -> None:
        """Row `i` of all chunks."""
        self._count(len(self._maps) * self._row_bytes)
        first = i * self._row_bytes
        start = first - first % PAGE
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_WILLNEED, start, first + self._row_bytes - start)

    def column(self, b: int, k: int) -> None:
        """Column `k` of chunk `b`."""
        self._count(len(self._rows) * PAGE)
        mapped, offset = self._maps[b], k * self._itemsize
        for i in self._rows:
            byte = i * self._row_bytes + offset
            mapped.madvise(mmap.MADV_WILLNEED, byte - byte % PAGE, PAGE)

    def rows(self, b: int, rows: Array) -> None:
        """The given rows of chunk `b`."""
        rows = rows[rows >= self._rows.start]
        self._count(len(rows) * self._row_bytes)
        for i in rows.tolist():
            first = i * self._row_bytes
            start = first - first % PAGE
            self._maps[b].madvise(mmap.MADV_WILLNEED, start, first + self._row_bytes - start)

    def _count(self, n_bytes: int) -> None:
        """Unmap what was mapped before where `n_bytes` more would be too many."""
        if self._most_mapped is None:
            return
        if self._mapped + n_bytes > self._most_mapped:
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)
            self._mapped = 0
        self._mapped += n_bytes
