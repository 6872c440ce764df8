"""HDF5 files by path: AnnData (``.h5ad``), NetCDF 4, and datasets of any other; extra ``hdf5``.

A path may lead into the file: ``cells.h5ad/layers/counts``, ``weather.nc/t2m``.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

from streamsvd.arrays import Array
from streamsvd.data.annotated import Library, open_anndata_group, stored_flags
from streamsvd.data.compressed import SPARSE_KINDS, SPARSE_PARTS, CompressedSource, check_group
from streamsvd.data.hdf5 import check_dataset, described, names_of, refuse_unwritten
from streamsvd.data.matrices import SlicedSource
from streamsvd.data.source import Source, asked_axis, open_file
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask
from streamsvd.storage.fingerprints import file_fingerprint, file_places

ENDINGS = (".h5ad", ".h5mu", ".h5", ".hdf5", ".he5", ".nc", ".nc4")
"""Of the names of HDF5 files."""

MOST_NAMED = 20
"""So many datasets are named in an error."""


def open_hdf5_path(x: str | os.PathLike[str], ask: Ask, fitted: Ask) -> Source:
    """What is at a path that leads to or into an HDF5 file, read in strips of samples."""
    name = os.fspath(x)
    if ask.storage_options is not None:
        raise OptionError(f"storage_options are for URLs; {name} is a path: leave them out")
    path = Path(os.path.expanduser(name)).absolute()  # workers of a cluster have another folder
    file = next(place for place in (path, *path.parents) if place.is_file())
    key = path.relative_to(file).as_posix()
    _check_start(file)
    with open_file(name), _open(str(file)) as opened:
        if key not in opened:
            raise SourceError(f"{file} has no {key}; it holds: {_datasets(opened)}")
        return _open_node(opened[key], ask, fitted, name, str(file))


def open_hdf5_group(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A sparse matrix or an AnnData in an open file, which is opened again for each read."""
    file = os.fsdecode(x.file.filename)
    if not os.path.isfile(file):
        raise SourceError(f"{x.name} is in a file without a path: pass one of its datasets")
    name = f"{file}/{x.name.strip('/')}".rstrip("/")
    with open_file(name):
        return _open_node(x, ask, fitted, name, str(Path(file).absolute()))


def _check_start(file: Path) -> None:
    """Refuse what is no HDF5 file, by its first bytes."""
    with open(file, "rb") as stream:
        start = stream.read(4)
    if start[:3] == b"CDF":
        raise SourceError(
            f"{file} is NetCDF 3, an older format than HDF5: write it anew with `nccopy -k nc4 IN "
            "OUT` or with to_zarr() of xarray, or open it with xarray and pass the DataArray"
        )


def _open(file: str) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise SourceError(f'{file} needs h5py: pip install "streamsvd[hdf5]"') from error
    try:
        return h5py.File(file, "r")
    except OSError as error:
        raise SourceError(f"cannot open {file} as an HDF5 file: {error}") from error


def _open_node(node: Any, ask: Ask, fitted: Ask, name: str, file: str) -> Source:
    """A dataset, a sparse matrix or an AnnData in a file."""
    if hasattr(node, "dtype"):
        axis = check_dataset(node, ask, fitted, name)
        return described(DatasetSource(StoredDataset(node, file), axis, name), node, ask)
    kind = _attributes(node).get("encoding-type")
    if kind == "anndata" or (kind is None and file.endswith(".h5ad") and "obs" in node):

        def open_matrix(matrix: Any, asked: Ask, fitted: Ask, called: str) -> Source:
            return _open_node(matrix, asked, fitted, called, file)

        def parts_of(matrix: Any, asked: Ask, called: str) -> dict[str, Any]:
            return _parts(matrix, asked, called, file)

        library = Library(open_matrix, _attributes, names_of, parts_of)
        source = open_anndata_group(node, ask, fitted, name, library)
        if source.columns is not None:  # the file will be closed when they are asked for
            source.columns = partial(_flags, file, f"{node.name}/var", f"{name}/var")
        return source
    if kind not in SPARSE_KINDS:
        raise SourceError(f"{name} is a group of HDF5; name what is in it: {_datasets(node)}")
    axis = asked_axis(name, ask, fitted)
    shape = check_group(node, _attributes(node), name)
    parts = _parts(node, ask, name, file)
    return StoredCompressed(parts, kind, shape, axis, name)


def _flags(file: str, table: str, name: str, column: str) -> Array:
    with _open(file) as opened:
        return stored_flags(opened[table], name, names_of, column)


def _parts(group: Any, ask: Ask, name: str, file: str) -> dict[str, Any]:
    """The arrays of a sparse matrix, checked for chunks that were never written."""
    for key in SPARSE_PARTS if ask.missing_chunks == "error" else ():
        if group[key].size:
            refuse_unwritten(group[key], f"{name}/{key}")
    return {key: StoredDataset(group[key], file) for key in SPARSE_PARTS}


def _attributes(node: Any) -> dict[str, Any]:
    return dict(node.attrs)


def _datasets(group: Any) -> str:
    """Names of the matrices in a group, for an error."""
    found: list[str] = []

    def note(name: str, node: Any) -> bool | None:
        is_sparse = not hasattr(node, "dtype") and node.attrs.get("encoding-type") in SPARSE_KINDS
        if is_sparse or (
            len(getattr(node, "shape", None) or ()) == 2 and node.dtype.kind in "biuf"
        ):
            found.append(name)
        return True if len(found) > MOST_NAMED else None

    group.visititems(note)
    more = ", ..." if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more or "no matrix of numbers"


class StoredDataset:
    """A dataset of a file, which is opened for each read: nothing is left open, or to be sent."""

    def __init__(self, dataset: Any, file: str) -> None:
        self.file, self.key = file, dataset.name
        self.dtype, self.shape, self.chunks = dataset.dtype, dataset.shape, dataset.chunks

    def __getitem__(self, where: Any) -> Any:
        with _open(self.file) as opened:
            return opened[self.key][where]


class DatasetSource(SlicedSource):
    """A `Source` in a dataset of a file, which workers and later runs can open again."""

    readable_by_workers = True
    is_resumable = True

    def __init__(self, array: StoredDataset, sample_axis: int, name: str) -> None:
        super().__init__(array, sample_axis, name, (array.chunks or (1, 1))[sample_axis])

    def fingerprint(self) -> str:
        """Of the file, see `storage.fingerprints.file_fingerprint`."""
        return file_fingerprint(self.array.file, self._described())

    def places(self) -> str:
        """Of the file, see `storage.fingerprints.file_places`."""
        return file_places(self.array.file, self._described())

    def _described(self) -> str:
        return f"{self.array.key} {self.array.dtype.str} {self.array.shape}"


class StoredCompressed(CompressedSource):
    """A `CompressedSource` in a group of a file."""

    def _entries_of(self, part: str, start: int, stop: int) -> Any:
        with open_file(f"{self.name}/{part}"):
            return super()._entries_of(part, start, stop)
