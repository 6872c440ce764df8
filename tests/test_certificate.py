"""Bounds that no sparse components exceed, and the search that starts from their relaxation."""

import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st
from naive import most_explained

from streamsvd import OptionError, ResourceError, SVDResult, plan_svd, sparse_pca, sparse_svd
from streamsvd.plan import relaxation_state
from streamsvd.problem import Problem
from streamsvd.refinement import Beyond, Gram, Samples, refine, upper_bound
from streamsvd.refinement.relaxation import Posed, bound_of, relax


def correlated(n: int, n_samples: int, seed: int = 0) -> np.ndarray:
    low = normal(n, 4, seed) @ normal(4, n_samples, seed + 1)
    return (low + normal(n, n_samples, seed + 2)) * np.linspace(1, 3, n)[:, None]


def bound(A: np.ndarray, p: int, budget: int, steps: int = 30) -> float:
    return relax(Posed(A, p, budget), steps).bound.energy


# ------------------------------------------------------------------------------- it is a bound


@pytest.mark.parametrize(
    ("p", "most", "count"), [(1, 8, 800), (2, 6, 160), (3, 5, 40)], ids=["1", "2", "3"]
)
def test_nothing_found_by_brute_force_is_above(p: int, most: int, count: int) -> None:
    """A thousand problems in all: every choice of supports."""
    random = np.random.default_rng(p)
    nearest = np.inf
    for seed in range(count):
        n = int(random.integers(p, most + 1))
        K = int(random.integers(p, min(p * n, 3 * p) + 1))
        X = correlated(n, int(random.integers(1, 20)), seed)
        A = X @ X.T
        best = most_explained(A, p, K)
        found = bound(A, p, K, steps=int(random.integers(0, 16)))
        assert found >= best
        nearest = min(nearest, found / best)
    assert nearest < 1.0001  # and not a loose one: it is reached


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(0, 12))
def test_random_sparse_components_are_below(seed: int, p: int, steps: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(p, 15))
    U = random.standard_normal((n, p))
    U[: int(random.integers(0, n - p + 1))] = 0  # fewer rows
    U = np.linalg.qr(U)[0]
    X = correlated(n, 30, seed)
    A = X @ X.T
    energy = float(np.trace(U.T @ A @ U))
    assert bound(A, p, int(np.count_nonzero(U)), steps) >= energy


def test_any_multiplier_gives_a_bound() -> None:
    """That of the definition, by plain NumPy."""
    X = correlated(12, 30)
    A = X @ X.T
    for scale in (0.0, 1.0, 20.0):
        M = scale * normal(12, 12)
        M = M + M.T
        expected = np.linalg.eigvalsh(A - M)[-3:].clip(0).sum() + 10 * np.abs(M).max()
        found = bound_of(Posed(A, 3, 10), M).energy
        assert found == pytest.approx(expected, rel=1e-9)
        assert found >= expected


def test_with_all_entries_it_is_pca() -> None:
    X = correlated(20, 60)
    A = X @ X.T
    assert bound(A, 3, 60) == pytest.approx(np.linalg.eigvalsh(A)[-3:].sum())


def test_more_steps_and_fewer_nonzeros_bound_more() -> None:
    X = correlated(60, 200)
    A = X @ X.T
    by_steps = [bound(A, 4, 30, steps) for steps in (0, 10, 40)]
    assert by_steps == sorted(by_steps, reverse=True)
    assert by_steps[-1] < 0.97 * by_steps[0]
    by_budget = [bound(A, 4, budget) for budget in (8, 30, 120)]
    assert by_budget == sorted(by_budget)


@pytest.mark.parametrize("exponent", [-40, 40])
def test_a_power_of_two_scales_the_bound(exponent: int) -> None:
    X = correlated(30, 100)
    one, other = bound(X @ X.T, 3, 20), bound(np.ldexp(X @ X.T, exponent), 3, 20)
    assert other == pytest.approx(np.ldexp(one, exponent), rel=1e-9)


def test_data_that_are_zero() -> None:
    assert bound(np.zeros((5, 5)), 2, 4) == 0
    assert upper_bound(Gram(np.zeros((5, 5))), 2, 4).energy == 0


def planted(n: int, p: int, k: int, n_samples: int) -> np.ndarray:
    """Strong components of k features each, and noise."""
    U = np.zeros((n, p))
    for c in range(p):
        U[c * k : (c + 1) * k, c] = 1 / np.sqrt(k)
    strengths = np.linspace(40, 20, p)
    return (U * strengths) @ normal(p, n_samples) + normal(n, n_samples, 1)


def test_the_gap_closes_where_a_strong_signal_is_planted() -> None:
    X = planted(120, 4, 6, 400)
    made = sparse_pca(X, 4, max_nonzeros=24)
    found = made.certificate()
    assert sorted(np.unique(made.components.indices)) == list(range(24))
    assert 0 <= found.gap < 0.01 * made.explained_variance_ratio.sum()


