"""The stored chunks of a Zarr array: their keys, whether they are there and whole."""

import os
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import zarr
from zarr.core.sync import sync
from zarr.storage import LocalStore

from streamsvd.errors import SourceError
from streamsvd.system import drop_pages

MARK = "streamsvd"
"""Attribute of arrays that hold no data but the state of a fit; says what became of them."""


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
