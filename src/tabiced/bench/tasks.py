"""Run methods over tasks, skipping what is already stored."""

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from tabiced.bench.methods import Method, Score
from tabiced.bench.metrics import auroc, average_precision
from tabiced.bench.results import Results

T = TypeVar("T")


@dataclass(frozen=True)
class Data:
    """Rows of one detection task; `anomalous` is 1 for the query's anomalies."""

    context: np.ndarray  # (n, d)
    query: np.ndarray  # (m, d)
    anomalous: np.ndarray  # (m,)


@dataclass(frozen=True)
class Task:
    """A detection task by name; its rows are read only if some method still needs them."""

    key: Mapping[str, object]
    load: Callable[[], Data]

    @property
    def seed(self) -> int:
        return int(str(self.key.get("seed", 0)))


METHOD_KEY = ("method", "options", "weights")
DETECTION_VALUES = ("auroc", "average_precision", "seconds")


def every_nth(items: Sequence[T], limit: int | None) -> list[T]:
    """Return at most `limit` items at equal steps through the sequence."""
    if limit is None or limit >= len(items):
        return list(items)
    return [items[i * len(items) // limit] for i in range(limit)]


def read_pack(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read a whole npz file: processes side by side must not share one that is open."""
    with np.load(path) as pack:
        return {key: pack[key] for key in pack.files}


def side_by_side(jobs: int, results: Results, work: Callable[[int, Results], None]) -> None:
    """Call `work(i, results)` for every i below `jobs`, each in a process with one thread."""
    results.absorb()
    if jobs == 1:
        work(0, results)
        return

    def alone(i: int) -> None:
        torch.set_num_threads(1)
        with threadpool_limits(1):
            work(i, results.part(i))

    # Forked, so that methods, which are closures, need not be pickled.
    processes = [get_context("fork").Process(target=alone, args=(i,)) for i in range(jobs)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    results.absorb()
    if any(process.exitcode for process in processes):
        raise RuntimeError(
            "a process failed; what the others measured is stored, run again to resume"
        )


def detect(
    tasks: Iterable[Task],
    methods: Sequence[Method],
    results: Results,
    force: bool = False,
    report: Callable[[str], None] | None = None,
) -> None:
    """Score every task with every method and store AUROC and average precision."""
    for task in tasks:
        missing = [m for m in methods if force or {**task.key, **m.key} not in results]
        if not missing:
            continue
        data = task.load()
        for method in missing:
            start = time.perf_counter()
            score = attempt(method.name, method.score, data.context, data.query, task.seed)
            seconds = time.perf_counter() - start
            quality = {"auroc": float("nan"), "average_precision": float("nan")}
            if score is not None:
                quality["auroc"] = auroc(data.anomalous, score)
                quality["average_precision"] = average_precision(data.anomalous, score)
            results.add({**task.key, **method.key, **quality, "seconds": round(seconds, 4)})
            if report:
                where = " ".join(map(str, task.key.values()))
                report(
                    f"{method.name:12s} {where:50s} {100 * quality['auroc']:6.2f} {seconds:7.2f} s"
                )


def attempt(
    name: str, score: Score, context: np.ndarray, query: np.ndarray, seed: int
) -> np.ndarray | None:
    """Return a method's scores, or None (said on stderr) where it fails on this table."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = np.asarray(score(context, query, seed), dtype=np.float64)
    except (ValueError, np.linalg.LinAlgError, FloatingPointError) as error:
        print(f"{name} failed: {error}", file=sys.stderr)
        return None
    if values.shape != (len(query),) or not np.isfinite(values).all():
        print(f"{name} gave scores that are not finite numbers, one a row", file=sys.stderr)
        return None
    return values
