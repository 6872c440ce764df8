"""Ways to damage files, drawn with a seed: what disks, people and programs do to a folder."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 7, 2**40, 2**70, 0.5, -1e300, 1e308, "", "x", "features", "float32",
    "gram", "block", [], [1], {}, {"name": "zstd"}, [[]], "\ud800", "1" * 400,
]  # fmt: skip
"""What is put in place of a value in JSON."""

GARBAGE = [
    b"", b"\0", b"{", b"{}", b"[]", b"null", b"7", b'"x"', b"[" * 100_000, b"\xff\xfe" * 9,
    b"PK\x03\x04", b"\x93NUMPY\x01\x00\x76\x00{'descr': '|O', 'shape': (3,)}",
]  # fmt: skip
"""What is put in place of a file."""


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def pick(random: np.random.Generator, things: list[Any]) -> Any:
    return things[random.integers(len(things))]


# ------------------------------------------------------------------------------ whatever it holds


def flip(path: Path, random: np.random.Generator) -> None:
    """One bit; nothing else tells of it."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    if content:
        content[random.integers(len(content))] ^= 1 << int(random.integers(8))
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def garble(path: Path, random: np.random.Generator) -> None:
    """Some bytes in a row."""
    content = bytearray(path.read_bytes())
    start = int(random.integers(max(1, len(content))))
    count = min(int(random.integers(1, 64)), len(content) - start)
    content[start : start + count] = random.bytes(count)
    path.write_bytes(content)


def truncate(path: Path, random: np.random.Generator) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: random.integers(max(1, len(content)))])


def extend(path: Path, random: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes() + random.bytes(int(random.integers(1, 99))))


def delete(path: Path, random: np.random.Generator) -> None:
    path.unlink()


def replace(path: Path, random: np.random.Generator) -> None:
    path.write_bytes(pick(random, GARBAGE))


def root_of(path: Path) -> Path:
    """The result or the workspace that a file belongs to."""
    return next(p for p in path.parents if p.name in ("result", "workspace"))


def swap(path: Path, random: np.random.Generator) -> None:
    """With another file of its kind."""
    others = [p for p in files_of(root_of(path)) if p.suffix == path.suffix and p != path]
    if not others:
        return
    other = pick(random, others)
    aside = path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def foreign(path: Path, other_root: Path) -> None:
    """The file of the same name of another."""
    other = other_root / path.relative_to(root_of(path))
    if other.is_file():
        shutil.copy2(other, path)


BYTES: list[Callable[[Path, np.random.Generator], None]] = [
    flip, flip, flip, garble, truncate, extend, delete, replace, swap,
]  # fmt: skip


def delete_folder(path: Path, random: np.random.Generator) -> None:
    shutil.rmtree(path.parent)


def in_place_of(path: Path, random: np.random.Generator) -> None:
    """A folder, a link, a pipe."""
    kind = random.integers(4)
    path.unlink()
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.symlink_to(path.with_name("nowhere"))
    elif kind == 2:
        path.symlink_to(path)  # to itself
    else:
        os.mkfifo(path)


# ------------------------------------------------------------------------------------------ JSON


def change_json(path: Path, random: np.random.Generator) -> None:
    """Another value, or none, somewhere in it."""
    content = json.loads(path.read_text())
    node, key = content, pick(random, list(content))
    while isinstance(node[key], dict | list) and len(node[key]) and random.random() < 0.8:
        node = node[key]
        key = pick(random, list(node) if isinstance(node, dict) else list(range(len(node))))
    if random.random() < 0.15:
        del node[key]
    else:
        node[key] = pick(random, VALUES)
    path.write_text(json.dumps(content))


# ---------------------------------------------------------------------------------------- arrays

INTEGERS = [2**40, -5, 100_000, -(2**62), 2**63 - 1]
FLOATS = [np.nan, np.inf, -np.inf]


def change_array(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Of another type or shape, or with a number that cannot be in it."""
    how = random.integers(6)
    if how == 0:
        return array.astype(pick(random, ["int32", "float32", "uint8", "bool", "complex128"]))
    if how == 1:
        return array[:-1]
    if how == 2:
        return np.concatenate([array, array])
    if how == 3:
        return array.reshape(-1) if array.ndim > 1 else array[None]
    changed = array.copy()
    number = pick(random, FLOATS if array.dtype.kind == "f" else INTEGERS)
    if array.dtype.kind in "iu":
        number = np.clip(number, np.iinfo(array.dtype).min, np.iinfo(array.dtype).max)
    if changed.size:
        changed.reshape(-1)[random.integers(changed.size)] = number
    return changed
