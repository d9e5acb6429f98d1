"""Compare ways to read tables that are larger than what the network reads at once.

    python benchmarks/large_tables.py rows --data FOLDER
    python benchmarks/large_tables.py columns --data FOLDER [FOLDER ...]

FOLDER holds ADBench tables (14_glass.npz ...); those that are large enough take part, whatever
their scores. `rows`: one sample of the reference rows against several shards whose energies are
averaged. `columns`: random parts of the columns against projections. Every way is a mean of
energies over some (context, queries) pairs. Prints AUROC and processor time per table, then means
and their differences, from one sample of 5,000 rows or from the estimator's own parts of the
columns, with standard errors over tables.

Queries are judged by the whole context, also those that equal a reference row: to judge these from
outside would multiply the time of all ways alike. One thread; about half an hour for `rows` and for
`columns`.
"""

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from tabiced import ICED
from tabiced.bench.adbench import find_tables, read_table
from tabiced.bench.metrics import auroc
from tabiced.columns import learn_plan
from tabiced.table import read_table as as_table

QUERIES = 300  # normal rows, and anomalies at most
ROW_SIZES = {1000: 4, 2000: 2, 5000: 1}  # rows of a shard: disjoint shards drawn
LEAST_ANOMALIES = 50  # fewer make an AUROC that is mostly luck
WIDE_CONTEXT = 500
CLIP = 10.0  # robust scales, before projections

Pair = tuple[np.ndarray, np.ndarray]
Result = tuple[np.ndarray, float]  # energies, seconds of processor time


def energies(context: np.ndarray, query: np.ndarray) -> Result:
    """Read a context and score queries against all of it."""
    start = time.process_time()
    model = ICED(device="cpu", max_context_rows=len(context)).fit(context)
    encoded = model.plan_.encode(model.plan_.align(as_table(query)))
    if model.reference_ is None:
        return np.zeros(len(query)), time.process_time() - start
    return model.reference_.whole.energy(encoded), time.process_time() - start


def averaged(pairs: list[Pair]) -> Result:
    """Average the energies over several contexts."""
    found = [energies(*pair) for pair in pairs]
    return np.mean([energy for energy, _ in found], 0), sum(seconds for _, seconds in found)


