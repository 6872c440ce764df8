"""The choice of a point of the grid: the simplest that is not clearly worse than the best.

The one-standard-error rule of Breiman, Friedman, Olshen and Stone ("Classification and Regression
Trees", 1984), with the error of differences between points instead of that of the best score.
"""

from typing import NamedTuple

import numpy as np

from streamsvd.arrays import Array


class GridPoint(NamedTuple):
    """A number of components and a budget."""

    n_components: int
    max_fill: float
    max_nonzeros: int
    """Of all components together: what the fill allows."""


def mean_and_error(scores: Array) -> tuple[Array, Array]:
    """Over the folds, (k, ...), of scores: the mean, and its standard error."""
    return scores.mean(axis=0), scores.std(axis=0, ddof=1) / np.sqrt(len(scores))


def best_of(scores: Array, simplest: Array) -> int:
    """The point of highest mean over the folds, of `scores` (k, m); of equals the simplest."""
    mean = scores.mean(axis=0)
    return int(min(simplest, key=lambda point: -mean[point]))


def one_standard_error(scores: Array, simplest: Array) -> int:
    """The simplest point whose mean is within one standard error of the best one's.

    Of the difference between the two, fold by fold: what a fold adds to both is no uncertainty
    about which is better.

    Parameters
    ----------
    scores : (k, m) array
        Of each fold and point.
    simplest : (m,) array
        The points, simplest first.
    """
    worse = scores[:, [best_of(scores, simplest)]] - scores
    mean, error = mean_and_error(worse)
    return int(next(point for point in simplest if mean[point] <= error[point]))


def simplest_first(points: list[GridPoint]) -> Array:
    """Fewest nonzeros, then fewest components."""
    return np.lexsort(
        ([point.n_components for point in points], [point.max_nonzeros for point in points])
    )
