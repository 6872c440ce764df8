"""Time passes over data with missing values against the same data without.

    python examples/benchmarks/missing.py --data FOLDER

FOLDER has ``snps.npz``: 28501 SNPs of 1000 individuals, int8, 1 % missing (-1). Both are Zarr
stores; a pass with missing values includes the one for the means. In turn, the best of some
repeats: SNPs as features, to a factor and to the samples in memory; individuals as features, to the
Gram matrix. Then what a fit of whole data takes with ``missing="mean"``, and without.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from clock import best

from streamsvd import sparse_pca
from streamsvd.data.kinds import open_data
from streamsvd.data.missing import Filled, filled
from streamsvd.data.source import Source
from streamsvd.options import Ask
from streamsvd.passes.factor import data_of, factor_of
from streamsvd.passes.gram import gram_matrix
from streamsvd.passes.missing import find_missing
from streamsvd.system import n_cpus


def write(path: Path, numbers: np.ndarray, width: int) -> Path:
    """A store of the numbers, `width` samples in a chunk."""
    array = zarr.create_array(
        path, shape=numbers.shape, chunks=(len(numbers), width), dtype=numbers.dtype
    )
    array[...] = numbers
    return path


def whole(path: Path) -> Source:
    """The store as it is."""
    return open_data(path, Ask(1))


def with_means(path: Path) -> Source:
    """The store with -1 filled by the means, which are taken first."""
    source = whole(path)
    return filled(source, find_missing(Filled(source, -1)), -1)


def pass_over(work: Callable[[Source], Any], opened: Callable[[Path], Source], path: Path) -> None:
    """One pass, from opening the store."""
    work(opened(path))


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    with np.load(args.data / "snps.npz") as arrays:
        snps = arrays["genotypes"]
    print(f"{snps.shape[0]} x {snps.shape[1]} int8, {np.mean(snps == -1):.2%} missing")
    threads = n_cpus()
    passes: dict[str, tuple[np.ndarray, int, Callable[[Source], Any]]] = {
        "factor, rank 150": (snps, 100, lambda x: factor_of(x, "features", None, 150)),
        "samples": (snps, 100, lambda x: data_of(x, "features", None)),
        "Gram matrix": (snps.T, 2000, lambda x: gram_matrix(x, "features", None, None, threads)),
    }
    with tempfile.TemporaryDirectory() as folder:
        for k, (name, (numbers, width, work)) in enumerate(passes.items()):
            numbers = np.ascontiguousarray(numbers)
            path = write(Path(folder) / f"{k}.zarr", numbers, width)
            clean = write(Path(folder) / f"{k}-whole.zarr", np.maximum(numbers, 0), width)
            work(with_means(path))  # compile
            with_missing, without, means = best(
                args.repeat,
                partial(pass_over, work, with_means, path),
                partial(pass_over, work, whole, clean),
                partial(with_means, path),
            )
            print(
                f"{name}: {with_missing:.2f} s, of which means {means:.2f} s; whole {without:.2f} "
                f"s: {with_missing / without:.2f} times as long"
            )
        options: dict[str, Any] = {
            "max_fill": 0.05,
            "reduction": "gram",
            "refine": False,
            "progress": False,
        }
        asked, plain = best(
            args.repeat,
            lambda: sparse_pca(clean, 5, missing="mean", missing_value=-1, **options),
            lambda: sparse_pca(clean, 5, **options),
        )
        print(f'whole data with missing="mean": {asked / plain:.2f} times as long as without')


if __name__ == "__main__":
    main()