# ------------------------------------------------------------- by the entries that are not small


@pytest.fixture
def few_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relaxation for 40 features, the entries for more."""
    monkeypatch.setattr("streamsvd.refinement.bounds.MOST_RELAXED", 40)


@cache
def known_bounds() -> dict[int, tuple[float, float, float]]:
    """By budget: what is explained, and the bounds by clipping and by many steps."""
    X = correlated(120, 70)
    A = X @ X.T
    return {
        budget: (
            float(refine(Gram(A), 3, budget).energies.sum()),
            bound(A, 3, budget, 0),
            bound(A, 3, budget, 120),
        )
        for budget in (4, 12, 40, 300)
    }


@pytest.mark.usefixtures("few_features")
@pytest.mark.parametrize("form", ["gram", "samples"])
@pytest.mark.parametrize("n_entries", [300, 10_000])
@pytest.mark.parametrize("steps", [0, 30])
def test_many_features(
    form: str, n_entries: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never below the components found, never below the bound that sees all entries."""
    monkeypatch.setattr("streamsvd.refinement.bounds.MOST_ENTRIES", n_entries)
    monkeypatch.setattr("streamsvd.refinement.bounds.BLOCK_BYTES", 4000)
    X = correlated(120, 70)
    A = X @ X.T
    cov: Any = Gram(A) if form == "gram" else Samples(X)
    pca = np.linalg.eigvalsh(A)[-3:].sum()
    for budget, (least, clipped, best) in known_bounds().items():
        found = upper_bound(cov, 3, budget, steps).energy
        assert found >= least
        assert found >= best * (1 - 1e-3)
        assert found <= pca * (1 + 1e-4)
        if n_entries == 10_000 and steps == 0:
            assert found <= 1.02 * clipped
        if budget == 12:
            assert upper_bound(cov, 3, budget, steps, n_threads=3).energy == found


@pytest.mark.usefixtures("few_features")
def test_equal_parts_are_counted_each() -> None:
    """Two blocks with the same eigenvalues: one for each of two components."""
    X = np.kron(np.eye(60), np.ones((2, 1)))  # 60 pairs of twins
    A = X @ X.T
    assert upper_bound(Gram(A), 5, 10, 0).energy == pytest.approx(10.0)


def test_features_left_out_are_bounded_by_their_variances() -> None:
    X = correlated(60, 100)
    A = X @ X.T
    order = np.argsort(-np.diag(A))
    few, others = order[:35], order[35:]
    floor = float(np.abs(A[np.ix_(order, others)])[: len(few)].max())
    within = np.abs(A[np.ix_(others, others)] - np.diag(np.diag(A)[others]))
    beyond = Beyond(np.diag(A)[others], max(floor, float(within.max())))
    for budget in (3, 10, 50):
        found = upper_bound(Gram(A[np.ix_(few, few)]), 3, budget, 30, beyond).energy
        assert found >= bound(A, 3, budget, 120) * (1 - 1e-9)


# ----------------------------------------------------------------------------------- of results

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
    monkeypatch.setattr("streamsvd.result.certifying.MOST_EXACT", 60)
    whole = sparse_pca(X, 3, reduction="gram", **OPTIONS).certificate()
    data = X if made.settings["reduction"] == "factor" else None
    found = made.certificate(data, effort="normal")
    assert made.explained_variance_ratio.sum() <= found.bound <= 1
    assert found.bound >= whole.bound * (1 - 1e-6)


@pytest.mark.usefixtures("few_features")
def test_never_above_pca() -> None:
    made = sparse_pca(X, 3, reduction="samples", max_nonzeros=300)
    centred = X - X.mean(axis=1, keepdims=True)
    pca = np.linalg.svd(centred, compute_uv=False)[:3]
    assert made.certificate().bound <= (pca @ pca) / np.sum(centred**2) * (1 + 1e-4)


def test_after_a_fit_in_place() -> None:
    made = sparse_svd(X, 3, n_transforms=40, center="features")
    with pytest.raises(OptionError, match="needs the data of the fit: pass it as X"):
        made.certificate()
    found = made.certificate(X, effort="low")
    assert made.explained_variance_ratio.sum() <= found.bound
    with pytest.raises(OptionError, match=r"effort must be one of None, 'low', 'normal', 'high'"):
        made.certificate(X, effort="much")
    with pytest.raises(OptionError, match="the variances of this result are not those of the data"):
        made.at(10).certificate(X)


