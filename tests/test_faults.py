"""Killed, out of disk, damaged: a clear error or the same bits, never a wrong result."""

import asyncio
import errno
import hashlib
import itertools
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from helpers import bits, blocks_of, differences, normal, write_zarr
from zarr.storage import LocalStore

import streamsvd.algorithm.compiled
import streamsvd.fitting.in_place
import streamsvd.fitting.run
from streamsvd import ResourceError, SourceError, StreamSVDError, SVDResult, sparse_svd

P = 4


def digest(result: SVDResult) -> str:
    """Of all bits of a result."""
    return hashlib.sha256(repr(sorted(bits(result).items())).encode()).hexdigest()


# --------------------------------------------------------------------------------------- kill -9


class Stage(NamedTuple):
    """A kind of run most of whose time goes into what it is named after."""

    start: str
    """When the clock of a kill starts."""
    n_transforms: int
    options: dict[str, Any]
    seconds: float = 5.0
    """Between checkpoints."""
    strips: bool = False
    """Read the source a chunk at a time."""
    waits_after: str = "transforms"
    """Where a run waits to be killed, however fast the machine is."""


RANDOM = {"selection": "random", "random_state": 0}
STAGES = {
    "ingest": Stage("starts", 200, {"center": "features"}, strips=True, waits_after="ingest"),
    "transforms": Stage("transforms", 15_000, RANDOM, 0.02),
    "replay": Stage("starts", 15_000, {"normalize": "samples"} | RANDOM, 0.02),
    "checkpoints": Stage("starts", 150, {}, 0.0),
}


