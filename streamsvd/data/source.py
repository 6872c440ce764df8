"""What a source is: a matrix of features by samples that is read in strips of samples."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask.utils import format_bytes
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis, Joined
from streamsvd.data.latitudes import latitudes_along
from streamsvd.data.packing import REMEDY, Packing
from streamsvd.data.present import ALL, Present, Variables
from streamsvd.errors import OptionError, ResourceError, SourceError, StreamSVDError
from streamsvd.options import Ask
from streamsvd.options.rules import working_dtype

MOST_BYTES = 2**62
"""No matrix is larger, and arithmetic on sizes stays within 64 bits."""


class Source:
    """A matrix of n features by N samples that is read in strips of samples.

    A kind of source says what it can do by what it overrides; what is here is true of any matrix
    that can be sliced.

    Attributes
    ----------
    name : str
        What to call it in errors.
    n_features, n_samples : int
        `n`, `N`.
    dtype : numpy.dtype
        Of the values: as stored, or as they are decoded.
    packing : Packing or None
        How stored numbers are decoded; None where they are the values.
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
    is_resident : bool
        Whether it is an array in memory, so that the working copy should be too.
    is_resumable : bool
        Whether `fingerprint` tells it from others, so that a run on disk can go on with it.
    readable_by_workers : bool
        Whether the workers of a cluster can open it: a pickled source is one, not the data.
    computed_by_workers : bool
        Whether `lazy` gives samples that the workers of a cluster compute.
    chunk_bytes : int
        Bytes that are decoded to read `chunk` samples: more than they take where stored chunks
        reach beyond the array. 0 of what is not stored in chunks.
    reads_sparse : bool
        Whether `read_sparse` gives samples as they are stored, without their zeros.
    n_stored : int or None
        Numbers that are stored, zeros left out, where that is known of a sparse source.
    is_readable : bool
        Whether samples can be read at all: what was summed up of batches has none left.
    present : Present
        What is there of the features.
    mask : (n,) array of bool or None
        Which features of the data take part, where the user said so.
    columns : callable or None
        Gives a column of booleans of the features by its name, of data that come with such.
    sample_weights : (N,) float64 array or None
        How many times each sample counts; None where all count once.
    drops_pages : bool
        May be set. Whether files are dropped from the page cache when they were read: they are not
        read again soon, and the working store needs the room. Means nothing where there are none.
    """

    features: Axis | None = None
    samples: Axis | None = None
    packing: Packing | None = None
    bytes_read: int = 0
    chunk_bytes: int = 0
    is_resident: bool = False
    is_resumable: bool = False
    readable_by_workers: bool = False
    computed_by_workers: bool = False
    reads_sparse: bool = False
    n_stored: int | None = None
    drops_pages: bool = False
    is_readable: bool = True
    present: Present = ALL
    mask: Array | None = None
    columns: Callable[[str], Array] | None = None
    sample_weights: Array | None = None
    _gives_new: bool = False  # whether what `_read` gives is no one else's

    def __init__(self, array: Any, sample_axis: int, name: str, chunk: int) -> None:
        self.name, self.dtype = name, array.dtype
        self.array, self.sample_axis, self.chunk = array, sample_axis, chunk
        self.n_features = array.shape[1 - sample_axis]
        self.n_samples = array.shape[sample_axis]

    @property
    def sum_dtype(self) -> np.dtype[Any]:
        """The narrowest type of strips that holds the values as they are."""
        return working_dtype(self.dtype)

    def weigh(self, weights: Array | None) -> None:
        """Take the variance of each feature so many times, see `streamsvd.data.weights`.

        `weights` (n,) are those of all features of the data.
        """
        places = self.present.places
        if weights is not None and places is not None:
            weights = weights[places]
        self.present = self.present._replace(weights=weights)

    @property
    def n_all(self) -> int:
        """Features of the data, also those that are left out."""
        return self.n_features

    @property
    def weight(self) -> float | None:
        """What all samples weigh; None where each counts once."""
        return None if self.sample_weights is None else float(self.sample_weights.sum())

    def weights_of_samples(self, start: int, stop: int) -> Array | None:
        """`sample_weights` of the samples ``start..stop-1``."""
        return None if self.sample_weights is None else self.sample_weights[start:stop]

    def latitudes(self) -> Array | None:
        """The latitude of each feature of the data in degrees; None where they are at none."""
        return latitudes_along(self.features, self.about_coordinate, self.name)

    def about_coordinate(self, dim: str) -> Mapping[str, Any]:
        """The attributes of the coordinate along a dimension."""
        return {}

    def decode_by(self, packing: Packing | None) -> None:
        """Read what is packed; with None numbers stay as they are stored."""
        if packing is not None:
            self.packing, self.dtype = packing, packing.dtype

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> Array:
        """Samples ``start..stop-1`` as a new C-contiguous (n, stop - start) array of `dtype`.

        What is missing, by a mask or by the attributes of packed numbers, is NaN.
        """
        try:
            found = self._counted(self._read(start, stop))
            strip, mask = np.ma.getdata(found), np.ma.getmask(found)
            if self.packing is not None:
                strip = self.packing.decode(strip)
        except MemoryError as error:
            raise ResourceError(
                f"{self.name}: there is no memory to read samples {start} to {stop - 1}, which "
                f"takes about {format_bytes(3 * self.decoded_bytes(stop - start))}; free some, or "
                "store the data in smaller chunks"
            ) from error
        with np.errstate(over="ignore"):  # infinities are found and named by the caller
            if self._gives_new or self.packing is not None:
                made = np.require(strip, dtype=dtype, requirements=["C", "W", "A"])
            else:
                made = np.array(strip, dtype=dtype, order="C")
        if mask is not np.ma.nomask:
            np.copyto(made, np.nan, where=mask)
        return made

    def check_names(self, fitted: Axis) -> None:
        """Refuse features that are called otherwise than those of the fit."""
        difference = None if self.features is None else fitted.difference(self.features)
        if difference is not None:
            raise OptionError(
                f"{self.name} has other features than the fit, or in another order: {difference}"
            )

    def scale_variables(self, features: Axis | None) -> None:
        """Scale each variable as a whole from here on; refuses `features` that are not of several.

        They are those of the source, or of a fit whose features it has.
        """
        if not isinstance(features, Joined):
            raise OptionError(
                'normalize="variables" is for several variables, a list of DataArrays or a '
                f"Dataset, and {self.name} is one: leave it out"
            )
        of, places = features.variable_of, self.present.places
        variables = Variables(tuple(features.parts), of if places is None else of[places])
        self.present = self.present._replace(variables=variables)

    def why_missing(self, feature: int, sample: int) -> tuple[str, str] | None:
        """What a NaN that was read stands for, and what helps; None where it is a NaN.

        Reads that sample once more.
        """
        found = self._read(sample, sample + 1)[feature, 0]
        if found is np.ma.masked:
            return "a masked value", 'fit with missing="mean", or fill or drop the masked entries'
        why = "" if self.packing is None else self.packing.why(found)
        if not why:
            return None
        return (
            f"a missing value ({why})",
            f'fit with missing="mean", {REMEDY}, or replace or drop such values',
        )

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes, before they are cast."""
        return int(self.n_features * samples * self.array.dtype.itemsize) + self._unpacked(samples)

    def _unpacked(self, samples: int) -> int:
        """Bytes of so many samples as values beside the stored numbers, and of where they miss."""
        of_one = 0 if self.packing is None else self.dtype.itemsize + 1
        return int(self.n_features * samples * of_one)

    def sizes(self) -> dict[str, Any]:
        """What a `streamsvd.problem.Problem` has of its source."""
        return {
            "n_features": self.n_features,
            "n_samples": self.n_samples,
            "source_chunk": self.chunk,
            "source_itemsize": self.dtype.itemsize,
            "source_chunk_bytes": self.chunk_bytes,
            "decoded": self.decoded_bytes,
            "in_batches": not self.is_readable,
        }

    def read_sparse(self, start: int, stop: int) -> sparse.csr_array:
        """Samples ``start..stop-1`` as the rows of a new (stop - start, n) float64 matrix.

        Each entry once, in the order of features; only where `reads_sparse`.
        """
        raise OptionError(f"{self.name} is not sparse")

    def lazy(self, start: int, stop: int) -> Any:
        """Samples ``start..stop-1`` as a Dask array, None if not `computed_by_workers`."""
        return None

    def fingerprint(self) -> str | None:
        """Changes when the data do, as far as that can be known; None if not `is_resumable`."""
        return None

    def places(self) -> str | None:
        """Changes when the files are others, if of the same content; None without any."""
        return None

    def own_memory(self, dtype: np.dtype[Any]) -> Array | None:
        """The array to be overwritten by the fit, of `dtype`; None where it is not in memory."""
        return None

    def raw_chunks(self, dtype: np.dtype[Any]) -> tuple[list[Path], int]:
        """The chunk files to be overwritten by the fit, raw blocks of `dtype`, and their width."""
        raise OptionError("overwrite_x=True is for NumPy arrays and local Zarr arrays")

    def mark(self, reason: str) -> None:
        """Mark what is stored so that it is never taken for data again; memory needs no mark."""

    def _counted(self, strip: Array) -> Array:
        self.bytes_read += strip.nbytes
        return strip

    def _read(self, start: int, stop: int) -> Array:
        """Samples ``start..stop-1`` (n, stop - start) as they are stored."""
        strip = self.array[:, start:stop] if self.sample_axis else self.array[start:stop]
        return dense(strip) if self.sample_axis else dense(strip).T


