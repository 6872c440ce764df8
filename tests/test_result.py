"""What a result offers: components in order, the path, scores, accuracy, files."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import bits, differences, normal, write_zarr
from scipy import sparse

from streamsvd import ResourceError, SourceError, SVDResult, sparse_svd
from streamsvd.algorithm.log import TransformLog
from streamsvd.storage import asides

pytestmark = pytest.mark.usefixtures("narrow_strips")

N, P, M = 12, 4, 80
X = normal(N, 90) * np.linspace(1, 3, N)[:, None] + np.linspace(-2, 2, N)[:, None]


@pytest.fixture(scope="module")
def result() -> SVDResult:
    return sparse_svd(X, P, n_transforms=M, center="features")


# ------------------------------------------------------------------- order, signs, right vectors


def test_components_come_by_singular_value(result: SVDResult) -> None:
    values = result.singular_values
    assert values.shape == (P,)
    assert np.all(np.diff(values) <= 0)
    assert np.all(values > 0)
    centred = X - X.mean(axis=1, keepdims=True)
    products = result.components @ centred @ result.right.toarray().T
    np.testing.assert_allclose(np.diag(products), values, rtol=1e-12)


def test_shapes_and_types(result: SVDResult) -> None:
    assert isinstance(result.components, sparse.csr_array)
    assert (result.n_components, result.n_features, result.n_samples) == (P, N, 90)
    assert result.components.shape == (P, N)
    assert result.right.shape == (P, 90)
    assert result.components.dtype == result.right.dtype == np.float64
    assert result.mean.shape == result.scale.shape == (N,)
    assert result.pairs.shape == (M, 2)
    assert result.n_nonzeros == result.components.nnz
    assert result.fill == result.components.nnz / (P * N)


@pytest.mark.parametrize("selection", ["nuclear", "random"])
def test_largest_loading_is_positive(selection: str) -> None:
    made = sparse_svd(X, P, n_transforms=M, selection=selection, random_state=0)
    for k in range(0, M + 1, 10):
        for row in made.at(k).components.toarray():
            assert row[np.argmax(np.abs(row))] > 0


def made_of(p: int, n: int, *moves: tuple[int, int, list[list[float]]], diagonal=None) -> SVDResult:
    """A result with given left factors; the right ones are identities."""
    log = TransformLog(p, n, n)
    for i, j, g in moves:
        log.extend(np.array([[i, j]]), np.array([g]), np.eye(2)[None], np.array([[1.0, 0.0]]))
    diagonal = np.ones(p) if diagonal is None else np.array(diagonal)
    base = sparse_svd(np.eye(n), p, n_transforms=0)
    return replace(base, log=log, n_transforms=len(log), initial_diagonal=diagonal)


@pytest.mark.parametrize("sign", [1, -1])
def test_of_equal_loadings_the_first_is_positive(sign: int) -> None:
    h = sign * math.sqrt(0.5)
    row = made_of(1, 3, (0, 2, [[-h, h], [h, h]])).components.toarray()[0]
    np.testing.assert_array_equal(row, [abs(h), 0, -abs(h)])


def test_equal_singular_values_keep_their_order() -> None:
    made = made_of(3, 3, diagonal=[2.0, -5.0, 2.0])
    np.testing.assert_array_equal(made.singular_values, [5, 2, 2])
    np.testing.assert_array_equal(made.components.toarray(), np.eye(3)[[1, 0, 2]])
    np.testing.assert_array_equal(made.right.toarray(), np.diag([1, -1, 1])[[1, 0, 2]])


def test_an_untouched_component_is_a_unit_vector() -> None:
    made = sparse_svd(np.diag([1.0, -4.0, 2.0]), 3, n_transforms=0)
    np.testing.assert_array_equal(made.components.toarray(), np.eye(3)[[1, 2, 0]])
    np.testing.assert_array_equal(made.right.toarray(), np.diag([1, -1, 1])[[1, 2, 0]])
    np.testing.assert_array_equal(made.singular_values, [4, 2, 1])


# ------------------------------------------------------------------------------------- the path


def test_history(result: SVDResult) -> None:
    history = result.history
    assert [len(column) for column in history] == [M] * 4
    assert history.trace[-1] == pytest.approx(result.singular_values.sum(), rel=1e-14)
    assert np.all(np.diff(history.trace) > 0)
    np.testing.assert_array_equal(history.fill, history.n_nonzeros / (P * N))
    assert history.n_nonzeros[-1] == result.n_nonzeros
    assert np.all(np.diff(history.n_nonzeros) >= 0)
    assert np.all(np.isnan(history.explained_variance[:-1]))
    assert history.explained_variance[-1] == result.explained_variance_ratio.sum()


@pytest.mark.parametrize("k", [0, 1, M // 2, M - 1, M, np.int64(7)])
def test_at(result: SVDResult, k: int) -> None:
    part = result.at(k)
    assert part.n_transforms == k
    assert len(part.pairs) == len(part.history.trace) == k
    np.testing.assert_array_equal(part.history.trace, result.history.trace[:k])
    np.testing.assert_array_equal(part.history.n_nonzeros, result.history.n_nonzeros[:k])
    assert part.n_nonzeros == (result.history.n_nonzeros[k - 1] if k else P)
    assert part.components.nnz == part.n_nonzeros
    assert differences(part.at(M), result) == []
    if k < M:
        assert np.all(np.isnan(part.explained_variance))
        assert np.all(np.isnan(part.explained_variance_ratio))
    assert "n_transforms=" + str(k) in repr(part)


def test_the_path_begins_with_unit_vectors(result: SVDResult) -> None:
    start = result.at(0)
    assert np.count_nonzero(start.components.toarray()) == P
    np.testing.assert_allclose(
        start.singular_values, np.sort(np.abs(result.initial_diagonal))[::-1]
    )


# ----------------------------------------------------------------------------- what ends a fit


@pytest.mark.parametrize(
    ("n", "p", "expected"), [(16, 2, 80), (12, 4, 143), (10, 3, 100), (2, 1, 10), (1, 1, 10)]
)
def test_default_number_of_transforms(n: int, p: int, expected: int) -> None:
    """``round(10 p log2(n))``, that of two features for one."""
    made = sparse_svd(normal(n, 200), p)
    assert made.settings["n_transforms"] == expected
    assert len(made.pairs) == expected or made.stopped == "converged"


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_tol_is_relative_to_the_norm(tol: float) -> None:
    """Without a tail, one more transform gains what its score says."""
    square = normal(8, 8)
    made = sparse_svd(square, 8, n_transforms=5000, tol=tol)
    whole = sparse_svd(square, 8, n_transforms=5000)
    k, threshold = len(made.pairs), tol * np.linalg.norm(square)
    assert made.stopped == "converged"
    assert 0 < k < len(whole.pairs)
    np.testing.assert_array_equal(made.pairs, whole.pairs[:k])
    gains = np.diff(np.concatenate([[whole.initial_diagonal.sum()], whole.history.trace]))
    assert np.all(gains[:k] > threshold * (1 - 1e-9))
    assert gains[k] <= threshold * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(8, 8), (6, 30), (30, 6), (1, 9), (9, 1)])
def test_a_converged_fit_is_the_svd(shape: tuple[int, int]) -> None:
    """The sum to rounding; each value to its root: scores are of second order."""
    data = normal(*shape)
    made = sparse_svd(data, min(shape), n_transforms=20_000)
    assert made.stopped == "converged"
    assert len(made.pairs) < 20_000
    expected = np.linalg.svd(data, compute_uv=False)
    assert made.singular_values.sum() == pytest.approx(expected.sum(), rel=1e-13)
    np.testing.assert_allclose(made.singular_values, expected, rtol=1e-7)
    assert made.explained_variance_ratio.sum() == pytest.approx(1, rel=1e-13)


def test_no_transforms() -> None:
    made = sparse_svd(X, P, n_transforms=0)
    assert len(made.pairs) == 0
    np.testing.assert_array_equal(np.sort(made.components.indices), range(P))
    energies = np.sum(X[:P] ** 2, axis=1) / np.sum(X**2)
    np.testing.assert_allclose(np.sort(made.explained_variance_ratio), np.sort(energies))


# ------------------------------------------------------------------------------- hard numbers


@pytest.mark.parametrize("center", [None, "features", "samples"])
@pytest.mark.parametrize("value", [0.0, 3.0, -0.1])
def test_constant_data(value: float, center: str | None) -> None:
    """Of rank one, or zero when centred: zero singular values are zero."""
    made = sparse_svd(np.full((6, 40), value), 3, n_transforms=100, center=center)
    expected = [abs(value) * math.sqrt(240), 0, 0] if center is None else [0, 0, 0]
    np.testing.assert_allclose(made.singular_values, expected, atol=1e-12)
    products = (made.components @ made.components.T).toarray()
    np.testing.assert_allclose(products, np.eye(3), atol=1e-12)
    ratio = made.explained_variance_ratio
    assert np.all(np.isfinite(ratio))
    if made.total_energy == 0:
        assert np.all(ratio == 0)
    else:
        assert ratio.sum() == pytest.approx(1)
    if center == "features" or value != -0.1:  # whose mean over the features is rounded
        assert (made.total_energy == 0) == (value == 0 or center is not None)


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
@pytest.mark.parametrize("shape", [(8, 50), (8, 8), (50, 8)])
def test_more_components_than_rank(shape: tuple[int, int], rank: int) -> None:
    data = normal(shape[0], rank, seed=1) @ normal(rank, shape[1], seed=2)
    made = sparse_svd(data, 6, n_transforms=3000)
    for rows in (made.components, made.right):
        np.testing.assert_allclose((rows @ rows.T).toarray(), np.eye(6), atol=1e-12)
    expected = np.linalg.svd(data, compute_uv=False)[:6]
    assert made.singular_values.sum() == pytest.approx(expected.sum(), rel=1e-12)
    np.testing.assert_allclose(made.singular_values, expected, atol=1e-7 * max(expected[0], 1))
    assert np.all(np.isfinite(made.explained_variance))


def test_duplicated_features_and_samples() -> None:
    data = np.tile(normal(4, 20), (2, 2))
    made = sparse_svd(data, 8, n_transforms=3000, center="features")
    products = (made.components @ made.components.T).toarray()
    np.testing.assert_allclose(products, np.eye(8), atol=1e-12)
    assert np.all(np.isfinite(made.singular_values))
    assert made.explained_variance_ratio.sum() == pytest.approx(1)


def test_float32_with_a_large_mean() -> None:
    """faiss#773: 20000 x 10 with offset 1000, explained variances within 1e-5 of float64."""
    rows = (normal(20_000, 10) * np.linspace(1, 2, 10) + 1000).astype(np.float32)
    options: dict[str, Any] = {"n_transforms": 300, "center": "features", "sample_axis": 0}
    single = sparse_svd(rows, 10, **options)
    double = sparse_svd(rows, 10, dtype="float64", **options)
    assert single.dtype == np.float32
    centred = rows - rows.mean(axis=0, dtype=float)
    total = np.var(centred, axis=0, ddof=1).sum()
    for made, rtol in ((single, 1e-5), (double, 1e-12)):
        scores = centred @ made.components.toarray().T
        variance = np.var(scores, axis=0, ddof=1)
        np.testing.assert_allclose(made.explained_variance, variance, rtol=rtol)
        assert made.explained_variance.sum() == pytest.approx(total, rel=rtol)
        np.testing.assert_allclose(made.mean, rows.mean(axis=0, dtype=float), rtol=1e-13)
    np.testing.assert_allclose(single.explained_variance, double.explained_variance, rtol=1e-5)


