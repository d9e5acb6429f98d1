"""Density estimation on tables whose true log-density is known.

Five suites re-create the rows of the paper's density tables from the `paper` preset of the prior:
50 tables each, 2 to 50 columns, 200 to 1,999 context rows, 256 queries. Two more have 2 to 6
columns: Gaussian mixtures, and continuous tables of the `full` preset, for the error of
`log_density` in nats.

Tables are drawn on the CPU from fixed seeds, so the stored results of other methods stay valid
when only our weights change; `check`, a table's mean true log-density, tells if the prior changed.

    python -m tabiced.bench density --methods ours
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tabiced.bench import classical
from tabiced.bench.methods import Method, Score
from tabiced.bench.metrics import kendall_tau, pairwise_accuracy
from tabiced.bench.neural import neural
from tabiced.bench.results import Results, Row, number
from tabiced.bench.tasks import METHOD_KEY, attempt

TABLES, QUERIES = 50, 256
KEY = ("suite", "table", *METHOD_KEY)
VALUES = (
    *("rows", "columns", "check", "pairwise_accuracy", "kendall_tau"),
    *("mean_error", "median_error", "seconds"),  # absolute errors of log_density, in nats
)


@dataclass(frozen=True)
class Suite:
    """A family of tables: a preset of the prior, less some ingredients, and the sizes drawn."""

    title: str
    number: int  # part of the seeds
    preset: str
    without: tuple[str, ...]
    columns: tuple[int, int] = (2, 50)  # both ends included
    rows: tuple[int, int] = (200, 1999)
    in_nats: bool = False  # also measure the error of log_density
    continuous: bool = False  # draw again until no column is counted and no cell is missing


SUITES: dict[str, Suite] = {
    "gaussian": Suite("Gaussian mix.", 1, "paper", ("heavy_tails", "flows", "perturbation")),
    "heavy_tails": Suite("Heavy-tailed mix.", 2, "paper", ("gaussian", "flows", "perturbation")),
    "flows": Suite("Mix. with flows", 3, "paper", ("perturbation",)),
    "perturbed_continuous": Suite("All, perturbed, no cat.", 4, "paper", ("categorical",)),
    "perturbed": Suite("All, perturbed", 5, "paper", ()),
    "low_gaussian": Suite(
        "Gaussian mix., 2-6 columns",
        6,
        "paper",
        ("heavy_tails", "flows", "perturbation", "categorical"),
        columns=(2, 6),
        in_nats=True,
    ),
    "low_full": Suite(
        "Full prior, continuous, 2-6 columns",
        7,
        "full",
        # No column counted, no cell rounded or missing, and all queries from the process itself.
        (
            "categorical",
            "rounded",
            "zero_inflated",
            "special_values",
            "perturbation",
            "repeats",
            "contamination",
            "sampling",
        ),
        columns=(2, 6),
        in_nats=True,
        continuous=True,
    ),
}
PAPER_SUITES = ("gaussian", "heavy_tails", "flows", "perturbed_continuous", "perturbed")


def _estimator(name: str, score: Score) -> Method:
    """Return a method whose score is its log-density."""
    return Method(name, score, score)


BASELINES: dict[str, Method] = {
    method.name: method
    for method in (
        _estimator("KDE", classical.kde),
        _estimator("KDE-scaled", classical.standardised(classical.kde, density=True)),
        _estimator("GMM-BIC", classical.standardised(classical.gmm_bic(10), density=True)),
        Method("kNN", classical.standardised(classical.kth_neighbour(5))),
        *(_estimator(name, neural(name)) for name in ("MAF", "RealNVP", "VAE")),
    )
}


@dataclass(frozen=True)
class Table:
    """A context, queries and the true log-density of the queries, in nats."""

    context: np.ndarray  # (n, d)
    query: np.ndarray  # (m, d)
    log_density: np.ndarray  # (m,)


def draw(suite: Suite, index: int) -> Table:
    """Draw table `index` of a suite: the same numbers every time."""
    from tabiced.prior import Prior

    generator = torch.Generator().manual_seed(1_000 * suite.number + index)
    prior = Prior(suite.preset, without=suite.without)
    while True:
        columns, rows = _uniform(suite.columns, generator), _uniform(suite.rows, generator)
        tables = prior.draw(1, rows, QUERIES, columns, device="cpu", generator=generator)
        missing = tables.context.isnan().any() or tables.query.isnan().any()
        if not suite.continuous or not (missing or tables.categorical.any()):
            break
    return Table(*(part[0].numpy() for part in (tables.context, tables.query, tables.log_density)))


def _uniform(ends: tuple[int, int], generator: torch.Generator) -> int:
    return int(torch.randint(ends[0], ends[1] + 1, (), generator=generator))


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def discard_stale(results: Results, suites: Sequence[str], tables: Iterable[int]) -> int:
    """Drop the rows of tables that the prior no longer draws as it did; return how many."""
    current = {(s, str(i)): mean_log_density(draw(SUITES[s], i)) for s in suites for i in tables}

    def is_stale(row: Row) -> bool:
        check = current.get((row["suite"], row["table"]))
        return check is not None and not np.isclose(number(row["check"]), check, rtol=1e-3)

    return results.discard(is_stale)


def mean_log_density(table: Table) -> float:
    """Return what tells a table from another that the same seed once drew."""
    return float(np.mean(table.log_density, dtype=np.float64))


def estimate(
    suites: Sequence[str],
    methods: Sequence[Method],
    results: Results,
    tables: Iterable[int] = range(TABLES),
    force: bool = False,
    report: Callable[[str], None] | None = None,
) -> None:
    """Score the tables of the suites with every method and store how well the order is kept."""
    for name in suites:
        for index in tables:
            table = draw(SUITES[name], index)
            check = mean_log_density(table)
            for method in methods:
                key = {"suite": name, "table": index, **method.key}
                if not force and key in results:
                    continue
                results.add(
                    {**key, **_measure(method, table, index, SUITES[name].in_nats), "check": check}
                )
                if report:
                    accuracy = results.get(key)["pairwise_accuracy"]  # type: ignore[index]
                    report(f"{method.name:10s} {name} {index} {accuracy}")


def _measure(method: Method, table: Table, seed: int, in_nats: bool) -> dict[str, object]:
    """Measure the log-density where the method estimates one, else its score."""
    start = time.perf_counter()
    found = attempt(
        method.name, method.log_density or method.score, table.context, table.query, seed
    )
    row: dict[str, object] = {
        "rows": len(table.context),
        "columns": table.context.shape[1],
        "seconds": round(time.perf_counter() - start, 4),
        "pairwise_accuracy": float("nan"),
        "kendall_tau": float("nan"),
        "mean_error": float("nan"),
        "median_error": float("nan"),
    }
    if found is not None:
        row["pairwise_accuracy"] = pairwise_accuracy(table.log_density, found)
        row["kendall_tau"] = kendall_tau(table.log_density, found)
        if in_nats and method.log_density is not None:
            error = np.abs(found - table.log_density)
            row["mean_error"], row["median_error"] = float(error.mean()), float(np.median(error))
    return row
