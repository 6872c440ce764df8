"""Regenerate the paper's experiments: figures, tables and the exact settings, into one folder.

    python examples/paper/run.py --data FOLDER --out FOLDER --quick

C. Rusu, "An iterative coordinate descent algorithm to compute sparse low-rank approximations",
IEEE Signal Processing Letters, 2021. Writes ``figure1.png``, ``figure2.png``, ``times.png``,
``accuracy.csv``, ``knn.csv``, ``tables.md`` and ``settings.json``, anew after each part, so that
a run that is stopped leaves what it has, and goes on with ``--resume``. ``--quick`` takes minutes,
the full run an hour, ``--tiny`` seconds (scikit-learn's digits, no download).

--data is a folder of .npz files; without it the data come from OpenML. See README.md for what was
measured.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "benchmarks")]

import charts  # noqa: E402
import claims  # noqa: E402
from datasets import center_columns, load, load_labelled  # noqa: E402
from figure1 import PATHS, AccuracyRow, figure_1  # noqa: E402
from figure2 import TASKS, Effort, KnnRow, Split, figure_2, refined  # noqa: E402
from tables import read_csv, write_csv  # noqa: E402

from streamsvd import sparse_pca, sparse_svd  # noqa: E402


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a run computes."""

    accuracy_sets: tuple[str, ...]
    n_components: int
    """`p` of Figure 1."""
    transforms: int
    blocks: int
    seeds: int
    """Runs of the random selection that are averaged."""
    knn: dict[str, Effort]
    """Data sets of Figure 2; splits are seeded 0, 1, ..."""


FOUR = ("isolet", "mnist", "fashion", "usps")
POWERS = tuple(2**k for k in range(4, 17, 2))
PRESETS = {
    "tiny": Settings(
        ("digits",), 5, 2**6, 2**2, 2, {"digits": Effort(2, 1, (16, 64), (0.1,), (0.1,), 5)}
    ),
    "quick": Settings(
        FOUR,
        15,
        2**12,
        2**5,
        1,
        {
            "mnist": Effort(1, 1, POWERS, (0.01, 0.05), (0.01,), 10, max_test=2000),
            "usps": Effort(2, 1, POWERS, (0.01, 0.05), (0.01,), 50),
        },
    ),
    "full": Settings(
        FOUR,
        15,
        2**16,
        2**7,
        5,
        {
            "usps": Effort(10, 3, POWERS, (0.01, 0.02, 0.05, 0.1), (0.01, 0.05), 200),
            "mnist": Effort(10, 1, POWERS, (0.005, 0.01, 0.02, 0.05), (0.01, 0.05), 50),
        },
    ),
}


