"""Results in the containers of other libraries: pandas, xarray, AnnData."""

import importlib
import os
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.data.kinds import open_data
from streamsvd.data.labels import Axis, Joined, Level
from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.options import Ask
from streamsvd.result.bars import Top
from streamsvd.storage.outputs import changed_group


def top_features(result: Any, k: int) -> list[list[tuple[str | int, float]]]:
    """See `SVDResult.top_features`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise OptionError(f"k must be an integer of at least 1; got {k!r}")
    names = result.feature_names
    tops = [Top.of(result, c, int(k)) for c in range(result.n_components)]
    return [
        [
            (place if names is None else str(names[place]), loading)
            for place, loading in zip(top.places.tolist(), top.values.tolist(), strict=True)
        ]
        for top in tops
    ]


def to_dataframe(result: Any) -> Any:
    """See `SVDResult.to_dataframe`."""
    pandas = imported("pandas")
    axis, names = result.features, result.feature_names
    if names is None:
        index = pandas.RangeIndex(result.n_features, name="feature")
    elif len(axis.dims) > 1 and all(dim in axis.coords for dim in axis.dims):
        index = pandas.MultiIndex.from_product([axis.coords[d] for d in axis.dims], names=axis.dims)
    else:
        index = pandas.Index(names, name="feature")
    columns = pandas.RangeIndex(result.n_components, name="component")
    return pandas.DataFrame(result.map_of_components().T, index, columns)


def to_xarray(result: Any, source: Source | None) -> Any:
    """See `SVDResult.to_xarray`; `source` holds samples whose scores are wanted."""
    xarray = imported("xarray")
    variables = _apart(result.features)
    taken = {name for axis in variables.values() for name in axis.taken}
    samples = None if source is None else source.samples
    if samples is not None:
        shared = taken & samples.taken
        if shared:
            raise OptionError(
                f"samples have the dimension {', '.join(sorted(shared))}, as the features; rename "
                "it"
            )
        taken = taken | samples.taken

    def ours(name: str) -> str:
        """Names of the data are kept, and ours get out of the way."""
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    component = ours("component")
    variables = variables or {"": Axis((ours("feature"),), (result.n_features,))}
    of_features = {
        "components": result.map_of_components(),
        "mean": result.mean,
        "scale": result.scale,
    }
    if result.feature_weights is not None:
        patterns = result.patterns.toarray()
        patterns[:, result.left_out] = np.nan
        of_features |= {"patterns": patterns, "feature_weights": result.feature_weights}
    parts: dict[str, tuple[tuple[str, ...], Array]] = {}
    first = 0
    for suffix, axis in variables.items():
        last = first + len(axis)
        for name, values in of_features.items():
            part = values[..., first:last]
            dims = (*(component,)[: part.ndim - 1], *axis.dims)
            parts[ours(name + suffix)] = dims, part.reshape(*part.shape[:-1], *axis.shape)
        first = last
    axes = [*variables.values()]
    if source is not None:
        samples = samples or Axis((ours("sample"),), (source.n_samples,))
        scores = result.transform(source)
        scores = scores if source.sample_axis else scores.T
        parts[ours("scores")] = (component, *samples.dims), scores.reshape(-1, *samples.shape)
        axes.append(samples)
    for name in ("explained_variance", "explained_variance_ratio", "singular_values"):
        parts[ours(name)] = (component,), getattr(result, name)
    coords = {component: np.arange(result.n_components)}
    for axis in axes:
        coords |= axis.coords
    attributes = {"n_samples": result.n_samples, "fill": result.fill}
    made = xarray.Dataset(parts, coords, attributes)
    for axis in axes:
        for dim, levels in axis.levels.items():
            made = made.assign_coords(_stacked(xarray, dim, levels))
    return made


def _apart(features: Axis | None) -> dict[str, Axis]:
    """The axis of each variable, by what its name adds to ours, for one Dataset to hold all.

    A dimension or level that is another one in an earlier variable has the name of the variable
    added; later ones that have the same dimension share it.
    """
    if not isinstance(features, Joined):
        return {} if features is None else {"": features}
    made: dict[str, Axis] = {}
    known: dict[str, list[tuple[Any, dict[str, str]]]] = {}  # what it was, and is called
    used: set[str] = set()
    for variable, axis in features.parts.items():
        suffix = f"_{variable}"
        names: dict[str, str] = {}
        for dim in axis.dims:
            here, before = axis.along(dim), known.setdefault(dim, [])
            called = next((one for was, one in before if was == here), None)
            if called is None:
                levels = [level.name for level in axis.levels.get(dim, ())]
                called = {name: _free(name, suffix, used) for name in (dim, *levels)}
                before.append((here, called))
            names |= called
        made[suffix] = axis.renamed(names)
        used |= made[suffix].taken
    return made


def _free(name: str, suffix: str, used: set[str]) -> str:
    while name in used:
        name += suffix
    return name


def _stacked(xarray: Any, dim: str, levels: tuple[Level, ...]) -> Any:
    """The coordinates of a dimension that was stacked, for `unstack` to undo it."""
    names, values, codes = zip(*levels, strict=True)
    index = imported("pandas").MultiIndex(values, codes, names=names)
    return xarray.Coordinates.from_pandas_multiindex(index, dim)


def to_anndata(result: Any, adata: Any, key: str) -> Any:
    """See `SVDResult.to_anndata`."""
    if isinstance(adata, str | os.PathLike):
        return _to_stored_anndata(result, adata, key)
    places = _places(result, adata)
    _refuse_others(adata.uns.get(key), f"X_{key}" in adata.obsm, key)
    seen = adata if places is None else adata[:, places]
    loadings = result.components.T.tocsr()
    if places is not None:
        rows = np.repeat(places, np.diff(loadings.indptr))
        entries = (loadings.data, (rows, loadings.indices))
        loadings = sparse.csr_array(entries, shape=(adata.n_vars, result.n_components))
    adata.obsm[f"X_{key}"] = result.transform(seen)
    name, values = _loadings(loadings, key)
    adata.varm[name] = values
    adata.uns[key] = _described(result)
    return adata


def _to_stored_anndata(result: Any, path: str | os.PathLike[str], key: str) -> Any:
    write = imported("anndata").io.write_elem
    was = Ask.as_recorded(result.settings)
    source = open_data(path, Ask(layer=was.layer, decode=was.decode))
    result.check_features(source)
    with changed_group(path) as group:
        _refuse_others(group.get(f"uns/{key}"), f"obsm/X_{key}" in group, key)
    elements = {
        "obsm": (f"X_{key}", result.transform(source)),
        "varm": _loadings(result.components.T, key),
        "uns": (key, _described(result)),
    }
    with changed_group(path) as group:
        for part, (name, value) in elements.items():
            if part not in group:
                write(group, part, {})
            write(group[part], name, value)
    return path


def _loadings(loadings: Any, key: str) -> tuple[str, Any]:
    """The name in `varm`, and what goes there: where and as Scanpy's pictures of PCA read them.

    They show other features of a sparse matrix (scanpy 1.11).
    """
    if key == "pca":
        return "PCs", loadings.toarray()
    return key, sparse.csr_matrix(loadings)  # older AnnData write no sparse arrays


def _refuse_others(described: Any, is_there: bool, key: str) -> None:
    """Refuse to replace what is no result of ours, by what `_described` writes."""
    is_ours = hasattr(described, "get") and "streamsvd" in described.get("params", ())
    if is_there and not is_ours:
        raise OptionError(
            f"the AnnData has another PCA in obsm['X_{key}']; delete that, or pass another key= to "
            "write beside it, such as key='sparse_pca'"
        )


def _described(result: Any) -> dict[str, Any]:
    """What goes to `uns`."""
    return {
        "variance": result.explained_variance,
        "variance_ratio": result.explained_variance_ratio,
        "params": {k: v for k, v in result.settings.items() if v is not None},
    }


def _places(result: Any, adata: Any) -> Any:
    """Where the features of the fit are among the variables; None when they are all of them."""
    names = result.feature_names
    if names is None or (len(names) == adata.n_vars and np.all(names == adata.var_names)):
        return None
    places = adata.var_names.get_indexer(names)
    lost = names[places < 0]
    if len(lost):
        raise OptionError(
            f"{len(lost)} feature(s) of the fit are not among the variables of the AnnData: "
            f"{', '.join(lost[:5])}"
        )
    return places


def imported(package: str) -> Any:
    """A package that is not needed by anything else; refuses where it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise OptionError(f"this needs {package}: pip install {package}") from error
