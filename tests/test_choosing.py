"""Cross-validation: folds, one pass, scores, the choice, what is said and drawn of it."""

import importlib
import sys
import tracemalloc
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import naive
import numpy as np
import pytest
from helpers import COMBINATIONS, differences, normal, write_zarr
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from streamsvd import (
    CrossValidation,
    OptionError,
    ResourceError,
    SourceError,
    sparse_pca,
    sparse_pca_cv,
)
from streamsvd.choosing import fits
from streamsvd.choosing.fits import fit_grid, with_features
from streamsvd.choosing.fold_sums import FoldSums, sum_folds
from streamsvd.choosing.folds import Folding
from streamsvd.choosing.memory import check_memory
from streamsvd.choosing.rule import GridPoint, best_of, one_standard_error, simplest_first
from streamsvd.choosing.scores import Model, held_out_scores
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask
from streamsvd.passes import gram
from streamsvd.plan import FIXED_BYTES
from streamsvd.problem import Problem
from streamsvd.refinement import Refined, refine_path

N, N_SAMPLES = 20, 400
X = normal(N, N_SAMPLES)
X[:4] += 2 * normal(1, N_SAMPLES, 1)
X[4:8] += 3 * normal(1, N_SAMPLES, 2)
X += np.linspace(-5, 5, N)[:, None]
GRID: dict[str, Any] = {"n_components": [1, 2, 3], "max_fill": [0.1, 0.2, 0.4]}


@pytest.fixture(scope="module")
def cv() -> CrossValidation:
    return sparse_pca_cv(X, **GRID)


# -------------------------------------------------------------------------------------- folds


@given(
    folds=st.integers(2, 12),
    n_samples=st.integers(2, 200),
    split=st.sampled_from(["random", "blocked"]),
    seed=st.integers(0, 5),
)
def test_folds_are_balanced(folds: int, n_samples: int, split: str, seed: int) -> None:
    folding = Folding(folds=folds, split=split, random_state=seed)
    if folds > n_samples:
        with pytest.raises(OptionError, match=rf"folds={folds} exceeds the {n_samples} samples"):
            folding.labels(n_samples)
        return
    labels = folding.labels(n_samples)
    sizes = np.bincount(labels, minlength=folds)
    assert labels.shape == (n_samples,)
    assert len(sizes) == folds
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(labels, folding.labels(n_samples))
    if split == "blocked":
        assert np.all(np.diff(labels.astype(int)) >= 0)


def test_random_folds_are_random() -> None:
    one, other = (Folding(random_state=seed).labels(1000) for seed in (0, 1))
    assert np.mean(one == other) < 0.4
    assert abs(np.corrcoef(one[:-1], one[1:])[0, 1]) < 0.15


@given(folds=st.integers(2, 6), groups=st.lists(st.integers(0, 12), min_size=6, max_size=80))
def test_groups_stay_together(folds: int, groups: list[int]) -> None:
    folding = Folding(folds=folds, groups=groups)
    count = len(set(groups))
    if count < folds:
        with pytest.raises(OptionError, match=rf"folds={folds} exceeds the {count} groups"):
            folding.labels(len(groups))
        return
    labels = folding.labels(len(groups))
    sizes = np.bincount(labels, minlength=folds)
    assert sizes.min() > 0
    for name in set(groups):
        assert len(set(labels[np.array(groups) == name])) == 1
    # no fold is larger than the smallest by more than the largest group
    assert sizes.max() - sizes.min() <= np.bincount(groups).max()


def test_groups_as_scikit_learn_does() -> None:
    from sklearn.model_selection import GroupKFold

    groups = np.random.default_rng(0).choice(list("abcdefghijkl"), 300, p=np.arange(1, 13) / 78)
    labels = Folding(folds=4, groups=groups).labels(300)
    theirs = [test for _, test in GroupKFold(4).split(np.zeros((300, 1)), groups=groups)]
    assert {tuple(np.flatnonzero(labels == f)) for f in range(4)} == set(map(tuple, theirs))


