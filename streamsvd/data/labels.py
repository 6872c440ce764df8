"""What the features and samples of a source are called: kept by a fit, saved with its result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from streamsvd.arrays import Array


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of a matrix: the dimensions it is made of, and the coordinates along each.

    The columns of a table are one dimension; the pixels of images are two, ``("y", "x")``, the
    last of them the fastest.

    Attributes
    ----------
    dims : tuple of str
        Their names.
    shape : tuple of int
        Their sizes; the product is the size of the axis.
    coords : dict of str to (size,) array
        Names, positions or times along a dimension; those without any are left out.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def names(self) -> Array | None:
        """(size,) array of str: the coordinates, joined by commas where there are several.

        None when a dimension has none.
        """
        if not all(dim in self.coords for dim in self.dims):
            return None
        columns = [[str(value) for value in self.coords[dim]] for dim in self.dims]
        return np.array([",".join(place) for place in product(*columns)], dtype=object)

    def difference(self, other: "Axis") -> str | None:
        """The first place that is called otherwise in `other`, for an error; None if there is none.

        What has no names differs from nothing.
        """
        mine, its = self.names, other.names
        if mine is None or its is None or len(mine) != len(its):
            return None
        places = np.flatnonzero(mine != its)
        if not len(places):
            return None
        return f"feature {places[0]} is {its[places[0]]!r}, not {mine[places[0]]!r}"


def named(dim: str, names: Any) -> Axis:
    """An axis of one dimension with names, as tables have."""
    names = np.asarray(names)
    return Axis((dim,), names.shape, {dim: names})


# ------------------------------------------------------------------------------------- on disk


def pack(axis: Axis | None) -> tuple[dict[str, Array], dict[str, Any] | None]:
    """Arrays of numbers, by name, and a description that is JSON; `unpack` undoes it.

    Text is held as one array of UTF-8 and the places where each piece ends, since text has no data
    type that all Zarr libraries agree on; times as integers.
    """
    if axis is None:
        return {}, None
    arrays: dict[str, Array] = {}
    kinds: list[str | None] = []
    for k, dim in enumerate(axis.dims):
        values = axis.coords.get(dim)
        if values is None:
            kinds.append(None)
        elif values.dtype.kind in "biuf":
            arrays[str(k)] = values
            kinds.append("numbers")
        elif values.dtype.kind in "mM":
            arrays[str(k)] = values.astype(np.int64)
            kinds.append(values.dtype.str)
        else:
            pieces = [str(value).encode() for value in values]
            arrays[f"{k}/text"] = np.frombuffer(b"".join(pieces), dtype=np.uint8)
            arrays[f"{k}/ends"] = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
            kinds.append("text")
    return arrays, {"dims": list(axis.dims), "shape": list(axis.shape), "coords": kinds}


def unpack(arrays: Mapping[str, Array], described: dict[str, Any] | None) -> Axis | None:
    """The axis that `pack` took apart."""
    if described is None:
        return None
    coords: dict[str, Array] = {}
    for k, (dim, kind) in enumerate(zip(described["dims"], described["coords"], strict=True)):
        if kind == "numbers":
            coords[dim] = arrays[str(k)]
        elif kind == "text":
            text, ends = arrays[f"{k}/text"].tobytes(), arrays[f"{k}/ends"].tolist()
            starts = [0, *ends[:-1]]
            pieces = [text[a:b].decode() for a, b in zip(starts, ends, strict=True)]
            coords[dim] = np.array(pieces, dtype=object)
        elif kind is not None:
            coords[dim] = arrays[str(k)].astype(kind)
    return Axis(tuple(described["dims"]), tuple(described["shape"]), coords)
