"""From a path, a URL or an open node of Zarr to a source, checked before it is decoded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore, ZipStore

from streamsvd.arrays import Array
from streamsvd.data.attributes import attributes_of, dims_of, name_of, packing_attributes
from streamsvd.data.compressed import SPARSE_KINDS, SPARSE_PARTS, check_group
from streamsvd.data.coordinates import axis_of
from streamsvd.data.layout import asked_layout
from streamsvd.data.packing import packing_of
from streamsvd.data.source import Source, asked_axis, check_matrix
from streamsvd.data.zarr_sources import SparseSource, ZarrSource
from streamsvd.errors import OptionError, SourceError, StreamSVDError
from streamsvd.options import Ask
from streamsvd.storage.checked import RegularFiles, checked, file_size
from streamsvd.storage.chunks import (
    MARK,
    MOST_MISSING,
    array_names,
    missing_chunk_keys,
    some,
)
from streamsvd.storage.codecs import refuse_unsafe

EXTRAS = {"s3": "s3", "http": "http", "https": "http"}
"""What to install for URLs of a protocol."""


# -------------------------------------------------------------------------------------- paths


def open_node(x: Any, storage_options: dict[str, Any] | None = None) -> Any:
    """The Zarr array or group at a path, a URL, or inside a ``.zip`` file."""
    x = os.fspath(x)
    if storage_options is not None and "://" not in x:
        raise OptionError(
            f"storage_options are for URLs such as s3://bucket/x.zarr; {x} is a path: leave them "
            "out"
        )
    is_path = "://" not in x or (x.startswith("file://") and storage_options is None)
    try:
        if is_path:
            return _open_path(x.removeprefix("file://"))
        return zarr.open(x, mode="r", storage_options=storage_options)
    except StreamSVDError:
        raise
    except FileNotFoundError as error:
        what = "" if not is_path or os.path.exists(x) or ".zip" in x else ": no such path"
        raise SourceError(f"no Zarr array at {x}{what}") from error
    except ImportError as error:
        extra = EXTRAS.get(x.partition("://")[0])
        hint = f'; pip install "streamsvd[{extra}]"' if extra else ""
        raise SourceError(f"{x} needs another package: {error}{hint}") from error
    except Exception as error:  # bad JSON, unknown codec, object dtype, no such home folder, ...
        raise SourceError(
            f"cannot open {x} as a Zarr array: {error or type(error).__name__}"
        ) from error


def _open_path(x: str) -> Any:
    """The node at a local path."""
    path = os.path.expanduser(x)
    store, inside = _zip_store(path)
    if store is not None:
        return zarr.open(store, path=inside, mode="r")
    if os.path.isfile(path):
        raise SourceError(
            f"{x} is a file of no kind that is read as it is: those end in .npy, .h5ad, .h5, "
            ".hdf5 or .nc, and .zip for a Zarr store; `streamsvd convert` writes .csv, .tsv, .txt, "
            ".npz and .mat files to Zarr"
        )
    file_size(Path(path), x)  # neither a device
    place = Path(path).absolute()  # workers of a cluster have another folder
    return zarr.open(RegularFiles(place, read_only=True), mode="r")


def _zip_store(path: str) -> tuple[ZipStore | None, str | None]:
    """The zip file that a path leads into, if any, and the rest of the path."""
    for place in (Path(path), *Path(path).parents):
        if place.suffix == ".zip" and place.is_file():
            inside = Path(path).relative_to(place).as_posix()
            return ZipStore(place, mode="r"), None if inside == "." else inside
    return None, None


# -------------------------------------------------------------------------------------- nodes


@contextmanager
def sound(name: str) -> Iterator[None]:
    """What damaged metadata lead Zarr to raise is an error of the source, called `name`."""
    try:
        yield
    except (StreamSVDError, MemoryError):
        raise
    except Exception as error:  # each part of Zarr raises its own kinds
        raise SourceError(
            f"{name}: its metadata cannot be used: {type(error).__name__}: {error}; restore them"
        ) from error


def encoding_of(node: Any) -> Any:
    """What the group of an AnnData, or of a part of one, says that it is."""
    return attributes_of(node).get("encoding-type") if isinstance(node, zarr.Group) else None


def open_zarr(node: Any, ask: Ask, fitted: Ask, name: str | None = None) -> Source:
    """An open array, or the group of a sparse matrix.

    Refuses what is not a matrix of real numbers, codecs that are not known to be safe, and stores
    with missing chunks unless ``missing_chunks="fill"``. `name` is what to call it in errors.
    """
    name = name or name_of(node)
    with sound(name):
        node = _absolute(node)
        if encoding_of(node) in SPARSE_KINDS:
            return _open_sparse_group(node, ask, fitted, name)
        if isinstance(node, zarr.Group):
            names = ", ".join(array_names(node)) or "none that can be listed"
            raise SourceError(f"{name} is a Zarr group; name one of its arrays: {names}")
        return _open_array(node, ask, fitted, name)


def check_array(array: Any, name: str, ask: Ask, *, is_text: bool = False) -> None:
    """Refuse an array, whatever it is for, that cannot be read, before a byte is decoded."""
    try:
        grid = (*array.chunks, *(array.shards or ()))
    except NotImplementedError as error:
        raise SourceError(f"{name} has an irregular chunk grid, which is not supported") from error
    if any(width < 1 for width in grid):
        raise SourceError(f"{name} has chunks of size {array.chunks}; mend its metadata")
    refuse_unsafe(array, name, is_text=is_text)
    if ask.missing_chunks == "error":
        _refuse_missing(array, name)


def names_of(array: Any, name: str) -> Array | None:
    """An array of text or numbers in memory, None of another kind: nothing is unpickled."""
    if array.dtype.kind not in "TUbiuf":
        return None
    check_array(array, name, Ask(missing_chunks="fill"), is_text=True)
    return np.asarray(checked(array, name, may_miss=True)[:])


def _open_array(array: Any, ask: Ask, fitted: Ask, name: str) -> Source:
    refuse_unsafe(array, name, is_text=array.dtype.kind not in "biuf")
    dims = dims_of(array)
    layout = asked_layout(array.shape, name, ask, fitted, dims)
    is_matrix = len(array.shape) <= 2
    check_matrix(array.dtype, array.shape if is_matrix else layout.matrix_shape, name)
    mark = _mark(array)
    if mark is not None:
        raise SourceError(f"{name} is not data: {mark}")
    check_array(array, name, ask)
    source = ZarrSource(array, layout, name, ask.missing_chunks)
    if ask.decode:
        source.decode_by(packing_of(packing_attributes(array), array.dtype, name))
    if dims:
        source.features = axis_of(array, dims, layout.feature_axes, name)
        source.samples = axis_of(array, dims, layout.sample_axes, name)
    return source


def _open_sparse_group(group: Any, ask: Ask, fitted: Ask, name: str) -> Source:
    axis = asked_axis(name, ask, fitted)
    shape = check_group(group, attributes_of(group), name)
    return SparseSource(parts_of(group, ask, name), str(encoding_of(group)), shape, axis, name)


def parts_of(group: Any, ask: Ask, name: str) -> dict[str, Any]:
    """The arrays of a sparse matrix, checked before and while they are read."""
    for key in SPARSE_PARTS:
        check_array(group[key], f"{name}/{key}", ask)
    may_miss = ask.missing_chunks == "fill"
    return {key: checked(group[key], f"{name}/{key}", may_miss=may_miss) for key in SPARSE_PARTS}


def _mark(array: Any) -> Any:
    """What is marked in the attributes, as they are on the disk: an open array may be older."""
    if isinstance(array.store, LocalStore) and isinstance(array, zarr.Array):
        store = LocalStore(array.store.root, read_only=True)
        array = zarr.open_array(store, path=array.path, mode="r")
    return attributes_of(array).get(MARK)


def _refuse_missing(array: zarr.Array[Any], name: str) -> None:
    lost = missing_chunk_keys(array)
    if lost:
        more = " or more" if len(lost) == MOST_MISSING else ""
        raise SourceError(
            f"{name}: {len(lost)}{more} chunk(s) are missing and would read as {array.fill_value}: "
            f'{some(lost)}; restore them, or pass missing_chunks="fill" if they were left out on '
            "purpose"
        )


def _absolute(node: Any) -> Any:
    """An open array or group whose folder does not depend on the working directory.

    That of a worker is another one.
    """
    store = node.store
    if not isinstance(store, LocalStore) or store.root.is_absolute():
        return node
    there = LocalStore(store.root.absolute(), read_only=store.read_only)
    return zarr.open(there, path=node.path, mode="r" if store.read_only else "r+")
