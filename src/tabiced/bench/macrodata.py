"""Anomaly detection on packs of real tables, with a clean and a contaminated context each.

A pack is an npz file with, for each table `BENCH/NAME`, the keys `context`, `context_contaminated`
(the same rows and some unmarked anomalies), `query` and `y` (1 = anomaly), raw and unscaled.

    python -m tabiced.bench macrodata --pack macrodata_dev.npz --methods ours
"""

import os
from collections.abc import Mapping

import numpy as np

from tabiced.bench import classical
from tabiced.bench.methods import Method
from tabiced.bench.metrics import auroc
from tabiced.bench.outlier import detector
from tabiced.bench.results import Results
from tabiced.bench.tasks import DETECTION_VALUES, METHOD_KEY, Data, Task, every_nth

SETTINGS = ("clean", "contaminated")
KEY = ("bench", "dataset", "setting", *METHOD_KEY)

BASELINES: dict[str, Method] = {
    method.name: method
    for method in (
        Method("KNN", classical.min_max(classical.kth_neighbour(5))),
        Method("KNN-mean", classical.standardised(classical.mean_neighbour(5))),
        Method("IForest", classical.standardised(detector("IForest"))),
        Method("LOF", classical.standardised(detector("LOF"))),
        Method("ECOD", classical.standardised(detector("ECOD"))),
        Method("GMM", classical.standardised(classical.gmm(10, floor=1e-4, rows_per_component=1))),
        Method("HBOS", classical.standardised(detector("HBOS"))),
        Method("PCA", classical.standardised(detector("PCA"))),
        Method("Mahalanobis", classical.standardised(classical.mahalanobis)),
    )
}


def open_results(path: str | os.PathLike[str]) -> Results:
    return Results(path, KEY, DETECTION_VALUES)


def tables(pack: Mapping[str, np.ndarray], limit: int | None = None) -> list[str]:
    """Return the names `BENCH/NAME` of a pack's tables, at most `limit` at equal steps."""
    return every_nth(sorted(key[:-2] for key in pack if key.endswith("/y")), limit)


def tasks(pack: Mapping[str, np.ndarray], limit: int | None = None) -> list[Task]:
    """Return two tasks, clean and contaminated, for each table of an opened pack."""

    def task(table: str, setting: str) -> Task:
        part = "context" if setting == "clean" else "context_contaminated"
        bench, dataset = table.split("/", 1)
        return Task(
            {"bench": bench, "dataset": dataset, "setting": setting},
            lambda: Data(pack[f"{table}/{part}"], pack[f"{table}/query"], pack[f"{table}/y"]),
        )

    return [task(table, setting) for table in tables(pack, limit) for setting in SETTINGS]


def look(
    method: Method, pack: Mapping[str, np.ndarray], limit: int | None = None
) -> dict[str, float]:
    """Return {"BENCH/SETTING": mean AUROC in percent} of one method, storing nothing.

    Made for training loops: `look(bare_network(network, device="cuda"), np.load(path), limit=30)`.
    """
    cells: dict[str, list[float]] = {}
    for task in tasks(pack, limit):
        data = task.load()
        value = 100 * auroc(data.anomalous, method.score(data.context, data.query, task.seed))
        for bench in (task.key["bench"], "all"):
            cells.setdefault(f"{bench}/{task.key['setting']}", []).append(value)
    return {name: float(np.mean(values)) for name, values in sorted(cells.items())}
