"""The clean process of a group of tables: a source, side columns and a chain of transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tabiced.prior.columns import NUMBER, Encoding, Side
from tabiced.prior.mixture import Source
from tabiced.prior.randomness import Random
from tabiced.prior.transforms import Chain


class Process:
    r"""Rows (measured columns | discrete columns of the source | side columns).

    log p(x) = log sum_k w_k p_k(T^-1(u), v) prod_j p_kj(x_j) + log |det dT^-1/du|, with u the
    measured columns, T the chain, v the source's own discrete columns and x_j the side columns.
    """

    def __init__(self, source: Source, sides: Sequence[Side], chain: Chain):
        self.source, self.sides, self.chain = source, list(sides), chain
        encodings = [NUMBER] * source.measured + list(source.encodings)
        measured = [True] * source.measured + [False] * len(source.encodings)
        for side in sides:
            encodings += side.encodings
            measured += [side.measured] * len(side.encodings)
        self.encodings: tuple[Encoding, ...] = tuple(encodings)
        self.measured = tuple(measured)
        self.widths = [source.columns, *(len(side.encodings) for side in sides)]

    def sample(
        self,
        random: Random,
        context_rows: int,
        query_rows: int,
        moves: Sequence[Callable[[Random, Tensor, Tensor], Tensor]] = (),
    ) -> tuple[Tensor, Tensor]:
        """Draw context and query rows; moves change the queries before the flow."""
        x, component = self.source.sample(random, context_rows + query_rows)
        u, v = x[..., : self.source.measured], x[..., self.source.measured :]
        context, queries = u[:, :context_rows], u[:, context_rows:]
        for move in moves:
            queries = move(random, queries, context)
        u = torch.cat((context, queries), 1) if moves else u
        u = self.chain.calibrate_forward(u, context_rows)
        sides = [side.sample(random, component) for side in self.sides]
        rows = torch.cat((u, v, *sides), -1)
        return rows[:, :context_rows], rows[:, context_rows:]

    def sample_hidden(self, random: Random, rows: int) -> Tensor | None:
        """Draw rows (T, rows, c) of the source's hidden component, if it has one."""
        if self.source.hidden is None:
            return None
        return self.sample_more(random, rows, self.source.hidden.expand(-1, rows))

    def sample_more(self, random: Random, rows: int, component: Tensor | None = None) -> Tensor:
        """Draw rows (T, rows, c) after `sample`, which fixes the constants of the chain."""
        x, component = self.source.sample(random, rows, component)
        u = self.chain.forward(x[..., : self.source.measured])
        sides = [side.sample(random, component) for side in self.sides]
        return torch.cat((u, x[..., self.source.measured :], *sides), -1)

    def log_density(self, rows: Tensor) -> Tensor:
        """Return the exact log-density (T, N) of complete rows."""
        x, *cells = rows.split(self.widths, -1)
        u, log_det = self.chain.inverse(x[..., : self.source.measured])
        x = torch.cat((u, x[..., self.source.measured :]), -1)
        components = self.source.component_log_density(x)
        for side, part in zip(self.sides, cells, strict=True):
            components = components + side.log_prob(part)
        return torch.logsumexp(components, -1) + log_det

    def project(self, rows: Tensor) -> Tensor:
        """Move discrete cells to the nearest value they can take."""
        x, *cells = rows.split(self.widths, -1)
        moved = [side.project(part) for side, part in zip(self.sides, cells, strict=True)]
        return torch.cat((self.source.project(x), *moved), -1)
