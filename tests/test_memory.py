"""Memory stays flat: data larger than a hard limit is fitted, and forecasts hold."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import bits
from zarr.codecs import ZstdCodec

from streamsvd import SVDResult, sparse_svd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux"),
]

MB = 10**6
N_FEATURES, N_SAMPLES, CHUNK = 1024, 250_000, 2000
DATA_BYTES = 4 * N_FEATURES * N_SAMPLES
LIMIT = 450 * MB
"""Of private memory, all included. Importing takes 140 MB of it; the fit passes from 330 MB on."""

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
from test_memory import digest
from streamsvd import sparse_svd
from streamsvd.fitting.planning import plan_fit, resolve
from streamsvd.options import Ask, Options
from streamsvd.data.kinds import open_data

path, options = json.loads(sys.argv[1])
X = np.load(path) if path.endswith(".npy") else path
source, asked = open_data(X, Ask(1)), Options(**options)
plan = plan_fit(source, resolve(source, asked), asked)
done, start, seen = threading.Event(), private(), []
watcher = threading.Thread(target=watch)
watcher.start()
try:
    result = sparse_svd(X, **options)
    content = digest(result)
finally:
    done.set()
    watcher.join()
print(json.dumps({
    "digest": content,
    "pairs": result.log.arrays()[result.log.NAMES[0]].tolist(),
    "in_memory": plan.in_memory,
    "planned": plan.peak_memory,
    "taken": max(seen) - start,
}))
"""


def digest(result: SVDResult) -> str:
    """Of all bits of a result."""
    return hashlib.sha256(repr(sorted(bits(result).items())).encode()).hexdigest()


LOAD = "import sys, zarr; print(zarr.open_array(sys.argv[1], mode='r')[:].nbytes)"


def python(code: str, argument: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new process, in at most `limit` bytes of private memory.

    With a limit kernels are compiled anew: that takes memory too.
    """
    command = ["prlimit", f"--data={limit}"] if limit else []
    command += [sys.executable, "-c", code, argument]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    here = {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    here |= {"STREAMSVD_CACHE": "0"} if limit else {}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | here,
    )


def run(path: Path, limit: int | None = None, **options: Any) -> dict[str, Any]:
    options = {"n_components": 5, "n_transforms": 40} | options
    done = python(RUN, json.dumps([str(path), options]), limit)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def write(path: Path, n_samples: int, chunk: int, **options: Any) -> Path:
    """A store of random numbers, smaller from feature to feature."""
    array = zarr.create_array(
        path, shape=(N_FEATURES, n_samples), chunks=(N_FEATURES, chunk), dtype="f4", **options
    )
    random, scale = np.random.default_rng(0), np.linspace(3, 1, N_FEATURES, dtype="f4")
    for start in range(0, n_samples, chunk):
        part = random.random((N_FEATURES, chunk), dtype="f4")
        array[:, start : start + chunk] = (part - 0.5) * scale[:, None]
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory):
    """A store of 1 GB."""
    folder = tmp_path_factory.mktemp("large")
    yield write(folder / "x.zarr", N_SAMPLES, CHUNK, compressors=None)
    shutil.rmtree(folder)


def test_data_larger_than_the_limit(large: Path) -> None:
    """Loaded whole it does not fit; in a working store it does, with the same bits."""
    assert LIMIT < DATA_BYTES / 2
    loaded = python(LOAD, str(large), LIMIT)
    assert loaded.returncode != 0
    assert "MemoryError" in loaded.stderr
    limited = run(large, LIMIT, memory_limit="220MiB")
    assert not limited["in_memory"]
    unlimited = sparse_svd(large, 5, n_transforms=40)
    assert len(unlimited.pairs) == 40
    assert limited["pairs"] == unlimited.pairs.tolist()
    assert limited["digest"] == digest(unlimited)
    assert limited["taken"] <= limited["planned"] <= 220 * 2**20


def test_the_default_limit_is_that_of_the_process(large: Path) -> None:
    """Without `memory_limit` the fit sees the limit that it runs under."""
    limited = run(large, 700 * MB)
    assert not limited["in_memory"]
    assert limited["taken"] <= limited["planned"] <= 350 * MB


def zarr_in_memory(folder: Path) -> Path:
    return write(folder / "x.zarr", 50_000, 5000, compressors=None)


def wide_compressed_chunks(folder: Path) -> Path:
    return write(folder / "x.zarr", 60_000, 20_000, compressors=ZstdCodec(level=1))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (zarr_in_memory, {"center": "samples", "normalize": "samples"}),
        (wide_compressed_chunks, {"memory_limit": "1GiB", "dtype": "float64"}),
        (
            wide_compressed_chunks,
            {
                "algorithm": "block",
                "n_components": 80,
                "n_transforms": 30,
                "memory_limit": "1GiB",
                "dtype": "float64",
            },
        ),
    ],
)
def test_the_forecast_holds(make: Any, options: dict[str, Any], tmp_path: Path) -> None:
    made = run(make(tmp_path), **options)
    assert made["taken"] <= made["planned"]
    assert made["in_memory"] == (make is zarr_in_memory)
    shutil.rmtree(tmp_path)
