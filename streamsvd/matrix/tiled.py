"""Block steps on columns that are held in chunks of any width: products on a fixed grid of tiles.

The last bits of a BLAS product depend on the shape of the call: with OpenBLAS, a column alone
differs from the same column among others. So rows are multiplied a tile at a time:
`sizes.TILE_WIDTH` columns, counted from column 0 of the whole matrix, copied into an array of one
shape, whatever stands in the place of columns that are not held here. The result has the same bits
however the columns are cut into chunks and partitions, with one BLAS thread a call; threads are for
partitions.

`streamsvd.kernels` has the symbols, and the rules that kernels keep.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.tiles import read_columns, read_rows, write_columns, write_rows
from streamsvd.sizes import TILE_WIDTH as WIDTH


def top_columns(scores: Array, count: int) -> Array:
    """The places of the `count` largest of `scores`, by decreasing score, ties to the lowest."""
    if count < len(scores):
        bound = np.partition(scores, len(scores) - count)[len(scores) - count]
        above = np.flatnonzero(scores > bound)
        places = np.concatenate([above, np.flatnonzero(scores == bound)[: count - len(above)]])
    else:
        places = np.arange(len(scores))
    return places[np.lexsort((places, -scores[places]))]


class TiledColumns:
    """Columns ``start..stop-1`` of a matrix, in chunks of one width, by the tiles of the grid.

    Parameters
    ----------
    tops, chunks : lists of (p, c) and (n, c) arrays
        As of `streamsvd.matrix.partition.Partition`.
    start, stop : int
        The columns held.
    """

    def __init__(
        self, tops: Sequence[Array], chunks: Sequence[Array], start: int, stop: int
    ) -> None:
        self.tops, self.chunks, self.start, self.stop = tops, chunks, start, stop
        self.width = chunks[0].shape[1]
        self.dtype = chunks[0].dtype
        self._work = np.zeros((2, 0, WIDTH), dtype=self.dtype)

    def tiles(self) -> Iterator[tuple[int, int, int]]:
        """``(lo, hi, at)``: the columns held of each tile, and where in the tile they begin."""
        for first in range(self.start - self.start % WIDTH, self.stop, WIDTH):
            lo = max(first, self.start)
            yield lo, min(first + WIDTH, self.stop), lo - first

    def work(self, n_rows: int) -> tuple[Array, Array]:
        """Two arrays of the shape of so many rows of a tile, kept from call to call."""
        if self._work.shape[1] < n_rows:
            self._work = np.zeros((2, n_rows, WIDTH), dtype=self.dtype)
        return self._work[0, :n_rows], self._work[1, :n_rows]

    def read(self, rows: Array, lo: int, hi: int, out: Array, at: int) -> None:
        """Columns lo..hi-1 of `rows` to ``out[:, at:]``."""
        for b, here, stop, k in self._pieces(lo, hi, at):
            read_rows(self.tops[b], self.chunks[b], rows, here, stop, out, k)

    def write(self, rows: Array, lo: int, hi: int, values: Array, at: int) -> None:
        """Undoes `read`."""
        for b, here, stop, k in self._pieces(lo, hi, at):
            write_rows(self.tops[b], self.chunks[b], rows, here, stop, values, k)

    def _pieces(self, lo: int, hi: int, at: int) -> Iterator[tuple[int, int, int, int]]:
        """Block, its columns from and to, place in the tile."""
        for b in range((lo - self.start) // self.width, (hi - 1 - self.start) // self.width + 1):
            first = self.start + b * self.width
            here, stop = max(lo, first), min(hi, first + self.width)
            yield b, here - first, stop - first, at + here - lo

    def take(self, indices: Array) -> Array:
        """A copy of the columns `indices`, ascending, which are held here; (n, len(indices))."""
        out = np.empty((self.chunks[0].shape[0], len(indices)), dtype=self.dtype)
        for b, here, places in self._in_chunks(indices):
            read_columns(self.tops[b], self.chunks[b], places, out[:, here])
        return out

    def put(self, indices: Array, columns: Array) -> None:
        """Undoes `take`."""
        for b, here, places in self._in_chunks(indices):
            write_columns(self.tops[b], self.chunks[b], places, columns[:, here])

    def _in_chunks(self, indices: Array) -> Iterator[tuple[int, slice, Array]]:
        """Block, which of `indices`, ascending, it holds, and where."""
        chunks, places = np.divmod(indices - self.start, self.width)
        for b in np.unique(chunks).tolist():
            here = slice(*np.searchsorted(chunks, [b, b + 1]).tolist())
            yield b, here, places[here]


class RowProduct:
    """``X[rows] <- G^T X[rows]`` on tiles, always by a product of one shape.

    Parameters
    ----------
    rows : (r,) int array
        Ascending.
    g : (r, r) array
        G; cast to the precision of the columns.
    columns : TiledColumns
    """

    def __init__(self, rows: Array, g: Array, columns: TiledColumns) -> None:
        self.rows, self._columns = rows, columns
        self._factor = np.ascontiguousarray(g.T, dtype=columns.dtype)

    def on_tile(self, lo: int, hi: int, at: int) -> Array:
        """Multiply the columns of one tile; returns the rows, (r, WIDTH), until the next call."""
        before, after = self._columns.work(len(self.rows))
        self._columns.read(self.rows, lo, hi, before, at)
        np.matmul(self._factor, before, out=after)
        self._columns.write(self.rows, lo, hi, after, at)
        return after

    def on_panel(self, panel: Array, indices: Array) -> None:
        """Multiply columns that were taken out, as if they were in their tiles.

        `panel` (n, k) are the columns `indices`, ascending.
        """
        before, after = self._columns.work(len(self.rows))
        tiles, places = np.divmod(indices, WIDTH)
        for tile in np.unique(tiles).tolist():
            a, b = np.searchsorted(tiles, [tile, tile + 1])
            before[:, places[a:b]] = panel[self.rows, a:b]
            np.matmul(self._factor, before, out=after)
            panel[self.rows, a:b] = after[:, places[a:b]]
