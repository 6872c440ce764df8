"""Zarr arrays of three axes and more, by path: the matrix that NumPy makes of them, in strips."""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from helpers import differences, normal, write_zarr

from streamsvd import (
    OptionError,
    ResourceError,
    SourceError,
    SVDResult,
    plan_svd,
    sparse_pca,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.data import open_data
from streamsvd.data.coordinates import times_of
from streamsvd.options import Ask

T, LAT, LON = 50, 4, 3
DIMS = ("time", "lat", "lon")
CUBE = normal(T, LAT * LON).cumsum(axis=1).reshape(T, LAT, LON)
X = CUBE.reshape(T, -1).T
"""What is fitted: features, row-major, by samples."""


def dims_of(dims: Any, zarr_format: int = 3) -> dict[str, Any]:
    """Options of `write_zarr` for names of dimensions."""
    if zarr_format == 3:
        return {"dimension_names": dims}
    attributes = {"_ARRAY_DIMENSIONS": list(dims)}
    return {"zarr_format": 2, "attributes": attributes, "fill_value": None}


def written(
    folder: Path, dims: tuple[str, ...] = DIMS, chunks: Any = (8, 2, 3), **options: Any
) -> Path:
    values = CUBE.transpose([DIMS.index(dim) for dim in dims])
    options = options if "zarr_format" in options else dims_of(dims) | options
    return write_zarr(folder / "x", np.ascontiguousarray(values), chunks, **options)


@pytest.fixture(scope="module")
def expected() -> tuple[SVDResult, SVDResult]:
    return sparse_pca(X, 2, max_fill=0.4), sparse_svd(X, 2, n_transforms=15, center="features")


@pytest.mark.parametrize(
    ("dims", "chunks", "options"),
    [
        (DIMS, (8, 2, 3), {}),
        (DIMS, (8, 2, 3), dims_of(DIMS, 2)),
        (DIMS, (50, 4, 3), {}),
        (DIMS, (4, 2, 2), {"shards": (12, 4, 4)}),
        (("lat", "lon", "time"), (3, 2, 7), {}),
        (("lat", "time", "lon"), (4, 64, 1), {}),
    ],
)
def test_the_same_bits_as_of_the_matrix(
    dims: tuple[str, ...],
    chunks: tuple[int, ...],
    options: dict[str, Any],
    expected: tuple[SVDResult, SVDResult],
    tmp_path: Path,
) -> None:
    path = written(tmp_path, dims, chunks, **options)
    svd = sparse_svd(path, 2, n_transforms=15, center="features", sample_dim="time")
    assert differences(svd, expected[1]) == []
    pca = sparse_pca(path, 2, max_fill=0.4, sample_dim=["time"])
    np.testing.assert_array_equal(pca.components.toarray(), expected[0].components.toarray())
    scores = pca.transform(path)
    assert pca.sample_axis == min(1, dims.index("time"))
    np.testing.assert_array_equal(scores if pca.sample_axis else scores.T, expected[0].transform(X))
    pca.save(tmp_path / "r")
    found = SVDResult.load(tmp_path / "r").to_xarray(path)
    assert found.components.dims == ("component", "lat", "lon")
    assert found.scores.dims == ("component", "time")
    np.testing.assert_array_equal(found.components.values.reshape(2, -1), pca.components.toarray())


def test_several_dimensions_of_samples(tmp_path: Path) -> None:
    path = written(tmp_path, ("lon", "time", "lat"), (3, 7, 2))
    matrix = CUBE.transpose(2, 0, 1).reshape(LON, -1)  # lon x (time, lat)
    made = sparse_pca(path, 2, max_fill=0.9, sample_dim=("time", "lat"))
    expected = sparse_pca(matrix, 2, max_fill=0.9)
    np.testing.assert_array_equal(made.components.toarray(), expected.components.toarray())
    np.testing.assert_array_equal(made.transform(path), expected.transform(matrix))
    source = open_data(path, Ask(sample_dim=("time", "lat")))
    assert source.chunk == 7 * LAT
    for start, stop in ((0, 1), (3, 9), (26, 31), (197, 200)):  # within slices, and across them
        np.testing.assert_array_equal(
            source.read(start, stop, np.dtype(np.float64)), matrix[:, start:stop]
        )


def test_without_names_samples_may_come_first(
    expected: tuple[SVDResult, SVDResult], tmp_path: Path
) -> None:
    made = sparse_svd(
        write_zarr(tmp_path / "x", CUBE, (8, 2, 3)),
        2, n_transforms=15, center="features", sample_axis=0,
    )  # fmt: skip
    assert differences(made, expected[1]) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "has the dimensions 'time', 'lat', 'lon': name that of the samples"),
        ({"sample_axis": 1}, "name that of the samples"),
        ({"sample_dim": "depth"}, "'depth' is not among .* the dimensions 'time', 'lat', 'lon'"),
        ({"sample_dim": ["time", "time"]}, "is not among"),
        ({"sample_dim": []}, "is not among"),
        ({"sample_dim": DIMS}, "leaves no dimension"),
        ({"sample_dim": "time", "sample_axis": 0}, "not both"),
        ({"sample_dim": "time", "layer": "raw"}, "for an AnnData"),
    ],
)
def test_dimensions_are_checked(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=words):
        sparse_pca(written(tmp_path), 2, **options)


