"""Arrays of a store that is not trusted: what is missing, cut short or too large is an error."""

import math
import os
import stat
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import RangeByteRequest
from zarr.storage import LocalStore, StorePath, WrapperStore

from streamsvd.errors import SourceError
from streamsvd.storage.codecs import BLOCK, WIDEST, bounded


def checked(array: zarr.Array[Any], name: str, *, may_miss: bool = False) -> zarr.Array[Any]:
    """The array, for reading, such that no damage to a chunk that can be seen reads as data.

    A chunk that is missing when it is read is an error, unless it `may_miss`; listings may be old.
    So are one that is empty, one that decodes to more than the array has room for, and, of local
    stores, what is not a file, or one that is larger than any codec would have made it.
    """
    most = None
    if array.dtype.kind in "biuf":
        outer = math.prod(array.shards or array.chunks)
        inner = outer // math.prod(array.chunks)
        most = outer * max(WIDEST, array.dtype.itemsize) + BLOCK + 1024 * inner
    store = CheckedStore(array.store, name, array.path, may_miss=may_miss, most=most)
    found = zarr.AsyncArray(
        metadata=bounded(array.metadata), store_path=StorePath(store, array.path)
    )
    return zarr.Array(found)


class CheckedStore(WrapperStore[Any]):
    """A store, for reading the chunks of the array at `path`, called `name` in errors."""

    def __init__(
        self,
        store: Any,
        name: str = "",
        path: str = "",
        *,
        may_miss: bool = False,
        most: int | None = None,
    ) -> None:
        super().__init__(store)
        self._name, self._prefix = name, f"{path}/" if path else ""
        self._may_miss, self._most = may_miss, most
        self._root = str(store.root) if isinstance(store, LocalStore) else None

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """What is stored, checked."""
        self._check_file(key)
        return self._check(key, await self._store.get(key, prototype, byte_range), byte_range)

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """As `get`; zarr asks for it from 3.3 on."""
        self._check_file(key)
        found = self._store.get_sync(key, prototype=prototype, byte_range=byte_range)
        return self._check(key, found, byte_range)

    def _check_file(self, key: str) -> None:
        if self._root is not None:
            size = file_size(f"{self._root}/{key}", self._called(key))
            if size is not None and self._most is not None and size > self._most:
                raise SourceError(
                    f"{self._called(key)} has {size:,} bytes, more than the {self._most:,} that "
                    "one of this array can have; restore it"
                )

    def _check(self, key: str, found: Any, byte_range: Any) -> Any:
        if found is None:
            if self._may_miss:
                return None
            raise SourceError(
                f'{self._called(key)} is missing; restore it, or pass missing_chunks="fill" if it '
                "was left out on purpose"
            )
        if len(found) == 0:
            raise SourceError(f"{self._called(key)} is empty; restore it")
        if isinstance(byte_range, RangeByteRequest):
            size = byte_range.end - byte_range.start
            if len(found) != size:
                raise SourceError(f"{self._called(key)} is truncated; restore it")
        return found

    def _called(self, key: str) -> str:
        return f"{self._name}: chunk {key.removeprefix(self._prefix)}"


class RegularFiles(LocalStore):
    """A local store whose metadata are read from files only: a FIFO would be waited for."""

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """What is stored."""
        file_size(self.root / key, str(self.root / key))
        return await super().get(key, prototype, byte_range)

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """As `get`; zarr asks for it from 3.3 on."""
        file_size(self.root / key, str(self.root / key))
        below: Any = super()
        return below.get_sync(key, prototype=prototype, byte_range=byte_range)


def file_size(path: str | Path, name: str) -> int | None:
    """Bytes of a file, None where there is none; refuses what is no file, called `name`."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # a link to itself, a folder that must not be entered
        raise SourceError(f"{name} cannot be read: {error.strerror}; restore it") from error
    if stat.S_ISDIR(found.st_mode):
        return None
    if not stat.S_ISREG(found.st_mode):
        kind = "a FIFO" if stat.S_ISFIFO(found.st_mode) else "a device or a socket"
        raise SourceError(f"{name} is {kind}, not a file; restore it")
    return found.st_size
