"""The estimators behave as scikit-learn's, and fit whatever the functions read."""

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import test_inputs
import zarr
from helpers import normal, write_zarr
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import streamsvd
from streamsvd import OptionError, SourceError, SparseSVD, StreamingSparsePCA

ANNDATA = "ignore:The 'future.infer_string' option"  # that it reads, and pandas is about to drop

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

X = test_inputs.X.T
"""Samples are rows."""

MODELS = [
    StreamingSparsePCA(3, max_fill=0.4),
    SparseSVD(3, n_transforms=40, center="features"),
    SparseSVD(3, reduction="gram", max_nonzeros=12, normalize="features", center="features"),
]
each_model = pytest.mark.parametrize("model", MODELS, ids=["pca", "svd", "gram"])


@parametrize_with_checks([SparseSVD(), StreamingSparsePCA()])
def test_scikit_learns_own_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


# ------------------------------------------------------------------------------- the same model


@each_model
@pytest.mark.filterwarnings(ANNDATA)
def test_one_model_from_every_kind(model: Any, tmp_path: Path) -> None:
    """The same components from the same data, whatever holds them, and names where it has them."""
    expected = clone(model).fit(X)
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (X.tolist(), {}),
        (np.asfortranarray(X), {}),
        (sparse.csr_array(X), {}),
        (sparse.csc_matrix(X), {}),
        (sparse.coo_array(X), {}),
        (write_zarr(tmp_path / "rows", X, (13, 4)), {}),
        (write_zarr(tmp_path / "columns", X.T, (4, 13)), {"sample_axis": 1}),
        (zarr.open_array(tmp_path / "rows", mode="r"), {}),
        (test_inputs.npy(tmp_path), {"sample_axis": 1}),
        (test_inputs.zip_store(tmp_path), {"sample_axis": 1}),
        (da.from_array(X, chunks=(13, 4)), {}),
        (test_inputs.data_array_rows(tmp_path), {}),
        (test_inputs.data_array(tmp_path), {"sample_dim": "cell"}),
        (test_inputs.pandas_frame(tmp_path), {}),
        (test_inputs.polars_frame(tmp_path), {}),
        (test_inputs.anndata(tmp_path), {}),
        (test_inputs.anndata_csr(tmp_path), {}),
        (test_inputs.written(test_inputs.anndata_csr(tmp_path), tmp_path), {}),
    ]
    scores = expected.transform(X)
    for k, (source, options) in enumerate(kinds):
        fitted = clone(model).set_params(**options).fit(source)
        np.testing.assert_array_equal(fitted.components_, expected.components_, err_msg=str(k))
        np.testing.assert_array_equal(fitted.transform(source), scores, err_msg=str(k))
        np.testing.assert_array_equal(fitted.transform(X), scores, err_msg=str(k))
        assert fitted.score(source) == pytest.approx(expected.score(X), rel=1e-12)
        assert fitted.n_features_in_ == X.shape[1]
        has_names = k in (11, 12, 13, 14, 15, 16, 17)
        assert hasattr(fitted, "feature_names_in_") == has_names
        if has_names:
            assert list(fitted.feature_names_in_) == test_inputs.GENES


@each_model
def test_what_a_fit_leaves(model: Any) -> None:
    fitted = clone(model).fit(X)
    result = fitted.result_
    np.testing.assert_array_equal(fitted.components_, result.components.toarray())
    np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(3), atol=1e-12)
    np.testing.assert_array_equal(fitted.singular_values_, result.singular_values)
    np.testing.assert_array_equal(fitted.mean_, result.mean)
    np.testing.assert_array_equal(fitted.scale_, result.scale)
    np.testing.assert_allclose(fitted.mean_, X.mean(axis=0), atol=1e-13)
    assert fitted.n_iter_ == result.n_transforms
    scores = fitted.transform(X)
    assert scores.shape == (len(X), 3)
    np.testing.assert_allclose(fitted.explained_variance_, scores.var(axis=0, ddof=1))
    total = ((X - fitted.mean_) / fitted.scale_).var(axis=0, ddof=1).sum()
    np.testing.assert_allclose(fitted.explained_variance_ratio_ * total, fitted.explained_variance_)
    rows = clone(model).set_params(sparse_components=True).fit(X).components_
    assert sparse.issparse(rows)
    np.testing.assert_array_equal(rows.toarray(), fitted.components_)


