"""Time Algorithm 1: the package in memory and in a working store, small fits, compiled loop, twin.

    python examples/benchmarks/in_memory.py --data FOLDER

All in one run, so that the ratios hold whatever the machine does; compilation is not counted. The
compiled loop (`compiled.py`) is the same algorithm and kernels without anything around them; the
twin (`tests/naive.py`) is plain NumPy with a full argmax, timed over a few transforms. Small fits,
256 transforms, are timed from end to end, beside the loop alone. FOLDER holds the paper's data as
.npz files; without it they come from OpenML.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

import naive  # noqa: E402
from compiled import compiled_loop  # noqa: E402
from datasets import Matrix, center_columns, load  # noqa: E402

import streamsvd.algorithm.compiled  # noqa: E402
from streamsvd import sparse_svd  # noqa: E402
from streamsvd.kernels.rotations import SPAN  # noqa: E402

SIZES = {"usps": 40, "mnist": 100}
SMALL_P, SMALL_M = 15, 256


Run = Callable[[int], tuple[float, Any]]


def package(x: Any, p: int, m: int, dtype: str, on_disk: bool = False) -> tuple[float, Any]:
    """Seconds of the transforms alone (without ingest), and the pairs."""
    marks: dict[str, list[float]] = {}

    def clock(stage: str, done: int, total: int) -> None:
        marks.setdefault(stage, []).append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace" if on_disk else None
        result = sparse_svd(x, p, n_transforms=m, dtype=dtype, workspace=workspace, progress=clock)
    times = marks["transforms"]
    return times[-1] - times[0], result.pairs


def compiled(x: Matrix, p: int, m: int, dtype: str) -> tuple[float, Any]:
    """Seconds of the compiled loop, and the pairs."""
    work = x.astype(dtype)
    bits = np.int64 if work.itemsize == 8 else np.int32
    peaks = np.full((p, -(-x.shape[1] // SPAN)), -1, dtype=bits)
    pairs = np.zeros((m, 2), dtype=np.int64)
    logs = np.zeros((2, m, 2, 2))
    start = time.perf_counter()
    compiled_loop(work, work.view(bits), p, m, peaks, pairs, logs[0], logs[1])
    return time.perf_counter() - start, pairs


def twin(x: Matrix, p: int, m: int) -> float:
    """Seconds a transform of the NumPy twin."""
    x = x.copy()
    start = time.perf_counter()
    for _ in range(m):
        i, j, _ = naive.best_pair(x, p, "nuclear")
        g, h = naive.factors(x, i, j)
        if j < len(x):
            x[[i, j]] = g.T @ x[[i, j]]
        x[:, [i, j]] = x[:, [i, j]] @ h
    return (time.perf_counter() - start) / m


def whole(x: Matrix, p: int, m: int, dtype: str) -> tuple[float, Any]:
    """Seconds of a fit from the call to its result, and the pairs."""
    start = time.perf_counter()
    result = sparse_svd(x, p, n_transforms=m, dtype=dtype, progress=False)
    return time.perf_counter() - start, result.pairs


def race(runs: dict[str, Run], repeat: int, m: int) -> dict[str, float]:
    """The least seconds of each, which are run in turn; all must have the same pairs."""
    best = dict.fromkeys(runs, np.inf)
    for run in runs.values():
        run(10)  # compile
    for _ in range(repeat):
        results = {key: run(m) for key, run in runs.items()}
        best = {key: min(best[key], seconds) for key, (seconds, _) in results.items()}
        first = results["compiled loop"][1]
        if not all(np.array_equal(pairs, first) for _, pairs in results.values()):
            raise SystemExit("the runs differ in their pairs")
    return best


def report(name: str, seconds: float, m: int, reference: float) -> None:
    """Print one row."""
    print(f"  {name:<28} {seconds:9.3f} s {1e6 * seconds / m:10.1f} us {seconds / reference:9.2f}")


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--transforms", type=int, default=65536)
    parser.add_argument("--repeat", type=int, default=3)
    kinds = ["float32", "float64"]
    parser.add_argument("--dtypes", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--sets", nargs="+", default=list(SIZES), choices=list(SIZES))
    args = parser.parse_args()
    streamsvd.algorithm.compiled.FEW = 0  # as on a machine that has compiled the loop before
    for name, dtype in product(args.sets, args.dtypes):
        compare(center_columns(load(name, args.data)), name, dtype, args.transforms, args.repeat)


def compare(x: Matrix, name: str, dtype: str, m: int, repeat: int) -> None:
    """All rows of one data set in one precision."""
    p = SIZES[name]
    print(f"{name}: {x.shape[0]} x {x.shape[1]} {dtype}, p = {p}, {m} transforms")
    print(f"  {'':<28} {'seconds':>11} {'a transform':>13} {'ratio':>9}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "x.zarr")
        zarr.create_array(path, data=x, chunks=(x.shape[0], 5000))
        runs: dict[str, Run] = {
            "compiled loop": lambda m: compiled(x, p, m, dtype),
            "sparse_svd(array)": lambda m: package(x, p, m, dtype),
            "sparse_svd(store)": lambda m: package(path, p, m, dtype),
            "sparse_svd(workspace=...)": lambda m: package(path, p, m, dtype, True),
        }
        best = race(runs, repeat, m)
    for key, seconds in best.items():
        report(key, seconds, m, best["compiled loop"])
    report("NumPy twin (from 5 steps)", twin(x, p, 5) * m, m, best["compiled loop"])
    small: dict[str, Run] = {
        "compiled loop": lambda m: compiled(x, SMALL_P, m, dtype),
        "sparse_svd(array), in all": lambda m: whole(x, SMALL_P, m, dtype),
    }
    print(f"  p = {SMALL_P}, {SMALL_M} transforms, warm")
    best = race(small, 10 * repeat, SMALL_M)
    for key, seconds in best.items():
        report(key, seconds, SMALL_M, best["compiled loop"])


if __name__ == "__main__":
    main()
