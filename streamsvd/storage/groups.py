"""Zarr groups that are ours: small arrays and attributes, with checksums of all of it.

Any Zarr library reads them. Here they are read without one, after their checksums were verified and
by what their metadata say in plain sight: nothing of a file chooses a codec, so nothing of a file
is run.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamsvd.arrays import Array
from streamsvd.errors import OptionError, SourceError
from streamsvd.storage.asides import leftovers, replaced
from streamsvd.storage.checksums import checksum_of_file, checksum_of_json
from streamsvd.storage.outputs import refuse_existing
from streamsvd.storage.settled import settled_store

NUMBERS = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
)
"""Types of what is read: no objects, no text."""

PLAIN = (
    [{"name": "bytes", "configuration": {"endian": "little"}}],
    [{"name": "bytes", "configuration": {}}],  # of one byte each
    [{"name": "bytes"}],
)
"""Codecs of what is read: the bytes as they are, so no other is ever asked to decode anything."""


def write_group(
    path: str | os.PathLike[str],
    arrays: dict[str, Array],
    attributes: dict[str, Any],
    *,
    overwrite: bool = False,
) -> None:
    """Write a Zarr group beside `path`, flush it to disk, and rename it into place.

    With `overwrite`, only a group of the same ``format`` is replaced. To the attributes are added
    ``files``, size and checksum of each file beside the ``zarr.json`` that holds them, and
    ``checksum``, that of the other attributes.
    """
    target = Path(path).expanduser().absolute()
    if not overwrite:
        refuse_existing(target)
    elif os.path.lexists(target) and _format_of(target) != attributes["format"]:
        raise OptionError(
            f"{target} exists and is not a result of streamsvd; it is not overwritten"
        )
    json.dumps(attributes, allow_nan=False)  # zarr would write NaN, which is not JSON
    with replaced(target, overwrite) as new, settled_store(new) as store:
        group = zarr.create_group(store, zarr_format=3)
        for name, values in arrays.items():
            group.create_array(
                name,
                data=np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")),
                chunks=tuple(max(1, size) for size in values.shape),
                compressors=None,
                config={"write_empty_chunks": True},  # an all-zero array is data too
            )
        files = sorted(p for p in new.rglob("*") if p.is_file() and p.parent != new)
        sums = {p.relative_to(new).as_posix(): list(checksum_of_file(p)) for p in files}
        whole = json.loads(json.dumps(attributes | {"files": sums}))
        group.attrs.update(whole | {"checksum": checksum_of_json(whole)})


class SavedGroup:
    """A group that `write_group` wrote, for reading; refuses one that is damaged.

    Parameters
    ----------
    path : path
    form, version : str, int
        The attributes ``format`` and ``version`` that it must have.

    Attributes
    ----------
    path : Path
    attributes : dict
        Without those that `write_group` added.
    """

    def __init__(self, path: str | os.PathLike[str], form: str, version: int) -> None:
        self.path = Path(path).expanduser()
        attributes = self._root()
        found = attributes.get("format"), attributes.get("version")
        if found != (form, version):
            raise OptionError(
                f"{self.path} is not a result of this version: format and version are {found}, "
                f"need {(form, version)}; fit again, or read it with the version that wrote it"
            )
        known = attributes.pop("checksum", None)
        if known != checksum_of_json(attributes):
            raise self.damaged("zarr.json", "is not what was written")
        self._verify(attributes.pop("files", None))
        self.attributes = attributes

    def damaged(self, what: str, how: str) -> SourceError:
        """The error that says what is wrong."""
        return SourceError(f"{self.path} is damaged: {what} {how}; restore it or fit again")

    def array(self, name: str) -> Array:
        """The array `name`, of numbers."""
        about = self._json(f"{name}/zarr.json")
        try:
            dtype, shape = _type_and_shape(about)
            chunk = self.path.joinpath(name, "c", *("0" * len(shape)))
            if math.prod(shape) == 0:
                return np.empty(shape, dtype)
            if chunk.stat().st_size != math.prod(shape) * dtype.itemsize:
                raise ValueError("its chunk is of another size")
            return np.fromfile(chunk, dtype).reshape(shape).astype(dtype.newbyteorder("="))
        except (ValueError, TypeError, KeyError, IndexError, OSError) as error:
            raise self.damaged(name, f"cannot be read: {error}") from error

    def _root(self) -> dict[str, Any]:
        if not os.path.lexists(self.path / "zarr.json"):
            left = [path.name for path in leftovers(self.path)]
            hint = f"; a save that was killed left {', '.join(left)} beside it" if left else ""
            raise SourceError(f"no Zarr group at {self.path}{hint}")
        about = self._json("zarr.json")
        attributes = about.get("attributes")
        if about.get("node_type") != "group" or about.get("zarr_format") != 3:
            raise SourceError(f"no Zarr group at {self.path}, but {about.get('node_type')!r}")
        return attributes if isinstance(attributes, dict) else {}

    def _json(self, name: str) -> dict[str, Any]:
        try:
            checksum_of_file(self.path / name)  # a regular file
            content = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise SourceError(
                f"cannot read the Zarr group at {self.path}: {name}: {error}; restore it"
            ) from error
        if not isinstance(content, dict):
            raise self.damaged(name, "is no object")
        return content

    def _verify(self, files: Any) -> None:
        if not isinstance(files, dict):
            raise self.damaged("zarr.json", "lists no files")
        for name, known in files.items():
            try:
                found = list(checksum_of_file(self.path / name))
            except FileNotFoundError:
                raise SourceError(f"{self.path} is not whole: {name} is missing") from None
            except OSError as error:
                raise self.damaged(name, f"cannot be read: {error}") from error
            if found != known:
                raise self.damaged(name, "is not what was written")


def _type_and_shape(about: dict[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Of an array from its metadata; refuses all but one chunk of plain numbers."""
    shape, name = about["shape"], about["data_type"]
    if name not in NUMBERS:
        raise ValueError(f"it holds {name!r}, not numbers")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"it is of shape {shape}")
    if about["codecs"] not in PLAIN:
        raise ValueError(f"it is stored with the codecs {about['codecs']}")
    if about["chunk_grid"]["configuration"]["chunk_shape"] != [max(1, size) for size in shape]:
        raise ValueError("it is in several chunks")
    return np.dtype(name).newbyteorder("<"), tuple(shape)


def _format_of(path: Path) -> Any:
    """The attribute ``format`` of a Zarr group, None of anything else."""
    try:
        return json.loads((path / "zarr.json").read_bytes())["attributes"]["format"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