def test_a_large_mean_costs_no_digits_of_the_scale() -> None:
    far = normal(5, 4000) * np.arange(1, 6)[:, None] + 1e8
    made = sparse_svd(far, 2, n_transforms=10, center="features", normalize="features")
    shifted = far - 1e8  # exact
    np.testing.assert_allclose(made.mean - 1e8, shifted.mean(axis=1), atol=2e-8)
    np.testing.assert_allclose(made.scale, shifted.std(axis=1), rtol=1e-13)


def test_counts_do_not_overflow() -> None:
    counts = np.random.default_rng(0).poisson(200, (10, 500)).clip(0, 255).astype(np.uint8)
    made = sparse_svd(counts, 10, n_transforms=100, center="features")
    total = np.var(counts.astype(float), axis=1, ddof=1).sum()
    assert made.explained_variance.sum() == pytest.approx(total, rel=1e-5)
    as_floats = sparse_svd(counts.astype(float), 10, n_transforms=100, center="features")
    np.testing.assert_allclose(made.singular_values, as_floats.singular_values, rtol=1e-5)


def test_explained_variance_is_over_the_total(result: SVDResult) -> None:
    total = np.var(X, axis=1, ddof=1).sum()
    np.testing.assert_allclose(result.explained_variance / total, result.explained_variance_ratio)
    assert 0 < result.explained_variance_ratio.sum() < 1
    scores = result.transform(X)
    np.testing.assert_allclose(result.explained_variance, np.var(scores, axis=1, ddof=1))


