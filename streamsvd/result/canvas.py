"""What all pictures share: an empty figure, its colours, its axes, its title."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.result.percent import percent
from streamsvd.result.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BLUE, RED, GREY = "#0072B2", "#D55E00", "0.35"


CATEGORIES = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", RED, "#000000")
"""Colours of Okabe and Ito, which the colour-blind can tell apart."""


MARKERS = "os^DvX"
"""As many as there are no colours: where colours come again, they have another marker."""


NEGATIVE, POSITIVE = "#2166AC", "#B2182B"
"""The ends of the scale of loadings."""


STEPS = (1, 2, 2.5, 5, 10)
"""Between the numbers of an axis, times a power of ten."""


TITLE_SIZE = 11


def new_figure(width: float = 9, height: float = 4) -> "Figure":
    """An empty figure, in inches; refuses where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError('pictures need matplotlib: pip install "streamsvd[plot]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def plain(ax: "Axes") -> None:
    """A grid behind what is drawn, no frame."""
    ax.grid(color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def logarithmic(ax: "Axes", x: Array) -> None:
    """A logarithmic axis of `x`, which ascends, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set_xscale("log")
    is_wide = x[-1] > 500 * x[0]
    ax.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def counted(ax: "Axes", count: int, first: int) -> None:
    """An axis of whole numbers, so many from `first` on; few of them do not fill it."""
    from matplotlib.ticker import MaxNLocator

    spare = max(0.0, (6 - count) / 2)
    ax.set_xlim(first - 0.6 - spare, first + count - 0.4 + spare)
    if count <= 12:
        ax.set_xticks(range(first, first + count))
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=STEPS))


def curve_colors(count: int) -> list[Any]:
    """Of so many curves: told apart one by one, or in order from dark to light where many."""
    import matplotlib

    if count <= len(CATEGORIES):
        return list(CATEGORIES[:count])
    return list(matplotlib.colormaps["viridis"](np.linspace(0, 0.9, count)))


def title(made: Solution) -> str:
    """Sizes and how good it is."""
    explained = float(made.explained_variance_ratio.sum())
    share = "" if np.isnan(explained) else f", {percent(explained, 1)} of the variance"
    p = made.n_components
    return (
        f"{p} component{'s' if p > 1 else ''} of {made.n_features} features, "
        f"{percent(made.fill)} nonzeros{share}"
    )


def title_lines(text: str, width: float) -> list[str]:
    """A title in lines that a figure `width` inches wide has room for."""
    return textwrap.wrap(text, max(20, int(72 * width / (0.56 * TITLE_SIZE))))


def put_title(figure: "Figure", text: str, **place: float) -> None:
    """A title that is nowhere wider than the figure."""
    lines = title_lines(text, figure.get_figwidth())
    figure.suptitle("\n".join(lines), fontsize=TITLE_SIZE, **place)


def component_label(made: Solution, component: int) -> str:
    """Its number, counted from 0 as in code, and how much it explains."""
    share = percent(float(made.explained_variance_ratio[component]), 1)
    return f"component {component}" + ("" if share == "-" else f" ({share} of the variance)")


def shortened(name: object, most: int = 24) -> str:
    """A name on one line of at most so many characters; dollar signs are no formulas."""
    line = " ".join(str(name).split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return line.replace("$", r"\$")
