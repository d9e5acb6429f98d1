"""Describe rows relative to a context by parameter-free statistics, ready for the network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tabiced.cells import CELL_SUMMARIES, LATER_SUMMARIES, Cells, Marginals, soften
from tabiced.mixtures import COMPONENTS, Mixtures
from tabiced.neighbours import SPARSITY, STATISTICS, Neighbours

ROW_STATISTICS = STATISTICS + CELL_SUMMARIES + len(COMPONENTS)
ROW_FEATURES = 5 * ROW_STATISTICS + 7  # five per statistic, and some of the table's sizes
LATER_STATISTICS = LATER_SUMMARIES  # after these, for the branch without attention


@dataclass
class Rows:
    """Rows described relative to a context, ready for the network."""

    cells: Tensor  # B N d CELL_FEATURES, or B N d 1: plain values, for an encoder of its own
    statistics: Tensor  # B N ROW_FEATURES + LATER_STATISTICS, or none

    def to(self, dtype: torch.dtype) -> Rows:
        return Rows(self.cells.to(dtype), self.statistics.to(dtype))

    def take(self, rows: slice) -> Rows:
        return Rows(self.cells[:, rows], self.statistics[:, rows])

    def __getitem__(self, tables: slice) -> Rows:
        return Rows(self.cells[tables], self.statistics[tables])


class _Learned:
    """What is learned from a context (B, n, d), NaN = missing, to compare rows with it."""

    def _learn(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Learn all; return what `_measure` would for the context rows, each left out itself."""
        self.rows = context.shape[1]
        self.cells = Cells(context)
        cells, standard, white, summaries = self.cells(context, in_context=True)
        self.neighbours = Neighbours(standard, white)
        near = self.neighbours(standard, white, leave_one_out=True)
        self.mixtures = Mixtures(white, near[..., SPARSITY].exp())
        raw = _join(near, summaries, self.mixtures.context)
        ordered = raw.sort(1).values
        low, self.middle, high = (
            ordered[:, round(p * (self.rows - 1))][:, None] for p in (0.25, 0.5, 0.75)
        )
        self.spread = (high - low).clamp_min(1e-2)
        return cells, raw

    def _measure(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of the cells (B, m, d, ...) and the statistics (B, m, ...)."""
        cells, standard, white, summaries = self.cells(query)
        near = self.neighbours(standard, white)
        return cells, _join(near, summaries, self.mixtures(white))

    def _relative(self, raw: Tensor) -> Tensor:
        return ((raw - self.middle) / self.spread).clamp(-1e4, 1e4)


class Statistics(_Learned):
    """The statistics of rows relative to those of the context, as `Shallow.judge` takes them."""

    def __init__(self, context: Tensor):
        with torch.autocast(context.device.type, enabled=False), torch.no_grad():
            self.context = soften(self._relative(self._learn(context)[1]))

    def __call__(self, query: Tensor) -> Tensor:
        """Describe query rows (B, m, d) by (B, m, ROW_STATISTICS + LATER_STATISTICS) numbers."""
        with torch.autocast(query.device.type, enabled=False):
            return soften(self._relative(self._measure(query)[1]))


class Description(_Learned):
    """All parameter-free statistics, ready for the network."""

    def __init__(self, context: Tensor):
        with torch.autocast(context.device.type, enabled=False), torch.no_grad():
            cells, raw = self._learn(context)
            self.marginals = Marginals(self._relative(raw)[..., :ROW_STATISTICS])
            self.context = Rows(cells, self._row_features(raw))

    @property
    def column_key(self) -> Tensor:
        return self.cells.column_key

    def _row_features(self, raw: Tensor) -> Tensor:
        relative, later = self._relative(raw).split([ROW_STATISTICS, LATER_STATISTICS], -1)
        rank, near, _, _ = self.marginals(relative)
        level = [part[..., :ROW_STATISTICS] for part in (self.middle, self.spread.log())]
        known = torch.cat(level, -1).clamp(-12, 12) / 3
        log_n, log_d = math.log(self.rows), math.log(self.cells.columns)
        ratio = log_n - log_d
        sizes = [log_n / 3 - 2, log_d - 2.5, ratio / 3 - 1]
        sizes += [1 / max(log_n, 0.5), 1 / self.cells.columns, 1.0]
        sizes.append(min(2.0, self.cells.columns / self.rows))
        size = torch.tensor(sizes)
        constant = torch.cat([known, size.to(known).expand(known.shape[0], 1, len(size))], -1)
        return torch.cat(
            [
                soften(relative),
                (rank - 0.5) * 3.4,
                0.5 * (near - 1.5).clamp(-8, 12),
                constant.expand(-1, raw.shape[1], -1),
                soften(later),
            ],
            -1,
        )

    def __call__(self, query: Tensor) -> Rows:
        """Describe query rows (B, m, d)."""
        with torch.autocast(query.device.type, enabled=False):
            cells, raw = self._measure(query)
            return Rows(cells, self._row_features(raw))


def _join(near: Tensor, summaries: Tensor, mixtures: Tensor) -> Tensor:
    """Put the statistics of rows in a row, those that came later last: (B, N, statistics)."""
    first, later = summaries.split([CELL_SUMMARIES, LATER_SUMMARIES], -1)
    return torch.cat([near, first, mixtures, later], -1)
