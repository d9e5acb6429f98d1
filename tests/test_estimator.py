"""The estimator keeps its laws and scikit-learn's contract, whatever the weights."""

import copy
import doctest
import io
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import tabiced.estimator
import tabiced.reference
from tabiced import ICED
from tabiced.calibration import false_discoveries, p_values, threshold
from tabiced.contexts import make_views
from tabiced.model import Network
from tabiced.prior import Prior
from tabiced.rows import is_drawn_up
from tabiced.scoring import Scoring
from tabiced.table import read_table
from tabiced.weights import SHIPPED, WeightsError, save_network
from tests_support import random_network

NETWORK = random_network()
DEFAULTS = ICED.__init__.__kwdefaults__
TOLERANCE = 1e-4  # float32, relative to energies of order 1


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.json"
    save_network(NETWORK, path)
    return path


def gaussian(rows: int, columns: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, columns)) @ rng.normal(size=(columns, columns))


def fitted(X: object, **options: object) -> ICED:
    return ICED(weights=NETWORK, **options).fit(X)


def mixed(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(1e3, 5, rows),
            "share": rng.beta(2, 5, rows),
            "kind": rng.choice(["red", "green", "blue"], rows, p=[0.6, 0.3, 0.1]),
            "sex": rng.choice(["f", "m"], rows),
            "flag": rng.random(rows) < 0.2,
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**6, rows), "s"),
            "always": 7,
        }
    )
    frame.loc[rng.random(rows) < 0.1, "share"] = np.nan
    frame.loc[rng.random(rows) < 0.1, "kind"] = None
    return frame


# scikit-learn's contract


@parametrize_with_checks([ICED()])
def test_scikit_learn_contract(estimator: ICED, check, card: Path):
    # The checks compare parameters by hash, which a path has and a network does not.
    check(estimator.set_params(weights=str(card)))


# Laws


def test_a_row_scores_the_same_to_the_bit_whatever_comes_along():
    X, Q = gaussian(150), gaussian(301, seed=1)
    model = fitted(X)
    whole = model.score_samples(Q)
    order = np.random.default_rng(0).permutation(len(Q))
    np.testing.assert_array_equal(model.score_samples(Q[order]), whole[order])
    for rows in (slice(0, 1), slice(5, 138), slice(290, 301)):
        np.testing.assert_array_equal(model.score_samples(Q[rows]), whole[rows])


def test_chunks_cache_and_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch):
    X, Q = gaussian(150), gaussian(300, seed=1)
    rows = np.r_[Q, X[:20]]
    model = fitted(X)
    expected = model.score_samples(rows)
    monkeypatch.setattr("tabiced.estimator.CHUNK_CELLS", 64)
    monkeypatch.setattr("tabiced.rows.COMPARED_CELLS", 12)
    np.testing.assert_array_equal(model.score_samples(rows), expected)
    uncached = fitted(X, memory_mb=0)
    np.testing.assert_allclose(uncached.score_samples(rows), expected, atol=TOLERANCE)
    assert uncached.cache_nbytes_ == 0 < model.cache_nbytes_


def test_folds_are_judged_without_being_kept():
    X = gaussian(60)
    model = fitted(X)
    before = model.cache_nbytes_
    model.p_values(X)
    model.log_density(X)
    assert model.cache_nbytes_ == before > 0


def test_energies_are_those_of_the_network():
    X, Q = gaussian(80), gaussian(30, seed=1)
    model = fitted(X)
    query = torch.from_numpy(model.plan_.encode(read_table(Q)))
    read = NETWORK.read(torch.from_numpy(model.reference_.matrix)[None])
    expected = NETWORK.energy(read, query[None])[0]
    np.testing.assert_allclose(model.score_samples(Q), expected, atol=TOLERANCE)
    low, high = read.percentiles[0].double()
    scale = [np.subtract(*np.quantile(x, [0.75, 0.25])) / 1.349 for x in X.T]
    density = low + (expected + 1) / 2 * (high - low) - np.log(scale).sum()
    np.testing.assert_allclose(model.log_density(Q), density, atol=1e-3)


