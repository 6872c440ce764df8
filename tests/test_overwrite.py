"""overwrite_x=True: worked in place, with the same bits, or refused and left untouched."""

import hashlib
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import differences, normal, write_zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore

import streamsvd.fitting.run
import streamsvd.progress
from streamsvd import OptionError, SourceError, StreamSVDError, SVDResult, sparse_svd

P, M = 3, 60
X = normal(10, 60) + 0.5
SELECTIONS = ("nuclear", "gain", "kogbetliantz", "random")


def content(path: Path) -> dict[str, str]:
    """Digests of all files of a store."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in path.rglob("*")
        if file.is_file()
    }


def rotated(X: np.ndarray, result: SVDResult) -> np.ndarray:
    """``U^T X V`` by the log, in float64; rows in the order of the working matrix."""
    X = np.array(X, dtype=float)[result.log.order]
    for k, (i, j) in enumerate(result.pairs.tolist()):
        if j < X.shape[0]:
            X[[i, j]] = result.log.g[k].T @ X[[i, j]]
        if j < X.shape[1]:
            X[:, [i, j]] = X[:, [i, j]] @ result.log.h[k]
    return X


def prepared(X: np.ndarray, result: SVDResult) -> np.ndarray:
    """Centred and scaled as in the fit."""
    strip = np.array(X, order="C")
    result.preprocessing.apply(strip)
    return strip


def mark(path: Path) -> str | None:
    return zarr.open_array(path, mode="r").attrs.get("streamsvd")


# ---------------------------------------------------------------------------------- what works


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("center", [None, "features", "samples"])
@pytest.mark.parametrize("normalize", [None, "features", "samples"])
def test_an_array_is_rewritten_where_it_is(
    dtype: str, center: str | None, normalize: str | None
) -> None:
    options: dict[str, Any] = {"n_transforms": M, "center": center, "normalize": normalize}
    data = X.astype(dtype)
    address = data.ctypes.data
    made = sparse_svd(data, P, overwrite_x=True, **options)
    assert differences(made, sparse_svd(X.astype(dtype), P, **options)) == []
    assert data.ctypes.data == address
    expected = rotated(prepared(X.astype(dtype), made), made)
    np.testing.assert_allclose(data, expected, atol=1e-12 if dtype == "float64" else 1e-4)


def test_views_and_maps_are_rewritten_too(tmp_path: Path) -> None:
    """Rows of a larger array; a file mapped by NumPy."""
    expected = sparse_svd(X, P, n_transforms=M)
    larger = np.zeros((14, 60))
    larger[2:12] = X
    assert (
        differences(sparse_svd(larger[2:12], P, n_transforms=M, overwrite_x=True), expected) == []
    )
    assert not np.array_equal(larger[2:12], X)
    assert not larger[:2].any()
    assert not larger[12:].any()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    assert differences(sparse_svd(mapped, P, n_transforms=M, overwrite_x=True), expected) == []
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), larger[2:12])


LAYOUTS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "v3": ((10, 7), {}),
    "one chunk": ((10, 60), {}),
    "a chunk wider than the data": ((10, 64), {}),
    "single columns": ((10, 1), {}),
    "v2": ((10, 7), {"zarr_format": 2}),
    "v2 keys": ((10, 7), {"chunk_key_encoding": {"name": "v2", "separator": "."}}),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_store_is_rewritten(name: str, selection: str, dtype: str, tmp_path: Path) -> None:
    chunks, layout = LAYOUTS[name]
    data = X.astype(dtype)
    path = write_zarr(tmp_path / "x.zarr", data, chunks, **layout)
    options: dict[str, Any] = {
        "n_transforms": M,
        "selection": selection,
        "center": "features",
        "random_state": 0,
    }
    expected = sparse_svd(path, P, **options)
    files = set(content(path))
    made = sparse_svd(path, P, overwrite_x=True, **options)
    assert differences(made, expected) == []
    stored = zarr.open_array(path, mode="r")[:]
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(stored, rotated(prepared(data, made), made), atol=tolerance)
    assert set(content(path)) - {".zattrs"} == files - {".zattrs"}
    assert "was overwritten" in str(mark(path))


@pytest.mark.parametrize(
    "options",
    [
        {"center": "samples", "normalize": "samples"},
        {"normalize": "features"},
        {"n_threads": 3},
        {"pivot": True, "fill_penalty": 0.5},
        {"n_transforms": 0},
        {"tol": 0.1},
    ],
    ids=repr,
)
def test_a_store_is_rewritten_with_any_option(options: dict[str, Any], tmp_path: Path) -> None:
    options = {"n_transforms": M} | options
    path = write_zarr(tmp_path / "x.zarr", X, (10, 7))
    expected = sparse_svd(path, P, **options)
    assert differences(sparse_svd(path, P, overwrite_x=True, **options), expected) == []
    assert "was overwritten" in str(mark(path))


HANDLES: dict[str, Callable[[Path], Any]] = {
    "text": str,
    "path": lambda path: path,
    "array": lambda path: zarr.open_array(path, mode="r+"),
    "read-only array": lambda path: zarr.open_array(LocalStore(path, read_only=True), mode="r"),
}


@pytest.mark.parametrize("name", HANDLES)
def test_what_was_rewritten_is_not_data(name: str, tmp_path: Path) -> None:
    """Nor for a handle that was opened before."""
    path = write_zarr(tmp_path / "x.zarr", X, (10, 7))
    handle = HANDLES[name](path)
    made = sparse_svd(handle, P, n_transforms=M, overwrite_x=True)
    words = r"not data: its content was overwritten by sparse_svd\(overwrite_x=True\)"
    for again in (handle, path, zarr.open_array(path, mode="r")):
        for call in (
            lambda again=again: sparse_svd(again, P),
            lambda again=again: sparse_svd(again, P, overwrite_x=True),
            lambda again=again: sparse_svd(again, P, workspace=tmp_path / "workspace"),
            lambda again=again: made.transform(again),
            lambda again=again: made.accuracy(again),
        ):
            with pytest.raises(SourceError, match=words):
                call()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_in_a_group(zarr_format: int, tmp_path: Path) -> None:
    """The group may hold copies of the metadata of its arrays."""
    group = zarr.create_group(tmp_path / "g.zarr", zarr_format=zarr_format)
    for name in ("x", "y"):
        array = group.create_array(
            name, shape=X.shape, chunks=(10, 7), dtype=float, compressors=None
        )
        array[...] = X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not in the specification yet
        zarr.consolidate_metadata(tmp_path / "g.zarr")
    x = zarr.open_group(tmp_path / "g.zarr", mode="r")["x"]
    sparse_svd(x, P, n_transforms=M, overwrite_x=True)
    later = zarr.open_group(tmp_path / "g.zarr", mode="r")
    for source in (tmp_path / "g.zarr" / "x", later["x"]):
        with pytest.raises(SourceError, match="not data"):
            sparse_svd(source, P)
    np.testing.assert_array_equal(later["y"][:], X)
    sparse_svd(later["y"], P)


# ------------------------------------------------------------------------------- what is refused


STORES: dict[str, tuple[Callable[[Path], Any], dict[str, Any], tuple[str, ...]]] = {
    "zstd": (lambda p: write_zarr(p, X, (10, 7), compressors="auto"), {}, ("compressed",)),
    "checksum": (lambda p: write_zarr(p, X, (10, 7), compressors=Crc32cCodec()), {}, ()),
    "zstd, v2": (
        lambda p: write_zarr(p, X, (10, 7), compressors="auto", zarr_format=2),
        {},
        ("compressed",),
    ),
    "shards": (lambda p: write_zarr(p, X, (10, 7), shards=(10, 14)), {}, ("sharded",)),
    "shards, zstd": (
        lambda p: write_zarr(p, X, (10, 7), shards=(10, 14), compressors=ZstdCodec()),
        {},
        ("sharded",),
    ),
    "big-endian": (
        lambda p: write_zarr(p, X, (10, 7), serializer=BytesCodec(endian="big")),
        {},
        ("big-endian",),
    ),
    "big-endian, v2": (
        lambda p: write_zarr(p, X.astype(">f8"), (10, 7), zarr_format=2),
        {},
        ("big-endian",),
    ),
    "Fortran order, v2": (
        lambda p: write_zarr(p, X, (10, 7), zarr_format=2, order="F"),
        {},
        ("Fortran order",),
    ),
    "float32": (
        lambda p: write_zarr(p, X.astype("float32"), (10, 7)),
        {"dtype": "float64"},
        ("float32, not float64",),
    ),
    "float64": (
        lambda p: write_zarr(p, X, (10, 7)),
        {"dtype": "float32"},
        ("float64, not float32",),
    ),
    "integers": (
        lambda p: write_zarr(p, (10 * X).astype("int64"), (10, 7)),
        {},
        ("int64, not float64",),
    ),
    "small integers": (
        lambda p: write_zarr(p, (10 * X).astype("uint8"), (10, 7)),
        {},
        ("uint8, not float32",),
    ),
    "features split": (lambda p: write_zarr(p, X, (5, 7)), {}, ("chunks split the features",)),
    "features in a larger chunk": (lambda p: write_zarr(p, X, (12, 7)), {}, ("chunks",)),
}


@pytest.mark.parametrize("name", STORES)
def test_another_layout_is_refused(name: str, tmp_path: Path) -> None:
    make, options, words = STORES[name]
    path = make(tmp_path / "x.zarr")
    before = content(path)
    with pytest.raises(SourceError) as refused:
        sparse_svd(path, P, overwrite_x=True, **options)
    how = ("cannot be overwritten in place", "leave overwrite_x out", "compressors=None")
    for word in (str(path), *how, *words):
        assert word in str(refused.value)
    assert content(path) == before
    sparse_svd(path, P, n_transforms=5, **options)


def truncated(chunk: Path) -> None:
    chunk.write_bytes(chunk.read_bytes()[:-8])


def longer(chunk: Path) -> None:
    chunk.write_bytes(chunk.read_bytes() + b"12345678")


@pytest.mark.parametrize("harm", [Path.unlink, truncated, longer])
@pytest.mark.parametrize("missing_chunks", ["error", "fill"])
def test_a_damaged_store_is_refused(
    harm: Callable[[Path], None], missing_chunks: str, tmp_path: Path
) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, (10, 7))
    harm(path / "c" / "0" / "3")
    before = content(path)
    with pytest.raises(SourceError) as refused:
        sparse_svd(path, P, overwrite_x=True, missing_chunks=missing_chunks)
    if harm is Path.unlink and missing_chunks == "error":
        assert "c/0/3" in str(refused.value)
    else:
        for word in ("missing or not whole", "c/0/3", "leave overwrite_x out"):
            assert word in str(refused.value)
    assert content(path) == before


def test_a_store_in_memory_is_refused() -> None:
    array = zarr.create_array(
        MemoryStore(), shape=X.shape, chunks=(10, 7), dtype=float, compressors=None
    )
    array[...] = X
    with pytest.raises(SourceError, match=r"not in a local folder; leave overwrite_x out"):
        sparse_svd(array, P, overwrite_x=True)
    np.testing.assert_array_equal(array[:], X)
    assert "streamsvd" not in array.attrs


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, (10, 7))
    before = content(path)
    with pytest.raises(OptionError, match=r"needs samples as columns: sample_axis=1"):
        sparse_svd(path, P, overwrite_x=True, sample_axis=0)
    with pytest.raises(OptionError, match="no source to resume from"):
        sparse_svd(path, P, overwrite_x=True, workspace=tmp_path / "workspace")
    with pytest.raises(OptionError, match="n_components=11"):
        sparse_svd(path, 11, overwrite_x=True)
    with pytest.raises(StreamSVDError, match="overwrite_x"):
        sparse_svd(path, P, overwrite_x=True, reduction="gram")
    with pytest.raises(StreamSVDError, match="memory_limit"):
        sparse_svd(path, P, overwrite_x=True, memory_limit=1000)
    assert content(path) == before


def test_refine_reads_the_source_again(tmp_path: Path) -> None:
    """Which is not there any more: refused before anything is written."""
    path = write_zarr(tmp_path / "x.zarr", X, (10, 7))
    for source in (path, X.copy()):
        with pytest.raises(StreamSVDError, match=r"overwrite_x.*refine|refine.*overwrite_x"):
            sparse_svd(source, P, n_transforms=M, overwrite_x=True, refine=True)
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[:], X)
    assert mark(path) is None


# --------------------------------------------------------------------------- stopped on the way


def wide(path: Path) -> Path:
    return write_zarr(path, normal(20, 2000), (20, 20))


def overwrite_slowly(path: Path, strips: bool = False) -> None:
    if strips:
        streamsvd.sizes.STRIP_BYTES = 1
    told = set()

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in told:
            told.add(stage)
            print(stage, flush=True)

    options: dict[str, Any] = {"selection": "random", "random_state": 0}
    sparse_svd(path, P, n_transforms=50_000, overwrite_x=True, progress=progress, **options)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stage", ["ingest", "transforms"])
def test_a_store_that_was_left_in_the_middle_is_refused(
    stage: str, number: signal.Signals, tmp_path: Path, forks: Any
) -> None:
    path = wide(tmp_path / "x.zarr")
    job = forks.start(overwrite_slowly, path, strips=stage == "ingest")
    job.until(stage)
    time.sleep(0.03)
    job.signal(number)
    assert job.wait() == {"SIGKILL": -9, "SIGTERM": 143, "SIGINT": 1}[number.name]
    if stage == "transforms":
        assert not np.array_equal(zarr.open_array(path, mode="r")[:], normal(20, 2000))
    words = r"not data: its content is being rewritten by sparse_svd\(overwrite_x=True\)"
    for overwrite_x in (False, True):
        with pytest.raises(SourceError, match=words):
            sparse_svd(path, P, overwrite_x=overwrite_x)


@contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def overwrite_with_few_descriptors(path: Path) -> tuple[str, str]:
    with few_descriptors(80):
        try:
            sparse_svd(path, P, overwrite_x=True)
        except Exception as error:
            return type(error).__name__, str(error)
    return "", ""


def test_a_store_that_cannot_be_mapped_is_left_alone(tmp_path: Path, forks: Any) -> None:
    """A thousand narrow chunks are more files than a process may open: known before the mark."""
    path = wide(tmp_path / "x.zarr")
    before = content(path)
    name, message = forks.run(overwrite_with_few_descriptors, path)
    assert (name, "Too many open files" in message) == ("ResourceError", True)
    assert content(path) == before
    assert mark(path) is None


def test_the_mark_comes_before_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, (10, 7))
    seen = []
    rewrite = streamsvd.fitting.in_place.ingest

    def look_first(*args: Any, **options: Any) -> Any:
        seen.append((mark(path), np.array_equal(zarr.open_array(path, mode="r")[:], X)))
        return rewrite(*args, **options)

    monkeypatch.setattr(streamsvd.fitting.in_place, "ingest", look_first)
    sparse_svd(path, P, n_transforms=M, overwrite_x=True, center="samples")
    assert seen == [("its content is being rewritten by sparse_svd(overwrite_x=True)", True)]


def test_a_store_that_cannot_be_marked_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say."""
    path = write_zarr(tmp_path / "x.zarr", X, (10, 7))
    before = content(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(StreamSVDError, match=r"zarr\.json|attributes|mark"):
            sparse_svd(path, P, overwrite_x=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert content(path) == before
