"""Results in the containers of other libraries: xarray, AnnData."""

import importlib
import os
from typing import Any

import numpy as np
from scipy import sparse

from streamsvd.data.kinds import open_data
from streamsvd.data.labels import Axis
from streamsvd.data.source import Source
from streamsvd.errors import OptionError
from streamsvd.options import Ask
from streamsvd.storage.outputs import changed_group


def to_xarray(result: Any, source: Source | None) -> Any:
    """See `SVDResult.to_xarray`; `source` holds samples whose scores are wanted."""
    xarray = imported("xarray")
    features = result.features or Axis(("feature",), (result.n_features,))
    parts = {
        "components": (result.map_of_components(), features),
        "mean": (result.mean, features),
        "scale": (result.scale, features),
    }
    if result.feature_weights is not None:
        patterns = result.patterns.toarray()
        patterns[:, result.left_out] = np.nan
        parts |= {"patterns": (patterns, features)}
        parts |= {"feature_weights": (result.feature_weights, features)}
    coords = {"component": np.arange(result.n_components), **features.coords}
    if source is not None:
        samples = source.samples or Axis(("sample",), (source.n_samples,))
        shared = {"component", *features.dims} & set(samples.dims)
        if shared:
            raise OptionError(
                f"samples have the dimension {', '.join(sorted(shared))}, as the features or the "
                "components; rename it"
            )
        scores = result.transform(source)
        parts["scores"] = (scores if source.sample_axis else scores.T, samples)
        coords |= samples.coords
    variables = {
        name: (
            (*("component",)[: values.ndim - 1], *axis.dims),
            values.reshape(*values.shape[:-1], *axis.shape),
        )
        for name, (values, axis) in parts.items()
    }
    for name in ("explained_variance", "explained_variance_ratio", "singular_values"):
        variables[name] = (("component",), getattr(result, name))
    return xarray.Dataset(variables, coords, {"n_samples": result.n_samples, "fill": result.fill})


def to_anndata(result: Any, adata: Any, key: str) -> Any:
    """See `SVDResult.to_anndata`."""
    if isinstance(adata, str | os.PathLike):
        return _to_stored_anndata(result, adata, key)
    places = _places(result, adata)
    seen = adata if places is None else adata[:, places]
    loadings = result.components.T.tocsr()
    if places is not None:
        rows = np.repeat(places, np.diff(loadings.indptr))
        entries = (loadings.data, (rows, loadings.indices))
        loadings = sparse.csr_array(entries, shape=(adata.n_vars, result.n_components))
    adata.obsm[f"X_{key}"] = result.transform(seen)
    adata.varm[key] = sparse.csr_matrix(loadings)  # older AnnData write no sparse arrays
    adata.uns[key] = _described(result)
    return adata


def _to_stored_anndata(result: Any, path: str | os.PathLike[str], key: str) -> Any:
    write = imported("anndata").io.write_elem
    was = Ask.as_recorded(result.settings)
    source = open_data(path, Ask(layer=was.layer, decode=was.decode))
    result.check_features(source)
    elements = {
        "obsm": (f"X_{key}", result.transform(source)),
        "varm": (key, sparse.csr_matrix(result.components.T)),
        "uns": (key, _described(result)),
    }
    with changed_group(path) as group:
        for part, (name, value) in elements.items():
            if part not in group:
                write(group, part, {})
            write(group[part], name, value)
    return path


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
