"""Distances to the nearest tenth of the reference, and their share in scores."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tabiced import ICED
from tabiced.components import Bent
from tabiced.distances import FEWEST, FLOOR, KNOWN, NEAREST, Distances
from tabiced.model import Network, NetworkConfig
from tabiced.scoring import Scoring


def table(rows: int, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width))


def fitted(X: np.ndarray, **scoring: float) -> ICED:
    torch.manual_seed(0)
    network = Network(replace(NetworkConfig.tiny(), shallow=True)).eval()
    network.scoring = Scoring(**{"distances": 1.0, **scoring})
    return ICED(weights=network).fit(X)


def slow_nearness(reference: np.ndarray, row: np.ndarray, own: int) -> float:
    """Measure one row at a time, to all reference rows that count but itself."""
    bent = Bent(reference)
    known = [i for i in range(min(len(reference), KNOWN)) if i != own]
    gaps = sorted(np.abs(bent(row[None]) - bent(reference[[i]])).mean() for i in known)
    others = min(len(reference), KNOWN) - 1
    count = min(max(FEWEST, int(NEAREST * others)), others)
    return -float(np.mean([np.log(gap + FLOOR) for gap in gaps[:count]]))


@pytest.mark.parametrize("rows", [2, 4, 30, 200])
def test_nearness_is_that_of_one_row_at_a_time(rows: int):
    X, new = table(rows), table(3, seed=1)
    X[0, 1], new[0, 2] = np.nan, np.nan
    distances = Distances(X)
    expected = [slow_nearness(X, row, -1) for row in new]
    np.testing.assert_allclose(distances._nearness(new, np.full(3, -1)), expected, rtol=1e-9)
    known = np.array([0, rows - 1])
    expected = [slow_nearness(X, X[i], int(i)) for i in known]
    np.testing.assert_allclose(distances._nearness(X[known], known), expected, rtol=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_measures_the_same():
    X, own = table(KNOWN + 50), np.r_[np.arange(KNOWN + 50), np.full(30, -1)]
    rows = np.r_[X, table(30, seed=1)]
    expected = Distances(X)(rows, own)
    np.testing.assert_allclose(Distances(X, "cuda")(rows, own), expected, atol=1e-9)


def test_rows_beyond_those_that_count_are_measured_as_new_ones():
    X = table(KNOWN + 50)
    distances, last = Distances(X), np.array([KNOWN + 49])
    np.testing.assert_array_equal(distances(X[last], last), distances(X[last], np.array([-1])))
    slow = slow_nearness(X, X[-1], -1)
    np.testing.assert_allclose(distances._nearness(X[last], last), slow, rtol=1e-9)


def test_a_few_outliers_side_by_side_do_not_vouch_for_each_other():
    X = np.r_[table(300), table(9, seed=1) / 5 + 6]
    model = fitted(X)
    there = model.score_samples(np.full((1, 4), 6.0))
    assert there < np.quantile(model.score_samples(table(200, seed=2)), 0.01)


def test_no_row_vouches_for_itself_nor_its_copies_in_a_drawn_up_table():
    X = table(200)
    drawn_up, by_itself = fitted(np.r_[X, X[:100]]), fitted(np.r_[X, np.repeat(X[:2], 50, 0)])
    assert len(drawn_up.reference_.judges().distances.known) == 200
    assert len(by_itself.reference_.judges().distances.known) == 300
    for model in (drawn_up, by_itself):
        own, rows = model.reference_.calibration(), model.reference_.group
        _, first = np.unique(rows, return_index=True)
        scores = model.score_samples(X)
        np.testing.assert_allclose(np.sort(own[first]), np.sort(scores), atol=1e-7)
    new = table(400, seed=1)
    assert abs(fitted(table(400)).p_values(new).mean() - 0.5) < 0.06


def test_rows_and_columns_in_another_order_and_rows_alone_change_nothing():
    X, new = table(300), table(700, seed=1)
    expected = fitted(X).score_samples(new)
    order = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(fitted(X[::-1]).score_samples(new), expected, atol=1e-9)
    other = fitted(X[:, order]).score_samples(new[:, order])
    np.testing.assert_allclose(other, expected, atol=1e-6)
    np.testing.assert_array_equal(fitted(X).score_samples(new[690:]), expected[690:])


def test_discrete_constant_and_tiny_tables_are_finite():
    X = np.round(table(60))
    X[:, 1] = 3.0
    for rows in (X, X[:3], X[:, :1]):
        model = fitted(rows)
        assert np.isfinite(model.score_samples(rows)).all()
        assert np.isfinite(model.explain(rows[:2])).all()
