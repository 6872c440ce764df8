"""Batches of samples that are not kept, for any number of features: a factor from one pass."""

import copy
import pickle
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from helpers import COMBINATIONS, normal, write_zarr
from scipy import sparse
from sklearn.base import clone

from streamsvd import OptionError, ResourceError, SourceError, StreamingSparsePCA, SVDResult, sizes
from streamsvd.data.kinds import open_data
from streamsvd.data.strips import SparseStrips
from streamsvd.options import Ask
from streamsvd.passes.factor import FactorSum, draw_test, nystroem
from streamsvd.passes.strips import sum_strips
from streamsvd.plan import FIXED_BYTES, choose_sum, make_factor_plan
from streamsvd.problem import Problem

N, SAMPLES, P, SIZE = 60, 500, 3, 8


def planted(n: int = N, n_samples: int = SAMPLES, size: int = SIZE) -> np.ndarray:
    """Samples as rows: groups of features that move together, in noise, of several scales."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n_samples, n))
    for c in range(P):
        X[:, c * size : (c + 1) * size] += (6 - c) * random.standard_normal((n_samples, 1))
    return X + np.linspace(-3, 5, n)


def counts() -> sparse.csr_array:
    """Mostly zeros; some samples and some features have none but these."""
    X = np.maximum(planted() - 4, 0).round()
    X[::50] = 0
    X[7] = np.arange(N) % 2 + 1  # no feature is constant
    return sparse.csr_array(X)


X, SPARSE = planted(), counts()
GROUPS = {frozenset(range(SIZE * c, SIZE * c + SIZE)) for c in range(P)}
MODEL = StreamingSparsePCA(P, max_nonzeros=P * SIZE, reduction="factor", rank=20)
CUTS = {
    "one batch": [],
    "one sample, the rest": [1],
    "batches of 100": list(range(100, SAMPLES, 100)),
    "single samples": list(range(1, 40)),
    "around a leaf": [15, 16, 17, 47, 48, 49, 400],
    "last sample alone": [SAMPLES - 1],
}


def split(data: Any, cuts: list[int]) -> list[Any]:
    bounds = [0, *cuts, data.shape[0]]
    return [data[a:b] for a, b in pairwise(bounds)]


def fitted(model: StreamingSparsePCA, data: Any, cuts: list[int]) -> StreamingSparsePCA:
    made = clone(model)
    for batch in split(data, cuts):
        made.partial_fit(batch)
    return made


def same_bits(model: Any, other: Any) -> None:
    for name in ("components_", "explained_variance_", "singular_values_", "mean_", "scale_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=name)
    one, two = model.result_, other.result_
    assert one.covariance.factor.tobytes() == two.covariance.factor.tobytes()
    assert one.covariance.rest.tobytes() == two.covariance.rest.tobytes()
    assert (one.total_energy, one.n_samples) == (two.total_energy, two.n_samples)


def supports(model: Any) -> set[frozenset[int]]:
    return {frozenset(row.nonzero()[0].tolist()) for row in model.components_}


def variances(model: Any, data: np.ndarray) -> np.ndarray:
    """What is true of the components, divisor ``N - 1``."""
    Y = (data - model.mean_) / model.scale_
    return np.sum((Y @ model.components_.T) ** 2, axis=0) / (len(data) - 1)


# ------------------------------------------------------------------------------- right numbers


def summed(data: Any, center: str | None, normalize: str | None, rank: int) -> FactorSum:
    total = FactorSum(N, rank, center, normalize, 2)
    for batch in split(data, [90, 95, 300]):
        source = open_data(batch, Ask(0))
        total.extend(sum_strips(source, total.takes_sparse(source)))
    return total


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
@pytest.mark.parametrize("data", [X, SPARSE], ids=["dense", "csr"])
def test_factor_equals_the_twin(
    small: None, data: Any, center: str | None, normalize: str | None
) -> None:
    """Of the random matrix that two passes begin with, whatever the cut."""
    source = open_data(data, Ask(0))
    with summed(data, center, normalize, 12) as total:
        made = nystroem(total.result())
    dense = data.toarray() if sparse.issparse(data) else data
    A, mean, scale = naive.covariance(dense.T, center, normalize)
    test = draw_test(source, center, normalize, 12) * scale[:, None]
    B, d = naive.nystroem(A, test)
    whole = made.factor @ made.factor.T + np.diag(made.rest)
    np.testing.assert_allclose(whole, B @ B.T + np.diag(d), rtol=0, atol=1e-9 * np.trace(A))
    np.testing.assert_allclose(made.diagonal, np.diag(A), rtol=1e-11)
    np.testing.assert_allclose(made.preprocessing.mean, mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(made.preprocessing.scale, scale, rtol=1e-11)


@pytest.mark.parametrize("normalize", [None, "features"])
@pytest.mark.parametrize("large", [1.0, 1e6])
def test_planted_components_are_found(normalize: str | None, large: float) -> None:
    """Where features are scaled, also beside noise that is a million times larger."""
    data = planted()
    if normalize is not None:
        data[:, -20:] *= large
    made = fitted(clone(MODEL).set_params(normalize=normalize), data, [100, 300])
    assert supports(made) == GROUPS
    true = variances(made, data)
    np.testing.assert_allclose(made.explained_variance_, true, rtol=0.15)
    np.testing.assert_allclose(made.components_ @ made.components_.T, np.eye(P), atol=1e-12)


def test_features_that_begin_nearly_constant_do_not_drown_others(small: None) -> None:
    """As where the first samples have noise of 1e-40 instead of zeros."""
    data = planted()
    data[:400, -5:] *= 1e-40
    made = fitted(clone(MODEL).set_params(normalize="features", rank=40), data, [100])
    expected = StreamingSparsePCA(P, max_nonzeros=P * SIZE, normalize="features")
    expected.fit(data)
    share = variances(made, data).sum() / expected.explained_variance_.sum()
    assert share > 0.98


@pytest.mark.parametrize("n_samples", [P, 7, 19])
@pytest.mark.parametrize("center", [None, "features"])
def test_fewer_samples_than_the_rank(n_samples: int, center: str | None) -> None:
    """The factor has as much as there is, and its variances are the true ones."""
    data = X[:n_samples]
    made = fitted(clone(MODEL).set_params(center=center), data, [1])
    np.testing.assert_allclose(made.explained_variance_, variances(made, data), rtol=1e-6)
    total = np.sum((data - made.mean_) ** 2)
    assert made.result_.total_energy == pytest.approx(total, rel=1e-12)


# -------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
@pytest.mark.parametrize("data", [X, SPARSE], ids=["dense", "csr"])
def test_same_bits_for_any_cut(
    small: None, data: Any, center: str | None, normalize: str | None
) -> None:
    model = clone(MODEL).set_params(center=center, normalize=normalize, n_threads=2)
    one = fitted(model, data, [250])
    for cuts in CUTS.values():
        same_bits(fitted(model, data, cuts), one)


@pytest.mark.parametrize("data", [X, SPARSE], ids=["dense", "csr"])
@pytest.mark.parametrize("normalize", [None, "features"])
def test_batches_go_on(small: None, data: Any, normalize: str | None) -> None:
    """Looking at the components, copying or pickling does not end the sum, nor change its bits."""
    model = clone(MODEL).set_params(normalize=normalize)
    made = clone(model)
    for k, batch in enumerate(split(data, [10, 30, 300, 301])):
        made.partial_fit(batch)
        made = pickle.loads(pickle.dumps(made)) if k % 2 else copy.deepcopy(made)
        same_bits(made, fitted(model, data[: made.n_samples_seen_], []))
    assert made.n_samples_seen_ == SAMPLES
    assert not hasattr(clone(made), "components_")


@pytest.mark.usefixtures("narrow_strips")
@pytest.mark.parametrize("data", [X, SPARSE], ids=["dense", "csr"])
def test_a_batch_that_fails_changes_nothing(
    small: None, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though some of its strips were good."""
    monkeypatch.setattr(sizes, "STRIP_BYTES", 2000)
    made = fitted(MODEL, data[:200], [])
    bad = data[200:400].copy()
    if sparse.issparse(bad):
        bad = bad.tolil()
    bad[150, 3] = np.inf
    with pytest.raises(SourceError, match="holds inf at feature 3, sample 150"):
        made.partial_fit(bad)
    made.partial_fit(data[200:])
    same_bits(made, fitted(MODEL, data, []))


