"""Every kind of source gives the bits that the same numbers in a NumPy array give."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from helpers import differences, normal, write_zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.storage import LocalStore, MemoryStore, ZipStore

from streamsvd import SVDResult, sparse_svd

pytestmark = pytest.mark.usefixtures("narrow_strips")

N_FEATURES, N_SAMPLES = 9, 101
OPTIONS = {"n_transforms": 60, "center": "features"}


def numbers(dtype: str = "float64") -> np.ndarray:
    """A matrix of the type; some entries are zero, so that fill values would show."""
    X = normal(N_FEATURES, N_SAMPLES) * 3
    X[X < -4] = 0
    if np.dtype(dtype).kind == "u":
        X = np.abs(X) * 20
    elif np.dtype(dtype).kind == "i":
        X = X * 10
    elif dtype == "bool":
        X = X > 0.5
    return X.astype(dtype)


def fit(source: Any, **options: Any) -> SVDResult:
    return sparse_svd(source, 3, **(OPTIONS | options))


def fingerprint(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of all files."""
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# -------------------------------------------------------------------------------- Zarr stores

V3_DEFAULT = (N_FEATURES, 7)
STORES: dict[str, dict[str, Any]] = {
    "default": {"chunks": V3_DEFAULT, "compressors": "auto"},
    "no compression": {"chunks": V3_DEFAULT},
    "zstd": {"chunks": V3_DEFAULT, "compressors": ZstdCodec(level=3)},
    "zstd with checksum": {"chunks": V3_DEFAULT, "compressors": ZstdCodec(checksum=True)},
    "gzip": {"chunks": V3_DEFAULT, "compressors": GzipCodec()},
    "blosc": {"chunks": V3_DEFAULT, "compressors": BloscCodec(cname="lz4")},
    "crc32c": {"chunks": V3_DEFAULT, "compressors": Crc32cCodec()},
    "blosc then crc32c": {"chunks": V3_DEFAULT, "compressors": [BloscCodec(), Crc32cCodec()]},
    "one chunk": {"chunks": (N_FEATURES, N_SAMPLES)},
    "chunk larger than the array": {"chunks": (50, 1000)},
    "chunks of one sample": {"chunks": (N_FEATURES, 1)},
    "last chunk of one sample": {"chunks": (N_FEATURES, 20)},
    "chunks of features": {"chunks": (2, N_SAMPLES)},
    "two-dimensional chunks": {"chunks": (4, 6)},
    "shards": {"chunks": (N_FEATURES, 5), "shards": (N_FEATURES, 20), "compressors": "auto"},
    "two-dimensional shards": {"chunks": (3, 5), "shards": (6, 20), "compressors": ZstdCodec()},
    "Fortran order": {"chunks": V3_DEFAULT, "filters": TransposeCodec(order=(1, 0))},
    "flat keys": {
        "chunks": V3_DEFAULT,
        "chunk_key_encoding": {"name": "default", "separator": "."},
    },
    "v2": {"zarr_format": 2, "chunks": V3_DEFAULT, "compressors": "auto"},
    "v2 no compression": {"zarr_format": 2, "chunks": (4, 6)},
    "v2 Fortran order": {"zarr_format": 2, "chunks": (4, 6), "order": "F"},
    "v2 blosc": {"zarr_format": 2, "chunks": V3_DEFAULT, "compressors": numcodecs.Blosc()},
    "v2 gzip": {"zarr_format": 2, "chunks": V3_DEFAULT, "compressors": numcodecs.GZip()},
    "v2 zlib and delta": {
        "zarr_format": 2,
        "chunks": V3_DEFAULT,
        "compressors": numcodecs.Zlib(),
        "filters": [numcodecs.Delta(dtype="<i4")],
    },
    "v2 nested keys": {
        "zarr_format": 2,
        "chunks": V3_DEFAULT,
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
    },
    "fill value NaN": {"chunks": V3_DEFAULT, "fill_value": np.nan},
    "fill value 7": {"chunks": V3_DEFAULT, "fill_value": 7},
}


