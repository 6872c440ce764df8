"""Tables of pandas and polars as sources.

Neither package is imported: what is handed over has the methods that are needed.
"""

from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis, levels_of, named
from streamsvd.data.source import Source, Strips, refuse_options
from streamsvd.errors import SourceError
from streamsvd.options import Ask

# --------------------------------------------------------------------------------------- tables


def open_pandas(frame: Any, ask: Ask, fitted: Ask) -> Source:
    """A pandas DataFrame: samples are rows unless ``sample_axis=1``."""
    name = "the DataFrame"
    refuse_options(name, sample_dim=ask.sample_dim, layer=ask.layer)
    kinds = [
        getattr(kind, "subtype" if type(kind).__name__ == "SparseDtype" else "numpy_dtype", kind)
        for kind in frame.dtypes
    ]
    is_plain = all(isinstance(kind, np.dtype) for kind in frame.dtypes)
    common = _common_type(kinds, list(frame.dtypes), list(frame.columns), name)
    axis = ask.sample_axis or 0

    def take(start: int, stop: int) -> Array:
        part = frame.iloc[:, start:stop] if axis else frame.iloc[start:stop]
        if is_plain:
            return part.to_numpy(dtype=common)
        return part.to_numpy(dtype=np.float64, na_value=np.nan)

    source = Strips(take, common, frame.shape, axis, name)
    of_both = (frame.index, frame.columns)
    source.features = _index(of_both[1 - axis], "feature")
    source.samples = _index(of_both[axis], "sample")
    return source


def _index(index: Any, dim: str) -> Axis | None:
    """The names in an index of pandas, None for mere numbers of rows."""
    if type(index).__name__ == "RangeIndex":
        return None
    if type(index).__name__ == "MultiIndex":
        return Axis((dim,), (len(index),), {}, {dim: levels_of(index, dim)})
    return named(dim, index.to_numpy())


def open_polars(frame: Any, ask: Ask, fitted: Ask) -> Source:
    """A polars DataFrame: samples are rows unless ``sample_axis=1``; columns have names."""
    import polars

    name = "the DataFrame"
    refuse_options(name, sample_dim=ask.sample_dim, layer=ask.layer)
    kinds = [{"Boolean": "bool"}.get(str(k), str(k).lower()) for k in frame.dtypes]
    common = _common_type(kinds, frame.dtypes, frame.columns, name)
    is_single = np.result_type(common, np.float32) == np.float32
    through = polars.Float32 if is_single else polars.Float64
    axis = ask.sample_axis or 0

    def take(start: int, stop: int) -> Array:
        part = frame[:, start:stop] if axis else frame.slice(start, stop - start)
        return part.cast(through).to_numpy()  # nulls become NaN

    source = Strips(take, common, frame.shape, axis, name)
    columns = np.array(frame.columns, dtype=object)
    if axis:
        source.samples = named("sample", columns)
    else:
        source.features = named("feature", columns)
    return source


def _common_type(kinds: list[Any], told: list[Any], columns: list[Any], name: str) -> Any:
    """The type that holds the values of all columns; refuses those that are not numbers."""
    found = []
    for kind, words, column in zip(kinds, told, columns, strict=True):
        try:
            dtype = np.dtype(kind)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.kind not in "biuf":
            raise SourceError(
                f"column {column!r} of {name} holds {words}, not real numbers; convert it or leave "
                "it out"
            )
        found.append(dtype)
    return np.result_type(*found) if found else np.dtype(np.float64)
