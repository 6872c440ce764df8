"""Time a row move on one thread and on two, for rows of several lengths, in memory and mapped.

    python examples/benchmarks/rows.py

The kernel that turns two rows and finds their peaks, as one call for all columns, and as two calls
for half of them each, in two threads. Ratios above 1 say that two threads are faster: the hand-over
takes about 50 microseconds, which rows of 60,000 columns do not win back. It tells why the package
makes the moves of one process on one thread.
"""

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from streamsvd.arrays import Array
from streamsvd.kernels.rotations import SPAN, rotate_rows

N_ROWS, P = 64, 8
ANGLE = 0.3
FACTOR = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])


def move(chunk: Array, peaks: Array, i: int, j: int) -> None:
    """Turn the rows i and j of one block."""
    top = chunk[:P]
    rotate_rows(top, top.view(np.int32), chunk, i, j, FACTOR, 0, chunk.shape[1], peaks, 0)


def race(blocks: list[Array], repeat: int) -> tuple[float, float]:
    """The least seconds of a move by one thread, and by one for each of the blocks."""
    peaks = [np.zeros((P, -(-block.shape[1] // SPAN)), dtype=np.int32) for block in blocks]
    rows = [(k % P, P + k % (N_ROWS - P)) for k in range(repeat)]
    one, several = [], []
    with ThreadPoolExecutor(len(blocks)) as threads:
        for i, j in rows:
            start = time.perf_counter()
            for block, peak in zip(blocks, peaks, strict=True):
                move(block, peak, i, j)
            one.append(time.perf_counter() - start)
        for i, j in rows:
            start = time.perf_counter()
            made = [
                threads.submit(move, block, peak, i, j)
                for block, peak in zip(blocks, peaks, strict=True)
            ]
            for future in made:
                future.result()
            several.append(time.perf_counter() - start)
    return float(np.median(one)), float(np.median(several))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=400)
    widths = [10_000, 60_000, 250_000, 1_000_000, 4_000_000]
    parser.add_argument("--columns", type=int, nargs="+", default=widths)
    args = parser.parse_args()
    print(f"two rows of float32: median of {args.repeat} moves, 1 and {args.threads} threads")
    print(f"{'columns':>10} {'where':>8} {'1':>11} {args.threads:>11} {'ratio':>7}")
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for n_columns in args.columns:
            width = -(-n_columns // args.threads)
            shape = (N_ROWS, width)
            for where in ("memory", "mapped"):
                blocks: list[Array] = []
                for t in range(args.threads):
                    block: Array = np.empty(shape, np.float32)
                    if where == "mapped":
                        path = Path(folder) / str(t)
                        block = np.memmap(path, np.float32, "w+", shape=shape)
                    block[:] = random.standard_normal(width, dtype=np.float32)
                    blocks.append(block)
                one, several = race(blocks, args.repeat)
                micro = f"{1e6 * one:8.1f} us {1e6 * several:8.1f} us"
                print(f"{n_columns:>10} {where:>8} {micro} {one / several:7.2f}")


if __name__ == "__main__":
    main()