def run(
    source: Path, workspace: Path, kind: Stage, n_transforms: int, waits: bool = False
) -> tuple[str, float]:
    """A fit in a process of its own: a digest of its result, and what it took.

    Says when it starts, and when it makes its first transform.
    """
    streamsvd.algorithm.compiled.SECONDS = 0.0
    streamsvd.fitting.run.CHECKPOINT_SECONDS = kind.seconds
    told = set()

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in told:
            told.add(stage)
            print(stage, flush=True)
        if waits and stage == kind.waits_after and done == total:
            time.sleep(1000)

    start = time.monotonic()
    print("starts", flush=True)
    with blocks_of(300, "disk, rows held", *([1] if kind.strips else [])):
        made = sparse_svd(
            source,
            P,
            n_transforms=n_transforms,
            workspace=workspace,
            resume=True,
            progress=progress,
            **kind.options,
        )
    return digest(made), time.monotonic() - start


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_any_moment(stage: str, seed: int, tmp_path: Path, forks: Any) -> None:
    """Six times in a row; then it goes on to the same bits."""
    kind = STAGES[stage]
    m = kind.n_transforms
    source = write_zarr(tmp_path / "x.zarr", normal(20, 2000), (20, 20))
    expected, seconds = forks.run(run, source, tmp_path / "whole", kind, m)
    random = np.random.default_rng([seed, *stage.encode()])
    workspace = tmp_path / "workspace"
    for k in range(1, 7):
        job = forks.start(run, source, workspace, kind, m * k // 6, waits=True)
        job.until(kind.start)
        time.sleep((0.7 if stage == "ingest" else 0.25) * seconds * random.random())
        assert job.kill() == -signal.SIGKILL
    for _ in range(2):
        assert forks.run(run, source, workspace, kind, m)[0] == expected


OFTEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "gain": {"selection": "gain", "dtype": "float32"},
    "kogbetliantz": {"selection": "kogbetliantz", "center": "features", "normalize": "features"},
    "random": RANDOM | {"normalize": "samples"},
    "centred": {"center": "features", "normalize": "samples"},
    "of samples": {"center": "samples", "normalize": "features", "dtype": "float32"},
    "pivot": {"pivot": True, "center": "features"},
    "penalty": {"fill_penalty": 0.5, "selection": "gain", "pivot": True},
    "max_fill": {"max_fill": 0.9, "fill_penalty": 0.2},
    "max_nonzeros": {"max_nonzeros": 70, "center": "samples"},
    "of each": {"max_nonzeros_per_component": 19},
    "batches": {"batch_size": 2},
    "large batches": {"batch_size": P, "pivot": True, "normalize": "features"},
    "threads": {"n_threads": 2},
    "threads, batches": {"n_threads": 3, "batch_size": 3, "center": "features"},
    "refined": {"refine": True, "max_fill": 0.9, "center": "features"},
    "block": {"algorithm": "block"},
    "block, threads": {"algorithm": "block", "n_threads": 2, "center": "features"},
    "block, random": {"algorithm": "block", "normalize": "features"} | RANDOM,
    "block, budget": {"algorithm": "block", "max_nonzeros": 79, "center": "samples"},
}
"""Sets of options, each killed ten times."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OFTEN)
def test_killed_ten_times_with(name: str, tmp_path: Path, forks: Any) -> None:
    """With a checkpoint every few milliseconds; two hundred kills in all."""
    m = 30 if "block" in name else 300
    kind = Stage("starts", m, OFTEN[name], 0.004, strips=len(name) % 2 == 0)
    source = write_zarr(tmp_path / "x.zarr", normal(20, 900), (20, 90))
    expected, seconds = forks.run(run, source, tmp_path / "whole", kind, m)
    random = np.random.default_rng([*name.encode()])
    workspace = tmp_path / "workspace"
    for k in range(1, 11):
        job = forks.start(run, source, workspace, kind, m * k // 10, waits=True)
        job.until(kind.start)
        time.sleep(0.6 * seconds * random.random())
        code = job.kill()
        # it may have used up its budget, and then it does not wait
        assert code == -signal.SIGKILL or (code == 0 and "max" in str(kind.options))
    assert forks.run(run, source, workspace, kind, m)[0] == expected


def save_again_and_again(path: Path, overwrite: bool) -> None:
    made = sparse_svd(normal(20, 300), P, n_transforms=300)
    for k in itertools.count():
        made.at(k % 300).save(path if overwrite else path / str(k), overwrite=overwrite)
        if k == 0:
            print("saved", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [True, False])
def test_killed_while_saving(overwrite: bool, tmp_path: Path, forks: Any) -> None:
    """No result at the path, or a whole one; with `overwrite` the one before is never lost."""
    random = np.random.default_rng(overwrite)
    expected = sparse_svd(normal(20, 300), P, n_transforms=300)
    for kill in range(6):
        path = tmp_path / str(kill) / "result.zarr"
        job = forks.start(save_again_and_again, path, overwrite)
        job.until("saved")
        time.sleep(0.15 * random.random())
        assert job.kill() == -signal.SIGKILL
        if overwrite:
            places = [path] if path.exists() else hidden(path, "old")
            assert len(places) == 1
        else:
            places = list(path.glob("[0-9]*"))
            assert places
        for place in places:
            found = SVDResult.load(place)
            assert bits(found) == bits(expected.at(found.n_transforms))
        # what the killed run left is in nobody's way
        expected.save(path if overwrite else path / "0", overwrite=True)
        assert bits(SVDResult.load(path if overwrite else path / "0")) == bits(expected)


def hidden(path: Path, kind: str) -> list[Path]:
    return list(path.parent.glob(f".{path.name}.*.{kind}"))


def save_and_die(path: Path) -> None:
    """Killed when all is written, before it is at its place."""

    def dies(source: Any, target: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    os.rename = dies
    sparse_svd(normal(8, 30), 2, n_transforms=20).save(path)


def save_and_wait(path: Path) -> None:
    """At work when others save beside it."""
    rename = os.rename

    def waits(source: Any, target: Any) -> None:
        print("written", flush=True)
        time.sleep(2)
        rename(source, target)

    os.rename = waits
    sparse_svd(normal(8, 30), 2, n_transforms=20).save(path)


def test_what_killed_saves_left_is_removed_by_the_next(tmp_path: Path, forks: Any) -> None:
    """Beside it, under any name; not what another process is at work on, nor what is not ours."""
    made = sparse_svd(normal(8, 30), 2, n_transforms=20)
    for name in ("a.zarr", "b.zarr"):
        assert forks.start(save_and_die, tmp_path / name).wait() == -signal.SIGKILL
        assert len(hidden(tmp_path / name, "new")) == 1
    others = [tmp_path / ".mine.new", tmp_path / ".a.zarr.12345678.new", tmp_path / ".a.zarr"]
    for path in others:
        path.mkdir()
    job = forks.start(save_and_wait, tmp_path / "c.zarr")
    job.until("written")
    made.save(tmp_path / "a.zarr")
    assert hidden(tmp_path / "b.zarr", "new") == []
    assert len(hidden(tmp_path / "c.zarr", "new")) == 1
    job.result()
    names = {"a.zarr", "c.zarr", *(path.name for path in others)}
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in ("a.zarr", "c.zarr"):
        assert bits(SVDResult.load(tmp_path / name)) == bits(made)


def test_only_copies_are_kept_until_there_is_another(tmp_path: Path, forks: Any) -> None:
    path = tmp_path / "result.zarr"
    made = sparse_svd(normal(8, 30), 2, n_transforms=20)
    assert forks.start(save_and_die_between, path).wait() == -signal.SIGKILL
    made.save(tmp_path / "other.zarr")
    assert len(hidden(path, "old")) == len(hidden(path, "new")) == 1
    made.save(path)
    assert sorted(os.listdir(tmp_path)) == ["other.zarr", "result.zarr"]


def save_and_die_between(path: Path) -> None:
    """Killed between the two renames of an overwriting save."""
    rename = os.rename

    def dies(source: Any, target: Any) -> None:
        if Path(target) == path:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    made = sparse_svd(normal(8, 30), 2, n_transforms=20)
    made.at(7).save(path)
    os.rename = dies
    made.save(path, overwrite=True)


def test_killed_between_the_renames_of_a_save(tmp_path: Path, forks: Any) -> None:
    """For that moment alone nothing is at the path: both results are beside it, whole."""
    path = tmp_path / "result.zarr"
    assert forks.start(save_and_die_between, path).wait() == -signal.SIGKILL
    made = sparse_svd(normal(8, 30), 2, n_transforms=20)
    if path.exists():
        assert SVDResult.load(path).n_transforms in (7, 20)
        return
    (old,), (new,) = hidden(path, "old"), hidden(path, "new")
    assert bits(SVDResult.load(old)) == bits(made.at(7))
    assert bits(SVDResult.load(new)) == bits(made)
    with pytest.raises(StreamSVDError, match=rf"{old.name}|{new.name}"):  # says where they are
        SVDResult.load(path)


@pytest.mark.parametrize("n_renames", [0, 1])
def test_ctrl_c_between_the_renames_of_a_save(
    n_renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.zarr"
    made = sparse_svd(normal(8, 30), 2, n_transforms=20)
    made.at(7).save(path)
    rename, count = os.rename, itertools.count()

    def interrupted(source: Any, target: Any) -> None:
        if next(count) == n_renames:
            signal.raise_signal(signal.SIGINT)
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.save(path, overwrite=True)
    assert bits(SVDResult.load(path)) == bits(made.at(7))
    assert os.listdir(tmp_path) == ["result.zarr"]


# ------------------------------------------------------------------------------------- full disk


@contextmanager
def no_file_larger_than(n_bytes: int) -> Iterator[None]:
    """A disk that is full, for this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def refused_for_space(call: Callable[[], Any]) -> str:
    """The message of the error."""
    with pytest.raises(ResourceError) as refused:
        call()
    message = str(refused.value)
    assert os.strerror(errno.EFBIG) in message
    assert "room" in message or "space" in message
    return message


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_zarr(tmp_path / "x.zarr", normal(12, 400), (12, 32))


