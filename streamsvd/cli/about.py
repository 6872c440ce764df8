"""What `streamsvd info` says of data: what they are, how they are read, how to go on."""

import json
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import format_bytes
from scipy import io as scipy_io

from streamsvd.cli.convert import kind_of
from streamsvd.cli.text_tables import DELIMITERS, first_fields
from streamsvd.data import Source, open_data
from streamsvd.data.hdf5_files import ENDINGS
from streamsvd.data.labels import Axis
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask
from streamsvd.result.files import FORMAT
from streamsvd.result.percent import percent
from streamsvd.result.text import aligned

LOOKED_AT = 2**21
"""Numbers of the first samples that are searched for missing ones."""

SHOWN = 6
"""Names that are listed."""


def is_result(path: Path) -> bool:
    """Whether a result of streamsvd was saved there, of any version, whole or not."""
    try:
        return bool(json.loads((path / "zarr.json").read_text())["attributes"]["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def is_data(what: str, reading: Mapping[str, Any]) -> bool:
    """Whether it is data, or no result at least; what is not there may have been one.

    Refuses options of reading for a result.
    """
    path = Path(what).expanduser()
    if "://" in what or any(place.is_file() for place in (path, *path.parents)):
        return True
    if path.exists() and not is_result(path):
        return True
    for name in ("sample_axis", "sample_dim", "layer"):
        if reading[name] is not None:
            raise OptionError(f"{what} is a result, not data: leave out {name}=")
    return False


def about_data(what: str, reading: Mapping[str, Any]) -> list[str]:
    """Lines on data by their path; the first samples are read."""
    path = Path(what).expanduser()
    if path.is_file() and kind_of(path) in (".npz", ".mat", *DELIMITERS):
        return aligned(_of_file(path, what))
    source = open_data(what, Ask(**reading))
    return aligned({"data": what, "kind": _kind(path, source), **_of_source(source, what, reading)})


def _kind(path: Path, source: Source) -> str:
    file = next((place for place in (path, *path.parents) if place.is_file()), path)
    ending = file.suffix.lower()
    kind = "Zarr"
    if ending in (".npy", *ENDINGS):
        kind = "array of NumPy" if ending == ".npy" else "HDF5"
    if source.columns is not None:
        kind = f"AnnData in {kind}"
    return kind + (", sparse" if source.reads_sparse else "")


def _of_source(source: Source, what: str, reading: Mapping[str, Any]) -> dict[str, str]:
    axis, n, n_samples = source.sample_axis, source.n_features, source.n_samples
    rows, columns = (n, n_samples) if axis else (n_samples, n)
    packed = "" if source.packing is None else f", packed as {source.array.dtype}"
    size = format_bytes(n * n_samples * source.dtype.itemsize)
    size += " if dense" if source.reads_sparse else ""
    flags = [
        f"--{name.replace('_', '-')} {shlex.quote(str(reading[name]))}"
        for name in ("sample_axis", "sample_dim", "layer")
        if reading[name] is not None
    ]
    call = ["streamsvd pca", shlex.quote(what), *flags, f"--components {min(5, n, n_samples)}"]
    return {
        "numbers": f"{rows} x {columns}, {source.dtype}{packed}, {size}",
        "samples": f"{n_samples}, the {'columns' if axis else 'rows'}{_named(source.samples)}",
        "features": f"{n}, the {'rows' if axis else 'columns'}{_named(source.features)}",
        "missing": _missing(source),
        "go on with": " ".join([*call, "--out result.zarr"]),
    }


def _named(axis: Axis | None) -> str:
    """The dimensions of an axis, and the names along it."""
    if axis is None:
        return ""
    if len(axis.dims) > 1:
        sizes = zip(axis.dims, axis.shape, strict=True)
        return f" ({', '.join(f'{dim}: {size}' for dim, size in sizes)})"
    names = axis.names_along(axis.dims[0]) if axis.names is not None else []
    return f" ({axis.dims[0]})" + (f": {_some(names)}" if names else "")


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _missing(source: Source) -> str:
    """How many values are missing in the first samples."""
    count = min(source.n_samples, max(1, LOOKED_AT // source.n_features))
    n_missing = int(np.count_nonzero(np.isnan(source.read(0, count, source.sum_dtype))))
    where = "" if count == source.n_samples else f" in the first {count} samples"
    if not n_missing:
        return f"none{where}"
    share = n_missing / (count * source.n_features)
    return f"{n_missing}{where}, {percent(share)}: fit with --missing mean"


def _of_file(path: Path, what: str) -> dict[str, str]:
    """A file that has to be converted first."""
    kind = kind_of(path)
    found = {"data": what, "size": format_bytes(path.stat().st_size)}
    try:
        if kind in DELIMITERS:
            fields = first_fields(path, DELIMITERS[kind])
            found["kind"] = "table of text"
            found["first line"] = f"{len(fields)} fields: {_some(fields)}"
        elif kind == ".npz":
            with zipfile.ZipFile(path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
            found |= {"kind": "arrays of NumPy in one file", "holds": _some(names)}
        else:
            matrices = [f"{name} {shape}" for name, shape, _ in scipy_io.whosmat(path)]
            found |= {"kind": "matrices of MATLAB", "holds": _some(matrices)}
    except (EOFError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    name = f"{path.name.split('.')[0]}.zarr"
    found["go on with"] = f"streamsvd convert {shlex.quote(what)} {shlex.quote(name)}"
    return found
