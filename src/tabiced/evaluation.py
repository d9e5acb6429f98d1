"""Measure a network on fixed held-out tables while it trains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tabiced.description import Description
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
        bfloat = next(network.parameters()).is_cuda
        # Compiled blocks would be compiled once more for evaluation.
        compiled, network.operations = network.operations, Operations()
        result = {}
        for name, parts in self.parts.items():
            accuracies = []
            for description, query, truth in parts:
                with torch.autocast(query.device.type, torch.bfloat16, enabled=bfloat):
                    names = network.column_names(description.column_key)
                    memory, _ = network.encode(description.context, names)
                    energy = network.energy_of(description(query), names, memory)
                accuracies.append(pairwise_accuracy(energy, truth))
            result[name] = float(torch.cat(accuracies).mean())
        network.operations = compiled
        return result