@pytest.mark.parametrize("dims", [None, ("time", None, "lon"), ("time", "lat", "lat")])
def test_without_names_of_dimensions(dims: Any, tmp_path: Path) -> None:
    path = write_zarr(tmp_path / "x", CUBE, dimension_names=dims)
    with pytest.raises(OptionError, match="no names of dimensions: pass sample_axis=0"):
        sparse_pca(path, 2, sample_dim="time")
    with pytest.raises(SourceError, match="need two axes, features and samples, or names"):
        sparse_pca(path, 2)


# ---------------------------------------------------------------------------- chunks and memory


class Counted(zarr.storage.WrapperStore[Any]):
    """Which chunks are read, and how often."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.reads: Counter[str] = Counter()

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        self.reads[key] += "/c/" in f"/{key}"
        return await super().get(key, *args, **options)

    def get_sync(self, key: str, *args: Any, **options: Any) -> Any:
        self.reads[key] += "/c/" in f"/{key}"
        return self._store.get_sync(key, *args, **options)


def test_each_chunk_is_read_once(tmp_path: Path) -> None:
    store = Counted(zarr.storage.LocalStore(written(tmp_path), read_only=True))
    array = zarr.open_array(store, mode="r")
    sparse_pca(array, 2, sample_dim="time", reduction="gram")
    read = {key: count for key, count in store.reads.items() if count}
    assert len(read) == 7 * 2
    assert set(read.values()) == {1}


def test_memory_counts_whole_chunks(tmp_path: Path) -> None:
    """Where samples are not chunked all of them are decoded at once, and that is refused."""
    size = (4000, 30, 40)
    for name, chunks in (("whole", (4000, 5, 40)), ("cut", (10, 30, 40)), ("far", (8, 30, 3000))):
        array = zarr.create_array(
            tmp_path / name, shape=size, chunks=chunks, dtype="f4", dimension_names=DIMS
        )
        source = open_data(array, Ask(sample_dim="time", missing_chunks="fill"))
        assert source.chunk == chunks[0]
        expected = {"whole": 4000 * 30 * 40, "cut": 10 * 30 * 40, "far": 8 * 30 * 3000}[name]
        assert source.chunk_bytes == 4 * expected
        assert source.decoded_bytes(1) == 4 * expected
    asked = {"sample_dim": "time", "missing_chunks": "fill", "reduction": "gram"}
    plan = plan_svd(tmp_path / "cut", 2, memory_limit="250MB", n_transforms=1, **asked)
    assert plan.strip_samples % 10 == 0
    with pytest.raises(ResourceError, match="memory_limit is"):
        plan_svd(tmp_path / "whole", 2, memory_limit="250MB", n_transforms=1, **asked)


# ------------------------------------------------------------------ missing, packed, interrupted


@pytest.mark.parametrize("reduction", [None, "gram", "samples", "factor"])
def test_land_is_left_out(reduction: str | None, tmp_path: Path) -> None:
    """Features without a value, and some that miss values, packed."""
    stored = np.round(100 * CUBE).astype(np.int16)
    stored[:, 1, 1] = stored[:, 3, 0] = -999
    stored[3, 0, 0] = stored[7:9, 2, 2] = -999
    attributes = {"scale_factor": 0.01, "add_offset": 20.0, "_FillValue": -999}
    path = write_zarr(
        tmp_path / "x", stored, (8, 2, 3), dimension_names=DIMS, attributes=attributes
    )
    values = np.where(stored == -999, np.nan, stored * 0.01 + 20.0).reshape(T, -1).T
    kept = [k for k in range(12) if k not in (4, 9)]
    filled = values[kept]
    filled = np.where(np.isnan(filled), np.nanmean(filled, axis=1)[:, None], filled)
    options: dict[str, Any] = {"sample_dim": "time", "missing": "mean", "reduction": reduction}
    if reduction is None:
        made = sparse_svd(path, 2, n_transforms=15, center="features", **options)
        expected = sparse_svd(filled, 2, n_transforms=15, center="features")
    else:
        made = sparse_pca(path, 2, max_nonzeros=8, **options)
        expected = sparse_pca(filled, 2, max_nonzeros=8, reduction=reduction)
    np.testing.assert_allclose(
        made.components.toarray()[:, kept], expected.components.toarray(), atol=1e-9
    )
    assert made.left_out.tolist() == [4, 9]
    found = made.to_xarray().components
    assert np.isnan(found[:, 1, 1]).all()
    assert np.isnan(found[:, 3, 0]).all()
    with pytest.raises(SourceError, match=r"\(-999, its _FillValue\) at feature 4, sample 0"):
        sparse_pca(path, 2, sample_dim="time")


def test_missing_and_damaged_chunks_are_errors(tmp_path: Path) -> None:
    path = written(tmp_path)
    (path / "c/3/1/0").unlink()
    with pytest.raises(SourceError, match=r"1 chunk\(s\) are missing .*c/3/1/0"):
        sparse_pca(path, 2, sample_dim="time")
    zeros = CUBE.copy()
    zeros[24:32, 2:] = 0
    made = sparse_pca(path, 2, sample_dim="time", missing_chunks="fill")
    expected = sparse_pca(zeros.reshape(T, -1).T, 2)
    np.testing.assert_array_equal(made.components.toarray(), expected.components.toarray())
    (path / "c/3/1/0").write_bytes(b"short")
    with pytest.raises(SourceError, match=r"cannot read chunk\(s\) c/3/1/0"):
        sparse_pca(path, 2, sample_dim="time")


def test_runs_go_on(expected: tuple[SVDResult, SVDResult], tmp_path: Path) -> None:
    """In a workspace, with the bits of a fit at once; not on an array that changed."""
    path = written(tmp_path)
    options: dict[str, Any] = {
        "center": "features", "sample_dim": "time", "workspace": tmp_path / "run"
    }  # fmt: skip
    sparse_svd(path, 2, n_transforms=5, **options)
    made = sparse_svd(path, 2, n_transforms=15, resume=True, **options)
    assert differences(made, expected[1]) == []
    with pytest.raises(OptionError, match="another n_features: 12 there, 150 now"):
        sparse_svd(path, 2, n_transforms=20, resume=True, **options | {"sample_dim": "lat"})
    zarr.open_array(path, mode="r+")[0, 0, 0] = 7.0
    with pytest.raises(OptionError, match="source"):
        sparse_svd(path, 2, n_transforms=20, resume=True, **options)
    with pytest.raises(OptionError, match="array of two axes"):
        sparse_svd(path, 2, n_transforms=5, sample_dim="time", overwrite_x=True)


# ------------------------------------------------------------------------------------ coordinates


def dataset() -> Any:
    """Latitudes that descend, packed longitudes, times."""
    xr = pytest.importorskip("xarray")
    coords = {
        "time": np.datetime64("2020-02-27T06:00", "ns") + np.arange(T).astype("m8[D]"),
        "lat": [60.0, 30.0, 0.0, -30.0],
        "lon": [0.0, 0.5, 1.0],
    }
    made = xr.DataArray(CUBE, coords, DIMS, "sst").to_dataset()
    made.lon.encoding = {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}
    return made


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_coordinates_are_those_of_xarray(zarr_format: int, tmp_path: Path) -> None:
    """By path the labels of the DataArray, also of arrays inside of groups and zip files."""
    xr = pytest.importorskip("xarray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what zarr says of its own formats is no test of ours
        options = {"zarr_format": zarr_format, "consolidated": False}
        dataset().to_zarr(tmp_path / "s.zarr", group="deep", **options)
        x = xr.open_zarr(tmp_path / "s.zarr", group="deep", consolidated=False)["sst"]
    expected = sparse_pca(x, 2, sample_dim="time")
    array = zarr.open_group(tmp_path / "s.zarr", mode="r")["deep/sst"]
    for source in (tmp_path / "s.zarr/deep/sst", f"file://{tmp_path}/s.zarr/deep/sst", array):
        made = sparse_pca(source, 2, sample_dim="time")
        np.testing.assert_array_equal(made.feature_names, expected.feature_names)
        np.testing.assert_array_equal(made.sample_names, expected.sample_names)
        xr.testing.assert_identical(made.to_xarray(source), expected.to_xarray(x))
    with pytest.raises(OptionError, match="in another order"):
        made.transform(x.isel(lat=slice(None, None, -1)))


def test_coordinates_that_are_none_are_left_out(tmp_path: Path) -> None:
    """Of another size or kind, of names that lead elsewhere; damage is an error."""
    group = zarr.create_group(tmp_path / "s.zarr")
    dims = ("time", "../lat", "lon")
    array = group.create_array("x", data=CUBE, chunks=(8, 2, 3), dimension_names=dims)
    zarr.create_array(tmp_path / "lat", data=np.arange(4))
    group.create_array("time", data=np.arange(3))
    group.create_group("lon")
    made = sparse_pca(array, 2, sample_dim="time")
    assert made.feature_names is None
    assert made.sample_names is None
    assert made.features is not None
    assert made.features.coords == {}
    del group["lon"]
    group.create_array("lon", data=np.arange(3.0), compressors=None)
    made = sparse_pca(array, 2, sample_dim="time")
    assert made.features is not None
    assert made.features.coords["lon"].tolist() == [0, 1, 2]
    (tmp_path / "s.zarr/lon/c/0").write_bytes(b"short")
    with pytest.raises(SourceError, match=r"the coordinate 'lon' of .* cannot be read"):
        sparse_pca(array, 2, sample_dim="time")


@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        ("days since 2000-01-01", "standard"),
        ("hours since 1900-1-1 00:00:0.0", "gregorian"),
        ("seconds since 1970-01-01T06:30:15Z", "proleptic_gregorian"),
        ("Minutes since 1999-12-31 23:59:59 UTC", "standard"),
    ],
)
@pytest.mark.parametrize("values", [[0, 59, -3, 100], [0.5, 1.25, np.nan, 366.0]])
def test_times_are_those_of_xarray(units: str, calendar: str, values: list[float]) -> None:
    xr = pytest.importorskip("xarray")
    attributes = {"units": units, "calendar": calendar}
    found = times_of(np.array(values), attributes)
    stored = xr.Dataset({"t": ("x", np.array(values), attributes)})
    np.testing.assert_array_equal(found, xr.decode_cf(stored).t.values)


@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        ("days since 2000-01-01", "noleap"),
        ("months since 2000-01-01", "standard"),
        ("days since 0001-01-01", "standard"),
        ("days since 2000-02-31", "standard"),
        ("days since 2000-01-01 00:00 +02:00", "standard"),
        ("metres", "standard"),
        (5, None),
    ],
)
def test_times_that_cannot_be_told_stay_numbers(units: Any, calendar: Any) -> None:
    assert times_of(np.arange(3), {"units": units, "calendar": calendar}) is None
    assert times_of(np.array([2**62]), {"units": "days since 2000-01-01"}) is None


# --------------------------------------------------------------------------------------- the shell


def test_from_the_shell(tmp_path: Path) -> None:
    path, out = written(tmp_path), tmp_path / "parts.zarr"
    run = CliRunner().invoke(
        main,
        ["pca", str(path), "--components", "2", "--max-fill", "0.4", "--sample-dim", "time",
         "--out", str(out), "--quiet"],
    )  # fmt: skip
    assert run.exit_code == 0, run.output
    made = SVDResult.load(out)
    expected = sparse_pca(X, 2, max_fill=0.4)
    np.testing.assert_array_equal(made.components.toarray(), expected.components.toarray())
    scores = tmp_path / "scores.zarr"
    run = CliRunner().invoke(main, ["transform", str(out), str(path), "--out", str(scores)])
    assert run.exit_code == 0, run.output
    assert zarr.open_array(scores, mode="r").shape == (T, 2)
