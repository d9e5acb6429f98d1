"""Rank the rows of a table by how unusual they are, and say which columns make them so."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tabiced._extras import extra
from tabiced.calibration import p_values, threshold
from tabiced.estimator import ICED
from tabiced.explanation import UNUSUAL, explain_cells, sentence, show_cell
from tabiced.files import TableFile

with extra("cli"):
    import polars as pl
    from rich.table import Table
    from rich.text import Text

REFERENCE_ROWS = 100_000  # of a longer reference table so many rows, a random sample, are loaded


@dataclass(frozen=True)
class Unusual:
    """One row with its judgement; columns are in the order of surprise, the largest first."""

    row: int  # counted from 0, below the header
    energy: float
    p_value: float
    cells: dict[str, Any]  # in the table's order
    surprise: dict[str, float]
    cell_p_values: dict[str, float]

    def guilty(self) -> list[str]:
        """Name the columns that make the row unusual, the most surprising first."""
        return [name for name, p in self.cell_p_values.items() if p <= UNUSUAL]

    def reasons(self, most: int = 3) -> list[str]:
        """Name the most surprising cells, shortly."""
        return [f"{name} {show_cell(self.cells[name])}" for name in self.guilty()[:most]]

    def sentences(self, most: int = 3) -> list[str]:
        """Tell in words what makes the row unusual."""
        return [
            sentence(name, self.cells[name], self.cell_p_values[name])
            for name in self.guilty()[:most]
        ]

    def facts(self) -> dict[str, Any]:
        """Return everything that is known, for machines."""
        return {**asdict(self), "reasons": self.sentences()}


class Ranking:
    """The rows of a table judged by a reference table, or each by the others."""

    def __init__(
        self,
        table: TableFile,
        reference: TableFile | None = None,
        *,
        ignore: Collection[str] = (),
        weights: Path | None = None,
        context_rows: int = 8000,
        report: Callable[[int], object] = lambda rows: None,
    ):
        """Read the reference, then score the table batch by batch; `report` how many are done."""
        self.table, self.by_itself = table, reference is None
        self.ignore = [name for name in table.columns if name in ignore]
        known = (reference or table).sample(REFERENCE_ROWS).drop(ignore, strict=False)
        self.model = ICED(weights=weights, max_context_rows=context_rows).fit(known)
        self.calibration = self.model._calibration(own=self.by_itself)
        parts, done = [], 0
        for batch in table.batches():
            with _rows_counted_from(done):
                parts.append(self.model._score(batch.drop(self.ignore), own=self.by_itself))
            done += batch.height
            report(done)
        self.energy = np.concatenate(parts)  # (n,)
        self.p_value = p_values(self.energy, self.calibration)  # (n,)

    def threshold(self, rate: float) -> float:
        """Return the energy below which p <= rate."""
        return threshold(self.calibration, rate)

    def top(self, count: int) -> np.ndarray:
        """Return the numbers of the most unusual rows, the most unusual first."""
        return np.argsort(self.energy, kind="stable")[:count]

    def rows(self, numbers: Sequence[int] | np.ndarray) -> list[Unusual]:
        """Describe some rows, with the surprise of each of their cells."""
        whole = self.table.rows(numbers)
        chosen = whole.drop(self.ignore)
        found = explain_cells(self.model, chosen, own=self.by_itself)
        described = []
        for i, row in enumerate(numbers):
            order = np.argsort(-found.surprise[i], kind="stable")
            described.append(
                Unusual(
                    row=int(row),
                    energy=float(self.energy[row]),
                    p_value=float(self.p_value[row]),
                    cells=whole.row(i, named=True),
                    surprise={chosen.columns[j]: float(found.surprise[i, j]) for j in order},
                    cell_p_values={chosen.columns[j]: float(found.p_value[i, j]) for j in order},
                )
            )
        return described

    def save(self, path: Path) -> None:
        """Write the table with the energy and the p-value of each row."""
        self.table.save_with(pl.DataFrame({"energy": self.energy, "p_value": self.p_value}), path)

    def surprises(self, rows: Sequence[Unusual]) -> pl.DataFrame:
        """Lay out the surprise of each cell: one line per row, columns in the table's order."""
        columns = [name for name in self.table.columns if name not in self.ignore]
        number = "row" if "row" not in columns else "row_number"
        return pl.DataFrame(
            [{number: row.row} | {name: row.surprise[name] for name in columns} for row in rows]
        )


@contextmanager
def _rows_counted_from(start: int) -> Iterator[None]:
    """Say where the rows of a batch begin, in every message about them."""
    if start == 0:
        yield
        return
    where = f"Counting rows from row {start}: "
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except (ValueError, TypeError) as error:
            raise type(error)(f"{where}{error}") from error
    for note in caught:
        warnings.warn(f"{where}{note.message}", note.category, stacklevel=3)


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
    longest = max(abs(surprise) for surprise in row.surprise.values()) or 1.0
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.title = f"row {row.row}: p-value {row.p_value:.3g}, energy {row.energy:.2f}"
    table.add_column("column")
    table.add_column("value", overflow="fold")
    table.add_column("surprise", justify="right")
    table.add_column("p-value", justify="right")
    table.add_column("")
    for name, surprise in row.surprise.items():
        p = row.cell_p_values[name]
        table.add_row(
            Text(name),
            Text(show_cell(row.cells[name])),
            f"{surprise:+.2f}",
            f"{p:.3g}",
            "█" * round(width * max(surprise, 0.0) / longest),
            style="" if p <= UNUSUAL else "dim",
        )
    return table
