"""Query perturbations of the paper, in the base space before the flow."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from tabiced.prior.randomness import Random
from tabiced.prior.scene import Perturbation, rows_of


class BasePerturbation(Perturbation):
    """Move a tenth of the queries' coordinates, before the flow."""

    share: ClassVar[float] = 0.1

    @classmethod
    def before_flow(cls, random: Random, queries: Tensor, context: Tensor) -> Tensor:
        partners = rows_of(context, random.integers(queries.shape[:2], 0, context.shape[1]))
        moved = cls.move(random, queries, partners)
        return torch.where(random.bernoulli(queries.shape, cls.share), moved, queries)

    @staticmethod
    def move(random: Random, queries: Tensor, partners: Tensor) -> Tensor:
        """Return moved queries (T, m, d), given a random context row for each."""
        raise NotImplementedError


class BaseNoise(BasePerturbation, name="base_noise", paper=0.5 / 3):
    """Add N(0, sigma^2) with sigma = 7.76 d^-1.955."""

    @staticmethod
    def move(random: Random, queries: Tensor, partners: Tensor) -> Tensor:
        return queries + random.normal(queries.shape) * 7.76 * queries.shape[-1] ** -1.955


class BaseMixup(BasePerturbation, name="base_mixup", paper=0.5 / 3):
    """Interpolate with a context row, one lambda ~ N(0.5, 0.1^2) per table."""

    @staticmethod
    def move(random: Random, queries: Tensor, partners: Tensor) -> Tensor:
        weight = 0.5 + 0.1 * random.normal((queries.shape[0], 1, 1))
        return torch.lerp(queries, partners, weight)


class BaseCutMix(BasePerturbation, name="base_cutmix", paper=0.5 / 3):
    """Replace a tenth to a half of the columns, drawn per table, by those of a context row."""

    @staticmethod
    def move(random: Random, queries: Tensor, partners: Tensor) -> Tensor:
        t, _, d = queries.shape
        chosen = random.bernoulli((t, 1, d), random.uniform((t, 1, 1), 0.1, 0.5))
        return torch.where(chosen, partners, queries)
