"""The columns that one worker holds: apply moves to them, report what the coordinator needs.

A partition does not care what backs its blocks: arrays in memory or memory-mapped chunk files.
"""

from typing import NamedTuple, Protocol

import numpy as np

from streamsvd.kernels import TILE, Array, find_peaks, look_up, rotate_column, rotate_rows
from streamsvd.tiles import RowProduct, TiledColumns, best_of_tile, top_columns


class Report(NamedTuple):
    """What a partition tells after a move `(i, j)`. Arrays may be views of its state."""

    start: int
    """First column held."""
    tail_value: Array
    """(p,) each row's largest tail entry by absolute value (the first column on ties)."""
    tail_where: Array
    """(p,) its column, -1 when the partition holds no tail."""
    head_rows: Array | None
    """(1 or 2, h) rows i and, when ``j < p``, j of the head columns held here."""
    column: Array | None
    """(n,) the new column i, from the partition that holds column j."""
    head_column: Array | None
    """(n,) the new column j, when it is a head column held here."""


class Prefetch(Protocol):
    """Starts reading what a move is about to touch, without waiting for it."""

    def row(self, i: int) -> None:
        """Row `i` of all blocks."""

    def column(self, b: int, k: int) -> None:
        """Column `k` of block `b`."""

    def rows(self, b: int, rows: Array) -> None:
        """The given rows of block `b`."""


