"""Figure 1 of the paper: accuracy against the number of transforms, and of blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Matrix
from scipy import linalg

from streamsvd import SVDResult, sparse_svd

PATHS: dict[str, dict[str, Any]] = {
    "proposed": {"selection": "nuclear"},
    "Kogbetliantz": {"selection": "kogbetliantz"},
    "random": {"selection": "random"},
    "gain": {"selection": "gain"},
    "gram": {"selection": "gain", "reduction": "gram", "pivot": True},
    "gram, fill penalty": {
        "selection": "gain",
        "reduction": "gram",
        "pivot": True,
        "fill_penalty": 0.5,
    },
}
"""Options of each method: the paper's three, then what this package adds."""

IN_PLACE = [method for method, options in PATHS.items() if "reduction" not in options]
"""Those that are run in blocks as well."""


@dataclass(frozen=True)
class AccuracyRow:
    """One point of a line; shares, not percent."""

    data: str
    unit: str
    """"transforms" or "blocks"."""
    method: str
    runs: int
    """Seeds over which the values are averaged."""
    steps: int
    accuracy: float
    """The paper's ``trace(U_p^T X V_p)`` over the sum of X's p largest singular values; NaN on
    the Gram matrix, where there are no right vectors."""
    accuracy_free: float
    """The same with the right vectors that are best for these components."""
    fill: float


@dataclass(frozen=True)
class Spectrum:
    """What the measures need of a data set: ``X X^T`` and the p largest singular values."""

    gram: Matrix
    values: Matrix

    @classmethod
    def of(cls, x: Matrix, p: int) -> "Spectrum":
        """Computed by NumPy, not by the package that is measured."""
        gram = x @ x.T
        n = len(gram)
        values = linalg.eigh(gram, eigvals_only=True, subset_by_index=[n - p, n - 1])
        return cls(gram, np.sqrt(np.maximum(values[::-1], 0.0)))

    def accuracy_free(self, result: SVDResult) -> float:
        """``|U_p^T X|_*`` over the best: no orthonormal V gives a larger trace (von Neumann)."""
        components = result.components
        small = (components @ (components @ self.gram).T).astype(np.float64)
        values = linalg.eigvalsh((small + small.T) / 2)
        return float(np.sqrt(np.maximum(values, 0.0)).sum() / self.values.sum())


def grid(last: int) -> list[int]:
    """Powers of the root of two, rounded, up to `last`."""
    exponents = np.arange(0, 2 * np.log2(last) + 1e-9)
    return [int(k) for k in np.unique(np.rint(2 ** (exponents / 2)))]


def figure_1(
    name: str, x: Matrix, p: int, transforms: int, blocks: int, seeds: int
) -> Iterator[AccuracyRow]:
    """All lines for one data set; each is one run, of which the points are prefixes."""
    spectrum = Spectrum.of(x, p)
    for method, options in PATHS.items():
        paths = [
            sparse_svd(x, p, n_transforms=transforms, progress=False, **options, **seed)
            for seed in _seeds(method, seeds)
        ]
        yield from _points(name, "transforms", method, paths, spectrum, grid(transforms))
    for method in IN_PLACE:
        paths = [
            block_path(x, p, blocks, **PATHS[method], **seed) for seed in _seeds(method, seeds)
        ]
        yield from _points(name, "blocks", method, paths, spectrum, grid(blocks))


def block_path(x: Matrix, p: int, steps: int, **options: Any) -> SVDResult:
    """Block steps (Remark 4), each the SVD of 2p rows and columns at once."""
    options |= {"algorithm": "block", "n_transforms": steps, "progress": False}
    return sparse_svd(x, p, **options)


def _seeds(method: str, seeds: int) -> list[dict[str, Any]]:
    return [{"random_state": seed} for seed in range(seeds)] if method == "random" else [{}]


def _points(
    name: str,
    unit: str,
    method: str,
    paths: list[SVDResult],
    spectrum: Spectrum,
    steps: list[int],
) -> Iterator[AccuracyRow]:
    histories = [path.history for path in paths]
    for k in steps:
        free, measured, fill = [], [], []
        for path, history in zip(paths, histories, strict=True):
            made = min(k, path.n_transforms)
            free.append(spectrum.accuracy_free(path.at(made)))
            # with its signs, as the algorithm has it: small diagonal entries may be negative
            trace = np.nan if path.is_reduced else history.trace[made - 1]
            measured.append(trace / spectrum.values.sum())
            fill.append(history.fill[made - 1])
        yield AccuracyRow(
            data=name,
            unit=unit,
            method=method,
            runs=len(paths),
            steps=k,
            accuracy=float(np.mean(measured)),
            accuracy_free=float(np.mean(free)),
            fill=float(np.mean(fill)),
        )
