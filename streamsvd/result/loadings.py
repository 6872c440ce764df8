"""What is drawn of each feature and component; the heat map of any number of them.

With matplotlib, the extra ``plot``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from streamsvd.arrays import Array
from streamsvd.result.canvas import STEPS, new_figure, put_title, shortened, title
from streamsvd.result.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DIVERGING, SEQUENTIAL, ZERO = "RdBu_r", "viridis", "0.88"
"""Loadings: blue to red through white; exact zeros stand out in grey, also on a scale of shares."""


MOST_COLUMNS = 500
"""Columns of a heat map, a few pixels each: of more features, neighbours share one."""


MOST_NAMES = 60
"""Features that are all named below a heat map."""


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
        blank = ",\nwhite: no data" if len(made.left_out) else ""
        if kind == "stability":
            assert made.stability is not None  # noqa: S101  (`check` was asked)
            label = f"share of fits\n(grey: never{blank})"
            return cls(made.stability, made.left_out, False, SEQUENTIAL, 0.0, label)
        label = f"loading / largest of each\n(grey: exactly zero{blank})"
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


def draw_heat_map(
    made: Solution, names: Sequence[Any] | Array | None, kind: str = "components"
) -> "Figure":
    """Components as rows, each on a scale of its own, or how often they are chosen."""
    p, n = made.n_components, made.n_features
    height = float(np.clip(3.2 / p, 0.1, 0.55))
    texts = [shortened(name) for name in names] if names is not None and n <= MOST_NAMES else []
    is_level = sum(map(len, texts)) + 2 * n <= 120
    below = 0.0 if is_level or not texts else 0.07 * max(map(len, texts))
    figure = new_figure(10, max(2.9, height * p + 1.5) + below)
    ax = figure.subplots()
    per_column = -(-n // MOST_COLUMNS)
    shown, notes = Shown.of(made, kind), stability_notes(made)
    values = _binned(shown, per_column)
    extent = (-0.5, per_column * values.shape[1] - 0.5, p - 0.5, -0.5)
    image = colored(ax, shown, shown.scaled(values), aspect="auto", extent=extent)
    step = next(k for k in (1, 2, 5, 10, 20, 50, 100) if k * height > 0.15 or k == 100)
    rows = np.arange(0, p, step)
    ax.set(ylabel="component", yticks=rows, yticklabels=[f"{c}{notes[c]}" for c in rows])
    ax.tick_params(axis="y", labelsize=9)
    for edge in range(1, p) if height > 0.15 else range(10, p, 10):
        ax.axhline(edge - 0.5, color="white", linewidth=1.2)
    if texts:
        ax.set_xticks(np.arange(n), texts, rotation=0 if is_level else 90, fontsize=8)
    else:
        _number_features(ax, made, per_column)
    color_bar(figure, image, shown, ax=ax)
    put_title(figure, title(made))
    return figure


def _number_features(ax: "Axes", made: Solution, share: int) -> None:
    """Some features along their scale, or by their numbers."""
    from matplotlib.ticker import MaxNLocator

    label = "feature"
    ax.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=STEPS))
    scale = _scale(made)
    if scale is not None:
        label, places = scale
        ticks = MaxNLocator(10, steps=STEPS).tick_values(places.min(), places.max())
        ticks = ticks[(ticks >= places.min()) & (ticks <= places.max())]
        order = np.argsort(places)
        ax.set_xticks(np.interp(ticks, places[order], order), [f"{tick:g}" for tick in ticks])
    note = f" ({share} neighbours share a column)" if share > 1 else ""
    ax.set_xlabel(label + note)


def _scale(made: Solution) -> tuple[str, Array] | None:
    """What features are measured along, such as wavelengths in order."""
    if made.features is None or len(made.features.dims) != 1:
        return None
    (name,) = made.features.dims
    places = made.features.coords.get(name)
    if places is None or places.dtype.kind not in "iuf":
        return None
    steps = np.diff(places.astype(np.float64))
    return (name, places) if (steps > 0).all() or (steps < 0).all() else None


def stability_notes(made: Solution) -> list[str]:
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


def colored(ax: "Axes", shown: Shown, values: Array, **options: Any) -> Any:
    """Values of `Shown.scaled` in colour, exact zeros in grey, and nothing for NaN."""
    import matplotlib

    cmap = matplotlib.colormaps[shown.cmap].with_extremes(bad=ZERO)
    options["interpolation"] = "nearest"
    image = ax.imshow(values, cmap=cmap, vmin=shown.least, vmax=1, **options)
    blank = np.ma.masked_equal(np.isnan(np.ma.getdata(values)), False)
    if blank.count():  # features without any value are white, not the grey of zeros
        ax.imshow(blank, cmap="gray", vmin=0, vmax=1, **options)
    return image


def color_bar(figure: "Figure", image: Any, shown: Shown, **place: Any) -> None:
    """The scale, beside `ax` or in the axes `cax`."""
    if "ax" in place:
        place |= {"shrink": min(1.0, 4 / figure.get_figheight()), "aspect": 20, "pad": 0.02}
    ticks = [-1, 0, 1] if shown.is_relative else [0, 0.5, 1]
    bar = figure.colorbar(image, ticks=ticks, **place)
    bar.set_label(shown.label, fontsize=8.5)
    bar.ax.tick_params(labelsize=8.5)
