"""How typical a row is in two columns at a time, each time judged by a few reference rows.

What makes a row an anomaly often shows in few columns and drowns in all of them together. And among
few rows there are seldom so many outliers of a kind that they pass for usual, which is also why
isolation forests read small samples.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tabiced.contexts import Reader, fill_tile
from tabiced.description import Statistics
from tabiced.rows import order_columns
from tabiced.scoring import EnergyScale

JUDGES = 128  # reference rows that judge a pair
LEAST, MOST = 16, 32  # pairs; between them, as many as show every column once
SCALE_ROWS = 256  # reference rows that the scale is taken from


def choose_pairs(width: int, generator: np.random.Generator) -> np.ndarray:
    """Deal the columns out in pairs, round by round: (p, 2), or (p, 1) of a single column."""
    wanted, size = min(MOST, max(LEAST, width // 2)), min(width, 2)
    in_round = width // size
    rounds = -(-wanted // in_round)
    dealt = [generator.permutation(width)[: in_round * size] for _ in range(rounds)]
    return np.concatenate(dealt).reshape(-1, size)[:wanted]


class Pairs:
    """Length of the vector of a row's energies in pairs of columns, on the scale of energies.

        -sqrt(sum_p min(energy_p - 1, 0)^2)

    by the branch without attention; higher = more typical. As in `Tails`, one pair far out counts
    for more than several a little out.
    """

    def __init__(self, rows: np.ndarray, reader: Reader, seed: int = 0):
        """Take encoded reference rows (n, width) in an order of `order_rows`."""
        generator = np.random.default_rng(seed)
        self.reader, n = reader, len(rows)
        self.columns = order_columns(rows)[choose_pairs(rows.shape[1], generator)]
        chosen = [generator.permutation(n)[:JUDGES] for _ in self.columns]
        # Where each reference row sits among the judges of each pair, -1 if it is not one of them.
        self.place = np.full((len(chosen), n), -1)
        for place, judges in zip(self.place, chosen, strict=True):
            place[judges] = np.arange(len(judges))
        shown = [rows[judges][:, pair] for judges, pair in zip(chosen, self.columns, strict=True)]
        with torch.inference_mode():
            self.statistics = Statistics(self._tensor(np.stack(shown)))
            self.own = self._energies(self.statistics.context)
        some = np.arange(min(n, SCALE_ROWS))
        self.scale = EnergyScale(self._length(rows[some], some))

    def __call__(self, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return a number for each row (m, width).

        `own` (m,): the place of the row among the reference rows, -1 if it is new. No row judges
        itself.
        """
        return self.scale(self._length(rows, own))

    def _length(self, rows: np.ndarray, own: np.ndarray) -> np.ndarray:
        tile, out = self.reader.tile, np.empty(len(rows))
        for i in range(0, len(rows), tile):
            part = rows[i : i + tile]
            cells = fill_tile(part, tile)[:, self.columns]  # rows, pairs, 2
            with torch.inference_mode():
                shown = self._tensor(cells.transpose(1, 0, 2))
                energies = self._energies(self.statistics(shown))[:, : len(part)]
            known = own[i : i + tile]
            place = np.where(known < 0, -1, self.place[:, known])  # pairs, rows
            judge = place >= 0
            energies[judge] = self.own[judge.nonzero()[0], place[judge]]
            out[i : i + tile] = -np.sqrt(np.square(np.minimum(energies - 1, 0)).sum(0))
        return out

    def _tensor(self, shown: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(shown)).to(self.reader.device)

    def _energies(self, statistics: Tensor) -> np.ndarray:
        """Return energies (pairs, rows)."""
        branch = self.reader.network.shallow
        if branch is None:
            raise ValueError("These weights have no branch without attention to judge pairs by.")
        return branch.judge(statistics).double().cpu().numpy()