# ------------------------------------------------------------------------------------ scores


@pytest.mark.parametrize("normalize", [None, "features", "samples"])
@pytest.mark.parametrize("center", [None, "features", "samples"])
def test_transform(center: str | None, normalize: str | None) -> None:
    made = sparse_svd(X, P, n_transforms=M, center=center, normalize=normalize)
    Y = X.copy()
    if center:
        Y -= made.mean[:, None] if center == "features" else Y.mean(axis=0)
    if normalize:
        Y /= made.scale[:, None] if normalize == "features" else np.linalg.norm(Y, axis=0)
    scores = made.transform(X)
    assert scores.shape == (P, 90)
    np.testing.assert_allclose(scores, made.components.toarray() @ Y, atol=1e-12)
    np.testing.assert_allclose(
        np.sum(scores**2, axis=1) / made.total_energy, made.explained_variance_ratio, rtol=1e-11
    )
    np.testing.assert_array_equal(made.transform(X[:, 5:6]), scores[:, 5:6])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("chunks", [(N, 1), (5, 7), (N, 64)])
@pytest.mark.parametrize("center", ["features", "samples"])
def test_scores_of_a_sample_depend_on_it_alone(
    center: str, chunks: tuple[int, int], dtype: str, tmp_path: Path
) -> None:
    data = X.astype(dtype)
    made = sparse_svd(data, P, n_transforms=M, center=center, normalize="samples")
    scores = made.transform(data)
    path = write_zarr(tmp_path / "x.zarr", data, chunks)
    np.testing.assert_array_equal(made.transform(path), scores)
    for k in range(0, 90, 17):
        np.testing.assert_array_equal(made.transform(data[:, k : k + 1])[:, 0], scores[:, k])
    order = np.random.default_rng(0).permutation(90)
    np.testing.assert_array_equal(made.transform(data[:, order]), scores[:, order])


