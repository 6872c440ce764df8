"""The methods that the package is compared with, on small cases with known answers."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "benchmarks"))

import rivals

N = 12


@pytest.fixture
def gram() -> rivals.Array:
    X = np.random.default_rng(0).standard_normal((N, 40)) * np.linspace(1, 3, N)[:, None]
    return X @ X.T


def planted(*, n: int = 30, size: int = 4, noise: float = 0.1) -> tuple[rivals.Array, rivals.Array]:
    """``9 v v^T + noise``, and `v` with `size` nonzeros of unequal size."""
    rng = np.random.default_rng(1)
    v = np.zeros(n)
    v[rng.permutation(n)[:size]] = np.linspace(1, 2, size)
    v /= np.linalg.norm(v)
    small = rng.standard_normal((n, n))
    return 9 * np.outer(v, v) + noise * (small @ small.T) / n, v


# ------------------------------------------------------------------------------------- measures


def test_explained_of_orthonormal_components_is_the_sum_of_their_variances(gram):
    q = np.linalg.qr(np.random.default_rng(2).standard_normal((N, 3)))[0]
    assert rivals.explained(gram, q) == pytest.approx(sum(x @ gram @ x for x in q.T), rel=1e-12)


def test_explained_counts_a_span_once(gram):
    q = rivals.leading_eigenvectors(gram, 2)
    mixed = np.column_stack([q[:, 0], (q[:, 0] + 0.1 * q[:, 1]), q[:, 0], np.zeros(N)])
    assert rivals.explained(gram, mixed) == pytest.approx(
        np.linalg.eigvalsh(gram)[-2:].sum(), rel=1e-12
    )


def test_orthogonality_error():
    tilted = np.array([[1.0, 0.6], [0.0, 0.8], [0.0, 0.0]])
    assert rivals.orthogonality_error(np.eye(3)[:, :2]) == 0.0
    assert rivals.orthogonality_error(tilted) == 0.6


def test_orthonormal_keeps_the_span_and_costs_fill():
    components = np.array([[0.6, 0.0], [0.8, 0.8], [0.0, 0.6], [0.0, 0.0]])
    q = rivals.orthonormal(components)
    assert rivals.orthogonality_error(q) < 1e-15
    assert np.count_nonzero(q) == 5
    assert not q[3].any()
    householder = np.linalg.qr(components)[0]
    np.testing.assert_allclose(np.abs(q), np.abs(householder), atol=1e-15)


def test_orthonormal_leaves_orthogonal_columns_alone():
    r = np.sqrt(0.5)
    components = np.array([[r, r, 0.0], [r, -r, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(rivals.orthonormal(components) != 0, components != 0)


def test_orthonormal_drops_what_depends_on_earlier_columns():
    x = np.array([0.6, 0.8, 0.0])
    q = rivals.orthonormal(np.column_stack([x, -x, np.zeros(3), [0, 0, 1.0]]))
    np.testing.assert_allclose(q, np.column_stack([x, 0 * x, 0 * x, [0, 0, 1.0]]), atol=1e-15)


# ------------------------------------------------------------------------------ thresholded PCA


def test_truncated_keeps_the_largest():
    y = rivals.truncated(np.array([1.0, -4.0, 0.5, 3.0, 3.0]), 2)
    np.testing.assert_allclose(y, [0, -0.8, 0, 0.6, 0], rtol=1e-15)


def test_thresholded_pca_keeps_the_largest_loadings(gram):
    counts = [5, 3, 1]
    components = rivals.thresholded_pca(gram, counts)
    vectors = np.linalg.eigh(gram)[1][:, ::-1][:, :3]
    assert np.count_nonzero(components, axis=0).tolist() == counts
    np.testing.assert_allclose(np.linalg.norm(components, axis=0), 1, rtol=1e-15)
    for x, full, k in zip(components.T, vectors.T, counts, strict=True):
        assert set(np.flatnonzero(x)) == set(np.argsort(np.abs(full))[N - k :])


def test_thresholded_pca_with_all_loadings_is_pca(gram):
    best = np.linalg.eigvalsh(gram)[-3:].sum()
    components = rivals.thresholded_pca(gram, [N] * 3)
    assert rivals.explained(gram, components) == pytest.approx(best, rel=1e-12)


# ------------------------------------------------------------------------------ truncated power


@pytest.mark.parametrize("start", rivals.STARTS)
def test_truncated_power_recovers_a_planted_eigenvector(start):
    gram, v = planted()
    found = rivals.truncated_power_components(gram, [4], start)[:, 0]
    assert set(np.flatnonzero(found)) == set(np.flatnonzero(v))
    assert abs(found @ v) > 0.999
    support = np.flatnonzero(v)
    best = np.linalg.eigvalsh(gram[np.ix_(support, support)])[-1]
    assert found @ gram @ found == pytest.approx(best, rel=1e-8)


def test_truncated_power_only_gains(gram):
    x = np.random.default_rng(3).standard_normal(N)
    values = [
        (y := rivals.truncated_power(gram, x, 4, max_iter=k, tol=0.0)) @ gram @ y for k in range(8)
    ]
    assert np.all(np.diff(values) >= -1e-12 * values[-1])
    assert values[-1] > values[0]


def test_without_sparsity_it_is_pca(gram):
    """To the tolerance of power iterations."""
    for start in rivals.STARTS:
        components = rivals.truncated_power_components(gram, [N] * 3, start)
        best = np.linalg.eigvalsh(gram)[-3:].sum()
        assert rivals.explained(gram, components) == pytest.approx(best, rel=1e-4)


def test_projection_deflation_annihilates(gram):
    x = rivals.truncated(np.arange(1.0, N + 1), 5)  # no eigenvector
    deflated = rivals.project_out(gram, x)
    scale = np.abs(gram).max()
    projector = np.eye(N) - np.outer(x, x)
    np.testing.assert_allclose(deflated @ x, 0, atol=1e-13 * scale)
    np.testing.assert_allclose(deflated, projector @ gram @ projector, atol=1e-13 * scale)
    np.testing.assert_array_equal(deflated, deflated.T)
    assert np.linalg.eigvalsh(deflated)[0] > -1e-12 * scale


def test_components_have_the_nonzeros_asked_for_and_unit_norm(gram):
    counts = [4, 4, 3, 3]
    for start in rivals.STARTS:
        components = rivals.truncated_power_components(gram, counts, start)
        assert np.count_nonzero(components, axis=0).tolist() == counts
        np.testing.assert_allclose(np.linalg.norm(components, axis=0), 1, rtol=1e-14)


def test_the_best_start_wins(gram):
    best = rivals.explained(gram, rivals.best_truncated_power(gram, [3] * 4))
    each = [
        rivals.explained(gram, rivals.truncated_power_components(gram, [3] * 4, start))
        for start in rivals.STARTS
    ]
    assert best == max(each)


# --------------------------------------------------------------------------------- scikit-learn


def test_the_root_stands_for_the_data(gram):
    data = rivals.centred_root(gram)
    np.testing.assert_allclose(data.T @ data, gram, atol=1e-12 * np.abs(gram).max())
    np.testing.assert_array_equal(data[:N], -data[N:])  # a mean of zero


def test_sparse_pca_of_the_root_is_that_of_the_data():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((8, 60)) * np.linspace(1, 3, 8)[:, None]
    X -= X.mean(axis=1, keepdims=True)
    make = rivals.ESTIMATORS["SparsePCA"]
    direct = make(2, 5.0).fit(X.T).components_
    rooted = make(2, 5.0).fit(rivals.centred_root(X @ X.T)).components_
    np.testing.assert_array_equal(direct != 0, rooted != 0)
    np.testing.assert_allclose(np.abs(direct), np.abs(rooted), atol=1e-3)


@pytest.mark.parametrize("estimator", rivals.ESTIMATORS)
def test_the_penalty_is_found_for_a_fill(gram, estimator):
    search = rivals.PenaltySearch(estimator, gram, 2)
    fits = [search.nearest(fill, steps=6) for fill in (0.25, 0.5)]
    assert [fit.fill for fit in fits] == pytest.approx([0.25, 0.5], abs=0.05)
    assert fits[0].alpha > fits[1].alpha


def test_no_more_fits_after_a_slow_one(gram):
    search = rivals.PenaltySearch("SparsePCA", gram, 2, max_seconds=0.0)
    search.nearest(0.3, tol=0.0)
    search.nearest(0.6, tol=0.0)
    assert len(search.fits) == 1
