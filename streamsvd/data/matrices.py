"""Matrices of NumPy, SciPy and Dask, and what can be sliced like one; only NumPy is imported."""

import os
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.source import (
    Source,
    asked_axis,
    check_compressed,
    check_matrix,
    mask_of,
    open_file,
)
from streamsvd.data.strips import ArraySource, DaskSource, SparseStrips
from streamsvd.errors import SourceError
from streamsvd.options import Ask


def open_array(x: Any, ask: Ask, fitted: Ask, name: str = "the array") -> Source:
    """A NumPy array; a masked one in which nothing is masked is a plain one."""
    axis = asked_axis(name, ask, fitted)
    check_matrix(x.dtype, x.shape, name)
    return ArraySource(np.ma.getdata(x) if mask_of(x) is None else x, axis, name)


def open_array_like(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A list of rows, or what makes a NumPy array of itself: in strips, where it can be sliced."""
    name = f"the {type(x).__name__}"
    if isinstance(getattr(x, "dtype", None), np.dtype) and hasattr(x, "__getitem__"):
        return open_sliced(x, ask, fitted)
    try:
        array = np.asarray(x) if mask_of(x) is None else np.ma.asarray(x)
    except Exception as error:  # rows of several lengths; each package raises its own kinds
        raise SourceError(f"{name} cannot be made an array: {error}") from error
    return open_array(array, ask, fitted, name)


def open_npy(x: str | os.PathLike[str], ask: Ask, fitted: Ask) -> Source:
    """A ``.npy`` file, mapped into memory."""
    name = os.fspath(x)
    try:
        array = np.load(os.path.expanduser(name), mmap_mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise SourceError(f"cannot read {name} as an array: {error}") from error
    return open_array(array, ask, fitted, name)


def open_dask(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A Dask array."""
    name = "the Dask array"
    axis = asked_axis(name, ask, fitted)
    check_matrix(x.dtype, x.shape, name)
    return DaskSource(x, axis, name)


def open_sparse(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A CSR matrix with samples as rows or a CSC matrix with samples as columns, of SciPy."""
    if x.format not in ("csr", "csc"):
        raise SourceError(
            f"cannot read {type(x).__name__} in strips of samples: convert it with tocsr() when "
            "they are rows, tocsc() when they are columns"
        )
    return open_sliced(x, ask, fitted)


def open_sliced(x: Any, ask: Ask, fitted: Ask) -> Source:
    """What gives NumPy or SciPy matrices when sliced: also those of AnnData in HDF5."""
    name = f"the {type(x).__name__.strip('_')}"
    axis = asked_axis(name, ask, fitted)
    with open_file(name):
        check_matrix(x.dtype, x.shape, name)
        if not hasattr(x, "format"):
            chunks = getattr(x, "chunks", None) or (1, 1)
            return SlicedSource(x, axis, name, chunks[axis])
        check_compressed(f"{x.format}_matrix", axis, name)

    def take(start: int, stop: int) -> Any:
        with open_file(name):
            return x[:, start:stop] if axis else x[start:stop]

    source = SparseStrips(take, x.dtype, x.shape, axis, name)
    source.n_stored = getattr(x, "nnz", None)
    return source


class SlicedSource(Source):
    """A `Source` that another library slices, from memory or from an open file."""

    def _read(self, start: int, stop: int) -> Array:
        with open_file(self.name):
            return super()._read(start, stop)