def test_it_is_remembered_shown_and_saved(tmp_path: Path) -> None:
    made = sparse_pca(X, 3, **OPTIONS)
    assert "at most" not in repr(made)
    found = made.certificate(effort="low")
    assert made.certified == found
    line = (
        f"at most             {found.bound:.2%}, by any 3 orthonormal components with 30 nonzeros"
    )
    assert line in repr(made)
    made.save(tmp_path / "result.zarr")
    loaded = SVDResult.load(tmp_path / "result.zarr")
    assert loaded.certificate() == found  # without the data
    assert loaded.at(3).certified is None
    assert made.refine(max_nonzeros=20).certified is None
    assert made.certificate(effort="normal").bound < found.bound


# ---------------------------------------------------------------- searches from the relaxation


@pytest.mark.parametrize("form", ["gram", "samples", "factor"])
def test_a_high_effort_is_never_worse(form: str) -> None:
    budgets: dict[str, Any] = {"max_fill": [0.02, 0.05, 0.2]}
    made = sparse_pca(X, 3, reduction=form, **OPTIONS)
    normally = made.refine_path(X, **budgets)
    highly = made.refine_path(X, effort="high", **budgets)
    for one, other in zip(normally, highly, strict=True):
        assert one.certified is None
        # with a factor both are polished on the truth at the end
        least = one.explained_variance_ratio.sum() * (1 - (1e-3 if form == "factor" else 1e-12))
        assert other.explained_variance_ratio.sum() >= least
        assert other.n_nonzeros <= one.n_nonzeros + 3
        U = other.components.toarray()
        np.testing.assert_allclose(U @ U.T, np.eye(3), atol=1e-14)


def test_a_high_effort_has_its_certificate() -> None:
    made = sparse_pca(X, 3, effort="high", **OPTIONS)
    found = made.certified
    assert found is not None
    assert found.max_nonzeros == 30
    assert made.explained_variance_ratio.sum() <= found.bound
    assert found.bound == pytest.approx(made.certificate(effort="normal").bound, rel=1e-2)


def test_the_bound_of_a_high_effort_is_that_of_the_data() -> None:
    """Not of the factor that stands for samples in the search: a proof for another matrix."""
    data = normal(120, 70)
    bounds = []
    for form in ("gram", "samples"):
        made = sparse_pca(data, 3, reduction=form, effort="high", max_nonzeros=60)
        assert made.certified is not None
        bounds.append(made.certified.bound)
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-9)
    factor = sparse_pca(data, 3, reduction="factor", effort="high", max_nonzeros=60)
    assert factor.certified is None  # one pass more than it has


def test_where_the_relaxation_finds_more() -> None:
    """A problem on which chance is on its side."""
    random = np.random.default_rng(5)
    gains = []
    for _ in range(2):
        Y = random.standard_normal((60, 12)) @ random.standard_normal((12, 300))
        Y += 0.5 * random.standard_normal((60, 300))
        A = Y @ Y.T
        normally, highly = (
            refine(Gram(A), 8, 60, effort=effort).energies.sum() for effort in ("normal", "high")
        )
        gains.append(highly / normally - 1)
    assert min(gains) >= -1e-12
    assert max(gains) > 1e-3


@pytest.mark.usefixtures("few_features")
def test_of_more_features_the_leading_ones_are_relaxed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvd.refinement.starts.MOST_RELAXED", 40)
    made = sparse_pca(X, 3, effort="high", **OPTIONS)
    assert made.certified is None
    normally = sparse_pca(X, 3, **OPTIONS)
    least = normally.explained_variance_ratio.sum() * (1 - 1e-12)
    assert made.explained_variance_ratio.sum() >= least


def test_its_memory_is_planned() -> None:
    asked: dict[str, Any] = {"reduction": "gram", "refine": True, "max_fill": 0.1}
    data = normal(800, 900)
    plain = plan_svd(data, 3, **asked).peak_memory
    high = plan_svd(data, 3, effort="high", **asked).peak_memory
    assert high > plain
    with pytest.raises(ResourceError, match="memory_limit"):
        plan_svd(data, 3, effort="high", memory_limit=(plain + high) // 2, **asked)
    problem = Problem(
        n_features=400,
        n_samples=400,
        n_components=5,
        n_transforms=0,
        dtype=data.dtype,
        relaxes=True,
    )
    A = data[:400] @ data[:400].T
    tracemalloc.start()
    relax(Posed(A, 5, 40), 6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * relaxation_state(problem) < peak < relaxation_state(problem)


def test_effort_is_checked() -> None:
    with pytest.raises(OptionError, match="effort must be one of 'normal', 'high'; got 'low'"):
        sparse_pca(X, 3, effort="low", **OPTIONS)
    made = sparse_pca(X, 3, **OPTIONS)
    with pytest.raises(OptionError, match="effort must be one of 'normal', 'high'; got 3"):
        made.refine(effort=3)  # type: ignore[arg-type]
