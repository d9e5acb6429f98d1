"""Tables of any kind become the same typed columns, and those the same matrix."""

import datetime as dt
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tabiced.columns import LARGEST, Filled, Ignored, Levels, learn_plan, robust_scale
from tabiced.rows import SAME, Copies, hash_rows, is_measured, order_columns, order_rows
from tabiced.table import read_table

CELLS = {
    "count": [1, 2, 3, None, 5, 6],
    "size": [1.5, math.nan, 2.0, 3.0, 4.0, 5.0],
    "flag": [True, False, None, True, True, False],
    "word": ["a", "b", None, "a", "b", "c"],
    "moment": [None if i == 2 else dt.datetime(2020, 1, 1, i, 30) for i in range(6)],
    "day": [dt.date(2020, 1, 1 + i) if i else None for i in range(6)],
    "delay": [dt.timedelta(seconds=i) for i in range(6)],
    "nothing": [None] * 6,
}


def as_objects() -> np.ndarray:
    table = np.empty((6, len(CELLS)), object)
    for j, cells in enumerate(CELLS.values()):
        table[:, j] = cells
    return table


def frames() -> dict[str, object]:
    plain = pd.DataFrame(CELLS)
    nullable = plain.assign(
        count=pd.array(CELLS["count"], dtype="Int64"),
        flag=pd.array(CELLS["flag"], dtype="boolean"),
        word=pd.Categorical(CELLS["word"]),
    )
    polar = pl.DataFrame(CELLS, strict=False)
    return {
        "pandas": plain,
        "pandas nullable": nullable,
        "pandas arrow": nullable.convert_dtypes(dtype_backend="pyarrow"),
        "polars": polar,
        "polars categorical": polar.with_columns(pl.col("word").cast(pl.Categorical)),
        "pyarrow": pa.Table.from_pylist(
            [{name: cells[i] for name, cells in CELLS.items()} for i in range(6)]
        ),
        "objects": as_objects(),
        "lists": as_objects().tolist(),
    }


def encode(X: object, context: object | None = None) -> np.ndarray:
    plan = learn_plan(read_table(X if context is None else context))
    return plan.encode(plan.align(read_table(X)))


@pytest.mark.parametrize("kind", frames())
def test_every_kind_of_table_gives_the_same_matrix(kind: str):
    matrix = encode(frames()[kind])
    np.testing.assert_array_equal(matrix, encode(as_objects()))
    assert matrix.dtype == np.float32
    # a..c are three columns and `nothing` none: 6 single columns + 3
    assert matrix.shape == (6, 9)
    np.testing.assert_array_equal(np.isnan(matrix).sum(0), [1, 1, 1, 1, 1, 1, 1, 1, 0])


def test_times_are_seconds():
    table = read_table(frames()["polars"])
    moment, day, delay = table.columns[4:7]
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()
    assert moment.values[1] == start + 5400
    assert day.values[1] == start + 86400
    assert delay.values[5] == 5
    zoned = pd.DataFrame({"t": pd.to_datetime(["2020-01-01 01:30+01:00", None])})
    np.testing.assert_array_equal(read_table(zoned).columns[0].values, [start + 1800, np.nan])
    aware = [[dt.datetime(2020, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))], [None]]
    np.testing.assert_array_equal(read_table(aware).columns[0].values, [start, np.nan])
    array = np.array([["2020-01-01T00:30"], ["NaT"]], dtype="datetime64[ns]")
    np.testing.assert_array_equal(read_table(array).columns[0].values, [start + 1800, np.nan])


def test_close_times_stay_apart_in_float32():
    base = np.datetime64("2024-05-01T12:00:00.000")
    array = (base + np.arange(100).astype("timedelta64[ms]"))[:, None]
    assert len(np.unique(encode(array))) == 100


def test_numbers_are_centred_and_scaled_in_float64():
    x = 1e12 + np.random.default_rng(0).normal(size=(500, 1))
    expected = (x - np.median(x)) / (np.subtract(*np.quantile(x, [0.75, 0.25])) / 1.349)
    np.testing.assert_allclose(encode(x), expected, rtol=1e-5, atol=1e-6)


