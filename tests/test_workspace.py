"""The folder of a run: who may write there, what is in place of its files, what it notices."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import blocks_of, differences, normal, write_zarr

import streamsvd.fitting.run
from streamsvd import ResourceError, StreamSVDError, SVDResult, sparse_svd
from streamsvd.fitting.workspace import Workspace
from streamsvd.storage.checksums import PIECE, checksum_of_file, checksum_of_pages

P, M = 3, 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_zarr(tmp_path / "x.zarr", normal(9, 70), (9, 16))


def go_on(source: Path, workspace: Path, m: int = M, **options: Any) -> tuple[SVDResult, list[str]]:
    took: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in took:
            took.append(stage)

    with blocks_of(13, "disk"):
        made = sparse_svd(
            source,
            P,
            n_transforms=m,
            workspace=workspace,
            resume=True,
            progress=progress,
            **options,
        )
    return made, took


# ---------------------------------------------------------------------------------------- the lock


def test_a_lock_file_that_a_cleaner_removed_lets_nobody_in(source: Path, tmp_path: Path) -> None:
    """The folder is locked too, and it cannot be removed."""
    workspace = tmp_path / "workspace"
    go_on(source, workspace)
    with Workspace(workspace) as held:
        (workspace / "lock").unlink()
        assert not held.is_held
        for _ in range(2):  # the first of them makes a new lock file
            with pytest.raises(ResourceError, match=r"in use by another run"):
                go_on(source, workspace)
        with pytest.raises(ResourceError, match=r"no longer held by this run"):
            held.set_dirty()
    assert go_on(source, workspace)[1] == []


def test_a_run_whose_lock_was_removed_writes_nothing_more(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    expected = sparse_svd(source, P, n_transforms=M)

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "ingest":
            (workspace / "lock").unlink(missing_ok=True)

    with pytest.raises(ResourceError, match=r"no longer held .* lock was removed"):
        sparse_svd(source, P, n_transforms=M, workspace=workspace, progress=progress)
    made, took = go_on(source, workspace)
    assert took == ["ingest", "transforms"]
    assert differences(made, expected) == []


def test_what_is_locked_is_what_is_at_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock file that is replaced between opening and locking is opened again."""
    import fcntl

    real, count = fcntl.flock, [0]

    def replaced_meanwhile(fd: int, how: int) -> None:
        count[0] += 1
        if count[0] == 1:
            (tmp_path / "workspace" / "lock").unlink()
            (tmp_path / "workspace" / "lock").touch()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", replaced_meanwhile)
    with Workspace(tmp_path / "workspace") as held:
        assert held.is_held
        assert count[0] == 3  # the old file, the new one, the folder
        with pytest.raises(ResourceError, match="in use"):
            Workspace(tmp_path / "workspace")


def test_a_run_that_is_refused_does_not_remove_the_lock(source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    with Workspace(workspace):
        before = (workspace / "lock").stat().st_ino
        with pytest.raises(ResourceError, match="in use"):
            go_on(source, workspace)
        assert (workspace / "lock").stat().st_ino == before


def fork_and_finish(source: Path, workspace: Path) -> int:
    """A fit in the middle of which a child is forked that outlives it; returns its number."""
    child = 0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal child
        if stage == "transforms" and not child:
            child = os.fork()
            if not child:
                time.sleep(60)
                os._exit(0)

    sparse_svd(source, P, n_transforms=M, workspace=workspace, progress=progress)
    return child


def test_a_forked_child_does_not_keep_the_lock(source: Path, tmp_path: Path, forks: Any) -> None:
    workspace = tmp_path / "workspace"
    child = forks.run(fork_and_finish, source, workspace)
    try:
        assert go_on(source, workspace)[1] == []
    finally:
        os.kill(child, signal.SIGKILL)


def fork_and_raise(source: Path, workspace: Path | None, temporary: Path) -> bool:
    """A child that leaves a fit by an exception: what it cleans up is its parent's."""
    import tempfile

    tempfile.tempdir = str(temporary)
    child = 0

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal child
        if stage == "ingest" and not child:
            child = os.fork()
            if not child:
                raise StreamSVDError("in the child")
            os.waitpid(child, 0)

    try:
        with blocks_of(13, "disk"):
            sparse_svd(source, P, n_transforms=M, workspace=workspace, progress=progress)
    except StreamSVDError:
        os._exit(1 if child else 0)
    return True


@pytest.mark.parametrize("kept", [True, False])
def test_a_forked_child_removes_nothing(
    kept: bool, source: Path, tmp_path: Path, forks: Any
) -> None:
    (tmp_path / "temporary").mkdir()
    workspace = tmp_path / "workspace" if kept else None
    assert forks.run(fork_and_raise, source, workspace, tmp_path / "temporary")


# ---------------------------------------------------------------- what is in place of its files


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "thesis.txt").write_text("precious")


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def a_dead_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("nowhere"))


