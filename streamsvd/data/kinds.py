"""Inputs: whatever a user calls data becomes a `Source`, read a strip of samples at a time.

Kinds from other packages are known by the names of their classes, so that none of those packages is
needed or imported. Names of features, and of samples where they are in memory, come along.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.data_arrays import open_data_array
from streamsvd.data.labels import Axis, named
from streamsvd.data.source import (
    Source,
    Strips,
    check_compressed,
    check_matrix,
    dense,
    refuse_options,
)
from streamsvd.data.tables import open_pandas, open_polars
from streamsvd.data.zarr_sources import open_node, open_source
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask, check_axis, check_missing


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


# ------------------------------------------------------------------------------ arrays and paths


def _array_axis(name: str, ask: Ask, fitted: Ask, dims: tuple[str, ...] = ()) -> int:
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


def _dims_of(array: Any) -> tuple[str, ...]:
    """Names of the dimensions of a Zarr array, as xarray writes them."""
    stored = getattr(getattr(array, "metadata", None), "dimension_names", None)
    stored = stored or getattr(array, "attrs", {}).get("_ARRAY_DIMENSIONS") or ()
    return tuple(str(dim) for dim in stored) if len(stored) == 2 and None not in stored else ()


def _array(x: Any, ask: Ask, fitted: Ask, name: str | None = None) -> Source:
    """What `open_source` reads as it is: NumPy, Zarr and Dask arrays."""
    dims = _dims_of(x)
    axis = _array_axis(name or f"the {type(x).__name__}", ask, fitted, dims)
    source = open_source(x, axis, missing_chunks=ask.missing_chunks, name=name)
    if dims:
        shape = (source.n_features, source.n_samples)
        source.features, source.samples = (
            Axis((dims[place],), (size,))
            for place, size in zip((1 - axis, axis), shape, strict=True)
        )
    return source


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
        node = open_node(x, ask.storage_options)
        if node.attrs.get("encoding-type") == "anndata":
            return _anndata_group(node, name, ask, fitted)
    return _array(node, ask, fitted, name)


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


# -------------------------------------------------------------------------------------- AnnData


def _anndata(x: Any, ask: Ask, fitted: Ask) -> Source:
    """An AnnData in memory, backed or lazy: `X` or a layer; observations are the samples."""
    refuse_options("an AnnData", sample_dim=ask.sample_dim)
    layer = fitted.layer if ask.layer is None else ask.layer
    name = f"{'X' if layer is None else f'layer {layer!r}'} of the AnnData"
    if layer is not None and layer not in x.layers:
        found = ", ".join(map(repr, x.layers)) or "none"
        raise OptionError(f"layer={layer!r} is not among the layers: {found}")

    def values(part: Any) -> Any:
        return part.X if layer is None else part.layers[layer]

    axis = ask.sample_axis or 0
    if x.is_view:  # its X would be a copy of the whole

        def take(start: int, stop: int) -> Array:
            return dense(values(x[:, start:stop] if axis else x[start:stop]))

        first = values(x[:1, :1])
        if first is None:
            raise SourceError("the AnnData has no X; name one of its layers with layer=")
        source: Source = Strips(take, first.dtype, x.shape, axis, name)
    else:
        matrix = values(x)
        if matrix is None:
            raise SourceError("the AnnData has no X; name one of its layers with layer=")
        source = open_data(matrix, Ask(axis))
        source.name = name
    both = (named("obs", x.obs_names.to_numpy()), named("var", x.var_names.to_numpy()))
    source.features, source.samples = both[1 - axis], both[axis]
    return source


def _anndata_group(group: Any, name: str, ask: Ask, fitted: Ask) -> Source:
    """An AnnData in a Zarr group. Names of the samples stay there: they may be many."""
    refuse_options(name, sample_dim=ask.sample_dim)
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
    if key not in group:
        return None
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
    ("pandas", "DataFrame"): open_pandas,
    ("polars", "DataFrame"): open_polars,
    ("polars", "LazyFrame"): _instead("collect() it, or write it to a Zarr array"),
    ("xarray", "DataArray"): open_data_array,
    ("xarray", "Dataset"): _instead("pass one of its variables, or its to_dataarray()"),
    ("anndata", "AnnData"): _anndata,
    ("anndata", "BaseCompressedSparseDataset"): _sliced,
    ("h5py", "Dataset"): _sliced,
}
"""Package and class of what is read beside arrays and paths."""
