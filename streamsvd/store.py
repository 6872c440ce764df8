"""Zarr: open any source, create the working store, read and write results. The only zarr import."""

import hashlib
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from scipy import sparse
from zarr.codecs import ZstdCodec
from zarr.core.sync import sync
from zarr.storage import LocalStore

from streamsvd.errors import OptionError, ResourceError, SourceError
from streamsvd.kernels import Array
from streamsvd.options import check_missing

MARK = "streamsvd"
"""Attribute of arrays that hold no data but the state of a fit; says what became of them."""

SPARSE_KINDS = ("csr_matrix", "csc_matrix")
SPARSE_PARTS = ("data", "indices", "indptr")
"""Sparse matrices of AnnData: kinds, and the arrays of their group."""

# ------------------------------------------------------------------------------------- sources


class Source:
    """A matrix of n features by N samples that is read in strips of samples.

    Attributes
    ----------
    name : str
        What to call it in errors.
    n_features, n_samples : int
        `n`, `N`.
    dtype : numpy.dtype
        As stored.
    sample_axis : int
        Axis of the samples.
    chunk : int
        Samples in a chunk: reading in multiples of it reads no chunk twice.
    array
        What is read.
    bytes_read : int
        How much was, so far, after decompression.
    """

    bytes_read = 0

    def __init__(self, array: Any, sample_axis: int, name: str, chunk: int) -> None:
        self.name, self.dtype = name, array.dtype
        self.array, self.sample_axis, self.chunk = array, sample_axis, chunk
        self.n_features = array.shape[1 - sample_axis]
        self.n_samples = array.shape[sample_axis]

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> Array:
        """Samples ``start..stop-1`` as a new C-contiguous (n, stop - start) array of `dtype`."""
        with np.errstate(over="ignore"):  # infinities are found and named by the caller
            return np.array(self._strip(start, stop), dtype=dtype, order="C")

    def _strip(self, start: int, stop: int) -> Array:
        strip = self.array[:, start:stop] if self.sample_axis else self.array[start:stop].T
        return self._counted(np.asarray(strip))

    def _counted(self, part: Array) -> Array:
        self.bytes_read += part.nbytes
        return part


class ZarrSource(Source):
    """A `Source` in a Zarr array; chunks are checked before they are decoded."""

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
            strip = self._strip(start, stop)  # new already
        except Exception as error:  # each codec raises its own kinds
            raise SourceError(
                f"{self.name}: cannot read chunk(s) {_some(self._unreadable(start, stop))}: "
                f"{type(error).__name__}: {error}; restore them"
            ) from error
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


class DaskSource(Source):
    """A `Source` that is a Dask array; strips are computed when they are read."""

    def __init__(self, array: Any, sample_axis: int, name: str) -> None:
        sizes = array.chunks[sample_axis]
        if any(math.isnan(size) for axis in array.chunks for size in axis):
            raise SourceError(
                f"{name} has chunks of unknown size; call compute_chunk_sizes() first"
            )
        super().__init__(array, sample_axis, name, max(sizes))

    def _strip(self, start: int, stop: int) -> Array:
        strip = self.array[:, start:stop] if self.sample_axis else self.array[start:stop].T
        computed = strip.compute()
        dense = computed.toarray() if hasattr(computed, "toarray") else computed
        return self._counted(np.asarray(dense))


class SparseSource(Source):
    """A `Source` in a Zarr group that holds a CSR or CSC matrix, as AnnData writes it.

    Samples must be what the matrix is compressed by: rows of CSR, columns of CSC. Strips are made
    dense one at a time; beside them `indptr`, ``8 (N + 1)`` bytes, is held in memory.
    """

    def __init__(self, group: zarr.Group, sample_axis: int, name: str) -> None:
        kind = group.attrs["encoding-type"]
        if (kind == "csr_matrix") != (sample_axis == 0):
            raise SourceError(
                f"{name} is a {kind} and can be read by {'rows' if sample_axis else 'columns'} "
                f"only, but samples are its {'columns' if sample_axis else 'rows'} (sample_axis="
                f"{sample_axis}); convert it, for example with SciPy's tocsr() or tocsc()"
            )
        self._parts: dict[str, Any] = {key: group[key] for key in SPARSE_PARTS}
        self.name = name
        self._indptr = self._read("indptr", 0, self._parts["indptr"].shape[0]).astype(np.int64)
        size = group.attrs["shape"][sample_axis]  # type: ignore[index]
        fits = len(self._indptr) == size + 1 and self._indptr[0] == 0  # type: ignore[operator]
        if not fits or np.any(np.diff(self._indptr) < 0) or self._indptr[-1] > self._entries:
            raise SourceError(f"{name}/indptr does not fit the shape and the data of the matrix")
        described = _Described(self._parts["data"].dtype, tuple(group.attrs["shape"]))  # type: ignore[arg-type]
        super().__init__(described, sample_axis, name, 1)

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
            return self._counted(np.asarray(array[start:stop]))
        except Exception as error:  # each codec raises its own kinds
            raise SourceError(
                f"{name}: cannot read chunk(s) {_some(keys)}: {type(error).__name__}: {error}; "
                "restore them"
            ) from error


