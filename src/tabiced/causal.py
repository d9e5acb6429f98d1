"""Make up tables with classes, for tasks like those of real tables: `labelled` has too few of them.

A table is a random graph of causes and effects, column after column: most are functions of a few
earlier ones with noise. Some columns are shown and one that is not shown tells which rows are
normal, as classes or rare outcomes do in real tables. Or anomalies are rows in which something
broke: a few columns are shifted, noisier, or no longer follow their causes, and so their effects.

No densities are known of these tables, hence they are no part of `tabiced.prior`.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import count, islice

import numpy as np
import torch
from torch import Tensor

from tabiced.collection import OUTLYING, Labelled, outlyingness

DRAWN = 3000  # rows of a table, of which some are kept
NORMAL, ANOMALIES = 1000, 250  # rows kept
BATCH = 32  # tables made at once
TOGETHER = 24  # tables of a part, made by one process in one go
FIRST, RENEWED = 30, 4  # parts that a run starts with, and new ones in each round
COLUMNS = (3, 64)  # shown
PARENTS = 4  # at most
HIDDEN = 8  # width of the small random networks
DEPTH = 3  # of random trees
BROKEN = 0.35  # share of tables whose anomalies are rows in which something broke
RIGHT = 0.6  # share of rows that are right in these
VOTERS = 15  # nearest rows that vote on whether a row is an anomaly
LEARNABLE = (0.65, 0.998)  # AUROC of that vote in tables that are kept

SHAPES: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.tanh,
    torch.relu,
    torch.sin,
    torch.abs,
    lambda x: torch.exp(-x.square()),
    lambda x: x,
)


class MadeTables:
    """A pool of tables that is renewed round by round, by other processes meanwhile.

    Tables come in parts. A round's pool is the newest parts so far, `RENEWED` more each round: the
    first rounds have fewer than later ones, so that nobody waits long at the start. Seed and round
    alone say what is in it, so that an interrupted run continues exactly.
    """

    def __init__(self, tables: int, seed: int, jobs: int = 1):
        """Keep so many tables in the pool (or some more), made by so many processes."""
        self.seed, self.jobs = seed, jobs
        self.each = min(tables, TOGETHER)
        self.parts = math.ceil(tables / self.each)
        self.workers: ProcessPoolExecutor | None = None
        self.coming: dict[int, Future[Labelled]] = {}

    def pool(self, number: int) -> dict[int, Labelled]:
        """Return the parts of a round's pool by their numbers, the oldest first."""
        end = min(self.parts, FIRST) + RENEWED * number
        wanted = range(max(0, end - self.parts), end)
        if self.workers is None:
            self.workers = ProcessPoolExecutor(
                self.jobs, multiprocessing.get_context("spawn"), _be_modest
            )
        ahead = range(wanted.start, end + 2 * max(RENEWED, self.jobs))
        for part in ahead:
            if part not in self.coming:
                self.coming[part] = self.workers.submit(make_part, self.each, self.seed, part)
        for part in [p for p in self.coming if p not in ahead]:
            self.coming.pop(part).cancel()
        return {part: self.coming[part].result() for part in wanted}

    def close(self) -> None:
        """Make no more tables."""
        if self.workers:
            self.workers.shutdown(wait=False, cancel_futures=True)


def _be_modest() -> None:
    """Let the training go first: it has to be fed by a processor, too."""
    os.nice(10)
    torch.set_num_threads(1)


def make_part(tables: int, seed: int, part: int) -> Labelled:
    """Return normal rows and anomalies of so many tables, the same for the same seed and part."""
    generator = torch.Generator().manual_seed((seed << 20) + part)
    made = islice(_endless(generator, part), tables)
    return {f"made-{part * tables + i}": table for i, table in enumerate(made)}


