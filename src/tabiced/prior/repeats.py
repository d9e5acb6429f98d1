"""Rows that occur again and again: a default entry, the same order, one machine's usual report."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tabiced.prior.randomness import Random
from tabiced.prior.scene import Event, Scene, rows_of

MOST = 512
"""Most different rows of a table that repeat."""

REGION = 64
"""A repeated row stands for a region that a 64th of the other rows would fall into, or less."""


@dataclass
class Repeated:
    r"""A share s of the process is a finite set of rows z_k with probabilities s_k.

    p(x) = f(x) (1 - s + R e^a sum_k s_k [x = z_k]) with f the density of the other rows, taken
    against Lebesgue measure plus a mass at every z_k that makes s_k its probability. R is `REGION`
    and a the spread of log f over the rows: in a table of many columns exact equality says more, as
    densities differ more.

    rows: (T, K, c).
    shares: (T, K).
    """

    rows: Tensor
    shares: Tensor

    def log_factor(self, rows: Tensor, spread: Tensor) -> Tensor:
        """Return log(p(x) / f(x)) for rows (T, N, c), given the spread of log f, (T, 1)."""
        n = rows.shape[1]
        together = torch.cat((rows, self.rows.float().double()), 1)
        # Equal rows have equal sums; others hardly ever.
        weights = torch.arange(1, rows.shape[-1] + 1, device=rows.device, dtype=torch.float64)
        sums = (together * weights.sqrt()).sum(-1)
        equal = sums[:, :n, None] == sums[:, None, n:]  # (T, N, K)
        share = (equal.double() @ self.shares.unsqueeze(-1)).squeeze(-1)
        rest = 1 - self.shares.sum(-1, keepdim=True)
        return torch.logaddexp(rest.log(), share.log() + math.log(REGION) + spread)


class Repeats(Event):
    """Let a finite set of rows carry a share of the process; drawn before all that befalls rows."""

    slot = "repeats"


class RepeatedRows(Repeats, name="repeated_rows", full=0.3):
    """A share of the rows are exact repeats of 2 to 512 different ones, some more common."""

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, n, _ = scene.context.shape
        m = scene.queries.shape[1]
        most = min(MOST, n)
        count = round(2 * (most / 2) ** random.structure.random())
        rows = scene.process.sample_more(random, count)
        odds = random.simplex((t, count), random.log_uniform((t, 1), 0.1, 2.0)).exp()
        share = torch.sigmoid(1.5 * random.normal((t, 1))).clamp(0.02, 0.98)
        scene.repeated = Repeated(rows, share * odds)

        index = torch.searchsorted(odds.cumsum(-1), random.uniform((t, n + m)))
        again = rows_of(rows, index.clamp_max(count - 1))
        here = random.bernoulli((t, n + m, 1), share.unsqueeze(-1))
        repeat_context, repeat_queries = again.split([n, m], 1)
        here_context, here_queries = here.split([n, m], 1)
        scene.context = torch.where(here_context, repeat_context, scene.context)
        scene.clean = scene.context
        scene.queries = torch.where(here_queries, repeat_queries, scene.queries)
