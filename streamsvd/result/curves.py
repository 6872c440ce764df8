"""Pictures of the explained variance and of the accuracy: by component and along the path."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.passes.measure import largest_singular_values
from streamsvd.result.canvas import (
    BLUE,
    GREY,
    RED,
    counted,
    logarithmic,
    new_figure,
    plain,
    put_title,
    title,
)
from streamsvd.result.solution import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_STEPS = 60
"""Steps of the path at which a variance that is not known is computed."""


class Curve(NamedTuple):
    """A quantity along the path, as shares."""

    label: str
    steps: Array
    """Numbers of transforms, from 1."""
    values: Array
    """The quantity after so many."""
    here: float | None
    """That of the solution, where known."""
    best: float | None
    """That of PCA, where known."""


def variance_curve(made: Solution, gram: Array | None) -> Curve:
    """Explained variance; computed with `gram` where the path does not know it."""
    if made.is_reduced:
        steps = np.arange(1, len(made.log) + 1)
        values = made.path()["explained_variance"][1:]
    else:
        gram = _needed(gram, "variance along the path")
        steps = np.unique(np.geomspace(1, len(made.log), MOST_STEPS).astype(int))
        values = np.array([_ratios(made.at(int(k)), gram).sum() for k in steps])
    best = None if gram is None else float(_best_ratios(made, gram).sum())
    return Curve("variance explained, %", steps, values, float(_ratios(made, gram).sum()), best)


def accuracy_curve(made: Solution, gram: Array | None) -> Curve:
    """The objective over its bound: the sum of the p largest singular values, as in the paper.

    On ``X X^T`` those are the energies that PCA explains.
    """
    best = largest_singular_values(_needed(gram, "the accuracy"), made.n_components)
    bound = float(best.sum())
    if made.is_reduced:
        bound = float(best @ best)
    values = replace(made, n_transforms=len(made.log)).history.trace / bound
    k, here = made.n_transforms, None
    if made.refined is None:
        here = float(values[k - 1]) if k else None
    elif made.is_reduced:
        here = float(made.refined.energies.sum()) / bound
    return Curve("accuracy, %", np.arange(1, len(values) + 1), values, here, None)


def draw_curve(made: Solution, curve: Curve) -> "Figure":
    """A quantity against transforms and against fill."""
    figure = new_figure()
    is_refined = made.refined is not None
    fill = 100 * made.path()["fill"][curve.steps]
    by_transforms, by_fill = figure.subplots(1, 2, sharey=True)
    for ax, x, here, label in (
        (by_transforms, curve.steps, made.n_transforms, "transforms"),
        (by_fill, fill, 100 * made.fill, "nonzeros, % of all loadings"),
    ):
        ax.plot(x, 100 * curve.values, color=BLUE, linewidth=2, label="path")
        if curve.here is not None and here:
            style: dict[str, Any] = {"marker": "o", "markersize": 8, "label": "this result"}
            if is_refined:
                style = {"marker": "*", "markersize": 14, "label": "refined"}
            ax.plot(here, 100 * curve.here, color=RED, linestyle="", clip_on=False, **style)
        if curve.best is not None:
            ax.axhline(100 * curve.best, color=GREY, linestyle="--", label="PCA, no zeros")
        logarithmic(ax, x)
        ax.set_xlabel(label)
        plain(ax)
    by_transforms.set(ylabel=curve.label, ylim=(0, None))
    by_transforms.legend(frameon=False, loc="best")
    put_title(figure, title(made))
    return figure


def draw_scree(made: Solution, gram: Array | None) -> "Figure":
    """Explained variance of each component and in sum, beside that of PCA where known."""
    p = made.n_components
    counts, sparse, pca = np.arange(1, p + 1), "sparse components", "PCA, no zeros"
    figure = new_figure()
    each, summed = figure.subplots(1, 2)
    ratios = 100 * _ratios(made, gram)
    each.bar(counts - 1, ratios, color=BLUE, label=sparse)
    size = float(np.clip(200 / p, 2.5, 6))
    (line,) = summed.plot(counts, np.cumsum(ratios), color=BLUE, marker="o", label=sparse)
    line.set(markersize=size, clip_on=False)
    if gram is not None:
        best = 100 * _best_ratios(made, gram)
        edges = np.arange(p + 1) - 0.5
        each.stairs(best, edges, baseline=None, color=GREY, linestyle="--", label=pca)
        summed.plot(counts, np.cumsum(best), color=GREY, linestyle="--", label=pca)
    each.set(xlabel="component", ylabel="variance explained, %")
    summed.set(xlabel="number of components", ylabel="explained together, %")
    summed.set_ylim(0, 1.06 * max(line.get_ydata().max() for line in summed.lines))
    if gram is not None:
        summed.legend(frameon=False, loc="lower right")
    counted(each, p, 0)
    counted(summed, p, 1)
    for ax in (each, summed):
        plain(ax)
    put_title(figure, title(made))
    return figure


def _ratios(made: Solution, gram: Array | None) -> Array:
    """Explained variance of each component as a share of the total."""
    known = made.explained_variance_ratio
    if not np.isnan(known).any():
        return known
    gram = _needed(gram, "the variance of this result")
    rows = made.fitted_components
    return rows.multiply(rows @ gram).sum(axis=1) / np.trace(gram)


def _best_ratios(made: Solution, gram: Array) -> Array:
    return largest_singular_values(gram, made.n_components) ** 2 / np.trace(gram)


def _needed(gram: Array | None, what: str) -> Array:
    if gram is None:
        raise OptionError(
            f"{what} is not known from the fit alone: pass X=..., the data of the fit"
        )
    return gram
