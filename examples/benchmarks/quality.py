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
import csv
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import rivals  # noqa: E402
from datasets import OPENML, Matrix, center_columns, load  # noqa: E402

from streamsvd import SVDResult, sparse_pca, sparse_svd  # noqa: E402

FILLS = [0.01, 0.02, 0.05, 0.1, 0.2]


@dataclass(frozen=True)
class Row:
    """One line of the tables; shares in percent."""

    data: str
    target: float
    method: str
    explained: float
    fill: float
    fill_orthonormal: float
    orthogonality_error: float
    seconds: float
    note: str


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


# ---------------------------------------------------------------------------------- output

HEADER = [
    "fill %",
    "method",
    "explained %",
    "fill got %",
    "orthonormal at %",
    "orth. error",
    "seconds",
    "note",
]


def print_table(problem: Problem, rows: list[Row]) -> None:
    """A Markdown table, with columns that line up, by fill and then as the methods come."""
    n, n_samples = problem.x.shape
    share = problem.pca / np.trace(problem.gram)
    print(
        f"\n{problem.name}: {n} x {n_samples}, p = {problem.n_components}, PCA explains "
        f"{100 * share:.1f} % of the variance; Gram matrix {problem.gram_seconds:.1f} s\n"
    )
    ordered = sorted(rows, key=lambda row: row.target)
    cells = [HEADER, *(_cells(row) for row in ordered)]
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    is_text = [c in (1, 7) for c in range(len(widths))]
    rule = ["-" * w if t else "-" * (w - 1) + ":" for w, t in zip(widths, is_text, strict=True)]
    for line in [cells[0], rule, *cells[1:]]:
        padded = [
            value.ljust(w) if t else value.rjust(w)
            for value, w, t in zip(line, widths, is_text, strict=True)
        ]
        print("| " + " | ".join(padded) + " |")


def _cells(row: Row) -> list[str]:
    return [
        f"{row.target:g}",
        row.method,
        f"{row.explained:.1f}",
        f"{row.fill:.2f}",
        f"{row.fill_orthonormal:.1f}",
        f"{row.orthogonality_error:.0e}",
        f"{row.seconds:.2f}",
        row.note,
    ]


def write_csv(path: Path, rows: list[Row]) -> None:
    """All rows with all digits."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


# Okabe and Ito's colours, which the colour-blind can tell apart.
STYLES: dict[str, dict[str, Any]] = {
    "streamsvd": {"color": "#0072B2", "marker": "o", "linewidth": 2.6, "zorder": 5},
    "streamsvd, greedy path": {"color": "#56B4E9", "marker": "s"},
    "Algorithm 1": {"color": "#D55E00", "marker": "^"},
    "truncated power": {"color": "#000000", "marker": "D"},
    "thresholded PCA": {"color": "#009E73", "marker": "v"},
    "sklearn SparsePCA": {"color": "#CC79A7", "marker": "P"},
    "sklearn MiniBatchSparsePCA": {"color": "#E69F00", "marker": "X"},
}


def draw(path: Path, rows: list[Row]) -> None:
    """One panel for each data set: explained variance against fill.

    A solid line: orthonormal components. A dotted one: those of a method that gives no orthogonal
    ones, as they are; its solid line has the same components after Gram-Schmidt, further right.
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.data for row in rows))
    n_rows = -(-len(names) // 2)
    n_columns = min(2, len(names))
    figure = Figure(figsize=(6.6 * n_columns, 4.1 * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[len(names) :]:
        ax.remove()
    for ax, name in zip(axes, names, strict=False):
        _panel(ax, name, [row for row in rows if row.data == name])
    figure.suptitle(
        "Solid: orthonormal components.  Dotted: as the method gives them, not orthogonal.",
        fontsize=11,
    )
    figure.savefig(path, dpi=160)


def _panel(ax: Any, name: str, rows: list[Row]) -> None:
    ends = {}
    for method in dict.fromkeys(row.method for row in rows):
        line = [row for row in rows if row.method == method]
        style = {"linewidth": 1.5, "markersize": 5.5, "clip_on": False} | STYLES[method]
        explained = [row.explained for row in line]
        ax.plot([row.fill_orthonormal for row in line], explained, **style)
        if any(row.fill_orthonormal > row.fill for row in line):
            loose = style | {"linestyle": ":", "markerfacecolor": "white"}
            ax.plot([row.fill for row in line], explained, **loose)
        ends[method] = (line[-1].fill_orthonormal, line[-1].explained)
    ticks = [1, 2, 5, 10, 20, 50, 100]
    ax.set_xscale("log")
    ax.set(xlim=(0.8, 100), ylim=(0, 100), xticks=ticks, xticklabels=ticks)
    ax.minorticks_off()
    ax.grid(color="0.9", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(name, loc="left", fontweight="bold")
    ax.set_xlabel("nonzeros, % of all entries")
    ax.set_ylabel("variance explained, % of PCA's")
    _label(ax, ends)


def _label(ax: Any, ends: dict[str, tuple[float, float]], gap: float = 6.5) -> None:
    """Names at the right edge, each level with the end of its line or as near as room allows."""
    height = 100.0 + gap
    for method in sorted(ends, key=lambda method: -ends[method][1]):
        x, y = ends[method]
        height = min(y, height - gap)
        style = {key: STYLES[method][key] for key in ("color", "marker")}
        leader = {"color": "0.75", "linewidth": 0.8, "clip_on": False}
        ax.plot([x, 120.0], [y, height], **leader)
        ax.plot(120.0, height, **style, markersize=5.5, clip_on=False)
        ax.text(132.0, height, method, color="0.15", va="center")


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
            print_table(problem, made)
            sys.stdout.flush()
            rows += made
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        write_csv(args.out / "quality.csv", rows)
        draw(args.out / "quality.png", rows)


if __name__ == "__main__":
    main()
