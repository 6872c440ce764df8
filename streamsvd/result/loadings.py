"""Pictures of components and scores, and what is checked of any picture before it is drawn.

With matplotlib, the extra ``plot``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.result.canvas import BLUE, RED, new_figure, plain, title
from streamsvd.result.solution import Solution
from streamsvd.storage.outputs import refuse_existing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


KINDS = ("components", "stability", "scree", "variance", "accuracy", "scores")


CATEGORIES = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", RED, "#000000")
"""Colours of Okabe and Ito, which the colour-blind can tell apart."""


MARKERS = "os^DvP"


DIVERGING, SEQUENTIAL, ZERO = "RdBu_r", "viridis", "0.88"
"""Loadings: blue to red through white; exact zeros stand out in grey, also on a scale of shares."""


class Shown(NamedTuple):
    """What is drawn of each feature and component, and on which scale."""

    values: sparse.csr_array
    """(p, n), components as rows."""
    left_out: Array
    """Features that are left out, NaN in pictures."""
    is_relative: bool
    """Whether each component is on a scale of its own."""
    cmap: str
    least: float
    label: str

    @classmethod
    def of(cls, made: Solution, kind: str) -> "Shown":
        """The loadings, or how often they are chosen."""
        if kind == "stability":
            assert made.stability is not None  # noqa: S101  (`check` was asked)
            label = "share of fits\n(grey: never)"
            return cls(made.stability, made.left_out, False, SEQUENTIAL, 0.0, label)
        label = "loading / largest\n(grey: exactly zero)"
        return cls(made.components, made.left_out, True, DIVERGING, -1.0, label)

    def row(self, component: int) -> Array:
        """(1, n) what is shown of one component, NaN at features that are left out."""
        whole = self.values[[component]].toarray()
        whole[:, self.left_out] = np.nan
        return whole

    def scaled(self, values: Array) -> Array:
        """Rows of `values` as they are coloured, zeros masked."""
        if self.is_relative:
            values = values / np.nanmax(np.abs(values), axis=1, keepdims=True)
        return np.ma.masked_equal(values, 0.0)


MOST_IMAGES = 100


MOST_COLUMNS = 1000
"""Columns of a heat map: of more features, neighbours share one."""


MOST_POINTS = 20_000
"""Samples of a scatter plot."""


MOST_CLASSES = 20


def check_file(path: Path, overwrite: bool) -> None:
    """Refuse a file that is there, or whose ending is of no picture."""
    formats = sorted(new_figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise OptionError(f"{path} must end in .png or another of: {', '.join(formats)}")
    if not overwrite:
        refuse_existing(path)


def check(made: Solution, kind: str, shape: Any, names: Any, pair: Any) -> None:
    """Refuse, before any work, what cannot be drawn; see `SVDResult.plot`."""
    new_figure()  # matplotlib is there
    n, p = made.n_features, made.n_components
    if kind not in KINDS:
        raise OptionError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}")
    if kind == "stability" and made.stability is None:
        raise OptionError(
            "the stability of these components was not measured: draw the result of sparse_pca_cv"
        )
    if kind in ("variance", "accuracy") and not len(made.log):
        raise OptionError(f"kind={kind!r} draws the path, and the fit made no transforms")
    if shape is not None and (len(shape) != 2 or min(shape) < 1 or shape[0] * shape[1] != n):
        raise OptionError(
            f"image_shape must be rows and columns with a pixel for each of the {n} features; got "
            f"{tuple(shape)}"
        )
    if names is not None and len(names) != n:
        raise OptionError(f"feature_names holds {len(names)} names; there are {n} features")
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


def draw_images(made: Solution, shape: Sequence[int], kind: str = "components") -> "Figure":
    """Each component as an image of `shape`, on a scale of its own, or how often it is chosen."""
    figure = new_figure()
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
    shown, notes = Shown.of(made, kind), _stability_notes(made)
    for c, ax in enumerate(axes[:count]):
        image = _show(ax, shown, shown.scaled(shown.row(c)).reshape(height, width))
        share = "" if np.isnan(ratios[c]) else f": {ratios[c]:.1%}"
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.set_title(f"{c + 1}{share}\n{sizes[c]} nonzeros{notes[c]}", fontsize=8.5)
    _color_bar(figure, image, list(axes[:count]), shown)
    note = "" if count == made.n_components else f"; the first {count} are shown"
    figure.suptitle(title(made) + note)
    return figure


def draw_heat_map(
    made: Solution, names: Sequence[Any] | Array | None, kind: str = "components"
) -> "Figure":
    """Components as rows, each on a scale of its own, or how often they are chosen."""
    p, n = made.n_components, made.n_features
    figure = new_figure()
    figure.set_size_inches(10, min(12.0, max(2.6, 0.26 * p + 1.8)))
    ax = figure.subplots()
    per_column = -(-n // MOST_COLUMNS)
    shown, notes = Shown.of(made, kind), _stability_notes(made)
    values = _binned(shown, per_column)
    extent = (-0.5, per_column * values.shape[1] - 0.5, p + 0.5, 0.5)
    image = _show(ax, shown, shown.scaled(values), aspect="auto", extent=extent)
    rows = np.arange(1, p + 1, -(-p // 50))
    ax.set(ylabel="component", yticks=rows, yticklabels=[f"{c}{notes[c - 1]}" for c in rows])
    ax.set_xlabel("feature" + (f" ({per_column} share a column)" if per_column > 1 else ""))
    if names is not None and n <= 60:
        ax.set_xticks(np.arange(n), list(map(str, names)), rotation=90, fontsize=8)
        ax.set_xlabel("")
    _color_bar(figure, image, [ax], shown)
    figure.suptitle(title(made))
    return figure


def _stability_notes(made: Solution) -> list[str]:
    """For each component how often its nonzeros are chosen again, where that was measured."""
    if made.mean_stability is None:
        return [""] * made.n_components
    return [f", {share:.0%} stable" for share in made.mean_stability.tolist()]


def _binned(shown: Shown, per_column: int) -> Array:
    """(p, columns) of what is shown; of the features that share a column, that of largest size.

    NaN where none of these has any value.
    """
    p, n = shown.values.shape
    loadings = shown.values.tocoo()
    dense = np.zeros((p, -(-n // per_column)))
    there = np.zeros(dense.shape[1], dtype=bool)
    there[np.setdiff1d(np.arange(n), shown.left_out) // per_column] = True
    dense[:, ~there] = np.nan
    last = np.argsort(np.abs(loadings.data), kind="stable")  # what is written last, stays
    dense[loadings.row[last], loadings.col[last] // per_column] = loadings.data[last]
    return dense


def _show(ax: "Axes", shown: Shown, values: Array, **options: Any) -> Any:
    """Values of `Shown.scaled` in colour, exact zeros in grey, and nothing for NaN."""
    import matplotlib

    cmap = matplotlib.colormaps[shown.cmap].with_extremes(bad=ZERO)
    options["interpolation"] = "nearest"
    image = ax.imshow(values, cmap=cmap, vmin=shown.least, vmax=1, **options)
    blank = np.ma.masked_equal(np.isnan(np.ma.getdata(values)), False)
    if blank.count():  # features without any value are white, not the grey of zeros
        ax.imshow(blank, cmap="gray", vmin=0, vmax=1, **options)
    return image


def _color_bar(figure: "Figure", image: Any, axes: list["Axes"], shown: Shown) -> None:
    shrink = min(1.0, 5 / figure.get_figheight())
    ticks = [-1, 0, 1] if shown.is_relative else [0, 0.5, 1]
    bar = figure.colorbar(image, ax=axes, shrink=shrink, aspect=25, pad=0.02, ticks=ticks)
    bar.set_label(shown.label, fontsize=8.5)


# ------------------------------------------------------------------------------------ scores


def draw_scores(
    made: Solution,
    scores: Array,
    labels: Array | None,
    pair: Sequence[int],
    n_samples: int,
) -> "Figure":
    """Two rows of `scores` (p, some of N) against each other, coloured by labels (some of N,)."""
    figure = new_figure()
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
    plain(ax)
    some = f"{len(x)} of " if len(x) < n_samples else ""
    figure.suptitle(f"Scores of {some}{n_samples} samples")
    return figure


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