def a_pipe(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    os.mkfifo(path)


def a_file(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_text("precious")


FILES = ("run.json", "lock", "state.json", "ingested.npz", "log/000000000000000.npz")
REPLACED = [
    *((name, change) for name in FILES for change in (a_folder, a_link, a_dead_link, a_pipe)),
    *((name, change) for name in ("log", "x.zarr") for change in (a_link, a_dead_link, a_file)),
]


@pytest.mark.parametrize(("name", "change"), REPLACED)
def test_something_in_place_of_a_file_is_refused(
    name: str, change: Callable[[Path], None], source: Path, tmp_path: Path
) -> None:
    """Before any work; what it is stays as it is."""
    workspace = tmp_path / "workspace"
    go_on(source, workspace)
    change(workspace / name)
    with pytest.raises(ResourceError) as refused:
        go_on(source, workspace, 2 * M)
    for word in (str(workspace / name), "move it away", "give another folder"):
        assert word in str(refused.value)
    if change is a_file:
        assert (workspace / name).read_text() == "precious"
    if change is a_folder:
        assert (workspace / name / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("name", [".", "log", "x.zarr"])
def test_a_read_only_place_is_refused(
    name: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any work. (Tests may run as root, to whom nothing is read-only.)"""
    workspace = tmp_path / "workspace"
    go_on(source, workspace)
    access = os.access
    place = workspace / name
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p) != place and access(p, mode))
    with pytest.raises(ResourceError, match=r"is read-only; make it writable"):
        go_on(source, workspace, 2 * M)


@pytest.mark.parametrize("call", ["mkdir", "replace", "fsync", "unlink"])
@pytest.mark.parametrize("number", [28, 30, 1])
def test_no_system_call_fails_in_a_strange_way(
    call: str, number: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No inodes left, a file system gone read-only, a folder that cannot be changed."""
    workspace = tmp_path / "workspace"
    expected = sparse_svd(source, P, n_transforms=2 * M)
    go_on(source, workspace)

    def fails(*args: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    if call == "mkdir":  # of a workspace that has no log yet
        workspace = tmp_path / "other"
        monkeypatch.setattr(streamsvd.fitting.run, "CHECKPOINT_SECONDS", 0.0)
    made_before = os.mkdir
    with monkeypatch.context() as patch:
        if call == "mkdir":
            patch.setattr(
                os, "mkdir", lambda p, *a, **o: (fails if "log" in str(p) else made_before)(p, *a)
            )
        else:
            patch.setattr(os, call, fails)
        with pytest.raises(ResourceError) as refused:
            go_on(source, workspace, 2 * M)
    assert os.strerror(number) in str(refused.value)
    assert ("df -i" if number == 28 else "make it writable") in str(refused.value)
    made, _ = go_on(source, workspace, 2 * M)
    assert differences(made, expected) == []


# ------------------------------------------------------------------------------------ its checksums


def flip(path: Path, byte: int) -> None:
    """A flip that nothing tells of: same size, same time."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[byte] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("name", ["c/0/0", "c/0/5", "zarr.json"])
def test_a_flipped_bit_in_a_kept_working_store(name: str, source: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    go_on(source, workspace)
    flip(workspace / "x.zarr" / name, 77)
    made, took = go_on(source, workspace, 2 * M)
    assert took == ["ingest", "replay", "transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=2 * M)) == []


def test_a_stop_without_time_for_checksums_counts(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As batch systems leave some seconds only between SIGTERM and SIGKILL."""
    workspace = tmp_path / "workspace"

    def killed(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streamsvd.fitting.workspace, "QUICK", 0)
        patch.setattr(streamsvd.fitting.workspace, "checksums_of_stores", killed)
        with pytest.raises(KeyboardInterrupt):
            go_on(source, workspace)
    made, took = go_on(source, workspace, 2 * M)
    assert took == ["transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=2 * M)) == []


@pytest.mark.parametrize("size", [0, 1, 8, 4095, 4096, 4097, PIECE, PIECE + 4096, 2 * PIECE + 12])
def test_checksums_of_pages(size: int, tmp_path: Path) -> None:
    """Any bit, and any two pages that are exchanged, change them."""
    random = np.random.default_rng(size)
    content = bytearray(random.bytes(size))
    path = tmp_path / "file"

    def of(changed: bytearray) -> tuple[int, int]:
        path.write_bytes(changed)
        return checksum_of_file(path, checksum_of_pages)

    before = of(content)
    assert before[0] == size
    for bit in {0, 8 * size - 1, *random.integers(0, 8 * size, 8)} if size else ():
        changed = content.copy()
        changed[bit // 8] ^= 1 << bit % 8
        assert of(changed) != before
    if size >= 8192:
        changed = content.copy()
        changed[:4096], changed[4096:8192] = content[4096:8192], content[:4096]
        assert of(changed) != before


# -------------------------------------------------------------------------------------- the machine


@pytest.mark.parametrize("algorithm", ["coordinate", "block"])
@pytest.mark.parametrize("name", ["blas", "processor", "numpy"])
def test_another_machine_is_told_of(
    name: str, algorithm: str, source: Path, tmp_path: Path, caplog: Any
) -> None:
    """Once, where bits may differ."""
    workspace = tmp_path / "workspace"
    first, _ = go_on(source, workspace, 5, algorithm=algorithm)
    assert caplog.text == ""
    run = json.loads((workspace / "run.json").read_text())
    assert run["machine"].keys() == {"numpy", "numba", "blas", "processor"}
    run["machine"][name] = "another one"
    (workspace / "run.json").write_text(json.dumps(run))
    again, _ = go_on(source, workspace, 5, algorithm=algorithm)
    assert differences(again, first) == []
    told = [record for record in caplog.records if "another kind of machine" in record.message]
    assert len(told) == (algorithm == "block")
