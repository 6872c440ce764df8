"""Every refusal names the value, the limit and the remedy, and leaves nothing behind."""

import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from helpers import blocks_of, normal, write_zarr
from scipy import sparse
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    TransposeCodec,
    ZstdCodec,
)
from zarr.storage import MemoryStore

from streamsvd import (
    OptionError,
    ResourceError,
    SourceError,
    StreamSVDError,
    SVDResult,
    sparse_svd,
)

pytestmark = pytest.mark.usefixtures("narrow_strips")

X = normal(10, 60)


@pytest.fixture(autouse=True)
def _nothing_is_left(temporary: Path):
    """No test here leaves anything in the temporary folder."""
    yield
    assert list(temporary.iterdir()) == []


def contents(folder: Path) -> list[Path]:
    """All that is in a folder, which need not be there."""
    return sorted(folder.rglob("*"))


def refused(error: type[StreamSVDError], words: tuple[str, ...], call: Callable[[], Any]) -> None:
    with pytest.raises(StreamSVDError) as caught:
        call()
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value)


# ------------------------------------------------------------------------------------ options

OPTIONS = [
    ("n_components", 0, ("at least 1", "got 0")),
    ("n_components", -3, ("at least 1", "got -3")),
    ("n_components", True, ("integer", "got True")),
    ("n_components", 2.0, ("integer", "got 2.0")),
    ("n_components", "3", ("integer", "got '3'")),
    ("n_components", 11, ("n_components=11", "min(n_features, n_samples)=10")),
    ("n_transforms", -1, ("at least 0", "got -1")),
    ("n_transforms", 10.0, ("integer", "got 10.0")),
    ("n_transforms", False, ("integer", "got False")),
    ("algorithm", "blocks", ("'coordinate', 'block'", "got 'blocks'")),
    ("algorithm", None, ("'coordinate', 'block'", "got None")),
    ("selection", "best", ("'nuclear', 'gain', 'kogbetliantz', 'random'", "got 'best'")),
    ("selection", 3, ("'nuclear'", "got 3")),
    ("sample_axis", 2, ("0, 1", "got 2")),
    ("sample_axis", -1, ("0, 1", "got -1")),
    ("sample_axis", True, ("0, 1", "got True")),
    ("sample_axis", "rows", ("0, 1", "got 'rows'")),
    ("sample_axis", 1.0, ("0, 1", "got 1.0")),
    ("center", "columns", ("None, 'features', 'samples'", "got 'columns'")),
    ("center", True, ("None, 'features', 'samples'", "got True")),
    ("normalize", "l2", ("None, 'features', 'samples'", "got 'l2'")),
    ("dtype", "float16", ("float32, float64", "got 'float16'")),
    ("dtype", int, ("float32, float64", "got <class 'int'>")),
    ("dtype", "complex128", ("float32, float64", "got 'complex128'")),
    ("dtype", "nonsense", ("float32, float64", "got 'nonsense'")),
    ("missing_chunks", "ignore", ("'error', 'fill'", "got 'ignore'")),
    ("memory_limit", 0, ("bytes", "2GiB", "got 0")),
    ("memory_limit", -5, ("bytes", "2GiB", "got -5")),
    ("memory_limit", "lots", ("bytes", "2GiB", "got 'lots'")),
    ("memory_limit", True, ("bytes", "2GiB", "got True")),
    ("batch_size", 0, ("at least 1", "got 0")),
    ("batch_size", 2.0, ("integer", "got 2.0")),
    ("n_threads", 0, ("at least 1", "got 0")),
    ("n_threads", 2.0, ("integer", "got 2.0")),
    ("n_threads", True, ("integer", "got True")),
    ("tol", -0.1, ("at least 0", "got -0.1")),
    ("tol", float("nan"), ("at least 0", "got nan")),
    ("tol", float("inf"), ("number", "got inf")),
    ("tol", True, ("number", "got True")),
    ("tol", "small", ("number", "got 'small'")),
    ("random_state", -1, ("at least 0", "got -1")),
    ("random_state", 0.5, ("integer", "got 0.5")),
    ("random_state", True, ("integer", "got True")),
    ("overwrite_x", "yes", ("False, True", "got 'yes'")),
    ("resume", "yes", ("False, True", "got 'yes'")),
]


