"""Draw tasks from real tables of which it is known what people call anomalies there.

How dense real tables are nobody knows, but many have a column that tells classes apart. With one
class taken for normal, rows of the others are anomalies of a kind that no prior makes up. Tasks
are drawn anew every time: other columns, other rows, other anomalies among the context rows.

A collection is a file of such tables; `pretraining/collect.py` makes one.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tabiced.atomic import whole_file

ANOMALIES = 0.25  # share of the queries
LEAST_NORMAL = 32  # different normal rows that must be left for the queries
DIRTY, MOST_DIRTY = 0.6, 0.3  # share of contexts with anomalies, and how many these have at most
ALIKE = 0.3  # share of tasks whose anomalies are those nearest to one of them
AGAIN = 0.2  # share of tasks whose context has the same few anomalies again and again
GATHERED = 0.15  # share of tasks whose anomalies are moved away and together
OWN, OWN_BEYOND = 16, 0.25  # columns that a table must have itself, and the share beyond these
MOST_NOISE = 0.3  # standard deviations, in columns that are made of others
HELD_OUT = 5  # one source in so many is kept for measuring

Labelled = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Normal rows and anomalies (rows, columns) by name: `SOURCE-PACKAGE-TABLE#NUMBER`, or less."""


def write_collection(path: str | os.PathLike[str], tables: Labelled) -> None:
    """Write a collection, atomically; the cells of a column lie together, which packs better."""
    sizes = [(len(normal), *anomalies.shape) for normal, anomalies in tables.values()]
    cells = [np.concatenate(pair).astype(np.float32).T.ravel() for pair in tables.values()]
    content = io.BytesIO()
    np.savez(
        content, names=np.array(list(tables)), sizes=np.array(sizes), cells=np.concatenate(cells)
    )
    with whole_file(Path(path)) as part:
        part.write_bytes(lzma.compress(content.getvalue()))


