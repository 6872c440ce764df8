"""The samples of a source in order, checked, one strip read ahead."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.source import Source
from streamsvd.errors import SourceError
from streamsvd.sizes import strip_width

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

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        width = self.width
        # whole chunks of the source, also where `start` is inside of one
        cuts = range(self.start - self.start % width, self.stop, width)
        bounds = [(max(a, self.start), min(a + width, self.stop)) for a in cuts]
        # The next strip is read, decoded and checked while the caller works on this one.
        with ThreadPoolExecutor(1, thread_name_prefix="streamsvd-read") as reader:
            coming = reader.submit(self._read, *bounds[0])
            for k, (start, _) in enumerate(bounds):
                strip = coming.result()
                if k + 1 < len(bounds):
                    coming = reader.submit(self._read, *bounds[k + 1])
                yield start, strip
        if 0 < self._largest < 1 / self._most:
            raise SourceError(
                f"no value of {self.source.name} is larger than {self._largest:.3g}, below "
                f"{1 / self._most:.0e} where squares vanish; rescale the data"
            )

    def _read(self, start: int, stop: int) -> Array:
        strip = self.source.read(start, stop, self.dtype)
        self._check(start, strip)
        return strip

    def _check(self, start: int, strip: Array) -> None:
        low, high = float(strip.min()), float(strip.max())
        if not np.isfinite(low) or not np.isfinite(high):  # a NaN makes both NaN
            sample, feature = np.argwhere(~np.isfinite(strip.T))[0]
            found = "NaN" if np.isnan(strip[feature, sample]) else strip[feature, sample]
            raise SourceError(
                f"{self.source.name} holds {found} at feature {feature}, "
                f"sample {start + sample} (as {self.dtype.name}); replace or drop such values first"
            )
        self._largest = max(self._largest, high, -low)
        if self._largest > self._most:
            raise SourceError(
                f"{self.source.name} holds values as large as {self._largest:.3g}, beyond "
                f"{self._most:.0e} whose squares overflow; rescale the data"
            )