def test_sparse_batches_are_not_made_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fitted(MODEL, SPARSE, [])

    def refuse(*arguments: Any) -> None:
        raise AssertionError("was read as a dense array")

    with monkeypatch.context() as patched:
        patched.setattr(SparseStrips, "_read", refuse)
        same_bits(fitted(MODEL, SPARSE, [100]), first)
        with pytest.raises(AssertionError, match="dense"):  # where the first batch was
            fitted(MODEL, SPARSE.toarray(), []).partial_fit(SPARSE)
    mixed = clone(MODEL).partial_fit(SPARSE[:100]).partial_fit(SPARSE[100:].toarray())
    same_bits(mixed, first)
    mixed = clone(MODEL).partial_fit(SPARSE[:100].toarray())
    mixed.partial_fit(write_zarr(tmp_path / "x", SPARSE[100:].toarray(), (30, 7)))
    same_bits(mixed, fitted(MODEL, SPARSE.toarray(), []))
    np.testing.assert_allclose(mixed.explained_variance_, first.explained_variance_, rtol=1e-6)


# -------------------------------------------------------------------- what is exact, and is said


def test_variances_of_a_factor_are_not_passed_off_as_those_of_the_data(tmp_path: Path) -> None:
    data = normal(400, 200) * np.linspace(1, 3, 200)  # of no low rank
    model = StreamingSparsePCA(P, max_fill=0.2, reduction="factor", rank=20)
    made = fitted(model, data, [150])
    result, true = made.result_, variances(made, data)
    assert not result.is_exact
    assert result.settings["batches"] is True
    assert (result.settings["reduction"], result.settings["rank"]) == ("factor", 20)
    assert "of a factor; accuracy(X) measures" in repr(result)
    assert "explained_variance=~" in repr(result)
    assert result.explained_variance.sum() > 1.1 * true.sum()  # the search likes its errors
    assert result.total_energy == pytest.approx(np.sum((data - data.mean(axis=0)) ** 2))
    share = true.sum() / data.var(axis=0, ddof=1).sum()
    assert result.accuracy(data, sample_axis=0).captured_variance == pytest.approx(share, rel=1e-9)

    result.save(tmp_path / "r.zarr")
    again = SVDResult.load(tmp_path / "r.zarr")
    assert repr(again) == repr(result)
    assert not again.is_exact

    more = result.refine(max_fill=0.3)  # there may be no data to give
    assert not more.is_exact
    more = result.refine(data, max_fill=0.3)
    assert more.is_exact
    assert "of a factor" not in repr(more)
    energies = np.sum((more.components @ (data - data.mean(axis=0)).T) ** 2, axis=1)
    np.testing.assert_allclose(more.explained_variance * (len(data) - 1), energies, rtol=1e-9)
    with pytest.raises(OptionError, match="needs the data of the fit"):
        again.refine(max_fill=0.3)


