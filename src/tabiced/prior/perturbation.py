"""Query perturbations in the space of the shown columns; at most one kind per table."""

from __future__ import annotations

import torch
from torch import Tensor

from tabiced.prior.randomness import Random
from tabiced.prior.scene import Perturbation, Scene, rows_of


class CellPerturbation(Perturbation):
    """Move some cells of some queries, in the units of the table.

    Per table a share of the queries is perturbed (uniform in 0.1..0.7), and a cell of those with a
    probability that is small in half of the tables (0.1) and anything in the other half.
    """

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, m, _ = scene.queries.shape
        some = random.bernoulli((t, m, 1), random.uniform((t, 1, 1), 0.1, 0.7))
        cell = torch.where(
            random.bernoulli((t, 1, 1), 0.5), 0.1, random.uniform((t, m, 1), 0.05, 1.0)
        )
        chosen = random.bernoulli(scene.queries.shape, cell) & some
        moved = torch.where(chosen, cls.move(random, scene), scene.queries)
        scene.queries = scene.process.project(moved)

    @staticmethod
    def move(random: Random, scene: Scene) -> Tensor:
        """Return a moved version of all queries (T, m, c)."""
        raise NotImplementedError


class CellNoise(CellPerturbation, name="noise", full=0.12):
    """Add noise of 0.05 to 2 column spreads; categories are redrawn."""

    @staticmethod
    def move(random: Random, scene: Scene) -> Tensor:
        q = scene.queries
        size = scene.spread * random.log_uniform((*q.shape[:2], 1), 0.05, 2.0)
        return scene.mix(q + size * random.normal(q.shape), scene.any_level(random, q.shape))


class Mixup(CellPerturbation, name="mixup", full=0.07):
    """Interpolate with a context row; categories come from it."""

    @staticmethod
    def move(random: Random, scene: Scene) -> Tensor:
        q = scene.queries
        partner = rows_of(scene.clean, random.integers(q.shape[:2], 0, scene.clean.shape[1]))
        weight = random.uniform((*q.shape[:2], 1), 0.2, 0.8)
        return scene.mix(torch.lerp(q, partner, weight), partner)


class CutMix(CellPerturbation, name="cutmix", full=0.07):
    """Take cells from another row of the context, the same row for all cells of a query."""

    @staticmethod
    def move(random: Random, scene: Scene) -> Tensor:
        index = random.integers(scene.queries.shape[:2], 0, scene.clean.shape[1])
        return rows_of(scene.clean, index)


class ColumnShuffle(CellPerturbation, name="column_shuffle", full=0.10):
    """Take each cell from a row of its own, which keeps marginals and breaks dependence."""

    @staticmethod
    def move(random: Random, scene: Scene) -> Tensor:
        index = random.integers(scene.queries.shape, 0, scene.clean.shape[1])
        return scene.clean.gather(1, index)


class UniformBox(CellPerturbation, name="uniform_box", full=0.08):
    """Draw uniformly from a box somewhat larger than the bulk of the context."""

    @staticmethod
    def move(random: Random, scene: Scene) -> Tensor:
        q = scene.queries
        low, high = scene.quantile(0.02), scene.quantile(0.98)
        place = random.uniform(q.shape, -0.2, 1.2)
        return scene.mix(low + (high - low) * place, scene.any_level(random, q.shape))


class StretchedTails(CellPerturbation, name="stretched_tails", full=0.08):
    """Move cells away from the column's median by a factor of 1 to 5."""

    @staticmethod
    def move(random: Random, scene: Scene) -> Tensor:
        q, middle = scene.queries, scene.quantile(0.5)
        factor = random.log_uniform((*q.shape[:2], 1), 1.0, 5.0)
        return scene.mix(middle + (q - middle) * factor, q)


class Spikes(Perturbation, name="spikes", full=0.10):
    """Move one to three columns of a table's queries by 1 to 10 spreads."""

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        q = scene.queries
        t, m, _ = q.shape
        few = random.integers((t, m, 1), 0, 4)  # a share of the queries stays as it is
        rank = random.permutations(q.shape).argsort(-1)
        size = scene.spread * random.log_uniform(q.shape, 1.0, 10.0)
        sign = 2.0 * random.integers(q.shape, 0, 2) - 1
        moved = scene.mix(q + sign * size, scene.any_level(random, q.shape))
        scene.queries = scene.process.project(torch.where(rank < few, moved, q))
