"""The samples of a source in order, checked, one strip read ahead."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.errors import SourceError
from streamsvd.sizes import sparse_width, strip_width

LARGEST = 1e140
"""Scores square the entries: beyond this size, and below its inverse, squares leave float64."""


OnSamples = Callable[[int], None]


class StripReader:
    """Samples of `source`, by default all, checked and in order: ``(start, strip)``.

    Strips are C-contiguous (n, c) arrays of `dtype` that the caller may change.
    """

    def __init__(
        self,
        source: Source,
        dtype: np.dtype[Any],
        width: int | None = None,
        largest: float = LARGEST,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.source, self.dtype, self._most = source, dtype, largest
        self.width = width or strip_width(
            source.n_features, source.n_samples, source.chunk, chunk_bytes=source.chunk_bytes
        )
        self._largest = 0.0
        self.start, self.stop = start, source.n_samples if stop is None else stop

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        width = self.width
        # whole chunks of the source, also where `start` is inside of one
        cuts = range(self.start - self.start % width, self.stop, width)
        bounds = [(max(a, self.start), min(a + width, self.stop)) for a in cuts]
        if len(bounds) == 1:  # a thread would cost more than it could save
            yield bounds[0][0], self._read(*bounds[0])
        else:
            yield from self._read_ahead(bounds)
        if 0 < self._largest < 1 / self._most:
            raise SourceError(
                f"no value of {self.source.name} is larger than {self._largest:.3g}, below "
                f"{1 / self._most:.0e} where squares vanish; rescale the data"
            )

    def _read_ahead(self, bounds: list[tuple[int, int]]) -> Iterator[tuple[int, Any]]:
        # The next strip is read, decoded and checked while the caller works on this one.
        with ThreadPoolExecutor(1, thread_name_prefix="streamsvd-read") as reader:
            coming = reader.submit(self._read, *bounds[0])
            for k, (start, _) in enumerate(bounds):
                strip = coming.result()
                if k + 1 < len(bounds):
                    coming = reader.submit(self._read, *bounds[k + 1])
                yield start, strip

    def _read(self, start: int, stop: int) -> Any:
        strip = self.source.read(start, stop, self.dtype)
        self._check(strip, lambda: _first_not_finite(strip, start))
        return strip

    def _ends(self, values: Array) -> tuple[float, float]:
        return float(values.min()), float(values.max())

    def _check(self, values: Array, first_bad: Callable[[], tuple[float, int, int]]) -> None:
        low, high = self._ends(values)
        if not np.isfinite(low) or not np.isfinite(high):  # a NaN makes both NaN
            value, feature, sample = first_bad()
            what, remedy = str(value), "replace or drop such values"
            if np.isnan(value):
                what, remedy = "NaN", f'fit with missing="mean", or {remedy}'
                what, remedy = self.source.why_missing(feature, sample) or (what, remedy)
            places = self.source.present.places
            feature = feature if places is None else int(places[feature])
            raise SourceError(
                f"{self.source.name} holds {what} at feature {feature}, sample {sample} (as "
                f"{self.dtype.name}); {remedy} first"
            )
        self._largest = max(self._largest, high, -low)
        if self._largest > self._most:
            raise SourceError(
                f"{self.source.name} holds values as large as {self._largest:.3g}, beyond "
                f"{self._most:.0e} whose squares overflow; rescale the data"
            )


def _first_not_finite(strip: Array, start: int) -> tuple[float, int, int]:
    """Value, feature and sample of the first number of a strip (n, c) that is not finite."""
    sample, feature = np.argwhere(~np.isfinite(strip.T))[0]
    return strip[feature, sample], feature, start + sample


class GappyReader(StripReader):
    """The same, with NaN where a value is missing."""

    def _read(self, start: int, stop: int) -> Array:
        strip = self.source.read(start, stop, self.dtype)
        self._check(strip, lambda: _first_not_finite(np.where(np.isnan(strip), 0, strip), start))
        return strip

    def _ends(self, values: Array) -> tuple[float, float]:
        low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        return (0.0, 0.0) if np.isnan(low) else (float(low), float(high))


class SparseReader(StripReader):
    """Samples of a source that `reads_sparse`, checked and in order: ``(start, strip)``.

    Strips are CSR matrices (c, n) of float64 that the caller may change. Without a `width` they
    are cut by what is stored, not by the zeros.
    """

    def __init__(
        self,
        source: Source,
        width: int | None = None,
        largest: float = LARGEST,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        if width is None and source.n_stored is not None:
            width = sparse_width(source.n_samples, source.n_stored)
        super().__init__(source, np.dtype(np.float64), width, largest, start, stop)

    def _read(self, start: int, stop: int) -> sparse.csr_array:
        strip = self.source.read_sparse(start, stop)

        def first_bad() -> tuple[float, int, int]:
            entry = np.flatnonzero(~np.isfinite(strip.data))[0]
            sample = int(np.searchsorted(strip.indptr, entry, side="right")) - 1
            return strip.data[entry], int(strip.indices[entry]), start + sample

        if strip.nnz:
            self._check(strip.data, first_bad)
        return strip


def stays_sparse(source: Source, center: str | None) -> bool:
    """Whether samples can be multiplied as they are stored: not where each has its mean removed."""
    return source.reads_sparse and center != "samples"


def sum_strips(
    source: Source,
    as_sparse: bool = False,
    width: int | None = None,
    start: int = 0,
    stop: int | None = None,
) -> Iterable[Any]:
    """The samples ``start..stop-1``, checked, for sums of products: fourth powers of the data.

    As (n, c) arrays in the narrowest type that holds them exactly, `width` at a time, or as (c, n)
    CSR matrices, as many at a time as their nonzeros allow.
    """
    largest = LARGEST**0.5
    if as_sparse:
        reader: StripReader = SparseReader(source, None, largest, start, stop)
    else:
        reader = StripReader(source, source.sum_dtype, width, largest, start, stop)
    return (strip for _, strip in reader)
