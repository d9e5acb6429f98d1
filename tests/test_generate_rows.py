"""From encoded rows back to tables, and new rows of every kind of table."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabiced import ICED
from tabiced.columns import learn_plan
from tabiced.generate import Langevin, Metropolis, sample_rows
from tabiced.generate.layout import layout_of
from tabiced.generate.rows import build, decode
from tabiced.table import read_table, template_of
from tests_support import random_network

NETWORK = random_network()
FAST = Metropolis(steps=4)


def mixed(rows: int = 60) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    start = pd.Timestamp("2020-01-01")
    return pd.DataFrame(
        {
            "number": draw.normal(5, 2, rows),
            "count": draw.poisson(40, rows),
            "text": draw.choice(["x", "y", "z"], rows),
            "flag": draw.random(rows) < 0.3,
            "grade": pd.Categorical(draw.choice([1, 2, 3], rows), categories=[3, 2, 1]),
            "day": start + pd.to_timedelta(draw.integers(0, 400, rows), "D"),
            "moment": (start + pd.to_timedelta(draw.uniform(0, 1e6, rows), "s")).tz_localize("UTC"),
            "always": 7,
            "gaps": np.where(draw.random(rows) < 0.3, np.nan, draw.normal(size=rows)),
            "name": [f"row {i}" for i in range(rows)],
            "spelled": [f"{number:.3f}" for number in draw.normal(size=rows)],
            "spelled day": [f"2021-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(rows)],
        }
    )


KINDS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": pa.Table.from_pandas,
}


def draw(table: Any, count: int = 25, **options: Any) -> Any:
    model = ICED(weights=NETWORK).fit(table)
    return sample_rows(model, count, like=table, sampler=FAST, random_state=0, **options)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_undoes_encoding(kind: str) -> None:
    given_table = KINDS[kind](mixed())
    table = read_table(given_table)
    plan = learn_plan(table)
    matrix = plan.encode(table)
    columns = decode(plan, matrix, matrix, np.random.default_rng(0))
    made = build(columns, template_of(given_table), plan)
    back, old = (
        table.to_pandas() if hasattr(table, "to_pandas") else table for table in (made, given_table)
    )
    assert list(back.columns) == list(old.columns)
    for name in old.columns:
        if name == "name":  # text that never repeats is not remembered
            assert back[name].isna().all()
        elif name in ("number", "gaps", "spelled"):
            assert pd.api.types.is_numeric_dtype(back[name]) == (name != "spelled")
            numbers, expected = back[name].astype(float), old[name].astype(float)
            np.testing.assert_allclose(numbers, expected, rtol=1e-5, atol=1e-6)
        elif name == "moment":
            gap = (back[name] - old[name]).dt.total_seconds().abs().max()
            assert gap < 2  # seconds in two weeks: what float32 keeps
        else:
            assert back[name].tolist() == old[name].tolist(), name


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_have_the_kind_names_and_types_of_the_table(kind: str) -> None:
    table = KINDS[kind](mixed())
    new = draw(table)
    assert type(new) is type(table)
    if kind == "pandas":
        pd.testing.assert_series_equal(new.dtypes, table.dtypes)
    else:
        assert new.schema == table.schema
    frame = new if kind == "pandas" else new.to_pandas()
    old = mixed()
    assert len(frame) == 25
    assert set(frame["text"]) <= set(old["text"]) and set(frame["grade"]) <= {1, 2, 3}
    assert (frame["always"] == 7).all() and frame["name"].isna().all()
    assert (pd.to_datetime(frame["day"]) == pd.to_datetime(frame["day"]).dt.normalize()).all()
    assert not np.isin(frame["number"], old["number"]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, bool])
def test_arrays_keep_their_type(dtype: type) -> None:
    rows = np.random.default_rng(0).integers(0, 2 if dtype is bool else 90, (50, 3)).astype(dtype)
    new = draw(rows)
    assert new.dtype == rows.dtype and new.shape == (25, 3)
    assert (new == np.round(new.astype(float))).all()


def text_of(days: list[datetime.date]) -> pd.Series:
    return pd.Series([str(day) for day in days])


def nanoseconds_of(days: list[datetime.date]) -> pd.Series:
    return pd.Series([min(pd.Timestamp(day), pd.Timestamp.max) for day in days]).astype(
        "datetime64[ns]"
    )


@pytest.mark.parametrize("made", [text_of, pd.Series, nanoseconds_of])
@pytest.mark.parametrize("kind", KINDS)
def test_new_dates_stay_among_those_that_there_are(kind: str, made: Any) -> None:
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(31 * i % 400) for i in range(80)]
    days[::3] = [datetime.date.max] * len(days[::3])  # "open", as databases write it
    sizes = np.random.default_rng(1).normal(size=80)
    table = KINDS[kind](pd.DataFrame({"until": made(days), "size": sizes}))
    new = draw(table, 200)
    found = [str(day)[:10] for day in pl.DataFrame(new)["until"].to_list()]
    last = pd.Timestamp.max if made is nanoseconds_of else datetime.date.max
    assert len(found) == 200 and max(found) == str(last)[:10]


def test_times_and_objects_in_arrays() -> None:
    moments = np.datetime64("2021-03-01", "s") + np.arange(40).reshape(20, 2) * 3600
    assert draw(moments, 5).dtype == moments.dtype
    start = datetime.datetime(2020, 1, 1)
    rows = [[i + 0.5, "ab"[i % 2], start + datetime.timedelta(hours=i)] for i in range(30)]
    new = draw(rows, 5)
    assert new.dtype == object and set(new[:, 1]) <= {"a", "b"}
    assert all(isinstance(cell, datetime.datetime) for cell in new[:, 2])


def test_nullable_and_zoned_types_of_pandas() -> None:
    frame = mixed()
    frame["count"] = frame["count"].astype("Int64").mask(np.arange(60) % 4 == 0)
    frame["moment"] = frame["moment"].dt.tz_convert("Asia/Tokyo")
    new = draw(frame)
    pd.testing.assert_series_equal(new.dtypes, frame.dtypes)
    assert 0 < new["count"].isna().sum() < 25


def test_missing_cells_are_as_frequent_as_in_the_table() -> None:
    frame = mixed()[["number", "gaps", "text"]]
    frame.loc[:19, "text"] = None
    new = draw(frame, 60)  # one chain a row
    assert new["gaps"].isna().sum() == frame["gaps"].isna().sum()
    assert new["text"].isna().sum() == 20


def test_tables_without_numbers() -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({name: generator.choice(list("pqr"), 80) for name in "abc"})
    new = draw(frame)
    assert new.isin(list("pqr")).all(axis=None)


def test_empty_columns_and_empty_rows() -> None:
    table = np.random.default_rng(0).normal(size=(30, 3))
    table[:, 1] = np.nan
    table[4] = np.nan
    rows = draw(table, 30)  # one chain a row
    assert np.isnan(rows[:, 1]).all() and np.isnan(rows[:, [0, 2]]).all(1).sum() == 1
    rows, diagnostics = sample_rows(ICED(weights=NETWORK).fit(np.full((5, 2), np.nan)), 3)
    assert np.isnan(rows).all() and diagnostics is None


def test_tables_of_two_rows() -> None:
    table = np.array([[1.5, 2.0], [3.0, -1.0]])
    assert np.isfinite(draw(table, 6)).all()
    assert (draw(table[[0, 0]], 3) == table[0]).all()


def test_tables_too_small_or_infinite_are_refused() -> None:
    table = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ValueError, match="1 sample"):
        draw(table[:1])
    table[4, 1] = np.inf
    with pytest.raises(ValueError, match="Column 1 holds an infinite value"):
        draw(table)


@pytest.mark.parametrize("convert", [pl.from_pandas, np.asarray, lambda t: np.asarray(t).tolist()])
def test_the_estimator_samples_the_kind_it_was_fitted_to(convert: Any) -> None:
    table = convert(mixed()[["number", "gaps"]])
    model = ICED(weights=NETWORK).fit(table)
    rows = model.sample(5, random_state=1)
    assert type(rows) is (np.ndarray if isinstance(table, list) else type(table))
    assert rows.shape == (5, 2)
    if isinstance(rows, pl.DataFrame):
        assert rows.schema == table.schema
    again = sample_rows(model, 5, like=table, random_state=1)[0]
    np.testing.assert_array_equal(np.asarray(again), np.asarray(rows))


def test_constant_tables_give_their_row() -> None:
    frame = pd.DataFrame({"a": [1, 1], "b": ["x", "x"]})
    rows, diagnostics = sample_rows(ICED(weights=NETWORK).fit(frame), 3, like=frame)
    assert rows.to_dict("list") == {"a": [1] * 3, "b": ["x"] * 3} and diagnostics is None


def test_rare_levels_come_back() -> None:
    levels = [f"often {i % 9}" for i in range(90)] + [f"rare {i}" for i in range(12)]
    frame = pd.DataFrame({"level": levels, "x": np.arange(102.0) ** 1.1})
    new = draw(frame, 102)
    assert set(new["level"]) <= set(levels)
    assert any(level.startswith("rare") for level in new["level"])


def test_few_values_stay_these_values() -> None:
    values = np.array([0.25, 0.5, 1.75])
    rows = np.random.default_rng(0)
    table = np.stack([values[rows.integers(0, 3, 60)], rows.normal(size=60)], 1)
    new = draw(table)
    np.testing.assert_allclose(new[:, 0], values[np.abs(new[:, :1] - values).argmin(1)], rtol=1e-6)


def test_seeds_steps_and_diagnostics() -> None:
    model = ICED(weights=NETWORK).fit(mixed())
    calls: list[int] = []
    options = {"like": mixed(), "sampler": FAST, "on_step": lambda: calls.append(1)}
    first, told = sample_rows(model, 8, random_state=3, **options)
    again, _ = sample_rows(model, 8, random_state=3, **options)
    other, _ = sample_rows(model, 8, random_state=4, **options)
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other) and len(calls) == 12
    assert told is not None and told.log_density.shape == (5,) and told.nearest.shape == (8,)
    assert 0 <= told.acceptance_rate <= 1 and "accepted" in str(told)


def test_langevin_moves_numbers_alone() -> None:
    table = mixed()[["number", "text"]]
    model = ICED(weights=NETWORK).fit(table)
    new, _ = sample_rows(model, 60, like=table, sampler=Langevin(steps=3), random_state=0)
    assert sorted(new["text"]) == sorted(table["text"])
    assert not np.isin(new["number"], table["number"]).any()


def test_what_cannot_be_drawn_is_said() -> None:
    model = ICED(weights=NETWORK).fit(mixed())
    with pytest.raises(ValueError, match="n_samples must be at least 1"):
        sample_rows(model, 0)
    with pytest.raises(ValueError, match="pass like="):
        sample_rows(model, 2)
    with pytest.raises(ValueError, match="trust"):
        Metropolis(trust=0)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
            st.integers(-10_000, 10_000),
            st.sampled_from(["a", "b", "c", None]),
        ),
        min_size=3,
        max_size=30,
    )
)
def test_any_rows_survive_the_layout(cells: list[tuple[float, int, str | None]]) -> None:
    frame = pd.DataFrame(cells, columns=["x", "k", "c"])
    table = read_table(frame)
    plan = learn_plan(table)
    if not plan.width:
        return
    matrix = plan.encode(table)
    layout = layout_of(plan, matrix)
    np.testing.assert_allclose(layout.rows_of(layout.context), matrix, rtol=1e-4, atol=1e-4)
    assert layout.inside(layout.context).all()
