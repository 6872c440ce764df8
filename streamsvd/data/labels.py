"""What the features and samples of a source are called: kept by a fit, saved with its result."""

import math
from collections.abc import Callable, Mapping
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


def unpack(
    array: Callable[[str], Array], described: dict[str, Any] | None, size: int
) -> Axis | None:
    """The axis of `size` that `pack` took apart; `array` gives the arrays by name.

    `ValueError` or `TypeError` where they do not make one.
    """
    if described is None:
        return None
    dims, shape = tuple(described["dims"]), tuple(described["shape"])
    is_named = all(isinstance(dim, str) for dim in dims)
    if not is_named or not all(type(n) is int for n in shape) or math.prod(shape) != size:
        raise ValueError(f"dimensions {dims} of shape {shape} for {size}")
    coords: dict[str, Array] = {}
    for k, (dim, count, kind) in enumerate(zip(dims, shape, described["coords"], strict=True)):
        if kind is None:
            continue
        coords[dim] = _text(array, str(k)) if kind == "text" else array(str(k))
        if coords[dim].shape != (count,):
            raise ValueError(f"{coords[dim].shape} names for {count} of {dim}")
        if kind not in ("numbers", "text"):
            coords[dim] = coords[dim].astype(_time(kind))
    return Axis(dims, shape, coords)


def _text(array: Callable[[str], Array], name: str) -> Array:
    content, ends = array(f"{name}/text").tobytes(), array(f"{name}/ends").tolist()
    starts = [0, *ends[:-1]]
    if any(a > b for a, b in zip(starts, ends, strict=True)) or ends[-1:] != [len(content)]:
        raise ValueError("pieces of text overlap")
    pieces = [content[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    return np.array(pieces, dtype=object)


def _time(kind: str) -> np.dtype[Any]:
    dtype = np.dtype(kind)
    if dtype.kind not in "mM":
        raise ValueError(f"{dtype} are no times")
    return dtype
