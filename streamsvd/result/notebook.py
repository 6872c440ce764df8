"""What a solution shows of itself in notebooks: HTML without scripts, in their own colours."""

from collections.abc import Iterable
from html import escape

import numpy as np

from streamsvd.result.bars import Top
from streamsvd.result.percent import percent
from streamsvd.result.raster import Raster, raster_of
from streamsvd.result.solution import Solution
from streamsvd.result.text import SHOWN, component_rows, facts
from streamsvd.result.thumbnails import bars, image

BAR = "background:linear-gradient(to right,#0072B255 {width:.1f}%,transparent {width:.1f}%)"
"""The only colour; those of the text and of what is behind it are the notebook's."""


MOST_NAMED = 3
"""Features whose loadings are written out."""


def html(made: Solution) -> str:
    """`facts`, and a table of all components with a picture of each, folded away when many.

    Bars of explained variance are on one scale, which ends at the largest. Some tens of kilobytes
    for a hundred components.
    """
    head, rows = component_rows(made)
    ratios = np.nan_to_num(made.explained_variance_ratio)
    largest = float(ratios.max()) or 1.0
    widths = (100 * ratios / largest).tolist()
    raster = raster_of(made.features)
    names = made.feature_names if raster is None else None  # a place says more than its name
    titles = [*(cell(name, tag="th") for name in head), cell("loadings", tag="th", align="left")]
    at = head.index("explained variance")
    titles[at] = cell(f"explained variance (bars: 0 to {percent(largest)})", tag="th")
    if names is not None:
        titles.append(cell("the largest", tag="th", align="left"))
    body = []
    for c, (cells, width) in enumerate(zip(rows, widths, strict=True)):
        styles = [BAR.format(width=width) if k == at else "" for k in range(len(head))]
        line = [cell(text, style=style) for text, style in zip(cells, styles, strict=True)]
        line.append(f'<td style="text-align:left">{_picture(made, raster, c)}</td>')
        if names is not None:
            top = Top.of(made, c, MOST_NAMED)
            pairs = zip(top.places.tolist(), top.values.tolist(), strict=True)
            line.append(
                cell(", ".join(f"{_short(names[k])} {v:.2f}" for k, v in pairs), align="left")
            )
        body.append(line)
    return (
        f"<div><strong>SVDResult</strong>{facts_table(facts(made))}"
        f"<details{' open' if len(rows) <= SHOWN else ''}>"
        f"<summary>{len(rows)} components</summary>"
        f"{rows_table([titles, *body])}</details></div>"
    )


def _picture(made: Solution, raster: Raster | None, c: int) -> str:
    """A component as an image where features lie on a grid, else as bars."""
    if raster is None:
        return bars(made.components[[c]], f"component {c}")
    return image(made.map_of_components(c, c + 1)[0], raster, f"component {c}")


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= 24 else text[:23] + "…"


def facts_table(found: dict[str, str]) -> str:
    """Names and values as a table of HTML."""
    rows = (
        f"<tr>{cell(name, tag='th', align='left')}{cell(value, align='left')}</tr>"
        for name, value in found.items()
    )
    return f"<table>{''.join(rows)}</table>"


def rows_table(rows: Iterable[Iterable[str]]) -> str:
    """Lines of cells as a table of HTML, flush right where they do not say otherwise."""
    lines = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return f'<table style="text-align:right">{lines}</table>'


def cell(value: str, *, tag: str = "td", align: str = "", style: str = "") -> str:
    """One of a table of HTML."""
    style = (f"text-align:{align};" if align else "") + style
    return f"<{tag}{f' style={chr(34)}{style}{chr(34)}' if style else ''}>{escape(value)}</{tag}>"
