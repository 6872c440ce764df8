"""Which features take part in a fit: what `feature_mask` says, as one boolean a feature."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.chosen import masked
from streamsvd.data.labels import Axis
from streamsvd.data.source import Source, is_a, turned
from streamsvd.errors import OptionError

SHOWN = 5
"""Names that an error lists."""


def taking_part(source: Source, asked: Any) -> Source:
    """A source with the features alone that `feature_mask` says; itself where that is None.

    Also itself where the question was asked before.
    """
    if asked is None or source.mask is not None:
        return source
    return masked(source, mask_of_features(source, asked))


def mask_of_features(source: Source, asked: Any) -> Array:
    """`feature_mask` as an array of bool, one for each feature of the source.

    Parameters
    ----------
    asked : array of bool, DataArray, Series, sequence of names, or str
        See `streamsvd.sparse_svd`.

    Raises
    ------
    OptionError
        What is no mask of these features, with the remedy.
    """
    if isinstance(asked, str):
        mask = _column(source, asked)
    elif is_a(asked, "xarray", "DataArray"):
        mask = _of_data_array(source, asked)
    elif is_a(asked, "pandas", "Series") and not is_a(asked.index, "pandas", "RangeIndex"):
        mask = _of_series(source, asked)
    else:
        mask = _of_array(source, asked)
    if not mask.any():
        raise OptionError(
            f"feature_mask leaves none of the {source.n_features} features of {source.name}: it is "
            "True for those that take part"
        )
    return mask


def described(mask: Array | None) -> str | None:
    """A mask for the record: how many features it has, and a digest that tells it from others."""
    if mask is None:
        return None
    digest = hashlib.sha256(np.packbits(mask).tobytes()).hexdigest()[:16]
    return f"{np.count_nonzero(mask)} of {len(mask)} features, sha256 {digest}"


def _column(source: Source, name: str) -> Array:
    if source.columns is None:
        raise OptionError(
            f"feature_mask={name!r} is a column of the var of an AnnData, and {source.name} has "
            f"none: pass one boolean a feature, or a list of names, such as [{name!r}]"
        )
    return _sized(source, source.columns(name))


def _of_array(source: Source, asked: Any) -> Array:
    """Booleans, one for each feature, or names."""
    is_lazy = hasattr(asked, "compute")
    found = np.asarray(asked.compute() if is_lazy else asked)
    if isinstance(asked, np.ma.MaskedArray) and np.ma.is_masked(asked):
        raise OptionError("feature_mask has masked entries: fill them with True or False")
    is_text = found.dtype.kind in "UT" or _are_text(found)
    if is_text:
        return _of_names(source, [str(name) for name in found.ravel()])
    features = source.features
    if features is not None and found.ndim > 1 and found.shape == features.shape:
        found = found.ravel()
    return _sized(source, _booleans(found))


def _are_text(values: Array) -> bool:
    is_object = values.dtype.kind == "O" and values.size > 0
    return is_object and all(isinstance(value, str) for value in values.ravel())


def _booleans(found: Array) -> Array:
    if found.dtype.kind == "O" and all(isinstance(one, bool | np.bool_) for one in found.ravel()):
        return found.astype(bool)
    if found.dtype != bool:
        remedy = " (mask == 1 makes booleans of numbers)" if found.dtype.kind in "iuf" else ""
        raise OptionError(
            f"feature_mask must be booleans, one for each feature, or names; got {found.dtype}"
            f"{remedy}"
        )
    return found


def _sized(source: Source, mask: Array) -> Array:
    if mask.shape != (source.n_features,):
        raise OptionError(
            f"feature_mask has the shape {mask.shape}, but {source.name} has {source.n_features} "
            f"features{turned(source, mask.size)}"
        )
    return np.array(mask)


def _of_names(source: Source, asked: Sequence[str]) -> Array:
    names = None if source.features is None else source.features.names
    if names is None:
        raise OptionError(
            f"feature_mask names features, but those of {source.name} have no names: pass one "
            "boolean a feature"
        )
    unknown = sorted(set(asked) - set(names))
    if unknown:
        raise OptionError(
            f"{len(unknown)} name(s) of feature_mask are not among the features of {source.name}: "
            f"{_some(unknown)}"
        )
    return np.isin(names.astype(str), list(asked))


def _of_series(source: Source, asked: Any) -> Array:
    """A Series by its index, where features have names."""
    names = None if source.features is None else source.features.names
    values = _booleans(asked.to_numpy())
    if names is None:
        return _sized(source, values)
    axis = Axis(("feature",), (len(names),), {"feature": names.astype(str)})
    index = np.array([str(name) for name in asked.index])
    return values[_places(source, axis, "feature", index)]


def _of_data_array(source: Source, asked: Any) -> Array:
    """A DataArray by its dimensions and coordinates; along dimensions that it lacks, the same."""
    values = _booleans(np.asarray(asked.values))
    axis = source.features
    if axis is None and values.ndim == 1:
        return _sized(source, values)
    dims = tuple(map(str, asked.dims))
    known = () if axis is None else axis.dims
    strange = [dim for dim in dims if dim not in known]
    if axis is None or strange:
        raise OptionError(
            f"feature_mask has the dimension(s) {', '.join(map(repr, strange))}, but the features "
            f"of {source.name} have {', '.join(map(repr, known)) or 'no names of dimensions'}: "
            "rename them, or pass its values in the order of the features"
        )
    for k, dim in enumerate(dims):
        coords = np.asarray(asked.coords[asked.dims[k]]) if asked.dims[k] in asked.coords else None
        if coords is not None and dim in axis.coords:
            values = np.take(values, _places(source, axis, dim, coords), axis=k)
        elif values.shape[k] != axis.shape[axis.dims.index(dim)]:
            raise OptionError(
                f"feature_mask has the size {values.shape[k]} along {dim!r}, but {source.name} has "
                f"{axis.shape[axis.dims.index(dim)]} there"
            )
    return axis.spread(values, dims).ravel()


def _places(source: Source, axis: Axis, dim: str, coords: Array) -> Array:
    """Where the coordinates of the features along a dimension are among those of a mask."""
    wanted = axis.coords[dim]
    if len(coords) == len(wanted) and np.array_equal(coords, wanted):
        return np.arange(len(wanted))  # also where names occur twice
    place = {value: k for k, value in enumerate(coords.tolist())}
    lost = [value for value in wanted.tolist() if value not in place]
    if lost or len(place) < len(coords):
        what = f"lacks {_some(lost)}" if lost else "has coordinates twice"
        raise OptionError(
            f"feature_mask {what} along {dim!r} of the features of {source.name}; give one "
            "boolean for each"
        )
    return np.array([place[value] for value in wanted.tolist()])


def _some(names: Sequence[Any]) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + more