@pytest.mark.parametrize("rows", [60, 400])  # the second is sampled
def test_the_order_of_reference_rows_does_not_matter(rows: int):
    X, Q = mixed(rows), mixed(20, seed=1)
    shuffled = X.sample(frac=1.0, random_state=3)
    a, b = (fitted(t, max_context_rows=100) for t in (X, shuffled))
    np.testing.assert_array_equal(a.score_samples(Q), b.score_samples(Q))
    np.testing.assert_array_equal(a.p_values(X), b.p_values(X))


def test_the_order_of_columns_does_not_matter():
    X, Q = gaussian(100), gaussian(20, seed=1)
    order = [2, 0, 3, 1]
    a, b = fitted(X), fitted(X[:, order])
    np.testing.assert_allclose(a.score_samples(Q), b.score_samples(Q[:, order]), atol=1e-3)
    np.testing.assert_allclose(a.score_samples(X), b.score_samples(X[:, order]), atol=1e-3)
    X, Q = mixed(), mixed(20, seed=1)
    shuffled = Q[Q.columns[::-1]]
    model = fitted(X)
    np.testing.assert_array_equal(model.score_samples(Q), model.score_samples(shuffled))
    pd.testing.assert_frame_equal(model.explain(shuffled), model.explain(Q)[shuffled.columns])


def test_units_do_not_matter_except_to_the_log_density():
    X, Q = gaussian(100), gaussian(20, seed=1)
    scale, shift = np.array([1e3, 0.02, 7.0, 1.0]), np.array([5.0, 0.1, -3e4, 0.0])
    a, b = fitted(X), fitted(X * scale + shift)
    for rows in (Q, X):
        moved = rows * scale + shift
        np.testing.assert_allclose(a.score_samples(rows), b.score_samples(moved), atol=1e-3)
        change = b.log_density(moved) - a.log_density(rows)
        np.testing.assert_allclose(change, -np.log(scale).sum(), atol=2e-2)


def test_frames_and_arrays_give_the_same_scores():
    X, Q = mixed(), mixed(30, seed=1)
    expected = fitted(X).score_samples(Q)
    polar = fitted(pl.from_pandas(X)).score_samples(pl.from_pandas(Q))
    np.testing.assert_array_equal(polar, expected)
    objects = fitted(X.to_numpy(dtype=object)).score_samples(Q.to_numpy(dtype=object))
    np.testing.assert_array_equal(objects, expected)
    numbers = gaussian(50)
    array = fitted(numbers).p_values(numbers)
    frame = fitted(pd.DataFrame(numbers, columns=list("abcd")))
    np.testing.assert_array_equal(frame.p_values(pl.DataFrame(numbers, schema=list("abcd"))), array)


def test_float32_and_float64_agree():
    X, Q = gaussian(100), gaussian(40, seed=1)
    rows = np.r_[Q, X]
    expected = fitted(X).score_samples(rows)
    single = fitted(X.astype(np.float32)).score_samples(rows.astype(np.float32))
    np.testing.assert_allclose(single, expected, atol=1e-3)
    # reference rows are recognised in single precision
    half = fitted(X).score_samples(rows.astype(np.float32))
    np.testing.assert_allclose(half, expected, atol=1e-3)


def test_the_same_seed_gives_the_same_bits():
    X, Q = mixed(300), mixed(20, seed=1)
    options = {"max_context_rows": 100, "n_views": 2}
    a, b, c = (fitted(X, random_state=s, **options) for s in (0, 0, 1))
    np.testing.assert_array_equal(a.p_values(Q), b.p_values(Q))
    np.testing.assert_array_equal(a.explain(Q), b.explain(Q))
    assert (a.score_samples(Q) != c.score_samples(Q)).any()


# Judging from outside