class _Described(NamedTuple):
    """The dtype and shape of a matrix that is not an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def open_source(x: Any, sample_axis: int, *, missing_chunks: str = "error") -> Source:
    """Open what a user calls data: a Zarr path or array, a NumPy or Dask array.

    Nothing is decoded yet. Refuses what is not a matrix of real numbers, and stores with missing
    chunks unless ``missing_chunks="fill"``.
    """
    check_missing(missing_chunks)
    array, name = _open(x)
    is_sparse, is_zarr = isinstance(array, zarr.Group), isinstance(array, zarr.Array | zarr.Group)
    if is_sparse:
        lost = [key for key in SPARSE_PARTS if key not in array]
        if lost or "shape" not in array.attrs:
            what = ", ".join([*lost, *(["shape"] if "shape" not in array.attrs else [])])
            raise SourceError(f"{name} is not a whole sparse matrix: {what} is not there")
        dtype, shape = array["data"].dtype, tuple(array.attrs["shape"])
    else:
        dtype, shape = array.dtype, array.shape
    if dtype.kind not in "biuf":
        raise SourceError(f"{name} holds {dtype}, not real numbers; convert it first")
    if len(shape) != 2:
        raise SourceError(f"{name} has shape {shape}; need two axes, features and samples")
    if 0 in shape:
        raise SourceError(f"{name} is empty: shape {shape}")
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
        "Dask array"
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
            f'{_some(lost)}; restore them, or pass missing_chunks="fill" if they were left out on '
            "purpose"
        )


def _open_array(x: Any) -> Any:
    node: Any = x
    if not isinstance(x, zarr.Array | zarr.Group):
        x = os.fspath(x)
        if "://" not in x:
            x = str(Path(x).expanduser())
        if os.path.isfile(x):
            raise SourceError(f"{x} is a file, not a Zarr store; see `streamsvd convert`")
        try:
            node = zarr.open(x, mode="r")
        except FileNotFoundError as error:
            what = "" if "://" in x or os.path.exists(x) else "no such path"
            raise SourceError(f"no Zarr array at {x}" + (f": {what}" if what else "")) from error
        except ImportError as error:
            raise SourceError(f"{x} needs another package: {error}") from error
        except Exception as error:  # bad JSON, unknown codec, object dtype, ...
            raise SourceError(f"cannot open {x} as a Zarr array: {error}") from error
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


def array_names(group: zarr.Group, depth: int = 3) -> list[str]:
    """Paths of the arrays in a group that can be opened."""

    async def children() -> list[str]:
        return sorted({key.strip("/") async for key in group.store.list_dir(group.path)})

    names = []
    for name in sync(children()):
        try:
            node = group[name]
        except Exception:  # noqa: S112  (a stray file, or an array of an unknown kind)
            continue
        if isinstance(node, zarr.Array):
            names.append(name)
        elif depth:
            names += [f"{name}/{inner}" for inner in array_names(node, depth - 1)]
    return names


def chunk_keys(array: zarr.Array[Any]) -> list[str]:
    """Keys of all stored objects (shards or chunks) of an array, in C order of the grid."""
    grid = array.shards or array.chunks
    ranges = (range(-(-s // c)) for s, c in zip(array.shape, grid, strict=True))
    return [array.metadata.encode_chunk_key(place) for place in product(*ranges)]


def missing_chunk_keys(array: zarr.Array[Any]) -> list[str]:
    """Keys of the stored objects that are not there; one listing of the store."""
    have = _listed(array)
    lost = [key for key in chunk_keys(array) if key not in have]

    async def absent() -> list[str]:  # links, and stores that cannot be listed
        prefix = f"{array.path}/" if array.path else ""
        return [key for key in lost if not await array.store.exists(prefix + key)]

    return sync(absent()) if lost else []


def _listed(array: zarr.Array[Any]) -> set[str]:
    store, prefix = array.store, f"{array.path}/" if array.path else ""
    if isinstance(store, LocalStore):
        root, found = Path(store.root, array.path), set[str]()
        for folder, _, names in os.walk(root):
            rel = os.path.relpath(folder, root).replace(os.sep, "/")
            found.update(names if rel == "." else (f"{rel}/{name}" for name in names))
        return found
    if not store.supports_listing:
        return set()

    async def collect() -> set[str]:
        return {key[len(prefix) :] async for key in store.list_prefix(prefix)}

    return sync(collect())


def check_chunk(array: zarr.Array[Any], key: str, name: str, may_miss: bool) -> None:
    """Refuse empty and truncated chunk files that decoders would take for data.

    A truncated blosc chunk gives wrong numbers or kills the process; an empty shard reads as the
    fill value (zarr 3.1).
    """
    try:
        with open(Path(array.store.root, array.path, key), "rb") as file:  # type: ignore[attr-defined]
            size = os.fstat(file.fileno()).st_size
            header = file.read(16)
    except FileNotFoundError:
        if may_miss:
            return
        raise SourceError(f"{name}: chunk {key} is missing; restore it") from None
    compressor = array.compressors[-1] if array.compressors and array.shards is None else None
    is_blosc = "blosc" in type(compressor).__name__.lower()
    if size == 0 or (is_blosc and int.from_bytes(header[12:16], "little") != size):
        raise SourceError(f"{name}: chunk {key} is {'truncated' if size else 'empty'}; restore it")


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")


# ------------------------------------------------------------------------- the working store


def create_raw_array(
    path: Path, n_features: int, n_samples: int, width: int, dtype: np.dtype[Any]
) -> list[Path]:
    """Create the metadata of an array whose chunk files are raw blocks; returns their paths.

    Zarr 3, shape (n, N), chunks (n, width), no compression, little-endian, C order. The files
    themselves, ``n width itemsize`` bytes each, are for the caller to write.
    """
    array = zarr.create_array(
        LocalStore(path),
        shape=(n_features, n_samples),
        chunks=(n_features, width),
        dtype=dtype.newbyteorder("<"),
        compressors=None,
        filters=None,
        fill_value=0,
        zarr_format=3,
        chunk_key_encoding={"name": "default", "separator": "/"},
        attributes={MARK: "it is the working matrix of a fit"},
    )
    return [path / key for key in chunk_keys(array)]


def raw_chunk_paths(array: zarr.Array[Any], dtype: np.dtype[Any]) -> list[Path]:
    """The chunk files of an array that can be rewritten in place; refuses any other array.

    Such an array is local, of `dtype`, with all features in each chunk, and its chunk files are raw
    blocks: uncompressed, unsharded, little-endian, C order, all there and whole.
    """
    meta: dict[str, Any] = array.metadata.to_dict()
    reasons = []
    if not isinstance(array.store, LocalStore):
        reasons.append("it is not in a local folder")
    if array.dtype.newbyteorder("=") != dtype:
        reasons.append(f"it holds {array.dtype}, not {dtype}")
    if array.chunks[0] != array.shape[0]:
        reasons.append("its chunks split the features")
    if meta["zarr_format"] == 2:
        raw = not meta["compressor"] and not meta["filters"] and meta["order"] == "C"
        raw = raw and array.dtype == array.dtype.newbyteorder("<")
    else:
        codecs = meta["codecs"]
        raw = [codec["name"] for codec in codecs] == ["bytes"]
        raw = raw and codecs[0].get("configuration", {}).get("endian", "little") == "little"
    if not raw:
        reasons.append("it is compressed, sharded, big-endian or in Fortran order")
    paths = []
    if not reasons:
        keys = chunk_keys(array)
        paths = [Path(array.store.root, array.path, key).absolute() for key in keys]  # type: ignore[attr-defined]
        size = array.chunks[0] * array.chunks[1] * dtype.itemsize
        bad = [
            key
            for key, path in zip(keys, paths, strict=True)
            if not path.is_file() or path.stat().st_size != size
        ]
        if bad:
            reasons.append(f"chunk(s) are missing or not whole: {_some(bad)}")
    if reasons:
        raise SourceError(
            f"{array.store_path} cannot be overwritten in place: {'; '.join(reasons)}; leave "
            "overwrite_x out, or write it anew with chunks of all features, compressors=None and "
            f"dtype {dtype}"
        )
    return paths


def intact_chunks(
    path: Path, shape: tuple[int, int], dtype: np.dtype[Any]
) -> tuple[list[Path], int] | None:
    """The chunk files of a working store and their width, None unless all are there and whole."""
    try:
        array: Any = zarr.open_array(LocalStore(path, read_only=True), mode="r")
        if array.shape != shape:
            return None
        return raw_chunk_paths(array, dtype), array.chunks[1]
    except (OSError, ValueError):
        return None


# ------------------------------------------------------------------------------------ results


@contextmanager
def new_output(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    chunks: tuple[int, int],
    dtype: np.dtype[Any],
) -> Iterator[Any]:
    """A Zarr array to be written chunk by chunk, which is at `path` when the block is left.

    It is written aside and renamed, so that it is there whole or not at all. Compressed, with a
    checksum in each chunk, so that damage is noticed when it is read. Chunks of zeros are stored
    like any other: a chunk that is not there counts as lost.
    """
    target = Path(path).expanduser().absolute()
    refuse_existing(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.new")
    try:
        yield zarr.create_array(
            LocalStore(aside),
            shape=shape,
            chunks=chunks,
            dtype=dtype.newbyteorder("="),
            compressors=ZstdCodec(level=3, checksum=True),
            fill_value=0,
            zarr_format=3,
            config={"write_empty_chunks": True},
        )
        _fsync_tree(aside)
        os.rename(aside, target)
    except OSError as error:
        raise ResourceError(
            f"cannot write {target}: {error}; make room, or choose another path"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def open_written(path: str | os.PathLike[str]) -> Any:
    """The array that `new_output` left at `path`, for reading."""
    return zarr.open_array(LocalStore(Path(path).expanduser(), read_only=True), mode="r")


def write_group(
    path: str | os.PathLike[str],
    arrays: dict[str, Array],
    attributes: dict[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Write a Zarr group beside `path`, flush it to disk, and rename it into place.

    With `overwrite`, only a group of the same ``format`` is replaced.
    """
    target = Path(path).expanduser().absolute()
    if not overwrite:
        refuse_existing(target)
    elif os.path.lexists(target) and _format_of(target) != attributes["format"]:
        raise OptionError(
            f"{target} exists and is not a result of streamsvd; it is not overwritten"
        )
    json.dumps(attributes, allow_nan=False)  # zarr would write NaN, which is not JSON
    target.parent.mkdir(parents=True, exist_ok=True)
    tag = uuid.uuid4().hex[:8]
    new, old = (target.with_name(f".{target.name}.{tag}.{kind}") for kind in ("new", "old"))
    try:
        group = zarr.create_group(LocalStore(new), attributes=attributes, zarr_format=3)
        for name, values in arrays.items():
            group.create_array(
                name,
                data=np.ascontiguousarray(values),
                chunks=tuple(max(1, size) for size in values.shape),
                compressors=None,
                config={"write_empty_chunks": True},  # an all-zero array is data too
            )
        _fsync_tree(new)
        if os.path.lexists(target):
            os.rename(target, old)
        os.rename(new, target)
    except OSError as error:
        raise ResourceError(
            f"cannot write {target}: {error}; make room, or choose another path"
        ) from error
    finally:
        if old.exists() and not target.exists():
            os.rename(old, target)
        shutil.rmtree(new, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def read_group(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """All arrays of a Zarr group, by path, and its attributes."""
    where = Path(path).expanduser()
    try:
        group = zarr.open_group(LocalStore(where, read_only=True), mode="r")
        arrays = {}
        for name in array_names(group):
            array: Any = group[name]
            lost = missing_chunk_keys(array)
            if lost:
                raise SourceError(f"{where}/{name}: missing chunk(s) {_some(lost)}")
            arrays[name] = np.asarray(array[...])
    except FileNotFoundError as error:
        left = sorted(path.name for path in where.parent.glob(f".{where.name}.*"))
        hint = f"; a save that was killed left {', '.join(left)} beside it" if left else ""
        raise SourceError(f"no Zarr group at {where}{hint}") from error
    except (ValueError, RuntimeError, EOFError, KeyError) as error:
        raise SourceError(f"cannot read the Zarr group at {where}: {error}") from error
    return arrays, dict(group.attrs)


def refuse_existing(path: Path) -> None:
    """Refuse to overwrite what the user has."""
    if os.path.lexists(path):
        raise OptionError(f"{path} exists and is not overwritten; choose another path or remove it")


def _format_of(path: Path) -> Any:
    """The attribute ``format`` of a Zarr group, None of anything else."""
    try:
        return zarr.open_group(LocalStore(path, read_only=True), mode="r").attrs.get("format")
    except (OSError, ValueError):
        return None


def _fsync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for entry in [*(os.path.join(folder, name) for name in names), folder]:
            fd = os.open(entry, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
