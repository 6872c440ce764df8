"""Pictures of samples on two of the components: as points or density, and with arrows of loadings.

With matplotlib, the extra ``plot``.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.result.bars import Names, Top, name_of
from streamsvd.result.canvas import (
    BLUE,
    CATEGORIES,
    MARKERS,
    component_label,
    new_figure,
    plain,
    put_title,
    shortened,
)
from streamsvd.result.placing import place_names
from streamsvd.result.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_SCORES = 200_000
"""Samples whose scores are made: of more, evenly spaced ones."""


MOST_POINTS = 10_000
"""Samples that are drawn one by one; more are shown as density."""


MOST_CLASSES = 40
"""No two of so many have the same colour and the same marker."""


PLAIN_CLASSES = len(CATEGORIES)
"""Of more classes than colours, names stand in the picture too."""


ARROWS = 7
"""Of each of the two components of a biplot."""


SHORTEST = 0.15
"""Of the longest arrow: shorter ones say little, and would hide each other."""


def draw_scores(
    made: Solution, scores: Array, labels: Array | None, pair: Sequence[int], n_samples: int
) -> "Figure":
    """Two rows of `scores` (p, some of N) against each other, coloured by labels (some of N,)."""
    figure, ax = _drawn(made, scores, labels, pair)
    _name_classes(figure, ax, scores[list(pair)], labels)
    put_title(figure, f"Scores of {_some(scores, n_samples)}{n_samples} samples")
    return figure


def draw_biplot(
    made: Solution,
    scores: Array,
    labels: Array | None,
    pair: Sequence[int],
    n_samples: int,
    names: Names,
) -> "Figure":
    """The same, and the largest loadings of both components as arrows on scales of their own."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.patheffects import withStroke

    figure, ax = _drawn(made, scores, labels, pair)
    both = made.components[list(pair)]
    tops = [Top.of(made, c, ARROWS).places for c in pair]
    features = np.array(list(dict.fromkeys(np.concatenate(tops).tolist())))
    tips = both[:, features].toarray().T
    sizes = np.hypot(*tips.T)
    seen = sizes > SHORTEST * sizes.max()
    features, tips = features[seen], tips[seen]
    reach = np.abs(np.array([ax.get_xlim(), ax.get_ylim()])).max(axis=1)
    largest = np.abs(tips).max(axis=0)
    unit = 0.8 * float(np.min(reach[largest > 0] / largest[largest > 0]))
    for tip in unit * tips:
        arrow = FancyArrowPatch(
            (0, 0), tip, arrowstyle="-|>", mutation_scale=9, shrinkA=0, shrinkB=0,
            color="0.1", linewidth=1.2, zorder=4,
            path_effects=[withStroke(linewidth=2.4, foreground="white")],
        )  # fmt: skip
        ax.add_patch(arrow)
    ax.update_datalim(1.06 * unit * tips)
    ax.autoscale_view()
    scale = (lambda x: x / unit, lambda x: x * unit)
    top = ax.secondary_xaxis("top", functions=scale)
    right = ax.secondary_yaxis("right", functions=scale)
    top.set_xlabel(f"loading on component {pair[0]} (arrows)")
    right.set_ylabel(f"loading on component {pair[1]} (arrows)")
    put_title(
        figure,
        f"Scores of {_some(scores, n_samples)}{n_samples} samples, and the largest loadings: "
        f"{len(features)} of {made.n_features} features",
    )
    ends = unit * tips
    order = np.argsort(-np.hypot(*ends.T))
    places = ends[order]
    lines = np.stack([np.zeros_like(places), places], axis=1)
    texts = [name_of(names, int(features[k])) for k in order]
    place_names(figure, ax, places, texts, lines=lines)
    return figure


def _some(scores: Array, n_samples: int) -> str:
    return f"{scores.shape[1]} of " if scores.shape[1] < n_samples else ""


def _drawn(
    made: Solution, scores: Array, labels: Array | None, pair: Sequence[int]
) -> tuple["Figure", "Axes"]:
    """Points or density; names of the axes."""
    figure = new_figure(7.5, 6)
    ax = figure.subplots()
    ax.margins(0.06)  # markers are whole
    x, y = scores[pair[0]], scores[pair[1]]
    if labels is None or labels.dtype.kind == "f":
        draw = _draw_points if len(x) <= MOST_POINTS else _draw_density
        draw(figure, ax, x, y, labels)
    else:
        _draw_classes(figure, ax, x, y, labels)
    ax.set(xlabel=component_label(made, pair[0]), ylabel=component_label(made, pair[1]))
    ax.axhline(0, color="0.75", linewidth=0.8, zorder=0)
    ax.axvline(0, color="0.75", linewidth=0.8, zorder=0)
    plain(ax)
    return figure, ax


def _style(count: int) -> dict[str, Any]:
    """Markers that are smaller where there are more."""
    area = float(np.clip(40_000 / max(count, 1), 5, 32))
    edge = {"linewidths": 0.3 if area > 12 else 0, "edgecolors": "white"}
    return {"s": area, "alpha": 0.8 if area > 12 else 0.5, "rasterized": True, **edge}


