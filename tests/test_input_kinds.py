"""Dask arrays, sparse AnnData groups and arrays in groups give the bits of a NumPy array."""

import shutil
from collections import namedtuple
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numcodecs
import numpy as np
import pytest
import zarr
from helpers import differences, normal, write_zarr
from scipy import sparse
from test_sparse_pca import changed

from streamsvd import (
    OptionError,
    ResourceError,
    SourceError,
    StreamSVDError,
    SVDResult,
    plan,
    sizes,
    sparse_pca,
    sparse_svd,
)

pytestmark = pytest.mark.usefixtures("serial_dask")

N, SAMPLES = 9, 101


def counts(dtype: str = "float64") -> np.ndarray:
    """(N, SAMPLES) features by samples, most of them zero, some samples empty."""
    X = normal(N, SAMPLES) * 3 * np.linspace(1, 2, N)[:, None]
    X[np.abs(X) < 2.5] = 0
    X[:, 20:40] = 0
    X[:, -1] = 0
    if np.dtype(dtype).kind in "bu":
        X = np.abs(X)
    return X.astype(dtype)


def write_sparse(
    path: Path, matrix: Any, kind: str, *, chunk: int = 25, zarr_format: int = 2, **options: Any
) -> Path:
    """A sparse matrix as AnnData writes it: a group of three arrays and three attributes."""
    attributes = {
        "encoding-type": kind,
        "encoding-version": "0.1.0",
        "shape": [int(size) for size in matrix.shape],
    }
    group = zarr.create_group(path, zarr_format=zarr_format, attributes=attributes)
    for name in ("data", "indices", "indptr"):
        part = getattr(matrix, name)
        array = group.create_array(
            name,
            shape=part.shape,
            chunks=(chunk,),
            dtype=part.dtype,
            config={"write_empty_chunks": True},
            **options,
        )
        array[...] = part
    return path


Parts = namedtuple("Parts", "data indices indptr shape")


def parts(matrix: Any, **changes: Any) -> Parts:
    """The arrays of a matrix, some of them changed: what SciPy itself would not make."""
    return Parts(matrix.data, matrix.indices, matrix.indptr, matrix.shape)._replace(**changes)


