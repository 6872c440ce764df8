"""Zarr arrays and groups that are written: aside, flushed, renamed."""

import os
import warnings
from collections.abc import Iterator
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
    with replaced(target) as aside, settled_store(aside) as store:
        yield zarr.create_array(
            store,
            shape=shape,
            chunks=chunks,
            dtype=dtype.newbyteorder("="),
            compressors=ZstdCodec(level=3, checksum=True),
            fill_value=0,
            zarr_format=3,
            config={"write_empty_chunks": True},
        )


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
