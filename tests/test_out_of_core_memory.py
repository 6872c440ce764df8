"""Measured peaks of fits in memory, on disk and resumed stay below the plan, and flat in N.

`test_memory.py` has data larger than a hard limit; here are the kinds of plan. Each fit runs in a
process of its own whose private memory is limited to what it has when it starts, the plan, and
`STACKS`; the peak is sampled from outside.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec

import streamsvd
from streamsvd.algorithm.log import Moves, TransformLog
from streamsvd.plan import make_plan
from streamsvd.problem import Problem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux"),
]

MIB = 2**20

STACKS = 64 * MIB
"""Address space beyond what is used: stacks of half a dozen threads and what malloc sets aside."""

RUN = """
import json, resource, sys
from pathlib import Path
from streamsvd import sparse_svd
from streamsvd.fitting import in_place
from streamsvd.fitting.planning import plan_fit, resolve
from streamsvd.options import Ask, Options
from streamsvd.data.kinds import open_data

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))

path, options, stacks = json.loads(sys.argv[1])
if "workspace" not in options:
    in_place.page_cache = lambda: 0  # what is on disk has columns held, as large stores have
source, asked = open_data(path, Ask(options.get("sample_axis", 1))), Options(**options)
plan = plan_fit(source, resolve(source, asked), asked)
had, limit = status("RssAnon"), status("VmData") + plan.peak_memory + stacks
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(json.dumps({"had": had, "plan": vars(plan)}), flush=True)
took = []
progress = lambda stage, done, total: took.append(stage)
result = sparse_svd(path, **options, progress=progress)
shapes = [result.components.shape, result.right.shape, result.singular_values.shape]
print(json.dumps({"shapes": shapes, "stages": list(dict.fromkeys(took))}), flush=True)
"""


class Measured(NamedTuple):
    """What a fit took; bytes."""

    peak: int
    planned: int
    in_memory: bool
    hold_rows: bool
    stages: list[str]


def run(path: Path, *, cache: bool = True, **options: Any) -> Measured:
    """Fit in a process of its own and look on."""
    options = {"memory_limit": "1GiB"} | options
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps([str(path), options, STACKS])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(streamsvd.__file__).parents[1]),
            "OPENBLAS_NUM_THREADS": "1",
            "STREAMSVD_CACHE": "1" if cache else "0",
        },
    )
    with process:
        seen, deadline = [0], time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            seen.append(private(process.pid))
            time.sleep(0.001)
        process.kill()
        out, errors = process.communicate()
    assert process.returncode == 0, errors[-2000:]
    first, last = (json.loads(line) for line in out.splitlines())
    plan = first["plan"]
    return Measured(
        max(seen) - first["had"],
        plan["peak_memory"],
        plan["in_memory"],
        plan["hold_rows"],
        last["stages"],
    )


def private(pid: int) -> int:
    """Anonymous memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def write(
    path: Path,
    shape: tuple[int, int],
    chunk: int,
    *,
    sample_axis: int = 1,
    dtype: str = "f8",
    compressors: Any = None,
) -> Path:
    """A store of random numbers; `shape` is (n, N), whatever the axis of the samples."""
    n, N = shape
    order = slice(None, None, 1 if sample_axis else -1)
    array = zarr.create_array(
        path, shape=shape[order], chunks=(n, chunk)[order], dtype=dtype, compressors=compressors
    )
    random = np.random.default_rng(0)
    for start in range(0, N, chunk):
        stop = min(start + chunk, N)
        if dtype == "u1":
            strip = random.integers(0, 200, (n, stop - start), dtype="u1")
        else:
            strip = random.random((n, stop - start), dtype="f4").astype(dtype) - 0.5
        where = (slice(None), slice(start, stop))[order]
        array[where] = strip if sample_axis else strip.T
    return path


