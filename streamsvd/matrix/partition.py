"""The columns that one worker holds: apply moves to them, report what the coordinator needs.

A partition does not care what backs its chunks: arrays in memory or memory-mapped chunk files.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.rotations import (
    SPAN,
    look_up,
    rotate,
    rotate_column,
    rotate_lead,
    rotate_rows,
    update_tail,
)
from streamsvd.kernels.steps import Blocks
from streamsvd.kernels.tiles import best_of_tile
from streamsvd.matrix.held import HeldColumns
from streamsvd.matrix.tiled import RowProduct, TiledColumns, top_columns
from streamsvd.matrix.working import WorkingMatrix


class Report(NamedTuple):
    """What a partition tells after a batch of moves `(i, j)`. Arrays may be views of its state."""

    start: int
    """First column held, of which `head_rows` are."""
    tail_value: Array
    """(p,) each row's largest tail entry by absolute value (the first column on ties)."""
    tail_where: Array
    """(p,) its column, -1 when the partition holds no tail."""
    rows: Sequence[int] = ()
    """Rows i and, when ``j < p``, j of each move with ``j < n``."""
    head_rows: Array | None = None
    """(any, h) these rows of the head columns held here."""
    held: Sequence[int] = ()
    """Places in the batch of the moves whose column j is held here."""
    columns: Array | None = None
    """(any, n) the new columns i of these."""
    heads: Sequence[int] = ()
    """The columns j among these that are head columns."""
    head_columns: Array | None = None
    """(any, p + 1) the first `p` entries of these columns after the batch, and ``X[j, j]``."""


class Prefetch(Protocol):
    """Starts reading what a move is about to touch, without waiting for it."""

    def row(self, i: int) -> None:
        """Row `i` of all chunks."""

    def column(self, b: int, k: int) -> None:
        """Column `k` of chunk `b`."""

    def rows(self, b: int, rows: Array) -> None:
        """The given rows of chunk `b`."""


