"""Scores may let the layers of the network see some reference rows only (`Scoring.rows`)."""

import numpy as np
import pytest
import torch

from tabiced import ICED
from tabiced.scoring import Scoring
from tabiced.table import read_table
from tabiced.weights import save_network
from tests_support import random_network

SHOWN = 40


def table(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 3))


def fitted(shown: int, rows: int = 120, **options: object) -> ICED:
    network = random_network()
    network.scoring = Scoring(rows=shown)
    return ICED(weights=network, **options).fit(table(rows))


def test_layers_see_the_first_rows_described_by_all():
    model, query = fitted(SHOWN), table(7, seed=1)
    reference, network = model.reference_, model.reference_.reader.network
    x = model.plan_.encode(read_table(query))
    with torch.no_grad():
        description = network.describe(torch.from_numpy(reference.matrix)[None])
        names = network.column_names(description.column_key)
        memory, _ = network.encode(description.context.take(slice(SHOWN)), names)
        energy = network.energy_of(description(torch.from_numpy(x)[None]), names, memory)[0]
    np.testing.assert_allclose(model.score_samples(query), energy, atol=1e-5)
    assert not np.allclose(model.score_samples(query), fitted(0).score_samples(query), atol=1e-3)


def test_log_densities_do_not_depend_on_it():
    queries = np.r_[table(5, seed=1), table(120)[:5]]  # new rows, and rows of the reference
    for asked_first in ("score_samples", "log_density"):
        model = fitted(SHOWN)
        getattr(model, asked_first)(queries)
        np.testing.assert_array_equal(model.log_density(queries), fitted(0).log_density(queries))
        scores = model.score_samples(queries)
        np.testing.assert_array_equal(scores, fitted(SHOWN).score_samples(queries))


@pytest.mark.parametrize("rows", [SHOWN - 1, SHOWN])
def test_a_reference_that_is_shown_whole_is_read_once(rows):
    model = fitted(SHOWN, rows)
    read = model.cache_nbytes_
    model.log_density(table(3, seed=1))
    assert model.cache_nbytes_ == read
    few, all_ = (m.score_samples(table(9, seed=2)) for m in (model, fitted(0, rows)))
    np.testing.assert_array_equal(few, all_)


def test_a_row_does_not_vouch_for_itself():
    X = table(120)
    model = fitted(SHOWN)
    np.testing.assert_array_equal(model.fit_predict(X), model.predict(X))
    moved = model.score_samples(X + 1e-4)  # new rows at the same places
    known = model.score_samples(X)
    assert not np.allclose(known, moved, atol=1e-5)


def test_it_is_kept_with_the_estimator(tmp_path):
    network = random_network()
    network.scoring = Scoring(rows=SHOWN)
    save_network(network, tmp_path / "network.json")
    model = ICED(weights=tmp_path / "network.json").fit(table(120))
    query = np.r_[table(5, seed=1), table(120)[:5]]
    model.save(tmp_path / "model")
    again = ICED.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(query), model.score_samples(query))
