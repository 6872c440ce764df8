"""Labelled data in memory as sources: tables of pandas and polars, arrays of xarray.

None of those packages is imported: what is handed over has the methods that are needed.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvd.errors import OptionError, SourceError
from streamsvd.kernels import Array
from streamsvd.labels import Axis, named
from streamsvd.options import Options
from streamsvd.sources import Described, Source, check_matrix


class Ask(NamedTuple):
    """How a user wants data to be read.

    Attributes
    ----------
    sample_axis : {0, 1} or None
        Axis of the samples.
    sample_dim : str, sequence of str, or None
        Dimension of the samples, where dimensions have names; several in xarray.
    layer : str or None
        Of an AnnData; None for `X`.
    missing_chunks : {"error", "fill"}
        Whether chunks that are not in a store read as its fill value.
    storage_options : dict or None
        For the file system of a URL.
    """

    sample_axis: int | None = None
    sample_dim: Any = None
    layer: str | None = None
    missing_chunks: str = "error"
    storage_options: Any = None

    @classmethod
    def of(cls, options: Options) -> "Ask":
        """What the options of a fit say."""
        return cls(
            options.sample_axis,
            options.sample_dim,
            options.layer,
            options.missing_chunks,
            options.storage_options,
        )


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


# --------------------------------------------------------------------------------------- tables


def open_pandas(frame: Any, ask: Ask, fitted: Ask) -> Source:
    """A pandas DataFrame: samples are rows unless ``sample_axis=1``."""
    name = "the DataFrame"
    refuse_options(name, sample_dim=ask.sample_dim, layer=ask.layer)
    kinds = [
        getattr(kind, "subtype" if type(kind).__name__ == "SparseDtype" else "numpy_dtype", kind)
        for kind in frame.dtypes
    ]
    is_plain = all(isinstance(kind, np.dtype) for kind in frame.dtypes)
    common = _common_type(kinds, list(frame.dtypes), list(frame.columns), name)
    axis = ask.sample_axis or 0

    def take(start: int, stop: int) -> Array:
        part = frame.iloc[:, start:stop] if axis else frame.iloc[start:stop]
        if is_plain:
            return part.to_numpy(dtype=common)
        return part.to_numpy(dtype=np.float64, na_value=np.nan)

    source = Strips(take, common, frame.shape, axis, name)
    of_both = (frame.index, frame.columns)
    source.features = _index(of_both[1 - axis], "feature")
    source.samples = _index(of_both[axis], "sample")
    return source


def _index(index: Any, dim: str) -> Axis | None:
    """The names in an index of pandas, None for mere numbers of rows."""
    if type(index).__name__ == "RangeIndex":
        return None
    if type(index).__name__ == "MultiIndex":
        return named(dim, np.array([",".join(map(str, place)) for place in index], dtype=object))
    return named(dim, index.to_numpy())


def open_polars(frame: Any, ask: Ask, fitted: Ask) -> Source:
    """A polars DataFrame: samples are rows unless ``sample_axis=1``; columns have names."""
    import polars

    name = "the DataFrame"
    refuse_options(name, sample_dim=ask.sample_dim, layer=ask.layer)
    kinds = [{"Boolean": "bool"}.get(str(k), str(k).lower()) for k in frame.dtypes]
    common = _common_type(kinds, frame.dtypes, frame.columns, name)
    is_single = np.result_type(common, np.float32) == np.float32
    through = polars.Float32 if is_single else polars.Float64
    axis = ask.sample_axis or 0

    def take(start: int, stop: int) -> Array:
        part = frame[:, start:stop] if axis else frame.slice(start, stop - start)
        return part.cast(through).to_numpy()  # nulls become NaN

    source = Strips(take, common, frame.shape, axis, name)
    columns = np.array(frame.columns, dtype=object)
    if axis:
        source.samples = named("sample", columns)
    else:
        source.features = named("feature", columns)
    return source


def _common_type(kinds: list[Any], told: list[Any], columns: list[Any], name: str) -> Any:
    """The type that holds the values of all columns; refuses those that are not numbers."""
    found = []
    for kind, words, column in zip(kinds, told, columns, strict=True):
        try:
            dtype = np.dtype(kind)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "biuf":
            raise SourceError(
                f"column {column!r} of {name} holds {words}, not real numbers; convert it or leave "
                "it out"
            )
        found.append(dtype)
    return np.result_type(*found) if found else np.dtype(np.float64)


# ------------------------------------------------------------------------- named dimensions


def open_data_array(x: Any, ask: Ask, fitted: Ask) -> Source:
    """An xarray.DataArray of any number of dimensions: those not of the samples are features."""
    name = f"the DataArray {x.name!r}" if x.name is not None else "the DataArray"
    refuse_options(name, layer=ask.layer)
    sample_dims = _sample_dims(x, ask, fitted, name)
    feature_dims = tuple(dim for dim in x.dims if dim not in sample_dims)
    if not feature_dims:
        raise OptionError(f"sample_dim={ask.sample_dim!r} leaves no dimension for the features")
    lead, inner = sample_dims[0], math.prod(x.sizes[dim] for dim in sample_dims[1:])
    order = [x.dims.index(dim) for dim in (*feature_dims, *sample_dims)]
    features, samples = (_axis_of(x, dims) for dims in (feature_dims, sample_dims))
    n_features, n_samples = len(features), len(samples)
    axis = 0 if x.dims[0] in sample_dims else 1

    def take(start: int, stop: int) -> Array:
        lo, hi = start // inner, -(-stop // inner)  # whole slices along the first dimension
        block = np.asarray(x.isel({lead: slice(lo, hi)}).data).transpose(order)
        strip = block.reshape(n_features, -1)[:, start - lo * inner : stop - lo * inner]
        return strip if axis else strip.T

    stored = x.chunksizes.get(lead) or [x.encoding.get("preferred_chunks", {}).get(lead, 1)]
    shape = (n_features, n_samples) if axis else (n_samples, n_features)
    source = Strips(take, x.dtype, shape, axis, name, min(max(stored) * inner, n_samples))
    source.features, source.samples = features, samples
    return source


def _sample_dims(x: Any, ask: Ask, fitted: Ask, name: str) -> tuple[str, ...]:
    asked = ask.sample_dim
    if asked is None and ask.sample_axis is None:
        asked = fitted.sample_dim
    if asked is None:
        axis = fitted.sample_axis if ask.sample_axis is None else ask.sample_axis
        if axis is None or x.ndim != 2:
            raise OptionError(
                f"{name} has the dimensions {', '.join(map(repr, x.dims))}: name that of the "
                "samples, or several, with sample_dim="
            )
        return (x.dims[axis],)
    if ask.sample_axis is not None and ask.sample_dim is not None:
        raise OptionError("pass sample_axis= or sample_dim=, not both")
    dims = (asked,) if isinstance(asked, str) else tuple(asked)
    strange = [dim for dim in dims if dim not in x.dims]
    if strange or not dims or len(set(dims)) < len(dims):
        raise OptionError(
            f"sample_dim={asked!r} must be among the dimensions of {name}: "
            f"{', '.join(map(repr, x.dims))}"
        )
    return dims


def _axis_of(x: Any, dims: tuple[str, ...]) -> Axis:
    coords = {dim: np.asarray(x.coords[dim].values) for dim in dims if dim in x.coords}
    return Axis(tuple(map(str, dims)), tuple(x.sizes[dim] for dim in dims), coords)
