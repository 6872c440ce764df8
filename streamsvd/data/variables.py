"""Several variables at once: a list of DataArrays, or a Dataset, of the same samples.

Features are those of all variables, one after the other; each variable keeps its own dimensions.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.data_arrays import open_data_array
from streamsvd.data.labels import Axis, Joined
from streamsvd.data.source import Described, Source, check_matrix, is_a
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask
from streamsvd.sizes import STRIP_BYTES


def are_variables(x: Any) -> bool:
    """Whether it is a list, or a tuple, in which a DataArray is."""
    return isinstance(x, list | tuple) and any(is_a(one, "xarray", "DataArray") for one in x)


def open_variables(x: Any, ask: Ask, fitted: Ask) -> Source:
    """A list of DataArrays; those without a name are called by their places, ``"0"``."""
    strange = [type(one).__name__ for one in x if not is_a(one, "xarray", "DataArray")]
    if strange:
        raise SourceError(f"the list holds {strange[0]} beside DataArrays: make it one, or drop it")
    names = [str(k if one.name is None else one.name) for k, one in enumerate(x)]
    return _joint(names, x, ask, fitted)


def open_dataset(x: Any, ask: Ask, fitted: Ask) -> Source:
    """All variables of a Dataset."""
    if not x.data_vars:
        raise SourceError("the Dataset has no variables")
    asked = ask.sample_dim if ask.sample_dim is not None else fitted.sample_dim
    wanted = {asked} if isinstance(asked, str) else set(asked or ())
    strange = [str(name) for name, one in x.data_vars.items() if wanted - set(one.dims)]
    if 0 < len(strange) < len(x.data_vars):
        raise OptionError(
            f"{', '.join(map(repr, strange))} of the Dataset have no dimension "
            f"{', '.join(map(repr, sorted(wanted)))}: pass the variables that do, ds[[...]]"
        )
    return _joint(list(map(str, x.data_vars)), x.data_vars.values(), ask, fitted)


def _joint(names: list[str], arrays: Iterable[Any], ask: Ask, fitted: Ask) -> Source:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise OptionError(f"several variables are called {min(twice)!r}: rename() them")
    opened = (open_data_array(one, ask, fitted) for one in arrays)
    return Joint(dict(zip(names, opened, strict=True)))


class Joint(Source):
    """A `Source` of the features of several others, which have the same samples.

    Strips are read from one after the other. Refuses samples that are not called the same.
    """

    def __init__(self, parts: Mapping[str, Source]) -> None:
        self._parts = list(parts.values())
        name = f"the variables {', '.join(map(repr, parts))}"
        first = self._parts[0]
        for called, part in parts.items():
            _check_aligned(first, part, f"{next(iter(parts))!r}", f"{called!r}")
        self._ends = np.cumsum([part.n_features for part in self._parts])
        shape = (int(self._ends[-1]), first.n_samples)
        dtype = np.result_type(*(part.dtype for part in self._parts))
        check_matrix(dtype, shape, name)
        axis = first.sample_axis
        described = Described(dtype, shape if axis else shape[::-1])
        chunk = math.lcm(*(part.chunk for part in self._parts))
        if chunk > first.n_samples or 8 * chunk * shape[0] > STRIP_BYTES:
            chunk = max(part.chunk for part in self._parts)
        super().__init__(described, axis, name, chunk)
        axes = [part.features for part in self._parts]
        self.features = Joined.of(dict(zip(parts, axes, strict=True)))  # type: ignore[arg-type]
        self.samples = first.samples

    @property
    def bytes_read(self) -> int:
        """Of all variables."""
        return sum(part.bytes_read for part in self._parts)

    @bytes_read.setter
    def bytes_read(self, count: int) -> None:
        """Counted there."""

    def read(self, start: int, stop: int, dtype: np.dtype[Any]) -> Array:
        """Samples ``start..stop-1`` as a new C-contiguous (n, stop - start) array of `dtype`."""
        strip = np.empty((self.n_features, stop - start), dtype)
        for end, part in zip(self._ends, self._parts, strict=True):
            strip[end - part.n_features : end] = part.read(start, stop, dtype)
        return strip

    def latitudes(self) -> Array | None:
        """The latitude of each feature in degrees; None where a variable has none."""
        found = [part.latitudes() for part in self._parts]
        known = [one for one in found if one is not None]
        return np.concatenate(known) if len(known) == len(found) else None

    def why_missing(self, feature: int, sample: int) -> tuple[str, str] | None:
        """What a NaN that was read stands for, and what helps."""
        k = int(np.searchsorted(self._ends, feature, side="right"))
        first = int(self._ends[k]) - self._parts[k].n_features
        return self._parts[k].why_missing(feature - first, sample)

    def decoded_bytes(self, samples: int) -> int:
        """Bytes that reading so many samples decodes, before they are cast."""
        return sum(part.decoded_bytes(samples) for part in self._parts)


def _check_aligned(first: Source, other: Source, name: str, its: str) -> None:
    """Refuse samples that are not those of `first`: called `its` and `name`."""
    one, two = first.samples, other.samples
    assert one is not None and two is not None  # noqa: S101, PT018  (of DataArrays)
    if one.dims != two.dims:
        raise OptionError(
            f"samples of {its} have the dimension(s) {', '.join(two.dims)}, those of {name} "
            f"{', '.join(one.dims)}: variables need the same samples"
        )
    for dim, size, found in zip(one.dims, one.shape, two.shape, strict=True):
        if size != found:
            raise OptionError(
                f"{its} has {found} samples along {dim}, {name} has {size}: select those that "
                'both have, as xarray.align(..., join="inner") does'
            )
        place = _first_difference(one, two, dim)
        if place is not None:
            mine, theirs = (axis.names_along(dim)[place] for axis in (one, two))
            raise OptionError(
                f"samples of {its} are not those of {name}: at place {place} of {dim} is {theirs}, "
                f'not {mine}; select those that both have, as xarray.align(..., join="inner") does'
            )


def _first_difference(one: Axis, two: Axis, dim: str) -> int | None:
    """The first place along a dimension that is called otherwise; what has no names differs not."""
    if not all(dim in axis.coords or dim in axis.levels for axis in (one, two)):
        return None
    kinds = {axis.coords[dim].dtype.kind if dim in axis.coords else "O" for axis in (one, two)}
    if kinds <= set("biuf") or kinds in ({"M"}, {"m"}):
        a, b = one.coords[dim], two.coords[dim]
        places = np.flatnonzero((a != b) & ~((a != a) & (b != b)))
    else:
        words = (np.array(axis.names_along(dim), dtype=object) for axis in (one, two))
        places = np.flatnonzero(np.not_equal(*words))
    return int(places[0]) if len(places) else None