@pytest.mark.parametrize("sample_axis", [0, 1])
@pytest.mark.parametrize("from_zarr", [False, True])
def test_transform_to_a_store(
    result: SVDResult, from_zarr: bool, sample_axis: int, tmp_path: Path
) -> None:
    """The store can be a source again."""
    source: Any = X if sample_axis else np.ascontiguousarray(X.T)
    if from_zarr:
        source = write_zarr(tmp_path / "x.zarr", source, (7, 7))
    out = result.transform(source, tmp_path / "new" / "scores.zarr", sample_axis=sample_axis)
    scores = result.transform(X)
    expected = scores if sample_axis else scores.T
    np.testing.assert_array_equal(out[...], expected)
    again = zarr.open_array(tmp_path / "new" / "scores.zarr", mode="r")
    np.testing.assert_array_equal(again[...], expected)
    options: dict[str, Any] = {"n_transforms": 5, "sample_axis": sample_axis}
    refit = sparse_svd(tmp_path / "new" / "scores.zarr", 2, **options)
    assert differences(refit, sparse_svd(expected, 2, **options)) == []


def test_scores_of_zero_are_stored_too(tmp_path: Path) -> None:
    made = sparse_svd(X, P, n_transforms=5)
    made.transform(np.zeros((N, 30)), tmp_path / "scores.zarr")
    assert sparse_svd(tmp_path / "scores.zarr", 1).total_energy == 0


