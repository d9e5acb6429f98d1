"""Tell rows apart: which are equal, which are copies, and an order that their content decides.

Samples and folds are drawn from that order, so that they do not depend on the order of a table's
rows or columns, nor on the units of its columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SAME = 1e-5  # copies differ by no more than float32 input or a few printed digits would change
DRAWN_UP = 0.5  # draws per row from which on one can tell, and a table is called drawn up
MOST_UNEQUAL = 1.5  # variance of its counts, relative to that of draws
GOLDEN = 0x9E3779B97F4A7C15
COMPARED_CELLS = 2**20  # cells of queries compared with reference rows at once


def order_rows(columns: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """Return a random order of the rows, given as float columns with NaN = missing.

    A row's place is decided by the ranks of its cells, which know no units, counted from the middle
    of their columns towards the longer tail.
    """
    keys = np.zeros(len(columns[0]), np.uint64)
    for values in columns:
        cells = _hash_ranks(values)
        keys += _mix(cells ^ cells.sum(dtype=np.uint64))  # the sum names the column
    return np.lexsort((hash_rows(columns), _mix(keys + np.uint64(seed))))


def order_columns(rows: np.ndarray) -> np.ndarray:
    """Return a random order of the columns of encoded rows that `order_rows` has put in order.

    A column's place is decided by the ranks of its cells; by their sum where ranks are the same.
    """
    place = _mix(np.arange(1, len(rows) + 1, dtype=np.uint64))
    keys = [_mix(_hash_ranks(values) ^ place).sum(dtype=np.uint64) for values in rows.T]
    return np.lexsort((np.nansum(rows, 0), np.array(keys)))


def _hash_ranks(values: np.ndarray) -> np.ndarray:
    """Return a number for each cell of a column that knows no units."""
    rank = np.where(np.isnan(values), GOLDEN % 2**62, _ranks_to_tail(values))
    return _mix(rank.astype(np.int64).view(np.uint64))


def _ranks_to_tail(values: np.ndarray) -> np.ndarray:
    """Return signed ranks, 0 in the middle; their distances from it where no tail is longer."""
    x = np.sort(values[~np.isnan(values)])
    rank = np.searchsorted(x, values) + np.searchsorted(x, values, side="right") - len(x)
    if len(x) == 0:
        return rank
    x = 0.25 * x  # differences of the largest doubles overflow
    low, middle, high = x[0], np.median(x), x[-1]
    lean = (high - middle) - (middle - low)
    return np.abs(rank) if abs(lean) <= 1e-9 * (high - low) else rank * int(np.sign(lean))


def hash_rows(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Hash rows, given as float columns, to 64 bits; NaN equals NaN."""
    keys = np.zeros(len(columns[0]), np.uint64)
    for j, values in enumerate(columns):
        bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # adding 0 makes -0 the same as 0
        bits = np.where(np.isnan(values), np.uint64(1), bits)
        keys += _mix(bits ^ np.uint64((j + 1) * GOLDEN % 2**64))
    return _mix(keys)


def _mix(x: np.ndarray) -> np.ndarray:
    """Scatter 64-bit numbers: a multiply-xorshift permutation (the finaliser of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def is_measured(distinct: np.ndarray) -> bool:
    """Tell whether some column of distinct rows is so fine that equal rows are no coincidence."""
    most = max(len(np.unique(column)) for column in distinct.T)
    return most > len(distinct) / 2


def is_drawn_up(count: np.ndarray) -> bool:
    """Tell from how often each distinct row occurs whether rows were drawn with replacement.

    Then counts are Poisson but for the zeros, of which nobody knows: their mean m = n / u is
    rate / (1 - exp(-rate)), their variance m (1 + rate - m). Rows that come again by themselves,
    defaults or round numbers, do so far more unequally.
    """
    mean = count.mean()
    rate = mean
    for _ in range(100):  # a contraction, fast but for rates that are too small anyway
        rate = mean * -np.expm1(-rate)
    return bool(rate >= DRAWN_UP and count.var() <= MOST_UNEQUAL * mean * (1 + rate - mean))


class Copies:
    """Find the reference row that a query equals, to within `SAME` robust scales per cell."""

    def __init__(self, rows: np.ndarray):
        """Index distinct rows (u, width) by a random projection: copies project to one place."""
        flat = _flatten(rows)
        self.direction = np.random.default_rng(0).standard_normal(rows.shape[1])
        key = flat @ self.direction
        self.order = np.argsort(key, kind="stable")
        self.key, self.rows = key[self.order], flat[self.order]
        self.reach = SAME * np.abs(self.direction).sum() + 1e-9

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return for each row (m, width) the number of its nearest copy, or -1."""
        step = max(1, COMPARED_CELLS // max(1, rows.shape[1]))
        parts = [self._find(rows[i : i + step]) for i in range(0, len(rows), step)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _find(self, rows: np.ndarray) -> np.ndarray:
        flat = _flatten(rows)
        key = flat @ self.direction
        place = np.searchsorted(self.key, key - self.reach)
        end = np.searchsorted(self.key, key + self.reach, side="right")
        match, nearest = np.full(len(rows), -1), np.full(len(rows), SAME)
        open_ = np.flatnonzero(place < end)
        while len(open_):  # all queries look at their next candidate at once
            gap = np.abs(flat[open_] - self.rows[place[open_]]).max(1)
            closer = gap < nearest[open_]
            found = open_[closer]
            match[found], nearest[found] = self.order[place[found]], gap[closer]
            place[open_] += 1
            open_ = open_[place[open_] < end[open_]]
        return match


def _flatten(rows: np.ndarray) -> np.ndarray:
    """Bend the tails, where float32 is coarser, and make missing cells comparable."""
    return np.nan_to_num(np.arcsinh(rows.astype(np.float64)), nan=-100.0)
