"""Time the one-pass reduction against BLAS and the disk, and what the fill penalty costs.

    python examples/benchmarks/one_pass.py

Makes a Zarr store (float32, without compression), brings it to the page cache, and compares in one
run: ``X @ X.T`` of float64 blocks that are in memory already; reading the store; the Gram pass over
it. Then the greedy loop on the Gram matrix with and without a fill penalty, equal transforms.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from clock import best
from dask.utils import format_bytes

from streamsvd import sparse_svd
from streamsvd.data.kinds import open_data
from streamsvd.options import Ask
from streamsvd.passes.gram import gram_matrix
from streamsvd.sizes import batch_samples
from streamsvd.system import n_cpus


def make_store(path: str, n: int, n_samples: int, chunk: int) -> None:
    """Latent factors plus noise, float32, chunk by chunk."""
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((n, 30), dtype=np.float32)
    z = zarr.create_array(
        path, shape=(n, n_samples), chunks=(n, chunk), dtype="float32", compressors=None
    )
    for start in range(0, n_samples, chunk):
        width = min(chunk, n_samples - start)
        noise = rng.standard_normal((n, width), dtype=np.float32)
        z[:, start : start + width] = loadings @ rng.standard_normal((30, width)) + noise


def anonymous_bytes() -> int:
    """Memory of this process that is not of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def peak_of(work: Callable[[], Any]) -> int:
    """How much the anonymous memory grows at most during a call."""
    before, most, done = anonymous_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return most - before


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--features", type=int, nargs="+", default=[256, 784, 2000])
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--transforms", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    for n in args.features:
        chunk = max(1, 16 * 2**20 // (4 * n))
        n_samples = args.samples // chunk * chunk
        print(f"{n} x {n_samples} float32, {format_bytes(4 * n * n_samples)}, {n_cpus()} threads")
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "x.zarr")
            make_store(path, n, n_samples, chunk)
            source = open_data(path, Ask(1))
            width = batch_samples(n)
            block = np.random.default_rng(0).standard_normal((n, width))
            n_blocks = -(-n_samples // width)

            def multiply(block: Any = block, n_blocks: int = n_blocks) -> None:
                total = np.zeros((len(block), len(block)))
                for _ in range(n_blocks):
                    total += block @ block.T

            def read(source: Any = source, chunk: int = chunk) -> None:
                for start in range(0, source.n_samples, chunk):
                    source.read(start, min(start + chunk, source.n_samples), source.dtype)

            def reduce(source: Any = source) -> None:
                gram_matrix(source, "features", None, n_threads=n_cpus())

            gram_matrix(open_data(np.eye(2), Ask(1)), "features", None)  # compiles
            memory = peak_of(reduce)  # before other blocks leave free memory behind
            blas, reading, passing = best(args.repeat, multiply, read, reduce)
            limit = max(blas, reading)
            print(f"  X @ X.T of blocks in memory {blas:8.2f} s")
            print(f"  read the store              {reading:8.2f} s")
            print(
                f"  Gram pass                   {passing:8.2f} s  "
                f"{100 * limit / passing:.0f} % of the rate of the slower of the two"
            )
            print(
                f"    memory {format_bytes(memory)}, of which the matrix "
                f"{format_bytes(8 * n * n)}, a chunk as float64 {format_bytes(8 * n * chunk)}"
            )

            def fit(alpha: float, path: str = path) -> list[float]:
                marks: dict[str, list[float]] = {}

                def clock(stage: str, done: int, total: int) -> None:
                    marks.setdefault(stage, []).append(time.perf_counter())

                sparse_svd(
                    path,
                    15,
                    n_transforms=args.transforms,
                    center="features",
                    reduction="gram",
                    fill_penalty=alpha,
                    pivot=True,
                    progress=clock,
                )
                return [marks["transforms"][-1] - marks["transforms"][0]]

            times = [fit(alpha) + fit(0.0) for alpha in (0.5,) * args.repeat]
            penalised, plain = np.min(times, axis=0)
            print(
                f"  {args.transforms} transforms: {plain:.3f} s, with fill_penalty=0.5 "
                f"{penalised:.3f} s, {penalised / plain:.2f} times"
            )


if __name__ == "__main__":
    main()
