"""A factor of ``X X^T`` from two passes, the data themselves, and what is exactly true of a few."""

import pickle
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from helpers import COMBINATIONS, TWO_PASSES, normal, write_zarr
from scipy import sparse

from streamsvd import OptionError, ResourceError, SourceError, sizes
from streamsvd.data.kinds import open_data
from streamsvd.data.source import Source
from streamsvd.fitting.planning import resolve
from streamsvd.options import Ask, Options
from streamsvd.passes import products
from streamsvd.passes.exact import exact_of
from streamsvd.passes.factor import (
    Factored,
    data_of,
    draw_test,
    factor_of,
    nystroem,
    orthonormalize,
)
from streamsvd.passes.gram import gram_matrix, multiplies_sparse
from streamsvd.passes.ingest import n_passes
from streamsvd.passes.products import ProductSum, product_of
from streamsvd.plan import FIXED_BYTES, make_factor_plan, make_samples_plan
from streamsvd.problem import Problem

N, SAMPLES = 40, 700


@pytest.fixture
def small(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few features in a panel too."""
    monkeypatch.setattr(products, "product_rows", lambda n: 7)


def planted(n: int, n_samples: int, rank: int = 3, noise: float = 0.01) -> np.ndarray:
    """Low rank and noise; features of other means and spreads."""
    low = normal(n, rank) @ normal(rank, n_samples, 1)
    spread = np.linspace(1, 5, n)[:, None]
    return (low + noise * normal(n, n_samples, 2)) * spread + np.linspace(-20, 30, n)[:, None]


def counts(n: int, n_samples: int, density: float = 0.1) -> np.ndarray:
    """Counts that are mostly zero, with sets of features that go together."""
    random = np.random.default_rng(5)
    rate = np.exp(normal(n, 2) @ normal(2, n_samples, 3)).clip(0, 20)
    return (random.random((n, n_samples)) < density) * random.poisson(1 + rate).astype(float)


def of(x: Any, axis: int = 1) -> Source:
    return open_data(x, Ask(axis))


def whole(factored: Factored) -> np.ndarray:
    return factored.factor @ factored.factor.T + np.diag(factored.rest)


def kinds(X: np.ndarray) -> dict[str, Source]:
    """The same numbers, dense and sparse both ways."""
    return {
        "dense": of(X),
        "rows": of(np.ascontiguousarray(X.T), 0),
        "csr": of(sparse.csr_array(X.T), 0),
        "csc": of(sparse.csc_matrix(X)),
    }


# ------------------------------------------------------------------------------- right numbers


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
@pytest.mark.parametrize("kind", ["dense", "rows", "csr", "csc"])
@pytest.mark.parametrize("make", [planted, counts])
def test_products_equal_numpy(
    small: None, kind: str, center: str | None, normalize: str | None, make: Any
) -> None:
    X, test = make(N, SAMPLES), normal(N, 5)
    A, mean, scale = naive.covariance(X, center, normalize)
    made = product_of(kinds(X)[kind], test.copy(), center, normalize)
    np.testing.assert_allclose(made.test, test * scale[:, None], rtol=1e-11)
    size = np.abs(X).max() ** 2 * SAMPLES / scale.min() ** 2
    np.testing.assert_allclose(made.values, A @ made.test, rtol=1e-9, atol=1e-13 * size)
    np.testing.assert_allclose(made.diagonal, np.diag(A), rtol=1e-11)
    np.testing.assert_allclose(made.preprocessing.mean, mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(made.preprocessing.scale, scale, rtol=1e-11)


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
@pytest.mark.parametrize("make", [planted, counts])
def test_factor_equals_the_twin(center: str | None, normalize: str | None, make: Any) -> None:
    """The same test matrix spans the same space, and a space has one Nystroem form."""
    X = make(N, SAMPLES)
    for source in kinds(X).values():
        made = factor_of(source, center, normalize, 12)
        test = draw_test(source, center, normalize, 12)
        B, d = naive.factor(X, center, normalize, test)
        A = naive.covariance(X, center, normalize)[0]
        size = np.trace(A)
        assert made.factor.shape == (N, 12)
        np.testing.assert_allclose(whole(made), B @ B.T + np.diag(d), rtol=0, atol=1e-10 * size)
        np.testing.assert_allclose(made.diagonal, np.diag(A), rtol=1e-11)
        np.testing.assert_allclose(np.diag(whole(made)), made.diagonal, rtol=1e-12)
        assert made.diagonal.sum() == pytest.approx(size, rel=1e-12)
        assert made.rest.min() >= 0


@pytest.mark.parametrize("normalize", [None, "features"])
def test_planted_components_are_found(normalize: str | None) -> None:
    X = planted(300, 2000, rank=5, noise=0.3)
    A = naive.covariance(X, "features", normalize)[0]
    made = factor_of(of(X), "features", normalize, 30)
    exact = np.linalg.eigvalsh(A)[::-1][:5]
    found = np.linalg.eigvalsh(made.factor.T @ made.factor)[::-1][:5]
    np.testing.assert_allclose(found, exact, rtol=1e-4)
    assert np.all(found <= exact * (1 + 1e-12))


def test_scaling_finds_what_large_features_would_drown() -> None:
    """Half of the features are a million times larger, and noise."""
    X = planted(200, 1000, rank=3, noise=0.3)
    X[::2] = 1e6 * normal(100, 1000, 9)
    A = naive.covariance(X, "features", "features")[0]
    made = factor_of(of(X), "features", "features", 30)
    exact = np.linalg.eigvalsh(A)[::-1][:3].sum()
    assert np.linalg.eigvalsh(made.factor.T @ made.factor)[::-1][:3].sum() >= 0.99 * exact


def test_one_pass_is_a_factor_too() -> None:
    X = planted(200, 1000, rank=3, noise=0.3)
    A = naive.covariance(X, "features", None)[0]
    with ProductSum(normal(200, 30), "features", None) as total:
        for first in range(0, 1000, 300):
            total.extend([X[:, first : first + 300]])
        made = nystroem(total.result())
    exact = np.linalg.eigvalsh(A)[::-1][:3].sum()
    assert np.linalg.eigvalsh(made.factor.T @ made.factor)[::-1][:3].sum() >= 0.98 * exact
    np.testing.assert_allclose(np.diag(whole(made)), np.diag(A), rtol=1e-11)


@pytest.mark.parametrize("center", [None, "features"])
@pytest.mark.parametrize("shape", [(30, 5), (5, 30), (1, 20), (20, 1), (1, 1), (60, 60)])
def test_full_rank_is_exact(shape: tuple[int, int], center: str | None) -> None:
    X = normal(*shape) + 3
    for source in kinds(X).values():
        made = factor_of(source, center, None, 60)
        A = naive.covariance(X, center, None)[0]
        np.testing.assert_allclose(whole(made), A, rtol=0, atol=1e-12 * np.sum(X**2))
        assert 1 <= made.factor.shape[1] <= min(shape)


def test_directions_without_energy_are_left_out() -> None:
    X = normal(50, 3) @ normal(3, 400, 1)
    made = factor_of(of(X), None, None, 20)
    assert made.factor.shape == (50, 3)
    np.testing.assert_allclose(made.rest, 0, atol=1e-12 * made.diagonal.sum())
    nothing = factor_of(of(np.ones((50, 400))), "features", None, 20)
    assert nothing.factor.shape == (50, 1)
    assert not nothing.factor.any()
    assert nothing.diagonal.sum() == 0


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_constant_features(kind: str) -> None:
    X = counts(N, SAMPLES)
    X[2], X[5] = 1 / 3, 1e6 + 0.1
    source = kinds(X)[kind]
    made = factor_of(source, "features", None, 10)
    for row in (2, 5):
        assert not made.factor[row].any()
        assert made.diagonal[row] == made.rest[row] == 0
    for center in (None, "features"):
        with pytest.raises(SourceError, match=r"2 feature\(s\).* are constant.*: 2, 5; drop them"):
            factor_of(source, center, "features", 10)
        with pytest.raises(SourceError, match=r"2 feature\(s\).* are constant.*: 2, 5; drop them"):
            gram_matrix(source, center, "features")


def test_a_large_offset_costs_no_digits() -> None:
    X = (normal(30, 2000) * np.linspace(2, 1, 30)[:, None] + 1e6).astype("f4")
    A = naive.covariance(X, "features", None)[0]
    made = factor_of(of(X), "features", None, 30)
    np.testing.assert_allclose(whole(made), A, rtol=0, atol=1e-10 * np.trace(A))


def test_what_is_refused() -> None:
    with pytest.raises(OptionError, match="needs the means before the norms"):
        factor_of(of(planted(5, 30)), *TWO_PASSES, 3)
    for kind in ("dense", "csr"):
        X = counts(N, SAMPLES)
        X[3, 555] = np.nan
        for center in (None, "features", "samples"):
            with pytest.raises(SourceError, match=r"holds NaN at feature 3, sample 555"):
                factor_of(kinds(X)[kind], center, None, 3)
        X[3, 555] = 1e80
        with pytest.raises(SourceError, match=r"values as large as 1e\+80"):
            factor_of(kinds(X)[kind], None, None, 3)


def test_orthonormal_whatever_the_rank() -> None:
    for n, r in [(5000, 7), (3, 3), (1, 1), (2049, 2)]:
        columns = normal(n, r)
        columns[:, -1] = columns[:, 0]
        kept = columns.copy()
        orthonormalize(columns, 2)
        np.testing.assert_allclose(columns.T @ columns, np.eye(r), atol=1e-13)
        np.testing.assert_allclose(columns @ (columns.T @ kept), kept, atol=1e-11)


# -------------------------------------------------------------------------------- the same bits


def packed(made: Factored) -> tuple[bytes, ...]:
    learned = made.preprocessing
    arrays = (made.factor, made.rest, made.diagonal, learned.mean, learned.scale)
    return tuple(array.tobytes() for array in arrays)


@pytest.mark.parametrize("width", [1, 7, 160, SAMPLES])
def test_same_bits_for_any_chunks(small: None, width: int, tmp_path: Path) -> None:
    X = planted(N, SAMPLES)
    path = write_zarr(tmp_path / "x.zarr", X, (N, width))
    for options in COMBINATIONS:
        expected = packed(factor_of(of(X), *options, 6))
        for x in (path, da.from_array(X, chunks=(6, max(width, 100)))):
            made = factor_of(of(x), *options, 6, width=max(3 * width, 50))
            assert packed(made) == expected


@pytest.mark.parametrize("n_threads", [2, 3])
def test_same_bits_for_any_threads(small: None, n_threads: int) -> None:
    X, Y = planted(600, 300), counts(600, 300)
    for source in (of(X), of(sparse.csr_array(Y.T), 0)):
        expected = packed(factor_of(source, "features", None, 50))
        made = factor_of(source, "features", None, 50, n_threads=n_threads)
        assert packed(made) == expected


def stored(folder: Path, X: np.ndarray, chunk: int) -> Path:
    """A group of a CSR matrix, as AnnData writes it."""
    matrix = sparse.csr_array(X.T)
    group = zarr.create_group(folder)
    group.attrs.update({"encoding-type": "csr_matrix", "shape": list(matrix.shape)})
    for part in ("data", "indices", "indptr"):
        group.create_array(part, data=getattr(matrix, part), chunks=(chunk,))
    return folder


@pytest.mark.parametrize("strip", [1, 3000, 2**20])
@pytest.mark.parametrize("center", [None, "features"])
def test_same_bits_of_sparse_sources(
    small: None, strip: int, center: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = counts(N, SAMPLES)
    csr = of(sparse.csr_array(X.T), 0)
    expected = packed(factor_of(csr, center, None, 6))
    gram = gram_matrix(csr, center, None)[0].tobytes()
    monkeypatch.setattr(sizes, "STRIP_BYTES", strip)
    for source in (csr, of(sparse.csc_array(X)), of(stored(tmp_path / "x", X, 91), 0)):
        assert source.reads_sparse
        assert multiplies_sparse(source, center)
        assert packed(factor_of(source, center, None, 6)) == expected
        assert gram_matrix(source, center, None, n_threads=2)[0].tobytes() == gram


def test_same_bits_after_a_copy(small: None) -> None:
    """In the middle of a batch and of a leaf; what is pickled has no threads."""
    for X in (planted(N, SAMPLES), counts(N, SAMPLES)):
        for pieces in ([X[:, :100], X[:, 100:]], [sparse.csr_array(X.T[:100]), X[:, 100:]]):
            test = normal(N, 5)
            with ProductSum(test.copy(), "features", "features") as total:
                total.extend(pieces)
                expected = total.result()
            with ProductSum(test.copy(), "features", "features") as begun:
                begun.extend(pieces[:1])
                copy = pickle.loads(pickle.dumps(begun))
            with copy:
                copy.extend(pieces[1:])
                made = copy.result()
            assert made.values.tobytes() == expected.values.tobytes()
            assert made.test.tobytes() == expected.test.tobytes()


# ------------------------------------------------------------------------------- sparse sources


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
def test_sparse_gram_equals_dense(small: None, center: str | None, normalize: str | None) -> None:
    X = counts(N, SAMPLES)
    dense = gram_matrix(of(X), center, normalize)[0]
    made, learned = gram_matrix(kinds(X)["csr"], center, normalize)
    np.testing.assert_allclose(made, dense, rtol=0, atol=1e-12 * np.abs(dense).max())
    np.testing.assert_array_equal(made, made.T)
    _, mean, scale = naive.preprocess(X, center, normalize)
    np.testing.assert_allclose(learned.mean, mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(learned.scale, scale, rtol=1e-12)


def test_sparse_sources_are_not_made_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = counts(N, SAMPLES, 0.05)
    monkeypatch.setattr(Source, "read", lambda *args: pytest.fail("it was made dense"))
    for source in (kinds(X)["csr"], kinds(X)["csc"], of(stored(tmp_path / "x", X, 91), 0)):
        made = factor_of(source, "features", "features", 5)
        gram_matrix(source, "features", None)
        components = sparse.csr_array(np.eye(2, N))
        exact_of(source, made.preprocessing, components, np.arange(3))
        assert 0 < source.bytes_read < 6 * X.nbytes


def test_entries_listed_twice_add_up_and_the_matrix_is_left_alone() -> None:
    data, indices = np.array([1.0, 2, 3, 4]), np.array([4, 4, 1, 0])
    matrix = sparse.csr_array((data, indices, np.array([0, 3, 4])), shape=(2, 5))
    source = of(matrix, 0)
    strip = source.read_sparse(0, 2)
    np.testing.assert_array_equal(strip.toarray(), [[0, 3, 0, 0, 3], [4, 0, 0, 0, 0]])
    assert strip.indices.tolist() == [1, 4, 0]
    assert matrix.indices.tolist() == [4, 4, 1, 0]
    matrix.indices[0] = 99
    with pytest.raises(SourceError, match="indices from 0 to 99; they must be from 0 to 4"):
        source.read_sparse(0, 2)
    with pytest.raises(OptionError, match="is not sparse"):
        of(np.ones((2, 2))).read_sparse(0, 1)


@pytest.mark.parametrize("is_view", [False, True])
def test_anndata_stays_sparse(is_view: bool) -> None:
    anndata = pytest.importorskip("anndata")
    X = counts(N, SAMPLES)
    data = anndata.AnnData(sparse.csr_matrix(np.vstack([X, X[:5]]).T))
    data = data[:, :N] if is_view else anndata.AnnData(sparse.csr_matrix(X.T))
    source = open_data(data, Ask())
    assert source.reads_sparse
    expected = factor_of(kinds(X)["csr"], "features", None, 6)
    assert packed(factor_of(source, "features", None, 6)) == packed(expected)


# ------------------------------------------------------------------------- data, exact numbers


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
def test_the_data_themselves(center: str | None, normalize: str | None) -> None:
    X = planted(60, 20)
    Y, mean, scale = naive.preprocess(X, center, normalize)
    for source in kinds(X).values():
        told: list[int] = []
        made = data_of(source, center, normalize, on_samples=told.append)
        assert sum(told) == 20 * n_passes(center, normalize)
        np.testing.assert_allclose(made.data, Y, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(made.diagonal, np.sum(Y**2, axis=1), rtol=1e-10)
        assert made.diagonal.sum() == pytest.approx(np.sum(Y**2))
        np.testing.assert_allclose(made.preprocessing.mean, mean, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(made.preprocessing.scale, scale, rtol=1e-11)


@pytest.mark.parametrize(("center", "normalize"), [*COMBINATIONS, TWO_PASSES])
@pytest.mark.parametrize("kind", ["dense", "rows", "csr", "csc"])
def test_exact_numbers_of_components_and_features(
    small: None, kind: str, center: str | None, normalize: str | None
) -> None:
    X = counts(N, SAMPLES) + 0.0
    A = naive.covariance(X, center, normalize)[0]
    source = kinds(X)[kind]
    learned = data_of(source, center, normalize).preprocessing
    U = np.where(np.random.default_rng(1).random((N, 4)) < 0.2, normal(N, 4), 0)
    features = np.array([30, 2, 17])
    made = exact_of(source, learned, sparse.csr_array(U.T), features)
    size = np.abs(A).max() * 10
    np.testing.assert_allclose(made.scores, U.T @ A @ U, rtol=1e-11, atol=1e-13 * size)
    np.testing.assert_allclose(made.gram, A[np.ix_(features, features)], rtol=1e-11)
    alone = exact_of(source, learned, sparse.csr_array(U.T))
    np.testing.assert_allclose(alone.scores, made.scores, rtol=1e-12, atol=1e-13 * size)
    assert alone.gram.shape == (0, 0)
    few = exact_of(source, learned, features=features)
    assert few.scores.shape == (0, 0)
    np.testing.assert_allclose(few.gram, made.gram, rtol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_exact_numbers_have_the_same_bits(
    small: None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = kinds(counts(N, SAMPLES))[kind]
    learned = data_of(source, "features", None).preprocessing
    U, features = sparse.csr_array(normal(3, N)), np.arange(5)
    expected = exact_of(source, learned, U, features)
    for strip, width, n_threads in [(1, 1, 1), (1000, 33, 2), (2**20, 300, 3)]:
        monkeypatch.setattr(sizes, "STRIP_BYTES", strip)
        made = exact_of(source, learned, U, features, width=width, n_threads=n_threads)
        assert made.scores.tobytes() == expected.scores.tobytes()
        assert made.gram.tobytes() == expected.gram.tobytes()


# -------------------------------------------------------------------------------------- memory


@pytest.fixture
def traced() -> Iterator[Any]:
    """What NumPy allocates at most from here on."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def of_factor(n: int, n_samples: int) -> Problem:
    return Problem(
        n_features=n,
        n_samples=n_samples,
        n_components=3,
        n_transforms=1,
        dtype=np.dtype(np.float64),
        source_itemsize=8,
    )


@pytest.mark.parametrize("options", [(None, None), ("features", "features")])
def test_memory_is_that_of_two_arrays(options: tuple[Any, Any], traced: Any) -> None:
    n, n_samples, rank = 60_000, 40, 40
    X = np.random.default_rng(0).random((n_samples, n), dtype=np.float32)
    source = of(X, 0)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    factor_of(source, *options, rank, width=4)
    batch = sizes.product_batch(n) * n * 8
    assert traced() - before <= 2.2 * 8 * n * rank + 1.2 * batch + 3 * 4 * n * 8 + 12 * 8 * n


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("shape", [(50_000, 60), (3000, 6000), (200, 20_000)])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_forecast_holds(kind: str, shape: tuple[int, int], n_threads: int, traced: Any) -> None:
    n, n_samples = shape
    if kind == "csr":
        matrix = sparse.random_array((n_samples, n), density=0.01, format="csr", rng=0)
        source = of(matrix, 0)
    else:
        source = of(normal(n, n_samples))
    problem = replace(of_factor(n, n_samples), rank=30, n_stored=source.n_stored)
    plan = make_factor_plan(problem, memory_limit=2**40, n_threads=n_threads)
    factor_of(of(normal(20, 30)), "features", "features", 3)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    factor_of(source, "features", None, 30, width=plan.strip_samples, n_threads=n_threads)
    assert traced() - before <= plan.peak_memory - FIXED_BYTES


def test_the_forecast_is_that_of_how_the_source_is_read() -> None:
    """Sparse where it stays sparse: what is stored, else what the zeros take too."""
    source = of(sparse.random_array((300, 50), density=0.1, format="csr", rng=0), 0)
    options = Options(n_components=3, reduction="factor", refine=True, max_fill=0.2)
    assert resolve(source, options).n_stored == source.n_stored == 1500
    assert resolve(source, replace(options, center="samples")).n_stored is None
    assert resolve(of(normal(50, 300)), options).n_stored is None


def test_the_forecast_of_samples_holds(traced: Any) -> None:
    source = of(normal(20_000, 70))
    plan = make_samples_plan(of_factor(20_000, 70), memory_limit=2**40)
    data_of(of(normal(20, 30)), "features", "features")
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    data_of(source, "features", "features", width=plan.strip_samples)
    assert traced() - before <= plan.peak_memory - FIXED_BYTES


def test_what_does_not_fit_is_refused() -> None:
    problem = replace(of_factor(10**6, 10**6), rank=100)
    with pytest.raises(ResourceError, match=r"762.94 MiB and is held .* or fit fewer features"):
        make_factor_plan(problem, memory_limit=2**30)
    few = replace(of_factor(10**6, 400), rank=100, reduction="factor")
    with pytest.raises(ResourceError, match=r"rank 100 takes 762.94 MiB .* or lower rank$"):
        make_factor_plan(few, memory_limit=2**31)
    assert make_factor_plan(replace(few, rank=3), memory_limit=2**31)
    with pytest.raises(ResourceError, match="1000000 x 1000000 data take"):
        make_samples_plan(problem, memory_limit=2**30)
    planned = make_factor_plan(replace(of_factor(10**6, 400), rank=100), memory_limit=3 * 2**30)
    assert planned.peak_memory < 3 * 2**30
