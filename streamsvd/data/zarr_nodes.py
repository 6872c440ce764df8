"""From a path, a URL or an open node of Zarr to a source, checked before it is decoded."""

import os
from pathlib import Path
from typing import Any

import zarr
from zarr.storage import LocalStore, ZipStore

from streamsvd.data.labels import Axis
from streamsvd.data.source import Source, asked_axis, check_matrix
from streamsvd.data.zarr_sources import SPARSE_PARTS, SparseSource, ZarrSource
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask
from streamsvd.storage.chunks import MARK, array_names, missing_chunk_keys, some

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
    if "://" not in x:
        x = str(Path(x).expanduser())
    store, inside = _zip_store(x)
    if store is None and os.path.isfile(x):
        raise SourceError(f"{x} is a file, not a Zarr store; see `streamsvd convert`")
    try:
        is_path = "://" not in x  # absolute: workers of a cluster have another folder
        place = store or (str(Path(x).absolute()) if is_path else x)
        return zarr.open(place, path=inside, mode="r", storage_options=storage_options)
    except FileNotFoundError as error:
        what = "" if "://" in x or store or os.path.exists(x) else "no such path"
        raise SourceError(f"no Zarr array at {x}" + (f": {what}" if what else "")) from error
    except ImportError as error:
        hint = '; pip install "streamsvd[s3]"' if x.startswith("s3://") else ""
        raise SourceError(f"{x} needs another package: {error}{hint}") from error
    except Exception as error:  # bad JSON, unknown codec, object dtype, ...
        raise SourceError(f"cannot open {x} as a Zarr array: {error}") from error


def _zip_store(path: str) -> tuple[ZipStore | None, str | None]:
    """The zip file that a path leads into, if any, and the rest of the path."""
    for place in (Path(path), *Path(path).parents):
        if place.suffix == ".zip" and place.is_file():
            inside = Path(path).relative_to(place).as_posix()
            return ZipStore(place, mode="r"), None if inside == "." else inside
    return None, None


# -------------------------------------------------------------------------------------- nodes


def encoding_of(node: Any) -> Any:
    """What the group of an AnnData, or of a part of one, says that it is."""
    return node.attrs.get("encoding-type") if isinstance(node, zarr.Group) else None


def open_zarr(node: Any, ask: Ask, fitted: Ask, name: str | None = None) -> Source:
    """An open array, or the group of a sparse matrix.

    Refuses what is not a matrix of real numbers, and stores with missing chunks unless
    ``missing_chunks="fill"``. `name` is what to call it in errors.
    """
    node = _absolute(node)
    name = name or str(node.store_path)
    if encoding_of(node) in SPARSE_KINDS:
        return _open_sparse_group(node, ask, fitted, name)
    if isinstance(node, zarr.Group):
        names = ", ".join(array_names(node)) or "none"
        raise SourceError(f"{node.store_path} is a Zarr group; name one of its arrays: {names}")
    return _open_array(node, ask, fitted, name)


def _open_array(array: Any, ask: Ask, fitted: Ask, name: str) -> Source:
    try:
        array.chunks, array.shards  # noqa: B018
    except NotImplementedError as error:
        raise SourceError(f"{name} has an irregular chunk grid, which is not supported") from error
    dims = _dims_of(array)
    axis = asked_axis(name, ask, fitted, dims)
    check_matrix(array.dtype, array.shape, name)
    mark = _mark(array)
    if mark is not None:
        raise SourceError(f"{name} is not data: {mark}")
    if ask.missing_chunks == "error":
        _refuse_missing(array, name)
    source = ZarrSource(array, axis, name, ask.missing_chunks)
    if dims:
        shape = (source.n_features, source.n_samples)
        source.features, source.samples = (
            Axis((dims[place],), (size,))
            for place, size in zip((1 - axis, axis), shape, strict=True)
        )
    return source


def _open_sparse_group(group: Any, ask: Ask, fitted: Ask, name: str) -> Source:
    axis = asked_axis(name, ask, fitted)
    lost = [key for key in SPARSE_PARTS if key not in group]
    lost += [key for key in ("shape",) if key not in group.attrs]
    if lost:
        raise SourceError(f"{name} is not a whole sparse matrix: {', '.join(lost)} is not there")
    check_matrix(group["data"].dtype, tuple(group.attrs["shape"]), name)
    if ask.missing_chunks == "error":
        for key in SPARSE_PARTS:
            _refuse_missing(group[key], f"{name}/{key}")
    return SparseSource(group, axis, name)


def _dims_of(array: Any) -> tuple[str, ...]:
    """Names of the dimensions of a Zarr array, as xarray writes them."""
    stored = getattr(getattr(array, "metadata", None), "dimension_names", None)
    stored = stored or getattr(array, "attrs", {}).get("_ARRAY_DIMENSIONS") or ()
    return tuple(str(dim) for dim in stored) if len(stored) == 2 and None not in stored else ()


def _mark(array: Any) -> Any:
    """What is marked in the attributes, as they are on the disk: an open array may be older."""
    if isinstance(array.store, LocalStore) and isinstance(array, zarr.Array):
        store = LocalStore(array.store.root, read_only=True)
        array = zarr.open_array(store, path=array.path, mode="r")
    return array.attrs.get(MARK)


def _refuse_missing(array: zarr.Array[Any], name: str) -> None:
    lost = missing_chunk_keys(array)
    if lost:
        raise SourceError(
            f"{name}: {len(lost)} chunk(s) are missing and would read as {array.fill_value}: "
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
