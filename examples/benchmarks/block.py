"""Time block steps against the two matrix products that they consist of.

    python examples/benchmarks/block.py --data FOLDER

After each step of a run in memory two products are timed on contiguous arrays, one BLAS thread in
both, so that the ratio holds whatever the machine does: ``(2p x 2p)^T @ (2p x N)`` for the rows and
``(n x 2p) @ (2p x 2p)`` for the columns. Steps with columns beyond the rows (``j >= n``) multiply
fewer rows, r of them; the products with r are timed as well. A step also scores ``p N`` pairs,
gathers and scatters ``2 p`` rows and columns, and takes the SVD of the block. FOLDER holds the
paper's data as .npz files; without it they come from OpenML.
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

from streamsvd.algorithm.block_log import BlockLog  # noqa: E402
from streamsvd.algorithm.block_steps import block_algorithm, make_block_coordinator  # noqa: E402
from streamsvd.algorithm.seam import SerialExecutor  # noqa: E402
from streamsvd.matrix.partition import make_partitions  # noqa: E402
from streamsvd.matrix.working import WorkingMatrix  # noqa: E402

SIZES = {"usps": 40, "mnist": 100}


class Clock:
    """Takes the time of each step, and of products alone after it."""

    def __init__(self, log: BlockLog, dtype: str) -> None:
        self.log, self.dtype = log, dtype
        self.steps: list[float] = []
        self.whole: list[float] = []
        self.actual: list[float] = []
        self.rows: list[int] = []
        self.start = time.perf_counter()

    def after_step(self, count: int) -> bool:
        """Note all three."""
        self.steps.append(time.perf_counter() - self.start)
        log, (_, g, h) = self.log, self.log.step(len(self.log) - 1)
        self.rows.append(len(g))
        self.whole.append(self.products(log.width, log.width))
        self.actual.append(self.products(len(g), len(h)))
        self.start = time.perf_counter()
        return False

    def products(self, r: int, c: int) -> float:
        """Seconds of ``(r x r) @ (r x N)`` and ``(n x c) @ (c x c)``."""
        seconds = 0.0
        for m, k, n in ((r, r, self.log.n_samples), (self.log.n_features, c, c)):
            left, right, out = (np.ones(s, self.dtype) for s in ((m, k), (k, n), (m, n)))
            start = time.perf_counter()
            np.matmul(left, right, out=out)
            seconds += time.perf_counter() - start
        return seconds


def run(x: Matrix, p: int, steps: int, dtype: str) -> Clock:
    """The times of `steps` block steps (nuclear)."""
    working = WorkingMatrix([x.astype(dtype)], x.shape[1])
    coordinator = make_block_coordinator(working, p, "nuclear")
    executor = SerialExecutor(make_partitions(working, p, 1))
    log = BlockLog(p, *x.shape)
    clock = Clock(log, dtype)
    block_algorithm(coordinator, executor, log, steps, after_step=clock.after_step)
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
        print(
            f"{name}: {x.shape[0]} x {x.shape[1]} {args.dtype}, p = {p}, {args.steps} block steps"
        )
        steps, whole, actual, rows = (
            np.array(taken[1:]) for taken in (clock.steps, clock.whole, clock.actual, clock.rows)
        )
        print(f"  {'seconds, medians':<26} {'step':>8} {'products':>9} {'ratio':>6}", end="")
        print(f" {'with r':>9} {'ratio':>6}")
        full = rows == rows.max()
        kinds = (("all steps", full | True), ("those with most rows", full), ("others", ~full))
        for label, some in kinds:
            if some.any():
                step, product, least = (np.median(t[some]) for t in (steps, whole, actual))
                ratios = np.median((steps / whole)[some]), np.median((steps / actual)[some])
                print(f"  {label:<21} {some.sum():>4} {step:>8.4f} {product:>9.4f}", end="")
                print(f" {ratios[0]:>6.2f} {least:>9.4f} {ratios[1]:>6.2f}")


if __name__ == "__main__":
    main()