def test_log_volume_is_the_jacobian_of_measured_columns_alone():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=50),
            "b": rng.exponential(size=50),
            "two": rng.integers(0, 2, 50) * 7.0,
            "word": rng.choice(["x", "y", "z"], 50),
        }
    )
    plan = learn_plan(read_table(frame))
    bigger = learn_plan(read_table(frame.assign(a=frame.a * 10 + 3, b=frame.b / 4, two=frame.two)))
    assert bigger.log_volume - plan.log_volume == pytest.approx(math.log(10) - math.log(4))
    two = frame.assign(two=frame.two * 100)
    assert learn_plan(read_table(two)).log_volume == plan.log_volume
    assert plan.counted.tolist() == [False, False, True, True, True, True]
    # the Jacobian, numerically
    step = frame.iloc[:1].assign(a=frame.a[0] + 1.0)
    slope = encode(step, frame)[0, 0] - encode(frame.iloc[:1], frame)[0, 0]
    assert math.log(slope) == pytest.approx(-plan.columns[0].log_scale, abs=1e-5)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.arange(101.0), 50 / 1.349),
        (np.r_[np.zeros(90), np.arange(1.0, 11)], None),  # interquartile range 0
        (np.r_[np.zeros(999), 5.0], 5.0),  # all but one tied
    ],
)
def test_robust_scale_is_positive_where_most_values_are_tied(x: np.ndarray, expected: float | None):
    scale = robust_scale(np.sort(x))
    assert scale > 0
    if expected is not None:
        assert scale == pytest.approx(expected)


def test_extreme_values_stay_finite():
    biggest = np.finfo(np.float64).max
    x = np.array([[-biggest], [0.0], [1.0], [biggest]])
    assert np.isfinite(encode(x)).all()
    assert encode(x)[0] < encode(x)[1] < encode(x)[3]
    far = encode(np.array([[1e300]]), np.arange(10.0)[:, None])
    assert far == LARGEST
    tiny = np.array([[5e-324], [1e-323], [2e-323]])
    assert len(np.unique(encode(tiny))) == 3
    assert learn_plan(read_table(tiny)).log_volume == pytest.approx(math.log(1e-323), abs=1)


def learn(values: list[object]) -> object:
    return learn_plan(read_table(pd.DataFrame({"a": values}))).columns[0]


def test_columns_without_information():
    assert learn([3, 3, 3]) == Ignored(3.0, "number")
    assert learn(["x", "x"]) == Ignored("x", "text")
    assert isinstance(learn([None, None]), Ignored)
    assert isinstance(learn([math.nan, math.nan]), Ignored)
    assert isinstance(learn(["id1", "id2", "id3"]), Ignored)
    assert isinstance(learn([f"id{i}" for i in range(30)]), Ignored)
    # whether a value is there can be all there is to know
    assert learn(["yes", None, "yes"]) == Filled("yes", "text")
    frame = pd.DataFrame({"a": ["yes", None, "yes"]})
    query = pd.DataFrame({"a": ["yes", None, "no"]})
    np.testing.assert_array_equal(encode(query, frame), [[1], [0], [2]])


def test_a_value_that_a_constant_column_never_had_is_ignored_with_a_warning():
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0], "always": [3, 3, 3]})
    query = frame.assign(always=[3, 4, 5])
    with pytest.warns(UserWarning, match=r"'always' is always 3.0.* 2 row\(s\) .* row 1: 4"):
        matrix = encode(query, frame)
    np.testing.assert_array_equal(matrix, encode(frame))


def test_categories():
    frame = pd.DataFrame({"two": list("aabaa"), "three": ["x", "y", "z", "x", None]})
    query = pd.DataFrame({"two": ["a", "b", "new", None], "three": ["x", "z", "new", None]})
    nan = math.nan
    expected = [[0, 1, 0, 0], [1, 0, 0, 1], [2, 0, 0, 0], [nan, nan, nan, nan]]
    np.testing.assert_array_equal(encode(query, frame), expected)


def test_many_categories_share_a_column():
    words = [w for i in range(20) for w in [f"w{i}"] * (40 - i)]
    plan = learn(words)
    assert plan.levels == tuple(f"w{i}" for i in range(9))
    assert plan.width == 10
    query = pd.DataFrame({"a": ["w0", "w15", "new"]})
    block = encode(query, pd.DataFrame({"a": words}))
    assert block[0].tolist() == [1] + [0] * 9
    assert block[1].tolist() == [0] * 9 + [1]
    assert block[2].tolist() == [0] * 10  # never seen: unlike any row of the context
    # where new words are to be expected, one more is nothing special
    words += [f"once{i}" for i in range(200)]
    assert encode(query, pd.DataFrame({"a": words}))[2].tolist() == [0] * 9 + [1]


def test_numbers_as_category_names():
    frame = pd.DataFrame({"a": pd.Categorical([1, 2, 3, 1, 2, 3])})
    expected = encode(frame)
    for query in ([1, 2, 3, 1, 2, 3], [1.0, 2, 3, 1, 2, 3], list("123123")):
        np.testing.assert_array_equal(encode(pd.DataFrame({"a": query}), frame), expected)


