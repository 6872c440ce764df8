"""Sources in Zarr stores, checked before they are decoded; which source an array makes."""

import hashlib
import json
import os
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
from streamsvd.data.source import DaskSource, Described, Source, check_compressed, check_matrix
from streamsvd.errors import OptionError, ResourceError, SourceError
from streamsvd.options import check_missing
from streamsvd.storage.chunks import (
    MARK,
    array_names,
    check_chunk,
    chunk_keys,
    drop_chunks,
    missing_chunk_keys,
    some,
)

SPARSE_KINDS = ("csr_matrix", "csc_matrix")


SPARSE_PARTS = ("data", "indices", "indptr")
"""Sparse matrices of AnnData: kinds, and the arrays of their group."""


class ZarrSource(Source):
    """A `Source` in a Zarr array; chunks are checked before they are decoded.

    Attributes
    ----------
    drops_pages : bool
        Whether files are dropped from the page cache when they were read: they are not read again
        soon, and the working store needs the room.
    """

    def __init__(
        self, array: zarr.Array[Any], sample_axis: int, name: str, missing_chunks: str
    ) -> None:
        self._grid = array.shards or array.chunks
        self._may_miss = missing_chunks == "fill"
        self.drops_pages = False
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

    Samples must be what the matrix is compressed by: rows of CSR, columns of CSC. Strips are made
    dense one at a time; beside them `indptr`, ``8 (N + 1)`` bytes, is held in memory.
    """

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

    def _counted(self, strip: Array) -> Array:
        return strip  # what was read for it, less than it is large, was counted by `_read`

    def _strip(self, start: int, stop: int) -> Array:
        lo, hi = int(self._indptr[start]), int(self._indptr[stop])
        data, indices = (self._read(key, lo, hi) for key in ("data", "indices"))
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.n_features:
            raise SourceError(
                f"{self.name}/indices go from {indices.min()} to {indices.max()} in samples "
                f"{start} to {stop - 1}; they must be from 0 to {self.n_features - 1}"
            )
        indptr = self._indptr[start : stop + 1] - lo
        shape = (stop - start, self.n_features)
        values = data.astype(np.float64)  # entries listed twice add up, without overflow
        return sparse.csr_array((values, indices, indptr), shape=shape).toarray().T

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


def open_source(
    x: Any, sample_axis: int, *, missing_chunks: str = "error", name: str | None = None
) -> Source:
    """Open a Zarr path or array, the group of a sparse matrix, a NumPy or a Dask array.

    Nothing is decoded yet. Refuses what is not a matrix of real numbers, and stores with missing
    chunks unless ``missing_chunks="fill"``. `name` is what to call it in errors.
    """
    check_missing(missing_chunks)
    array, found = _open(x)
    name = name or found
    is_sparse, is_zarr = isinstance(array, zarr.Group), isinstance(array, zarr.Array | zarr.Group)
    if is_sparse:
        lost = [key for key in SPARSE_PARTS if key not in array]
        if lost or "shape" not in array.attrs:
            what = ", ".join([*lost, *(["shape"] if "shape" not in array.attrs else [])])
            raise SourceError(f"{name} is not a whole sparse matrix: {what} is not there")
        dtype, shape = array["data"].dtype, tuple(array.attrs["shape"])
    else:
        dtype, shape = array.dtype, array.shape
    check_matrix(dtype, shape, name)
    if isinstance(array, np.ndarray):
        return Source(array, sample_axis, name, 1)
    if not is_zarr:
        return DaskSource(array, sample_axis, name)
    mark = _mark(array)
    if mark is not None:
        raise SourceError(f"{name} is not data: {mark}")
    if missing_chunks == "error":
        stored = (
            {f"{name}/{key}": array[key] for key in SPARSE_PARTS} if is_sparse else {name: array}
        )
        for part_name, part in stored.items():
            _refuse_missing(part, part_name)
    if is_sparse:
        return SparseSource(array, sample_axis, name)
    return ZarrSource(array, sample_axis, name, missing_chunks)


def _open(x: Any) -> tuple[Any, str]:
    """The array, or the group of a sparse matrix, and what to call it."""
    if isinstance(x, np.ma.MaskedArray):
        raise SourceError("masked arrays are not supported; fill or drop the masked entries")
    if isinstance(x, np.ndarray):
        return x, "the array"
    if isinstance(x, str | os.PathLike | zarr.Array | zarr.Group):
        array = _open_array(x)
        return array, os.fspath(x) if isinstance(x, str | os.PathLike) else str(array.store_path)
    if type(x).__module__.startswith("dask.array"):
        return x, "the Dask array"
    raise SourceError(
        f"cannot read {type(x).__name__}: give a path to a Zarr array, a zarr.Array, a NumPy or a "
        "Dask array, a CSR or CSC matrix, a pandas or polars DataFrame, an xarray.DataArray or an "
        "AnnData"
    )


def _mark(array: Any) -> Any:
    """What is marked in the attributes, as they are on the disk: an open array may be older."""
    if isinstance(array.store, LocalStore) and isinstance(array, zarr.Array):
        store = LocalStore(array.store.root, read_only=True)
        array = zarr.open_array(store, path=array.path, mode="r")
    return array.attrs.get(MARK)


def _refuse_missing(array: zarr.Array[Any], name: str) -> None:
    lost = missing_chunk_keys(array)
    if lost:
        raise SourceError(
            f"{name}: {len(lost)} chunk(s) are missing and would read as {array.fill_value}: "
            f'{some(lost)}; restore them, or pass missing_chunks="fill" if they were left out on '
            "purpose"
        )


def open_node(x: Any, storage_options: dict[str, Any] | None = None) -> Any:
    """The Zarr array or group at a path, a URL, or inside a ``.zip`` file."""
    x = os.fspath(x)
    if storage_options is not None and "://" not in x:
        raise OptionError(
            f"storage_options are for URLs such as s3://bucket/x.zarr; {x} is a path: leave them "
            "out"
        )
    if "://" not in x:
        x = str(Path(x).expanduser())
    store, inside = _zip_store(x)
    if store is None and os.path.isfile(x):
        raise SourceError(f"{x} is a file, not a Zarr store; see `streamsvd convert`")
    try:
        is_path = "://" not in x  # absolute: workers of a cluster have another folder
        place = store or (str(Path(x).absolute()) if is_path else x)
        return zarr.open(place, path=inside, mode="r", storage_options=storage_options)
    except FileNotFoundError as error:
        what = "" if "://" in x or store or os.path.exists(x) else "no such path"
        raise SourceError(f"no Zarr array at {x}" + (f": {what}" if what else "")) from error
    except ImportError as error:
        hint = '; pip install "streamsvd[s3]"' if x.startswith("s3://") else ""
        raise SourceError(f"{x} needs another package: {error}{hint}") from error
    except Exception as error:  # bad JSON, unknown codec, object dtype, ...
        raise SourceError(f"cannot open {x} as a Zarr array: {error}") from error


def _zip_store(path: str) -> tuple[ZipStore | None, str | None]:
    """The zip file that a path leads into, if any, and the rest of the path."""
    for place in (Path(path), *Path(path).parents):
        if place.suffix == ".zip" and place.is_file():
            inside = Path(path).relative_to(place).as_posix()
            return ZipStore(place, mode="r"), None if inside == "." else inside
    return None, None


def _absolute(node: Any) -> Any:
    """An open array or group whose folder does not depend on the working directory.

    That of a worker is another one.
    """
    store = node.store
    if not isinstance(store, LocalStore) or store.root.is_absolute():
        return node
    there = LocalStore(store.root.absolute(), read_only=store.read_only)
    return zarr.open(there, path=node.path, mode="r" if store.read_only else "r+")


def _open_array(x: Any) -> Any:
    node = _absolute(x) if isinstance(x, zarr.Array | zarr.Group) else open_node(x)
    if isinstance(node, zarr.Group) and node.attrs.get("encoding-type") in SPARSE_KINDS:
        return node
    if isinstance(node, zarr.Group):
        names = ", ".join(array_names(node)) or "none"
        raise SourceError(f"{node.store_path} is a Zarr group; name one of its arrays: {names}")
    try:
        node.chunks, node.shards  # noqa: B018
    except NotImplementedError as error:
        raise SourceError(f"{x} has an irregular chunk grid, which is not supported") from error
    return node
