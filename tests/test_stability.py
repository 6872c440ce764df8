"""Stability: how often features are chosen again; saved, drawn, dropped when it is no more."""

from dataclasses import replace
from pathlib import Path

import naive
import numpy as np
import pytest
from helpers import normal
from scipy import sparse

from streamsvd import OptionError, SVDResult, sparse_pca, sparse_pca_cv
from streamsvd.choosing.folds import Folding
from streamsvd.choosing.stability import matching, stability_of
from streamsvd.result.text import facts

N, N_SAMPLES = 16, 240
X = normal(N, N_SAMPLES)
X[:3] += 1.2 * normal(1, N_SAMPLES, 1)
X[3:6] += np.array([[1.6], [1.2], [0.3]]) * normal(1, N_SAMPLES, 2)


@pytest.fixture(scope="module")
def made() -> SVDResult:
    return sparse_pca_cv(X, 2, max_fill=0.25, folds=6, half_samples=20).result


def random_rows(seed: int, p: int = 4, n: int = 9) -> np.ndarray:
    rows = np.linalg.qr(normal(n, p, seed))[0].T
    return rows * (np.abs(rows) > 0.15)


@pytest.mark.parametrize("seed", range(5))
def test_components_are_matched_by_correlation(seed: int) -> None:
    rows, other = random_rows(seed), random_rows(seed + 100)
    order = np.random.default_rng(seed).permutation(4)
    turned = rows[order] * np.array([1, -1, 1, -1])[:, None]
    found = matching(sparse.csr_array(rows), sparse.csr_array(turned))
    np.testing.assert_array_equal(order[found], np.arange(4))
    for some in (turned, other):
        found = matching(sparse.csr_array(rows), sparse.csr_array(some))
        assert tuple(found) == naive.best_order(rows, some)


def test_stability_counts_supports() -> None:
    rows = random_rows(0)
    others = [random_rows(seed) for seed in range(1, 8)]
    expected = np.zeros(rows.shape)
    for some in others:
        expected += some[list(naive.best_order(rows, some))] != 0
    found = stability_of(sparse.csr_array(rows), [sparse.csr_array(some) for some in others])
    np.testing.assert_allclose(found.toarray(), expected / 7, rtol=1e-15)
    assert found.data.dtype == np.float64
    assert found.has_sorted_indices
    assert found.nnz == np.count_nonzero(expected)


def test_over_the_fits_without_each_fold() -> None:
    """In the order of `components`, from fits by `sparse_pca` of what is not left out."""
    cv = sparse_pca_cv(X, [2], max_fill=0.25, folds=4)
    fits = [sparse_pca(X[:, cv.fold_of != fold], 2, max_fill=0.25).components for fold in range(4)]
    expected = stability_of(cv.result.components, fits)
    np.testing.assert_array_equal(cv.result.stability.toarray(), expected.toarray())


def test_over_halves(made: SVDResult) -> None:
    folding = Folding(folds=6, half_samples=20)
    labels = folding.labels(N_SAMPLES)
    fits = [
        sparse_pca(X[:, np.isin(labels, half)], 2, max_fill=0.25).components
        for half in folding.halves()
    ]
    expected = stability_of(made.components, fits).toarray()
    # the search of `sparse_pca` also starts from its greedy path: now and then it finds another
    assert np.abs(made.stability.toarray() - expected).max() <= 0.1
    dense = made.stability.toarray()
    np.testing.assert_allclose(dense * 20, np.round(dense * 20), atol=1e-12)


def test_what_is_planted_is_more_stable_than_the_rest(made: SVDResult) -> None:
    dense = made.stability.toarray()
    assert dense.shape == made.components.shape
    strong = np.sort(dense[np.abs(made.components.toarray()) > 0.3])
    assert strong[0] > 0.9
    assert dense[:, 6:].max() < 0.8
    assert 0 < dense[:, 6:].mean() < 0.3
    assert (made.mean_stability > 0.5).all()


def test_summary_and_mean(made: SVDResult) -> None:
    chosen = made.stability.toarray()[made.components.toarray() != 0]
    assert facts(made)["stability"] == f"{chosen.mean():.0%} of the nonzeros chosen again"
    assert f"stability           {chosen.mean():.0%} of the nonzeros chosen again" in repr(made)
    for c in range(2):
        support = made.components.toarray()[c] != 0
        expected = made.stability.toarray()[c, support].mean()
        assert made.mean_stability[c] == pytest.approx(expected, rel=1e-14)
    without = replace(made, stability=None)
    assert without.mean_stability is None
    assert "stability" not in repr(without)


def test_saved_and_loaded(made: SVDResult, tmp_path: Path) -> None:
    made.save(tmp_path / "r.zarr")
    again = SVDResult.load(tmp_path / "r.zarr")
    for part in ("data", "indices", "indptr"):
        one, other = getattr(again.stability, part), getattr(made.stability, part)
        np.testing.assert_array_equal(one, other)
    assert repr(again) == repr(made)
    replace(made, stability=None).save(tmp_path / "none.zarr")
    assert SVDResult.load(tmp_path / "none.zarr").stability is None


def test_other_components_have_none(made: SVDResult) -> None:
    assert made.at(fill=0.2).stability is None
    assert made.refine(max_fill=0.3).stability is None
    assert made.refine_path(max_fill=[0.2, 0.3])[1].stability is None
    assert made.stability is not None


# ------------------------------------------------------------------------------------- pictures


def test_heat_map(made: SVDResult) -> None:
    figure = made.plot("stability")
    shown = figure.axes[0].images[0]
    np.testing.assert_array_equal(shown.get_array().filled(0), made.stability.toarray())
    assert shown.get_clim() == (0, 1)
    ticks = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert ticks == [f"{c}, {made.mean_stability[c]:.0%} stable" for c in range(2)]
    components = made.plot().axes[0]
    assert [text.get_text() for text in components.get_yticklabels()] == ticks
    assert components.images[0].get_clim() == (-1, 1)


def test_images(made: SVDResult) -> None:
    for kind in ("stability", "components"):
        panels = made.plot(kind, image_shape=(4, 4)).axes[:2]
        for c, ax in enumerate(panels):
            assert f"{made.mean_stability[c]:.0%} stable" in ax.get_title()
            if kind == "stability":
                drawn = ax.images[0].get_array().filled(0).ravel()
                np.testing.assert_array_equal(drawn, made.stability.toarray()[c])


def test_pictures_without_stability(made: SVDResult) -> None:
    plain = replace(made, stability=None)
    with pytest.raises(OptionError, match="was not measured: draw the result of sparse_pca_cv"):
        plain.plot("stability")
    assert "stable" not in plain.plot(image_shape=(4, 4)).axes[0].get_title()
