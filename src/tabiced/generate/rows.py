"""Turn encoded rows back into the kind of table that was read: the inverse of a plan.

A template, a table of the wanted kind that may be empty, tells kind, names and types.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from tabiced.columns import ColumnPlan, Filled, Ignored, Levels, Measured, Plan
from tabiced.generate.layout import DAY, step_of
from tabiced.table import Kind, level_name

# What 64 bits of nanoseconds can hold, and then what Python's datetimes can, in seconds since 1970.
SPANS = (-9_223_372_036, 9_223_372_036), (-62_135_596_800, 253_402_300_799)

Cells = list[Any]
"""One column: floats for numbers and seconds, text for levels and what text spells, or None."""


def decode(
    plan: Plan, rows: np.ndarray, context: np.ndarray, generator: np.random.Generator
) -> list[Cells]:
    """Return the columns of a table that encoded rows (m, width) stand for.

    Columns with whole numbers in the context get whole numbers. Levels that share one column are
    drawn from that column at random. An ignored column gets its constant; one that held nothing, or
    text that never repeats, stays empty.
    """
    columns = []
    for column, block in zip(plan.columns, plan.blocks, strict=True):
        part = rows[:, block].astype(np.float64)
        if isinstance(column, Measured):
            known = context[:, block[0]].astype(np.float64)
            step = step_of(column, known[~np.isnan(known)])
            columns.append(_measured(column, part[:, 0], step, known))
        elif isinstance(column, Levels):
            columns.append(_levels(column, part, generator))
        elif isinstance(column, Filled):
            columns.append([column.value if code == 1 else None for code in part[:, 0]])
        else:
            assert isinstance(column, Ignored)
            columns.append([column.value] * len(rows))
    return columns


def _measured(column: Measured, z: np.ndarray, step: float, known: np.ndarray) -> Cells:
    values, seen = (np.ldexp(x * column.scale + column.centre, -column.power) for x in (z, known))
    if step:
        values = np.round(values / step) * step
    if column.kind == "time":
        values = _within_span(values, step or 1.0, seen[~np.isnan(seen)])
    cells = [None if value != value else value for value in values.tolist()]
    if not column.spelled:
        return cells
    moments = _moments(cells) if column.kind == "time" else cells
    name = _date if step == DAY else level_name
    return [None if moment is None else name(moment) for moment in moments]


def _within_span(seconds: np.ndarray, step: float, seen: np.ndarray) -> np.ndarray:
    """Keep new times where the type of those that were seen surely reaches.

    The last day of a type often stands for "open", and new rows may lie beyond what was seen.
    """
    first, last = seen.min() + DAY, seen.max() - DAY  # float32 has rounded them
    low, high = next((s for s in SPANS if s[0] <= first and last <= s[1]), SPANS[-1])
    return np.clip(seconds, np.ceil(low / step) * step, np.floor(high / step) * step)


def _date(moment: datetime.datetime) -> str:
    return str(moment.date())


def _levels(column: Levels, part: np.ndarray, generator: np.random.Generator) -> Cells:
    if column.is_binary:
        code = part[:, 0]
    else:
        code = np.where(np.isnan(part).any(1), np.nan, np.nan_to_num(part).argmax(1))
    out: Cells = []
    for value in code:
        if value != value:
            out.append(None)
        elif value < len(column.levels):
            out.append(column.levels[int(value)])
        else:
            out.append(column.rare[generator.integers(len(column.rare))])
    return out


def kind_of_cells(column: ColumnPlan) -> Kind:
    """Return what `decode` gives for a column: numbers or times that text spells are text."""
    return "text" if isinstance(column, Measured) and column.spelled else column.kind


def build(columns: list[Cells], template: Any, plan: Plan) -> Any:
    """Return columns as a table of the template's kind, with its names and types."""
    kinds: list[str] = [kind_of_cells(column) for column in plan.columns]
    module = type(template).__module__.partition(".")[0]
    if module == "pandas":
        return _pandas(columns, template, kinds)
    if module == "polars":
        return _polars(columns, template, kinds)
    if module == "pyarrow":
        return _pyarrow(columns, template, kinds)
    return _array(columns, template, kinds)


