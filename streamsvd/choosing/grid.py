"""What is tried: numbers of components and fills, each point with the options of its fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.choosing.rule import GridPoint
from streamsvd.choosing.validated import grid_points
from streamsvd.data import Source
from streamsvd.errors import OptionError
from streamsvd.fitting import resolve
from streamsvd.options import Options
from streamsvd.options.rules import number, whole

FIT: dict[str, Any] = {
    "max_nonzeros": None,
    "fill_penalty": 0.5,
    "pivot": True,
    "refine": True,
    "tol": 1e-8,
    "reduction": "gram",
    "random_state": None,
}
"""What a fit by `streamsvd.sparse_pca` has by default; the seed is that of the folds."""


@dataclass(frozen=True)
class Grid:
    """What is tried, checked against the data."""

    n_components: tuple[int, ...]
    max_fill: tuple[float, ...]
    options: tuple[tuple[Options, ...], ...]
    """Those of a fit at each point."""
    budgets: Array
    """(a, b) of int."""
    cap: int | None
    """The most nonzeros of one component."""

    @classmethod
    def of(cls, source: Source, arguments: dict[str, Any]) -> "Grid":
        """Of the arguments of `streamsvd.sparse_pca_cv`; refuses what cannot be fitted."""
        numbers = several("n_components", arguments["n_components"])
        fills = several("max_fill", arguments["max_fill"])
        for fill in fills:
            number(0.0, 1.0).check("max_fill", fill)
        n, options = source.n_features, []
        for p in numbers:
            whole(1).check("n_components", p)
            row = [
                Options.of_pca(arguments | FIT | {"n_components": p, "max_fill": fill}, n)
                for fill in fills
            ]
            resolve(source, row[0])
            options.append(tuple(row))
        budgets = np.array([[one.budget(n) for one in row] for row in options], dtype=np.int64)
        cap = arguments["max_nonzeros_per_component"]
        made = tuple(row[0].n_components for row in options)
        return cls(made, tuple(float(f) for f in fills), tuple(options), budgets, cap)

    def points(self) -> list[GridPoint]:
        """All of them."""
        return grid_points(self.n_components, self.max_fill, self.budgets)


def several(name: str, values: Any) -> list[Any]:
    """One value or many; refuses none, and the same twice."""
    listed = list(values) if isinstance(values, Sequence | np.ndarray) else [values]
    if isinstance(values, str | bytes) or not listed:
        raise OptionError(f"{name} must be a number or several; got {values!r}")
    if len({str(value) for value in listed}) < len(listed):
        raise OptionError(f"{name} has a value twice: {listed}")
    return listed
