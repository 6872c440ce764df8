"""Loadings as bars with the names of their features: those of all features, or the largest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.result.canvas import (
    NEGATIVE,
    POSITIVE,
    STEPS,
    new_figure,
    put_title,
    shortened,
    title,
)
from streamsvd.result.percent import percent
from streamsvd.result.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Names = Sequence[Any] | Array | None


FEW = 20
"""Named features that are all shown, each with a bar in every component."""


MOST_PANELS = 30


PANEL = 1.6
"""Inches: the title of a panel is no wider."""


class Top(NamedTuple):
    """The largest loadings of a component, in descending size."""

    places: Array
    """(k,) features."""
    values: Array
    """(k,) their loadings."""
    n_nonzeros: int

    @classmethod
    def of(cls, made: Solution, component: int, most: int) -> "Top":
        """At most so many of them; the first of equals."""
        start, end = made.components.indptr[component : component + 2]
        places, values = made.components.indices[start:end], made.components.data[start:end]
        order = np.lexsort((places, -np.abs(values)))[:most]
        return cls(places[order], values[order], end - start)


def name_of(names: Names, feature: int) -> str:
    """Its name, or its number where there are no names."""
    return shortened(f"feature {feature}" if names is None else names[feature])


def draw_top(made: Solution, names: Names) -> "Figure":
    """The largest loadings of each component, one scale for all, sorted by size."""
    count = min(made.n_components, MOST_PANELS)
    most = 15 if count <= 4 else 10 if count <= 12 else 6
    tops = [Top.of(made, c, most) for c in range(count)]
    n_bars = max(len(top.places) for top in tops)
    texts = [[name_of(names, k) for k in top.places.tolist()] for top in tops]
    figure, axes, n_columns = _panels(count, n_bars, max(map(_inches, texts)), 0)
    for c, (ax, top) in enumerate(zip(axes, tops, strict=True)):
        _draw_bars(ax, top.values, n_bars)
        ax.set_yticks(range(len(top.places)), texts[c])
        more = top.n_nonzeros - len(top.places)
        note = f"the largest {len(top.places)} of {top.n_nonzeros}" if more else "all nonzeros"
        ax.set_title(f"{_head(made, c)}\n{note}", fontsize=8.5)
    _finish(figure, axes, n_columns, made)
    return figure


def draw_all(made: Solution, names: Names) -> "Figure":
    """All loadings of each component, features in their order, one scale for all."""
    count, n = min(made.n_components, MOST_PANELS), made.n_features
    texts = [name_of(names, k) for k in range(n)]
    figure, axes, n_columns = _panels(count, n, 0, _inches(texts))
    dense = made.map_of_components(last=count)
    for c, ax in enumerate(axes):
        _draw_bars(ax, dense[c], n)
        ax.set_yticks(range(n), texts)
        n_nonzeros = np.count_nonzero(np.nan_to_num(dense[c]))
        ax.set_title(
            f"{_head(made, c)}\n{n_nonzeros} nonzero{'s' if n_nonzeros > 1 else ''}", fontsize=8.5
        )
        if c % n_columns:
            ax.tick_params(labelleft=False)
    _finish(figure, axes, n_columns, made)
    return figure


def _head(made: Solution, c: int) -> str:
    share = percent(float(made.explained_variance_ratio[c]), 1)
    return f"component {c}" + ("" if share == "-" else f": {share}")


def _inches(names: list[str]) -> float:
    """Room for the widest of some names."""
    return 0.1 + 0.065 * max(map(len, names))


def _panels(
    count: int, n_bars: int, each: float, once: float
) -> tuple["Figure", list["Axes"], int]:
    """Panels for so many bars, on one scale; room for names beside each, or once at the left."""
    # the widest that leaves fewest empty
    n_columns = count if count <= 4 else min((5, 4, 3), key=lambda k: -count % k)
    n_rows = -(-count // n_columns)
    width = (PANEL + each) * n_columns + once + 0.3
    figure = new_figure(max(6.0, width), (0.18 * max(n_bars, 4) + 0.6) * n_rows + 0.75)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True).ravel().tolist()
    for ax in axes[count:]:
        ax.remove()
    return figure, axes[:count], n_columns


def _draw_bars(ax: "Axes", values: Array, n_bars: int) -> None:
    """From the top down, as on the scale of the images: blue below zero, red above."""
    colors = np.where(np.nan_to_num(values) < 0, NEGATIVE, POSITIVE).tolist()
    ax.barh(range(len(values)), values, color=colors, height=0.72)
    ax.axvline(0, color="0.4", linewidth=0.8)
    ax.set_ylim(max(n_bars, 4) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.tick_params(axis="x", labelsize=8)
    ax.grid(axis="x", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)


def _finish(figure: "Figure", axes: list["Axes"], n_columns: int, made: Solution) -> None:
    from matplotlib.ticker import MaxNLocator

    drawn = made.components[: len(axes)].data
    low, high = min(0.0, float(drawn.min())), max(0.0, float(drawn.max()))
    spare = 0.04 * (high - low)
    axes[0].set_xlim(low - spare * (low < 0), high + spare)
    for k, ax in enumerate(axes):
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
        if k + n_columns >= len(axes):  # nothing below it
            ax.tick_params(labelbottom=True)
    note = "" if len(axes) == made.n_components else f"; the first {len(axes)} are shown"
    figure.supxlabel("loading", fontsize=9)
    put_title(figure, title(made) + note)
