"""Several variables at once: features of all of them side by side, scaled by variable if asked."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import differences, normal
from test_fuzz_results import seal

from streamsvd import (
    OptionError,
    SourceError,
    StreamingSparsePCA,
    SVDResult,
    sparse_pca,
    sparse_pca_cv,
    sparse_svd,
)
from streamsvd.choosing.fold_sums import sum_folds
from streamsvd.data import open_data
from streamsvd.options import Ask

xr = pytest.importorskip("xarray")

T = 60
TIMES = np.datetime64("2026-01-01", "ns") + np.arange(T).astype("m8[D]")
LAT, LON, Y = [30.0, 20.0, 10.0], [0.0, 5.0], [1.0, 2.0, 3.0, 4.0]
SST = normal(T, 6, 1).cumsum(axis=1) + 2
SLP = 1000 * normal(T, 4, 2).cumsum(axis=1) + 1e3
X = np.hstack([SST, SLP]).T


def sst() -> Any:
    coords = {"time": TIMES, "lat": LAT, "lon": LON}
    return xr.DataArray(SST.reshape(T, 3, 2), coords, ("time", "lat", "lon"), "sst")


def slp() -> Any:
    return xr.DataArray(SLP.T, {"time": TIMES, "y": Y}, ("y", "time"), "slp")


def scaled(values: np.ndarray) -> np.ndarray:
    """Each variable divided by the root of its total variance, by hand."""
    parts = (values[:6], values[6:])
    return np.vstack([part / np.sqrt(np.nanvar(part, axis=1).sum()) for part in parts])


KINDS: dict[str, Any] = {
    "list": lambda: [sst(), slp()],
    "tuple": lambda: (sst(), slp()),
    "Dataset": lambda: xr.Dataset({"sst": sst(), "slp": slp()}),
    "Dask": lambda: [sst().chunk(time=13, lat=2), slp().chunk(time=7)],
    "Dataset of Dask": lambda: xr.Dataset({"sst": sst(), "slp": slp()}).chunk(time=20),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_of_all_features_side_by_side(kind: str, tmp_path: Path) -> None:
    """And back as variables, also when loaded."""
    data = KINDS[kind]()
    expected = sparse_pca(X, 2, max_fill=0.5)
    fitted = sparse_pca(data, 2, max_fill=0.5, sample_dim="time")
    svd = sparse_svd(data, 2, n_transforms=12, center="features", sample_dim="time")
    assert differences(svd, sparse_svd(X, 2, n_transforms=12, center="features")) == []
    fitted.save(tmp_path / "r")
    for made in (fitted, SVDResult.load(tmp_path / "r")):
        np.testing.assert_array_equal(made.components.toarray(), expected.components.toarray())
        np.testing.assert_array_equal(made.transform(data).T, expected.transform(X))
        assert made.feature_names is not None
        assert list(made.feature_names[[0, 9]]) == ["sst,30.0,0.0", "slp,4.0"]
        found = made.to_xarray(data)
        assert found.components_sst.dims == ("component", "lat", "lon")
        assert found.components_slp.dims == ("component", "y")
        np.testing.assert_array_equal(
            found.components_sst.values.reshape(2, 6), made.components.toarray()[:, :6]
        )
        np.testing.assert_array_equal(found.components_slp, made.components.toarray()[:, 6:])
        np.testing.assert_allclose(found.mean_slp, slp().mean("time"))
        np.testing.assert_array_equal(found.scale_sst, np.ones((3, 2)))
        assert found.scores.dims == ("component", "time")
        np.testing.assert_array_equal(found.lat, LAT)
        np.testing.assert_array_equal(found.y, Y)


@pytest.mark.parametrize("center", ["features", None])
@pytest.mark.parametrize("reduction", ["gram", "samples", "factor", None])
def test_each_variable_has_variance_one(
    reduction: str | None, center: str | None, tmp_path: Path
) -> None:
    """What hand-scaled data give, for every form; scales are those of NumPy."""
    options: dict[str, Any] = {"center": center, "reduction": reduction}
    fit: Any = sparse_pca if reduction else sparse_svd
    options |= {"max_nonzeros": 12} if reduction else {"n_transforms": 12}
    data = KINDS["list"]()
    made = fit(data, 2, sample_dim="time", normalize="variables", **options)
    expected = fit(scaled(X), 2, **options)
    np.testing.assert_allclose(made.components.toarray(), expected.components.toarray(), atol=1e-9)
    np.testing.assert_allclose(made.explained_variance, expected.explained_variance, rtol=1e-9)
    np.testing.assert_allclose(made.scale, X[:, 0] / scaled(X)[:, 0], rtol=1e-12)
    made.save(tmp_path / "r")
    again = SVDResult.load(tmp_path / "r")
    assert again.settings["normalize"] == "variables"
    np.testing.assert_array_equal(again.transform(data), made.transform(data))
    np.testing.assert_allclose(again.transform(X.T).T, expected.transform(scaled(X)), atol=1e-8)
    if reduction == "gram":
        for source in (data, X.T):  # the variables are those of the fit
            more = again.refine(source, max_nonzeros=8)
            by_hand = expected.refine(max_nonzeros=8)
            np.testing.assert_allclose(
                more.explained_variance, by_hand.explained_variance, rtol=1e-9
            )
        bound = again.certificate(data).bound
        assert bound == pytest.approx(expected.certificate(scaled(X)).bound, rel=1e-6)


@pytest.mark.parametrize("reduction", ["gram", None])
def test_variances_are_over_what_is_present(reduction: str | None) -> None:
    """Missing values, and features without any, of either variable."""
    one, two = sst().copy(), slp().copy()
    one[3:9, 0, 1] = one[50:, 2, 0] = np.nan
    one[:, 1, 1] = np.nan  # land
    two[1, 20:30] = np.nan
    values = np.hstack([one.values.reshape(T, 6), two.values.T]).T
    kept = [k for k in range(10) if k != 3]
    means = np.nanmean(values[kept], axis=1, keepdims=True)
    filled = np.where(np.isnan(values[kept]), means, values[kept])
    scales = np.repeat(
        [np.sqrt(np.nanvar(part, axis=1).sum()) for part in (values[kept[:5]], values[6:])], [5, 4]
    )
    options: dict[str, Any] = {"center": "features", "reduction": reduction}
    fit: Any = sparse_pca if reduction else sparse_svd
    options |= {"max_nonzeros": 9} if reduction else {"n_transforms": 10}
    made = fit([one, two], 2, sample_dim="time", missing="mean", normalize="variables", **options)
    expected = fit(filled / scales[:, None], 2, **options)
    np.testing.assert_allclose(made.scale[kept], scales, rtol=1e-12)
    np.testing.assert_allclose(
        made.components.toarray()[:, kept], expected.components.toarray(), atol=1e-9
    )
    found = made.to_xarray()
    assert np.isnan(found.components_sst[:, 1, 1]).all()
    assert np.isnan(found.components_slp).sum() == 0
    with pytest.raises(SourceError, match="NaN at feature 3, sample 0"):
        sparse_pca([one, two], 2, sample_dim="time")
    with pytest.raises(SourceError, match="NaN at feature 7, sample 20"):
        sparse_pca([sst(), two], 2, sample_dim="time")


@pytest.mark.parametrize("fit", [sparse_pca, sparse_svd])
def test_some_features_of_each(fit: Any) -> None:
    """A variable is as large as those of its features that take part."""
    kept = np.arange(10) % 3 > 0
    some = X[kept]
    scales = np.sqrt(some.var(axis=1))
    of_first = np.arange(10)[kept] < 6
    for part in (of_first, ~of_first):
        scales[part] = np.sqrt((scales[part] ** 2).sum())
    options: dict[str, Any] = {"center": "features", "n_transforms": 9, "pivot": False}
    asked = {"sample_dim": "time", "normalize": "variables", "feature_mask": kept}
    made = fit(KINDS["list"](), 2, **options, **asked)
    expected = fit(some / scales[:, None], 2, **options)
    np.testing.assert_allclose(made.scale[kept], scales, rtol=1e-12)
    found = made.components.toarray()
    np.testing.assert_allclose(found[:, kept], expected.components.toarray(), atol=1e-9)
    assert not found[:, ~kept].any()


def test_by_cross_validation_and_estimators() -> None:
    data = KINDS["Dataset"]()
    made = sparse_pca_cv(data, 1, max_fill=0.5, folds=2, sample_dim="time", normalize="variables")
    np.testing.assert_allclose(made.result.scale, X[:, 0] / scaled(X)[:, 0], rtol=1e-12)
    source = open_data(data, Ask(sample_dim="time"))
    source.scale_variables(source.features)
    sums = sum_folds(source, np.arange(T) % 3, "features", "features")
    gram, learned = sums.without(1)  # scaled by the training set
    train = X[:, np.arange(T) % 3 != 1]
    by_hand = scaled(train) - scaled(train).mean(axis=1, keepdims=True)
    np.testing.assert_allclose(gram, by_hand @ by_hand.T, atol=1e-9)
    np.testing.assert_allclose(learned.scale, train[:, 0] / scaled(train)[:, 0], rtol=1e-12)
    model = StreamingSparsePCA(2, max_nonzeros=12, sample_dim="time", normalize="variables")
    scores = model.fit(data).transform(data)
    assert scores.shape == (T, 2)
    np.testing.assert_allclose(model.inverse_transform(scores).shape, (T, 10))
    with pytest.raises(OptionError, match="batches are of one"):
        StreamingSparsePCA(2, normalize="variables").partial_fit(X.T)


def test_dimensions_that_are_others_get_the_name_of_the_variable(tmp_path: Path) -> None:
    """Two grids of the same names, one of them shared by a third variable; stacked ones, too."""
    coarse = sst().isel(lat=[0, 2]).rename("coarse")
    third = (sst() + normal(T, 6).reshape(T, 3, 2)).rename("third")
    flat = sst().isel(lon=0, drop=True).rename("flat")
    stacked = sst().stack(space=("lat", "lon")).rename("stacked")
    again = [one.rename(f"{one.name}_again") for one in (coarse, stacked)]
    data = [sst(), coarse, third, flat, stacked, *again]
    made = sparse_pca(data, 2, sample_dim="time")
    made.save(tmp_path / "r")
    found = SVDResult.load(tmp_path / "r").to_xarray()
    assert found.components_sst.dims == ("component", "lat", "lon")
    assert found.components_coarse.dims == ("component", "lat_coarse", "lon")
    assert found.components_third.dims == ("component", "lat", "lon")
    assert found.components_flat.dims == ("component", "lat")
    assert found.components_stacked.dims == ("component", "space")
    assert found.lat_coarse.values.tolist() == [30.0, 10.0]
    assert found.components_coarse_again.dims == ("component", "lat_coarse", "lon")
    for name in ("stacked", "stacked_again"):
        levels = found[f"components_{name}"].unstack("space")
        assert levels.dims == ("component", "lat_stacked", "lon_stacked")
    parts = [found[f"components_{one.name}"].values.reshape(2, -1) for one in data]
    np.testing.assert_array_equal(np.hstack(parts), made.components.toarray())
    odd = [sst().rename(lat="components_sst", lon="component"), slp()]
    found = sparse_pca(odd, 2, sample_dim="time").to_xarray()
    assert found.components_sst_.dims == ("component_", "components_sst", "component")
    odd = [sst().rename(lat="components_a").rename("a"), slp().rename("a_")]
    found = sparse_pca(odd, 2, sample_dim="time").to_xarray()
    assert found.components_a_.dims == ("component", "components_a", "lon")
    assert found.components_a__.dims == ("component", "y")


def test_arrays_without_names_are_called_by_their_places() -> None:
    made = sparse_pca([sst().rename(None), slp().rename(None)], 2, sample_dim="time")
    assert {"components_0", "components_1"} <= set(made.to_xarray().data_vars)


def shifted() -> Any:
    return slp().assign_coords(time=TIMES + np.timedelta64(1, "D"))


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (
        lambda: [sst(), slp().isel(time=slice(50))],
        {},
        "'slp' has 50 samples along time, 'sst' has 60",
    ),
    (
        lambda: [sst(), shifted()],
        {},
        "'slp' are not those of 'sst': at place 0 of time is 2026-01-02.*, not 2026-01-01",
    ),
    (lambda: [sst(), slp().rename(time="t")], {}, "sample_dim='time' must be among"),
    (lambda: [sst(), sst()], {}, "several variables are called 'sst': rename"),
    (lambda: xr.Dataset({1: sst(), "1": slp()}), {}, "several variables are called '1': rename"),
    (lambda: [sst(), X], {}, "the list holds ndarray beside DataArrays"),
    (lambda: [sst(), slp().astype("U5")], {}, "'slp' holds <U5, not real numbers"),
    (lambda: xr.Dataset(), {}, "the Dataset has no variables"),
    (
        lambda: xr.Dataset({"sst": sst(), "mask": sst()[0] > 0}),
        {},
        r"'mask' of the Dataset have no dimension 'time': pass the variables that do",
    ),
    (lambda: sst(), {"normalize": "variables"}, "is for several variables, .* 'sst' is one"),
    (
        lambda: [sst(), slp() * 0 + 5],
        {"normalize": "variables"},
        r"variable\(s\) 'slp' are constant and cannot be scaled",
    ),
    (lambda: [sst(), slp()], {"sample_dim": None}, "name that of the samples"),
]


@pytest.mark.parametrize(("make", "options", "words"), REFUSED)
def test_what_is_refused(make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((OptionError, SourceError), match=words):
        sparse_pca(make(), 2, **{"sample_dim": "time"} | options)


def test_stacked_samples_have_to_agree() -> None:
    """By their levels; times of another precision are the same."""
    one = sst().stack(run=("time", "lat"))
    two = one.rename("two").isel(run=slice(None, None, -1))
    assert sparse_pca([one, one.rename("two")], 2, sample_dim="run").n_features == 4
    with pytest.raises(OptionError, match=r"at place 0 of run is 2026-03-01.*10.0, not 2026-01-01"):
        sparse_pca([one, two], 2, sample_dim="run")
    seconds = slp().assign_coords(time=TIMES.astype("M8[s]"))
    assert sparse_pca([sst(), seconds], 2, sample_dim="time").n_features == 10


def test_other_variables_are_refused() -> None:
    """Also without coordinates: in another order, or of other sizes."""
    one, two = (x.drop_vars([*x.coords]) for x in (sst(), slp()))
    made = sparse_pca([one, two], 2, sample_dim="time")
    with pytest.raises(OptionError, match="variables are 'slp' of 4 features, 'sst' of 6 feat"):
        made.transform([two, one])
    with pytest.raises(OptionError, match="has 6 features, the fit had 10"):
        made.transform(one)


def test_strips_are_of_whole_chunks() -> None:
    """Of all variables, where that is not too much at a time."""
    for chunks, expected in (((4, 6), 12), ((50, 7), 50), ((60, 60), 60)):
        data = [sst().chunk(time=chunks[0]), slp().chunk(time=chunks[1])]
        source = open_data(data, Ask(sample_dim="time"))
        assert source.chunk == expected
        read = source.read(11, 23, np.dtype(np.float32))
        np.testing.assert_array_equal(read, X[:, 11:23].astype(np.float32))
        assert source.bytes_read == read.nbytes * 2


@pytest.mark.parametrize(
    "damage",
    [{"name": 3}, {"name": "slp"}, {"size": 5}, {"size": "6"}, {"features": None}],
)
def test_variables_are_checked_on_load(damage: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "r"
    sparse_pca([sst(), slp()], 2, sample_dim="time", normalize="variables").save(path)
    for what in ("features", "settings"):
        bad = shutil.copytree(path, tmp_path / what)
        about = json.loads((bad / "zarr.json").read_text())
        if what == "features":
            about["attributes"]["labels"]["features"]["variables"][0] |= damage
        else:
            about["attributes"]["settings"]["normalize"] = None
        (bad / "zarr.json").write_text(json.dumps(about))
        seal(bad)
        with pytest.raises(SourceError, match=r"labels of features|in the settings"):
            SVDResult.load(bad)
