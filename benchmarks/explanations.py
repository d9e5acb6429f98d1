"""Measure how often the column that was tampered with is named first, and what explaining costs.

    python benchmarks/explanations.py                  # 100 tables, about half an hour on one core
    python benchmarks/explanations.py --tables 3       # a taste
    python benchmarks/explanations.py --page           # write the page from the stored results

Tables of 5 to 20 columns come from the training prior, whose densities are known. In each of 30 new
rows one cell is tampered with: a number is moved by 2 to 6 robust standard deviations, or the cell
is swapped for that of another row. Rows with p <= 0.01 are explained by several methods.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from tabiced import ICED
from tabiced.atomic import whole_file
from tabiced.bench.ours import version
from tabiced.explanation import UNUSUAL, explain_cells
from tabiced.prior.ingredient import Recipe
from tabiced.prior.plan import draw_process
from tabiced.prior.process import Process
from tabiced.prior.randomness import Random
from tabiced.table import read_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "explanations.csv"
COSTS = RESULTS.with_name("explanations_cost.csv")
PAGE = ROOT / "docs" / "tutorials" / "explanations-measured.md"

REFERENCE_ROWS, TEST_ROWS, NEIGHBOURS = 300, 30, 4
KINDS = ("moved", "swapped")


@dataclass(frozen=True)
class Case:
    """A table with its process, and rows in which one known cell was tampered with."""

    process: Process
    levels: np.ndarray  # (d,) number of categories, 0 for numbers
    reference: np.ndarray  # (n, d)
    rows: np.ndarray  # (m, d)
    guilty: np.ndarray  # (m,) column
    kind: np.ndarray  # (m,) place in KINDS

    def frame(self, rows: np.ndarray) -> pl.DataFrame:
        columns = {}
        for j, levels in enumerate(self.levels):
            column = rows[:, j]
            columns[f"c{j}"] = [f"level {int(v)}" for v in column] if levels else column
        return pl.DataFrame(columns)


def draw_case(index: int) -> Case:
    """Draw case number `index`: the same one every time."""
    generator = torch.Generator().manual_seed(9_000 + index)
    choice = np.random.default_rng(index)
    while True:
        random = Random(generator, "cpu")
        shown = int(torch.randint(5, 31, (), generator=generator))  # one-hot columns count
        process = draw_process(Recipe("full", ()), random, 1, shown)
        drawn = process.sample(random, REFERENCE_ROWS, TEST_ROWS)
        # The network sees float32; what is judged and what has a true density must be the same.
        reference, rows = (part[0].numpy().astype(np.float32).astype(float) for part in drawn)
        if 5 <= rows.shape[1] <= 20 and np.isfinite(reference).all() and np.isfinite(rows).all():
            break
    levels = np.array([encoding.levels for encoding in process.encodings])
    guilty = choice.integers(0, rows.shape[1], TEST_ROWS)
    kind = choice.integers(0, 2, TEST_ROWS)
    kind[levels[guilty] > 0] = 1
    for i, j in enumerate(guilty):
        column = reference[:, j]
        if kind[i] == 0:
            quartiles = np.quantile(column, [0.25, 0.75])
            spread = (quartiles[1] - quartiles[0]) / 1.349 or column.std()
            rows[i, j] += choice.choice([-1, 1]) * choice.uniform(2, 6) * spread
        else:
            others = column[column != rows[i, j]]
            rows[i, j] = choice.choice(others) if len(others) else rows[i, j]
    return Case(process, levels, reference, rows, guilty, kind)


Method = Callable[[Case, ICED, np.ndarray, np.ndarray], np.ndarray]


def ours(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    return explain_cells(model, case.frame(rows)).surprise


def named(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Take only cells that are named as reasons, those with a small p-value."""
    found = explain_cells(model, case.frame(rows))
    return np.where(found.p_value <= UNUSUAL, found.surprise, found.surprise.min() - 1)


