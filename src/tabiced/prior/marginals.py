"""What happens to single measured columns after the flow: monotone warps, units."""

from __future__ import annotations

import torch
from torch import Tensor

from tabiced.prior.ingredient import Ingredient
from tabiced.prior.laws import IMPOSSIBLE
from tabiced.prior.randomness import Random
from tabiced.prior.transforms import FixedAffine, Standardise, Transform


class Marginal(Ingredient):
    """A map of single columns; each is drawn independently, applied in the order defined here."""

    slot = "marginals"

    @staticmethod
    def build(random: Random, tables: int, d: int, heavy: bool) -> list[Transform]:
        """Draw parameters for d measured columns of a base with or without heavy tails."""
        raise NotImplementedError


class Warp(Transform):
    r"""y = g(c u), u = r asinh(z / r), with g drawn per column.

    g is the identity (0), exp (1), sinh (2), the sigmoid v / sqrt(1 + v^2) (3) or the power
    sign(v) ((1 + |v|)^p - 1) (4). The asinh is nearly the identity for |z| < r and keeps exp and
    sinh of far outliers at powers of z, so that nothing overflows; identity columns skip it.
    """

    def __init__(self, kind: Tensor, steepness: Tensor, power: Tensor, radius: float):
        self.kind = kind  # (T, 1, d) integers
        self.c, self.p, self.r = steepness, power, radius

    def forward(self, x: Tensor) -> Tensor:
        v = self.c * self.r * torch.asinh(x / self.r)
        y = torch.where(self.kind == 1, v.exp(), x)
        y = torch.where(self.kind == 2, v.sinh(), y)
        y = torch.where(self.kind == 3, v * torch.rsqrt(1 + v.square()), y)
        power = v.sign() * torch.expm1(self.p * torch.log1p(v.abs()))
        return torch.where(self.kind == 4, power, y)

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        # per kind: v and log dv/dy, on inputs clamped into the range
        positive = y.clamp_min(1e-30).log()
        room = torch.log1p(-y.square().clamp_max(1 - 1e-12))
        grown = torch.log1p(y.abs())
        v = torch.where(self.kind == 1, positive, y.asinh())
        v = torch.where(self.kind == 3, y.clamp(-1, 1) * torch.exp(-0.5 * room), v)
        v = torch.where(self.kind == 4, y.sign() * torch.expm1(grown / self.p), v)
        slope = torch.where(self.kind == 1, -positive, -0.5 * torch.log1p(y.square()))
        slope = torch.where(self.kind == 3, -1.5 * room, slope)
        slope = torch.where(self.kind == 4, (1 / self.p - 1) * grown - self.p.log(), slope)
        # z = r sinh(v / (c r)), log dz/dv = log cosh(v / (c r)) - log c
        w = (v / (self.c * self.r)).clamp(-50, 50)
        x = torch.where(self.kind == 0, y, self.r * w.sinh())
        log_det = torch.where(self.kind == 0, 0.0, slope + w.cosh().log() - self.c.log())
        outside = ((self.kind == 1) & (y <= 0)) | ((self.kind == 3) & (y.abs() >= 1))
        return x.masked_fill(outside, 0.0), log_det.masked_fill(outside, IMPOSSIBLE).sum(-1)


class MarginalWarps(Marginal, name="warps", full=0.40):
    """Skew, stretch or squash some of the columns."""

    @staticmethod
    def build(random: Random, tables: int, d: int, heavy: bool) -> list[Transform]:
        shape = (tables, 1, d)
        kind = random.integers(shape, 1, 5)
        kind = kind * random.bernoulli(shape, random.uniform((tables, 1, 1)))
        steepness = random.log_uniform(shape, 0.3, 1.3)
        power = random.log_uniform(shape, 0.4, 2.5)
        return [Standardise(), Warp(kind, steepness, power, radius=1.0 if heavy else 2.0)]


class Units(Marginal, name="units", full=0.7):
    """Give columns units of their own: scales over orders of magnitude, arbitrary offsets."""

    @staticmethod
    def build(random: Random, tables: int, d: int, heavy: bool) -> list[Transform]:
        shape = (tables, 1, d)
        spread = random.uniform((tables, 1, 1), 0.0, 3.0)
        scale = torch.exp(random.normal(shape) * spread).clamp(1e-4, 1e4)
        offset = random.normal(shape) * 3 * random.bernoulli(shape, 0.5)
        return [FixedAffine(scale, offset * scale)]
