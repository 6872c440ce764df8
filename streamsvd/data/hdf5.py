"""Datasets of HDF5 files, open in h5py or AnnData, as sources; neither is imported."""

import math
import os
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.compressed import SPARSE_PARTS
from streamsvd.data.labels import Axis
from streamsvd.data.matrices import SlicedSource, open_sliced
from streamsvd.data.packing import ATTRIBUTES, packing_of
from streamsvd.data.source import Source, asked_axis, check_matrix, is_a, open_file
from streamsvd.errors import SourceError
from streamsvd.options import Ask
from streamsvd.storage.chunks import MOST_MISSING, some


def open_hdf5(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A dataset of an open file, checked for chunks that were never written."""
    name = f"the {type(x).__name__}"
    with open_file(name):
        axis = check_dataset(x, ask, fitted, name)
        return described(SlicedSource(x, axis, name, (x.chunks or (1, 1))[axis]), x, ask)


def check_dataset(x: Any, ask: Ask, fitted: Ask, name: str) -> int:
    """The axis of the samples of a dataset; refuses what cannot be read."""
    axis = asked_axis(name, ask, fitted, dims_of(x))
    if len(x.shape) > 2:
        raise SourceError(
            f"{name} has shape {x.shape}; need two axes, features and samples: open it with "
            "xarray.open_dataset() and pass the DataArray and sample_dim="
        )
    check_matrix(x.dtype, x.shape, name)
    if ask.missing_chunks == "error":
        refuse_unwritten(x, name)
    return axis


def described(source: Source, x: Any, ask: Ask) -> Source:
    """A source of a dataset with what the attributes of that say of it."""
    if ask.decode:
        given = {key: x.attrs[key] for key in ATTRIBUTES if key in x.attrs}
        source.decode_by(packing_of(given, x.dtype, source.name))
    dims, axis = dims_of(x), source.sample_axis
    if dims:
        names = _coordinate(x, 1 - axis, dims[1 - axis])
        source.features = Axis((dims[1 - axis],), (source.n_features,), names)
        source.samples = Axis((dims[axis],), (source.n_samples,))
    return source


# ------------------------------------------------------------------------------------ dimensions


def dims_of(x: Any) -> tuple[str, ...]:
    """Names of the dimensions of a dataset, by its scales or labels; none where one has none."""
    dims = []
    for dim in x.dims:
        scale = _scale(dim)
        dims.append(dim.label if scale is None else (scale.name or "").rpartition("/")[2])
    return tuple(dims) if all(dims) and len(set(dims)) == len(dims) else ()


def _scale(dim: Any) -> Any:
    """The dataset that is the scale of a dimension, None without any."""
    return dim[0] if len(dim) else None


def _coordinate(x: Any, axis: int, dim: str) -> dict[str, Array]:
    """Names or positions of the features by the scale of their dimension, if it has any.

    Times are left out, and what is packed: what their numbers mean is written in words.
    """
    scale = _scale(x.dims[axis])
    if scale is None or scale.shape != (x.shape[axis],):
        return {}
    marks = [str(_text(scale.attrs.get(key, ""))) for key in ("NAME", "units")]
    is_bare = marks[0].startswith("This is a netCDF dimension but not a netCDF variable")
    if is_bare or " since " in marks[1] or {"scale_factor", "add_offset"} & set(scale.attrs):
        return {}
    names = names_of(scale, "")
    return {} if names is None else {dim: names}


def names_of(x: Any, name: str) -> Array | None:
    """A dataset of text or numbers in memory, None of another kind."""
    if x.dtype.kind in "biuf":
        return np.asarray(x[:])
    text = x.dtype.kind == "S" or (x.dtype.metadata or {}).get("vlen") in (str, bytes)
    return np.asarray(x.asstr()[:]) if text else None


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


# -------------------------------------------------------------------------------- sparse, checks


def open_sparse_dataset(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A sparse matrix of AnnData on the disk; the parts of one in HDF5 are checked the same."""
    name = f"the {type(x).__name__.strip('_')}"
    check_unwritten(x, ask, name)
    return open_sliced(x, ask, fitted)


def check_unwritten(x: Any, ask: Ask, name: str) -> None:
    """Refuse a sparse matrix of AnnData in HDF5 of which a part was not written as a whole."""
    with open_file(name):
        for key in SPARSE_PARTS if ask.missing_chunks == "error" else ():
            part = x.group[key]
            if is_a(part, "h5py", "Dataset") and part.size:
                refuse_unwritten(part, f"{name}/{key}")


def refuse_unwritten(x: Any, name: str) -> None:
    """Refuse a dataset of which parts would read as its fill value, as missing chunks of Zarr."""
    if x.is_virtual:
        lost, what = _lost_files(x), "file(s) of the virtual dataset are missing"
    elif x.chunks is None:
        lost = [] if x.id.get_storage_size() else ["all of it"]
        what = "part(s) were never written"
    else:
        lost, what = _unwritten_chunks(x), "chunk(s) were never written"
    if lost:
        more = " or more" if len(lost) == MOST_MISSING else ""
        raise SourceError(
            f"{name}: {len(lost)}{more} {what} and would read as {x.fillvalue}: {some(lost)}; "
            'write them, or pass missing_chunks="fill" if they were left out on purpose'
        )


def _unwritten_chunks(x: Any) -> list[str]:
    """Places in the grid of the chunks that have no storage, the first `MOST_MISSING`."""
    grid = [-(-size // chunk) for size, chunk in zip(x.shape, x.chunks, strict=True)]
    if x.id.get_num_chunks() >= math.prod(grid):
        return []
    there = set()

    def note(stored: Any) -> None:
        there.add(tuple(at // c for at, c in zip(stored.chunk_offset, x.chunks, strict=True)))

    x.id.chunk_iter(note)
    places = (place for place in product(*map(range, grid)) if place not in there)
    return ["/".join(map(str, place)) for place in islice(places, MOST_MISSING)]


def _lost_files(x: Any) -> list[str]:
    """Files of a virtual dataset that are not there; names that are made of a pattern are not met.

    Relative to the file that it is in.
    """
    folder = Path(os.fsdecode(x.file.filename)).parent
    files = {part.file_name for part in x.virtual_sources()} - {"."}
    return sorted(name for name in files if "%" not in name and not (folder / name).exists())