def test_as_pca_without_a_budget() -> None:
    """With all entries allowed: all that scikit-learn's PCA says."""
    data = normal(8, 300).T @ normal(8, 8, 1)
    for p in (3, 8, None):
        fitted = StreamingSparsePCA(p, max_fill=1.0, whiten=True).fit(data)
        theirs, plain = PCA(p, whiten=True).fit(data), PCA(p).fit(data)
        assert fitted.n_components_ == theirs.n_components_
        for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_"):
            np.testing.assert_allclose(getattr(fitted, name), getattr(theirs, name), rtol=1e-9)
        np.testing.assert_allclose(fitted.noise_variance_, theirs.noise_variance_, atol=1e-12)
        np.testing.assert_allclose(abs(fitted.components_), abs(theirs.components_), atol=1e-9)
        scores = fitted.transform(data)
        np.testing.assert_allclose(abs(scores), abs(theirs.transform(data)), atol=1e-9)
        back = theirs.inverse_transform(theirs.transform(data))
        np.testing.assert_allclose(fitted.inverse_transform(scores), back, atol=1e-9)
        # theirs with whiten=True are not those of the data (scikit-learn 1.9)
        np.testing.assert_allclose(fitted.get_covariance(), plain.get_covariance(), atol=1e-9)
        np.testing.assert_allclose(fitted.get_precision(), plain.get_precision(), rtol=1e-9)
        np.testing.assert_allclose(fitted.score_samples(data), plain.score_samples(data), rtol=1e-9)
        assert fitted.score(data) == pytest.approx(plain.score(data), rel=1e-12)


# --------------------------------------------------------------------------------- scikit-learn


@each_model
def test_the_way_back(model: Any) -> None:
    """The reconstruction, and the share of new data that it holds, by its residual."""
    fitted, more = clone(model).fit(X), np.abs(normal(30, X.shape[1]))
    back = fitted.inverse_transform(fitted.transform(more))
    residual = ((more - back) / fitted.scale_) ** 2
    size = ((more - fitted.mean_) / fitted.scale_) ** 2
    measured = fitted.result_.accuracy(more, sample_axis=0)
    assert measured.captured_variance == pytest.approx(1 - residual.sum() / size.sum())
    one_by_one = fitted.result_.accuracy(X, sample_axis=0).captured_by_component
    np.testing.assert_allclose(one_by_one, fitted.explained_variance_ratio_)
    np.testing.assert_array_equal(fitted.inverse_transform(np.zeros((1, 3)))[0], fitted.mean_)
    with pytest.raises(OptionError, match="scores are of 4 components, but there are 3 components"):
        fitted.inverse_transform(np.zeros((1, 4)))


@pytest.mark.parametrize("options", [{"center": "samples"}, {"normalize": "samples"}])
def test_no_way_back_from_samples_of_their_own(options: dict[str, str]) -> None:
    fitted = SparseSVD(2, n_transforms=20, **options).fit(X)
    with pytest.raises(OptionError, match="cannot undo"):
        fitted.inverse_transform(fitted.transform(X))


@each_model
def test_a_model_is_pickled_without_its_gram_matrix(model: Any) -> None:
    fitted = clone(model).fit(X)
    scores = fitted.transform(X)
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(other.transform(X), scores)
        np.testing.assert_array_equal(other.components_, fitted.components_)
        assert other.result_.gram is None
        assert other.get_params() == fitted.get_params()
        assert repr(other) == repr(fitted)


@each_model
def test_clones_are_not_fitted(model: Any) -> None:
    for other in (clone(model), clone(clone(model).fit(X))):
        assert not hasattr(other, "components_")
        assert not hasattr(other, "result_")
        for work in (other.transform, other.inverse_transform, other.score):
            with pytest.raises(NotFittedError):
                work(X)


def test_pipelines_and_grid_search() -> None:
    y = (X[:, 0] + X[:, 3] > 4).astype(int)
    pipeline = make_pipeline(
        StandardScaler(), StreamingSparsePCA(2, max_fill=0.4), KNeighborsClassifier(3)
    )
    search = GridSearchCV(
        pipeline,
        {
            "streamingsparsepca__n_components": [1, 3],
            "streamingsparsepca__max_fill": [0.2, 1.0],
        },
        cv=3,
    ).fit(X, y)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))
    assert search.predict(X).shape == y.shape
    data = normal(90, 2) @ normal(2, 8) + 0.01 * normal(90, 8, 1)
    found = GridSearchCV(StreamingSparsePCA(), {"max_fill": [0.2, 0.5, 1.0]}, cv=3).fit(data)
    assert found.best_params_ == {"max_fill": 1.0}
    kinds = make_pipeline(SparseSVD(3, n_transforms=40), LogisticRegression()).fit(X, y)
    assert kinds.score(X, y) > y.mean()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@each_model
