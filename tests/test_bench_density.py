"""Suites with known log-density: fixed tables, honest baselines, stored results that expire."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from tabiced.bench import classical, density
from tabiced.bench.density import SUITES, Table
from tabiced.bench.methods import Method
from tabiced.bench.results import read_csv


def first_column(context, query, seed):
    return query[:, 0]


@pytest.mark.parametrize("suite", SUITES)
def test_tables_are_the_same_every_time(suite):
    one, other = density.draw(SUITES[suite], 1), density.draw(SUITES[suite], 1)
    for a, b in zip(vars(one).values(), vars(other).values(), strict=True):
        assert np.array_equal(a, b)
    assert len(one.query) == len(one.log_density) == density.QUERIES
    assert np.isfinite(one.log_density).all()
    assert not np.array_equal(one.log_density, density.draw(SUITES[suite], 2).log_density)


def test_suites_draw_the_sizes_they_promise():
    shapes = [density.draw(SUITES["low_gaussian"], i).context.shape for i in range(20)]
    assert {columns for _, columns in shapes} == {2, 3, 4, 5, 6}
    assert all(200 <= rows <= 1999 for rows, _ in shapes)


def test_stored_rows_are_kept_until_the_tables_change(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    tables = [
        Table(draw.normal(size=(30, 2)), draw.normal(size=(10, 2)), draw.normal(size=10))
        for _ in range(2)
    ]
    monkeypatch.setattr(density, "draw", lambda suite, index: tables[index])
    calls = []

    def score(context, query, seed):
        calls.append(seed)
        return query[:, 0]

    def run():
        results = density.open_results(tmp_path / "d.csv")
        density.discard_stale(results, ["gaussian"], range(2))
        density.estimate(["gaussian"], [Method("x", score)], results, range(2))
        return calls

    assert run() == [0, 1]
    assert run() == [0, 1]
    tables[1] = Table(tables[1].context, tables[1].query, tables[1].log_density + 1)
    assert run() == [0, 1, 1]
    assert len(read_csv(tmp_path / "d.csv")) == 2


def test_errors_in_nats_are_measured_where_promised(tmp_path):
    truth = {}

    def log_density(context, query, seed):
        return truth[seed] + np.where(query[:, 0] > 0, 0.5, -0.5)

    for i in range(2):
        truth[i] = density.draw(SUITES["low_gaussian"], i).log_density
    results = density.open_results(tmp_path / "d.csv")
    method = Method("x", first_column, log_density)
    density.estimate(["low_gaussian"], [method], results, range(2))
    assert [float(row["mean_error"]) for row in results.rows()] == pytest.approx(
        [0.5, 0.5], abs=1e-5
    )


@pytest.mark.parametrize("name", ["KDE", "KDE-scaled", "GMM-BIC"])
def test_baselines_estimate_log_densities_in_the_units_of_the_input(name):
    draw = np.random.default_rng(0)
    law = multivariate_normal([5, -3], [[4, 0.9], [0.9, 0.25]], seed=draw)
    context, query = law.rvs(4000), law.rvs(300)
    estimate = density.BASELINES[name].log_density(context, query, 0)
    gap = estimate - law.logpdf(query)
    # Kernels blur: a bandwidth h widens a standardised Gaussian to variance 1 + h^2.
    assert abs(np.median(gap)) < (0.05 if name == "GMM-BIC" else 0.35)


def test_scaling_changes_a_log_density_by_the_logarithm_of_the_scale():
    draw = np.random.default_rng(1)
    context, query = draw.normal(size=(200, 3)), draw.normal(size=(20, 3))
    score = classical.standardised(classical.kde, density=True)
    scale = np.array([10.0, 0.1, 3.0])
    shifted = score(context * scale, query * scale, 0)
    np.testing.assert_allclose(shifted, score(context, query, 0) - np.log(scale).sum(), rtol=1e-9)


def test_gmm_bic_finds_two_components():
    draw = np.random.default_rng(2)
    context = np.concatenate([draw.normal(-5, 1, (150, 1)), draw.normal(5, 1, (150, 1))])
    score = classical.gmm_bic(4)(context, np.array([[-5.0], [0.0], [5.0]]), 0)
    peak = np.log(0.5 / np.sqrt(2 * np.pi))
    np.testing.assert_allclose(score[[0, 2]], peak, atol=0.2)
    assert score[1] < peak - 8
