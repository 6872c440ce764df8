"""A mask of features: everything as of the same data sliced by hand."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from helpers import differences, normal, write_zarr
from scipy import sparse
from sklearn.base import clone
from test_inputs import GENES, NAMED, NAMELESS, SAMPLES, N, X, anndata, package, written

import streamsvd.data.chosen
from streamsvd import (
    OptionError,
    SourceError,
    SparseSVD,
    StreamingSparsePCA,
    SVDResult,
    plan_svd,
    sparse_pca,
    sparse_pca_cv,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.data.chosen import Chosen
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask
from streamsvd.result.checks import mask_fault

pytestmark = pytest.mark.usefixtures("serial_dask")

MASK = np.ones(N, dtype=bool)
MASK[[1, 4, N - 1]] = False
KEPT, OUT = np.flatnonzero(MASK), np.flatnonzero(~MASK)
SHARE: dict[str, Any] = {"max_fill": 0.4}


@pytest.fixture(scope="module")
def by_hand() -> SVDResult:
    return sparse_pca(X[MASK], 3, **SHARE)


def assert_sliced(made: SVDResult, hand: SVDResult, kept: np.ndarray = KEPT, n: int = N) -> None:
    """Zero off the features that were kept, and on them what the slice has."""
    whole = made.components.toarray()
    assert whole.shape == (made.n_components, n)
    np.testing.assert_allclose(whole[:, kept], hand.components.toarray(), atol=1e-9)
    assert not np.delete(whole, kept, axis=1).any()
    assert made.left_out.tolist() == np.delete(np.arange(n), kept).tolist()
    assert (made.n_features, made.n_fitted) == (n, len(kept))
    assert (made.fill, made.n_nonzeros) == (hand.fill, hand.n_nonzeros)
    for name in ("explained_variance", "explained_variance_ratio", "singular_values"):
        np.testing.assert_allclose(getattr(made, name), getattr(hand, name), rtol=1e-9)
    for name in ("mean", "scale"):
        numbers = getattr(made, name)
        np.testing.assert_allclose(numbers[kept], getattr(hand, name), rtol=1e-9, atol=1e-12)
        assert np.isnan(np.delete(numbers, kept)).all()


# ------------------------------------------------------------------------------- every source


@pytest.mark.parametrize("name", [*NAMED, *NAMELESS])
def test_of_any_kind_of_data(name: str, tmp_path: Path, by_hand: SVDResult) -> None:
    make, options = (NAMED | NAMELESS)[name]
    source = make(tmp_path)
    made = sparse_pca(source, 3, feature_mask=MASK, **SHARE, **options)
    assert_sliced(made, by_hand)
    again = {} if name != "pandas transposed" else options
    scores = made.transform(source, **again)
    scores = scores if made.sample_axis else scores.T
    np.testing.assert_allclose(scores, by_hand.transform(X[MASK]), atol=1e-9)
    if name in NAMED:
        assert made.feature_names is not None
        assert list(made.feature_names) == GENES
        chosen = [GENES[i] for i in KEPT]
        named = sparse_pca(source, 3, feature_mask=chosen, **SHARE, **options)
        assert differences(named, made) == []
        with pytest.raises(OptionError, match=r"1 name\(s\) of feature_mask .*: nobody"):
            sparse_pca(source, 3, feature_mask=["nobody", *chosen], **options)
    else:
        with pytest.raises(OptionError, match="have no names"):
            sparse_pca(source, 3, feature_mask=["gene 1"], **options)


@pytest.mark.parametrize("stored", [None, 2, 3])
def test_a_column_of_an_anndata(stored: int | None, tmp_path: Path, by_hand: SVDResult) -> None:
    pandas = package("pandas")
    found = anndata(tmp_path)
    found.var["highly_variable"] = MASK
    found.var["none"], found.var["weight"] = False, 1.0
    if stored == 3:
        found.var["unsure"] = pandas.array([None, *MASK[1:]], dtype="boolean")
    source = found if stored is None else written(found, tmp_path, stored)
    assert_sliced(sparse_pca(source, 3, feature_mask="highly_variable", **SHARE), by_hand)
    for column, words in (
        ("weight", "holds no booleans, or not one for each; .*'highly_variable', 'none'"),
        ("elsewhere", "is not there; .*'highly_variable', 'none'"),
        ("none", "leaves none of the 9 features"),
    ):
        with pytest.raises(OptionError, match=words):
            sparse_pca(source, 3, feature_mask=column)
    with pytest.raises(OptionError, match="one boolean a feature"):  # features are the cells
        sparse_pca(source, 3, feature_mask="highly_variable", sample_axis=1)


def test_a_map_with_land() -> None:
    """A mask of two dimensions, of one, in any order, with other coordinates beside."""
    xarray = package("xarray")
    field = normal(40, 20).reshape(40, 4, 5) * np.arange(1, 5)[:, None]
    coords = {"y": [10, 20, 30, 40], "x": list("abcde")}
    sea = xarray.DataArray(field, coords, ("time", "y", "x"))
    land = np.zeros((4, 5), dtype=bool)
    land[1:3, 2] = land[0, 0] = True
    mask = xarray.DataArray(~land, coords, ("y", "x"))
    asked: dict[str, Any] = {"sample_dim": "time", **SHARE}
    hand = sparse_pca(field.reshape(40, 20)[:, ~land.ravel()], 2, sample_axis=0, **SHARE)
    backwards = mask.transpose().isel(x=slice(None, None, -1))
    nameless = xarray.DataArray(~land, dims=("y", "x"))
    arrays = (~land, ~land.ravel())
    for one in (mask, backwards, nameless, mask.chunk(), mask.reindex(y=[40, 30, 20, 10]), *arrays):
        made = sparse_pca(sea, 2, feature_mask=one, **asked)
        assert_sliced(made, hand, np.flatnonzero(~land), 20)
    found = made.to_xarray(sea)
    for name in ("components", "mean", "scale"):
        assert (np.isnan(found[name].values) == land).all()
    np.testing.assert_allclose(found["scores"].values.T, made.transform(sea), atol=1e-12)
    south = xarray.DataArray([True, True, False, False], coords={"y": coords["y"]}, dims="y")
    made = sparse_pca(sea, 2, feature_mask=south, **asked)
    assert made.left_out.tolist() == list(range(10, 20))
    for wrong, words in (
        (mask.rename(y="lat"), r"dimension\(s\) 'lat', .* have 'y', 'x'"),
        (mask.isel(y=[0, 1]), "lacks 30, 40 along 'y'"),
        (nameless.isel(y=[0, 1]), "size 2 along 'y'"),
        (mask.astype(float), "got float64 .mask == 1"),
        (mask.isel(y=[0, 0, 1, 2, 3]), "coordinates twice"),
    ):
        with pytest.raises(OptionError, match=words):
            sparse_pca(sea, 2, feature_mask=wrong, **asked)


def test_a_series_by_its_index(by_hand: SVDResult) -> None:
    pandas = package("pandas")
    frame = pandas.DataFrame(X.T, columns=GENES)
    named = pandas.Series(MASK, GENES)
    plain = (pandas.Series(MASK), list(MASK), tuple(MASK), da.from_array(MASK))
    for mask in (named, named[::-1], *plain):
        assert_sliced(sparse_pca(frame, 3, feature_mask=mask, **SHARE), by_hand)
    assert_sliced(sparse_pca(X, 3, feature_mask=named, **SHARE), by_hand)
    with pytest.raises(OptionError, match="lacks gene 8"):
        sparse_pca(frame, 3, feature_mask=named[:-1])


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (MASK[:-1], r"shape \(8,\), but .* has 9 features$"),
        (np.ones(X.shape[1], bool), r"has 9 features; pass sample_axis=\d if"),
        (MASK.astype(int), "mask == 1"),
        (KEPT, "got int64"),
        (~np.ones(N, dtype=bool), "leaves none"),
        ([], "got float64"),
        ("highly_variable", r"has none: .*\['highly_variable'\]"),
        (np.ma.masked_array(MASK, ~MASK), "masked entries"),
        (np.arange(N) < 2, "n_components=3 exceeds .*=2 .*what feature_mask leaves"),
    ],
)
def test_what_is_no_mask(mask: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sparse_pca(X, 3, feature_mask=mask)
    with pytest.raises(OptionError, match=words):
        StreamingSparsePCA(3, feature_mask=mask).fit(X.T)


# ------------------------------------------------------------------------------ every method


@pytest.mark.parametrize("center", [None, "features", "samples"])
@pytest.mark.parametrize("normalize", [None, "features", "samples"])
@pytest.mark.parametrize("algorithm", ["coordinate", "block"])
def test_in_place(center: str | None, normalize: str | None, algorithm: str) -> None:
    asked: dict[str, Any] = {"center": center, "normalize": normalize, "algorithm": algorithm}
    asked["n_transforms"] = 4 if algorithm == "block" else 30
    made = sparse_svd(X, 2, feature_mask=MASK, **asked)
    hand = sparse_svd(X[MASK], 2, **asked)
    assert_sliced(made, hand)
    np.testing.assert_allclose(made.right.toarray(), hand.right.toarray(), atol=1e-9)


@pytest.mark.parametrize("reduction", [None, "gram", "samples", "factor"])
@pytest.mark.parametrize("missing", ["error", "mean"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "store"])
def test_reductions_and_what_is_missing(
    reduction: str | None, missing: str, kind: str, tmp_path: Path
) -> None:
    """A mask, and under it missing values and a feature that has none at all."""
    whole, kept = X.copy(), KEPT
    whole[OUT[0]] = np.nan  # nobody asks what is outside of the mask
    if missing == "mean":
        whole[0, ::7] = whole[3, 5] = np.nan
        whole[2] = np.nan
        kept = np.setdiff1d(KEPT, 2)
    means = np.nanmean(whole[kept], axis=1, keepdims=True)
    filled = np.where(np.isnan(whole[kept]), means, whole[kept])
    source: Any = whole
    if kind == "sparse":
        source = sparse.csc_array(whole)
    elif kind == "store":
        source = write_zarr(tmp_path / "x.zarr", whole, (4, 13))
    asked: dict[str, Any] = {"reduction": reduction, **SHARE}
    made = sparse_pca(source, 3, feature_mask=MASK, missing=missing, **asked)
    hand = sparse_pca(filled, 3, **asked)
    assert_sliced(made, hand, kept)
    np.testing.assert_allclose(made.transform(source), hand.transform(filled), atol=1e-9)
    measured, known = made.accuracy(source), hand.accuracy(filled)
    np.testing.assert_allclose(measured.captured_variance, known.captured_variance, rtol=1e-9)
    more = made.refine(source, max_fill=0.6)
    assert_sliced(more, hand.refine(filled, max_fill=0.6), kept)
    assert made.certificate(source).bound == pytest.approx(hand.certificate(filled).bound)
    made.save(tmp_path / "r")
    loaded = SVDResult.load(tmp_path / "r")
    assert differences(loaded, made) == []
    np.testing.assert_array_equal(loaded.feature_mask, MASK)
    assert_sliced(loaded, hand, kept)
    assert f"{len(KEPT)} of the features take part" in repr(loaded)
    np.testing.assert_array_equal(loaded.transform(source), made.transform(source))
    assert np.isnan(made.map_of_components()[:, made.left_out]).all()


def test_errors_name_features_by_their_place_in_the_data() -> None:
    bad = X.copy()
    bad[3] = 2.0
    bad[5, 7] = np.nan
    with pytest.raises(SourceError, match="NaN at feature 5, sample 7"):
        sparse_pca(bad, 3, feature_mask=MASK)
    with pytest.raises(SourceError, match=r"missing_value=-7.* at feature 5, sample 7"):
        sparse_pca(np.nan_to_num(bad, nan=-7.0), 3, feature_mask=MASK, missing_value=-7)
    for missing in ("error", "mean"):
        scaled: dict[str, Any] = {"normalize": "features", "feature_mask": MASK, "missing": missing}
        there = bad if missing == "mean" else np.nan_to_num(bad)
        with pytest.raises(SourceError, match=r"constant .*: 3;"):
            sparse_pca(there, 3, **scaled)
        model = StreamingSparsePCA(3, **scaled).partial_fit(there.T)
        with pytest.raises(SourceError, match=r"constant .*: 3;"):
            model.result_  # noqa: B018
    with pytest.raises(SourceError, match=r"constant .*: 3;"):
        sparse_pca_cv(np.nan_to_num(bad), 2, max_fill=0.5, feature_mask=MASK, normalize="features")


def test_a_workspace_knows_its_mask(tmp_path: Path) -> None:
    source = write_zarr(tmp_path / "x.zarr", X, (4, 13))
    work: dict[str, Any] = {"workspace": tmp_path / "work", "center": "features"}
    sparse_svd(source, 3, n_transforms=5, feature_mask=MASK, **work)
    again: dict[str, Any] = {"n_transforms": 9, "resume": True, **work}
    for mask in (None, ~MASK, np.roll(MASK, 1)):
        with pytest.raises(OptionError, match="another feature_mask: '6 of 9 features, sha256"):
            sparse_svd(source, 3, feature_mask=mask, **again)
    made = sparse_svd(source, 3, feature_mask=list(MASK), **again)
    assert_sliced(made, sparse_svd(X[MASK], 3, n_transforms=9, center="features"))


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionError, match=r"feature_mask .*X\[mask\]"):
        sparse_svd(X.copy(), 3, overwrite_x=True, feature_mask=MASK)


def test_a_plan_is_of_the_features_that_take_part() -> None:
    n = 9000
    few = np.arange(n) < 30
    source = da.zeros((n, 4000), chunks=(n, 100))
    whole, part = (plan_svd(source, 3, reduction="gram", feature_mask=mask) for mask in (None, few))
    assert part.peak_memory < whole.peak_memory / 2
    assert part.peak_memory > 100 * n * 8  # a chunk is read whole


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_samples_are_read_in_pieces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many at a time as a reader of the whole takes, of which few features are kept."""
    whole = open_data(X if kind == "dense" else sparse.csc_array(X), Ask(1))
    for name in ("strip_width", "sparse_width"):
        monkeypatch.setattr(streamsvd.data.chosen, name, lambda *_, **__: 7)
    chosen, asked = Chosen(whole, KEPT), list[tuple[int, int]]()
    read = "read" if kind == "dense" else "read_sparse"
    real = getattr(whole, read)

    def noted(start: int, stop: int, *dtype: Any) -> Any:
        asked.append((start, stop))
        return real(start, stop, *dtype)

    monkeypatch.setattr(whole, read, noted)
    if kind == "dense":
        found = chosen.read(3, 40, np.dtype("float32"))
        assert found.flags.c_contiguous
    else:
        found = chosen.read_sparse(3, 40).toarray().T
    np.testing.assert_allclose(found, X[KEPT, 3:40], rtol=1e-6)
    assert asked == [(3, 7), (7, 14), (14, 21), (21, 28), (28, 35), (35, 40)]