def _array(columns: list[Cells], template: Any, kinds: list[str]) -> np.ndarray:
    code = template.dtype.kind
    rows = len(columns[0])
    if code in "OUT":
        out = np.empty((rows, len(columns)), object)
        for j, (cells, kind) in enumerate(zip(columns, kinds, strict=True)):
            out[:, j] = _moments(cells) if kind == "time" else cells
        return out
    numbers = np.array([[np.nan if v is None else v for v in cells] for cells in columns]).T
    if code in "mM":
        micro = np.where(np.isnan(numbers), 0, np.round(numbers * 1e6)).astype(np.int64)
        moments = micro.astype(f"{code}8[us]")
        moments[np.isnan(numbers)] = np.array("NaT", moments.dtype)
        return moments.astype(template.dtype)
    if code in "iu":
        numbers = np.round(numbers)
    return numbers.astype(template.dtype)


def _moments(cells: Cells, zone: bool = False) -> Cells:
    """Return seconds as datetimes in UTC; without a zone, as arrays of objects hold them."""
    start = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if zone else None)
    return [None if v is None else start + datetime.timedelta(seconds=v) for v in cells]


def _originals(values: Any) -> Mapping[str, Any]:
    """Return {name of a level: the level itself}; levels of categorical types may be numbers."""
    return {level_name(value): value for value in values}


def _pandas(columns: list[Cells], template: Any, kinds: list[str]) -> Any:
    import pandas as pd

    made = {}
    for j, (cells, kind) in enumerate(zip(columns, kinds, strict=True)):
        dtype = template.dtypes.iloc[j]
        if kind == "time" and not pd.api.types.is_object_dtype(dtype):
            micro = pd.array([None if v is None else round(v * 1e6) for v in cells], "Int64")
            moments = pd.Series(pd.to_datetime(micro, unit="us", utc=True))
            zone = getattr(dtype, "tz", None)
            moments = moments.dt.tz_convert(zone)  # None: the zone is dropped
            made[j] = moments.astype(dtype)
        elif isinstance(dtype, pd.CategoricalDtype):
            original = _originals(dtype.categories)
            made[j] = pd.Series([original.get(str(v)) for v in cells]).astype(dtype)
        elif kind == "time":
            made[j] = pd.Series(_moments(cells), dtype=object)
        elif pd.api.types.is_timedelta64_dtype(dtype):
            made[j] = pd.Series(pd.to_timedelta(cells, unit="s")).astype(dtype)
        else:
            if pd.api.types.is_integer_dtype(dtype):
                cells = [None if v is None else round(v) for v in cells]
            made[j] = pd.Series(cells, dtype=dtype if any(v is None for v in cells) else None)
            made[j] = made[j].astype(dtype)
    frame = pd.DataFrame(made)
    frame.columns = template.columns
    return frame


def _polars(columns: list[Cells], template: Any, kinds: list[str]) -> Any:
    import polars as pl

    made = []
    for (name, dtype), cells, kind in zip(template.schema.items(), columns, kinds, strict=True):
        if kind == "time" and dtype != pl.Object:
            series = pl.Series(name, _moments(cells), dtype=pl.Datetime("us"))
            zone = getattr(dtype, "time_zone", None)
            if zone:
                series = series.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
            made.append(series.cast(dtype))
        elif dtype == pl.Duration:
            micro = [None if v is None else round(v * 1e6) for v in cells]
            made.append(pl.Series(name, micro, dtype=pl.Duration("us")).cast(dtype))
        else:
            if dtype.is_integer():
                cells = [None if v is None else round(v) for v in cells]
            if dtype == pl.Boolean:
                cells = [None if v is None else bool(v) for v in cells]
            made.append(pl.Series(name, cells, dtype=dtype, strict=False))
    return pl.DataFrame(made)


def _pyarrow(columns: list[Cells], template: Any, kinds: list[str]) -> Any:
    import pyarrow as pa

    made = []
    for field, cells, kind in zip(template.schema, columns, kinds, strict=True):
        dtype = field.type
        if kind == "time":
            cells = _moments(cells, zone=bool(getattr(dtype, "tz", None)))
            if pa.types.is_date(dtype):
                cells = [None if v is None else v.date() for v in cells]
        elif pa.types.is_integer(dtype):
            cells = [None if v is None else round(v) for v in cells]
        elif pa.types.is_boolean(dtype):
            cells = [None if v is None else bool(v) for v in cells]
        elif pa.types.is_dictionary(dtype):
            levels = pa.array(cells, pa.string()).cast(dtype.value_type)  # numbers may be levels
            made.append(levels.dictionary_encode().cast(dtype))
            continue
        made.append(pa.array(cells, dtype))
    return pa.table(made, schema=template.schema)
