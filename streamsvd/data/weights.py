r"""Weights of features: what the variance of each counts in the analysis; and of samples, checked.

What samples weigh is told in `streamsvd.passes.weighted`.

With weights :math:`w_i > 0` the analysis is of

.. math::

    y_{ij} = \sqrt{w_i} \, (x_{ij} - m_i) / s_i ,

the data centred and scaled as asked (by samples, too), so that the variance of feature i counts
:math:`w_i` times: the total variance is :math:`\sum_i w_i \, \mathrm{var}_i`, and with the areas of
grid cells as weights, ``"coslat"``, it is an integral over the sphere. A feature of weight 2 has
the say of two features that are the same. (xeofs multiplies by its ``weights`` themselves: give it
the roots of these; its ``use_coslat`` is ``"coslat"``.) Nothing of this takes a pass or a kernel
more: weights are another scale of the features, taken from the sums in the end.

Components `u` are orthonormal unit vectors of the weighted data, scores are ``u' y``, explained
variances are theirs, and their share is that of the weighted total. A map in the units of the data
is what a score of one adds to them, ``x = m + score * pattern`` with

.. math::

    \mathrm{pattern}_i = u_i \, s_i / \sqrt{w_i} :

`streamsvd.SVDResult.patterns`; times the root of `explained_variance` it is what one standard
deviation of the score adds.
"""

import hashlib
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis
from streamsvd.data.source import Source, is_a
from streamsvd.errors import OptionError

COSLAT = "coslat"
"""The cosine of the latitude: the areas of the cells of a regular grid on the sphere."""

BEYOND = 1e-3
"""Degrees that a latitude may be rounded beyond a pole."""


def weights_of(source: Source, asked: Any) -> Array | None:
    """The weights (n,) of all features of the data, as `feature_weights` asks; checked."""
    if asked is None:
        return None
    if isinstance(asked, str):
        return _by_latitude(source, asked)
    if is_a(asked, "xarray", "DataArray"):
        weights = _aligned(source, asked, "feature")
    elif is_a(asked, "pandas", "Series"):
        weights = _by_name(source, asked)
    else:
        weights = numbers("feature_weights", asked)
    shape = None if source.features is None else source.features.shape
    if weights.shape not in ((source.n_all,), shape):
        raise OptionError(
            f"feature_weights have shape {weights.shape}; need one for each of the "
            f"{source.n_all} features of {source.name}"
        )
    weights = np.ascontiguousarray(weights.reshape(-1))
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(bad):
        remedy = ""
        if weights[bad[0]] == 0:
            remedy = "; leave a feature that counts nothing out with feature_mask="
        raise OptionError(
            f"feature_weights must be finite and above 0; got {weights[bad[0]]:g} for feature "
            f"{bad[0]}{remedy}"
        )
    return weights


