"""Turn energies into p-values and alarms, given energies of reference rows judged from outside."""

from __future__ import annotations

import math

import numpy as np


def p_values(energy: np.ndarray, calibration: np.ndarray) -> np.ndarray:
    """Return conformal p-values: the share of reference rows at least as unusual.

        p(x) = (1 + #{i : energy_i <= energy(x)}) / (n + 1)

    For a row from the same source as the reference rows, P(p <= a) <= a for every a.
    """
    ordered = np.sort(calibration)
    return (1 + np.searchsorted(ordered, energy, side="right")) / (len(ordered) + 1)


def threshold(calibration: np.ndarray, rate: float) -> float:
    """Return the energy below which p <= rate.

    The smallest p-value of n reference rows is 1 / (n + 1): smaller rates are raised to it.
    """
    ordered = np.sort(calibration)
    rank = math.floor(rate * (len(ordered) + 1) + 1e-9)  # 0.05 * 20 is 1 here, not 0.99...
    return float(ordered[max(rank, 1) - 1])


def false_discoveries(p: np.ndarray, rate: float = 0.1) -> np.ndarray:
    """Choose alarms of which at most the share `rate` is false on average (Benjamini-Hochberg).

    Returns a mask: the k smallest p-values for the largest k with p_(k) <= rate * k / m.

    >>> false_discoveries(np.array([0.001, 0.8, 0.03, 0.9]), rate=0.1).tolist()
    [True, False, True, False]
    """
    p = np.asarray(p, dtype=float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p must be a 1D array of numbers between 0 and 1.")
    ordered = np.sort(p)
    passing = np.flatnonzero(ordered <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))
    return p <= (ordered[passing[-1]] if len(passing) else -1.0)
