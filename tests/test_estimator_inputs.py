"""Whatever table comes in: finite answers of the right shape, or an error that names the place."""

import datetime as dt
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tabiced import ICED
from tabiced.weights import WeightsError
from tests_support import random_network

NETWORK = random_network()


def model(**options: object) -> ICED:
    return ICED(weights=NETWORK, **options)


def judgements(fitted: ICED, X: object) -> list[np.ndarray]:
    p = fitted.p_values(X)
    assert ((p > 0) & (p <= 1)).all()
    labels = fitted.predict(X)
    assert set(np.unique(labels)) <= {-1, 1}
    return [fitted.score_samples(X), fitted.decision_function(X), p, labels]


# Tables at the edge


@pytest.mark.parametrize("rows", [2, 3, 5, 9, 21])
@pytest.mark.parametrize("columns", [1, 3])
def test_small_tables(rows: int, columns: int):
    rng = np.random.default_rng(rows)
    X, Q = rng.normal(size=(rows, columns)), rng.normal(size=(4, columns))
    fitted = model().fit(X)
    for table in (X, Q, Q[:1]):
        for values in judgements(fitted, table):
            assert values.shape == (len(table),)
            assert np.isfinite(values).all()
        assert np.isfinite(fitted.log_density(table)).all()
        assert np.isfinite(np.asarray(fitted.explain(table))).all()


def test_one_row_is_refused():
    with pytest.raises(ValueError, match=r"1 sample\(s\) .* minimum of 2"):
        model().fit(np.ones((1, 3)))


@pytest.mark.parametrize(
    "X",
    [
        np.ones((10, 3)),
        np.full((10, 3), np.nan),
        [["a"], ["a"], ["a"]],
        [[None, 1], [None, 1]],
        pd.DataFrame({"id": [f"row {i}" for i in range(30)], "always": 1}),
    ],
)
def test_without_information_all_rows_are_equally_typical(X: object):
    fitted = model().fit(X)
    n = len(X)  # type: ignore[arg-type]
    np.testing.assert_array_equal(fitted.score_samples(X), np.zeros(n))
    np.testing.assert_array_equal(fitted.p_values(X), np.ones(n))
    np.testing.assert_array_equal(fitted.predict(X), np.ones(n))
    np.testing.assert_array_equal(np.asarray(fitted.explain(X)), 0)
    with pytest.raises(ValueError, match="needs a column that varies"):
        fitted.log_density(X)


def test_constant_and_empty_columns_change_nothing():
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(40, 3)), rng.normal(size=(5, 3))
    fitted = model().fit(np.c_[X, np.ones(40), np.full(40, np.nan)])
    query = np.c_[Q, np.full(5, np.nan), np.arange(5.0)]
    np.testing.assert_array_equal(fitted.score_samples(query), model().fit(X).score_samples(Q))


def test_a_column_that_is_constant_but_for_one_row():
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(30, 2)), np.zeros(30)]
    X[7, 2] = 1.0
    for values in judgements(model().fit(X), X):
        assert np.isfinite(values).all()


def test_new_categories_and_missing_cells_are_scored():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=50), "c": rng.choice(["a", "b", "d"], 50)})
    Q = pd.DataFrame({"x": [0.0, np.nan, np.nan], "c": ["new", "a", None]})
    for values in judgements(model().fit(X), Q):
        assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (np.ones((2, 2)), ValueError, "X has 2 features, but ICED is expecting 3 features"),
        (np.ones(3), ValueError, "Reshape your data"),
        (np.empty((0, 3)), ValueError, r"0 sample\(s\)"),
        (np.array([[1, 2, np.inf]]), ValueError, "Column 2 holds an infinite value"),
        ([[1, 2, "three"]], ValueError, r"Column 2 holds numbers .* text here \(row 0: 'three'\)"),
        ([[1, 2, dt.date(2020, 1, 1)]], ValueError, "Column 2 holds numbers .* datetimes here"),
        (pl.DataFrame({"a": [1], "b": [1], "z": [1]}), None, ""),
        (scipy.sparse.eye(3), TypeError, r"[Ss]parse"),
        (torch.ones(2, 3, requires_grad=True), ValueError, "Cannot read a Tensor"),
        (None, ValueError, "Expected a 2D table"),
    ],
)
def test_bad_queries_are_refused(query: object, error: type[Exception] | None, message: str):
    fitted = model().fit(np.random.default_rng(0).normal(size=(20, 3)))
    for method in (fitted.score_samples, fitted.predict, fitted.explain, fitted.log_density):
        if error is None:
            method(query)
        else:
            with pytest.raises(error, match=message):
                method(query)


