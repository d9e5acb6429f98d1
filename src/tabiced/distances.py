"""How far the nearest reference rows are from a row.

A tenth of them, and not the nearest few: outliers that came together into the reference are near to
each other, but seldom so many.
"""

from __future__ import annotations

import numpy as np
import torch

from tabiced.components import Bent
from tabiced.neighbours import smallest
from tabiced.scoring import EnergyScale

KNOWN = 1024  # reference rows that distances are measured to
NEAREST = 0.1  # share of these that counts
FEWEST = 5
FLOOR = 1e-6  # added to distances: copies are at 0
SCALE_ROWS = 256  # reference rows that the scale is taken from
CHUNK = {"cpu": 512, "cuda": 16384}  # rows measured at once


class Distances:
    """Minus the mean log distance to the nearest tenth of the reference, on the scale of energies.

    City-block distances of standardised, bent columns; higher = nearer to others. The mean of logs,
    so that the nearest of the tenth count for more.
    """

    def __init__(self, rows: np.ndarray, device: str = "cpu"):
        """Take encoded reference rows (n, width) in an order of `order_rows`."""
        self.bent = Bent(rows)
        self.known = torch.from_numpy(self.bent(rows[:KNOWN])).to(device)
        some = np.arange(min(len(rows), SCALE_ROWS))
        self.scale = EnergyScale(self._nearness(rows[some], some))

    def __call__(self, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return a number for each row (m, width).

        `own` (m,): the place of the row among the reference rows, -1 if it is new. No row is near
        to itself.
        """
        return self.scale(self._nearness(rows, own))

    def _nearness(self, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        known, chunk = self.known, CHUNK[self.known.device.type]
        others = len(known) - 1
        count = min(max(FEWEST, int(NEAREST * others)), others)
        out = np.empty(len(rows))
        for i in range(0, len(rows), chunk):
            cells = torch.from_numpy(self.bent(rows[i : i + chunk])).to(known.device)
            gaps = torch.cdist(cells, known, p=1)
            place = own[i : i + chunk]
            there = np.flatnonzero((place >= 0) & (place < len(known)))
            gaps[there, place[there]] = torch.inf
            near = smallest(gaps, count) / known.shape[1]
            out[i : i + chunk] = -torch.log(near + FLOOR).mean(1).cpu().numpy()
        return out