@dataclass
class Report:
    """What was measured so far, and where it is written."""

    out: Path
    preset: str
    settings: Settings
    accuracy: list[AccuracyRow] = field(default_factory=list)
    knn: list[KnnRow] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)

    def write(self) -> None:
        """Write all files."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "settings.json").write_text(json.dumps(self._record(), indent=2) + "\n")
        write_csv(self.out / "accuracy.csv", AccuracyRow, self.accuracy)
        write_csv(self.out / "knn.csv", KnnRow, self.knn)
        self.draw()

    def draw(self) -> None:
        """Write the figures and ``tables.md`` from the rows."""
        sections = claims.report(self.accuracy, self.knn)
        (self.out / "tables.md").write_text("\n\n".join(sections) + "\n")
        if self.accuracy:
            charts.draw_figure_1(
                self.out / "figure1.png", self.accuracy, self.settings.n_components
            )
        if self.knn:
            charts.draw_figure_2(self.out / "figure2.png", self.knn)
            charts.draw_times(self.out / "times.png", self.knn)

    def read(self) -> None:
        """Take up what `write` wrote."""
        self.accuracy = read_csv(self.out / "accuracy.csv", AccuracyRow)
        self.knn = read_csv(self.out / "knn.csv", KnnRow)
        record = json.loads((self.out / "settings.json").read_text())
        self.seconds, self.cpu_seconds = record["seconds"], record["cpu_seconds"]

    def add(self, part: str, to: list[Any], rows: Iterable[Any]) -> None:
        """Run a part that was not run yet, keep its rows and its time, and write."""
        if part in self.seconds:
            return
        start, cpu_start = time.perf_counter(), time.process_time()
        to.extend(rows)
        self.seconds[part] = round(time.perf_counter() - start, 1)
        self.cpu_seconds[part] = round(time.process_time() - cpu_start, 1)
        print(f"{part}: {self.seconds[part]:.0f} s, {self.cpu_seconds[part]:.0f} s of CPU")
        sys.stdout.flush()
        self.write()

    def _record(self) -> dict[str, Any]:
        packages = ["numpy", "scipy", "scikit-learn", "numba", "streamsvd", "matplotlib"]
        return {
            "preset": self.preset,
            "settings": asdict(self.settings),
            "methods": PATHS,
            "tasks": {name: asdict(TASKS[name]) for name in self.settings.knn},
            "preprocessing": "each sample minus its mean, over its norm; float64",
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "versions": {"python": platform.python_version()}
            | {package: version(package) for package in packages},
            "machine": {
                "processors": os.cpu_count(),
                "platform": platform.platform(),
                "threads": os.environ.get("OMP_NUM_THREADS", "all; 1 where timed"),
            },
        }


def warm_up() -> None:
    """Compile the kernels, so that no time counts it."""
    x = np.random.default_rng(0).standard_normal((20, 60))
    for options in PATHS.values():
        sparse_svd(x, 3, n_transforms=20, progress=False, **options).at(10).components.toarray()
    sparse_pca(x, 3, center=None, max_fill=0.2, progress=False)


def run(report: Report, data: Path | None, parts: Sequence[str]) -> None:
    """Everything that `parts` names."""
    settings = report.settings
    with threadpool_limits(1):
        warm_up()
    if "figure1" in parts:
        for name in settings.accuracy_sets:
            x = center_columns(load(name, data))
            p, steps = settings.n_components, (settings.transforms, settings.blocks)
            lines = figure_1(name, x, p, *steps, settings.seeds)
            report.add(f"figure 1, {name}", report.accuracy, lines)
    if "figure2" in parts:
        for name, effort in settings.knn.items():
            x, y = load_labelled(name, data)
            x = center_columns(x)
            for number in range(effort.splits):
                split = Split.draw(TASKS[name], number, x, y, effort.max_test)
                part = f"figure 2, {name}, split {number}"
                report.add(part, report.knn, figure_2(split, effort))


def renew(report: Report, data: Path | None) -> None:
    """The rows of `sparse_pca` by this version; all others stay as they were measured."""
    with threadpool_limits(1):
        warm_up()
    report.knn = [row for row in report.knn if row.method != "sparse_pca"]
    for name, effort in report.settings.knn.items():
        x, y = load_labelled(name, data)
        x = center_columns(x)
        for number in range(effort.slow_splits):
            split = Split.draw(TASKS[name], number, x, y, effort.max_test)
            report.knn.extend(refined(split, effort))
    report.write()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of .npz files; OpenML without it")
    parser.add_argument("--out", type=Path, required=True, help="folder of what is written")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", const="quick", dest="preset")
    size.add_argument("--tiny", action="store_const", const="tiny", dest="preset")
    parser.add_argument("--parts", nargs="+", default=["figure1", "figure2"])
    parser.add_argument("--resume", action="store_true", help="leave out parts that are there")
    parser.add_argument("--redraw", action="store_true", help="figures and tables from the CSVs")
    parser.add_argument("--renew", action="store_true", help="the rows of sparse_pca alone, anew")
    args = parser.parse_args(arguments)
    preset = args.preset or "full"
    report = Report(args.out, preset, PRESETS[preset])
    if args.redraw or args.resume or args.renew:
        report.read()
    if args.redraw:
        report.draw()
        return
    if args.renew:
        renew(report, args.data)
    else:
        run(report, args.data, args.parts)
    print((args.out / "tables.md").read_text())


if __name__ == "__main__":
    main()