def test_output_as_a_table(model: Any, kind: str, tmp_path: Path) -> None:
    prefix = type(model).__name__.lower()
    names = [f"{prefix}{i}" for i in range(3)]
    frame = getattr(test_inputs, f"{kind}_frame")(tmp_path)
    fitted = clone(model).set_output(transform=kind).fit(frame)
    assert list(fitted.get_feature_names_out()) == names
    for source in (frame, X, write_zarr(tmp_path / "x", X)):
        scores = fitted.transform(source)
        assert type(scores).__module__.startswith(kind)
        assert list(scores.columns) == names
    if kind == "pandas":
        assert list(fitted.transform(frame).index) == test_inputs.CELLS


@pytest.mark.filterwarnings(ANNDATA)
def test_other_features(tmp_path: Path) -> None:
    made = test_inputs.anndata(tmp_path)
    fitted = StreamingSparsePCA(3).fit(made)
    other = made[:, [*test_inputs.GENES[1:], test_inputs.GENES[0]]]
    with pytest.raises(OptionError, match="feature 0 is 'gene 1', not 'gene 0'"):
        fitted.transform(other)
    with pytest.raises(OptionError, match=r"101 features.*expecting 9 features.*sample_axis=1"):
        fitted.transform(write_zarr(tmp_path / "x", X.T))
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.transform(test_inputs.pandas_frame(tmp_path)[test_inputs.GENES[::-1]])
    fitted.fit(X)
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.transform(other).shape == (len(X), 3)


def test_runs_that_go_on(tmp_path: Path) -> None:
    """A fit of a store with a workspace is resumed by the next."""
    path = write_zarr(tmp_path / "x", X, (13, 4))
    model = SparseSVD(3, n_transforms=10, workspace=tmp_path / "run").fit(path)
    model.set_params(n_transforms=30, resume=True).fit(path)
    expected = SparseSVD(3, n_transforms=30).fit(X)
    np.testing.assert_array_equal(model.components_, expected.components_)


@pytest.mark.parametrize("model", [SparseSVD(3, selection="best"), StreamingSparsePCA(0)])
def test_options_are_checked_by_fit(model: Any) -> None:
    with pytest.raises(OptionError, match="must be"):
        model.fit(X)


def test_errors_of_the_data_are_those_of_the_functions() -> None:
    bad = X.copy()
    bad[7, 2] = np.nan
    with pytest.raises(SourceError, match="holds NaN at feature 2, sample 7"):
        SparseSVD().fit(bad)
    with pytest.raises(SourceError, match="cannot read LazyFrame"):
        SparseSVD().fit(pytest.importorskip("polars").LazyFrame({"a": [1.0]}))


def test_parameters_are_those_of_the_functions() -> None:
    """With the same defaults, but for where samples are and progress."""
    for kind, function in (
        (SparseSVD, streamsvd.sparse_svd),
        (StreamingSparsePCA, streamsvd.sparse_pca),
    ):
        theirs = inspect.signature(function).parameters
        ours = inspect.signature(kind).parameters
        assert set(ours) - set(theirs) == {"sparse_components", "scores_dtype", "whiten"}
        lacks = {"X", "overwrite_x", "client", "storage_options", "sample_weights"}
        assert set(theirs) - set(ours) <= lacks  # `sample_weight` is for `fit`, as elsewhere
        for name in set(ours) & set(theirs) - {"n_components", "sample_axis", "progress"}:
            assert ours[name].default == theirs[name].default, name


# ---------------------------------------------------------------------------------- partial_fit

LONG = normal(700, 6) @ normal(6, 12, 1) + 0.3 * normal(700, 12, 2) + 5
CUTS = {
    "one batch": [],
    "one sample, the rest": [1],
    "batches of 100": list(range(100, 700, 100)),
    "single samples": list(range(1, 40)),
    "around a block": [63, 64, 65, 129, 600],
    "last sample alone": [699],
}


