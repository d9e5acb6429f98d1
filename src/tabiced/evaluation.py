"""Measure a network on fixed held-out tables while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tabiced.description import Description, Rows
from tabiced.labelled import LabelledTables, normal_queries
from tabiced.model import Network, Operations
from tabiced.prior import Prior


def pairwise_accuracy(score: Tensor, truth: Tensor) -> Tensor:
    """Return the share of pairs of the m rows (..., m) put in the true order, ties counted half.

    The same number as `tabiced.bench.metrics.pairwise_accuracy`, batched and on the device.
    """
    s = torch.sign(score[..., :, None] - score[..., None, :])
    t = torch.sign(truth[..., :, None] - truth[..., None, :])
    m = score.shape[-1]
    return 0.5 + 0.5 * (s * t).sum((-1, -2)) / (m * (m - 1))


@dataclass(frozen=True)
class _Row:
    preset: str
    without: tuple[str, ...]
    columns: tuple[int, ...]


ROWS = {
    "gaussian_low": _Row(
        "paper", ("heavy_tails", "flows", "categorical", "perturbation"), (2, 3, 4, 5, 6)
    ),
    "gaussian": _Row("paper", ("heavy_tails", "flows", "perturbation"), (5, 15, 30, 50)),
    "heavy": _Row("paper", ("gaussian", "flows", "perturbation"), (5, 15, 30, 50)),
    "perturbed": _Row("paper", (), (5, 15, 30, 50)),
    "full": _Row("full", (), (3, 6, 12, 24, 48)),
}


class Suite:
    """Tables drawn once from a fixed seed, five rows of them."""

    def __init__(self, network: Network, tables: int, context_rows: int = 500, queries: int = 200):
        device = network.codes.device
        generator = torch.Generator(device).manual_seed(20_001)
        self.parts: dict[str, list[tuple[Description, Tensor, Tensor]]] = {}
        for name, row in ROWS.items():
            prior = Prior(row.preset, without=row.without)
            each = max(1, tables // len(row.columns))
            self.parts[name] = []
            for columns in row.columns:
                drawn = prior.draw(
                    tables=each,
                    context_rows=context_rows,
                    query_rows=queries,
                    columns=columns,
                    device=device,
                    generator=generator,
                )
                self.parts[name].append(
                    (network.describe(drawn.context), drawn.query, drawn.log_density)
                )

    @torch.no_grad()
    def accuracy(self, network: Network) -> dict[str, float]:
        """Return the mean pairwise accuracy of each row of the suite."""
        result = {}
        with plain_blocks(network):
            for name, parts in self.parts.items():
                accuracies = []
                for description, query, truth in parts:
                    names = network.column_names(description.column_key)
                    memory, _ = network.encode(description.context, names)
                    energy = network.energy_of(description(query), names, memory)
                    accuracies.append(pairwise_accuracy(energy, truth))
                result[name] = float(torch.cat(accuracies).mean())
        return result


@contextmanager
def plain_blocks(network: Network) -> Iterator[None]:
    """Evaluate as it is trained, in bfloat16 on a GPU, but not compiled once more for it."""
    kept, network.operations = network.operations, Operations()
    device = network.codes.device.type
    try:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            yield
    finally:
        network.operations = kept


REAL_SHAPES = ((120, 4), (300, 12), (600, 7), (900, 9))  # context rows, columns
REAL_TABLES = 10  # that a shape must fit, or it is made smaller


class RealSuite:
    """Tasks drawn once from held-out real tables, with clean and with contaminated contexts."""

    def __init__(
        self,
        network: Network,
        tables: LabelledTables,
        each: int,
        queries: int = 160,
        shapes: tuple[tuple[int, int], ...] = REAL_SHAPES,
    ):
        generator = torch.Generator(tables.device).manual_seed(20_002)
        self.normal = normal_queries(queries)
        self.parts: dict[str, list[tuple[Rows, Rows, Tensor]]] = {}
        for shape in shapes:
            rows, columns = tables.fitted(*shape, REAL_TABLES)
            for name, dirty in (("real_clean", False), ("real_contaminated", True)):
                drawn = tables.draw(each, rows, queries, columns, generator, dirty)
                description = network.describe(drawn.context)
                with torch.no_grad():
                    part = description.context, description(drawn.query), description.column_key
                self.parts.setdefault(name, []).append(part)

    @torch.no_grad()
    def accuracy(self, network: Network) -> dict[str, float]:
        """Return how many pairs of a normal row and an anomaly are told apart (AUROC)."""
        result = {}
        with plain_blocks(network):
            for name, parts in self.parts.items():
                found = []
                for context, query, key in parts:
                    typical = network.energy_all(context, query, network.column_names(key))
                    normal, anomalies = typical.split(
                        [self.normal, len(typical[0]) - self.normal], 1
                    )
                    higher = torch.sign(normal[:, :, None] - anomalies[:, None])
                    found.append(0.5 + 0.5 * higher.mean((1, 2)))
                result[name] = float(torch.cat(found).mean())
        return result
