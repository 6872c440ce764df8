"""Refinement: orthonormal and exactly sparse whatever comes, never worse, found where planted."""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import KINDS, data_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_iris
from threadpoolctl import threadpool_limits

from streamsvd import sparse_pca
from streamsvd.refinement import Factor, Gram, Samples, refine, refine_path
from streamsvd.refinement.disjoint import disjoint
from streamsvd.refinement.moves import separate
from streamsvd.refinement.pattern import Pattern
from streamsvd.refinement.starts import Basis


class Case(NamedTuple):
    """Data, number of components, budget, cap."""

    X: np.ndarray
    p: int
    budget: int
    cap: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 12))
    p = draw(st.one_of(st.just(1), st.just(n), st.integers(1, n)))
    X = data_of(random, draw(st.sampled_from(KINDS)), n)
    scale = draw(st.sampled_from([1.0, 1.0, 1e-6, 1e6, 1e-120, 1e120]))
    budget = draw(st.sampled_from([p, p, p + 1, 2 * p, 3 * p, n * p, 10 * n * p]))
    cap = draw(st.sampled_from([n, n, max(1, n // 2), 10 * n, 1]))
    return Case(X * scale, p, budget, cap)


def forms(X: np.ndarray) -> list[Any]:
    """The same covariance in all forms."""
    half = X.shape[1] // 2
    rest = np.einsum("ij,ij->i", X[:, half:], X[:, half:])
    full = X[:, :half] @ X[:, :half].T + np.diag(rest)
    return [Gram(X @ X.T), Samples(X), Factor(X[:, :half], rest), Gram(full)]


def check(cov: Any, gram: np.ndarray, p: int, budget: int, cap: int) -> float:
    """What holds for any refinement; returns the explained variance, as a share."""
    components, energies, *_ = refine(cov, p, budget, cap)
    n = len(gram)
    rows = components.toarray()
    assert rows.shape == (p, n)
    assert np.all(np.isfinite(rows))
    np.testing.assert_allclose(rows @ rows.T, np.eye(p), atol=1e-12)
    assert components.nnz <= budget
    assert components.nnz == np.count_nonzero(rows)
    assert np.count_nonzero(rows, axis=1).max() <= cap
    assert components.has_sorted_indices
    unit = max(np.diag(gram).max(), np.finfo(float).tiny)
    exact = np.einsum("cr,rs,cs->c", rows, gram / unit, rows)
    total = np.trace(gram / unit)
    np.testing.assert_allclose(energies / unit, exact, rtol=1e-9, atol=1e-12 * total)
    best = np.linalg.eigvalsh(gram / unit)[n - p :].sum()
    assert exact.sum() <= best + 1e-12 * total
    largest = np.sort(np.diag(gram) / unit)[n - p :].sum()
    assert exact.sum() >= 0.999 * largest - 1e-12 * total
    return float(exact.sum())


@given(cases())
@settings(max_examples=150, deadline=None)
def test_what_holds_for_any_problem(case: Case) -> None:
    X, p, budget, cap = case
    gram, samples, factor, full = forms(X)
    check(gram, gram.matrix, p, budget, cap)
    check(samples, gram.matrix, p, budget, cap)
    check(factor, full.matrix, p, budget, cap)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "p"), [(1, 1), (2, 2), (7, 1), (7, 7), (12, 4)])
def test_each_kind_and_shape(kind: str, n: int, p: int) -> None:
    for seed in range(3):
        X = data_of(np.random.default_rng(seed), kind, n)
        for budget in (p, 2 * p, n * p):
            check(Gram(X @ X.T), X @ X.T, p, budget, n)


def iris() -> np.ndarray:
    X = load_iris().data.T
    return X - X.mean(axis=1, keepdims=True)


def test_what_rounding_leaves_of_zeros_is_zero() -> None:
    """Entries that orthonormality alone makes zero are no nonzeros."""
    X = iris()
    for budget in range(4, 17):
        components = refine(Gram(X @ X.T), 4, budget).components
        sizes = np.repeat(np.diff(components.indptr), np.diff(components.indptr))
        assert np.all(np.abs(components.data) > np.finfo(float).eps / (4 * sizes))
        product = (components @ components.T).toarray()
        np.testing.assert_allclose(product, np.eye(4), atol=1e-15)


def test_no_start_within_the_budget() -> None:
    """The convex relaxation may lead to none; what was found before stands."""
    X = iris()
    X /= X.std(axis=1, keepdims=True)
    made = sparse_pca(X, 2, max_nonzeros=2, reduction="factor", effort="high")
    plain = sparse_pca(X, 2, max_nonzeros=2, reduction="factor")
    assert made.n_nonzeros == 2
    assert made.explained_variance.sum() >= plain.explained_variance.sum()


def correlated(n: int = 60, n_samples: int = 150, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    factors = random.standard_normal((n, 8)) * (random.random((n, 8)) < 0.3)
    scores = random.standard_normal((8, n_samples)) * np.linspace(3, 1, 8)[:, None]
    return factors @ scores + 0.3 * random.standard_normal((n, n_samples))


@pytest.mark.parametrize("budget", [12, 40, 120, 300])
def test_forms_agree(budget: int) -> None:
    """To the noise of the search."""
    X = correlated()
    found = [check(cov, X @ X.T, 4, budget, 60) for cov in forms(X)[:2]]
    np.testing.assert_allclose(found[1:], found[0], rtol=0.01)


def test_products_of_the_forms() -> None:
    X = correlated()
    random = np.random.default_rng(0)
    for density in (0.02, 0.3, 1.0):
        mask = random.random((60, 5)) < density
        mask[:5] |= np.eye(5, dtype=bool)
        pattern = Pattern.of(mask)
        values = random.standard_normal(len(pattern))
        gram, samples, factor, full = forms(X)
        for cov, A in ((gram, gram.matrix), (samples, gram.matrix), (factor, full.matrix)):
            product = A @ pattern.dense(values)
            np.testing.assert_allclose(cov.times(pattern, values), product, atol=1e-9)
            np.testing.assert_allclose(cov.entries(pattern)(values), product[mask], atol=1e-9)
            np.testing.assert_allclose(cov.diagonal(), np.diag(A))
            energies, vectors = cov.leading(3)
            np.testing.assert_allclose(energies, np.linalg.eigvalsh(A)[:-4:-1], rtol=1e-9)
            np.testing.assert_allclose(A @ vectors, vectors * energies, atol=1e-4 * energies[0])
            small = cov.restricted(np.arange(7, 30))
            np.testing.assert_allclose(small.diagonal(), np.diag(A)[7:30])


@pytest.mark.parametrize(("p", "k"), [(1, 3), (2, 3), (2, 4)])
def test_against_all_disjoint_supports(p: int, k: int) -> None:
    """Of so few features, every support can be tried."""
    n, missed = 7, 0
    for seed in range(8):
        X = np.random.default_rng(seed).standard_normal((n, 12))
        A = X @ X.T
        top = {
            s: np.linalg.eigvalsh(A[np.ix_(s, s)])[-1]
            for j in range(1, k + 1)
            for s in combinations(range(n), j)
        }
        if p == 1:
            best = max(top.values())
        else:
            best = max(
                top[a] + top[b]
                for a in top
                for b in top
                if not set(a) & set(b) and len(a) + len(b) <= k
            )
        found = check(Gram(A), A, p, k, n) * np.diag(A).max()
        missed += found < best * (1 - 1e-9)
        assert found >= 0.9 * best
    assert missed <= 3


@pytest.mark.parametrize("scale", [2.0**-300, 2.0**-20, 2.0**20, 2.0**300])
def test_bits_do_not_depend_on_a_power_of_four(scale: float) -> None:
    X = correlated()
    A = X @ X.T
    for one, other in ((Gram(A), Gram(A * scale)), (Samples(X), Samples(X * np.sqrt(scale)))):
        plain, scaled = refine(one, 3, 40), refine(other, 3, 40)
        np.testing.assert_array_equal(plain.components.toarray(), scaled.components.toarray())
        np.testing.assert_array_equal(plain.energies * scale, scaled.energies)


def test_other_scales() -> None:
    X = correlated()
    plain, scaled = refine(Gram(X @ X.T), 3, 40), refine(Gram(X @ X.T * 1e-6), 3, 40)
    np.testing.assert_allclose(scaled.energies.sum() * 1e6, plain.energies.sum(), rtol=0.01)


@pytest.mark.parametrize("budget", [60, 600, 3000])
def test_same_bits_for_any_blas_threads(budget: int) -> None:
    X = correlated(500, 300)
    for cov in (Gram(X @ X.T), Samples(X)):
        made = []
        for threads in (1, 2):
            with threadpool_limits(threads, user_api="blas"):
                made.append(refine(cov, 8, budget))
        assert made[0].components.data.tobytes() == made[1].components.data.tobytes()
        assert made[0].components.indices.tobytes() == made[1].components.indices.tobytes()
        assert made[0].energies.tobytes() == made[1].energies.tobytes()


def test_never_worse_than_a_start() -> None:
    X = correlated()
    A = X @ X.T
    good = refine(Gram(A), 4, 60)
    again = refine(Gram(A), 4, 60, starts=[good.components])
    assert again.energies.sum() >= good.energies.sum() * (1 - 1e-12)
    poor = sparse.csr_array(np.eye(4, 60))
    assert refine(Gram(A), 4, 4, starts=[poor]).energies.sum() >= np.diag(A)[:4].sum()


def test_path() -> None:
    X = correlated()
    budgets = [40, 240, 12, 120]
    path = refine_path(Gram(X @ X.T), 4, budgets)
    assert all(point.components.nnz <= budget for point, budget in zip(path, budgets, strict=True))
    explained = [path[i].energies.sum() for i in (2, 0, 3, 1)]
    assert explained == sorted(explained)


@pytest.mark.parametrize("seed", range(5))
def test_planted(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = np.zeros((4, 200))
    for c in range(4):
        rows[c, 6 * c : 6 * c + 6] = random.choice([-1, 1], 6) / np.sqrt(6)
    rows = rows[:, random.permutation(200)]
    scores = random.standard_normal((4, 300)) * np.array([8, 6, 5, 4])[:, None]
    X = rows.T @ scores + 0.1 * random.standard_normal((200, 300))
    for cov in (Gram(X @ X.T), Samples(X)):
        found = refine(cov, 4, 24).components.toarray()
        np.testing.assert_array_equal(np.any(found, axis=0), np.any(rows, axis=0))
        np.testing.assert_allclose(np.sort(np.abs(found @ rows.T), axis=1)[:, -1], 1, atol=1e-3)


def test_many_components() -> None:
    X = correlated(150, 400)
    A = X @ X.T
    for budget in (60, 400):
        check(Gram(A), A, 60, budget, 150)


def test_many_components_with_a_cap() -> None:
    X = correlated(150, 400)
    check(Gram(X @ X.T), X @ X.T, 60, 400, 7)


def test_starts_on_features_without_variance() -> None:
    X = correlated()
    X[:4] = 0
    start = sparse.csr_array(np.eye(4, 60))
    rows = refine(Gram(X @ X.T), 4, 4, starts=[start]).components.toarray()
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-12)
    assert not np.any(rows[:, :4])


def test_disjoint_supports() -> None:
    X = correlated()
    basis = Basis.of(Gram(X @ X.T), 5)
    rotated, stds = basis.rotated
    pattern, values = disjoint(Gram(X @ X.T), rotated, stds, 30, 60)
    assert len(pattern) <= 30
    assert np.all(np.diff(pattern.row) > 0)
    np.testing.assert_allclose(pattern.column_squares(values), 1)


def test_separated_supports_meet_in_more_than_one_row() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        mask = random.random((30, 8)) < 0.2
        mask[:8] |= np.eye(8, dtype=bool)
        pattern = Pattern.of(mask)
        made, values = separate(pattern, random.standard_normal(len(pattern)))
        common = (made.dense(values) != 0).T.astype(int) @ (made.dense(values) != 0)
        assert not np.any(common[np.triu_indices(8, 1)] == 1)
