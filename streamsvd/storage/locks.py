"""Locks on files and folders that end with the process that holds them.

They are `flock`'s. Record locks (`fcntl.lockf`) would not do: they do not keep two threads of a
process apart, and closing any other descriptor of the file gives them up. But an `flock` belongs to
the open file, which a forked child shares: a child that outlived the fit would keep it. So a child
closes what it has of the locks of its parent, first of all.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet


class Lock:
    """A lock on the file or folder at `path`, held from now on.

    Raises `BlockingIOError` when another holds it, and `OSError` where there is nothing to lock.

    Parameters
    ----------
    path : Path
    flags : int
        With which it is opened.
    """

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path = path
        while True:
            self._fd = os.open(path, flags, 0o644)
            _held.add(self)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.release()
                raise
            if self.is_held():
                return
            self.release()  # it was removed, and perhaps made again, before it was locked

    def is_held(self) -> bool:
        """Whether what is locked is what is at the path, for this process to keep others from."""
        try:
            return self._fd >= 0 and os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except OSError:
            return False

    def release(self) -> None:
        """Let others in."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.release()


_held: WeakSet[Lock] = WeakSet()


def _release_all() -> None:
    for lock in list(_held):
        with suppress(OSError):
            lock.release()


os.register_at_fork(after_in_child=_release_all)
