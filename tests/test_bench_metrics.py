"""Fast metrics against slow, obvious ones."""

from itertools import combinations

import numpy as np
import pytest

from tabiced.bench.metrics import (
    auroc,
    average_precision,
    kendall_tau,
    median_ranks,
    pairwise_accuracy,
)


def slow_pairwise_accuracy(truth, score):
    points = []
    for i, j in combinations(range(len(truth)), 2):
        agreement = np.sign(truth[i] - truth[j]) * np.sign(score[i] - score[j])
        points.append({1: 1.0, 0: 0.5, -1: 0.0}[int(agreement)])
    return float(np.mean(points))


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_pairwise_accuracy_counts_ties_half(levels):
    draw = np.random.default_rng(levels)
    truth = draw.integers(0, levels, 60).astype(float)
    score = truth + draw.integers(0, levels, 60)
    assert pairwise_accuracy(truth, score) == pytest.approx(slow_pairwise_accuracy(truth, score))


def test_pairwise_accuracy_at_its_ends():
    truth = np.array([-3.0, -1.0, 0.5, 2.0])
    assert pairwise_accuracy(truth, 10 * truth) == 1
    assert pairwise_accuracy(truth, -truth) == 0
    assert pairwise_accuracy(truth, np.zeros(4)) == 0.5
    assert kendall_tau(truth, np.zeros(4)) == 0


def test_auroc_is_high_when_anomalies_score_low():
    anomalous = np.array([0, 0, 0, 1, 1])
    score = np.array([3.0, 2.0, 1.0, 1.0, 0.0])  # one tie between a normal row and an anomaly
    wins = [1, 1, 0.5, 1, 1, 1]
    assert auroc(anomalous, score) == pytest.approx(np.mean(wins))
    # thresholds from the least typical row: precision 1/1 at recall 1/2, then 2/3 at recall 1
    assert average_precision(anomalous, score) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)


def test_median_ranks_skip_what_was_not_measured():
    table = [[0.9, 0.8, 0.8], [0.5, np.nan, 0.7], [0.9, 0.1, 0.5]]
    assert median_ranks(table).tolist() == [1.0, 2.75, 2.0]