class PairColumns:
    """Columns ``start..stop-1`` of the working matrix, and moves on pairs of them.

    Parameters
    ----------
    chunks : list of (n, c) C-contiguous arrays
        All of the same width `c`; columns of the last beyond `stop` are padding.
    start, stop : int
        The columns held.
    n_components : int
        `p`. Columns below `p` live at the coordinator; the copy here is stale until the end.
    tops : list of (p, c) C-contiguous arrays, optional
        The first p rows of each chunk, where they are not in the chunk itself.
    prefetch : Prefetch, optional
        Told the rows and columns that a move is about to touch.
    held : sequence of HeldColumns, optional
        Columns of each chunk that are in memory; with `prefetch`.

    Notes
    -----
    Memory beside the chunks: ``p`` numbers per `SPAN` columns.
    """

    def __init__(
        self,
        chunks: list[Array],
        start: int,
        stop: int,
        n_components: int,
        tops: list[Array] | None = None,
        prefetch: Prefetch | None = None,
        held: Sequence[HeldColumns] = (),
    ) -> None:
        self.chunks, self.start, self.stop = chunks, start, stop
        self.tops = [chunk[:n_components] for chunk in chunks] if tops is None else tops
        self._prefetch, self._held = prefetch, held
        self.n_components = n_components
        self.n_features, self.width = chunks[0].shape
        n, p, c = self.n_features, n_components, self.width
        self._starts = range(start, stop, c)
        self._stops = [min(c, stop - s) for s in self._starts]
        self._firsts = [
            min(max(n - s, 0), k) for s, k in zip(self._starts, self._stops, strict=True)
        ]
        self.head_stop = min(max(n, start), stop)
        self._has_tail = self.head_stop < stop
        self._spans = -(-c // SPAN)
        bits = np.int64 if chunks[0].dtype.itemsize == 8 else np.int32
        self._peaks = np.full((p, len(chunks) * self._spans), -1, dtype=bits)
        self.tail_value = np.zeros(p, dtype=chunks[0].dtype)
        self.tail_where = np.full(p, -1, dtype=np.int64)
        self._stale = np.empty(p, dtype=np.int64)
        self._bits = [top.view(bits) for top in self.tops]
        self._before = np.empty(p, dtype=chunks[0].dtype)  # of a column, while it is moved
        self._tiled = TiledColumns(self.tops, chunks, start, stop)

    @property
    def blocks(self) -> Blocks:
        """The columns and their peaks as arrays, while this object is there."""
        return Blocks(
            np.array([top.ctypes.data for top in self.tops]),
            np.array([chunk.ctypes.data for chunk in self.chunks]),
            np.array(self._firsts),
            np.array(self._stops),
            self.width,
            self._peaks,
            self.tail_value[np.newaxis],
            self.tail_where[np.newaxis],
            self._before,
            self._before.view(self._peaks.dtype),
            self._stale,
        )

    @property
    def is_at_hand(self) -> bool:
        """Whether moves need not ask for what they touch."""
        return self._prefetch is None and not self._held

    def start_up(self) -> Report:
        """Find the largest tail entries; the first report."""
        rows = np.arange(self.n_components)
        for b in range(len(self.tops)):
            if self._prefetch is not None:
                self._prefetch.rows(b, rows)
            self._find_peaks(b)
        for i in range(self.n_components):
            self._look_up(i)
        return Report(self.start, self.tail_value, self.tail_where)

    def _find_peaks(self, b: int) -> None:
        """The peaks of all rows below `p` in chunk `b`; see `streamsvd.kernels`."""
        bits, mask = self._bits[b], self._peaks.dtype.type(np.iinfo(self._peaks.dtype).max)
        for t in range(self._spans):
            lo, hi = max(t * SPAN, self._firsts[b]), min((t + 1) * SPAN, self._stops[b])
            if lo < hi:
                self._peaks[:, b * self._spans + t] = (bits[:, lo:hi] & mask).max(axis=1)

    def apply(self, pairs: Array, g: Array, h: Array, columns: Array) -> Report:
        """Apply a batch of moves ``(i, j)``, no two of which share an index, in order.

        Of each: rows i, j by `g`, then the columns i and j by `h`. `columns` (k, n) are the columns
        i after the rows of their own move; they are changed in place where column j is held here.
        """
        n, p = self.n_features, self.n_components
        moves: list[list[int]] = pairs.tolist()
        rows: list[int] = []
        held: list[int] = []
        heads: list[int] = []
        if self._prefetch is not None:
            self._ask_for(self._prefetch, moves)
        for k, (i, j) in enumerate(moves):
            if j < n:
                self._rotate_rows(i, j, g[k])
                self._look_up(i)
                rows.append(i)
                if j < p:
                    self._look_up(j)
                    rows.append(j)
                for m in held:  # columns that have left
                    rotate_lead(columns[m : m + 1], i, j, g[k])
            if p <= j and self.start <= j < self.stop:
                self._rotate_column(j, columns[k], h[k])
                held.append(k)
                if j < n:
                    heads.append(j)
        return Report(
            self.start,
            self.tail_value,
            self.tail_where,
            rows,
            self._head_rows(rows) if rows else None,
            held,
            columns if len(held) == len(columns) else columns[held],
            heads,
            self._head_columns(heads) if heads else None,
        )

    def _ask_for(self, prefetch: Prefetch, moves: list[list[int]]) -> None:
        """Start reading what the moves touch."""
        for _, j in moves:
            if self.n_components <= j < self.n_features:
                prefetch.row(j)
            if self.n_components <= j and self.start <= j < self.stop:
                b, k = divmod(j - self.start, self.width)
                if not self._held or k not in self._held[b]:
                    prefetch.column(b, k)

    def _rotate_rows(self, i: int, j: int, g: Array) -> None:
        peaks, span, is_top = self._peaks, 0, j < self.n_components
        if not is_top:
            for held, chunk in zip(self._held, self.chunks, strict=False):
                held.put_row(j, chunk)
        for top, bits, chunk, first, stop in zip(
            self.tops, self._bits, self.chunks, self._firsts, self._stops, strict=True
        ):
            if first < stop:
                rotate_rows(top, bits, chunk, i, j, g, first, stop, peaks, span)
            else:
                rotate(top, i, top if is_top else chunk, j, 0, stop, g)
            span += self._spans
        for held in self._held:
            held.rotate_rows(i, j, g)

    def _rotate_column(self, j: int, column: Array, h: Array) -> None:
        b, k = divmod(j - self.start, self.width)
        if self._prefetch is None or not self._held:
            self._rotate_in(b, self.chunks[b], k, column, h)
            return
        held, top, p = self._held[b], self.tops[b], self.n_components
        own = held.take(k, top, self.chunks[b])
        rotate(column[np.newaxis], 0, own[np.newaxis], 0, p, self.n_features, h)
        self._rotate_in(b, top, k, column, h)  # the first rows are left
        own[:p] = top[:, k]
        if not held.has_room(k):
            held.write_back(p, self.chunks[b], partial(self._prefetch.column, b))
        held.put(k, own)

    def _rotate_in(self, b: int, chunk: Array, k: int, column: Array, h: Array) -> None:
        rotate_column(self.tops[b], chunk, k, column, h, self._before)
        if k < self._firsts[b]:
            return
        n_stale = update_tail(
            self.tops[b],
            self._bits[b],
            k,
            self._starts[b],
            self._before.view(self._peaks.dtype),
            self._firsts[b],
            self._stops[b],
            self._peaks,
            b * self._spans,
            self.tail_value,
            self.tail_where,
            self._stale,
        )
        if n_stale:
            for i in self._stale[:n_stale].tolist():
                self._look_up(i)

    def _look_up(self, i: int) -> None:
        """Where the largest tail entry of row `i` is, from the peaks of the spans."""
        if not self._has_tail:
            return
        span = self._look_up_in(0, i)
        if span >= self._spans:
            self._look_up_in(span // self._spans, i)

    def _look_up_in(self, b: int, i: int) -> int:
        return look_up(
            self.tops[b],
            self._bits[b],
            i,
            self._starts[b],
            self._firsts[b],
            self._stops[b],
            self._peaks,
            b * self._spans,
            self.tail_value,
            self.tail_where,
        )

    def _head_rows(self, rows: list[int]) -> Array | None:
        """The given rows, all below `p`, of the head columns held here."""
        if self.head_stop <= self.start:
            return None
        out = np.empty((len(rows), self.head_stop - self.start), dtype=self.chunks[0].dtype)
        for r, row in enumerate(rows):
            for b, first in enumerate(self._firsts):
                if not first:
                    break
                out[r, b * self.width : b * self.width + first] = self.tops[b][row, :first]
        return out

    def _head_columns(self, heads: list[int]) -> Array:
        """Of some columns beyond the first `p` what the coordinator holds, (any, p + 1)."""
        p = self.n_components
        out = np.empty((len(heads), p + 1), dtype=self.chunks[0].dtype)
        for c, j in enumerate(heads):
            b, k = divmod(j - self.start, self.width)
            top, chunk = self.tops[b], self.chunks[b]
            column = self._held[b].take(k, top, chunk) if self._held else chunk[:, k]
            out[c, :p], out[c, p] = top[:, k], column[j]
        return out

    def entry(self, i: int, j: int) -> float:
        """``X[i, j]`` for ``i < p``, or zero when column `j` is not held here."""
        if not self.start <= j < self.stop:
            return 0.0
        b, k = divmod(j - self.start, self.width)
        return float(self.tops[b][i, k])


class Partition(PairColumns):
    """The same with block steps: all that the algorithm asks of columns."""

    def best_columns(self, selection: int, lead: Array, diag: Array) -> tuple[Array, Array]:
        """The `p` best scores of the columns held beyond the first `p`, and these columns.

        By decreasing score, ties to the lowest column; the score of a column is the best of its
        pairs ``(i, j)``, ``i < p``. Empty with a negative `selection`. `lead` (p, n) and `diag`
        (n,) as in `Coordinator`.
        """
        if selection < 0:
            return np.empty(0), np.empty(0, dtype=np.int64)
        scores, (tile, _) = np.empty(self.stop - self.start), self._tiled.work(self.n_components)
        rows = np.arange(self.n_components)
        for lo, hi, at in self._sweep(rows):
            self._tiled.read(rows, lo, hi, tile, at)
            self._score_tile(selection, tile, lo, hi, at, lead, diag, scores)
        return self._best_of(scores)

    def take_columns(self, indices: Array) -> Array:
        """A copy of those of the columns `indices`, ascending, that are held here; (n, any)."""
        held = indices[(self.start <= indices) & (indices < self.stop)]
        if self._prefetch is not None:
            for j in held.tolist():
                self._prefetch.column(*divmod(j - self.start, self.width))
        return self._tiled.take(held)

    def apply_block(
        self,
        selection: int,
        rows: Array,
        g: Array,
        indices: Array,
        columns: Array,
        lead: Array,
        diag: Array,
    ) -> tuple[Array, Array]:
        """Apply a block step: `rows` by `g`, then the columns `indices` become `columns`.

        All are ascending; the first `p` rows are among `rows`. `lead` and `diag` are those after
        the step; returns what `best_columns` would then.
        """
        tiled, p = self._tiled, self.n_components
        scores, product = np.empty(self.stop - self.start), RowProduct(rows, g, tiled)
        for lo, hi, at in self._sweep(rows):
            tile = product.on_tile(lo, hi, at)
            if selection >= 0:
                a, b = np.searchsorted(indices, [lo, hi])
                tile[:p, indices[a:b] - lo + at] = columns[:p, a:b]
                self._score_tile(selection, tile, lo, hi, at, lead, diag, scores)
        a, b = np.searchsorted(indices, [self.start, self.stop])
        tiled.put(indices[a:b], columns[:, a:b])
        return self._best_of(scores if selection >= 0 else scores[:0])

    def _sweep(self, rows: Array) -> Iterator[tuple[int, int, int]]:
        """The tiles of `TiledColumns`, for work on `rows`, which are asked for ahead."""
        asked = 0
        for lo, hi, at in self._tiled.tiles():
            while self._prefetch is not None and asked < len(self._starts):
                if self._starts[asked] >= hi:
                    break
                self._prefetch.rows(asked, rows)
                asked += 1
            yield lo, hi, at

    def _score_tile(
        self,
        selection: int,
        tile: Array,
        lo: int,
        hi: int,
        at: int,
        lead: Array,
        diag: Array,
        scores: Array,
    ) -> None:
        """Scores of the columns lo..hi-1, those below `p` -inf; their rows are ``tile[:, at:]``."""
        first = min(max(lo, self.n_components), hi)
        scores[lo - self.start : first - self.start] = -np.inf
        part = scores[first - self.start : hi - self.start]
        best_of_tile(selection, tile, at + first - lo, first, lead, diag, part)

    def _best_of(self, scores: Array) -> tuple[Array, Array]:
        places = top_columns(scores, self.n_components)
        return scores[places], self.start + places


def make_partitions(
    working: WorkingMatrix, n_components: int, count: int, first: int = 0
) -> list[Partition]:
    """The chunks of a working matrix in `count` runs, or one for each chunk if those are fewer.

    The matrix holds the columns `first` and on of all.
    Pages that are not in the cache, since it is too small, are asked for ahead of each move.
    """
    chunks, p = working.chunks, n_components
    count = min(count, len(chunks))
    bounds = np.linspace(0, len(chunks), count + 1).astype(int).tolist()
    partitions = []
    for a, b in pairwise(bounds):
        start, stop = a * working.width, min(b * working.width, working.n_samples)
        tops = working.tops[a:b] if working.tops else None
        prefetch, held = working.prefetch(slice(a, b)), working.held[a:b]
        columns = (first + start, first + stop)
        partitions.append(Partition(chunks[a:b], *columns, p, tops, prefetch, held))
    return partitions
