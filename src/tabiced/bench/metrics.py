"""Compare scores with labels or with true log-densities."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import kendalltau, rankdata
from sklearn.metrics import average_precision_score, roc_auc_score


def auroc(anomalous: ArrayLike, score: ArrayLike) -> float:
    """Return the chance that an anomaly scores below a normal row, ties counted half.

    `anomalous` is 1 for anomalies; `score` is higher for more typical rows.
    """
    return float(roc_auc_score(anomalous, -np.asarray(score, dtype=np.float64)))


def average_precision(anomalous: ArrayLike, score: ArrayLike) -> float:
    """Return the area under the precision-recall steps, anomalies as the positive class."""
    return float(average_precision_score(anomalous, -np.asarray(score, dtype=np.float64)))


def kendall_tau(truth: ArrayLike, score: ArrayLike) -> float:
    """Return Kendall's tau-b; 0 where either side is constant and tau-b is undefined."""
    tau = float(kendalltau(truth, score, variant="b").statistic)
    return 0.0 if np.isnan(tau) else tau


def pairwise_accuracy(truth: ArrayLike, score: ArrayLike) -> float:
    """Return the share of pairs put in the true order, ties counted half.

    With C concordant and D discordant of N pairs this is 1/2 + (C - D) / 2N, and tau-b is
    (C - D) / sqrt((N - T_truth)(N - T_score)) with T the tied pairs: O(n log n) through tau-b.
    """
    truth, score = np.asarray(truth), np.asarray(score)
    pairs = len(truth) * (len(truth) - 1) / 2
    untied = np.sqrt((pairs - _tied_pairs(truth)) * (pairs - _tied_pairs(score)))
    return 0.5 + 0.5 * kendall_tau(truth, score) * float(untied) / pairs


def _tied_pairs(values: np.ndarray) -> float:
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def median_ranks(table: ArrayLike) -> np.ndarray:
    """Return each column's median rank over the rows; rank 1 is the largest value of a row.

    Ties share their mean rank; NaN (not measured) takes no rank and counts in no median.
    """
    values = np.asarray(table, dtype=np.float64)
    ranks = rankdata(-values, axis=1, nan_policy="omit")
    return np.nanmedian(ranks, axis=0)