def test_the_gram_matrix_of_batches_is_exact() -> None:
    made = fitted(clone(MODEL).set_params(reduction=None, rank=None), X, [100])
    assert made.result_.is_exact
    assert made.result_.settings["batches"] is True
    np.testing.assert_allclose(made.explained_variance_, variances(made, X), rtol=1e-10)
    assert not made.fit(X).result_.settings["batches"]


# ------------------------------------------------------------------------------ choice, memory

MIB = 2**20
CHOICES = [
    # n, memory: form
    (60, 300 * MIB, "gram"),
    (784, 300 * MIB, "gram"),
    (5000, 2048 * MIB, "gram"),
    (5000, 600 * MIB, "factor"),
    (5001, 2**40, "factor"),
    (1_000_000, 2**40, "factor"),
]


def of_batches(n: int, p: int = P, n_samples: int = 4096) -> Problem:
    return Problem(
        n_features=n,
        n_samples=n_samples,
        n_components=p,
        n_transforms=0,
        dtype=np.dtype(np.float64),
        in_batches=True,
    )


@pytest.mark.parametrize(("n", "memory", "form"), CHOICES)
def test_choice(n: int, memory: int, form: str) -> None:
    found, why = choose_sum(of_batches(n), memory)
    assert found == form
    assert "X X^T" in why


