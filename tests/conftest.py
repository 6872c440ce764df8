"""Fixtures of all tests, and how hypothesis draws: the same examples every time.

``pytest --hypothesis-profile=explore`` looks further than the suite does.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import streamsvd
from streamsvd import sizes
from streamsvd.algorithm.replay import replay
from streamsvd.matrix.working import WorkingMatrix

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "suite",
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=SLOW,
)
settings.register_profile(
    "explore", deadline=None, max_examples=2000, database=None, suppress_health_check=SLOW
)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the design, the data and the golden files, beside the repository."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("shared data absent")
    return folder


@pytest.fixture
def narrow_strips(monkeypatch) -> None:
    """Read a dozen samples of ten features at a time, or one chunk: data come in many strips."""
    monkeypatch.setattr("streamsvd.sizes.STRIP_BYTES", 1000)


@pytest.fixture
def serial_dask() -> Iterator[None]:
    """Compute arrays of Dask in the thread that asks for them."""
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """An empty folder that `tempfile` uses during the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# ------------------------------------------------------------------------- processes of one's own


class Job:
    """A function at work in a process of its own; what it prints is in `said`.

    The code that `wait` returns is that of `subprocess`: negative for a signal.
    """

    def __init__(self, forks: "Forks", pid: int, folder: Path) -> None:
        self._forks, self.pid, self.folder = forks, pid, folder
        self._code: int | None = None

    def said(self) -> list[str]:
        return (self.folder / "stdout").read_text().splitlines()

    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    def until(self, word: str, *, or_end: bool = False) -> None:
        """Wait until `word` was printed; that the process ends first is an error unless allowed."""
        deadline = time.monotonic() + 60
        while word not in self.said():
            self._look()
            if self._code is not None:
                assert or_end, f"ended with {self._code} before {word!r}: {self.errors()}"
                return
            assert time.monotonic() < deadline, f"no {word!r}: {self.said()}"
            time.sleep(0.001)

    def _look(self) -> None:
        if self._code is None:
            self._code = self._forks.ask("poll", self.pid)

    def signal(self, number: int) -> None:
        if self._code is None:  # else the number may be another's by now
            os.kill(self.pid, number)

    def kill(self) -> int:
        """Kill -9; the code tells whether it came in time."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        deadline = time.monotonic() + 120
        while self._look() or self._code is None:
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise AssertionError(f"hangs: {self.said()} {self.errors()}")
            time.sleep(0.002)
        return self._code

    def result(self) -> Any:
        """What the function returned; it must have."""
        code = self.wait()
        assert code == 0, f"ended with {code}: {self.errors()}"
        return pickle.loads((self.folder / "result").read_bytes())


class Forks:
    """A process with compiled kernels, forked for each job: killing one costs no start-up."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        package, tests = Path(streamsvd.__file__).parents[1], Path(__file__).parent
        self._server = subprocess.Popen(
            [sys.executable, "-c", "import conftest; conftest.serve_forks()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": f"{package}:{tests}", "OPENBLAS_NUM_THREADS": "1"},
        )

    def start(self, function: Callable[..., Any], *args: Any, **options: Any) -> Job:
        """Call a function of a test module."""
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        pid = self.ask("start", folder, pickle.dumps((function, args, options)))
        return Job(self, pid, folder)

    def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of a test module and wait for what it returns."""
        return self.start(function, *args, **options).result()

    def ask(self, *request: Any) -> Any:
        pickle.dump(request, self._server.stdin)
        self._server.stdin.flush()
        return pickle.load(self._server.stdout)

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait(10)
        self._server.stdout.close()


def serve_forks() -> None:
    """The process that forks, with kernels compiled for float64.

    It must have no threads: nothing of zarr is called before a fork.
    """
    import helpers  # noqa: F401  (so that jobs need not import it)

    X = np.random.default_rng(0).standard_normal((6, 40))
    for option in (None, "features", "samples"):
        made = streamsvd.sparse_svd(
            X, 2, n_transforms=30, center=option, normalize=option, progress=lambda *told: None
        )
    replay(WorkingMatrix([np.array(X[:, :20]), np.array(X[:, 20:])], 40), made.log, 2**20)
    assert made.components.shape == (2, 6)
    assert made.right.shape == (2, 40)
    assert len(made.history.trace) == 30
    warnings.simplefilter("error")
    while True:
        try:
            what, *request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = _fork(*request) if what == "start" else _poll(*request)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _fork(folder: Path, call: bytes) -> int:
    for name in ("stdout", "stderr"):
        (folder / name).touch()
    pid = os.fork()
    if pid:
        return pid
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_APPEND), number)
    code: Any = 1
    try:
        function, args, options = pickle.loads(call)
        result = function(*args, **options)
        (folder / "result").write_bytes(pickle.dumps(result))
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _poll(pid: int) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Starts functions of test modules in processes of their own."""
    server = Forks(tmp_path_factory.mktemp("forks"))
    yield server
    server.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples in a batch and a leaf: little data has many of each."""
    monkeypatch.setattr(sizes, "BATCH_BYTES", 8)
    monkeypatch.setattr(sizes, "FEW_SAMPLES", 16)
    monkeypatch.setattr(sizes, "PRODUCT_LEAF", 48)
    monkeypatch.setattr(sizes, "LEAF_BATCHES", 3)
