"""Labels survive: levels of stacked dimensions, dimensions of any name, through save and load."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import normal
from test_fuzz_results import seal

from streamsvd import OptionError, SourceError, SVDResult, sparse_pca, sparse_svd

xr = pytest.importorskip("xarray")
pandas = pytest.importorskip("pandas")

LAT, LON, TIMES = [30.0, 20.0, 10.0, 0.0], ["west", "mid", "east"], 30


def field() -> Any:
    """(time, lat, lon): latitudes descend, longitudes are words out of order."""
    coords = {
        "time": np.datetime64("2026-01-01", "ns") + np.arange(TIMES).astype("m8[D]"),
        "lat": LAT,
        "lon": LON,
    }
    values = normal(TIMES, 12).cumsum(axis=1).reshape(TIMES, 4, 3)
    return xr.DataArray(values, coords, ("time", "lat", "lon"), "sst")


def both(made: SVDResult, folder: Path) -> list[SVDResult]:
    """A result, and the same from the disk."""
    made.save(folder / "result")
    return [made, SVDResult.load(folder / "result")]


def names(found: Any) -> list[str]:
    assert found is not None
    return list(found)


# --------------------------------------------------------------------------- stacked dimensions


def test_stacked_features_unstack(tmp_path: Path) -> None:
    """Also where the sea is what is left of a map: places that were dropped are NaN again."""
    x = field().stack(space=("lat", "lon"))
    sea = x.isel(space=[0, 1, 3, 4, 5, 7, 8, 9, 10])
    for data, places in ((x, np.arange(12)), (sea, np.array([0, 1, 3, 4, 5, 7, 8, 9, 10]))):
        fitted = sparse_pca(data, 2, sample_dim="time", max_fill=0.5)
        for made in both(fitted, tmp_path / str(len(places))):
            found = made.to_xarray()
            assert list(found.indexes["space"].names) == ["lat", "lon"]
            assert found.indexes["space"].equals(data.indexes["space"])
            map_of = found.unstack("space").components
            assert map_of.dims == ("component", "lat", "lon")
            assert map_of.lat.values.tolist() == LAT
            expected = np.full((2, 12), np.nan)
            expected[:, places] = made.components.toarray()
            np.testing.assert_array_equal(map_of, expected.reshape(2, 4, 3))
            assert names(made.feature_names)[2] == ["20.0,west", "30.0,east"][len(places) // 12]
            np.testing.assert_array_equal(made.transform(data), fitted.transform(data))
            with pytest.raises(OptionError, match="in another order"):
                made.transform(data.isel(space=slice(None, None, -1)))


def test_stacked_samples_unstack(tmp_path: Path) -> None:
    """Members of an ensemble at their times; coordinates of times and numbers."""
    x = field().rename(lat="member").assign_coords(member=[4, 2, 3, 1])
    stacked = x.stack(run=("time", "member"))
    expected = sparse_pca(x, 2, sample_dim=("time", "member"), max_fill=0.7)
    for made in both(sparse_pca(stacked, 2, sample_dim="run", max_fill=0.7), tmp_path):
        assert names(made.sample_names)[:1] == ["2026-01-01T00:00:00.000000000,4"]
        scores = made.to_xarray(stacked).unstack("run").scores
        assert scores.dims == ("component", "time", "member")
        xr.testing.assert_allclose(scores, expected.to_xarray(x).scores)
        np.testing.assert_array_equal(scores.time, x.time)


def test_more_dimensions_come_back(tmp_path: Path) -> None:
    """Stacked or not, beside one another."""
    x = field().expand_dims(level=[1000, 500]).stack(space=("lat", "lon"))
    for made in both(sparse_pca(x, 2, sample_dim="time"), tmp_path):
        found = made.to_xarray(x)
        assert found.components.dims == ("component", "level", "space")
        assert found.scores.dims == ("component", "time")
        again = found.unstack("space").components
        np.testing.assert_array_equal(
            again.transpose("component", "level", "lat", "lon").values.reshape(2, -1),
            made.components.toarray(),
        )


def test_levels_of_tables(tmp_path: Path) -> None:
    columns = pandas.MultiIndex.from_product([["b", "a"], [3, 1, 2]], names=["kind", None])
    frame = pandas.DataFrame(normal(40, 6), columns=columns)
    for made in both(sparse_pca(frame, 2), tmp_path):
        assert names(made.feature_names)[:2] == ["b,3", "b,1"]
        again = made.to_xarray().unstack("feature").components
        assert again.dims == ("component", "kind", "feature_level_1")
        for k, (kind, level) in enumerate(columns):
            one = again.sel(kind=kind, feature_level_1=level)
            np.testing.assert_array_equal(one, made.components.toarray()[:, k])


def test_places_without_a_value_of_a_level(tmp_path: Path) -> None:
    """Codes of -1, which pandas has for what is missing in an index."""
    index = pandas.MultiIndex.from_arrays([[1.0, np.nan, 2.0], ["a", "b", "c"]], names=["u", "v"])
    frame = pandas.DataFrame(normal(40, 3), columns=index)
    for made in both(sparse_pca(frame, 2), tmp_path):
        assert names(made.feature_names) == ["1.0,a", "nan,b", "2.0,c"]
        assert made.to_xarray().indexes["feature"].equals(index)


DAMAGED: list[tuple[str, Any]] = [
    ("name", 5),
    ("name", "lon"),
    ("name", "space"),
    ("values", "<M8[no]"),
    ("values", "text"),
    ("values", ["x"]),
    ("count", 3),
    ("count", "4"),
    ("count", None),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    x = field().stack(space=("lat", "lon"))
    sparse_pca(x, 2, sample_dim="time").save(folder / "r")
    return folder / "r"


@pytest.mark.parametrize(("key", "value"), DAMAGED)
def test_levels_are_checked_on_load(key: str, value: Any, saved: Path, tmp_path: Path) -> None:
    """With sound checksums: whoever wrote the file."""
    path = shutil.copytree(saved, tmp_path / "r")
    about = json.loads((path / "zarr.json").read_text())
    about["attributes"]["labels"]["features"]["coords"][0][0][key] = value
    (path / "zarr.json").write_text(json.dumps(about))
    seal(path)
    with pytest.raises(SourceError, match=r"labels of features|missing|cannot read"):
        SVDResult.load(path)


@pytest.mark.parametrize(
    ("name", "place", "value"), [("codes0", 3, 4), ("codes0", 3, -2), ("level0", 1, 30.0)]
)
def test_codes_are_checked_on_load(
    name: str, place: int, value: float, saved: Path, tmp_path: Path
) -> None:
    """Codes beyond the values, and values that occur twice."""
    path = shutil.copytree(saved, tmp_path / "r")
    chunk = path / f"features/0/{name}/c/0"
    numbers = np.fromfile(chunk, np.int64 if name == "codes0" else np.float64)
    numbers[place] = value
    numbers.tofile(chunk)
    seal(path)
    with pytest.raises(
        SourceError, match=r"labels of features.*(not all from -1 to 3|occur twice)"
    ):
        SVDResult.load(path)


# ------------------------------------------------------------------------------ names of our own

OURS = [
    "component",
    "components",
    "feature",
    "sample",
    "scores",
    "mean",
    "scale",
    "explained_variance",
    "explained_variance_ratio",
    "singular_values",
]


def test_these_are_all_names_of_ours() -> None:
    made = sparse_svd(normal(5, 20), 2, n_transforms=4)
    found = made.to_xarray(normal(5, 7))
    assert sorted({*found.variables, *found.dims}) == sorted(OURS)


@pytest.fixture(scope="module")
def plain() -> Any:
    return sparse_pca(field(), 2, sample_dim="time").to_xarray(field())


@pytest.mark.parametrize("with_coords", [False, True])
@pytest.mark.parametrize("name", OURS)
def test_dimensions_may_have_our_names(
    name: str, with_coords: bool, plain: Any, tmp_path: Path
) -> None:
    """The data keep their names, ours get an underscore; of features and of samples."""
    x = field().rename(lat=name)
    x = x if with_coords else x.drop_vars(name)
    for made in both(sparse_pca(x, 2, sample_dim="time"), tmp_path / "features"):
        found = made.to_xarray(x)
        ours = {one: f"{one}_" if one == name else one for one in OURS}
        assert found[ours["components"]].dims == (ours["component"], name, "lon")
        assert found[ours["scores"]].dims == (ours["component"], "time")
        for one in {*OURS} & {*plain.data_vars}:
            np.testing.assert_array_equal(found[ours[one]], plain[one])
        if with_coords:
            assert found[name].values.tolist() == LAT
    if with_coords:
        x = field().rename(time=name)
        found = sparse_pca(x, 2, sample_dim=name).to_xarray(x)
        assert found[ours["scores"]].dims == (ours["component"], name)
        np.testing.assert_array_equal(found[ours["scores"]], plain.scores)
        np.testing.assert_array_equal(found[name], field().time)


def test_a_level_may_have_our_name() -> None:
    x = field().rename(lat="mean", lon="mean_").stack(component=("mean", "mean_"))
    made = sparse_pca(x, 2, sample_dim="time")
    found = made.to_xarray()
    assert found["mean__"].dims == ("component",)
    assert found.components.dims == ("component_", "component")
    assert found.unstack("component").components.dims == ("component_", "mean", "mean_")


def test_samples_and_features_of_one_name_are_refused_before_the_pass() -> None:
    made = sparse_pca(field().stack(space=("lat", "lon")), 2, sample_dim="time")
    other = xr.DataArray(normal(12, 4), dims=("cell", "lat"))
    with pytest.raises(OptionError, match="samples have the dimension lat, as the features"):
        made.to_xarray(other, sample_dim="lat")