def _draw_points(figure: "Figure", ax: "Axes", x: Array, y: Array, labels: Array | None) -> None:
    style = _style(len(x))
    if labels is None:
        ax.scatter(x, y, color=BLUE, **style)
        return
    known = np.isfinite(labels)
    if not known.all():
        ax.scatter(x[~known], y[~known], color="0.75", label="no label", **style)
        ax.legend(loc="upper left", bbox_to_anchor=(0, -0.1), frameon=False)
    points = ax.scatter(x[known], y[known], c=labels[known], cmap="viridis", **style)
    figure.colorbar(points, ax=ax, label="label", pad=0.02)


def _draw_density(figure: "Figure", ax: "Axes", x: Array, y: Array, labels: Array | None) -> None:
    """How many samples fall into each hexagon, or the mean of their labels."""
    from matplotlib.ticker import StrMethodFormatter

    style: dict[str, Any] = {"gridsize": 60, "mincnt": 1, "linewidths": 0.1, "rasterized": True}
    if labels is None:
        cells = ax.hexbin(x, y, bins="log", cmap=_light_to_dark(), **style)
        bar = figure.colorbar(cells, ax=ax, label="samples in a hexagon", pad=0.02)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        return
    known = np.isfinite(labels)
    cells = ax.hexbin(x[known], y[known], labels[known], cmap="viridis", **style)
    figure.colorbar(cells, ax=ax, label="mean label of the samples in a hexagon", pad=0.02)


def _light_to_dark() -> Any:
    """A scale whose least still stands out from the paper."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["YlGnBu"](np.linspace(0.2, 1, 256)))


def _classes(labels: Array) -> Array:
    """All of them, numbers within their names in order: 2 before 10."""
    found = np.unique(labels)
    if found.dtype.kind in "biu":
        return found
    parts = [re.split(r"(\d+)", str(name)) for name in found]
    order = sorted(
        range(len(found)),
        key=lambda k: [(int(part), "") if part.isdigit() else (-1, part) for part in parts[k]],
    )
    return found[order]


def _look(c: int) -> dict[str, Any]:
    """Colour and marker of a class."""
    return {"color": CATEGORIES[c % len(CATEGORIES)], "marker": MARKERS[c % len(MARKERS)]}


def _draw_classes(figure: "Figure", ax: "Axes", x: Array, y: Array, labels: Array) -> None:
    """A colour and a marker for each class, so that no two share both.

    Samples are drawn in a few rounds: the last class would hide the others. Where there are many,
    a line goes around the densest half of each class.
    """
    names = _classes(labels)
    step = -(-len(x) // MOST_POINTS)
    some_x, some_y, some = x[::step], y[::step], labels[::step]
    style = _style(len(some))
    turn = np.arange(len(some)) % 4
    for k in range(4):
        for c, name in enumerate(names):
            own = (some == name) & (turn == k)
            ax.scatter(some_x[own], some_y[own], **_look(c), **style)
    if step > 1:
        for c, name in enumerate(names):
            _draw_half(ax, x[labels == name], y[labels == name], c)
    for c, name in enumerate(names):
        ax.scatter([], [], s=32, label=shortened(name), **_look(c))
    figure.legend(
        frameon=False, loc="outside right center", ncols=-(-len(names) // 20),
        fontsize=9 if len(names) <= 12 else 8, handletextpad=0.2, columnspacing=0.8,
    )  # fmt: skip


def _draw_half(ax: "Axes", x: Array, y: Array, c: int) -> None:
    """A line around the places where the density of points is highest, and half of them are."""
    from scipy.ndimage import gaussian_filter  # slow, and not needed but for pictures

    if len(x) < 50:
        return
    limits = np.array([ax.get_xlim(), ax.get_ylim()])
    counts, x_edges, y_edges = np.histogram2d(x, y, bins=120, range=limits)
    density = gaussian_filter(counts, 3)
    falling = np.sort(density, axis=None)[::-1]
    level = falling[np.searchsorted(np.cumsum(falling), density.sum() / 2)]
    middles = [(edges[1:] + edges[:-1]) / 2 for edges in (x_edges, y_edges)]
    dashes = ("-", "--", ":", "-.")[c // len(CATEGORIES) % 4]
    for width, ink, style in ((3.2, "white", "-"), (1.8, _look(c)["color"], dashes)):
        ax.contour(
            *middles, density.T, levels=[level], colors=[ink], linewidths=width, linestyles=style
        )


def _name_classes(figure: "Figure", ax: "Axes", scores: Array, labels: Array | None) -> None:
    """Where colours come again, each class by name at its middle."""
    if labels is None or labels.dtype.kind == "f":
        return
    names = _classes(labels)
    if len(names) <= PLAIN_CLASSES:
        return
    middles = np.array([np.median(scores[:, labels == name], axis=1) for name in names])
    colors = [_look(c)["color"] for c in range(len(names))]
    place_names(figure, ax, middles, [shortened(name, 14) for name in names], colors)
