"""How rows were collected: bootstrapped contexts, copies, rounded and missing cells."""

from __future__ import annotations

import torch
from torch import Tensor

from tabiced.prior.randomness import Random
from tabiced.prior.scene import Event, Scene, rows_of


class Sampling(Event):
    """How rows came into the table; each is drawn independently, in the order defined here."""

    slot = "sampling"


class Bootstrap(Sampling, name="bootstrap", full=0.15):
    """Resample the context with replacement from a fifth to nine tenths of its rows."""

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, n, _ = scene.context.shape
        pool = random.uniform((t, 1), 0.2, 0.9) * n
        scene.context = rows_of(scene.context, (random.uniform((t, n)) * pool).long())


class Copies(Sampling, name="copies", full=0.25):
    """Let up to 30 % of the queries be rows of the context as it is shown, outliers included."""

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, m, _ = scene.queries.shape
        copy = random.bernoulli((t, m, 1), random.uniform((t, 1, 1), 0.0, 0.3))
        index = random.integers((t, m), 0, scene.context.shape[1])
        scene.queries = torch.where(copy, rows_of(scene.context, index), scene.queries)


class Decimals(Sampling, name="decimals", full=0.35):
    """Show measured columns with few digits: in steps of 0.1 % to 30 % of their spread.

    The target stays the log-density of the row before rounding, as in a table of measurements.
    """

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, _, c = scene.context.shape
        affected = random.bernoulli((t, 1, c), random.uniform((t, 1, 1), 0.2, 1.0))
        measured = torch.arange(c, device=random.device) < scene.process.source.measured
        step = scene.spread * random.log_uniform((t, 1, c), 1e-3, 0.3)
        scene.step = step * affected * measured


class Missing(Sampling, name="missing_cells", full=0.15):
    """Hide cells of context and queries at random, at a rate per column; a row keeps at least one.

    The target stays the log-density of the complete row: its expectation given the cells seen is
    what a network can learn.
    """

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, _, c = scene.context.shape
        affected = random.bernoulli((t, 1, c), random.uniform((t, 1, 1), 0.1, 1.0))
        rate = affected * random.log_uniform((t, 1, c), 0.01, 0.4)

        def hide(rows: Tensor) -> Tensor:
            kept = random.integers((*rows.shape[:2], 1), 0, c)
            columns = torch.arange(c, device=random.device)
            return random.bernoulli(rows.shape, rate) & (columns != kept)

        scene.missing = hide(scene.context), hide(scene.queries)
