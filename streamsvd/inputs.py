"""Inputs: whatever a user calls data becomes a `Source`, read a strip of samples at a time.

Kinds from other packages are known by the names of their classes, so that none of those packages is
needed or imported. Names of features, and of samples where they are in memory, come along.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.errors import OptionError, SourceError
from streamsvd.kernels import Array
from streamsvd.labels import Axis, named
from streamsvd.options import Options, check_axis, check_missing
from streamsvd.sources import Source, check_compressed, check_matrix, dense, open_node, open_source


class Ask(NamedTuple):
    """How a user wants data to be read.

    Attributes
    ----------
    sample_axis : {0, 1} or None
        Axis of the samples.
    sample_dim : str, sequence of str, or None
        Dimension(s) of the samples, where dimensions have names.
    layer : str or None
        Of an AnnData; None for `X`.
    missing_chunks : {"error", "fill"}
        Whether chunks that are not in a store read as its fill value.
    """

    sample_axis: int | None = None
    sample_dim: Any = None
    layer: str | None = None
    missing_chunks: str = "error"

    @classmethod
    def of(cls, options: Options) -> "Ask":
        """What the options of a fit say."""
        return cls(options.sample_axis, options.sample_dim, options.layer, options.missing_chunks)


def open_data(x: Any, ask: Ask, fitted: Ask | None = None) -> Source:
    """Open data of any kind in `KINDS`, or what `open_source` reads.

    Parameters
    ----------
    x
        The data, or a `Source`, which is returned as it is.
    ask : Ask
        What the user says.
    fitted : Ask, optional
        What holds where `ask` says nothing: how the data of the fit were read. Samples of tables
        and of AnnData are rows in any case, unless `ask` says otherwise; those of arrays are
        columns, unless `ask` or `fitted` do.

    Raises
    ------
    SourceError
        What cannot be read as a matrix of real numbers, with the remedy.
    OptionError
        An option of another kind of data.
    """
    if isinstance(x, Source):
        return x
    if ask.sample_axis is not None:
        check_axis(ask.sample_axis)
    check_missing(ask.missing_chunks)
    fitted = fitted or Ask()
    if isinstance(x, str | os.PathLike):
        return _path(x, ask, fitted)
    for (package, name), kind in KINDS.items():
        if is_a(x, package, name):
            return kind(x, ask, fitted)
    if sparse.issparse(x):
        return _sparse(x, ask, fitted)
    return _array(x, ask, fitted)


def is_known(x: Any) -> bool:
    """Whether `x` is a path or of a kind in `KINDS`: not an array or a matrix in memory."""
    return isinstance(x, str | os.PathLike) or any(is_a(x, *kind) for kind in KINDS)


def is_a(x: Any, package: str, name: str) -> bool:
    """Whether `x` is of the class `name` of a package, or of one made from it."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(x).__mro__
    )


class _Strips(Source):
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
        super().__init__(_Described(np.dtype(dtype), shape), sample_axis, name, chunk)

    def _strip(self, start: int, stop: int) -> Array:
        strip = self._take(start, stop)
        return strip if self.sample_axis else strip.T


