"""Read CSV files of any size and dialect piece by piece.

polars guesses the types of a text file, and parses it, with the whole file in memory. Here
it sees pieces of whole lines: a first pass finds types that suit every line, later ones parse.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tabiced._extras import extra

with extra("cli"):
    import polars as pl
    from polars.io.plugins import register_io_source

# How people write "missing" in text files.
MISSING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None"]

PIECE_BYTES = 2**23


TEXT_FILES = (".csv", ".tsv")
SEPARATORS = (",", ";", "\t", "|")  # of .csv files; in doubt the first. Those of .tsv are tabs
FIRST_CHARACTERS = 2**16  # by which the dialect is told
DECIMAL_COMMA, DECIMAL_POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d+\.\d+")


class RaggedFileError(ValueError):
    """A text file with a line that has more or fewer cells than the header."""


@dataclass(frozen=True)
class Dialect:
    """How a text file tells cells apart, and whether numbers in it have a decimal comma."""

    separator: str
    decimal_comma: bool = False


def dialect_of(path: Path) -> Dialect:
    """Tell the dialect of a text file by its first lines; spreadsheets write several."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        start = file.read(FIRST_CHARACTERS)

    def rows(separator: str, most: int | None = None) -> list[list[str]]:
        found: list[list[str]] = []
        with suppress(csv.Error):
            reader = csv.reader(io.StringIO(start, newline=""), delimiter=separator)
            found += islice(filter(None, reader), most)
        return found

    def width(separator: str) -> int:
        """Return how many cells header and first row have, if equally many and several."""
        widths = {len(cells) for cells in rows(separator, 2)}
        return max(widths) if len(widths) == 1 and widths != {1} else 0

    separator = "\t" if path.suffix.lower() == ".tsv" else max(SEPARATORS, key=width)
    if separator == ",":
        return Dialect(separator)
    cells = [cell.strip() for row in rows(separator) for cell in row]
    commas = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    has_points = any(map(DECIMAL_POINT.fullmatch, cells))
    # Three digits after each comma may also be thousands.
    is_decimal = any(len(cell.partition(",")[2]) != 3 for cell in commas)
    return Dialect(separator, is_decimal and not has_points)


def scan_text(path: Path) -> pl.LazyFrame:
    """Return a lazy frame that reads a CSV file piece by piece, with types that suit all lines."""
    schema = _find_schema(path)

    def batches(
        columns: list[str] | None,
        predicate: pl.Expr | None,
        rows: int | None,
        batch_rows: int | None,
    ) -> Iterator[pl.DataFrame]:
        left = rows
        for piece in read_text(path, schema):
            frame = piece if left is None else piece.head(left)
            left = None if left is None else left - frame.height
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)
            if left == 0:
                return

    return register_io_source(batches, schema=schema)


def read_text(path: Path, schema: pl.Schema) -> Iterator[pl.DataFrame]:
    """Yield the rows of a CSV file, a few megabytes at a time."""
    dialect = dialect_of(path)
    for piece in _pieces(path):
        yield pl.read_csv(
            piece,
            schema=schema,
            separator=dialect.separator,
            decimal_comma=dialect.decimal_comma,
            null_values=MISSING,
        )


def _find_schema(path: Path) -> pl.Schema:
    known: dict[str, pl.DataType | None] = {}
    dialect, checked = dialect_of(path), False
    for piece in _pieces(path):
        # polars would take the cells that a short line lacks for missing.
        if not checked and not _looks_even(piece, dialect.separator.encode()):
            if reason := ragged_line(path):
                raise RaggedFileError(reason)
            checked = True
        guess = pl.read_csv(
            piece,
            separator=dialect.separator,
            decimal_comma=dialect.decimal_comma,
            null_values=MISSING,
            infer_schema_length=None,
            try_parse_dates=True,
        )
        for column in guess.iter_columns():
            before = known.setdefault(column.name, None)
            if column.null_count() < len(column):  # else it says nothing about the type
                known[column.name] = _common(before, column.dtype)
    return pl.Schema({name: kind or pl.String() for name, kind in known.items()})


def ragged_line(path: Path) -> str | None:
    """Say which line of a text file has more or fewer cells than the header, if one does."""
    if path.suffix.lower() not in TEXT_FILES:
        return None
    with suppress(OSError, UnicodeDecodeError, csv.Error), path.open(newline="") as file:
        reader = csv.reader(file, delimiter=dialect_of(path).separator)
        width = len(next(reader, []))
        for cells in reader:
            if cells and len(cells) != width:
                return f"line {reader.line_num} has {len(cells)} cells, the header has {width}"
    return None


def _looks_even(piece: bytes, separator: bytes) -> bool:
    """Tell by counting whether the lines of a piece have equally many cells; quotes leave doubt."""
    header, _, body = piece.partition(b"\n")
    lines = body.count(b"\n") + (not body.endswith(b"\n") and body != b"")
    cells = header.count(separator)
    return b'"' not in piece and body.count(separator) == lines * cells


def _common(a: pl.DataType | None, b: pl.DataType) -> pl.DataType:
    """Return the type that holds the values of both."""
    if a is None or a == b:
        return b
    return pl.Float64() if a.is_numeric() and b.is_numeric() else pl.String()


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield a text file in pieces of whole records, each with the header."""
    with path.open("rb") as file:
        header = file.readline()
        while header.count(b'"') % 2 and (more := file.readline()):
            header += more
        rest, block, any_yet = b"", file.read(PIECE_BYTES), False
        while block:
            data = rest + block
            end = _end_of_last_record(data)
            rest, block = data[end:], file.read(PIECE_BYTES)
            if end:
                yield header + data[:end]
                any_yet = True
        if rest or not any_yet:
            yield header + rest


def _end_of_last_record(data: bytes) -> int:
    r"""Return where the last whole record ends: a line end with an even number of quotes before.

    >>> _end_of_last_record(b'1,"a\n2,b"\n3,"c\n')
    10
    """
    inside, stop = data.count(b'"') % 2 == 1, len(data)
    while True:
        quote = data.rfind(b'"', 0, stop)
        end = -1 if inside else data.rfind(b"\n", quote + 1, stop)
        if end >= 0:
            return end + 1
        if quote < 0:
            return 0
        inside, stop = not inside, quote
