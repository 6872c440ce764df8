"""Sparse matrices in three arrays, as AnnData stores them in Zarr and HDF5, as sources."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.source import Described, Source, check_compressed, check_matrix
from streamsvd.data.strips import summed
from streamsvd.errors import SourceError

SPARSE_PARTS = ("data", "indices", "indptr")
"""The arrays of the group of a sparse matrix of AnnData."""

SPARSE_KINDS = ("csr_matrix", "csc_matrix")
"""What these groups say that they are."""


def check_group(group: Any, attributes: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The shape of the sparse matrix in a group; refuses one that is not whole."""
    lost = [key for key in SPARSE_PARTS if key not in group]
    lost += [key for key in ("shape",) if key not in attributes]
    if lost:
        raise SourceError(f"{name} is not a whole sparse matrix: {', '.join(lost)} is not there")
    shape = attributes["shape"]
    listed = shape.tolist() if isinstance(shape, np.ndarray) else shape
    if not isinstance(listed, list | tuple) or not all(type(size) is int for size in listed):
        raise SourceError(f"{name} has the shape {shape!r}: need two numbers; mend its attributes")
    check_matrix(group["data"].dtype, tuple(listed), name)
    for key in SPARSE_PARTS:
        part = group[key]
        if len(part.shape) != 1 or (key != "data" and part.dtype.kind not in "iu"):
            raise SourceError(
                f"{name}/{key} holds {part.dtype} in the shape {part.shape}; the {key} of a sparse "
                "matrix are one row of numbers, whole ones but for the data"
            )
    return tuple(listed)


def sound_indptr(
    parts: Mapping[str, Any], count: int, name: str, read: Callable[[str, int, int], Array]
) -> Array:
    """Where each of the `count` compressed rows or columns ends, (count + 1,), from 0.

    Refuses what does not fit the shape or the entries; ``read(part, start, stop)`` reads.
    """
    found, fits = np.zeros(1, np.int64), parts["indptr"].shape == (count + 1,)
    if fits:
        found = read("indptr", 0, count + 1).astype(np.int64)
        entries = min(parts[key].shape[0] for key in ("data", "indices"))
        fits = found[0] == 0 and 0 <= found[-1] <= entries
    if not fits or np.any(np.diff(found) < 0):
        raise SourceError(f"{name}/indptr does not fit the shape and the data of the matrix")
    return found


class CompressedSource(Source):
    """A `Source` in the three arrays of a CSR or CSC matrix, which are read in pieces.

    Samples must be what the matrix is compressed by: rows of CSR, columns of CSC. Strips are read
    as they are, or made dense one at a time; beside them `indptr`, ``8 (N + 1)`` bytes, is held in
    memory.
    """

    readable_by_workers = True
    _gives_new = True
    reads_sparse = True

    def __init__(
        self,
        parts: Mapping[str, Any],
        kind: str,
        shape: tuple[int, ...],
        sample_axis: int,
        name: str,
    ) -> None:
        check_compressed(kind, sample_axis, name)
        self._parts = dict(parts)
        super().__init__(Described(self._parts["data"].dtype, shape), sample_axis, name, 1)
        self._indptr = sound_indptr(self._parts, self.n_samples, name, self._part)
        self.n_stored = int(self._indptr[-1])

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes: whole chunks of entries, then the strip."""
        cuts = self._indptr[::samples]
        entries = int(np.diff(np.append(cuts, self._indptr[-1])).max(initial=0))
        parts = [self._parts[key] for key in ("data", "indices")]
        whole = sum((entries + 2 * _width(part)) * part.dtype.itemsize for part in parts)
        return super().decoded_bytes(samples) + min(whole, self._most_decoded(parts))

    @staticmethod
    def _most_decoded(parts: list[Any]) -> int:
        """Bytes of all chunks."""
        return sum(
            -(-part.shape[0] // _width(part)) * _width(part) * part.dtype.itemsize for part in parts
        )

    def _counted(self, strip: Array) -> Array:
        return strip  # what was read for it, less than it is large, was counted by `_part`

    def _read(self, start: int, stop: int) -> Array:
        return self.read_sparse(start, stop).toarray().T

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, n) float64 matrix."""
        lo, hi = int(self._indptr[start]), int(self._indptr[stop])
        data, indices = (self._part(key, lo, hi) for key in ("data", "indices"))
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.n_features:
            raise SourceError(
                f"{self.name}/indices go from {indices.min()} to {indices.max()} in samples "
                f"{start} to {stop - 1}; they must be from 0 to {self.n_features - 1}"
            )
        indptr = self._indptr[start : stop + 1] - lo
        shape = (stop - start, self.n_features)
        return summed(data, indices, indptr, shape, self.name)

    def _part(self, part: str, start: int, stop: int) -> Array:
        """Entries of one of the three arrays."""
        return super()._counted(self._entries_of(part, start, stop))

    def _entries_of(self, part: str, start: int, stop: int) -> Array:
        """The same, read: what a store raises is to be a `SourceError` that names the part."""
        return np.asarray(self._parts[part][start:stop])


def _width(part: Any) -> int:
    """Entries in a chunk, 1 of what is not stored in chunks."""
    return int(part.chunks[0]) if part.chunks else 1
