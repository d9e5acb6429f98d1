"""How many normal rows are called unusual, against the rate of false alarms that was asked for.

    python -m tabiced.bench calibration --pack macrodata_dev.npz

Ours calls a row unusual whose p-value is at most the rate. The detectors of PyOD are given the rate
as their `contamination`: they call unusual what scores above that share of the rows they were
fitted to. With a clean context, new normal rows should be called unusual as often as was asked for.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from os import PathLike

import numpy as np

from tabiced.bench.macrodata import KEY as TASK_KEY
from tabiced.bench.outlier import finite, fitted_detector
from tabiced.bench.results import Results
from tabiced.bench.tasks import Task

RATES = (0.01, 0.05, 0.1)
KEY = (*TASK_KEY, "rate")
VALUES = ("false_alarms", "found")  # shares of the normal and of the anomalous query rows
DETECTORS = ("KNN", "LOF", "IForest", "ECOD", "PCA", "HBOS")
METHODS = ("ours", *DETECTORS)

Alarms = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
"""(context, query, seed) -> which query rows are called unusual at each rate, (rates, m)"""


def open_results(path: str | PathLike[str]) -> Results:
    return Results(path, KEY, VALUES)


def ours(weights: str | None = None, device: str = "cpu") -> Alarms:
    """Call a row unusual whose p-value is at most the rate."""

    def alarms(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        from tabiced.estimator import ICED

        model = ICED(random_state=seed, weights=weights, device=device).fit(context)
        return model.p_values(query) <= np.array(RATES)[:, None]

    return alarms


def pyod(name: str) -> Alarms:
    """Call a row unusual as a detector of PyOD does, on standardised columns."""

    def alarms(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(context.astype(np.float64))
        model = fitted_detector(name, scaler.transform(context), seed)
        score, known = model.decision_function(scaler.transform(query)), model.decision_scores_
        thresholds = np.percentile(finite(known), 100 * (1 - np.array(RATES)))
        return finite(score) > thresholds[:, None]  # as `predict` does

    return alarms


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
        for name in options.methods:
            said = {"method": name, "options": "", "weights": weights if name == "ours" else ""}
            keys = [{**task.key, **said, "rate": rate} for rate in RATES]
            if not options.force and all(key in results for key in keys):
                continue
            start = time.perf_counter()
            way = ours(options.weights, options.device) if name == "ours" else pyod(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                called = way(data.context, data.query, task.seed)
            unusual = data.anomalous.astype(bool)
            for key, rows in zip(keys, called, strict=True):
                shares = {"false_alarms": rows[~unusual].mean(), "found": rows[unusual].mean()}
                results.add({**key, **{n: float(share) for n, share in shares.items()}})
            if report:
                where = " ".join(map(str, task.key.values()))
                report(f"{name:12s} {where:50s} {time.perf_counter() - start:7.2f} s")