def test_a_reference_row_is_judged_by_the_folds_it_is_not_in():
    X = gaussian(50)
    model = fitted(X)
    reference = model.reference_
    matrix = reference.matrix
    match, folds = reference.locate(matrix)
    assert (match >= 0).all()
    for i in (0, 17, 33):
        outside = matrix[folds != folds[i]]
        assert len(outside) == 45
        read = NETWORK.read(torch.from_numpy(outside)[None])
        expected = NETWORK.energy(read, torch.from_numpy(matrix[i : i + 1])[None])[0]
        judged = reference.score(matrix[i : i + 1])
        np.testing.assert_allclose(judged, expected, atol=TOLERANCE)
    inside = reference.whole.energy(matrix)
    assert np.abs(inside - reference.score(matrix)).max() > 10 * TOLERANCE
    encoded = model.plan_.encode(read_table(X))
    np.testing.assert_array_equal(model.score_samples(X), reference.score(encoded))


def with_repeats() -> Network:
    """Return the test network, its scores counting exact repeats."""
    network = copy.deepcopy(NETWORK)
    network.scoring = Scoring(repeats=0.5)
    return network


@pytest.mark.parametrize("weights", [NETWORK, with_repeats()])
def test_copies_do_not_vouch_for_each_other_in_fit_predict(weights: Network):
    X = gaussian(60)
    copied = np.r_[X, X[:30], X[:10]]
    model = ICED(weights=weights)
    labels = model.fit_predict(copied)
    reference = model.reference_
    assert reference.is_measured
    for fold in np.unique(reference.fold):
        inside = reference.matrix[reference.first[reference.fold == fold]]
        outside = {row.tobytes() for row in reference.without(int(fold), own=True).rows}
        assert not any(row.tobytes() in outside for row in inside)
    np.testing.assert_array_equal(model.outlier_scores_[60:90], model.outlier_scores_[:30])
    np.testing.assert_allclose(-model.outlier_scores_, fitted(copied).score_samples(copied))
    assert 0 < (labels == -1).mean() < 0.15


@pytest.mark.parametrize("drawn_up", [True, False])
def test_a_row_that_came_before_gains_and_one_of_the_reference_if_it_has_copies(drawn_up: bool):
    X = gaussian(60)
    copied = np.r_[X, X[:30], X[:10]] if drawn_up else np.r_[X, np.repeat(X[:10], 4, 0)]
    model = ICED(weights=with_repeats()).fit(copied)
    reference = model.reference_
    assert reference.hides_copies(own=False) == drawn_up
    encoded = model.plan_.encode(read_table(X))
    match, folds = reference.locate(encoded)
    once = 30 if drawn_up else 50
    familiar = 0.5 * -math.log((once + 1) / (100 + 1))  # so many of 100 rows occur once
    scores, new = model.score_samples(X), model.score_samples(X[:1] + 0.01)
    calibration = reference.calibration()
    own = dict(zip(reference.group.tolist(), calibration.tolist(), strict=True))
    for i in (0, 20, 50):
        copies, context = reference.count[match[i]], reference.without(folds[i])
        vouching = 0 if drawn_up else copies - 1
        assert (context.rows == encoded[i]).all(1).sum() == vouching
        outside = context.energy(encoded[i : i + 1])
        np.testing.assert_allclose(scores[i], outside + familiar, atol=TOLERANCE)
        np.testing.assert_allclose(own[match[i]], outside + familiar * (copies > 1), atol=TOLERANCE)
    query = model.plan_.encode(read_table(X[:1] + 0.01))
    np.testing.assert_allclose(new, reference.without(-1).energy(query), atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(5))
def test_tables_whose_rows_were_drawn_with_replacement_are_recognised(seed: int):
    rng = np.random.default_rng(seed)
    for rows in (60, 200, 700):
        draws = np.unique(rng.integers(rows, size=700), return_counts=True)[1]
        assert is_drawn_up(draws)
        unequal = rng.choice(rows, size=700, p=rng.dirichlet(np.full(rows, 0.3)))
        assert not is_drawn_up(np.unique(unequal, return_counts=True)[1])
    assert not is_drawn_up(np.ones(500, int))
    assert not is_drawn_up(np.r_[np.ones(500, int), 2, 2, 2])


