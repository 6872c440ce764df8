"""The small files of a workspace: written whole or not at all, read only when they are sound."""

import errno
import io
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import ResourceError
from streamsvd.storage.checksums import checksum

REMEDIES = {
    errno.ENOSPC: "make room (disk, or inodes: see df -i), then resume",
    errno.EDQUOT: "make room in your quota, then resume",
    errno.EROFS: "make it writable, or give another folder",
    errno.EPERM: "make it writable, or give another folder",
    errno.EACCES: "make it writable, or give another folder",
    errno.ENOTDIR: "move away what is in its place, or give another folder",
    errno.EISDIR: "move away what is in its place, or give another folder",
}


def cannot_write(path: Path, error: OSError) -> ResourceError:
    """The error that says why, and what helps."""
    remedy = REMEDIES.get(error.errno or 0, "make room, then resume")
    return ResourceError(f"cannot write {path}: {error.strerror or error}; {remedy}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What fails in the block is told of `path`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside, flush it, rename it."""
    aside = path.with_name(f".{path.name}.new")
    with writing(path):
        try:
            with open(aside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file, None when there is none or it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_arrays(path: Path, arrays: dict[str, Array], before: int) -> int:
    """Write arrays with a checksum of their numbers and of what came before; returns it."""
    total = checksum_of_arrays(arrays, before)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, checksum=np.int64(total))  # type: ignore[arg-type]
    write_whole(path, buffer.getvalue())
    return total


def read_arrays(
    path: Path, names: tuple[str, ...], before: int
) -> tuple[dict[str, Array], int] | None:
    """What `write_arrays` wrote and returned; None when it is not there, damaged or another's."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as saved:
            arrays = {name: np.ascontiguousarray(saved[name]) for name in names}
            known = int(saved["checksum"])
    except Exception:  # what zipfile and NumPy raise on damaged files is no closed list
        return None
    total = checksum_of_arrays(arrays, before)
    return (arrays, total) if total == known else None


def checksum_of_arrays(arrays: dict[str, Array], before: int) -> int:
    """Of the numbers of arrays, one after the other."""
    for array in arrays.values():
        before = checksum(np.ascontiguousarray(array), before)
    return before


def refuse_other_kinds(folder: Path, kinds: dict[str, str]) -> None:
    """Refuse a folder, a link or the like where a file of the run should be, and the like.

    `kinds` has ``"file"`` or ``"folder"`` for each name; what is not there is no matter.
    """
    for name, kind in kinds.items():
        try:
            mode = os.lstat(folder / name).st_mode
        except OSError:
            continue
        found = (
            "a link" if stat.S_ISLNK(mode)
            else "a folder" if stat.S_ISDIR(mode)
            else "a file" if stat.S_ISREG(mode)
            else "something else"
        )  # fmt: skip
        if found != f"a {kind}":
            raise ResourceError(
                f"{folder / name} is {found} where a workspace has a {kind}: move it away, then "
                "resume, or give another folder"
            )