@pytest.mark.parametrize(("folds", "count"), [(4, 6), (5, 10), (5, 3), (10, 40)])
def test_halves(folds: int, count: int) -> None:
    halves = list(Folding(folds=folds, half_samples=count).halves())
    assert len(set(halves)) == len(halves) == count
    assert {len(set(half)) for half in halves} == {folds // 2}
    if (folds, count) in ((5, 3), (10, 40)):
        for one, other in zip(halves[::2], halves[1::2], strict=False):
            assert not set(one) & set(other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"folds": 1}, "folds must be an integer of at least 2; got 1"),
        ({"folds": 2.0}, "folds must be an integer"),
        ({"split": "stratified"}, "split must be one of 'random', 'blocked'; got 'stratified'"),
        ({"split": "blocked", "groups": [1]}, "leave one out"),
        ({"half_samples": -1}, "half_samples must be an integer of at least 0"),
        ({"half_samples": 2, "folds": 3}, "pass folds=4 or more, not 3"),
        ({"half_samples": 11}, "half_samples=11 exceeds the 10 halves of 5 folds"),
        ({"random_state": None}, "random_state must be an integer"),
    ],
)
def test_foldings_that_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Folding(**options)


# ----------------------------------------------------------------------------------- fold sums


def sums_of(x: Any, labels: np.ndarray, center: str | None, normalize: str | None) -> FoldSums:
    axis = 0 if sparse.issparse(x) else 1
    return sum_folds(open_data(x, Ask(axis)), labels, center, normalize, n_threads=2)


