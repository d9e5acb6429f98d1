"""Explanations: what they compare, whom they blame, and the kind of table they come in."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabiced import ICED
from tabiced.explanation import (
    CALIBRATION_ROWS,
    explain_cells,
    explain_in_words,
    explain_p_values,
    explain_rows,
    sentence,
)
from tests_support import random_network

NETWORK = random_network()


def table(rows: int = 40, seed: int = 0) -> pl.DataFrame:
    g = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "size": g.normal(size=rows),
            "colour": g.choice(["red", "green", "blue"], rows).tolist(),
            "weight": [None if g.random() < 0.2 else g.normal() for _ in range(rows)],
            "always": np.ones(rows),
        }
    )


@pytest.fixture(scope="module")
def model() -> ICED:
    return ICED(weights=NETWORK).fit(table())


def gains(model: ICED, frame: pl.DataFrame) -> np.ndarray:
    """Hide one cell after the other and score again, the slow and obvious way."""
    before = model.score_samples(frame)
    hidden = [
        model.score_samples(frame.with_columns(pl.lit(None, frame[name].dtype).alias(name)))
        for name in frame.columns
    ]
    return np.stack(hidden, 1) - before[:, None]


def test_p_values_count_reference_rows_with_a_gain_as_large(model: ICED):
    new = table(12, seed=1)
    found = explain_cells(model, new)
    mine, usual = gains(model, new), reference_gains(model)
    for j, name in enumerate(new.columns[:3]):
        known = usual[~np.isnan(usual[:, j]), j]
        for i in range(new.height):
            if new[name][i] is None:
                assert (found.p_value[i, j], found.surprise[i, j]) == (1, 0)
                continue
            # Energies in tiles of another shape differ in their last digits.
            least = (1 + (known >= mine[i, j] + 1e-5).sum()) / (len(known) + 1)
            most = (1 + (known >= mine[i, j] - 1e-5).sum()) / (len(known) + 1)
            assert least <= found.p_value[i, j] <= most


def reference_gains(model: ICED) -> np.ndarray:
    """Hide cells of the reference rows, each row judged by a context that lacks its fold."""
    reference, blocks = model.reference_, model.plan_.blocks
    assert reference is not None
    out = np.full((len(reference.matrix), len(blocks)), np.nan)
    for i, row in enumerate(reference.matrix):
        context = reference.without(int(reference.fold[reference.group[i]]))
        for j, block in enumerate(blocks):
            if len(block) and not np.isnan(row[block]).all():
                hidden = row.copy()
                hidden[block] = np.nan
                both = context.energy(np.stack([hidden, row]))
                out[i, j] = both[0] - both[1]
    return out


def test_surprise_is_the_energy_gained_by_hiding_the_cell(model: ICED):
    new = table(12, seed=2)
    expected = gains(model, new)
    np.testing.assert_allclose(explain_cells(model, new).surprise, expected, atol=1e-4)
    np.testing.assert_allclose(explain_rows(model, new), expected, atol=1e-4)
    assert (explain_p_values(model, new)["always"] == 1).all()


def test_shipped_weights_blame_the_cell_that_contradicts_the_others():
    g = np.random.default_rng(0)
    x = g.normal(size=(130, 3))
    frame = pl.DataFrame({"a": x[:, 0], "b": x[:, 0] + 0.1 * x[:, 1], "c": x[:, 2]})
    rows = frame[120:].with_columns(c=pl.lit(7.0))
    model = ICED().fit(frame[:120])
    found = explain_cells(model, rows)
    assert (found.surprise.argmax(1) == 2).all()
    assert (found.p_value[:, 2] < 0.02).all()
    told = explain_in_words(model, rows)
    assert all(words[0].startswith("`c` = 7 is in the most unusual 0.8 %") for words in told)
    # a and b say the same. Apart, hiding either one helps, and hiding both does not help twice.
    apart = pl.DataFrame({"a": [-0.6, -0.4, 0.4, 0.6], "c": [0.0] * 4}).with_columns(b=-pl.col("a"))
    pairs = explain_rows(model, apart, pairs=True)
    assert pairs.columns == ["a & c", "a & b", "c & b"]
    assert (pairs["a & b"] > 0).all()
    assert (pairs["a & b"] > pairs["a & c"]).all()


def test_pairs_compare_hiding_both_with_hiding_each(model: ICED):
    new = table(6, seed=3)
    told = explain_rows(model, new, pairs=True)
    single = gains(model, new)
    blank = new.with_columns(pl.lit(None, pl.Float64).alias("size"))
    blank = blank.with_columns(pl.lit(None, pl.String).alias("colour"))
    both = model.score_samples(blank) - model.score_samples(new)
    expected = single[:, 0] + single[:, 1] - both
    np.testing.assert_allclose(told["size & colour"], expected, atol=1e-4)
    np.testing.assert_allclose(told["size & always"], 0, atol=1e-6)
    assert told.width == 6


def test_pairs_need_two_columns():
    model = ICED(weights=NETWORK).fit(table().select("size"))
    with pytest.raises(ValueError, match="two columns"):
        explain_rows(model, table().select("size"), pairs=True)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("kind", ["polars", "pandas", "pyarrow", "numpy"])
def test_the_kind_of_table_is_kept(model: ICED, kind: str, pairs: bool):
    new = table(5, seed=4).select("weight", "size", "always", "colour")
    expected = explain_rows(model, new, pairs=pairs).to_numpy()
    if kind == "pandas":
        frame = new.to_pandas()
        frame.index = pd.Index(list("vwxyz"))
        told = explain_rows(model, frame, pairs=pairs)
        assert list(told.index) == list("vwxyz")
        values = told.to_numpy()
    elif kind == "pyarrow":
        told = explain_rows(model, new.to_arrow(), pairs=pairs)
        assert isinstance(told, pa.Table)
        values = told.to_pandas().to_numpy()
    elif kind == "numpy":
        order = ["size", "colour", "weight", "always"]
        with pytest.warns(UserWarning, match="by position"):
            values = explain_rows(
                model, new.select(order).to_pandas().to_numpy(object), pairs=pairs
            )
        expected = explain_rows(model, new.select(order), pairs=pairs).to_numpy()
    else:
        told = explain_rows(model, new, pairs=pairs)
        assert isinstance(told, pl.DataFrame)
        values = told.to_numpy()
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_reference_rows_are_explained_once(model: ICED, monkeypatch: pytest.MonkeyPatch):
    explain_cells(model, table(2, seed=5))
    assert model.reference_ is not None
    asked: list[int] = []
    plain = model.reference_.explain

    def counted(rows: np.ndarray, blocks: list[np.ndarray], *others: object) -> np.ndarray:
        asked.append(len(rows))
        return plain(rows, blocks)

    monkeypatch.setattr(model.reference_, "explain", counted)
    explain_cells(model, table(3, seed=6))
    assert asked == [3]


def test_a_large_reference_is_sampled():
    model = ICED(weights=NETWORK).fit(table(2 * CALIBRATION_ROWS).select("size", "colour"))
    p = explain_cells(model, table(4, seed=7).select("size", "colour")).p_value
    shares = p * (CALIBRATION_ROWS + 1)
    np.testing.assert_allclose(shares, shares.round())


def test_a_table_without_information_explains_nothing():
    model = ICED(weights=NETWORK).fit(pl.DataFrame({"a": [1, 1, 1], "b": ["x", "x", "x"]}))
    found = explain_cells(model, pl.DataFrame({"a": [1], "b": ["x"]}))
    assert (found.surprise == 0).all()
    assert (found.p_value == 1).all()
    assert explain_in_words(model, pl.DataFrame({"a": [1], "b": ["x"]})) == [[]]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_row_gets_finite_surprises_and_p_values(model: ICED, data: st.DataObject):
    number = st.one_of(st.none(), st.floats(-1e300, 1e300))
    row = {
        "size": data.draw(number),
        "colour": data.draw(st.one_of(st.none(), st.text(max_size=5))),
        "weight": data.draw(number),
        "always": 1.0,
    }
    found = explain_cells(model, pl.DataFrame([row], schema=table().schema))
    assert np.isfinite(found.surprise).all()
    assert ((found.p_value > 0) & (found.p_value <= 1)).all()


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (3.0, "3"),
        (12345.678, "12345.7"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (True, "True"),
    ],
)
def test_sentences_show_cells_as_people_write_them(cell: object, shown: str):
    assert sentence("x", cell, 0.021).startswith(f"`x` = {shown} is in the most unusual 2.1 %")


def test_another_value_in_a_constant_column_is_the_reason():
    numbers = np.random.default_rng(0).normal(size=(80, 3))
    reference = pl.DataFrame({"a": numbers[:, 0], "unit": "mm", "b": numbers[:, 1]})
    rows = pl.DataFrame(
        {"a": [0.1, 0.1, 5.0], "unit": ["mm", "inch", "inch"], "b": [0.2, 0.2, 0.2]}
    )
    model = ICED().fit(reference)
    with pytest.warns(UserWarning, match="always 'mm'"):
        found = explain_cells(model, rows)
        surprise = model.explain(rows)["unit"].to_numpy()
        contradiction = model.explain(rows, pairs=True)
        score = model.score_samples(rows)
    np.testing.assert_allclose(surprise, found.surprise[:, 1])
    assert surprise[0] == 0 and found.p_value[0, 1] == 1
    # Without the strange cell the second row is the first.
    np.testing.assert_allclose(surprise[1], score[0] - score[1], atol=1e-5)
    assert found.reasons(1) == [1] and found.p_value[1, 1] == pytest.approx(1 / 81)
    assert set(found.reasons(2)) == {0, 1}
    assert abs(contradiction["unit & b"][0]) < 1e-9


def test_hiding_a_cell_leaves_the_strange_ones_in_the_row():
    numbers = np.random.default_rng(0).normal(size=(80, 2))
    model = ICED().fit(np.c_[numbers, np.full(80, 3.0)])
    row = np.array([[4.0, 0.0, 7.0]])
    with pytest.warns(UserWarning, match="is always 3.0"):
        gained = model.explain(row)[0]
        hidden = [model.score_samples(np.where(np.arange(3) == j, np.nan, row)) for j in range(3)]
        np.testing.assert_allclose(gained, np.ravel(hidden) - model.score_samples(row), atol=1e-5)
