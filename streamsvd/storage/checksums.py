"""Checksums of what is kept: a flipped bit is noticed, an attacker is not.

Small files have the CRC-32 of the standard library. Of working stores, which may be as large as a
disk, pages are summed up first, at a third of the cost: what disks and memory do, a bit, a page, a
file that is not what it was, changes the sums as well.
"""

import json
import os
import stat
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.sizes import PAGE
from streamsvd.system import drop_pages

PIECE = 2**20
"""Bytes of a file that are read at a time; they stay in the processor's cache."""

Sum = Callable[[Any, int], int]
"""Of bytes, and the checksum of those before them."""


def checksum(content: Any, before: int = 0) -> int:
    """CRC-32 of bytes, or of those of a contiguous array."""
    data = memoryview(content)
    return zlib.crc32(data.cast("B") if data.nbytes else b"", before)


def checksum_of_pages(content: memoryview, before: int = 0) -> int:
    """CRC-32 of the sums of the words of each page, and of what is left in the end."""
    whole = len(content) - len(content) % PAGE
    words = np.frombuffer(content[:whole], np.uint64).reshape(-1, PAGE // 8)
    return zlib.crc32(content[whole:], checksum(words.sum(axis=1), before))


def checksum_of_json(content: Any, before: int = 0) -> int:
    """Of what JSON keeps of `content`, however it is spelled."""
    return checksum(json.dumps(content, sort_keys=True).encode(), before)


def checksum_of_file(
    path: Path, add: Sum = zlib.crc32, drops_pages: bool = False
) -> tuple[int, int]:
    """Size and checksum of a regular file; `OSError` where there is none.

    With `drops_pages`, the file is taken out of the page cache when it was read.
    """
    buffer, total, size = memoryview(bytearray(PIECE)), 0, 0
    # a FIFO would wait for a writer
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a file")
        while count := file.readinto(buffer):
            total, size = add(buffer[:count], total), size + count
        if drops_pages:
            drop_pages(file.fileno())
    return size, total


def checksums_of_stores(
    paths: Iterable[Path],
    n_threads: int,
    drops_pages: bool,
    on_bytes: Callable[[int], None] = lambda n: None,
) -> list[tuple[int, int]]:
    """Sizes and checksums of large files, in order, by `checksum_of_pages`."""

    def of_one(path: Path) -> tuple[int, int]:
        return checksum_of_file(path, checksum_of_pages, drops_pages)

    found = []
    with ThreadPoolExecutor(n_threads, thread_name_prefix="streamsvd-checksum") as pool:
        for size, total in pool.map(of_one, paths):
            found.append((size, total))
            on_bytes(size)
    return found