WIDE = (64, 200_000)  # 100 MB of float64
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[bool, bool]]] = {
    # source, options: in memory, rows held
    "in memory": (
        {"shape": WIDE, "chunk": 4000, "compressors": ZstdCodec(level=1)},
        {"n_components": 5, "n_transforms": 2000, "center": "features"},
        (True, False),
    ),
    "rows held": (
        {"shape": WIDE, "chunk": 4000},
        {"n_components": 5, "n_transforms": 1000, "memory_limit": "200MiB"}
        | {"center": "features", "normalize": "features"},
        (False, True),
    ),
    "rows on disk": (
        {"shape": WIDE, "chunk": 4000},
        {"n_components": 40, "n_transforms": 1000, "memory_limit": "200MiB", "n_threads": 2},
        (False, False),
    ),
    "samples as rows": (
        {"shape": WIDE, "chunk": 50_000, "sample_axis": 0, "compressors": ZstdCodec(level=1)},
        {"n_components": 5, "n_transforms": 200, "memory_limit": "300MiB", "sample_axis": 0},
        (False, True),
    ),
    "wide chunks of bytes": (
        {"shape": (64, 940_000), "chunk": 470_000, "dtype": "u1"},
        {"n_components": 3, "n_transforms": 20, "memory_limit": "960MiB", "dtype": "float64"},
        (False, True),
    ),
    "many transforms": (
        {"shape": (20, 2000), "chunk": 1000},
        {"n_components": 5, "n_transforms": 150_000, "selection": "random", "random_state": 0},
        (True, False),
    ),
    "many features": (
        {"shape": (20_000, 300), "chunk": 100},
        {"n_components": 50, "n_transforms": 5000},
        (True, False),
    ),
    "supports of many features": (
        {"shape": (45_000, 30), "chunk": 10},
        {"n_components": 1, "n_transforms": 5, "fill_penalty": 0.5},
        (True, False),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_peak_is_planned(name: str, tmp_path: Path) -> None:
    source, options, kind = CASES[name]
    made = run(write(tmp_path / "x.zarr", **source), **options)
    shutil.rmtree(tmp_path)
    assert (made.in_memory, made.hold_rows) == kind
    assert made.peak <= made.planned


def test_peak_of_compiling_is_planned(tmp_path: Path) -> None:
    """Where there is no cache of compiled kernels, with all that a small fit can ask for."""
    path = write(tmp_path / "x.zarr", (64, 4000), 1000)
    made = run(
        path,
        cache=False,
        n_components=5,
        n_transforms=500,
        center="features",
        normalize="samples",
        fill_penalty=0.5,
        pivot=True,
        workspace=str(tmp_path / "workspace"),
    )
    assert made.peak <= made.planned


def test_peak_of_going_on_is_planned(tmp_path: Path) -> None:
    """After a crash: the log is replayed on a panel of the columns that it touched."""
    path = write(tmp_path / "x.zarr", (2000, 20_000), 1000, dtype="f4")
    options: dict[str, Any] = {
        "n_components": 5,
        "n_transforms": 4000,
        "selection": "random",
        "random_state": 0,
        "memory_limit": "300MiB",
        "workspace": str(tmp_path / "workspace"),
    }
    made = run(path, **options)
    assert made.stages == ["ingest", "transforms", "checksums"]
    assert made.peak <= made.planned
    (tmp_path / "workspace" / "state.json").unlink()
    made = run(path, resume=True, **options)
    assert made.stages == ["ingest", "replay", "checksums"]
    assert made.peak <= made.planned
    shutil.rmtree(tmp_path)


def test_peak_is_flat_in_samples(tmp_path: Path) -> None:
    """Ten times the samples take the first p rows and as long right vectors more."""
    n, p, itemsize = 32, 3, 4
    peaks = {}
    for N in (100_000, 1_000_000):
        path = write(tmp_path / f"{N}.zarr", (n, N), 10_000, dtype="f4")
        made = run(
            path,
            n_components=p,
            n_transforms=200,
            center="samples",
            memory_limit="200MiB",
            workspace=str(tmp_path / f"workspace {N}"),
        )
        assert not made.in_memory
        assert made.hold_rows
        assert made.peak <= made.planned
        peaks[N] = made.peak
    shutil.rmtree(tmp_path)
    more = p * 900_000 * itemsize
    assert peaks[1_000_000] - peaks[100_000] <= more + 30 * MIB
    assert peaks[1_000_000] < n * 1_000_000 * itemsize


@pytest.mark.parametrize("m", [131_000, 132_000])
def test_the_log_takes_what_is_planned(m: int) -> None:
    """However it grows: the plan grows with it."""
    problem = Problem(
        n_features=100,
        n_samples=200_000,
        n_components=2,
        n_transforms=m,
        dtype=np.dtype(np.float64),
        source_chunk=200_000,
    )
    planned, without = (
        make_plan(asked, memory_limit=2**40, place="disk").peak_memory
        for asked in (problem, replace(problem, n_transforms=0))
    )
    tracemalloc.start()
    try:
        log = TransformLog(2, 100, 200_000)
        moves = Moves.room(1)
        for _ in range(m):
            log.append(moves)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log) == m
    assert peak <= planned - without
