"""Pictures of solutions, with matplotlib (the extra ``plot``)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvd.errors import OptionError
from streamsvd.kernels import Array
from streamsvd.metrics import largest_singular_values
from streamsvd.solution import Solution
from streamsvd.store import refuse_existing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("components", "scree", "variance", "accuracy", "scores")

BLUE, RED, GREY = "#0072B2", "#D55E00", "0.35"
CATEGORIES = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", RED, "#000000")
"""Colours of Okabe and Ito, which the colour-blind can tell apart."""
MARKERS = "os^DvP"
DIVERGING, ZERO = "RdBu_r", "0.88"
"""Loadings: blue to red through white; exact zeros stand out in grey."""

MOST_IMAGES = 100
MOST_COLUMNS = 1000
"""Columns of a heat map: of more features, neighbours share one."""
MOST_STEPS = 60
"""Steps of the path at which a variance that is not known is computed."""
MOST_POINTS = 20_000
"""Samples of a scatter plot."""
MOST_CLASSES = 20


def new_figure() -> "Figure":
    """An empty figure; refuses where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError('pictures need matplotlib: pip install "streamsvd[plot]"') from error
    return Figure(figsize=(9, 4), layout="constrained")


def check_file(path: Path, overwrite: bool) -> None:
    """Refuse a file that is there, or whose ending is of no picture."""
    formats = sorted(new_figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise OptionError(f"{path} must end in .png or another of: {', '.join(formats)}")
    if not overwrite:
        refuse_existing(path)


def check(made: Solution, kind: str, options: dict[str, Any]) -> None:
    """Refuse, before any work, what cannot be drawn; `options` are those of `SVDResult.plot`."""
    n, p, shape = made.n_features, made.n_components, options["image_shape"]
    if kind not in KINDS:
        raise OptionError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}")
    if kind in ("variance", "accuracy") and not len(made.log):
        raise OptionError(f"kind={kind!r} draws the path, and the fit made no transforms")
    if shape is not None and (len(shape) != 2 or min(shape) < 1 or shape[0] * shape[1] != n):
        raise OptionError(
            f"image_shape must be rows and columns with a pixel for each of the {n} features; got "
            f"{tuple(shape)}"
        )
    names = options["feature_names"]
    if names is not None and len(names) != n:
        raise OptionError(f"feature_names holds {len(names)} names; there are {n} features")
    pair = options["pair"]
    if kind == "scores" and not (len(pair) == 2 and all(0 <= c < p for c in pair)):
        raise OptionError(
            f"pair must be two of the {p} components, counted from 0; got {tuple(pair)}"
        )


def check_labels(labels: Any, n_samples: int) -> Array | None:
    """Labels as an array: one for each sample, of a few classes unless they are floats."""
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.shape != (n_samples,):
        raise OptionError(
            f"labels have shape {array.shape}; need one for each of {n_samples} samples"
        )
    classes = 0 if array.dtype.kind == "f" else len(np.unique(array))
    if classes > MOST_CLASSES:
        raise OptionError(
            f"labels are of {classes} classes, more than the {MOST_CLASSES} that can be told "
            "apart; pass floats for a colour scale"
        )
    return array


# -------------------------------------------------------------------------------- components


