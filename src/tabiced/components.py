"""Columns on one scale, and principal components, in which correlated columns come apart."""

from __future__ import annotations

import numpy as np

BEND = 3.0  # standard deviations beyond which cells count less and less
LEAST = 1e-8  # share of the largest variance below which a component is rounding error


class Bent:
    """Standardises columns as reference rows have them, and bends the tails."""

    def __init__(self, rows: np.ndarray):
        """Take encoded reference rows (n, width), NaN = missing."""
        known = ~np.isnan(rows)
        cells = np.where(known, rows, 0).astype(np.float64)
        count = np.maximum(1, known.sum(0))
        self.mean = cells.sum(0) / count
        spread = np.sqrt((np.square(cells - self.mean) * known).sum(0) / count)
        self.scale = np.where(spread > 0, spread, 1)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the cells of rows (m, width); a missing one counts as the mean."""
        z = (rows - self.mean) / self.scale
        return np.nan_to_num(np.arcsinh(z / BEND) * BEND)


class Components:
    """A rotation of standardised columns, learned from reference rows."""

    def __init__(self, rows: np.ndarray):
        """Take encoded reference rows (n, width), NaN = missing."""
        self.bent = Bent(rows)
        bent = self.bent(rows)
        centred = bent - bent.mean(0)
        variances, vectors = np.linalg.eigh(centred.T @ centred)
        self.vectors = vectors[:, variances > LEAST * variances[-1]]

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the coordinates of rows (m, width)."""
        # Rounded: the last digits of a product depend on how many rows come along.
        return (self.bent(rows) @ self.vectors).astype(np.float32)