FULL = [
    # room for a file, transforms, what does not fit
    (10, 50, "run.json"),
    (None, 50, "x.zarr"),  # the metadata of the working store
    (5000, 50, "x.zarr"),  # its chunks
    (10_000, 500, "log"),
    (None, 50, "state.json"),
    (None, 50, "ingested.npz"),
]


WRITERS: dict[str, tuple[Any, str]] = {
    "state.json": (streamsvd.fitting.workspace.Workspace, "set_clean"),
    "ingested.npz": (streamsvd.fitting.workspace.Workspace, "save_ingested"),
    "x.zarr": (streamsvd.fitting.in_place, "create_raw_array"),
}


@pytest.mark.parametrize(("room", "m", "what"), FULL)
def test_a_full_disk_in_a_workspace(
    room: int | None, m: int, what: str, source: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """The error names the file and the remedy; with room the run goes on to the same bits."""
    workspace = tmp_path / "workspace"
    expected = sparse_svd(source, P, n_transforms=m)

    def fit() -> SVDResult:
        with blocks_of(100, "disk"):
            return sparse_svd(source, P, n_transforms=m, workspace=workspace, resume=True)

    with monkeypatch.context() as patch:
        if room is None:  # small files: let the disk fill up before them
            place, name = WRITERS[what]
            write = getattr(place, name)

            def when_full(*args: Any) -> None:
                with no_file_larger_than(10):
                    write(*args)

            patch.setattr(place, name, when_full)
            message = refused_for_space(fit)
        else:
            with no_file_larger_than(room):
                message = refused_for_space(fit)
    assert str(workspace / what) in message
    assert not (workspace / "state.json").exists()
    assert [path for path in workspace.rglob(".*") if path.is_file()] == []
    assert differences(fit(), expected) == []
    assert (workspace / "state.json").exists()


def test_a_full_disk_without_a_workspace(source: Path, temporary: Path) -> None:
    with blocks_of(100, "disk"), no_file_larger_than(5000):
        message = refused_for_space(lambda: sparse_svd(source, P, n_transforms=50))
    assert str(temporary) in message
    assert "workspace=" in message  # on another disk
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("room", [10, 500, 2000])
def test_a_full_disk_while_saving(there: bool, room: int, tmp_path: Path) -> None:
    path = tmp_path / "result.zarr"
    made = sparse_svd(normal(12, 400), P, n_transforms=100)
    if there:
        made.at(20).save(path)
    with no_file_larger_than(room):
        message = refused_for_space(lambda: made.save(path, overwrite=True))
    assert str(path) in message
    assert os.listdir(tmp_path) == ["result.zarr"] * there
    if there:
        assert bits(SVDResult.load(path)) == bits(made.at(20))
    made.save(path, overwrite=True)
    assert bits(SVDResult.load(path)) == bits(made)


def test_nothing_is_written_after_an_error(tmp_path: Path, monkeypatch: Any) -> None:
    """Zarr writes several files at once: the slow ones do not bring back what was removed."""
    fast = LocalStore.set

    async def slow(self: LocalStore, key: str, value: Any) -> None:
        if key != "zarr.json":
            await asyncio.sleep(0.2)
        await fast(self, key, value)

    async def full(self: LocalStore, key: str, value: Any) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    made = sparse_svd(normal(12, 400), P, n_transforms=100)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "set", slow)
        patch.setattr(LocalStore, "set_if_not_exists", full)
        refused_for_space(lambda: made.save(tmp_path / "result.zarr"))
    time.sleep(0.4)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_while_scores_are_written(tmp_path: Path) -> None:
    made = sparse_svd(normal(12, 400), P, n_transforms=100)
    with no_file_larger_than(5000):
        message = refused_for_space(lambda: made.transform(normal(12, 4000), tmp_path / "scores"))
    assert str(tmp_path / "scores") in message
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------------------- damage in the source


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def garble(path: Path) -> None:
    path.write_bytes(bytes(255 - byte for byte in path.read_bytes()))


