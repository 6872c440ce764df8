"""Stores are not trusted: what is missing, cut short, too large or runs code is refused."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from helpers import differences, normal, write_zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.storage import MemoryStore, WrapperStore

from streamsvd import ResourceError, SourceError, StreamSVDError, sparse_svd
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask
from streamsvd.passes.strips import StripReader
from streamsvd.plan import make_plan
from streamsvd.problem import Problem
from streamsvd.storage.chunks import chunk_keys, decoded_numbers, missing_chunk_keys
from streamsvd.storage.codecs import Damaged, unpack

X = normal(10, 60)
CHUNKS = (10, 20)


def fit(source: Any, **options: Any) -> Any:
    return sparse_svd(source, 3, n_transforms=5, **options)


def refused(words: tuple[str, ...], source: Any, **options: Any) -> None:
    with pytest.raises(StreamSVDError) as caught:
        fit(source, **options)
    for word in words:
        assert word in str(caught.value), word


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_zarr(tmp_path / "x.zarr", X, CHUNKS)


def change(path: Path, **values: Any) -> None:
    """Change the metadata of an array."""
    file = path / "zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def regular(*chunks: int) -> dict[str, Any]:
    return {"name": "regular", "configuration": {"chunk_shape": chunks}}


# -------------------------------------------------------------------------- code from data


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


PICKLES = [
    {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}]},
    {"dtype": "|O", "filters": [{"id": "pickle"}]},
    {"dtype": "|O", "filters": [{"id": "pickle"}, {"id": "vlen-utf8"}]},
    {"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "compressor": {"id": "pickle"}},
    {"dtype": "<f8", "filters": [{"id": "pickle"}]},
    {"dtype": "<f8", "filters": [{"id": "shuffle"}], "compressor": {"id": "pickle"}},
]


def write_v2(path: Path, shape: tuple[int, ...], content: bytes, **values: Any) -> None:
    path.mkdir(parents=True)
    metadata = {
        "zarr_format": 2, "shape": shape, "chunks": shape, "dtype": "<f8", "compressor": None,
        "fill_value": None, "order": "C", "filters": None,
    } | values  # fmt: skip
    (path / ".zarray").write_text(json.dumps(metadata))
    (path / ".".join("0" for _ in shape)).write_bytes(content)


@pytest.mark.parametrize("values", PICKLES)
def test_pickles_in_a_source(values: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    """Also where the library that decodes would run them."""
    monkeypatch.setattr(numcodecs.Pickle, "decode", lambda self, buf, out=None: pickle.loads(buf))
    mark = tmp_path / "pickle was run"
    write_v2(tmp_path / "x", (3, 4), pickle.dumps(Touch(mark)), **values)
    refused((str(tmp_path / "x"), "pickle"), tmp_path / "x")
    assert not mark.exists()


@pytest.mark.parametrize("values", PICKLES)
def test_pickles_in_an_anndata(values: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    """As the names of the features; what nobody asks for is not read."""
    monkeypatch.setattr(numcodecs.Pickle, "decode", lambda self, buf, out=None: pickle.loads(buf))
    mark, path = tmp_path / "pickle was run", tmp_path / "a.zarr"
    group = zarr.create_group(path, zarr_format=2, attributes={"encoding-type": "anndata"})
    group.create_array("X", data=np.ascontiguousarray(X.T), chunks=(20, 10))
    group.create_group("var", attributes={"_index": "names"})
    content = pickle.dumps(Touch(mark))
    write_v2(path / "uns" / "x", (10,), content, **values)
    assert fit(path).feature_names is None
    write_v2(path / "var" / "names", (10,), content, **values)
    with pytest.raises(SourceError, match=r"pickle"):
        fit(path)
    assert not mark.exists()


def test_a_codec_that_is_not_known(tmp_path: Path, monkeypatch: Any) -> None:
    class Mine(numcodecs.abc.Codec):  # type: ignore[misc]
        codec_id = "mine"

        def encode(self, buf: Any) -> Any:
            return buf

        def decode(self, buf: Any, out: Any = None) -> Any:
            raise AssertionError

    monkeypatch.setitem(numcodecs.registry.codec_registry, "mine", Mine)
    write_v2(tmp_path / "x", (3, 4), bytes(96), compressor={"id": "mine"})
    refused(("'mine'", "not known to be safe", "da.from_zarr()"), tmp_path / "x")


# -------------------------------------------------------------------------- sizes

PACKED: dict[str, tuple[Any, Callable[[bytes], bytes]]] = {
    "gzip": (numcodecs.GZip(), gzip.compress),
    "zlib": (numcodecs.Zlib(), zlib.compress),
    "bz2": (numcodecs.BZ2(), bz2.compress),
    "lzma": (numcodecs.LZMA(), lzma.compress),
    "blosc": (numcodecs.Blosc(), numcodecs.Blosc().encode),
    "zstd": (numcodecs.Zstd(), numcodecs.Zstd().encode),
    "lz4": (numcodecs.LZ4(), numcodecs.LZ4().encode),
}
V3 = {"gzip": GzipCodec(), "zstd": ZstdCodec(), "blosc": BloscCodec()}


@pytest.mark.parametrize("name", PACKED)
def test_a_chunk_that_decodes_to_too_much(name: str, tmp_path: Path) -> None:
    """Refused at the limit: 8 MiB of zeros where there is room for 1600 bytes."""
    codec, pack = PACKED[name]
    bomb = pack(bytes(2**23))
    path = write_zarr(tmp_path / "v2", X, CHUNKS, zarr_format=2, compressors=codec)
    assert differences(fit(path), fit(X)) == []
    (path / "0.1").write_bytes(bomb)
    refused((str(path), "0.1", "2,624 in a chunk"), path)
    if name in V3:
        path = write_zarr(tmp_path / "v3", X, CHUNKS, compressors=V3[name])
        (path / "c/0/1").write_bytes(bomb)
        refused((str(path), "c/0/1", "2,624 in a chunk"), path)
    (tmp_path / "v2" / "0.1").write_bytes(pack(X[:, :20].tobytes())[:-9])
    refused((str(tmp_path / "v2"), "0.1", "restore"), tmp_path / "v2")


def test_a_chunk_of_a_shard_that_decodes_to_too_much(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x", X, (10, 10), shards=CHUNKS, compressors=GzipCodec())
    bomb = gzip.compress(bytes(2**23))
    index = struct.pack("<4Q", 0, len(bomb), 0, len(bomb))
    checksum = numcodecs.CRC32C(location="end").encode(np.frombuffer(index, "u1")).tobytes()
    (path / "c/0/1").write_bytes(bomb + checksum)
    refused((str(path), "c/0/1", "1,824 in a chunk"), path)


def test_zstd_without_a_size() -> None:
    """As streams are written: the blocks bound it."""
    frame = io.BytesIO()
    frame.write(struct.pack("<I", 0xFD2FB528) + bytes([0, 0x58]))
    for last in (0, 0, 0, 1):
        frame.write((last | 1 << 1 | 2**17 << 3).to_bytes(3, "little") + b"\0")  # zeros
    data = memoryview(frame.getvalue())
    assert unpack("zstd", {}, data, 4 * 2**17) is None
    with pytest.raises(Damaged, match=r"393,216 bytes or more"):
        unpack("zstd", {}, data, 2**17)


def test_a_chunk_that_is_a_huge_file(store: Path) -> None:
    """It is not even read."""
    with open(store / "c/0/1", "wb") as file:
        file.truncate(2**36)
    refused(("c/0/1", "68,719,476,736 bytes"), store)


@pytest.mark.parametrize("sample_axis", [0, 1])
def test_chunks_that_are_larger_than_the_array(sample_axis: int, tmp_path: Path) -> None:
    """They are decoded as a whole: 800 MB for 50 features, as the plan says."""
    shape, chunks = (50, 3000), (200_000, 500)
    if sample_axis == 0:
        shape, chunks = shape[::-1], chunks[::-1]
    path = tmp_path / "x.zarr"
    array = zarr.create_array(path, shape=shape, chunks=chunks, dtype="f8")
    options = {"missing_chunks": "fill", "sample_axis": sample_axis}
    refused(
        ("2.24 GiB to read 500 samples", "narrower chunks"), path, memory_limit="1GB", **options
    )
    source = open_data(path, Ask(sample_axis, missing_chunks="fill"))
    assert decoded_numbers(array, sample_axis) == 200_000 * 500
    assert source.chunk_bytes == 8 * 200_000 * 500
    assert source.decoded_bytes(501) == 2 * source.chunk_bytes
    assert StripReader(source, np.dtype("f8")).width == 500


def test_shards_that_are_larger_than_the_array(tmp_path: Path) -> None:
    """Only their inner chunks are decoded, as far as they lie in the array."""
    array = zarr.create_array(
        tmp_path / "x", shape=(50, 3000), chunks=(60, 50), shards=(60, 10**6), dtype="f4"
    )
    assert decoded_numbers(array, 1) == 60 * 3000
    assert decoded_numbers(array, 0) == 60 * 3000


def test_a_plan_counts_what_is_decoded() -> None:
    problem = Problem(
        n_features=50,
        n_samples=3000,
        n_components=3,
        n_transforms=9,
        dtype=np.dtype(np.float64),
        source_chunk=500,
    )
    wide = replace(problem, source_chunk_bytes=10**9, decoded=lambda n: n // 500 * 10**9)
    same = replace(problem, decoded=lambda n: 50 * 8 * n)
    plain, large, equal = (
        make_plan(asked, memory_limit=2**34, place="either") for asked in (problem, wide, same)
    )
    assert (plain.strip_samples, large.strip_samples) == (3000, 500)
    assert large.peak_memory - plain.peak_memory > 2.9 * 10**9
    assert equal == plain


def test_no_memory(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(zarr.Array, "__getitem__", full)
    with pytest.raises(ResourceError, match=r"x.zarr: there is no memory to read samples 0 to 59"):
        fit(store)


# ----------------------------------------------------------------------- metadata

ABSURD: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"shape": [10, 2**62]}, ("4096.00 PiB", "restore")),
    ({"shape": [10, 2**70]}, ("4096.00 PiB", "restore")),
    ({"shape": [2**62, 2**62]}, ("4096.00 PiB", "restore")),
    ({"shape": [10, 10**9], "chunk_grid": regular(1, 1)}, ("10000 or more chunk(s) are missing",)),
    ({"chunk_grid": regular(0, 20)}, ("x.zarr",)),
    ({"chunk_grid": regular(10, 0)}, ("x.zarr",)),
    ({"attributes": [1, 2]}, ("x.zarr",)),
    ({"attributes": "text"}, ("x.zarr",)),
    ({"codecs": []}, ("x.zarr",)),
    ({"codecs": [{"name": "nonsense"}]}, ("nonsense",)),
    ({"fill_value": [1]}, ("x.zarr",)),
    ({"shape": [10, -60]}, ("x.zarr",)),
    ({"shape": [10, 60.5]}, ("x.zarr",)),
    ({"shape": None}, ("x.zarr",)),
    ({"data_type": "object"}, ("x.zarr",)),
]


@pytest.mark.parametrize(("values", "words"), ABSURD)
@pytest.mark.parametrize("missing_chunks", ["error", "fill"])
def test_metadata(
    values: dict[str, Any], words: tuple[str, ...], missing_chunks: str, store: Path
) -> None:
    change(store, **values)
    options: dict[str, Any] = {"missing_chunks": missing_chunks}
    if "or more" in words[0] and missing_chunks == "fill":
        words, options["memory_limit"] = ("memory_limit is",), "100MB"
    refused(words, store, **options)


@pytest.mark.parametrize("value", [7, "ab", {"a": 1, "b": 2}, [None, "x"], ["x"]])
def test_names_of_dimensions_that_are_none(value: Any, store: Path) -> None:
    change(store, attributes={"_ARRAY_DIMENSIONS": value})
    assert differences(fit(store), fit(X)) == []


def test_keys_are_not_written_down() -> None:
    array = zarr.create_array(MemoryStore(), shape=(10, 10**12), chunks=(1, 1), dtype="f8")
    keys = chunk_keys(array)
    assert [next(keys) for _ in range(2)] == ["c/0/0", "c/0/1"]
    assert missing_chunk_keys(array, 3) == ["c/0/0", "c/0/1", "c/0/2"]


@pytest.mark.parametrize("shape", [None, 7, [60], ["a", 10], [60.0, 10], [60, 10, 2], {"a": 1}])
def test_shape_of_a_sparse_matrix(shape: Any, tmp_path: Path) -> None:
    group = zarr.create_group(
        tmp_path / "x", attributes={"encoding-type": "csr_matrix", "shape": shape}
    )
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=np.zeros(61, "i4"), config={"write_empty_chunks": True})
    refused((str(tmp_path / "x"), "shape"), tmp_path / "x", sample_axis=0)


# ----------------------------------------------------------------------- what is no file


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("harm", "words"), [(fifo, "is a FIFO"), (loop, "symbolic links"), (folder, "missing")]
)
def test_a_chunk_that_is_no_file(harm: Callable[[Path], None], words: str, store: Path) -> None:
    array = zarr.open_array(store, mode="r")
    harm(store / "c/0/1")
    for source in (store, array, f"file://{store}"):
        refused((str(store), "c/0/1", words, "restore"), source)
    if harm is not folder:
        refused((str(store), "c/0/1", words), store, missing_chunks="fill")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_metadata_that_are_no_file(zarr_format: int, tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, CHUNKS, zarr_format=zarr_format)
    file = path / ("zarr.json" if zarr_format == 3 else ".zarray")
    fifo(file)
    for source in (path, f"file://{path}", file):
        refused((str(path), "is a FIFO"), source)


def test_a_home_that_is_not_there() -> None:
    refused(("no such path",), "~nobody-of-that-name/x.zarr")


def test_links_are_files(store: Path, tmp_path: Path) -> None:
    os.rename(store / "c", tmp_path / "elsewhere")
    (store / "c").symlink_to(tmp_path / "elsewhere")
    os.rename(tmp_path / "elsewhere/0/1", tmp_path / "one")
    (store / "c/0/1").symlink_to(tmp_path / "one")
    assert differences(fit(store), fit(X)) == []


# -------------------------------------------------------------------- other stores and files


class NoListing(WrapperStore[Any]):
    """As virtual stores and plain HTTP are."""

    supports_listing = False  # type: ignore[assignment]

    def list(self) -> Any:
        raise NotImplementedError

    def list_dir(self, prefix: str) -> Any:
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> Any:
        raise NotImplementedError


class Lying(NoListing):
    """Says that it can list."""

    supports_listing = True  # type: ignore[assignment]


class Failing(NoListing):
    """One of its chunks cannot be read."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        if key.endswith("c/0/1"):
            raise ConnectionResetError("the server is gone")
        return await super().get(key, prototype, byte_range)

    def get_sync(self, key: str, **options: Any) -> Any:
        if key.endswith("c/0/1"):
            raise ConnectionResetError("the server is gone")
        below: Any = super()
        return below.get_sync(key, **options)


