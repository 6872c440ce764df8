"""Whether cross-validation finds what was planted, and what it costs.

    python examples/benchmarks/cross_validation.py
    python examples/benchmarks/cross_validation.py --data FOLDER --sets usps

Without data: simulations. In each, 2 to 4 sparse orthonormal components of 5 to 8 nonzeros, half of
the time with supports that meet, are planted among 60 to 100 features of 300 to 800 samples, with
6 to 20 times the variance of the noise. The grid has 1 to 5 components and half, once and twice
the planted fill. Prints how often number, fill and both are chosen, and how well the
supports are told from the rest by their stability.

With data: processor seconds of `sparse_pca_cv` over those of one pass to the Gram matrix and one
`refine_path` on the same grid, for each number of components; bytes read.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported: a core a process

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from datasets import Matrix, load  # noqa: E402

from streamsvd import sparse_pca, sparse_pca_cv  # noqa: E402

NUMBERS = (1, 2, 3, 4, 5)
FILLS = (0.5, 1.0, 2.0)
"""Of the planted fill."""


class Planted(NamedTuple):
    """Samples, and what is in them."""

    x: Matrix
    """(n, N)."""
    components: Matrix
    """(n, p), orthonormal, of `size` nonzeros each."""
    size: int


def plant(seed: int) -> Planted:
    """Draw a simulation."""
    random = np.random.default_rng(seed)
    n, n_samples = int(random.integers(60, 101)), int(random.integers(300, 801))
    p, size = int(random.integers(2, 5)), int(random.integers(5, 9))
    meet = bool(random.integers(2))
    components = draw_components(random, n, p, size, meet)
    while components is None:
        components = draw_components(random, n, p, size, meet)
    stds = np.sqrt(np.sort(random.uniform(6, 20, p))[::-1])
    scores = stds[:, None] * random.standard_normal((p, n_samples))
    noise = random.standard_normal((n, n_samples))
    means = random.uniform(-3, 3, (n, 1))
    return Planted(components @ scores + noise + means, components, size)


def draw_components(
    random: np.random.Generator, n: int, p: int, size: int, meet: bool
) -> Matrix | None:
    """Sparse orthonormal columns; None where a support allows none, or only tiny loadings."""
    u = np.zeros((n, p))
    order = random.permutation(n)
    for c in range(p):
        apart = order[c * size : (c + 1) * size]
        support = random.choice(n // 2, size, replace=False) if meet else apart
        u[support, c] = random.uniform(0.5, 1, size) * random.choice([-1, 1], size)
    pattern = u != 0
    for _ in range(500):  # to the nearest orthonormal matrix, and back to the pattern
        left, _, right = np.linalg.svd(u, full_matrices=False)
        u = np.where(pattern, left @ right, 0.0)
    u /= np.linalg.norm(u, axis=0)
    is_good = np.abs(u.T @ u - np.eye(p)).max() < 1e-8 and np.abs(u[pattern]).min() > 0.1
    return u if is_good else None


class Found(NamedTuple):
    """What was chosen of one simulation."""

    seed: int
    planted: tuple[int, float]
    chosen: tuple[int, float]
    inside: float
    """Mean stability of the planted nonzeros, where the number was found; NaN elsewhere."""
    outside: float
    """Mean stability of all other loadings."""


def simulate(seed: int) -> Found:
    """Cross-validate one simulation."""
    x, components, size = plant(seed)
    n, p = components.shape
    fill = size / n
    cv = sparse_pca_cv(
        x,
        NUMBERS,
        max_fill=[share * fill for share in FILLS],
        random_state=seed,
        n_threads=1,
        progress=False,
    )
    inside = outside = np.nan
    stability = cv.result.stability
    assert stability is not None
    if cv.chosen.n_components == p:
        match = np.abs(cv.result.components @ components).argmax(axis=1)
        pattern = components.T[match] != 0
        inside = float(stability.toarray()[pattern].mean())
        outside = float(stability.toarray()[~pattern].mean())
    return Found(seed, (p, fill), (cv.chosen.n_components, cv.chosen.max_fill), inside, outside)


def simulations(count: int, processes: int) -> None:
    """Run them and print how many were found."""
    began = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        found = []
        for one in pool.map(simulate, range(count)):
            found.append(one)
            if len(found) % 10 == 0:
                print(f"{len(found)} done", flush=True)
            if not np.allclose(one.planted, one.chosen):
                print(f"seed {one.seed}: planted {one.planted}, chosen {one.chosen}", flush=True)
    number = [one.planted[0] == one.chosen[0] for one in found]
    fill = [bool(np.isclose(one.planted[1], one.chosen[1])) for one in found]
    both = np.logical_and(number, fill)
    print(
        f"of {count} simulations found: number {sum(number)}, fill {sum(fill)}, both {both.sum()}; "
        f"mean stability of planted nonzeros {np.nanmean([one.inside for one in found]):.1%}, of "
        f"other loadings {np.nanmean([one.outside for one in found]):.2%}; "
        f"{time.perf_counter() - began:.0f} s"
    )


# -------------------------------------------------------------------------------------- cost


def cost(name: str, folder: Path, numbers: list[int], fills: list[float], folds: int) -> None:
    """Print the time of cross-validation over that of fits of the grid."""
    x = load(name, folder)
    options: dict[str, Any] = {"progress": False, "n_threads": 1}
    began = time.process_time()
    cv = sparse_pca_cv(x, numbers, max_fill=fills, folds=folds, **options)
    seconds = time.process_time() - began
    one_pass = one_path = 0.0
    for k, p in enumerate(numbers):
        clock = Clock()
        made = sparse_pca(
            x,
            p,
            max_fill=max(fills),
            reduction="gram",
            refine=False,
            **options | {"progress": clock},
        )
        began = time.process_time()
        made.refine_path(max_fill=fills, n_threads=1)
        one_path += time.process_time() - began
        if k == 0:
            one_pass = clock.seconds
    one_fit = one_pass + one_path
    print(
        f"{name}, {x.shape[0]} x {x.shape[1]}, {folds} folds, p = {numbers}, fills {fills}: "
        f"cross-validation {seconds:.1f} s, read {cv.bytes_read} bytes of {x.nbytes}; one pass "
        f"{one_pass:.1f} s and one path of the grid {one_path:.1f} s; "
        f"{seconds / one_fit:.2f} times one fit (at most {folds + 1})"
    )
    print(cv, flush=True)


class Clock:
    """A `progress` of the package: seconds until the Gram matrix was there."""

    def __init__(self) -> None:
        self._began, self.seconds = time.process_time(), 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Note the time."""
        if stage == "gram":
            self.seconds = time.process_time() - self._began


def warm_up() -> None:
    """Compile the kernels."""
    x = np.random.default_rng(0).standard_normal((12, 90))
    sparse_pca_cv(x, [1, 2], max_fill=[0.2, 0.5], progress=False)


def main() -> None:
    """Simulate, or measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=100, help="simulations")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--data", type=Path, help="folder of .npz files: measure time instead")
    parser.add_argument("--sets", nargs="+", default=["usps"])
    parser.add_argument("--components", nargs="+", type=int, default=[5, 10])
    parser.add_argument("--fills", nargs="+", type=float, default=[0.02, 0.05, 0.1])
    parser.add_argument("--folds", type=int, default=5)
    args = parser.parse_args()
    warm_up()
    if args.data is None:
        simulations(args.count, args.processes)
        return
    for name in args.sets:
        cost(name, args.data, args.components, args.fills, args.folds)


if __name__ == "__main__":
    main()
