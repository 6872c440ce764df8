"""Zarr arrays and groups that are written: aside, flushed, renamed."""

import json
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.storage import LocalStore

from streamsvd.arrays import Array
from streamsvd.errors import OptionError, ResourceError, SourceError
from streamsvd.storage.chunks import array_names, missing_chunk_keys, some

# ------------------------------------------------------------------------------------ results


@contextmanager
def new_output(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    chunks: tuple[int, int],
    dtype: np.dtype[Any],
) -> Iterator[Any]:
    """A Zarr array to be written chunk by chunk, which is at `path` when the block is left.

    It is written aside and renamed, so that it is there whole or not at all. Compressed, with a
    checksum in each chunk, so that damage is noticed when it is read. Chunks of zeros are stored
    like any other: a chunk that is not there counts as lost.
    """
    target = Path(path).expanduser().absolute()
    refuse_existing(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.new")
    try:
        yield zarr.create_array(
            LocalStore(aside),
            shape=shape,
            chunks=chunks,
            dtype=dtype.newbyteorder("="),
            compressors=ZstdCodec(level=3, checksum=True),
            fill_value=0,
            zarr_format=3,
            config={"write_empty_chunks": True},
        )
        _fsync_tree(aside)
        os.rename(aside, target)
    except OSError as error:
        raise ResourceError(
            f"cannot write {target}: {error}; make room, or choose another path"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def open_written(path: str | os.PathLike[str]) -> Any:
    """The array that `new_output` left at `path`, for reading."""
    return zarr.open_array(LocalStore(Path(path).expanduser(), read_only=True), mode="r")


def write_group(
    path: str | os.PathLike[str],
    arrays: dict[str, Array],
    attributes: dict[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Write a Zarr group beside `path`, flush it to disk, and rename it into place.

    With `overwrite`, only a group of the same ``format`` is replaced.
    """
    target = Path(path).expanduser().absolute()
    if not overwrite:
        refuse_existing(target)
    elif os.path.lexists(target) and _format_of(target) != attributes["format"]:
        raise OptionError(
            f"{target} exists and is not a result of streamsvd; it is not overwritten"
        )
    json.dumps(attributes, allow_nan=False)  # zarr would write NaN, which is not JSON
    target.parent.mkdir(parents=True, exist_ok=True)
    tag = uuid.uuid4().hex[:8]
    new, old = (target.with_name(f".{target.name}.{tag}.{kind}") for kind in ("new", "old"))
    try:
        group = zarr.create_group(LocalStore(new), attributes=attributes, zarr_format=3)
        for name, values in arrays.items():
            group.create_array(
                name,
                data=np.ascontiguousarray(values),
                chunks=tuple(max(1, size) for size in values.shape),
                compressors=None,
                config={"write_empty_chunks": True},  # an all-zero array is data too
            )
        _fsync_tree(new)
        if os.path.lexists(target):
            os.rename(target, old)
        os.rename(new, target)
    except OSError as error:
        raise ResourceError(
            f"cannot write {target}: {error}; make room, or choose another path"
        ) from error
    finally:
        if old.exists() and not target.exists():
            os.rename(old, target)
        shutil.rmtree(new, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def changed_group(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A Zarr group of the user's, to be added to; what it says of itself as a whole is renewed."""
    store = LocalStore(Path(path).expanduser())
    try:
        is_consolidated = zarr.open_group(store, mode="r").metadata.consolidated_metadata
        yield zarr.open_group(store, mode="r+", use_consolidated=False)
        if is_consolidated is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that not all Zarr libraries read it
                zarr.consolidate_metadata(store)
    except FileNotFoundError as error:
        raise SourceError(f"no Zarr group at {path}") from error
    except OSError as error:
        raise ResourceError(f"cannot write into {path}: {error}") from error


def read_group(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """All arrays of a Zarr group, by path, and its attributes."""
    where = Path(path).expanduser()
    try:
        group = zarr.open_group(LocalStore(where, read_only=True), mode="r")
        arrays = {}
        for name in array_names(group):
            array: Any = group[name]
            lost = missing_chunk_keys(array)
            if lost:
                raise SourceError(f"{where}/{name}: missing chunk(s) {some(lost)}")
            arrays[name] = np.asarray(array[...])
    except FileNotFoundError as error:
        left = sorted(path.name for path in where.parent.glob(f".{where.name}.*"))
        hint = f"; a save that was killed left {', '.join(left)} beside it" if left else ""
        raise SourceError(f"no Zarr group at {where}{hint}") from error
    except (ValueError, RuntimeError, EOFError, KeyError) as error:
        raise SourceError(f"cannot read the Zarr group at {where}: {error}") from error
    return arrays, dict(group.attrs)


def refuse_existing(path: Path) -> None:
    """Refuse to overwrite what the user has."""
    if os.path.lexists(path):
        raise OptionError(f"{path} exists and is not overwritten; choose another path or remove it")


def _format_of(path: Path) -> Any:
    """The attribute ``format`` of a Zarr group, None of anything else."""
    try:
        return zarr.open_group(LocalStore(path, read_only=True), mode="r").attrs.get("format")
    except (OSError, ValueError):
        return None


def _fsync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for entry in [*(os.path.join(folder, name) for name in names), folder]:
            fd = os.open(entry, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
