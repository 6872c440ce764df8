"""Zarr arrays and groups that are written: aside, flushed, renamed."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import ZstdCodec
from zarr.storage import LocalStore

from streamsvd.errors import OptionError, ResourceError, SourceError
from streamsvd.storage.asides import replaced
from streamsvd.storage.settled import settled_store

NAMES = 100_000
"""In a chunk, at most."""

Names = tuple[int, Callable[[int, int], list[str]]]
"""How many, and what gives those from one place to another."""


# ------------------------------------------------------------------------------------ results


@contextmanager
def new_output(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    chunks: tuple[int, int],
    dtype: np.dtype[Any],
    names: Mapping[str, Names] | None = None,
) -> Iterator[Any]:
    """A Zarr array to be written chunk by chunk, which is at `path` when the block is left.

    With `names` of rows, ``"obs"``, or columns, ``"var"``, it is the `X` of an AnnData there.

    It is written aside and renamed, so that it is there whole or not at all. Compressed, with a
    checksum in each chunk, so that damage is noticed when it is read. Chunks of zeros are stored
    like any other: a chunk that is not there counts as lost.
    """
    target = Path(path).expanduser().absolute()
    refuse_existing(target)
    with replaced(target) as aside, settled_store(aside) as store:
        for table, named in (names or {}).items():
            _write_names(store, table, *named)
        yield zarr.create_array(
            store,
            name="X" if names else None,
            attributes=_encoded("array", "0.2.0") if names else None,
            shape=shape,
            chunks=chunks,
            dtype=dtype.newbyteorder("="),
            compressors=ZstdCodec(level=3, checksum=True),
            fill_value=0,
            zarr_format=3,
            config={"write_empty_chunks": True},
        )


def _write_names(store: Any, table: str, count: int, take: Callable[[int, int], list[str]]) -> None:
    """Names in a table of an AnnData, as version 0.12 of it writes them."""
    zarr.open_group(store, mode="a", attributes=_encoded("anndata", "0.1.0"), zarr_format=3)
    attributes = _encoded("dataframe", "0.2.0") | {"_index": "_index", "column-order": []}
    group = zarr.create_group(store, path=table, attributes=attributes, zarr_format=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that not all Zarr libraries read text
        array = group.create_array(
            "_index",
            shape=(count,),
            chunks=(min(count, NAMES),),
            dtype=str,
            attributes=_encoded("string-array", "0.2.0"),
            config={"write_empty_chunks": True},
        )
    for start in range(0, count, NAMES):
        stop = min(start + NAMES, count)
        array[start:stop] = np.array(take(start, stop), dtype=object)


def _encoded(kind: str, version: str) -> dict[str, Any]:
    return {"encoding-type": kind, "encoding-version": version}


def open_written(path: str | os.PathLike[str]) -> Any:
    """The array that `new_output` left at `path`, for reading."""
    return zarr.open_array(LocalStore(Path(path).expanduser(), read_only=True), mode="r")


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


def refuse_existing(path: Path) -> None:
    """Refuse to overwrite what the user has."""
    if os.path.lexists(path):
        raise OptionError(f"{path} exists and is not overwritten; choose another path or remove it")
