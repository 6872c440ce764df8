"""The Gram matrix from one pass: right to rounding, the same bits for any cut, small in memory."""

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from helpers import COMBINATIONS, TWO_PASSES, normal, write_zarr
from threadpoolctl import threadpool_limits

from streamsvd import (
    OptionError,
    ResourceError,
    SourceError,
    sizes,
    sparse_pca,
    sparse_pca_cv,
    sparse_svd,
)
from streamsvd.data.kinds import open_data
from streamsvd.data.source import Source
from streamsvd.options import Ask, Options
from streamsvd.passes import gram
from streamsvd.passes.gram import gram_matrix
from streamsvd.plan import FIXED_BYTES, make_gram_plan
from streamsvd.problem import Problem
from streamsvd.sizes import STRIP_BYTES, batch_samples, gram_sums


def of(x: Any, center: str | None = None, normalize: str | None = None, **options: Any) -> Any:
    """The Gram matrix, and the preprocessing, of anything that can be opened."""
    return gram_matrix(open_data(x, Ask(1)), center, normalize, **options)


@contextmanager
def small_blocks(n_features: int, samples: int = 64, panel: int = 7) -> Iterator[None]:
    """Few samples in a block and few rows in a panel, so that small data has many of both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "BATCH_BYTES", 8 * n_features * samples)
        patch.setattr(gram, "panel_rows", lambda n: panel)
        yield


def uneven(n: int, n_samples: int, seed: int = 0) -> np.ndarray:
    """Features of other means and spreads."""
    spread = np.linspace(1, 5, n)[:, None]
    return normal(n, n_samples, seed) * spread + np.linspace(-20, 30, n)[:, None]


# ------------------------------------------------------------------------------- right numbers


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
@pytest.mark.parametrize("shape", [(13, 300), (20, 5), (1, 70), (300, 64), (5, 1)])
def test_equals_numpy(center: str | None, normalize: str | None, shape: tuple[int, int]) -> None:
    if normalize == "features" and 1 in shape:
        pytest.skip("no variance")
    X = uneven(*shape)
    Y, mean, scale = naive.preprocess(X, center, normalize)
    with small_blocks(shape[0]):
        A, preprocessing = of(X, center, normalize)
    # sums of squares, relative to the largest before centring cancels
    size = np.sum(X**2, axis=1).max() / scale.min() ** 2
    np.testing.assert_allclose(A, Y @ Y.T, rtol=1e-12, atol=1e-13 * size)
    np.testing.assert_array_equal(A, A.T)
    np.testing.assert_allclose(preprocessing.mean, mean, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(preprocessing.scale, scale, rtol=1e-12)
    assert (preprocessing.center, preprocessing.normalize) == (center, normalize)


def test_two_passes_are_refused() -> None:
    X = uneven(5, 30)
    words = r"normalize=\"samples\" needs the means before the norms, two passes"
    with pytest.raises(OptionError, match=words):
        of(X, *TWO_PASSES)
    with pytest.raises(OptionError, match=words):
        Options(n_components=2, reduction="gram", center="features", normalize="samples")
    with pytest.raises(OptionError, match=words):
        sparse_pca(X, 2, normalize="samples")


def test_two_passes_are_refused_before_the_run_that_would_be_refined() -> None:
    """Refinement needs the Gram matrix: that it cannot be had is known at the start."""
    with pytest.raises(OptionError, match="two passes"):
        Options(n_components=2, center="features", normalize="samples", refine=True)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_float32_with_a_large_mean(offset: float) -> None:
    """scikit-learn's covariance_eigh gives 14.69 instead of 4.05 for the like of this."""
    X = (normal(20000, 10) * np.linspace(2, 1, 10) + offset).astype("f4")
    exact = np.cov(X.astype("f8"), rowvar=False)
    A, _ = gram_matrix(open_data(X, Ask(0)), "features", None)
    np.testing.assert_allclose(A / 19999, exact, rtol=0, atol=1e-10)
    values = np.linalg.eigvalsh(exact)[::-1]
    for p in (1, 3):
        result = sparse_pca(X, p, max_fill=1.0, sample_axis=0)
        assert result.explained_variance.sum() == pytest.approx(values[:p].sum(), rel=1e-5)