def _endless(generator: torch.Generator, first: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for batch in count(first):
        # Low-discrepancy widths: every few batches have tables narrow and wide.
        place = (0.5 + batch * (math.sqrt(5) - 1) / 2) % 1
        columns = round(COLUMNS[0] * (COLUMNS[1] / COLUMNS[0]) ** place)
        graph = _Graph(columns, generator)
        cells, score = graph.shown(), graph.strangeness()
        # The least strange rows are normal, the strangest anomalies; rows between are left out.
        normal_share = torch.where(graph.broken, RIGHT, 0.35 + 0.55 * graph.uniform(BATCH, 1))
        rank = _ranks(score) / DRAWN
        gap = 0.1 * graph.uniform(BATCH, 1) * (1 - normal_share)
        for i in range(BATCH):
            normal = cells[i][rank[i] < normal_share[i]][:NORMAL]
            anomalies = cells[i][rank[i] >= normal_share[i] + gap[i]][:ANOMALIES]
            varies = (normal != normal[:1]).any(0)
            normal, anomalies = normal[:, varies], anomalies[:, varies]
            if normal.shape[1] < COLUMNS[0] or not _is_learnable(normal, anomalies):
                continue
            table = normal.cpu().numpy(), anomalies.cpu().numpy()
            if outlyingness(*table) >= OUTLYING:
                yield table


def _is_learnable(normal: Tensor, anomalies: Tensor) -> bool:
    """Tell whether neighbours with known labels find the anomalies, but not all of them."""
    rows = torch.cat([normal, anomalies])
    ranks = _ranks(rows.T).T.float()
    gaps = torch.cdist(ranks, ranks, p=1).fill_diagonal_(torch.inf)
    near = gaps.topk(VOTERS, largest=False).indices
    votes = (near >= len(normal)).float().mean(1)
    higher = torch.sign(votes[len(normal) :, None] - votes[None, : len(normal)])
    return LEARNABLE[0] <= float(0.5 + 0.5 * higher.mean()) <= LEARNABLE[1]


class _Graph:
    """BATCH tables of DRAWN rows; nodes are columns of which some are shown."""

    def __init__(self, columns: int, generator: torch.Generator):
        self.generator, self.device = generator, generator.device
        self.columns = columns
        nodes = columns + 1 + int(self.uniform() * (4 + columns))
        self.values = torch.zeros(BATCH, DRAWN, nodes, device=self.device)
        self.noise = torch.exp2(-5 * self.uniform(BATCH, 1))  # of a table, in deviations
        self.roots = 1 + (self.uniform(BATCH, 1) * min(8, nodes - 1)).long()
        self.hub = self.uniform(BATCH, 1)  # how much early nodes are preferred as causes
        self.discrete = 0.6 * self.uniform(BATCH, 1).square()  # share of discrete nodes
        self.broken = self.uniform(BATCH, 1) < BROKEN
        late = torch.arange(DRAWN, device=self.device) >= RIGHT * DRAWN
        self.wrong = self.broken & late  # B N: rows in which something breaks
        self.breaks = self.uniform(BATCH, nodes) < 2.5 / nodes * (0.4 + self.uniform(BATCH, 1))
        self.breaks[:, 0] |= ~self.breaks.any(1)
        self.order = self.uniform(BATCH, nodes).argsort(1)  # the first are shown, the last is not
        for node in range(nodes):
            self.values[..., node] = self._node(node)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, device=self.device, generator=self.generator)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device, generator=self.generator)

    def chosen(self, ways: list[Tensor], odds: list[float]) -> Tensor:
        """Take one of several ways (B, N) for each table, with these odds."""
        weights = torch.tensor(odds, device=self.device).expand(BATCH, -1)
        which = torch.multinomial(weights, 1, generator=self.generator)
        return torch.stack(ways, -1).gather(-1, which[:, None].expand(-1, DRAWN, -1))[..., 0]

    def _node(self, node: int) -> Tensor:
        """Return the values (B, N) of a node: a root, or an effect of earlier ones."""
        root = self._root()
        if node == 0:
            x = root
        else:
            noise = self.chosen(
                [self.normal(BATCH, DRAWN), _heavy(self.uniform(BATCH, DRAWN))], [0.8, 0.2]
            )
            level = self.noise * torch.exp2(2 * self.normal(BATCH, 1))
            effect = _standard(self._effect(node)) + level * noise
            x = torch.where(node < self.roots, root, effect)
        x = _standard(self._break(node, _standard(x)))
        return torch.where(self.uniform(BATCH, 1) < self.discrete, self._binned(x), x)

    def _root(self) -> Tensor:
        flat = self.uniform(BATCH, DRAWN)
        groups = 2 + (self.uniform(BATCH, 1) * 6).long()
        group = (self.uniform(BATCH, DRAWN).square() * groups).long()
        centre = (3 * self.normal(BATCH, 8)).gather(1, group)
        width = torch.exp(0.7 * self.normal(BATCH, 8)).gather(1, group)
        plain = self.normal(BATCH, DRAWN)
        ways = [plain, flat, _heavy(flat), centre + width * plain, centre]
        return self.chosen(ways, [0.3, 0.15, 0.1, 0.25, 0.2])

    def _effect(self, node: int) -> Tensor:
        """Return a random function (B, N) of some earlier nodes."""
        late = torch.arange(1, node + 1, device=self.device) / node  # 1: the node just before
        weight = torch.exp(6 * (self.hub * (1 - late) + (1 - self.hub) * late))
        causes = min(PARENTS, node)
        parents = torch.multinomial(weight, causes, generator=self.generator)  # B causes
        x = self.values.gather(2, parents[:, None].expand(-1, DRAWN, -1))
        few = torch.arange(causes, device=self.device) < 1 + self.uniform(BATCH, 1) * causes
        x = x * few[:, None]
        slopes = self.normal(BATCH, causes, 1)
        linear = (x @ slopes)[..., 0]
        bent = self.chosen([shape(linear) for shape in SHAPES], [1.0] * len(SHAPES))
        ways = [linear, bent, self._small_network(x), self._tree(x), x[..., 0] * x[..., -1]]
        return self.chosen(ways, [0.25, 0.2, 0.25, 0.2, 0.1])

    def _small_network(self, x: Tensor) -> Tensor:
        inner = x @ self.normal(BATCH, x.shape[2], HIDDEN) + self.normal(BATCH, 1, HIDDEN)
        hidden = torch.stack([shape(inner) for shape in SHAPES], -1)
        which = torch.multinomial(
            torch.ones(BATCH, len(SHAPES), device=self.device), 1, generator=self.generator
        )
        hidden = hidden.gather(-1, which[:, None, None].expand(-1, DRAWN, HIDDEN, -1))[..., 0]
        return (hidden @ self.normal(BATCH, HIDDEN, 1))[..., 0]

    def _tree(self, x: Tensor) -> Tensor:
        """Return the values of leaves: DEPTH questions about random causes lead to them."""
        leaf = torch.zeros(BATCH, DRAWN, dtype=torch.long, device=self.device)
        for _ in range(DEPTH):
            asked = (self.uniform(BATCH, 1, 1) * x.shape[2]).long().expand(-1, DRAWN, -1)
            leaf = 2 * leaf + (x.gather(2, asked)[..., 0] > self.normal(BATCH, 1))
        return self.normal(BATCH, 2**DEPTH).gather(1, leaf)

    def _break(self, node: int, x: Tensor) -> Tensor:
        """Let something go wrong with a node that is broken, in the rows that are."""
        shift = torch.exp2(3 * self.uniform(BATCH, 1) - 1) * torch.sign(self.normal(BATCH, 1))
        order = self.uniform(1, DRAWN).argsort(1).expand(BATCH, -1)
        noisy = x + shift * self.normal(BATCH, DRAWN)
        ways = [x + shift, noisy, x.gather(1, order), shift.expand_as(x) + 0.1 * x]
        wrong = self.chosen(ways, [0.3, 0.2, 0.35, 0.15])
        return torch.where(self.wrong & self.breaks[:, node : node + 1], wrong, x)

    def _binned(self, x: Tensor) -> Tensor:
        """Round to a few levels, evenly spaced or of equal counts, in some tables out of order."""
        levels = 2 + (18 * self.uniform(BATCH, 1).square() * self.uniform(BATCH, 1)).long()
        even = ((x.clamp(-2.5, 2.5) + 2.5) / 5 * levels).long().minimum(levels - 1)
        rank = _ranks(x + 1e-3 * self.uniform(BATCH, DRAWN)) * levels // DRAWN
        level = torch.where(self.uniform(BATCH, 1) < 0.5, even, rank)
        other = self.normal(BATCH, 20).argsort(1).gather(1, level)
        return _standard(torch.where(self.uniform(BATCH, 1) < 0.3, other, level).float())

    def shown(self) -> Tensor:
        """Return the columns (B, N, d) that are shown."""
        # What is broken is shown, at least some of it: nobody could see it otherwise.
        seen = self.order[:, : self.columns].clone()
        culprit = self.breaks.float().argmax(1)
        missing = self.broken[:, 0] & (seen != culprit[:, None]).all(1)
        seen[:, 0] = torch.where(missing, culprit, seen[:, 0])
        return self.values.gather(2, seen[:, None].expand(-1, DRAWN, -1))

    def strangeness(self) -> Tensor:
        """Return a number (B, N), high for anomalies, by a hidden node or by what is broken."""
        hidden = self.order[:, -1:]
        value = self.values.gather(2, hidden[:, None].expand(-1, DRAWN, -1))[..., 0]
        jitter = 1e-3 * self.uniform(BATCH, DRAWN)
        rank = _ranks(value + jitter) / DRAWN
        # High values, low ones, those far from some place, or classes: places in random order.
        middle = (rank - self.uniform(BATCH, 1)).abs()
        classes = 2 + (self.uniform(BATCH, 1) * 10).long()
        place = (rank * classes).long()
        shuffled = self.normal(BATCH, 12).argsort(1).gather(1, place).float()
        ways = [rank, 1 - rank, middle, shuffled + jitter]
        told = self.chosen(ways, [0.25, 0.25, 0.2, 0.3])
        return torch.where(self.broken, self.wrong + jitter, told)


def _ranks(x: Tensor) -> Tensor:
    """Count the smaller values in each row of x: equal ones have equal ranks, wherever they are."""
    x = x.contiguous()
    return torch.searchsorted(x.sort(1).values, x)


def _standard(x: Tensor) -> Tensor:
    """Scale the values (B, N) of a node; far-off ones are drawn in, as they would rule it all."""
    x = x.nan_to_num(0.0, 0.0, 0.0)
    z = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True).clamp_min(1e-6)
    return z.clamp(-20, 20)


def _heavy(u: Tensor) -> Tensor:
    """Turn uniform numbers into heavy-tailed ones."""
    return torch.tan(math.pi * (u.clamp(0.002, 0.998) - 0.5)).asinh() * 2
