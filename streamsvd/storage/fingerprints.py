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

from streamsvd.storage.chunks import chunk_keys, files_below, forget_listings, grid_shape, n_chunks

SAMPLED = 16
"""Chunks whose content is looked at, spread over the array."""

END_BYTES = 4096
"""Of a chunk file, at each end, that are looked at."""

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

    - in local folders and at ``file://``: of size and time of modification of each chunk file, and
      of the first and last bytes of some. A copy with its times, as a backup gives it back, is the
      same; see `places` for what tells it apart.
    - in zip files: of the same, of the file.
    - in object stores: of size and tag, generation or time of each object, whatever the store has.
    - in other stores, as in memory: of the content of `SAMPLED` chunks, spread over the array. A
      change to another chunk is not found.

    Cost: one ``stat`` a chunk and a few small reads, one listing, or `SAMPLED` reads.
    """
    return _digest(array, _parts(array))


def places(array: zarr.Array[Any]) -> str | None:
    """A digest of inodes and times of change of the files of an array; None where it has none.

    Changes with any write, also one that puts the times back, with a copy, which is another file,
    and with owner or rights; not when the folder is moved on its disk. Where the fingerprint is the
    same and this is not, the array was most likely restored.
    """
    if not isinstance(array.store, LocalStore | ZipStore):
        return None
    return _digest(array, (_of_file(path, True) for _, path in _files(array)))


def file_fingerprint(path: str, described: str) -> str:
    """A digest of what is `described`, and of size, time and both ends of the file it is in."""
    return hashlib.sha256(f"{described} {_of_file(path)} {_ends(path)}".encode()).hexdigest()


def file_places(path: str, described: str) -> str:
    """As `places`, of one file."""
    return hashlib.sha256(f"{described} {_of_file(path, True)}".encode()).hexdigest()


def _digest(array: zarr.Array[Any], parts: Iterable[str]) -> str:
    digest = hashlib.sha256(json.dumps(array.metadata.to_dict(), default=str).encode())
    for part in parts:
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()


def _parts(array: zarr.Array[Any]) -> Iterator[str]:
    if not isinstance(array.store, LocalStore | ZipStore):
        yield from _listed(array) or _content(array)
        return
    files = list(_files(array))
    step = -(-len(files) // SAMPLED) or 1
    for k, (key, path) in enumerate(files):
        yield f"{key} {_of_file(path)} {_ends(path) if k % step == 0 else ''}"


def _files(array: zarr.Array[Any]) -> Iterator[tuple[str, str]]:
    """Keys and paths of the chunk files, or of the zip file."""
    if isinstance(array.store, ZipStore):
        yield "", os.fspath(array.store.path)
        return
    root = os.path.join(array.store.root, array.path)  # type: ignore[attr-defined]
    keys: Iterable[str] = chunk_keys(array)
    if n_chunks(array) > MOST_KEYS:  # most of which cannot be there
        keys = sorted(files_below(root))
    for key in keys:
        yield key, os.path.join(root, key)


def _of_file(path: str, place: bool = False) -> str:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return "missing"
    if place:
        return f"{stat.st_ctime_ns} {stat.st_ino}"
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _ends(path: str) -> str:
    """Of the first and the last bytes of a file."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(END_BYTES)
            file.seek(max(0, size - END_BYTES))
            return hashlib.sha256(first + file.read(END_BYTES)).hexdigest()
    except OSError:
        return "unreadable"


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
    counts = grid_shape(array)
    for k in range(SAMPLED):
        place = tuple(k * (count - 1) // (SAMPLED - 1) for count in counts)
        key = array.metadata.encode_chunk_key(place)
        found = sync(_get(array, key))
        yield f"{key} {found}"


async def _get(array: zarr.Array[Any], key: str) -> str:
    whole = f"{array.path}/{key}" if array.path else key
    found = await array.store.get(whole, default_buffer_prototype())
    return "missing" if found is None else hashlib.sha256(found.to_bytes()).hexdigest()
