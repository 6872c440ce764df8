"""Whether a stored array is the one that it was, without reading it."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, ZipStore

from streamsvd.storage.chunks import chunk_keys, files_below, forget_listings, n_chunks

SAMPLED = 16
"""Chunks whose content is looked at where the store knows no times."""

MOST_KEYS = 10**6
"""Of more chunks only those are looked at that are there, and no links to folders."""

TELLING = (
    "size", "etag", "e_tag", "generation", "version", "versionid", "md5hash", "content-md5",
    "lastmodified", "last_modified", "updated", "mtime", "created", "ino",
)  # fmt: skip
"""What file systems say of an object that tells it from another, in lower case."""


def fingerprint(array: zarr.Array[Any]) -> str:
    """A digest that changes when the array does, as far as its store can tell.

    Of the metadata of the array, and

    - in local folders and at ``file://``: of size, inode, and times of modification and change of
      each chunk file. Any write is found, also one that puts the times back. So is a copy, which is
      another file, and a change of owner or rights; a folder that is moved on its disk is the same.
    - in zip files: of the same, of the file.
    - in object stores: of size and tag, generation or time of each object, whatever the store has.
    - in other stores, as in memory: of the content of `SAMPLED` chunks, spread over the array. A
      change to another chunk is not found.

    Cost: one ``stat`` a chunk, one listing, or `SAMPLED` reads.
    """
    digest = hashlib.sha256(json.dumps(array.metadata.to_dict(), default=str).encode())
    for part in _parts(array):
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()


def _parts(array: zarr.Array[Any]) -> Iterator[str]:
    store = array.store
    if isinstance(store, LocalStore):
        root = os.path.join(store.root, array.path)
        keys: Iterable[str] = chunk_keys(array)
        if n_chunks(array) > MOST_KEYS:  # most of which cannot be there
            keys = sorted(files_below(root))
        for key in keys:
            yield f"{key} {_of_file(os.path.join(root, key))}"
    elif isinstance(store, ZipStore):
        yield _of_file(os.fspath(store.path))
    else:
        yield from _listed(array) or _content(array)


def _of_file(path: str) -> str:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return "missing"
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"


def _listed(array: zarr.Array[Any]) -> list[str]:
    """What an object store says of each object; nothing if it says no more than sizes."""
    forget_listings(array.store)
    try:
        objects = sync(_objects(array.store, array.path))
    except Exception:  # each file system says in its own way that it cannot list
        return []
    told = [sorted((k, v) for k, v in known.items() if k in TELLING) for known in objects]
    if any({key for key, _ in pairs} <= {"size"} for pairs in told):
        return []
    names = [str(known.get("name")) for known in objects]
    return sorted(f"{name} {pairs}" for name, pairs in zip(names, told, strict=True))


async def _objects(store: Any, path: str) -> list[dict[str, Any]]:
    """What is known of each object below a path, keys in lower case; nothing if not asked for."""
    found: list[Any] = []
    if hasattr(store, "fs"):  # fsspec
        root = f"{store.path.rstrip('/')}/{path}".rstrip("/")
        found = list((await store.fs._find(root, detail=True)).values())
    elif hasattr(getattr(store, "store", None), "list"):  # obstore
        async for batch in store.store.list(prefix=f"{path}/" if path else None):
            found += [dict(known) | {"name": known["path"]} for known in batch]
    return [{str(key).lower(): value for key, value in known.items()} for known in found]


def _content(array: zarr.Array[Any]) -> Iterator[str]:
    """The content of some chunks, spread over the array."""
    grid = array.shards or array.chunks
    counts = [-(-size // width) for size, width in zip(array.shape, grid, strict=True)]
    for k in range(SAMPLED):
        place = tuple(k * (count - 1) // (SAMPLED - 1) for count in counts)
        key = array.metadata.encode_chunk_key(place)
        found = sync(_get(array, key))
        yield f"{key} {found}"


async def _get(array: zarr.Array[Any], key: str) -> str:
    whole = f"{array.path}/{key}" if array.path else key
    found = await array.store.get(whole, default_buffer_prototype())
    return "missing" if found is None else hashlib.sha256(found.to_bytes()).hexdigest()
