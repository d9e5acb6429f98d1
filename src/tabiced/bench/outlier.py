"""PyOD detectors of the paper's ADBench tables, with PyOD's defaults.

The paper's fourteenth, DAGMM, is no longer part of PyOD; its column is quoted.
"""

import importlib
from typing import Any

import numpy as np

from tabiced._extras import extra
from tabiced.bench.methods import Score

_DETECTORS = {  # name: (module, class, takes a random_state)
    "KNN": ("knn", "KNN", False),
    "LOF": ("lof", "LOF", False),
    "IForest": ("iforest", "IForest", True),
    "PCA": ("pca", "PCA", True),
    "HBOS": ("hbos", "HBOS", False),
    "OCSVM": ("ocsvm", "OCSVM", False),
    "CBLOF": ("cblof", "CBLOF", True),
    "DeepSVDD": ("deep_svdd", "DeepSVDD", True),
    "ECOD": ("ecod", "ECOD", False),
    "COPOD": ("copod", "COPOD", False),
    "LODA": ("loda", "LODA", True),
    "SOD": ("sod", "SOD", False),
    "COF": ("cof", "COF", False),
}
DETECTORS = tuple(_DETECTORS)


def fitted_detector(name: str, context: np.ndarray, seed: int) -> Any:
    """Return a PyOD detector fitted on the context."""
    module, kind, seeded = _DETECTORS[name]
    with extra("bench"):
        make = getattr(importlib.import_module(f"pyod.models.{module}"), kind)
    options: dict[str, object] = {"random_state": seed} if seeded else {}
    if name == "DeepSVDD":
        options |= {"n_features": context.shape[1], "verbose": 0}
    model = make(**options)
    model.fit(context)
    if name == "PCA":  # a component without variance would give infinite scores
        model.selected_w_components_ = np.maximum(model.selected_w_components_, 1e-30)
        model.decision_scores_ = model.decision_function(context)
    return model


def detector(name: str) -> Score:
    """Score by minus the decision function of a PyOD detector fitted on the context."""

    def scored(context: np.ndarray, query: np.ndarray, seed: int) -> np.ndarray:
        return -finite(fitted_detector(name, context, seed).decision_function(query))

    return scored


def finite(score: np.ndarray) -> np.ndarray:
    """Rank infinities at the ends; PyOD gives NaN where a column carries nothing, read as 0."""
    values = np.asarray(score, dtype=np.float64).ravel()
    return np.nan_to_num(values, nan=0.0, posinf=1e300, neginf=-1e300)
