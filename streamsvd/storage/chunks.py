"""The stored chunks of a Zarr array: their keys, whether they are there and whole."""

import asyncio
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import zarr
from zarr.core.sync import sync
from zarr.storage import LocalStore

from streamsvd.storage.checked import file_size
from streamsvd.system import drop_pages

MARK = "streamsvd"
"""Attribute of arrays that hold no data but the state of a fit; says what became of them."""

MOST_MISSING = 10_000
"""So many keys of missing chunks are gathered: an array may have billions."""


def array_names(group: zarr.Group, depth: int = 3) -> list[str]:
    """Paths of the arrays in a group that can be opened, none of a store that cannot list."""

    async def children() -> list[str]:
        return sorted({key.strip("/") async for key in group.store.list_dir(group.path)})

    try:
        found = sync(children())
    except Exception:  # each store says in its own way that it cannot list
        return []
    names = []
    for name in found:
        try:
            node = group[name]
        except Exception:  # noqa: S112  (a stray file, or an array of an unknown kind)
            continue
        if isinstance(node, zarr.Array):
            names.append(name)
        elif depth:
            names += [f"{name}/{inner}" for inner in array_names(node, depth - 1)]
    return names


def grid_shape(array: zarr.Array[Any]) -> tuple[int, ...]:
    """Stored objects (shards or chunks) along each axis of an array."""
    grid = array.shards or array.chunks
    return tuple(-(-s // c) for s, c in zip(array.shape, grid, strict=True))


def chunk_keys(array: zarr.Array[Any]) -> Iterator[str]:
    """Keys of all stored objects (shards or chunks) of an array, in C order of the grid."""
    ranges = (range(count) for count in grid_shape(array))
    return (array.metadata.encode_chunk_key(place) for place in _product(*ranges))


def n_chunks(array: zarr.Array[Any]) -> int:
    """How many stored objects an array has."""
    return math.prod(grid_shape(array))


def _product(*ranges: range) -> Iterator[tuple[int, ...]]:
    """As `itertools.product`, which would first write down each range."""
    if not ranges:
        yield ()
        return
    for first in ranges[0]:
        for rest in _product(*ranges[1:]):
            yield first, *rest


def missing_chunk_keys(array: zarr.Array[Any], most: int = MOST_MISSING) -> list[str]:
    """Keys of the stored objects that are not there, the first `most`; one listing of the store.

    None of a store that cannot be listed: what is missing there is found when it is read.
    """
    have = _listed(array)
    if have is None:
        return []
    lost: list[str] = []
    keys = (key for key in chunk_keys(array) if key not in have)
    while len(lost) < most and (some_keys := list(islice(keys, 256))):
        lost += _absent(array, some_keys)
    return lost[:most]


def _absent(array: zarr.Array[Any], keys: list[str]) -> list[str]:
    """Those of some keys, which were not listed, that are not there: links are."""
    store, prefix = array.store, f"{array.path}/" if array.path else ""
    if isinstance(store, LocalStore):
        root = Path(store.root, array.path)
        return [key for key in keys if file_size(root / key, f"chunk {root / key}") is None]

    async def absent() -> list[str]:
        there = await asyncio.gather(*(store.exists(prefix + key) for key in keys))
        return [key for key, is_there in zip(keys, there, strict=True) if not is_there]

    return sync(absent())


def _listed(array: zarr.Array[Any]) -> set[str] | None:
    """Keys of the files below an array, as they are now; None of a store that cannot list."""
    store, prefix = array.store, f"{array.path}/" if array.path else ""
    if isinstance(store, LocalStore):
        return set(files_below(os.path.join(store.root, array.path)))
    if not store.supports_listing:
        return None
    forget_listings(store)

    async def collect() -> set[str]:
        return {key[len(prefix) :] async for key in store.list_prefix(prefix)}

    try:
        return sync(collect())
    except Exception:  # each store says in its own way that it cannot, or must not, list
        return None


def forget_listings(store: Any) -> None:
    """File systems of fsspec keep listings: a chunk that was deleted since would seem to be there.

    Also within wrappers of stores, as far as those are known.
    """
    while store is not None:
        forget = getattr(getattr(store, "fs", None), "invalidate_cache", None)
        if forget is not None:
            forget()
        store = getattr(store, "_store", None)


def files_below(folder: str, prefix: str = "") -> Iterator[str]:
    """Files below a folder, no links, FIFOs or the like: those are looked at one by one."""
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from files_below(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                yield prefix + entry.name


def decoded_numbers(array: zarr.Array[Any], axis: int) -> int:
    """Numbers that are decoded to read all of an array along the stored chunks at one place.

    `axis` is that of the places: of the samples. More than there are where chunks reach beyond the
    array: they are decoded as a whole. Of shards only the inner chunks are that lie in the array.
    """
    inner, outer = array.chunks, array.shards or array.chunks
    sizes = [-(-size // chunk) * chunk for size, chunk in zip(array.shape, inner, strict=True)]
    sizes[axis] = min(outer[axis], sizes[axis])
    return math.prod(sizes)


def drop_chunks(array: zarr.Array[Any], keys: list[str]) -> None:
    """Take the files of some chunks of a local array out of the page cache."""
    if isinstance(array.store, LocalStore):
        for key in keys:
            with suppress(OSError), open(Path(array.store.root, array.path, key), "rb") as file:
                drop_pages(file.fileno())


def some(keys: list[str]) -> str:
    """The first few of a list of keys, for an error."""
    return ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")
