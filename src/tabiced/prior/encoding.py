"""How rows are shown to the network: one-hot columns or shuffled codes, columns in random order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tabiced.prior.columns import Encoding
from tabiced.prior.randomness import Random


class Shown:
    """Turn process rows (T, N, c) into shown rows (T, N, d), the same way for context and queries.

    Whole one-hot blocks are shuffled among the columns, per table. Codes are numbered in a random
    order, from 0 or 1.
    """

    def __init__(self, random: Random, tables: int, encodings: Sequence[Encoding]):
        device = random.device
        source, level = [], []
        for column, encoding in enumerate(encodings):
            source += [column] * encoding.width
            level += list(range(encoding.levels)) if encoding.one_hot else [-1]
        self.one_hot = any(e.one_hot for e in encodings)
        self.source = torch.tensor(source, device=device)  # (d,) process column of a shown one
        self.level = torch.tensor(level, device=device)  # (d,) level a one-hot column stands for
        counted = torch.tensor([encodings[i].levels > 0 for i in source], device=device)

        block = random.uniform((tables, len(encodings)))[:, self.source]
        self.order = torch.sort(block, dim=-1, stable=True).indices  # (T, d)
        self.categorical = counted.expand(tables, -1).gather(1, self.order)

        self.coded = [i for i, e in enumerate(encodings) if e.levels > 0 and not e.one_hot]
        if self.coded:
            levels = torch.tensor([encodings[i].levels for i in self.coded], device=device)
            most = int(max(encodings[i].levels for i in self.coded))
            absent = torch.arange(most, device=device) >= levels.unsqueeze(-1)
            keys = random.uniform((tables, len(self.coded), most)) + absent
            ranks = keys.argsort(-1).argsort(-1)  # absent levels rank last
            self.codes = ranks + random.integers((tables, 1, 1), 0, 2)  # (T, P, most)

    def __call__(self, rows: Tensor, missing: Tensor | None = None) -> Tensor:
        """Return float32 rows with NaN where `missing` (T, N, c) holds."""
        t, n, _ = rows.shape
        if self.coded:
            cells = rows[..., self.coded]  # (T, N, P)
            codes = self.codes.unsqueeze(1).expand(t, n, -1, -1)
            rows = rows.clone()
            rows[..., self.coded] = codes.gather(3, cells.long().unsqueeze(-1)).squeeze(-1).double()
        if missing is not None:
            rows = rows.masked_fill(missing, torch.nan)
        if self.one_hot:
            rows = rows[..., self.source]
            hot = (rows == self.level).to(rows.dtype).masked_fill(rows.isnan(), torch.nan)
            rows = torch.where(self.level >= 0, hot, rows)
        return rows.gather(2, self.order.unsqueeze(1).expand(t, n, -1)).float()
