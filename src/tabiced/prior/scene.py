"""The rows of a group while events befall them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tabiced.prior.ingredient import Ingredient
from tabiced.prior.process import Process
from tabiced.prior.randomness import Random

if TYPE_CHECKING:
    from tabiced.prior.repeats import Repeated

_SUMMARY_ROWS = 256


@dataclass
class Scene:
    """A group's rows as the process has them: categories as level indices, all cells present.

    context, queries: (T, n, c) and (T, m, c), changed by events.
    clean: The context before any event.
    missing: Cells of context and queries to be hidden, or None.
    repeated: The rows that the clean process repeats, or None.
    """

    process: Process
    context: Tensor
    queries: Tensor
    clean: Tensor
    missing: tuple[Tensor, Tensor] | None = None
    repeated: Repeated | None = None

    @cached_property
    def levels(self) -> Tensor:
        """Return the number of levels of each column, (c,), 0 for a number."""
        levels = [e.levels for e in self.process.encodings]
        return torch.tensor(levels, device=self.clean.device)

    @cached_property
    def _sorted(self) -> Tensor:
        # A few hundred rows place a column's bulk well enough, and sort fast.
        return self.clean[:, :_SUMMARY_ROWS].sort(1).values

    def quantile(self, level: float) -> Tensor:
        """Return a quantile of every clean context column, (T, 1, c)."""
        index = round(level * (self._sorted.shape[1] - 1))
        return self._sorted[:, index : index + 1]

    @cached_property
    def spread(self) -> Tensor:
        """Return a robust standard deviation of every clean context column, (T, 1, c)."""
        core = (self.quantile(0.75) - self.quantile(0.25)) / 1.35
        wide = (self.quantile(0.95) - self.quantile(0.05)) / 8  # for columns with many ties
        return torch.maximum(core, wide).clamp_min(1e-6)

    def any_level(self, random: Random, shape: torch.Size) -> Tensor:
        """Draw levels uniformly for every cell (meaningless in numeric columns)."""
        return torch.floor(random.uniform(shape) * self.levels)

    def mix(self, numbers: Tensor, levels: Tensor) -> Tensor:
        """Take numeric columns from one tensor and categorical columns from another."""
        return torch.where(self.levels > 0, levels, numbers)


class Event(Ingredient):
    """Something that befalls rows; the target stays the density of the clean process."""

    @classmethod
    def before_rows(cls, random: Random, process: Process) -> None:
        """Change the process before any row is drawn."""

    @classmethod
    def before_flow(cls, random: Random, queries: Tensor, context: Tensor) -> Tensor:
        """Return the base's queries (T, m, d) as they enter the flow."""
        return queries

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        """Change the scene after the rows were drawn."""


class Perturbation(Event):
    """Move queries off the data, so that the landscape there is learned too; at most one."""

    slot = "perturbation"


def rows_of(x: Tensor, index: Tensor) -> Tensor:
    """Pick rows (T, m) of x (T, n, c), giving (T, m, c)."""
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
