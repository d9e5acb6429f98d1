"""How far the nearest reference rows are from a row.

A tenth of them, and not the nearest few: outliers that came together into the reference are near to
each other, but seldom so many.
"""

from __future__ import annotations

import numpy as np
import torch

from tabiced.components import Bent
from tabiced.scoring import EnergyScale

KNOWN = 1024  # reference rows that distances are measured to
NEAREST = 0.1  # share of these that counts
FEWEST = 5
FLOOR = 1e-6  # added to distances: copies are at 0
SCALE_ROWS = 256  # reference rows that the scale is taken from
CHUNK = 512  # rows measured at once


class Distances:
    """Minus the mean log distance to the nearest tenth of the reference, on the scale of energies.

    City-block distances of standardised, bent columns; higher = nearer to others. The mean of logs,
    so that the nearest of the tenth count for more.
    """

    def __init__(self, rows: np.ndarray):
        """Take encoded reference rows (n, width) in an order of `order_rows`."""
        self.bent = Bent(rows)
        self.known = self.bent(rows[:KNOWN])
        some = np.arange(min(len(rows), SCALE_ROWS))
        self.scale = EnergyScale(self._nearness(rows[some], some))

    def __call__(self, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return a number for each row (m, width).

        `own` (m,): the place of the row among the reference rows, -1 if it is new. No row is near
        to itself.
        """
        return self.scale(self._nearness(rows, own))

    def _nearness(self, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        others = len(self.known) - 1
        count = min(max(FEWEST, int(NEAREST * others)), others)
        out = np.empty(len(rows))
        for i in range(0, len(rows), CHUNK):
            gaps = _city_block(self.bent(rows[i : i + CHUNK]), self.known)
            place = own[i : i + CHUNK]
            there = np.flatnonzero((place >= 0) & (place < len(self.known)))
            gaps[there, place[there]] = np.inf
            nearest = np.partition(gaps, count - 1)[:, :count] / self.known.shape[1]
            out[i : i + CHUNK] = -np.log(nearest + FLOOR).mean(1)
        return out


def _city_block(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return torch.cdist(torch.from_numpy(x), torch.from_numpy(y), p=1).numpy()
