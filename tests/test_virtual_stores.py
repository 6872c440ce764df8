"""Stores that cannot be listed: plain HTTP, references of kerchunk, VirtualiZarr, Icechunk."""

import functools
import json
import sys
import threading
import warnings
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import differences, normal, write_zarr
from scipy import sparse
from test_input_kinds import write_sparse
from test_sparse_pca import changed
from zarr.abc.store import Store
from zarr.storage import MemoryStore, WrapperStore

from streamsvd import SourceError, sparse_pca, sparse_svd

N, SAMPLES = 9, 61
X = normal(N, SAMPLES) * np.linspace(1, 2, N)[:, None]


class Files(SimpleHTTPRequestHandler):
    """Files as web servers give them out: folders are not listed."""

    def list_directory(self, path: Any) -> None:
        self.send_error(403)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Where the test's folder is served."""
    handler = functools.partial(Files, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def same(source: Any, values: np.ndarray = X, **options: Any) -> None:
    assert changed(sparse_pca(source, 3, max_fill=0.4, **options), pca_of(values)) == []


def pca_of(values: np.ndarray) -> Any:
    return sparse_pca(values, 3, max_fill=0.4)


MISSING = r'c/1/2 is missing; restore it, or pass missing_chunks="fill"'


def test_arrays_over_http(url: str, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    write_zarr(tmp_path / "x.zarr", X, (4, 13))
    write_zarr(tmp_path / "g" / "rows", X.T, (13, 4), zarr_format=2)
    zarr.create_group(tmp_path / "g", zarr_format=2)
    same(f"{url}/x.zarr")
    same(f"{url}/g/rows", sample_axis=0)
    space: dict[str, Any] = {"workspace": tmp_path / "space", "resume": True}
    sparse_svd(f"{url}/x.zarr", 3, n_transforms=5, **space)
    more = sparse_svd(f"{url}/x.zarr", 3, n_transforms=9, **space)
    assert differences(more, sparse_svd(X, 3, n_transforms=9)) == []
    (tmp_path / "x.zarr" / "c" / "1" / "2").unlink()
    with pytest.raises(SourceError, match=MISSING):
        sparse_pca(f"{url}/x.zarr", 3)
    holes = X.copy()
    holes[4:8, 26:39] = 0
    same(f"{url}/x.zarr", holes, missing_chunks="fill")
    with pytest.raises(SourceError, match="group; name one of its arrays: none that can be listed"):
        sparse_pca(f"{url}/g", 3)
    with pytest.raises(SourceError, match=r"no Zarr array at http://.*/nothing"):
        sparse_pca(f"{url}/nothing", 3)


@pytest.mark.parametrize("part", ["data", "indices"])
def test_sparse_matrices_over_http(part: str, url: str, tmp_path: Path) -> None:
    """A chunk that is not there is no run of zeros, though it cannot be known beforehand."""
    pytest.importorskip("aiohttp")
    few = np.where(X > 0, X, 0)
    write_sparse(tmp_path / "x.zarr", sparse.csr_array(few.T), "csr_matrix")
    same(f"{url}/x.zarr", few, sample_axis=0)
    (tmp_path / "x.zarr" / part / "1").unlink()
    with pytest.raises(SourceError, match=rf"/{part}: chunk 1 is missing; restore it, or pass"):
        sparse_pca(f"{url}/x.zarr", 3, sample_axis=0)


def test_http_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    known = vars(sys.modules["fsspec.registry"])["_registry"]
    monkeypatch.delitem(known, "http", raising=False)
    with pytest.raises(SourceError, match=r'pip install "streamsvd\[http\]"'):
        sparse_pca("http://127.0.0.1:9/x.zarr", 3)


def test_references(tmp_path: Path) -> None:
    """As kerchunk writes them: pieces of files, here of one that holds all chunks."""
    path = write_zarr(tmp_path / "x", X, (4, 13), zarr_format=2)
    refs: dict[str, Any] = {".zgroup": json.dumps({"zarr_format": 2})}
    with open(tmp_path / "all.bin", "wb") as whole:
        for file in sorted(path.iterdir()):
            content = file.read_bytes()
            where = [str(tmp_path / "all.bin"), whole.tell(), len(content)]
            is_chunk = not file.name.startswith(".z")
            refs[f"x/{file.name}"] = where if is_chunk else content.decode()
            whole.write(content)

    def references() -> dict[str, Any]:
        made = tmp_path / f"{len(refs)}.json"
        made.write_text(json.dumps({"version": 1, "refs": refs}))
        return {"fo": str(made)}

    same("reference://x", storage_options=references())
    del refs["x/1.2"]
    with pytest.raises(SourceError, match=r"1 chunk\(s\) are missing .* 1.2; restore them, or"):
        sparse_pca("reference://x", 3, storage_options=references())


class Unlisted(WrapperStore[Store]):
    """A store that can only be asked for what is known to be in it."""

    supports_listing = False

    def list(self) -> Any:
        raise NotImplementedError

    def list_prefix(self, prefix: str) -> Any:
        raise NotImplementedError

    def list_dir(self, prefix: str) -> Any:
        raise NotImplementedError

    async def exists(self, key: str) -> bool:
        raise NotImplementedError


def test_stores_that_say_nothing_of_what_they_hold() -> None:
    store = MemoryStore()
    zarr.create_array(store, name="x", data=X, chunks=(4, 13))
    same(zarr.open_array(Unlisted(store), path="x", mode="r"))
    with pytest.raises(SourceError, match=r"cannot read Unlisted: .*zarr.open_array\(store, path="):
        sparse_pca(Unlisted(store), 3)
    del store._store_dict["x/c/1/2"]
    with pytest.raises(SourceError, match=MISSING):
        sparse_pca(zarr.open_array(Unlisted(store), path="x", mode="r"), 3)


def test_icechunk(tmp_path: Path) -> None:
    icechunk = pytest.importorskip("icechunk")
    repository = icechunk.Repository.create(icechunk.in_memory_storage())
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="g/x", data=X, chunks=(4, 13))
    session.commit("data")
    store = repository.readonly_session("main").store
    same(zarr.open_array(store, path="g/x", mode="r"))
    with pytest.raises(SourceError, match="is a Zarr group; name one of its arrays: g/x"):
        sparse_pca(zarr.open_group(store, mode="r"), 3)


def test_virtualizarr(tmp_path: Path) -> None:
    """Chunks of an HDF5 file; those never written there are missing here."""
    h5py = pytest.importorskip("h5py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsers = pytest.importorskip("virtualizarr.parsers")
        registries = pytest.importorskip("obspec_utils.registry")
        stores = pytest.importorskip("obstore.store")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file.create_dataset("x", data=X, chunks=(4, 13))
        file.create_dataset("part", X.shape, "f8", chunks=(4, 13))[:4] = 1
    registry = registries.ObjectStoreRegistry({"file://": stores.LocalStore()})
    store = parsers.HDFParser()(url=f"file://{tmp_path}/x.nc", registry=registry)
    same(zarr.open_array(store, path="x", mode="r"))
    with pytest.raises(SourceError, match=r"^ManifestStore/part: chunk c/1/0 is missing"):
        sparse_pca(zarr.open_array(store, path="part", mode="r"), 3)
