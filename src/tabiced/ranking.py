"""Rank the rows of a table by how unusual they are, and say which columns make them so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tabiced._extras import extra
from tabiced.calibration import p_values
from tabiced.estimator import ICED

with extra("cli"):
    import polars as pl
    from rich.table import Table
    from rich.text import Text

# A cell is a reason if knowing it costs its row this much energy, and not little beside the others.
LEAST_REASON = 0.1
LEAST_SHARE = 0.25  # of the strongest reason


@dataclass(frozen=True)
class Unusual:
    """One row with its judgement."""

    row: int  # counted from 0, below the header
    energy: float
    p_value: float
    cells: dict[str, Any]
    # Energy gained by not knowing the cell, the most surprising column first.
    surprise: dict[str, float]

    def reasons(self, most: int = 3) -> list[str]:
        """Name the cells without which the row would look more typical, the strongest first."""
        least = max(LEAST_REASON, LEAST_SHARE * max(self.surprise.values()))
        named = [name for name, gain in self.surprise.items() if gain >= least][:most]
        return [f"{name} {_show(self.cells[name])}" for name in named]


class Ranking:
    """The rows of a table judged by a reference table, or each by the others."""

    def __init__(
        self,
        frame: pl.DataFrame,
        reference: pl.DataFrame | None = None,
        weights: Path | None = None,
    ):
        self.frame = frame
        self.model = ICED(weights=weights).fit(frame if reference is None else reference)
        self.energy = self.model.score_samples(frame)  # (n,)
        self.p_value = p_values(self.energy, self.model._calibration())  # (n,)

    def top(self, count: int) -> np.ndarray:
        """Return the numbers of the most unusual rows, the most unusual first."""
        return np.argsort(self.energy, kind="stable")[:count]

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[Unusual]:
        """Describe some rows, with the surprise of each of their cells."""
        chosen = self.frame[np.asarray(numbers, dtype=np.int64)]
        surprise = self.model.explain(chosen).to_numpy()  # (rows, columns)
        described = []
        for i, row in enumerate(numbers):
            order = np.argsort(-surprise[i], kind="stable")
            described.append(
                Unusual(
                    row=int(row),
                    energy=float(self.energy[row]),
                    p_value=float(self.p_value[row]),
                    cells=chosen.row(i, named=True),
                    surprise={chosen.columns[j]: float(surprise[i, j]) for j in order},
                )
            )
        return described

    def with_scores(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the energy and the p-value of each row to a table of the same rows."""
        return frame.with_columns(
            pl.Series("energy", self.energy), pl.Series("p_value", self.p_value)
        )

    def surprises(self, rows: Sequence[Unusual]) -> pl.DataFrame:
        """Lay out the surprise of each cell: one line per row, columns in the table's order."""
        columns = self.frame.columns
        number = "row" if "row" not in columns else "row_number"
        return pl.DataFrame(
            [{number: row.row} | {name: row.surprise[name] for name in columns} for row in rows]
        )


def show_ranking(rows: Sequence[Unusual]) -> Table:
    """Lay out the most unusual rows, one line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("row", "p-value", "energy"):
        table.add_column(name, justify="right")
    table.add_column("unusual because of", overflow="fold")
    for row in rows:
        reasons = ", ".join(row.reasons()) or "no single column"
        table.add_row(str(row.row), f"{row.p_value:.3g}", f"{row.energy:.2f}", Text(reasons))
    return table


def show_explanation(row: Unusual, width: int = 24) -> Table:
    """Lay out all cells of one row, the most surprising first, with bars."""
    longest = max(abs(gain) for gain in row.surprise.values()) or 1.0
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.title = f"row {row.row}: p-value {row.p_value:.3g}, energy {row.energy:.2f}"
    table.add_column("column")
    table.add_column("value", overflow="fold")
    table.add_column("surprise", justify="right")
    table.add_column("")
    for name, gain in row.surprise.items():
        bar = "█" * round(width * max(gain, 0.0) / longest)
        table.add_row(
            Text(name),
            Text(_show(row.cells[name])),
            f"{gain:+.2f}",
            bar,
            style="" if gain >= LEAST_REASON else "dim",
        )
    return table


def _show(cell: Any) -> str:
    if cell is None or cell != cell:
        return "missing"
    return f"{cell:g}" if isinstance(cell, float) else str(cell)
