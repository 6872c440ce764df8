"""From a path, a URL or an open node of Zarr to a source, checked before it is decoded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zarr
from zarr.storage import LocalStore, ZipStore

from streamsvd.data.attributes import attributes_of, dims_of, packing_attributes
from streamsvd.data.coordinates import axis_of
from streamsvd.data.layout import asked_layout
from streamsvd.data.packing import packing_of
from streamsvd.data.source import Source, asked_axis, check_matrix
from streamsvd.data.zarr_sources import SPARSE_PARTS, SparseSource, ZarrSource
from streamsvd.errors import OptionError, SourceError, StreamSVDError
from streamsvd.options import Ask
from streamsvd.storage.checked import RegularFiles, file_size
from streamsvd.storage.chunks import (
    MARK,
    MOST_MISSING,
    array_names,
    missing_chunk_keys,
    some,
)
from streamsvd.storage.codecs import refuse_unsafe

SPARSE_KINDS = ("csr_matrix", "csc_matrix")
"""What the groups of sparse matrices of AnnData say that they are."""


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
        hint = '; pip install "streamsvd[s3]"' if x.startswith("s3://") else ""
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
        raise SourceError(f"{x} is a file, not a Zarr store; see `streamsvd convert`")
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
    name = name or str(node.store_path)
    with sound(name):
        node = _absolute(node)
        if encoding_of(node) in SPARSE_KINDS:
            return _open_sparse_group(node, ask, fitted, name)
        if isinstance(node, zarr.Group):
            names = ", ".join(array_names(node)) or "none that can be listed"
            raise SourceError(f"{node.store_path} is a Zarr group; name one of its arrays: {names}")
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
    attributes = attributes_of(group)
    lost = [key for key in SPARSE_PARTS if key not in group]
    lost += [key for key in ("shape",) if key not in attributes]
    if lost:
        raise SourceError(f"{name} is not a whole sparse matrix: {', '.join(lost)} is not there")
    shape = attributes["shape"]
    if not isinstance(shape, list | tuple) or not all(type(size) is int for size in shape):
        raise SourceError(f"{name} has the shape {shape!r}: need two numbers; mend its attributes")
    check_matrix(group["data"].dtype, tuple(shape), name)
    for key in SPARSE_PARTS:
        part = group[key]
        if len(part.shape) != 1 or (key != "data" and part.dtype.kind not in "iu"):
            raise SourceError(
                f"{name}/{key} holds {part.dtype} in the shape {part.shape}; the {key} of a sparse "
                "matrix are one row of numbers, whole ones but for the data"
            )
        check_array(part, f"{name}/{key}", ask)
    return SparseSource(group, axis, name)


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
