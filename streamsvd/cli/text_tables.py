"""Tables in text files: numbers, the names of columns in a header, those of rows in a column."""

import csv
import gzip
import io
import re
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from streamsvd.arrays import Array
from streamsvd.errors import OptionError, SourceError
from streamsvd.progress import Progress, progress_bar

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": None}
"""What separates fields in text files, by the end of the name; None for white space."""

PIECE = 2**20
"""Bytes of text that are parsed at a time."""

MISSING = ("", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None", "NaN", "nan", "-nan")
"""Fields that stand for a missing value, also with ``#`` before ``N/A``, as spreadsheets write."""


class Parsed(NamedTuple):
    """What was parsed.

    Attributes
    ----------
    shape : (int, int)
        Of the numbers, which are in a file as plain float64.
    columns : list of str or None
        Their names, by the header.
    rows : Path or None
        A file with the name of each row on a line.
    """

    shape: tuple[int, int]
    columns: list[str] | None
    rows: Path | None


def parse_table(
    path: Path,
    separator: str | None,
    skip_lines: int,
    id_column: str | None,
    folder: Path,
    progress: Progress,
) -> tuple[Parsed, Path]:
    """Parse into plain files in `folder`, as only the end tells how many rows there are.

    The second is the file of the numbers. Missing values are NaN.
    """
    numbers, rows = folder / "parsed", folder / "rows"
    with (
        open(path, "rb") as raw,
        gzip.open(raw) if path.suffix.lower() == ".gz" else raw as stream,
        io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace") as text,
        open(numbers, "wb") as out,
        open(rows, "w", encoding="utf-8") as names,
        progress_bar(progress, "parse", path.stat().st_size, unit="bytes") as advance,
    ):
        table = _Table(path, separator, id_column)
        lines, number = table.begin(text, skip_lines)
        n_rows = position = 0
        while lines := lines + text.readlines(PIECE):
            if any(map(_has_fields, lines)):
                ids, found = table.parse(lines, number)
                found.tofile(out)
                names.writelines(f"{one}\n" for one in ids)
                n_rows += len(found)
            number, lines = number + len(lines), []
            advance(raw.tell() - position)
            position = raw.tell()
    width = max(table.width - (id_column is not None), 0)
    return Parsed((n_rows, width), table.columns, None if id_column is None else rows), numbers


def first_fields(path: Path, separator: str | None) -> list[str]:
    """The fields of the first line that has some, none of an empty file."""
    with (
        open(path, "rb") as raw,
        gzip.open(raw) if path.suffix.lower() == ".gz" else raw as stream,
        io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace") as text,
    ):
        line = next(filter(_has_fields, text), "")
        return _fields(line, separator) if line else []


class _Table:
    """What is known of a table while it is parsed, from its first line on."""

    def __init__(self, path: Path, separator: str | None, id_column: str | None) -> None:
        self._path, self._separator, self._id_column = path, separator, id_column
        self._header: list[str] | None = None
        self._id: int | None = None
        self.width = 0

    @property
    def columns(self) -> list[str] | None:
        """Names of the columns of numbers."""
        if self._header is None or not self.width:
            return None
        return [name for place, name in enumerate(self._header) if place != self._id]

    def begin(self, text: IO[str], skip_lines: int) -> tuple[list[str], int]:
        """The first line of numbers, or none after a header, and the number of the line to go on.

        A line is a header where it has the name of the rows, or no number at all.
        """
        for number, line in enumerate(text, 1):
            if number <= skip_lines or not _has_fields(line):
                continue
            fields = _fields(line, self._separator)
            is_named = self._id_column is not None
            if is_named and (self._id_column or None) not in (None, *fields):
                raise OptionError(
                    f"id_column={self._id_column!r} is not in the header of {self._path}, line "
                    f"{number}: {', '.join(fields[:20])}"
                )
            if is_named or not (any(map(_is_number, fields)) or all(map(_is_missing, fields))):
                self._header = self._decoded(fields, number)
                return [], number + 1
            return [line], number
        return [], 1

    def parse(self, lines: list[str], first: int) -> tuple[list[str], Array]:
        """Names of the rows, if they have any, and numbers of lines; that one is line `first`."""
        if not self.width:
            self._begin_rows(next(filter(_has_fields, lines)), first)
        try:
            ids, numbers = self._parse_numbers(lines)
        except ValueError:
            ids, numbers = self._parse_texts(lines, first)
        if numbers.shape[1] != self.width - (self._id is not None):
            raise self._blame(lines, first)
        return self._decoded(ids, first), numbers

    def _decoded(self, names: list[str], line: int) -> list[str]:
        """Names, stripped; refuses what was written in another encoding than UTF-8."""
        strange = next((name for name in names if "\ufffd" in name), None)
        if strange is not None:
            raise SourceError(
                f"{self._path}, in or after line {line}: {strange[:40]!r} is not UTF-8: save "
                "the file as UTF-8, or leave out a header with skip_lines="
            )
        return [name.strip() for name in names]

    def _begin_rows(self, line: str, number: int) -> None:
        """Fit the header to the first row: R leaves out the name of the column of names."""
        self.width = len(_fields(line, self._separator))
        if self._header is None:
            return
        if self._id_column == "" and len(self._header) == self.width - 1:
            self._header = ["", *self._header]
        if len(self._header) != self.width:
            raise SourceError(
                f"{self._path}: the header has {len(self._header)} fields, line {number} or the "
                f"next has {self.width}; mend it, or leave it out with skip_lines="
            )
        if self._id_column is not None:
            if self._id_column not in self._header:
                raise OptionError(f"id_column='' needs a column without a name in {self._path}")
            self._id = self._header.index(self._id_column)

    def _parse_numbers(self, lines: list[str]) -> tuple[list[str], Array]:
        """Lines whose fields are all numbers."""
        options: Any = {"delimiter": self._separator, "quotechar": '"'}
        if self._id is None:
            return [], np.loadtxt(lines, ndmin=2, **options)
        sizes = {"before": self._id, "after": self.width - self._id - 1}
        parts: list[Any] = [(name, np.float64, (size,)) for name, size in sizes.items() if size]
        parts.insert(1 if self._id else 0, ("id", object))
        read = np.atleast_1d(np.loadtxt(lines, dtype=parts, **options))
        return list(read["id"]), np.hstack([read[name] for name, size in sizes.items() if size])

    def _parse_texts(self, lines: list[str], first: int) -> tuple[list[str], Array]:
        """The same where some may be missing."""
        plain = [line.replace("#N/A", "N/A") for line in lines]
        options: Any = {"delimiter": self._separator, "quotechar": '"', "ndmin": 2}
        try:
            texts = np.loadtxt(plain, dtype=object, **options)
            ids = [] if self._id is None else list(texts[:, self._id])
            if self._id is not None:
                texts = np.delete(texts, self._id, axis=1)
            fields: Any = np.strings.strip(texts.astype(np.dtypes.StringDType()))
            for word in MISSING:
                fields[fields == word] = "nan"
            if np.any(np.strings.find(fields, "_") >= 0):  # Python reads 1_000 as a number
                raise self._blame(lines, first)
            return ids, fields.astype(np.float64)
        except ValueError as error:
            raise self._blame(lines, first) from error

    def _blame(self, lines: list[str], first: int) -> SourceError:
        """What is wrong with which line."""
        for number, line in enumerate(lines, first):
            fields = _fields(line, self._separator) if _has_fields(line) else []
            for place, field in enumerate(fields):
                if place != self._id and not _is_number(field) and not _is_missing(field):
                    return SourceError(
                        f"{self._path}, line {number}: {field.strip()[:40]!r}{self._in(place)} is "
                        "not a number; check the delimiter, skip a header with skip_lines=, leave "
                        "out a column of names with id_column=, write missing values as NA"
                    )
            if len(fields) not in (0, self.width):
                return SourceError(
                    f"{self._path}, line {number} has {len(fields)} fields, those above have "
                    f"{self.width}"
                )
        return SourceError(f"{self._path}, line {first} or later: cannot be parsed as numbers")

    def _in(self, place: int) -> str:
        if self._header is None or place >= len(self._header):
            return ""
        return f" in column {self._header[place]!r}"


def names_in(path: Path, start: int, stop: int) -> list[str]:
    """Lines ``start..stop-1`` of a file of names."""
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in islice(file, start, stop)]


def _fields(line: str, separator: str | None) -> list[str]:
    """The fields of a line, without a comment at its end."""
    found = re.match(r'(?:[^"#]|"[^"]*"?|#N/A)*', line)
    line = line if found is None else found[0]
    line = line if separator is not None else " ".join(line.split())
    row = next(csv.reader([line], delimiter=separator or " ", skipinitialspace=True), [])
    return [field.strip() for field in row]


def _has_fields(line: str) -> bool:
    return bool(line.split("#", 1)[0].strip())


def _is_missing(field: str) -> bool:
    return field.strip().removeprefix("#") in MISSING


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field
