"""Sparse matrices that are compressed by their features, as sources: a block of samples at a time.

An AnnData may hold its matrix by columns (CSC), so that the entries of a sample lie all over it. A
block of samples is gathered by one reading of all entries, and strips are cut from it.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.compressed import sound_indptr
from streamsvd.data.source import Described, Source, open_file
from streamsvd.errors import SourceError

BLOCK = 2**23
"""Entries that are gathered at a time."""

PIECE = 2**21
"""Entries that are read at a time."""

BYTES = 64
"""Of an entry, at most, while a block is gathered."""

MOST_READINGS = 16
"""Of entries on a disk for one pass over the samples; beyond it pays to convert them."""


class TurnedSource(Source):
    """A `Source` in the three arrays of a CSC matrix of samples by features, or CSR of the reverse.

    One pass over the samples reads the entries once for each `BLOCK` of them, and once more before.
    Memory: `BYTES` for each entry of a block, 8 for each sample and feature.
    """

    _gives_new = True
    reads_sparse = True

    def __init__(
        self, parts: Mapping[str, Any], shape: tuple[int, ...], sample_axis: int, name: str
    ) -> None:
        self._parts = dict(parts)
        super().__init__(Described(self._parts["data"].dtype, shape), sample_axis, name, 1)
        self._indptr = sound_indptr(self._parts, self.n_features, name, self._part)
        self.n_stored: int = int(self._indptr[-1])
        self._block = (0, 0, sparse.csr_array((0, self.n_features)))
        readings, is_held = -(-self.n_stored // BLOCK), isinstance(self._parts["data"], np.ndarray)
        if readings > MOST_READINGS and not is_held:
            raise SourceError(
                f"{name} is compressed by its features: to read its samples once takes {readings} "
                f"readings of its {self.n_stored:,} entries, more than {MOST_READINGS}; write it "
                "anew, compressed by its samples, for example with adata.X = adata.X.tocsr() after "
                "adata = anndata.read_h5ad(...)"
            )

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples takes: a block, then the strip."""
        block = BYTES * min(self.n_stored, BLOCK) + 8 * (self.n_samples + self.n_features)
        return super().decoded_bytes(samples) + block

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, n) float64 matrix."""
        first, last, block = self._block
        if not first <= start <= stop <= last:
            self._block = (0, 0, sparse.csr_array((0, self.n_features)))  # not two at a time
            first, last, block = self._block = self._gathered(start, stop)
        return block[start - first : stop - first].copy()

    def _read(self, start: int, stop: int) -> Array:
        return self.read_sparse(start, stop).toarray().T

    def _counted(self, strip: Array) -> Array:
        return strip  # what is read was counted by `_part`

    def _gathered(self, start: int, stop: int) -> tuple[int, int, sparse.csr_array]:
        """As many samples from `start` on as make a block, at least those before `stop`."""
        before = self._ends[start - 1] if start else 0
        last = max(int(np.searchsorted(self._ends, before + BLOCK, side="right")), stop)
        found: list[tuple[Array, Array, Array]] = []
        for at, indices in self._indices():
            places = np.flatnonzero((indices >= start) & (indices < last))
            if len(places):
                data = self._part("data", at, at + len(indices))[places].astype(np.float64)
                features = np.searchsorted(self._indptr, places + at, side="right") - 1
                found.append((data, indices[places] - start, features))
        shape = (last - start, self.n_features)
        if not found:
            return start, last, sparse.csr_array(shape)
        data, rows, columns = map(np.concatenate, zip(*found, strict=True))
        return start, last, sparse.csr_array((data, (rows, columns)), shape=shape)

    @cached_property
    def _ends(self) -> Array:
        """(N,) entries of the samples up to each one."""
        counts = np.zeros(self.n_samples, np.int64)
        for _, indices in self._indices():
            if not 0 <= int(indices.min()) <= int(indices.max()) < self.n_samples:
                raise SourceError(
                    f"{self.name}/indices go from {indices.min()} to {indices.max()}; they must be "
                    f"from 0 to {self.n_samples - 1}"
                )
            counts += np.bincount(indices, minlength=self.n_samples)
        return np.cumsum(counts)

    def _indices(self) -> Iterator[tuple[int, Array]]:
        """The samples of all entries, in pieces, and where these begin."""
        for start in range(0, self.n_stored, PIECE):
            stop = min(start + PIECE, self.n_stored)
            yield start, self._part("indices", start, stop).astype(np.int64)

    def _part(self, part: str, start: int, stop: int) -> Array:
        """Entries of one of the three arrays."""
        with open_file(f"{self.name}/{part}"):
            return super()._counted(np.asarray(self._parts[part][start:stop]))
