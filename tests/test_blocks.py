"""Fits by block steps: the invariants, the slow twin, the same bits, going on after a crash."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import zarr
from helpers import PLACES, bits, blocks_of, differences, fit_in_blocks, normal, write_zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from test_invariants import SHAPES, Case, cases
from test_resume import crash, go_on

import streamsvd.fitting.run
from streamsvd import OptionError, SVDResult, sparse_svd
from streamsvd.algorithm.block_log import BlockLog
from streamsvd.algorithm.replay import replay
from streamsvd.matrix import tiled
from streamsvd.matrix.working import WorkingMatrix

SELECTIONS = ("nuclear", "gain", "kogbetliantz", "random")
FEW = settings(max_examples=60)


@st.composite
def block_cases(draw: st.DrawFn, **options: Any) -> Case:
    """As `cases`, with up to eight block steps."""
    case = draw(cases(**options))
    case.options.pop("batch_size", None)
    case.options |= {"algorithm": "block", "n_transforms": draw(st.integers(0, 8))}
    return case


def replayed(X: np.ndarray, log: BlockLog) -> Iterator[np.ndarray]:
    """The dense float64 working matrix before the first step and after each."""
    X = np.array(X, dtype=float)
    yield X
    for k in range(len(log)):
        indices, g, h = log.step(k)
        rows, columns = indices[: len(g)], indices[: len(h)]
        X[rows] = g.T @ X[rows]
        X[:, columns] = X[:, columns] @ h
        yield X


# ---------------------------------------------------------------------------------- invariants


@FEW
@given(
    block_cases(),
    st.sampled_from(PLACES),
    st.integers(1, 31),
    st.integers(1, 4),
    st.sampled_from([5, tiled.WIDTH]),
    st.none() | st.tuples(st.integers(1, 10), st.integers(1, 31)),
)
def test_same_bits_for_any_chunks_and_threads(
    case: Case,
    place: str,
    width: int,
    n_threads: int,
    tile: int,
    chunks: tuple[int, int] | None,
) -> None:
    """`chunks` of a Zarr source, None for an array; also in tiles narrower than the data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled, "WIDTH", tile)
        whole = case.fit()
        X: Any = case.X
        if chunks:
            config = {"write_empty_chunks": True}
            store = zarr.storage.MemoryStore()
            X = zarr.create_array(store, data=X, chunks=chunks, config=config)
        cut = fit_in_blocks(
            X, case.n_components, width=width, place=place, n_threads=n_threads, **case.options
        )
    assert differences(cut, whole) == []


@FEW
@given(block_cases(), st.data())
def test_any_step_of_the_path_is_the_fit_that_ends_there(case: Case, data: st.DataObject) -> None:
    result = case.fit()
    k = data.draw(st.integers(0, len(result.log)))
    assert differences(result.at(k), case.fit(n_transforms=k), path_only=True) == []


@FEW
@given(block_cases(plain=True))
def test_orthonormal_monotone_and_true_to_the_data(case: Case) -> None:
    result = case.fit()
    X, tolerance = case.X.astype(float), case.rounding * case.norm
    U, V = result.log.components(len(result.log)), result.log.right_vectors(len(result.log))
    for rows in (U, V, result.components, result.right):
        products = (rows @ rows.T).toarray()
        assert np.max(np.abs(products - np.eye(case.n_components))) < 1e-12
    trace = np.concatenate([[result.initial_diagonal.sum()], result.history.trace])
    assert np.all(np.diff(trace) >= -tolerance)
    bound = np.linalg.svd(X, compute_uv=False)[: case.n_components].sum()
    assert trace[-1] <= bound + tolerance
    diagonal = np.diag(U.toarray() @ X @ V.toarray().T)
    np.testing.assert_allclose(result._diagonal, diagonal, rtol=0, atol=tolerance)
    captured = np.sum((result.components @ X) ** 2, axis=1)
    expected = captured / case.norm**2 if case.norm else np.zeros(case.n_components)
    np.testing.assert_allclose(
        result.explained_variance_ratio, expected, rtol=0, atol=case.rounding
    )


@FEW
@given(block_cases(plain=True, dtypes=("float64",)))
def test_working_matrix_is_the_product_and_loses_no_energy(case: Case) -> None:
    X, tolerance = case.X, 1e-12 * case.norm
    result = sparse_svd(X, case.n_components, overwrite_x=True, **case.options)
    *_, expected = replayed(case.X, result.log)
    np.testing.assert_allclose(X, expected, rtol=0, atol=tolerance)
    assert abs(np.linalg.norm(X) - case.norm) <= tolerance


