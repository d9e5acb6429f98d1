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
    r"""y = g(c u), u = r asinh(z / r), in the columns of a mask; the others stay as they are.

    The asinh is nearly the identity for |z| < r and grows like a logarithm beyond, which keeps exp
    and sinh of far outliers at powers of z, so that nothing overflows.
    """

    def __init__(self, columns: Tensor, steepness: Tensor, radius: float):
        self.columns = columns  # (T, 1, d) bool
        self.slope = steepness * radius  # c r
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        warped = self.g(self.slope * torch.asinh(x / self.radius))
        return torch.where(self.columns, warped, x)

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        # z = r sinh(w), w = v / (c r); the clamp only meets cells no data reaches
        v, log_slope, outside = self.undo(y)
        w = (v / self.slope).clamp(-50.0, 50.0)
        log_det = log_slope + w.cosh().log() + (self.radius / self.slope).log()
        x = self.radius * w.sinh()
        if outside is not None:
            x, log_det = x.masked_fill(outside, 0.0), log_det.masked_fill(outside, IMPOSSIBLE)
        return torch.where(self.columns, x, y), (log_det * self.columns).sum(-1)

    def g(self, v: Tensor) -> Tensor:
        raise NotImplementedError

    def undo(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return v = g^-1(y), log dv/dy, and which cells are outside the range of g, if any can."""
        raise NotImplementedError


class Exp(Warp):
    """g(v) = exp(v): positive and skewed."""

    def g(self, v: Tensor) -> Tensor:
        return v.exp()

    def undo(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        v = y.clamp_min(1e-30).log()
        return v, -v, y <= 0


class Sinh(Warp):
    """g(v) = sinh(v): longer tails."""

    def g(self, v: Tensor) -> Tensor:
        return v.sinh()

    def undo(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return y.asinh(), -0.5 * torch.log1p(y.square()), None


class Sigmoid(Warp):
    """g(v) = v / sqrt(1 + v^2): squashed between -1 and 1, which tanh would reach in float32."""

    def g(self, v: Tensor) -> Tensor:
        return v * torch.rsqrt(1 + v.square())

    def undo(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        room = torch.log1p(-y.square().clamp_max(1 - 1e-12))
        return y.clamp(-1, 1) * torch.exp(-0.5 * room), -1.5 * room, y.abs() >= 1


class Power(Warp):
    """g(v) = sign(v) ((1 + |v|)^p - 1)."""

    def __init__(self, columns: Tensor, steepness: Tensor, radius: float, power: Tensor):
        super().__init__(columns, steepness, radius)
        self.power = power

    def g(self, v: Tensor) -> Tensor:
        return v.sign() * torch.expm1(self.power * torch.log1p(v.abs()))

    def undo(self, y: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        grown = torch.log1p(y.abs())
        log_slope = (1 / self.power - 1) * grown - self.power.log()
        return y.sign() * torch.expm1(grown / self.power), log_slope, None


class MarginalWarps(Marginal, name="warps", full=0.40):
    """Skew, stretch or squash some of the columns, one or two ways in a table."""

    @staticmethod
    def build(random: Random, tables: int, d: int, heavy: bool) -> list[Transform]:
        shape = (tables, 1, d)
        kinds = random.structure.sample((Exp, Sinh, Sigmoid, Power), random.structure.randint(1, 2))
        place = random.uniform(shape) / random.uniform((tables, 1, 1), 0.2, 1.0)
        radius = 1.0 if heavy else 2.0
        parts: list[Transform] = [Standardise()]
        for i, kind in enumerate(kinds):
            columns = (place >= i / len(kinds)) & (place < (i + 1) / len(kinds))
            steepness = random.log_uniform(shape, 0.3, 1.3)
            if kind is Power:
                power = random.log_uniform(shape, 0.4, 2.5)
                parts.append(Power(columns, steepness, radius, power))
            else:
                parts.append(kind(columns, steepness, radius))
        return parts


class Units(Marginal, name="units", full=0.7):
    """Give columns units of their own: scales over orders of magnitude, arbitrary offsets."""

    @staticmethod
    def build(random: Random, tables: int, d: int, heavy: bool) -> list[Transform]:
        shape = (tables, 1, d)
        spread = random.uniform((tables, 1, 1), 0.0, 3.0)
        scale = torch.exp(random.normal(shape) * spread).clamp(1e-3, 1e3)
        offset = random.normal(shape) * 3 * random.bernoulli(shape, 0.5)
        return [FixedAffine(scale, offset * scale)]
