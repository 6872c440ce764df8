"""The figures, from the rows; colours of Okabe and Ito, which the colour-blind can tell apart."""

from pathlib import Path
from typing import Any

import numpy as np
from claims import REPORTED_SECONDS, KnnMean, averaged
from figure1 import AccuracyRow
from figure2 import LINES, KnnRow
from matplotlib.figure import Figure

STYLES: dict[str, dict[str, Any]] = {
    "proposed": {"color": "#D55E00", "marker": "o", "linewidth": 2.4, "zorder": 4},
    "Kogbetliantz": {"color": "#009E73", "marker": "s"},
    "random": {"color": "#000000", "marker": "x"},
    "gain": {"color": "#E69F00", "marker": "^"},
    "gram": {"color": "#56B4E9", "marker": "v"},
    "gram, fill penalty": {"color": "#0072B2", "marker": "D", "zorder": 3},
    "sparse_pca": {"color": "#0072B2", "marker": "*", "markersize": 11, "linestyle": ":"},
    "Hein and Buehler": {"color": "#CC79A7", "marker": "P", "linestyle": "--"},
    "Zou et al.": {"color": "#666666", "marker": "X", "linestyle": "--"},
    "full PCA": {"color": "#000000", "linestyle": "-", "linewidth": 1.0},
    "sparse JL, s = 10": {"color": "#666666", "linestyle": ":", "linewidth": 1.6},
}
TITLES = {
    "isolet": "ISOLET",
    "mnist": "MNIST",
    "fashion": "Fashion-MNIST",
    "usps": "USPS",
    "digits": "Digits",
}


def draw_figure_1(path: Path, rows: list[AccuracyRow], p: int) -> None:
    """Accuracy against transforms (top) and blocks (bottom), a column for each data set.

    Dashed: the same components with their best right vectors.
    """
    names = list(dict.fromkeys(row.data for row in rows))
    units = [u for u in ("transforms", "blocks") if any(row.unit == u for row in rows)]
    figure = Figure(figsize=(3.9 * len(names) + 0.6, 3.5 * len(units) + 1.1), layout="constrained")
    axes = figure.subplots(len(units), len(names), squeeze=False)
    lines: dict[str, Any] = {}
    for row_of_axes, unit in zip(axes, units, strict=True):
        for ax, name in zip(row_of_axes, names, strict=True):
            own = [row for row in rows if (row.data, row.unit) == (name, unit)]
            _accuracy_panel(ax, own, lines)
            ax.set_xlabel(f"number of {unit}")
            ax.set_title(TITLES.get(name, name), loc="left", fontweight="bold")
        row_of_axes[0].set_ylabel("accuracy, %")
    figure.suptitle(
        f"p = {p}.  Solid: the paper's measure.\n"
        "Dashed: with the best right vectors for the components.",
        fontsize=10,
    )
    _legend(figure, lines, len(names))
    figure.savefig(path, dpi=110)


def _accuracy_panel(ax: Any, rows: list[AccuracyRow], lines: dict[str, Any]) -> None:
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        steps = [row.steps for row in own]
        style = {"linewidth": 1.5, "markersize": 4.5, "markevery": 2} | STYLES[method]
        is_reduced = bool(np.isnan(own[0].accuracy))
        if not is_reduced:
            (lines[method],) = ax.plot(steps, [100 * row.accuracy for row in own], **style)
        if is_reduced or method == "proposed":
            free = style | {"linestyle": "--", "linewidth": 1.3, "markerfacecolor": "white"}
            (line,) = ax.plot(steps, [100 * row.accuracy_free for row in own], **free)
            lines[method if is_reduced else f"{method}, best V"] = line
    _powers(ax, [row.steps for row in rows])
    ax.set_yscale("log")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    ax.set(ylim=(0.09, 115), yticks=ticks, yticklabels=[f"{tick:g}" for tick in ticks])
    ax.tick_params(axis="y", which="minor", left=False)
    _tidy(ax)


