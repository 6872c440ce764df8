"""Which coordinate of the features is their latitude, as CF says it or by its name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.errors import OptionError

LATITUDES = (
    ("standard_name", ("latitude",)),
    ("units", ("degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen")),
    ("", ("lat", "latitude")),
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


def along_all(
    values: Array, along: Sequence[Any], dims: Sequence[Any], sizes: Sequence[int]
) -> Array:
    """A coordinate along some dimensions, ``along``, at each place of all `dims`: (n,)."""
    order = sorted(range(len(along)), key=lambda k: dims.index(along[k]))
    values = np.asarray(values, dtype=np.float64).transpose(order)
    shape = [size if dim in along else 1 for dim, size in zip(dims, sizes, strict=True)]
    return np.ascontiguousarray(np.broadcast_to(values.reshape(shape), sizes).reshape(-1))


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
    return along_all(numbers[dim, key], (dim,), axis.dims, axis.shape)