# ----------------------------------------------------------------- estimators, cv, the shell


@pytest.mark.parametrize("missing", ["error", "mean"])
@pytest.mark.parametrize("reduction", ["gram", "factor"])
def test_batches(missing: str, reduction: str) -> None:
    if (missing, reduction) == ("mean", "factor"):
        pytest.skip("not in batches")
    asked: dict[str, Any] = {"reduction": reduction, "missing": missing, **SHARE}
    whole = X.copy()
    whole[OUT] = np.nan
    if missing == "mean":
        whole[0, ::7] = np.nan
    made, hand = StreamingSparsePCA(3, feature_mask=MASK, **asked), StreamingSparsePCA(3, **asked)
    for batch in np.array_split(whole, 3, axis=1):
        made.partial_fit(batch.T)
        hand.partial_fit(batch[MASK].T)
    assert_sliced(made.result_, hand.result_)
    assert made.components_.shape == (3, N)
    np.testing.assert_array_equal(made.transform(whole.T), hand.transform(whole[MASK].T))


def test_batches_without_any_value_of_a_feature() -> None:
    whole = X.copy()
    whole[2] = np.nan
    asked: dict[str, Any] = {"missing": "mean", **SHARE}
    made = StreamingSparsePCA(3, feature_mask=MASK, **asked).partial_fit(whole.T).result_
    hand = StreamingSparsePCA(3, **asked).partial_fit(whole[MASK].T).result_
    np.testing.assert_array_equal(made.components[:, MASK].toarray(), hand.components.toarray())
    assert made.left_out.tolist() == [1, 2, 4, 8]
    scores = made.transform(whole, sample_axis=1)
    by_hand = hand.transform(whole[MASK], sample_axis=1)
    np.testing.assert_allclose(scores, by_hand, atol=1e-12)


