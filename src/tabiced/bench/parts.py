"""What each part of a score is worth on real tables: left out, alone, or put together otherwise.

    python -m tabiced.bench parts --pack macrodata_dev.npz

Tables are read once with the shipped weights; every variant then mixes the same parts anew. Parts
that are left out leave the others in their proportions.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tabiced.bench.macrodata import KEY as TASK_KEY
from tabiced.bench.metrics import auroc, average_precision
from tabiced.bench.results import Results
from tabiced.bench.tasks import METHOD_KEY, Data, Task
from tabiced.contexts import Weights
from tabiced.scoring import Scoring

KEY = (*(name for name in TASK_KEY if name not in METHOD_KEY), "variant", "weights")
VALUES = ("auroc", "average_precision")
PARTS = {
    "network": "the network",
    "branch": "the branch without attention",
    "tails": "tails of the columns",
    "components": "tails of principal components",
    "pairs": "pairs of columns",
    "distances": "distances to the nearest rows",
}


@dataclass(frozen=True)
class Variant:
    """One way to put parts together; None where a scoring has no other part."""

    title: str
    changed: Callable[[Scoring], Scoring | None]


def _without(part: str) -> Variant:
    def changed(scoring: Scoring) -> Scoring | None:
        rest = {name: share for name, share in scoring.shares.items() if name != part}
        return scoring.with_shares(rest) if any(rest.values()) else None

    return Variant(f"without {PARTS[part]}", changed)


def _alone(part: str) -> Variant:
    return Variant(f"{PARTS[part]} alone", lambda scoring: scoring.with_shares({part: 1.0}))


DEFAULT = "default"
VARIANTS: dict[str, Variant] = {
    DEFAULT: Variant("all, as shipped", lambda scoring: scoring),
    **{f"without-{part}": _without(part) for part in PARTS},
    "mean": Variant("their mean, no soft minimum", lambda scoring: replace(scoring, sharpness=0.0)),
    "without-copies": Variant(
        "nothing added where rows repeat", lambda scoring: replace(scoring, repeats=0.0)
    ),
    **{f"{part}-alone": _alone(part) for part in PARTS},
}


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def read_parts(
    data: Data, seed: int, weights: Weights = None, device: str = "cpu"
) -> tuple[Scoring, dict[str, np.ndarray], np.ndarray] | None:
    """Return the weights' scoring, the parts of the queries' scores, and what copies add to them.

    None for a table without any column that varies.
    """
    from tabiced.estimator import ICED
    from tabiced.table import read_table

    model = ICED(random_state=seed, weights=weights, device=device).fit(data.context)
    table, reference = read_table(data.query), model.reference_
    if reference is None:
        return None
    encoded, strange = model.plan_.encode(table), model.plan_.strange(table)
    return (reference.scoring, *reference.parts(encoded, strange))


def scores(
    data: Data, seed: int, weights: Weights = None, device: str = "cpu"
) -> dict[str, np.ndarray]:
    """Return the queries' scores by every variant that the weights' scoring allows."""
    read = read_parts(data, seed, weights, device)
    if read is None:
        return dict.fromkeys(VARIANTS, np.zeros(len(data.query)))
    shipped, parts, gain = read
    found = {}
    for name, variant in VARIANTS.items():
        scoring = variant.changed(shipped)
        if scoring and all(part in parts for part, share in scoring.shares.items() if share > 0):
            found[name] = scoring.blend(parts) + (gain if scoring.repeats else 0.0)
    return found


def measure(
    tasks: list[Task],
    results: Results,
    options: argparse.Namespace,
    weights: str,
    report: Callable[[str], None] | None,
) -> None:
    """Score every task by all variants and store how well anomalies are told apart."""
    for task in tasks:
        key = {**task.key, "weights": weights}
        if not options.force and {**key, "variant": DEFAULT} in results:
            continue
        start, data = time.perf_counter(), task.load()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = scores(data, task.seed, options.weights, options.device)
        # The default last: where it is stored, all are.
        for name in sorted(found, key=lambda name: name == DEFAULT):
            quality = {
                "auroc": auroc(data.anomalous, found[name]),
                "average_precision": average_precision(data.anomalous, found[name]),
            }
            results.add({**key, "variant": name, **quality})
        if report:
            where = " ".join(map(str, task.key.values()))
            report(f"{where:50s} {time.perf_counter() - start:7.2f} s")
