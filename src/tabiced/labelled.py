"""Draw tasks from real tables of which it is known what people call anomalies there.

How dense real tables are nobody knows, but many have a column that tells classes apart. With one
class taken for normal, rows of the others are anomalies of a kind that no prior makes up. Tasks
are drawn anew every time: other columns, other rows, other anomalies among the context rows. There
are few tables to learn from, so tasks also join columns of two, bend them and repeat rows.
Made-up tables (`tabiced.causal`) may stand beside the real ones (`tabiced.collection`).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tabiced.causal import MadeTables
from tabiced.collection import Labelled

ANOMALIES = 0.25  # share of the queries
LEAST_NORMAL = 32  # different normal rows that must be left for the queries
DIRTY, MOST_DIRTY = 0.6, 0.25  # share of contexts with anomalies, and how many these have at most
ALIKE = 0.3  # share of tasks whose anomalies are those nearest to one of them
AGAIN = 0.2  # share of tasks whose context has the same few anomalies again and again
GATHERED = 0.15  # share of tasks whose anomalies are moved away and together
REPEATED = 0.05  # share of tasks whose rows come again, among the context rows and the queries
JOINED, MOST_JOINED = 0.5, 0.6  # share of tasks with columns of another table, and how many
ALSO_THERE = 0.5  # share of these whose anomalies are anomalies of the other table, too
BENT = 0.6  # share of tasks whose columns are bent and turned over
OWN, OWN_BEYOND = 16, 0.25  # columns that a table must have itself, and the share beyond these
MOST_EXPONENT = 40  # of two, that cells reach: sums of their squares overflow from about 60 on
MOST_NOISE = 0.3  # standard deviations, in columns that are made of others


def normal_queries(query_rows: int) -> int:
    """Return how many queries of a task are normal; they come before the anomalies."""
    return query_rows - math.ceil(query_rows * ANOMALIES)


@dataclass
class Tasks:
    """B tasks of one shape: of the queries the first `normal_queries` are normal, no others.

    context: (B, n, d) float32.
    query: (B, m, d) float32.
    anomalous: (B, n) bool: which of the context rows are anomalies.
    """

    context: Tensor
    query: Tensor
    anomalous: Tensor


@dataclass
class _Block:
    """Tables that come and go together: all their cells as one long row of numbers.

    Of each table the number of normal rows (which come first) and of anomalies, of columns, and
    how much of the block's share of the draws is its own.
    """

    cells: Tensor
    normal: Tensor
    anomalies: Tensor
    width: Tensor
    share: Tensor


def _block(tables: Labelled, device: torch.device) -> _Block:
    for name, (normal, anomalies) in tables.items():
        if len(normal) < LEAST_NORMAL + 2 or len(anomalies) < 1:
            raise ValueError(
                f"{name} needs {LEAST_NORMAL + 2} normal rows and an anomaly at least."
            )
    pairs = [_tamed(*pair) for pair in tables.values()]
    of_table = [name.split("#")[0] for name in tables]
    tasks = Counter(of_table)
    share = torch.tensor([1 / tasks[table] for table in of_table])
    return _Block(
        torch.from_numpy(np.concatenate([part.ravel() for pair in pairs for part in pair])).to(
            device
        ),
        torch.tensor([len(normal) for normal, _ in pairs], device=device),
        torch.tensor([len(anomalies) for _, anomalies in pairs], device=device),
        torch.tensor([normal.shape[1] for normal, _ in pairs], device=device),
        (share / share.sum()).to(device),
    )


def _tamed(normal: np.ndarray, anomalies: np.ndarray) -> list[np.ndarray]:
    """Bring columns of huge numbers in reach of float32's squares, by powers of two: exactly."""
    largest = np.maximum(np.abs(normal).max(0), np.abs(anomalies).max(0))
    down = np.minimum(0, MOST_EXPONENT - np.frexp(largest)[1])
    return [np.ldexp(rows.astype(np.float32), down) for rows in (normal, anomalies)]


