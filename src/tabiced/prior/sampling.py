"""How rows were collected: bootstrapped contexts, queries that are context rows, missing cells."""

from __future__ import annotations

import torch
from torch import Tensor

from tabiced.prior.randomness import Random
from tabiced.prior.scene import Event, Scene, rows_of


class Sampling(Event):
    """How rows came into the table; each is drawn independently, in the order defined here."""

    slot = "sampling"


class Bootstrap(Sampling, name="bootstrap", full=0.04):
    """Resample the context with replacement from a fifth to nine tenths of its rows."""

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, n, _ = scene.context.shape
        pool = random.uniform((t, 1), 0.2, 0.9) * n
        scene.context = rows_of(scene.context, (random.uniform((t, n)) * pool).long())


class Copies(Sampling, name="copies", full=0.10):
    """Let up to 30 % of the queries be rows of the context as it is shown, outliers included."""

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, m, _ = scene.queries.shape
        copy = random.bernoulli((t, m, 1), random.uniform((t, 1, 1), 0.0, 0.3))
        index = random.integers((t, m), 0, scene.context.shape[1])
        scene.queries = torch.where(copy, rows_of(scene.context, index), scene.queries)


class FewDigits(Sampling, name="few_digits", full=0.35):
    """Show measured numbers with few digits: rounded to a power of ten in some of the columns.

    Every table takes the coarsest of four steps, each a tenth of the one before, that moves the
    log-density of nine rows in ten by less than half a nat; a table that none suits keeps its
    digits. The target is the density at the rounded row.
    """

    _probes = 48

    @classmethod
    def happen(cls, random: Random, scene: Scene) -> None:
        t, _, c = scene.clean.shape
        measured = torch.tensor(scene.process.measured, device=random.device)
        some = random.bernoulli((t, 1, c), random.uniform((t, 1, 1), 0.3, 1.0)) & measured
        coarse = scene.spread * random.log_uniform((t, 1, c), 0.03, 1.0)
        steps = 10 ** torch.floor(torch.log10(coarse)) * some
        # grid values between the clean rows' extremes are inside every column's support
        low, high = scene.clean.amin(1, keepdim=True), scene.clean.amax(1, keepdim=True)

        def rounded(x: Tensor, step: Tensor) -> Tensor:
            grid = step.clamp_min(1e-12)
            nearest = torch.round(x / grid) * grid
            inner = torch.minimum(
                torch.maximum(nearest, torch.ceil(low / grid) * grid),
                torch.floor(high / grid) * grid,
            )
            nearest = torch.where((x >= low) & (x <= high), inner, nearest)
            return torch.where(step > 0, nearest, x)

        probe = scene.clean[:, : cls._probes]
        n = probe.shape[1]
        finer = torch.stack([steps * 0.1**i for i in range(4)], 1)  # (T, 4, 1, c)
        finer = finer.expand(-1, -1, n, -1).flatten(1, 2)
        trials = rounded(probe.repeat(1, 4, 1), finer)  # (T, 4 n, c)
        log_density = scene.process.log_density(torch.cat((probe, trials), 1)).view(t, 5, n)
        moved = (log_density[:, 1:] - log_density[:, :1]).abs().sort(-1).values
        fits = moved[..., int(0.9 * (n - 1))] < 0.5  # (T, 4)
        first = fits.double().argmax(-1).double().view(t, 1, 1)
        steps = torch.where(fits.any(-1).view(t, 1, 1), steps * 0.1**first, 0.0)
        rows = [scene.clean, scene.context, scene.queries]
        if scene.repeated:
            rows.append(scene.repeated.rows)
        shown = rounded(torch.cat(rows, 1), steps).split([r.shape[1] for r in rows], 1)
        scene.clean, scene.context, scene.queries = shown[:3]
        if scene.repeated:
            scene.repeated.rows = shown[3]


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
