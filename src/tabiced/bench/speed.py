"""Time from a context and queries to scores, over numbers of rows and columns.

python -m tabiced.bench speed --methods ours KDE GMM-BIC kNN
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tabiced.bench.methods import Method
from tabiced.bench.results import Results
from tabiced.bench.tasks import METHOD_KEY, attempt

ROWS, COLUMNS, QUERIES, REPEATS = (250, 1000, 4000), (5, 20, 50), 256, 3
KEY = ("rows", "columns", *METHOD_KEY)
VALUES = ("seconds", "fastest", "slowest")


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def mixture(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a context and queries from a mixture of five correlated Gaussians."""
    draw = np.random.default_rng(seed)
    means, maps = draw.normal(size=(5, columns)), draw.normal(size=(5, columns, columns))

    def sample(n: int) -> np.ndarray:
        component = draw.integers(5, size=n)
        noise = draw.normal(size=(n, columns)) / np.sqrt(columns)
        return means[component] + np.einsum("nij,nj->ni", maps[component], noise)

    return sample(rows), sample(QUERIES)


def measure(
    grid: Iterable[tuple[int, int]],
    methods: Sequence[Method],
    results: Results,
    repeats: int = REPEATS,
    force: bool = False,
    report: Callable[[str], None] | None = None,
) -> None:
    """Time every method on every size: the median of some repeats after one that does not count."""
    for rows, columns in grid:
        context, query = mixture(rows, columns)
        for method in methods:
            key = {"rows": rows, "columns": columns, **method.key}
            if not force and key in results:
                continue
            times = []
            for _ in range(repeats + 1):
                start = time.perf_counter()
                attempt(method.name, method.score, context, query, 0)
                times.append(time.perf_counter() - start)
            middle, ends = statistics.median(times[1:]), (min(times[1:]), max(times[1:]))
            results.add({**key, "seconds": middle, "fastest": ends[0], "slowest": ends[1]})
            if report:
                report(f"{method.name:10s} {rows} x {columns}: {middle:.3f} s")