def read_collection(path: str | os.PathLike[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read what `write_collection` wrote."""
    try:
        with lzma.open(path) as file:
            stored = np.load(io.BytesIO(file.read()))
        names, sizes, cells = stored["names"], stored["sizes"], stored["cells"]
    except (lzma.LZMAError, EOFError, KeyError, ValueError) as error:
        raise OSError(
            f"{os.fspath(path)} is no collection of tables, as pretraining/collect.py makes them."
        ) from error
    ends = np.cumsum((sizes[:, 0] + sizes[:, 1]) * sizes[:, 2])
    found = {}
    parts = np.split(cells, ends[:-1])
    for name, (normal, _, columns), part in zip(names.tolist(), sizes, parts, strict=True):
        rows = part.reshape(columns, -1).T
        found[name] = rows[:normal], rows[normal:]
    return found


def normal_queries(query_rows: int) -> int:
    """Return how many queries of a task are normal; they come before the anomalies."""
    return query_rows - math.ceil(query_rows * ANOMALIES)


def is_held_out(name: str) -> bool:
    """Tell whether a table is kept for measuring, with all its tasks.

    Tables of one package are kept together: some are parts of each other.
    """
    package = "-".join(name.split("#")[0].split("-")[:2]).encode()
    return int(hashlib.md5(package, usedforsecurity=False).hexdigest(), 16) % HELD_OUT == 0


@dataclass
class Tasks:
    """B tasks of one shape: of the queries the first `normal_queries` are normal, no others.

    context: (B, n, d) float32.
    query: (B, m, d) float32.
    """

    context: Tensor
    query: Tensor


class LabelledTables:
    """Real tables on a device, as one long row of numbers, and tasks drawn from them."""

    def __init__(self, tables: Labelled, device: torch.device | str = "cpu"):
        if not tables:
            raise ValueError("A collection needs at least one table.")
        for name, (normal, anomalies) in tables.items():
            if len(normal) < LEAST_NORMAL + 2 or len(anomalies) < 1:
                raise ValueError(
                    f"{name} needs {LEAST_NORMAL + 2} normal rows and an anomaly at least."
                )
        self.device = torch.device(device)
        pairs = list(tables.values())

        def whole(numbers: list[int]) -> Tensor:
            return torch.tensor(numbers, device=self.device)

        self.normal = whole([len(normal) for normal, _ in pairs])
        self.anomalies = whole([len(anomalies) for _, anomalies in pairs])
        self.width = whole([normal.shape[1] for normal, _ in pairs])
        cells = [np.concatenate(pair).astype(np.float32).ravel() for pair in pairs]
        self.start = whole(np.cumsum([0, *(len(c) for c in cells[:-1])]).tolist())
        self.cells = torch.from_numpy(np.concatenate(cells)).to(self.device)
        of_table = [name.split("#")[0] for name in tables]
        self.share = torch.tensor([1 / of_table.count(t) for t in of_table], device=self.device)

    def allows(self, context_rows: int, columns: int) -> Tensor:
        """Tell which tables are long and wide enough.

        Tables of many columns are rare, and their columns hang together: beyond `OWN` of its own, a
        table may be given columns that are made of these.
        """
        own = min(columns, OWN + math.ceil(OWN_BEYOND * (columns - OWN)))
        return (self.width >= own) & (self.normal >= context_rows + LEAST_NORMAL)

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
        chosen = torch.multinomial(self.share * allowed, tables, True, generator=generator)
        draw = _Draw(self, chosen, generator)
        shown = draw.columns(columns)
        normal = draw.order(self.normal)
        left = (self.normal[chosen] - context_rows)[:, None]
        place = torch.arange(normal_queries(query_rows), device=self.device)
        asked = normal.gather(1, context_rows + place % left)

        anomalous = draw.alike(draw.order(self.anomalies), shown)
        # Of neighbouring places one goes to the queries, the other may go to the context.
        half = (self.anomalies[chosen] // 2).clamp_min(1)[:, None]
        place = torch.arange(query_rows - len(place), device=self.device)
        found = anomalous.gather(1, 2 * (place % half))
        place = torch.arange(context_rows, device=self.device)
        few = torch.where(draw.chance(AGAIN), half.float() ** draw.uniform(), half).long()
        index = (2 * (place % few) + 1).clamp_max(self.anomalies[chosen, None] - 1)
        inside = anomalous.gather(1, index)
        rate = MOST_DIRTY * draw.uniform().square()  # mostly few
        rate = rate * (draw.chance(DIRTY) if dirty is None else dirty)
        most = torch.where(self.anomalies[chosen, None] > 1, rate * context_rows, 0.0)
        context = torch.where(place < most, inside, normal[:, :context_rows])

        index = torch.cat([context, asked, found], 1)
        rows = draw.rows(index, shown)
        if dirty is None:
            rows = draw.gathered(rows, index >= self.normal[chosen, None])
        rows = draw.widened(rows, context_rows)
        return Tasks(rows[:, :context_rows], rows[:, context_rows:])


class _Draw:
    """What one draw needs of its tables again and again."""

    def __init__(self, tables: LabelledTables, chosen: Tensor, generator: torch.Generator):
        self.tables, self.chosen, self.generator = tables, chosen, generator

    def uniform(self, *shape: int) -> Tensor:
        """Draw (B, ...) numbers, (B, 1) by default."""
        size = (len(self.chosen), *(shape or (1,)))
        return torch.rand(size, device=self.tables.device, generator=self.generator)

    def chance(self, odds: float) -> Tensor:
        return self.uniform() < odds

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

    def rows(self, index: Tensor, columns: Tensor) -> Tensor:
        """Return cells (B, N, d) of rows (B, N) in columns (B, d)."""
        tables, one = self.tables, (-1, 1, 1)
        start = tables.start[self.chosen].view(one) + columns[:, None]
        return tables.cells[start + index[..., None] * tables.width[self.chosen].view(one)]

    def alike(self, order: Tensor, columns: Tensor) -> Tensor:
        """Return the anomalies' row numbers, in some tables by nearness to the first of them."""
        tables = self.tables
        own = tables.anomalies[self.chosen, None]
        row = order + tables.normal[self.chosen, None]
        known = torch.arange(order.shape[1], device=order.device) < own
        row = torch.where(known, row, row[:, :1])  # there is no row behind the last table
        cells = self.rows(row, columns)
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

    def widened(self, rows: Tensor, context_rows: int) -> Tensor:
        """Turn columns that come again into sums of two columns with noise, on one scale."""
        d, device = rows.shape[2], rows.device
        own = self.tables.width[self.chosen, None]
        made = torch.arange(d, device=device) >= own  # B d
        if not made.any():
            return rows
        context = rows[:, :context_rows]
        z = (rows - context.mean(1, keepdim=True)) / context.std(1, keepdim=True).clamp_min(1e-6)
        other = (self.uniform(d) * own.clamp_max(d)).long()
        angle = 2 * math.pi * self.uniform(1, d)
        noise = torch.randn(z.shape, device=device, generator=self.generator)
        mixed = angle.cos() * z + angle.sin() * z.gather(2, other[:, None].expand_as(z))
        mixed = mixed + MOST_NOISE * self.uniform(1, d) * noise
        return torch.where(made[:, None], mixed, rows)
