"""Arrays whose chunk files are the raw bytes of a block, so that they can be mapped."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from streamsvd.errors import SourceError
from streamsvd.storage.chunks import MARK, chunk_keys, some

# ------------------------------------------------------------------------- the working store


def create_raw_array(
    path: Path, n_features: int, n_samples: int, width: int, dtype: np.dtype[Any]
) -> list[Path]:
    """Create the metadata of an array whose chunk files are raw blocks; returns their paths.

    Zarr 3, shape (n, N), chunks (n, width), no compression, little-endian, C order. The files
    themselves, ``n width itemsize`` bytes each, are for the caller to write.
    """
    array = zarr.create_array(
        LocalStore(path),
        shape=(n_features, n_samples),
        chunks=(n_features, width),
        dtype=dtype.newbyteorder("<"),
        compressors=None,
        filters=None,
        fill_value=0,
        zarr_format=3,
        chunk_key_encoding={"name": "default", "separator": "/"},
        attributes={MARK: "it is the working matrix of a fit"},
    )
    return [path / key for key in chunk_keys(array)]


def raw_chunk_paths(array: zarr.Array[Any], dtype: np.dtype[Any]) -> list[Path]:
    """The chunk files of an array that can be rewritten in place; refuses any other array.

    Such an array is local, of `dtype`, with all features in each chunk, and its chunk files are raw
    blocks: uncompressed, unsharded, little-endian, C order, all there and whole.
    """
    meta: dict[str, Any] = array.metadata.to_dict()
    reasons = []
    if not isinstance(array.store, LocalStore):
        reasons.append("it is not in a local folder")
    if array.dtype.newbyteorder("=") != dtype:
        reasons.append(f"it holds {array.dtype}, not {dtype}")
    if array.chunks[0] != array.shape[0]:
        reasons.append("its chunks split the features")
    if meta["zarr_format"] == 2:
        raw = not meta["compressor"] and not meta["filters"] and meta["order"] == "C"
        raw = raw and array.dtype == array.dtype.newbyteorder("<")
    else:
        codecs = meta["codecs"]
        raw = [codec["name"] for codec in codecs] == ["bytes"]
        raw = raw and codecs[0].get("configuration", {}).get("endian", "little") == "little"
    if not raw:
        reasons.append("it is compressed, sharded, big-endian or in Fortran order")
    paths = []
    if not reasons:
        keys = list(chunk_keys(array))
        paths = [Path(array.store.root, array.path, key).absolute() for key in keys]  # type: ignore[attr-defined]
        size = array.chunks[0] * array.chunks[1] * dtype.itemsize
        bad = [
            key
            for key, path in zip(keys, paths, strict=True)
            if not path.is_file() or path.stat().st_size != size
        ]
        if bad:
            reasons.append(f"chunk(s) are missing or not whole: {some(bad)}")
    if reasons:
        raise SourceError(
            f"{array.store_path} cannot be overwritten in place: {'; '.join(reasons)}; leave "
            "overwrite_x out, or write it anew with chunks of all features, compressors=None and "
            f"dtype {dtype}"
        )
    return paths


def intact_chunks(
    path: Path, shape: tuple[int, int], dtype: np.dtype[Any]
) -> tuple[list[Path], int] | None:
    """The chunk files of a working store and their width, None unless all are there and whole."""
    try:
        array: Any = zarr.open_array(LocalStore(path, read_only=True), mode="r")
        if array.shape != shape:
            return None
        paths = raw_chunk_paths(array, dtype)
    except Exception:  # what zarr raises on damaged metadata is no closed list
        return None
    if any(path.is_symlink() for path in paths):  # it would be written to what it points to
        return None
    return paths, array.chunks[1]


def reserve_files(paths: list[Path], n_bytes: int) -> None:
    """Create files of `n_bytes` zeros.

    The last one may not be written whole by the ingest, so its space is reserved: a full disk in
    the middle of a move would be a crash. Reserving all of them would double the time to write.
    """
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w+b") as file:
            if path == paths[-1] and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            else:
                os.ftruncate(file.fileno(), n_bytes)
