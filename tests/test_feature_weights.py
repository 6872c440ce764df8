"""Weights of features: the same as data multiplied by their roots by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from helpers import COMBINATIONS, TWO_PASSES, differences, normal, write_zarr
from scipy import sparse
from test_input_kinds import write_sparse

from streamsvd import (
    OptionError,
    SparseSVD,
    StreamingSparsePCA,
    SVDResult,
    plan_svd,
    sparse_pca,
    sparse_pca_cv,
    sparse_svd,
)
from streamsvd.cli.commands import main

pytestmark = pytest.mark.usefixtures("serial_dask")

N, SAMPLES = 12, 90
W = np.random.default_rng(3).uniform(0.1, 4.0, N)
ROOTS = np.sqrt(W)[:, None]
REDUCTIONS = [None, "gram", "samples", "factor"]
PCA: dict[str, Any] = {"max_fill": 0.4}


def data() -> np.ndarray:
    """Features of other means and spreads, most numbers zero."""
    X = normal(N, 3, 1) @ normal(3, SAMPLES, 2) + 0.3 * normal(N, SAMPLES, 3)
    X = X * np.linspace(1, 3, N)[:, None] + np.linspace(-5, 9, N)[:, None]
    X[np.random.default_rng(4).random(X.shape) < 0.6] = 0.0
    return X


def by_hand(X: np.ndarray, center: str | None = "features", normalize: str | None = None) -> Any:
    """Centred, scaled and weighted in NumPy."""
    X = X.copy()
    if center is not None:
        X -= X.mean(axis=int(center == "features"), keepdims=True)
    if normalize == "features":
        X /= X.std(axis=1, keepdims=True) if center else data().std(axis=1, keepdims=True)
    elif normalize == "samples":
        X /= np.maximum(np.linalg.norm(X, axis=0), 1e-300)
    return X * ROOTS


def asked(reduction: str | None) -> dict[str, Any]:
    """Of `sparse_svd`: refined, where there is a reduction."""
    if reduction is None:
        return {"n_transforms": 25}
    return {"reduction": reduction, "refine": True, "pivot": True} | PCA


def assert_alike(made: SVDResult, hand: SVDResult) -> None:
    """``X X^T`` and variances; a search that ends in a flat place ends in it to 1e-6."""
    flat = 1e-9 if made.refined is None else 1e-6
    np.testing.assert_allclose(made.components.toarray(), hand.components.toarray(), atol=flat)
    if made.covariance is not None and hand.covariance is not None:
        features = np.arange(made.n_fitted)
        known = hand.covariance.restricted(features).dense()
        found = made.covariance.restricted(features).dense()
        np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-9 * np.abs(known).max())
    np.testing.assert_allclose(made.total_energy, hand.total_energy, rtol=1e-9)
    explained, known = made.explained_variance, hand.explained_variance
    np.testing.assert_allclose(explained, known, rtol=flat)
    np.testing.assert_allclose(explained.sum(), known.sum(), rtol=1e-9)


def weights_in(made: SVDResult) -> np.ndarray:
    assert made.feature_weights is not None
    return made.feature_weights


# ------------------------------------------------------------------------ as weighted by hand


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("center", "normalize"), [*COMBINATIONS, TWO_PASSES])
def test_as_weighted_by_hand(
    reduction: str | None, center: str | None, normalize: str | None
) -> None:
    if (center, normalize) == TWO_PASSES and reduction is not None:
        pytest.skip("two passes")
    X = data()
    options: dict[str, Any] = {"center": center, "normalize": normalize, "feature_weights": W}
    made = sparse_svd(X, 3, **options, **asked(reduction))
    Y = by_hand(X, center, normalize)
    hand = sparse_svd(Y, 3, **asked(reduction))
    assert_alike(made, hand)
    known = made.components @ Y
    np.testing.assert_allclose(made.transform(X), known, atol=1e-9)
    np.testing.assert_array_equal(weights_in(made), W)
    captured = np.sum(known**2) / np.sum(Y**2)
    assert made.accuracy(X).captured_variance == pytest.approx(captured, rel=1e-10)


def zarr_array(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return write_zarr(folder / "x.zarr", X, (5, 13)), 1


def zarr_rows(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return write_zarr(folder / "x.zarr", np.ascontiguousarray(X.T), (13, 5)), 0


def npy(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    np.save(folder / "x.npy", X)
    return folder / "x.npy", 1


def hdf5(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    file = pytest.importorskip("h5py").File(folder / "x.h5", "w")
    return file.create_dataset("x", data=X, chunks=(5, 13)), 1


def pandas_table(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return pytest.importorskip("pandas").DataFrame(X.T), 0


def polars_table(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    names = [f"g{i}" for i in range(N)]
    return pytest.importorskip("polars").DataFrame(X.T, schema=names), 0


def anndata(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return pytest.importorskip("anndata").AnnData(sparse.csr_matrix(X.T)), 0


def data_array(folder: Path, X: np.ndarray) -> tuple[Any, int]:
    return pytest.importorskip("xarray").DataArray(X, dims=("f", "time")), 1


SOURCES: list[Callable[[Path, np.ndarray], tuple[Any, int]]] = [
    lambda folder, X: (X, 1),
    lambda folder, X: (X.T, 0),
    zarr_array,
    zarr_rows,
    npy,
    hdf5,
    lambda folder, X: (da.from_array(X, chunks=(5, 13)), 1),
    lambda folder, X: (sparse.csc_array(X), 1),
    lambda folder, X: (sparse.csr_array(X.T), 0),
    lambda folder, X: (write_sparse(folder / "a", sparse.csr_array(X.T), "csr_matrix"), 0),
    pandas_table,
    polars_table,
    anndata,
    data_array,
]
NAMES = ["numpy", "rows", "zarr", "zarr rows", "npy", "hdf5", "dask", "csc", "csr", "sparse group"]
NAMES += ["pandas", "polars", "anndata", "xarray"]


@pytest.mark.parametrize("make", SOURCES, ids=NAMES)
@pytest.mark.usefixtures("narrow_strips")
def test_any_source(make: Any, tmp_path: Path) -> None:
    X = data()
    source, axis = make(tmp_path, X)
    for reduction in REDUCTIONS:
        options: dict[str, Any] = {"center": "features", "feature_weights": W, "sample_axis": axis}
        if make is data_array:
            options["sample_dim"], options["sample_axis"] = "time", None
        made = sparse_svd(source, 3, **options, **asked(reduction))
        hand = sparse_svd(by_hand(X), 3, **asked(reduction))
        assert_alike(made, hand)
    scores = made.transform(source)
    np.testing.assert_allclose(scores if axis else scores.T, hand.transform(by_hand(X)), atol=1e-9)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_more_of_a_result(reduction: str | None, tmp_path: Path) -> None:
    X, Y = data(), by_hand(data())
    made = sparse_svd(X, 3, center="features", feature_weights=W, **asked(reduction))
    hand = sparse_svd(Y, 3, **asked(reduction))
    more, more_by_hand = made.refine(X, max_fill=0.5), hand.refine(Y, max_fill=0.5)
    assert_alike(more, more_by_hand)
    bound = more_by_hand.certificate(Y, effort="low").bound
    assert more.certificate(X, effort="low").bound == pytest.approx(bound, rel=1e-9)
    np.testing.assert_allclose(
        more.adjusted_variance(X), more_by_hand.adjusted_variance(Y), rtol=1e-9
    )
    more.save(tmp_path / "r")
    loaded = SVDResult.load(tmp_path / "r")
    assert differences(loaded, more) == []
    np.testing.assert_array_equal(loaded.transform(X), more.transform(X))
    np.testing.assert_array_equal(weights_in(loaded), W)
    assert "of features, from 0." in repr(loaded)


@pytest.mark.parametrize("normalize", [None, "features"])
def test_patterns_are_in_the_units_of_the_data(normalize: str | None) -> None:
    X = data()
    made = sparse_pca(X, N, max_fill=1.0, feature_weights=W, normalize=normalize)
    again = made.mean[:, None] + made.patterns.T @ made.transform(X)
    np.testing.assert_allclose(again, X, atol=1e-9)
    model = StreamingSparsePCA(N, max_fill=1.0, feature_weights=W, normalize=normalize).fit(X.T)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X.T)), X.T, atol=1e-9)
    assert sparse_pca(X, 2).patterns.nnz == sparse_pca(X, 2).n_nonzeros


def test_overwritten_and_in_single_precision() -> None:
    X = data()
    options: dict[str, Any] = {"center": "features", "n_transforms": 25}
    hand = sparse_svd(by_hand(X), 3, n_transforms=25)
    assert_alike(sparse_svd(X.copy(), 3, feature_weights=W, overwrite_x=True, **options), hand)
    single = sparse_svd(X.astype(np.float32), 3, feature_weights=W, **options)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.components.toarray(), hand.components.toarray(), atol=1e-4)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("normalize", [None, "features"])
def test_with_missing_values(reduction: str | None, normalize: str | None) -> None:
    X = data()
    X[np.random.default_rng(7).random(X.shape) < 0.1] = np.nan
    X[4] = np.nan
    kept = np.delete(np.arange(N), 4)
    options: dict[str, Any] = {"center": "features", "missing": "mean", "normalize": normalize}
    made = sparse_svd(X, 3, feature_weights=W, **options, **asked(reduction))
    Y = np.nan_to_num(X[kept] - np.nanmean(X[kept], axis=1, keepdims=True))
    if normalize is not None:
        Y /= np.nanstd(X[kept], axis=1, keepdims=True)
    Y *= ROOTS[kept]
    hand = sparse_svd(Y, 3, **asked(reduction))
    np.testing.assert_allclose(
        made.components.toarray()[:, kept], hand.components.toarray(), atol=1e-9
    )
    np.testing.assert_allclose(made.explained_variance, hand.explained_variance, rtol=1e-9)
    np.testing.assert_allclose(made.transform(X), hand.transform(Y), atol=1e-9)
    assert np.isnan(weights_in(made)[4])


# -------------------------------------------------------------------- estimators and others


@pytest.mark.parametrize("reduction", ["gram", "factor"])
@pytest.mark.parametrize("missing", ["error", "mean"])
@pytest.mark.parametrize("normalize", [None, "features"])
def test_batches(reduction: str, missing: str, normalize: str | None) -> None:
    if (reduction, missing) == ("factor", "mean"):
        pytest.skip("refused")
    X = data()
    if missing == "mean":
        X[np.random.default_rng(7).random(X.shape) < 0.1] = np.nan
        X[4] = np.nan
    options: dict[str, Any] = PCA | {
        "reduction": reduction,
        "missing": missing,
        "normalize": normalize,
    }
    model = StreamingSparsePCA(3, feature_weights=W, **options)
    for batch in np.array_split(X.T, 4):
        model.partial_fit(batch)
    if reduction == "gram":
        made = sparse_pca(X, 3, feature_weights=W, **options)
    else:
        hand = StreamingSparsePCA(3, **(options | {"normalize": None}))
        made = hand.partial_fit(by_hand(X, "features", normalize).T).result_
    assert_alike(model.result_, made)
    np.testing.assert_allclose(model.explained_variance_, made.explained_variance, rtol=1e-9)
    model.set_params(feature_weights=W[::-1].copy())
    with pytest.raises(OptionError, match="other feature_weights"):
        model.partial_fit(X.T)


def test_cross_validation() -> None:
    X = data()
    cv = sparse_pca_cv(X, [1, 2], max_fill=[0.2, 0.5], feature_weights=W)
    # means are subtracted by fold, so the hand weighs alone
    hand = sparse_pca_cv(X * ROOTS, [1, 2], max_fill=[0.2, 0.5])
    np.testing.assert_allclose(cv.predicted_variance, hand.predicted_variance, rtol=1e-9)
    assert_alike(cv.result, hand.result)


def test_the_command_line(tmp_path: Path) -> None:
    X, store = data(), write_zarr(tmp_path / "x.zarr", data(), (5, 13))
    np.save(tmp_path / "w.npy", W)
    out = tmp_path / "r.zarr"
    line = ["pca", str(store), "--components", "3", "--max-fill", "0.4", "--out", str(out)]
    run = CliRunner().invoke(main, [*line, "--feature-weights", str(tmp_path / "w.npy")])
    assert run.exit_code == 0, run.output
    assert_alike(SVDResult.load(out), sparse_pca(X, 3, feature_weights=W, **PCA))
    run = CliRunner().invoke(main, [*line, "--feature-weights", str(tmp_path / "no.npy")])
    assert "cannot read" in run.output
    run = CliRunner().invoke(main, [*line, "--overwrite", "--feature-weights", "coslat"])
    assert "needs a latitude" in run.output


def test_a_run_goes_on_with_the_same_weights_alone(tmp_path: Path) -> None:
    store = write_zarr(tmp_path / "x.zarr", data(), (5, 13))
    options: dict[str, Any] = {"center": "features", "workspace": tmp_path / "w"}
    sparse_svd(store, 3, n_transforms=10, feature_weights=W, **options)
    more = sparse_svd(store, 3, n_transforms=25, feature_weights=W.tolist(), resume=True, **options)
    assert_alike(more, sparse_svd(by_hand(data()), 3, n_transforms=25))
    for other in (W[::-1], None):
        with pytest.raises(OptionError, match="another feature_weights"):
            sparse_svd(store, 3, n_transforms=30, feature_weights=other, resume=True, **options)


# ------------------------------------------------------------------------- named dimensions

LATITUDE, LONGITUDE = np.array([-90.0, -30.0, 0.0, 60.0]), np.array([0.0, 10.0, 20.0])
AREA = np.repeat(np.cos(np.radians(LATITUDE)), 3)


def grid(name: str = "lat", **attributes: str) -> Any:
    """Samples in time of a grid of 4 latitudes and 3 longitudes."""
    xarray = pytest.importorskip("xarray")
    coords = {name: (name, LATITUDE, attributes), "lon": LONGITUDE}
    return xarray.DataArray(data().T.reshape(-1, 4, 3), coords, ("time", name, "lon"))


def curvilinear() -> Any:
    x = grid("y").drop_vars("y")
    return x.assign_coords(latitude=(("lon", "y"), np.tile(LATITUDE, (3, 1))))


@pytest.mark.parametrize(
    "x",
    [
        lambda: grid(),
        lambda: grid("Latitude"),
        lambda: grid("y", standard_name="latitude"),
        lambda: grid("y", units="degrees_north"),
        lambda: grid().transpose("lon", "time", "lat").transpose("time", "lat", "lon"),
        lambda: grid().stack(place=("lat", "lon")),
        curvilinear,
    ],
    ids=["lat", "Latitude", "standard_name", "units", "order", "stacked", "curvilinear"],
)
def test_the_cosine_of_the_latitude(x: Callable[[], Any]) -> None:
    made = sparse_pca(x(), 2, sample_dim="time", feature_weights="coslat", **PCA)
    np.testing.assert_allclose(weights_in(made), AREA, atol=1e-15)
    Y = (data() - data().mean(axis=1, keepdims=True)) * np.sqrt(AREA)[:, None]
    assert_alike(made, sparse_pca(Y, 2, **PCA))
    assert made.settings["feature_weights"] == "coslat"


@pytest.mark.parametrize("name", ["lat", "y"])
def test_the_latitude_of_a_zarr_array(name: str, tmp_path: Path) -> None:
    """By the coordinates in its group, also of some features, and of several variables."""
    x = grid(name, **({} if name == "lat" else {"units": "degrees_north"}))
    x.rename("t").to_dataset().to_zarr(tmp_path / "x.zarr", consolidated=False)
    asked = {"sample_dim": "time", "feature_weights": "coslat"}
    made = sparse_pca(tmp_path / "x.zarr" / "t", 2, **asked, **PCA)
    np.testing.assert_allclose(weights_in(made), AREA, atol=1e-15)
    kept = np.arange(12) % 4 > 0
    some = sparse_pca(tmp_path / "x.zarr" / "t", 2, feature_mask=kept, **asked, **PCA)
    np.testing.assert_allclose(weights_in(some)[kept], AREA[kept], atol=1e-15)
    some.save(tmp_path / "r")
    again = SVDResult.load(tmp_path / "r")
    np.testing.assert_array_equal(again.transform(x), some.transform(x))
    both = sparse_pca([x, 2 * x.isel(lon=slice(2))], 2, **asked, **PCA)
    np.testing.assert_allclose(weights_in(both)[:12], AREA, atol=1e-15)
    assert len(weights_in(both)) == 20


def test_features_in_another_order_of_dimensions() -> None:
    turned = grid().transpose("lon", "lat", "time")
    made = sparse_pca(turned, 2, sample_dim="time", feature_weights="coslat", **PCA)
    np.testing.assert_allclose(weights_in(made), np.tile(AREA[::3], 3), atol=1e-15)


def test_data_arrays_as_weights() -> None:
    x, kept = grid(), PCA | {"sample_dim": "time"}
    given = [x.lat * 0 + [1, 2, 3, 4], x.lon + 1]
    given += [(given[0] * given[1]).transpose("lon", "lat")]
    given += [given[2].drop_vars(("lat", "lon"))]
    expected = [np.repeat([1, 2, 3, 4], 3), np.tile(LONGITUDE + 1, 4)]
    expected += 2 * [expected[0] * expected[1]]
    for weights, known in zip(given, expected, strict=True):
        made = sparse_pca(x, 2, feature_weights=weights, **kept)
        np.testing.assert_array_equal(weights_in(made), known)
    made = sparse_pca(x, 2, feature_weights=expected[2].reshape(4, 3), **kept)
    np.testing.assert_array_equal(weights_in(made), known)
    found = made.to_xarray()
    assert found["feature_weights"].dims == ("lat", "lon")
    np.testing.assert_allclose(
        found["patterns"], found["components"] / np.sqrt(found["feature_weights"]), rtol=1e-12
    )


def test_a_series_goes_by_its_names() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"g{i}" for i in range(N)]
    table = pandas.DataFrame(data().T, columns=names)
    made = sparse_pca(table, 2, feature_weights=pandas.Series(W, names)[::-1], **PCA)
    np.testing.assert_array_equal(weights_in(made), W)
    made = sparse_pca(data(), 2, feature_weights=pandas.Series(W), **PCA)
    np.testing.assert_array_equal(weights_in(made), W)
    with pytest.raises(OptionError, match="'g11' has none"):
        sparse_pca(table, 2, feature_weights=pandas.Series(W[1:], names[:-1]))


# -------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (W[1:], r"shape \(11,\).*12 features"),
        (W.reshape(4, 3), r"shape \(4, 3\)"),
        (1.0, r"shape \(\)"),
        (np.where(W < 1, 0, W), "above 0; got 0 for feature.*feature_mask"),
        (-W, "above 0; got -"),
        (np.where(W < 1, np.nan, W), "finite.*got nan"),
        (np.where(W < 1, np.inf, W), "finite.*got inf"),
        (["a"] * N, "array of real numbers"),
        ([[1], [1, 2]], "array of real numbers"),
        (W + 1j, "array of real numbers"),
        ("area", "'area'"),
        ("coslat", "needs a latitude, and the array has none"),
    ],
)
def test_weights_that_cannot_be(weights: Any, match: str) -> None:
    for call in (sparse_svd, sparse_pca, plan_svd):
        with pytest.raises(OptionError, match=match):
            call(data(), 2, feature_weights=weights)
    with pytest.raises(OptionError):
        SparseSVD(2, feature_weights=weights).fit(data().T)


def test_places_that_are_others() -> None:
    x = grid()
    weights = x.isel(time=0, drop=True) + 100
    for given, match in [
        (weights.rename(lat="y"), "dimension.* 'y', 'lon'.*'lat', 'lon'"),
        (weights[:3], "3 values along 'lat'"),
        (weights.assign_coords(lat=LATITUDE + 1), "'lat' than.*0 is -89.0, not -90.0"),
    ]:
        with pytest.raises(OptionError, match=match):
            sparse_pca(x, 2, sample_dim="time", feature_weights=given)
    with pytest.raises(OptionError, match="have no names"):
        sparse_pca(data(), 2, feature_weights=weights)
    with pytest.raises(OptionError, match=r"latitude of feature 0.*is -91"):
        sparse_pca(
            x.assign_coords(lat=LATITUDE - 1), 2, sample_dim="time", feature_weights="coslat"
        )
    two = x.assign_coords(latitude=x.lat)
    with pytest.raises(OptionError, match="several coordinates of latitude: 'lat', 'latitude'"):
        sparse_pca(two, 2, sample_dim="time", feature_weights="coslat")
    with pytest.raises(OptionError, match="needs a latitude"):
        sparse_pca(x, 2, sample_dim="lat", feature_weights="coslat")
