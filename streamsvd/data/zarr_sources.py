"""Sources in Zarr stores, checked before they are decoded."""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from streamsvd.arrays import Array
from streamsvd.data.compressed import CompressedSource
from streamsvd.data.coordinates import about_coordinate
from streamsvd.data.layout import Layout
from streamsvd.data.packing import REMEDY
from streamsvd.data.source import Described, Source
from streamsvd.errors import OptionError, ResourceError, SourceError, StreamSVDError
from streamsvd.storage.checked import checked
from streamsvd.storage.chunks import MARK, decoded_numbers, drop_chunks, grid_shape, some
from streamsvd.storage.fingerprints import fingerprint, places
from streamsvd.storage.raw import raw_chunk_paths


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

    def about_coordinate(self, dim: str) -> Mapping[str, Any]:
        """The attributes of the coordinate along a dimension, in the group of the array."""
        return about_coordinate(self.array, dim)

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


class SparseSource(CompressedSource):
    """A `CompressedSource` in arrays of Zarr, which are `checked`."""

    def _entries_of(self, part: str, start: int, stop: int) -> Array:
        array, name = self._parts[part], f"{self.name}/{part}"
        try:
            return super()._entries_of(part, start, stop)
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
