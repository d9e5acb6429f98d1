"""Pairs: energies in two columns at a time by a few reference rows, and their share in scores."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from tabiced import ICED
from tabiced.description import Description
from tabiced.model import Network, NetworkConfig
from tabiced.pairs import JUDGES, LEAST, MOST, Pairs, choose_pairs
from tabiced.scoring import Scoring
from tabiced.weights import save_network
from tests_support import random_network


def branched(**scoring: float) -> Network:
    """Return a network of random weights with a branch without attention."""
    torch.manual_seed(0)
    network = Network(replace(NetworkConfig.tiny(), shallow=True)).eval()
    network.scoring = Scoring(**scoring)
    return network


NETWORK = branched(pairs=1.0)


def table(rows: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, width))


def fitted(X: np.ndarray) -> ICED:
    return ICED(weights=NETWORK).fit(X)


@pytest.mark.parametrize("width", [1, 2, 3, 7, 16, 33, 90, 128, 500])
def test_columns_are_shown_about_equally_often(width: int):
    pairs = choose_pairs(width, np.random.default_rng(0))
    assert LEAST <= len(pairs) <= MOST
    assert all(len(set(pair)) == min(width, 2) for pair in pairs.tolist())
    in_round = max(1, width // 2)
    rounds = [pairs[i : i + in_round].ravel() for i in range(0, len(pairs), in_round)]
    assert all(len(set(columns.tolist())) == len(columns) for columns in rounds)
    if width <= 2 * MOST:
        assert len(rounds[0]) == width - (width % 2 if width > 1 else 0)


def slow_lengths(pairs: Pairs, reference: np.ndarray, row: np.ndarray, own: int) -> float:
    """Judge one row pair by pair; a judge is left out by describing it as a context row."""
    total = 0.0
    for columns, place in zip(pairs.columns, pairs.place, strict=True):
        judges = np.flatnonzero(place >= 0)
        judges = judges[np.argsort(place[judges])]
        description = Description(torch.from_numpy(reference[judges][:, columns])[None])
        if own in judges:
            described = description.context.take(slice(place[own], place[own] + 1))
        else:
            described = description(torch.from_numpy(row[None, None, columns]))
        energy = NETWORK.shallow(described).item()
        total += min(energy - 1, 0) ** 2
    return -(total**0.5)


def test_lengths_are_those_of_one_row_and_pair_at_a_time():
    X = table(JUDGES + 60, 5)
    model = fitted(X)
    reference = model.reference_.matrix[model.reference_.first]
    pairs = model.reference_.judges().pairs
    assert (pairs.place >= 0).sum(1).tolist() == [JUDGES] * LEAST
    new = table(3, 5, seed=1).astype(np.float32)
    with torch.inference_mode():
        expected = [slow_lengths(pairs, reference, row, -1) for row in new]
        np.testing.assert_allclose(pairs._length(new, np.full(3, -1)), expected, rtol=1e-4)
        known = np.array([0, 100, JUDGES + 59])
        expected = [slow_lengths(pairs, reference, reference[i], i) for i in known]
        np.testing.assert_allclose(pairs._length(reference[known], known), expected, rtol=1e-4)


def test_a_reference_row_does_not_judge_itself_and_copies_of_drawn_up_tables_do_not_either():
    X = table(300, 4)
    reference = fitted(np.r_[X, X[:200]]).reference_
    pairs = reference.judges().pairs
    assert pairs.place.shape[1] == 300
    encoded = reference.matrix[reference.first]
    alone, vouched = (pairs(encoded, own) for own in (np.arange(300), np.full(300, -1)))
    assert np.abs(alone - vouched).max() > 1e-3
    np.testing.assert_allclose(reference.calibration(), alone[reference.group])


def test_copies_judge_each_other_where_rows_come_again_by_themselves():
    X = table(300, 4)
    reference = fitted(np.r_[X, np.repeat(X[:4], 50, 0)]).reference_
    assert reference.judges().pairs.place.shape[1] == 500
    assert reference.judges(own=True).pairs.place.shape[1] == 300
    pairs, encoded = reference.judges().pairs, reference.matrix[reference.first]
    np.testing.assert_allclose(
        reference.calibration(), pairs(encoded, reference.first)[reference.group], atol=1e-7
    )


def test_scores_do_not_depend_on_the_rows_that_come_along():
    model = fitted(table(200, 3))
    rows = table(150, 3, seed=1)
    together = model.score_samples(rows)
    np.testing.assert_array_equal(together[140:], model.score_samples(rows[140:]))


@pytest.mark.parametrize("width", [3, 12, 150])
def test_the_order_of_columns_in_the_reference_does_not_matter(width: int):
    network = branched(shallow=0.5, tails=0.2, components=0.2, pairs=0.3, repeats=0.5)
    X, rows = table(200, width), table(30, width, seed=1)
    X[:, 0], rows[:, 0] = np.round(X[:, 0]), np.round(rows[:, 0])
    X = np.r_[X, X[:40]]
    expected = ICED(weights=network).fit(X).score_samples(rows)
    order = np.random.default_rng(2).permutation(width)
    other = ICED(weights=network).fit(X[:, order]).score_samples(rows[:, order])
    np.testing.assert_allclose(other, expected, atol=2e-3)


@pytest.mark.parametrize("width", [1, 2, 3, 40])
def test_p_values_of_new_rows_are_uniform(width: int):
    model = fitted(table(400, width))
    p = model.p_values(table(400, width, seed=1))
    assert abs(p.mean() - 0.5) < 0.08
    assert 0.01 < (p <= 0.05).mean() < 0.12


def test_missing_cells_discrete_tables_and_two_rows_are_finite():
    X = table(80, 3)
    X[::3, 0], X[:, 1] = np.nan, np.round(X[:, 1])
    for rows in (X, np.round(X), X[:2]):
        model = fitted(rows)
        assert np.isfinite(model.score_samples(np.r_[X, rows])).all()
        assert np.isfinite(model.explain(X[:4])).all()


def test_shares_add_up():
    X, rows = table(120, 4), table(30, 4, seed=1)
    parts = {}
    for name in ("shallow", "tails", "pairs"):
        network = copy.deepcopy(NETWORK)
        network.scoring = Scoring(**{name: 1.0})
        parts[name] = ICED(weights=network).fit(X).score_samples(rows)
    network.scoring = Scoring(shallow=1.0, tails=0.3, pairs=0.5)
    mixed = ICED(weights=network).fit(X).score_samples(rows)
    expected = 0.2 * parts["shallow"] + 0.3 * parts["tails"] + 0.5 * parts["pairs"]
    np.testing.assert_allclose(mixed, expected, atol=1e-9)


def test_a_saved_estimator_scores_as_before(tmp_path):
    save_network(NETWORK, tmp_path / "network.json")
    X, rows = table(120, 4), table(30, 4, seed=1)
    model = ICED(weights=tmp_path / "network.json").fit(X)
    model.save(tmp_path / "model")
    again = ICED.load(tmp_path / "model").score_samples(rows)
    np.testing.assert_array_equal(again, model.score_samples(rows))


def test_weights_without_a_branch_say_so():
    network = random_network()
    network.scoring = Scoring(pairs=0.5)
    with pytest.raises(ValueError, match="no branch"):
        ICED(weights=network).fit(table(20, 2))