def test_rank_without_one() -> None:
    assert [of_batches(1000, p).factor_rank for p in (1, 10, 15, 60)] == [200, 200, 300, 1000]


def test_the_choice_is_made_and_logged_at_the_first_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="streamsvd"):
        made = StreamingSparsePCA(P, max_nonzeros=60).partial_fit(planted(6000, 5, 20))
    assert "a factor of rank 200 from one pass instead; X X^T as a factor" in caplog.text
    made.partial_fit(planted(6000, 20, 20))
    assert made.result_.settings["rank"] == 200
    greedy = StreamingSparsePCA(P, refine=False, memory_limit="2GiB").partial_fit(X)
    assert greedy.result_.settings["reduction"] == "gram"


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_wide_batches_in_little_memory(kind: str) -> None:
    """Of 20000 features, whose Gram matrix would take 3 GiB; no more than is planned."""
    n, n_samples, size = 20_000, 300, 50
    data: Any = planted(n, n_samples, size).astype(np.float32)
    if kind == "csr":
        data = sparse.csr_array(np.where(np.abs(data - data.mean(axis=0)) > 2.5, data, 0))
    model = StreamingSparsePCA(P, max_nonzeros=P * size, rank=40, reduction="factor")
    made, batches = clone(model), split(data, [60, 120, 130, 250])
    fitted(model, data[:20, :N], [])  # compiles
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for batch in batches:
        made.partial_fit(batch)
    assert supports(made) == {frozenset(range(size * c, size * (c + 1))) for c in range(P)}
    taken = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    problem = of_batches(n, n_samples=n_samples)
    plan = make_factor_plan(Problem(**vars(problem) | {"rank": 40}), memory_limit=2**40)
    assert taken <= plan.peak_memory - FIXED_BYTES
    assert taken < 8 * n * n / 20


# ------------------------------------------------------------------------------------- refusals

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"reduction": "samples"}, r'"samples" needs all samples at once.*"gram" or "factor" with'),
    ({"reduction": "factor", "refine": False}, "pass refine=True"),
    ({"reduction": "gram", "rank": 9}, 'pass reduction="factor" too'),
    ({"reduction": "factor", "rank": 0}, "rank must be an integer"),
    ({"n_components": 0}, "n_components must be"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_refused_before_the_first_batch(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        StreamingSparsePCA(**{"n_components": P, **options}).partial_fit(X)


@pytest.mark.parametrize("form", ["gram", "factor"])
def test_what_does_not_fit_is_refused_before_it_is_added(form: str) -> None:
    model = StreamingSparsePCA(P, reduction=form, memory_limit="200MiB")
    with pytest.raises(ResourceError, match=r"memory_limit is 200.00 MiB; raise it"):
        model.partial_fit(normal(2, 30_000))
    assert not hasattr(model, "components_")


CHANGED: list[tuple[dict[str, Any], str]] = [
    ({"rank": 30}, "rank=20, not 30"),
    ({"reduction": "gram", "rank": None}, "reduction='factor', not 'gram'"),
    ({"center": None}, "center='features', not None"),
    ({"normalize": "features"}, "normalize=None, not 'features'"),
]


@pytest.mark.parametrize(("options", "words"), CHANGED)
def test_other_options_than_those_of_the_batches(options: dict[str, Any], words: str) -> None:
    made = fitted(MODEL, X, [100]).set_params(**options)
    with pytest.raises(OptionError, match=f"{words}: add them again"):
        made.transform(X)
    same_bits(made.set_params(**MODEL.get_params()), fitted(MODEL, X, []))
    made.set_params(max_nonzeros=12).partial_fit(X)
    assert made.result_.n_nonzeros <= 12
    with pytest.raises(OptionError, match=f"n_components=2 was {P} in the call before"):
        made.set_params(n_components=2).partial_fit(X)