def turned(source: Source, expected: int) -> str:
    """Advice, for an error, where the other axis has as many as there should be features."""
    if source.n_samples != expected or source.n_features == expected:
        return ""
    return f"; pass sample_axis={1 - source.sample_axis} if samples are on the other axis"


class Described(NamedTuple):
    """The dtype and shape of a matrix that is not an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def dense(strip: Any) -> Array:
    """A NumPy or SciPy matrix as a NumPy array; a masked array stays one."""
    if hasattr(strip, "toarray"):
        return strip.astype(np.float64).toarray()  # entries listed twice add up, without overflow
    return strip if isinstance(strip, np.ma.MaskedArray) else np.asarray(strip)


def is_a(x: Any, package: str, name: str) -> bool:
    """Whether `x` is of the class `name` of a package, or of one made from it."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(x).__mro__
    )


def mask_of(x: Any) -> Array | None:
    """Where entries of an array, or of the arrays in a list, are masked; None if none is."""
    if isinstance(x, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in x):
        x = np.ma.asarray(x)
    return np.ma.getmaskarray(x) if np.ma.is_masked(x) else None


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
    if math.prod(shape) * dtype.itemsize > MOST_BYTES:
        raise SourceError(
            f"{name} has shape {shape}, more than {format_bytes(MOST_BYTES)}, so its metadata must "
            "be damaged; restore them"
        )


