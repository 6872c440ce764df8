"""What a cross-validation gives: scores of each point of a grid, and the fit that is chosen."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.choosing import picture, text
from streamsvd.choosing.rule import (
    GridPoint,
    best_of,
    mean_and_error,
    one_standard_error,
    simplest_first,
)
from streamsvd.result import SVDResult
from streamsvd.result.exports import imported


class Row(NamedTuple):
    """A point of the grid and how it did on samples left out, as a mean over the folds."""

    n_components: int
    max_fill: float
    max_nonzeros: int
    n_nonzeros: float
    predicted_variance: float
    predicted_variance_error: float
    explained_variance: float
    explained_variance_error: float


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """Scores on samples left out, for each number of components and fill, and the chosen fit.

    Made by `streamsvd.sparse_pca_cv`. Scores are shares of the variance of the samples left out,
    (folds, number of `n_components`, number of `max_fill`); see `streamsvd.choosing.scores`.

    Attributes
    ----------
    n_components, max_fill : tuple
        The grid.
    budgets : (a, b) array of int
        Nonzeros that each point of the grid allows, of all components together.
    predicted_variance : (k, a, b) array
        What the components predict of each feature from the other features of a sample: what is
        chosen by.
    explained_variance : (k, a, b) array
        What they reconstruct: more components and nonzeros nearly always have more of it.
    n_nonzeros : (k, a, b) array of int
        Of the components that were fitted without each fold.
    fold_of : (N,) array of small int
        The fold in which each sample was left out.
    result : SVDResult
        The fit of all samples at `chosen`, with its `stability`.
    seconds : float
        What all of it took.
    """

    n_components: tuple[int, ...]
    max_fill: tuple[float, ...]
    budgets: Array
    predicted_variance: Array
    explained_variance: Array
    n_nonzeros: Array
    fold_of: Array
    result: SVDResult
    seconds: float

    @property
    def folds(self) -> int:
        """`k`."""
        return len(self.predicted_variance)

    @property
    def bytes_read(self) -> int | None:
        """Read from the source, in one pass."""
        return self.result.bytes_read

    @property
    def best(self) -> GridPoint:
        """The point of the grid that predicts most on average."""
        return self.points[best_of(self._by_point, simplest_first(self.points))]

    @property
    def chosen(self) -> GridPoint:
        """The simplest point within one standard error of the best; see `one_standard_error`."""
        return chosen_of(self.points, self._by_point)

    @cached_property
    def points(self) -> list[GridPoint]:
        """All points of the grid, in the order of the table."""
        return grid_points(self.n_components, self.max_fill, self.budgets)

    @property
    def _by_point(self) -> Array:
        return self.predicted_variance.reshape(self.folds, -1)

    def table(self) -> list[Row]:
        """A row for each point of the grid."""
        return list(self._rows())

    def _rows(self) -> Iterator[Row]:
        nonzeros = self.n_nonzeros.mean(axis=0).ravel()
        predicted = [a.ravel() for a in mean_and_error(self.predicted_variance)]
        explained = [a.ravel() for a in mean_and_error(self.explained_variance)]
        columns = np.stack([nonzeros, *predicted, *explained], axis=1).tolist()
        for point, cells in zip(self.points, columns, strict=True):
            yield Row(*point, *cells)

    def to_dataframe(self) -> Any:
        """`table` as a `pandas.DataFrame`; needs pandas."""
        return imported("pandas").DataFrame(self.table())

    def plot(self, score: str = "predicted_variance") -> Any:
        """Draw a score against the fill, with matplotlib (``pip install "streamsvd[plot]"``).

        A curve for each number of components, with bars of one standard error of the mean over the
        folds; the chosen point and the best one are marked.

        Parameters
        ----------
        score : {"predicted_variance", "explained_variance"}

        Returns
        -------
        matplotlib.figure.Figure
        """
        return picture.draw(self, score)

    def __repr__(self) -> str:
        return "\n".join(text.lines(self))

    def _repr_html_(self) -> str:
        return text.html(self)


def grid_points(
    n_components: tuple[int, ...], max_fill: tuple[float, ...], budgets: Array
) -> list[GridPoint]:
    """All points of a grid: for each number of components all fills."""
    return [
        GridPoint(p, fill, int(budgets[i, j]))
        for i, p in enumerate(n_components)
        for j, fill in enumerate(max_fill)
    ]


def chosen_of(points: list[GridPoint], scores: Array) -> GridPoint:
    """The one-standard-error choice by `scores` (k, number of points)."""
    return points[one_standard_error(scores, simplest_first(points))]