def draw_images(figure: "Figure", made: Solution, shape: Sequence[int]) -> None:
    """Each component as an image of `shape`, on a scale of its own."""
    height, width = shape
    count = min(made.n_components, MOST_IMAGES)
    n_columns = min(count, round(np.sqrt(1.8 * count * height / width)) or 1)
    n_rows = -(-count // n_columns)
    tall = 1.35 * height / width + 0.5
    figure.set_size_inches(max(6.0, 1.35 * n_columns + 1.3), max(2.6, tall * n_rows + 0.8))
    figure.set_layout_engine("compressed")  # what suits axes of a fixed shape
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[count:]:
        ax.remove()
    ratios, sizes = made.explained_variance_ratio, np.diff(made.components.indptr)
    for c, ax in enumerate(axes[:count]):
        image = _show(ax, made.components[[c]].toarray().reshape(height, width))
        share = "" if np.isnan(ratios[c]) else f": {ratios[c]:.1%}"
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.set_title(f"{c + 1}{share}\n{sizes[c]} nonzeros", fontsize=8.5)
    _color_bar(figure, image, list(axes[:count]))
    note = "" if count == made.n_components else f"; the first {count} are shown"
    figure.suptitle(_title(made) + note)


def draw_heat_map(figure: "Figure", made: Solution, names: Sequence[Any] | Array | None) -> None:
    """Components as rows, each on a scale of its own; features as columns."""
    p, n = made.n_components, made.n_features
    figure.set_size_inches(10, min(12.0, max(2.6, 0.26 * p + 1.8)))
    ax = figure.subplots()
    per_column = -(-n // MOST_COLUMNS)
    values = _binned(made, per_column)
    largest = np.abs(values).max(axis=1, keepdims=True)
    extent = (-0.5, per_column * values.shape[1] - 0.5, p + 0.5, 0.5)
    image = _show(ax, values / largest, aspect="auto", extent=extent)
    ax.set(ylabel="component", yticks=np.arange(1, p + 1, -(-p // 50)))
    ax.set_xlabel("feature" + (f" ({per_column} share a column)" if per_column > 1 else ""))
    if names is not None and n <= 60:
        ax.set_xticks(np.arange(n), list(map(str, names)), rotation=90, fontsize=8)
        ax.set_xlabel("")
    _color_bar(figure, image, [ax])
    figure.suptitle(_title(made))


def _binned(made: Solution, per_column: int) -> Array:
    """(p, columns) loadings; of the features that share a column, that of largest size."""
    loadings = made.components.tocoo()
    dense = np.zeros((made.n_components, -(-made.n_features // per_column)))
    last = np.argsort(np.abs(loadings.data), kind="stable")  # what is written last, stays
    dense[loadings.row[last], loadings.col[last] // per_column] = loadings.data[last]
    return dense


def _show(ax: "Axes", values: Array, **options: Any) -> Any:
    """Loadings in colour over the largest of them, exact zeros in grey."""
    import matplotlib

    cmap = matplotlib.colormaps[DIVERGING].with_extremes(bad=ZERO)
    shares = np.ma.masked_equal(values / np.abs(values).max(), 0.0)
    return ax.imshow(shares, cmap=cmap, vmin=-1, vmax=1, interpolation="nearest", **options)


def _color_bar(figure: "Figure", image: Any, axes: list["Axes"]) -> None:
    shrink = min(1.0, 5 / figure.get_figheight())
    bar = figure.colorbar(image, ax=axes, shrink=shrink, aspect=25, pad=0.02, ticks=[-1, 0, 1])
    bar.set_label("loading / largest\n(grey: exactly zero)", fontsize=8.5)


def _title(made: Solution) -> str:
    explained = made.explained_variance_ratio.sum()
    share = "" if np.isnan(explained) else f", {explained:.1%} of the variance"
    p = made.n_components
    return (
        f"{p} component{'s' if p > 1 else ''} of {made.n_features} features, "
        f"{made.fill:.2%} nonzeros{share}"
    )


# --------------------------------------------------------------------- variance and accuracy


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


def draw_curve(figure: "Figure", made: Solution, curve: Curve) -> None:
    """A quantity against transforms and against fill."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    is_refined = made.refined is not None
    fill = 100 * made.path()["fill"][curve.steps]
    by_transforms, by_fill = figure.subplots(1, 2, sharey=True)
    for ax, x, here, label in (
        (by_transforms, curve.steps, made.n_transforms, "transforms"),
        (by_fill, fill, 100 * made.fill, "nonzeros, % of all loadings"),
    ):
        ax.plot(x, 100 * curve.values, color=BLUE, linewidth=2, label="path")
        if curve.here is not None and here:
            style = {"marker": "*" if is_refined else "o", "markersize": 14 if is_refined else 8}
            name = "refined" if is_refined else "this result"
            ax.plot(here, 100 * curve.here, color=RED, linestyle="", label=name, **style)
        if curve.best is not None:
            ax.axhline(100 * curve.best, color=GREY, linestyle="--", label="PCA, no zeros")
        ax.set_xscale("log")
        is_wide = x[-1] > 500 * x[0]
        ax.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel(label)
        _plain(ax)
    by_transforms.set(ylabel=curve.label, ylim=(0, None))
    by_transforms.legend(frameon=False, loc="best")
    figure.suptitle(_title(made))


def draw_scree(figure: "Figure", made: Solution, gram: Array | None) -> None:
    """Explained variance of each component and in sum, beside that of PCA where known."""
    from matplotlib.ticker import MaxNLocator

    numbers = np.arange(1, made.n_components + 1)
    sparse, pca = "sparse components", "PCA, no zeros"
    each, summed = figure.subplots(1, 2)
    ratios = 100 * _ratios(made, gram)
    each.bar(numbers, ratios, color=BLUE)
    summed.plot(numbers, np.cumsum(ratios), color=BLUE, marker="o", label=sparse)
    if gram is not None:
        best = 100 * _best_ratios(made, gram)
        edges = np.arange(len(best) + 1) + 0.5
        each.stairs(best, edges, baseline=None, color=GREY, linestyle="--")
        summed.plot(numbers, np.cumsum(best), color=GREY, linestyle="--", label=pca)
    each.set(xlabel="component", ylabel="variance explained, %", xlim=(0.4, len(ratios) + 0.6))
    summed.set(xlabel="components together", ylim=(0, None))
    summed.legend(frameon=False, loc="lower right")
    for ax in (each, summed):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        _plain(ax)
    figure.suptitle(_title(made))


def _ratios(made: Solution, gram: Array | None) -> Array:
    """Explained variance of each component as a share of the total."""
    known = made.explained_variance_ratio
    if not np.isnan(known).any():
        return known
    gram = _needed(gram, "the variance of this result")
    return made.components.multiply(made.components @ gram).sum(axis=1) / np.trace(gram)


def _best_ratios(made: Solution, gram: Array) -> Array:
    return largest_singular_values(gram, made.n_components) ** 2 / np.trace(gram)


def _needed(gram: Array | None, what: str) -> Array:
    if gram is None:
        raise OptionError(
            f"{what} is not known from the fit alone: pass X=..., the data of the fit"
        )
    return gram


def _plain(ax: "Axes") -> None:
    ax.grid(color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


# ------------------------------------------------------------------------------------ scores


def draw_scores(
    figure: "Figure",
    made: Solution,
    scores: Array,
    labels: Array | None,
    pair: Sequence[int],
    n_samples: int,
) -> None:
    """Two rows of `scores` (p, some of N) against each other, coloured by labels (some of N,)."""
    figure.set_size_inches(7, 5.5)
    ax = figure.subplots()
    x, y = scores[pair[0]], scores[pair[1]]
    area = float(np.clip(40_000 / len(x), 4, 30))
    style: dict[str, Any] = {"s": area, "alpha": 0.7, "linewidths": 0, "rasterized": True}
    if labels is None:
        ax.scatter(x, y, color=BLUE, **style)
    elif labels.dtype.kind == "f":
        points = ax.scatter(x, y, c=labels, cmap="viridis", **style)
        figure.colorbar(points, ax=ax, label="label")
    else:
        _draw_classes(ax, x, y, labels, style)
    ratios = made.explained_variance_ratio
    names = [
        f"component {c + 1}"
        + ("" if np.isnan(ratios[c]) else f" ({ratios[c]:.1%} of the variance)")
        for c in pair
    ]
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.axvline(0, color="0.85", linewidth=0.8, zorder=0)
    _plain(ax)
    some = f"{len(x)} of " if len(x) < n_samples else ""
    figure.suptitle(f"Scores of {some}{n_samples} samples")


def _draw_classes(ax: "Axes", x: Array, y: Array, labels: Array, style: dict[str, Any]) -> None:
    """A colour and a marker for each class, so that no two share both.

    Samples are drawn in a few rounds: the last class would hide the others.
    """
    turn = np.arange(len(x)) % 8
    for k in range(8):
        for c, name in enumerate(np.unique(labels)):
            own = (labels == name) & (turn == k)
            color, marker = CATEGORIES[c % len(CATEGORIES)], MARKERS[c % len(MARKERS)]
            text = None if k else str(name)
            ax.scatter(x[own], y[own], color=color, marker=marker, label=text, **style)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), markerscale=2)
