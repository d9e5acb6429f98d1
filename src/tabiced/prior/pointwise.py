"""Pointwise flows: orthogonal mixing, then an increasing function of every coordinate."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tabiced.prior.flows import Flow
from tabiced.prior.linear import rotations
from tabiced.prior.randomness import Random
from tabiced.prior.transforms import MinMax, Standardise, Transform

_NEWTON_STEPS = 8
"""Enough for float64 from the starting points below, whatever the parameters."""


class Pointwise(Transform):
    """z = x Q, y_i = f(z_i; parameters_i), bent at breakpoints k_i.

    Breakpoints are drawn once and hold for context and queries alike. Given in standard deviations
    (`relative`), they are placed by the mean and standard deviation of the rotated context.
    """

    def __init__(self, q: Tensor, knots: Tensor, relative: bool):
        self.q = q  # (T, d, d)
        self.k = knots  # (T, 1, d)
        self.relative = relative

    def calibrate(self, x: Tensor) -> None:
        if self.relative:
            z = x @ self.q
            self.k = z.mean(1, keepdim=True) + self.k * z.std(1, keepdim=True)
            self.relative = False

    def forward(self, x: Tensor) -> Tensor:
        return self.bend(x @ self.q)

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        z = self.unbend(y)
        return z @ self.q.transpose(-1, -2), -self.log_slope(z).sum(-1)

    def bend(self, z: Tensor) -> Tensor:
        raise NotImplementedError

    def unbend(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_slope(self, z: Tensor) -> Tensor:
        raise NotImplementedError


class PiecewiseLinear(Pointwise):
    """f(z) = k + a (z - k) below the breakpoint, k + b (z - k) above."""

    def __init__(self, q: Tensor, knots: Tensor, relative: bool, below: Tensor, above: Tensor):
        super().__init__(q, knots, relative)
        self.below, self.above = below, above

    def bend(self, z: Tensor) -> Tensor:
        return torch.where(z <= self.k, self.below, self.above) * (z - self.k) + self.k

    def unbend(self, y: Tensor) -> Tensor:
        return (y - self.k) / torch.where(y <= self.k, self.below, self.above) + self.k

    def log_slope(self, z: Tensor) -> Tensor:
        return torch.where(z <= self.k, self.below, self.above).log()


class Elu(Pointwise):
    """f(z) = k + alpha (exp(u) - 1) + leak u below the breakpoint, u = z - k; k + beta u above.

    With leak = 0 the range is bounded below, as in the paper; a positive leak reaches everywhere.
    """

    def __init__(
        self, q: Tensor, knots: Tensor, relative: bool, alpha: Tensor, beta: Tensor, leak: float
    ):
        super().__init__(q, knots, relative)
        self.alpha, self.beta, self.leak = alpha, beta, leak

    def bend(self, z: Tensor) -> Tensor:
        u = z - self.k
        below = self.alpha * torch.expm1(u.clamp_max(0)) + self.leak * u
        return torch.where(u <= 0, below, self.beta * u) + self.k

    def unbend(self, y: Tensor) -> Tensor:
        v = y - self.k
        inside = 1 + v.clamp_max(0) / self.alpha
        u = torch.log(inside.clamp_min(1e-300))  # exact without a leak
        if self.leak > 0:
            # f is convex and increasing: Newton's steps approach the root from the right. The
            # asymptote leak * u - alpha starts where the exponential has vanished.
            floor = v + self.alpha
            u = torch.where(inside > self.leak, u, (floor / self.leak).clamp_max(0))
            for _ in range(_NEWTON_STEPS):
                steep = self.alpha * torch.exp(u)
                gap = steep + self.leak * u - floor
                u = (u - gap / (steep + self.leak)).clamp_max(0)
        return torch.where(v <= 0, u, v / self.beta) + self.k

    def log_slope(self, z: Tensor) -> Tensor:
        u = z - self.k
        if self.leak > 0:
            below = torch.log(self.alpha * torch.exp(u.clamp_max(0)) + self.leak)
        else:
            below = self.alpha.log() + u.clamp_max(0)
        return torch.where(u <= 0, below, self.beta.log())


class Softplus(Pointwise):
    """f(z) = s / gamma softplus(gamma (z - k)) + m z."""

    def __init__(
        self, q: Tensor, knots: Tensor, relative: bool, slope: Tensor, gamma: Tensor, floor: Tensor
    ):
        super().__init__(q, knots, relative)
        self.slope, self.gamma, self.floor = slope, gamma, floor

    def bend(self, z: Tensor) -> Tensor:
        bump = F.softplus(self.gamma * (z - self.k), threshold=40.0)
        return self.slope / self.gamma * bump + self.floor * z

    def unbend(self, y: Tensor) -> Tensor:
        # s softplus(v) + m v = r with v = gamma (z - k). The left side is convex and above its two
        # asymptotes m v and (s + m) v, so Newton's steps from their root approach from the right.
        r = self.gamma * (y - self.floor * self.k)
        v = r / torch.where(r < 0, self.floor, self.slope + self.floor)
        for _ in range(_NEWTON_STEPS):
            value = self.slope * F.softplus(v, threshold=40.0) + self.floor * v
            v = v - (value - r) / (self.slope * torch.sigmoid(v) + self.floor)
        return v / self.gamma + self.k

    def log_slope(self, z: Tensor) -> Tensor:
        return torch.log(self.slope * torch.sigmoid(self.gamma * (z - self.k)) + self.floor)


class PaperPointwise(Flow, name="pointwise", paper=0.10):
    """Four pointwise layers of one family, bending less the more columns there are.

    With t = (d - 2) / 48 and s = 0.7 + 0.25 t: a, alpha, gamma, m uniform in (s, 1); b, beta and
    the softplus slope uniform in (1, 1 / s).
    """

    light_tails_only = True

    @staticmethod
    def build(random: Random, tables: int, d: int) -> list[Transform]:
        s = min(0.7 + 0.25 * (d - 2) / 48, 0.99)
        shape = (tables, 1, d)
        family = random.structure.choice((PiecewiseLinear, Elu, Softplus))
        layers: list[Transform] = []
        for _ in range(4):
            q, knots = rotations(random, (tables,), d, 1.0), 0.3 * random.normal(shape)
            low, high = random.uniform(shape, s, 1.0), random.uniform(shape, 1.0, 1 / s)
            if family is PiecewiseLinear:
                layers.append(PiecewiseLinear(q, knots, True, low, high))
            elif family is Elu:
                layers.append(Elu(q, knots, True, low, high, leak=0.0))
            else:
                floor = random.uniform(shape, s, 1.0)
                layers.append(Softplus(q, knots, True, high, low, floor))
        return [MinMax(), *layers, MinMax()]


class StrongPointwise(Flow, name="pointwise", full=0.07):
    """One to three pointwise layers of mixed families with strong bends and varied mixing."""

    @staticmethod
    def build(random: Random, tables: int, d: int) -> list[Transform]:
        shape = (tables, 1, d)
        strength = random.uniform((tables, 1, 1))
        parts: list[Transform] = []
        for _ in range(random.structure.randint(1, 3)):
            q, knots = rotations(random, (tables,), d, strength), 0.7 * random.normal(shape)
            family = random.structure.choice((PiecewiseLinear, Elu, Softplus))
            low, high = random.log_uniform(shape, 0.3, 3.0), random.log_uniform(shape, 0.3, 3.0)
            layer: Pointwise
            if family is PiecewiseLinear:
                layer = PiecewiseLinear(q, knots, False, low, high)
            elif family is Elu:
                layer = Elu(q, knots, False, low, high, leak=0.05)
            else:
                layer = Softplus(q, knots, False, low, random.log_uniform(shape, 0.5, 5.0), high)
            parts += [Standardise(), layer]
        return parts
