"""Missing entries as the means of their features: the same as data that were filled by hand."""

import logging
from pathlib import Path
from typing import Any

import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from helpers import differences, normal, write_zarr
from scipy import sparse

from streamsvd import (
    OptionError,
    SourceError,
    SparseSVD,
    StreamingSparsePCA,
    SVDResult,
    plan_svd,
    sizes,
    sparse_pca,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.data.kinds import open_data
from streamsvd.data.missing import Filled, filled
from streamsvd.data.source import Source
from streamsvd.kernels import missing as kernels
from streamsvd.options import Ask, Options
from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.missing import find_missing
from streamsvd.result.checks import counts_fault

pytestmark = pytest.mark.usefixtures("serial_dask")

N, SAMPLES, DEAD = 18, 230, (2, 11)
KEPT = np.setdiff1d(np.arange(N), DEAD)
CODE = -99.0

SVD: dict[str, Any] = {"n_transforms": 30}
PCA: dict[str, Any] = {"max_fill": 0.3}


def data(dead: tuple[int, ...] = DEAD, share: float = 0.1, dtype: str = "float64") -> np.ndarray:
    """Features of other means and spreads, NaN where a value is missing."""
    random = np.random.default_rng(5)
    X = normal(N, 4, 1) @ normal(4, SAMPLES, 2) + 0.3 * normal(N, SAMPLES, 3)
    X = (X * np.linspace(1, 5, N)[:, None] + np.linspace(-20, 30, N)[:, None]).astype(dtype)
    X[random.random(X.shape) < share] = np.nan
    X[:, 0] = np.where(np.arange(N) % 3, X[:, 0], np.nan)
    X[list(dead)] = np.nan
    return X


def by_hand(X: np.ndarray) -> np.ndarray:
    return naive.filled(X)[0].astype(X.dtype)


def coded(X: np.ndarray, dtype: Any = None) -> np.ndarray:
    """NaN as `CODE`."""
    return np.where(np.isnan(X), CODE, X).astype(X.dtype if dtype is None else dtype)


def svd(x: Any, **options: Any) -> SVDResult:
    return sparse_svd(x, 3, **(SVD | {"missing": "mean"} | options))


def pca(x: Any, **options: Any) -> SVDResult:
    return sparse_pca(x, 3, **(PCA | {"missing": "mean"} | options))


def assert_alike(
    made: SVDResult, hand: SVDResult, kept: np.ndarray = KEPT, tolerance: float = 1e-11
) -> None:
    """The same components on the features that have a value, none on the others."""
    assert made.n_features == N
    np.testing.assert_allclose(
        made.components[:, kept].toarray(), hand.components.toarray(), atol=tolerance
    )
    assert made.components.nnz == hand.components.nnz
    assert made.n_nonzeros == hand.n_nonzeros
    assert made.fill == hand.fill
    np.testing.assert_allclose(  # a maximum: what is 1e-7 beside it is as high, to 1e-14
        made.explained_variance, hand.explained_variance, rtol=1e-11
    )
    np.testing.assert_allclose(made.mean[kept], hand.mean, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(made.scale[kept], hand.scale, rtol=max(tolerance, 1e-11))
    assert np.isnan(np.delete(made.mean, kept)).all()


# ------------------------------------------------------------------------- as filled by hand


@pytest.mark.parametrize("reduction", [None, "gram", "samples", "factor"])
@pytest.mark.parametrize("dead", [(), DEAD, (0,), (N - 1,)])
def test_components_are_those_of_data_filled_by_hand(
    reduction: str | None, dead: tuple[int, ...]
) -> None:
    X = data(dead)
    filled, kept, missing = naive.filled(X)
    made = pca(X, reduction=reduction)
    hand = sparse_pca(filled, 3, reduction=reduction, **PCA)
    assert_alike(made, hand, kept)
    assert made.n_missing == missing.sum()
    assert made.left_out.tolist() == list(dead)
    np.testing.assert_array_equal(made.missing.counts, np.isnan(X).sum(axis=1))
    np.testing.assert_allclose(made.missing.mean[kept], np.nanmean(X[kept], axis=1), rtol=1e-14)


@pytest.mark.parametrize("center", [None, "features", "samples"])
@pytest.mark.parametrize("normalize", [None, "samples"])
@pytest.mark.parametrize("algorithm", ["coordinate", "block"])
def test_in_place(center: str | None, normalize: str | None, algorithm: str) -> None:
    X = data()
    asked = {"center": center, "normalize": normalize, "algorithm": algorithm, "pivot": True}
    asked["n_transforms"] = 8 if algorithm == "block" else 30
    made, hand = svd(X, **asked), sparse_svd(by_hand(X), 3, **asked)
    assert_alike(made, hand, tolerance=1e-9)
    np.testing.assert_allclose(made.right.toarray(), hand.right.toarray(), atol=1e-9)
    assert made.accuracy(X).accuracy == pytest.approx(hand.accuracy(by_hand(X)).accuracy)


@pytest.mark.parametrize("center", [None, "samples"])
@pytest.mark.parametrize("reduction", ["gram", "samples", "factor"])
def test_without_centred_features(center: str | None, reduction: str) -> None:
    X = data()
    asked = {"center": center, "reduction": reduction}
    # a search that starts from other roundings ends where it gains too little, not at the same bits
    assert_alike(pca(X, **asked), sparse_pca(by_hand(X), 3, **asked, **PCA), tolerance=1e-7)


@pytest.mark.parametrize("reduction", [None, "gram", "samples", "factor"])
@pytest.mark.parametrize("center", [None, "features"])
def test_scales_are_over_what_is_present(reduction: str | None, center: str | None) -> None:
    X = data()
    refined = {"refine": True, "max_fill": 0.3} if reduction else {}
    made = svd(X, center=center, normalize="features", reduction=reduction, **refined)
    scales = naive.scales_present(X[KEPT])
    np.testing.assert_allclose(made.scale[KEPT], scales, rtol=1e-12)
    filled = by_hand(X)
    if center is not None:
        filled -= np.nanmean(X[KEPT], axis=1)[:, None]
    hand = sparse_svd(filled / scales[:, None], 3, reduction=reduction, **(SVD | refined))
    np.testing.assert_allclose(
        made.components[:, KEPT].toarray(), hand.components.toarray(), atol=1e-9
    )
    np.testing.assert_allclose(made.explained_variance, hand.explained_variance, rtol=1e-9)


def test_scales_of_centred_samples_are_those_of_data_filled_by_hand() -> None:
    X = data()
    asked = {"center": "samples", "normalize": "features", "reduction": "gram"}
    assert_alike(svd(X, **asked), sparse_svd(by_hand(X), 3, **asked, **SVD), tolerance=1e-9)


def test_single_precision() -> None:
    X = data(dtype="float32")
    made, hand = svd(X, center="features"), sparse_svd(by_hand(X), 3, center="features", **SVD)
    assert made.dtype == np.float32
    assert_alike(made, hand, tolerance=2e-5)


def test_sums_are_exact_where_values_are_single() -> None:
    """Means are not rounded to the type of the values on the way to ``X X^T``."""
    X = data(dtype="float32")
    made, hand = pca(X, reduction="gram"), sparse_pca(by_hand(X.astype(float)), 3, **PCA)
    assert_alike(made, hand, tolerance=1e-12)


@pytest.mark.parametrize("reduction", [None, "gram"])
def test_integers_with_a_code(reduction: str | None, tmp_path: Path) -> None:
    X = np.round(data())
    stored = write_zarr(tmp_path / "x.zarr", coded(X, np.int8), (N, 40))
    asked = {"center": "features", "reduction": reduction, "dtype": "float64"}
    made = svd(stored, missing_value=-99, **asked)
    assert_alike(made, sparse_svd(by_hand(X), 3, **asked, **SVD), tolerance=1e-9)
    assert made.settings["missing_value"] == -99


def test_a_code_beside_nan() -> None:
    X = data()
    some = X.copy()
    some[:, ::2] = coded(X[:, ::2])
    assert set(differences(pca(some, missing_value=CODE), pca(X))) <= {"settings"}


def test_masked_arrays() -> None:
    X = data()
    masked = np.ma.MaskedArray(coded(X), np.isnan(X))
    assert differences(pca(masked), pca(X)) == []


@pytest.mark.parametrize("chunks", [(N, 7), (5, 64), (N, SAMPLES)])
@pytest.mark.usefixtures("narrow_strips")
def test_any_chunking_has_the_same_bits(chunks: tuple[int, int], tmp_path: Path) -> None:
    X = data()
    whole = pca(X, reduction="gram")
    assert differences(pca(write_zarr(tmp_path / "x", X, chunks), reduction="gram"), whole) == []
    assert differences(pca(da.from_array(X, chunks=chunks), reduction="gram"), whole) == []
    rows = write_zarr(tmp_path / "rows", np.ascontiguousarray(X.T), chunks[::-1])
    turned = pca(rows, reduction="gram", sample_axis=0)
    assert set(differences(turned, whole)) <= {"settings", "sample_axis"}


@pytest.mark.parametrize("reduction", [None, "gram", "samples", "factor"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sparse_sources(reduction: str | None, axis: int) -> None:
    X = data()
    X[np.random.default_rng(8).random(X.shape) < 0.7] = 0.0
    X[list(DEAD)] = np.nan
    stored = sparse.csr_array(X.T) if axis == 0 else sparse.csc_array(X)
    made = pca(stored, reduction=reduction, sample_axis=axis)
    hand = sparse_pca(by_hand(X), 3, reduction=reduction, **PCA)
    assert_alike(made, hand, tolerance=1e-9)
    scores = hand.transform(by_hand(X))
    np.testing.assert_allclose(made.transform(stored), scores if axis else scores.T, atol=1e-8)
    in_place = svd(stored, center="features", sample_axis=axis)
    assert_alike(in_place, sparse_svd(by_hand(X), 3, center="features", **SVD), tolerance=1e-9)


def test_constant_features_are_constant() -> None:
    """Their mean over what is present is the constant itself: no variance by rounding."""
    X = data()
    X[5] = np.where(np.isnan(X[5]), np.nan, 0.1)
    gram, learned = gram_matrix(_filled(X), "features", None)
    place = list(KEPT).index(5)
    assert learned.mean[place] == 0.1
    assert not gram[place].any()
    with pytest.raises(SourceError, match="constant"):
        pca(X, normalize="features")
    with pytest.raises(SourceError, match="constant"):
        pca(sparse.csc_array(X), normalize="features")


def _filled(x: Any, code: float | None = None) -> Source:
    source = open_data(x, Ask(1))
    return filled(source, find_missing(Filled(source, code, asks=True)), code)


# --------------------------------------------------------------- what is made of a result


@pytest.fixture(scope="module")
def pair() -> tuple[SVDResult, SVDResult, np.ndarray]:
    """A result, that of the data filled by hand, and these."""
    X = data()
    return pca(X, reduction="gram"), sparse_pca(by_hand(X), 3, reduction="gram", **PCA), by_hand(X)


def test_scores_and_accuracy(pair: Any, tmp_path: Path) -> None:
    made, hand, filled = pair
    X = data()
    np.testing.assert_allclose(made.transform(X), hand.transform(filled), atol=1e-10)
    out = made.transform(X, tmp_path / "scores.zarr")
    np.testing.assert_allclose(out[:], hand.transform(filled), atol=1e-10)
    measured, known = made.accuracy(X), hand.accuracy(filled)
    assert measured.captured_variance == pytest.approx(known.captured_variance, rel=1e-12)
    np.testing.assert_allclose(measured.true_singular_values, known.true_singular_values)


def test_other_samples_are_filled_by_the_means_of_the_fit(pair: Any) -> None:
    made = pair[0]
    others = data(dead=())[:, :50] + 1.0
    mean = made.missing.mean[:, None]
    filled = np.where(np.isnan(others), mean, others)
    expected = made.fitted_components @ (filled[KEPT] - made.mean[KEPT, None])
    np.testing.assert_allclose(made.transform(others), expected, atol=1e-10)


@pytest.mark.parametrize("reduction", [None, "gram", "samples", "factor"])
def test_refined_certified_and_adjusted(reduction: str | None) -> None:
    X, filled = data(), by_hand(data())
    asked = {"center": "features", "max_fill": 0.3, "reduction": reduction}
    asked |= {"refine": True} if reduction else {}
    made, hand = svd(X, **asked), sparse_svd(filled, 3, **asked, **SVD)
    more, more_by_hand = made.refine(X, max_fill=0.4), hand.refine(filled, max_fill=0.4)
    assert_alike(more, more_by_hand, tolerance=1e-8)
    assert more.certificate(X).bound == pytest.approx(more_by_hand.certificate(filled).bound)
    np.testing.assert_allclose(
        more.adjusted_variance(X), more_by_hand.adjusted_variance(filled), rtol=1e-8
    )
    assert [one.n_nonzeros for one in made.refine_path(X, max_fill=[0.2, 0.5])] == [
        one.n_nonzeros for one in hand.refine_path(filled, max_fill=[0.2, 0.5])
    ]
    assert made.at(fill=0.2).n_nonzeros == hand.at(fill=0.2).n_nonzeros


def test_saved_and_loaded(pair: Any, tmp_path: Path) -> None:
    made = pair[0]
    made.save(tmp_path / "r")
    loaded = SVDResult.load(tmp_path / "r")
    assert differences(loaded, made) == []
    assert loaded.n_missing == made.n_missing
    np.testing.assert_array_equal(loaded.left_out, DEAD)
    np.testing.assert_array_equal(loaded.mean, made.mean)
    np.testing.assert_array_equal(loaded.transform(data()), made.transform(data()))
    stored = zarr.open_group(tmp_path / "r")
    assert stored["components/indices"][:].max() < N
    assert np.intersect1d(stored["components/indices"][:], DEAD).size == 0


def test_counts_that_cannot_be_are_refused(pair: Any) -> None:
    made = pair[0]
    wrong = made.missing.counts + SAMPLES
    assert counts_fault(made.missing.counts, N, SAMPLES, len(KEPT)) is None
    assert counts_fault(made.missing.counts, N, SAMPLES, len(KEPT) + 1)
    for counts in (wrong, -wrong, wrong[:2], made.missing.counts.astype(np.int32)):
        assert counts_fault(counts, N, SAMPLES, 3)


def test_summary_tells(pair: Any) -> None:
    text = repr(pair[0])
    assert f"{pair[0].n_missing} values, as means of their features" in text
    assert "2 features have none and are left out" in text


def test_maps_have_nan_where_there_is_no_value(pair: Any) -> None:
    pytest.importorskip("xarray")
    found = pair[0].to_xarray(data())
    assert np.isnan(found["components"].values[:, list(DEAD)]).all()
    assert not np.isnan(found["components"].values[:, KEPT]).any()
    assert np.isnan(found["mean"].values[list(DEAD)]).all()
    assert not np.isnan(found["scores"].values).any()


def test_pictures_are_blank_where_there_is_no_value(pair: Any) -> None:
    pytest.importorskip("matplotlib")
    figure = pair[0].plot(image_shape=(3, 6))
    blank = figure.axes[0].images[1].get_array()
    assert np.flatnonzero(~np.ma.getmaskarray(blank)).tolist() == list(DEAD)
    assert len(pair[1].plot().axes[0].images) == 1
    pair[0].plot()
    pair[0].plot("scores", data())
    pair[0].plot("scree")


# ----------------------------------------------------------------------- what is not missing


@pytest.mark.parametrize("asked", [{}, {"center": None}, {"reduction": "gram"}])
def test_whole_data_have_the_same_bits(asked: dict[str, Any]) -> None:
    X = normal(N, SAMPLES)
    with_mean = pca(X, **asked)
    assert set(differences(with_mean, sparse_pca(X, 3, **PCA, **asked))) <= {"settings"}
    assert with_mean.n_missing == 0
    assert with_mean.left_out.size == 0


def test_whole_data_are_read_once() -> None:
    X = normal(N, SAMPLES)
    assert pca(X, reduction="gram").bytes_read == X.nbytes
    assert sparse_pca(X, 3, reduction="gram", **PCA).n_missing is None


def test_what_is_missing_later_is_filled_all_the_same(narrow_strips: None) -> None:
    X = normal(N, SAMPLES)
    X[4, SAMPLES - 1] = np.nan
    made = pca(X, reduction="gram")
    assert made.n_missing == 1
    hand = sparse_pca(by_hand(X), 3, reduction="gram", **PCA)
    assert_alike(made, hand, np.arange(N))


# -------------------------------------------------------------------------- on disk, resumed


def test_workspaces(tmp_path: Path) -> None:
    X = data()
    store = write_zarr(tmp_path / "x.zarr", X, (N, 40))
    asked = {"center": "features", "workspace": tmp_path / "w"}
    first = svd(store, **(asked | {"n_transforms": 10}))
    more = svd(store, **asked, resume=True)
    assert first.n_transforms == 10
    assert set(differences(more, svd(X, center="features"))) <= {"settings"}
    assert_alike(more, sparse_svd(by_hand(X), 3, center="features", **SVD))
    with pytest.raises(OptionError, match="another missing_value"):
        svd(store, **asked, resume=True, missing_value=CODE)


# --------------------------------------------------------------------------------- refusals


def test_a_code_is_an_error_by_default() -> None:
    X = coded(data(dead=()))
    with pytest.raises(SourceError, match=r"missing_value=-99\) at feature 0, sample 0.*missing="):
        sparse_svd(X, 3, missing_value=CODE)
    sparse_svd(X, 3, **SVD)  # a number like any other


def test_a_code_that_is_not_there_is_no_error() -> None:
    X = normal(N, SAMPLES)
    assert set(
        differences(sparse_svd(X, 3, missing_value=7.0, **SVD), sparse_svd(X, 3, **SVD))
    ) <= {"settings"}


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"missing": "drop"}, "missing must be one of 'error', 'mean'"),
        ({"missing_value": np.nan}, "missing_value must be a number, and finite"),
        ({"missing_value": np.inf}, "missing_value must be a number, and finite"),
        ({"missing_value": "-1"}, "missing_value must be a number"),
        ({"missing_value": True}, "missing_value must be a number"),
        ({"overwrite_x": True}, "leave one out"),
    ],
)
def test_options_that_cannot_be(asked: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        svd(data(), **asked)


@pytest.mark.parametrize(
    ("code", "dtype"), [(-1, "uint8"), (1.5, "int16"), (300, "int8"), (1e300, "float32")]
)
def test_codes_that_the_data_cannot_hold(code: float, dtype: str) -> None:
    with pytest.raises(OptionError, match="is no number of"):
        svd(normal(N, SAMPLES).astype(dtype), missing_value=code)


def test_zeros_of_sparse_data_are_no_code() -> None:
    with pytest.raises(OptionError, match="missing_value=0 would make all"):
        svd(sparse.csc_array(normal(N, SAMPLES)), missing_value=0)


def test_nothing_at_all() -> None:
    with pytest.raises(SourceError, match=r"no feature of .* has a value"):
        pca(np.full((N, SAMPLES), np.nan))


def test_too_few_features_with_a_value() -> None:
    X = data(dead=tuple(range(2, N)))
    with pytest.raises(OptionError, match=r"n_components=3 exceeds .*=2 of data with 2 features"):
        svd(X, center="features")


@pytest.mark.parametrize("center", ["features", None])
def test_infinite_values_are_named_in_their_place(center: str | None) -> None:
    X = data()
    X[7, 100] = np.inf
    with pytest.raises(SourceError, match="inf at feature"):
        pca(X, center=center)


def test_features_without_a_value_are_named(caplog: pytest.LogCaptureFixture) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data().T, columns=[f"g{i}" for i in range(N)])
    with caplog.at_level(logging.INFO, logger="streamsvd"):
        made = pca(frame)
    assert (
        "2 of 18 features of the DataFrame have no value and are left out: g2, g11" in caplog.text
    )
    assert made.feature_names.tolist() == list(frame.columns)
    np.testing.assert_allclose(made.transform(frame).T, pca(data()).transform(data()), atol=1e-10)


