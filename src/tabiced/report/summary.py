"""Summarise the columns of a table for the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tabiced._extras import extra
from tabiced.columns import Filled, Ignored, Levels, Measured, Plan
from tabiced.explanation import show_cell
from tabiced.files import TableFile

with extra("cli"):
    import polars as pl


@dataclass(frozen=True)
class ColumnSummary:
    """What a reader wants to know of a column before believing a judgement."""

    name: str
    kind: str
    role: str  # how it enters the judgement
    missing: int
    distinct: int
    span: str


def summarise(table: TableFile, plan: Plan) -> list[ColumnSummary]:
    """Describe every column of a table that was judged by a plan's columns."""
    roles = dict(zip(plan.names or (), map(_role, plan.columns), strict=False))
    out = []
    # One column at a time: counting different values holds all of them.
    for name, kind in table.schema.items():
        column = pl.col(name)
        ordered = kind.is_numeric() or kind.is_temporal()
        asked = [
            column.null_count().alias("missing"),
            column.drop_nulls().n_unique().alias("distinct"),
        ]
        asked += [column.min().alias("low"), column.max().alias("high")] if ordered else []
        told = table.lazy.select(asked).collect(engine="streaming").row(0, named=True)
        out.append(
            ColumnSummary(
                name=name,
                kind=_kind(kind),
                role=roles.get(name, "left out"),
                missing=told["missing"],
                distinct=told["distinct"],
                span=_span(told) if ordered else _commonest(table, name),
            )
        )
    return out


def _kind(kind: pl.DataType) -> str:
    if kind.is_numeric():
        return "numbers"
    if kind.is_temporal():
        return "times"
    return "true or false" if kind == pl.Boolean else "text"


def _role(plan: Any) -> str:
    if isinstance(plan, Ignored):
        if plan.value is not None:
            return f"ignored: always {show_cell(plan.value)}"
        return "ignored: never repeats, or empty"
    if isinstance(plan, Filled):
        return "filled or not"
    if isinstance(plan, Levels):
        rare = f", {len(plan.rare)} rare ones as one" if plan.rare else ""
        return f"{len(plan.levels)} categories{rare}"
    if isinstance(plan, Measured) and plan.spelled:
        return "measured, words as missing"
    return "two values" if isinstance(plan, Measured) and plan.counted else "measured"


def _span(told: dict[str, Any]) -> str:
    if told["low"] is None:
        return ""
    return f"{show_cell(told['low'])} to {show_cell(told['high'])}"


def _commonest(table: TableFile, name: str, most: int = 3) -> str:
    counts = (
        table.lazy.select(pl.col(name).cast(pl.String).alias("level"))
        .drop_nulls()
        .group_by("level")
        .len()
        .sort(["len", "level"], descending=[True, False])
        .limit(most)
        .collect(engine="streaming")
    )
    return ", ".join(f"{level} ({count})" for level, count in counts.rows())