DAMAGE = [truncate, empty, Path.unlink]


@pytest.mark.parametrize("harm", DAMAGE)
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_a_damaged_chunk_of_the_source(
    harm: Callable[[Path], None], compressors: str | None, tmp_path: Path
) -> None:
    """Named; put back as it was, the run goes on."""
    X = normal(12, 400)
    source = write_zarr(tmp_path / "x.zarr", X, (12, 32), compressors=compressors)
    expected = sparse_svd(source, P, n_transforms=50)
    workspace, chunk = tmp_path / "workspace", source / "c" / "0" / "7"
    options: dict[str, Any] = {"n_transforms": 50, "workspace": workspace}
    spare = shutil.copy2(chunk, tmp_path / "spare")
    harm(chunk)
    for call in (
        lambda: sparse_svd(source, P, n_transforms=50),
        lambda: sparse_svd(source, P, **options),
    ):
        with pytest.raises(SourceError, match=r"c/0/7"):
            call()
    shutil.rmtree(workspace, ignore_errors=True)
    shutil.copy2(spare, chunk)
    sparse_svd(source, P, n_transforms=20, workspace=workspace)
    (workspace / "state.json").unlink()
    harm(chunk)
    with pytest.raises(StreamSVDError, match=r"c/0/7|another source"):
        sparse_svd(source, P, resume=True, **options)
    shutil.copy2(spare, chunk)
    assert differences(sparse_svd(source, P, resume=True, **options), expected) == []


