"""Bounds that no sparse components exceed."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st

from streamsvd import OptionError, SVDResult, sparse_pca, sparse_svd
from streamsvd.refinement.certificate import Posed, bound_of, upper_bound


def correlated(n: int, n_samples: int, seed: int = 0) -> np.ndarray:
    low = normal(n, 4, seed) @ normal(4, n_samples, seed + 1)
    return (low + normal(n, n_samples, seed + 2)) * np.linspace(1, 3, n)[:, None]


def best_of_all(A: np.ndarray, k: int) -> float:
    """The largest eigenvalue of all k x k parts: what one component can explain."""
    parts = combinations(range(len(A)), k)
    return max(float(np.linalg.eigvalsh(A[np.ix_(part, part)])[-1]) for part in parts)


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(0, 12))
def test_the_best_single_component_is_below(seed: int, k: int, steps: int) -> None:
    X = correlated(8, 20, seed)
    A = X @ X.T
    assert upper_bound(A, 1, k, steps).energy >= best_of_all(A, k)


@given(st.integers(0, 10_000), st.integers(1, 5), st.floats(0.1, 1.0), st.integers(0, 12))
def test_random_sparse_components_are_below(seed: int, p: int, share: float, steps: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(p, 15))
    U = np.linalg.qr(random.standard_normal((n, p)))[0]
    block = int(random.integers(0, n - p + 1))
    U[:block] = 0  # fewer rows
    U = np.linalg.qr(U)[0]
    X = correlated(n, 30, seed)
    A = X @ X.T
    energy = float(np.trace(U.T @ A @ U))
    assert upper_bound(A, p, int(np.count_nonzero(U)), steps).energy >= energy


def test_any_multiplier_gives_a_bound() -> None:
    """That of the definition, by plain NumPy."""
    X = correlated(12, 30)
    A = X @ X.T
    for scale in (0.0, 1.0, 20.0):
        M = scale * normal(12, 12)
        M = M + M.T
        expected = np.linalg.eigvalsh(A - M)[-3:].clip(0).sum() + 10 * np.abs(M).max()
        found = bound_of(Posed(A, 3, 10, 0.0), M).energy
        assert found == pytest.approx(expected, rel=1e-9)
        assert found >= expected


def test_with_all_entries_it_is_pca() -> None:
    X = correlated(20, 60)
    A = X @ X.T
    assert upper_bound(A, 3, 60).energy == pytest.approx(np.linalg.eigvalsh(A)[-3:].sum())


def test_more_steps_and_fewer_nonzeros_bound_more() -> None:
    X = correlated(60, 200)
    A = X @ X.T
    by_steps = [upper_bound(A, 4, 30, steps).energy for steps in (0, 10, 40)]
    assert by_steps == sorted(by_steps, reverse=True)
    assert by_steps[-1] < 0.97 * by_steps[0]
    by_budget = [upper_bound(A, 4, budget).energy for budget in (8, 30, 120)]
    assert by_budget == sorted(by_budget)


@pytest.mark.parametrize("exponent", [-40, 40])
def test_a_power_of_two_scales_the_bound(exponent: int) -> None:
    X = correlated(30, 100)
    one = upper_bound(X @ X.T, 3, 20)
    other = upper_bound(np.ldexp(X @ X.T, exponent), 3, 20)
    assert other.energy == pytest.approx(np.ldexp(one.energy, exponent), rel=1e-9)


def test_data_that_are_zero() -> None:
    assert upper_bound(np.zeros((5, 5)), 2, 4).energy == 0


X = correlated(120, 70)
OPTIONS: dict[str, Any] = {"max_nonzeros": 30}


@pytest.fixture(scope="module", params=["gram", "samples", "factor"])
def made(request: pytest.FixtureRequest) -> SVDResult:
    return sparse_pca(X, 3, reduction=request.param, **OPTIONS)


def test_each_form_has_the_same_certificate(made: SVDResult) -> None:
    found = made.certificate(X if made.settings["reduction"] == "factor" else None)
    explained = made.explained_variance_ratio.sum()
    assert found.explained_variance_ratio == explained
    assert explained <= found.bound <= 1
    assert found.gap == found.bound - explained
    assert (found.n_components, found.max_nonzeros) == (3, made.n_nonzeros)
    whole = sparse_pca(X, 3, reduction="gram", **OPTIONS).certificate()
    assert found.bound == pytest.approx(whole.bound, rel=1e-6)
    assert f"explain more than {found.bound:.2%}" in str(found)


def test_few_features_looked_at_still_bound(
    made: SVDResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features of little variance are bounded by it."""
    monkeypatch.setattr("streamsvd.result.certificates.MOST_CERTIFIED", 60)
    data = X if made.settings["reduction"] == "factor" else None
    whole = sparse_pca(X, 3, reduction="gram", **OPTIONS).certificate()
    found = made.certificate(data)
    assert made.explained_variance_ratio.sum() <= found.bound
    if made.settings["reduction"] != "gram":
        assert found.bound >= whole.bound * (1 - 1e-9)
    if made.settings["reduction"] == "samples":  # never above PCA's
        centred = X - X.mean(axis=1, keepdims=True)
        pca = np.linalg.svd(centred, compute_uv=False)[:3]
        assert found.bound <= (pca @ pca) / np.sum(centred**2) * (1 + 1e-6)


def test_after_a_fit_in_place() -> None:
    made = sparse_svd(X, 3, n_transforms=40, center="features")
    with pytest.raises(OptionError, match="needs the data of the fit: pass it as X"):
        made.certificate()
    found = made.certificate(X, steps=0)
    assert made.explained_variance_ratio.sum() <= found.bound
    with pytest.raises(OptionError, match="steps must be an integer of at least 0; got -1"):
        made.certificate(X, steps=-1)