@contextmanager
def open_file(name: str) -> Iterator[None]:
    """What a library raises when it reads from an open file is an error of the source `name`."""
    try:
        yield
    except (StreamSVDError, MemoryError):
        raise
    except Exception as error:  # each library raises its own kinds, h5py whatever it calls
        raise SourceError(
            f"{name} cannot be read: {type(error).__name__}: {error}; if its file was closed, open "
            "it again"
        ) from error


def refuse_options(name: str, **options: Any) -> None:
    """Refuse options that are for other kinds of data."""
    kinds = {"sample_dim": "data with named dimensions", "layer": "an AnnData"}
    for option, value in options.items():
        if value is not None:
            raise OptionError(f"{option}={value!r} is for {kinds[option]}, not for {name}")


def asked_axis(name: str, ask: Ask, fitted: Ask, dims: tuple[str, ...] = ()) -> int:
    """Axis of the samples of what has two axes, named `dims` or nothing."""
    refuse_options(name, layer=ask.layer)
    if ask.sample_dim is not None:
        if ask.sample_dim not in dims:
            raise OptionError(
                f"sample_dim={ask.sample_dim!r} is not a dimension of {name}, which has "
                f"{' and '.join(map(repr, dims)) or 'no names of dimensions: pass sample_axis='}"
            )
        return dims.index(ask.sample_dim)
    if ask.sample_axis is not None:
        return int(ask.sample_axis)
    if fitted.sample_dim in dims:
        return dims.index(fitted.sample_dim)
    return 1 if fitted.sample_axis is None else fitted.sample_axis