@given(st.permutations(range(12)))
def test_the_plan_does_not_depend_on_the_order_of_rows(order: list[int]):
    frame = pd.DataFrame({"w": list("aabbccddeeff"), "x": [0.1 * i * i for i in range(12)]})
    shuffled = frame.iloc[list(order)]
    assert learn_plan(read_table(shuffled)) == learn_plan(read_table(frame))


def test_columns_are_matched_by_name():
    frame = pd.DataFrame({"a": [1.0, 2, 3], "b": [5.0, 4, 9], "c": list("xyx")})
    shuffled = pl.from_pandas(frame[["c", "a", "b"]])
    np.testing.assert_array_equal(encode(shuffled, frame), encode(frame))
    with pytest.raises(ValueError, match=r"missing: 'b'; unexpected: 'd', 'e'"):
        encode(frame.rename(columns={"b": "d"}).assign(e=1), frame)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* expecting 3"):
        encode(np.ones((2, 2)), frame)
    numbered = pd.DataFrame(frame[["a", "b"]].to_numpy())  # columns 0, 1: not names
    np.testing.assert_array_equal(encode(numbered, frame[["a", "b"]]), encode(frame[["a", "b"]]))


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (np.ones(3), ValueError, "Reshape your data"),
        (np.ones((2, 2, 2)), ValueError, "3D array"),
        (np.empty((0, 2)), ValueError, r"0 sample\(s\)"),
        (np.empty((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\)"),
        (pd.DataFrame(), ValueError, r"0 feature\(s\)"),
        (np.ones((2, 2)) * 1j, ValueError, "Complex data not supported"),
        (np.array([[1.0, 2], [3, -np.inf]]), ValueError, r"Column 1 .*infinite.* row 1"),
        (pl.DataFrame({"a": [1.0, math.inf]}), ValueError, r"Column 'a' .*infinite.* row 1"),
        ([[10**400], [1]], ValueError, r"Column 0 .*infinite.* row 0"),
        ([[1, 2], [3]], ValueError, "rows of equal length"),
        ([[1.0], [dt.date(2020, 1, 1)], [2]], ValueError, "numbers with datetimes: row 1"),
        ([["a"], ["b"], [dt.date(2020, 1, 1)]], ValueError, "text with datetimes: row 2"),
        (np.array([[1, {}]], object), TypeError, "Column 1 holds a dict in row 0"),
        (pl.DataFrame({"a": [[1], [2]]}), TypeError, r"Column 'a' has the type List"),
        (pl.LazyFrame({"a": [1]}).select("a"), TypeError, "collect"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "unique; repeated: 'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), ValueError, "unique; repeated: 'a'"),
        (pd.Series([1.0, 2.0]), ValueError, "Reshape your data"),
        (np.array([(1, 2.0)], dtype="i4,f8"), ValueError, "1D array"),
        ("text", ValueError, "0D array"),
    ],
)
@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_bad_tables_are_refused_with_the_place(table: object, error: type, message: str):
    with pytest.raises(error, match=message):
        read_table(table)


SPELLED = [f"{i / 7:.2f}" for i in range(40)]


def with_word(word: object) -> pd.DataFrame:
    return pd.DataFrame({"a": [*SPELLED[:17], word, *SPELLED[18:]]})


def test_numbers_in_text_are_numbers_and_words_among_them_are_missing():
    plain = pd.DataFrame({"a": [float(cell) for cell in SPELLED]})
    spelled = pd.DataFrame({"a": SPELLED})
    np.testing.assert_array_equal(encode(spelled, spelled), encode(plain, plain))
    plain.loc[17, "a"] = np.nan
    with pytest.warns(UserWarning, match=r"missing: Column 'a' \(1, such as 'unknown'\)\."):
        found = encode(with_word("unknown"), with_word("unknown"))
    np.testing.assert_array_equal(found, encode(plain, plain))
    np.testing.assert_array_equal(encode(plain, spelled), encode(plain, plain.fillna(17 / 7)))
    asked = pd.DataFrame({"a": ["3.5", "never seen", "inf", None]})
    expected = encode(pd.DataFrame({"a": [3.5, np.nan, np.nan, np.nan]}), spelled)
    np.testing.assert_array_equal(encode(asked, spelled), expected)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S+00:00"])
def test_dates_in_text_are_dates_and_words_among_them_are_missing(form: str):
    moments = [dt.datetime(2020, 1, 31) + dt.timedelta(days=3 * i) for i in range(40)]
    plain = pd.DataFrame({"a": moments})
    spelled = pd.DataFrame({"a": [moment.strftime(form) for moment in moments]})
    np.testing.assert_array_equal(encode(spelled, spelled), encode(plain, plain))
    np.testing.assert_array_equal(encode(spelled, plain), encode(plain, plain))
    np.testing.assert_array_equal(encode(plain, spelled), encode(plain, plain))
    spelled.loc[17, "a"], plain.loc[17, "a"] = "0000-00-00", pd.NaT
    with pytest.warns(UserWarning, match=r"missing: Column 'a' \(1, such as '0000-00-00'\)\."):
        found = encode(spelled, spelled)
    np.testing.assert_array_equal(found, encode(plain, plain))
    with pytest.raises(ValueError, match=r"'a' holds datetimes .* but text here .row 1: 'soon'"):
        encode(pd.DataFrame({"a": ["2020-05-05", "soon"]}), plain)


@pytest.mark.parametrize(
    "cells",
    [
        [2**60 + 1, None, -(2**62)],  # identifiers are often as large
        [dt.date.max, None, dt.date.min],  # 9999-12-31 is how databases write "open"
        [dt.datetime.max, None, dt.datetime.min],
        [dt.timedelta(days=200_000), None, dt.timedelta(0)],
    ],
)
def test_whole_numbers_beyond_the_digits_of_doubles_are_rounded(cells: list[object]):
    tables = (
        pa.table({"a": cells}),
        pl.DataFrame({"a": cells}),
        pd.DataFrame({"a": cells}, dtype=object),
    )
    arrow, polars, objects = (read_table(table).columns[0].values for table in tables)
    np.testing.assert_allclose(arrow, polars, rtol=1e-15)
    np.testing.assert_allclose(arrow, objects, rtol=1e-15)


def test_words_in_many_columns_are_one_warning():
    cells = with_word("?")["a"]
    frame = pd.DataFrame({name: cells for name in "abcde"} | {"f": SPELLED})
    with pytest.warns(UserWarning) as caught:
        learn_plan(read_table(frame))
    assert len(caught) == 1
    assert "'c' (1, such as '?') and 2 more." in str(caught[0].message)


def test_a_number_that_a_word_has_joined_reads_as_before():
    mixed = with_word("unknown").map(lambda cell: cell if cell == "unknown" else float(cell))
    with pytest.warns(UserWarning, match="'unknown'"):
        found = encode(mixed, mixed)
    plain = mixed.replace("unknown", np.nan).astype(float)
    np.testing.assert_array_equal(found, encode(plain, plain))


@pytest.mark.parametrize(
    "cells",
    [
        pd.Categorical([*SPELLED, *SPELLED]),  # said to be labels
        [*SPELLED, *SPELLED, "007", "007"],  # codes
        [*SPELLED[:12], *["a", "b", "c"] * 5],  # mostly words
        ["1", "2", "3", "?"] * 5,  # few levels
        ["2020-01-31", "2020-02-29"] * 9,
        [f"{1 + i % 28:02}/{1 + i % 12:02}/2020" for i in range(168)],  # day or month first
        [1, 2, 3, "?"] * 5,
    ],
)
def test_labels_that_look_like_numbers_stay_labels(cells: list[object]):
    assert isinstance(learn_plan(read_table(pd.DataFrame({"a": cells}))).columns[0], Levels)


def test_a_column_keeps_its_kind():
    numbers = pd.DataFrame({"a": [1.0, 2, 3]})
    words = pd.DataFrame({"a": ["x", "y", "y", "x"]})
    with pytest.raises(ValueError, match=r"'a' holds numbers .* but text here \(row 1: 'x'\)"):
        encode(pd.DataFrame({"a": [None, "x"]}), numbers)
    assert encode(pd.DataFrame({"a": ["2.0"]}), numbers) == encode(numbers[1:2], numbers)
    with pytest.raises(ValueError, match=r"'a' holds text .* but datetimes here"):
        encode(pd.DataFrame({"a": [dt.datetime(2020, 1, 1)]}), words)
    for context in (numbers, words):  # a column of nothing fits every kind
        assert np.isnan(encode(pd.DataFrame({"a": [None, None]}), context)).all()


def test_masked_arrays_are_missing_where_masked():
    masked = np.ma.masked_array([[1.0, 2], [3, 99]], mask=[[0, 0], [0, 1]])
    np.testing.assert_array_equal(read_table(masked).columns[1].values, [2, np.nan])


def test_results_keep_the_kind_names_and_index_of_the_table():
    values = np.arange(4.0).reshape(2, 2)
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]}, index=["r", "s"])
    back = read_table(frame).like(values)
    pd.testing.assert_frame_equal(back, pd.DataFrame(values, ["r", "s"], ["a", "b"]))
    polar = read_table(pl.from_pandas(frame)).like(values)
    assert polar.equals(pl.DataFrame({"a": [0.0, 2], "b": [1.0, 3]}))
    arrow = read_table(pa.table({"a": [1, 2], "b": [3, 4]})).like(values)
    assert isinstance(arrow, pa.Table) and arrow.column_names == ["a", "b"]
    assert read_table(frame.to_numpy()).like(values) is values
    numbered = pd.DataFrame(frame.to_numpy())
    assert list(read_table(numbered).like(values).columns) == [0, 1]