def counts(n: int, n_samples: int) -> np.ndarray:
    """Mostly zeros, a feature that is constant and one that is zero."""
    made = np.random.default_rng(5).poisson(0.1, (n, n_samples)) * 1.0
    made[0], made[1] = 3.0, 0.0
    return made


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
def test_sums_are_those_of_the_folds(
    center: str | None, normalize: str | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of training samples as they are alone; of the others by the mean and scale of those."""
    monkeypatch.setattr("streamsvd.sizes.STRIP_BYTES", 3000)
    data = X if kind == "dense" else counts(15, 300)
    if kind == "sparse" and normalize == "features":
        data = data[2:]
    n_samples = data.shape[1]
    labels = Folding(folds=3, random_state=4).labels(n_samples)
    given = data if kind == "dense" else sparse.csr_array(data.T)
    if kind == "sparse" and center != "samples":
        monkeypatch.setattr(gram.GramSum, "_add", lambda *_: pytest.fail("was made dense"))
    sums = sums_of(given, labels, center, normalize)
    assert sums.counts == np.bincount(labels).tolist()
    for fold in range(3):
        train, test = data[:, labels != fold], data[:, labels == fold]
        expected, mean, scale = naive.covariance(train, center, normalize)
        found, learned = sums.without(fold)
        size = np.sum(train**2, axis=1).max() / scale.min() ** 2
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12 * size)
        np.testing.assert_allclose(learned.mean, mean, rtol=1e-12, atol=1e-13)
        left = test if center != "samples" and normalize != "samples" else None
        if left is None:
            of_samples = {
                "center": center if center == "samples" else None,
                "normalize": normalize if normalize == "samples" else None,
            }
            left = naive.preprocess(test, **of_samples)[0]
        left = (left - mean[:, None]) / scale[:, None]
        np.testing.assert_allclose(
            sums.held_out(fold, learned), left @ left.T, rtol=1e-11, atol=1e-12 * size
        )
    np.testing.assert_allclose(
        sums.total().result()[0],
        naive.covariance(data, center, normalize)[0],
        rtol=1e-11,
        atol=1e-11 * np.sum(data**2),
    )


def test_features_that_are_constant_stay_so() -> None:
    """Not to rounding: they must not be told from others by it."""
    data = np.vstack([counts(15, 300), np.full(300, 0.1)])
    labels = Folding(folds=3).labels(300)
    for kind in (data, sparse.csr_array(data.T)):
        sums = sums_of(kind, labels, "features", None)
        gram_matrix, learned = sums.without(1)
        left_out = sums.held_out(1, learned)
        for j in (0, 1, 15):
            assert not gram_matrix[j].any()
            assert not left_out[j].any()
        assert np.diag(left_out)[2:15].all()


def test_a_feature_that_varies_only_where_it_is_left_out() -> None:
    data = normal(4, 60) + 7.0
    labels = Folding(folds=3, split="blocked").labels(60)
    data[1, labels != 2] = 5.0
    for kind in (data, sparse.csr_array(data.T)):
        sums = sums_of(kind, labels, "features", None)
        gram_matrix, learned = sums.without(2)
        assert not gram_matrix[1].any()
        left = data[:, labels == 2] - data[:, labels != 2].mean(axis=1)[:, None]
        np.testing.assert_allclose(
            sums.held_out(2, learned), left @ left.T, rtol=1e-10, atol=1e-10 * 50
        )
    with pytest.raises(SourceError, match=r"\(folds 0, 1\) are constant .* variance: 1;"):
        sums_of(data, labels, "features", "features").without(2)


@pytest.mark.parametrize("center", ["features", "samples"])
def test_same_bits_for_any_chunks_and_threads(
    center: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvd.sizes.BATCH_BYTES", 8 * N * 64)
    labels = Folding(folds=3).labels(N_SAMPLES)
    expected = sums_of(X, labels, center, None)
    monkeypatch.setattr("streamsvd.sizes.STRIP_BYTES", 1000)
    others = [
        open_data(write_zarr(tmp_path / f"{c}.zarr", X, (N, c)), Ask(1)) for c in (1, 7, 150, 400)
    ]
    others += [open_data(da.from_array(X, (N, 33)), Ask(1)), open_data(X.T.copy(), Ask(0))]
    for source in others:
        for n_threads in (1, 3):
            found = sum_folds(source, labels, center, None, n_threads=n_threads)
            for one, other in zip(found.nodes, expected.nodes, strict=True):
                assert np.tril(one[:N]).tobytes() == np.tril(other[:N]).tobytes()
                assert one[N:].tobytes() == other[N:].tobytes()


def test_result_has_the_same_bits_and_is_read_once(cv: CrossValidation, tmp_path: Path) -> None:
    """As many bytes as there are; of the chunks none twice."""
    path = write_zarr(tmp_path / "x.zarr", X, (N, 50))
    again = sparse_pca_cv(path, **GRID, n_threads=3)
    assert again.bytes_read == X.nbytes
    for name in ("predicted_variance", "explained_variance", "n_nonzeros", "fold_of"):
        assert getattr(again, name).tobytes() == getattr(cv, name).tobytes()
    assert differences(again.result, cv.result) == []
    assert (again.result.stability != cv.result.stability).nnz == 0


# -------------------------------------------------------------------------------------- scores


def refined_on(A: np.ndarray, rows: np.ndarray) -> Refined:
    return Refined(sparse.csr_array(rows), np.diag(rows @ A @ rows.T).copy())


def some_components(seed: int, p: int = 3, n: int = 12) -> np.ndarray:
    """(p, n) orthonormal rows, the first two with a support that they share; one on one feature."""
    random = np.random.default_rng(seed)
    rows = np.zeros((p, n))
    rows[:2, :5] = np.linalg.qr(random.standard_normal((5, 2)))[0].T
    if p > 2:
        rows[2, 7] = -1.0
    return rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("p", [2, 3])
def test_predicted_variance_deletes_each_feature(seed: int, p: int) -> None:
    """As the regressions of the normal distribution do, one for each feature."""
    n = 12
    train, test = normal(n, 200, seed), normal(n, 50, seed + 10)
    for x in (train, test):
        x[:5] += normal(5, 2, 99) @ x[5:7] * 2
    A, T = train @ train.T, test @ test.T
    rows = some_components(seed, p)
    found = refined_on(A, rows)
    variances = found.energies / 200
    noise = (np.trace(A) / 200 - variances.sum()) / (n - p)
    excess = np.maximum(variances - noise, 0.0)
    C = rows.T @ np.diag(excess) @ rows + noise * np.eye(n)
    predicted, explained = held_out_scores(T, Model.of(found, np.diag(A), 200))
    errors = naive.left_out_errors(T, C)
    np.testing.assert_allclose(predicted, 1 - errors.sum() / np.trace(T), rtol=1e-11)
    np.testing.assert_allclose(explained, np.trace(rows @ T @ rows.T) / np.trace(T), rtol=1e-12)
    if p == 3:  # a feature by itself is predicted from nothing
        np.testing.assert_allclose(errors[7], T[7, 7], rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_without_noise_it_is_least_squares(seed: int) -> None:
    """What Bro and others do: scores that fit the other features, in the limit of no noise."""
    rows = some_components(seed)
    test = normal(12, 40, seed)
    T = test @ test.T
    found, _ = held_out_scores(T, Model(sparse.csr_array(rows), np.ones(3)))
    errors = naive.least_squares_errors(test, rows.T)
    np.testing.assert_allclose(found, 1 - errors.sum() / np.trace(T), rtol=1e-9)


def test_weights_of_components() -> None:
    """None for a component of no more variance than noise; features without variance tell none."""
    rows = np.eye(2, 6)
    diagonal = np.array([100.0, 5.0, 10.0, 10.0, 10.0, 0.0])
    model = Model.of(Refined(sparse.csr_array(rows), diagonal[:2].copy()), diagonal, 10)
    np.testing.assert_allclose(model.weights, [0.9, 0.0])
    exact = Model.of(Refined(sparse.csr_array(np.eye(6)), diagonal.copy()), diagonal, 10)
    np.testing.assert_array_equal(exact.weights[:5], 1.0)


def test_degenerate_scores() -> None:
    """Nothing left out has variance; as many components as features."""
    rows = sparse.csr_array(np.eye(3))
    model = Model(rows, np.ones(3))
    assert held_out_scores(np.zeros((3, 3)), model) == (0.0, 0.0)
    T = normal(3, 9) @ normal(3, 9).T
    assert held_out_scores(T, model) == (pytest.approx(0.0), pytest.approx(1.0))


def test_scores_are_those_of_fits_without_the_fold(cv: CrossValidation) -> None:
    """From the data, by the fit of `sparse_pca` on the same samples, where that finds the same."""
    for fold in range(2):
        train, test = X[:, cv.fold_of != fold], X[:, cv.fold_of == fold]
        made = sparse_pca(train, 2, max_fill=0.2)
        Y = test - train.mean(axis=1, keepdims=True)
        T, rows = Y @ Y.T, made.components.toarray()
        expected = np.trace(rows @ T @ rows.T) / np.trace(T)
        np.testing.assert_allclose(cv.explained_variance[fold, 1, 1], expected, rtol=1e-7)
        variances = made.refined.energies / train.shape[1]
        noise = (made.total_energy / train.shape[1] - variances.sum()) / (N - 2)
        U = made.refined.components.toarray()
        C = U.T @ np.diag(variances - noise) @ U + noise * np.eye(N)
        expected = 1 - naive.left_out_errors(T, C).sum() / np.trace(T)
        np.testing.assert_allclose(cv.predicted_variance[fold, 1, 1], expected, rtol=1e-7)


# -------------------------------------------------------------------------- fits of the grid


def test_features_are_added() -> None:
    """Those of largest variance that no component has; orthonormal, as the others are."""
    rows = sparse.csr_array(some_components(0, 2))
    diagonal = np.array([9.0, 9, 9, 9, 9, 3, 1, 5, 4, 4, 0, 0])
    made = with_features(rows, 5, diagonal).toarray()
    np.testing.assert_array_equal(made[:2], rows.toarray())
    assert [np.flatnonzero(row).tolist() for row in made[2:]] == [[7], [8], [9]]
    np.testing.assert_allclose(made @ made.T, np.eye(5), atol=1e-15)
    assert with_features(rows, 9, diagonal) is not None
    assert with_features(rows, 10, diagonal) is None
    np.testing.assert_array_equal(with_features(rows, 2, diagonal).toarray(), rows.toarray())


def test_fits_of_a_grid_are_within_budgets_and_start_from_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the order of the numbers; each explains as much as what it starts from."""
    asked: list[tuple[int, list[int]]] = []

    def noted(cov: Any, p: int, budgets: Any, cap: Any, starts: Any, n_threads: int) -> Any:
        asked.append((p, [rows.nnz for rows in starts]))
        return refine_path(cov, p, budgets, cap, starts, n_threads)

    monkeypatch.setattr(fits, "refine_path", noted)
    A = naive.covariance(X, "features", None)[0]
    budgets = np.array([[9, 12], [2, 4], [6, 8]])
    found = fit_grid(A, [3, 1, 2], budgets, None)
    assert [p for p, _ in asked] == [1, 2, 3]
    assert [len(starts) for _, starts in asked] == [0, 2, 2]
    for some, allowed, p in zip(found, budgets, (3, 1, 2), strict=True):
        for one, budget in zip(some, allowed, strict=True):
            rows = one.components.toarray()
            assert rows.shape == (p, N)
            assert np.count_nonzero(rows) <= budget
            np.testing.assert_allclose(rows @ rows.T, np.eye(p), atol=1e-13)
    for j in range(2):
        one, two, three = (found[i][j] for i in (1, 2, 0))
        for less, more in ((one, two), (two, three)):
            start = with_features(less.components, more.components.shape[0], np.diag(A)).toarray()
            assert more.energies.sum() >= np.trace(start @ A @ start.T) * (1 - 1e-12)


def test_components_that_are_found_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation whose supports meet, where a search of all at once misses what is planted."""
    examples = Path(__file__).parents[1] / "examples"
    monkeypatch.syspath_prepend(examples / "benchmarks")
    monkeypatch.syspath_prepend(examples)
    benchmark = importlib.import_module("cross_validation")
    planted = benchmark.plant(35)
    A = naive.covariance(planted.x, "features", None)[0]
    U, size = planted.components, planted.size
    p = U.shape[1]
    np.testing.assert_allclose(U.T @ U, np.eye(p), atol=1e-7)
    assert np.count_nonzero(U) == p * size
    numbers = list(range(1, p + 1))
    found = fit_grid(A, numbers, size * np.array(numbers)[:, None], None)
    assert found[-1][0].energies.sum() >= np.trace(U.T @ A @ U)


# ------------------------------------------------------------------------------------ the choice


def test_the_rule_is_of_differences() -> None:
    """Folds of other difficulty say nothing; the simplest point that is not clearly worse."""
    fold = np.array([0.1, 0.5, 0.3, 0.9])[:, None]
    wobble = np.array([0.01, -0.01, 0.01, -0.01])[:, None]
    scores = fold + np.hstack([-0.02 + wobble, 0 * wobble, 0.0005 + wobble, 0.001 + 0 * wobble])
    order = np.arange(4)
    assert best_of(scores, order) == 3
    # 0: worse by 0.02, beyond its error of 0.0058; 1: by 0.001 in every fold; 2: by less than that
    assert one_standard_error(scores, order) == 2
    assert one_standard_error(scores[:, :2], order[:2]) == 1


def test_of_equals_the_simplest_is_best() -> None:
    scores = np.tile([0.5, 0.7, 0.7], (3, 1))
    assert best_of(scores, np.array([2, 1, 0])) == 2
    assert one_standard_error(scores, np.array([0, 2, 1])) == 2


def test_simplest_first() -> None:
    points = [GridPoint(1, 0.4, 8), GridPoint(2, 0.1, 4), GridPoint(1, 0.2, 4), GridPoint(3, 0, 3)]
    assert simplest_first(points).tolist() == [3, 2, 1, 0]


def test_finds_what_was_planted(cv: CrossValidation) -> None:
    assert cv.chosen == GridPoint(2, 0.2, 8)
    dense = cv.result.components.toarray() != 0
    assert dense[0].nonzero()[0].tolist() == [4, 5, 6, 7]
    assert dense[1].nonzero()[0].tolist() == [0, 1, 2, 3]
    # explained variance would have asked for more
    means = cv.explained_variance.mean(axis=0)
    assert means[2, 1] > means[1, 1]
    assert cv.predicted_variance.mean(axis=0)[1, 1] > cv.predicted_variance.mean(axis=0)[2, 1]


@pytest.mark.slow
def test_finds_what_was_planted_in_many() -> None:
    """The benchmark `cross_validation.py` in small: two draws of two or three components."""
    wrong = []
    for seed in range(2):
        random = np.random.default_rng(seed)
        p, size, n, n_samples = int(random.integers(2, 4)), 4, 24, 300
        data = random.standard_normal((n, n_samples))
        for c, spread in enumerate(np.sort(random.uniform(2.4, 4, p))[::-1]):
            weights = random.uniform(0.5, 1, size) * random.choice([-1, 1], size)
            weights /= np.linalg.norm(weights)
            scores = spread * random.standard_normal(n_samples)
            data[c * size : (c + 1) * size] += weights[:, None] * scores
        fills = [0.5 * size / n, size / n, 2 * size / n]
        made = sparse_pca_cv(data, range(1, p + 2), max_fill=fills, random_state=seed)
        if made.chosen[:2] != (p, size / n):
            wrong.append((seed, p, made.chosen))
    assert wrong == []


def test_the_result_is_that_of_sparse_pca(cv: CrossValidation) -> None:
    """Method, options, labels and preprocessing; the numbers to rounding."""
    expected = sparse_pca(X, 2, max_fill=0.2, reduction="gram")
    found = cv.result
    assert found.settings == expected.settings
    assert found.n_samples == expected.n_samples
    assert found.bytes_read == expected.bytes_read
    np.testing.assert_allclose(found.components.toarray(), expected.components.toarray(), atol=1e-8)
    np.testing.assert_allclose(found.explained_variance, expected.explained_variance, rtol=1e-9)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-9, atol=1e-9)
    more = found.refine(max_fill=0.4)
    assert more.n_nonzeros > found.n_nonzeros


def test_names_and_axes_of_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.T, columns=[f"gene {k}" for k in range(N)])
    made = sparse_pca_cv(frame, 2, max_fill=0.2, folds=2)
    assert made.result.sample_axis == 0
    assert list(made.result.feature_names) == list(frame.columns)
    assert made.chosen == made.best == GridPoint(2, 0.2, 8)
    assert made.result.transform(frame).shape == (N_SAMPLES, 2)


def test_sparse_data_stay_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    data = random.poisson(0.05, (30, 500)) * 1.0
    data[5:9] += 4 * (random.random(500) < 0.1)
    expected = sparse_pca_cv(data, [1, 2], max_fill=[0.07, 0.14], folds=3)
    stored = sparse.csr_array(data.T)
    monkeypatch.setattr(
        "streamsvd.data.source.Source.read", lambda *_: pytest.fail("was made dense")
    )
    found = sparse_pca_cv(stored, [1, 2], max_fill=[0.07, 0.14], folds=3, sample_axis=0)
    np.testing.assert_allclose(found.predicted_variance, expected.predicted_variance, rtol=1e-9)
    assert found.chosen == expected.chosen
    assert found.result.components.indices.tolist() == [5, 6, 7, 8]
    assert found.bytes_read == stored.data.nbytes + stored.indices.nbytes + stored.indptr.nbytes


def test_caps_and_groups() -> None:
    groups = np.repeat(np.arange(40), 10)
    made = sparse_pca_cv(
        X, [2], max_fill=[0.3], folds=4, groups=groups, max_nonzeros_per_component=3
    )
    assert np.diff(made.result.components.indptr).max() <= 3
    assert made.n_nonzeros.max() <= 6
    assert made.chosen.max_nonzeros == 6
    for group in range(40):
        assert len(set(made.fold_of[groups == group])) == 1


# ------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_components": []}, r"n_components must be a number or several; got \[\]"),
        ({"max_fill": ()}, r"max_fill must be a number or several"),
        ({"max_fill": "0.1"}, r"max_fill must be a number or several; got '0.1'"),
        ({"max_fill": None}, r"max_fill must be a number from 0 to 1; got None"),
        ({"max_fill": [0.1, 1.5]}, r"max_fill must be a number from 0 to 1; got 1.5"),
        ({"max_fill": [0.1, 0.01]}, r"max_fill=0.01 allows 0 nonzeros in 1 components"),
        ({"max_fill": [0.1, 0.1]}, r"max_fill has a value twice"),
        ({"n_components": [2, 2]}, r"n_components has a value twice: \[2, 2\]"),
        ({"n_components": [1, 21]}, r"n_components=21 exceeds min\(n_features, n_samples\)=20"),
        ({"n_components": [0]}, r"n_components must be an integer of at least 1; got 0"),
        ({"n_components": 1.5}, r"n_components must be an integer"),
        ({"folds": 401}, r"folds=401 exceeds the 400 samples"),
        ({"groups": [1, 2]}, r"groups have shape \(2,\); need a label for each of 400 samples"),
        ({"normalize": "samples"}, r"needs the means before the norms, two passes"),
        ({"memory_limit": "1MB"}, r"memory_limit is .* lower folds, or fit fewer features"),
        ({"max_nonzeros_per_component": 0}, r"max_nonzeros_per_component must be an integer"),
        ({"n_threads": 0}, r"n_threads must be an integer of at least 1"),
        ({"half_samples": 3, "folds": 2}, r"pass folds=4 or more, not 2"),
    ],
)
def test_errors_come_before_the_pass(
    changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvd.choosing.run.sum_folds", lambda *_: pytest.fail("it was read"))
    with pytest.raises((OptionError, ResourceError), match=words):
        sparse_pca_cv(X, **(GRID | changes))


def problem_of(n: int, n_samples: int, p: int = 5) -> Problem:
    return Problem(
        n_features=n,
        n_samples=n_samples,
        n_components=p,
        n_transforms=100,
        dtype=np.dtype(np.float64),
        reduction="gram",
        budget=5 * p,
    )


@pytest.mark.parametrize("folds", [2, 5, 10])
def test_memory_is_about_k_and_three_matrices(folds: int) -> None:
    n = 4000
    need = check_memory(problem_of(n, 10_000), [10_000 // folds] * folds, 0, 2**60)
    matrices = (folds + 3) * 8 * n * n
    assert matrices < need < 1.01 * matrices + 2 * FIXED_BYTES + 40e6 * folds
    with pytest.raises(ResourceError, match=rf"held {folds + 3} times for {folds} folds"):
        check_memory(problem_of(n, 10_000), [10_000 // folds] * folds, 0, need // 2)


def test_memory_is_what_was_planned(tmp_path: Path) -> None:
    """At most, beside what the libraries take."""
    n, n_samples, folds = 700, 3000, 4
    path = write_zarr(tmp_path / "x.zarr", normal(n, n_samples), (n, 200))
    sizes = [n_samples // folds] * folds
    problem = replace(problem_of(n, n_samples, 2), source_chunk=200)
    planned = check_memory(problem, sizes, n_samples, 2**34) - FIXED_BYTES
    sparse_pca_cv(X, 2, max_fill=0.2, folds=2)  # what is loaded and compiled once
    tracemalloc.start()
    sparse_pca_cv(path, [2], max_fill=[0.01], folds=folds)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= planned
    assert peak > (folds + 1) * 8 * n * n


# ------------------------------------------------------------------------- what is said and drawn


def test_table(cv: CrossValidation) -> None:
    rows = cv.table()
    assert [(row.n_components, row.max_fill) for row in rows] == list(
        product(GRID["n_components"], GRID["max_fill"])
    )
    row = rows[4]
    assert row.max_nonzeros == cv.budgets[1, 1] == 8
    assert row.n_nonzeros == cv.n_nonzeros[:, 1, 1].mean()
    for name in ("predicted_variance", "explained_variance"):
        scores = getattr(cv, name)[:, 1, 1]
        assert getattr(row, name) == pytest.approx(scores.mean(), rel=1e-14)
        error = scores.std(ddof=1) / np.sqrt(5)
        assert getattr(row, f"{name}_error") == pytest.approx(error, rel=1e-12)


def test_text_and_html(cv: CrossValidation) -> None:
    text, html = repr(cv), cv._repr_html_()
    assert text.startswith("CrossValidation(n_components=2, max_fill=0.2, folds=5)\n")
    (line,) = (line for line in text.splitlines() if line.endswith("  chosen"))
    row = cv.table()[4]
    cells = ["2", "20.00%", "8.0", f"{row.predicted_variance:.2%}"]
    assert line.split()[:4] == cells
    assert len(text.splitlines()) == 1 + 6 + 1 + 1 + 9
    for cell in cells:
        assert f">{cell}</td>" in html
    assert html.count("<tr>") == html.count("</tr>") == 6 + 1 + 9


def test_data_frame(cv: CrossValidation, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = cv.to_dataframe()
    assert list(frame.columns) == list(cv.table()[0]._fields)
    assert frame["predicted_variance"].idxmax() == 4
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match="this needs pandas: pip install pandas"):
        cv.to_dataframe()


@pytest.mark.parametrize("score", ["predicted_variance", "explained_variance"])
def test_picture(cv: CrossValidation, score: str) -> None:
    figure = cv.plot(score)
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    curves = {c.get_label(): c for c in ax.containers}
    assert list(curves) == ["1 component", "2 components", "3 components"]
    mean, error = (
        100 * f(getattr(cv, score)) for f in (lambda s: s.mean(0), lambda s: s.std(0, ddof=1))
    )
    x, y = curves["2 components"][0].get_data()
    np.testing.assert_allclose(x, [10, 20, 40])
    np.testing.assert_allclose(y, mean[1])
    (bars,) = curves["2 components"][2]
    for k, (low, high) in enumerate(bars.get_segments()):
        np.testing.assert_allclose(high[1] - low[1], 2 * error[1, k] / np.sqrt(5))
    marks = {
        line.get_label(): line.get_xydata()[0] for line in ax.lines if len(line.get_xdata()) == 1
    }
    np.testing.assert_allclose(marks["chosen"], [20, mean[1, 1]])
    assert "chosen: 2 components, fill 20.00%" in figure.get_suptitle()
    with pytest.raises(OptionError, match="score must be one of 'predicted_variance'"):
        cv.plot("accuracy")


def test_progress_tells_of_the_pass_and_the_fits() -> None:
    calls: list[tuple[str, int, int]] = []
    sparse_pca_cv(
        X, [1, 2], max_fill=0.2, folds=4, half_samples=2, progress=lambda *a: calls.append(a)
    )
    assert [call for call in calls if call[1] == call[2]] == [
        ("folds", N_SAMPLES, N_SAMPLES),
        ("fits", 4 * 2 + 2 + 1, 4 * 2 + 2 + 1),
    ]