@FEW
@given(block_cases())
def test_fill_is_counted_from_supports(case: Case) -> None:
    result = case.fit()
    p, n = case.n_components, case.shape[0]
    supports = [{k} for k in range(n)]
    counts = []
    for k in range(len(result.log)):
        indices, g, _ = result.log.step(k)
        rows = indices[: len(g)].tolist()
        before = [supports[r] for r in rows]
        for b, r in enumerate(rows):
            supports[r] = set().union(*(s for s, x in zip(before, g[:, b], strict=True) if x))
        counts.append(sum(len(support) for support in supports[:p]))
    assert result.history.n_nonzeros.tolist() == counts
    assert result.n_nonzeros == (counts[-1] if counts else p) == result.components.nnz
    rows = result.log.components(len(counts))
    for row, support in enumerate(supports[:p]):
        a, b = rows.indptr[row : row + 2]
        assert set(rows.indices[a:b].tolist()) == support


@FEW
@given(block_cases(plain=True))
def test_each_step_takes_the_best_columns(case: Case) -> None:
    """Within rounding; the first p and as many as there should be, whatever the selection."""
    result = case.fit()
    p, width = case.n_components, min(2 * case.n_components, max(case.shape))
    tolerance = 10 * case.rounding * case.norm
    states = replayed(case.X, result.log)
    for indices in result.log.indices:
        X = next(states)
        assert np.all(np.diff(indices) > 0)
        assert len(indices) == width
        np.testing.assert_array_equal(indices[:p], np.arange(p))
        if case.options["selection"] != "random":
            best = naive.scores(X, p, case.options["selection"]).max(axis=0)
            p_th = np.sort(best)[-p]
            assert set(np.flatnonzero(best > p_th + tolerance)) <= set(indices.tolist())
    *_, X = replayed(case.X, result.log)
    if result.stopped == "converged":
        assert naive.scores(X, p, case.options["selection"]).max() <= tolerance


def test_orthonormal_after_many_steps() -> None:
    X = normal(12, 60)
    options: dict[str, Any] = {"selection": "random", "random_state": 0, "algorithm": "block"}
    result = sparse_svd(X, 3, n_transforms=2000, **options)
    for rows in (result.components, result.right):
        assert np.max(np.abs((rows @ rows.T).toarray() - np.eye(3))) < 1e-12
    captured = np.sum((result.components @ X) ** 2)
    assert abs(result.final_energies.sum() - captured) < 1e-12 * result.total_energy


# ------------------------------------------------------------------------------------- the twin


@pytest.mark.parametrize(("n", "N", "p"), SHAPES)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_run_is_the_naive_one(selection: str, n: int, N: int, p: int) -> None:
    X, m = normal(n, N, seed=n), 4
    options: dict[str, Any] = {"selection": selection, "random_state": 1, "algorithm": "block"}
    result = sparse_svd(X, p, n_transforms=m, **options)
    m = len(result.log)
    given_indices = result.log.indices if selection == "random" else None
    run = naive.algorithm1_block(X, p, m, selection, indices=given_indices)
    np.testing.assert_array_equal(result.log.indices, run.indices)
    np.testing.assert_allclose(result.history.trace, run.trace, atol=1e-11)
    ours, theirs = result.log.components(m).toarray(), run.U[:, :p].T
    np.testing.assert_allclose(np.abs(np.sum(ours * theirs, axis=1)), 1, atol=1e-11)


@pytest.mark.parametrize("selection", ["gain", "kogbetliantz", "random"])
def test_run_on_the_gram_matrix_is_the_naive_one(selection: str) -> None:
    X, p, m = normal(14, 90), 4, 5
    options: dict[str, Any] = {"selection": selection, "random_state": 2, "algorithm": "block"}
    result = sparse_svd(X, p, n_transforms=m, reduction="gram", pivot=True, **options)
    order = result.log.order
    A = (X @ X.T)[np.ix_(order, order)]
    given_indices = result.log.indices if selection == "random" else None
    run = naive.algorithm1_block(A, p, m, selection, indices=given_indices, symmetric=True)
    np.testing.assert_array_equal(result.log.indices, run.indices)
    np.testing.assert_allclose(result.history.trace, run.trace, rtol=1e-12)
    assert np.all(np.diff(result.history.explained_variance) >= -1e-14)
    np.testing.assert_allclose(
        result.explained_variance_ratio.sum(),
        np.sum((result.components @ X) ** 2) / np.sum(X**2),
        rtol=1e-12,
    )
    U = result.components.toarray()
    np.testing.assert_allclose(U @ U.T, np.eye(p), atol=1e-13)


