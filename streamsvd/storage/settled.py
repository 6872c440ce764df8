"""A store in a folder of which it is known when all writes have ended.

Zarr writes several files at once and raises the first error while others are on their way: they
would be written into a folder, and make it anew, that was removed because of that error.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore, WrapperStore

from streamsvd.errors import ResourceError


@contextmanager
def settled_store(root: Path) -> Iterator["SettledStore"]:
    """A store in `root`; when the block is left, nothing is being written, nor will be."""
    store = SettledStore(LocalStore(root))
    try:
        yield store
    finally:
        store.settle()


class SettledStore(WrapperStore[LocalStore]):
    """A `LocalStore` that counts what is being written; a pickled copy counts its own."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self._change = threading.Condition()
        self._n_writes = 0
        self._is_settled = False

    def __reduce__(self) -> tuple[type["SettledStore"], tuple[LocalStore]]:
        return SettledStore, (self._store,)  # tasks of a cluster write too

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file, unless the store is settled."""
        with self._write():
            await self._store.set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Write a file that is not there, unless the store is settled."""
        with self._write():
            await self._store.set_if_not_exists(key, value)

    def settle(self) -> None:
        """Wait for the writes at work, refuse all others."""
        with self._change:
            self._is_settled = True
            self._change.wait_for(lambda: self._n_writes == 0)

    @contextmanager
    def _write(self) -> Iterator[None]:
        with self._change:
            if self._is_settled:
                raise ResourceError("too late to write: the store is settled")
            self._n_writes += 1
        try:
            yield
        finally:
            with self._change:
                self._n_writes -= 1
                self._change.notify_all()
