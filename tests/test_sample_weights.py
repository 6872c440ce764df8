"""Weights of samples: the same as samples that are repeated, in NumPy by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import COMBINATIONS, differences, write_zarr
from scipy import sparse
from test_feature_weights import NAMES, SAMPLES, SOURCES, N, data_array
from test_feature_weights import data as data_of_features

from streamsvd import (
    OptionError,
    SparseSVD,
    StreamingSparsePCA,
    SVDResult,
    plan_svd,
    sparse_pca,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask
from streamsvd.passes.factor import factor_of
from streamsvd.passes.gram import gram_matrix
from streamsvd.result.refining import Work, refitted

pytestmark = pytest.mark.usefixtures("serial_dask")

W = np.random.default_rng(3).integers(0, 4, SAMPLES)
W[0] = 0  # the first sample is none, and no shift
REAL = np.random.default_rng(4).uniform(0, 3, SAMPLES)
REDUCTIONS = ["gram", "samples", "factor"]
ASKED: dict[str, Any] = {"refine": True, "max_fill": 0.4, "pivot": True}


def data() -> np.ndarray:
    """Those of the weights of features, but for one number of a sample that counts nothing."""
    X = data_of_features()
    X[3] = np.where(np.arange(SAMPLES) == 0, 5.0, X[3])
    return X


def repeated(X: np.ndarray) -> np.ndarray:
    return np.repeat(X, W, axis=1)


def dense(made: SVDResult) -> np.ndarray:
    assert made.covariance is not None
    return np.asarray(made.covariance.restricted(np.arange(made.n_fitted)).dense())


def assert_alike(made: SVDResult, hand: SVDResult) -> None:
    """What was summed up; a search that ends in a flat place ends in it to 1e-6."""
    found, known = dense(made), dense(hand)
    np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-9 * np.abs(known).max())
    np.testing.assert_allclose(made.mean, hand.mean, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(made.scale, hand.scale, rtol=1e-11)
    np.testing.assert_allclose(made.total_energy, hand.total_energy, rtol=1e-10)
    np.testing.assert_allclose(made.components.toarray(), hand.components.toarray(), atol=1e-6)
    np.testing.assert_allclose(made.explained_variance, hand.explained_variance, rtol=1e-6)
    explained = hand.explained_variance.sum()
    np.testing.assert_allclose(made.explained_variance.sum(), explained, rtol=1e-9)


# ------------------------------------------------------------------------- as repeated by hand


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
def test_as_repeated(reduction: str, center: str | None, normalize: str | None) -> None:
    X = data()
    options = ASKED | {"center": center, "normalize": normalize, "reduction": reduction}
    made = sparse_svd(X, 3, sample_weights=W, **options)
    hand = sparse_svd(repeated(X), 3, **options)
    assert_alike(made, hand)
    assert (made.n_samples, made.weight) == (SAMPLES, W.sum())
    again = made.transform(repeated(X))
    np.testing.assert_array_equal(np.repeat(made.transform(X), W, axis=1), again)
    measured = made.accuracy(X, sample_weights=W)
    known = made.accuracy(repeated(X))
    assert measured.captured_variance == pytest.approx(known.captured_variance, rel=1e-12)
    assert measured.true_singular_values is not None
    assert known.true_singular_values is not None
    np.testing.assert_allclose(measured.true_singular_values, known.true_singular_values)


@pytest.mark.parametrize("make", SOURCES, ids=NAMES)
@pytest.mark.usefixtures("narrow_strips")
def test_any_source(make: Any, tmp_path: Path) -> None:
    X = data()
    source, axis = make(tmp_path, X)
    options = ASKED | {"center": "features"}
    where: dict[str, Any] = {"sample_axis": axis}
    if make is data_array:
        where = {"sample_dim": "time"}
    for reduction in REDUCTIONS:
        made = sparse_svd(source, 3, reduction=reduction, sample_weights=W, **where, **options)
        assert_alike(made, sparse_svd(repeated(X), 3, reduction=reduction, **options))


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
def test_fractions_and_constants(form: str, center: str | None, normalize: str | None) -> None:
    """By the formulas themselves; a constant feature has no variance at all, in any form."""
    X = data()
    X[7] = 0.1
    weights, total = np.where(np.arange(SAMPLES) < 5, 0.0, REAL), REAL[5:].sum()
    source = open_data(X if form == "dense" else sparse.csc_array(X), Ask(1))
    source.sample_weights = weights
    Y = X.copy()
    if center == "samples":
        Y -= Y.mean(axis=0)
    mean = Y @ weights / total
    scale = np.sqrt(((Y - mean[:, None]) ** 2) @ weights / total)
    if center == "features":
        Y -= mean[:, None]
        Y[7] = 0.0
    if normalize == "features":
        with pytest.raises(Exception, match="constant") if center != "samples" else _nothing():
            gram_matrix(source, center, normalize)
        if center != "samples":
            return
        Y /= scale[:, None]
    elif normalize == "samples":
        Y /= np.maximum(np.linalg.norm(Y, axis=0), 1e-300)
    known = (Y * weights) @ Y.T
    found, learned = gram_matrix(source, center, normalize, 7)
    np.testing.assert_allclose(found, known, atol=1e-11 * np.abs(known).max())
    made = factor_of(source, center, normalize, N, width=7)
    np.testing.assert_allclose(made.diagonal, np.diag(known), atol=1e-11 * np.abs(known).max())
    np.testing.assert_allclose(made.factor @ made.factor.T, known, atol=1e-9 * known.max())
    if center == "features":
        assert not found[7].any()
        assert made.diagonal[7] == 0
        assert learned.mean[7] == pytest.approx(0.1, rel=1e-15)


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    ("center", "normalize"), [("features", None), ("features", "features"), (None, None)]
)
def test_with_missing_values(
    reduction: str, is_sparse: bool, center: str | None, normalize: str | None, tmp_path: Path
) -> None:
    X = data()
    X[np.random.default_rng(7).random(X.shape) < 0.1] = np.nan
    X[4] = np.where(W == 0, X[4], np.nan)  # values in samples that do not count
    options = ASKED | {"center": center, "normalize": normalize, "reduction": reduction}
    options |= {"missing": "mean"}
    source = sparse.csc_array(X) if is_sparse else X
    made = sparse_svd(source, 3, sample_weights=W, **options)
    hand = sparse_svd(repeated(X), 3, **options)
    assert_alike(made, hand)
    assert made.left_out.tolist() == [4]
    again = refitted(made, made._as_fitted(open_data(source, Ask(1))), Work(1, None, False), "gram")
    known = dense(made)
    np.testing.assert_allclose(again.dense(), known, atol=1e-9 * np.abs(known).max())
    if reduction == "gram":
        made.save(tmp_path / "r")
        loaded = SVDResult.load(tmp_path / "r")
        assert loaded.missing is not None
        assert made.missing is not None
        np.testing.assert_array_equal(loaded.missing.share, made.missing.share)
    adjusted = hand.adjusted_variance(repeated(X))
    np.testing.assert_allclose(made.adjusted_variance(source), adjusted, rtol=1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_more_of_a_result(reduction: str, tmp_path: Path) -> None:
    X, Y = data(), repeated(data())
    options = ASKED | {"center": "features", "reduction": reduction, "missing": "mean"}
    made, hand = sparse_svd(X, 3, sample_weights=W, **options), sparse_svd(Y, 3, **options)
    made.save(tmp_path / "r")
    loaded = SVDResult.load(tmp_path / "r")
    assert differences(loaded, made) == []
    assert f"weigh {W.sum()} in all" in repr(loaded)
    more, more_by_hand = loaded.refine(X, max_fill=0.5), hand.refine(Y, max_fill=0.5)
    energy = np.diag(more.components @ dense(hand) @ more.components.T)
    np.testing.assert_allclose(more.explained_variance, energy / (W.sum() - 1), rtol=1e-9)
    bound = more_by_hand.certificate(Y, effort="low").bound
    assert more.certificate(X, effort="low").bound == pytest.approx(bound, rel=1e-8)
    known = hand.adjusted_variance(Y)
    np.testing.assert_allclose(loaded.adjusted_variance(X), known, rtol=1e-6)
    with pytest.raises(OptionError, match="data of the fit"):
        loaded.refine(X[:, 1:])


def test_with_weights_of_features() -> None:
    X, weights = data(), np.linspace(0.2, 3, N)
    options = ASKED | {"center": "features", "reduction": "gram"}
    made = sparse_svd(X, 3, sample_weights=W, feature_weights=weights, **options)
    assert_alike(made, sparse_svd(repeated(X), 3, feature_weights=weights, **options))


@pytest.mark.usefixtures("narrow_strips")
def test_any_chunking_has_the_same_bits(tmp_path: Path) -> None:
    X = data()
    for reduction in ("gram", "factor"):
        options = ASKED | {"center": "features", "reduction": reduction}
        whole = sparse_svd(X, 3, sample_weights=REAL, n_threads=1, **options)
        store = write_zarr(tmp_path / f"{reduction}.zarr", X, (5, 13))
        made = sparse_svd(store, 3, sample_weights=REAL, n_threads=2, **options)
        assert differences(made, whole) == []


@pytest.mark.parametrize("reduction", ["gram", "factor"])
@pytest.mark.parametrize("normalize", [None, "features"])
def test_ones_are_no_weights(reduction: str, normalize: str | None) -> None:
    X = data()
    options = ASKED | {"center": "features", "reduction": reduction, "normalize": normalize}
    made = sparse_svd(X, 3, sample_weights=np.ones(SAMPLES), **options)
    hand = sparse_svd(X, 3, **options)
    assert_alike(made, hand)
    assert (made.freedom, hand.weight) == (hand.freedom, None)


# ----------------------------------------------------------------------- batches and estimators


@pytest.mark.parametrize(
    ("reduction", "missing"), [("gram", "error"), ("gram", "mean"), ("factor", "error")]
)
@pytest.mark.parametrize("normalize", [None, "features"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_batches(reduction: str, missing: str, normalize: str | None, is_sparse: bool) -> None:
    """The last of them without weights, which is as good as ones."""
    X, weights = data(), W.copy()
    weights[-20:] = 1
    if missing == "mean":
        X[np.random.default_rng(7).random(X.shape) < 0.1] = np.nan
        X[4] = np.where(weights == 0, X[4], np.nan)
    options: dict[str, Any] = {"reduction": reduction, "missing": missing, "normalize": normalize}
    options["max_fill"] = 0.4
    model, hand = (StreamingSparsePCA(3, **options) for _ in range(2))

    def taken(part: np.ndarray) -> Any:
        return sparse.csr_array(part) if is_sparse else part

    for some in np.split(np.arange(SAMPLES), [10, 50, 70]):
        own = weights[some] if some[0] < 70 else None
        model.partial_fit(taken(X.T[some]), sample_weight=own)
    hand.partial_fit(np.repeat(X, weights, axis=1).T)
    assert model.n_samples_seen_ == SAMPLES
    if reduction == "gram":
        assert_alike(model.result_, hand.result_)
    total = hand.result_.total_energy
    np.testing.assert_allclose(model.result_.total_energy, total, rtol=1e-10)
    np.testing.assert_allclose(model.mean_, hand.mean_, rtol=1e-10)
    np.testing.assert_allclose(model.scale_, hand.scale_, rtol=1e-10)
    if reduction == "factor":
        explained = hand.explained_variance_.sum()
        np.testing.assert_allclose(model.explained_variance_.sum(), explained, rtol=1e-3)
        with pytest.raises(OptionError, match="weighted in batches"):
            model.result_.refine(X, sample_axis=1)


def test_estimators() -> None:
    X = data()
    model = StreamingSparsePCA(3, max_fill=0.4).fit(X.T, sample_weight=W)
    assert_alike(model.result_, sparse_pca(repeated(X), 3, max_fill=0.4))
    score = model.score(repeated(X).T)
    assert model.score(X.T, sample_weight=W) == pytest.approx(score, rel=1e-12)
    share = model.result_.accuracy(repeated(X), sample_axis=1).captured_variance
    assert model.explained_variance_ratio_.sum() == pytest.approx(share, rel=1e-9)


def test_the_command_line(tmp_path: Path) -> None:
    X, store = data(), write_zarr(tmp_path / "x.zarr", data(), (5, 13))
    np.save(tmp_path / "w.npy", W)
    out = tmp_path / "r.zarr"
    line = ["pca", str(store), "--components", "3", "--max-fill", "0.4", "--out", str(out)]
    run = CliRunner().invoke(main, [*line, "--sample-weights", str(tmp_path / "w.npy")])
    assert run.exit_code == 0, run.output
    made = sparse_pca(X, 3, sample_weights=W, max_fill=0.4)
    assert differences(SVDResult.load(out), made) == []


def test_arrays_of_other_kinds() -> None:
    xarray, pandas = pytest.importorskip("xarray"), pytest.importorskip("pandas")
    X = xarray.DataArray(data(), {"time": np.arange(SAMPLES)}, ("f", "time"))
    given = [W.tolist(), pandas.Series(W), xarray.DataArray(W, {"time": X.time}, ("time",))]
    for weights in given:
        made = sparse_pca(X, 2, sample_dim="time", max_fill=0.4, sample_weights=weights)
        np.testing.assert_array_equal(made.sample_weights, W)
    for other, match in [
        (given[2].rename(time="t"), "sample_weights have the dimension.*'t'"),
        (given[2].assign_coords(time=np.arange(SAMPLES) + 1), "0 is 1, not 0"),
    ]:
        with pytest.raises(OptionError, match=match):
            sparse_pca(X, 2, sample_dim="time", sample_weights=other)


# -------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (W[1:], r"shape \(89,\).*90 samples"),
        (W - 1.0, "not negative; got -1 for sample 0"),
        (np.where(W == 2, np.nan, W), "finite.*got nan"),
        (np.zeros(SAMPLES), "all zero"),
        (W / W.sum(), "add up to 1;.*number of samples"),
        ("coslat", "array of real numbers"),
    ],
)
def test_weights_that_cannot_be(weights: Any, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        sparse_pca(data(), 2, sample_weights=weights)
    with pytest.raises(OptionError, match=match):
        StreamingSparsePCA(2).fit(data().T, sample_weight=weights)


def test_a_fit_in_place_is_refused() -> None:
    for call in (sparse_svd, plan_svd):
        with pytest.raises(OptionError, match=r'sample_weights.*reduction="gram"'):
            call(data(), 2, sample_weights=W)
    assert "sample_weight" not in SparseSVD.fit.__code__.co_varnames
