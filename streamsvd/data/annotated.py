"""AnnData as sources: objects of anndata, which is not imported, and groups of Zarr stores.

Observations are the samples, unless ``sample_axis=1``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.attributes import attributes_of
from streamsvd.data.labels import Axis, named
from streamsvd.data.source import Source, SparseStrips, Strips, dense, open_file, refuse_options
from streamsvd.data.zarr_nodes import check_array, open_zarr, sound
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask
from streamsvd.storage.checked import checked


def open_anndata(
    x: Any, ask: Ask, fitted: Ask, open_matrix: Callable[[Any, Ask], Source]
) -> Source:
    """An AnnData in memory, backed or lazy: `X` or a layer, which `open_matrix` opens."""
    refuse_options("an AnnData", sample_dim=ask.sample_dim)
    layer = fitted.layer if ask.layer is None else ask.layer
    name = f"{'X' if layer is None else f'layer {layer!r}'} of the AnnData"
    if layer is not None and layer not in x.layers:
        found = ", ".join(map(repr, x.layers)) or "none"
        raise OptionError(f"layer={layer!r} is not among the layers: {found}")

    def values(part: Any) -> Any:
        return part.X if layer is None else part.layers[layer]

    axis = ask.sample_axis or 0
    with open_file(name):
        asked = Ask(axis, missing_chunks=ask.missing_chunks, decode=ask.decode)
        source = _open_matrix(x, values, asked, name, open_matrix)
    both = (named("obs", x.obs_names.to_numpy()), named("var", x.var_names.to_numpy()))
    source.features, source.samples = both[1 - axis], both[axis]
    if axis == 0:
        columns = {str(key): x.var[key].to_numpy() for key in x.var.columns}
        flags = {key: found for key, found in columns.items() if found.dtype == np.dtype(bool)}
        source.columns = partial(_flags, flags, list(columns))
    return source


def _flags(flags: Mapping[str, Array], columns: Sequence[str], name: str) -> Array:
    """A column of booleans by its name; refuses any other."""
    if name not in flags:
        raise _no_flags(name, flags, name in columns)
    return flags[name]


def _no_flags(name: str, flags: Iterable[str], is_there: bool) -> OptionError:
    what = "holds no booleans, or not one for each" if is_there else "is not there"
    found = ", ".join(map(repr, flags)) or "none"
    return OptionError(f"feature_mask={name!r}: the column {what}; booleans in var: {found}")


def _open_matrix(
    x: Any,
    values: Callable[[Any], Any],
    ask: Ask,
    name: str,
    open_matrix: Callable[[Any, Ask], Source],
) -> Source:
    """The matrix that `values` takes from an AnnData."""
    axis = ask.sample_axis or 0
    if not x.is_view:
        source = open_matrix(_there(values(x)), ask)
        source.name = name
        return source

    def take(start: int, stop: int) -> Any:  # the matrix of a view would be a copy of the whole
        with open_file(name):
            return values(x[:, start:stop] if axis else x[start:stop])

    def take_dense(start: int, stop: int) -> Array:
        return dense(take(start, stop))

    first = _there(values(x[:1, :1]))
    kind = (first.dtype, x.shape, axis, name)
    is_sparse = getattr(first, "format", None) in ("csr", "csc")
    return SparseStrips(take, *kind) if is_sparse else Strips(take_dense, *kind)


def _there(matrix: Any) -> Any:
    if matrix is None:
        raise SourceError("the AnnData has no X; name one of its layers with layer=")
    return matrix


def open_anndata_group(group: Any, ask: Ask, fitted: Ask, name: str) -> Source:
    """An AnnData in a Zarr group. Names of the samples stay there: they may be many."""
    refuse_options(name, sample_dim=ask.sample_dim)
    layer = fitted.layer if ask.layer is None else ask.layer
    key = "X" if layer is None else f"layers/{layer}"
    with sound(name):
        if key not in group:
            found = ", ".join(_members(group["layers"])) if "layers" in group else ""
            kind = SourceError if layer is None else OptionError
            raise kind(f"{name} has no {key}; layer= can be one of: {found or 'none'}")
        asked = Ask(ask.sample_axis or 0, missing_chunks=ask.missing_chunks, decode=ask.decode)
        source = open_zarr(group[key], asked, Ask(), f"{name}/{key}")
        source.features = _stored_names(group, "obs" if source.sample_axis else "var", name)
        if source.sample_axis == 0 and "var" in group:
            source.columns = partial(_stored_flags, group["var"], f"{name}/var")
    if source.features is not None and len(source.features) != source.n_features:
        raise SourceError(
            f"{name} is not whole: {len(source.features)} names for {source.n_features} features"
        )
    return source


def _stored_flags(table: Any, name: str, column: str) -> Array:
    """A column of booleans of a table in a Zarr group."""
    with sound(name):
        if column not in table or not _is_bool(table[column]):
            flags = [key for key in _members(table) if _is_bool(table[key])]
            raise _no_flags(column, flags, column in table)
        node = table[column]
        check_array(node, f"{name}/{column}", Ask(missing_chunks="fill"))
        return np.asarray(checked(node, f"{name}/{column}", may_miss=True)[:])


def _is_bool(node: Any) -> bool:
    return getattr(node, "dtype", None) == np.dtype(bool)


def _members(group: Any) -> list[str]:
    """Names of what is in a group, none of a store that cannot list."""
    try:
        return sorted(group)
    except NotImplementedError:
        return []


def _stored_names(group: Any, dim: str, name: str) -> Axis | None:
    """The index of a table of AnnData, None where it cannot be read as text."""
    index = attributes_of(group[dim]).get("_index") if dim in group else None
    key = f"{dim}/{index}"
    if index is None or key not in group:
        return None
    node = group[key]
    if not hasattr(node, "dtype"):
        if "values" not in node:
            return None
        node, key = node["values"], f"{key}/values"
    if node.dtype.kind not in "TUbiuf":  # never unpickle
        return None
    check_array(node, f"{name}/{key}", Ask(missing_chunks="fill"), is_text=True)
    names = checked(node, f"{name}/{key}", may_miss=True)[:]
    return named(dim, np.asarray(names).astype(object))
