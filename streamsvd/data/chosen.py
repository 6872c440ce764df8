"""Sources made of others, and the one that has some of the features of another.

Features that take no part in a fit, because a mask leaves them out or because they have no value,
are left out in one way: by a `Chosen` source, of which nothing else knows. `Present.places` says
which features of the data its features are.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.data.source import Source
from streamsvd.sizes import sparse_width, strip_width


class Wrapped(Source):
    """A source that reads another, `whole`, which counts what is read and knows its files."""

    def __init__(self, source: Source) -> None:
        self.whole = source
        for known in (
            "name",
            "dtype",
            "packing",
            "array",
            "sample_axis",
            "chunk",
            "n_features",
            "n_samples",
            "features",
            "samples",
            "chunk_bytes",
            "is_resident",
            "is_resumable",
            "readable_by_workers",
            "computed_by_workers",
            "reads_sparse",
            "n_stored",
            "present",
            "mask",
            "sample_weights",
        ):
            setattr(self, known, getattr(source, known))

    @property
    def bytes_read(self) -> int:
        """What was read of the whole source."""
        return self.whole.bytes_read

    @bytes_read.setter
    def bytes_read(self, count: int) -> None:
        """Counted there."""
        self.whole.bytes_read = count

    @property
    def drops_pages(self) -> bool:
        """As of the whole source."""
        return self.whole.drops_pages

    @drops_pages.setter
    def drops_pages(self, drops: bool) -> None:
        """Done there."""
        self.whole.drops_pages = drops

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes, before they are cast."""
        return self.whole.decoded_bytes(samples)

    @property
    def n_all(self) -> int:
        """Features of the data, also those that are left out."""
        return self.whole.n_all

    def latitudes(self) -> Array | None:
        """Of all features of the data."""
        return self.whole.latitudes()

    def check_names(self, fitted: Axis) -> None:
        """Refuse features that are called otherwise than those of the fit."""
        self.whole.check_names(fitted)

    def fingerprint(self) -> str | None:
        """Changes when the data do."""
        return self.whole.fingerprint()

    def places(self) -> str | None:
        """Changes when the files are others."""
        return self.whole.places()

    def own_memory(self, dtype: np.dtype[Any]) -> Array | None:
        """The array to be overwritten by the fit."""
        return self.whole.own_memory(dtype)

    def raw_chunks(self, dtype: np.dtype[Any]) -> tuple[list[Path], int]:
        """The chunk files to be overwritten by the fit."""
        return self.whole.raw_chunks(dtype)

    def mark(self, reason: str) -> None:
        """Mark what is stored so that it is never taken for data again."""
        self.whole.mark(reason)


class Chosen(Wrapped):
    """Some of the features of another source.

    All of them are read, as many samples at a time as a reader of the whole would, and only these
    are kept: memory and work are those of the features that are chosen.

    Parameters
    ----------
    source : Source
    kept : (m,) array of int
        Which of its features, ascending.
    mask : (n,) array of bool, optional
        The same, where the user said so.
    """

    def __init__(self, source: Source, kept: Array, mask: Array | None = None) -> None:
        super().__init__(source)
        self.kept, self.n_features = kept, len(kept)
        if mask is not None:
            self.mask = mask
        self.present = source.present.restricted(kept)
        n, n_samples = source.n_features, source.n_samples
        self._width = strip_width(n, n_samples, source.chunk, chunk_bytes=source.chunk_bytes)
        self._sparse_width = n_samples
        if source.n_stored is not None:  # at most so many belong to the features that are kept
            self._sparse_width = sparse_width(n_samples, source.n_stored)
            self.n_stored = min(source.n_stored, n_samples * len(kept))

    @property
    def sum_dtype(self) -> np.dtype[Any]:
        """The narrowest type of strips that holds the values as they are."""
        return self.whole.sum_dtype

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> Array:
        """Samples ``start..stop-1`` as a new C-contiguous (m, stop - start) array of `dtype`."""
        strip = np.empty((self.n_features, stop - start), dtype)
        for first, last in _pieces(start, stop, self._width):
            strip[:, first - start : last - start] = self.whole.read(first, last, dtype)[self.kept]
        return strip

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, m) float64 matrix."""
        pieces = _pieces(start, stop, self._sparse_width)
        parts = [self.whole.read_sparse(*piece)[:, self.kept] for piece in pieces]
        return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")

    def lazy(self, start: int, stop: int) -> Any:
        """Samples ``start..stop-1`` as a Dask array, (m, stop - start)."""
        samples = self.whole.lazy(start, stop)
        return None if samples is None else samples[self.kept]

    def why_missing(self, feature: int, sample: int) -> tuple[str, str] | None:
        """What a NaN that was read stands for, and what helps."""
        return self.whole.why_missing(int(self.kept[feature]), sample)

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes: of the whole, a piece at a time."""
        piece = min(samples, self._width)
        return self.whole.decoded_bytes(piece) + 8 * self.whole.n_features * piece


def _pieces(start: int, stop: int, width: int) -> Iterator[tuple[int, int]]:
    """The samples ``start..stop-1`` in runs that end at multiples of `width`."""
    while start < stop:
        end = min(stop, start + width - start % width)
        yield start, end
        start = end


def masked(source: Source, mask: Array | None) -> Source:
    """The features of a source that a mask (n,) has, all of them where there is none."""
    return source if mask is None else Chosen(source, np.flatnonzero(mask), mask)