def test_other_columns_than_the_reference_are_named():
    frame = pl.DataFrame({"a": [1.0, 2, 4], "b": [3.0, 1, 2]})
    fitted = model().fit(frame)
    with pytest.raises(ValueError, match=r"ICED was fitted to \(missing: 'b'; unexpected: 'c'\)"):
        fitted.score_samples(frame.rename({"b": "c"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"false_alarm_rate": 0}, "false_alarm_rate must lie between 0 and 1"),
        ({"false_alarm_rate": 1.0}, "false_alarm_rate"),
        ({"max_context_rows": 1}, "max_context_rows must be at least 2"),
        ({"n_views": 0}, "n_views must be at least 1"),
        ({"memory_mb": -1}, "memory_mb"),
        ({"device": "tpu!"}, "device must be 'auto', 'cpu' or 'cuda'"),
        ({"device": "mps"}, "device='mps' cannot be used: .* Use 'cpu'"),
        ({"device": "cuda:99"}, "not available here"),
    ],
)
def test_bad_parameters_are_refused_by_fit(options: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        model(**options).fit(np.eye(4))


def test_absent_weights_are_named(tmp_path: Path):
    with pytest.raises(WeightsError, match="no-such"):
        ICED(weights=tmp_path / "no-such.json").fit(np.eye(4))


# Any table


def random_column(rng: np.random.Generator, rows: int) -> pd.Series:
    kind = rng.integers(14)
    if kind == 0:
        values = pd.Series(rng.standard_cauchy(rows) * 10.0 ** rng.integers(-300, 300))
    elif kind == 1:
        values = pd.Series(rng.choice([0.0, -0.0, 1e308, -1e308, 5e-324, 1.0], rows))
    elif kind == 2:
        values = pd.Series(rng.integers(-3, 4, rows))
    elif kind == 3:
        values = pd.Series(rng.random(rows) < rng.choice([0.02, 0.5]))
    elif kind == 4:
        values = pd.Series(rng.choice(list("abcdefgh"[: rng.integers(1, 9)]), rows))
    elif kind == 5:
        values = pd.Series([f"w{int(w)}" for w in rng.pareto(0.5, rows).clip(0, 1e6)])
    elif kind == 6:
        days = pd.to_timedelta(rng.integers(0, 10**9, rows), "s")
        values = pd.Series(pd.Timestamp("1999-12-31") + days)
    elif kind == 7:
        values = pd.Series(np.full(rows, rng.normal()))
    elif kind == 8:
        values = pd.Series(rng.normal(1e9, 1e-3, rows))
    elif kind == 9:
        values = pd.Series(rng.integers(0, 5, rows), dtype="Int64").astype("category")
    elif kind == 10:
        values = pd.Series(
            [rng.choice([f"{x:.3g}", "?"], p=[0.9, 0.1]) for x in rng.normal(size=rows)]
        )
    elif kind == 11:
        days = pd.Timestamp("1999-12-31") + pd.to_timedelta(rng.integers(0, 10**4, rows), "D")
        values = pd.Series(days.astype(str)).where(rng.random(rows) < 0.9, "0000-00-00")
    else:
        values = pd.Series(rng.normal(size=rows) * rng.exponential())
    hidden = rng.random(rows) < rng.choice([0.0, 0.0, 0.2, 0.95])
    return values.astype(object).where(~hidden, None) if kind == 3 else values.mask(hidden)


def random_table(rows: int, columns: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a context and queries; some rows are copies, within and between them.

    In one of twenty tables a cell of the context cannot be used, as it is infinite.
    """
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({f"c{j}": random_column(rng, rows + 9) for j in range(columns)})
    if rng.random() < 0.05:
        cells = rng.normal(size=rows + 9).astype(object)
        cells[rng.integers(rows)] = rng.choice([np.inf, -np.inf])
        table.insert(int(rng.integers(columns + 1)), "spoilt", cells)
    context = table.iloc[rng.integers(0, rows, rows)] if rng.random() < 0.3 else table.iloc[:rows]
    return context, pd.concat([table.iloc[rows:], context.iloc[:2]])


def contains_spoilt_cell(context: pd.DataFrame) -> bool:
    return "spoilt" in context and bool(np.isinf(context["spoilt"].astype(float)).any())


# TABICED_FUZZ=500 takes minutes; the suite runs fewer.
@settings(max_examples=int(os.environ.get("TABICED_FUZZ", "15")), deadline=None)
@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_any_table(rows: int, columns: int, seed: int):
    context, query = random_table(rows, columns, seed)
    if rows == 1 or contains_spoilt_cell(context):
        with pytest.raises(ValueError, match=r"'spoilt'|minimum of 2"):
            model().fit(context)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".* is always .* in the reference")
        warnings.filterwarnings("ignore", message="Text is read as numbers or dates")
        fitted = model().fit(context)
        for table in (context, query):
            for values in judgements(fitted, table):
                assert values.shape == (len(table),)
                assert np.isfinite(values).all()
        if fitted.plan_.width:
            assert np.isfinite(fitted.log_density(query)).all()
