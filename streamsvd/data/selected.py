"""Some samples and features of another source, in any order."""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.source import Described, Source

NEAR = 16
"""Samples that are read for nothing rather than another time."""


class Selected(Source):
    """Some samples and features of `source`, given by their places there.

    A strip is read in runs of samples that lie near each other: samples in their order, or with
    gaps less than a chunk, cost no more than those between them would; scattered ones a chunk each.
    """

    _gives_new = True

    def __init__(self, source: Source, samples: Array, features: Array, name: str) -> None:
        sizes = (len(features), len(samples))
        shape = sizes if source.sample_axis else sizes[::-1]
        super().__init__(Described(source.dtype, shape), source.sample_axis, name, 1)
        self._whole, self._samples, self._features = source, samples, features
        self.reads_sparse = source.reads_sparse

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes, of all features."""
        run = max(samples, self._whole.chunk)
        return super().decoded_bytes(samples) + 2 * self._whole.decoded_bytes(run)

    def why_missing(self, feature: int, sample: int) -> tuple[str, str] | None:
        """What a NaN that was read stands for, and what helps."""
        return self._whole.why_missing(int(self._features[feature]), int(self._samples[sample]))

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, n) float64 matrix."""
        places, order = np.unique(self._samples[start:stop], return_inverse=True)
        parts = [
            self._whole.read_sparse(first, last)[at - first][:, self._features]
            for first, last, at in self._runs(places)
        ]
        self.bytes_read = self._whole.bytes_read
        found = sparse.csr_array(sparse.vstack(parts, format="csr")[order])
        found.sort_indices()
        return found

    def _read(self, start: int, stop: int) -> Array:
        places, order = np.unique(self._samples[start:stop], return_inverse=True)
        strip = np.empty((self.n_features, len(places)), self._whole.sum_dtype)
        done = 0
        for first, last, at in self._runs(places):
            run = self._whole.read(first, last, strip.dtype)
            strip[:, done : done + len(at)] = run[self._features][:, at - first]
            done += len(at)
        return strip[:, order]

    def _counted(self, strip: Array) -> Array:
        self.bytes_read = self._whole.bytes_read
        return strip

    def _runs(self, places: Array) -> Iterator[tuple[int, int, Array]]:
        """Runs of the whole to be read for ascending places: no longer than those are many."""
        most, gap = max(len(places), self._whole.chunk), max(NEAR, self._whole.chunk)
        for part in np.split(places, np.flatnonzero(np.diff(places) > gap) + 1):
            begin = 0
            while begin < len(part):
                end = int(np.searchsorted(part, part[begin] + most))
                yield int(part[begin]), int(part[end - 1]) + 1, part[begin:end]
                begin = end
