"""How far out in their columns the cells of a row lie.

Density alone also calls rows unusual that fall between the others, while what people call anomalies
more often lies at the ends of columns.
"""

from __future__ import annotations

import numpy as np

from tabiced.scoring import EnergyScale

EXPECTED = 2.0  # mean square of log(2 min(u, 1 - u)), u uniform: what a missing cell counts as


class Tails:
    """Length of the vector of the cells' log tail probabilities, on the scale of energies.

        -sqrt(sum_j t_j^2),    t_j = log(2 min(P(X_j <= x_j), P(X_j >= x_j), 1/2))

    with probabilities counted among the reference rows; higher = further inside. A square lets a
    single cell far out count for more than several that lie a little out.
    """

    def __init__(self, rows: np.ndarray):
        """Take encoded reference rows (n, width), NaN = missing."""
        self.rows = len(rows)
        self.columns = [np.sort(column[~np.isnan(column)]) for column in rows.T]
        self.scale = EnergyScale(self._depth(rows, np.array(True)))

    def __call__(
        self, rows: np.ndarray, own: np.ndarray, strange: np.ndarray | float = 0.0
    ) -> np.ndarray:
        """Return a number for each row (m, width).

        Rows that are `own` (m,), reference rows themselves, are left out of the counts. A row has
        `strange` (m,) further cells with a value that none of the reference rows has.
        """
        if self.scale.is_flat:
            return np.zeros(len(rows)) - strange
        return self.scale(self._depth(rows, own, strange))

    def _depth(
        self, rows: np.ndarray, own: np.ndarray, strange: np.ndarray | float = 0.0
    ) -> np.ndarray:
        total, own = strange * np.log(self.rows + 1) ** 2 + np.zeros(len(rows)), own.astype(int)
        for known, x in zip(self.columns, rows.T, strict=True):
            n = np.maximum(0, len(known) - own)
            below = np.searchsorted(known, x, side="right") - own
            above = len(known) - np.searchsorted(known, x, side="left") - own
            # A copy may differ in the last digit and so be outside of all, itself included.
            share = (np.minimum(below, above).clip(0) + 0.5) / (n + 1)
            tail = np.log(2 * np.minimum(share, 0.5))
            total += np.where(np.isnan(x), EXPECTED, np.square(tail))
        return -np.sqrt(total)
