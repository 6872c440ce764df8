"""Sources in Zarr stores, checked before they are decoded."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from scipy import sparse
from zarr.storage import LocalStore, ZipStore

from streamsvd.arrays import Array
from streamsvd.data.source import Described, Source, check_compressed, summed
from streamsvd.errors import OptionError, ResourceError, SourceError
from streamsvd.storage.chunks import (
    MARK,
    check_chunk,
    chunk_keys,
    drop_chunks,
    some,
)
from streamsvd.storage.raw import raw_chunk_paths

SPARSE_PARTS = ("data", "indices", "indptr")
"""The arrays of the group of a sparse matrix of AnnData."""


class ZarrSource(Source):
    """A `Source` in a Zarr array; chunks are checked before they are decoded."""

    is_resumable = True
    readable_by_workers = True

    def __init__(
        self, array: zarr.Array[Any], sample_axis: int, name: str, missing_chunks: str
    ) -> None:
        self._grid = array.shards or array.chunks
        self._may_miss = missing_chunks == "fill"
        super().__init__(array, sample_axis, name, self._grid[sample_axis])

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> Array:
        """Samples ``start..stop-1`` as a new C-contiguous (n, stop - start) array of `dtype`."""
        keys = list(self._keys(start, stop))
        if isinstance(self.array.store, LocalStore):
            for key in keys:
                check_chunk(self.array, key, self.name, self._may_miss)
        try:
            strip = self._counted(self._strip(start, stop))  # new already
        except Exception as error:  # each codec raises its own kinds
            raise SourceError(
                f"{self.name}: cannot read chunk(s) {some(self._unreadable(start, stop))}: "
                f"{type(error).__name__}: {error}; restore them"
            ) from error
        if self.drops_pages:
            drop_chunks(self.array, keys)
        with np.errstate(over="ignore"):  # infinities are found and named by the caller
            return np.require(strip, dtype=dtype, requirements=["C", "W", "A"])

    def fingerprint(self) -> str:
        """Changes when the array does: a digest of its metadata, file sizes and times."""
        digest = hashlib.sha256(json.dumps(self.array.metadata.to_dict(), default=str).encode())
        if isinstance(self.array.store, LocalStore):
            root = Path(self.array.store.root, self.array.path)
            for key in chunk_keys(self.array):
                with suppress(FileNotFoundError):
                    stat = (root / key).stat()
                    digest.update(f"{key} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        elif isinstance(self.array.store, ZipStore):
            stat = Path(self.array.store.path).stat()
            digest.update(f"{stat.st_size} {stat.st_mtime_ns}".encode())
        return digest.hexdigest()

    def raw_chunks(self, dtype: np.dtype[Any]) -> tuple[list[Path], int]:
        """The chunk files and their width; refuses an array that cannot be rewritten in place."""
        if self.sample_axis == 0:  # by the name of a dimension: the options cannot know
            raise OptionError("overwrite_x=True needs samples as columns: sample_axis=1")
        return raw_chunk_paths(self.array, dtype), self.array.chunks[1]

    def mark(self, reason: str) -> None:
        """Mark the array so that it is never taken for data again."""
        store = LocalStore(self.array.store.root)  # the array itself may be open for reading only
        try:
            array = zarr.open_array(store, path=self.array.path, mode="r+")
            array.update_attributes({MARK: reason})
        except OSError as error:
            raise ResourceError(
                f"cannot mark {self.name} in its attributes: {error}; nothing was changed"
            ) from error

    def _unreadable(self, start: int, stop: int) -> list[str]:
        """Which chunks cannot be read, one by one."""
        bad = []
        for place in self._places(start, stop):
            where = tuple(slice(k * c, (k + 1) * c) for k, c in zip(place, self._grid, strict=True))
            try:
                self.array[where]
            except Exception:
                bad.append(self.array.metadata.encode_chunk_key(place))
        return bad

    def _keys(self, start: int, stop: int) -> Iterator[str]:
        for place in self._places(start, stop):
            yield self.array.metadata.encode_chunk_key(place)

    def _places(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        ranges = [range(-(-s // c)) for s, c in zip(self.array.shape, self._grid, strict=True)]
        c = self._grid[self.sample_axis]
        ranges[self.sample_axis] = range(start // c, -(-stop // c))
        return product(*ranges)


class SparseSource(Source):
    """A `Source` in a Zarr group that holds a CSR or CSC matrix, as AnnData writes it.

    Samples must be what the matrix is compressed by: rows of CSR, columns of CSC. Strips are read
    as they are, or made dense one at a time; beside them `indptr`, ``8 (N + 1)`` bytes, is held in
    memory.
    """

    readable_by_workers = True
    reads_sparse = True

    def __init__(self, group: zarr.Group, sample_axis: int, name: str) -> None:
        check_compressed(str(group.attrs["encoding-type"]), sample_axis, name)
        self._parts: dict[str, Any] = {key: group[key] for key in SPARSE_PARTS}
        self.name = name
        self._indptr = self._read("indptr", 0, self._parts["indptr"].shape[0]).astype(np.int64)
        size = group.attrs["shape"][sample_axis]  # type: ignore[index]
        fits = len(self._indptr) == size + 1 and self._indptr[0] == 0  # type: ignore[operator]
        if not fits or np.any(np.diff(self._indptr) < 0) or self._indptr[-1] > self._entries:
            raise SourceError(f"{name}/indptr does not fit the shape and the data of the matrix")
        described = Described(self._parts["data"].dtype, tuple(group.attrs["shape"]))  # type: ignore[arg-type]
        super().__init__(described, sample_axis, name, 1)
        self.n_stored = int(self._indptr[-1])

    def _counted(self, strip: Array) -> Array:
        return strip  # what was read for it, less than it is large, was counted by `_read`

    def _strip(self, start: int, stop: int) -> Array:
        return self.read_sparse(start, stop).toarray().T

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, n) float64 matrix."""
        lo, hi = int(self._indptr[start]), int(self._indptr[stop])
        data, indices = (self._read(key, lo, hi) for key in ("data", "indices"))
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.n_features:
            raise SourceError(
                f"{self.name}/indices go from {indices.min()} to {indices.max()} in samples "
                f"{start} to {stop - 1}; they must be from 0 to {self.n_features - 1}"
            )
        indptr = self._indptr[start : stop + 1] - lo
        shape = (stop - start, self.n_features)
        return summed(data, indices, indptr, shape, self.name)

    @property
    def _entries(self) -> int:
        return min(self._parts[key].shape[0] for key in ("data", "indices"))

    def _read(self, part: str, start: int, stop: int) -> Array:
        """Entries of one of the three arrays, its chunks checked first."""
        array, name = self._parts[part], f"{self.name}/{part}"
        width = (array.shards or array.chunks)[0]
        keys = [
            array.metadata.encode_chunk_key((k,)) for k in range(start // width, -(-stop // width))
        ]
        if isinstance(array.store, LocalStore):
            for key in keys:
                check_chunk(array, key, name, may_miss=True)
        try:
            return super()._counted(np.asarray(array[start:stop]))
        except Exception as error:  # each codec raises its own kinds
            raise SourceError(
                f"{name}: cannot read chunk(s) {some(keys)}: {type(error).__name__}: {error}; "
                "restore them"
            ) from error