@pytest.mark.parametrize(("name", "value", "words"), OPTIONS)
def test_option(name: str, value: Any, words: tuple[str, ...], tmp_path: Path) -> None:
    """Refused whatever the source is."""
    options = {"n_components": 3, "n_transforms": 5} | {name: value}
    refused(OptionError, (name, *words), lambda: sparse_svd(X, **options))
    path = write_zarr(tmp_path / "x.zarr", X)
    options["workspace"] = tmp_path / "workspace"
    refused(OptionError, (name, *words), lambda: sparse_svd(path, **options))
    assert contents(tmp_path / "workspace") == []


def test_options_are_refused_before_the_source_is_opened() -> None:
    refused(OptionError, ("tol",), lambda: sparse_svd("no/such/path", 3, tol=-1))


def test_too_many_components_and_the_wrong_orientation() -> None:
    """The hint is given only where it may help: more features than samples, which are columns."""
    words = ("n_components=11", "=10", "10 features", "60 samples")
    refused(OptionError, words, lambda: sparse_svd(X, 11))
    words = ("n_components=11", "=10", "60 features", "10 samples", "sample_axis=0")
    refused(OptionError, words, lambda: sparse_svd(X.T, 11, sample_axis=1))
    for sample_axis in (0, 1):
        with pytest.raises(OptionError) as caught:
            sparse_svd(X, 11, sample_axis=sample_axis)
        assert "sample_axis" not in str(caught.value)


# ------------------------------------------------------------------------- combined with the data


def frozen() -> np.ndarray:
    array = X.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (frozen(), {}, ("writeable: False",)),
        (np.asfortranarray(X), {}, ("C-contiguous: False",)),
        (X[:, ::2], {}, ("C-contiguous: False",)),
        (X.astype("float32"), {"dtype": "float64"}, ("float64 array", "got float32")),
        (X.copy(), {"dtype": "float32"}, ("float32 array", "got float64")),
        (X.astype("int32"), {}, ("float64 array", "got int32")),
        (X.astype(">f8"), {}, ("float64 array", "got >f8")),
    ],
)
def test_overwrite_x(source: np.ndarray, options: dict, words: tuple[str, ...]) -> None:
    before = source.copy()
    words = ("overwrite_x=True", "leave it out to work on a copy", *words)
    refused(OptionError, words, lambda: sparse_svd(source, 3, overwrite_x=True, **options))
    np.testing.assert_array_equal(source, before)


RAW = {"chunks": (10, 20), "compressors": None}


@pytest.mark.parametrize(
    ("layout", "options", "words"),
    [
        (RAW | {"compressors": ZstdCodec()}, {}, ("compressed",)),
        (RAW | {"compressors": Crc32cCodec()}, {}, ("compressed",)),
        (RAW | {"shards": (10, 40)}, {}, ("sharded",)),
        (RAW | {"serializer": BytesCodec(endian="big")}, {}, ("big-endian",)),
        (RAW | {"filters": TransposeCodec(order=(1, 0))}, {}, ("Fortran order",)),
        (RAW | {"zarr_format": 2, "order": "F"}, {}, ("Fortran order",)),
        (RAW | {"zarr_format": 2, "compressors": numcodecs.Zlib()}, {}, ("compressed",)),
        (RAW | {"chunks": (5, 20)}, {}, ("chunks split the features",)),
        (RAW, {"dtype": "float32"}, ("holds float64, not float32",)),
    ],
)
def test_overwrite_x_of_a_store(
    layout: dict[str, Any], options: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, **layout)
    before = {file: file.read_bytes() for file in contents(path) if file.is_file()}
    words = ("x.zarr", "in place", "leave overwrite_x out", "chunks of all features", *words)
    refused(SourceError, words, lambda: sparse_svd(path, 3, overwrite_x=True, **options))
    assert {file: file.read_bytes() for file in contents(path) if file.is_file()} == before