# Rows


@given(hnp.arrays(float, (9, 3), elements=st.sampled_from([0.0, -0.0, 1.0, 2.5, math.nan])))
def test_equal_rows_and_only_those_have_equal_hashes(rows: np.ndarray):
    keys = hash_rows(list(rows.T))
    for i in range(9):
        for j in range(9):
            assert (keys[i] == keys[j]) == np.array_equal(rows[i], rows[j], equal_nan=True)


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_the_order_of_rows_is_decided_by_content(data: int, seed: int):
    rng = np.random.default_rng(data)
    rows = np.c_[rng.normal(size=(40, 2)), rng.integers(0, 3, 40)]
    rows[3, 0] = np.nan
    expected = rows[order_rows(list(rows.T), seed)]
    other = rng.permutation(40)
    np.testing.assert_array_equal(rows[other][order_rows(list(rows[other].T), seed)], expected)
    # columns in another order, other units, another direction
    scaled = (rows * [3.7, -0.01, 11.0] + [5.0, 1e3, -2.0])[:, [2, 0, 1]]
    np.testing.assert_array_equal(rows[order_rows(list(scaled.T), seed)], expected)


def test_the_order_of_columns_is_decided_by_content():
    rng = np.random.default_rng(0)
    rows = np.c_[rng.normal(size=(30, 6)), rng.integers(0, 2, (30, 4))]
    rows[:, 2], rows[4, 5] = np.exp(rows[:, 1]), np.nan  # the same ranks; a missing cell
    expected = rows[:, order_columns(rows)]
    places = set()
    for _ in range(50):
        other = rng.permutation(10)
        shown = rows[:, other]
        np.testing.assert_array_equal(shown[:, order_columns(shown)], expected)
        places.add(int(order_columns(rng.normal(size=(30, 10)))[0]))
    assert len(places) == 10  # every column comes first at times


