"""A small branch without attention: energies from the statistics of rows alone.

It knows less of the prior than the large network beside it and so carries over better to real
tables. Both are trained apart, each by a loss of its own. How typical a row is, is decided by both
together, its density by the large one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tabiced.description import LATER_STATISTICS, ROW_FEATURES, ROW_STATISTICS, Rows

WIDTH = 128


class Shallow(nn.Module):
    """Energies (B, N) of described rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(ROW_STATISTICS + LATER_STATISTICS, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, rows: Rows) -> Tensor:
        known = rows.statistics
        return self.judge(torch.cat([known[..., :ROW_STATISTICS], known[..., ROW_FEATURES:]], -1))

    def judge(self, relative: Tensor) -> Tensor:
        """Return the energies (B, N) of rows by numbers as `Statistics` has them."""
        return self.layers(relative.float()).squeeze(-1).float()
