"""What a source is: a matrix of features by samples that is read in strips of samples."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.errors import OptionError, SourceError


class Source:
    """A matrix of n features by N samples that is read in strips of samples.

    Attributes
    ----------
    name : str
        What to call it in errors.
    n_features, n_samples : int
        `n`, `N`.
    dtype : numpy.dtype
        As stored.
    sample_axis : int
        Axis of the samples.
    chunk : int
        Samples in a chunk: reading in multiples of it reads no chunk twice.
    array
        What is read.
    features, samples : Axis or None
        What they are called, where that is known.
    bytes_read : int
        How much was, so far, after decompression.
    """

    features: Axis | None = None
    samples: Axis | None = None
    bytes_read: int = 0

    def __init__(self, array: Any, sample_axis: int, name: str, chunk: int) -> None:
        self.name, self.dtype = name, array.dtype
        self.array, self.sample_axis, self.chunk = array, sample_axis, chunk
        self.n_features = array.shape[1 - sample_axis]
        self.n_samples = array.shape[sample_axis]

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> Array:
        """Samples ``start..stop-1`` as a new C-contiguous (n, stop - start) array of `dtype`."""
        with np.errstate(over="ignore"):  # infinities are found and named by the caller
            strip = self._counted(self._strip(start, stop))
            return np.array(strip, dtype=dtype, order="C")

    def _counted(self, strip: Array) -> Array:
        self.bytes_read += strip.nbytes
        return strip

    def _strip(self, start: int, stop: int) -> Array:
        """Samples ``start..stop-1`` (n, stop - start) as they are stored."""
        strip = self.array[:, start:stop] if self.sample_axis else self.array[start:stop]
        return dense(strip) if self.sample_axis else dense(strip).T


class DaskSource(Source):
    """A `Source` that is a Dask array; strips are computed when they are read."""

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

    def _strip(self, start: int, stop: int) -> Array:
        return dense(self.lazy(start, stop).compute())


class Described(NamedTuple):
    """The dtype and shape of a matrix that is not an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def dense(strip: Any) -> Array:
    """A NumPy or SciPy matrix as a NumPy array."""
    if hasattr(strip, "toarray"):
        return strip.astype(np.float64).toarray()  # entries listed twice add up, without overflow
    return np.asarray(strip)


def check_compressed(kind: str, sample_axis: int, name: str) -> None:
    """Refuse a sparse matrix whose samples are not what it is compressed by; `kind` is csr, csc."""
    if kind.startswith("csr") != (sample_axis == 0):
        raise SourceError(
            f"{name} is a {kind} and can be read by {'rows' if sample_axis else 'columns'} "
            f"only, but samples are its {'columns' if sample_axis else 'rows'} (sample_axis="
            f"{sample_axis}); pass sample_axis={1 - sample_axis} if they are not, or convert it, "
            "for example with SciPy's tocsr() or tocsc()"
        )


def check_matrix(dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> None:
    """Refuse what is not a matrix of real numbers."""
    if dtype.kind not in "biuf":
        raise SourceError(f"{name} holds {dtype}, not real numbers; convert it first")
    if len(shape) != 2:
        raise SourceError(f"{name} has shape {shape}; need two axes, features and samples")
    if 0 in shape:
        raise SourceError(f"{name} is empty: shape {shape}")


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

    def _strip(self, start: int, stop: int) -> Array:
        strip = self._take(start, stop)
        return strip if self.sample_axis else strip.T


def refuse_options(name: str, **options: Any) -> None:
    """Refuse options that are for other kinds of data."""
    kinds = {"sample_dim": "data with named dimensions", "layer": "an AnnData"}
    for option, value in options.items():
        if value is not None:
            raise OptionError(f"{option}={value!r} is for {kinds[option]}, not for {name}")