def test_new_rows_of_a_drawn_up_table_raise_as_many_alarms_as_wanted():
    rng = np.random.default_rng(0)
    X = gaussian(150)
    rates = []
    for _ in range(8):
        model = ICED(false_alarm_rate=0.1).fit(X[rng.integers(150, size=300)])
        rates.append((model.predict(X[rng.integers(150, size=300)]) == -1).mean())
    assert 0.02 < np.mean(rates) < 0.13


def test_in_discrete_tables_one_copy_leaves():
    rng = np.random.default_rng(0)
    X = rng.choice(["a", "b", "c"], (200, 3), p=[0.6, 0.3, 0.1])
    reference = fitted(X).reference_
    assert not reference.is_measured
    for fold in np.unique(reference.fold):
        assert len(reference.without(int(fold)).rows) == 200 - (reference.fold == fold).sum()


def test_fit_predict_judges_like_predict():
    X = mixed(150)
    model = ICED(weights=NETWORK)
    labels = model.fit_predict(X)
    np.testing.assert_array_equal(labels, fitted(X).predict(X))
    np.testing.assert_array_equal(model.outlier_scores_, -model.score_samples(X))
    np.testing.assert_array_equal(labels == -1, model.p_values(X) <= 0.05)


# Calibration


def test_p_values_count_reference_rows():
    calibration = np.array([3.0, 1.0, 2.0, 2.0])
    energy = np.array([0.0, 1.0, 2.0, 2.5, 9.0])
    slow = [(1 + sum(c <= e for c in calibration)) / 5 for e in energy]
    np.testing.assert_allclose(p_values(energy, calibration), slow)


@pytest.mark.parametrize("rows", [1, 2, 18, 19, 20, 99, 1000])
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_the_threshold_is_where_p_values_reach_the_rate(rows: int, rate: float):
    rng = np.random.default_rng(rows)
    calibration = rng.normal(size=rows).round(1)
    energy = np.r_[calibration, rng.normal(size=200).round(1), -99.0]
    alarms = energy < threshold(calibration, rate)
    np.testing.assert_array_equal(
        alarms, p_values(energy, calibration) <= max(rate, 1 / (rows + 1)) + 1e-9
    )


def test_p_values_are_uniform_for_rows_like_the_reference():
    """Tables of the prior, with categories, missing cells, outliers and copies in some.

    With the shipped weights: random ones notice that the folds' contexts are smaller than the
    whole, trained ones hardly do.
    """
    shares = []
    for columns in (2, 4, 8):
        generator = torch.Generator().manual_seed(columns)
        drawn = Prior("full").draw(10, 350, 1, columns, generator=generator).context
        for table in drawn.double().numpy():
            p = ICED().fit(table[:220]).p_values(table[220:])
            shares.append([(p <= level).mean() for level in (0.05, 0.2, 0.5)])
    mean = np.mean(shares, 0)
    # Standard errors, from the scatter of the 30 tables: 0.005, 0.006 and 0.010.
    assert 0.03 < mean[0] < 0.06
    assert 0.17 < mean[1] < 0.23
    assert 0.46 < mean[2] < 0.54


def test_false_discoveries_follow_the_step_up_rule():
    rng = np.random.default_rng(0)
    for rate in (0.05, 0.2):
        p = np.r_[rng.uniform(size=40), rng.uniform(0, 0.01, 10)].round(3)
        ordered = sorted(p)
        k = max((i + 1 for i in range(50) if ordered[i] <= rate * (i + 1) / 50), default=0)
        assert false_discoveries(p, rate).sum() >= k > 0
        assert (p[false_discoveries(p, rate)] <= ordered[k - 1]).all()
    assert not false_discoveries(np.full(5, 0.9)).any()
    with pytest.raises(ValueError, match="between 0 and 1"):
        false_discoveries(np.array([0.1, np.nan]))


# Explanations


