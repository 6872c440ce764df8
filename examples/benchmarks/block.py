"""Time block steps against the two matrix products that they consist of.

    python examples/benchmarks/block.py --data FOLDER

After each step of a run in memory the same two products are timed on contiguous arrays of the same
shapes, ``G^T (r x r) @ (r x N)`` and ``(n x c) @ H (c x c)``, one BLAS thread in both, so that the
ratio holds whatever the machine does. A step also finds its columns (all ``p N`` scores), gathers
and scatters ``2 p`` rows and columns, and takes the SVD of the block. FOLDER holds the paper's data
as .npz files; without it they come from OpenML.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

from datasets import Matrix, center_columns, load  # noqa: E402

from streamsvd.assembly import make_block_coordinator, make_partitions  # noqa: E402
from streamsvd.blocklog import BlockLog  # noqa: E402
from streamsvd.blocks import block_algorithm  # noqa: E402
from streamsvd.executor import SerialExecutor  # noqa: E402
from streamsvd.working import WorkingMatrix  # noqa: E402

SIZES = {"usps": 40, "mnist": 100}


class Clock:
    """Takes the time of each step, and of the products alone after it."""

    def __init__(self, shape: tuple[int, int], dtype: str) -> None:
        self.shape, self.dtype = shape, dtype
        self.steps: list[float] = []
        self.products: list[float] = []
        self.start = 0.0

    def after_step(self, log: BlockLog) -> bool:
        """Note both."""
        self.steps.append(time.perf_counter() - self.start)
        _, g, h = log.step(len(log) - 1)
        (n, n_samples), (r, c) = self.shape, (len(g), len(h))
        rows, columns = np.ones((r, n_samples), self.dtype), np.ones((n, c), self.dtype)
        rotated, combined = np.empty_like(rows), np.empty_like(columns)
        rotated[:] = combined[:] = 0  # pages are there
        left, right = np.ascontiguousarray(g.T, self.dtype), np.ascontiguousarray(h, self.dtype)
        start = time.perf_counter()
        np.matmul(left, rows, out=rotated)
        np.matmul(columns, right, out=combined)
        self.products.append(time.perf_counter() - start)
        self.start = time.perf_counter()
        return False


def run(x: Matrix, p: int, steps: int, dtype: str) -> Clock:
    """The times of `steps` block steps (nuclear)."""
    working = WorkingMatrix([x.astype(dtype)], x.shape[1])
    coordinator = make_block_coordinator(working, p, "nuclear")
    executor = SerialExecutor(make_partitions(working, p, 1, False))
    log, clock = BlockLog(p, *x.shape), Clock(x.shape, dtype)
    clock.start = time.perf_counter()
    block_algorithm(coordinator, executor, log, steps, after_step=lambda: clock.after_step(log))
    return clock


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--sets", nargs="+", default=list(SIZES), choices=list(SIZES))
    args = parser.parse_args()
    for name in args.sets:
        x, p = center_columns(load(name, args.data)), SIZES[name]
        with threadpool_limits(1, user_api="blas"):
            run(x[:, :2000], p, 2, args.dtype)  # compile
            clock = run(x, p, args.steps, args.dtype)
        steps, products = np.array(clock.steps[1:]), np.array(clock.products[1:])
        print(
            f"{name}: {x.shape[0]} x {x.shape[1]} {args.dtype}, p = {p}, {args.steps} block steps"
        )
        print(f"  {'':<20} {'median':>10} {'least':>10}")
        for label, values in (("a step", steps), ("its two products", products)):
            print(f"  {label:<20} {np.median(values):>8.4f} s {values.min():>8.4f} s")
        ratios = steps / products
        print(f"  {'ratio':<20} {np.median(ratios):>10.2f} {steps.min() / products.min():>10.2f}")


if __name__ == "__main__":
    main()
