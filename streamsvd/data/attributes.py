"""What the attributes of Zarr arrays say: names of dimensions, how numbers are packed."""

from collections.abc import Mapping
from typing import Any

from streamsvd.errors import SourceError

DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute that xarray writes the names of dimensions to in Zarr 2."""


def name_of(node: Any) -> str:
    """What to call an open node in errors: by its store, unless that describes all it holds."""
    name = str(node.store_path)
    return name if "\n" not in name else f"{type(node.store).__name__}/{node.path}"


def attributes_of(node: Any) -> dict[str, Any]:
    """The attributes of an array or a group; refuses what is no mapping."""
    found = node.metadata.attributes
    if not isinstance(found, Mapping):
        raise SourceError(
            f"{name_of(node)}: its attributes are a {type(found).__name__}, not a mapping of "
            "names to values; mend them in its metadata"
        )
    return dict(found)


def packing_attributes(array: Any) -> dict[str, Any]:
    """The attributes of an array, and what xarray takes for one.

    It writes the `_FillValue` of Zarr 2 as the fill value of the array. That of arrays without
    its mark, such as the 0 that Zarr writes by itself, says nothing of what is missing.
    """
    attributes = attributes_of(array)
    is_marked = isinstance(attributes.get(DIMENSIONS), list)
    is_of_xarray = array.metadata.zarr_format == 2 and is_marked
    return attributes | ({"_FillValue": array.fill_value} if is_of_xarray else {})


def dims_of(array: Any) -> tuple[str, ...]:
    """Names of the dimensions of an array, as xarray writes them, where each has one of its own."""
    stored = getattr(array.metadata, "dimension_names", None)
    stored = stored or attributes_of(array).get(DIMENSIONS)
    if not isinstance(stored, list | tuple) or len(stored) != len(array.shape) or None in stored:
        return ()
    dims = tuple(map(str, stored))
    return dims if len(set(dims)) == len(dims) else ()
