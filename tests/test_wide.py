"""`sparse_pca` for any number of features: three forms of ``X X^T``, and refined paths."""

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import write_zarr
from scipy import sparse

from streamsvd import (
    OptionError,
    ResourceError,
    StreamingSparsePCA,
    SVDResult,
    plan_svd,
    sparse_pca,
    sparse_svd,
)
from streamsvd.cli.commands import main
from streamsvd.plan import choose_reduction
from streamsvd.problem import Problem
from streamsvd.sizes import search_threads

N, SAMPLES, P, BUDGET = 400, 90, 3, 60
FORMS = ["gram", "samples", "factor"]


def planted(n: int = N, n_samples: int = SAMPLES, size: int = 20, seed: int = 0) -> np.ndarray:
    """Groups of features that move together, in noise."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, n_samples))
    for c in range(P):
        X[c * size : (c + 1) * size] += (6 - c) * random.standard_normal(n_samples)
    return X + np.linspace(-3, 5, n)[:, None]


X = planted()


def supports(result: SVDResult) -> set[frozenset[int]]:
    return {frozenset(row.nonzero()[0].tolist()) for row in result.components.toarray()}


@pytest.fixture(scope="module", params=FORMS)
def made(request: pytest.FixtureRequest) -> SVDResult:
    return sparse_pca(X, P, max_nonzeros=BUDGET, reduction=request.param)


def energies_of(result: SVDResult, data: np.ndarray = X) -> np.ndarray:
    centred = data - data.mean(axis=1, keepdims=True)
    return np.sum((result.components @ centred) ** 2, axis=1)


def test_each_form_finds_what_was_planted(made: SVDResult) -> None:
    groups = {frozenset(range(20 * c, 20 * c + 20)) for c in range(P)}
    assert supports(made) == groups
    rows = made.components.toarray()
    np.testing.assert_allclose(rows @ rows.T, np.eye(P), atol=1e-12)


def test_variances_are_exact_and_add_up(made: SVDResult) -> None:
    np.testing.assert_allclose(
        made.explained_variance * (SAMPLES - 1), energies_of(made), rtol=1e-10
    )
    total = np.sum((X - X.mean(axis=1, keepdims=True)) ** 2)
    ratio = made.explained_variance.sum() * (SAMPLES - 1) / total
    assert made.explained_variance_ratio.sum() == pytest.approx(ratio, rel=1e-10)


def test_saved_and_loaded(made: SVDResult, tmp_path: Path) -> None:
    made.save(tmp_path / "r.zarr")
    again = SVDResult.load(tmp_path / "r.zarr")
    assert again.components.toarray().tobytes() == made.components.toarray().tobytes()
    np.testing.assert_array_equal(again.explained_variance, made.explained_variance)
    assert repr(again) == repr(made)
    np.testing.assert_array_equal(again.transform(X), made.transform(X))
    assert again.refine(X, max_nonzeros=2 * BUDGET).explained_variance.sum() > (
        made.explained_variance.sum()
    )


def test_other_budgets_from_the_same_pass(made: SVDResult) -> None:
    data = X if made.settings["reduction"] == "factor" else None
    fills = [0.01, 0.05, 0.1, 0.2]
    path = made.refine_path(data, max_fill=[0.2, 0.01, 0.05, 0.1])
    found = dict(zip([0.2, 0.01, 0.05, 0.1], path, strict=True))
    shares = [found[fill].explained_variance_ratio.sum() for fill in fills]
    assert shares == sorted(shares)
    for fill in fills:
        assert found[fill].fill <= fill
        np.testing.assert_allclose(
            found[fill].explained_variance * (SAMPLES - 1), energies_of(found[fill]), rtol=1e-9
        )
    assert found[0.01].fill < made.fill
    earlier = made.at(fill=0.01)
    assert energies_of(found[0.01]).sum() >= energies_of(earlier).sum() * (1 - 1e-12)


def test_the_greedy_path_of_each_form(made: SVDResult) -> None:
    """That of the Gram matrix, as all features are rotated here; the factor's is near it."""
    exact = sparse_pca(X, P, max_nonzeros=BUDGET, reduction="gram")
    path, expected = made.path(), exact.path()
    assert len(made.log) > P
    assert path["n_nonzeros"][-1] <= BUDGET
    if made.settings["reduction"] == "factor":
        assert path["explained_variance"][-1] >= 0.9 * expected["explained_variance"][-1]
    else:
        np.testing.assert_array_equal(made.pairs, exact.pairs)
        np.testing.assert_array_equal(path["n_nonzeros"], expected["n_nonzeros"])
        np.testing.assert_allclose(
            path["explained_variance"], expected["explained_variance"], rtol=1e-10
        )
    point = made.at(fill=0.03)
    rows = point.components.toarray()
    np.testing.assert_allclose(rows @ rows.T, np.eye(P), atol=1e-12)
    assert point.fill <= 0.03


