"""Columns of a chunk on disk that are in memory: what is not there costs a page for each number."""

from collections.abc import Callable
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.rotations import rotate

FREE, WRITTEN, COMBINED = -1.0, 0.0, np.inf
"""In place of a sum of squares: of no column, of one that may be replaced first, or not at all."""


class HeldColumns:
    """Columns of one chunk, whole and up to date: the largest, until moves have combined others.

    A column on disk has each of its numbers in another page: to read it is the slowest part of a
    move. Moves combine large columns, and rotations of rows leave it as it is how large a column
    is. So those that are largest when the data pass by on their way to the disk are kept; they are
    a few in a hundred and most of those that will be asked for. A column that a move has combined
    is held from then on, and the chunk has what it was before; see `put_row`.

    Parameters
    ----------
    n_features : int
    room : int
        Columns, at least one.
    dtype : numpy.dtype

    Notes
    -----
    Memory: n numbers and 32 bytes a column. What is held changes what is read, not one bit of what
    comes out.
    """

    def __init__(self, n_features: int, room: int, dtype: np.dtype[Any]) -> None:
        self._values = np.zeros((n_features, room), dtype=dtype)
        self._columns = np.full(room, -1, dtype=np.int64)
        self._sizes = np.full(room, FREE)
        self._combined: list[int] = []  # places

    def __contains__(self, k: int) -> bool:
        return k in self._columns

    def offer(self, first: int, part: Array) -> None:
        """Keep the largest of what is held and of `part` (n, any), column `first` of the chunk on.

        Only before the first move; a column is offered again after it was changed in the chunk.
        """
        self.forget(range(first, first + part.shape[1]))
        sizes = np.concatenate([self._sizes, np.einsum("ij,ij->j", part, part)])
        room = len(self._sizes)
        best = np.argpartition(-sizes, room - 1)[:room]
        coming = best[best >= room]
        going = np.setdiff1d(np.arange(room), best)
        self._sizes[going], self._columns[going] = sizes[coming], first + coming - room
        self._values[:, going] = part[:, coming - room]

    def forget(self, columns: range | Array) -> None:
        """Hold none of these any more: what the chunk has of them is newer."""
        gone = np.isin(self._columns, columns)
        self._sizes[gone], self._columns[gone] = FREE, -1

    def swap_rows(self, order: Array) -> None:
        """As `WorkingMatrix.swap_rows`."""
        self._values = self._values[order]

    def take(self, k: int, top: Array, chunk: Array) -> Array:
        """A copy of column `k` of a chunk whose first rows are `top`, held or not; (n,)."""
        here = np.flatnonzero(self._columns == k)
        if len(here):
            return self._values[:, here[0]].copy()
        return np.concatenate([top[:, k], chunk[len(top) :, k]])

    def has_room(self, k: int) -> bool:
        """Whether `put` can take column `k` without anything being written to the chunk first."""
        return len(self._combined) < len(self._sizes) or k in self

    def put(self, k: int, column: Array) -> None:
        """Hold column `k`, which a move has combined, in place of the smallest if it is new."""
        here = np.flatnonzero(self._columns == k)
        place = int(here[0]) if len(here) else int(np.argmin(self._sizes))
        if place not in self._combined:
            self._combined.append(place)
        self._columns[place], self._sizes[place] = k, COMBINED
        self._values[:, place] = column

    def put_row(self, i: int, chunk: Array) -> None:
        """Bring row `i` up to date in the chunk, whose pages are about to be read in any case."""
        if self._combined:
            chunk[i, self._columns[self._combined]] = self._values[i, self._combined]

    def rotate_rows(self, i: int, j: int, g: Array) -> None:
        """Rows i, j of what is held by `g`, as in the chunk."""
        rotate(self._values, i, self._values, j, 0, self._values.shape[1], g)

    def write_back(self, n_components: int, chunk: Array, ask_for: Callable[[int], None]) -> None:
        """Write what moves have combined, but for the first rows, to the chunk.

        `ask_for` is told each column before.
        """
        for place in sorted(self._combined, key=self._columns.__getitem__):
            k = int(self._columns[place])
            ask_for(k)
            chunk[n_components:, k] = self._values[n_components:, place]
        self._sizes[self._combined] = WRITTEN
        self._combined.clear()
