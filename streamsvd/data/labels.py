"""What the features and samples of a source are called: kept by a fit, saved with its result."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array


class Level(NamedTuple):
    """One level of a stacked dimension, as in a MultiIndex of pandas.

    Attributes
    ----------
    name : str
        Of the dimension that was stacked.
    values : (m,) array
        What occurs along it, each once, in its order there.
    codes : (size,) int64 array
        Which of the values stands at each place; -1 for none.
    """

    name: str
    values: Array
    codes: Array


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of a matrix: the dimensions it is made of, and the coordinates along each.

    The columns of a table are one dimension; the pixels of images are two, ``("y", "x")``, the
    last of them the fastest. Pixels of which some were dropped are one dimension that was stacked:
    its coordinates are places, of as many levels.

    Attributes
    ----------
    dims : tuple of str
        Their names.
    shape : tuple of int
        Their sizes; the product is the size of the axis.
    coords : dict of str to (size,) array
        Names, positions or times along a dimension; those without any are left out.
    levels : dict of str to tuple of Level
        The same of dimensions that were stacked.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Mapping[str, Array] = field(default_factory=dict)
    levels: Mapping[str, tuple[Level, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def names(self) -> Array | None:
        """(size,) array of str: the coordinates, joined by commas where there are several.

        None when a dimension has none.
        """
        if not all(dim in self.coords or dim in self.levels for dim in self.dims):
            return None
        columns = [self.names_along(dim) for dim in self.dims]
        return np.array([",".join(place) for place in product(*columns)], dtype=object)

    @property
    def taken(self) -> set[str]:
        """All names that the axis has of its own: of dimensions and of levels."""
        return {*self.dims, *(level.name for some in self.levels.values() for level in some)}

    def spread(self, values: Array, dims: Sequence[str]) -> Array:
        """Values along some of the dimensions, in any order, at each place: of `shape`, read-only.

        They are the same along the dimensions that they lack.
        """
        order = sorted(range(len(dims)), key=lambda k: self.dims.index(dims[k]))
        sizes = [
            size if dim in dims else 1 for dim, size in zip(self.dims, self.shape, strict=True)
        ]
        return np.broadcast_to(values.transpose(order).reshape(sizes), self.shape)

    def along(self, dim: str) -> tuple[int, str]:
        """What a dimension is, to be compared: its size, and what its places are called."""
        size, said = self.shape[self.dims.index(dim)], ""
        if dim in self.coords or dim in self.levels:
            levels = [level.name for level in self.levels.get(dim, ())]
            said = repr((levels, self.names_along(dim)))
        return size, said

    def renamed(self, names: Mapping[str, str]) -> "Axis":
        """The same with other names for some of the dimensions and levels."""

        def of(levels: tuple[Level, ...]) -> tuple[Level, ...]:
            return tuple(one._replace(name=names.get(one.name, one.name)) for one in levels)

        return Axis(
            tuple(names.get(dim, dim) for dim in self.dims),
            self.shape,
            {names.get(dim, dim): values for dim, values in self.coords.items()},
            {names.get(dim, dim): of(levels) for dim, levels in self.levels.items()},
        )

    def names_along(self, dim: str) -> list[str]:
        """What the places along a dimension that has coordinates are called."""
        if dim in self.coords:
            return [str(value) for value in self.coords[dim]]
        columns = []
        for level in self.levels[dim]:
            words = [*map(str, level.values), "nan"]  # the last for a code of -1
            columns.append([words[code] for code in level.codes])
        return [",".join(place) for place in zip(*columns, strict=True)]

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


@dataclass(frozen=True, eq=False)
class Joined(Axis):
    """The features of several variables, one after the other: one dimension, without coordinates.

    Attributes
    ----------
    parts : dict of str to Axis
        Of each variable.
    """

    parts: Mapping[str, Axis] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Mapping[str, Axis]) -> "Joined":
        """Of these variables."""
        return cls(("feature",), (sum(map(len, parts.values())),), parts=parts)

    @property
    def names(self) -> Array | None:
        """(size,) array of str: the variable, and the coordinates; None when some have none."""
        found: list[str] = []
        for variable, axis in self.parts.items():
            names = axis.names
            if names is None:
                return None
            found += [f"{variable},{name}" for name in names]
        return np.array(found, dtype=object)

    @property
    def variable_of(self) -> Array:
        """(size,) array: the number of the variable that each feature is of."""
        return np.repeat(np.arange(len(self.parts)), [len(axis) for axis in self.parts.values()])

    def difference(self, other: Axis) -> str | None:
        """Also of other variables, or of as many in another order."""
        if isinstance(other, Joined):
            mine, its = (
                [f"{name!r} of {len(axis)} features" for name, axis in joined.parts.items()]
                for joined in (self, other)
            )
            if mine != its:
                return f"the variables are {', '.join(its)}, not {', '.join(mine)}"
        return super().difference(other)


def named(dim: str, names: Any) -> Axis:
    """An axis of one dimension with names, as tables have."""
    names = np.asarray(names)
    return Axis((dim,), names.shape, {dim: names})


def levels_of(index: Any, dim: str) -> tuple[Level, ...]:
    """The levels of a MultiIndex of pandas along `dim`, without values that do not occur.

    Levels without a name of their own are called as xarray does, ``dim_level_0``.
    """
    index = index.remove_unused_levels()
    names = [
        f"{dim}_level_{k}" if name is None else str(name) for k, name in enumerate(index.names)
    ]
    if len({dim, *names}) <= len(names):
        names = [f"{dim}_level_{k}" for k in range(len(names))]
    return tuple(
        Level(name, np.asarray(values), np.asarray(codes, dtype=np.int64))
        for name, values, codes in zip(names, index.levels, index.codes, strict=True)
    )


# ------------------------------------------------------------------------------------- on disk


def pack(axis: Axis | None) -> tuple[dict[str, Array], dict[str, Any] | None]:
    """Arrays of numbers, by name, and a description that is JSON; `unpack` undoes it.

    Text is held as one array of UTF-8 and the places where each piece ends, since text has no data
    type that all Zarr libraries agree on; times as integers; a stacked dimension as its levels.
    """
    if axis is None:
        return {}, None
    arrays: dict[str, Array] = {}
    if isinstance(axis, Joined):
        variables = []
        for k, (name, part) in enumerate(axis.parts.items()):
            packed, described = pack(part)
            arrays |= {f"{k}/{key}": values for key, values in packed.items()}
            variables.append({"name": name, "size": len(part), "features": described})
        return arrays, {"variables": variables}
    kinds: list[Any] = []
    for k, dim in enumerate(axis.dims):
        if dim in axis.levels:
            kinds.append([])
            for j, level in enumerate(axis.levels[dim]):
                packed, kind = _pack_values(f"{k}/level{j}", level.values)
                arrays |= {**packed, f"{k}/codes{j}": level.codes}
                kinds[-1].append({"name": level.name, "values": kind, "count": len(level.values)})
        elif dim in axis.coords:
            packed, kind = _pack_values(str(k), axis.coords[dim])
            arrays |= packed
            kinds.append(kind)
        else:
            kinds.append(None)
    return arrays, {"dims": list(axis.dims), "shape": list(axis.shape), "coords": kinds}


def _pack_values(name: str, values: Array) -> tuple[dict[str, Array], str]:
    """Arrays and the kind of the values along one dimension."""
    if values.dtype.kind in "biuf":
        return {name: values}, "numbers"
    if values.dtype.kind in "mM":
        return {name: values.astype(np.int64)}, values.dtype.str
    pieces = [str(value).encode() for value in values]
    text = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return {f"{name}/text": text, f"{name}/ends": ends}, "text"


def unpack(
    array: Callable[[str], Array], described: dict[str, Any] | None, size: int
) -> Axis | None:
    """The axis of `size` that `pack` took apart; `array` gives the arrays by name.

    `ValueError`, `KeyError` or `TypeError` where they do not make one.
    """
    if described is None:
        return None
    if "variables" in described:
        return _joined(array, described["variables"], size)
    dims, shape = tuple(described["dims"]), tuple(described["shape"])
    is_named = all(isinstance(dim, str) for dim in dims)
    if not is_named or not all(type(n) is int for n in shape) or math.prod(shape) != size:
        raise ValueError(f"dimensions {dims} of shape {shape} for {size}")
    coords: dict[str, Array] = {}
    levels: dict[str, tuple[Level, ...]] = {}
    for k, (dim, count, kind) in enumerate(zip(dims, shape, described["coords"], strict=True)):
        if isinstance(kind, list):
            levels[dim] = tuple(_level(array, k, j, told, count) for j, told in enumerate(kind))
        elif kind is not None:
            coords[dim] = _values(array, str(k), kind, count, dim)
    axis = Axis(dims, shape, coords, levels)
    if len(axis.taken) < len(dims) + sum(map(len, levels.values())):
        raise ValueError(f"dimensions or levels of one name: {sorted(axis.taken)}")
    return axis


def _joined(array: Callable[[str], Array], described: list[Any], size: int) -> Joined:
    """The variables of `size` features in all."""
    parts: dict[str, Axis] = {}
    for k, told in enumerate(described):
        part = unpack(lambda key, k=k: array(f"{k}/{key}"), told["features"], told["size"])  # type: ignore[misc]
        if part is None or not isinstance(told["name"], str) or told["name"] in parts:
            raise ValueError(f"a variable {told['name']!r}")
        parts[told["name"]] = part
    joined = Joined.of(parts)
    if len(joined) != size:
        raise ValueError(f"variables of {len(joined)} features for {size}")
    return joined


def _level(array: Callable[[str], Array], k: int, j: int, told: Any, count: int) -> Level:
    """Level `j` of dimension `k`, which has `count` places."""
    name, m = told["name"], told["count"]
    if not isinstance(name, str) or type(m) is not int:
        raise ValueError(f"a level {name!r} of {m!r} values")
    values, codes = _values(array, f"{k}/level{j}", told["values"], m, name), array(f"{k}/codes{j}")
    if codes.shape != (count,) or codes.dtype != np.int64:
        raise ValueError(f"codes are {codes.dtype}{codes.shape} for {count} of {name}")
    if codes.min(initial=0) < -1 or codes.max(initial=-1) >= m:
        raise ValueError(f"codes of {name} are not all from -1 to {m - 1}")
    if len(set(values.tolist())) < m:
        raise ValueError(f"values of {name} occur twice")
    return Level(name, values, codes)


def _values(array: Callable[[str], Array], name: str, kind: Any, count: int, dim: str) -> Array:
    """The `count` values along a dimension or level, as `_pack_values` took them apart."""
    values = _text(array, name) if kind == "text" else array(name)
    if values.shape != (count,):
        raise ValueError(f"{values.shape} names for {count} of {dim}")
    return values if kind in ("numbers", "text") else values.astype(_time(kind))


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
