"""AnnData as sources: objects of anndata, which is not imported, and groups of Zarr and HDF5.

Observations are the samples, unless ``sample_axis=1``.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.compressed import SPARSE_KINDS, SPARSE_PARTS, check_group
from streamsvd.data.hdf5 import check_unwritten
from streamsvd.data.labels import Axis, named
from streamsvd.data.selected import Selected
from streamsvd.data.source import Source, check_matrix, dense, open_file, refuse_options
from streamsvd.data.strips import SparseStrips, Strips
from streamsvd.data.turned import TurnedSource
from streamsvd.errors import OptionError, SourceError
from streamsvd.options import Ask


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
        if x.is_view and x.isbacked:
            source = _of_backed(x, values, asked, name, open_matrix)
        else:
            source = _open_matrix(x, values, asked, name, open_matrix)
    both = (named("obs", x.obs_names.to_numpy()), named("var", x.var_names.to_numpy()))
    source.features, source.samples = both[1 - axis], both[axis]
    if axis == 0:
        source.columns = partial(_flags, x.var)
    return source


def _flags(table: Any, name: str) -> Array:
    """A column of booleans of a DataFrame, as `Source.columns` gives it."""
    columns = {str(key): key for key in table.columns}
    if name not in columns or not _is_bool(table[columns[name]]):
        flags = [key for key, column in columns.items() if _is_bool(table[column])]
        raise _no_flags(name, flags, name in columns)
    return np.asarray(table[columns[name]])


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
        return _open_whole(_there(values(x)), ask, name, open_matrix)

    def take(start: int, stop: int) -> Any:  # the matrix of a view would be a copy of the whole
        with open_file(name):
            return values(x[:, start:stop] if axis else x[start:stop])

    def take_dense(start: int, stop: int) -> Array:
        return dense(take(start, stop))

    first = _there(values(x[:1, :1]))
    kind = (first.dtype, x.shape, axis, name)
    is_sparse = getattr(first, "format", None) in ("csr", "csc")
    return SparseStrips(take, *kind) if is_sparse else Strips(take_dense, *kind)


def _open_whole(
    matrix: Any, ask: Ask, name: str, open_matrix: Callable[[Any, Ask], Source]
) -> Source:
    """A matrix of samples, also one that is compressed by its features."""
    axis, kind = ask.sample_axis or 0, getattr(matrix, "format", None)
    if kind not in ("csr", "csc") or (kind == "csr") == (axis == 0):
        source = open_matrix(matrix, ask)
        source.name = name
        return source
    parts = {key: getattr(matrix, key, None) for key in SPARSE_PARTS}
    if any(part is None for part in parts.values()) or not isinstance(parts["data"], np.ndarray):
        check_unwritten(matrix, ask, name)
        parts = {key: matrix.group[key] for key in SPARSE_PARTS}
    check_matrix(np.dtype(matrix.dtype), matrix.shape, name)
    return TurnedSource(parts, matrix.shape, axis, name)


def _of_backed(
    x: Any,
    values: Callable[[Any], Any],
    ask: Ask,
    name: str,
    open_matrix: Callable[[Any, Ask], Source],
) -> Source:
    """Some of an AnnData whose `X` is in a file: AnnData does not cut that a second time."""
    try:
        whole, both = x._adata_ref, (x._oidx, x._vidx)
    except AttributeError as error:
        raise SourceError(f"{name} is a view of a file: pass its to_memory()") from error
    axis = ask.sample_axis or 0
    source = _open_whole(_there(values(whole)), ask, name, open_matrix)
    places = [np.arange(size)[at] for size, at in zip(whole.shape, both, strict=True)]
    return Selected(source, places[axis], places[1 - axis], name)


def _there(matrix: Any) -> Any:
    if matrix is None:
        raise SourceError("the AnnData has no X; name one of its layers with layer=")
    return matrix


NamesOf = Callable[[Any, str], Array | None]
"""Gives the content of an array of text or numbers; None of another kind."""


class Library(NamedTuple):
    """How groups are read of the library that an AnnData is stored by.

    Attributes
    ----------
    open_matrix : callable
        The source of a node, from what is asked, what was fitted and its name.
    attributes_of : callable
        Of a node.
    names_of : callable
        The content of an array of text or numbers, of a name; None of another kind.
    parts_of : callable
        The three arrays of a sparse matrix, checked.
    """

    open_matrix: Callable[[Any, Ask, Ask, str], Source]
    attributes_of: Callable[[Any], dict[str, Any]]
    names_of: NamesOf
    parts_of: Callable[[Any, Ask, str], dict[str, Any]]


def open_anndata_group(group: Any, ask: Ask, fitted: Ask, name: str, library: Library) -> Source:
    """An AnnData in a group of a store. Names of the samples stay there: they may be many."""
    refuse_options(name, sample_dim=ask.sample_dim)
    layer = fitted.layer if ask.layer is None else ask.layer
    key = "X" if layer is None else f"layers/{layer}"
    if key not in group:
        found = ", ".join(_members(group["layers"])) if "layers" in group else ""
        kind = SourceError if layer is None else OptionError
        raise kind(f"{name} has no {key}; layer= can be one of: {found or 'none'}")
    asked = Ask(ask.sample_axis or 0, missing_chunks=ask.missing_chunks, decode=ask.decode)
    source = _open_stored(group[key], asked, f"{name}/{key}", library)
    source.features = _stored_names(group, "obs" if source.sample_axis else "var", name, library)
    if source.sample_axis == 0 and "var" in group:
        source.columns = partial(stored_flags, group["var"], f"{name}/var", library.names_of)
    if source.features is not None and len(source.features) != source.n_features:
        raise SourceError(
            f"{name} is not whole: {len(source.features)} names for {source.n_features} features"
        )
    return source


def stored_flags(table: Any, name: str, names_of: NamesOf, column: str) -> Array:
    """A column of booleans of a table in a group, as `Source.columns` gives it."""
    with open_file(name):
        if column not in table or not _is_bool(table[column]):
            flags = [key for key in _members(table) if _is_bool(table[key])]
            raise _no_flags(column, flags, column in table)
        found = names_of(table[column], f"{name}/{column}")
        assert found is not None  # noqa: S101  (these are numbers)
        return found


def _is_bool(node: Any) -> bool:
    return getattr(node, "dtype", None) == np.dtype(bool)


def _open_stored(node: Any, ask: Ask, name: str, library: Library) -> Source:
    """A matrix of samples in a group, also one that is compressed by its features."""
    kind = None if hasattr(node, "dtype") else library.attributes_of(node).get("encoding-type")
    if kind not in SPARSE_KINDS or (kind == "csr_matrix") == (ask.sample_axis == 0):
        return library.open_matrix(node, ask, Ask(), name)
    shape = check_group(node, library.attributes_of(node), name)
    return TurnedSource(library.parts_of(node, ask, name), shape, int(ask.sample_axis or 0), name)


def _members(group: Any) -> list[str]:
    """Names of what is in a group, none of a store that cannot list."""
    try:
        return sorted(group)
    except NotImplementedError:
        return []


def _stored_names(group: Any, dim: str, name: str, library: Library) -> Axis | None:
    """The index of a table of AnnData, None where it cannot be read as text."""
    index = library.attributes_of(group[dim]).get("_index") if dim in group else None
    key = f"{dim}/{index}"
    if index is None or key not in group:
        return None
    node = group[key]
    if hasattr(node, "dtype"):
        names = library.names_of(node, f"{name}/{key}")
    elif "codes" in node and "categories" in node:
        names = _of_categories(node, f"{name}/{key}", library)
    else:
        names = (
            library.names_of(node["values"], f"{name}/{key}/values") if "values" in node else None
        )
    return None if names is None else named(dim, names.astype(object))


def _of_categories(node: Any, name: str, library: Library) -> Array | None:
    """Names that are stored once each, and as places among those."""
    codes, names = (library.names_of(node[k], f"{name}/{k}") for k in ("codes", "categories"))
    if codes is None or names is None:
        return None
    if codes.dtype.kind not in "iu" or not np.all((codes >= 0) & (codes < len(names))):
        raise SourceError(f"{name}/codes do not fit its {len(names)} categories; restore them")
    return names[codes]