@pytest.fixture
def memory() -> MemoryStore:
    store = MemoryStore()
    zarr.create_group(store).create_array("x", data=X, chunks=CHUNKS)
    return store


@pytest.mark.parametrize("kind", [NoListing, Lying])
def test_a_store_that_cannot_list(kind: Any, memory: MemoryStore) -> None:
    array = zarr.open_array(kind(memory), path="x", mode="r")
    assert differences(fit(array), fit(X)) == []
    refused(("is a Zarr group", "none that can be listed"), zarr.open_group(kind(memory), mode="r"))
    del memory._store_dict["x/c/0/1"]
    refused(("chunk c/0/1 is missing", "restore"), array)
    fit(array, missing_chunks="fill")


def test_a_store_that_fails(memory: MemoryStore) -> None:
    array = zarr.open_array(Failing(memory), path="x", mode="r")
    refused(("c/0/1", "ConnectionResetError: the server is gone"), array)


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # of AnnData
def test_closed_files_of_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    anndata = pytest.importorskip("anndata")
    from scipy import sparse

    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=X)
        assert differences(fit(dataset), fit(X)) == []
    refused(("Dataset cannot be read", "open it again"), dataset)
    anndata.AnnData(sparse.csr_matrix(X.T)).write_h5ad(tmp_path / "a.h5ad")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    matrix = backed.X
    assert differences(fit(matrix, sample_axis=0), fit(X)) == []
    backed.file.close()
    refused(("cannot be read", "open it again"), matrix, sample_axis=0)


