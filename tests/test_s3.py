"""Sources in an object store, over the S3 protocol, served by moto on the loopback address."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from helpers import differences, normal
from zarr.storage import FsspecStore

from streamsvd import OptionError, SourceError, sparse_pca, sparse_svd
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask

pytestmark = [
    pytest.mark.slow,
    # of the libraries that speak S3 and serve it
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

N, SAMPLES, P = 20, 900, 3
URL = "s3://bucket/group.zarr/x"


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    """Credentials for a server that holds the bucket and the data."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"key": "a", "secret": "b"}
    made = {**keys, "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"}}
    client_of(made).create_bucket(Bucket="bucket")
    store = FsspecStore.from_url("s3://bucket/group.zarr", storage_options=made)
    zarr.create_array(store, name="x", data=data(), chunks=(N, 70))
    yield made
    server.stop()


def client_of(options: dict[str, Any]) -> Any:
    """Another client of the same server."""
    import boto3

    return boto3.client(
        "s3",
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        **options["client_kwargs"],
    )


def data() -> np.ndarray:
    return normal(N, SAMPLES) * np.linspace(3, 1, N)[:, None] + 5


def test_both_methods(options: dict[str, Any]) -> None:
    for fit in (sparse_pca, sparse_svd):
        given: dict[str, Any] = {"center": "features", "max_nonzeros": 20}
        made = fit(URL, P, storage_options=options, **given)
        assert differences(made, fit(data(), P, **given)) == []
        assert "secret" not in str(made.settings)


def test_an_open_array(options: dict[str, Any]) -> None:
    array = zarr.open_array(URL, mode="r", storage_options=options)
    made = sparse_pca(array, P, max_fill=0.3)
    assert differences(made, sparse_pca(data(), P, max_fill=0.3)) == []
    scores = made.transform(array)
    np.testing.assert_array_equal(scores, made.transform(data()))


def test_read_by_workers(options: dict[str, Any]) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for fit in (sparse_svd, sparse_pca):
            given: dict[str, Any] = {"center": "features", "max_nonzeros": 20}
            made = fit(URL, P, storage_options=options, client=client, **given)
            assert differences(made, fit(data(), P, **given)) == []


def test_a_missing_chunk_is_named(options: dict[str, Any]) -> None:
    store = FsspecStore.from_url("s3://bucket/holes.zarr", storage_options=options)
    array = zarr.create_array(store, shape=(N, SAMPLES), chunks=(N, 300), dtype="f8")
    array[:, :300] = 1
    with pytest.raises(SourceError, match=r"2 chunk\(s\) are missing .* c/0/1, c/0/2; restore"):
        sparse_svd("s3://bucket/holes.zarr", P, storage_options=options)


def test_a_chunk_that_is_deleted_after_a_listing(options: dict[str, Any]) -> None:
    """Listings are kept by the file system: the chunk would read as zeros (s3fs#851, #424)."""
    url = "s3://bucket/deleted.zarr"
    store = FsspecStore.from_url(url, storage_options=options)
    zarr.create_array(store, data=data(), chunks=(N, 300))
    array = zarr.open_array(url, mode="r", storage_options=options)
    source = open_data(array, Ask())
    expected = sparse_svd(array, P, n_transforms=9)
    removed = client_of(options).delete_object(Bucket="bucket", Key="deleted.zarr/c/0/1")
    assert removed["ResponseMetadata"]["HTTPStatusCode"] == 204
    for again in (array, url):
        with pytest.raises(SourceError, match=r"1 chunk\(s\) are missing .* c/0/1; restore"):
            sparse_svd(again, P, storage_options=options if again is url else None)
    with pytest.raises(SourceError, match=r"chunk c/0/1 is missing; restore it"):
        source.read(0, SAMPLES, np.dtype("f8"))
    zarr.create_array(store, data=data(), chunks=(N, 300), overwrite=True)
    assert differences(sparse_svd(array, P, n_transforms=9), expected) == []


def test_a_replaced_object_is_another_source(options: dict[str, Any], tmp_path: Path) -> None:
    """Of the same size: its tag tells."""
    url, key = "s3://bucket/replaced.zarr", "replaced.zarr/c/0/1"
    store = FsspecStore.from_url(url, storage_options=options)
    zarr.create_array(store, data=data(), chunks=(N, 300), compressors=None)
    given: dict[str, Any] = {"storage_options": options, "workspace": tmp_path / "workspace"}
    sparse_svd(url, P, n_transforms=5, **given)
    sparse_svd(url, P, n_transforms=9, resume=True, **given)
    client = client_of(options)
    content = client.get_object(Bucket="bucket", Key=key)["Body"].read()
    client.put_object(Bucket="bucket", Key=key, Body=content[::-1])
    with pytest.raises(OptionError, match="another source"):
        sparse_svd(url, P, n_transforms=12, resume=True, **given)


def test_nothing_there(options: dict[str, Any]) -> None:
    with pytest.raises(SourceError, match=r"no Zarr array at s3://bucket/nothing\.zarr"):
        sparse_svd("s3://bucket/nothing.zarr", P, storage_options=options)


def test_options_of_a_path(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x.zarr", data=data())
    with pytest.raises(OptionError, match="storage_options are for URLs"):
        sparse_svd(tmp_path / "x.zarr", P, storage_options={"key": "a"})
    with pytest.raises(OptionError, match="storage_options must be a dict; got str"):
        sparse_svd(tmp_path / "x.zarr", P, storage_options="key")  # type: ignore[arg-type]