@pytest.mark.parametrize("form", ["samples", "factor"])
def test_the_greedy_path_of_the_features_that_count(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many features those are rotated that the leading components explain."""
    monkeypatch.setattr("streamsvd.problem.MOST_ROTATED", 70)
    made = sparse_pca(X, P, max_nonzeros=BUDGET, reduction=form, n_transforms=200)
    explained = made.log.order[:70]
    assert set(range(60)) <= set(explained.tolist())
    assert made.pairs.max() < 70
    chosen = np.sort(explained)
    alone = sparse_pca(X[chosen], P, max_nonzeros=BUDGET, reduction="gram", n_transforms=200)
    if form == "samples":
        whole = made.at(len(made.log)).components.toarray()
        np.testing.assert_allclose(
            whole[:, chosen], alone.at(len(alone.log)).components.toarray(), atol=1e-10
        )
        assert not np.delete(whole, chosen, axis=1).any()
    path_end = made.at(len(made.log))
    assert energies_of(path_end).sum() >= 0.8 * energies_of(made).sum()


def test_a_path_has_so_many_transforms_as_asked_for() -> None:
    made = sparse_pca(X, P, max_nonzeros=BUDGET, reduction="factor", n_transforms=7)
    assert len(made.log) == 7
    assert made.n_nonzeros > P + 7


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [2.0**-20, 1e-6, 2.0**40, 1e6])
def test_scaled_data_have_the_same_supports(form: str, scale: float) -> None:
    noisy = np.random.default_rng(1).standard_normal((60, 200)) * np.linspace(1, 3, 60)[:, None]
    one = sparse_pca(noisy, P, max_fill=0.2, reduction=form)
    other = sparse_pca(noisy * scale, P, max_fill=0.2, reduction=form)
    if np.log2(scale).is_integer():
        assert other.components.toarray().tobytes() == one.components.toarray().tobytes()
    assert supports(other) == supports(one)


def test_same_bits_for_any_number_of_threads_that_search() -> None:
    """There are several where there are thousands of features."""
    wide = planted(2500, 40)
    assert search_threads(2500, P, 3) == 3
    asked: dict[str, Any] = {"max_nonzeros": 200, "reduction": "samples", "sample_axis": 1}
    one, *others = (sparse_pca(wide, P, n_threads=n, **asked) for n in (1, 2, 5))
    for other in others:
        assert other.components.toarray().tobytes() == one.components.toarray().tobytes()
        np.testing.assert_array_equal(other.explained_variance, one.explained_variance)


def test_an_interruption_does_not_wait_for_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, released = [], threading.Event()

    def interrupted(goal: Any, start: Any) -> Any:
        calls.append(threading.current_thread().name)
        if len(calls) == 1:
            raise KeyboardInterrupt
        released.wait(60)

    monkeypatch.setattr("streamsvd.refinement.search._within", interrupted)
    wide, began = planted(2500, 40), time.monotonic()
    asked: dict[str, Any] = {"max_nonzeros": 200, "reduction": "samples", "sample_axis": 1}
    with pytest.raises(KeyboardInterrupt):
        sparse_pca(wide, P, n_threads=2, **asked)
    took = time.monotonic() - began
    released.set()
    assert took < 30
    assert all(name.startswith("streamsvd-search") for name in calls)


@pytest.mark.parametrize("form", ["samples", "factor"])
def test_same_bits_from_any_source(form: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_nonzeros": BUDGET, "reduction": form, "normalize": "features"}
    one = sparse_pca(X, P, **options)
    for k, chunks in enumerate([(N, 7), (33, 50), (N, SAMPLES)]):
        store = write_zarr(tmp_path / f"{k}.zarr", X, chunks)
        again = sparse_pca(store, P, n_threads=1 + k % 2, **options)
        assert again.components.toarray().tobytes() == one.components.toarray().tobytes()
        np.testing.assert_array_equal(again.explained_variance, one.explained_variance)


@pytest.mark.parametrize("form", FORMS)
def test_sparse_sources(form: str) -> None:
    random = np.random.default_rng(3)
    counts = random.poisson(0.05, (SAMPLES, N)) + 0.0
    counts[:, :20] += random.poisson(2 * random.random((SAMPLES, 1)), (SAMPLES, 20))
    options: dict[str, Any] = {"max_nonzeros": BUDGET, "reduction": form}
    dense = sparse_pca(counts, P, sample_axis=0, **options)
    thin = sparse_pca(sparse.csr_array(counts), P, sample_axis=0, **options)
    share = thin.explained_variance.sum() / dense.explained_variance.sum()
    assert share == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(
        thin.explained_variance * (SAMPLES - 1), energies_of(thin, counts.T), rtol=1e-9
    )


# ------------------------------------------------------------------------------------- choosing


def sizes(n: int, n_samples: int, p: int = 15) -> Problem:
    return Problem(
        n_features=n,
        n_samples=n_samples,
        n_components=p,
        n_transforms=0,
        dtype=np.dtype(np.float64),
        source_chunk=100,
    )


GIB = 2**30
CHOICES = [
    # n, N, memory: form
    (784, 60_000, 8 * GIB, "gram"),
    (256, 9298, 8 * GIB, "gram"),
    (3000, 20_000, 8 * GIB, "gram"),
    (60, 20, 8 * GIB, "gram"),
    (5000, 100, 8 * GIB, "samples"),
    (47_192, 271, 3 * GIB, "samples"),
    (28_497, 1000, 3 * GIB, "samples"),
    (1_000_000, 400, 3 * GIB, "factor"),
    (100_000, 300_000, 8 * GIB, "factor"),
    (20_000, 10_000_000, 16 * GIB, "factor"),
]


@pytest.mark.parametrize(("n", "n_samples", "memory", "form"), CHOICES)
def test_choice(n: int, n_samples: int, memory: int, form: str) -> None:
    found, why = choose_reduction(sizes(n, n_samples), memory)
    assert found == form
    assert "X X^T" in why or "few" in why


def test_the_choice_is_recorded_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="streamsvd"):
        result = sparse_pca(planted(5000, 30), P, max_nonzeros=BUDGET, sample_axis=1)
    assert result.settings["reduction"] == "samples"
    assert "reduction='samples': 30 samples are few" in caplog.text
    assert re.search(r"reduction +samples\n", repr(result))


def test_little_memory_makes_a_factor() -> None:
    wide = planted(20_000, 2000, size=50)
    result = sparse_pca(wide, P, max_nonzeros=150, memory_limit="400MiB")
    assert result.settings["reduction"] == "factor"
    assert supports(result) == {frozenset(range(50 * c, 50 * c + 50)) for c in range(P)}


def test_plans() -> None:
    options: dict[str, Any] = {"max_fill": 0.1, "refine": True}
    for form, words in (("samples", "in one pass"), ("factor", "of rank 30, in three passes")):
        rank = {"rank": 30} if form == "factor" else {}
        assert words in plan_svd(X, P, reduction=form, **rank, **options).describe()
    with pytest.raises(ResourceError, match=r"lower rank|raise it"):
        plan_svd(X, P, reduction="factor", memory_limit="1MiB", **options)


PROBE = """
import json, resource, sys
import numpy as np
from pathlib import Path
from streamsvd import plan_svd, sparse_pca

path, form, n, p = sys.argv[1], sys.argv[2], int(sys.argv[3]), 3
options = {"max_nonzeros": 150, "reduction": form, "sample_axis": 0}
sparse_pca(np.random.default_rng(0).standard_normal((60, 80)), 3, max_fill=0.2, reduction=form)
plan = plan_svd(path, p, refine=True, center="features", **options)
lines = Path("/proc/self/status").read_text().splitlines()
used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
limit = used + plan.peak_memory
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
result = sparse_pca(path, p, memory_limit=plan.peak_memory, **options)
print(json.dumps({"nnz": result.n_nonzeros, "plan": plan.peak_memory}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["samples", "factor"])
def test_memory_is_what_is_planned(form: str, tmp_path: Path) -> None:
    """The whole fit, refinement included, under a limit of the operating system."""
    wide = planted(60_000, 300, size=50).astype(np.float32)
    store = write_zarr(tmp_path / "x.zarr", np.ascontiguousarray(wide.T), (50, 60_000))
    command = [sys.executable, "-c", PROBE, str(store), form, "60000"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout)
    assert told["nnz"] == 150
    assert told["plan"] < 160 * 2**20 + 2.5 * 8 * 60_000 * 300


# ----------------------------------------------------------------------------------- refusals

REFUSED = [
    ({"reduction": "factor"}, "pass refine=True and max_fill or max_nonzeros"),
    ({"reduction": "samples", "refine": True}, "pass refine=True and max_fill"),
    ({"reduction": "factor", "algorithm": "block", "refine": True}, "rotates pairs, not blocks"),
    ({"reduction": "samples", "rank": 5, "refine": True}, 'pass reduction="factor" too'),
    ({"reduction": "factor", "rank": 0, "refine": True}, "rank must be an integer of at least 1"),
    ({"reduction": "factor", "selection": "nuclear", "refine": True}, "scores zero everywhere"),
    ({"reduction": "lanczos"}, "reduction must be one of None, 'gram', 'samples', 'factor'"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        sparse_svd(X, P, **options)
    assert words in str(caught.value)


def test_a_factor_needs_the_data_again() -> None:
    result = sparse_pca(X, P, max_nonzeros=BUDGET, reduction="factor")
    with pytest.raises(OptionError, match="needs the data of the fit"):
        result.refine(max_nonzeros=2 * BUDGET)


# ------------------------------------------------------------------------- estimators, shell


def test_estimator() -> None:
    model = StreamingSparsePCA(P, max_nonzeros=BUDGET, reduction="factor", rank=40).fit(X.T)
    assert model.components_.shape == (P, N)
    assert model.result_.settings["rank"] == 40
    share = float(model.explained_variance_ratio_.sum())
    measured = model.result_.accuracy(X, sample_axis=1).captured_variance
    assert measured == pytest.approx(share, rel=1e-9)


def test_batches_are_summed_up_to_the_gram_matrix() -> None:
    model = StreamingSparsePCA(P, max_nonzeros=BUDGET)
    for batch in np.array_split(X.T, 4):
        model.partial_fit(batch)
    assert model.result_.settings["reduction"] == "gram"


def test_command_line(tmp_path: Path) -> None:
    store, out = write_zarr(tmp_path / "x.zarr", X, (N, 30)), tmp_path / "r.zarr"
    words = ["pca", store, "--components", P, "--max-nonzeros", BUDGET, "--reduction", "factor"]
    run = CliRunner().invoke(main, [*map(str, words), "--rank", "50", "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert SVDResult.load(out).settings["rank"] == 50
