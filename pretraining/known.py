"""Tell whether a table is one of a benchmark's, or was made from one.

A whole column betrays itself by how often its values occur, in whatever units. A sample of rows
does not: there, columns are compared by their values and quantiles. One column may agree by chance,
as percentages or angles do; a third of them do not. Some benchmarks left out rows of some classes,
so that quantiles differ: there nearly all values of the known table must be in the other one. Of a
table that is itself known by a sample of its rows alone, other rows are found only where columns
have few values.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

COLUMNS, ROWS = 100, 20_000  # of a known table that are looked at
FINE = 30  # different values that a column must have to be compared
QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
NEAR = 0.12  # how far quantiles may differ, in units of the range of the quantiles
SHARED = 0.8  # share of a column's values that the other must have
PART, PART_NEAR = 0.95, 0.4  # the same, for known columns that are parts of others
ALIKE, LEAST_ALIKE = 1 / 3, 3  # columns of a table that agree with another's, and at least so many

Column = tuple[np.ndarray, np.ndarray]  # different values, quantiles


class Known:
    """The tables of benchmarks."""

    def __init__(self, paths: list[Path]):
        """Take folders of npz files with a table X each, or packs (npz with NAME/context)."""
        self.signatures: set[str] = set()
        self.tables: list[list[Column]] = []
        for rows in (table for path in paths for table in _tables(path)):
            columns = rows.astype(float).T[:COLUMNS]
            self.signatures.update(name for column in columns for name in _telling(column)[:1])
            self.tables.append([c for column in columns if (c := _described(column))])

    def has(self, table: Mapping[str, np.ndarray]) -> bool:
        """Tell whether a table is known, given its numbers by column."""
        if any(self.signatures & set(_telling(column)) for column in table.values()):
            return True
        columns = [c for column in table.values() if (c := _described(column))]
        least = max(LEAST_ALIKE, ALIKE * len(columns))
        return any(
            sum(any(_is_alike(column, other) for other in known) for column in columns) >= least
            for known in self.tables
        )


def signatures(cells: np.ndarray) -> list[str]:
    """Return names for a column that do not depend on its units, for its sign and the other."""
    _, counts = np.unique(cells[np.isfinite(cells)], return_counts=True)
    if len(counts) < 20:
        return []
    return [hashlib.sha256(c.tobytes()).hexdigest() for c in (counts, counts[::-1])]


def _telling(cells: np.ndarray) -> list[str]:
    """Return the signatures of a column; none if all values differ, as only their number tells."""
    return signatures(cells) if len(np.unique(cells)) < len(cells) else []


def _tables(path: Path) -> Iterator[np.ndarray]:
    for part in sorted(path.glob("*.npz")) if path.is_dir() else [path]:
        with np.load(part) as file:
            for name in file.files:
                if name == "X" or name.endswith("/context"):
                    rows = file[name]
                    draw = np.random.default_rng(0)
                    yield rows if len(rows) <= ROWS else rows[draw.permutation(len(rows))[:ROWS]]


def _described(cells: np.ndarray) -> Column | None:
    cells = cells[np.isfinite(cells)]
    values = np.unique(cells)
    return (values, np.quantile(cells, QUANTILES)) if len(values) >= FINE else None


def _is_alike(column: Column, known: Column) -> bool:
    (values, quantiles), (others, known_quantiles) = column, known
    span = known_quantiles[-1] - known_quantiles[0]
    if span <= 0:
        return False
    gap = np.abs(quantiles - known_quantiles).max() / span
    is_sample = gap <= NEAR and _share_found(values, others) > SHARED
    return is_sample or (gap <= PART_NEAR and _share_found(others, values) > PART)


def _share_found(values: np.ndarray, others: np.ndarray) -> float:
    """Return the share of values that are among the others (in order)."""
    size = 1e-5 * np.abs(values)  # tables are stored with 16 significant bits
    place = np.searchsorted(others, values - size).clip(max=len(others) - 1)
    return float((np.abs(others[place] - values) <= size).mean())