class LabelledTables:
    """Tables on a device, as one long row of numbers, and tasks drawn from them."""

    def __init__(
        self,
        tables: Labelled,
        device: torch.device | str = "cpu",
        made: MadeTables | None = None,
        made_share: float = 0.0,
    ):
        """Take real tables, and made-up ones to which a share of the draws goes."""
        if not tables and made is None:
            raise ValueError("A collection needs at least one table.")
        self.device = torch.device(device)
        self.real = _block(tables, self.device) if tables else None
        self.made, self.made_share = made, made_share if tables else 1.0
        self.made_blocks: dict[int, _Block] = {}
        self.renew(0)

    def renew(self, number: int) -> None:
        """Change the made-up tables for those of a round; the same round has the same ones."""
        pool = self.made.pool(number) if self.made else {}
        if number and self.made_blocks.keys() == pool.keys():
            return
        self.made_blocks = {
            part: self.made_blocks.get(part) or _block(tables, self.device)
            for part, tables in pool.items()
        }
        parts = [(self.made_share / len(pool), block) for block in self.made_blocks.values()]
        if self.real:
            parts.insert(0, (1 - self.made_share if pool else 1.0, self.real))
        blocks = [block for _, block in parts]
        self.cells = torch.cat([block.cells for block in blocks])
        self.normal = torch.cat([block.normal for block in blocks])
        self.anomalies = torch.cat([block.anomalies for block in blocks])
        self.width = torch.cat([block.width for block in blocks])
        self.share = torch.cat([share * block.share for share, block in parts])
        sizes = (self.normal + self.anomalies) * self.width
        self.start = sizes.cumsum(0) - sizes

    def allows(self, context_rows: int, columns: int) -> Tensor:
        """Tell which tables are long and wide enough.

        Tables of many columns are rare, and their columns hang together: beyond `OWN` of its own, a
        table may be given columns that are made of these.
        """
        own = min(columns, OWN + math.ceil(OWN_BEYOND * (columns - OWN)))
        return (self.width >= own) & (self.normal >= context_rows + LEAST_NORMAL)

    def wholeness(self, columns: int) -> Tensor:
        """Weigh tables by how much of them is shown: some columns seldom tell all anomalies."""
        return (columns / self.width).clamp_max(1.0).pow(4)

    def some_width(self, choose: random.Random) -> int:
        """Return the number of columns of one of the tables, each as likely as it is drawn."""
        return int(self.width[choose.choices(range(len(self.width)), self.share.tolist())[0]])

    def fitted(self, context_rows: int, columns: int, least: int) -> tuple[int, int]:
        """Return rows and columns, fewer where not at least so many tables (or all) allow these."""
        least = min(least, len(self.width))
        while columns > 1 and self.allows(0, columns).sum() < least:
            columns -= 1
        long = self.normal[self.allows(0, columns)].sort(descending=True).values[least - 1]
        return min(context_rows, int(long) - LEAST_NORMAL), columns

    def draw(
        self,
        tables: int,
        context_rows: int,
        query_rows: int,
        columns: int,
        generator: torch.Generator,
        dirty: bool | None = None,
    ) -> Tasks:
        """Draw tasks.

        `dirty`: whether contexts have anomalies. If that is not left to chance, tasks are drawn for
        measuring, and rows are as they are.
        """
        allowed = self.allows(context_rows, columns)
        if not allowed.any():
            raise ValueError(
                f"No table of the collection has {columns} columns and "
                f"{context_rows + LEAST_NORMAL} normal rows."
            )
        weight = self.share * allowed * self.wholeness(columns)
        chosen = torch.multinomial(weight, tables, True, generator=generator)
        draw = _Draw(self, chosen, generator, context_rows, query_rows)
        anomalous = draw.anomalous(dirty)
        if dirty is not None:
            rows = draw.rows(anomalous, columns)
        else:
            rows = draw.rows(anomalous, columns, gathered=True, repeated=True)
            others = torch.multinomial(weight, tables, True, generator=generator)
            other = _Draw(self, others, generator, context_rows, query_rows)
            there = anomalous & draw.chance(ALSO_THERE)
            rows = draw.joined(rows, other.rows(there, columns))
            rows = draw.bent(rows)
        context, query = rows.split([context_rows, query_rows], 1)
        return Tasks(context, query, anomalous[:, :context_rows])