def test_a_hopeless_plan_is_refused_before_means_are_taken() -> None:
    X = data()
    with pytest.raises(Exception, match="memory"):
        svd(X, center=None, memory_limit=10)
    assert plan_svd(X, 3, missing="mean", missing_value=CODE).describe()


# -------------------------------------------------------------- estimators, the command line


def test_estimators() -> None:
    X = data()
    rows = np.ascontiguousarray(X.T)
    model = StreamingSparsePCA(3, missing="mean", **PCA).fit(rows)
    result = pca(X)
    np.testing.assert_array_equal(model.components_, result.components.toarray())
    np.testing.assert_allclose(model.transform(rows), result.transform(X).T, atol=1e-12)
    assert model.score(rows) == pytest.approx(result.score(X))
    back = model.inverse_transform(model.transform(rows))
    assert np.isnan(back[:, list(DEAD)]).all()
    assert not np.isnan(back[:, KEPT]).any()
    plain = SparseSVD(3, missing="mean", missing_value=CODE, n_transforms=30, center="features")
    np.testing.assert_array_equal(
        plain.fit(coded(rows)).components_, svd(X, center="features").components.toarray()
    )
    assert plain.__sklearn_tags__().input_tags.allow_nan


@pytest.mark.parametrize("normalize", [None, "features"])
@pytest.mark.parametrize("center", [None, "features"])
@pytest.mark.parametrize("dead", [(), DEAD])
def test_batches(dead: tuple[int, ...], center: str | None, normalize: str | None) -> None:
    X = data(dead)
    rows, kept = np.ascontiguousarray(X.T), naive.filled(X)[1]
    model = StreamingSparsePCA(3, missing="mean", center=center, normalize=normalize, **PCA)
    for first, stop in ((0, 1), (1, 60), (60, SAMPLES)):
        model.partial_fit(rows[first:stop])
    at_once = pca(X, reduction="gram", center=center, normalize=normalize)
    assert model.result_.missing.kept.tolist() == kept.tolist()
    np.testing.assert_allclose(model.components_, at_once.components.toarray(), atol=1e-9)
    np.testing.assert_allclose(model.explained_variance_, at_once.explained_variance, rtol=1e-9)
    np.testing.assert_allclose(model.mean_, at_once.mean, rtol=1e-12)
    np.testing.assert_allclose(model.scale_, at_once.scale, rtol=1e-11)
    assert model.result_.n_missing == at_once.n_missing
    np.testing.assert_allclose(model.transform(rows), at_once.transform(X).T, atol=1e-8)


