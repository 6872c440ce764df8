"""Refinement: orthonormal and exactly sparse whatever comes, never worse, found where planted."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import KINDS, data_of, normal, write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from test_sparse_pca import changed, correlated
from threadpoolctl import threadpool_limits

from streamsvd import OptionError, SVDResult, sparse_pca, sparse_svd
from streamsvd.refinement import Gram, Refined, refine


def refine_rows(
    gram: np.ndarray, rows: sparse.csr_array, budget: int, cap: int | None = None
) -> Refined:
    """From the given rows, among other starts."""
    return refine(Gram(gram), rows.shape[0], budget, cap, [rows])


# ----------------------------------------------------------------------------- whatever comes


class Problem(NamedTuple):
    """A Gram matrix, orthonormal sparse rows to start from, a budget."""

    gram: np.ndarray
    rows: sparse.csr_array
    budget: int


def start_of(random: np.random.Generator, n: int, p: int, turns: int) -> np.ndarray:
    """(p, n) orthonormal rows with exact zeros: unit vectors, turned in a few planes."""
    U = np.eye(n)[:, random.permutation(n)]
    for _ in range(turns if n > 1 else 0):
        i = int(random.integers(min(p, n - 1)))
        j = int(random.integers(i + 1, n))
        angle = random.uniform(0.2, 1.3)
        g = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        U[:, [i, j]] = U[:, [i, j]] @ g
    return U[:, :p].T


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 12))
    p = draw(st.one_of(st.just(1), st.just(n), st.integers(1, n)))
    X = data_of(random, draw(st.sampled_from(KINDS)), n)
    scale = draw(st.sampled_from([1.0, 1.0, 1e-6, 1e6, 1e-120, 1e120]))
    rows = sparse.csr_array(start_of(random, n, p, draw(st.integers(0, 2 * n))))
    least = rows.nnz
    budget = draw(st.sampled_from([least, least, least + 1, 2 * least, n * p, 10 * n * p]))
    X = X * scale
    return Problem(X @ X.T, rows, max(budget, least))


def check(problem: Problem) -> np.ndarray:
    """What holds for any refinement; returns the rows."""
    gram, start, budget = problem
    p, n = start.shape
    components, energies, *_ = refine_rows(gram, start, budget)
    rows = components.toarray()
    assert rows.shape == (p, n)
    assert np.all(np.isfinite(rows))
    np.testing.assert_allclose(rows @ rows.T, np.eye(p), atol=1e-12)
    assert components.nnz <= budget
    assert components.nnz == np.count_nonzero(rows)
    assert components.has_sorted_indices
    unit = max(np.diag(gram).max(), np.finfo(float).tiny)
    exact = np.einsum("cr,rs,cs->c", rows, gram / unit, rows)
    total = np.trace(gram / unit)
    np.testing.assert_allclose(energies / unit, exact, rtol=1e-10, atol=1e-13 * total)
    dense = start.toarray()
    before = np.einsum("cr,rs,cs->", dense, gram / unit, dense)
    assert exact.sum() >= before - 1e-12 * total
    best = np.linalg.eigvalsh(gram / unit)[n - p :].sum()
    assert exact.sum() <= best + 1e-12 * total
    return rows


@given(problems())
@settings(max_examples=150)
def test_what_holds_for_any_problem(problem: Problem) -> None:
    check(problem)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "p"), [(1, 1), (2, 2), (7, 1), (7, 7), (12, 4)])
def test_each_kind_and_shape(kind: str, n: int, p: int) -> None:
    for seed in range(3):
        random = np.random.default_rng(seed)
        X = data_of(random, kind, n)
        rows = sparse.csr_array(start_of(random, n, p, n))
        for budget in (rows.nnz, n * p):
            check(Problem(X @ X.T, rows, budget))


@pytest.mark.parametrize("n", [20, 60])
def test_everything_filled_is_pca(n: int) -> None:
    X = normal(n, 2 * n) * np.linspace(1, 4, n)[:, None]
    A = X @ X.T
    rows = check(Problem(A, sparse.csr_array(np.eye(5, n)), 5 * n))
    explained = np.einsum("cr,rs,cs->", rows, A, rows)
    assert explained == pytest.approx(np.linalg.eigvalsh(A)[-5:].sum(), rel=1e-5)


def test_one_component_of_one_entry_is_the_largest_feature() -> None:
    X = normal(9, 30) * np.array([1, 2, 3, 9, 4, 3, 2, 1, 1])[:, None]
    rows = check(Problem(X @ X.T, sparse.csr_array(np.eye(1, 9)), 1))
    np.testing.assert_array_equal(np.abs(rows), np.eye(9)[3:4])


def test_one_component_against_all_supports() -> None:
    """Of so few features, every support can be tried."""
    from itertools import combinations

    for seed in range(10):
        X = normal(8, 20, seed)
        A = X @ X.T
        best = max(np.linalg.eigvalsh(A[np.ix_(s, s)])[-1] for s in combinations(range(8), 3))
        start = sparse.csr_array(np.eye(1, 8))
        found = refine_rows(A, start, 3).energies.sum()
        assert found <= best * (1 + 1e-12)
        assert found >= 0.9 * best


@pytest.mark.parametrize("scale", [2.0**-300, 2.0**-20, 2.0**20, 2.0**300])
def test_bits_do_not_depend_on_a_power_of_two(scale: float) -> None:
    """Extreme scales are taken out exactly; in between, all thresholds are relative."""
    X = correlated(20, 60)
    A = X @ X.T
    start = sparse.csr_array(start_of(np.random.default_rng(0), 20, 3, 10))
    plain, scaled = refine_rows(A, start, 20), refine_rows(A * scale, start, 20)
    np.testing.assert_array_equal(plain.components.indices, scaled.components.indices)
    np.testing.assert_allclose(plain.components.data, scaled.components.data, rtol=1e-9)
    np.testing.assert_allclose(plain.energies * scale, scaled.energies, rtol=1e-12)


# ------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize("budget", [60, 600, 6000])
def test_same_bits_for_any_blas_threads(budget: int) -> None:
    """Narrow and wide patterns, at sizes where OpenBLAS takes threads."""
    n, p = 500, 12
    X = correlated(n, 300)
    A = X @ X.T
    start = sparse.csr_array(start_of(np.random.default_rng(0), n, p, 20))
    made = []
    for threads in (1, 2, 2):
        with threadpool_limits(threads, user_api="blas"):
            made.append(refine_rows(A, start, budget))
    for other in made[1:]:
        assert other.components.data.tobytes() == made[0].components.data.tobytes()
        assert other.components.indices.tobytes() == made[0].components.indices.tobytes()
        assert other.energies.tobytes() == made[0].energies.tobytes()


def test_nothing_given_is_written_to() -> None:
    X = correlated(15, 60)
    A = X @ X.T
    start = sparse.csr_array(start_of(np.random.default_rng(0), 15, 3, 10))
    A.flags.writeable = False
    before = A.copy(), start.data.copy(), start.indices.copy()
    refine_rows(A, start, 20)
    np.testing.assert_array_equal(A, before[0])
    np.testing.assert_array_equal(start.data, before[1])
    np.testing.assert_array_equal(start.indices, before[2])


# ------------------------------------------------------------------------------ where planted


def planted(seed: int, overlap: bool) -> tuple[np.ndarray, np.ndarray]:
    """A Gram matrix with sparse orthonormal leading eigenvectors, and these as rows."""
    n, p, size = 40, 4, 6
    random = np.random.default_rng(seed)
    rows = np.zeros((p, n))
    if overlap:  # pairs of components on one support each, orthogonal there
        for pair in range(p // 2):
            basis = np.linalg.qr(random.standard_normal((size, 2)))[0].T
            rows[2 * pair : 2 * pair + 2, pair * size : (pair + 1) * size] = basis
    else:
        for c in range(p):
            values = random.uniform(0.5, 1, size) * random.choice([-1, 1], size)
            rows[c, c * size : (c + 1) * size] = values / np.linalg.norm(values)
    rows = rows[:, random.permutation(n)]
    return rows.T @ np.diag([40.0, 30, 20, 10]) @ rows + np.eye(n), rows


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_planted_model_is_recovered(seed: int, overlap: bool) -> None:
    A, rows = planted(seed, overlap)
    budget = np.count_nonzero(rows)
    start = sparse.csr_array(np.eye(len(A))[np.argsort(-np.diag(A))[:4]])
    found = check(Problem(A, start, budget))
    np.testing.assert_array_equal(np.any(found, axis=0), np.any(rows, axis=0))
    # the same subspace; the same vectors too, where each has a support of its own
    np.testing.assert_allclose(found.T @ found, rows.T @ rows, atol=1e-6)
    if not overlap:
        products = np.abs(found @ rows.T)
        np.testing.assert_allclose(np.sort(products, axis=1)[:, -1], 1, atol=1e-9)
        assert np.count_nonzero(products > 0.5) == 4


def test_a_planted_model_is_recovered_from_data() -> None:
    """From scores and little noise, by the function that users call."""
    _, rows = planted(0, overlap=False)
    scores = normal(4, 3000) * np.array([8, 6, 5, 4])[:, None]
    X = rows.T @ scores + 0.1 * normal(40, 3000, 1) + 100
    made = sparse_pca(X, 4, max_nonzeros=24)
    products = np.abs(made.components.toarray() @ rows.T)
    np.testing.assert_allclose(np.diag(products), 1, atol=1e-3)
    np.testing.assert_array_equal(made.components.toarray() != 0, rows != 0)


# ------------------------------------------------------------------------------ of a result

X = correlated()


@pytest.fixture(scope="module")
def in_place() -> SVDResult:
    return sparse_svd(X, 4, n_transforms=60, center="features")


@pytest.fixture(scope="module")
def reduced() -> SVDResult:
    return sparse_pca(X, 4, max_fill=0.3, refine=False)


def check_refined(result: SVDResult, refined: SVDResult, budget: int) -> None:
    """It explains more within the budget, is what transform says, and keeps the path."""
    assert refined.refined is not None
    assert refined.n_nonzeros <= budget
    rows = refined.components.toarray()
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-12)
    variances = np.var(refined.transform(X), axis=1, ddof=1)
    np.testing.assert_allclose(refined.explained_variance, variances, rtol=1e-10)
    before = np.var(result.transform(X), axis=1, ddof=1).sum()
    assert refined.explained_variance.sum() >= before * (1 - 1e-12)
    assert np.all(np.diff(refined.explained_variance) <= 0)
    measured = refined.accuracy(X)
    share = refined.explained_variance_ratio.sum()
    assert measured.captured_variance == pytest.approx(share, rel=1e-10)
    assert measured.accuracy is None
    np.testing.assert_array_equal(refined.path_components.data, result.components.data)
    np.testing.assert_array_equal(refined.pairs, result.pairs)
    np.testing.assert_array_equal(refined.history.trace, result.history.trace)
    assert "refined" in repr(refined)
    assert result.refined is None


@pytest.mark.parametrize("k", [0, 20, 60])
@pytest.mark.parametrize("more", [0, 1, 30])
def test_from_an_in_place_result(in_place: SVDResult, k: int, more: int) -> None:
    start = in_place.at(k)
    budget = start.n_nonzeros + more
    refined = start.refine(X, max_nonzeros=budget if more else None)
    check_refined(start, refined, budget)


def test_from_points_of_the_path(reduced: SVDResult) -> None:
    for start in (reduced.at(0), reduced.at(10), reduced.at(fill=0.2), reduced):
        check_refined(start, start.refine(), start.n_nonzeros)
        assert changed(start.refine(X), start.refine()) == []
    further = reduced.at(10).refine(max_nonzeros=60)
    assert further.n_nonzeros > reduced.at(10).n_nonzeros


def test_again_is_no_worse(reduced: SVDResult) -> None:
    once = reduced.refine()
    twice = once.refine()
    assert twice.explained_variance.sum() >= once.explained_variance.sum() * (1 - 1e-12)
    assert twice.n_nonzeros <= reduced.n_nonzeros
    more = once.refine(max_nonzeros=100)
    assert more.explained_variance.sum() > once.explained_variance.sum()


def test_refined_as_an_option(in_place: SVDResult) -> None:
    made = sparse_svd(X, 4, n_transforms=60, center="features", refine=True)
    assert changed(made, in_place.refine(X)) == []
    within = sparse_svd(X, 4, n_transforms=60, center="features", max_nonzeros=50, refine=True)
    assert 45 <= within.n_nonzeros <= 50


def test_refined_from_other_kinds_of_sources(in_place: SVDResult, tmp_path: Any) -> None:
    path = write_zarr(tmp_path / "x.zarr", X, (7, 33))
    expected = in_place.refine(X)
    assert changed(in_place.refine(path), expected) == []
    assert changed(in_place.refine(str(path)), expected) == []
    assert changed(in_place.refine(X.T, sample_axis=0), expected) == []


def test_float32_in_place_then_refined() -> None:
    """The total is of the working precision, the refined components are not: no share above 1."""
    data = normal(6, 3000).astype("f4")
    made = sparse_svd(data, 6, n_transforms=50, center="features", normalize="features")
    refined = made.refine(data, max_nonzeros=36)
    assert refined.explained_variance_ratio.sum() == pytest.approx(1, abs=1e-5)
    assert refined.explained_variance_ratio.sum() <= 1 + 1e-12


def test_without_the_data(in_place: SVDResult) -> None:
    with pytest.raises(OptionError, match=r"needs the data of the fit: pass it as X"):
        in_place.refine()


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"max_nonzeros": 3}, "max_nonzeros must be an integer of at least 4; got 3"),
        ({"max_nonzeros": 0}, "max_nonzeros must be an integer of at least 4; got 0"),
        ({"max_nonzeros": 40.0}, "max_nonzeros must be an integer of at least 4; got 40.0"),
        ({"max_nonzeros": "40"}, "max_nonzeros must be an integer of at least 4; got '40'"),
        ({"max_nonzeros": True}, "max_nonzeros must be an integer of at least 4; got True"),
        ({"max_nonzeros": [40]}, "max_nonzeros must be an integer of at least 4; got [40]"),
        ({"max_fill": 0.0}, "max_fill=0.0 allows 0 nonzeros"),
        ({"max_fill": 1.1}, "max_fill must be a number from 0 to 1; got 1.1"),
    ],
)
def test_budgets_that_cannot_be(reduced: SVDResult, budget: dict[str, Any], words: str) -> None:
    assert reduced.n_nonzeros == 36
    with pytest.raises(OptionError, match=re.escape(words)) as raised:
        reduced.refine(**budget)
    assert "less than" not in words or "at(fill=...)" in str(raised.value)


@pytest.mark.parametrize(
    ("budget", "most"),
    [
        ({"max_nonzeros": 40}, 40),
        ({"max_fill": 0.4}, 48),
        ({"max_fill": 0.4, "max_nonzeros": 40}, 40),
        ({"max_nonzeros": 10**6}, 120),
        ({"max_fill": 1.0}, 120),
    ],
)
def test_budgets(reduced: SVDResult, budget: dict[str, Any], most: int) -> None:
    refined = reduced.refine(**budget)
    check_refined(reduced, refined, most)
    assert refined.n_nonzeros >= 0.9 * most


def test_a_numpy_integer(reduced: SVDResult) -> None:
    made = reduced.refine(max_nonzeros=np.int32(40))
    assert changed(made, reduced.refine(max_nonzeros=40)) == []


def test_other_features(in_place: SVDResult) -> None:
    with pytest.raises(OptionError, match=r"31 features, the fit had 30; pass the same features$"):
        in_place.refine(normal(31, 50))
    for axis in (0, 1):  # advice on the axis where it helps alone, and that which helps
        turned = f"the fit had 30; pass sample_axis={1 - axis} if samples are on the other axis$"
        with pytest.raises(OptionError, match=turned):
            in_place.refine(X if axis == 0 else X.T, sample_axis=axis)
        with pytest.raises(OptionError, match=r"the fit had 30; pass the same features$"):
            in_place.refine(X[:29] if axis else X[:29].T, sample_axis=axis)


def test_other_samples(in_place: SVDResult) -> None:
    """Variances over the samples of the fit cannot come from others."""
    with pytest.raises(OptionError, match="399 samples, the fit had 400"):
        in_place.refine(X[:, :399])


def test_two_passes_are_refused() -> None:
    made = sparse_svd(X, 4, n_transforms=10, center="features", normalize="samples")
    with pytest.raises(OptionError, match="two passes"):
        made.refine(X)