def test_a_large_offset_costs_no_digits_whatever_the_first_sample() -> None:
    """The first sample is the shift; many stores begin with one of zeros."""
    X = uneven(6, 2000) + 1e5
    X[:, 0] = 0
    Y = X - X.mean(axis=1, keepdims=True)
    A, preprocessing = of(X, "features")
    np.testing.assert_allclose(A, Y @ Y.T, rtol=1e-11)
    np.testing.assert_allclose(preprocessing.mean, X.mean(axis=1), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "float16"])
def test_small_types_do_not_overflow(dtype: str) -> None:
    kind = np.dtype(dtype)
    if dtype == "bool":
        X = normal(6, 400) > 0
    elif kind.kind == "f":
        X = (normal(6, 400) * 60000).clip(-65504, 65504).astype(dtype)
    else:
        info = np.iinfo(dtype)
        X = np.random.default_rng(0).integers(info.min, info.max, (6, 400), dtype, endpoint=True)
        X[0, :100] = info.max
        X[1, :100] = info.min
    for center, normalize in COMBINATIONS:
        A, _ = of(X, center, normalize)
        Y = naive.preprocess(X.astype("f8"), center, normalize)[0]
        np.testing.assert_allclose(A, Y @ Y.T, rtol=1e-11, atol=1e-12 * np.abs(Y @ Y.T).max())
    explained = sparse_pca(X, 2, max_fill=1.0).explained_variance.sum()
    best = np.linalg.eigvalsh(np.cov(X.astype("f8")))[-2:].sum()
    assert explained == pytest.approx(best, rel=1e-4)


# -------------------------------------------------------------------------------- the same bits

N, SAMPLES = 20, 1100


def sources(folder: Path, width: int) -> dict[str, Any]:
    """The same numbers as Zarr and as Dask, in chunks of `width` samples."""
    X = uneven(N, SAMPLES)
    path = write_zarr(folder / f"{width}.zarr", X, (N, min(width, SAMPLES)))
    return {"zarr": path, "dask": da.from_array(X, chunks=(6, width))}


@pytest.mark.parametrize("width", [1, 7, 1000, SAMPLES])
def test_same_bits_for_any_chunks(width: int, tmp_path: Path) -> None:
    with small_blocks(N):
        expected, learned = of(uneven(N, SAMPLES), "samples", "features")
        for kind, x in sources(tmp_path, width).items():
            # strips of a few chunks, unless the chunks are so small that it would take long
            step = max(3 * width, 100)
            A, preprocessing = of(x, "samples", "features", width=step)
            assert A.tobytes() == expected.tobytes(), kind
            assert preprocessing.mean.tobytes() == learned.mean.tobytes(), kind
            assert preprocessing.scale.tobytes() == learned.scale.tobytes(), kind


@pytest.mark.parametrize("step", [1, 5, 63, 64, 65, SAMPLES])
def test_same_bits_for_any_strips(step: int) -> None:
    X = uneven(N, SAMPLES)
    with small_blocks(N):
        assert of(X, "features", width=step)[0].tobytes() == of(X, "features")[0].tobytes()


@pytest.mark.parametrize("blas", [1, 2])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_same_bits_for_any_threads(n_threads: int, blas: int) -> None:
    """At a size where OpenBLAS would take threads, and with several panels."""
    X = uneven(600, 800)
    with threadpool_limits(1, user_api="blas"):
        expected, _ = of(X, "features")
    with threadpool_limits(blas, user_api="blas"):
        assert of(X, "features", n_threads=n_threads)[0].tobytes() == expected.tobytes()


