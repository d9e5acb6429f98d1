"""Side columns: independent of the other columns given the row's component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tabiced.prior.ingredient import Ingredient
from tabiced.prior.laws import IMPOSSIBLE
from tabiced.prior.randomness import Random


@dataclass(frozen=True)
class Encoding:
    """How a categorical column is shown: `levels` one-hot columns, or one column of codes."""

    levels: int
    one_hot: bool

    @property
    def width(self) -> int:
        return self.levels if self.one_hot else 1


NUMBER = Encoding(levels=0, one_hot=False)


class Side:
    """P columns x_j with p(x_j | component), for a group of tables with K components.

    Categorical columns hold the index of the level; `encodings` says how each column is shown.
    """

    encodings: tuple[Encoding, ...]
    measured: bool = False
    """Whether the columns have a density, without atoms or steps."""

    def sample(self, random: Random, component: Tensor) -> Tensor:
        """Return cells (T, N, P) for rows with the given components (T, N)."""
        raise NotImplementedError

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the sum over columns of log p(x_j | k) as (T, N, K), or (T, N, 1) if shared."""
        raise NotImplementedError

    def project(self, x: Tensor) -> Tensor:
        """Move cells to the nearest value they can take."""
        return x


class SideColumns(Ingredient):
    """A kind of side columns a table may have; each kind is drawn independently."""

    slot = "columns"
    needs_components: ClassVar[bool] = False
    """Whether the columns only make sense beside a mixture's components."""

    @staticmethod
    def plan(random: Random, budget: int) -> list[Encoding]:
        """Choose how many columns, and how they are shown, within a budget of shown columns."""
        raise NotImplementedError

    @staticmethod
    def build(random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        """Draw the parameters of planned columns."""
        raise NotImplementedError


class CategoricalColumns(SideColumns):
    """Categorical side columns; a slot of their own, so that they can be switched off together."""

    slot = "categorical"


class Categories(Side):
    """x_j has level c with probability softmax(...)_c, per component or for all of them."""

    def __init__(self, log_probabilities: Tensor, encodings: list[Encoding]):
        self.encodings = tuple(encodings)
        levels = torch.tensor([e.levels for e in encodings], device=log_probabilities.device)
        index = torch.arange(log_probabilities.shape[-1], device=log_probabilities.device)
        absent = index >= levels.unsqueeze(-1)  # (P, C)
        masked = log_probabilities.masked_fill(absent, -torch.inf)
        self.log_probabilities = torch.log_softmax(masked, -1)  # (T, K or 1, P, C)

    def sample(self, random: Random, component: Tensor) -> Tensor:
        t, k, p, c = self.log_probabilities.shape
        cumulative = self.log_probabilities.exp().cumsum(-1)  # (T, K, P, C)
        if k > 1:
            index = component[:, :, None, None].expand(-1, -1, p, c)
            cumulative = cumulative.gather(1, index)  # (T, N, P, C)
        level = random.uniform((t, component.shape[1], p, 1)) * cumulative[..., -1:]
        return (level >= cumulative[..., :-1]).sum(-1).double()

    def log_prob(self, x: Tensor) -> Tensor:
        t, n, p = x.shape
        k, c = self.log_probabilities.shape[1], self.log_probabilities.shape[3]
        table = self.log_probabilities.permute(0, 2, 3, 1).unsqueeze(1)  # (T, 1, P, C, K)
        index = x.long()[..., None, None].expand(t, n, p, 1, k)
        found = table.expand(t, n, p, c, k).gather(3, index).squeeze(3)
        return found.clamp_min(IMPOSSIBLE).sum(2)


class PaperCategories(CategoricalColumns, name="independent_categories", paper=0.3):
    """One to five independent columns of two to five levels, Dirichlet(1), one-hot."""

    @staticmethod
    def plan(random: Random, budget: int) -> list[Encoding]:
        encodings: list[Encoding] = []
        for _ in range(random.structure.randint(1, 5)):
            most = min(5, budget - sum(e.width for e in encodings))
            if most < 2:
                break
            encodings.append(Encoding(random.structure.randint(2, most), one_hot=True))
        return encodings

    @staticmethod
    def build(random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        most = max(e.levels for e in encodings)
        # normalised exponentials are Dirichlet(1)
        exponential = -torch.log1p(-random.uniform((tables, 1, len(encodings), most)))
        return Categories(exponential.clamp_min(1e-9).log(), encodings)


def plan_categories(random: Random, budget: int, share: float) -> list[Encoding]:
    """Fill up to a share of the budget with categorical columns, few levels likelier than many.

    A group shows its categories one-hot, as codes, or some this way and some that way.
    """
    pick = random.structure
    style = pick.choice((0.0, 0.0, 1.0, 1.0, 0.5))  # probability of a one-hot column
    room = max(1, round(budget * share)) if budget > 0 else 0
    encodings: list[Encoding] = []
    while room > 0:
        one_hot = room >= 2 and pick.random() < style
        most = min(6, room) if one_hot else 12
        levels = min(most, 2 + int(pick.expovariate(0.6)))
        encodings.append(Encoding(levels, one_hot))
        room -= encodings[-1].width
    return encodings


class IndependentCategories(CategoricalColumns, name="independent_categories", full=0.08):
    """Categorical columns that tell nothing about the others."""

    @staticmethod
    def plan(random: Random, budget: int) -> list[Encoding]:
        return plan_categories(random, budget, random.structure.uniform(0.0, 0.4))

    @staticmethod
    def build(random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        shape = (tables, 1, len(encodings), max(e.levels for e in encodings))
        return Categories(
            random.normal(shape) * random.uniform((tables, 1, 1, 1), 0.0, 2.0), encodings
        )


class DependentCategories(CategoricalColumns, name="dependent_categories", full=0.28):
    """Categorical columns with probabilities of their own in every component."""

    needs_components = True

    @staticmethod
    def plan(random: Random, budget: int) -> list[Encoding]:
        return plan_categories(random, budget, random.structure.uniform(0.0, 0.8))

    @staticmethod
    def build(random: Random, tables: int, components: int, encodings: list[Encoding]) -> Side:
        shape = (tables, components, len(encodings), max(e.levels for e in encodings))
        common = random.normal((tables, 1, *shape[2:])) * random.uniform(
            (tables, 1, 1, 1), 0.0, 1.5
        )
        own = random.normal(shape) * random.log_uniform((tables, 1, 1, 1), 0.3, 5.0)
        return Categories(common + own, encodings)
