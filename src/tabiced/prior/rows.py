"""Draw a group's rows: context, queries, targets, and whatever befalls them on the way."""

from __future__ import annotations

import torch
from torch import Tensor

from tabiced.prior.contamination import Contamination
from tabiced.prior.encoding import Shown
from tabiced.prior.ingredient import Recipe
from tabiced.prior.process import Process
from tabiced.prior.randomness import Random
from tabiced.prior.repeats import Repeats
from tabiced.prior.sampling import Sampling
from tabiced.prior.scene import Event, Perturbation, Scene

ANCHORS = 256
"""Most context rows whose log-density comes with a table."""

FLOOR = -1e7
"""Least target: what lies below differs in nothing a network could use."""


def draw_rows(
    recipe: Recipe, random: Random, process: Process, context_rows: int, query_rows: int
) -> dict[str, Tensor]:
    """Return the fields of `Tables` for one group."""
    events: list[type[Event]] = [
        *recipe.at_most_one(Perturbation, random),
        *recipe.each(Repeats, random),
        *recipe.at_most_one(Contamination, random),
        *recipe.each(Sampling, random),
    ]
    for event in events:
        event.before_rows(random, process)
    moves = [event.before_flow for event in events]
    context, queries = process.sample(random, context_rows, query_rows, moves)
    scene = Scene(process, context, queries, clean=context)
    for event in events:
        event.happen(random, scene)

    # A target belongs to the row as it is shown: round to float32 first, then take the density.
    parts = [scene.clean[:, :ANCHORS], scene.context[:, :ANCHORS], scene.queries]
    if scene.context is scene.clean:
        del parts[1]
    points = torch.cat(parts, 1).float().double()
    log_density = exact_log_density(scene, points, parts[0].shape[1]).clamp_min(FLOOR).float()
    found = log_density.split([part.shape[1] for part in parts], 1)

    shown = Shown(random, context.shape[0], process.encodings)
    hidden = scene.missing or (None, None)
    return {
        "context": shown(scene.context, hidden[0]),
        "query": shown(scene.queries, hidden[1]),
        "log_density": found[-1],
        "context_log_density": found[-2],
        "anchors": found[0],
        "categorical": shown.categorical,
    }


def exact_log_density(scene: Scene, points: Tensor, clean: int) -> Tensor:
    """Return the clean process's log-density of points (T, N, c); the first are clean rows."""
    log_density = scene.process.log_density(points)
    if scene.repeated:
        spread = _spread(log_density[:, :clean])
        log_density = log_density + scene.repeated.log_factor(points, spread)
    return log_density


def _spread(log_density: Tensor) -> Tensor:
    """Return a robust standard deviation along the last dimension, which is kept; at most 30."""
    low, high = torch.quantile(log_density, log_density.new_tensor([0.16, 0.84]), -1, True)
    return (0.5 * (high - low)).clamp_max(30.0)
