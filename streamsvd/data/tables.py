"""Tables of pandas, polars and pyarrow as sources.

None of these is imported: what is handed over has the methods that are needed.
"""

from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.data.labels import Axis, levels_of, named
from streamsvd.data.source import Source, refuse_options
from streamsvd.data.strips import Strips
from streamsvd.errors import SourceError
from streamsvd.options import Ask


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


ARROW = {
    "double": "float64", "float": "float32", "halffloat": "float16", "bool": "bool",
    **{kind: kind for kind in ("int8", "int16", "int32", "int64")},
    **{f"u{kind}": f"u{kind}" for kind in ("int8", "int16", "int32", "int64")},
}  # fmt: skip
"""Types of NumPy by what Arrow calls them."""


def open_arrow(table: Any, ask: Ask, fitted: Ask) -> Source:
    """A table or a batch of records of pyarrow: samples are rows unless ``sample_axis=1``."""
    name = f"the {type(table).__name__} of pyarrow"
    refuse_options(name, sample_dim=ask.sample_dim, layer=ask.layer)
    told, columns = list(table.schema.types), list(table.schema.names)
    common = _common_type([ARROW.get(str(k), "object") for k in told], told, columns, name)
    is_single = np.result_type(common, np.float32) == np.float32
    axis = ask.sample_axis or 0

    def take(start: int, stop: int) -> Array:
        part = table.select(range(start, stop)) if axis else table.slice(start, stop - start)
        strip = np.empty((part.num_columns, part.num_rows), np.float32 if is_single else np.float64)
        for values, column in zip(strip, part.columns, strict=True):
            numbers = column.cast("int8") if str(column.type) == "bool" else column
            values[:] = numbers.to_numpy(zero_copy_only=False)  # nulls are NaN
        return strip.T

    source = Strips(take, common, (table.num_rows, table.num_columns), axis, name)
    names = named("sample" if axis else "feature", np.array(columns, dtype=object))
    if axis:
        source.samples = names
    else:
        source.features = names
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
