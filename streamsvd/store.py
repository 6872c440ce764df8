"""Zarr arrays on disk: their chunks, the working store, results."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.core.sync import sync
from zarr.storage import LocalStore

from streamsvd.errors import OptionError, ResourceError, SourceError
from streamsvd.kernels import Array
from streamsvd.system import drop_pages

MARK = "streamsvd"
"""Attribute of arrays that hold no data but the state of a fit; says what became of them."""

# -------------------------------------------------------------------------------------- chunks


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


def drop_chunks(array: zarr.Array[Any], keys: list[str]) -> None:
    """Take the files of some chunks of a local array out of the page cache."""
    if isinstance(array.store, LocalStore):
        for key in keys:
            with suppress(OSError), open(Path(array.store.root, array.path, key), "rb") as file:
                drop_pages(file.fileno())


def some(keys: list[str]) -> str:
    """The first few of a list of keys, for an error."""
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
            reasons.append(f"chunk(s) are missing or not whole: {some(bad)}")
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
                raise SourceError(f"{where}/{name}: missing chunk(s) {some(lost)}")
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