def same_bits(model: Any, other: Any) -> None:
    for name in ("components_", "explained_variance_", "singular_values_", "mean_", "scale_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(model.result_.log.pairs, other.result_.log.pairs)
    assert model.result_.total_energy == other.result_.total_energy
    assert model.n_samples_seen_ == other.n_samples_seen_


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are multiplied 64 at a time, two blocks to a leaf."""
    monkeypatch.setattr("streamsvd.passes.gram.batch_samples", lambda n: 64)
    monkeypatch.setattr("streamsvd.passes.gram.leaf_samples", lambda n: 128)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize(
    "options",
    [{}, {"normalize": "features"}, {"center": "samples", "normalize": "samples"}],
    ids=["centred", "scaled", "samples"],
)
def test_batches_are_as_good_as_one_fit(cuts: str, options: dict[str, str]) -> None:
    """The same bits for any cut, whatever the type of a batch."""
    model = StreamingSparsePCA(3, max_fill=0.4, **options)
    expected = clone(model).fit(LONG)
    fitted = clone(model)
    for k, batch in enumerate(np.split(LONG, CUTS[cuts])):
        assert fitted.partial_fit(np.asfortranarray(batch) if k % 2 else batch) is fitted
    same_bits(fitted, expected)
    np.testing.assert_array_equal(fitted.transform(LONG), expected.transform(LONG))


@pytest.mark.usefixtures("small_blocks")
def test_batches_of_every_kind(tmp_path: Path) -> None:
    package = pytest.importorskip
    names = [f"f{i}" for i in range(12)]
    parts = np.split(LONG, [100, 200, 300, 400, 500])
    fitted = StreamingSparsePCA(3, max_fill=0.4)
    fitted.partial_fit(package("pandas").DataFrame(parts[0], columns=names))
    fitted.partial_fit(package("polars").DataFrame(parts[1], schema=names))
    fitted.partial_fit(write_zarr(tmp_path / "x", parts[2], (30, 5)))
    fitted.partial_fit(da.from_array(parts[3], chunks=(30, 5)))
    fitted.partial_fit(sparse.csr_array(parts[4]))
    fitted.partial_fit(parts[5].tolist())
    same_bits(fitted, StreamingSparsePCA(3, max_fill=0.4).fit(LONG))
    assert list(fitted.result_.feature_names) == names


@pytest.mark.usefixtures("small_blocks")
def test_batches_go_on(tmp_path: Path) -> None:
    """Looking at the components, copying or pickling does not end the sum."""
    fitted = StreamingSparsePCA(3, max_fill=0.4)
    for k, batch in enumerate(np.split(LONG, [90, 130, 300, 301, 650])):
        fitted.partial_fit(batch)
        assert fitted.n_samples_seen_ == [90, 130, 300, 301, 650, 700][k]
        if k % 2:
            so_far = StreamingSparsePCA(3, max_fill=0.4).fit(LONG[: fitted.n_samples_seen_])
            same_bits(fitted, so_far)
            fitted = pickle.loads(pickle.dumps(fitted)) if k == 1 else copy.deepcopy(fitted)
    same_bits(fitted, StreamingSparsePCA(3, max_fill=0.4).fit(LONG))
    assert not hasattr(clone(fitted), "components_")


@pytest.mark.usefixtures("narrow_strips", "small_blocks")
def test_a_batch_that_fails_changes_nothing() -> None:
    """Though some of its strips were good."""
    fitted = StreamingSparsePCA(3, max_fill=0.4).partial_fit(LONG[:200])
    bad = LONG[200:400].copy()
    bad[150, 3] = np.inf
    with pytest.raises(SourceError, match="holds inf at feature 3, sample 150"):
        fitted.partial_fit(bad)
    with pytest.raises(ValueError, match="11 features"):
        fitted.partial_fit(LONG[:, :11])
    fitted.partial_fit(LONG[200:])
    same_bits(fitted, StreamingSparsePCA(3, max_fill=0.4).fit(LONG))


def test_what_partial_fit_refuses() -> None:
    fitted = StreamingSparsePCA(3).fit(LONG)
    with pytest.raises(OptionError, match="two passes"):
        StreamingSparsePCA(3, normalize="samples").partial_fit(LONG)
    few = StreamingSparsePCA(3).partial_fit(LONG[:2])
    with pytest.raises(OptionError, match=r"n_components=3 exceeds .* 2 samples"):
        few.transform(LONG)
    few.partial_fit(LONG[2:]).set_params(center=None)
    with pytest.raises(OptionError, match=r"added with center='features'.*add them again"):
        few.transform(LONG)
    few.set_params(center="features")
    same_bits(few, fitted)


@pytest.mark.parametrize("normalize", [None, "features"])
def test_batches_go_on_from_a_fit(normalize: str | None) -> None:
    """From its samples, weights included; what was added before is forgotten."""
    model = StreamingSparsePCA(3, max_fill=0.4, reduction="gram", normalize=normalize)
    weights = np.arange(700) % 3 + 0.5
    both = clone(model).partial_fit(LONG[:300]).fit(LONG[:500], sample_weight=weights[:500])
    assert both.n_samples_seen_ == 500
    both.partial_fit(LONG[500:600], sample_weight=weights[500:600])
    both.partial_fit(LONG[600:], sample_weight=weights[600:])
    expected = clone(model).fit(LONG, sample_weight=weights)
    assert both.n_samples_seen_ == expected.n_samples_seen_ == 700
    for name in ("components_", "explained_variance_", "mean_", "scale_"):
        np.testing.assert_allclose(getattr(both, name), getattr(expected, name), atol=1e-9)
    with pytest.raises(OptionError, match="n_components=2 was 3"):
        both.set_params(n_components=2).partial_fit(LONG)
    with pytest.raises(ValueError, match="11 features"):
        both.set_params(n_components=3).partial_fit(LONG[:, :11])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"reduction": "samples"}, "with reduction='samples'"),
        ({"missing": "mean"}, 'with missing="mean"'),
        ({"normalize": "features", "center": None}, 'with normalize="features" and without center'),
        ({"reduction": "gram"}, "in a copy"),
    ],
)
def test_fits_that_batches_do_not_go_on_from(options: dict[str, Any], why: str) -> None:
    fitted = StreamingSparsePCA(3, **options).fit(LONG)
    fitted = pickle.loads(pickle.dumps(fitted)) if why == "in a copy" else fitted
    with pytest.raises(OptionError, match=f"fit keeps no sums {why}"):
        fitted.partial_fit(LONG)
    assert fitted.n_samples_seen_ == 700
    assert fitted.components_.shape == (3, 12)


class WithAnother(StreamingSparsePCA):
    """A subclass with a parameter of its own, without most of ours."""

    def __init__(self, n_components: int = 2, *, budget: float = 0.4, name: str = "") -> None:
        super().__init__(n_components, max_fill=budget)
        self.budget, self.name = budget, name


def test_a_subclass_with_other_parameters() -> None:
    made = clone(WithAnother(3, name="mine"))
    assert set(made.get_params()) == {"n_components", "budget", "name"}
    expected = StreamingSparsePCA(3, max_fill=0.4).fit(LONG)
    same_bits(made.fit(LONG), expected)
    same_bits(clone(made).partial_fit(LONG[:300]).partial_fit(LONG[300:]), expected)
    assert list(made.get_feature_names_out()) == [f"withanother{i}" for i in range(3)]
    assert repr(made) == "WithAnother(n_components=3, name='mine')"


@pytest.mark.parametrize("kind", [StreamingSparsePCA, SparseSVD])
def test_as_many_components_as_there_can_be(kind: Any) -> None:
    """Of what a mask leaves and has a value; also of few samples."""
    data, mask = LONG[:40].copy(), np.arange(12) % 4 > 0
    data[:, 1] = np.nan
    options: dict[str, Any] = {"max_fill": 1.0} if kind is StreamingSparsePCA else {}
    assert kind(None, **options).fit(LONG).n_components_ == 12
    assert kind(None, **options).fit(LONG[:5]).n_components_ == 5
    fitted = kind(None, feature_mask=mask, missing="mean", **options).fit(data)
    assert (fitted.n_components, fitted.n_components_) == (None, 8)
    assert fitted.components_.shape == (8, 12)
    batches = StreamingSparsePCA(None).partial_fit(LONG[:5])
    assert batches.n_components_ == 5
    assert batches.partial_fit(LONG[5:]).n_components_ == 12


def test_no_advice_to_turn_what_is_right() -> None:
    for options in ({}, {"reduction": "gram", "max_fill": 0.5}):
        with pytest.raises(OptionError, match=r"n_components=9 exceeds .* 5 samples$"):
            StreamingSparsePCA(9, **options).fit(LONG[:5])
    fitted = StreamingSparsePCA(3).fit(LONG)
    with pytest.raises(OptionError, match=r"is expecting 12 features$"):
        fitted.transform(da.from_array(LONG[:, :7]))


def test_whiten_is_a_flag() -> None:
    with pytest.raises(OptionError, match="whiten must be one of False, True; got 'yes'"):
        StreamingSparsePCA(whiten="yes").fit(LONG)
