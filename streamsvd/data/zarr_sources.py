"""Sources in Zarr stores, checked before they are decoded."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from scipy import sparse
from zarr.storage import LocalStore

from streamsvd.arrays import Array
from streamsvd.data.layout import Layout
from streamsvd.data.packing import REMEDY
from streamsvd.data.source import Described, Source, check_compressed, summed
from streamsvd.errors import OptionError, ResourceError, SourceError, StreamSVDError
from streamsvd.storage.checked import checked
from streamsvd.storage.chunks import MARK, decoded_numbers, drop_chunks, grid_shape, some
from streamsvd.storage.fingerprints import fingerprint, places
from streamsvd.storage.raw import raw_chunk_paths

SPARSE_PARTS = ("data", "indices", "indptr")
"""The arrays of the group of a sparse matrix of AnnData."""


class ZarrSource(Source):
    """A `Source` in a Zarr array; chunks are checked before they are decoded."""

    is_resumable = True
    readable_by_workers = True
    _gives_new = True

    def __init__(
        self, array: zarr.Array[Any], layout: Layout, name: str, missing_chunks: str
    ) -> None:
        self._grid, self._layout = array.shards or array.chunks, layout
        self._checked = checked(array, name, may_miss=missing_chunks == "fill")
        described = Described(array.dtype, layout.matrix_shape)
        chunk = self._grid[layout.lead] * layout.inner
        super().__init__(described, layout.sample_axis, name, chunk)
        self.array = array
        self.chunk_bytes = decoded_numbers(array, layout.lead) * array.dtype.itemsize

    def _read(self, start: int, stop: int) -> Array:
        try:
            block: Any = self._checked[self._layout.index(start, stop)]
        except (StreamSVDError, MemoryError):
            raise
        except Exception as error:  # each codec raises its own kinds
            raise SourceError(
                f"{self.name}: cannot read chunk(s) {some(self._unreadable(start, stop))}: "
                f"{type(error).__name__}: {error}; restore them"
            ) from error
        if self.drops_pages:
            drop_chunks(self.array, [self._key(place) for place in self._places(start, stop)])
        return self._layout.strip(block, start, stop)

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes: whole chunks."""
        return -(-samples // self.chunk) * self.chunk_bytes + self._unpacked(samples)

    def fingerprint(self) -> str:
        """See `storage.fingerprints.fingerprint`."""
        return fingerprint(self.array)

    def places(self) -> str | None:
        """See `storage.fingerprints.places`."""
        return places(self.array)

    def raw_chunks(self, dtype: np.dtype[Any]) -> tuple[list[Path], int]:
        """The chunk files and their width; refuses an array that cannot be rewritten in place."""
        if len(self.array.shape) != 2:
            raise OptionError(
                f"overwrite_x=True needs an array of two axes, and {self.name} has the shape "
                f"{self.array.shape}: leave it out"
            )
        if self.sample_axis == 0:  # by the name of a dimension: the options cannot know
            raise OptionError("overwrite_x=True needs samples as columns: sample_axis=1")
        if self.packing is not None:
            raise OptionError(
                f"overwrite_x=True works in the stored numbers, and those of {self.name} are "
                f"packed ({self.packing.text}): leave it out, or {REMEDY}"
            )
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
                self._checked[where]
            except Exception:
                bad.append(self._key(place))
        return bad

    def _key(self, place: tuple[int, ...]) -> str:
        return self.array.metadata.encode_chunk_key(place)

    def _places(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        ranges = [range(count) for count in grid_shape(self.array)]
        ranges[self._layout.lead] = range(start // self.chunk, -(-stop // self.chunk))
        return product(*ranges)


class SparseSource(Source):
    """A `Source` in a Zarr group that holds a CSR or CSC matrix, as AnnData writes it.

    Samples must be what the matrix is compressed by: rows of CSR, columns of CSC. Strips are read
    as they are, or made dense one at a time; beside them `indptr`, ``8 (N + 1)`` bytes, is held in
    memory.
    """

    readable_by_workers = True
    _gives_new = True
    reads_sparse = True

    def __init__(self, group: zarr.Group, sample_axis: int, name: str) -> None:
        check_compressed(str(group.attrs["encoding-type"]), sample_axis, name)
        self._parts: dict[str, Any] = {
            key: checked(group[key], f"{name}/{key}", may_miss=True)  # type: ignore[arg-type]
            for key in SPARSE_PARTS
        }
        shape: tuple[int, ...] = tuple(group.attrs["shape"])  # type: ignore[arg-type]
        described = Described(self._parts["data"].dtype, shape)
        super().__init__(described, sample_axis, name, 1)
        fits = self._parts["indptr"].shape[0] == self.n_samples + 1
        self._indptr = np.zeros(1, np.int64)
        if fits:
            self._indptr = self._part("indptr", 0, self.n_samples + 1).astype(np.int64)
            fits = self._indptr[0] == 0 and 0 <= self._indptr[-1] <= self._entries
        if not fits or np.any(np.diff(self._indptr) < 0):
            raise SourceError(f"{name}/indptr does not fit the shape and the data of the matrix")
        self.n_stored = int(self._indptr[-1])

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes: whole chunks of entries, then the strip."""
        cuts = self._indptr[::samples]
        entries = int(np.diff(np.append(cuts, self._indptr[-1])).max(initial=0))
        parts = [self._parts[key] for key in ("data", "indices")]
        whole = sum((entries + 2 * part.chunks[0]) * part.dtype.itemsize for part in parts)
        return super().decoded_bytes(samples) + min(whole, self._most_decoded(parts))

    @staticmethod
    def _most_decoded(parts: list[Any]) -> int:
        """Bytes of all chunks."""
        return sum(
            -(-part.shape[0] // part.chunks[0]) * part.chunks[0] * part.dtype.itemsize
            for part in parts
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

    @property
    def _entries(self) -> int:
        return min(self._parts[key].shape[0] for key in ("data", "indices"))

    def _part(self, part: str, start: int, stop: int) -> Array:
        """Entries of one of the three arrays."""
        array, name = self._parts[part], f"{self.name}/{part}"
        try:
            return super()._counted(np.asarray(array[start:stop]))
        except (StreamSVDError, MemoryError):
            raise
        except Exception as error:  # each codec raises its own kinds
            width = (array.shards or array.chunks)[0]
            places = range(start // width, -(-stop // width))
            keys = [array.metadata.encode_chunk_key((k,)) for k in places]
            raise SourceError(
                f"{name}: cannot read chunk(s) {some(keys)}: {type(error).__name__}: {error}; "
                "restore them"
            ) from error