@pytest.mark.parametrize("cuts", [(40,), (1, 2, 150), (64, 128)])
def test_batches_of_any_size_have_the_same_bits(cuts: tuple[int, ...]) -> None:
    rows = np.ascontiguousarray(data().T)
    whole = StreamingSparsePCA(3, missing="mean", **PCA).partial_fit(rows)
    cut = StreamingSparsePCA(3, missing="mean", n_threads=2, **PCA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "BATCH_BYTES", 8 * N * 32)
        whole = StreamingSparsePCA(3, missing="mean", **PCA).partial_fit(rows)
        for part in np.split(rows, cuts):
            cut.partial_fit(part)
        assert differences(cut.result_, whole.result_) == []
    at_once = pca(data(), reduction="gram")
    np.testing.assert_allclose(cut.components_, at_once.components.toarray(), atol=1e-9)


def test_whole_batches_are_those_of_whole_data() -> None:
    X = normal(N, SAMPLES)
    rows = np.ascontiguousarray(X.T)
    model = StreamingSparsePCA(3, missing="mean", **PCA).partial_fit(rows)
    np.testing.assert_allclose(
        model.components_, sparse_pca(X, 3, **PCA).components.toarray(), atol=1e-11
    )
    assert model.result_.n_missing == 0


def test_batches_that_are_refused() -> None:
    rows = np.ascontiguousarray(data(dead=()).T)
    with pytest.raises(OptionError, match='pass reduction="gram"'):
        StreamingSparsePCA(3, missing="mean", reduction="factor").partial_fit(rows)
    with pytest.raises(OptionError, match="use fit"):
        StreamingSparsePCA(3, missing="mean", center="samples").partial_fit(rows)
    with pytest.raises(SourceError, match="missing_value=-99"):
        StreamingSparsePCA(3, missing_value=CODE).partial_fit(coded(rows))
    rows[50, 4] = np.inf
    with pytest.raises(SourceError, match="inf at feature 4, sample 50"):
        StreamingSparsePCA(3, missing="mean").partial_fit(rows)


