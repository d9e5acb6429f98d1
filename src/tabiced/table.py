"""Read a table of any kind into typed numpy columns.

numpy arrays, lists of rows and, through narwhals, pandas, polars and pyarrow tables become the same
`Table`, so that equal content gives equal scores. Nothing is learned here and no cell is changed:
`columns.py` decides how a column enters the network.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

Kind = Literal["number", "time", "text", "empty"]
PLURAL = {"number": "numbers", "time": "datetimes", "text": "text"}


@dataclass(frozen=True)
class Column:
    """One column: floats for numbers and times, codes into `levels` for text.

    Times are seconds since 1970 (UTC). Missing cells are NaN, or -1 among codes.
    """

    label: str  # how messages call it
    kind: Kind
    values: np.ndarray  # (n,) float64, or int64 codes for text
    levels: tuple[str, ...] = ()
    declared: bool = False  # the frame says that it is categorical

    @property
    def missing(self) -> np.ndarray:
        return self.values < 0 if self.kind == "text" else np.isnan(self.values)

    def show(self, row: int) -> str:
        """Return the cell as messages show it."""
        if self.kind == "text":
            return repr(self.levels[self.values[row]])
        return f"{self.values[row]:g}"


@dataclass(frozen=True)
class Table:
    """Typed columns of equal length; `names` is None for arrays, whose columns go by position."""

    columns: tuple[Column, ...]
    rows: int
    names: tuple[str, ...] | None = None
    frame: Any = None  # the narwhals frame it came from

    def take(self, rows: slice | np.ndarray) -> Table:
        """Return some of the rows."""
        columns = tuple(replace(c, values=c.values[rows]) for c in self.columns)
        count = len(range(self.rows)[rows]) if isinstance(rows, slice) else len(rows)
        return Table(columns, count, self.names)

    def like(self, values: np.ndarray) -> Any:
        """Return (n, d) numbers as a table of the kind and with the names this one came with."""
        if self.frame is None:
            return values
        import narwhals as nw

        frame = self.frame
        data = {name: values[:, j] for j, name in enumerate(frame.columns)}
        made = nw.from_dict(data, backend=frame.implementation).to_native()
        index = nw.maybe_get_index(frame)
        if index is not None:
            made.index = index
        return made

    def floats(self) -> list[np.ndarray]:
        """Return all columns as floats, NaN = missing; text as places in the alphabet."""
        return [c.values if c.kind != "text" else _alphabetic(c) for c in self.columns]


def _alphabetic(column: Column) -> np.ndarray:
    place = np.full(len(column.levels) + 1, np.nan)
    place[np.argsort(np.array(column.levels))] = np.arange(len(column.levels))
    return place[column.values]  # missing cells, -1, take the last, which is NaN


def read_table(X: Any, *, min_rows: int = 1) -> Table:
    """Read an array, a list of rows or a data frame; say what is wrong with it otherwise."""
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise TypeError("Sparse matrices are not supported: pass a dense table, X.toarray().")
    table = _read_frame(X) if hasattr(X, "columns") else _read_array(X)
    shape = (table.rows, len(table.columns))
    if not table.columns:
        raise ValueError(
            f"Found a table with 0 feature(s) (shape={shape}) while a minimum of 1 is required."
        )
    if table.rows < min_rows:
        raise ValueError(
            f"Found a table with {table.rows} sample(s) (shape={shape}) "
            f"while a minimum of {min_rows} is required."
        )
    for column in table.columns:
        if column.kind != "text" and np.isinf(column.values).any():
            row = int(np.flatnonzero(np.isinf(column.values))[0])
            raise ValueError(
                f"{column.label} holds an infinite value (inf) in row {row}. Replace it by a "
                "finite number, or by NaN if the value is unknown."
            )
    return table


def _read_array(X: Any) -> Table:
    array = _as_array(X)
    if array.ndim != 2:
        raise ValueError(
            f"Expected a 2D table, got a {array.ndim}D array (shape={array.shape}). Reshape your "
            "data: array.reshape(-1, 1) is a table of one column, array.reshape(1, -1) of one row."
        )
    code = array.dtype.kind
    if code == "c":
        raise ValueError(
            "Complex data not supported: pass the real and imaginary parts as two columns."
        )
    labels = [f"Column {j}" for j in range(array.shape[1])]
    if code in "biuf":
        array = array.astype(np.float64, copy=False)
        columns = [Column(label, "number", array[:, j]) for j, label in enumerate(labels)]
    elif code in "mM":
        kind: Kind = "time" if code == "M" else "number"
        seconds = _seconds_of(array)
        columns = [Column(label, kind, seconds[:, j]) for j, label in enumerate(labels)]
    elif code in "OUT":
        columns = [_infer(label, array[:, j].tolist()) for j, label in enumerate(labels)]
    else:
        raise TypeError(
            f"An array of dtype {array.dtype} is not a table. Pass numbers, or an object array of "
            "numbers, text, booleans and datetimes, or a data frame."
        )
    return Table(tuple(columns), array.shape[0])


def _as_array(X: Any) -> np.ndarray:
    """Return any array-like as an array; mixed lists keep each cell's own type."""
    if np.ma.isMaskedArray(X):
        cells = np.array(X.data, dtype=object)
        cells[np.ma.getmaskarray(X)] = None
        return cells
    try:
        array = np.asarray(X)
        if array.dtype.kind in "US" and not hasattr(X, "dtype"):
            array = np.array(X, dtype=object)  # numpy would turn the numbers into text
    except Exception as error:
        raise ValueError(
            f"Cannot read a {type(X).__name__} as a table: {error}. Pass a 2D array, a list of "
            "rows of equal length, or a pandas, polars or pyarrow table."
        ) from error
    return array