def draw_figure_2(path: Path, rows: list[KnnRow]) -> None:
    """25-NN accuracy against transforms (top; fill written at the points) and fill (bottom)."""
    means = averaged(rows)
    names = list(dict.fromkeys(mean.data for mean in means))
    figure = Figure(figsize=(6.4 * len(names) + 0.4, 9.4), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    lines: dict[str, Any] = {}
    for column, name in enumerate(names):
        own = [mean for mean in means if mean.data == name]
        top, bottom = axes[:, column]
        _transforms_panel(top, own, lines)
        _fill_panel(bottom, own, lines)
        splits = max(mean.splits for mean in own)
        for ax in (top, bottom):
            ax.set_title(
                f"{TITLES.get(name, name)}, {splits} random split{'s' * (splits > 1)}",
                loc="left",
                fontweight="bold",
            )
            ax.set_ylabel("25-NN accuracy, %")
    _legend(figure, lines, len(names))
    figure.savefig(path, dpi=110)


def _transforms_panel(ax: Any, means: list[KnnMean], lines: dict[str, Any]) -> None:
    for method in ("full PCA", "sparse JL, s = 10"):
        for mean in means:
            if mean.method == method:
                lines[method] = ax.axhline(100 * mean.accuracy, **STYLES[method])
    points = [mean for mean in means if mean.transforms is not None]
    for method in LINES:
        own = [mean for mean in points if mean.method == method]
        (lines[method],) = ax.plot(
            [mean.transforms for mean in own],
            [100 * mean.accuracy for mean in own],
            **_style(method),
        )
    for method, side in (("proposed", -1), ("gram, fill penalty", 1)):
        for mean in points:
            if mean.method == method:
                ax.annotate(
                    f"{_short(100 * mean.fill)}%",
                    (mean.transforms, 100 * mean.accuracy),
                    xytext=(5 if side < 0 else -2, 10 * side),
                    textcoords="offset points",
                    ha="left" if side < 0 else "center",
                    va="center",
                    fontsize=8,
                    color=STYLES[method]["color"],
                )
    _powers(ax, [mean.transforms for mean in means if mean.transforms is not None])
    _zoom(ax, means)
    ax.set_xlabel("number of transforms (fill written at the points)")
    _tidy(ax)


def _fill_panel(ax: Any, means: list[KnnMean], lines: dict[str, Any]) -> None:
    for method in (*LINES, "sparse_pca", "Hein and Buehler", "Zou et al.", "full PCA"):
        own = sorted((m for m in means if m.method == method), key=lambda m: m.fill)
        if method == "full PCA":
            for mean in own:
                ax.axhline(100 * mean.accuracy, **STYLES[method])
        elif own:
            (lines[method],) = ax.plot(
                [100 * mean.fill for mean in own],
                [100 * mean.accuracy for mean in own],
                **_style(method),
            )
    for mean in means:
        if mean.method == "sparse JL, s = 10":
            style = {"color": STYLES[mean.method]["color"], "marker": "p", "markersize": 9}
            ax.plot(100 * mean.fill, 100 * mean.accuracy, **style)
            ax.annotate(
                "sparse JL",
                (100 * mean.fill, 100 * mean.accuracy),
                xytext=(6, -9),
                textcoords="offset points",
                fontsize=8,
                color=STYLES[mean.method]["color"],
            )
    ax.set_xscale("log")
    low = 100 * min(mean.fill for mean in means)
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if t >= 0.7 * low]
    ax.set(xticks=ticks, xticklabels=[f"{t:g}" for t in ticks], xlim=(0.8 * low, 115))
    ax.minorticks_off()
    ax.axvline(1, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)))
    _zoom(ax, means, depth=9.0)
    ax.set_xlabel("fill, % of all entries that are not zero")
    _tidy(ax)


