"""What is written aside, flushed and renamed, so that it is there whole or not at all.

``.name.streamsvd-1a2b3c4d.new`` is what will be at ``name``, ``.old`` what was there; the process
at work holds a lock on it. What a killed one leaves is known by the lock that nobody holds, also
where process numbers mean nothing, between containers.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamsvd.errors import ResourceError
from streamsvd.storage.locks import Lock

ASIDE = re.compile(r"\.(?P<name>.+)\.streamsvd-(?P<tag>[0-9a-f]{8})\.(?P<kind>new|old)")


@contextmanager
def replaced(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """A new folder, which is moved to `target` when the block is left without an error.

    With `overwrite` it may take the place of another. What killed processes left beside it is
    removed then.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new, lock = _new_folder(target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    old = new.with_suffix(".old")
    try:
        yield new
        _fsync_tree(new)
        if overwrite and os.path.lexists(target):
            os.rename(target, old)
        os.rename(new, target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        if old.exists() and not target.exists():
            os.rename(old, target)
        shutil.rmtree(new, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        if lock is not None:
            lock.release()
    with suppress(OSError):
        _remove_leftovers(target.parent)


def leftovers(target: Path) -> list[Path]:
    """What processes at work, or killed, have beside `target` for it."""
    found = (path for path in target.parent.glob(f".{_escaped(target.name)}.streamsvd-*"))
    return sorted(path for path in found if ASIDE.fullmatch(path.name))


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _new_folder(target: Path) -> tuple[Path, Lock | None]:
    while True:
        new = target.with_name(f".{target.name}.streamsvd-{uuid.uuid4().hex[:8]}.new")
        new.mkdir()
        try:
            return new, Lock(new)
        except (FileNotFoundError, BlockingIOError):
            continue  # it was taken for a leftover just then
        except OSError:
            return new, None  # some network file systems lock no folders: nothing is removed there


def _cannot_write(target: Path, error: OSError) -> ResourceError:
    return ResourceError(f"cannot write {target}: {error}; make room, or choose another path")


def _remove_leftovers(folder: Path) -> None:
    """Remove what nobody works on, but for what a target was killed out of: its only copies."""
    for path in folder.iterdir():
        parts = ASIDE.fullmatch(path.name)
        if parts is None or path.is_symlink() or not path.is_dir():
            continue
        is_fresh = parts["kind"] == "new" and not path.with_suffix(".old").exists()
        if is_fresh or os.path.lexists(folder / parts["name"]):
            with suppress(OSError), Lock(path):
                shutil.rmtree(path, ignore_errors=True)


def _fsync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for entry in [*(os.path.join(folder, name) for name in names), folder]:
            fd = os.open(entry, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
