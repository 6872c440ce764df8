"""Components as images or maps, where features lie on a grid."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.result.canvas import STEPS, TITLE_SIZE, new_figure, put_title, title, title_lines
from streamsvd.result.loadings import Shown, color_bar, colored, stability_notes
from streamsvd.result.percent import percent
from streamsvd.result.raster import Raster, edges
from streamsvd.result.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_IMAGES = 100


WIDEST, NARROWEST = 10.0, 0.85
"""Inches of all panels together, and of one."""


class Panels(NamedTuple):
    """A figure of panels of one size, in inches; nothing is left to chance."""

    n_rows: int
    n_columns: int
    width: float
    height: float
    above: float
    """Room for the title of a panel."""
    left: float
    """Room for the numbers of an axis, as below the lowest row."""

    @classmethod
    def of(cls, count: int, aspect: float, n_lines: int, left: float) -> "Panels":
        """For `count` panels of `aspect` (height over width) with titles of so many lines."""
        aspect = float(np.clip(aspect, 0.25, 4))
        above = 0.07 + 0.15 * n_lines
        wanted = np.sqrt(1.6 * count * (aspect + above / 1.3))
        least = 1.05 if left else NARROWEST
        n_columns = int(np.clip(round(wanted), 1, min(count, WIDEST // least)))
        if count <= 3 and aspect > 0.4:
            n_columns = count
        n_rows = -(-count // n_columns)
        n_columns = -(-count // n_rows)  # as even as can be
        width = float(np.clip(min(WIDEST / n_columns, 3.2, 5 / aspect), least, None))
        width -= 0.12
        return cls(n_rows, n_columns, width, width * aspect, above, left)


def draw_images(made: Solution, raster: Raster, kind: str = "components") -> "Figure":
    """Each component as an image, on a scale of its own, or how often it is chosen."""
    count = min(made.n_components, MOST_IMAGES)
    is_map = raster.x is not None
    heads = [_head(made, c, count) for c in range(count)]
    left = (0.5 if raster.is_globe else 0.75) if is_map else 0.0
    panels = Panels.of(count, raster.aspect, max(map(len, heads)), left)
    note = "" if count == made.n_components else f"; the first {count} are shown"
    figure, axes, scale = _lay_out(panels, count, title(made) + note)
    shown = Shown.of(made, kind)
    for c, ax in enumerate(axes):
        values = shown.scaled(shown.row(c))[0][raster.places]
        image = _draw(ax, shown, raster, values)
        ax.set_aspect("auto")  # the panel has the right one
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=is_map or bool(len(made.left_out)), color="0.6", linewidth=0.6)
        ax.set_title("\n".join(heads[c]), fontsize=7 if count > 40 else 8.5, pad=3)
        if is_map:
            is_lowest = c + panels.n_columns >= count
            size = (panels.width, panels.height)
            _number_axes(ax, raster, size, c % panels.n_columns == 0, is_lowest)
    color_bar(figure, image, shown, cax=scale)
    return figure


def _head(made: Solution, c: int, count: int) -> list[str]:
    """Lines above a panel: one where there are many."""
    share = float(made.explained_variance_ratio[c])
    first = f"{c}" if np.isnan(share) else f"{c}: {percent(share, 1)}"
    if count > 40:
        return [first]
    lines = [first, f"{made.components.indptr[c + 1] - made.components.indptr[c]} nonzeros"]
    note = stability_notes(made)[c]
    return [*lines, note.removeprefix(", ")] if note else lines


def _lay_out(panels: Panels, count: int, text: str) -> tuple["Figure", list["Axes"], "Axes"]:
    """A figure, its panels, and a place for the scale."""
    gap, right = 0.12, 1.25
    row, column = panels.height + panels.above, panels.width + gap
    width = max(4.5, 0.15 + panels.left + column * panels.n_columns + right)
    top = 0.15 + 0.2 * TITLE_SIZE / 11 * len(title_lines(text, width))
    bottom = 0.12 + 0.6 * panels.left
    height = max(2.6, top + row * panels.n_rows + bottom)
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    put_title(figure, text, y=1 - 0.08 / height)
    used = 0.15 + panels.left + column * panels.n_columns
    start = 0.15 + panels.left + (width - used - right) / 2
    spare = (height - top - row * panels.n_rows - bottom) / 2

    def place(x: float, y: float, w: float, h: float) -> "Axes":
        return figure.add_axes((x / width, y / height, w / width, h / height))

    axes = []
    for k in range(count):
        i, j = divmod(k, panels.n_columns)
        y = height - top - spare - (i + 1) * row
        axes.append(place(start + j * column, y, panels.width, panels.height))
    long = min(2.5, row * panels.n_rows - panels.above)
    middle = bottom + spare + (row * panels.n_rows - panels.above) / 2
    x = start + column * panels.n_columns + 0.05
    return figure, axes, place(x, middle - long / 2, 0.13, long)


def _draw(ax: "Axes", shown: Shown, raster: Raster, values: Array) -> Any:
    """An image; cells of different sizes as they are."""
    if raster.x is None or raster.y is None:
        return colored(ax, shown, values)
    (x, columns), (y, rows) = _even(raster.x), _even(raster.y)
    extent = (float(x[0]), float(x[-1]), float(y[-1]), float(y[0]))
    return colored(ax, shown, values[np.ix_(rows, columns)], extent=extent)


def _even(places: Array) -> tuple[Array, Array]:
    """The two ends of cells, and which of them is at each of as many pixels, or more, of one size.

    More where cells differ in size by more than a tenth: two for the smallest of them.
    """
    steps, ends = np.abs(np.diff(places)), edges(places)
    if steps.max() <= 1.1 * steps.min():
        return ends[[0, -1]], np.arange(len(places))
    shares = (ends - ends[0]) / (ends[-1] - ends[0])
    count = int(np.clip(2 * abs(ends[-1] - ends[0]) / steps.min(), len(places), 2000))
    return ends[[0, -1]], np.searchsorted(shares, (np.arange(count) + 0.5) / count) - 1


def _number_axes(
    ax: "Axes", raster: Raster, size: tuple[float, float], is_first: bool, is_lowest: bool
) -> None:
    """Coordinates at the panels that stand at the left and at the bottom."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    for axis, is_named, name, signs, inches in (
        (ax.xaxis, is_lowest, raster.names[0], "EW", size[0]),
        (ax.yaxis, is_first, raster.names[1], "NS", size[1]),
    ):
        # numbers are wider than high
        most = int(np.clip(inches / 0.6, 2, 6) if axis is ax.xaxis else np.clip(inches / 0.4, 3, 6))
        axis.set_major_locator(MaxNLocator(most, steps=STEPS))
        axis.set_tick_params(labelsize=7, length=2, pad=2, labelcolor="0.25")
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.8g}"))
        if raster.is_globe:
            ticks = _round_degrees(*axis.get_view_interval(), most)
            if signs == "EW" and ticks[-1] - ticks[0] >= 360:
                ticks.pop()  # the first again, and beside that of the next panel
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter(FuncFormatter(_degrees(signs)))
        if not is_named:
            axis.set_tick_params(labelleft=False, labelbottom=False)
        elif not raster.is_globe:
            axis.set_label_text(name, fontsize=7)
            axis.labelpad = 1


def _round_degrees(start: float, end: float, most: int) -> list[float]:
    """Places between, at most so many, as on maps."""
    low, high = sorted((start, end))
    for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 45, 60, 90, 180):
        first, last = np.ceil(low / step), np.floor(high / step)
        if last - first < most:
            break
    return [float(step * k) for k in range(int(first), int(last) + 1)]


def _degrees(signs: str) -> Any:
    """Degrees east or west, north or south."""

    def text(value: float, _: Any) -> str:
        value = round((value + 180) % 360 - 180 if signs == "EW" else value, 6)
        side = "" if value in (0, -180) else signs[int(value < 0)]
        return f"{abs(value):g}°{side}"

    return text