def sample_weights_of(source: Source, asked: Any) -> Array | None:
    """The weights (N,) of the samples of a source, as `sample_weights` asks; checked."""
    if asked is None:
        return None
    values = asked
    if is_a(asked, "xarray", "DataArray"):
        values = _aligned(source, asked, "sample").reshape(-1)
    elif is_a(asked, "pandas", "Series"):
        values = asked.to_numpy()
    weights = numbers("sample_weights", values)
    if weights.shape != (source.n_samples,):
        raise OptionError(
            f"sample_weights have shape {weights.shape}; need one for each of the "
            f"{source.n_samples} samples of {source.name}"
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise OptionError(
            f"sample_weights must be finite and not negative; got {weights[bad[0]]:g} for sample "
            f"{bad[0]}"
        )
    if not weights.any():
        raise OptionError("sample_weights are all zero: no sample counts; give those that do 1")
    if not weights.sum() > 1:
        raise OptionError(
            f"sample_weights add up to {weights.sum():g}; they say how many times each sample is "
            "there, and need to add up to more than 1: multiply them by the number of samples"
        )
    return np.ascontiguousarray(weights)


def record_of(asked: Any, weights: Array | None) -> str | None:
    """What settings say of weights: the word, or a digest of the numbers."""
    if weights is None:
        return None
    if isinstance(asked, str):
        return asked
    return f"sha256 {hashlib.sha256(weights.astype('<f8').tobytes()).hexdigest()[:16]}"


def numbers(name: str, asked: Any) -> Array:
    """Weights as float64 numbers; refuses what are none."""
    try:
        array = np.asarray(asked)
        is_real = array.dtype.kind in "biuf"
    except ValueError:  # rows of several lengths
        is_real = False
    if not is_real or np.ma.is_masked(asked):
        raise OptionError(f"{name} must be an array of real numbers; got {_short(asked)}")
    return array.astype(np.float64)


def _short(asked: Any) -> str:
    text = " ".join(repr(asked).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _by_latitude(source: Source, asked: str) -> Array:
    if asked != COSLAT:
        raise OptionError(
            f'feature_weights must be an array, a DataArray or "{COSLAT}"; got {asked!r}'
        )
    latitude = source.latitudes()
    if latitude is None:
        raise OptionError(
            f'feature_weights="{COSLAT}" needs a latitude, and {source.name} has none: there '
            "is one where a coordinate of the features has the standard_name latitude, units of "
            "degrees_north or the name lat or latitude; else pass the weights as an array"
        )
    bad = np.flatnonzero(~(np.abs(latitude) <= 90 + BEYOND))  # also NaN
    if len(bad):
        raise OptionError(
            f"the latitude of feature {bad[0]} of {source.name} is {latitude[bad[0]]:g}; need "
            "degrees from -90 to 90"
        )
    # at a pole the cosine is 6e-17, of an angle that is rounded: a cell of next to no area
    return np.asarray(np.cos(np.radians(np.clip(latitude, -90.0, 90.0))))


def _aligned(source: Source, asked: Any, of: str) -> Array:
    """A DataArray over some dimensions of the features or samples, along all of them."""
    axis, name = (source.features if of == "feature" else source.samples), f"{of}_weights"
    dims = tuple(map(str, asked.dims))
    if axis is None or not set(dims) <= set(axis.dims):
        known = "no names" if axis is None else f"{', '.join(map(repr, axis.dims))}"
        raise OptionError(
            f"{name} have the dimension(s) {', '.join(map(repr, dims))}, and the {of}s of "
            f"{source.name} have {known}: rename them, or pass an array"
        )
    for k, dim in enumerate(dims):
        size = axis.shape[axis.dims.index(dim)]
        if asked.shape[k] != size:
            raise OptionError(
                f"{name} have {asked.shape[k]} values along {dim!r}, and {source.name} has "
                f"{size}: select the same"
            )
        _refuse_other_places(source, axis, dim, asked, name)
    return axis.spread(numbers(name, asked.values), dims)


def _refuse_other_places(source: Source, axis: Axis, dim: str, asked: Any, name: str) -> None:
    """Along one dimension, where both say what is where."""
    if dim not in axis.coords or dim not in asked.coords:
        return
    mine, its = np.asarray(axis.coords[dim]), np.asarray(asked.coords[dim].values)
    other = np.flatnonzero(mine != its)
    if len(other):
        k = other[0]
        raise OptionError(
            f"{name} are of other places along {dim!r} than {source.name}: {k} is {its[k]}, not "
            f"{mine[k]}; select or interpolate them to the same"
        )


def _by_name(source: Source, asked: Any) -> Array:
    """A Series by the names of the features, where both have some."""
    names = None if source.features is None else source.features.names
    if names is None or is_a(asked.index, "pandas", "RangeIndex"):
        return numbers("feature_weights", asked.to_numpy())
    index = asked.index.astype(str)
    places = index.get_indexer(names) if index.is_unique else np.full(len(names), -1)
    lost = names[places < 0]
    if len(lost) or len(index) != len(names):
        which = f"; {lost[0]!r} has none" if len(lost) else ""
        raise OptionError(
            f"feature_weights have {len(index)} names, which are not those of the {len(names)} "
            f"features of {source.name}{which}: give one weight by the name of each"
        )
    return numbers("feature_weights", asked.to_numpy())[places]