@pytest.fixture
def short_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are read a few samples at a time."""
    monkeypatch.setattr(sizes, "STRIP_BYTES", 8 * N * 7)


# ------------------------------------------------------------------------- the same numbers


def numpy_array(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return X, 1


def numpy_rows(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return np.ascontiguousarray(X.T), 0


def zarr_array(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return zarr.open_array(write_zarr(folder / "x.zarr", X, (4, 13)), mode="r"), 1


def zarr_rows(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return write_zarr(folder / "x.zarr", X.T, (13, 4)), 0


def dask_array(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return da.from_array(X, chunks=(N, 13)), 1


def dask_in_two_dimensions(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return da.from_array(X, chunks=((2, 4, 3), (50, 1, 49, 1))), 1


def dask_rows(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return da.from_array(X.T, chunks=(13, 4)), 0


def dask_of_zarr(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return da.from_zarr(zarr_array(folder, X)[0]), 1


def dask_computed(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    """Not stored anywhere: the result of a graph."""
    return (da.from_array(X.T, chunks=(30, 5)) * 2 / 2).T.astype(X.dtype), 1


def csr(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return write_sparse(folder / "x.zarr", sparse.csr_array(X.T), "csr_matrix"), 0


def csr_v3(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return write_sparse(folder / "x.zarr", sparse.csr_array(X.T), "csr_matrix", zarr_format=3), 0


def csr_one_chunk(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return write_sparse(folder / "x.zarr", sparse.csr_array(X.T), "csr_matrix", chunk=9999), 0


def csr_not_sorted(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    """Indices of a row in any order, and int64."""
    matrix = sparse.csr_array(X.T)
    data, indices = matrix.data.copy(), matrix.indices.astype(np.int64)
    for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        data[a:b], indices[a:b] = data[a:b][::-1], indices[a:b][::-1].copy()
    changed_parts = parts(matrix, data=data, indices=indices)
    return write_sparse(folder / "x.zarr", changed_parts, "csr_matrix"), 0


def csc(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return write_sparse(folder / "x.zarr", sparse.csc_array(X), "csc_matrix"), 1


def csr_in_a_group(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    zarr.create_group(folder / "a.zarr", zarr_format=2)
    return write_sparse(folder / "a.zarr" / "X", sparse.csr_array(X.T), "csr_matrix"), 0


def csr_group_object(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    csr_in_a_group(folder, X)
    return zarr.open_group(folder / "a.zarr", mode="r")["X"], 0


def csr_by_name(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return str(csr(folder, X)[0]), 0


def csr_url(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return f"file://{csr(folder, X)[0]}", 0


def dense_in_a_group(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    """What AnnData writes of a dense matrix."""
    group = zarr.create_group(folder / "a.zarr", attributes={"encoding-type": "anndata"})
    group.create_array(
        "layers/raw",
        data=np.ascontiguousarray(X.T),
        chunks=(13, 4),
        attributes={"encoding-type": "array"},
        config={"write_empty_chunks": True},
    )
    return folder / "a.zarr" / "layers" / "raw", 0


KINDS = [
    numpy_array, numpy_rows, zarr_array, zarr_rows, dask_array, dask_in_two_dimensions, dask_rows,
    dask_of_zarr, dask_computed, csr, csr_v3, csr_one_chunk, csr_not_sorted, csc, csr_in_a_group,
    csr_group_object, csr_by_name, csr_url, dense_in_a_group,
]  # fmt: skip
SPARSE = [csr, csr_v3, csc, csr_group_object]

Make = Callable[[Path, np.ndarray], tuple[Any, int]]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.usefixtures("short_strips")
def test_same_bits(make: Make, tmp_path: Path) -> None:
    """In place and on the Gram matrix, read in strips that match no chunk."""
    X = counts()
    source, axis = make(tmp_path, X)
    options: dict[str, Any] = {"n_transforms": 40, "center": "features"}
    in_place = sparse_svd(source, 3, sample_axis=axis, **options)
    assert differences(in_place, sparse_svd(X, 3, **options)) == []
    reduced = sparse_pca(source, 3, max_fill=0.5, sample_axis=axis)
    assert changed(reduced, sparse_pca(X, 3, max_fill=0.5)) == []
    by_sample: dict[str, Any] = {"center": "samples", "normalize": "samples", "n_transforms": 20}
    by_sample_made = sparse_svd(source, 3, sample_axis=axis, **by_sample)
    assert differences(by_sample_made, sparse_svd(X, 3, **by_sample)) == []


@pytest.mark.parametrize("make", [dask_rows, dask_in_two_dimensions, csr, csc])
def test_methods_of_the_result(make: Make, tmp_path: Path) -> None:
    X = counts()
    source, axis = make(tmp_path, X)
    made = sparse_pca(X, 3, max_fill=0.5)
    scores = made.transform(source, sample_axis=axis)
    np.testing.assert_array_equal(scores if axis else scores.T, made.transform(X))
    one, other = made.accuracy(source, sample_axis=axis), made.accuracy(X)
    assert one.captured_variance == pytest.approx(other.captured_variance, rel=1e-12)
    start = made.at(fill=0.3)
    assert changed(start.refine(source, sample_axis=axis), start.refine(X)) == []


@pytest.mark.parametrize("make", [dask_array, dask_in_two_dimensions, csr, csc])
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"]
)
def test_types(make: Make, dtype: str, tmp_path: Path) -> None:
    """Cast before any arithmetic, whatever holds the numbers."""
    X = counts(dtype)
    if dtype == "float16" and make in (csr, csc):  # SciPy has none: as h5py or R would write it
        single, axis = make(tmp_path, X.astype("f4"))
        matrix = sparse.csr_array(X.T.astype("f4"))
        shutil.rmtree(single)
        kind = "csr_matrix" if make is csr else "csc_matrix"
        shape = matrix.shape if make is csr else matrix.shape[::-1]
        half = parts(matrix, data=matrix.data.astype("f2"), shape=shape)
        source: Any = write_sparse(tmp_path / "x.zarr", half, kind)
    else:
        source, axis = make(tmp_path, X)
    made = sparse_svd(source, 3, n_transforms=30, sample_axis=axis)
    assert made.dtype == sparse_svd(X, 3, n_transforms=1).dtype
    assert differences(made, sparse_svd(X, 3, n_transforms=30)) == []
    reduced = sparse_pca(source, 2, max_fill=0.5, sample_axis=axis)
    assert changed(reduced, sparse_pca(X.astype("f8"), 2, max_fill=0.5)) == []


@pytest.mark.parametrize("make", [csr, csc])
def test_a_matrix_without_any_entry(make: Make, tmp_path: Path) -> None:
    X = np.zeros((N, SAMPLES))
    X[3, 50] = 2
    source, axis = make(tmp_path, X)
    made = sparse_pca(source, 2, max_fill=0.5, sample_axis=axis, center=None)
    np.testing.assert_array_equal(made.components.toarray()[0], np.eye(N)[3])


def test_entries_that_are_listed_twice_add_up(tmp_path: Path) -> None:
    """As everywhere with CSR; in the precision of the work, not in eight bits."""
    matrix = parts(
        sparse.csr_array((4, 3)),
        data=np.array([200, 100, 7, 9, 1, 3], dtype="u1"),
        indices=np.array([1, 1, 0, 2, 1, 0]),
        indptr=np.array([0, 2, 3, 4, 6]),
    )
    path = write_sparse(tmp_path / "x.zarr", matrix, "csr_matrix")
    X = np.array([[0, 300, 0], [7, 0, 0], [0, 0, 9], [3, 1, 0]], dtype="f4").T
    made = sparse_svd(path, 2, n_transforms=5, sample_axis=0, dtype="float64")
    assert differences(made, sparse_svd(X, 2, n_transforms=5, dtype="float64")) == []


def test_dask_is_computed_once_and_in_strips() -> None:
    """Each block once for the Gram matrix, a few at a time."""
    X = counts()
    seen: list[int] = []

    def block(numbers: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info:
            seen.append(block_info[0]["chunk-location"][1])
        return numbers

    array = da.from_array(X, chunks=(N, 10)).map_blocks(block, dtype=X.dtype, meta=np.empty((0, 0)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "STRIP_BYTES", 8 * N * 20)
        sparse_pca(array, 2, max_fill=0.5)
    assert sorted(seen) == list(range(11))


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("fit", [sparse_pca, sparse_svd])
def test_the_wrong_orientation_of_a_sparse_matrix(
    fit: Callable[..., SVDResult], tmp_path: Path
) -> None:
    rows, _ = csr(tmp_path / "r", counts())
    columns, _ = csc(tmp_path / "c", counts())
    for source, axis, words in (
        (rows, 1, ("csr_matrix", "by rows only", "samples are its columns", "tocsc()")),
        (columns, 0, ("csc_matrix", "by columns only", "samples are its rows", "tocsr()")),
    ):
        with pytest.raises(SourceError) as raised:
            fit(source, 3, sample_axis=axis)
        for word in (*words, f"sample_axis={axis}", str(source)):
            assert word in str(raised.value), word


@pytest.mark.parametrize("part", ["data", "indices", "indptr"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_missing_chunk_of_a_part(part: str, zarr_format: int, tmp_path: Path) -> None:
    """The part is named too: there are three chunks of the same key."""
    matrix = sparse.csr_array(counts().T)
    path = write_sparse(tmp_path / "x.zarr", matrix, "csr_matrix", zarr_format=zarr_format)
    key = "1" if zarr_format == 2 else "c/1"
    (path / part / key).unlink()
    with pytest.raises(SourceError) as raised:
        sparse_svd(path, 3, sample_axis=0)
    for word in (f"{path}/{part}", f" {key};", "missing", 'missing_chunks="fill"'):
        assert word in str(raised.value), word


def test_missing_chunks_that_were_left_out_on_purpose(tmp_path: Path) -> None:
    """AnnData leaves out chunks of zeros, as Zarr does by default."""
    X = counts()
    matrix = sparse.csr_array(X.T)
    path = write_sparse(tmp_path / "x.zarr", matrix, "csr_matrix", chunk=10)
    zero = [k for k in range(0, matrix.nnz, 10) if not np.any(matrix.data[k : k + 10])]
    assert zero == []
    first = int(np.flatnonzero(matrix.data)[0]) // 10
    shutil.rmtree(path)
    changed_data = matrix.data.copy()
    changed_data[first * 10 : first * 10 + 10] = 0
    write_sparse(path, parts(matrix, data=changed_data), "csr_matrix", chunk=10)
    (path / "data" / str(first)).unlink()
    exact = matrix.copy()
    exact.data = changed_data
    made = sparse_svd(path, 3, n_transforms=20, sample_axis=0, missing_chunks="fill")
    assert differences(made, sparse_svd(exact.toarray().T, 3, n_transforms=20)) == []


def refusals(paths: list[Path]) -> list[str]:
    """What is said of matrices that cannot be read; in a process of its own, which may crash."""
    said = []
    for path in paths:
        try:
            sparse_svd(path, 3, n_transforms=5, sample_axis=0)
            said.append("not refused")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def emptied(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("compressor", [None, numcodecs.Blosc(), numcodecs.Zstd()])
def test_a_damaged_chunk_of_a_part(compressor: Any, forks: Any, tmp_path: Path) -> None:
    """Blosc, what AnnData writes by default, reads a truncated chunk as if it were whole."""
    matrix, files = sparse.csr_array(counts().T), []
    for harm, part in product((truncated, emptied), ("data", "indices", "indptr")):
        path = tmp_path / f"{harm.__name__}-{part}.zarr"
        write_sparse(path, matrix, "csr_matrix", compressors=compressor)
        files.append(path / part / "1")
        files[-1].write_bytes(harm(files[-1].read_bytes()))
    for file, said in zip(files, forks.run(refusals, [f.parents[1] for f in files]), strict=True):
        assert said.startswith(f"SourceError: {file.parent}")
        assert "1" in said.removeprefix(f"SourceError: {file.parent}")


def test_indices_beyond_the_features(forks: Any, tmp_path: Path) -> None:
    """SciPy would write such entries wherever that is."""
    matrix, paths = sparse.csr_array(counts().T), []
    for index in (N, -1, 10**7):
        indices = matrix.indices.copy()
        indices[5] = index
        harmed = parts(matrix, indices=indices)
        paths.append(write_sparse(tmp_path / f"{index}.zarr", harmed, "csr_matrix"))
    for path, said in zip(paths, forks.run(refusals, paths), strict=True):
        assert said.startswith(f"SourceError: {path}/indices")
        assert f"from 0 to {N - 1}" in said


def test_indptr_that_does_not_fit(forks: Any, tmp_path: Path) -> None:
    matrix = sparse.csr_array(counts().T)
    good = matrix.indptr
    harmed = {
        "decreasing": np.concatenate([good[:50], [good[49] - 3], good[51:]]),
        "beyond": np.concatenate([good[:-1], [good[-1] + 5]]),
        "short": good[:-2],
        "not from zero": np.concatenate([[3], good[1:]]),
    }
    paths = [
        write_sparse(tmp_path / f"{name}.zarr", parts(matrix, indptr=indptr), "csr_matrix")
        for name, indptr in harmed.items()
    ]
    for path, said in zip(paths, forks.run(refusals, paths), strict=True):
        assert said.startswith(f"SourceError: {path}/indptr")


@pytest.mark.parametrize("part", ["data", "indices", "indptr"])
def test_a_part_that_is_not_there(part: str, tmp_path: Path) -> None:
    path, _ = csr(tmp_path, counts())
    shutil.rmtree(path / part)
    with pytest.raises(SourceError, match=part):
        sparse_svd(path, 3, sample_axis=0)


def test_a_sparse_group_without_a_shape(tmp_path: Path) -> None:
    path, _ = csr(tmp_path, counts())
    group = zarr.open_group(path, mode="r+")
    del group.attrs["shape"]
    with pytest.raises(SourceError, match="shape"):
        sparse_svd(path, 3, sample_axis=0)


def test_a_group_of_something_else(tmp_path: Path) -> None:
    dense_in_a_group(tmp_path, counts())
    with pytest.raises(SourceError, match=r"is a Zarr group; name one of its arrays: raw"):
        sparse_pca(tmp_path / "a.zarr" / "layers", 3, sample_axis=0)


@pytest.mark.parametrize("dtype", ["complex128", "datetime64[s]"])
def test_types_that_are_not_real_numbers(dtype: str) -> None:
    for array in (counts().astype("i8").astype(dtype), da.zeros((N, SAMPLES), dtype=dtype)):
        with pytest.raises(SourceError, match="not real numbers"):
            sparse_pca(array, 3)


def test_not_finite_in_any_kind(tmp_path: Path) -> None:
    X = counts()
    X[4, 60] = np.nan
    for make in (dask_in_two_dimensions, csr, csc):
        source, axis = make(tmp_path / make.__name__, X)
        with pytest.raises(SourceError, match="holds NaN at feature 4, sample 60"):
            sparse_svd(source, 3, sample_axis=axis)


def test_dask_chunks_of_unknown_size() -> None:
    X = da.from_array(counts(), chunks=(N, 25))
    unknown = X[:, da.from_array(counts()[0] >= 0, chunks=25)]
    with pytest.raises(SourceError, match=r"unknown size; call compute_chunk_sizes\(\) first"):
        sparse_pca(unknown, 3)
    made = sparse_pca(unknown.compute_chunk_sizes(), 3, max_fill=0.5)
    expected = sparse_pca(counts()[:, counts()[0] >= 0], 3, max_fill=0.5)
    assert changed(made, expected) == []


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (0, 5), (5, 0)])
def test_dask_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(SourceError, match="shape"):
        sparse_pca(da.zeros(shape), 1)


def test_a_dask_graph_that_fails() -> None:
    """The user's own error comes through, not one of ours."""

    def fail(block: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("in the graph")

    array = da.from_array(counts(), chunks=(N, 25)).map_blocks(fail, meta=np.empty((0, 0)))
    with pytest.raises(ZeroDivisionError, match="in the graph"):
        sparse_pca(array, 2, max_fill=0.5)


def test_dask_of_sparse_blocks() -> None:
    """As scanpy has them: read, or refused with the remedy."""
    X = counts()
    array = da.from_array(X, chunks=(N, 25)).map_blocks(sparse.csr_array, dtype=X.dtype)
    try:
        made = sparse_pca(array, 3, max_fill=0.5)
    except SourceError as error:
        assert "toarray" in str(error) or "dense" in str(error)  # noqa: PT017
    else:
        assert changed(made, sparse_pca(X, 3, max_fill=0.5)) == []


class DataFrame:
    """What pandas offers of an array, but for one thing."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def to_numpy(self) -> np.ndarray:
        return self.values


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (DataFrame, "DataFrame"),
        (lambda X: memoryview(np.ascontiguousarray(X)), "memoryview"),
        (lambda X: iter(X), "iterator"),
        (lambda X: None, "NoneType"),
        (lambda X: 3.0, "float"),
    ],
)
@pytest.mark.parametrize("fit", [sparse_pca, sparse_svd])
def test_types_that_are_not_read(
    fit: Callable[..., SVDResult], make: Callable[[np.ndarray], Any], name: str
) -> None:
    with pytest.raises(SourceError) as raised:
        fit(make(counts()), 3)
    for word in (f"cannot read {name}", "path to a Zarr array", "NumPy", "Dask array"):
        assert word in str(raised.value), word


@pytest.mark.parametrize("make", [dask_array, csr, csc])
def test_options_for_stores_alone(make: Make, tmp_path: Path) -> None:
    source, axis = make(tmp_path, counts())
    with pytest.raises(OptionError, match="workspace="):
        sparse_svd(source, 3, workspace=tmp_path / "w", sample_axis=axis)
    assert not (tmp_path / "w").exists()
    if axis:
        with pytest.raises(OptionError, match="overwrite_x=True"):
            sparse_svd(source, 3, overwrite_x=True)


@pytest.mark.parametrize("make", [dask_array, csr, csc])
def test_out_of_core(make: Make, tmp_path: Path, temporary: Path) -> None:
    """What does not fit goes to a temporary folder that is removed, or is refused."""
    X = counts("float32")
    source, axis = make(tmp_path, X)
    real = plan.make_plan

    def tight(problem: plan.Problem, **where: Any) -> plan.Plan:
        """As if the matrix were just too large."""
        least = real(problem, **(where | {"place": "disk"})).peak_memory
        return real(problem, **(where | {"memory_limit": least}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvd.fitting.planning.make_plan", tight)
        made = sparse_svd(source, 3, n_transforms=30, sample_axis=axis)
    assert differences(made, sparse_svd(X, 3, n_transforms=30)) == []
    assert list(temporary.iterdir()) == []
    with pytest.raises(ResourceError, match=r"memory_limit is 1\.00 MiB"):
        sparse_svd(source, 3, memory_limit="1MiB", sample_axis=axis)


def test_all_of_these_are_errors_of_one_base() -> None:
    with pytest.raises(StreamSVDError):
        sparse_pca({1.0}, 1)
