"""New rows like the reference rows of a fitted estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tabiced.contexts import progress
from tabiced.generate.density import NetworkDensity
from tabiced.generate.diagnostics import Diagnostics, nearest_distances
from tabiced.generate.layout import layout_of
from tabiced.generate.rows import build, decode, kind_of_cells
from tabiced.generate.sampler import Langevin, Metropolis, Trace, start_rows
from tabiced.table import template_of

if TYPE_CHECKING:
    from tabiced.estimator import ICED
    from tabiced.reference import Reference

CHAINS_AT_ONCE = 2048
Sampler = Metropolis | Langevin


def sample_rows(
    model: ICED,
    n_samples: int = 1,
    *,
    like: Any = None,
    sampler: Sampler | None = None,
    random_state: int | np.random.RandomState | None = None,
    on_step: Callable[[], None] | None = None,
) -> tuple[Any, Diagnostics | None]:
    """Draw rows from the density that a fitted estimator has read, one chain per row.

    `like` is a table of the kind that was fitted, with or without rows: its kind, names and types
    are those of the new rows; None gives an array. `on_step` is called after each step of the
    chains, `steps_for` says how often that will be. Returns the rows and diagnostics (None where
    all columns are constant, so that there is nothing to draw).
    """
    check_is_fitted(model)
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
    plan, reference = model.plan_, model.reference_
    generator = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    if reference is None:
        rows, context, diagnostics = np.empty((n_samples, 0)), np.empty((1, 0)), None
    else:
        context = reference.matrix
        reference.reader.verbose = False
        rows, diagnostics = _run(
            model, reference, n_samples, sampler or Metropolis(), generator, on_step
        )
    columns = decode(plan, rows, context, generator)
    template = _template(plan.columns, plan.names) if like is None else template_of(like)
    return build(columns, template, plan), diagnostics


def steps_for(n_samples: int, sampler: Sampler | None = None) -> int:
    """Return how many steps `sample_rows` takes: chains move in groups."""
    return -(-n_samples // CHAINS_AT_ONCE) * (sampler or Metropolis()).steps


def _run(
    model: ICED,
    reference: Reference,
    n_samples: int,
    sampler: Sampler,
    generator: np.random.Generator,
    on_step: Callable[[], None] | None,
) -> tuple[np.ndarray, Diagnostics]:
    matrix = reference.matrix
    layout = layout_of(model.plan_, matrix)
    density = NetworkDensity(reference, model.n_views)
    starts = start_rows(len(matrix), n_samples, generator)
    parts, traces = [], []

    def counted(steps: Iterable[int]) -> Iterator[int]:
        shown = model.verbose and on_step is None
        for step in progress(list(steps), "sampling", shown):
            yield step
            if on_step:
                on_step()

    for first in range(0, n_samples, CHAINS_AT_ONCE):
        start = layout.context.take(starts[first : first + CHAINS_AT_ONCE])
        state, trace = sampler.run(layout, density, start, generator, counted)
        parts.append(layout.rows_of(state))
        traces.append(trace)
    rows = np.concatenate(parts)
    return rows, _diagnose(rows, matrix, traces)


def _diagnose(rows: np.ndarray, context: np.ndarray, traces: list[Trace]) -> Diagnostics:
    accepted = np.mean([trace.accepted for trace in traces], 0)
    return Diagnostics(
        acceptance_rate=float(accepted[len(accepted) // 2 :].mean()) if len(accepted) else 0.0,
        log_density=np.mean([trace.log_density for trace in traces], 0),
        nearest=nearest_distances(rows, context),
        nearest_in_context=nearest_distances(context),
    )


def _template(columns: tuple[Any, ...], names: tuple[str, ...] | None) -> Any:
    """Return an empty array that can hold the columns."""
    if names is not None:
        raise ValueError(
            "The estimator was fitted to a table with column names, whose kind it no longer knows: "
            "pass like=, a table of that kind (its rows are not used)."
        )
    numeric = all(kind_of_cells(column) in ("number", "empty") for column in columns)
    return np.empty((0, len(columns)), float if numeric else object)