def test_the_order_of_rows_is_random():
    rows = np.random.default_rng(0).normal(size=(1000, 2))
    a, b = (np.argsort(order_rows(list(rows.T), seed)) for seed in (0, 1))
    for place in (a, b):
        assert abs(np.corrcoef(place, rows[:, 0])[0, 1]) < 0.1
        assert abs(np.corrcoef(place, np.abs(rows[:, 0]))[0, 1]) < 0.1
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.1


@pytest.mark.parametrize("width", [1, 3, 40])
def test_copies_agree_with_comparing_all_pairs(width: int):
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(300, width)) * 10.0 ** rng.integers(-2, 8, (300, width))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    rows = rows[np.unique(hash_rows(list(rows.T)), return_index=True)[1]]
    noise = 10.0 ** rng.uniform(-9, -2, len(rows))[:, None]
    queries = rows + noise * np.maximum(1, np.abs(rows)) * rng.uniform(-1, 1, rows.shape)
    queries = np.r_[rows, queries, rng.normal(size=(50, width))].astype(np.float32)
    rows = rows.astype(np.float32)
    flat, query = (np.nan_to_num(np.arcsinh(r.astype(float)), nan=-100.0) for r in (rows, queries))
    gap = np.abs(query[:, None] - flat).max(-1)
    found = Copies(rows)(queries)
    np.testing.assert_array_equal(found >= 0, gap.min(1) < SAME)
    hit = found >= 0
    np.testing.assert_array_equal(gap[hit, found[hit]], gap.min(1)[hit])
    assert 300 < hit.sum() < len(queries)


def test_measured_and_discrete_tables_are_told_apart():
    rng = np.random.default_rng(0)
    discrete = rng.integers(0, 4, (200, 5)).astype(float)
    assert not is_measured(np.unique(discrete, axis=0))
    assert is_measured(np.c_[discrete, rng.normal(size=200).round(2)])