def test_samples_as_rows_stay_so_by_default() -> None:
    made = sparse_svd(X.T, P, n_transforms=M, sample_axis=0)
    assert made.transform(X.T).shape == (90, P)
    np.testing.assert_array_equal(made.transform(X.T), made.transform(X, sample_axis=1).T)


def test_transform_leaves_the_data_alone(result: SVDResult) -> None:
    before = X.copy()
    result.transform(X)
    result.accuracy(X)
    np.testing.assert_array_equal(X, before)


def test_no_scores_are_left_of_a_failed_transform(result: SVDResult, tmp_path: Path) -> None:
    bad = X.copy()
    bad[3, 80] = np.nan
    path = write_zarr(tmp_path / "x.zarr", bad, (N, 10))
    with pytest.raises(SourceError):
        result.transform(path, tmp_path / "scores.zarr")
    assert not (tmp_path / "scores.zarr").exists()


# ---------------------------------------------------------------------------------- accuracy


def test_accuracy_against_the_svd(result: SVDResult, tmp_path: Path) -> None:
    singular = np.linalg.svd(X - X.mean(axis=1, keepdims=True), compute_uv=False)
    for source in (X, write_zarr(tmp_path / "x.zarr", X, (5, 7))):
        measured = result.accuracy(source)
        np.testing.assert_allclose(measured.true_singular_values, singular[:P], rtol=1e-12)
        expected = result.singular_values.sum() / singular[:P].sum()
        assert measured.accuracy == pytest.approx(expected, rel=1e-12)
        ratio = result.explained_variance_ratio.sum()
        assert measured.captured_variance == pytest.approx(ratio, rel=1e-12)
        best = np.sum(singular[:P] ** 2) / np.sum(singular**2)
        assert measured.captured_of_best == pytest.approx(ratio / best, rel=1e-12)
        assert measured.orthogonality_error < 1e-12


def test_accuracy_grows_along_the_path_to_one() -> None:
    whole = sparse_svd(X, P, n_transforms=20_000)
    path = [whole.at(k).accuracy(X).accuracy for k in (0, 5, 20, 60, len(whole.pairs))]
    assert all(a < b for a, b in itertools.pairwise(path))
    assert path[-1] == pytest.approx(1, rel=1e-12)


def test_accuracy_on_other_samples(result: SVDResult) -> None:
    measured = result.accuracy(X[:, :40])
    assert measured.accuracy is None
    assert 0 < measured.captured_variance <= 1
    assert 0 < measured.captured_of_best <= 1


def test_accuracy_without_room_for_the_gram_matrix(result: SVDResult) -> None:
    measured = result.accuracy(X, gram_limit=8 * N * N - 1)
    assert measured.accuracy is measured.captured_of_best is measured.true_singular_values is None
    ratio = result.explained_variance_ratio.sum()
    assert measured.captured_variance == pytest.approx(ratio, rel=1e-12)
    assert result.accuracy(X, gram_limit=8 * N * N).true_singular_values is not None


def test_accuracy_of_nothing() -> None:
    measured = sparse_svd(np.zeros((4, 9)), 2).accuracy(np.zeros((4, 9)))
    assert measured.captured_variance == 0
    assert measured.accuracy is measured.captured_of_best is None
    np.testing.assert_array_equal(measured.true_singular_values, [0, 0])


# ----------------------------------------------------------------------------------- on disk

FITS: dict[str, dict[str, Any]] = {
    "plain": {"n_transforms": M},
    "no transforms": {"n_transforms": 0},
    "float32": {"n_transforms": M, "dtype": "float32"},
    "scaled": {"n_transforms": M, "center": "features", "normalize": "features"},
    "samples": {"n_transforms": M, "center": "samples", "normalize": "samples"},
    "random": {"n_transforms": M, "selection": "random"},
    "converged": {"n_transforms": 20_000},
    "NumPy integers": {"n_transforms": np.int64(M), "random_state": np.int64(3)},
}


