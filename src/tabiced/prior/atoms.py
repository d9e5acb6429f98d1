"""Numeric side columns in which one exact value is common: zeros, defaults, saturated readings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tabiced.prior.columns import NUMBER, Encoding, Side, SideColumns
from tabiced.prior.laws import IMPOSSIBLE, Normal
from tabiced.prior.numbers import per_row, plan_numbers
from tabiced.prior.randomness import Random


class WithAtom(Side):
    r"""x = atom with probability pi_k, otherwise x = g(loc_k + scale_k e), e standard normal.

    The density is taken against Lebesgue measure plus `width` times a unit mass at the atom, so it
    is pi_k / width there and (1 - pi_k) times that of g(...) elsewhere. A width of about the
    spread of the other values makes the two comparable whatever the column's units: with a width
    of 1, the atom would be a hundred times denser beside amounts in cents than beside euros.

    Args:
        log_odds: (T, K, P), of the atom.
        location, scale: (T, K, P).
        atom, width: (T, 1, P); the atom a float32 number, since rows are shown as such.
        positive: Whether g is exp rather than the identity.
    """

    def __init__(
        self,
        log_odds: Tensor,
        location: Tensor,
        scale: Tensor,
        atom: Tensor,
        width: Tensor,
        positive: bool,
    ):
        self.log_odds, self.location, self.scale = log_odds, location, scale
        self.atom, self.width, self.positive = atom.float().double(), width, positive
        self.encodings = (NUMBER,) * location.shape[-1]

    def sample(self, random: Random, component: Tensor) -> Tensor:
        shape = (*component.shape, self.location.shape[-1])
        latent = per_row(self.location, component) + per_row(self.scale, component) * random.normal(
            shape
        )
        here = random.bernoulli(shape, torch.sigmoid(per_row(self.log_odds, component)))
        return torch.where(here, self.atom, latent.exp() if self.positive else latent)

    def log_prob(self, x: Tensor) -> Tensor:
        here = (x == self.atom).unsqueeze(2)  # (T, N, 1, P)
        x = x.unsqueeze(2)
        log_odds, location, scale = (
            p.unsqueeze(1) for p in (self.log_odds, self.location, self.scale)
        )
        latent = x.clamp_min(1e-300).log() if self.positive else x
        other = Normal().log_prob((latent - location) / scale) - scale.log()
        if self.positive:
            other = (other - latent).masked_fill(x <= 0, IMPOSSIBLE)
        at_atom = F.logsigmoid(log_odds) - self.width.log().unsqueeze(2)
        return torch.where(here, at_atom, other + F.logsigmoid(-log_odds)).sum(-1)


def _odds(random: Random, tables: int, components: int, columns: int) -> Tensor:
    """Draw log-odds that often agree among columns: what has no entry has none in many places."""
    own = random.normal((tables, components, columns)) * random.log_uniform((tables, 1, 1), 0.2, 3)
    shared = random.normal((tables, components, 1)) * random.log_uniform((tables, 1, 1), 0.2, 3)
    odds = random.normal((tables, 1, columns)) * 1.5 - 0.5 + own + shared
    return odds.clamp(-8.0, 3.0)  # other values must occur, too


class AtomColumns(SideColumns):
    """Numeric columns with an atom: up to half of those there is room for, or up to all of them."""

    needs_components = True

    @staticmethod
    def plan(random: Random, budget: int) -> list[Encoding]:
        return plan_numbers(random, budget, random.structure.choice((0.5, 0.5, 1.0)))


class ZeroInflatedColumns(AtomColumns, name="zero_inflated", full=0.20):
    """Amounts that are exactly zero in many rows and positive and skewed in the others."""

    @staticmethod
    def build(random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        p = len(encodings)
        shape, one = (tables, components, p), (tables, 1, p)
        centre = random.uniform(one, -4.0, 6.0)
        location = centre + random.normal(shape) * random.log_uniform(one, 0.2, 2.0)
        scale = random.log_uniform(shape, 0.2, 1.2)
        odds = _odds(random, tables, components, p)
        return WithAtom(odds, location, scale, torch.zeros_like(centre), centre.exp(), True)


class SpecialValueColumns(AtomColumns, name="special_values", full=0.10):
    """Measurements with a common exact value: a default, a limit, a code such as -1 or 999."""

    @staticmethod
    def build(random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        p = len(encodings)
        shape, one = (tables, components, p), (tables, 1, p)
        unit, centre = random.log_uniform(one, 1e-2, 1e2), random.normal(one) * 3
        between = random.log_uniform(one, 0.2, 2.0)
        location = centre + random.normal(shape) * between
        scale = random.log_uniform(shape, 0.2, 1.2)
        away = random.normal(one).sign() * random.log_uniform(one, 0.1, 10.0)
        spread = (between.square() + 0.25).sqrt()
        odds = _odds(random, tables, components, p)
        atom = (centre + away * spread) * unit
        return WithAtom(odds, location * unit, scale * unit, atom, spread * unit, False)