def test_overwrite_x_of_a_store_elsewhere() -> None:
    array = zarr.create_array(MemoryStore(), data=X, chunks=(10, 20), compressors=None)
    words = ("local folder", "leave overwrite_x out")
    refused(SourceError, words, lambda: sparse_svd(array, 3, overwrite_x=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"overwrite_x": True, "sample_axis": 0}, ("overwrite_x=True", "sample_axis=1")),
        ({"overwrite_x": True, "workspace": "new"}, ("overwrite_x=True", "workspace=")),
        ({"resume": True}, ("resume=True", "workspace=")),
        ({"selection": "random", "workspace": "new"}, ('"random"', "random_state")),
        ({"algorithm": "block", "fill_penalty": 0.5}, ("fill_penalty=0.5", '"coordinate"')),
        ({"batch_size": 9}, ("batch_size=9 exceeds n_components=",)),
        ({"algorithm": "block", "batch_size": 2}, ("batch_size=2", 'not with algorithm="block"')),
        ({"selection": "random", "batch_size": 2}, ("batch_size=2", 'not with selection="random"')),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], words: tuple[str, ...]) -> None:
    refused(OptionError, words, lambda: sparse_svd("no/such/path", 3, **options))


# -------------------------------------------------------------------------- memory, workspace


@pytest.mark.parametrize("from_zarr", [False, True])
def test_too_little_memory(from_zarr: bool, tmp_path: Path) -> None:
    source = write_zarr(tmp_path / "x.zarr", X) if from_zarr else X
    words = ("MiB of memory", "memory_limit is 9.54 MiB", "raise it")
    refused(ResourceError, words, lambda: sparse_svd(source, 3, memory_limit="10MB"))


def test_workspace_of_an_array(tmp_path: Path) -> None:
    words = ("workspace", "Zarr")
    refused(OptionError, words, lambda: sparse_svd(X, 3, workspace=tmp_path / "workspace"))
    assert contents(tmp_path / "workspace") == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_workspace_in_use(kind: str, tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", X)
    used = tmp_path / "used"
    file = used / "thesis.txt" if kind == "folder" else used
    file.parent.mkdir(exist_ok=True)
    file.write_text("precious")
    for resume in (False, True):
        options = {"workspace": used, "resume": resume}
        with pytest.raises(StreamSVDError) as caught:
            sparse_svd(path, 3, **options)
        assert str(used) in str(caught.value)
        assert re.search("new folder|another folder", str(caught.value))
        assert ("thesis.txt" in str(caught.value)) == (kind == "folder")
    assert file.read_text() == "precious"


def test_workspace_of_another_run(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", X)
    options: dict[str, Any] = {"n_transforms": 5, "workspace": tmp_path / "workspace"}
    sparse_svd(path, 3, **options)
    words = (str(tmp_path / "workspace"), "holds a run", "resume=True", "new folder")
    refused(OptionError, words, lambda: sparse_svd(path, 3, **options))
    options["resume"] = True
    for other, words in (
        ({"center": "features"}, ("another center", "None there", "'features' now")),
        ({"n_components": 4}, ("another n_components", "3 there", "4 now")),
        ({"dtype": "float32"}, ("another dtype", "'float64' there", "'float32' now")),
    ):
        given = {"n_components": 3} | options | other
        refused(OptionError, (*words, "new folder"), lambda o=given: sparse_svd(path, **o))
    write_zarr(tmp_path / "x.zarr", X + 1, overwrite=True)
    refused(OptionError, ("another source",), lambda: sparse_svd(path, 3, **options))


def test_too_little_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_zarr(tmp_path / "x.zarr", X)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=4799))
    words = ("needs 4.69 kiB", "4.69 kiB free", "workspace=")
    with blocks_of(60, "disk"):
        refused(ResourceError, words, lambda: sparse_svd(path, 3))


