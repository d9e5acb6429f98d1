"""Encoded rows as the state of a chain: latent numbers, levels, and which cells are missing.

Measured columns move as numbers. A column of whole numbers (or days) moves as a number too, and the
network is shown the nearest point of its grid: each grid point has the mass of its cell. Counted
columns, and numbers with few different values, move among the levels that the context has. Which
cells are missing never changes along a chain: missing cells are as frequent, and as often missing
together, as in the rows the chains start from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tabiced.columns import Measured, Plan

FEW_VALUES = 20  # a measured column of at most so many different values moves among them ...
ROWS_PER_VALUE = 5  # ... if the context has on average so many rows for each
MARGIN = 0.5  # of the context's range, which measured columns may leave by so much
DAY = 86_400.0


@dataclass
class State:
    """Chains (m,): one row each."""

    numbers: np.ndarray  # (m, measured columns) float64, encoded units, a value for missing cells
    levels: np.ndarray  # (m, counted columns) int, some level for missing cells
    no_number: np.ndarray  # (m, measured columns) bool: missing
    no_level: np.ndarray  # (m, counted columns) bool: missing

    def take(self, rows: np.ndarray) -> State:
        """Return some of the chains."""
        return State(
            *(part[rows] for part in (self.numbers, self.levels, self.no_number, self.no_level))
        )

    def moved_to(self, other: State, where: np.ndarray) -> State:
        """Return the state with the chains of the mask replaced by those of another state."""
        return State(
            np.where(where[:, None], other.numbers, self.numbers),
            np.where(where[:, None], other.levels, self.levels),
            self.no_number,
            self.no_level,
        )


@dataclass(frozen=True)
class Grid:
    """Points origin + k * spacing, in encoded units."""

    origin: float
    spacing: float

    def snap(self, z: np.ndarray) -> np.ndarray:
        return self.origin + np.round((z - self.origin) / self.spacing) * self.spacing


class Layout:
    """How rows of a matrix (n, width), NaN = missing, become the state of chains and back."""

    def __init__(
        self, matrix: np.ndarray, blocks: list[list[int]], grids: dict[int, Grid] | None = None
    ):
        """Learn the levels from context rows.

        `blocks` are the groups of matrix columns that hold levels; all other columns hold numbers,
        those in `grids` on a grid.
        """
        self.width = matrix.shape[1]
        self.blocks = [np.array(block) for block in blocks]
        counted = {column for block in blocks for column in block}
        self.measured = np.array([j for j in range(self.width) if j not in counted], np.int64)
        self.grids = {
            i: (grids or {})[j] for i, j in enumerate(self.measured) if j in (grids or {})
        }
        self.tables = [_levels(matrix[:, block]) for block in self.blocks]
        self.context = self.state_of(matrix)
        seen = [
            self.context.levels[~self.context.no_level[:, k], k] for k in range(len(self.blocks))
        ]
        self.shares = [
            np.bincount(level, minlength=len(table)) / len(level)
            for level, table in zip(seen, self.tables, strict=True)
        ]

    @cached_property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and greatest numbers a chain may visit."""
        known = np.where(self.context.no_number, np.nan, self.context.numbers)
        low, high = np.nanmin(known, 0, initial=np.inf), np.nanmax(known, 0, initial=-np.inf)
        reach = MARGIN * (high - low)
        return low - reach, high + reach

    def state_of(self, rows: np.ndarray) -> State:
        """Return rows (m, width) as a state; missing numbers become 0 for now."""
        numbers = rows[:, self.measured].astype(np.float64)
        levels = np.zeros((len(rows), len(self.blocks)), np.int64)
        no_level = np.zeros(levels.shape, bool)
        for k, (block, table) in enumerate(zip(self.blocks, self.tables, strict=True)):
            part = rows[:, block]
            no_level[:, k] = np.isnan(part).any(1)
            gap = np.abs(part[:, None] - table[None]).max(2)  # m levels
            levels[:, k] = np.where(no_level[:, k], 0, np.nan_to_num(gap, nan=np.inf).argmin(1))
        return State(np.nan_to_num(numbers), levels, np.isnan(numbers), no_level)

    def rows_of(self, state: State) -> np.ndarray:
        """Return a state as rows (m, width) for the network."""
        rows = np.empty((len(state.numbers), self.width), np.float32)
        numbers = self.snapped(state.numbers)
        rows[:, self.measured] = np.where(state.no_number, np.nan, numbers)
        for k, (block, table) in enumerate(zip(self.blocks, self.tables, strict=True)):
            cells = table[state.levels[:, k]]
            rows[:, block] = np.where(state.no_level[:, k : k + 1], np.nan, cells)
        return rows

    def snapped(self, numbers: np.ndarray) -> np.ndarray:
        """Bring the columns with a grid onto it."""
        out = numbers.copy()
        for i, grid in self.grids.items():
            out[:, i] = grid.snap(out[:, i])
        return out

    def loosened(self, state: State, generator: np.random.Generator) -> State:
        """Move each number of a grid to a random place in its cell, and draw the missing ones."""
        hidden = generator.standard_normal(state.numbers.shape)
        numbers = np.where(state.no_number, hidden, state.numbers)
        for i, grid in self.grids.items():
            inside = generator.uniform(-0.5, 0.5, len(numbers))
            numbers[:, i] += np.where(state.no_number[:, i], 0.0, grid.spacing * inside)
        return State(numbers, state.levels, state.no_number, state.no_level)

    def inside(self, state: State) -> np.ndarray:
        """Tell which chains are inside the box, in the columns that are not missing."""
        low, high = self.box
        within = (state.numbers >= low) & (state.numbers <= high)
        return (within | state.no_number).all(1)

    def latent_log_density(self, state: State) -> np.ndarray:
        """Return the log-density of the values that missing numbers hide: standard normal.

        They are never seen; that they have a law keeps all chains in one space.
        """
        square = np.where(state.no_number, state.numbers**2 + np.log(2 * np.pi), 0.0)
        return -0.5 * square.sum(1)


