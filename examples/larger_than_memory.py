"""A fit of data larger than the memory it may take, stopped, killed, and taken up again.

    python examples/larger_than_memory.py [--samples 600000]

Writes 200 features x 600,000 samples (480 MB) to ``big.zarr``, a chunk at a time, and fits it in
processes that, on Linux, are held to 400 MB of memory by the system. The first is stopped by
SIGTERM on the way, the second is killed, the third ends. Prints how each ended, what the last took
and read, and that the result has the same bits as one without interruption. Needs a gigabyte of
disk in the current folder, which is cleared at the end.
"""

import argparse
import os
import resource
import signal
import sys
from contextlib import chdir
from multiprocessing import get_context
from tempfile import TemporaryDirectory

import numpy as np
import zarr

import streamsvd

N_FEATURES, CHUNK, N_COMPONENTS, N_TRANSFORMS = 200, 5000, 5, 2000
MOST = 400_000_000
"""Bytes of memory of a process that fits: enough for Python and its packages, not for the data."""


def write(n_samples: int) -> None:
    """Five groups of features that move together, in noise."""
    rng = np.random.default_rng(0)
    shape, chunks = (N_FEATURES, n_samples), (N_FEATURES, CHUNK)
    store = zarr.create_array("big.zarr", shape=shape, chunks=chunks, dtype="float32")
    for start in range(0, n_samples, CHUNK):
        x = rng.standard_normal((N_FEATURES, min(CHUNK, n_samples - start)), dtype=np.float32)
        for k in range(N_COMPONENTS):
            x[20 * k : 20 * k + 15] += (3 - k / 3) * rng.standard_normal(x.shape[1])
        store[:, start : start + CHUNK] = x


def fit(send: int | None = None) -> None:
    """Fit, or go on with it; after a while the process may `send` itself a signal."""
    reports = 0

    def watch(stage: str, done: int, total: int) -> None:
        nonlocal reports
        reports += stage == "transforms"
        if reports == 2 and send is not None:
            print(f"{done} of {total} transforms, then {signal.Signals(send).name}:", flush=True)
            os.kill(os.getpid(), send)

    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (MOST, MOST))
    result = streamsvd.sparse_svd(
        "big.zarr",
        N_COMPONENTS,
        n_transforms=N_TRANSFORMS,
        center="features",
        workspace="run",
        resume=True,  # or begin, when there is nothing to resume
        memory_limit="256MiB",
        progress=watch,
    )
    result.save("big_result.zarr", overwrite=True)


def run(*args: int) -> int | None:
    """`fit` in a process of its own; how it ended."""
    process = get_context("spawn").Process(target=fit, args=args)
    process.start()
    process.join()
    return process.exitcode


def show(n_samples: int) -> None:
    """All of it, in the current folder."""
    write(n_samples)
    print(f"big.zarr: {4 * N_FEATURES * n_samples:,} bytes; each process may take {MOST:,}")
    for args in ((signal.SIGTERM,), (signal.SIGKILL,), ()):
        print(f"    exit code {run(*args)}")
    result = streamsvd.SVDResult.load("big_result.zarr")
    print(f"\n{result}")
    whole = streamsvd.sparse_svd(
        "big.zarr", N_COMPONENTS, n_transforms=N_TRANSFORMS, center="features"
    )
    same = np.array_equal(result.components.toarray(), whole.components.toarray())
    print(f"\nthe same bits as without interruption: {same}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=600_000)
    n_samples = parser.parse_args().samples
    with TemporaryDirectory(dir=".") as folder, chdir(folder):
        show(n_samples)


if __name__ == "__main__":
    main()
