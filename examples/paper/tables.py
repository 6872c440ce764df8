"""Rows of numbers to CSV and back, and to Markdown."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

Row = TypeVar("Row")


def write_csv(path: Path, row_type: type[Any], rows: Iterable[Any]) -> None:
    """All rows of a dataclass with all digits."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(row_type)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def read_csv(path: Path, row_type: type[Row]) -> list[Row]:
    """What `write_csv` wrote; None is an empty cell."""
    hints = get_type_hints(row_type)
    with path.open(newline="") as file:
        return [
            row_type(**{name: _value(text, hints[name]) for name, text in line.items()})
            for line in csv.DictReader(file)
        ]


def _value(text: str, hint: Any) -> Any:
    if hint is str:
        return text
    if text == "":
        return None
    return float(text) if "float" in str(hint) else int(text)


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose columns line up; the first is text, the others are right-aligned."""
    cells = [list(header), *(list(line) for line in lines)]
    widths = [max(3, *(len(line[c]) for line in cells)) for c in range(len(header))]
    rule = ["-" * w if c == 0 else "-" * (w - 1) + ":" for c, w in enumerate(widths)]
    return "\n".join(
        "| "
        + " | ".join(
            text.ljust(w) if c == 0 else text.rjust(w)
            for c, (text, w) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in [cells[0], rule, *cells[1:]]
    )


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage; a dash for NaN."""
    return "-" if value != value else f"{100 * value:.{digits}f}"


def seconds(value: float) -> str:
    """Two or three digits; a dash for NaN."""
    if value != value:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def power(k: int) -> str:
    """``2^8`` for 256; other numbers as they are."""
    return f"2^{k.bit_length() - 1}" if k > 1 and k & (k - 1) == 0 else str(k)