@pytest.mark.parametrize("name", STORES)
def test_zarr_store(name: str, tmp_path: Path) -> None:
    X = numbers("int32" if "delta" in name else "float64")
    path = write_zarr(tmp_path / "x.zarr", X, **STORES[name])
    before = fingerprint(tmp_path)
    assert differences(fit(path), fit(X)) == []
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [(10, N_FEATURES), (4, 6), (20, 2)])
def test_samples_as_rows(zarr_format: int, chunks: tuple[int, int], tmp_path: Path) -> None:
    X = numbers()
    path = write_zarr(tmp_path / "x.zarr", X.T, chunks, zarr_format=zarr_format)
    expected = fit(X)
    assert differences(fit(path, sample_axis=0), expected) == []
    assert differences(fit(X.T, sample_axis=0), expected) == []
    assert differences(fit(np.ascontiguousarray(X.T), sample_axis=0), expected) == []


DTYPES = {
    "bool": "float32",
    "uint8": "float32",
    "int8": "float32",
    "int16": "float32",
    "uint16": "float32",
    "int32": "float64",
    "uint32": "float64",
    "int64": "float64",
    "uint64": "float64",
    "float16": "float32",
    "float32": "float32",
    "float64": "float64",
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype(dtype: str, tmp_path: Path) -> None:
    """Cast before any arithmetic: the bits are those of the same numbers as floats."""
    X = numbers(dtype)
    expected = fit(X.astype(DTYPES[dtype]))
    assert expected.dtype == DTYPES[dtype]
    assert differences(fit(X), expected) == []
    path = write_zarr(tmp_path / "x.zarr", X, (4, 20))
    assert differences(fit(path), expected) == []
    other = "float32" if DTYPES[dtype] == "float64" else "float64"
    assert differences(fit(path, dtype=other), fit(X.astype(other))) == []


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_big_endian(zarr_format: int, dtype: str, tmp_path: Path) -> None:
    X = numbers(dtype)
    big = X.astype(np.dtype(dtype).newbyteorder(">"))
    options: dict[str, Any] = {"zarr_format": zarr_format}
    if zarr_format == 3:
        options["serializer"] = zarr.codecs.BytesCodec(endian="big")
    path = write_zarr(tmp_path / "x.zarr", big if zarr_format == 2 else X, (4, 20), **options)
    assert differences(fit(path), fit(X)) == []
    assert differences(fit(big), fit(X)) == []


def in_memory(tmp_path: Path, X: np.ndarray) -> zarr.Array:
    return zarr.create_array(MemoryStore(), data=X, chunks=(4, 20))


def in_zip(tmp_path: Path, X: np.ndarray) -> zarr.Array:
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        zarr.create_array(store, data=X, chunks=(4, 20))
    return zarr.open_array(ZipStore(tmp_path / "x.zip", mode="r"), mode="r")


def in_group(tmp_path: Path, X: np.ndarray) -> Path:
    group = zarr.create_group(tmp_path / "group.zarr")
    group.create_group("deep").create_array("x", data=X, chunks=(4, 20))
    return tmp_path / "group.zarr" / "deep" / "x"


def array_in_group(tmp_path: Path, X: np.ndarray) -> Any:
    in_group(tmp_path, X)
    return zarr.open_group(tmp_path / "group.zarr", mode="r")["deep/x"]


def writable_array(tmp_path: Path, X: np.ndarray) -> Any:
    return zarr.open_array(write_zarr(tmp_path / "x.zarr", X, (4, 20)), mode="r+")


def local_store(tmp_path: Path, X: np.ndarray) -> Any:
    path = write_zarr(tmp_path / "x.zarr", X, (4, 20))
    return zarr.open_array(LocalStore(path, read_only=True), mode="r")


def url(tmp_path: Path, X: np.ndarray) -> str:
    return f"file://{write_zarr(tmp_path / 'x.zarr', X, (4, 20))}"


def string(tmp_path: Path, X: np.ndarray) -> str:
    return str(write_zarr(tmp_path / "x.zarr", X, (4, 20)))


def linked(tmp_path: Path, X: np.ndarray) -> Path:
    (tmp_path / "link.zarr").symlink_to(write_zarr(tmp_path / "x.zarr", X, (4, 20)))
    return tmp_path / "link.zarr"


@pytest.mark.parametrize(
    "make",
    [
        in_memory, in_zip, in_group, array_in_group, writable_array, local_store, url, string,
        linked,
    ],
)  # fmt: skip
def test_ways_to_name_an_array(make: Callable[[Path, np.ndarray], Any], tmp_path: Path) -> None:
    X = numbers()
    source = make(tmp_path, X)
    before = fingerprint(tmp_path)
    assert differences(fit(source), fit(X)) == []
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("sample_axis", [0, 1])
def test_the_memory_of_a_store_is_not_written(sample_axis: int) -> None:
    """One chunk, not compressed: what is read may be the memory of the store itself."""
    X = numbers() if sample_axis else np.ascontiguousarray(numbers().T)
    store = MemoryStore()
    array = zarr.create_array(store, data=X, chunks=X.shape, compressors=None)
    before = {key: value.to_bytes() for key, value in store._store_dict.items()}
    result = fit(array, sample_axis=sample_axis, normalize="samples")
    result.transform(array)
    result.accuracy(array)
    assert {key: value.to_bytes() for key, value in store._store_dict.items()} == before


def test_path_relative_to_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = numbers()
    write_zarr(tmp_path / "x.zarr", X)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert differences(fit("~/x.zarr"), fit(X)) == []


# ------------------------------------------------------------------------------- NumPy arrays


def read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


ARRAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "read-only": read_only,
    "Fortran order": np.asfortranarray,
    "negative strides": lambda X: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "every third": lambda X: np.repeat(X, 3, axis=1)[:, ::3],
    "broadcast": lambda X: np.broadcast_to(X[None], (2, *X.shape))[1],
    "transposed": lambda X: np.ascontiguousarray(X.T).T,
    "matrix": lambda X: X.view(np.matrix),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_layout_of_an_array(name: str) -> None:
    X = numbers()
    other = ARRAYS[name](X)
    before = np.array(other)
    assert differences(fit(other), fit(X)) == []
    np.testing.assert_array_equal(other, before)


def test_memory_map(tmp_path: Path) -> None:
    X = numbers()
    np.save(tmp_path / "x.npy", X)
    assert differences(fit(np.load(tmp_path / "x.npy", mmap_mode="r")), fit(X)) == []


# ----------------------------------------------------------------------- left out on purpose


@pytest.mark.parametrize("fill_value", [0.0, 2.5])
@pytest.mark.parametrize("shards", [None, (N_FEATURES, 40)])
def test_missing_chunks_read_as_the_fill_value_when_asked(
    fill_value: float, shards: tuple[int, int] | None, tmp_path: Path
) -> None:
    X = numbers()
    X[:, 40:80] = fill_value
    options = {"shards": shards, "fill_value": fill_value}
    path = write_zarr(tmp_path / "x.zarr", X, (N_FEATURES, 20), **options)
    for name in ["1"] if shards else ["2", "3"]:
        (path / "c" / "0" / name).unlink()
    assert differences(fit(path, missing_chunks="fill"), fit(X)) == []


def test_inner_chunks_left_out_of_a_shard_are_the_fill_value(tmp_path: Path) -> None:
    """That is how shards are written by default: no store is missing."""
    X = numbers()
    X[:, 20:40] = 0
    array = zarr.create_array(
        tmp_path / "x.zarr",
        shape=X.shape,
        chunks=(N_FEATURES, 20),
        shards=(N_FEATURES, 40),
        dtype=X.dtype,
    )
    array[...] = X
    assert differences(fit(tmp_path / "x.zarr"), fit(X)) == []
