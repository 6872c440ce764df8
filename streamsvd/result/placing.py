"""Names in a picture, each near its place and none over another."""

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvd.arrays import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DISTANCES = (5, 9, 15, 22, 30, 40, 52, 66, 82, 100, 125, 150)
"""Points between a name and its place, from what is liked best."""


TURNS = np.radians([0, 20, -20, 45, -45, 70, -70, 95, -95, 125, -125, 160, -160])


def place_names(
    figure: "Figure",
    ax: "Axes",
    places: Array,
    names: list[str],
    colors: list[Any] | None = None,
    lines: Array | None = None,
) -> None:
    """Write each of the names beside one of `places` (k, 2), away from the middle of them.

    `lines` (k, 2, 2), from and to, are kept free where that is possible. Those that had to go far
    have a thin line to their place. With `colors`, names are in boxes. For figures that are laid
    out but for the names.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patheffects import withStroke

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw_without_rendering()
    inside, unit = ax.get_window_extent(renderer), figure.dpi / 72
    frame = np.array([inside.x0, inside.y0, inside.x1, inside.y1])
    at = ax.transData.transform(places)
    starts = np.broadcast_to(at.mean(axis=0), at.shape)
    spots = at
    if lines is not None:
        starts = ax.transData.transform(lines[:, 0])
        shares = np.linspace(0.15, 1, 25)[:, None, None]
        spots = (starts + shares * (at - starts)).reshape(-1, 2)
    taken = np.empty((0, 4))
    for k, name in enumerate(names):
        text = ax.annotate(
            name, places[k], (0, 0), textcoords="offset points", ha="center", va="center",
            fontsize=8.5, color="black", zorder=6,
        )  # fmt: skip
        if colors is not None:
            edge = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": colors[k]}
            text.set_bbox(edge | {"linewidth": 1.6, "alpha": 0.9})
            text.draw(renderer)  # the box takes its size
        else:
            text.set_path_effects([withStroke(linewidth=2.2, foreground="white")])
        box = text.get_window_extent(renderer).padded(4 * unit if colors else 0)
        size = np.array([box.width, box.height])
        boxes, costs = _candidates(at[k], at[k] - starts[k], size, unit)
        costs = costs + 1000 * _overlaps(boxes, taken).sum(axis=1)
        costs += 30 * _overlaps(boxes, np.hstack([spots, spots])).sum(axis=1)
        outside = (boxes[:, :2] < frame[:2] + 2).any(axis=1) | (boxes[:, 2:] > frame[2:] - 2).any(
            axis=1
        )
        best = boxes[np.argmin(costs + 10_000 * outside)]
        taken = np.vstack([taken, best + np.array([-1, -1, 1, 1])])
        offset = ((best[:2] + best[2:]) / 2 - at[k]) / unit
        text.set_position(tuple(offset))
        near = np.clip(at[k], best[:2], best[2:])
        if np.hypot(*(near - at[k])) > 12 * unit:
            ends = ax.transData.inverted().transform([at[k], near])
            ax.plot(*ends.T, color="0.25", linewidth=0.8, zorder=5, scalex=False, scaley=False)


def _candidates(at: Array, away: Array, size: Array, unit: float) -> tuple[Array, Array]:
    """Boxes of `size` around a place and their costs, by distance and turn."""
    angle = np.arctan2(away[1], away[0])
    distances, turns = (a.ravel() for a in np.meshgrid(DISTANCES, TURNS, indexing="ij"))
    way = np.stack([np.cos(angle + turns), np.sin(angle + turns)], axis=1)
    # from the place to the middle of a box that begins at the distance
    half = np.minimum(
        *np.divide(size / 2, np.abs(way), out=np.full_like(way, np.inf), where=way != 0).T
    )
    middle = at + way * (distances * unit + half)[:, None]
    return np.hstack([middle - size / 2, middle + size / 2]), distances + 6 * np.abs(turns)


def _overlaps(boxes: Array, others: Array) -> Array:
    """(boxes, others) whether two boxes (left, bottom, right, top) have anything in common."""
    a, b = boxes[:, None], others[None]
    meets = (a[..., :2] <= b[..., 2:]) & (b[..., :2] <= a[..., 2:])
    return np.all(meets, axis=-1)