@pytest.mark.parametrize("harm", DAMAGE)
@pytest.mark.parametrize("compressors", [None, "auto"])
def test_damaged_while_it_is_read(
    harm: Callable[[Path], None], compressors: str | None, tmp_path: Path, monkeypatch: Any
) -> None:
    """A chunk that is lost hours after the start must not read as zeros either."""
    monkeypatch.setattr(streamsvd.sizes, "STRIP_BYTES", 1)
    source = write_zarr(tmp_path / "x.zarr", normal(12, 400), (12, 32), compressors=compressors)

    def progress(stage: str, done: int, total: int) -> None:
        chunk = source / "c" / "0" / "11"
        if stage == "ingest" and chunk.exists():
            harm(chunk)

    with pytest.raises(SourceError, match=r"c/0/11"):
        sparse_svd(source, P, n_transforms=50, progress=progress)


def test_the_source_is_only_read(tmp_path: Path) -> None:
    """Not a byte, nor a time, of it changes."""
    path = write_zarr(tmp_path / "x.zarr", normal(12, 400), (12, 32))
    (path / "c").chmod(0o555)

    def state() -> dict[str, tuple[str, int, int]]:
        return {
            str(file.relative_to(path)): (
                hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "",
                file.stat().st_mtime_ns,
                file.stat().st_mode,
            )
            for file in [path, *path.rglob("*")]
        }

    before = state()
    array = zarr.open_array(LocalStore(path, read_only=True), mode="r")
    for source, workspace in ((path, tmp_path / "one"), (array, tmp_path / "two")):
        made = sparse_svd(source, P, n_transforms=30, workspace=workspace, center="features")
        sparse_svd(source, P, n_transforms=60, workspace=workspace, center="features", resume=True)
        with blocks_of(100, "disk"):
            assert (
                differences(sparse_svd(source, P, n_transforms=30, center="features"), made) == []
            )
        made.transform(source)
        made.accuracy(source)
    assert state() == before
    with pytest.raises(StreamSVDError):
        sparse_svd(path, P, workspace=path)
    assert {name: digest for name, (digest, *_) in state().items()} == {
        name: digest for name, (digest, *_) in before.items()
    }


# ------------------------------------------------------------------------- damage in the workspace


