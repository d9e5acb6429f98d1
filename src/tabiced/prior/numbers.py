"""Numeric side columns: counts and rounded values, irrelevant noise."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from tabiced.prior.columns import NUMBER, Encoding, Side, SideColumns
from tabiced.prior.laws import IMPOSSIBLE, LIGHT, Law, Normal
from tabiced.prior.randomness import Random

UNITS = (1.0, 1.0, 1.0, 0.1, 0.5, 0.01, 5.0, 10.0, 100.0)
"""Steps between the values of a rounded column."""


def per_row(parameter: Tensor, component: Tensor) -> Tensor:
    """Pick each row's component from parameters (T, K, P), giving (T, N, P)."""
    return parameter.gather(1, component.unsqueeze(-1).expand(-1, -1, parameter.shape[-1]))


def plan_numbers(random: Random, budget: int, share: float) -> list[Encoding]:
    """Choose one to a share of the budget of numeric columns."""
    return [NUMBER] * min(budget, random.structure.randint(1, max(1, int(budget * share))))


class Rounded(Side):
    r"""x = unit * i, where i is the rounded value of g(loc_k + scale_k e), e from a known law.

    P(i | k) = F((g^-1(i + 1/2) - loc_k) / scale_k) - F((g^-1(i - 1/2) - loc_k) / scale_k), with g
    the identity or exp (counts), and with everything beyond `low` or `high` gathered there (a
    rating, a percentage). The column counts as a piecewise constant density P(i | k) / unit.

    Args:
        law: Law of e.
        location: (T, K, P).
        scale: (T, K, P), positive.
        unit: (P,), the step between values.
        low, high: (T, 1, P), smallest and largest i; infinite for none.
        counts: Whether g is exp.
    """

    def __init__(
        self,
        law: Law,
        location: Tensor,
        scale: Tensor,
        unit: Tensor,
        low: Tensor,
        high: Tensor,
        counts: bool,
    ):
        self.law, self.location, self.scale = law, location, scale
        self.unit, self.low, self.high, self.counts = unit, low, high, counts
        self.encodings = (NUMBER,) * location.shape[-1]

    def sample(self, random: Random, component: Tensor) -> Tensor:
        t, n = component.shape
        e = self.law.sample(random, (t, n, self.unit.shape[0]))
        latent = per_row(self.location, component) + per_row(self.scale, component) * e
        # beyond exp(30) rounding is void, and the law's mass there nil
        value = torch.exp(latent.clamp_max(30.0)) if self.counts else latent
        return self.project(value * self.unit)

    def project(self, x: Tensor) -> Tensor:
        index = torch.round(x / self.unit)
        return torch.minimum(torch.maximum(index, self.low), self.high) * self.unit

    def log_prob(self, x: Tensor) -> Tensor:
        index = torch.round(x / self.unit)  # (T, N, P)
        below = torch.where(index <= self.low, -torch.inf, index - 0.5)
        above = torch.where(index >= self.high, torch.inf, index + 0.5)
        if self.counts:
            below, above = torch.log(below.clamp_min(0)), torch.log(above.clamp_min(0))
        location, scale = self.location.unsqueeze(1), self.scale.unsqueeze(1)  # (T, 1, K, P)
        mass = self.law.log_mass(
            (below.unsqueeze(2) - location) / scale, (above.unsqueeze(2) - location) / scale
        )
        outside = (index < self.low) | (index > self.high)
        mass = mass.masked_fill(outside.unsqueeze(2), IMPOSSIBLE)
        return (mass - self.unit.log()).sum(-1)


class Noise(Side):
    r"""x = loc + scale sinh((asinh(e) + skew) * tail), e standard normal, for all components.

    `tail` < 1 gives light tails, > 1 heavy ones; `skew` leans to one side.
    """

    measured = True

    def __init__(self, location: Tensor, scale: Tensor, skew: Tensor, tail: Tensor):
        self.location, self.scale = location, scale  # (T, 1, P)
        self.skew, self.tail = skew, tail
        self.encodings = (NUMBER,) * location.shape[-1]

    def sample(self, random: Random, component: Tensor) -> Tensor:
        e = random.normal((*component.shape, self.location.shape[-1]))
        return self.location + self.scale * torch.sinh((e.asinh() + self.skew) * self.tail)

    def log_prob(self, x: Tensor) -> Tensor:
        y = (x - self.location) / self.scale
        bent = y.asinh() / self.tail - self.skew
        e = bent.sinh()
        log_slope = torch.log(bent.cosh() / self.tail) - 0.5 * torch.log1p(y.square())
        return (Normal().log_prob(e) + log_slope - self.scale.log()).sum(-1, keepdim=True)


class RoundedColumns(SideColumns, name="rounded", full=0.28):
    """Integers, ratings, counts and rounded measurements that depend on the component."""

    needs_components = True
    laws: ClassVar[tuple[Law, ...]] = LIGHT

    @staticmethod
    def plan(random: Random, budget: int) -> list[Encoding]:
        return plan_numbers(random, budget, 0.7)

    @classmethod
    def build(cls, random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        pick, p = random.structure, len(encodings)
        shape, one = (tables, components, p), (tables, 1, p)
        counts, bounded = pick.random() < 0.4, pick.random() < 0.4
        values = random.log_uniform(one, 2.0, 300.0)  # about how many different values
        centre = random.uniform(one, 0.0, 1.0) + 0.4 * random.normal(shape)
        width = random.log_uniform(one, 0.03, 0.4) * random.log_uniform(shape, 0.5, 2.0)
        if counts:  # exp: centre and width become powers of the number of values
            location, scale = centre * values.log(), (width * 3).clamp(0.1, 1.0)
        else:
            location, scale = centre * values, width * values
        infinite = torch.full_like(values, math.inf)
        low, high = -infinite, infinite
        if bounded or counts:
            low, high = torch.zeros_like(values), values.ceil() if bounded else infinite
        unit = torch.tensor([pick.choice(UNITS) for _ in range(p)], device=random.device).double()
        return Rounded(pick.choice(cls.laws), location, scale, unit, low, high, counts)


class IrrelevantColumns(SideColumns, name="irrelevant", full=0.20):
    """Numeric columns that tell nothing about the others."""

    @staticmethod
    def plan(random: Random, budget: int) -> list[Encoding]:
        return plan_numbers(random, budget, 0.5)

    @staticmethod
    def build(random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        shape = (tables, 1, len(encodings))
        return Noise(
            random.normal(shape) * 3,
            random.log_uniform(shape, 1e-2, 1e2),
            random.uniform(shape, -0.8, 0.8),
            random.log_uniform(shape, 0.5, 1.8),
        )
