"""What all pictures share: an empty figure, its colours, its axes, its title."""

from typing import TYPE_CHECKING

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import OptionError
from streamsvd.result.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BLUE, RED, GREY = "#0072B2", "#D55E00", "0.35"


def new_figure() -> "Figure":
    """An empty figure; refuses where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError('pictures need matplotlib: pip install "streamsvd[plot]"') from error
    return Figure(figsize=(9, 4), layout="constrained")


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


def title(made: Solution) -> str:
    """Sizes and how good it is."""
    explained = made.explained_variance_ratio.sum()
    share = "" if np.isnan(explained) else f", {explained:.1%} of the variance"
    p = made.n_components
    return (
        f"{p} component{'s' if p > 1 else ''} of {made.n_features} features, "
        f"{made.fill:.2%} nonzeros{share}"
    )