def _seconds_of(array: np.ndarray) -> np.ndarray:
    unit = f"{array.dtype.kind}8[us]"
    return np.where(np.isnat(array), np.nan, array.astype(unit).astype(np.int64) / 1e6)


def _read_frame(X: Any) -> Table:
    import narwhals as nw

    given = list(X.column_names if type(X).__module__.startswith("pyarrow") else X.columns)
    repeated = sorted({str(name) for name in given if given.count(name) > 1})
    if repeated:
        raise ValueError(
            f"Column names must be unique; repeated: {listed(repeated)}. Rename or drop them."
        )
    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError:
        raise TypeError(
            f"Cannot read a {type(X).__module__}.{type(X).__name__} as a table. Pass a pandas, "
            "polars or pyarrow table (collect lazy ones first), or a numpy array."
        ) from None
    labels = [f"Column {str(name)!r}" for name in given]
    columns = tuple(map(_read_series, labels, frame.iter_columns()))
    # pandas numbers the columns it has no names for.
    unnamed = given == list(range(len(given)))
    names = None if unnamed else tuple(str(name) for name in given)
    return Table(columns, len(frame), names, frame)


def _read_series(label: str, series: Any) -> Column:
    import narwhals as nw

    kind = series.dtype
    if kind.is_numeric() or kind == nw.Boolean:
        return Column(label, "number", _floats(series))
    if kind == nw.Date:
        series = series.cast(nw.Datetime("us"))
        kind = series.dtype
    if kind == nw.Datetime:
        return Column(label, "time", _floats(series.dt.timestamp("us")) / 1e6)
    if kind == nw.Duration:
        return Column(label, "number", _floats(series.dt.total_microseconds()) / 1e6)
    if kind in (nw.Categorical, nw.Enum):
        return _text(label, series.to_list(), declared=True)
    if kind == nw.String:
        return _text(label, series.to_list())
    if kind in (nw.Object, nw.Time):
        return _infer(label, series.to_list())
    if series.null_count() == len(series):
        return Column(label, "empty", np.full(len(series), np.nan))
    raise TypeError(
        f"{label} has the type {kind}, which is not supported. Columns may hold numbers, booleans, "
        "text, categories, dates and datetimes: convert or drop it."
    )


def _floats(series: Any) -> np.ndarray:
    """Round to doubles as numpy does: pyarrow would refuse whole numbers beyond 2^53."""
    values = series.to_numpy()
    if values.dtype.kind in "biuf":
        return values.astype(np.float64, copy=False)
    # missing markers of nullable types
    return np.array([np.nan if _is_missing(v) else v for v in series.to_list()], np.float64)


