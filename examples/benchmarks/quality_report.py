"""What `quality.py` gives: a line for each method and fill, as tables, CSV and curves."""

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the tables; shares in percent."""

    data: str
    target: float
    method: str
    explained: float
    fill: float
    fill_orthonormal: float
    orthogonality_error: float
    seconds: float
    note: str


# ---------------------------------------------------------------------------------- tables

HEADER = [
    "fill %",
    "method",
    "explained %",
    "fill got %",
    "orthonormal at %",
    "orth. error",
    "seconds",
    "note",
]


def print_table(heading: str, rows: list[Row]) -> None:
    """A Markdown table, with columns that line up, by fill and then as the methods come."""
    print(f"\n{heading}\n")
    ordered = sorted(rows, key=lambda row: row.target)
    cells = [HEADER, *(_cells(row) for row in ordered)]
    widths = [max(len(line[c]) for line in cells) for c in range(len(cells[0]))]
    is_text = [c in (1, 7) for c in range(len(widths))]
    rule = ["-" * w if t else "-" * (w - 1) + ":" for w, t in zip(widths, is_text, strict=True)]
    for line in [cells[0], rule, *cells[1:]]:
        padded = [
            value.ljust(w) if t else value.rjust(w)
            for value, w, t in zip(line, widths, is_text, strict=True)
        ]
        print("| " + " | ".join(padded) + " |")


def _cells(row: Row) -> list[str]:
    return [
        f"{row.target:g}",
        row.method,
        f"{row.explained:.1f}",
        f"{row.fill:.2f}",
        f"{row.fill_orthonormal:.1f}",
        f"{row.orthogonality_error:.0e}",
        f"{row.seconds:.2f}",
        row.note,
    ]


def write_csv(path: Path, rows: list[Row]) -> None:
    """All rows with all digits."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


# ---------------------------------------------------------------------------------- curves

# Okabe and Ito's colours, which the colour-blind can tell apart.
STYLES: dict[str, dict[str, Any]] = {
    "streamsvd": {"color": "#0072B2", "marker": "o", "linewidth": 2.6, "zorder": 5},
    "streamsvd, greedy path": {"color": "#56B4E9", "marker": "s"},
    "Algorithm 1": {"color": "#D55E00", "marker": "^"},
    "truncated power": {"color": "#000000", "marker": "D"},
    "thresholded PCA": {"color": "#009E73", "marker": "v"},
    "sklearn SparsePCA": {"color": "#CC79A7", "marker": "P"},
    "sklearn MiniBatchSparsePCA": {"color": "#E69F00", "marker": "X"},
}


def draw(path: Path, rows: list[Row]) -> None:
    """One panel for each data set: explained variance against fill.

    A solid line: orthonormal components. A dotted one: those of a method that gives no orthogonal
    ones, as they are; its solid line has the same components after Gram-Schmidt, further right.
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.data for row in rows))
    n_rows = -(-len(names) // 2)
    n_columns = min(2, len(names))
    figure = Figure(figsize=(6.6 * n_columns, 4.1 * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[len(names) :]:
        ax.remove()
    for ax, name in zip(axes, names, strict=False):
        _panel(ax, name, [row for row in rows if row.data == name])
    figure.suptitle(
        "Solid: orthonormal components.  Dotted: as the method gives them, not orthogonal.",
        fontsize=11,
    )
    figure.savefig(path, dpi=160)


def _panel(ax: Any, name: str, rows: list[Row]) -> None:
    ends = {}
    for method in dict.fromkeys(row.method for row in rows):
        line = [row for row in rows if row.method == method]
        style = {"linewidth": 1.5, "markersize": 5.5, "clip_on": False} | STYLES[method]
        explained = [row.explained for row in line]
        ax.plot([row.fill_orthonormal for row in line], explained, **style)
        if any(row.fill_orthonormal > row.fill for row in line):
            loose = style | {"linestyle": ":", "markerfacecolor": "white"}
            ax.plot([row.fill for row in line], explained, **loose)
        ends[method] = (line[-1].fill_orthonormal, line[-1].explained)
    ticks = [1, 2, 5, 10, 20, 50, 100]
    ax.set_xscale("log")
    ax.set(xlim=(0.8, 100), ylim=(0, 100), xticks=ticks, xticklabels=ticks)
    ax.minorticks_off()
    ax.grid(color="0.9", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(name, loc="left", fontweight="bold")
    ax.set_xlabel("nonzeros, % of all entries")
    ax.set_ylabel("variance explained, % of PCA's")
    _label(ax, ends)


def _label(ax: Any, ends: dict[str, tuple[float, float]], gap: float = 6.5) -> None:
    """Names at the right edge, each level with the end of its line or as near as room allows."""
    height = 100.0 + gap
    for method in sorted(ends, key=lambda method: -ends[method][1]):
        x, y = ends[method]
        height = min(y, height - gap)
        style = {key: STYLES[method][key] for key in ("color", "marker")}
        leader = {"color": "0.75", "linewidth": 0.8, "clip_on": False}
        ax.plot([x, 120.0], [y, height], **leader)
        ax.plot(120.0, height, **style, markersize=5.5, clip_on=False)
        ax.text(132.0, height, method, color="0.15", va="center")
