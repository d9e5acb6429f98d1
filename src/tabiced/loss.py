"""The training objective: thresholded regression, pairwise ranking, and the level of the context.

Targets are log-densities normalised so that the 10th and 90th percentile of the context's own
log-densities (the anchors) become -1 and +1 (paper, section 3.2, target normalisation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tabiced.description import Description
from tabiced.prior import Tables

SMALLEST_HALF_WIDTH = 0.1  # nats: tables whose density hardly varies are not blown up further


@dataclass(frozen=True)
class LossConfig:
    """Weights of the terms; zero switches a term off. `paper()` is the published objective."""

    regression: float = 1.0
    ranking: float = 1.0
    level: float = 0.2
    context: float = 0.5  # what is asked of context rows, beside queries: to mark the outliers
    band: tuple[float, float] = (-5.0, 5.0)
    typical: float = 2.0  # tasks of real tables: normal rows above anomalies ...
    scale: float = 0.5  # ... and the range of normal rows, instead of all of the above
    margin: float = 0.5
    huber: float | None = 1.0

    @classmethod
    def paper(cls) -> LossConfig:
        return cls(level=0.0, context=0.0, band=(-10.0, 10.0), margin=1.0, huber=None)


@dataclass
class Targets:
    """Normalised targets of a batch of tables."""

    energy: Tensor  # B m
    context: Tensor  # B a: of the first context rows
    level: Tensor  # B 2: middle per column and log half-width, as the level head predicts them
    columns: int

    def each(self, change: Callable[[Tensor], Tensor]) -> Targets:
        """Return the same with all tensors changed."""
        energy, context, level = (change(t) for t in self.tensors())
        return Targets(energy, context, level, self.columns)

    def tensors(self) -> tuple[Tensor, ...]:
        return self.energy, self.context, self.level


@dataclass
class Labels:
    """Which context rows of a batch of real tables are anomalies (of the queries the last are)."""

    context: Tensor  # B n, bool

    def each(self, change: Callable[[Tensor], Tensor]) -> Labels:
        return Labels(change(self.context))

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.context,)


def make_targets(tables: Tables, description: Description) -> Targets:
    """Normalise the tables' log-densities by the percentiles of their anchors."""
    ordered = tables.anchors.sort(-1).values
    last = ordered.shape[-1] - 1
    low, high = (ordered[:, round(p * last)][:, None] for p in (0.1, 0.9))
    half = ((high - low) / 2).clamp_min(SMALLEST_HALF_WIDTH)
    middle = (high + low) / 2
    cells = description.cells
    scale = cells.scale[:, 0].log().float().masked_fill(tables.categorical, 0.0).sum(-1)
    level = (middle[:, 0] + scale - cells.gaussian_level) / cells.columns
    return Targets(
        (tables.log_density - middle) / half,
        (tables.context_log_density - middle) / half,
        torch.stack([level.clamp(-20, 20), half[:, 0].log()], -1),
        cells.columns,
    )


def regression_loss(energy: Tensor, target: Tensor, config: LossConfig) -> Tensor:
    """Fit targets inside the band; ask of those outside only to be predicted outside.

    Inside: mean of the squared (or Huber) error over the queries in the band. Outside: the same
    error against the edge plus margin, only for predictions inside the band, averaged over all
    queries.
    """
    low, high = config.band
    inside = (target >= low) & (target <= high)
    fit = torch.where(inside, _error(energy - target, config), 0.0)
    fit = fit.sum(-1) / inside.sum(-1).clamp_min(1)
    below = (target < low) & (energy > low)
    above = (target > high) & (energy < high)
    tail = torch.where(below, _error(energy - low + config.margin, config), 0.0)
    tail = tail + torch.where(above, _error(high + config.margin - energy, config), 0.0)
    return (fit + tail.mean(-1)).mean()


def _error(difference: Tensor, config: LossConfig) -> Tensor:
    """Square; grow linearly beyond `huber`: outliers that nobody can see must not lead the way."""
    if config.huber is None:
        return difference.square()
    return 2 * F.huber_loss(
        difference, torch.zeros_like(difference), reduction="none", delta=config.huber
    )


def ranking_loss(energy: Tensor, target: Tensor) -> Tensor:
    """Mean of log(1 + exp(-(e_j - e_k))) over the pairs with target_j > target_k."""
    difference = energy[:, :, None] - energy[:, None]  # B m m
    ordered = target[:, :, None] > target[:, None]
    total = torch.where(ordered, F.softplus(-difference), 0.0).sum((1, 2))
    return (total / ordered.sum((1, 2)).clamp_min(1)).mean()


def level_loss(level: Tensor, targets: Targets) -> Tensor:
    """Huber errors of the middle (per square root of a column) and of the log half-width."""
    middle = (level[:, 0] - targets.level[:, 0]) * targets.columns**0.5
    width = level[:, 1] - targets.level[:, 1]
    return F.huber_loss(middle, torch.zeros_like(middle)) + F.huber_loss(
        width, torch.zeros_like(width)
    )


def marking_loss(energy: Tensor, anomalous: Tensor) -> Tensor:
    """Mean of log(1 + exp(e_k - e_j)) over normal rows j and anomalies k (B, n) of a context.

    The mean is over the tables that have both; 0 if there is none.
    """
    pairs = ~anomalous[:, :, None] & anomalous[:, None]  # B n n
    total = torch.where(pairs, F.softplus(energy[:, None] - energy[:, :, None]), 0.0).sum((1, 2))
    count = pairs.sum((1, 2))
    return (total / count.clamp_min(1)).sum() / (count > 0).sum().clamp_min(1)


def typical_loss(
    normal: Tensor, anomalies: Tensor, context: Tensor, labels: Labels, config: LossConfig
) -> dict[str, Tensor]:
    """Return terms by name, as `total_loss` does, for rows of real tables.

    Normal rows (B, p) are to be called more typical than anomalies (B, q); and, so that this can be
    mixed with energies, the 10th and 90th percentile of the normal ones are to be -1 and +1. Of the
    context's rows (B, n) the anomalies are to be marked: who knows them is not misled by them.
    """
    ordered = normal.sort(1).values
    low, high = (ordered[:, round(p * (normal.shape[1] - 1))] for p in (0.1, 0.9))
    one = torch.ones_like(low)
    terms = {
        "typical": F.softplus(anomalies[:, None] - normal[:, :, None]).mean(),
        "scale": F.huber_loss(low, -one) + F.huber_loss(high, one),
        "marking": marking_loss(context, labels.context),
    }
    marked = terms["typical"] + config.context * terms["marking"]
    terms["total"] = config.typical * marked + config.scale * terms["scale"]
    return terms


def total_loss(
    energy: Tensor, context: Tensor, level: Tensor, targets: Targets, config: LossConfig
) -> dict[str, Tensor]:
    """Return the terms by name and their weighted sum as `total`.

    `energy` (B, m) is that of the queries, `context` (B, a) that of the first context rows.
    """
    terms = {
        "regression": regression_loss(energy, targets.energy, config),
        "ranking": ranking_loss(energy, targets.energy),
        "level": level_loss(level, targets),
        "context": config.regression * regression_loss(context, targets.context, config)
        + config.ranking * ranking_loss(context, targets.context),
    }
    weights = {name: getattr(config, name) for name in terms}
    terms["total"] = sum(
        (weights[name] * value for name, value in terms.items() if weights[name]),
        start=torch.zeros((), device=energy.device),
    )
    return terms