def test_progress_counts_all_samples() -> None:
    told: list[int] = []
    of(uneven(N, SAMPLES), width=90, on_samples=told.append)
    assert sum(told) == SAMPLES
    assert len(told) == -(-SAMPLES // 90)


def test_each_sample_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []
    original = Source.read

    def counted(self: Any, start: int, stop: int, dtype: Any) -> Any:
        read.append((start, stop))
        return original(self, start, stop, dtype)

    monkeypatch.setattr(Source, "read", counted)
    result = sparse_pca(uneven(N, SAMPLES), 3, max_fill=0.3)
    assert sum(stop - start for start, stop in read) == SAMPLES
    assert result.refined is not None


# -------------------------------------------------------------------------------------- refusals


def test_constant_features_cannot_be_scaled() -> None:
    X = uneven(7, 50)
    X[2], X[5] = 1 / 3, 1e9 + 0.1
    for center in (None, "features"):
        with pytest.raises(SourceError, match=r"2 feature\(s\).* are constant.*: 2, 5; drop them"):
            sparse_svd(X, 2, reduction="gram", center=center, normalize="features")


def test_a_constant_feature_is_fine_without_scaling() -> None:
    X = uneven(7, 50)
    X[2] = 1 / 3
    A, _ = of(X, "features")
    np.testing.assert_array_equal(A[2], 0)
    np.testing.assert_array_equal(A[:, 2], 0)
    assert 2 not in sparse_pca(X, 2, max_fill=0.5).components.indices


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(value: float) -> None:
    X = uneven(N, SAMPLES)
    X[3, 777] = value
    found = "NaN" if np.isnan(value) else value
    with pytest.raises(SourceError, match=rf"holds {found} at feature 3, sample 777"):
        sparse_pca(X, 2)


def test_too_large_for_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is read, with the figures and the remedy."""
    monkeypatch.setattr(Source, "read", lambda *args: pytest.fail("it was read"))
    X = np.broadcast_to(np.float32(1), (6000, 8000))
    with pytest.raises(ResourceError) as raised:
        sparse_svd(X, 3, reduction="gram", memory_limit="300MiB")
    for words in (
        "6000 x 6000",
        "274.70 MiB and is held 2 times",
        "memory_limit is 300.00 MiB",
        "raise it, or fit fewer features, see feature_mask",
    ):
        assert words in str(raised.value), words


def test_another_form_is_advised_where_it_can_be_asked_for() -> None:
    """Each function is told of its own arguments alone; the advice works."""
    X = np.zeros((3000, 40), dtype=np.float32)
    X[:30] = normal(30, 40)
    asked: dict[str, Any] = {"sample_axis": 1, "memory_limit": "290MiB"}
    gram = asked | {"reduction": "gram"}
    with pytest.raises(ResourceError, match=r'or pass reduction="factor"$'):
        sparse_pca(X, 3, **gram)
    assert sparse_pca(X, 3, **asked, reduction="factor").n_components == 3
    with pytest.raises(ResourceError, match=r"or fit fewer features, see feature_mask$"):
        sparse_pca(X, 3, refine=False, **gram)
    with pytest.raises(ResourceError, match=r"folds, or fit fewer features, see feature_mask$"):
        sparse_pca_cv(X, 3, max_fill=0.1, folds=2, **asked)


def of_gram(n: int, n_samples: int, p: int, **sizes: int) -> Problem:
    """A problem on ``X X^T``."""
    return Problem(
        n_features=n,
        n_samples=n_samples,
        n_components=p,
        n_transforms=1,
        dtype=np.dtype(np.float64),
        reduction="gram",
        **sizes,
    )


@pytest.mark.parametrize("n", [1, 100, 5000])
def test_the_plan_counts_two_matrices(n: int) -> None:
    problem = of_gram(n, 10**9, 1, source_chunk=10, source_itemsize=4)
    plan = make_gram_plan(problem, memory_limit=2**40)
    assert plan.in_memory
    assert (plan.disk, plan.row_move, plan.column_move) == (0, 0, 0)
    sums = max(2, gram_sums(n, 10**9))
    assert 0 <= plan.peak_memory - FIXED_BYTES - sums * 8 * n * n <= 5 * STRIP_BYTES
    with pytest.raises(ResourceError, match=f"the {n} x {n} Gram matrix"):
        make_gram_plan(problem, memory_limit=FIXED_BYTES + 16 * n * n)


# ---------------------------------------------------------------------------------------- memory


@contextmanager
def traced(peak: list[int]) -> Iterator[None]:
    """Put into `peak` what NumPy allocates at most meanwhile."""
    tracemalloc.start()
    try:
        yield
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("center", "normalize"), COMBINATIONS)
def test_memory_is_that_of_the_matrix(center: str | None, normalize: str | None) -> None:
    """And a block and two strips, as the docstring says; temporaries of n x n would double it."""
    n, n_samples = 1500, 100
    X = uneven(n, n_samples)
    of(X[:10, :20], center, normalize)  # compiles
    peak: list[int] = []
    with traced(peak):
        of(X, center, normalize, width=20)
    panel = gram.panel_rows(n)
    assert peak[0] <= 1.1 * 8 * n * n + 8 * n * (batch_samples(n) + 5 * 20 + panel)


@pytest.mark.parametrize("refine", [False, True])
def test_the_forecast_holds_for_a_whole_fit(refine: bool) -> None:
    n, n_samples = 1200, 150
    X = uneven(n, n_samples)
    options: dict[str, Any] = {"max_fill": 0.01, "refine": refine, "n_threads": 1}
    sparse_pca(X[:50], 3, **(options | {"max_fill": 0.1}))
    plan = make_gram_plan(of_gram(n, n_samples, 3), memory_limit=2**40)
    peak: list[int] = []
    with traced(peak):
        sparse_pca(X, 3, **options)
    # what is fixed is for libraries and compiling, not for matrices; strips are smaller here
    matrices = plan.peak_memory - FIXED_BYTES
    assert peak[0] <= matrices


RUN = """
import json, sys, threading
from pathlib import Path

def private():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

def watch():
    while not done.wait(0.002):
        seen.append(private())

import numpy as np
from streamsvd import sparse_pca

X = np.random.default_rng(0).standard_normal((20, 50))
sparse_pca(X, 2, max_fill=0.5, memory_limit="240MiB")
done, start, seen = threading.Event(), private(), []
watcher = threading.Thread(target=watch)
watcher.start()
try:
    result = sparse_pca(sys.argv[1], 5, max_fill=0.05, n_threads=1, memory_limit="240MiB")
finally:
    done.set()
watcher.join()
print(json.dumps({"taken": max(seen) - start, "nonzeros": result.n_nonzeros}))
"""

MB = 10**6
LIMIT = 400 * MB
"""Of private memory, libraries included."""


def fit_within(path: Path) -> int:
    """Bytes that a fit takes in a process that may not have more than `LIMIT`."""
    done = subprocess.run(
        ["prlimit", f"--data={LIMIT}", sys.executable, "-c", RUN, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(done.stdout)
    assert made["nonzeros"] <= 5 * 0.05 * 256
    return made["taken"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")
def test_memory_is_flat_in_the_number_of_samples(tmp_path: Path) -> None:
    """Stores of 60 MB and 600 MB, the latter more than the limit of the process."""
    taken = []
    for n_samples in (60_000, 600_000):
        array = zarr.create_array(
            tmp_path / f"{n_samples}.zarr",
            shape=(256, n_samples),
            chunks=(256, 4000),
            dtype="f4",
            compressors=None,
        )
        part = np.random.default_rng(0).standard_normal((256, 20_000), dtype="f4")
        for start in range(0, n_samples, 20_000):
            array[:, start : start + 20_000] = part
        taken.append(fit_within(tmp_path / f"{n_samples}.zarr"))
    assert LIMIT < 600_000 * 256 * 4
    assert max(taken) <= 5 * STRIP_BYTES + 20 * 256**2
    assert taken[1] <= 1.2 * taken[0]
