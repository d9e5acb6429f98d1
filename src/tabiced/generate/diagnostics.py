"""Tell how chains went, and whether new rows merely copy the rows they were learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK = 2**22  # distances held at once


@dataclass(frozen=True)
class Diagnostics:
    """What to look at before new rows are used or given away.

    Distances are Euclidean in encoded columns (numbers in robust scales of the context, bent beyond
    five of them, levels 0 or 1), per square root of a column. If `nearest` is much smaller than
    `nearest_in_context`, the new rows are close to copies.
    """

    acceptance_rate: float  # share of proposals accepted, in the second half of the chains
    log_density: np.ndarray  # (steps + 1,) of what the chains follow, unnormalised, mean
    nearest: np.ndarray  # (m,) from each new row to its nearest context row
    nearest_in_context: np.ndarray  # (n,) from each context row to its nearest other one

    @property
    def copies(self) -> float:
        """Return the share of new rows that equal a context row."""
        return float((self.nearest < 1e-6).mean())

    @property
    def closer_than_context(self) -> float:
        """Return how often a new row is nearer to the context than context rows are to each other.

        The probability for a random pair, ties half: 0.5 for rows like the context's own, 1 for
        copies.
        """
        ordered = np.sort(self.nearest_in_context)
        below = np.searchsorted(ordered, self.nearest)
        up_to = np.searchsorted(ordered, self.nearest, side="right")
        return float(1 - (below + up_to).mean() / (2 * len(ordered)))

    def __str__(self) -> str:
        return (
            f"accepted {self.acceptance_rate:.0%} of the proposals; mean log-density "
            f"{self.log_density[0]:.2f} at the start, {self.log_density[-1]:.2f} at the end; "
            f"distance to the nearest reference row {np.median(self.nearest):.3g} (median), "
            f"{np.median(self.nearest_in_context):.3g} among reference rows; "
            f"{self.copies:.1%} copies"
        )


def nearest_distances(rows: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
    """Return each row's distance to its nearest context row; without context, to another row."""
    x = _bent(rows)
    y = x if context is None else _bent(context)
    out = np.zeros(len(x))
    step = max(1, CHUNK // len(y))
    for start in range(0, len(x), step):
        part = x[start : start + step]
        squared = (part**2).sum(1)[:, None] + (y**2).sum(1) - 2 * part @ y.T
        if context is None:
            squared[np.arange(len(part)), np.arange(start, start + len(part))] = np.inf
        out[start : start + step] = np.sqrt(np.maximum(squared.min(1), 0.0))
    # Differences of large squares leave a trace of rounding where rows are equal.
    return np.where(out < 1e-6, 0.0, out) / np.sqrt(max(1, x.shape[1]))


def _bent(rows: np.ndarray) -> np.ndarray:
    """Return rows in float64, bent beyond five scales, missing cells far from all others."""
    x = rows.astype(np.float64)
    size = np.abs(x)
    bent = np.sign(x) * np.where(size > 5, 5 + np.log1p(np.maximum(size - 5, 0.0)), size)
    return np.nan_to_num(bent, nan=-10.0)
