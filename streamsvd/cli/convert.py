"""Files of other kinds into Zarr arrays that `sparse_svd` reads, without loading them whole.

Each format becomes an array that can be sliced, a memory map where possible, and one loop writes
it chunk by chunk.
"""

import gzip
import os
import tempfile
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from scipy import io as scipy_io

from streamsvd.arrays import Array
from streamsvd.cli.text_tables import DELIMITERS, Parsed, names_in, parse_table
from streamsvd.data.hdf5_files import ENDINGS as HDF5_ENDINGS
from streamsvd.errors import OptionError, SourceError
from streamsvd.options.rules import parse_size, working_dtype
from streamsvd.progress import Progress, progress_bar
from streamsvd.storage.outputs import Names, new_output, refuse_existing

PIECE = 2**20
"""Bytes unpacked from a zip file at a time."""


Shape = tuple[int, ...]


class Conversion(NamedTuple):
    """What `convert` wrote: a Zarr array with the rows and columns of the input.

    Where something `is_named`, that array is the `X` of an AnnData.
    """

    shape: Shape
    chunks: Shape
    dtype: np.dtype[Any]
    sample_axis: int
    is_named: bool


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    key: str | None = None,
    chunk_bytes: int | str = "32MiB",
    sample_axis: int | None = None,
    dtype: str | None = None,
    delimiter: str | None = None,
    skip_lines: int = 0,
    id_column: str | None = None,
    progress: Progress = None,
) -> Conversion:
    """Write a file as a new Zarr array of the same orientation.

    Text with names, in a header or an `id_column`, becomes an AnnData: a group of the array `X`,
    with names of rows in `obs` and of columns in `var`. Either is read by the path `out`, with the
    names of features.

    What is written is written beside `out` and renamed at the end.

    Parameters
    ----------
    source : path
        ``.npy``; ``.npz``; ``.mat`` before version 7.3; ``.csv``, ``.tsv`` or ``.txt``, also with
        ``.gz``.
    out : path
        Where the array goes; must not exist.
    key : str, optional
        Name of the matrix in an ``.npz`` or ``.mat`` file that holds several.
    chunk_bytes : int or str
        Size of a chunk before compression. A chunk holds all features of one or more samples.
    sample_axis : {0, 1}, optional
        0 when samples are rows, 1 when they are columns; by default the longer axis.
    dtype : {None, "float32", "float64"}
        That of the file by default; text is read as float64.
    delimiter : str, optional
        What separates fields of a text file: by default a comma in ``.csv``, a tab in ``.tsv`` and
        white space in ``.txt``.
    skip_lines : int
        Lines to leave out at the start of a text file. The next line is a header, the names of the
        columns, when none of its fields is a number. ``#`` starts a comment. Empty fields, ``NA``
        and the like (`cli.text_tables.MISSING`) are missing values: NaN.
    id_column : str, optional
        Name in the header of the column of a text file that has the names of the rows; ``""`` for a
        column without a name, as pandas and R write it.
    progress : bool or callable, optional
        As in `sparse_svd`.

    Raises
    ------
    OptionError, SourceError
        Both `StreamSVDError`. Nothing is left at `out` then.

    Notes
    -----
    Memory: about three chunks; ``.mat`` files, whose matrices are below 4 GiB, are loaded. Disk:
    beside `out`, for the time of the run, the plain numbers of ``.npz`` and text files.
    """
    path, target = Path(source).expanduser(), Path(out).expanduser().absolute()
    kind = _kind(path, key, delimiter, skip_lines, id_column)
    limit = parse_size("chunk_bytes", chunk_bytes)
    wanted = None if dtype is None else working_dtype(np.dtype(np.float64), dtype)
    if sample_axis not in (None, 0, 1):
        raise OptionError(f"sample_axis must be 0, 1 or None; got {sample_axis!r}")
    refuse_existing(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        scratch, table = Path(folder), None
        try:
            if kind == ".npy":
                array = _open_npy(path)
            elif kind == ".npz":
                array = _open_npz(path, key, scratch / "unpacked", progress)
            elif kind == ".mat":
                array = _open_mat(path, key)
            else:
                separator = DELIMITERS[kind] if delimiter is None else delimiter
                asked = (separator, skip_lines, id_column)
                table, numbers = parse_table(path, *asked, scratch, progress)
                double = np.dtype(np.float64)
                _check_matrix(str(path), table.shape, double)
                array = _map(numbers, table.shape, False, double, str(path))
        except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
            raise SourceError(f"{path} is damaged: {error}") from error
        return _write(array, target, path, limit, sample_axis, wanted, table, progress)


def kind_of(path: Path) -> str:
    """The ending of a name that says the format, without that of gzip."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _kind(
    path: Path, key: str | None, delimiter: str | None, skip_lines: int, id_column: str | None
) -> str:
    """The format, from the end of the name; refuses options that this format does not have."""
    is_packed, kind = path.suffix.lower() == ".gz", kind_of(path)
    is_text = kind in DELIMITERS
    if not is_text and (is_packed or kind not in (".npy", ".npz", ".mat")):
        if kind in HDF5_ENDINGS:
            raise SourceError(
                f"{path} needs no conversion: HDF5 files are read as they are, for example by "
                f"`streamsvd pca {path}`, or `streamsvd pca {path}/NAME` for a dataset in it"
            )
        known = ", ".join([".npy", ".npz", ".mat", *DELIMITERS])
        raise SourceError(f"cannot convert {path}: need {known}, the last three also with .gz")
    if not path.is_file():
        raise SourceError(f"{path} is not a file" if path.exists() else f"no such file: {path}")
    if key is not None and kind not in (".npz", ".mat"):
        raise OptionError(f"{path} holds one matrix; key={key} is for .npz and .mat files")
    if (delimiter is not None or skip_lines or id_column is not None) and not is_text:
        raise OptionError(f"{path} is no text file; leave out delimiter, skip_lines and id_column")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in "#\r\n.+-0123456789eE"):
        raise OptionError(f"delimiter must be one character, not of a number; got {delimiter!r}")
    if skip_lines < 0:
        raise OptionError(f"skip_lines must be at least 0; got {skip_lines}")
    return kind


def _write(
    array: Any,
    path: Path,
    source: Path,
    limit: int,
    sample_axis: int | None,
    wanted: np.dtype[Any] | None,
    table: Parsed | None,
    progress: Progress,
) -> Conversion:
    rows, columns = array.shape
    axis = int(columns >= rows) if sample_axis is None else sample_axis
    n_features, n_samples = array.shape[1 - axis], array.shape[axis]
    dtype = (wanted or array.dtype).newbyteorder("=")
    step = min(max(1, limit // (n_features * dtype.itemsize)), n_samples)
    chunks = (n_features, step) if axis else (step, n_features)
    names = {} if table is None else _names_of(table)
    with (
        new_output(path, (rows, columns), chunks, dtype, names) as target,
        progress_bar(progress, "convert", n_samples) as advance,
    ):
        for start in range(0, n_samples, step):
            samples = slice(start, min(start + step, n_samples))
            where = (slice(None), samples) if axis else (samples, slice(None))
            target[where] = _cast(array[where], dtype, source)
            advance(samples.stop - start)
    return Conversion((rows, columns), chunks, dtype, axis, bool(names))


def _names_of(table: Parsed) -> dict[str, Names]:
    """Names by the table of an AnnData that they belong to."""
    names: dict[str, Names] = {}
    columns, rows = table.columns, table.rows
    if columns is not None:
        names["var"] = len(columns), lambda start, stop: columns[start:stop]
    if rows is not None:
        names["obs"] = table.shape[0], lambda start, stop: names_in(rows, start, stop)
    return names


def _cast(block: Any, dtype: np.dtype[Any], source: Path) -> Array:
    if hasattr(block, "toarray"):  # sparse, from a .mat file
        block = block.toarray()
    try:
        with np.errstate(over="raise"):
            return block.astype(dtype, order="C")
    except FloatingPointError as error:
        raise SourceError(
            f'{source} holds numbers beyond the range of {dtype}; use dtype="float64"'
        ) from error


def _check_matrix(name: str, shape: Shape, dtype: np.dtype[Any]) -> None:
    """Refuse what `sparse_svd` could not read, before any of it is decoded."""
    if dtype.kind not in "biuf":
        raise SourceError(f"{name} holds {dtype}, not real numbers; convert it first")
    if dtype.itemsize > 8:
        raise SourceError(f"{name} holds {dtype}, which Zarr cannot store; save it as float64")
    if len(shape) != 2 or 0 in shape:
        raise SourceError(f"{name} has shape {shape}; need features and samples, some of each")


# ------------------------------------------------------------------------ .npy, .npz and .mat


def _npy_header(file: IO[bytes], name: str) -> tuple[Shape, bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype; leaves `file` at the first number."""
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        shape, is_fortran, dtype = readers[npy.read_magic(file)](file)
    except (ValueError, KeyError) as error:  # version 3 is for names of fields
        raise SourceError(f"{name} is not a readable .npy file: {error}") from error
    _check_matrix(name, shape, dtype)
    return shape, is_fortran, dtype


def _map(
    path: Path, shape: Shape, is_fortran: bool, dtype: np.dtype[Any], name: str, offset: int = 0
) -> Array:
    try:
        return np.memmap(path, dtype, "r", offset, shape, "F" if is_fortran else "C")
    except ValueError as error:
        raise SourceError(f"{name} is shorter than its header says: {error}") from error


def _open_npy(path: Path) -> Array:
    with open(path, "rb") as file:
        header = _npy_header(file, str(path))
        return _map(path, *header, str(path), file.tell())


def _open_npz(path: Path, key: str | None, unpacked: Path, progress: Progress) -> Array:
    """Unpack the numbers of one member: compressed ones can only be read from the start."""
    with zipfile.ZipFile(path) as archive:
        keys = [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
        member = _choose(path, key, keys) + ".npy"
        size = archive.getinfo(member).file_size
        with (
            archive.open(member) as file,
            open(unpacked, "wb") as out,
            progress_bar(progress, "unpack", size, unit="bytes") as advance,
        ):
            header = _npy_header(file, f"{path}/{member}")
            advance(file.tell())
            while piece := file.read(PIECE):
                out.write(piece)
                advance(len(piece))
    return _map(unpacked, *header, f"{path}/{member}")


def _open_mat(path: Path, key: str | None) -> Any:
    try:
        found = {name: (shape, kind) for name, shape, kind in scipy_io.whosmat(path)}
        name = _choose(path, key, list(found))
        shape, kind = found[name]
        if kind in ("cell", "struct", "object", "opaque", "function", "char"):
            raise SourceError(f"{path}/{name} is a {kind}, not a matrix; pass another key=")
        with warnings.catch_warnings(action="ignore"):  # of classes of sparse matrices
            array = scipy_io.loadmat(path, variable_names=[name])[name]
    except NotImplementedError as error:
        raise SourceError(
            f"{path} is a MATLAB 7.3 (HDF5) file, which is not read here; save it again in MATLAB "
            'with save(file, name, "-v7"), or read it with h5py and save it as .npy'
        ) from error
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # whatever the damage leads the reader to
        raise SourceError(f"{path} is not a readable .mat file: {error}") from error
    _check_matrix(f"{path}/{name}", shape, array.dtype)
    return array.tocsc() if kind == "sparse" else array


def _choose(path: Path, key: str | None, names: list[str]) -> str:
    if key is None and len(names) == 1:
        return names[0]
    if key is None or key not in names:
        wrong = "" if key is None else f", none of them {key}"
        raise SourceError(
            f"{path} holds {len(names)} matrices{wrong}; pass key= with one of: {', '.join(names)}"
        )
    return key
