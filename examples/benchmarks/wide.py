"""Sparse PCA of many features and few samples, beside a truncated power method in the same run.

Two public data sets: gene expression of single cells (HSMMSingleCell, ``log1p``) and genotypes (the
SNPs of snpStats, missing ones set to the mean, scaled), from ``hsmm.npz`` and ``snps.npz`` in a
folder. For each budget the variance that the span of the components explains, in % of PCA's with as
many, and seconds of processor time.

    python examples/benchmarks/wide.py --data FOLDER
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import Matrix

from streamsvd import sparse_pca


def load(name: str, folder: Path) -> Matrix:
    """Features by samples, centred (and scaled, for genotypes)."""
    with np.load(folder / f"{name}.npz") as arrays:
        if name == "hsmm":
            x = np.log1p(arrays["fpkm"].astype(np.float64))
        else:
            x = arrays["genotypes"].astype(np.float64)
            x[x < 0] = np.nan
            x = np.where(np.isnan(x), np.nanmean(x, axis=1, keepdims=True), x)
            x = x[x.std(axis=1) > 0]
            x /= x.std(axis=1, keepdims=True)
    return x - x.mean(axis=1, keepdims=True)


def truncated_power(x: Matrix, p: int, budget: int) -> Matrix:
    """Components of ``budget / p`` nonzeros each, one after the other; not orthogonal.

    Yuan and Zhang, "Truncated power method for sparse eigenvalue problems", 2013, from the leading
    eigenvector of what projection deflation leaves.
    """
    rest, k, found = x.copy(), budget // p, []
    for _ in range(p):
        right = linalg.eigh(rest.T @ rest, subset_by_index=[rest.shape[1] - 1] * 2)[1][:, 0]
        u = _largest(rest @ right, k)
        reached = 0.0
        for _ in range(200):
            y = rest @ (rest.T @ u)
            energy = float(u @ y)
            if energy <= reached * (1 + 1e-6):
                break
            reached, u = energy, _largest(y, k)
        found.append(u)
        rest -= np.outer(u, u @ rest)
    return np.array(found)


def _largest(y: Matrix, k: int) -> Matrix:
    kept = np.argpartition(-np.abs(y), k - 1)[:k]
    out = np.zeros_like(y)
    out[kept] = y[kept]
    return out / np.linalg.norm(out)


def explained(x: Matrix, components: Matrix) -> float:
    """Sum of squares within the span of the rows."""
    return float(np.sum((linalg.orth(components.T).T @ x) ** 2))


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--components", type=int, default=15)
    parser.add_argument("--fill", type=float, nargs="+", default=[0.05, 0.01, 0.001])
    parser.add_argument("--names", nargs="+", default=["hsmm", "snps"])
    options = parser.parse_args()
    p = options.components
    sparse_pca(np.random.default_rng(0).standard_normal((200, 30)), 3, reduction="samples")
    print(f"{'data':<6}{'fill':>7}{'sparse_pca':>12}{'s':>7}{'power':>8}{'s':>7}  form")
    for name in options.names:
        x = load(name, options.data)
        best = float(np.linalg.eigvalsh(x.T @ x)[-p:].sum())
        for fill in options.fill:
            row: list[Any] = [name, f"{100 * fill:g} %"]
            began = time.process_time()
            result = sparse_pca(x, p, max_fill=fill, sample_axis=1, progress=False)
            seconds = time.process_time() - began
            row += [100 * explained(x, result.components.toarray()) / best, seconds]
            began = time.process_time()
            other = truncated_power(x, p, int(fill * p * len(x)))
            row += [100 * explained(x, other) / best, time.process_time() - began]
            text = "{:<6}{:>7}{:>12.2f}{:>7.1f}{:>8.2f}{:>7.1f}  {}"
            print(text.format(*row, result.settings["reduction"]), flush=True)


if __name__ == "__main__":
    main()