def test_command_line(tmp_path: Path) -> None:
    X = np.round(data())
    store = write_zarr(tmp_path / "x.zarr", coded(X, np.int8), (N, 40))
    options = ["--components", "3", "--missing", "mean", "--missing-value", "-99", "--quiet"]
    done = CliRunner().invoke(main, ["pca", str(store), "--out", str(tmp_path / "r"), *options])
    assert done.exit_code == 0, done.output
    loaded = SVDResult.load(tmp_path / "r")
    assert loaded.n_missing == np.isnan(X[KEPT]).sum()
    assert "left out" in done.output or loaded.left_out.tolist() == list(DEAD)


# ------------------------------------------------------------------------------------ kernels


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("code", [np.nan, CODE])
def test_kernels(dtype: str, code: float) -> None:
    X = data(dtype=dtype)
    if code == CODE:
        X[:, ::3] = coded(X[:, ::3])
    lacks = np.isnan(X) | np.equal(X, code)
    kind = np.dtype(dtype).type
    shift, total, present = np.zeros(N), np.zeros(N), np.zeros(N, dtype=np.int64)
    for lo, hi in ((0, 1), (1, 100), (100, SAMPLES)):
        kernels.add_present(X, lo, hi, kind(code), shift, total, present)
    np.testing.assert_array_equal(present, (~lacks).sum(axis=1))
    for i in range(N):
        assert shift[i] == (X[i][~lacks[i]][0] if i in KEPT else 0.0)
    there = np.where(lacks, 0.0, X.astype(float) - shift[:, None])
    np.testing.assert_allclose(total, there.sum(axis=1), rtol=1e-12, atol=1e-9)
    values = np.arange(N, dtype=dtype)
    made = X.copy()
    assert kernels.fill_missing(made, kind(code), values) == lacks.sum()
    np.testing.assert_array_equal(made, np.where(lacks, values[:, None], X))