class _Draw:
    """One draw of n context rows and m queries from each of B tables: N = n + m rows."""

    def __init__(
        self,
        tables: LabelledTables,
        chosen: Tensor,
        generator: torch.Generator,
        context_rows: int,
        query_rows: int,
    ):
        self.tables, self.chosen, self.generator = tables, chosen, generator
        self.context_rows, self.query_rows = context_rows, query_rows
        self.normal, self.anomalies = tables.normal[chosen, None], tables.anomalies[chosen, None]
        self.again = torch.zeros_like(self.normal, dtype=torch.bool)  # whose rows repeat
        self.half = (self.anomalies // 2).clamp_min(1)  # anomalies for the context, or the queries
        self.same = self.chance(AGAIN)  # whose contexts have the same few anomalies again

    def uniform(self, *shape: int) -> Tensor:
        """Draw (B, ...) numbers, (B, 1) by default."""
        size = (len(self.chosen), *(shape or (1,)))
        return torch.rand(size, device=self.tables.device, generator=self.generator)

    def chance(self, odds: float) -> Tensor:
        return self.uniform() < odds

    def below(self, limits: Tensor, count: int) -> Tensor:
        """Draw whole numbers (B, count) from 0 to below the limits (B, 1)."""
        return (self.uniform(count) * limits).long().clamp_max(limits.long() - 1)

    def anomalous(self, dirty: bool | None) -> Tensor:
        """Choose which rows (B, N) are to be anomalies: some of the context's, the last queries."""
        rate = MOST_DIRTY * self.uniform().square()  # mostly few
        rate = rate * (self.chance(DIRTY) if dirty is None else dirty)
        most = torch.where(self.anomalies > 1, rate * self.context_rows, 0.0)
        # Else long contexts would have copies of anomalies, which would give these away.
        most = torch.where(self.same, most, most.minimum(self.half))
        place = torch.arange(self.context_rows, device=most.device)
        asked = torch.arange(self.query_rows, device=most.device) >= normal_queries(self.query_rows)
        return torch.cat([place < most, asked.expand(len(most), -1)], 1)

    def rows(
        self, anomalous: Tensor, columns: int, gathered: bool = False, repeated: bool = False
    ) -> Tensor:
        """Return cells (B, N, columns) of rows that are anomalies where told, normal elsewhere."""
        shown = self.columns(columns)
        self.again = self.chance(REPEATED if repeated else 0.0)
        index = torch.where(anomalous, self._anomalies(shown), self._normal_rows())
        rows = self.cells(index, shown)
        if gathered:
            rows = self.gathered(rows, anomalous)
        return self.widened(rows)

    def _normal_rows(self) -> Tensor:
        """Choose normal rows (B, N): queries differ from the context's, save where rows repeat.

        There the context has few rows, each several times, and some of the queries are these, too.
        """
        n, m = self.context_rows, self.query_rows
        order = self.order(self.tables.normal)
        place = torch.arange(n + m, device=order.device)
        index = torch.where(place < n, place, n + (place - n) % (self.normal - n))
        few = (n * (0.1 + 0.9 * self.uniform())).clamp_min(8.0)
        known = (place < n) | (self.uniform(n + m) < self.uniform())
        return order.gather(1, torch.where(self.again & known, self.below(few, n + m), index))

    def _anomalies(self, columns: Tensor) -> Tensor:
        """Choose anomalies (B, N): of neighbouring ones one for the queries, one for the context.

        Where rows repeat, some of the queries are the context's.
        """
        n, m = self.context_rows, self.query_rows
        order = self.alike(self.order(self.tables.anomalies), columns)
        half = self.half
        few = torch.where(self.same, half.float() ** self.uniform(), half).long()
        place = torch.arange(n + m, device=order.device)
        known = (place < n) | (self.again & (self.uniform(n + m) < self.uniform()))
        place = torch.where(place < n, place, place - n - normal_queries(m)).clamp_min(0)
        index = torch.where(known, 2 * (place % few) + 1, 2 * (place % half))
        return order.gather(1, index.minimum(self.anomalies - 1))

    def order(self, lengths: Tensor) -> Tensor:
        """Put the first `lengths` places of each table in random order: (B, most)."""
        own = lengths[self.chosen, None]
        most = int(own.max())
        keys = self.uniform(most)
        return keys.masked_fill(torch.arange(most, device=keys.device) >= own, 2.0).argsort(1)

    def columns(self, count: int) -> Tensor:
        """Choose columns (B, count) of each table; where it has fewer, the first come again."""
        place = torch.arange(count, device=self.tables.device)
        return self.order(self.tables.width).gather(1, place % self.tables.width[self.chosen, None])

    def cells(self, index: Tensor, columns: Tensor) -> Tensor:
        """Return cells (B, N, d) of rows (B, N) in columns (B, d)."""
        tables, one = self.tables, (-1, 1, 1)
        start = tables.start[self.chosen].view(one) + columns[:, None]
        return tables.cells[start + index[..., None] * tables.width[self.chosen].view(one)]

    def alike(self, order: Tensor, columns: Tensor) -> Tensor:
        """Return the anomalies' row numbers, in some tables by nearness to the first of them."""
        row = order + self.normal
        known = torch.arange(order.shape[1], device=order.device) < self.anomalies
        row = torch.where(known, row, row[:, :1])  # there is no row behind the last table
        cells = self.cells(row, columns)
        spread = cells.std(1, keepdim=True).clamp_min(1e-6)
        gaps = ((cells - cells[:, :1]) / spread).abs().mean(-1)
        near = gaps.masked_fill(~known, torch.inf).argsort(1)
        return torch.where(self.chance(ALIKE), row.gather(1, near), row)

    def gathered(self, rows: Tensor, anomalous: Tensor) -> Tensor:
        """Move anomalies (B, N) of some tables in some columns off to a place, often a tight one.

        Where real anomalies are in the context already, they are often alike and far from all
        others; among the classes of a table few are.
        """
        d = rows.shape[2]
        out = anomalous[..., None]
        normal, count = ~out, (~out).sum(1, keepdim=True)
        middle = (rows * normal).sum(1, keepdim=True) / count
        spread = (((rows - middle) * normal).square().sum(1, keepdim=True) / count).sqrt()
        centre = (rows * out).sum(1, keepdim=True) / out.sum(1, keepdim=True).clamp_min(1)
        some = self.uniform(1, d) < self.uniform(1, 1).clamp_min(0.2)
        side = torch.where(self.uniform(1, d) < 0.5, -1.0, 1.0)
        away = side * torch.exp2(4 * self.uniform(1, 1) - 1)  # half a deviation to eight
        tight = torch.exp2(-5 * self.uniform(1, 1))
        moved = centre + tight * (rows - centre) + away * spread
        whole = (rows == rows.round()).all(1, keepdim=True)
        moved = torch.where(whole, moved.round(), moved)
        chosen = self.chance(GATHERED)[..., None] & out & some
        return torch.where(chosen, moved, rows)

    def widened(self, rows: Tensor) -> Tensor:
        """Turn columns that come again into sums of two columns with noise, on one scale."""
        d, device = rows.shape[2], rows.device
        own = self.tables.width[self.chosen, None]
        made = torch.arange(d, device=device) >= own  # B d
        if not made.any():
            return rows
        z = self._standardised(rows)
        other = (self.uniform(d) * own.clamp_max(d)).long()
        angle = 2 * math.pi * self.uniform(1, d)
        noise = torch.randn(z.shape, device=device, generator=self.generator)
        mixed = angle.cos() * z + angle.sin() * z.gather(2, other[:, None].expand_as(z))
        mixed = mixed + MOST_NOISE * self.uniform(1, d) * noise * ~self.again[..., None]
        return torch.where(made[:, None], mixed, rows)

    def _standardised(self, rows: Tensor) -> Tensor:
        context = rows[:, : self.context_rows]
        return (rows - context.mean(1, keepdim=True)) / context.std(1, keepdim=True).clamp_min(1e-6)

    def joined(self, rows: Tensor, others: Tensor) -> Tensor:
        """Replace some columns by those of other tables (B, N, d), but never the first.

        Not where rows repeat: with foreign cells they would no longer.
        """
        d = rows.shape[2]
        some = self.chance(JOINED) & ~self.again
        share = MOST_JOINED * self.uniform(1, 1) * some[..., None]
        foreign = (self.uniform(1, d) < share) & (torch.arange(d, device=rows.device) > 0)
        return torch.where(foreign, others, rows)

    def bent(self, rows: Tensor) -> Tensor:
        """Bend columns of some tables by random increasing functions, and turn some over.

        y = sinh(a asinh(z) + b): skewed by b, with heavier tails where a > 1.
        """
        d = rows.shape[2]
        a, b = (
            torch.randn(len(rows), 1, d, device=rows.device, generator=self.generator)
            for _ in range(2)
        )
        bent = ((0.4 * a).exp() * self._standardised(rows).asinh() + 0.5 * b).clamp(-20, 20).sinh()
        bent = torch.where(self.uniform(1, d) < 0.5, bent, -bent)
        chosen = self.chance(BENT)[..., None] & (self.uniform(1, d) < 0.7)
        return torch.where(chosen, bent, rows)
