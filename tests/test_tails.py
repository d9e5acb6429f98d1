"""Tails: how far out the cells of a row lie, and their share in the energies of an estimator."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tabiced import ICED
from tabiced.tails import EXPECTED, Tails

OWN, NEW = np.array(True), np.array(False)

CELLS = st.sampled_from([0.0, 1.0, 2.5, -3.0, 7.0, 1e9, math.nan])


def slow_depth(reference, row, own=None):
    """Count by hand; `own` is the reference row to leave out."""
    total = 0.0
    for j, x in enumerate(row):
        column = [r[j] for i, r in enumerate(reference) if i != own and not math.isnan(r[j])]
        if math.isnan(x):
            total += EXPECTED
            continue
        fewer = min(sum(c <= x for c in column), sum(c >= x for c in column))
        total += math.log(2 * min((fewer + 0.5) / (len(column) + 1), 0.5)) ** 2
    return -math.sqrt(total)


@settings(max_examples=60, deadline=None)
@given(arrays(float, (12, 3), elements=CELLS), arrays(float, (5, 3), elements=CELLS))
def test_depths_are_those_of_counting(reference, rows):
    tails = Tails(reference)
    expected = [slow_depth(reference, row) for row in rows]
    np.testing.assert_allclose(tails._depth(rows, NEW), expected, atol=1e-12)
    left_out = [slow_depth(reference, row, own=i) for i, row in enumerate(reference)]
    np.testing.assert_allclose(tails._depth(reference, OWN), left_out, atol=1e-12)
    both, own = np.concatenate([reference, rows]), np.arange(17) < 12
    np.testing.assert_allclose(tails._depth(both, own), left_out + expected, atol=1e-12)


def test_the_scale_is_that_of_energies():
    rows = np.random.default_rng(0).normal(size=(2001, 4))
    tails = Tails(rows)
    own = tails(rows, OWN)
    bent = 2 * np.arcsinh(0.5)  # what -1 and +1 become
    np.testing.assert_allclose(np.quantile(own, [0.1, 0.9]), [-bent, bent], atol=1e-9)
    middle, end = tails(np.array([[0.0] * 4, [9.0] * 4]), NEW)
    assert middle > bent and end < own.min()


def test_missing_cells_tell_nothing_and_copies_of_copies_are_finite():
    rows = np.random.default_rng(0).normal(size=(300, 1))
    tails = Tails(rows)
    assert tails._depth(np.array([[np.nan]]), NEW) == -math.sqrt(EXPECTED)
    assert abs(np.square(tails._depth(rows, OWN)).mean() - EXPECTED) < 0.2
    below_all = np.nextafter(rows.min(), -np.inf)
    assert np.isfinite(tails(np.array([[below_all]]), OWN)).all()
    assert (Tails(np.ones((5, 2)))(np.ones((3, 2)), NEW) == 0).all()


@pytest.fixture(scope="module")
def table():
    g = np.random.default_rng(1)
    rows = g.normal(size=(120, 3))
    rows[::7, 1] = np.nan
    return rows


def test_energies_are_the_stated_mixture(table):
    queries = np.random.default_rng(2).normal(size=(9, 3)) * 2
    plain, mixed = (ICED(tail_weight=weight).fit(table) for weight in (0.0, 0.25))
    tails = Tails(mixed.reference_.matrix)(mixed.plan_.encode(_read(queries)), NEW)
    sharpness = mixed.reference_.scoring.sharpness
    others = plain.score_samples(queries)
    mean = 0.75 * np.exp(-sharpness * others) + 0.25 * np.exp(-sharpness * tails)
    expected = -np.log(mean) / sharpness
    np.testing.assert_allclose(mixed.score_samples(queries), expected, atol=1e-9)
    np.testing.assert_array_equal(mixed.log_density(queries), plain.log_density(queries))


def test_reference_rows_are_judged_from_outside(table, tmp_path):
    model = ICED(tail_weight=0.4)
    labels = model.fit_predict(table)
    np.testing.assert_array_equal(labels, model.predict(table))
    shuffled = np.random.default_rng(0).permutation(len(table))
    np.testing.assert_allclose(
        ICED(tail_weight=0.4).fit(table[shuffled]).score_samples(table),
        model.score_samples(table),
        atol=1e-9,
    )
    model.save(tmp_path / "model")
    again = ICED.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(table), model.score_samples(table))
    np.testing.assert_array_equal(again.p_values(table), model.p_values(table))


def test_explanations_add_the_tails_of_a_cell(table):
    queries = np.array([[0.0, 0.0, 8.0]])
    plain, mixed = (ICED(tail_weight=w).fit(table).explain(queries)[0] for w in (0.0, 0.5))
    assert mixed.argmax() == plain.argmax() == 2
    assert not np.allclose(plain, mixed)


def test_another_value_in_a_constant_column_is_far_out(table):
    wider = np.c_[table, np.full(len(table), 3.0), np.full(len(table), 1.0)]
    queries = np.c_[table[:4] + 0.01, [3.0, 4.0, 3.0, 4.0], [1.0, 1.0, np.nan, -1.0]]
    for weight in (0.0, 0.5):
        plain = ICED(tail_weight=weight).fit(table)
        model = ICED(tail_weight=weight).fit(wider)
        with pytest.warns(UserWarning, match="is always 3.0 in the reference table"):
            found = model.score_samples(queries)
        expected = plain.score_samples(queries[:, :3])
        np.testing.assert_allclose(found[[0, 2]], expected[[0, 2]], atol=1e-9)
        if weight == 0:
            np.testing.assert_allclose(found, expected, atol=1e-9)
        else:
            once, twice = (expected - found)[[1, 3]]
            assert once > 0.3 and twice > 0.3
            tails, encoded = model.reference_.judges().tails, model.plan_.encode(_read(queries))
            depth = tails._depth(encoded, NEW, np.array([0.0, 1.0, 0.0, 2.0]))
            lost = depth**2 - tails._depth(encoded, NEW) ** 2
            np.testing.assert_allclose(lost, np.array([0, 1, 0, 2]) * math.log(121) ** 2, atol=1e-9)


@pytest.mark.parametrize("weight", [-0.1, 1.1])
def test_weights_outside_are_refused(table, weight):
    with pytest.raises(ValueError, match="tail_weight must lie between 0 and 1"):
        ICED(tail_weight=weight).fit(table)


def _read(rows):
    from tabiced.table import read_table

    return read_table(rows)