class Partition:
    """Columns ``start..stop-1`` of the working matrix.

    Parameters
    ----------
    blocks : list of (n, c) C-contiguous arrays
        All of the same width `c`; columns of the last beyond `stop` are padding.
    start, stop : int
        The columns held.
    n_components : int
        `p`. Columns below `p` live at the coordinator; the copy here is stale until the end.
    tops : list of (p, c) C-contiguous arrays, optional
        The first p rows of each block, where they are not in the block itself.
    prefetch : Prefetch, optional
        Told the rows and columns that a move is about to touch.

    Notes
    -----
    Memory beside the blocks: ``p`` numbers per `TILE` columns.
    """

    def __init__(
        self,
        blocks: list[Array],
        start: int,
        stop: int,
        n_components: int,
        tops: list[Array] | None = None,
        prefetch: Prefetch | None = None,
    ) -> None:
        self.blocks, self.start, self.stop = blocks, start, stop
        self.tops = [block[:n_components] for block in blocks] if tops is None else tops
        self._prefetch = prefetch
        self.n_components = n_components
        self.n_features, self.width = blocks[0].shape
        n, p, c = self.n_features, n_components, self.width
        self._starts = range(start, stop, c)
        self._stops = [min(c, stop - s) for s in self._starts]
        self._firsts = [
            min(max(n - s, 0), k) for s, k in zip(self._starts, self._stops, strict=True)
        ]
        self.head_stop = min(max(n, start), stop)
        self._tiles = -(-c // TILE)
        bits = np.int64 if blocks[0].dtype.itemsize == 8 else np.int32
        self._peaks = np.full((p, len(blocks) * self._tiles), -1, dtype=bits)
        self.tail_value = np.zeros(p, dtype=blocks[0].dtype)
        self.tail_where = np.full(p, -1, dtype=np.int64)
        self._stale = np.empty(p, dtype=np.int64)
        self._tiled = TiledColumns(self.tops, blocks, start, stop)

    def start_up(self) -> Report:
        """Find the largest tail entries; the first report."""
        for b, top in enumerate(self.tops):
            find_peaks(top, self._firsts[b], self._stops[b], self._peaks, b * self._tiles)
        for i in range(self.n_components):
            self._look_up(i)
        return Report(self.start, self.tail_value, self.tail_where, None, None, None)

    def apply(self, i: int, j: int, g: Array, h: Array, column: Array) -> Report:
        """Apply a move: rows i, j by `g`, then column j with `column` (column i) by `h`."""
        new_column = head_column = None
        if j < self.n_features:
            self._rotate_rows(i, j, g)
            self._look_up(i)
            if j < self.n_components:
                self._look_up(j)
        if self.n_components <= j and self.start <= j < self.stop:
            new_column = self._rotate_column(j, column, h)
            if j < self.n_features:
                head_column = self.column(j)
        head_rows = self._head_rows(i, j) if j < self.n_features else None
        return Report(
            self.start, self.tail_value, self.tail_where, head_rows, new_column, head_column
        )

    def _rotate_rows(self, i: int, j: int, g: Array) -> None:
        if self._prefetch is not None and j >= self.n_components:
            self._prefetch.row(j)
        peaks, tile = self._peaks, 0
        for top, block, first, stop in zip(
            self.tops, self.blocks, self._firsts, self._stops, strict=True
        ):
            rotate_rows(top, block, i, j, g, first, stop, peaks, tile)
            tile += self._tiles

    def _rotate_column(self, j: int, column: Array, h: Array) -> Array:
        b = (j - self.start) // self.width
        if self._prefetch is not None:
            self._prefetch.column(b, j - self._starts[b])
        n_stale = rotate_column(
            self.tops[b],
            self.blocks[b],
            j,
            self._starts[b],
            column,
            h,
            self._firsts[b],
            self._stops[b],
            self._peaks,
            b * self._tiles,
            self.tail_value,
            self.tail_where,
            self._stale,
        )
        if n_stale:
            for i in self._stale[:n_stale].tolist():
                self._look_up(i)
        return column

    def _look_up(self, i: int) -> None:
        """Where the largest tail entry of row `i` is, from the peaks of the tiles."""
        tile = self._look_up_in(0, i)
        if tile >= self._tiles:
            self._look_up_in(tile // self._tiles, i)

    def _look_up_in(self, b: int, i: int) -> int:
        return look_up(
            self.tops[b],
            i,
            self._starts[b],
            self._firsts[b],
            self._stops[b],
            self._peaks,
            b * self._tiles,
            self.tail_value,
            self.tail_where,
        )

    def _head_rows(self, i: int, j: int) -> Array | None:
        """Rows i and j of the head columns held here; row j only where it is a leading row."""
        if self.head_stop <= self.start:
            return None
        rows = (i, j) if j < self.n_components else (i,)
        out = np.empty((len(rows), self.head_stop - self.start), dtype=self.blocks[0].dtype)
        for r, row in enumerate(rows):
            for b, first in enumerate(self._firsts):
                if not first:
                    break
                out[r, b * self.width : b * self.width + first] = self.tops[b][row, :first]
        return out

    def column(self, j: int) -> Array:
        """A copy of column `j`, (n,)."""
        b, k = divmod(j - self.start, self.width)
        return np.concatenate([self.tops[b][:, k], self.blocks[b][self.n_components :, k]])

    def entry(self, i: int, j: int) -> float:
        """``X[i, j]`` for ``i < p``, or zero when column `j` is not held here."""
        if not self.start <= j < self.stop:
            return 0.0
        b, k = divmod(j - self.start, self.width)
        return float(self.tops[b][i, k])

    # -------------------------------------------------------------------------- block steps

    def best_columns(self, selection: int, left: Array, diag: Array) -> tuple[Array, Array]:
        """The `p` best scores of the columns held beyond the first `p`, and these columns.

        By decreasing score, ties to the lowest column; the score of a column is the best of its
        pairs ``(i, j)``, ``i < p``. Empty with a negative `selection`. `left` (p, n) and `diag`
        (n,) as of `Coordinator`.
        """
        if selection < 0:
            return np.empty(0), np.empty(0, dtype=np.int64)
        scores, (tile, _) = np.empty(self.stop - self.start), self._tiled.work(self.n_components)
        for lo, hi, at in self._tiled.tiles():
            self._tiled.read(np.arange(self.n_components), lo, hi, tile, at)
            self._score_tile(selection, tile, lo, hi, at, left, diag, scores)
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
        left: Array,
        diag: Array,
    ) -> tuple[Array, Array]:
        """Apply a block step: `rows` by `g`, then the columns `indices` become `columns`.

        All are ascending; the first `p` rows are among `rows`. `left` and `diag` are those after
        the step; returns what `best_columns` would then.
        """
        tiled, p = self._tiled, self.n_components
        scores, product, fetched = np.empty(self.stop - self.start), RowProduct(rows, g, tiled), 0
        for lo, hi, at in tiled.tiles():
            while self._prefetch is not None and fetched < len(self._starts):
                if self._starts[fetched] >= hi:
                    break
                self._prefetch.rows(fetched, rows)
                fetched += 1
            tile = product.on_tile(lo, hi, at)
            if selection >= 0:
                a, b = np.searchsorted(indices, [lo, hi])
                tile[:p, indices[a:b] - lo + at] = columns[:p, a:b]
                self._score_tile(selection, tile, lo, hi, at, left, diag, scores)
        a, b = np.searchsorted(indices, [self.start, self.stop])
        tiled.put(indices[a:b], columns[:, a:b])
        return self._best_of(scores if selection >= 0 else scores[:0])

    def _score_tile(
        self,
        selection: int,
        tile: Array,
        lo: int,
        hi: int,
        at: int,
        left: Array,
        diag: Array,
        scores: Array,
    ) -> None:
        """Scores of the columns lo..hi-1, those below `p` -inf; their rows are ``tile[:, at:]``."""
        first = min(max(lo, self.n_components), hi)
        scores[lo - self.start : first - self.start] = -np.inf
        part = scores[first - self.start : hi - self.start]
        best_of_tile(selection, tile, at + first - lo, first, left, diag, part)

    def _best_of(self, scores: Array) -> tuple[Array, Array]:
        places = top_columns(scores, self.n_components)
        return scores[places], self.start + places
