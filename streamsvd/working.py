"""The working matrix: blocks of columns that are rewritten in place, in memory or mapped files.

On disk it is a Zarr array without compression, so that each chunk file is the raw bytes of one
block: a map of the file rewrites two rows for the price of two rows, while any Zarr library can
read the array.
"""

import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.errors import ResourceError
from streamsvd.kernels import TILE, Array
from streamsvd.store import create_raw_array

CHUNK_BYTES = 32 * 2**20
"""Wide enough that two rows of a chunk are long runs, small enough for any Zarr reader."""

MOST_CHUNKS = 256
"""Every move visits every chunk, and every mapped file costs a descriptor."""


def chunk_width(n_features: int, n_samples: int, itemsize: int) -> int:
    """Columns in a chunk of the working store: about `CHUNK_BYTES`, more when there are many.

    Whole tiles where that leaves at least one.
    """
    column = n_features * itemsize
    target = max(CHUNK_BYTES, -(-column * n_samples // MOST_CHUNKS))
    width = max(1, target // column)
    if width >= TILE:
        width -= width % TILE
    return min(width, n_samples)


class WorkingMatrix:
    """Blocks of columns of an n x N matrix, all of one width.

    Iterating gives ``(start, stop, block)``; columns of a block beyond ``stop - start`` are
    padding, without meaning.
    """

    def __init__(self, blocks: list[Array], n_samples: int) -> None:
        self.blocks = blocks
        self.n_features, self.width = blocks[0].shape
        self.n_samples = n_samples
        self.dtype: np.dtype[Any] = blocks[0].dtype

    @classmethod
    def in_memory(cls, n_features: int, n_samples: int, dtype: np.dtype[Any]) -> "WorkingMatrix":
        """One block in memory, not yet filled."""
        return cls([np.empty((n_features, n_samples), dtype=dtype)], n_samples)

    @classmethod
    def on_disk(
        cls, path: Path, n_features: int, n_samples: int, dtype: np.dtype[Any]
    ) -> "WorkingMatrix":
        """Mapped chunk files of a new Zarr array at `path`, all zeros.

        The space is reserved, so that a full disk is noticed here and not in the middle of a move.
        """
        width = chunk_width(n_features, n_samples, dtype.itemsize)
        n_bytes = n_features * width * dtype.itemsize
        n_chunks = -(-n_samples // width)
        check_free_disk(path.parent, n_chunks * n_bytes)
        paths = create_raw_array(path, n_features, n_samples, width, dtype)
        blocks = []
        for chunk in paths:
            chunk.parent.mkdir(parents=True, exist_ok=True)
            with open(chunk, "w+b") as file:
                _reserve(file.fileno(), n_bytes)
                mapped = mmap.mmap(file.fileno(), n_bytes)
            # Moves touch two rows of pages: reading ahead would read the rest of the chunk.
            mapped.madvise(mmap.MADV_RANDOM)
            blocks.append(np.frombuffer(mapped, dtype=dtype).reshape(n_features, width))
        return cls(blocks, n_samples)

    def __iter__(self) -> Iterator[tuple[int, int, Array]]:
        for b, block in enumerate(self.blocks):
            start = b * self.width
            yield start, min(start + self.width, self.n_samples), block

    def write(self, start: int, strip: Array) -> None:
        """Write the columns `strip` (n, c) from column `start` on."""
        done = 0
        while done < strip.shape[1]:
            b, k = divmod(start + done, self.width)
            count = min(self.width - k, strip.shape[1] - done)
            self.blocks[b][:, k : k + count] = strip[:, done : done + count]
            done += count

    def columns(self, stop: int) -> Array:
        """A copy of the columns below `stop`, (n, stop)."""
        return np.concatenate(
            [block[:, : max(0, stop - start)] for start, _, block in self if start < stop], axis=1
        )

    def rows(self, n_rows: int, stop: int) -> Array:
        """A copy of the first rows, columns below `stop`, (n_rows, stop)."""
        return np.concatenate(
            [block[:n_rows, : max(0, stop - start)] for start, _, block in self if start < stop],
            axis=1,
        )

    def diagonal(self) -> Array:
        """The diagonal, (min(n, N),)."""
        size = min(self.n_features, self.n_samples)
        j = np.arange(size)
        out = np.empty(size, dtype=self.dtype)
        for start, stop, block in self:
            here = j[start : min(stop, size)]
            out[here] = block[here, here - start]
        return out


def check_free_disk(folder: Path, n_bytes: int) -> None:
    """Refuse when the file system of `folder` has not `n_bytes` left."""
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ResourceError(
            f"the working store needs {n_bytes:,} bytes; {folder} has {free:,} bytes free; "
            "free some space or pass workspace= on another disk"
        )


def _reserve(fd: int, n_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, n_bytes)
    else:  # macOS
        os.ftruncate(fd, n_bytes)
