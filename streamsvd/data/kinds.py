"""Inputs: whatever a user calls data becomes a `Source`, read a strip of samples at a time.

One table, `OPENERS`, leads from a kind of input to what opens it. Kinds from other packages are
known by the names of their classes, so that none of those packages is needed or imported. Names of
features, and of samples where they are in memory, come along.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsvd.data.annotated import Library, open_anndata, open_anndata_group
from streamsvd.data.attributes import attributes_of, name_of
from streamsvd.data.data_arrays import open_data_array
from streamsvd.data.hdf5 import open_hdf5, open_sparse_dataset
from streamsvd.data.hdf5_files import ENDINGS, open_hdf5_group, open_hdf5_path
from streamsvd.data.matrices import open_array, open_array_like, open_dask, open_npy, open_sparse
from streamsvd.data.source import Source, is_a
from streamsvd.data.tables import open_arrow, open_pandas, open_polars
from streamsvd.data.variables import are_variables, open_dataset, open_variables
from streamsvd.data.zarr_nodes import (
    encoding_of,
    names_of,
    open_node,
    open_zarr,
    parts_of,
    sound,
)
from streamsvd.errors import SourceError, warn
from streamsvd.options import Ask
from streamsvd.options.rules import check_axis, check_missing

MANY = 10
"""So many times more features than samples look like samples as rows."""

Opener = Callable[[Any, Ask, Ask], Source]
"""Takes the data, what the user says of them, and what holds where that is nothing."""


def open_data(x: Any, ask: Ask, fitted: Ask | None = None) -> Source:
    """Open data of any kind in `OPENERS`.

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

    Warns
    -----
    StreamSVDWarning
        Features are more than `MANY` times as many as the samples, of data of a kind that has no
        natural axis of samples, and neither `ask` nor `fitted` says which it is.
    """
    if isinstance(x, Source):
        return x
    if ask.sample_axis is not None:
        check_axis(ask.sample_axis)
    check_missing(ask.missing_chunks)
    fitted = fitted or Ask()
    ask = ask._replace(decode=ask.decodes(fitted))
    opener = opener_of(x)
    if opener is None:
        raise SourceError(
            f"cannot read {type(x).__name__}: give a path to a Zarr array or to an .h5ad, .h5, .nc "
            "or .npy file, a zarr.Array, a NumPy or a Dask array, a list of rows, a CSR or CSC "
            "matrix, a pandas or polars DataFrame, a pyarrow.Table, an xarray.DataArray, several "
            "of them or a Dataset, an AnnData, or what has __array__()"
        )
    source = opener(x, ask, fitted)
    if fitted == Ask() and ask.sample_axis is None and ask.sample_dim is None:
        _warn_if_transposed(source)
    return source


def _warn_if_transposed(source: Source) -> None:
    """Warn of features that are many more than samples, where samples are columns unasked.

    Not of a single sample, which nobody means to be a feature.
    """
    n, n_samples = source.n_features, source.n_samples
    if source.sample_axis == 1 and n > MANY * n_samples > MANY:
        warn(
            f"{source.name} has {n} features and {n_samples} samples, so it may be transposed: "
            "samples are columns by default; pass sample_axis=0 if they are rows, or sample_axis=1 "
            "if they are not, which says so without this warning"
        )


def opener_of(x: Any) -> Opener | None:
    """What opens data of the kind of `x`, None if nothing does."""
    if isinstance(x, str | os.PathLike):
        path = Path(os.path.expanduser(x))
        file = next((place for place in (path, *path.parents) if place.is_file()), None)
        return OPENERS.get("" if file is None else file.suffix.lower(), OPENERS[""])
    if are_variables(x):
        return open_variables
    kinds = (kind for kind in OPENERS if isinstance(kind, tuple) and is_a(x, *kind))
    found = next((OPENERS[kind] for kind in kinds), None)
    return open_array_like if found is None and hasattr(x, "__array__") else found


def is_known(x: Any) -> bool:
    """Whether `x` can be opened and is not an array or a matrix in memory."""
    return opener_of(x) not in (None, open_array, open_array_like, open_sparse)


# --------------------------------------------------------- what leads to one of several openers


def _open_store(x: str | os.PathLike[str], ask: Ask, fitted: Ask) -> Source:
    """A Zarr array or an AnnData in a folder, a zip file or at a URL."""
    return _open_node(open_node(x, ask.storage_options), ask, fitted, os.fspath(x))


def _open_node(node: Any, ask: Ask, fitted: Ask, name: str | None = None) -> Source:
    """An open Zarr array or group."""
    if encoding_of(node) == "anndata":
        name = name or name_of(node)
        with sound(name):
            return open_anndata_group(node, ask, fitted, name, ZARR)
    return open_zarr(node, ask, fitted, name)


ZARR = Library(open_zarr, attributes_of, names_of, parts_of)
"""How groups of Zarr are read."""


def _open_anndata(x: Any, ask: Ask, fitted: Ask) -> Source:
    return open_anndata(x, ask, fitted, open_data)


# --------------------------------------------------------------------------- what is refused


def _instead(remedy: str) -> Opener:
    def refuse(x: Any, ask: Ask, fitted: Ask) -> Source:
        raise SourceError(f"cannot read {type(x).__name__}: {remedy}")

    return refuse


OPENERS: dict[str | tuple[str, str], Opener] = {
    # files, by the ending of their path; all else that is a path is a store
    ".npy": open_npy,
    **dict.fromkeys(ENDINGS, open_hdf5_path),
    "": _open_store,
    # objects, by the package and the name of their class or of one that it is made from
    ("numpy", "ndarray"): open_array,
    ("builtins", "list"): open_array_like,
    ("builtins", "tuple"): open_array_like,
    ("scipy", "sparray"): open_sparse,
    ("scipy", "spmatrix"): open_sparse,
    ("zarr", "Array"): _open_node,
    ("zarr", "Group"): _open_node,
    ("zarr", "Store"): _instead(
        "open what is in it with zarr.open_array(store, path=..., mode='r')"
    ),
    ("dask", "Array"): open_dask,
    ("pandas", "DataFrame"): open_pandas,
    ("polars", "DataFrame"): open_polars,
    ("pyarrow", "Table"): open_arrow,
    ("pyarrow", "RecordBatch"): open_arrow,
    ("polars", "LazyFrame"): _instead("collect() it, or write it to a Zarr array"),
    ("xarray", "DataArray"): open_data_array,
    ("xarray", "Dataset"): open_dataset,
    ("anndata", "AnnData"): _open_anndata,
    ("anndata", "BaseCompressedSparseDataset"): open_sparse_dataset,
    ("h5py", "Dataset"): open_hdf5,
    ("h5py", "Group"): open_hdf5_group,
}
"""What opens each kind of input: the one place that a new kind is added to."""
