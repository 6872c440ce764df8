"""Datasets of HDF5 files, open in h5py or AnnData, as sources; neither is imported."""

import math
import os
from itertools import islice, product
from pathlib import Path
from typing import Any

from streamsvd.data.matrices import SlicedSource, open_sliced
from streamsvd.data.packing import ATTRIBUTES, packing_of
from streamsvd.data.source import Source, asked_axis, check_matrix, is_a, open_file
from streamsvd.data.zarr_sources import SPARSE_PARTS
from streamsvd.errors import SourceError
from streamsvd.options import Ask
from streamsvd.storage.chunks import MOST_MISSING, some


def open_hdf5(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A dataset of an open file, checked for chunks that were never written."""
    name = f"the {type(x).__name__}"
    axis = asked_axis(name, ask, fitted)
    with open_file(name):
        check_matrix(x.dtype, x.shape, name)
        if ask.missing_chunks == "error":
            _refuse_unwritten(x, name)
        source = SlicedSource(x, axis, name, (x.chunks or (1, 1))[axis])
        if ask.decode:
            given = {key: x.attrs[key] for key in ATTRIBUTES if key in x.attrs}
            source.decode_by(packing_of(given, x.dtype, name))
    return source


def open_sparse_dataset(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A sparse matrix of AnnData on the disk; the parts of one in HDF5 are checked the same."""
    name = f"the {type(x).__name__.strip('_')}"
    with open_file(name):
        for key in SPARSE_PARTS if ask.missing_chunks == "error" else ():
            part = x.group[key]
            if is_a(part, "h5py", "Dataset") and part.size:
                _refuse_unwritten(part, f"{name}/{key}")
    return open_sliced(x, ask, fitted)


def _refuse_unwritten(x: Any, name: str) -> None:
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
