"""Explained variance against sparsity: the package, the paper's algorithm and other methods.

    python examples/benchmarks/quality.py --data FOLDER --out FOLDER

For each data set and each fill (nonzeros as a share of ``p n``): the variance explained, as a
percentage of what PCA with as many components explains on the same preprocessing; the largest entry
of ``|U^T U - I|``; seconds from the array in memory to the components, Gram matrix included.
Components that are not orthogonal are given what their *span* explains, and the fill that they have
once Gram-Schmidt made them orthonormal. All methods get the same nonzeros, run on one thread and
are timed in this one run; compilation is not counted.

FOLDER holds the paper's data as .npz files; without it they come from OpenML. scikit-learn's
methods take minutes a data set (a fit is timed, not the search for its penalty); ``--quick`` leaves
them out.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import rivals  # noqa: E402
from datasets import OPENML, Matrix, center_columns, load  # noqa: E402
from quality_report import Row, draw, print_table, write_csv  # noqa: E402

from streamsvd import SVDResult, sparse_pca, sparse_svd  # noqa: E402

FILLS = [0.01, 0.02, 0.05, 0.1, 0.2]


@dataclass(frozen=True)
class Problem:
    """A data set, prepared once for all methods."""

    name: str
    x: Matrix
    options: dict[str, Any]
    n_components: int
    gram: Matrix
    gram_seconds: float
    pca: float
    """Energy that PCA explains."""

    def cardinalities(self, fill: float) -> list[int]:
        """Nonzeros of each component: those of the whole budget, dealt out evenly."""
        budget = int(fill * self.n_components * len(self.gram))
        each, rest = divmod(budget, self.n_components)
        return [each + (c < rest) for c in range(self.n_components)]

    def heading(self) -> str:
        """What stands above its table."""
        n, n_samples = self.x.shape
        share = self.pca / np.trace(self.gram)
        return (
            f"{self.name}: {n} x {n_samples}, p = {self.n_components}, PCA explains "
            f"{100 * share:.1f} % of the variance; Gram matrix {self.gram_seconds:.1f} s"
        )

    def row(
        self, method: str, target: float, components: Matrix, seconds: float, note: str = ""
    ) -> Row:
        """Measure components (n, p)."""
        error = rivals.orthogonality_error(components)
        is_orthonormal = error < 1e-12
        basis = components if is_orthonormal else rivals.orthonormal(components)
        return Row(
            data=self.name,
            target=100 * target,
            method=method,
            explained=100 * rivals.explained(self.gram, components) / self.pca,
            fill=100 * float(np.mean(components != 0)),
            fill_orthonormal=100 * float(np.mean(basis != 0)),
            orthogonality_error=error,
            seconds=seconds,
            note=note,
        )


def prepare(name: str, folder: Path | None, p: int, center: str) -> Problem:
    """Load a data set; its Gram matrix by NumPy, not by the package that is measured."""
    x = load(name, folder)
    start = time.perf_counter()
    y = center_columns(x) if center == "samples" else x - x.mean(axis=1, keepdims=True)
    gram = y @ y.T
    seconds = time.perf_counter() - start
    options = {"center": center, "normalize": "samples" if center == "samples" else None}
    pca = float(np.linalg.eigvalsh(gram)[-p:].sum())
    return Problem(name, x, options | {"n_threads": 1}, p, gram, seconds, pca)


# --------------------------------------------------------------------------------- methods


class Clock:
    """A `progress` of the package that notes when how many transforms were done."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._marks = [(0.0, 0.0)]

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Note the time."""
        seconds = time.perf_counter() - self._start
        if stage == "transforms":
            self._marks.append((done, seconds))
        else:
            self._marks = [(0.0, seconds)]

    def at(self, transforms: int) -> float:
        """Seconds from the start to so many transforms."""
        done, seconds = zip(*self._marks, strict=True)
        return float(np.interp(transforms, done, seconds))


def columns(result: SVDResult) -> Matrix:
    """(n, p) components."""
    return result.components.toarray().T


def refined(problem: Problem, fills: list[float]) -> Iterator[Row]:
    """`sparse_pca`, one run for each fill."""
    for fill in fills:
        start = time.perf_counter()
        result = sparse_pca(
            problem.x, problem.n_components, max_fill=fill, progress=False, **problem.options
        )
        seconds = time.perf_counter() - start
        yield problem.row("streamsvd", fill, columns(result), seconds)


def greedy(problem: Problem, fills: list[float]) -> Iterator[Row]:
    """The path that `sparse_pca` starts from: points of one run."""
    clock = Clock()
    path = sparse_pca(
        problem.x,
        problem.n_components,
        max_fill=max(fills),
        refine=False,
        progress=clock,
        **problem.options,
    )
    yield from points(problem, "streamsvd, greedy path", path, fills, clock)


def algorithm_1(problem: Problem, fills: list[float]) -> Iterator[Row]:
    """The paper's Algorithm 1 in place, with its own score: points of one run."""
    p, fill, m = problem.n_components, 0.0, 500
    while fill < max(fills):
        m, clock = 2 * m, Clock()
        path = sparse_svd(problem.x, p, n_transforms=m, progress=clock, **problem.options)
        fill = path.fill
    yield from points(problem, "Algorithm 1", path, fills, clock)