def test_options_are_recorded() -> None:
    recorded = Options(n_components=3, missing="mean", missing_value=np.float32(-1)).recorded()
    assert (recorded["missing"], recorded["missing_value"]) == ("mean", -1.0)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("width", [1, 37, 1000, 9000])
def test_means_of_many_samples_have_the_same_bits(
    width: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are read: there are 141 leaves, in a tree."""
    X = normal(3, 9000) * 1e3
    X[:, 5::7] = np.nan
    X[1, :4200] = np.nan
    X[2] = np.where(np.isnan(X[2]), np.nan, 0.1)
    x: Any = X
    if kind == "sparse":
        X[0, ::3] = 0.0
        x = sparse.csc_array(X)
    source = Filled(open_data(x, Ask(1)), None)
    whole = find_missing(source)
    monkeypatch.setattr("streamsvd.passes.strips.strip_width", lambda *_, **__: width)
    monkeypatch.setattr("streamsvd.passes.strips.sparse_width", lambda *_, **__: width)
    found = find_missing(source)
    np.testing.assert_array_equal(found.mean, whole.mean)
    np.testing.assert_array_equal(found.counts, np.isnan(X).sum(axis=1))
    np.testing.assert_allclose(whole.mean, np.nanmean(X, axis=1), rtol=1e-12, atol=1e-9)
    assert whole.mean[2] == 0.1


# ------------------------------------------------------------------------------- real data


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"reduction": "samples"}, {"reduction": "factor"}, {}])
def test_snps(options: dict[str, Any], shared: Path, tmp_path: Path) -> None:
    """Genotypes of which 1 % are missing, from an int8 store: as filled by hand."""
    with np.load(shared / "data" / "snps.npz") as arrays:
        snps = arrays["genotypes"][:3000]
    store = write_zarr(tmp_path / "x.zarr", snps, (3000, 100))
    found = np.where(snps == -1, np.nan, snps.astype(float))
    filled = np.where(np.isnan(found), np.nanmean(found, axis=1, keepdims=True), found)
    asked: dict[str, Any] = {"max_fill": 0.01, **options}
    made = sparse_pca(store, 5, missing="mean", missing_value=-1, **asked)
    hand = sparse_pca(filled, 5, **asked)
    np.testing.assert_allclose(made.components.toarray(), hand.components.toarray(), atol=1e-9)
    np.testing.assert_allclose(made.explained_variance, hand.explained_variance, rtol=1e-11)
    np.testing.assert_allclose(made.transform(store), hand.transform(filled), atol=1e-9)
    assert made.n_missing == np.count_nonzero(snps == -1)


def test_a_sea_with_land() -> None:
    xarray = pytest.importorskip("xarray")
    random = np.random.default_rng(3)
    field = random.standard_normal((60, 4, 5))
    field[:, 1:3, 2] = np.nan
    field[5, 0, 0] = np.nan
    sea = xarray.DataArray(field, dims=("time", "y", "x"), coords={"y": [10, 20, 30, 40]})
    made = sparse_pca(sea, 2, sample_dim="time", max_fill=0.4, missing="mean")
    found = made.to_xarray(sea)
    assert found["components"].dims == ("component", "y", "x")
    land = np.isnan(field).all(axis=0)
    assert (np.isnan(found["components"].values) == land).all()
    assert (np.isnan(found["mean"].values) == land).all()
    assert made.n_missing == 1
    assert made.left_out.tolist() == np.flatnonzero(land).tolist()


def test_errors_name_features_by_their_place_in_the_data() -> None:
    X = data()
    X[5] = np.where(np.isnan(X[5]), np.nan, 3.0)
    with pytest.raises(SourceError, match=r"constant .*: 5;"):
        pca(X, normalize="features")
    model = StreamingSparsePCA(3, missing="mean", normalize="features", **PCA)
    model.partial_fit(np.ascontiguousarray(X.T))
    with pytest.raises(SourceError, match=r"constant .*: 5;"):
        model.transform(X.T)
    X[7, 100] = np.inf
    with pytest.raises(SourceError, match="inf at feature 7, sample 100"):
        pca(X)


# -------------------------------------------------------------------------------- a cluster


def test_on_a_cluster(tmp_path: Path) -> None:
    """The bits of one process, also for Dask arrays that the workers compute."""
    distributed = pytest.importorskip("distributed")
    X = data()
    store = write_zarr(tmp_path / "x.zarr", coded(X), (N, 40))
    asked: dict[str, Any] = {"missing_value": CODE}
    where = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**where) as made, distributed.Client(made) as client:
        for reduction in ("gram", "factor"):
            there = pca(store, reduction=reduction, client=client, **asked)
            assert differences(there, pca(store, reduction=reduction, **asked)) == []
        asked["center"] = "features"
        there, here = svd(store, client=client, **asked), svd(store, **asked)
        assert differences(there, here) == []
        scores = there.transform(store, tmp_path / "scores", client=client)
        np.testing.assert_array_equal(scores[:], here.transform(store))
        measured = there.accuracy(store, client=client).captured_variance
        assert measured == pytest.approx(here.accuracy(store).captured_variance)
        lazy = da.from_array(coded(X), chunks=(5, 50))
        there = pca(lazy, reduction="gram", client=client, **asked)
        assert differences(there, pca(coded(X), reduction="gram", **asked)) == []
        assert there.left_out.tolist() == list(DEAD)
