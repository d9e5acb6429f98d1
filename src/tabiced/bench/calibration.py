"""How many normal rows are called unusual, against the rate of false alarms that was asked for.

    python -m tabiced.bench calibration --pack macrodata_dev.npz

Ours calls a row unusual whose p-value is at most the rate. The detectors of PyOD are given the rate
as their `contamination`: they call unusual what scores above that share of the rows they were
fitted to. With a clean context, new normal rows should be called unusual as often as was asked for.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from os import PathLike

import numpy as np

from tabiced.bench.classical import standardised
from tabiced.bench.macrodata import KEY as TASK_KEY
from tabiced.bench.methods import Score
from tabiced.bench.outlier import finite, fitted_detector
from tabiced.bench.results import Results
from tabiced.bench.tasks import Task, attempt

RATES = (0.01, 0.05, 0.1)
KEY = (*TASK_KEY, "rate")
VALUES = ("false_alarms", "found")  # shares of the normal and of the anomalous query rows
DETECTORS = ("KNN", "LOF", "IForest", "ECOD", "PCA", "HBOS")
METHODS = ("ours", *DETECTORS)


def open_results(path: str | PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def ours(weights: str | None = None, device: str = "cpu") -> Score:
    """Return the lowest of the rates that the p-value of a row does not exceed, else 1."""

    def lowest(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        from tabiced.estimator import ICED

        model = ICED(random_state=seed, weights=weights, device=device).fit(context)
        return _lowest(model.p_values(query) <= np.array(RATES)[:, None])

    return lowest


def pyod(name: str) -> Score:
    """Return the lowest rate at which a detector of PyOD calls a row unusual, else 1."""

    def lowest(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        model = fitted_detector(name, context, seed)
        thresholds = np.percentile(finite(model.decision_scores_), 100 * (1 - np.array(RATES)))
        score = finite(model.decision_function(query))
        return _lowest(score > thresholds[:, None])  # as `predict` does

    return standardised(lowest)


def _lowest(called: np.ndarray) -> np.ndarray:
    """Return the lowest rate at which a row is called unusual; `called` is (rates, m)."""
    return np.where(called, np.array(RATES)[:, None], 1.0).min(0)


def measure(
    tasks: Sequence[Task],
    results: Results,
    options: argparse.Namespace,
    weights: str,
    report: Callable[[str], None] | None,
) -> None:
    """Store for every task and method how many rows of either kind are called unusual."""
    for task in tasks:
        data = task.load()
        unusual = data.anomalous.astype(bool)
        for name in options.methods:
            said = {"method": name, "options": "", "weights": weights if name == "ours" else ""}
            keys = [{**task.key, **said, "rate": rate} for rate in RATES]
            if not options.force and all(key in results for key in keys):
                continue
            start = time.perf_counter()
            way = ours(options.weights, options.device) if name == "ours" else pyod(name)
            lowest = attempt(name, way, data.context, data.query, task.seed)
            for key in keys:
                shares = dict.fromkeys(VALUES, float("nan"))
                if lowest is not None:
                    called = lowest <= key["rate"]
                    shares = {
                        "false_alarms": float(called[~unusual].mean()),
                        "found": float(called[unusual].mean()),
                    }
                results.add({**key, **shares})
            if report:
                where = " ".join(map(str, task.key.values()))
                report(f"{name:12s} {where:50s} {time.perf_counter() - start:7.2f} s")