def test_explanations_are_energies_gained_by_not_knowing_a_cell():
    X, Q = mixed(80), mixed(6, seed=1)
    model = fitted(X)
    explained = model.explain(Q)
    assert list(explained.columns) == list(Q.columns)
    assert (explained["always"] == 0).all()
    energy = model.score_samples(Q)
    for name in ("size", "kind", "sex", "when"):
        hidden = Q.assign(**{name: None})
        gained = model.score_samples(hidden.astype({name: object})) - energy
        np.testing.assert_allclose(explained[name], gained, atol=TOLERANCE)
    known = model.explain(X.iloc[:5])  # of reference rows, from outside
    np.testing.assert_array_equal(known.index, X.index[:5])
    assert isinstance(model.explain(pl.from_pandas(Q)), pl.DataFrame)
    assert isinstance(fitted(gaussian(30)).explain(gaussian(3, seed=2)), np.ndarray)


# Sizes


def test_more_columns_than_the_network_takes_are_shown_in_parts():
    X, Q = gaussian(40, 300), gaussian(5, 300, seed=1)
    model = fitted(X)
    views = model.reference_.reader.views
    assert len(views) == 3 and all(len(view.columns) == 100 for view in views)
    np.testing.assert_array_equal(np.sort(np.concatenate([v.columns for v in views])), range(300))
    matrix, rows = model.reference_.matrix, model.plan_.encode(read_table(Q))
    parts = [
        NETWORK.energy(
            NETWORK.read(torch.from_numpy(matrix[None, :, v.columns])),
            torch.from_numpy(rows[None, :, v.columns]),
        )[0]
        for v in views
    ]
    expected = torch.stack(parts).mean(0)
    np.testing.assert_allclose(model.score_samples(Q), expected, atol=TOLERANCE)
    with pytest.raises(ValueError, match="log_density takes at most 128 columns"):
        model.log_density(Q)


def test_views_keep_the_columns_of_a_category_together():
    blocks = [np.arange(10 * i, 10 * i + 10) for i in range(30)]
    views = make_views(blocks, 128, 2, np.random.default_rng(0))
    for view in views:
        assert len(view.columns) <= 128
        assert {len(set(view.columns) & set(block)) for block in blocks} <= {0, 10}
    assert sum(len(view.columns) for view in views) == 600


def test_views_are_averaged():
    X, Q = gaussian(60), gaussian(10, seed=1)
    model = fitted(X, n_views=3)
    rows = torch.from_numpy(model.reference_.matrix)
    query = torch.from_numpy(model.plan_.encode(read_table(Q)))
    energies = [
        NETWORK.energy(NETWORK.read(rows[None], order=view.order), query[None])[0]
        for view in model.reference_.reader.views
    ]
    spread = torch.stack(energies).std(0).max()
    assert spread > 10 * TOLERANCE
    mean = torch.stack(energies).mean(0)
    np.testing.assert_allclose(model.score_samples(Q), mean, atol=TOLERANCE)


def test_large_references_are_sampled():
    X = gaussian(500)
    model = fitted(X, max_context_rows=64)
    assert len(model.reference_.matrix) == 64
    assert model.fit_predict(X).shape == (500,)


def test_log_densities_of_large_references_are_by_fewer_rows(monkeypatch):
    """More than the network has learned them from take long and tell it nothing."""
    X, Q = gaussian(150), gaussian(20, seed=1)
    queries = np.concatenate([Q, X[:20]])  # reference rows are judged from outside
    whole, scores = fitted(X).log_density(queries), fitted(X).score_samples(queries)
    monkeypatch.setattr(tabiced.reference, "DENSE_ROWS", 60)
    model = fitted(X)
    np.testing.assert_array_equal(model.score_samples(queries), scores)
    found = model.log_density(queries)
    assert (found != whole).all()
    reference = model.reference_.matrix[:60]
    encoded = model.plan_.encode(read_table(Q))
    small = tabiced.reference.Reference(reference, model.reference_.reader)
    expected = small.log_density(encoded) - model.plan_.log_volume
    np.testing.assert_allclose(found[:20], expected, atol=1e-4)


# Ecosystem


def test_pickles_are_small_and_score_the_same(card: Path):
    X, Q = mixed(100), mixed(20, seed=1)
    model = ICED(weights=card).fit(X)
    expected = model.p_values(Q)
    content = pickle.dumps(model)
    assert len(content) < 50_000  # the reference rows, not the network and its cache
    np.testing.assert_array_equal(pickle.loads(content).p_values(Q), expected)
    np.testing.assert_array_equal(clone(model).fit(X).p_values(Q), expected)


