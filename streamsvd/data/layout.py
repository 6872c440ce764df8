"""Arrays of any number of axes as matrices: some of the axes are samples, the others features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamsvd.arrays import Array
from streamsvd.data.source import asked_axis, refuse_options
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask


@dataclass(frozen=True)
class Layout:
    """Which axes of an array are samples, and what its blocks are as strips.

    Attributes
    ----------
    shape : tuple of int
        Of the array.
    sample_axes : tuple of int
        Axes of the samples, the last of them the fastest; the others are features, in the order in
        which they are stored.
    """

    shape: tuple[int, ...]
    sample_axes: tuple[int, ...]

    @property
    def feature_axes(self) -> tuple[int, ...]:
        """All others."""
        return tuple(k for k in range(len(self.shape)) if k not in self.sample_axes)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Of the matrix, with samples along `sample_axis`."""
        sizes = (self._size(self.feature_axes), self._size(self.sample_axes))
        return sizes if self.sample_axis else sizes[::-1]

    @property
    def sample_axis(self) -> int:
        """Of the matrix: 0 where samples come first in the array."""
        return 0 if 0 in self.sample_axes else 1

    @property
    def lead(self) -> int:
        """The axis of the samples that strips are cut along."""
        return self.sample_axes[0]

    @property
    def inner(self) -> int:
        """Samples in a slice along `lead`."""
        return self._size(self.sample_axes[1:])

    def index(self, start: int, stop: int) -> tuple[slice, ...]:
        """Where the whole slices are that hold the samples ``start..stop-1``."""
        whole = slice(start // self.inner, -(-stop // self.inner))
        return tuple(whole if k == self.lead else slice(None) for k in range(len(self.shape)))

    def strip(self, block: Array, start: int, stop: int) -> Array:
        """The samples ``start..stop-1``, (n, stop - start), of what `index` took."""
        block = block.transpose(*self.feature_axes, *self.sample_axes)
        n, first = self._size(self.feature_axes), start - start % self.inner
        return block.reshape(n, -1)[:, start - first : stop - first]

    def _size(self, axes: Sequence[int]) -> int:
        return math.prod(self.shape[k] for k in axes)


def asked_layout(
    shape: tuple[int, ...], name: str, ask: Ask, fitted: Ask, dims: tuple[str, ...]
) -> Layout:
    """How to read an array whose axes are named `dims`, or nothing.

    Of more than two axes those of the samples have to be named, or come first.
    """
    if len(shape) <= 2:
        said, was = (one._replace(sample_dim=_the_only(one.sample_dim)) for one in (ask, fitted))
        return Layout(shape, (asked_axis(name, said, was, dims),))
    refuse_options(name, layer=ask.layer)
    told = ", ".join(map(repr, dims))
    asked = ask.sample_dim
    if asked is not None and ask.sample_axis is not None:
        raise OptionError("pass sample_axis= or sample_dim=, not both")
    if asked is None and ask.sample_axis is None and _all_in(fitted.sample_dim, dims):
        asked = fitted.sample_dim
    if asked is not None:
        if not _all_in(asked, dims):
            has = f"the dimensions {told}" if dims else "no names of dimensions: pass sample_axis=0"
            raise OptionError(f"sample_dim={asked!r} is not among those of {name}, which has {has}")
        wanted = _each(asked)
        if len(wanted) == len(dims):
            raise OptionError(f"sample_dim={asked!r} leaves no dimension for the features")
        return Layout(shape, tuple(map(dims.index, wanted)))
    if (fitted.sample_axis if ask.sample_axis is None else ask.sample_axis) == 0:
        return Layout(shape, (0,))
    if dims:
        raise OptionError(
            f"{name} has the dimensions {told}: name that of the samples, or several, with "
            "sample_dim="
        )
    raise SourceError(
        f"{name} has shape {shape}; need two axes, features and samples, or names of dimensions "
        "for sample_dim=, or samples along the first axis and sample_axis=0"
    )


def _the_only(asked: Any) -> Any:
    """The name in a sequence of one, all else as it is."""
    return asked if asked is None or len(_each(asked)) != 1 else _each(asked)[0]


def _each(asked: Any) -> tuple[str, ...]:
    return (asked,) if isinstance(asked, str) else tuple(asked)


def _all_in(asked: Any, dims: tuple[str, ...]) -> bool:
    """Whether one or several names, each once, are among those of an array."""
    wanted = () if asked is None else _each(asked)
    return bool(wanted) and len(set(wanted)) == len(wanted) and set(wanted) <= set(dims)