def draw(
    path: Path, setting: str, rows: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return up to `rows` reference rows, queries, and which of these are anomalies.

    `clean`: the reference has normal rows only. `contaminated`: anomalies at the table's own rate.
    """
    X, y = read_table(path)
    order = np.random.default_rng(seed).permutation(len(y))
    normal, odd = order[y[order] == 0], order[y[order] == 1]
    most = min(QUERIES, len(normal) // 4)
    asked, odd_asked = normal[:most], odd[: min(most, len(odd) // 2)]
    rest = normal[most:]
    if setting == "contaminated":
        rest = np.setdiff1d(order, np.r_[asked, odd_asked])
        rest = np.random.default_rng(seed + 1).permutation(rest)
    query = np.r_[asked, odd_asked]
    return X[rest[:rows]], X[query], y[query]


def large_enough(folders: list[Path], fits: Callable[[int, int], bool]) -> Iterator[Path]:
    """Yield the tables of the right size (rows, columns) with enough anomalies."""
    for folder in folders:
        for path in find_tables(folder).values():
            with np.load(path) as file:
                if fits(*file["X"].shape) and file["y"].sum() >= LEAST_ANOMALIES:
                    yield path


def measure_rows(path: Path, setting: str, seed: int) -> dict[str, tuple[float, float]]:
    """Compare samples and averages over shards; AUROCs of one shard are means over the shards."""
    context, query, anomalous = draw(path, setting, max(n * k for n, k in ROW_SIZES.items()), seed)
    results = {}
    for size, count in ROW_SIZES.items():
        found = [energies(context[i * size : (i + 1) * size], query) for i in range(count)]
        alone = np.mean([auroc(anomalous, energy) for energy, _ in found])
        seconds = float(np.mean([seconds for _, seconds in found]))
        results[f"1 x {size}"] = float(alone), seconds
        for k in (k for k in (2, 4) if k <= count):
            mean = np.mean([energy for energy, _ in found[:k]], 0)
            results[f"{k} x {size}"] = auroc(anomalous, mean), k * seconds
    return results


def parts(context: np.ndarray, query: np.ndarray, limit: int, seed: int) -> list[Pair]:
    """Deal the columns at random into as few equal parts as possible."""
    width = context.shape[1]
    order = np.random.default_rng(seed).permutation(width)
    dealt = np.array_split(order, -(-width // limit))
    return [(context[:, part], query[:, part]) for part in dealt]


def projections(context: np.ndarray, query: np.ndarray, width: int, count: int) -> list[Pair]:
    """Project onto random directions, `width` of them in each of `count` pairs."""
    draws = [np.random.default_rng(i).normal(size=(context.shape[1], width)) for i in range(count)]
    return [(context @ directions, query @ directions) for directions in draws]


def components(context: np.ndarray, query: np.ndarray, limit: int) -> list[Pair]:
    """Rotate to principal components, in blocks of falling variance."""
    centre = context.mean(0)
    _, values, directions = np.linalg.svd(context - centre, full_matrices=False)
    directions = directions[values > 1e-6 * values[0]].T
    blocks = [directions[:, i : i + limit] for i in range(0, directions.shape[1], limit)]
    return [((context - centre) @ block, (query - centre) @ block) for block in blocks]


def measure_columns(path: Path, setting: str, seed: int) -> dict[str, tuple[float, float]]:
    """Compare parts of the columns with projections of columns scaled and clipped."""
    context, query, anomalous = draw(path, setting, WIDE_CONTEXT, seed)
    plan = learn_plan(as_table(context))
    scaled = [plan.encode(as_table(rows)) for rows in (context, query)]
    print(f"    {plan.width} columns that vary in {len(context)} reference rows")
    clipped = [rows.clip(-CLIP, CLIP).astype(float) for rows in scaled]
    rotated = components(*clipped, 128)
    found = {
        "default": energies(context, query),
        "parts of 64": averaged(parts(*scaled, 64, seed)),
        "components, first 128": averaged(rotated[:1]),
        "components, first 32": averaged(components(*clipped, 32)[:1]),
        "projection to 64": averaged(projections(*clipped, 64, 1)),
        "two projections to 64": averaged(projections(*clipped, 64, 2)),
    }
    if len(rotated) > 1:
        rest, seconds = averaged(rotated[1:])
        first, others = found["components, first 128"], len(rotated) - 1
        found["components, all"] = (first[0] + others * rest) / (1 + others), first[1] + seconds
    else:
        found["components, all"] = found["components, first 128"]
    for name in ("components, first 128", "projection to 64"):
        pair = found["default"], found[name]
        found[f"default and {name}"] = (pair[0][0] + pair[1][0]) / 2, pair[0][1] + pair[1][1]
    return {name: (auroc(anomalous, energy), seconds) for name, (energy, seconds) in found.items()}


KINDS: dict[
    str, tuple[Callable[[int, int], bool], Callable[..., dict[str, tuple[float, float]]], str]
]
KINDS = {
    "rows": (lambda n, d: n >= 10_000 and d <= 64, measure_rows, "1 x 5000"),
    "columns": (lambda n, d: d >= 100, measure_columns, "default"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--settings", nargs="+", default=["clean", "contaminated"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".* and so is ignored")
    fits, measure, default = KINDS[options.kind]
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for path in large_enough(options.data, fits):
        for setting in options.settings:
            for seed in options.seeds:
                print(f"{path.stem}, {setting} context, seed {seed}")
                for name, (quality, seconds) in measure(path, setting, seed).items():
                    found[name].append((quality, seconds))
                    print(f"    {name:33s} {100 * quality:6.2f} {seconds:7.1f} s", flush=True)
    base = np.array(found[default])
    count = len(base)
    print(f"\n{count} tasks; differences and ratios of time to '{default}', the default")
    print(f"{'':33s}  AUROC  difference (s.e.)  time")
    for name, pairs in found.items():
        quality, seconds = np.array(pairs).T
        difference = 100 * (quality - base[:, 0])
        error = difference.std(ddof=1) / np.sqrt(count) if count > 1 else float("nan")
        ratio = np.exp(np.log(seconds / base[:, 1]).mean())
        print(
            f"{name:33s} {100 * quality.mean():6.2f} {difference.mean():+11.2f} ({error:4.2f}) "
            f"{ratio:6.2f}"
        )


if __name__ == "__main__":
    main()
