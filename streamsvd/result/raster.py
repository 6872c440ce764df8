"""Features that lie on a grid: the pixels of an image, or the cells of a map."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.data.latitudes import NAMES as LATITUDE_NAMES

LONGITUDES = ("lon", "long", "longitude")


ACROSS = {"x", "column", "col", "width", "easting", *LONGITUDES}
"""Dimensions that run from left to right, wherever they stand."""


DOWN = {"y", "row", "height", "northing", *LATITUDE_NAMES}
"""Dimensions that run along the other side."""


MOST_STRETCHED = 12
"""Sides of other dimensions differ by less, else they are a table rather than an image."""


@dataclass(frozen=True, eq=False)
class Raster:
    """How a vector over features becomes a picture, its first row on top.

    Attributes
    ----------
    places : (height, width) array
        The feature at each pixel.
    x, y : (width,), (height,) array, or None
        Coordinates of columns, ascending, and of rows, descending, where they are numbers.
    names : (str, str)
        What the dimensions across and down are called; empty where nobody said.
    is_globe : bool
        Whether they are longitudes and latitudes in degrees.
    """

    places: Array
    x: Array | None = None
    y: Array | None = None
    names: tuple[str, str] = ("", "")
    is_globe: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        height, width = self.places.shape
        return height, width

    @property
    def aspect(self) -> float:
        """Height over width as seen: of a map true to scale at its middle, down to 78 degrees."""
        height, width = self.shape
        if self.x is None or self.y is None:
            return height / width
        seen = _span(self.y) / _span(self.x)
        if self.is_globe:
            middle = np.radians((self.y[0] + self.y[-1]) / 2)
            seen /= max(float(np.cos(middle)), 0.2)
        return seen


def raster_of(features: Axis | None, image_shape: Sequence[int] | None = None) -> Raster | None:
    """The grid that `features` lie on: as asked for, else as their dimensions say; None if none."""
    if image_shape is not None:
        return Raster(np.arange(image_shape[0] * image_shape[1]).reshape(image_shape))
    if features is None:
        return None
    sides = [(dim, size) for dim, size in zip(features.dims, features.shape, strict=True)]
    sides = [side for side in sides if side[1] > 1]
    if len(sides) != 2:
        return None
    (down, height), (across, width) = sides
    places = np.arange(height * width).reshape(height, width)
    if down.lower() in ACROSS and across.lower() not in ACROSS:
        down, across, places = across, down, places.T
    is_known = down.lower() in DOWN or across.lower() in ACROSS
    if not is_known and max(places.shape) > MOST_STRETCHED * min(places.shape):
        return None
    x, y = _numbers(features.coords.get(across)), _numbers(features.coords.get(down))
    if x is None or y is None:
        return Raster(places, names=(across, down))
    columns, rows = np.argsort(x), np.argsort(-y)
    is_globe = down.lower() in LATITUDE_NAMES and across.lower() in LONGITUDES
    return Raster(places[np.ix_(rows, columns)], x[columns], y[rows], (across, down), is_globe)


def _numbers(values: Array | None) -> Array | None:
    """Coordinates that are places: numbers, all different, not just counted as pixels are."""
    if values is None or values.dtype.kind not in "iuf":
        return None
    places = values.astype(np.float64)
    if not np.isfinite(places).all() or len(np.unique(places)) < len(places):
        return None
    return None if np.array_equal(places, np.arange(len(places))) else places


def _span(places: Array) -> float:
    """From edge to edge of sorted cells."""
    return float(abs(places[-1] - places[0])) * len(places) / (len(places) - 1)


def edges(places: Array) -> Array:
    """(size + 1,) where cells at sorted `places` meet: half way, and as far beyond the ends."""
    middle = (places[1:] + places[:-1]) / 2
    return np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]])
