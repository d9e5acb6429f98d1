"""Contaminated contexts: up to a fifth of the rows come from an outlier process."""

from __future__ import annotations

import torch
from torch import Tensor

from tabiced.prior.process import Process
from tabiced.prior.randomness import Random
from tabiced.prior.scene import Event, Scene, rows_of

DIRTY = 0.65
"""Share of the tables with outliers whose context has some, too; else the queries alone."""

AGAIN = 0.2
"""Share of the tables whose outliers are exact repeats of a few."""


class Contamination(Event):
    """Replace up to 40 % of the queries, and often up to 20 % of the context, by outliers.

    Targets remain log-densities of the clean process, so the network learns to see through it;
    queries have more of them because telling those from the rest is what is learned here.
    """

    slot = "contamination"

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, n, _ = scene.context.shape
        m = scene.queries.shape[1]
        dirty = random.bernoulli((t, 1, 1), DIRTY)
        rate = torch.cat(
            (
                dirty.double().expand(t, n, 1) * random.uniform((t, 1, 1), 0.0, 0.20),
                random.uniform((t, 1, 1), 0.0, 0.40).expand(t, m, 1),
            ),
            1,
        )
        rows = torch.cat((scene.context, scene.queries), 1)
        outliers = scene.process.project(cls.outliers(random, scene, rows))
        # Outliers, too, may be the same few rows again and again.
        few = torch.where(
            random.bernoulli((t, 1), AGAIN), random.log_uniform((t, 1), 1, 100), n + m
        )
        few = few.long().clamp_max(n + m)
        index = torch.arange(n + m, device=random.device) % few
        outliers = rows_of(outliers, index)
        rows = torch.where(random.bernoulli((t, n + m, 1), rate), outliers, rows)
        scene.context, scene.queries = rows[:, :n], rows[:, n:]

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        """Return an outlier in place of every row (T, N, c)."""
        raise NotImplementedError


def some_columns(random: Random, rows: Tensor) -> Tensor:
    """Choose the cells (T, N, c) an outlier differs in: per table a share of 0.2 to 1."""
    return random.bernoulli(rows.shape, random.uniform((rows.shape[0], 1, 1), 0.2, 1.0))


class Foreign(Contamination, name="foreign_outliers", full=0.12):
    """Rows of another process: those of another table, moved and scaled onto this one's columns."""

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        t, _, c = rows.shape
        place = (rows - scene.quantile(0.5)) / scene.spread
        # heavy tails of the other table would scatter, not gather
        foreign = place.roll(1, 0).clamp(-6.0, 6.0)
        size = random.log_uniform((t, 1, 1), 0.1, 1.0)
        shift = random.normal((t, 1, c)) * random.log_uniform((t, 1, 1), 0.3, 3.0)
        moved = scene.quantile(0.5) + scene.spread * (foreign * size + shift)
        return scene.mix(moved, rows.roll(1, 0))


class AnotherClass(Contamination, name="class_outliers", full=0.32):
    """Rows of a component that the clean process lacks; else those of another process.

    As where one class of a table is taken for normal: outliers have the same kinds of columns and
    often the same ranges, and differ as the classes do.
    """

    @classmethod
    def before_rows(cls, random: Random, process: Process) -> None:
        process.source.hide_component(random)

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        found = scene.process.sample_hidden(random, rows.shape[1])
        return Foreign.outliers(random, scene, rows) if found is None else found


class Scattered(Contamination, name="scattered_outliers", full=0.05):
    """Uniform in a box around the bulk, in some of the columns."""

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        low, high = scene.quantile(0.02), scene.quantile(0.98)
        place = random.uniform(rows.shape, -0.3, 1.3)
        moved = scene.mix(low + (high - low) * place, scene.any_level(random, rows.shape))
        return torch.where(some_columns(random, rows), moved, rows)


class Clustered(Contamination, name="clustered_outliers", full=0.15):
    """A tight cluster, two to eight spreads from the median in each of some columns or in all."""

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        t, _, c = rows.shape
        one = (t, 1, 1)
        away = random.normal((t, 1, c)).sign() * random.log_uniform(one, 2.0, 8.0)
        chosen = random.bernoulli((t, 1, c), random.uniform(one, 0.2, 1.0)).double()
        near = random.bernoulli(one, 0.5)  # so far in all, rather than in each column
        total = chosen.sum(-1, keepdim=True).clamp_min(1).sqrt()
        away = away * chosen / torch.where(near, total, 1.0)
        width = random.log_uniform(one, 0.02, 0.5)
        place = scene.quantile(0.5) + scene.spread * (away + width * random.normal(rows.shape))
        level = scene.any_level(random, torch.Size((t, 1, c))).expand_as(rows)
        return scene.mix(place, level)


class Stuck(Contamination, name="stuck_outliers", full=0.12):
    """The row itself, some columns at one exact value for all: no reading, a default, a limit."""

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        t, _, c = rows.shape
        one = (t, 1, c)
        low, high = scene.quantile(0.0), scene.quantile(1.0)
        inside = low + (high - low) * random.uniform(one)
        edge = torch.where(random.bernoulli(one, 0.5), low, high)
        value = torch.where(random.bernoulli(one, 0.3), inside, edge)
        value = torch.where(random.bernoulli(one, 0.3), 0.0, value)
        # as float32, which is how rows are shown: the same value in every row
        value = scene.mix(value.float().double(), scene.any_level(random, torch.Size(one)))
        chosen = random.bernoulli(one, random.uniform((t, 1, 1), 0.4, 1.0))
        return torch.where(chosen, value.expand_as(rows), rows)


class Shuffled(Contamination, name="shuffled_outliers", full=0.06):
    """Every cell from a row of its own: plausible values, implausible combinations."""

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        return scene.clean.gather(1, random.integers(rows.shape, 0, scene.clean.shape[1]))


class Inflated(Contamination, name="inflated_outliers", full=0.05):
    """The row itself, with noise of half a spread to three spreads in some columns."""

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        size = scene.spread * random.log_uniform((rows.shape[0], 1, 1), 0.5, 3.0)
        moved = scene.mix(rows + size * random.normal(rows.shape), rows)
        return torch.where(some_columns(random, rows), moved, rows)


class Stretched(Contamination, name="stretched_outliers", full=0.03):
    """The row itself, its deviation from the median stretched by a factor of 2 to 6."""

    @staticmethod
    def outliers(random: Random, scene: Scene, rows: Tensor) -> Tensor:
        middle = scene.quantile(0.5)
        factor = random.log_uniform((rows.shape[0], 1, 1), 2.0, 6.0)
        return scene.mix(middle + (rows - middle) * factor, rows)