def points(
    problem: Problem, method: str, path: SVDResult, fills: list[float], clock: Clock
) -> Iterator[Row]:
    """The last points of a path within each fill."""
    for fill in fills:
        point = path.at(fill=fill)
        m = point.n_transforms
        yield problem.row(method, fill, columns(point), clock.at(m), f"{m} transforms")


def from_gram(
    problem: Problem, fills: list[float], method: str, solve: Callable[[Matrix, list[int]], Matrix]
) -> Iterator[Row]:
    """A method that takes the Gram matrix and the nonzeros of each component."""
    for fill in fills:
        start = time.perf_counter()
        components = solve(problem.gram, problem.cardinalities(fill))
        seconds = problem.gram_seconds + time.perf_counter() - start
        yield problem.row(method, fill, components, seconds)


def truncated_power(problem: Problem, fills: list[float]) -> Iterator[Row]:
    """Truncated power iteration, the best of three starts; not orthogonal."""
    yield from from_gram(problem, fills, "truncated power", rivals.best_truncated_power)


def thresholded_pca(problem: Problem, fills: list[float]) -> Iterator[Row]:
    """The largest loadings of PCA; not orthogonal."""
    yield from from_gram(problem, fills, "thresholded PCA", rivals.thresholded_pca)


def scikit_learn(problem: Problem, fills: list[float]) -> Iterator[Row]:
    """scikit-learn's two, on 2 n samples that stand for all; not orthogonal."""
    for estimator in rivals.ESTIMATORS:
        search = rivals.PenaltySearch(estimator, problem.gram, problem.n_components)
        for fill in fills:
            fit = search.nearest(fill)
            seconds = problem.gram_seconds + fit.seconds
            note = f"alpha {fit.alpha:.3g}"
            yield problem.row(f"sklearn {estimator}", fill, fit.components, seconds, note)


METHODS = [refined, greedy, algorithm_1, truncated_power, thresholded_pca, scikit_learn]


def warm_up(p: int, center: str) -> None:
    """Compile the kernels."""
    x = np.random.default_rng(0).standard_normal((4 * p, 8 * p))
    gram = x @ x.T
    options = {"center": center, "normalize": "samples" if center == "samples" else None}
    problem = Problem("", x, options | {"n_threads": 1}, p, gram, 0.0, 1.0)
    for method in (refined, greedy, algorithm_1):
        list(method(problem, [0.1]))


# ------------------------------------------------------------------------------------ main


def main() -> None:
    """Run the comparison, print tables and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of .npz files; OpenML without it")
    parser.add_argument("--sets", nargs="+", default=list(OPENML), choices=list(OPENML))
    parser.add_argument("--fills", nargs="+", type=float, default=FILLS, help="shares, not %%")
    parser.add_argument("--components", type=int, default=15)
    parser.add_argument("--center", default="samples", choices=["samples", "features"])
    parser.add_argument("--quick", action="store_true", help="without scikit-learn's methods")
    parser.add_argument("--out", type=Path, help="folder for quality.csv and quality.png")
    args = parser.parse_args()
    methods = [m for m in METHODS if not (args.quick and m is scikit_learn)]
    rows: list[Row] = []
    with threadpool_limits(1):
        warm_up(args.components, args.center)
        for name in args.sets:
            problem = prepare(name, args.data, args.components, args.center)
            made = [row for method in methods for row in method(problem, sorted(args.fills))]
            print_table(problem.heading(), made)
            sys.stdout.flush()
            rows += made
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        write_csv(args.out / "quality.csv", rows)
        draw(args.out / "quality.png", rows)


if __name__ == "__main__":
    main()