def test_the_messages_are_the_same_without_assertions(store: Path) -> None:
    """``python -O``."""
    (store / "c/0/1").write_bytes(b"")
    code = f"from streamsvd import sparse_svd; sparse_svd({str(store)!r}, 3)"
    run = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert "SourceError" in run.stderr
    assert "chunk c/0/1 is empty; restore it" in run.stderr


# ----------------------------------------------------------------------- fingerprints


def replaced(path: Path) -> None:
    """The same size, at the same time."""
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("url", [False, True])
def test_a_replaced_chunk_is_another_source(url: bool, store: Path, tmp_path: Path) -> None:
    source: Any = f"file://{store}" if url else store
    options: dict[str, Any] = {"workspace": tmp_path / "workspace"}
    fit(source, **options)
    sparse_svd(source, 3, n_transforms=9, resume=True, **options)
    replaced(store / "c/0/1")
    refused(("another source",), source, resume=True, **options)


def test_a_restored_copy_goes_on_with_a_warning(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other files of the same content, as a backup gives them back."""
    options: dict[str, Any] = {"workspace": tmp_path / "workspace"}
    fit(store, **options)
    made = sparse_svd(store, 3, n_transforms=9, resume=True, **options)
    assert "others" not in caplog.text
    shutil.copy2(store / "c/0/1", tmp_path / "spare")
    (store / "c/0/1").unlink()
    shutil.copy2(tmp_path / "spare", store / "c/0/1")
    again = sparse_svd(store, 3, n_transforms=9, resume=True, **options)
    assert "the files of the source are others" in caplog.text
    np.testing.assert_array_equal(again.singular_values, made.singular_values)


def test_a_folder_that_was_moved_is_the_same_source(store: Path, tmp_path: Path) -> None:
    def told(path: Path) -> Any:
        return open_data(path, Ask()).fingerprint()

    before = told(store)
    os.rename(store, tmp_path / "moved.zarr")
    assert told(tmp_path / "moved.zarr") == before


def test_a_replaced_chunk_in_memory(memory: MemoryStore) -> None:
    """Of few chunks each is looked at."""
    source = open_data(zarr.open_array(memory, path="x", mode="r"), Ask())
    before = source.fingerprint()
    assert source.fingerprint() == before
    chunk = memory._store_dict["x/c/0/1"]
    memory._store_dict["x/c/0/1"] = type(chunk).from_bytes(chunk.to_bytes()[::-1])
    assert source.fingerprint() != before


def test_a_replaced_object(tmp_path: Path) -> None:
    """Of a file system of fsspec that knows times."""
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}.zarr"
    zarr.create_array(url, data=X, chunks=CHUNKS)
    source, files = open_data(url, Ask()), fsspec.filesystem("memory")
    before = source.fingerprint()
    assert open_data(url, Ask()).fingerprint() == before
    key = f"/{tmp_path.name}.zarr/c/0/1"
    files.pipe_file(key, files.cat_file(key)[::-1])
    assert source.fingerprint() != before