def _levels(part: np.ndarray) -> np.ndarray:
    """Return the different rows without missing cells."""
    known = part[~np.isnan(part).any(1)]
    return np.unique(known, axis=0) if len(known) else np.zeros((1, part.shape[1]), np.float32)


def layout_of(plan: Plan, matrix: np.ndarray) -> Layout:
    """Return the layout of reference rows that a plan has encoded."""
    blocks: list[list[int]] = []
    grids: dict[int, Grid] = {}
    for column, places in zip(plan.columns, plan.blocks, strict=True):
        if not column.width:
            continue
        if not isinstance(column, Measured) or column.counted:
            blocks.append(places.tolist())
            continue
        known = matrix[:, places[0]]
        known = known[~np.isnan(known)].astype(np.float64)
        different = len(np.unique(known))
        if different <= FEW_VALUES and len(known) >= ROWS_PER_VALUE * different:
            blocks.append(places.tolist())
            continue
        step = step_of(column, known)
        if step:
            unit = np.ldexp(1.0, column.power)
            grids[int(places[0])] = Grid(-column.centre / column.scale, step * unit / column.scale)
    return Layout(matrix, blocks, grids)


def step_of(column: Measured, z: np.ndarray) -> float:
    """Return the spacing of the values behind encoded ones: 1 for whole numbers, a day, or 0."""
    values = np.ldexp(z * column.scale + column.centre, -column.power)
    # float32 keeps about seven digits of z; coarser values cannot be told from whole ones.
    error = 4e-7 * np.abs(z).max(initial=1.0) * np.ldexp(column.scale, -column.power)
    for step in (DAY, 1.0) if column.kind == "time" else (1.0,):
        off = np.abs(values - np.round(values / step) * step).max(initial=0.0)
        if error < 0.05 * step and off <= 2 * error + 1e-9:
            return step
    return 0.0