def draw_times(path: Path, rows: list[KnnRow]) -> None:
    """Seconds against transforms, and the other methods as lines across."""
    means = [mean for mean in averaged(rows) if not np.isnan(mean.seconds)]
    names = list(dict.fromkeys(mean.data for mean in means))
    figure = Figure(figsize=(6.4 * len(names) + 0.4, 5.0), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    lines: dict[str, Any] = {}
    for ax, name in zip(axes, names, strict=True):
        own = [mean for mean in means if mean.data == name]
        last = max(mean.transforms or 1 for mean in own)
        ax.set_yscale("log")
        for method in LINES:
            line = [mean for mean in own if mean.method == method]
            (lines[method],) = ax.plot(
                [m.transforms for m in line], [m.seconds for m in line], **_style(method)
            )
        _times_of_others(ax, own, last)
        if name in REPORTED_SECONDS and last == 2**16:
            (lines["reported in the paper"],) = ax.plot(
                last, REPORTED_SECONDS[name], "*", color="black", markersize=13, linestyle="none"
            )
        _powers(ax, [m.transforms for m in own if m.transforms is not None], room=2**5)
        ax.set_xlabel("number of transforms")
        ax.set_title(TITLES.get(name, name), loc="left", fontweight="bold")
        _tidy(ax)
    axes[0].set_ylabel("seconds of CPU, one thread")
    _legend(figure, lines, len(names))
    figure.savefig(path, dpi=110)


def _times_of_others(ax: Any, means: list[KnnMean], last: int) -> None:
    """Level lines with names at the right, moved apart where they would overlap.

    Without sparse JL, which draws numbers and fits nothing.
    """
    others = [m for m in means if m.transforms is None and not m.method.startswith("sparse JL")]
    first = min(mean.transforms for mean in means if mean.transforms is not None)
    height = 0.0
    for mean in sorted(others, key=lambda mean: mean.seconds):
        style = {"color": STYLES[mean.method]["color"], "linewidth": 1.0, "linestyle": ":"}
        ax.plot([first, last], [mean.seconds, mean.seconds], **style)
        height = max(mean.seconds, 1.4 * height)
        ax.plot([last, 1.7 * last], [mean.seconds, height], **style)
        share = "" if mean.target_fill is None else f", {100 * mean.target_fill:g} %"
        label = mean.method + share
        ax.text(1.8 * last, height, label, fontsize=8, color=style["color"], va="center")


# ------------------------------------------------------------------------------------- parts


def _style(method: str) -> dict[str, Any]:
    return {"linewidth": 1.6, "markersize": 5.5} | STYLES[method]


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _powers(ax: Any, steps: list[int], room: float = 1.7) -> None:
    """A logarithmic axis with powers of two as ticks."""
    first, last = (int(np.log2(k)) for k in (min(steps), max(steps)))
    exponents = range(first, last + 1, 2 if last - first > 8 else 1)
    ax.set_xscale("log", base=2)
    ax.set(xticks=[2**e for e in exponents], xticklabels=[f"$2^{{{e}}}$" for e in exponents])
    ax.minorticks_off()
    ax.set_xlim(min(steps) / 1.6, room * max(steps))


def _zoom(ax: Any, means: list[KnnMean], depth: float = 100.0) -> None:
    """From a little below the lowest accuracy, or `depth` below the highest, to just above that."""
    values = [100 * mean.accuracy for mean in means]
    low = max(min(values), max(values) - depth)
    margin = 0.07 * (max(values) - low) + 0.2
    ax.set_ylim(low - margin, min(100.5, max(values) + margin))


def _tidy(ax: Any) -> None:
    ax.grid(color="0.9", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, lines: dict[str, Any], n_panels: int) -> None:
    """Below the panels, in as many columns as there is room for."""
    figure.legend(
        list(lines.values()),
        list(lines),
        loc="outside lower center",
        ncols=min(7, 3 * n_panels),
        frameon=False,
    )