def p_value(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Rank by the p-value of the surprise in its column, ties by the surprise."""
    found = explain_cells(model, case.frame(rows))
    order = np.lexsort((found.surprise, -found.p_value), axis=1)
    return np.argsort(order, axis=1).astype(float)


def standardised(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Measure the surprise in spreads of the surprises of reference rows in the same column."""
    assert model.reference_ is not None
    usual = model.reference_.explain(model.reference_.matrix[:128], model.plan_.blocks)
    low, middle, high = np.quantile(usual, [0.1, 0.5, 0.9], axis=0)
    spread = (high - low) / 2.563
    surprise = model.reference_.explain(encoded, model.plan_.blocks)
    return (surprise - middle) / (spread + np.median(spread) + 1e-6)


def neighbours(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Replace the cell by those of the nearest reference rows in the other columns."""
    assert model.reference_ is not None
    context, whole = model.reference_.matrix, model.reference_.whole
    out = np.zeros((len(rows), len(model.plan_.blocks)))
    for j, block in enumerate(model.plan_.blocks):
        others = np.setdiff1d(np.arange(context.shape[1]), block)
        if len(block) == 0 or len(others) == 0:
            continue
        a, b = np.arcsinh(context[:, others]), np.arcsinh(encoded[:, others])
        distance = np.abs(b[:, None] - a).clip(0, 3).sum(-1)  # bounded: no cell decides alone
        near = np.argsort(distance, 1, kind="stable")[:, :NEIGHBOURS]
        changed = np.repeat(encoded[:, None], NEIGHBOURS, 1)
        changed[:, :, block] = context[near][:, :, block]
        energy = whole.energy(changed.reshape(-1, context.shape[1])).reshape(len(rows), -1)
        out[:, j] = energy.mean(1)
    return out


def gradient(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Multiply the gradient of the energy by the cell's deviation from its column's mean."""
    assert model.reference_ is not None
    whole = model.reference_.whole
    values = torch.from_numpy(encoded).requires_grad_(True)
    view, context = next(whole.contexts())
    energy = whole.reader.network.energy(context, values[None][:, :, view.columns])
    (slope,) = torch.autograd.grad(energy.sum(), values)
    product = -slope.numpy() * (encoded - whole.rows.mean(0))
    return np.stack([product[:, block].sum(1) for block in model.plan_.blocks], 1)


def regression(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Take the distance from the linear regression on the other columns, in its own spread."""
    assert model.reference_ is not None
    x = np.arcsinh(model.reference_.matrix)
    covariance = np.cov(x.T)
    ridge = 0.01 * np.trace(covariance) / len(covariance)
    precision = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
    residual = (np.arcsinh(encoded) - x.mean(0)) @ precision / np.sqrt(np.diag(precision))
    blocks = model.plan_.blocks
    return np.stack([np.abs(residual[:, block]).max(1, initial=0.0) for block in blocks], 1)


def z_score(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Take |z| of numbers; for a category of share f the z of equal Gaussian surprise."""
    out = np.zeros_like(rows)
    for j, column in enumerate(case.reference.T):
        if case.levels[j]:
            share = (column == rows[:, j, None]).mean(1).clip(1 / len(column))
            out[:, j] = np.sqrt(-2 * np.log(share))
        else:
            out[:, j] = np.abs(rows[:, j] - column.mean()) / (column.std() or 1.0)
    return out


def truth(case: Case, model: ICED, rows: np.ndarray, encoded: np.ndarray) -> np.ndarray:
    """Take the true log-density gained by the best of 60 other values of the column."""
    values = case.reference[np.linspace(0, REFERENCE_ROWS - 1, 60).astype(int)]
    before = case.process.log_density(torch.from_numpy(rows)[None])[0].numpy()
    out = np.zeros_like(rows)
    for j in range(rows.shape[1]):
        changed = np.repeat(rows[:, None], len(values), 1)
        changed[:, :, j] = values[:, j]
        flat = torch.from_numpy(changed.reshape(1, -1, rows.shape[1]))
        after = case.process.log_density(flat)[0].numpy().reshape(len(rows), -1)
        out[:, j] = after.max(1) - before
    return out


METHODS: dict[str, tuple[Method, str]] = {
    "tabiced": (ours, "energy gained by hiding the cell"),
    "tabiced, named": (named, "the same, if its p-value is at most 0.05: what sentences tell"),
    "by p-value": (p_value, "the same, ranked by p-values"),
    "standardised": (standardised, "the same, in spreads of its column"),
    "neighbours": (neighbours, "cell replaced by those of four similar reference rows"),
    "regression": (regression, "residual of the linear regression on the other columns"),
    "gradient": (gradient, "gradient of the energy x deviation from the mean"),
    "z-score": (z_score, "per-column z-score"),
    "true density": (truth, "the best of 60 other values, by the true density"),
}


def measure(index: int) -> list[dict[str, Any]]:
    """Explain the flagged rows of one case with every method."""
    case = draw_case(index)
    model = ICED().fit(case.frame(case.reference))
    flagged = model.p_values(case.frame(case.rows)) <= 0.01
    rows = case.rows[flagged]
    encoded = model.plan_.encode(model.plan_.align(read_table(case.frame(case.rows))))[flagged]
    lines: list[dict[str, Any]] = []
    for name, (method, _) in METHODS.items():
        score = method(case, model, rows, encoded) if len(rows) else np.zeros(case.rows[:0].shape)
        tied = score == score.max(1, keepdims=True)
        first = tied[np.arange(len(rows)), case.guilty[flagged]] / tied.sum(1)
        for code, kind in enumerate(KINDS):
            mine = case.kind[flagged] == code
            lines.append(
                {
                    "table": index,
                    "columns": case.rows.shape[1],
                    "method": name,
                    "kind": kind,
                    "rows": int((case.kind == code).sum()),
                    "flagged": int(mine.sum()),
                    "first": round(float(first[mine].sum()), 4),
                    "weights": _weights(),
                }
            )
    return lines


def measure_cost() -> dict[str, Any]:
    """Time explaining 20 rows of 1000 x 20, and scoring them, both from nothing read."""
    x = np.random.default_rng(0).normal(size=(1020, 20))
    x[:, 1::2] += x[:, ::2]
    ICED().fit(x[:50]).score_samples(x[:2])  # loads the weights

    def timed(task: Callable[[ICED], object]) -> float:
        start = time.perf_counter()
        task(ICED().fit(x[20:]))
        return time.perf_counter() - start

    score = min(timed(lambda model: model.score_samples(x[:20])) for _ in range(3))
    explain = min(timed(lambda model: explain_cells(model, x[:20])) for _ in range(2))
    return {"score": round(score, 3), "explain": round(explain, 3), "weights": _weights()}


@lru_cache
def _weights() -> str:
    """Name the weights; once, before they are loaded: files may be replaced during a long run."""
    return version()


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    with whole_file(path) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def kept() -> list[dict[str, Any]]:
    """Return what is known of these weights: an interrupted run goes on where it was."""
    known = pl.read_csv(RESULTS).to_dicts() if RESULTS.exists() else []
    return [line for line in known if line["weights"] == _weights()]


def page() -> str:
    """Return the page that tells the stored results."""
    results = pl.read_csv(RESULTS)
    cost = pl.read_csv(COSTS).row(0, named=True)
    mine = results.filter(method="tabiced")
    weights = ", ".join(sorted(results["weights"].unique()))
    text = [
        "# How good are the explanations?",
        "",
        "`python benchmarks/explanations.py` measures this and writes this page. "
        f"{results['table'].n_unique()} tables of {results['columns'].min()} to "
        f"{results['columns'].max()} columns and {REFERENCE_ROWS} reference rows come from the "
        f"training prior. In each of {TEST_ROWS} new rows one cell is tampered with: a number is "
        "moved by 2 to 6 robust standard deviations, or the cell is swapped for that of another "
        f"row. Of {mine['rows'].sum()} rows, {mine['flagged'].sum()} get p <= 0.01. How often does "
        f"a method name the guilty column first? (Weights `{weights}`.)",
        "",
        "| method | | all | moved | swapped |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for name, (_, what) in METHODS.items():
        chosen = results.filter(method=name)
        parts = [chosen, *(chosen.filter(kind=kind) for kind in KINDS)]
        shares = [f"{100 * p['first'].sum() / max(1, p['flagged'].sum()):.1f} %" for p in parts]
        bold = f"**{name}**" if name == "tabiced" else name
        text.append(f"| {bold} | {what} | {' | '.join(shares)} |")
    text += [
        "",
        "Swapped cells have values that are common in their column, so only a method that looks at "
        "the rest of the row can find them. The last line knows the true density of each table; "
        "it shows that the question does not always have a clear answer.",
        "",
        f"Reading 1000 rows of 20 columns and scoring 20 others took {cost['score']:.2f} s on one "
        f"core; reading the same and explaining them {cost['explain']:.2f} s, "
        f"{cost['explain'] / cost['score']:.1f} times as long. Later rows cost less: the reference "
        "rows are explained once.",
        "",
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--page", action="store_true", help="write the page, measure nothing")
    parser.add_argument("--cost", action="store_true", help="measure the cost alone")
    options = parser.parse_args()
    _weights()
    warnings.simplefilter("ignore", UserWarning)
    if not options.page:
        if not options.cost:
            lines = kept()
            for index in sorted(
                set(range(options.tables)) - {int(line["table"]) for line in lines}
            ):
                lines += measure(index)
                write(RESULTS, lines)
                found = [line for line in lines if line["method"] == "tabiced"]
                first, flagged = (sum(line[k] for line in found) for k in ("first", "flagged"))
                print(f"table {index}: so far {first:g} of {flagged} named first", flush=True)
        write(COSTS, [measure_cost()])
    if RESULTS.exists() and COSTS.exists():
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page())
        print(page())


if __name__ == "__main__":
    main()
