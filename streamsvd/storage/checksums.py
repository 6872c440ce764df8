"""Checksums of what is kept: a flipped bit is noticed, an attacker is not.

CRC-32 of the standard library: the fastest that needs no other package, and it releases the GIL, so
that threads share the work.
"""

import json
import os
import stat
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from streamsvd.system import drop_pages

PIECE = 2**22
"""Bytes of a file that are read at a time."""


def checksum(content: Any, before: int = 0) -> int:
    """CRC-32 of bytes or a contiguous array that follow what `before` is the checksum of."""
    data = memoryview(content)
    return zlib.crc32(data.cast("B") if data.nbytes else b"", before)


def checksum_of_json(content: Any, before: int = 0) -> int:
    """Of what JSON keeps of `content`, however it is spelled."""
    return checksum(json.dumps(content, sort_keys=True).encode(), before)


def checksum_of_file(path: Path, drops_pages: bool = False) -> tuple[int, int]:
    """Size and checksum of a regular file; `OSError` where there is none.

    With `drops_pages`, the file is taken out of the page cache as it is read.
    """
    buffer, crc, size = memoryview(bytearray(PIECE)), 0, 0
    # a FIFO would wait for a writer
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a file")
        while count := file.readinto(buffer):
            crc, size = zlib.crc32(buffer[:count], crc), size + count
            if drops_pages:
                drop_pages(file.fileno())
    return size, crc


def checksums_of_files(
    paths: Iterable[Path], n_threads: int = 1, drops_pages: bool = False
) -> list[tuple[int, int]]:
    """`checksum_of_file` of each, in order."""
    if n_threads == 1:
        return [checksum_of_file(path, drops_pages) for path in paths]
    with ThreadPoolExecutor(n_threads, thread_name_prefix="streamsvd-checksum") as pool:
        return list(pool.map(lambda path: checksum_of_file(path, drops_pages), paths))