@pytest.mark.parametrize("name", FITS)
def test_saved_and_loaded(name: str, tmp_path: Path) -> None:
    made = sparse_svd(X, P, **FITS[name])
    made.save(tmp_path / "deep" / "result.zarr")
    again = SVDResult.load(tmp_path / "deep" / "result.zarr")
    assert bits(again) == bits(made)
    for field in ("sample_axis", "dtype", "stopped", "settings", "n_transforms"):
        assert getattr(again, field) == getattr(made, field)
    np.testing.assert_array_equal(again.transform(X), made.transform(X))
    assert repr(again) == repr(made)


def test_numpy_integers_as_sizes(tmp_path: Path) -> None:
    made = sparse_svd(X, np.int64(P), n_transforms=np.int32(5))
    made.save(tmp_path / "result.zarr")
    assert bits(SVDResult.load(tmp_path / "result.zarr")) == bits(sparse_svd(X, P, n_transforms=5))


@pytest.mark.parametrize("k", [0, 33])
def test_a_step_of_the_path_is_saved_as_such(result: SVDResult, k: int, tmp_path: Path) -> None:
    result.at(k).save(tmp_path / "result.zarr")
    again = SVDResult.load(tmp_path / "result.zarr")
    assert again.n_transforms == k
    assert differences(again, result.at(k), path_only=True) == []
    assert differences(again.at(M), result) == []


def test_saved_files_are_for_other_programs_too(result: SVDResult, tmp_path: Path) -> None:
    result.save(tmp_path / "result.zarr")
    group = zarr.open_group(tmp_path / "result.zarr", mode="r")
    for name, expected in (("components", result.components), ("right", result.right)):
        parts = [group[f"{name}/{part}"][...] for part in ("data", "indices", "indptr")]
        rows = sparse.csr_array(tuple(parts), shape=expected.shape)
        np.testing.assert_array_equal(rows.toarray(), expected.toarray())
    np.testing.assert_array_equal(group["singular_values"][...], result.singular_values)
    json.dumps(dict(group.attrs), allow_nan=False)


def test_overwriting_a_saved_result(result: SVDResult, tmp_path: Path) -> None:
    result.at(5).save(tmp_path / "result.zarr")
    result.save(tmp_path / "result.zarr", overwrite=True)
    assert bits(SVDResult.load(tmp_path / "result.zarr")) == bits(result)
    assert [path.name for path in tmp_path.iterdir()] == ["result.zarr"]