def nan(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_zarr(path, np.where(X > 2, np.nan, X), overwrite=True)


def empty_chunk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "c" / "0" / "0").write_bytes(b"")


def constant(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_zarr(path, X * (np.arange(10) > 0)[:, None], overwrite=True)


def no_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=0))


@pytest.mark.parametrize("harm", [nan, empty_chunk, constant, no_disk])
def test_a_fit_that_fails_before_its_first_transform_leaves_a_lock_alone(
    harm: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is mended can be fitted with the same call."""
    path = write_zarr(tmp_path / "x.zarr", X)
    harm(path, monkeypatch)
    workspace = tmp_path / "workspace"
    with pytest.raises(StreamSVDError):
        sparse_svd(path, 3, workspace=workspace, normalize="features")
    # which is never removed: another run may be about to lock it
    assert contents(workspace) == [workspace / "lock"]


# ------------------------------------------------------------------------------ not a matrix


def structured() -> np.ndarray:
    return np.zeros((3, 4), dtype=[("a", float), ("b", int)])


ARRAYS = [
    (np.ma.masked_less(X, 0), ("a masked value at feature", "fill or drop")),
    (X[0], ("shape (60,)", "two axes")),
    (X[None], ("shape (1, 10, 60)", "two axes")),
    (np.ones(()), ("shape ()", "two axes")),
    (np.zeros((0, 5)), ("empty", "(0, 5)")),
    (np.zeros((5, 0)), ("empty", "(5, 0)")),
    (X + 1j, ("complex128", "real numbers", "convert")),
    (X.astype(object), ("object", "real numbers", "convert")),
    (np.zeros((3, 4), "datetime64[s]"), ("datetime64[s]", "real numbers", "convert")),
    (np.zeros((3, 4), "timedelta64[s]"), ("timedelta64[s]", "real numbers", "convert")),
    (X.astype(str), ("<U", "real numbers", "convert")),
    (X.astype(bytes), ("S", "real numbers", "convert")),
    (structured(), ("real numbers", "convert")),
    ({"x": X}, ("dict", "a path", "NumPy")),
    (None, ("NoneType", "a path", "NumPy")),
    (sparse.csr_array(X), ("csr_array", "by rows only", "sample_axis=0", "tocsc()")),
    (sparse.coo_array(X), ("coo_array", "strips of samples", "tocsr()", "tocsc()")),
    (sparse.csc_array(X + 1j), ("complex128", "real numbers", "convert")),
]


@pytest.mark.parametrize(("source", "words"), ARRAYS)
def test_not_a_matrix_of_real_numbers(source: Any, words: tuple[str, ...]) -> None:
    refused(SourceError, words, lambda: sparse_svd(source, 1))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (X[0], ("shape (60,)", "two axes")),
        (X[None], ("shape (1, 10, 60)", "two axes")),
        (np.zeros((0, 5)), ("empty", "(0, 5)")),
        (np.zeros((5, 0)), ("empty", "(5, 0)")),
        (X + 1j, ("complex128", "real numbers", "convert")),
    ],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_array_that_is_no_matrix(
    zarr_format: int, source: np.ndarray, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "x.zarr"
    zarr.create_array(
        path,
        shape=source.shape,
        chunks=tuple(max(1, s) for s in source.shape),
        dtype=source.dtype,
        zarr_format=zarr_format,
    )
    refused(SourceError, (str(path), *words), lambda: sparse_svd(path, 1))


def zarray(dtype: str, **changes: Any) -> str:
    """Metadata of a Zarr v2 array of 3 x 4."""
    metadata = {
        "zarr_format": 2,
        "shape": [3, 4],
        "chunks": [3, 4],
        "dtype": dtype,
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    return json.dumps(metadata | changes)


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_pickles_are_never_run(tmp_path: Path) -> None:
    folder, mark = tmp_path / "x.zarr", tmp_path / "pickle was run"
    folder.mkdir()
    codec = [{"id": "pickle", "protocol": 5}]
    (folder / ".zarray").write_text(zarray("|O", filters=codec))
    payload = pickle.dumps(Touch(mark))
    (folder / "0.0").write_bytes(payload)
    refused(SourceError, (str(folder),), lambda: sparse_svd(folder, 1))
    assert not mark.exists()
    pickle.loads(payload)
    assert mark.exists()


@pytest.mark.parametrize("dtype", ["<M8[s]", "<m8[s]", "<U8", "|S8", "<c16"])
def test_v2_array_of_another_type(dtype: str, tmp_path: Path) -> None:
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    (folder / ".zarray").write_text(zarray(dtype, fill_value=None))
    (folder / "0.0").write_bytes(bytes(12 * np.dtype(dtype).itemsize))
    refused(SourceError, (str(folder), "real numbers"), lambda: sparse_svd(folder, 1))


# --------------------------------------------------------------------------- not a Zarr array


def group(tmp_path: Path) -> Path:
    root = zarr.create_group(tmp_path / "place")
    root.create_array("counts", data=X)
    root.create_group("layers").create_array("scaled", data=X)
    root.create_group("empty")
    return tmp_path / "place"


def empty_group(tmp_path: Path) -> Path:
    zarr.create_group(tmp_path / "place")
    return tmp_path / "place"


def group_object(tmp_path: Path) -> Any:
    return zarr.open_group(group(tmp_path), mode="r")


def table(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "place.csv", X)
    return tmp_path / "place.csv"


def h5ad(tmp_path: Path) -> Path:
    (tmp_path / "place.h5ad").write_bytes(b"HDF")
    return tmp_path / "place.h5ad"


def cut_npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "place.npy", X)
    with open(tmp_path / "place.npy", "r+b") as file:
        file.truncate(1000)
    return tmp_path / "place.npy"


def object_npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "place.npy", X.astype(object))
    return tmp_path / "place.npy"


def no_zip(tmp_path: Path) -> Path:
    (tmp_path / "place.zip").write_bytes(b"PK nothing")
    return tmp_path / "place.zip"


def folder(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "notes.txt").write_text("nothing here")
    return tmp_path / "place"


def bad_json(tmp_path: Path) -> Path:
    path = write_zarr(tmp_path / "place", X)
    (path / "zarr.json").write_text("{")
    return path


def unknown_codec(tmp_path: Path) -> Path:
    path = write_zarr(tmp_path / "place", X)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["codecs"].append({"name": "acme-squeeze", "configuration": {}})
    (path / "zarr.json").write_text(json.dumps(metadata))
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (group, ("place", "group", "counts", "layers/scaled", "name one")),
        (empty_group, ("place", "group", "none")),
        (group_object, ("place", "group", "counts", "layers/scaled", "name one")),
        (table, ("place.csv", "is a file", "convert")),
        (h5ad, ("place.h5ad", "cannot open", "HDF5")),
        (cut_npy, ("place.npy", "cannot read")),
        (object_npy, ("place.npy", "cannot read")),
        (no_zip, ("place.zip", "cannot open")),
        (folder, ("place", "no Zarr array")),
        (lambda tmp_path: tmp_path / "place", ("place", "no such path")),
        (lambda tmp_path: group(tmp_path) / "wrong", ("place/wrong", "no such path")),
        (bad_json, ("place",)),
        (unknown_codec, ("place", "acme-squeeze")),
        (lambda tmp_path: "nosuch://place", ("nosuch://place", "nosuch")),
    ],
)
def test_not_a_zarr_array(make: Callable, words: tuple[str, ...], tmp_path: Path) -> None:
    source = make(tmp_path)
    workspace = tmp_path / "workspace"
    refused(SourceError, words, lambda: sparse_svd(source, 3, workspace=workspace))
    assert contents(workspace) == []


# ------------------------------------------------------------------------------- lost, damaged

CHUNKED: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({"chunks": (5, 20)}, "c/1/2"),
    "v2": ({"chunks": (5, 20), "zarr_format": 2}, "1.2"),
    "v2 nested": (
        {
            "chunks": (5, 20),
            "zarr_format": 2,
            "chunk_key_encoding": {"name": "v2", "separator": "/"},
        },
        "1/2",
    ),
    "zstd": ({"chunks": (5, 20), "compressors": ZstdCodec()}, "c/1/2"),
    "zstd with checksum": ({"chunks": (5, 20), "compressors": ZstdCodec(checksum=True)}, "c/1/2"),
    "gzip": ({"chunks": (5, 20), "compressors": GzipCodec()}, "c/1/2"),
    "blosc": ({"chunks": (5, 20), "compressors": BloscCodec()}, "c/1/2"),
    "crc32c": ({"chunks": (5, 20), "compressors": Crc32cCodec()}, "c/1/2"),
    "shards": ({"chunks": (5, 5), "shards": (5, 20), "compressors": ZstdCodec()}, "c/1/2"),
}


def empty(content: bytes) -> bytes:
    return b""


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def cut_one_byte(content: bytes) -> bytes:
    return content[:-1]


def garbage(content: bytes) -> bytes:
    return np.random.default_rng(0).bytes(len(content))


def flip(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]


DAMAGE = [
    *((name, harm) for name in CHUNKED for harm in (empty, truncate, cut_one_byte)),
    *((n, garbage) for n in ("zstd", "zstd with checksum", "gzip", "blosc", "crc32c", "shards")),
    *((n, flip) for n in ("zstd with checksum", "gzip", "crc32c")),
]
"""What each layout can notice: raw numbers of the right length are numbers."""


@pytest.mark.parametrize(("name", "harm"), DAMAGE)
def test_damaged_chunk(name: str, harm: Callable[[bytes], bytes], tmp_path: Path) -> None:
    options, key = CHUNKED[name]
    path = write_zarr(tmp_path / "x.zarr", X, **options)
    chunk = path / key
    chunk.write_bytes(harm(chunk.read_bytes()))
    words = (str(path), key)
    refused(SourceError, words, lambda: sparse_svd(path, 3))
    with blocks_of(7, "disk"):
        refused(SourceError, words, lambda: sparse_svd(path, 3, missing_chunks="fill"))


@pytest.mark.parametrize("name", CHUNKED)
def test_missing_chunk(name: str, tmp_path: Path) -> None:
    options, key = CHUNKED[name]
    path = write_zarr(tmp_path / "x.zarr", X, fill_value=5, **options)
    (path / key).unlink()
    words = (str(path), "1 chunk", key, "read as 5", 'missing_chunks="fill"')
    workspace = tmp_path / "workspace"
    refused(SourceError, words, lambda: sparse_svd(path, 3, workspace=workspace))
    assert contents(workspace) == []
    array = zarr.open_array(path, mode="r")
    refused(SourceError, words[1:], lambda: sparse_svd(array, 3))
    result = sparse_svd(X, 3, n_transforms=5)
    refused(SourceError, words, lambda: result.transform(path))
    refused(SourceError, words, lambda: result.accuracy(path))


def test_missing_chunks_of_another_store() -> None:
    store = MemoryStore()
    array = zarr.create_array(store, data=X, chunks=(5, 20))
    del store._store_dict["c/1/2"]
    refused(SourceError, ("1 chunk", "c/1/2"), lambda: sparse_svd(array, 3))


def test_many_missing_chunks_are_counted_and_some_named(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, (10, 5))
    shutil.rmtree(path / "c")
    words = ("12 chunk", "c/0/0, c/0/1, c/0/2, c/0/3, c/0/4, ...")
    refused(SourceError, words, lambda: sparse_svd(path, 3))


# -------------------------------------------------------------------------------- the numbers

BAD = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("sample_axis", [0, 1])
def test_not_finite(value: float, dtype: str, sample_axis: int, tmp_path: Path) -> None:
    """The first bad sample is named, and its first bad feature, wherever chunks end."""
    bad = X.astype(dtype)
    bad[2, 59] = bad[7, 43] = bad[4, 43] = value
    words = (str(value).replace("nan", "NaN"), "feature 4", "sample 43", "replace or drop")
    source = bad if sample_axis else bad.T
    path = write_zarr(tmp_path / "x.zarr", source, (4, 7))
    for center in (None, "features"):
        options = {"center": center, "sample_axis": sample_axis}
        for x in (source, path):
            refused(SourceError, words, lambda x=x, o=options: sparse_svd(x, 3, **o))
        with blocks_of(7, "disk"):
            refused(SourceError, words, lambda o=options: sparse_svd(path, 3, **o))
    result = sparse_svd(X, 3, n_transforms=5)
    refused(SourceError, words, lambda: result.transform(source, sample_axis=sample_axis))


def test_beyond_the_working_precision() -> None:
    big = X.copy()
    big[3, 8] = 1e300
    words = ("inf", "feature 3", "sample 8", "as float32")
    refused(SourceError, words, lambda: sparse_svd(big, 3, dtype="float32"))


def test_missing_chunks_that_read_as_nan(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, (5, 20), fill_value=np.nan)
    (path / "c" / "1" / "2").unlink()
    words = ("NaN", "feature 5", "sample 40")
    refused(SourceError, words, lambda: sparse_svd(path, 3, missing_chunks="fill"))


@pytest.mark.parametrize("value", [1e141, -1e300])
def test_too_large(value: float, tmp_path: Path) -> None:
    big = X.copy()
    big[3, 8] = value
    path = write_zarr(tmp_path / "x.zarr", big)
    words = (f"{abs(value):.3g}", "1e+140", "rescale")
    refused(SourceError, words, lambda: sparse_svd(big, 3))
    with blocks_of(7, "disk"):
        refused(SourceError, words, lambda: sparse_svd(path, 3))


def test_too_small(tmp_path: Path) -> None:
    small = X / np.abs(X).max() * 1e-141
    path = write_zarr(tmp_path / "x.zarr", small)
    words = ("1e-141", "1e-140", "rescale")
    refused(SourceError, words, lambda: sparse_svd(small, 3))
    with blocks_of(7, "disk"):
        refused(SourceError, words, lambda: sparse_svd(path, 3))


@pytest.mark.parametrize("center", [None, "features"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1])
def test_constant_features_cannot_be_scaled(
    value: float, center: str | None, tmp_path: Path
) -> None:
    flat = X.copy()
    flat[[1, 7]] = value
    path = write_zarr(tmp_path / "x.zarr", flat, (10, 7))
    words = ("2 feature(s)", "constant", ": 1, 7;", "drop them", 'normalize="features"')
    options = {"center": center, "normalize": "features"}
    refused(SourceError, words, lambda: sparse_svd(flat, 3, **options))
    with blocks_of(7, "disk"):
        refused(SourceError, words, lambda: sparse_svd(path, 3, **options))


def test_of_many_constant_features_some_are_named() -> None:
    words = ("10 feature(s)", ": 0, 1, 2, 3, 4, ...;")
    refused(SourceError, words, lambda: sparse_svd(X[:, :1], 1, normalize="features"))


# --------------------------------------------------------------------------------- the result


@pytest.fixture(scope="module")
def result() -> SVDResult:
    return sparse_svd(X, 3, n_transforms=20)


@pytest.mark.parametrize("k", [-1, 21, True, 3.0, "all"])
def test_at(result: SVDResult, k: Any) -> None:
    refused(OptionError, ("0", "20", f"got {k!r}"), lambda: result.at(k))


@pytest.mark.parametrize("method", ["transform", "accuracy"])
def test_other_features(result: SVDResult, method: str, tmp_path: Path) -> None:
    call = getattr(result, method)
    words = ("9 features", "the fit had 10", "same features")
    refused(OptionError, words, lambda: call(X[:9]))
    path = write_zarr(tmp_path / "x.zarr", X.T)
    words = (str(path), "60 features", "the fit had 10", "pass sample_axis=0")
    refused(OptionError, words, lambda: call(path))


@pytest.mark.parametrize("method", ["transform", "accuracy"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sample_axis": 2}, ("sample_axis", "0, 1", "got 2")),
        ({"missing_chunks": "ignore"}, ("missing_chunks", "'error', 'fill'", "got 'ignore'")),
    ],
)
def test_options_of_methods(
    result: SVDResult, method: str, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused(OptionError, words, lambda: getattr(result, method)(X, **options))


@pytest.mark.parametrize("value", [0, "lots", True])
def test_gram_limit(result: SVDResult, value: Any) -> None:
    words = ("gram_limit", "2GiB", f"got {value!r}")
    refused(OptionError, words, lambda: result.accuracy(X, gram_limit=value))


@pytest.mark.parametrize("kind", ["file", "folder", "data", "result", "dangling link"])
def test_nothing_is_overwritten(result: SVDResult, kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("precious")
    elif kind == "folder":
        place.mkdir()
    elif kind == "data":
        zarr.create_group(place).create_array("x", data=X)
    elif kind == "result":
        result.save(place)
    else:
        place.symlink_to(tmp_path / "nowhere")
    words = (str(place), "not overwritten", "another path or remove it")
    refused(OptionError, words, lambda: result.save(place))
    refused(OptionError, words, lambda: result.transform(X, out=place))
    if kind in ("file", "folder", "data"):
        words = (str(place), "not a result", "not overwritten")
        refused(OptionError, words, lambda: result.save(place, overwrite=True))
    if kind == "file":
        assert place.read_text() == "precious"
    if kind == "data":
        np.testing.assert_array_equal(zarr.open_array(place / "x", mode="r")[...], X)
    assert [path.name for path in tmp_path.iterdir() if path.name != "temporary"] == ["place"]


def no_array(place: Path) -> None:
    shutil.rmtree(place / "log" / "pairs")


def no_chunk(place: Path) -> None:
    (place / "log" / "g" / "c" / "0" / "0" / "0").unlink()


def short_chunk(place: Path) -> None:
    chunk = place / "log" / "g" / "c" / "0" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-8])


def change(place: Path, **changes: Any) -> None:
    metadata = json.loads((place / "zarr.json").read_text())
    metadata["attributes"] |= changes
    (place / "zarr.json").write_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (no_array, ("log/pairs",)),
        (no_chunk, ("log/g", "c/0/0/0")),
        (short_chunk, ("place",)),
        (lambda place: change(place, format="other"), ("other", "streamsvd-result")),
        (lambda place: change(place, version=99), ("99", "need")),
        (lambda place: (place / "zarr.json").unlink(), ("place",)),
        (lambda place: (place / "zarr.json").write_text("{"), ("place",)),
        (shutil.rmtree, ("no Zarr group at", "place")),
    ],
)
def test_load_of_a_damaged_result(
    result: SVDResult, harm: Callable[[Path], Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    result.save(place)
    harm(place)
    with pytest.raises(StreamSVDError) as caught:
        SVDResult.load(place)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("make", [group, empty_group, folder, table])
def test_load_of_something_else(make: Callable[[Path], Path], tmp_path: Path) -> None:
    place = make(tmp_path)
    with pytest.raises(StreamSVDError, match="place"):
        SVDResult.load(place)


def test_load_of_an_array(tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x.zarr", X)
    with pytest.raises(StreamSVDError, match=r"x\.zarr"):
        SVDResult.load(path)


def test_errors_are_also_the_usual_kinds() -> None:
    assert issubclass(OptionError, ValueError)
    assert issubclass(SourceError, ValueError)
    assert issubclass(ResourceError, RuntimeError)
