"""The slot of flows, and the coupling flows (RealNVP)."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tabiced.prior.ingredient import Ingredient
from tabiced.prior.randomness import Random
from tabiced.prior.transforms import MinMax, Standardise, Transform


class Flow(Ingredient):
    """An invertible map of the measured columns; at most one per table."""

    slot = "flows"
    light_tails_only: ClassVar[bool] = False

    @staticmethod
    def build(random: Random, tables: int, d: int) -> list[Transform]:
        """Draw the map's parameters for a group of tables with d measured columns."""
        raise NotImplementedError


class Coupling(Transform):
    """y_b = x_b * exp(g(x_a)) + t(x_a), y_a = x_a, for a split of the columns into a and b."""

    def __init__(self, kept: Tensor, moved: Tensor):
        self.kept, self.moved = kept, moved
        self.order = torch.cat((kept, moved)).argsort()

    def gains(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-scales and shifts of the moved columns given the kept ones."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        kept, moved = x[..., self.kept], x[..., self.moved]
        log_scale, shift = self.gains(kept)
        return torch.cat((kept, moved * log_scale.exp() + shift), -1)[..., self.order]

    def inverse(self, y: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = y[..., self.kept], y[..., self.moved]
        log_scale, shift = self.gains(kept)
        x = torch.cat((kept, (moved - shift) * (-log_scale).exp()), -1)[..., self.order]
        return x, -log_scale.sum(-1)


class BoundedCoupling(Coupling):
    """One hidden tanh layer; log-scales in (-1, 1)."""

    def __init__(self, random: Random, tables: int, d: int, hidden: int = 32):
        order = torch.tensor(random.structure.sample(range(d), d), device=random.device)
        kept = max(1, d // 2)
        super().__init__(order[:kept], order[kept:])
        gain = random.log_uniform((2, tables, 1, 1), 0.5, 2.5)
        self.w1 = random.normal((tables, kept, hidden)) * gain[0] / math.sqrt(kept)
        self.b1 = random.normal((tables, 1, hidden)) * 0.7
        self.w2 = random.normal((tables, hidden, 2 * (d - kept))) * gain[1] / math.sqrt(hidden)

    def gains(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.tanh(torch.baddbmm(self.b1, x, self.w1)) @ self.w2
        scale, shift = out.chunk(2, -1)
        return torch.tanh(scale), shift


class ResidualCoupling(Coupling):
    """The conditioner of the `nflows` RealNVP at its random initialisation.

    Linear, two residual blocks (ReLU, linear, ReLU, linear with weights within 1e-3), linear; all
    other weights and biases uniform within 1 / sqrt(fan-in). Scale = sigmoid(u + 2) + 1e-3.
    """

    hidden = 64

    def __init__(self, random: Random, tables: int, d: int, parity: int):
        columns = torch.arange(d, device=random.device)
        super().__init__(columns[columns % 2 == parity], columns[columns % 2 != parity])

        def linear(fan_in: int, out: int, bound: float | None = None) -> tuple[Tensor, Tensor]:
            bound = bound if bound is not None else 1 / math.sqrt(max(fan_in, 1))
            weight = random.uniform((tables, fan_in, out), -bound, bound)
            return random.uniform((tables, 1, out), -bound, bound), weight

        h = self.hidden
        self.first = linear(len(self.kept), h)
        self.blocks = [(linear(h, h), linear(h, h, 1e-3)) for _ in range(2)]
        self.last = linear(h, 2 * len(self.moved))

    def gains(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def apply(layer: tuple[Tensor, Tensor], v: Tensor) -> Tensor:
            return torch.baddbmm(layer[0], v, layer[1])

        h = apply(self.first, x)
        for inner, outer in self.blocks:
            h = h + apply(outer, F.relu(apply(inner, F.relu(h))))
        scale, shift = apply(self.last, h).chunk(2, -1)
        return torch.log(torch.sigmoid(scale + 2) + 1e-3), shift


class PaperRealNVP(Flow, name="realnvp", paper=0.10):
    """Thirty coupling layers with alternating columns, randomly initialised networks."""

    @staticmethod
    def build(random: Random, tables: int, d: int) -> list[Transform]:
        layers = [ResidualCoupling(random, tables, d, i % 2) for i in range(30)]
        return [MinMax(), *layers, MinMax()]


class StrongRealNVP(Flow, name="realnvp", full=0.08):
    """Two to six coupling layers with random splits and strongly nonlinear networks."""

    @staticmethod
    def build(random: Random, tables: int, d: int) -> list[Transform]:
        parts: list[Transform] = []
        for _ in range(random.structure.randint(2, 6)):
            parts += [Standardise(), BoundedCoupling(random, tables, d)]
        return parts
