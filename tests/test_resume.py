"""A run that stopped goes on as if it had not: the same bits, and nothing done twice."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import PLACES, bits, blocks_of, differences, normal, write_zarr

import streamsvd.algorithm.compiled
import streamsvd.fitting.run
import streamsvd.progress
from streamsvd import OptionError, ResourceError, SVDResult, sparse_svd
from streamsvd.algorithm.log import TransformLog
from streamsvd.algorithm.replay import replay
from streamsvd.fitting.workspace import Workspace
from streamsvd.matrix.working import WorkingMatrix
from streamsvd.options import Options

P, M = 3, 60
SELECTIONS = ("nuclear", "gain", "kogbetliantz", "random")
SHAPES = {"wide": (9, 70), "square": (12, 12), "tall": (40, 11)}
PREPROCESSING = [
    (center, normalize)
    for center in (None, "features", "samples")
    for normalize in (None, "features", "samples")
]


def data(shape: str = "wide", dtype: str = "float64", seed: int = 0) -> np.ndarray:
    n, N = SHAPES[shape]
    return (normal(n, N, seed) + 0.5).astype(dtype)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_zarr(tmp_path / "x.zarr", data(), (9, 16))


def stages(into: list[str]) -> Callable[[str, int, int], None]:
    """Collects the stages that a fit goes through."""

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in into:
            into.append(stage)

    return progress


def go_on(source: Any, workspace: Path, **options: Any) -> tuple[SVDResult, list[str]]:
    """Resume; the result, and the stages that it took."""
    took: list[str] = []
    made = sparse_svd(source, P, workspace=workspace, resume=True, progress=stages(took), **options)
    return made, took


def crash(workspace: Path) -> None:
    """Leave the workspace as a killed run does: the working store is anything."""
    (workspace / "state.json").unlink()
    (workspace / "ingested.npz").unlink()
    for chunk in (workspace / "x.zarr" / "c").rglob("[0-9]*"):
        if chunk.is_file():
            chunk.write_bytes(bytes(chunk.stat().st_size))


# ------------------------------------------------------------------------------ the same bits

CASES = [
    *(
        (selection, dtype, shape, axis, *PREPROCESSING[(5 * a + 3 * b + 7 * c + axis) % 9])
        for a, selection in enumerate(SELECTIONS)
        for b, dtype in enumerate(("float32", "float64"))
        for c, shape in enumerate(SHAPES)
        for axis in (1, 0)
    ),
    *(("nuclear", "float64", "wide", 1, *both) for both in PREPROCESSING),
]
EXTRAS: list[dict[str, Any]] = [
    {"pivot": True},
    {"pivot": True, "fill_penalty": 0.5, "center": "features"},
    {"max_fill": 0.8},
    {"fill_penalty": 1.0, "max_nonzeros": 20, "selection": "gain"},
    {"refine": True},
    {"pivot": True, "selection": "gain", "fill_penalty": 0.5, "refine": True, "max_fill": 0.6},
]


@pytest.mark.parametrize("extra", EXTRAS, ids=repr)
@pytest.mark.parametrize("shape", SHAPES)
def test_budgets_and_pivots_go_on(extra: dict[str, Any], shape: str, tmp_path: Path) -> None:
    """What the fill of the first transforms was is known again."""
    X = data(shape)
    path = write_zarr(tmp_path / "x.zarr", X, (X.shape[0], 7))
    expected = sparse_svd(path, P, n_transforms=M, **extra)
    workspace = tmp_path / "workspace"
    with blocks_of(13, "disk, rows held"):
        sparse_svd(path, P, n_transforms=7, workspace=workspace, **extra)
        made, took = go_on(path, workspace, n_transforms=15, **extra)
        assert "ingest" not in took
        crash(workspace)
        go_on(path, workspace, n_transforms=21, **extra)
        made, took = go_on(path, workspace, n_transforms=M, **extra)
        assert "ingest" not in took
    assert made.stopped == expected.stopped
    if not extra.get("refine"):
        assert differences(made, expected) == []
    for name in ("pairs", "singular_values", "explained_variance"):
        assert getattr(made, name).tobytes() == getattr(expected, name).tobytes()
    for part in ("data", "indices", "indptr"):
        a, b = (getattr(result.components, part) for result in (made, expected))
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("selection", "dtype", "shape", "axis", "center", "normalize"), CASES)
def test_goes_on_with_the_same_bits(
    selection: str,
    dtype: str,
    shape: str,
    axis: int,
    center: str | None,
    normalize: str | None,
    tmp_path: Path,
) -> None:
    """Stopped three times, cleanly and by a crash, in blocks that do not divide."""
    X = data(shape, dtype)
    path = write_zarr(tmp_path / "x.zarr", X if axis else X.T, (5, 7))
    options: dict[str, Any] = {
        "selection": selection,
        "sample_axis": axis,
        "center": center,
        "normalize": normalize,
        "random_state": 3,
    }
    expected = sparse_svd(path, P, n_transforms=M, **options)
    workspace = tmp_path / "workspace"
    with blocks_of(13, "disk, rows held"):
        sparse_svd(path, P, n_transforms=7, workspace=workspace, **options)
        made, took = go_on(path, workspace, n_transforms=23, **options)
        assert took == ["transforms"]
        assert differences(made, sparse_svd(path, P, n_transforms=23, **options)) == []
        crash(workspace)
        made, took = go_on(path, workspace, n_transforms=41, **options)
        assert took == ["ingest", "replay", "transforms"]
    with blocks_of(13, "disk"):
        made, took = go_on(path, workspace, n_transforms=M, **options)
    assert took == ["transforms"]
    assert differences(made, expected) == []
    assert made.stopped == expected.stopped == "n_transforms"
    # the working store is U^T X V, and any Zarr library can read it
    stored = zarr.open_array(workspace / "x.zarr", mode="r")[:]
    energies = np.einsum("ij,ij->i", stored[:P].astype(float), stored[:P].astype(float))
    np.testing.assert_allclose(energies, made.final_energies, rtol=1e-5)


def test_a_finished_run_is_extended(source: Path, tmp_path: Path) -> None:
    sparse_svd(source, P, n_transforms=M, workspace=tmp_path / "workspace")
    for m in (M, M + 1, 3 * M):
        made, took = go_on(source, tmp_path / "workspace", n_transforms=m)
        assert took == ["transforms"] * (m > M)
        assert differences(made, sparse_svd(source, P, n_transforms=m)) == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"center": "features", "pivot": True},
        {"normalize": "samples", "dtype": "float32"},
        {"algorithm": "block"},
        {"refine": True, "max_fill": 0.9},
    ],
    ids=repr,
)
def test_fewer_transforms_than_were_made(
    options: dict[str, Any], clean: bool, source: Path, tmp_path: Path
) -> None:
    """What a run of so many gives, its energies to rounding; the workspace keeps its log."""
    workspace = tmp_path / "workspace"
    m, k = (6, 2) if "algorithm" in options else (M, 25)
    whole = sparse_svd(source, P, n_transforms=m, workspace=workspace, **options)
    if not clean:
        crash(workspace)
    made, took = go_on(source, workspace, n_transforms=k, **options)
    refines = ["gram", "refinement"] if "refine" in options else []
    assert took == ["ingest", "replay"] * (not clean) + ["variance", *refines]
    expected = sparse_svd(source, P, n_transforms=k, **options)
    assert made.n_transforms == len(made.log) == k
    assert differences(made, expected, path_only=True) == []
    rtol = 1e-5 if made.dtype == np.float32 else 1e-12
    for one, other in (
        (made.final_energies, expected.final_energies),
        (made.explained_variance, expected.explained_variance),
        (made.history.explained_variance, expected.history.explained_variance),
    ):
        np.testing.assert_allclose(one, other, rtol=rtol)
    assert differences(whole.at(k), made.at(k), path_only=True) == []
    again, took = go_on(source, workspace, n_transforms=m, **options)
    assert took == refines
    assert differences(again, whole) == []


def test_a_crash_is_paid_for_once(source: Path, tmp_path: Path) -> None:
    """Also when there is nothing left to do but to bring the working store up to date."""
    workspace = tmp_path / "workspace"
    whole = sparse_svd(source, P, n_transforms=M, workspace=workspace)
    crash(workspace)
    assert go_on(source, workspace, n_transforms=M)[1] == ["ingest", "replay"]
    made, took = go_on(source, workspace, n_transforms=M)
    assert took == []
    assert differences(made, whole) == []


def test_a_converged_run_stays_so(source: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_transforms": 2000, "tol": 1e-3}
    whole = sparse_svd(source, P, workspace=tmp_path / "workspace", **options)
    assert whole.stopped == "converged"
    made, _ = go_on(source, tmp_path / "workspace", **options)
    assert made.stopped == "converged"
    assert differences(made, whole) == []


@pytest.mark.parametrize("m", [0, 1])
def test_next_to_no_transforms(source: Path, tmp_path: Path, m: int) -> None:
    sparse_svd(source, P, n_transforms=m, workspace=tmp_path / "workspace")
    made, _ = go_on(source, tmp_path / "workspace", n_transforms=M)
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []


@pytest.mark.parametrize("changed", ["n_threads", "memory_limit"])
def test_what_may_change(source: Path, tmp_path: Path, changed: str) -> None:
    workspace = tmp_path / "workspace"
    with blocks_of(13, "disk"):
        sparse_svd(source, P, n_transforms=20, workspace=workspace)
        option = {"n_threads": 3, "memory_limit": "300MiB"}[changed]
        made, took = go_on(source, workspace, n_transforms=M, **{changed: option})
    assert took == ["transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []


def test_the_stored_width_counts(source: Path, tmp_path: Path) -> None:
    """A working store in chunks of another width, of another version say, is not misread."""
    workspace = tmp_path / "workspace"
    with blocks_of(16, "disk"):
        sparse_svd(source, P, n_transforms=20, workspace=workspace)
    with blocks_of(7, "disk"):
        made, _ = go_on(source, workspace, n_transforms=M)
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []


def test_numpy_numbers_as_options(source: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "n_transforms": np.int32(20),
        "selection": "random",
        "random_state": np.int64(5),
        "tol": np.float64(0),
    }
    workspace = tmp_path / "workspace"
    made = sparse_svd(source, np.int64(P), workspace=workspace, **options)
    again, took = go_on(source, workspace, **options)
    assert took == []
    assert differences(again, made) == []


def test_a_workspace_that_is_not_there_yet(source: Path, tmp_path: Path) -> None:
    """The same call starts a run and goes on with it."""
    made, took = go_on(source, tmp_path / "deep" / "workspace", n_transforms=M)
    assert took == ["ingest", "transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []


def test_workspace_relative_to_the_home_folder(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    sparse_svd(source, P, n_transforms=10, workspace="~/workspace")
    assert (tmp_path / "workspace" / "run.json").is_file()
    monkeypatch.chdir(tmp_path)
    assert go_on(source, Path("workspace"), n_transforms=10)[1] == []


# ------------------------------------------------------------------------------------ replay


@pytest.mark.parametrize("room", [0, P + 1, P + 4, 10**6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_replay_in_stretches(
    selection: str, shape: str, dtype: str, room: int, tmp_path: Path
) -> None:
    """However few columns fit the panel: the working matrix that the run left."""
    X = data(shape, dtype)
    n, N = X.shape
    path = write_zarr(tmp_path / "x.zarr", X, (n, 8))
    with blocks_of(13, "disk"):
        made = sparse_svd(
            path,
            P,
            n_transforms=100,
            selection=selection,
            random_state=1,
            workspace=tmp_path / "workspace",
        )
    left = zarr.open_array(tmp_path / "workspace" / "x.zarr", mode="r")[:]
    assert not np.array_equal(left, X)
    for width in (5, N):
        blocks = [np.full((n, width), np.nan, dtype) for _ in range(-(-N // width))]
        working = WorkingMatrix(blocks, N)
        working.write(0, X)
        replay(working, made.log, room * n * X.dtype.itemsize)
        assert np.array_equal(working.columns(N), left)


def test_replay_of_nothing() -> None:
    X = data()
    working = WorkingMatrix([X.copy()], X.shape[1])
    replay(working, TransformLog(P, *X.shape), 0)
    np.testing.assert_array_equal(working.columns(X.shape[1]), X)


# -------------------------------------------------------------------------- another run's folder

OTHERS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("n_components", {}, ("'n_components'|n_components", "3 there", "4 now")),
    ("algorithm", {"algorithm": "block"}, ("algorithm", "'coordinate' there", "'block' now")),
    ("selection", {"selection": "gain"}, ("selection", "'nuclear' there", "'gain' now")),
    ("center", {"center": "features"}, ("center", "None there", "'features' now")),
    ("normalize", {"normalize": "samples"}, ("normalize", "None there", "'samples' now")),
    ("dtype", {"dtype": "float32"}, ("dtype", "'float64' there", "'float32' now")),
    ("tol", {"tol": 0.5}, ("tol", "0.0 there", "0.5 now")),
    ("random_state", {"random_state": 1}, ("random_state", "None there", "1 now")),
    ("missing_chunks", {"missing_chunks": "fill"}, ("missing_chunks", "'error' there")),
    ("sample_axis", {"sample_axis": 0}, ("n_features|n_samples|sample_axis",)),
]


@pytest.mark.parametrize(("name", "options", "words"), OTHERS, ids=[name for name, *_ in OTHERS])
def test_another_option_is_named(
    name: str, options: dict, words: tuple[str, ...], source: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    made = sparse_svd(source, P, n_transforms=10, workspace=workspace)
    p = P + 1 if name == "n_components" else P
    with pytest.raises(OptionError) as refused:
        sparse_svd(source, p, n_transforms=10, workspace=workspace, resume=True, **options)
    for word in (str(workspace), "another", "give a new folder", *words):
        assert re.search(word, str(refused.value)), word
    again, took = go_on(source, workspace, n_transforms=10)  # nothing was harmed
    assert took == []
    assert differences(again, made) == []


def one_number(path: Path) -> None:
    zarr.open_array(path, mode="r+")[3, 5] = 0.25


def the_same_again(path: Path) -> None:
    zarr.open_array(path, mode="r+")[...] = data()


def larger(path: Path) -> None:
    shutil.rmtree(path)
    write_zarr(path, np.hstack([data(), data()]), (9, 16))


def other_chunks(path: Path) -> None:
    shutil.rmtree(path)
    write_zarr(path, data(), (9, 35))


@pytest.mark.parametrize("change", [one_number, the_same_again, larger, other_chunks])
@pytest.mark.parametrize("clean", [True, False])
def test_another_source_is_refused(
    change: Callable[[Path], None], clean: bool, source: Path, tmp_path: Path
) -> None:
    """By its metadata, sizes and times of writing: it is not read for that."""
    workspace = tmp_path / "workspace"
    sparse_svd(source, P, n_transforms=10, workspace=workspace)
    if not clean:
        crash(workspace)
    change(source)
    with pytest.raises(OptionError, match=r"another (source|n_samples).*give a new folder"):
        go_on(source, workspace, n_transforms=20)


def test_a_source_that_moved_is_the_same(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    sparse_svd(source, P, n_transforms=10, workspace=workspace)
    moved = source.rename(tmp_path / "moved.zarr")
    crash(workspace)
    made, _ = go_on(moved, workspace, n_transforms=M)
    assert differences(made, sparse_svd(moved, P, n_transforms=M)) == []


def test_a_run_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    made = sparse_svd(source, P, n_transforms=10, workspace=workspace)
    with pytest.raises(OptionError, match=r"holds a run; pass resume=True .* new folder"):
        sparse_svd(source, P, n_transforms=10, workspace=workspace)
    assert differences(go_on(source, workspace, n_transforms=10)[0], made) == []


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("strange", ["thesis.txt", "log", "x.zarr", "state.json"])
def test_a_strange_folder_is_left_alone(
    strange: str, resume: bool, source: Path, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / strange).write_text("precious")
    with pytest.raises(OptionError, match=rf"not empty.*{re.escape(strange)}.*give a new folder"):
        sparse_svd(source, P, workspace=workspace, resume=resume)
    assert (workspace / strange).read_text() == "precious"
    assert os.listdir(workspace) == [strange]


def test_hidden_files_are_in_nobodys_way(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / ".DS_Store").write_text("")
    made = sparse_svd(source, P, n_transforms=10, workspace=workspace)
    assert differences(go_on(source, workspace, n_transforms=10)[0], made) == []


def test_resume_needs_a_workspace(source: Path) -> None:
    with pytest.raises(OptionError, match=r"resume=True needs the workspace="):
        sparse_svd(source, P, resume=True)


# ---------------------------------------------------------------------------------- the lock


def long_run(source: Path, workspace: Path | None, resume: bool = False, **options: Any) -> Any:
    """A fit of about a second that tells its stages; for a process of its own."""
    told: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in told:
            told.append(stage)
            print(stage, flush=True)

    with blocks_of(13, "disk, rows held"):
        made = sparse_svd(
            source,
            P,
            n_transforms=LONG,
            selection="random",
            random_state=0,
            workspace=workspace,
            resume=resume,
            progress=progress,
            **options,
        )
    return bits(made), told


LONG = 20_000


def test_one_run_at_a_time(source: Path, tmp_path: Path, forks: Any) -> None:
    workspace = tmp_path / "workspace"
    first = forks.start(long_run, source, workspace)
    first.until("transforms")
    for resume in (True, False):
        with pytest.raises(ResourceError, match=r"workspace .* in use by another run; wait"):
            sparse_svd(source, P, workspace=workspace, resume=resume)
    assert first.kill() == -signal.SIGKILL
    assert (workspace / "lock").exists()  # and holds nothing
    uninterrupted = forks.run(long_run, source, None)
    assert forks.run(long_run, source, workspace, resume=True)[0] == uninterrupted[0]


def test_the_lock_is_let_go_of(source: Path, tmp_path: Path) -> None:
    """Also by a run that is refused, in the same process."""
    workspace = tmp_path / "workspace"
    sparse_svd(source, P, n_transforms=5, workspace=workspace)
    for _ in range(3):
        with pytest.raises(OptionError):
            sparse_svd(source, P, workspace=workspace)
    with Workspace(workspace), pytest.raises(ResourceError, match="in use"):
        go_on(source, workspace, n_transforms=5)
    go_on(source, workspace, n_transforms=5)


# ------------------------------------------------------------------------------------ signals


def signal_at(k: int, number: int = signal.SIGINT) -> Callable[[str, int, int], None]:
    """Sends this process a signal after `k` transforms, as from a keyboard."""

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "transforms" and done == k:
            signal.raise_signal(number)

    return progress


@pytest.fixture
def each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell progress after each transform."""
    monkeypatch.setattr(streamsvd.algorithm.compiled, "SECONDS", 0.0)
    monkeypatch.setattr(streamsvd.progress, "EVERY", -1.0)