@pytest.fixture
def stopped(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace at transform 40, with a log of several segments."""
    workspace = tmp_path / "workspace"
    monkeypatch.setattr(streamsvd.algorithm.compiled, "SECONDS", 0.0)
    monkeypatch.setattr(streamsvd.fitting.run, "CHECKPOINT_SECONDS", -1.0)
    with blocks_of(100, "disk"):
        sparse_svd(source, P, n_transforms=3, workspace=workspace)
    monkeypatch.setattr(streamsvd.fitting.run, "CHECKPOINT_SECONDS", 1000.0)
    with blocks_of(100, "disk"):
        sparse_svd(source, P, n_transforms=40, workspace=workspace, resume=True)
    assert len(os.listdir(workspace / "log")) == 4
    return workspace


def go_on(source: Path, workspace: Path) -> tuple[SVDResult, list[str]]:
    took: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in took:
            took.append(stage)

    with blocks_of(100, "disk"):
        made = sparse_svd(
            source, P, n_transforms=60, workspace=workspace, resume=True, progress=progress
        )
    return made, took


@pytest.mark.parametrize("harm", [*DAMAGE, extend])
@pytest.mark.parametrize("chunk", ["c/0/0", "c/0/2", "c/0/3", "zarr.json"])
def test_a_damaged_working_store_is_made_again(
    harm: Callable[[Path], None], chunk: str, source: Path, stopped: Path
) -> None:
    """In a process of its own this would be a bus error, were the file mapped as it is."""
    harm(stopped / "x.zarr" / chunk)
    made, took = go_on(source, stopped)
    # zarr reads metadata that ends in something else
    assert took == ["ingest", "replay", "transforms"] or (harm is extend and chunk == "zarr.json")
    assert differences(made, sparse_svd(source, P, n_transforms=60)) == []
    assert go_on(source, stopped)[1] == []


def test_a_lost_working_store_is_made_again(source: Path, stopped: Path) -> None:
    shutil.rmtree(stopped / "x.zarr")
    made, took = go_on(source, stopped)
    assert took == ["ingest", "replay", "transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=60)) == []


def other_shape(path: Path) -> None:
    shutil.rmtree(path)
    write_zarr(path, normal(12, 399), (12, 100))


def other_precision(path: Path) -> None:
    shutil.rmtree(path)
    write_zarr(path, normal(12, 400).astype("float32"), (12, 100))


def compressed(path: Path) -> None:
    shutil.rmtree(path)
    write_zarr(path, normal(12, 400), (12, 100), compressors="auto")


@pytest.mark.parametrize("replace", [other_shape, other_precision, compressed])
def test_another_array_is_not_taken_for_the_working_store(
    replace: Callable[[Path], None], source: Path, stopped: Path
) -> None:
    replace(stopped / "x.zarr")
    made, took = go_on(source, stopped)
    assert took == ["ingest", "replay", "transforms"]
    assert differences(made, sparse_svd(source, P, n_transforms=60)) == []


def nothing(path: Path) -> None:
    path.write_text("{}")


@pytest.mark.parametrize("harm", [*DAMAGE, garble, nothing, extend])
@pytest.mark.parametrize(
    "name",
    ["state.json", "ingested.npz", "log/000000000000000.npz", "log/000000000000003.npz"],
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_record_costs_work_at_most(
    harm: Callable[[Path], None], name: str, clean: bool, source: Path, stopped: Path
) -> None:
    """A clear error that names the file, or the same bits after doing the lost work again."""
    if not clean and name != "state.json":
        (stopped / "state.json").unlink()
    harm(stopped / name)
    try:
        made, _ = go_on(source, stopped)
    except StreamSVDError as error:
        message = str(error)
    else:
        assert differences(made, sparse_svd(source, P, n_transforms=60)) == []
        assert go_on(source, stopped)[1] == []
        return
    assert str(stopped / name) in message


@pytest.mark.parametrize("harm", [*DAMAGE, garble, nothing, extend])
def test_a_damaged_identity_is_an_error(
    harm: Callable[[Path], None], source: Path, stopped: Path
) -> None:
    """Without it nobody knows whose log this is."""
    harm(stopped / "run.json")
    for resume in (True, False):
        with pytest.raises(StreamSVDError) as refused:
            sparse_svd(source, P, n_transforms=60, workspace=stopped, resume=resume)
        assert str(stopped) in str(refused.value)
        assert "new folder" in str(refused.value)


# -------------------------------------------------------------------- places that cannot be used


@pytest.mark.parametrize(
    "place",
    ["/proc/streamsvd", "/sys/streamsvd", "/dev/null", "/dev/null/workspace", "{file}", "{file}/w"],
)
def test_a_workspace_that_cannot_be_made(place: str, source: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    workspace = place.format(file=file)
    with pytest.raises(ResourceError, match=r"cannot be written: .*; give another folder") as e:
        sparse_svd(source, P, workspace=workspace)
    assert workspace in str(e.value)
    assert file.read_text() == "precious"


def test_a_workspace_that_is_a_dead_link(source: Path, tmp_path: Path) -> None:
    (tmp_path / "workspace").symlink_to(tmp_path / "gone" / "away")
    with pytest.raises(ResourceError, match="cannot be written"):
        sparse_svd(source, P, workspace=tmp_path / "workspace")


def test_a_workspace_behind_a_link(source: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "workspace").symlink_to(tmp_path / "disk")
    made = sparse_svd(source, P, n_transforms=30, workspace=tmp_path / "workspace")
    assert (tmp_path / "disk" / "state.json").exists()
    assert differences(made, sparse_svd(source, P, n_transforms=30)) == []


def with_few_descriptors(source: Path, workspace: Path, limit: int) -> tuple[str, str]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with blocks_of(4, "disk"):
            sparse_svd(source, P, n_transforms=10, workspace=workspace)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize("limit", [60, 61])
def test_too_many_open_files(limit: int, source: Path, tmp_path: Path, forks: Any) -> None:
    """Each chunk of the working store is a mapped file."""
    name, message = forks.run(with_few_descriptors, source, tmp_path / "workspace", limit)
    assert name == "ResourceError"
    assert os.strerror(errno.EMFILE) in message
    assert "ulimit -n" in message
