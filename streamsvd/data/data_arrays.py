"""Arrays with named dimensions, of xarray, as sources; xarray itself is not imported."""

from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis, Level, levels_of
from streamsvd.data.latitudes import at_each_place, which
from streamsvd.data.layout import Layout
from streamsvd.data.source import Source, dense, refuse_options
from streamsvd.data.strips import Strips
from streamsvd.errors import OptionError
from streamsvd.options import Ask


class DataArrayStrips(Strips):
    """Samples of a DataArray, which tells where its features are."""

    data_array: Any
    feature_dims: tuple[Any, ...]

    def latitudes(self) -> Array | None:
        """The latitude of each feature in degrees, (n,); None where they are at none."""
        x, dims = self.data_array, self.feature_dims
        there = {k: c for k, c in x.coords.items() if c.dims and set(c.dims) <= set(dims)}
        found = which({name: c.attrs for name, c in there.items()}, self.name)
        if found is None:  # a level of dimensions that were stacked, perhaps
            return super().latitudes()
        assert self.features is not None  # noqa: S101  (of a DataArray they have dimensions)
        coordinate = there[found]
        return at_each_place(self.features, coordinate.values, tuple(map(str, coordinate.dims)))


# ------------------------------------------------------------------------- named dimensions


def open_data_array(x: Any, ask: Ask, fitted: Ask) -> Source:
    """An xarray.DataArray of any number of dimensions: those not of the samples are features."""
    name = f"the DataArray {x.name!r}" if x.name is not None else "the DataArray"
    refuse_options(name, layer=ask.layer)
    sample_dims = _sample_dims(x, ask, fitted, name)
    feature_dims = tuple(dim for dim in x.dims if dim not in sample_dims)
    if not feature_dims:
        raise OptionError(f"sample_dim={ask.sample_dim!r} leaves no dimension for the features")
    layout = Layout(x.shape, tuple(map(x.dims.index, sample_dims)))
    lead, axis = sample_dims[0], layout.sample_axis

    def take(start: int, stop: int) -> Array:
        part = x.isel({lead: layout.index(start, stop)[layout.lead]}).data
        part = part.compute() if hasattr(part, "compute") else part  # may have masks
        strip = layout.strip(dense(part), start, stop)
        return strip if axis else strip.T

    stored = x.chunksizes.get(lead) or [x.encoding.get("preferred_chunks", {}).get(lead, 1)]
    chunk = min(max(stored), x.sizes[lead]) * layout.inner
    source = DataArrayStrips(take, x.dtype, layout.matrix_shape, axis, name, chunk)
    source.features, source.samples = (_axis_of(x, dims) for dims in (feature_dims, sample_dims))
    source.data_array, source.feature_dims = x, feature_dims
    return source


def _sample_dims(x: Any, ask: Ask, fitted: Ask, name: str) -> tuple[str, ...]:
    asked = ask.sample_dim
    if asked is None and ask.sample_axis is None:
        asked = fitted.sample_dim
    if asked is None:
        axis = fitted.sample_axis if ask.sample_axis is None else ask.sample_axis
        if axis is None or x.ndim != 2:
            raise OptionError(
                f"{name} has the dimensions {', '.join(map(repr, x.dims))}: name that of the "
                "samples, or several, with sample_dim="
            )
        return (x.dims[axis],)
    if ask.sample_axis is not None and ask.sample_dim is not None:
        raise OptionError("pass sample_axis= or sample_dim=, not both")
    dims = (asked,) if isinstance(asked, str) else tuple(asked)
    strange = [dim for dim in dims if dim not in x.dims]
    if strange or not dims or len(set(dims)) < len(dims):
        raise OptionError(
            f"sample_dim={asked!r} must be among the dimensions of {name}: "
            f"{', '.join(map(repr, x.dims))}"
        )
    return dims


def _axis_of(x: Any, dims: tuple[str, ...]) -> Axis:
    coords: dict[str, Array] = {}
    levels: dict[str, tuple[Level, ...]] = {}
    for dim in dims:
        index = getattr(x.xindexes.get(dim), "index", None)
        if hasattr(index, "levels"):
            levels[str(dim)] = levels_of(index, str(dim))
        elif dim in x.coords:
            coords[str(dim)] = np.asarray(x.coords[dim].values)
    shape = tuple(x.sizes[dim] for dim in dims)
    return Axis(tuple(map(str, dims)), shape, coords, levels)