class _Described(NamedTuple):
    """The dtype and shape of a matrix that is not an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _label(source: Source, rows: Axis | None, columns: Axis | None) -> Source:
    """Name the features and samples of a source."""
    both = (rows, columns)
    source.features, source.samples = both[1 - source.sample_axis], both[source.sample_axis]
    return source


def _refuse(name: str, **options: Any) -> None:
    """Refuse options that are for other kinds of data."""
    kinds = {"sample_dim": "an xarray.DataArray", "layer": "an AnnData"}
    for option, value in options.items():
        if value is not None:
            raise OptionError(f"{option}={value!r} is for {kinds[option]}, not for {name}")


# ------------------------------------------------------------------------------ arrays and paths


def _array_axis(name: str, ask: Ask, fitted: Ask) -> int:
    """Axis of the samples of what has rows and columns but no names."""
    _refuse(name, sample_dim=ask.sample_dim, layer=ask.layer)
    for axis in (ask.sample_axis, fitted.sample_axis):
        if axis is not None:
            return int(axis)
    return 1


def _array(x: Any, ask: Ask, fitted: Ask) -> Source:
    """What `open_source` reads as it is: NumPy, Zarr and Dask arrays."""
    axis = _array_axis(type(x).__name__, ask, fitted)
    return open_source(x, axis, missing_chunks=ask.missing_chunks)


def _path(x: str | os.PathLike[str], ask: Ask, fitted: Ask) -> Source:
    """A ``.npy`` file, mapped into memory, or a Zarr array or AnnData in a folder, zip or URL."""
    name = os.fspath(x)
    path = Path(name).expanduser()
    if path.suffix in (".h5ad", ".h5", ".hdf5") and path.is_file():
        raise SourceError(
            f"{name} is an HDF5 file: pass anndata.read_h5ad({name!r}, backed='r') or an open h5py "
            "dataset, or write it to Zarr, for example with write_zarr() of AnnData"
        )
    node: Any
    if path.suffix == ".npy" and path.is_file():
        try:
            node = np.load(path, mmap_mode="r")
        except (ValueError, OSError, EOFError) as error:
            raise SourceError(f"cannot read {name} as an array: {error}") from error
    else:
        node = open_node(x)
        if node.attrs.get("encoding-type") == "anndata":
            return _anndata_group(node, name, ask, fitted)
    axis = _array_axis(name, ask, fitted)
    return open_source(node, axis, missing_chunks=ask.missing_chunks, name=name)


def _group(x: Any, ask: Ask, fitted: Ask) -> Source:
    """An open Zarr group: an AnnData, or a sparse matrix of one."""
    if x.attrs.get("encoding-type") == "anndata":
        return _anndata_group(x, str(x.store_path), ask, fitted)
    return _array(x, ask, fitted)


def _sparse(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A CSR matrix with samples as rows or a CSC matrix with samples as columns, of SciPy."""
    kind = type(x).__name__
    if x.format not in ("csr", "csc"):
        raise SourceError(
            f"cannot read {kind} in strips of samples: convert it with tocsr() when they are rows, "
            "tocsc() when they are columns"
        )
    return _sliced(x, ask, fitted)


def _sliced(x: Any, ask: Ask, fitted: Ask) -> Source:
    """What gives NumPy or SciPy matrices when sliced: also HDF5 datasets, also those of AnnData."""
    name = f"the {type(x).__name__.strip('_')}"
    axis = _array_axis(name, ask, fitted)
    check_matrix(x.dtype, x.shape, name)
    if hasattr(x, "format"):
        check_compressed(f"{x.format}_matrix", axis, name)
    chunks = getattr(x, "chunks", None) or (1, 1)
    return Source(x, axis, name, chunks[axis])


# --------------------------------------------------------------------------------------- tables


def _pandas(frame: Any, ask: Ask, fitted: Ask) -> Source:
    """A pandas DataFrame: samples are rows unless ``sample_axis=1``."""
    name = "the DataFrame"
    _refuse(name, sample_dim=ask.sample_dim, layer=ask.layer)
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

    source = _Strips(take, common, frame.shape, axis, name)
    return _label(source, _index(frame.index, "sample"), _index(frame.columns, "feature"))


def _index(index: Any, dim: str) -> Axis | None:
    """The names in an index of pandas, None for mere numbers of rows."""
    if type(index).__name__ == "RangeIndex":
        return None
    if type(index).__name__ == "MultiIndex":
        return named(dim, np.array([",".join(map(str, place)) for place in index], dtype=object))
    return named(dim, index.to_numpy())


def _polars(frame: Any, ask: Ask, fitted: Ask) -> Source:
    """A polars DataFrame: samples are rows unless ``sample_axis=1``; columns have names."""
    import polars

    name = "the DataFrame"
    _refuse(name, sample_dim=ask.sample_dim, layer=ask.layer)
    kinds = [{"Boolean": "bool"}.get(str(k), str(k).lower()) for k in frame.dtypes]
    common = _common_type(kinds, frame.dtypes, frame.columns, name)
    is_single = np.result_type(common, np.float32) == np.float32
    through = polars.Float32 if is_single else polars.Float64
    axis = ask.sample_axis or 0

    def take(start: int, stop: int) -> Array:
        part = frame[:, start:stop] if axis else frame.slice(start, stop - start)
        return part.cast(through).to_numpy()  # nulls become NaN

    source = _Strips(take, common, frame.shape, axis, name)
    return _label(source, None, named("feature", np.array(frame.columns, dtype=object)))


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


