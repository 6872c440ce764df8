"""Coordinates along the dimensions of a Zarr array, from the group that it is in.

As xarray writes them: one-dimensional arrays beside it, each called as its dimension. They are
labels alone: what is not there, or cannot be told, is left out. What is there and damaged is an
error that names it.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from zarr.storage import LocalStore

from streamsvd.arrays import Array
from streamsvd.data.attributes import attributes_of, packing_attributes
from streamsvd.data.labels import Axis
from streamsvd.data.packing import packing_of
from streamsvd.errors import SourceError, StreamSVDError
from streamsvd.storage.checked import RegularFiles, checked
from streamsvd.storage.codecs import refuse_unsafe

MOST_LABELS = 10**6
"""Longer dimensions, which may be those of the samples, stay without coordinates."""

NANOSECONDS = {
    "nanosecond": 1,
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
}
"""Of the units of times, without an s."""

SINCE = re.compile(
    r"(?P<unit>[a-z]+?)s? since (?P<year>\d{1,4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.0*)?)?)?"
    r" ?(?:Z|UTC|\+?00:?00)?",
    re.IGNORECASE,
)
"""Units of CF times in UTC."""

CALENDARS = ("standard", "gregorian", "proleptic_gregorian")
"""Those that have the days of `numpy.datetime64`, from `FIRST_YEAR` on."""

FIRST_YEAR = 1678
"""Nanoseconds in 64 bits begin in the year before."""


def axis_of(array: Any, dims: tuple[str, ...], axes: tuple[int, ...], name: str) -> Axis:
    """Some axes of an array whose axes are named `dims`, with their coordinates."""
    chosen = tuple(dims[k] for k in axes)
    shape = tuple(array.shape[k] for k in axes)
    group = _group_of(array)
    coords = {}
    for dim, size in zip(chosen, shape, strict=True):
        values = None if group is None else _coordinate(group, dim, size, name)
        if values is not None:
            coords[dim] = values
    return Axis(chosen, shape, coords)


def about_coordinate(array: Any, dim: str) -> Mapping[str, Any]:
    """The attributes of the coordinate along a dimension of an array that has it."""
    return attributes_of(_group_of(array)[dim])


def _group_of(array: Any) -> Any:
    """The group that an array is in, None where there is none."""
    store, inside = array.store, array.path.rpartition("/")[0]
    if not array.path:
        above = getattr(store, "path", "").rstrip("/").rpartition("/")[0]
        if isinstance(store, LocalStore):
            store = RegularFiles(store.root.parent, read_only=True)
        elif hasattr(store, "fs") and above:  # fsspec
            store = type(store)(store.fs, read_only=True, path=above)
        else:
            return None
    try:
        return zarr.open_group(store, path=inside, mode="r")
    except Exception:  # each store says in its own way that nothing is there
        return None


def _coordinate(group: Any, dim: str, size: int, name: str) -> Array | None:
    """The `size` coordinates along a dimension."""
    if size > MOST_LABELS or "/" in dim or dim.strip(".") == "":  # nothing but a name
        return None
    called = f"the coordinate {dim!r} of {name}"
    try:
        node = group[dim]
        is_text = node.dtype.kind in "TU"
        refuse_unsafe(node, called, is_text=is_text)
        is_one = node.shape == (size,) and (is_text or node.dtype.kind in "biufmM")
    except Exception:  # as for the group, or another kind of node, or of text that is not safe
        return None
    if not is_one:
        return None
    try:  # chunks of coordinates that are all zeros are not written
        values = np.asarray(checked(node, called, may_miss=True)[:])
    except (StreamSVDError, MemoryError):
        raise
    except Exception as error:  # each codec raises its own kinds
        raise SourceError(
            f"{called} cannot be read: {type(error).__name__}: {error}; restore it"
        ) from error
    if is_text:
        return values.astype(object)
    if node.dtype.kind in "mM":
        return values
    packing = packing_of(packing_attributes(node), node.dtype, called)
    values = values if packing is None else packing.decode(values)
    times = times_of(values, attributes_of(node))
    return values if times is None else times


def times_of(values: Array, attributes: dict[str, Any]) -> Array | None:
    """CF times as ``datetime64[ns]``; None of what are none, or are of another calendar."""
    units, calendar = attributes.get("units"), attributes.get("calendar", "standard")
    found = SINCE.fullmatch(units.strip()) if isinstance(units, str) else None
    if found is None or str(calendar).lower() not in CALENDARS or values.dtype.kind not in "iuf":
        return None
    step = NANOSECONDS.get(found["unit"].lower())
    date = [int(found[part] or 0) for part in ("year", "month", "day", "hour", "minute", "second")]
    if step is None or date[0] < FIRST_YEAR:
        return None
    try:
        day = np.datetime64(f"{date[0]:04}-{date[1]:02}-{date[2]:02}", "D")
    except ValueError:
        return None
    base = int(day.astype(np.int64)) * NANOSECONDS["day"]
    base += (date[3] * 3600 + date[4] * 60 + date[5]) * NANOSECONDS["second"]
    about = base + values.astype(np.float64) * step
    if not np.all(np.isnan(about) | (np.abs(about) < 2**63 - 2**12)):  # beyond 64 bits
        return None
    gaps = np.isnan(about)
    if values.dtype.kind == "f":
        whole = np.floor(np.where(gaps, 0, values))
        rest = np.round((np.where(gaps, 0, values) - whole) * step).astype(np.int64)
        stamps = whole.astype(np.int64) * step + rest + base
    else:
        stamps = values.astype(np.int64) * step + base
    times = stamps.astype("M8[ns]")
    times[gaps] = np.datetime64("NaT", "ns")
    return times