def test_the_mask_of_batches_is_that_of_the_first(tmp_path: Path) -> None:
    found = anndata(tmp_path)
    found.var["chosen"] = MASK
    model = StreamingSparsePCA(3, feature_mask="chosen", **SHARE).partial_fit(found[:50].copy())
    found.var["chosen"] = ~MASK
    model.partial_fit(found[50:].copy())
    assert_sliced(model.result_, sparse_pca(X[MASK], 3, **SHARE))


@pytest.mark.parametrize("kind", [StreamingSparsePCA, SparseSVD])
def test_estimators(kind: Any) -> None:
    asked = {"center": "features"} if kind is SparseSVD else SHARE
    model, hand = kind(3, feature_mask=MASK, **asked), kind(3, **asked).fit(X[MASK].T)
    again = clone(model)
    assert model.get_params()["feature_mask"] is MASK
    scores = again.fit_transform(X.T)
    assert again.n_features_in_ == N
    assert_sliced(again.result_, hand.result_)
    np.testing.assert_allclose(scores, hand.transform(X[MASK].T), atol=1e-9)
    back = again.inverse_transform(scores)
    np.testing.assert_allclose(back[:, MASK], hand.inverse_transform(scores), atol=1e-9)
    assert np.isnan(back[:, ~MASK]).all()
    assert again.score(X.T) == pytest.approx(hand.score(X[MASK].T))