@pytest.mark.parametrize("there", [False, True])
def test_a_failed_save_leaves_what_was_there(
    result: SVDResult, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        result.at(5).save(tmp_path / "result.zarr")

    def full(root: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(asides, "_fsync_tree", full)
    with pytest.raises(ResourceError, match=r"cannot write .*result\.zarr.*No space left"):
        result.save(tmp_path / "result.zarr", overwrite=there)
    assert [path.name for path in tmp_path.iterdir()] == ["result.zarr"] * there
    if there:
        assert SVDResult.load(tmp_path / "result.zarr").n_transforms == 5


# ---------------------------------------------------------------------------------- progress


def test_progress_is_told_to_a_callable(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []

    def progress(stage: str, done: int, total: int) -> None:
        told.append((stage, done, total))

    path = write_zarr(tmp_path / "x.zarr", X, (N, 10))
    made = sparse_svd(path, P, n_transforms=M, progress=progress)
    made.transform(path, progress=progress)
    made.accuracy(path, progress=progress)
    stages = {"ingest": 90, "transforms": M, "transform": 90, "accuracy": 90}
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == list(stages)
    for stage, size in stages.items():
        of_stage = [(done, total) for name, done, total in told if name == stage]
        assert {total for _, total in of_stage} == {size}
        assert all(a < b for (a, _), (b, _) in itertools.pairwise(of_stage))
        assert of_stage[-1] == (size, size)


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    sparse_svd(X, P, n_transforms=M)
    sparse_svd(X, P, n_transforms=M, progress=False)
    assert capsys.readouterr() == ("", "")
    sparse_svd(X, P, n_transforms=M, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "ingest" in err
    assert "transforms" in err


@pytest.mark.parametrize("progress", [False, None])
def test_no_bar_no_lock(progress: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar of tqdm, even one that is not shown, makes a lock that forked processes share."""
    monkeypatch.setattr("streamsvd.progress.tqdm", lambda *_, **__: pytest.fail("a bar was made"))
    sparse_svd(X, P, n_transforms=M, progress=progress)


# -------------------------------------------------------------------------- seed, memory of X


def test_random_state_gives_the_same_again() -> None:
    options: dict[str, Any] = {"n_transforms": 30, "selection": "random"}
    one = sparse_svd(X, P, random_state=7, **options)
    assert differences(sparse_svd(X, P, random_state=7, **options), one) == []
    assert not np.array_equal(sparse_svd(X, P, random_state=8, **options).pairs, one.pairs)
    fresh = sparse_svd(X, P, **options)
    other = sparse_svd(X, P, **options)
    assert not np.array_equal(fresh.pairs, other.pairs)
    seed = fresh.settings["random_state"]
    assert differences(sparse_svd(X, P, random_state=seed, **options), fresh) == []


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("center", [None, "features", "samples"])
def test_overwrite_x(center: str | None, dtype: str) -> None:
    data = X.astype(dtype)
    options: dict[str, Any] = {"n_transforms": M, "center": center}
    expected = sparse_svd(data, P, **options)
    np.testing.assert_array_equal(data, X.astype(dtype))
    made = sparse_svd(data, P, overwrite_x=True, **options)
    assert differences(made, expected) == []
    assert not np.array_equal(data, X.astype(dtype))
    trace = float(np.diag(data)[:P].astype(float).sum())
    assert trace == pytest.approx(made.history.trace[-1], rel=1e-14)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("center", [None, "features"])
def test_overwrite_x_of_a_store(center: str | None, zarr_format: int, tmp_path: Path) -> None:
    """What is left is the working matrix, marked as no data."""
    options: dict[str, Any] = {"n_transforms": M, "center": center}
    path = write_zarr(tmp_path / "x.zarr", X, (N, 20), zarr_format=zarr_format)
    made = sparse_svd(path, P, overwrite_x=True, n_threads=2, **options)
    assert differences(made, sparse_svd(X, P, **options)) == []
    left = zarr.open_array(path, mode="r")[...]
    working = X.copy()
    sparse_svd(working, P, overwrite_x=True, **options)
    np.testing.assert_array_equal(left, working)
    for call in (lambda: sparse_svd(path, P), lambda: made.transform(path)):
        with pytest.raises(SourceError, match=r"not data.*overwritten by sparse_svd"):
            call()


def test_a_store_that_is_being_overwritten_is_no_data(tmp_path: Path) -> None:
    bad = X.copy()
    bad[3, 70] = np.nan
    path = write_zarr(tmp_path / "x.zarr", bad, (N, 20))
    with pytest.raises(SourceError, match="feature 3, sample 70"):
        sparse_svd(path, P, overwrite_x=True)
    with pytest.raises(SourceError, match=r"not data.*being rewritten"):
        sparse_svd(path, P)


@pytest.mark.parametrize("dtype", [">f8", "<f8", float, np.float64, np.dtype("f8")])
def test_spellings_of_a_precision(dtype: Any) -> None:
    made = sparse_svd(X, P, n_transforms=20, dtype=dtype)
    assert made.dtype == np.float64
    assert differences(made, sparse_svd(X, P, n_transforms=20)) == []


def test_settings_are_recorded(result: SVDResult) -> None:
    expected = {"n_components": P, "n_transforms": M, "selection": "nuclear", "center": "features"}
    assert expected.items() <= result.settings.items()
    assert "streamsvd" in result.settings
    json.dumps(result.settings)
    text = repr(result)
    for part in (f"n_components={P}", f"n_features={N}", "n_samples=90", "fill=", "explained"):
        assert part in text
