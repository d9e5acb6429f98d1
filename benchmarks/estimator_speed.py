"""Time the estimator against other ways to a density, and over sizes, on a CPU.

    python benchmarks/estimator_speed.py                        # two minutes
    python benchmarks/estimator_speed.py --tabicl               # and TabICL's density: one more
    python benchmarks/estimator_speed.py --most 0 --repeats 9   # the first table alone
    python benchmarks/estimator_speed.py --most 0 --threads 1   # the same on one core

With one thread, times are processor time, so that other work on the machine matters little; with
more they are those of the clock. Medians of some repeats in one run. First, on all cores (GMM-BIC
hardly gains by a second one, ours does), context 1000 x 20 and 256 queries: fit and score, score
again from the cached context, a Gaussian mixture of 1-20 components chosen by BIC, and TabICL's
unsupervised density (`pip install tabicl`; random weights, since only its time counts; one of its
four permutations and one of its eight ensemble members are run and counted 32 times). Then, on one,
the cost over context rows and over queries, with a plot.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from tabiced import ICED
from tabiced.bench.classical import gmm_bic
from tabiced.bench.speed import mixture

ROWS, COLUMNS, QUERIES = 1000, 20, 256
PERMUTATIONS, MEMBERS = 4, 8  # TabICLUnsupervised's defaults


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the median time of some calls."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return float(np.median(times))


def fit(context: np.ndarray) -> ICED:
    return ICED(device="cpu", max_context_rows=len(context)).fit(context)


def tabicl_density(context: np.ndarray, query: np.ndarray) -> None:
    """Score with one permutation of the columns and one member, weights drawn at random."""
    from tabicl import TabICLUnsupervised
    from tabicl._model.tabicl import TabICL

    class Untrained(TabICLUnsupervised):
        def _load_shared_model(self, estimator_cls: type) -> TabICL:
            return TabICL(max_classes=0).eval()

    Untrained(n_estimators=1, device="cpu").fit(context).score_samples(query, n_permutations=1)


def compare(repeats: int, tabicl: bool) -> None:
    """Print times on one task, and their ratios.

    The ways take turns, so that whatever else the machine does slows down all of them alike.
    """
    context, query = mixture(ROWS, COLUMNS)
    model = fit(context)  # loads the weights
    ways: dict[str, Callable[[], Any]] = {
        "fit and score": lambda: fit(context).score_samples(query),
        "score, context cached": lambda: model.score_samples(query),
        "score one row, cached": lambda: model.score_samples(query[:1]),
        "GMM-BIC, 1-20 components": lambda: gmm_bic(20)(context, query, 0),
    }
    rounds = [{name: seconds(way, 1) for name, way in ways.items()} for _ in range(repeats)]
    found = {name: float(np.median([times[name] for times in rounds])) for name in ways}
    if tabicl:
        once = seconds(lambda: tabicl_density(context, query), 1)
        found["TabICL's density"] = PERMUTATIONS * MEMBERS * once
    print(f"context {ROWS} x {COLUMNS}, {QUERIES} queries")
    for name, value in found.items():
        ratio = value / found["fit and score"]
        print(f"    {name:28s} {value:9.3f} s {ratio:9.2f} x fit and score", flush=True)


def over_context(most: int, repeats: int) -> list[tuple[int, float, float]]:
    """Print and return (rows, seconds to fit, seconds to score) as the context doubles."""
    print(f"\ncontext rows x {COLUMNS}, {QUERIES} queries; exponent: of the growth since the last")
    print("    rows     fit  exponent   score  exponent")
    found: list[tuple[int, float, float]] = []
    rows = 250
    while rows <= most:
        context, query = mixture(rows, COLUMNS)
        count = repeats if rows <= 1000 else 1
        models: list[ICED] = []
        fitting = seconds(lambda keep=models, rows=context: keep.append(fit(rows)), count)
        scoring = seconds(lambda keep=models, rows=query: keep[0].score_samples(rows), count)
        row = (rows, fitting, scoring)
        last = found[-1] if found else row
        growth = [np.log2(new / old) for old, new in zip(last[1:], row[1:], strict=True)]
        print(
            f"{rows:8d} {row[1]:7.2f} {growth[0]:9.2f} {row[2]:7.2f} {growth[1]:9.2f}", flush=True
        )
        found.append(row)
        rows *= 2
    return found


def over_queries(repeats: int) -> list[tuple[int, float]]:
    """Print and return (queries, seconds to score them) against one context."""
    context, _ = mixture(ROWS, COLUMNS)
    model = fit(context)
    print(f"\nqueries against {ROWS} x {COLUMNS}")
    found = []
    for rows in (1, 128, 256, 512, 1024, 2048, 4096):
        query = np.random.default_rng(1).normal(size=(rows, COLUMNS))
        found.append((rows, seconds(lambda query=query: model.score_samples(query), repeats)))
        print(
            f"{rows:8d} {found[-1][1]:7.2f} s {1e3 * found[-1][1] / rows:8.2f} ms a row", flush=True
        )
    return found


def draw(
    context: list[tuple[int, float, float]], query: list[tuple[int, float]], path: Path
) -> None:
    """Draw both growths on logarithmic axes, with lines of slope 1 and 2 to compare."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "tabiced", "svg.fonttype": "none", "font.size": 9}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
        rows, fitting, scoring = np.array(context).T
        left.loglog(rows, fitting, "o-", color="#c1440e", label="fit")
        left.loglog(rows, scoring, "s-", color="#3b6ea5", label=f"score {QUERIES} rows")
        left.loglog(rows, fitting[0] * (rows / rows[0]) ** 2, ":", color="grey", label="quadratic")
        left.set_xlabel(f"context rows, {COLUMNS} columns")
        asked, taken = np.array(query).T
        right.loglog(asked, taken, "s-", color="#3b6ea5", label=f"score, context of {ROWS} rows")
        right.loglog(asked, taken[-1] * asked / asked[-1], ":", color="grey", label="linear")
        right.set_xlabel("queries")
        for axes in (left, right):
            axes.set_ylabel(f"seconds, {torch.get_num_threads()} thread(s)")
            axes.legend(frameon=False)
            axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=16_000, help="context rows to go up to")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tabicl", action="store_true")
    parser.add_argument("--plot", type=Path, default=Path("docs/images/speed.svg"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with threadpool_limits(options.threads):
        compare(options.repeats, options.tabicl)
    if not options.most:
        return
    torch.set_num_threads(1)
    with threadpool_limits(1):
        contexts = over_context(options.most, options.repeats)
        queries = over_queries(options.repeats)
    draw(contexts, queries, options.plot)
    print(f"\ndrawn: {options.plot}")


if __name__ == "__main__":
    main()