@pytest.mark.parametrize("table", [mixed(60), gaussian(9, 130), np.ones((4, 2))])
def test_saved_estimators_score_the_same(table: object, card: Path, tmp_path: Path):
    model = ICED(weights=card, n_views=2, max_context_rows=50, memory_mb=10).fit(table)
    model.save(tmp_path / "model.safetensors")
    loaded = ICED.load(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").stat().st_size < 100_000
    np.testing.assert_array_equal(loaded.p_values(table), model.p_values(table))
    np.testing.assert_array_equal(loaded.explain(table[:1]), model.explain(table[:1]))
    assert loaded.get_params() == {**model.get_params(), "weights": str(card)}
    assert loaded.plan_ == model.plan_
    assert set(vars(loaded)) == set(vars(model))


def test_saved_estimators_refuse_other_weights(card: Path, tmp_path: Path):
    other = tmp_path / "other.json"
    save_network(random_network(1), other)
    ICED(weights=other).fit(gaussian(9)).save(tmp_path / "model.safetensors")
    save_network(random_network(2), other)
    with pytest.raises(WeightsError, match="saved with other weights"):
        ICED.load(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="not an estimator saved by tabiced"):
        ICED.load(card)
    with pytest.raises(ValueError, match="save the network with"):
        fitted(gaussian(9)).save(tmp_path / "none")


def test_pipelines():
    X, Q = gaussian(60), gaussian(10, seed=1)
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), ICED(weights=NETWORK))
    energy = pipeline.fit(X).score_samples(Q)
    np.testing.assert_allclose(energy, fitted(X).score_samples(Q), atol=1e-3)


def test_an_array_after_a_frame_goes_by_position_with_a_warning():
    X = pd.DataFrame(gaussian(40), columns=list("abcd"))
    model = fitted(X)
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        energy = model.score_samples(X.to_numpy())
    np.testing.assert_array_equal(energy, model.score_samples(X))
    model.fit(X.to_numpy())
    assert not hasattr(model, "feature_names_in_")


def test_gradients_can_use_the_context_that_was_read():
    X = gaussian(40)
    model = fitted(X)
    _, context = next(model.reference_.whole.contexts())
    query = torch.zeros(1, 1, 4, requires_grad=True)
    NETWORK.energy(context, query).sum().backward()
    assert query.grad is not None and query.grad.abs().sum() > 0


def test_progress_is_shown_when_asked(monkeypatch: pytest.MonkeyPatch):
    ticks = iter(range(10**6))
    monkeypatch.setattr("tabiced.contexts.time.monotonic", lambda: 2.0 * next(ticks))
    X, Q = gaussian(30), gaussian(300, seed=1)
    for verbose in (False, True):
        screen = io.StringIO()
        monkeypatch.setattr(sys, "stderr", screen)
        fitted(X, verbose=verbose).score_samples(Q)
        assert ("100%" in screen.getvalue()) == verbose


def test_the_examples_of_the_page_run(card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (Path(__file__).parent.parent / "docs" / "estimator.md").read_text()
    code = "".join(re.findall(r"```python\n(.+?)```", page, re.DOTALL))
    monkeypatch.setattr(ICED.__init__, "__kwdefaults__", {**DEFAULTS, "weights": str(card)})
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["model"], ICED)
    assert (tmp_path / "model.safetensors").exists()


def test_the_example_of_the_docstring_holds_for_the_shipped_weights():
    if not SHIPPED.exists():
        pytest.skip("no weights are shipped yet")
    result = doctest.testmod(tabiced.estimator)
    assert result.attempted > 3 and result.failed == 0


def test_importing_the_package_is_quick():
    code = "import sys, tabiced; print(tabiced.__version__, 'torch' in sys.modules, dir(tabiced))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    _, heavy, names = done.stdout.split(maxsplit=2)
    assert heavy == "False" and "ICED" in names
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tabiced.nothing  # noqa: B018