@pytest.mark.usefixtures("each_step")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", PLACES[1:])
def test_a_signal_stops_cleanly(
    number: signal.Signals, place: str, source: Path, tmp_path: Path, caplog: Any
) -> None:
    workspace = tmp_path / "workspace"
    error = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with blocks_of(13, place):
        for resume, k in ((False, 1), (True, 20), (True, 21)):
            with pytest.raises(error) as left:
                sparse_svd(
                    source,
                    P,
                    n_transforms=M,
                    workspace=workspace,
                    resume=resume,
                    progress=signal_at(k, number),
                )
            words = f"stopped after {k} of {M} transforms; go on with the same call and resume=True"
            assert words in caplog.text
            assert str(workspace) in caplog.text
            if number == signal.SIGINT:
                assert words in str(left.value)
            else:
                assert left.value.code == 143
            assert (workspace / "state.json").exists()
            caplog.clear()
        made, took = go_on(source, workspace, n_transforms=M)
    assert took == ["transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.usefixtures("each_step")
def test_a_signal_without_a_workspace(source: Path, temporary: Path) -> None:
    for number, error in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
        with blocks_of(13, "disk"), pytest.raises(error):
            sparse_svd(source, P, n_transforms=M, progress=signal_at(5, number))
        assert list(temporary.iterdir()) == []
        with pytest.raises(error):
            sparse_svd(data(), P, n_transforms=M, progress=signal_at(5, number))


@pytest.mark.usefixtures("each_step")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_of_the_programs_own_is_left_alone(
    number: signal.Signals, source: Path, tmp_path: Path
) -> None:
    seen = []

    def handler(number: int, frame: Any) -> None:
        seen.append(number)

    before = signal.signal(number, handler)
    try:
        made = sparse_svd(
            source,
            P,
            n_transforms=M,
            workspace=tmp_path / "workspace",
            progress=signal_at(5, number),
        )
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert seen == [number]
    assert made.n_transforms == M


def test_in_another_thread(source: Path, tmp_path: Path) -> None:
    """Where signals cannot be handled."""
    made: list[SVDResult] = []
    thread = threading.Thread(
        target=lambda: made.append(
            sparse_svd(source, P, n_transforms=M, workspace=tmp_path / "workspace")
        )
    )
    thread.start()
    thread.join(60)
    assert differences(made[0], sparse_svd(source, P, n_transforms=M)) == []


def test_ctrl_c_at_the_end_is_not_lost(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last transform all first rows are read once more, which may take its time."""
    energies = streamsvd.fitting.in_place.row_energies

    def interrupted(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return energies(*args)

    with monkeypatch.context() as patch:
        patch.setattr(streamsvd.fitting.in_place, "row_energies", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sparse_svd(source, P, n_transforms=M, workspace=tmp_path / "workspace")
    made, took = go_on(source, tmp_path / "workspace", n_transforms=M)
    assert took == []
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []


def test_ctrl_c_before_the_first_move_costs_no_ingest(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking up a working store reads its first rows; nothing is written meanwhile."""
    workspace = tmp_path / "workspace"
    sparse_svd(source, P, n_transforms=20, workspace=workspace)
    take_up = streamsvd.algorithm.method.make_coordinator

    def interrupted(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return take_up(*args)

    with monkeypatch.context() as patch:
        patch.setattr(streamsvd.algorithm.method, "make_coordinator", interrupted)
        with pytest.raises(KeyboardInterrupt):
            go_on(source, workspace, n_transforms=M)
    start_up = streamsvd.algorithm.coordinator.Coordinator.start_up

    def interrupted_later(self: Any, reports: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        start_up(self, reports)

    with monkeypatch.context() as patch:
        patch.setattr(streamsvd.algorithm.coordinator.Coordinator, "start_up", interrupted_later)
        with pytest.raises(KeyboardInterrupt):
            go_on(source, workspace, n_transforms=M)
    made, took = go_on(source, workspace, n_transforms=M)
    assert took == ["transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []


def test_a_store_that_was_written_to_is_not_taken_up(source: Path, tmp_path: Path) -> None:
    """A file of the same size, changed after the clean stop, costs an ingest and no bits."""
    workspace = tmp_path / "workspace"
    sparse_svd(source, P, n_transforms=20, workspace=workspace)
    chunk = next(path for path in (workspace / "x.zarr" / "c").rglob("*") if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[7] ^= 64
    chunk.write_bytes(content)
    made, took = go_on(source, workspace, n_transforms=M)
    assert took == ["ingest", "replay", "transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=M)) == []


def test_another_version_is_refused(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    sparse_svd(source, P, n_transforms=20, workspace=workspace)
    run = json.loads((workspace / "run.json").read_text())
    (workspace / "run.json").write_text(json.dumps(run | {"streamsvd": "0.0.1"}))
    with pytest.raises(OptionError, match=r"another streamsvd: '0\.0\.1' there"):
        go_on(source, workspace, n_transforms=M)


def slow_to_flush(source: Path, workspace: Path) -> Any:
    def flush(self: WorkingMatrix) -> None:
        print("flushing", flush=True)
        time.sleep(30)

    WorkingMatrix.flush = flush  # type: ignore[method-assign]
    return long_run(source, workspace)


def test_a_second_signal_acts_at_once(source: Path, tmp_path: Path, forks: Any) -> None:
    workspace = tmp_path / "workspace"
    run = forks.start(slow_to_flush, source, workspace)
    run.until("transforms")
    run.signal(signal.SIGINT)
    run.until("flushing")
    before = time.monotonic()
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert time.monotonic() - before < 10
    assert not (workspace / "state.json").exists()
    made, took = forks.run(long_run, source, workspace, resume=True)
    assert took == ["ingest", "replay", "transforms"]
    assert made == forks.run(long_run, source, None)[0]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_signals_from_outside(source: Path, tmp_path: Path, forks: Any, n_threads: int) -> None:
    """At any moment of the transforms."""
    expected = forks.run(long_run, source, None)[0]
    random = np.random.default_rng(n_threads)
    workspace, resume = tmp_path / "workspace", False
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 1)):
        run = forks.start(long_run, source, workspace, resume=resume, n_threads=n_threads)
        run.until("transforms")
        time.sleep(0.05 * random.random())
        run.signal(number)
        assert run.wait() == code
        assert run.said() == ["transforms"] if resume else ["ingest", "replay", "transforms"]
        step = re.search(rf"stopped after (\d+) of {LONG} transforms; go on", run.errors())
        assert step is not None
        assert 0 < int(step[1]) < LONG
        assert (workspace / "state.json").exists()
        resume = True
    made, took = forks.run(long_run, source, workspace, resume=True)
    assert took == ["transforms"]
    assert made == expected


def test_sigterm_leaves_no_temporary_folder(
    source: Path, tmp_path: Path, forks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stage in ("ingest", "transforms"):
        folder = tmp_path / stage
        folder.mkdir()
        run = forks.start(in_temporary, source, folder)
        run.until(stage)
        assert [path.name[:10] for path in folder.iterdir()] == ["streamsvd-"]
        run.signal(signal.SIGTERM)
        assert run.wait() == 143
        assert list(folder.iterdir()) == []


def in_temporary(source: Path, folder: Path) -> Any:
    import tempfile

    tempfile.tempdir = str(folder)
    return long_run(source, None)


SCRIPT = """
import sys
from streamsvd import sparse_svd
print("starts", flush=True)
tell = lambda stage, done, total: print(stage, flush=True)
sparse_svd(sys.argv[1], 3, n_transforms=10**7, selection="random", random_state=0,
           workspace=sys.argv[2], progress=tell)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)]
)
def test_a_real_interpreter_leaves_as_the_signal_would(
    number: signal.Signals, code: int, source: Path, tmp_path: Path
) -> None:
    """What a shell or a batch system sees: the status, and how to go on."""
    workspace = tmp_path / "workspace"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), str(workspace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(streamsvd.__file__).parents[1])},
    ) as run:
        while run.stdout.readline() != "transforms\n":
            assert run.poll() is None
        time.sleep(0.3)
        run.send_signal(number)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == code
    step = re.search(r"stopped after (\d+) of 10000000 transforms; go on .*resume=True", errors)
    assert step is not None
    assert ("Traceback" in errors) == (number == signal.SIGINT)
    options: dict[str, Any] = {"selection": "random", "random_state": 0}
    made, took = go_on(source, workspace, n_transforms=int(step[1]) + 100, **options)
    assert took == ["transforms"]
    expected = sparse_svd(source, P, n_transforms=int(step[1]) + 100, **options)
    assert differences(made, expected) == []


# -------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(("seconds", "segments"), [(-1.0, M), (1000.0, 1)])
def test_cadence_of_checkpoints(
    seconds: float,
    segments: int,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamsvd.algorithm.compiled, "SECONDS", 0.0)
    monkeypatch.setattr(streamsvd.fitting.run, "CHECKPOINT_SECONDS", seconds)
    workspace = tmp_path / "workspace"
    made = sparse_svd(source, P, n_transforms=M, workspace=workspace)
    assert len(os.listdir(workspace / "log")) == segments
    crash(workspace)
    assert differences(go_on(source, workspace, n_transforms=M)[0], made) == []
    again = go_on(source, workspace, n_transforms=M + 20)[0]
    assert differences(again, sparse_svd(source, P, n_transforms=M + 20)) == []
    assert len(os.listdir(workspace / "log")) == segments + (20 if segments == M else 1)


def test_each_checkpoint_saves_what_is_new(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamsvd.fitting.run, "CHECKPOINT_SECONDS", 0.0)
    workspace = tmp_path / "workspace"
    made = sparse_svd(source, P, n_transforms=M, workspace=workspace)
    first = 0
    for path in sorted((workspace / "log").iterdir()):
        assert int(path.stem) == first
        with np.load(path, allow_pickle=False) as part:
            count = len(part["pairs"])
            np.testing.assert_array_equal(part["pairs"], made.pairs[first : first + count])
        first += count
    assert first == M


@pytest.mark.parametrize("kept", [0, 1, 20, M - 1])
def test_the_log_counts_as_far_as_it_goes(
    kept: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that a crash kept from the disk: the work of a few seconds is done again."""
    monkeypatch.setattr(streamsvd.algorithm.compiled, "SECONDS", 0.0)
    monkeypatch.setattr(streamsvd.fitting.run, "CHECKPOINT_SECONDS", -1.0)
    workspace = tmp_path / "workspace"
    made = sparse_svd(source, P, n_transforms=M, workspace=workspace)
    segments = sorted((workspace / "log").iterdir())
    segments[kept].unlink()  # in the middle: what comes after it has no beginning
    again, took = go_on(source, workspace, n_transforms=M)
    assert took == ["ingest", *["replay"] * (kept > 0), "transforms"]
    assert differences(again, made) == []
    again, took = go_on(source, workspace, n_transforms=M)
    assert took == []
    assert differences(again, made) == []


# ------------------------------------------------------------------------- what is compared

FREE = {
    "n_transforms", "refine", "effort", "storage_options", "workspace", "resume", "overwrite_x",
    "memory_limit", "n_threads",
}  # fmt: skip
"""Options that may be others when a run goes on: they do not change what it has logged."""

OTHERS: dict[str, Any] = {
    "n_components": P - 1, "algorithm": "block", "batch_size": 2, "selection": "gain",
    "fill_penalty": 0.5, "max_fill": 0.9, "max_nonzeros": 2 * P, "max_nonzeros_per_component": 5,
    "pivot": True, "sample_axis": 0, "center": "features", "normalize": "samples",
    "feature_weights": np.arange(1, 10),
    "dtype": "float32", "missing": "mean", "missing_value": 7.0, "missing_chunks": "fill",
    "decode": False, "tol": 1e-3, "random_state": 5,
}  # fmt: skip
"""Another value of each option that is compared."""

NOT_HERE = {"reduction", "rank", "sample_dim", "layer", "feature_mask", "sample_weights"}
"""Compared too, but refused with a workspace, or for arrays without names, or in its own test."""


def test_an_option_is_compared_or_known_to_be_free() -> None:
    recorded = {one.name for one in fields(Options) if one.metadata["recorded"]}
    assert recorded | FREE == {one.name for one in fields(Options)}
    assert not recorded & FREE
    assert recorded == set(OTHERS) | NOT_HERE


@pytest.mark.parametrize("name", OTHERS)
def test_no_run_goes_on_with_another_option(name: str, source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    sparse_svd(source, P, n_transforms=5, workspace=workspace)
    options = {"n_components": P, "n_transforms": 9} | {name: OTHERS[name]}
    with pytest.raises(OptionError, match="holds a run with another"):
        sparse_svd(source, workspace=workspace, resume=True, **options)