def _infer(label: str, cells: list[Any]) -> Column:
    """Find out what a column of Python objects holds."""
    kinds: dict[type, str] = {}
    found: dict[str, list[int]] = {}
    for row, cell in enumerate(cells):
        if _is_missing(cell):
            continue
        kind = kinds.get(type(cell)) or kinds.setdefault(type(cell), _kind_of(cell))
        if kind == "other":
            raise TypeError(
                f"{label} holds a {type(cell).__name__} in row {row}: every cell of the table "
                "passed as argument must be a string, a number, a boolean, a datetime, or missing."
            )
        found.setdefault(kind, []).append(row)
    if len(found) > 1 and "time" in found:
        rare = min(found, key=lambda kind: len(found[kind]))
        common = max(found, key=lambda kind: len(found[kind]))
        row = found[rare][0]
        raise ValueError(
            f"{label} mixes {PLURAL[common]} with {PLURAL[rare]}: row {row} holds {cells[row]!r}. "
            "Give it one type; mark unknown values with NaN or None, or turn all of it into text."
        )
    if not found:
        return Column(label, "empty", np.full(len(cells), np.nan))
    if "text" in found:
        return _text(label, cells)
    values = np.full(len(cells), np.nan)
    for rows in found.values():
        values[rows] = [number_of(cells[row]) for row in rows]
    return Column(label, "time" if "time" in found else "number", values)


def _kind_of(cell: Any) -> str:
    if isinstance(cell, str):
        return "text"
    if isinstance(cell, datetime.date | np.datetime64):
        return "time"
    known = (
        numbers.Real,
        np.bool_,
        decimal.Decimal,
        datetime.timedelta,
        datetime.time,
        np.timedelta64,
    )
    return "number" if isinstance(cell, known) else "other"


def number_of(cell: Any) -> float:
    """Return a number as it is, times as seconds (naive ones are taken as UTC)."""
    if isinstance(cell, datetime.datetime):
        return (cell if cell.tzinfo else cell.replace(tzinfo=datetime.UTC)).timestamp()
    if isinstance(cell, datetime.date):
        return (cell - datetime.date(1970, 1, 1)).total_seconds()
    if isinstance(cell, datetime.timedelta):
        return cell.total_seconds()
    if isinstance(cell, datetime.time):
        return cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return float(_seconds_of(np.asarray(cell)))
    try:
        return float(cell)
    except OverflowError:  # an integer beyond the floats; refused like other infinities
        return float("inf")


def _is_missing(cell: Any) -> bool:
    if cell is None:
        return True
    if isinstance(cell, float | np.floating):
        return cell != cell
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return bool(np.isnat(cell))
    return type(cell).__name__ in ("NAType", "NaTType")  # pandas, without importing it


def _text(label: str, cells: Iterable[Hashable], declared: bool = False) -> Column:
    """Number the levels of a text or category column."""
    index: dict[str, int] = {}
    codes = np.array(
        [-1 if _is_missing(v) else index.setdefault(level_name(v), len(index)) for v in cells],
        np.int64,
    )
    if not index:
        return Column(label, "empty", np.full(len(codes), np.nan))
    return Column(label, "text", codes, tuple(index), declared)


def level_name(value: Any) -> str:
    """Name a category; whole numbers look the same as integers and as floats.

    >>> level_name("a"), level_name(3), level_name(3.0), level_name(2.5)
    ('a', '3', '3', '2.5')
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def listed(names: Iterable[str], most: int = 10) -> str:
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def template_of(X: Any) -> Any:
    """Return the table without its rows; arrays and lists of rows become an array."""
    if hasattr(X, "columns"):
        return X[:0] if hasattr(X, "iloc") else X.slice(0, 0)
    if np.ma.isMaskedArray(X) or not hasattr(X, "dtype"):
        kinds = {type(cell) for row in X for cell in row}
        is_numeric = all(issubclass(kind, int | float | np.number) for kind in kinds)
        return np.empty((0, len(X[0])), float if is_numeric else object)
    return np.asarray(X)[:0]