def test_cross_validation() -> None:
    grid: dict[str, Any] = {"n_components": [1, 2], "max_fill": [0.6], "folds": 2}
    whole = X.copy()
    whole[OUT] = np.nan
    made, hand = sparse_pca_cv(whole, feature_mask=MASK, **grid), sparse_pca_cv(X[MASK], **grid)
    assert made.chosen == hand.chosen
    np.testing.assert_allclose(made.predicted_variance, hand.predicted_variance, atol=1e-9)
    assert_sliced(made.result, hand.result)
    assert made.result.stability is not None
    assert hand.result.stability is not None
    stability = made.result.stability.toarray()
    np.testing.assert_array_equal(stability[:, MASK], hand.result.stability.toarray())
    assert not stability[:, ~MASK].any()


def test_cross_validation_of_what_is_missing(tmp_path: Path) -> None:
    """As filled by hand, by the means of all samples."""
    whole = X.copy()
    whole[0, ::7] = whole[3, 5] = np.nan
    whole[2] = whole[OUT] = np.nan
    kept = np.setdiff1d(KEPT, 2)
    means = np.nanmean(whole[kept], axis=1, keepdims=True)
    hand_filled = np.where(np.isnan(whole[kept]), means, whole[kept])
    grid: dict[str, Any] = {"n_components": [1, 2], "max_fill": [0.6], "folds": 2}
    coded = np.where(np.isnan(whole), -9.0, whole)
    asked: dict[str, Any] = {"missing": "mean", "missing_value": -9}
    made = sparse_pca_cv(coded, feature_mask=MASK, **asked, **grid)
    hand = sparse_pca_cv(hand_filled, **grid)
    np.testing.assert_allclose(made.predicted_variance, hand.predicted_variance, atol=1e-9)
    assert_sliced(made.result, hand.result, kept)
    assert made.result.stability is not None
    assert made.result.stability.shape == (made.result.n_components, N)
    assert made.result.n_missing == np.isnan(whole[kept]).sum()
    made.result.save(tmp_path / "r")
    assert differences(SVDResult.load(tmp_path / "r"), made.result) == []
    scores = made.result.transform(coded)
    np.testing.assert_allclose(scores, hand.result.transform(hand_filled), atol=1e-9)
    single: dict[str, Any] = {"normalize": "features", "feature_mask": MASK, **asked}
    scaled = sparse_pca_cv(coded, 2, max_fill=0.6, folds=2, **single).result
    expected = sparse_pca(coded, 2, max_fill=0.6, reduction="gram", **single)
    np.testing.assert_allclose(scaled.scale, expected.scale, rtol=1e-12)
    with pytest.raises(SourceError, match=r"missing_value=-9.* at feature 0, sample 0"):
        sparse_pca_cv(coded, missing_value=-9, **grid)


