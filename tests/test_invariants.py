"""What must hold for any data, shape, selection and chunking."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import naive
import numpy as np
import pytest
import zarr
from helpers import PLACES, differences, fit_in_blocks, normal
from hypothesis import given
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from streamsvd import SVDResult, sparse_svd
from streamsvd.algorithm.log import TransformLog

SELECTIONS = ("nuclear", "gain", "kogbetliantz", "random")
KINDS = ("normal", "ties", "rank one", "duplicates", "rows of zeros", "zeros", "constant")
DTYPES = ("float64", "float32", "int32", "uint8", "bool")


@dataclass
class Case:
    """Data and the options of a fit; `seed` made the data."""

    kind: str
    dtype: str
    shape: tuple[int, int]
    seed: int
    n_components: int
    options: dict[str, Any]

    @property
    def X(self) -> np.ndarray:
        random = np.random.default_rng(self.seed)
        n, N = self.shape
        X = random.standard_normal((n, N))
        if self.kind == "ties":
            X = random.integers(-2, 3, (n, N)).astype(float)
        elif self.kind == "rank one":
            X = np.outer(X[:, 0], random.standard_normal(N))
        elif self.kind == "duplicates":
            X[n // 2 :] = X[: n - n // 2]
            X[:, N // 2 :] = X[:, : N - N // 2]
        elif self.kind == "rows of zeros":
            X[random.random(n) < 0.5] = 0
        elif self.kind == "zeros":
            X[:] = 0
        elif self.kind == "constant":
            X[:] = 3
        if not self.dtype.startswith("float"):
            X = np.round(X * (1 if self.kind == "ties" else 5))
        return (
            X.astype(np.int64).astype(self.dtype) if self.dtype == "uint8" else X.astype(self.dtype)
        )

    @property
    def rounding(self) -> float:
        """Relative error of one operation on the working matrix, with room for a hundred."""
        return 1e-12 if self.fit_dtype == "float64" else 1e-5

    @property
    def fit_dtype(self) -> str:
        asked = self.options.get("dtype")
        return asked or ("float64" if self.dtype in ("float64", "int32") else "float32")

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.X.astype(float)))

    def fit(self, **options: Any) -> SVDResult:
        return sparse_svd(self.X, self.n_components, **(self.options | options))


@st.composite
def cases(draw: st.DrawFn, *, plain: bool = False, dtypes: tuple[str, ...] = DTYPES) -> Case:
    """Any case; `plain` ones are not centred or scaled."""
    n, N = draw(st.integers(1, 10)), draw(st.integers(1, 30))
    p = draw(st.sampled_from([1, min(n, N)]) | st.integers(1, min(n, N)))
    kind = draw(st.sampled_from(KINDS))
    options: dict[str, Any] = {
        "n_transforms": draw(st.integers(0, 50)),
        "selection": draw(st.sampled_from(SELECTIONS)),
        "random_state": 0,
    }
    if options["selection"] != "random":
        options["batch_size"] = draw(st.integers(1, p))
    if not plain:
        options["center"] = draw(st.sampled_from([None, "features", "samples"]))
        options["normalize"] = draw(st.sampled_from([None, "samples"]))
        if kind == "normal" and n > 1 and N > 1 and draw(st.booleans()):
            options |= {"normalize": "features", "dtype": "float64"}
    dtype = draw(st.sampled_from(dtypes))
    if options.get("normalize") == "features":
        dtype = "float64"  # integers may be constant
    return Case(kind, dtype, (n, N), draw(st.integers(0, 2**16)), p, options)


def replay(X: np.ndarray, log: TransformLog) -> Iterator[np.ndarray]:
    """The dense float64 working matrix before the first transform and after each."""
    X, n = np.array(X, dtype=float), X.shape[0]
    yield X
    for k, (i, j) in enumerate(log.pairs.tolist()):
        if j < n:
            X[[i, j]] = log.g[k].T @ X[[i, j]]
        if j < X.shape[1]:
            X[:, [i, j]] = X[:, [i, j]] @ log.h[k]
        yield X


# ------------------------------------------------------------------- same bits however it is cut


@given(
    cases(),
    st.sampled_from(PLACES),
    st.integers(1, 31),
    st.integers(1, 4),
    st.integers(1, 1000),
    st.none() | st.tuples(st.integers(1, 10), st.integers(1, 31)),
)
def test_same_bits_for_any_chunks_and_threads(
    case: Case, place: str, width: int, n_threads: int, strip: int, chunks: tuple[int, int] | None
) -> None:
    """`strip` in bytes; `chunks` of a Zarr source, None for an array."""
    whole = case.fit()
    X: Any = case.X
    if chunks:
        config = {"write_empty_chunks": True}
        X = zarr.create_array(MemoryStore(), data=X, chunks=chunks, config=config)
    cut = fit_in_blocks(
        X,
        case.n_components,
        width=width,
        place=place,
        strip=strip,
        n_threads=n_threads,
        **case.options,
    )
    assert differences(cut, whole) == []


@given(cases(), st.data())
def test_any_step_of_the_path_is_the_fit_that_ends_there(case: Case, data: st.DataObject) -> None:
    result = case.fit()
    k = data.draw(st.integers(0, len(result.pairs)))
    assert differences(result.at(k), case.fit(n_transforms=k), path_only=True) == []


# --------------------------------------------------------------------------------- 1, 2, 3, 5, 6


@given(cases())
def test_factors_are_orthonormal(case: Case) -> None:
    result = case.fit()
    for rows in (result.components, result.right):
        products = (rows @ rows.T).toarray()
        assert np.max(np.abs(products - np.eye(case.n_components))) < 1e-12


@pytest.mark.parametrize(("n", "N", "p"), [(50, 60, 1), (6, 5, 5), (5, 80, 3)])
def test_factors_are_orthonormal_after_many_transforms(n: int, N: int, p: int) -> None:
    """A bias of 4e-17 in the norm of each factor would show here."""
    X = normal(n, N)
    result = sparse_svd(X, p, n_transforms=60_000, selection="random", random_state=0)
    for rows in (result.components, result.right):
        assert np.max(np.abs((rows @ rows.T).toarray() - np.eye(p))) < 1e-12
    captured = np.sum((result.components @ X) ** 2)
    assert abs(result.final_energies.sum() - captured) < 1e-12 * result.total_energy


def test_factors_are_orthonormal_where_squares_vanish() -> None:
    X = normal(6, 20) * 1e-161
    X[0] = 0
    X[0, 0] = 1
    result = sparse_svd(X, 3, n_transforms=30)
    assert len(result.pairs) == 30
    assert np.max(np.abs((result.components @ result.components.T).toarray() - np.eye(3))) < 1e-12


@given(cases(plain=True))
def test_trace_only_grows_and_is_bounded(case: Case) -> None:
    result = case.fit()
    trace = np.concatenate([[result.initial_diagonal.sum()], result.history.trace])
    assert np.all(np.diff(trace) >= -case.rounding * case.norm)
    singular = np.linalg.svd(case.X.astype(float), compute_uv=False)
    assert trace[-1] <= singular[: case.n_components].sum() + case.rounding * case.norm


@given(cases(plain=True), st.data())
def test_diagonal_is_what_the_factors_make_of_the_data(case: Case, data: st.DataObject) -> None:
    result = case.fit()
    k = data.draw(st.integers(0, len(result.pairs)))
    U, V = result.log.components(k).toarray(), result.log.right_vectors(k).toarray()
    diagonal = np.diag(U @ case.X.astype(float) @ V.T)
    tolerance = case.rounding * case.norm
    np.testing.assert_allclose(result.at(k)._diagonal, diagonal, rtol=0, atol=tolerance)
    if k:
        assert abs(result.history.trace[k - 1] - diagonal.sum()) <= tolerance
    reported = np.diag(result.components @ case.X.astype(float) @ result.right.toarray().T)
    np.testing.assert_allclose(reported, result.singular_values, rtol=0, atol=tolerance)


@given(cases(plain=True, dtypes=("float64",)))
def test_working_matrix_is_the_product_and_loses_no_energy(case: Case) -> None:
    """`overwrite_x` shows the working matrix."""
    X, tolerance = case.X, 1e-12 * case.norm
    result = sparse_svd(X, case.n_components, overwrite_x=True, **case.options)
    *_, expected = replay(case.X, result.log)
    np.testing.assert_allclose(X, expected, rtol=0, atol=tolerance)
    assert abs(np.linalg.norm(X) - case.norm) <= tolerance


@given(cases(plain=True))
def test_energies_are_the_explained_variance(case: Case) -> None:
    result = case.fit()
    X, total = case.X.astype(float), case.norm**2
    scores = np.sum((result.components @ X) ** 2, axis=1)
    np.testing.assert_allclose(result.total_energy, total, rtol=1e-12)
    ratio = result.explained_variance_ratio
    expected = scores / total if total else np.zeros(case.n_components)
    np.testing.assert_allclose(ratio, expected, rtol=0, atol=case.rounding)
    assert ratio.sum() <= 1 + case.rounding
    divisor = max(case.shape[1] - 1, 1)
    np.testing.assert_allclose(result.explained_variance, ratio * total / divisor, rtol=1e-9)


@given(cases())
def test_fill_is_counted_from_supports(case: Case) -> None:
    result = case.fit()
    p, n = case.n_components, case.shape[0]
    supports = [{k} for k in range(n)]
    counts = []
    for k, (i, j) in enumerate(result.pairs.tolist()):
        if j < n:
            g, old = result.log.g[k], (supports[i], supports[j])
            supports[i] = set().union(*(old[r] for r in (0, 1) if g[r, 0] != 0))
            supports[j] = set().union(*(old[r] for r in (0, 1) if g[r, 1] != 0))
        counts.append(sum(len(support) for support in supports[:p]))
    assert result.history.n_nonzeros.tolist() == counts
    assert result.n_nonzeros == (counts[-1] if counts else p) == result.components.nnz
    for k in (0, len(counts) // 2, len(counts)):
        rows = result.log.components(k)
        assert rows.nnz == (counts[k - 1] if k else p)
    for row, support in enumerate(supports[:p]):
        a, b = rows.indptr[row : row + 2]
        assert set(rows.indices[a:b].tolist()) == support
    merged = naive.algorithm1(case.X, p, len(counts), "nuclear", pairs=result.pairs).support
    assert all(a <= b for a, b in zip(counts, merged.tolist(), strict=True))


# -------------------------------------------------------------------------------------- picks


@given(cases(plain=True))
def test_each_pick_is_the_best_of_all_scores(case: Case) -> None:
    """Within rounding: a pick that is not the first of the full table is a near-tie with it."""
    if case.options["selection"] == "random":
        case.options["selection"] = "nuclear"
    selection, p, n = case.options["selection"], case.n_components, case.shape[0]
    result = case.fit(batch_size=1)
    tolerance = 10 * case.rounding * case.norm
    states = replay(case.X, result.log)
    for k, (i, j) in enumerate(result.pairs.tolist()):
        X = next(states)
        table = naive.scores(X, p, selection)
        assert table[i, j] >= table.max() - tolerance
        if j < min(X.shape):
            S = result.log.g[k].T @ X[np.ix_([i, j], [i, j])] @ result.log.h[k]
            assert max(abs(S[0, 1]), abs(S[1, 0])) <= tolerance
            assert S[0, 0] >= S[1, 1] - tolerance >= -2 * tolerance
        elif j >= n:
            np.testing.assert_array_equal(result.log.g[k], np.eye(2))
        else:
            np.testing.assert_array_equal(result.log.h[k], np.eye(2))
    *_, X = replay(case.X, result.log)
    if result.stopped == "converged":
        assert naive.scores(X, p, selection).max() <= tolerance
    else:
        assert len(result.pairs) == case.options["n_transforms"]


@given(cases(plain=True, dtypes=("int32",)))
def test_first_of_equal_scores_is_the_lowest(case: Case) -> None:
    """Sums of integers are exact, so that ties are ties."""
    X = case.X
    case.options |= {"selection": "kogbetliantz", "n_transforms": 1}
    pairs = case.fit().pairs.tolist()
    i, j, score = naive.best_pair(X.astype(float), case.n_components, "kogbetliantz")
    assert pairs == ([[i, j]] if score > 0 else [])


SHAPES = [(12, 30, 4), (30, 12, 4), (8, 8, 8), (5, 40, 5), (1, 20, 1), (20, 1, 1), (3, 4, 2)]


@pytest.mark.parametrize(("n", "N", "p"), SHAPES)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_run_is_the_naive_one(selection: str, n: int, N: int, p: int) -> None:
    X, m = normal(n, N, seed=n), min(p * max(n, N) // 2, 40)
    result = sparse_svd(X, p, n_transforms=m, selection=selection, random_state=1)
    given_pairs = result.pairs if selection == "random" else None
    check_run(result, naive.algorithm1(X, p, m, selection, pairs=given_pairs), p)


@pytest.mark.parametrize(("n", "N", "p"), SHAPES)
@pytest.mark.parametrize("selection", SELECTIONS[:3])
def test_batches_are_the_naive_ones(selection: str, n: int, N: int, p: int) -> None:
    X, m = normal(n, N, seed=n), min(p * max(n, N) // 2, 40)
    for size in sorted({1, p // 2 or 1, p}):
        result = sparse_svd(X, p, n_transforms=m, selection=selection, batch_size=size)
        check_run(result, naive.algorithm1(X, p, m, selection, batch_size=size), p)


def check_run(result: SVDResult, run: naive.Run, p: int) -> None:
    np.testing.assert_array_equal(result.pairs, run.pairs)
    np.testing.assert_allclose(result.history.trace, run.trace, atol=1e-11)
    np.testing.assert_array_equal(result.history.n_nonzeros, run.support)
    ours, theirs = result.log.components(len(run.pairs)).toarray(), run.U[:, :p].T
    np.testing.assert_allclose(np.abs(np.sum(ours * theirs, axis=1)), 1, atol=1e-11)


@pytest.mark.parametrize(
    ("center", "normalize"),
    [(a, b) for a in (None, "features", "samples") for b in (None, "features", "samples")],
)
@pytest.mark.parametrize("sample_axis", [0, 1])
def test_preprocessing_is_the_naive_one(
    center: str | None, normalize: str | None, sample_axis: int
) -> None:
    X = normal(7, 40) * np.arange(1, 8)[:, None] + np.arange(7)[:, None]
    source = X if sample_axis else X.T
    options = {"center": center, "normalize": normalize, "n_transforms": 25}
    result = sparse_svd(source, 3, sample_axis=sample_axis, **options)
    Y, mean, scale = naive.preprocess(X, center, normalize)
    run = naive.algorithm1(Y, 3, 25, "nuclear")
    np.testing.assert_array_equal(result.pairs, run.pairs)
    np.testing.assert_allclose(result.history.trace, run.trace, rtol=1e-11)
    np.testing.assert_allclose(result.total_energy, np.sum(Y**2), rtol=1e-13)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(result.scale, scale, rtol=1e-13)
    scores = result.transform(source)
    expected = result.components @ Y
    np.testing.assert_allclose(scores if sample_axis else scores.T, expected, atol=1e-12)


# -------------------------------------------------------------------------------------- scale


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("n", "N", "p"), SHAPES[:4])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_powers_of_two_change_no_bit_of_the_factors(
    dtype: str, n: int, N: int, p: int, selection: str
) -> None:
    X = normal(n, N).astype(dtype)
    options = {"n_transforms": 60, "selection": selection, "random_state": 0}
    one = sparse_svd(X, p, **options)
    for power in (-400, -80, -1, 30) if dtype == "float64" else (-20, 20):
        other = sparse_svd(X * X.dtype.type(2.0) ** power, p, **options)
        names = differences(other, one)
        assert set(names) <= {
            "values", "initial diagonal", "total energy", "singular values", "trace",
            "final energies", "explained variance",
        }  # fmt: skip
        assert np.array_equal(other.history.trace, one.history.trace * 2.0**power)
        assert np.array_equal(other.explained_variance_ratio, one.explained_variance_ratio)


@pytest.mark.parametrize("factor", [1e-100, 1e-6, 1e6, 1e100])
@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize(("n", "N", "p"), SHAPES[:4])
def test_scale_does_not_change_the_support(
    n: int, N: int, p: int, selection: str, factor: float
) -> None:
    """For as many transforms as there is no pick between equals."""
    options = {"n_transforms": n * p // 3, "selection": selection, "random_state": 0}
    one = sparse_svd(normal(n, N), p, **options)
    other = sparse_svd(normal(n, N) * factor, p, **options)
    np.testing.assert_array_equal(other.pairs, one.pairs)
    np.testing.assert_array_equal(other.components.indices, one.components.indices)
    np.testing.assert_allclose(other.components.data, one.components.data, atol=1e-12)
    np.testing.assert_allclose(other.singular_values, one.singular_values * factor, rtol=1e-11)


# ------------------------------------------------------------------------------------- random


def test_random_pairs_are_drawn_as_the_paper_says() -> None:
    """j uniform above i, below N and below n in turn."""
    n, N, p, m = 5, 8, 2, 8000
    pairs = sparse_svd(normal(n, N), p, n_transforms=m, selection="random", random_state=3).pairs
    for turn, limit in ((0, N), (1, n)):
        drawn = pairs[turn::2]
        for i in range(p):
            of_i = drawn[drawn[:, 0] == i, 1]
            assert abs(len(of_i) - m / 4) < 5 * (m / 8) ** 0.5
            counts = np.bincount(of_i, minlength=N)
            expected = len(of_i) / (limit - i - 1)
            assert np.all(counts[: i + 1] == 0)
            assert np.all(counts[limit:] == 0)
            assert np.all(np.abs(counts[i + 1 : limit] - expected) < 5 * expected**0.5)
