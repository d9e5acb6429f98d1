"""Draw training tables with exact log-densities."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tabiced.prior.ingredient import Recipe
from tabiced.prior.plan import draw_process
from tabiced.prior.randomness import Random
from tabiced.prior.rows import draw_rows


@dataclass
class Tables:
    """B tables with the same numbers of rows and columns.

    context: (B, n, d) float32, NaN = missing.
    query: (B, m, d) float32, NaN = missing.
    log_density: (B, m) float32, log p of the clean process at the complete query rows.
    context_log_density: (B, min(n, 256)) float32, the same at the first context rows as shown.
    anchors: (B, min(n, 256)) float32, the same at clean context rows.
    categorical: (B, d) bool, columns counted (probability mass) rather than measured.
    """

    context: Tensor
    query: Tensor
    log_density: Tensor
    context_log_density: Tensor
    anchors: Tensor
    categorical: Tensor

    def __len__(self) -> int:
        return self.context.shape[0]

    def __getitem__(self, index: slice | Tensor) -> Tables:
        """Return the tables of a slice or an index."""
        return Tables(*(getattr(self, f.name)[index] for f in fields(self)))


class Prior:
    """A distribution over tables.

    Args:
        preset: "paper" (the published prior) or "full" (with everything real tables have).
        without: Names of ingredients or slots to switch off, for example "heavy_tails", "gaussian",
            "flows", "categorical", "perturbation".
    """

    def __init__(self, preset: str = "full", without: tuple[str, ...] = ()):
        self.recipe = Recipe(preset, tuple(without))

    @torch.no_grad()
    def draw(
        self,
        tables: int,
        context_rows: int,
        query_rows: int,
        columns: int,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
    ) -> Tables:
        """Draw tables; equal arguments and generator state give equal tables.

        Tables are drawn in groups that share a structure (base law, flow, column kinds, ...) with
        parameters of their own, and shuffled at the end, so that any slice mixes structures.
        """
        if columns < 1 or context_rows < 2 or query_rows < 1 or tables < 1:
            raise ValueError("a draw needs at least 1 table, 2 context rows, 1 query, 1 column")
        if generator is None:
            generator = torch.Generator(device)
            generator.seed()
        random = Random(generator, device)
        size = max(8, tables // 16)
        groups = [
            self._draw_group(random, min(size, tables - start), context_rows, query_rows, columns)
            for start in range(0, tables, size)
        ]
        order = random.permutations((tables,))
        return Tables(
            *(torch.cat([getattr(g, f.name) for g in groups])[order] for f in fields(Tables))
        )

    def _draw_group(
        self, random: Random, tables: int, context_rows: int, query_rows: int, columns: int
    ) -> Tables:
        process = draw_process(self.recipe, random, tables, columns)
        return Tables(**draw_rows(self.recipe, random, process, context_rows, query_rows))