def test_the_command_line(tmp_path: Path, by_hand: SVDResult) -> None:
    source, mask = write_zarr(tmp_path / "x.zarr", X, (4, 13)), tmp_path / "mask.npy"
    np.save(mask, MASK)
    args = ["pca", str(source), "--components", "3", "--max-fill", "0.4", "--quiet"]
    out = ["--out", str(tmp_path / "r"), "--feature-mask"]
    done = CliRunner().invoke(main, [*args, *out, str(mask)], catch_exceptions=False)
    assert "6 of the features take part" in done.output
    assert_sliced(SVDResult.load(tmp_path / "r"), by_hand)
    (tmp_path / "names.txt").write_text("gene 0\n")
    refused = CliRunner().invoke(main, [*args, "--overwrite", *out, str(tmp_path / "names.txt")])
    assert "have no names" in refused.output
    mask.write_text("nothing")
    refused = CliRunner().invoke(main, [*args, "--overwrite", *out, str(mask)])
    assert refused.exit_code == 2
    assert "no array of booleans" in refused.output
    mask.unlink()
    refused = CliRunner().invoke(main, [*args, "--overwrite", *out, str(mask)])
    assert refused.exit_code == 2
    assert "cannot read" in refused.output


@pytest.mark.parametrize("reduction", [None, "gram", "factor"])
def test_on_a_cluster(reduction: str | None, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    source = write_zarr(tmp_path / "x.zarr", X, (4, 13))
    asked: dict[str, Any] = {"center": "features", "reduction": reduction}
    asked |= {"refine": True, **SHARE} if reduction else {"n_transforms": 20}
    where: dict[str, Any] = {"n_workers": 2, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**where) as made, distributed.Client(made) as client:
        found = sparse_svd(source, 3, feature_mask=MASK, client=client, **asked)
        scores = found.transform(source, tmp_path / "scores", client=client)[:]
    assert_sliced(found, sparse_svd(X[MASK], 3, **asked))
    np.testing.assert_allclose(scores, found.transform(X), atol=1e-12)


# -------------------------------------------------------------------------------- damaged files


def test_a_damaged_mask_is_found(tmp_path: Path) -> None:
    made = sparse_pca(X, 3, feature_mask=MASK, **SHARE)
    asked = made.settings["feature_mask"]
    assert mask_fault(MASK, N, 3, asked) is None
    assert "not bool(9,)" in str(mask_fault(MASK[1:], N, 3, asked))
    assert "not bool(9,)" in str(mask_fault(MASK.astype(int), N, 3, asked))
    assert "fewer than 7" in str(mask_fault(MASK, N, 7, asked))
    assert "another" in str(mask_fault(np.roll(MASK, 1), N, 3, asked))
    made.save(tmp_path / "r")
    zarr.open_array(tmp_path / "r" / "feature_mask", mode="r+")[0] = False
    with pytest.raises(SourceError, match="feature_mask"):
        SVDResult.load(tmp_path / "r")
    assert made.n_samples == SAMPLES