def test_blocks_on_the_gram_matrix_for_any_chunks(tmp_path: Path) -> None:
    X = normal(14, 90)
    options: dict[str, Any] = {"n_transforms": 4, "reduction": "gram", "algorithm": "block"}
    whole = sparse_svd(X, 3, **options)
    cut = sparse_svd(write_zarr(tmp_path / "x.zarr", X, (5, 11)), 3, n_threads=2, **options)
    assert differences(cut, whole) == []


def test_blocks_reach_the_svd() -> None:
    """A few steps of blocks as wide as the matrix are the truncated SVD."""
    X = normal(8, 40)
    result = sparse_svd(X, 4, n_transforms=60, algorithm="block")
    values = np.linalg.svd(X, compute_uv=False)[:4]
    np.testing.assert_allclose(result.singular_values, values, rtol=1e-6)


def test_random_columns_are_drawn_below_both_sizes_in_turn() -> None:
    n, N, p, m = 10, 16, 2, 3000
    options: dict[str, Any] = {"selection": "random", "random_state": 3, "algorithm": "block"}
    taken = sparse_svd(normal(n, N), p, n_transforms=m, **options).log.indices[:, p:]
    for turn, limit in ((0, N), (1, n)):
        counts = np.bincount(taken[turn::2].ravel(), minlength=N)
        expected = m / 2 * p / (limit - p)
        assert np.all(np.abs(counts[p:limit] - expected) < 5 * expected**0.5)
        assert np.all(counts[limit:] == 0)


# ------------------------------------------------------------------------------------ the result


def test_the_default_number_of_steps() -> None:
    result = sparse_svd(normal(16, 100), 2, algorithm="block", tol=0)
    assert result.settings["n_transforms"] == 40
    assert result.settings["algorithm"] == "block"


@pytest.mark.parametrize("reduction", [None, "gram"])
def test_saved_and_loaded(reduction: str | None, tmp_path: Path) -> None:
    made = sparse_svd(normal(9, 50), 3, n_transforms=5, algorithm="block", reduction=reduction)
    made.save(tmp_path / "r.zarr")
    loaded = SVDResult.load(tmp_path / "r.zarr")
    assert differences(loaded, made) == []
    assert differences(loaded.at(2), made.at(2)) == []
    assert isinstance(loaded.log, BlockLog)
    made.at(0).save(tmp_path / "r.zarr", overwrite=True)
    assert differences(SVDResult.load(tmp_path / "r.zarr"), made.at(0)) == []


def test_there_are_no_pairs() -> None:
    result = sparse_svd(normal(9, 50), 3, n_transforms=2, algorithm="block")
    with pytest.raises(OptionError, match=r"block steps have no pairs: see log\.indices"):
        _ = result.pairs
    assert result.log.g.shape == result.log.h.shape == (2, 6, 6)
    assert result.log.values.shape == (2, 3)


def test_a_budget_ends_the_run_before_the_step_that_would_pass_it(tmp_path: Path) -> None:
    X, p = normal(40, 90), 3
    free = sparse_svd(X, p, n_transforms=8, algorithm="block")
    nonzeros = free.history.n_nonzeros.tolist()
    assert nonzeros[0] < nonzeros[2]
    for budget, steps in ((nonzeros[2], 3), (nonzeros[2] - 1, 2), (p, 0)):
        made = sparse_svd(X, p, n_transforms=8, algorithm="block", max_nonzeros=budget)
        assert made.stopped == "budget"
        assert len(made.log) == steps
        assert differences(made, free.at(steps), path_only=True) == []
        assert made.n_nonzeros <= budget
    path = write_zarr(tmp_path / "x.zarr", X, (40, 20))
    options: dict[str, Any] = {"algorithm": "block", "max_nonzeros": nonzeros[2]}
    workspace = tmp_path / "workspace"
    sparse_svd(path, p, n_transforms=1, workspace=workspace, **options)
    made, _ = go_on(path, workspace, n_transforms=8, **options)
    assert len(made.log) == 3


