"""What a cross-validation says of itself: a table as text, and as HTML for notebooks."""

from typing import Any

import numpy as np
from dask.utils import format_bytes

from streamsvd.choosing.rule import GridPoint
from streamsvd.result.notebook import BAR, cell, facts_table, rows_table
from streamsvd.result.percent import percent
from streamsvd.result.text import aligned, table

HEAD = ("components", "fill", "nonzeros", "predicted", "+-", "explained", "+-", "")

CHOSEN, BEST = "chosen", "best"


def facts(made: Any) -> dict[str, str]:
    """Of a `CrossValidation`, by name."""
    result = made.result
    found = {
        "data": f"{result.n_features} features x {result.n_samples} samples",
        "folds": str(made.folds),
        CHOSEN: point_text(made.chosen),
        BEST: point_text(made.best),
        "time": f"{made.seconds:.1f} s",
    }
    if made.bytes_read is not None:
        found["read"] = format_bytes(made.bytes_read)
    return found


def point_text(point: GridPoint) -> str:
    """A point of the grid in words."""
    some = "component" if point.n_components == 1 else "components"
    return f"{point.n_components} {some}, fill {point.max_fill:.4g} ({point.max_nonzeros} nonzeros)"


def rows(made: Any) -> list[tuple[str, ...]]:
    """Cells below `HEAD`."""
    notes = {made.best: BEST} | {made.chosen: CHOSEN}
    return [
        (
            str(row.n_components),
            percent(row.max_fill),
            f"{row.n_nonzeros:.1f}",
            percent(row.predicted_variance),
            percent(row.predicted_variance_error),
            percent(row.explained_variance),
            percent(row.explained_variance_error),
            notes.get(point, ""),
        )
        for point, row in zip(made.points, made.table(), strict=True)
    ]


def lines(made: Any) -> list[str]:
    """`facts` and the table: the ``repr``."""
    chosen = made.chosen
    head = (
        f"CrossValidation(n_components={chosen.n_components}, max_fill={chosen.max_fill:.4g}, "
        f"folds={made.folds})"
    )
    below = [*aligned(facts(made)), "", *table(HEAD, rows(made))]
    return [head, *(f"  {line}".rstrip() for line in below)]


def html(made: Any) -> str:
    """The same as tables, with bars of both scores on one scale, which ends at the largest."""
    table = made.table()
    scores = [[row.predicted_variance, row.explained_variance] for row in table]
    widths = 100 * np.maximum(scores, 0) / (np.max(scores, initial=0.0) or 1.0)
    bars = dict(zip((HEAD.index("predicted"), HEAD.index("explained")), (0, 1), strict=True))
    body = [[cell(name, tag="th") for name in HEAD]]
    for texts, ends in zip(rows(made), widths.tolist(), strict=True):
        styles = {k: BAR.format(width=ends[which]) for k, which in bars.items()}
        body.append([cell(text, style=styles.get(k, "")) for k, text in enumerate(texts)])
    return (
        f"<div><strong>CrossValidation</strong>{facts_table(facts(made))}{rows_table(body)}</div>"
    )
