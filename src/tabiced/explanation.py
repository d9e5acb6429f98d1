"""Say which cells make a row unusual: the surprise of each cell given the rest of its row.

The surprise of a cell is the energy that its row gains when the cell is hidden:

    surprise_j(x) = energy(x with cell j missing) - energy(x)

The network learned to answer a row with a missing cell by the mean over what the complete row could
be, so the surprise estimates -log p(x_j | rest) minus its own mean. All surprises of a table are
energies and can be ranked. How common they are differs between columns; that is told by a p-value,
the share of reference rows with a surprise as large in the same column.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tabiced.calibration import p_values
from tabiced.reference import Reference
from tabiced.table import Table, read_table

if TYPE_CHECKING:
    from tabiced.estimator import ICED

CALIBRATION_ROWS = 256  # reference rows whose surprises those of other rows are compared with
UNUSUAL = 0.05  # largest p-value of a cell that is named as a reason


@dataclass(frozen=True)
class Explanation:
    """What each cell of some rows contributes.

    Cells that carry no information, missing ones and those that equal the constant of their column,
    have surprise 0 and p-value 1.
    """

    surprise: np.ndarray  # (m, d), in energy
    p_value: np.ndarray  # (m, d)
    names: tuple[str, ...]

    def reasons(self, row: int) -> list[int]:
        """Return the columns that make a row unusual, the most surprising first."""
        order = np.argsort(-self.surprise[row], kind="stable")
        return [int(j) for j in order if self.p_value[row, j] <= UNUSUAL]


def explain_cells(model: ICED, X: Any, own: bool = False) -> Explanation:
    """Return the surprise of each cell and its p-value; `own` if X are reference rows."""
    check_is_fitted(model)
    table, reference, blocks = read_table(X), model.reference_, model.plan_.blocks

    def judge(part: Table) -> np.ndarray:  # (m, 2d)
        if reference is None:
            return np.repeat([0.0, 1.0], len(blocks))[None].repeat(part.rows, 0)
        rows, strange = model.plan_.encode(part), model.plan_.strange_cells(part)
        surprise = _surprise(reference, rows, blocks, own, strange)
        p = _p_values(surprise, _usual_surprise(reference, blocks))
        return np.concatenate([np.nan_to_num(surprise, nan=0.0), p], 1)

    surprise, p = np.split(model._stream_tables(table, judge), 2, axis=1)
    order = _places(model, table)
    return Explanation(surprise[:, order], p[:, order], _names(table))


def explain_rows(model: ICED, X: Any, *, pairs: bool = False) -> Any:
    """Return how much each cell makes its row unusual, as a table of the kind of X.

    Positive: without the cell the row would look more typical. Missing cells are 0, and so are
    those of a constant column, unless they differ from its constant.

    With `pairs`, one column per pair of columns, named "first & second", tells how far two cells
    contradict each other:

        surprise_j + surprise_k - surprise_jk

    Positive where hiding either cell helps, but hiding both does not help twice; about 0 where
    they have nothing to do with each other.
    """
    check_is_fitted(model)
    table, reference, blocks = read_table(X), model.reference_, model.plan_.blocks
    order = _places(model, table)
    places = list(combinations(order, 2))
    if pairs and not places:
        raise ValueError("pairs=True needs a table of at least two columns.")

    def single(part: Table) -> np.ndarray:  # (m, d)
        if reference is None:
            return np.zeros((part.rows, len(blocks)))
        rows, strange = model.plan_.encode(part), model.plan_.strange_cells(part)
        return np.nan_to_num(_surprise(reference, rows, blocks, strange=strange), nan=0.0)

    def paired(part: Table) -> np.ndarray:  # (m, pairs)
        if reference is None:
            return np.zeros((part.rows, len(places)))
        alone, strange = single(part), model.plan_.strange_cells(part)
        joined = [np.concatenate([blocks[j], blocks[k]]) for j, k in places]
        hides = np.stack([strange[:, list(pair)].sum(1) for pair in places], 1)
        both = reference.explain(
            model.plan_.encode(part), joined, strange=strange.sum(1, dtype=float), hides=hides
        )
        return np.stack([alone[:, j] + alone[:, k] for j, k in places], 1) - both

    if not pairs:
        return table.like(model._stream_tables(table, single)[:, order])
    names = [f"{a} & {b}" for a, b in combinations(_names(table), 2)]
    return _like(table, model._stream_tables(table, paired), names)


def explain_p_values(model: ICED, X: Any) -> Any:
    """Return for each cell the share of reference rows as surprising there, like X."""
    return read_table(X).like(explain_cells(model, X).p_value)


def explain_in_words(model: ICED, X: Any, *, most: int = 3) -> list[list[str]]:
    """Return for each row up to `most` sentences, the most surprising cell first.

    A row without a single surprising cell has none: such rows are unusual as a whole, or not.
    """
    found = explain_cells(model, X)
    rows = _cells(X)
    return [
        [
            sentence(found.names[j], rows[i][j], float(found.p_value[i, j]))
            for j in found.reasons(i)[:most]
        ]
        for i in range(len(rows))
    ]


def sentence(name: str, cell: Any, p: float) -> str:
    """Tell in words how unusual a cell is.

    >>> sentence("hours_per_week", 99, 0.0039)
    '`hours_per_week` = 99 is in the most unusual 0.4 % given the rest of the row'
    """
    share = f"{max(100 * p, 0.1):.1f}".removesuffix(".0")
    return (
        f"`{name}` = {show_cell(cell)} is in the most unusual {share} % given the rest of the row"
    )


def show_cell(cell: Any) -> str:
    """Return a cell as people read it.

    >>> show_cell(0.1 + 0.2), show_cell(None), show_cell(float("nan")), show_cell("a")
    ('0.3', 'missing', 'missing', 'a')
    """
    if cell is None or cell != cell:
        return "missing"
    return f"{cell:.6g}" if isinstance(cell, float | np.floating) else str(cell)


def _surprise(
    reference: Reference,
    rows: np.ndarray,
    blocks: list[np.ndarray],
    own: bool = False,
    strange: np.ndarray | None = None,
) -> np.ndarray:
    """Return what hiding each cell gains (m, d), NaN where there is nothing to hide.

    `strange` (m, d) are the cells that differ from the constant of their column.
    """
    strange = np.zeros((len(rows), len(blocks))) if strange is None else strange
    surprise = reference.explain(rows, blocks, own, strange.sum(1, dtype=float), strange)
    for j, block in enumerate(blocks):
        if len(block):
            surprise[np.isnan(rows[:, block]).all(1), j] = np.nan
    return surprise


def _usual_surprise(reference: Reference, blocks: list[np.ndarray]) -> np.ndarray:
    """Return the surprises (r, d) of some reference rows, judged from outside; kept once known.

    The rows of a reference are in random order and its folds are sections of that order: the first
    rows are a random sample that needs few folds.
    """
    if reference.usual_surprise is None:
        some = reference.matrix[:CALIBRATION_ROWS]
        reference.usual_surprise = _surprise(reference, some, blocks)
    return reference.usual_surprise


def _p_values(surprise: np.ndarray, usual: np.ndarray) -> np.ndarray:
    p = np.ones_like(surprise)
    for j, column in enumerate(usual.T):
        there = ~np.isnan(surprise[:, j])
        p[there, j] = p_values(-surprise[there, j], -column[~np.isnan(column)])
    return p


def _places(model: ICED, table: Table) -> list[int]:
    """Return for each column of the table its place among the reference's columns."""
    if table.names is None or model.plan_.names is None:
        return list(range(len(table.columns)))
    return [model.plan_.names.index(name) for name in table.names]


def _names(table: Table) -> tuple[str, ...]:
    return table.names or tuple(f"column {j}" for j in range(len(table.columns)))


def _cells(X: Any) -> list[tuple[Any, ...]]:
    """Return the cells of a table row by row, as they came."""
    frame = read_table(X).frame
    if frame is not None:
        return frame.rows()
    return [tuple(row) for row in (X.tolist() if hasattr(X, "tolist") else X)]


def _like(table: Table, values: np.ndarray, names: list[str]) -> Any:
    """Return numbers as a table of the kind and index of this one, with other columns."""
    if table.frame is None:
        return values
    import narwhals as nw

    data = {name: values[:, j] for j, name in enumerate(names)}
    made = nw.from_dict(data, backend=table.frame.implementation).to_native()
    index = nw.maybe_get_index(table.frame)
    if index is not None:
        made.index = index
    return made
