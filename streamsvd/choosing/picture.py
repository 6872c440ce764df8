"""The picture of a cross-validation: a score against the fill."""

from typing import Any

import numpy as np

from streamsvd.choosing.rule import mean_and_error
from streamsvd.errors import OptionError
from streamsvd.result.canvas import MARKERS, curve_colors, logarithmic, new_figure, plain, put_title
from streamsvd.result.percent import percent

LABELS = {
    "predicted_variance": "variance predicted of samples left out, %",
    "explained_variance": "variance explained of samples left out, %",
}


def draw(made: Any, score: str) -> Any:
    """See `CrossValidation.plot`."""
    if score not in LABELS:
        raise OptionError(f"score must be one of {', '.join(map(repr, LABELS))}; got {score!r}")
    figure = new_figure()
    figure.set_size_inches(8, 5)
    ax = figure.subplots()
    mean, error = (100 * values for values in mean_and_error(getattr(made, score)))
    fills = 100 * np.array(made.max_fill)
    order = np.argsort(fills)
    colors = curve_colors(len(made.n_components))
    for i, p in enumerate(made.n_components):
        ax.errorbar(
            fills[order],
            mean[i, order],
            error[i, order],
            color=colors[i],
            marker=MARKERS[i % len(MARKERS)],
            markersize=4,
            capsize=2,
            label=f"{p} component{'s' if p > 1 else ''}",
        )
    for point, size, name in ((made.best, 11, "best"), (made.chosen, 16, "chosen")):
        i, j = made.n_components.index(point.n_components), made.max_fill.index(point.max_fill)
        ax.plot(
            fills[j], mean[i, j], "o", markersize=size, markerfacecolor="none",
            markeredgecolor="black", markeredgewidth=2 if name == "chosen" else 1, label=name,
        )  # fmt: skip
    logarithmic(ax, fills)
    ax.set(xlabel="most nonzeros, % of all loadings", ylabel=LABELS[score])
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    plain(ax)
    chosen = made.chosen
    put_title(
        figure,
        f"{made.folds} folds; chosen: {chosen.n_components} "
        f"component{'s' if chosen.n_components > 1 else ''}, fill {percent(chosen.max_fill)}",
    )
    return figure
