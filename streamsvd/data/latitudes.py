"""Which coordinate of the features is their latitude, as CF says it or by its name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.errors import OptionError

NAMES = ("lat", "latitude")
"""What latitudes are called, in any case of letters."""

LATITUDES = (
    ("standard_name", ("latitude",)),
    ("units", ("degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen")),
    ("", NAMES),
)
"""What tells the coordinate of latitudes, best first: an attribute (CF), or its name."""


def which(attributes: Mapping[Any, Mapping[str, Any]], name: str) -> Any:
    """Which of some coordinates, given by name with their attributes, is the latitude, if any.

    Refuses the data called `name` where several are.
    """
    for attribute, words in LATITUDES:
        found = [
            key
            for key, said in attributes.items()
            if str(said.get(attribute, "") if attribute else key).lower() in words
        ]
        if len(found) > 1:
            raise OptionError(
                f"{name} has several coordinates of latitude: {', '.join(map(repr, found))}; drop "
                "all but one"
            )
        if found:
            return found[0]
    return None


def at_each_place(axis: Axis, values: Array, dims: Sequence[str]) -> Array:
    """A coordinate along some dimensions of an axis as numbers at all of its places, (n,)."""
    return np.ascontiguousarray(axis.spread(values.astype(np.float64), dims).reshape(-1))


def latitudes_along(
    axis: Axis | None, attributes_of: Callable[[str], Mapping[str, Any]], name: str
) -> Array | None:
    """The latitude at each place of an axis, (n,); None where its coordinates are none.

    `attributes_of` gives those of the coordinate along a dimension; dimensions that were stacked
    have levels instead, which are known by their names.
    """
    if axis is None:
        return None
    values = {(dim, dim): found for dim, found in axis.coords.items()}
    for dim, levels in axis.levels.items():
        values |= {(dim, one.name): one.values[one.codes] for one in levels}
    numbers = {key: found for key, found in values.items() if found.dtype.kind in "iuf"}
    said = {key: attributes_of(dim) if dim == key else {} for dim, key in numbers}
    key = which(said, name)
    if key is None:
        return None
    dim = next(dim for dim, called in numbers if called == key)
    return at_each_place(axis, numbers[dim, key], (dim,))