def _data_array(x: Any, ask: Ask, fitted: Ask) -> Source:
    """An xarray.DataArray of any number of dimensions: those not of the samples are features."""
    name = f"the DataArray {x.name!r}" if x.name is not None else "the DataArray"
    _refuse(name, layer=ask.layer)
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
    source = _Strips(take, x.dtype, shape, axis, name, min(max(stored) * inner, n_samples))
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


# -------------------------------------------------------------------------------------- AnnData


def _anndata(x: Any, ask: Ask, fitted: Ask) -> Source:
    """An AnnData in memory, backed or lazy: `X` or a layer; observations are the samples."""
    _refuse("an AnnData", sample_dim=ask.sample_dim)
    layer = fitted.layer if ask.layer is None else ask.layer
    name = f"{'X' if layer is None else f'layer {layer!r}'} of the AnnData"
    if layer is not None and layer not in x.layers:
        raise OptionError(f"layer={layer!r} is not among the layers: {', '.join(x.layers)}")

    def values(part: Any) -> Any:
        return part.X if layer is None else part.layers[layer]

    axis = ask.sample_axis or 0
    if x.is_view:  # its X would be a copy of the whole

        def take(start: int, stop: int) -> Array:
            return dense(values(x[:, start:stop] if axis else x[start:stop]))

        first = values(x[:1, :1])
        if first is None:
            raise SourceError("the AnnData has no X; name one of its layers with layer=")
        source: Source = _Strips(take, first.dtype, x.shape, axis, name)
    else:
        matrix = values(x)
        if matrix is None:
            raise SourceError("the AnnData has no X; name one of its layers with layer=")
        source = open_data(matrix, Ask(axis))
        source.name = name
    obs, var = (named(dim, getattr(x, f"{dim}_names").to_numpy()) for dim in ("obs", "var"))
    return _label(source, obs, var)


def _anndata_group(group: Any, name: str, ask: Ask, fitted: Ask) -> Source:
    """An AnnData in a Zarr group. Names of the samples stay there: they may be many."""
    _refuse(name, sample_dim=ask.sample_dim)
    layer = fitted.layer if ask.layer is None else ask.layer
    key = "X" if layer is None else f"layers/{layer}"
    if key not in group:
        found = ", ".join(group["layers"]) if "layers" in group else ""
        kind = SourceError if layer is None else OptionError
        raise kind(f"{name} has no {key}; layer= can be one of: {found or 'none'}")
    axis = ask.sample_axis or 0
    source = open_source(group[key], axis, missing_chunks=ask.missing_chunks, name=f"{name}/{key}")
    source.features = _stored_names(group, "obs" if axis else "var")
    if source.features is not None and len(source.features) != source.n_features:
        raise SourceError(
            f"{name} is not whole: {len(source.features)} names for {source.n_features} features"
        )
    return source


def _stored_names(group: Any, dim: str) -> Axis | None:
    """The index of a table of AnnData, None where it cannot be read as text."""
    if dim not in group or "_index" not in group[dim].attrs:
        return None
    key = f"{dim}/{group[dim].attrs['_index']}"
    node = group[key]
    if "values" in (() if hasattr(node, "dtype") else node):
        node = node["values"]
    if getattr(node, "dtype", np.dtype(object)).kind not in "TUbiuf":  # never unpickle
        return None
    return named(dim, np.asarray(node[:]).astype(object))


# ------------------------------------------------------------------------------- the other kinds


def _instead(remedy: str) -> Callable[[Any, Ask, Ask], Source]:
    def refuse(x: Any, ask: Ask, fitted: Ask) -> Source:
        raise SourceError(f"cannot read {type(x).__name__}: {remedy}")

    return refuse


KINDS: dict[tuple[str, str], Callable[[Any, Ask, Ask], Source]] = {
    ("zarr", "Array"): _array,
    ("zarr", "Group"): _group,
    ("dask", "Array"): _array,
    ("pandas", "DataFrame"): _pandas,
    ("polars", "DataFrame"): _polars,
    ("polars", "LazyFrame"): _instead("collect() it, or write it to a Zarr array"),
    ("xarray", "DataArray"): _data_array,
    ("xarray", "Dataset"): _instead("pass one of its variables, or its to_dataarray()"),
    ("anndata", "AnnData"): _anndata,
    ("anndata", "BaseCompressedSparseDataset"): _sliced,
    ("h5py", "Dataset"): _sliced,
}
"""Package and class of what is read beside arrays and paths."""