def test_refined() -> None:
    X = normal(20, 200)
    made = sparse_svd(X, 3, n_transforms=2, algorithm="block", refine=True)
    assert made.refined is not None
    before = np.sum((made.path_components @ X) ** 2)
    assert np.sum((made.components @ X) ** 2) >= before
    assert made.n_nonzeros <= made.path_components.nnz


# -------------------------------------------------------------------------------------- going on

P = 3
CASES = [
    (selection, ("float32", "float64")[k % 2], shape, bool(k % 3))
    for k, (selection, shape) in enumerate(
        (selection, shape) for selection in SELECTIONS for shape in ((9, 70), (12, 12), (40, 11))
    )
]


@pytest.mark.parametrize(("selection", "dtype", "shape", "pivot"), CASES)
def test_goes_on_with_the_same_bits(
    selection: str,
    dtype: str,
    shape: tuple[int, int],
    pivot: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped cleanly and by crashes, in blocks that do not divide, in narrow tiles."""
    monkeypatch.setattr(tiled, "WIDTH", 16)
    X = (normal(*shape) + 0.5).astype(dtype)
    path = write_zarr(tmp_path / "x.zarr", X, (5, 7))
    options: dict[str, Any] = {"selection": selection, "random_state": 3, "algorithm": "block"}
    options |= {"center": "features", "pivot": pivot}
    expected = sparse_svd(path, P, n_transforms=12, **options)
    workspace = tmp_path / "workspace"
    with blocks_of(13, "disk, rows held"):
        sparse_svd(path, P, n_transforms=2, workspace=workspace, **options)
        made, took = go_on(path, workspace, n_transforms=5, **options)
        assert took == ["transforms"]
        crash(workspace)
        made, took = go_on(path, workspace, n_transforms=9, **options)
        assert took == ["ingest", "replay", "transforms"]
    with blocks_of(8, "disk"):
        crash(workspace)
        made, took = go_on(path, workspace, n_transforms=12, **options)
    assert differences(made, expected) == []
    stored = zarr.open_array(workspace / "x.zarr", mode="r")[:P].astype(float)
    np.testing.assert_allclose(np.sum(stored**2, axis=1), made.final_energies, rtol=1e-5)


@pytest.mark.parametrize("room", [0, 8, 14, 10**6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(9, 70), (12, 12), (40, 11)])
def test_replay_in_stretches(
    shape: tuple[int, int], dtype: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few columns fit the panel: the working matrix that the run left."""
    monkeypatch.setattr(tiled, "WIDTH", 16)
    X = normal(*shape).astype(dtype)
    left = X.copy()
    made = sparse_svd(left, P, n_transforms=10, algorithm="block", overwrite_x=True)
    for width in (5, shape[1]):
        blocks = [np.full((shape[0], width), np.nan, dtype) for _ in range(-(-shape[1] // width))]
        working = WorkingMatrix(blocks, shape[1])
        working.write(0, X)
        replay(working, made.log, room * X[:, 0].nbytes)
        assert np.array_equal(working.columns(shape[1]), left)


LONG = 1000


def long_run(source: Path, workspace: Path | None, resume: bool = False) -> Any:
    """A fit of a second or more that tells when it is underway; for a process of its own."""
    told = []

    def progress(stage: str, done: int, total: int) -> None:
        told.append(stage)
        if stage == "transforms" and done >= 100:
            print("underway", flush=True)

    streamsvd.fitting.run.CHECKPOINT_SECONDS = 0.05
    with blocks_of(13, "disk, rows held"):
        made = sparse_svd(
            source,
            P,
            n_transforms=LONG,
            algorithm="block",
            selection="random",
            random_state=0,
            workspace=workspace,
            resume=resume,
            progress=progress,
        )
    return bits(made), told


@pytest.mark.slow
def test_killed_and_gone_on_with(tmp_path: Path, forks: Any) -> None:
    source = write_zarr(tmp_path / "x.zarr", normal(9, 70), (9, 16))
    workspace = tmp_path / "workspace"
    first = forks.start(long_run, source, workspace)
    first.until("underway")
    assert first.kill() == -signal.SIGKILL
    assert list((workspace / "log").iterdir())
    assert not (workspace / "state.json").exists()
    made, told = forks.run(long_run, source, workspace, resume=True)
    assert "ingest" in told
    assert made == forks.run(long_run, source, None)[0]
