"""Sources of what is at hand: an array, one of Dask, or a call that gives strips of samples."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.source import Described, Source, check_matrix, dense
from streamsvd.errors import OptionError, SourceError


class ArraySource(Source):
    """A `Source` that is a NumPy array, or one that is mapped from a file."""

    def __init__(self, array: Array, sample_axis: int, name: str) -> None:
        super().__init__(array, sample_axis, name, 1)
        self.is_resident = type(np.ma.getdata(array)) is np.ndarray

    def own_memory(self, dtype: np.dtype[Any]) -> Array:
        """The array itself; refuses one that cannot be overwritten in place."""
        x: Array = self.array
        if isinstance(x, np.ma.MaskedArray):
            raise OptionError(
                "overwrite_x=True needs an array without masked entries; fill or drop them, or "
                "leave it out"
            )
        if x.dtype != dtype or not x.flags.c_contiguous or not x.flags.writeable:
            raise OptionError(
                f"overwrite_x=True needs a writeable C-contiguous {dtype} array with samples as "
                f"columns; got {x.dtype}, C-contiguous: {x.flags.c_contiguous}, writeable: "
                f"{x.flags.writeable}; leave it out to work on a copy"
            )
        return x


class DaskSource(Source):
    """A `Source` that is a Dask array; strips are computed when they are read."""

    computed_by_workers = True

    def __init__(self, array: Any, sample_axis: int, name: str) -> None:
        sizes = array.chunks[sample_axis]
        if any(math.isnan(size) for axis in array.chunks for size in axis):
            raise SourceError(
                f"{name} has chunks of unknown size; call compute_chunk_sizes() first"
            )
        super().__init__(array, sample_axis, name, max(sizes))

    def lazy(self, start: int, stop: int) -> Any:
        """Samples ``start..stop-1`` as a Dask array, (n, stop - start)."""
        return self.array[:, start:stop] if self.sample_axis else self.array[start:stop].T

    def _read(self, start: int, stop: int) -> Array:
        return dense(self.lazy(start, stop).compute())


class Strips(Source):
    """A `Source` of which ``take(start, stop)`` gives samples, as rows or columns."""

    def __init__(
        self,
        take: Callable[[int, int], Array],
        dtype: Any,
        shape: tuple[int, ...],
        sample_axis: int,
        name: str,
        chunk: int = 1,
    ) -> None:
        check_matrix(np.dtype(dtype), shape, name)
        self._take = take
        super().__init__(Described(np.dtype(dtype), shape), sample_axis, name, chunk)

    def _read(self, start: int, stop: int) -> Array:
        strip = self._take(start, stop)
        return strip if self.sample_axis else strip.T


class SparseStrips(Strips):
    """A `Source` of which ``take(start, stop)`` gives samples as SciPy matrices, CSR or CSC."""

    reads_sparse = True

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, n) float64 matrix."""
        strip = self._take(start, stop)
        samples = sparse.csr_array(strip.T if self.sample_axis else strip)
        for part in (samples.data, samples.indices, samples.indptr):
            self._counted(part)
        return summed(samples.data, samples.indices, samples.indptr, samples.shape, self.name)

    def _read(self, start: int, stop: int) -> Array:
        strip = dense(self._take(start, stop))
        return strip if self.sample_axis else strip.T


def summed(
    data: Array, indices: Array, indptr: Array, shape: tuple[int, int], name: str
) -> sparse.csr_array:
    """A CSR matrix of float64 from copies of its parts; what is listed twice adds up."""
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < shape[1]:
        raise SourceError(
            f"{name} has indices from {indices.min()} to {indices.max()}; they must be from 0 to "
            f"{shape[1] - 1}"
        )
    with np.errstate(over="ignore"):  # infinities are found and named by the caller
        parts = (data.astype(np.float64), indices.copy(), indptr.astype(np.int64))
    made = sparse.csr_array(parts, shape=shape)
    made.sum_duplicates()
    return made
