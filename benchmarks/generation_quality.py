"""Compare new rows with fresh true rows on synthetic tables whose density is known.

    python benchmarks/generation_quality.py --page docs/generation.md   # all methods, 20 tables
    python benchmarks/generation_quality.py --methods ours jitter --tables 5
    python benchmarks/generation_quality.py --picture docs/images/generation.png

Tables come from the prior: 2 to 8 measured columns, 200 to 600 reference rows, half of them from
the paper's preset and half from the full one. Methods:

    truth          fresh rows, the best there is
    copies         reference rows drawn with replacement
    jitter         the same with noise of 0.14 standard deviations
    even jitter    the same noise on reference rows of which none is drawn twice, as far as they go:
                   rows that `ours` starts from
    kernels        the kernels of `ours` without the network, from the same rows
    mixture        up to ten Gaussians with full covariances, as many as BIC chooses
    ours           Metropolis
    network alone  Metropolis(trust=1): nothing but the network's density
    langevin       SGLD with TabEBM's settings: z-scores, start noise 0.01, 200 steps of 0.1 for
                   every chain, noise 0.01
    langevin mean  the same, the step divided by the number of chains, as TabEBM's code does

Measured, against 2,000 fresh true rows:

- the energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'|, in columns scaled by the interquartile
  range and bent beyond four deviations. Unbiased, so the truth is at 0 and small values can be
  negative. Rows drawn twice count against a method, rows that are copies do not.
- the true log-density of the rows less that of true rows: the mean's gap and the median's. "Within
  10 %" is, for each table, |gap of the mean| <= 0.1 |mean of true rows|. That depends on the units
  of the table (the mean may be near 0), so the gap is told in parts of the range between the 10th
  and the 90th percentile of the true log-density, too.
- how often a new row is nearer to the reference rows than these are to each other: 0.5 for true
  rows, 1 for copies.

The results go to benchmarks/results/generation_quality.csv; what is there is not measured again
(delete it where the sampler or the prior has changed). Seconds are of processor time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import tabiced.prior  # noqa: F401  (makes the ingredients known)
from tabiced import ICED
from tabiced.bench.density import SUITES
from tabiced.bench.ours import version
from tabiced.bench.results import Results, number, write_section
from tabiced.cells import soften
from tabiced.generate import Langevin, Metropolis, sample_rows
from tabiced.generate.diagnostics import Diagnostics, nearest_distances
from tabiced.generate.kernels import Kernels
from tabiced.generate.layout import Layout
from tabiced.generate.sampler import TRUSTED_WIDTH, start_rows
from tabiced.prior.ingredient import Recipe
from tabiced.prior.plan import draw_process
from tabiced.prior.process import Process
from tabiced.prior.randomness import Random

WITHOUT = SUITES["low_full"].without  # measured columns alone, no events
ROWS, FRESH, TABLES = 300, 2000, 20
LANGEVIN_ROWS = 50  # gradients are slow, and the distance does not depend on the number of rows
JITTER = 0.14
OUT = Path("benchmarks/results/generation_quality.csv")
Method = Callable[["Table", int], np.ndarray]
KEY = ("table", "method", "options", "weights")
VALUES = (
    *("rows", "columns", "energy_distance", "mean_gap", "median_gap", "true_mean", "true_range"),
    *("nearer", "seconds"),
)
WITHIN = 0.1


class Table:
    """A process with reference rows and fresh rows."""

    def __init__(self, index: int, columns: int | None = None):
        generator = torch.Generator().manual_seed(500 + index)
        random = Random(generator, "cpu")
        recipe = Recipe("paper" if index % 2 == 0 else "full", WITHOUT)
        d = columns or int(torch.randint(2, 9, (), generator=generator))
        n = int(torch.randint(200, 601, (), generator=generator))
        self.process = _measured_process(recipe, random, d)
        reference, fresh = self.process.sample(random, n, FRESH + 1000)
        # In float32 first, as users have them: the density belongs to the row as it is shown.
        self.reference, fresh_rows = (x[0].float().double().numpy() for x in (reference, fresh))
        self.fresh, self.spare = fresh_rows[:FRESH], fresh_rows[FRESH:]
        low, self.middle, high = np.quantile(self.reference, (0.25, 0.5, 0.75), axis=0)
        self.scale = (high - low) / 1.349

    def log_density(self, rows: np.ndarray) -> np.ndarray:
        return self.process.log_density(torch.from_numpy(rows)[None])[0].numpy()

    def distance(self, rows: np.ndarray) -> float:
        x, y = self._scaled(rows), self._scaled(self.fresh)
        return 2 * float(torch.cdist(x, y).mean()) - _spread(x) - _spread(y)

    def nearer(self, rows: np.ndarray) -> float:
        """Return how often new rows are nearer to the reference than its rows to each other."""
        new, old = ((x - self.middle) / self.scale for x in (rows, self.reference))
        told = Diagnostics(0.0, np.zeros(0), nearest_distances(new, old), nearest_distances(old))
        return told.closer_than_context

    def _scaled(self, rows: np.ndarray) -> torch.Tensor:
        return soften(torch.from_numpy((rows - self.middle) / self.scale))


def _measured_process(recipe: Recipe, random: Random, columns: int) -> Process:
    """Draw processes until one has measured columns alone."""
    while True:
        process = draw_process(recipe, random, 1, columns)
        if all(process.measured):
            return process


def _spread(x: torch.Tensor) -> float:
    """Return the mean distance between two different rows."""
    return float(torch.cdist(x, x).sum()) / (len(x) * (len(x) - 1))


def truth(table: Table, seed: int) -> np.ndarray:
    return table.spare[:ROWS]


def copies(table: Table, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return table.reference[draw.integers(len(table.reference), size=ROWS)]


def _noise(table: Table, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed + 1).standard_normal((ROWS, table.reference.shape[1]))
    return JITTER * table.reference.std(0) * noise


def jitter(table: Table, seed: int) -> np.ndarray:
    return copies(table, seed) + _noise(table, seed)


def even_jitter(table: Table, seed: int) -> np.ndarray:
    start = start_rows(len(table.reference), ROWS, np.random.default_rng(seed))
    return table.reference[start] + _noise(table, seed)


def kernels(table: Table, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    found = Kernels(Layout((table.reference - table.middle) / table.scale, []), draw)
    start = start_rows(found.count, ROWS, draw)
    rows = found.centres.numbers[start] + TRUSTED_WIDTH * found.noise(start, draw)
    return rows * table.scale + table.middle


def mixture(table: Table, seed: int) -> np.ndarray:
    from sklearn.mixture import GaussianMixture

    scaled = (table.reference - table.middle) / table.scale
    fits = [GaussianMixture(k, random_state=seed).fit(scaled) for k in range(1, 11)]
    best = min(fits, key=lambda fit: fit.bic(scaled))
    return best.sample(ROWS)[0] * table.scale + table.middle


def ours(**options: float) -> Method:
    def draw(table: Table, seed: int) -> np.ndarray:
        sampler = Metropolis(**options)  # type: ignore[arg-type]
        rows, _ = sample_rows(ICED().fit(table.reference), ROWS, sampler=sampler, random_state=seed)
        return rows

    return draw


def langevin(step: float) -> Method:
    def draw(table: Table, seed: int) -> np.ndarray:
        sampler, model = Langevin(step=step), ICED().fit(table.reference)
        return sample_rows(model, LANGEVIN_ROWS, sampler=sampler, random_state=seed)[0]

    return draw


METHODS: dict[str, Method] = {
    "truth": truth,
    "copies": copies,
    "jitter": jitter,
    "even jitter": even_jitter,
    "kernels": kernels,
    "mixture": mixture,
    "ours": ours(),
    "network alone": ours(trust=1),
    "langevin": langevin(0.1),
    "langevin mean": langevin(0.1 / LANGEVIN_ROWS),
}
WITH_NETWORK = ("ours", "network alone", "langevin", "langevin mean")


def measure(tables: int, names: list[str], options: dict[str, float], results: Results) -> None:
    """Draw rows with every method and store how they compare with the truth."""
    methods = {**METHODS, "ours": ours(**options)}
    said = " ".join(f"{name}={value}" for name, value in sorted(options.items()))
    for index in range(tables):
        table: Table | None = None
        for name in names:
            key = {
                "table": index,
                "method": name,
                "options": said if name == "ours" else "",
                "weights": version(scoring=False) if name in WITH_NETWORK else "",
            }
            if key in results:
                continue
            table = table or Table(index)
            start = time.process_time()
            rows = methods[name](table, index)
            seconds = time.process_time() - start
            mine, true = table.log_density(rows), table.log_density(table.fresh)
            results.add(
                {
                    **key,
                    "rows": table.reference.shape[0],
                    "columns": table.reference.shape[1],
                    "energy_distance": table.distance(rows),
                    "mean_gap": float(mine.mean() - true.mean()),
                    "median_gap": float(np.median(mine) - np.median(true)),
                    "true_mean": float(true.mean()),
                    "true_range": float(np.ptp(np.quantile(true, (0.1, 0.9)))),
                    "nearer": table.nearer(rows),
                    "seconds": round(seconds, 2),
                }
            )
            shown = " ".join(f"{k} {results.get(key)[k]}" for k in VALUES)  # type: ignore[index]
            print(f"{name} {said} {index}: {shown}", file=sys.stderr, flush=True)


def summary(results: Results) -> list[str]:
    """Return how the methods compare, as a table in Markdown."""
    groups: dict[str, list[dict[str, str]]] = {}
    for row in results.rows():
        if row["weights"] in ("", version(scoring=False)):
            groups.setdefault(f"{row['method']} {row['options']}".strip(), []).append(row)
    order = {name: place for place, name in enumerate(METHODS)}
    rivals = {
        rival: {row["table"]: number(row["energy_distance"]) for row in groups.get(rival, [])}
        for rival in ("jitter", "even jitter", "langevin", "langevin mean")
    }
    out = [
        f"| rows | tables | energy distance x 1000 | nearer to the truth than {', '.join(rivals)} "
        "| log p within 10 % | gap of the mean, median table "
        "| in parts of the range: median, worst table | nearer to the reference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(groups, key=lambda name: (order.get(name, len(order)), name)):
        rows = groups[name]
        gap, mean, size, distance, near = (
            np.array([number(row[field]) for row in rows])
            for field in ("mean_gap", "true_mean", "true_range", "energy_distance", "nearer")
        )
        wins = [
            sum(number(r["energy_distance"]) < known.get(r["table"], np.nan) for r in rows)
            for known in rivals.values()
        ]
        within = int((np.abs(gap) <= WITHIN * np.abs(mean)).sum())
        part = gap / size
        out.append(
            f"| {name} | {len(rows)} | {1000 * distance.mean():.1f} | {', '.join(map(str, wins))} "
            f"| {within} | {np.median(gap):.2f} | {np.median(part):.2f}, {part.min():.3g} "
            f"| {near.mean():.2f} |"
        )
    return out


def draw_picture(path: Path, indices: tuple[int, ...] = (100, 101, 103)) -> None:
    """Draw reference rows, copies with noise and new rows over the density of 2-D tables."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(indices), 3, figsize=(9, 3 * len(indices)), squeeze=False)
    for place, (line, index) in enumerate(zip(axes, indices, strict=True)):
        table = Table(index, columns=2)
        low, high = np.quantile(table.fresh, (0.005, 0.995), axis=0)
        low, high = low - 0.15 * (high - low), high + 0.15 * (high - low)
        sides = [np.linspace(low[j], high[j], 150) for j in (0, 1)]
        grid = np.stack(np.meshgrid(*sides), -1).reshape(-1, 2)
        density = np.exp(np.maximum(table.log_density(grid), -50)).reshape(150, 150)
        shown = {
            "reference rows": table.reference[:ROWS],
            "jitter": jitter(table, index),
            "new rows": ours()(table, index),
        }
        for axis, (title, rows) in zip(line, shown.items(), strict=True):
            axis.contourf(*sides, density**0.4, levels=14, cmap="Blues")
            axis.scatter(*rows.T, s=4, color="tab:red", alpha=0.6, linewidths=0)
            axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
            if place == 0:
                axis.set_title(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--options", nargs="+", default=[], metavar="NAME=VALUE", help="of ours")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", type=Path, help="page that shows the comparison")
    parser.add_argument("--picture", type=Path, help="draw 2-D tables instead of measuring")
    given = parser.parse_args()
    if given.picture:
        draw_picture(given.picture)
        return
    from tabiced.bench.ours import parse_options

    results = Results(given.out, KEY, VALUES)
    measure(given.tables, given.methods, parse_options(given.options), results)
    results.sort()
    told = "\n".join(summary(results))
    print(told)
    if given.page:
        write_section(given.page, told)


if __name__ == "__main__":
    main()
