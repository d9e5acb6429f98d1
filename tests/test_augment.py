"""Class-conditional augmentation by imbalanced-learn's contract."""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from imblearn.pipeline import make_pipeline
from imblearn.utils import check_sampling_strategy
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from tabiced.generate import ICEDAugmenter, Metropolis
from tabiced.generate.augment import rows_to_add
from tests_support import random_network

NETWORK = random_network()


def augmenter(**options: Any) -> ICEDAugmenter:
    given = {"weights": NETWORK, "sampler": Metropolis(steps=3), "random_state": 0, **options}
    return ICEDAugmenter(**given)


def table(sizes: tuple[int, ...] = (30, 14, 4)) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    rows = [draw.normal(4 * k, 1, (n, 3)) for k, n in enumerate(sizes)]
    return np.concatenate(rows), np.repeat(np.arange(len(sizes)), sizes)


@pytest.mark.parametrize(
    "strategy",
    [
        *("auto", "minority", "not minority", "not majority", "all", {0: 40, 2: 9}),
        lambda y: {1: 20},
    ],
)
def test_as_many_rows_as_imbalanced_learn_would_add(strategy: Any) -> None:
    X, y = table()
    expected = check_sampling_strategy(strategy, y, "over-sampling")
    new_X, new_y = augmenter(sampling_strategy=strategy).fit_resample(X, y)
    np.testing.assert_array_equal(new_X[: len(X)], X)
    np.testing.assert_array_equal(new_y[: len(y)], y)
    added = Counter(new_y[len(y) :].tolist())
    assert added == {label: count for label, count in expected.items() if count}
    assert len(new_X) == len(new_y) and np.isfinite(new_X).all()


def test_a_ratio_of_two_classes() -> None:
    y = np.repeat(["a", "b"], [40, 10])
    for ratio in (0.5, 0.83, 1.0):
        expected = dict(check_sampling_strategy(ratio, y, "over-sampling"))
        assert rows_to_add(ratio, y) == expected


def test_new_rows_are_near_their_class() -> None:
    X, y = table((30, 14, 4))
    model = augmenter().fit(X, y)
    assert set(model.models_) == {0, 1}  # the class of four rows is too small to be read
    rows, labels = model.sample(40)
    assert Counter(labels.tolist()) == {0: 40, 1: 40, 2: 40}
    centres = np.stack([X[y == k].mean(0) for k in range(3)])
    nearest = ((rows[:, None] - centres) ** 2).sum(2).argmin(1)
    assert (nearest == labels).mean() > 0.95
    assert not (rows[:, None] == X).all(2).any()


def test_a_small_class_gets_the_shape_of_the_others() -> None:
    draw = np.random.default_rng(0)
    root = np.array([[2.0, 0.0], [1.9, 0.2]])  # strongly correlated inside of classes
    X = np.concatenate([draw.normal(size=(200, 2)) @ root.T, [[50.0, -50.0], [51.0, -49.0]]])
    y = np.repeat([0, 1], [200, 2])
    rows, _ = augmenter(noise=0.5).fit(X, y).sample({1: 4000})
    spread = np.cov((rows - rows.mean(0)).T)
    between = np.cov(X[-2:].T, bias=True)  # the two rows themselves
    np.testing.assert_allclose(spread, 0.25 * root @ root.T + between, rtol=0.15)


def test_classes_of_one_row() -> None:
    X, y = table((20, 1))
    rows, labels = augmenter().fit_resample(X, y)
    assert (labels == 1).sum() == 20 and len(np.unique(rows[labels == 1], axis=0)) == 20
    alone = augmenter().fit(X[[0, 20]], y[[0, 20]]).sample(3)[0]  # no class has two rows: copies
    np.testing.assert_allclose(alone, X[[0, 0, 0, 20, 20, 20]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_frames_in_and_out(kind: str) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": draw.normal(size=40),
            "k": draw.integers(0, 50, 40),
            "c": draw.choice(["p", "q", "r"], 40),
            "gap": np.where(draw.random(40) < 0.3, np.nan, draw.normal(size=40)),
        },
        index=np.arange(100, 140),
    )
    y = pd.Series(
        np.repeat(["small", "tiny", "large"], [12, 3, 25]), name="kind", index=frame.index
    )
    X: Any = frame
    labels: Any = y
    if kind == "polars":
        X, labels = pl.from_pandas(frame), pl.Series("kind", y.tolist())
    elif kind == "pyarrow":
        X, labels = pa.Table.from_pandas(frame, preserve_index=False), pa.array(y.tolist())
    new_X, new_y = augmenter().fit_resample(X, labels)
    assert type(new_X) is type(X) and type(new_y) is type(labels) and len(new_X) == 75
    assert Counter(new_y.to_pylist() if kind == "pyarrow" else new_y.to_list()) == {
        "small": 25,
        "tiny": 25,
        "large": 25,
    }
    if kind == "pandas":
        pd.testing.assert_series_equal(new_X.dtypes, X.dtypes)
        assert new_y.name == "kind" and list(new_X.index) == list(range(75))
        assert new_X["gap"].isna().any()
    else:
        assert new_X.schema == X.schema


def test_inside_a_pipeline_of_imbalanced_learn() -> None:
    X, y = table()
    pipeline = make_pipeline(StandardScaler(), augmenter(), LogisticRegression())
    assert pipeline.fit(X, y).score(X, y) > 0.9
    assert pipeline.predict(X).shape == y.shape  # rows are added while fitting alone


def test_columns_that_are_constant_inside_of_a_class() -> None:
    X, y = table((20, 12))
    X[y == 1, 0] = 5.0
    rows, labels = augmenter().fit(X, y).sample(6)
    assert (rows[labels == 1, 0] == 5).all()


def test_classes_that_hold_nothing_or_one_value() -> None:
    X, y = table((18, 12))
    for value in (np.nan, 1.0):
        rows, labels = augmenter().fit_resample(np.where(y[:, None] == 1, value, X), y)
        np.testing.assert_array_equal(rows[labels == 1], np.full((18, 3), value))
    rows, labels = augmenter().fit_resample(np.ones((30, 2)), y)
    assert (rows == 1).all() and Counter(labels.tolist()) == {0: 18, 1: 18}


def test_a_class_of_one_row_without_numbers_or_with_gaps() -> None:
    draw = np.random.default_rng(0)
    y = np.repeat([0, 1], [29, 1])
    text = pd.DataFrame({"a": draw.choice(["p", "q"], 30), "b": draw.choice(["r", "s"], 30)})
    rows, labels = augmenter().fit_resample(text, y)
    assert len(rows[labels == 1].drop_duplicates()) == 1  # its levels stay as they are
    gaps = draw.normal(size=(30, 3))
    gaps[29, 1] = np.nan
    rows, labels = augmenter().fit_resample(gaps, y)
    assert np.isnan(rows[labels == 1][:, 1]).all()
    assert np.isfinite(rows[labels == 1][:, [0, 2]]).all()


def test_one_class_needs_no_rows() -> None:
    X, _ = table((30,))
    rows, labels = augmenter().fit_resample(X, np.zeros(30, int))
    np.testing.assert_array_equal(rows, X)
    assert len(labels) == 30


def test_text_alone_and_missing_cells() -> None:
    draw = np.random.default_rng(0)
    X = pd.DataFrame({name: draw.choice(["a", "b", None], 40) for name in "uv"})
    rows, _ = augmenter().fit(X, np.repeat([0, 1], [25, 15])).sample(10)
    assert set(rows["u"].dropna()) <= {"a", "b"} and len(rows) == 20


def test_seeds_and_clones() -> None:
    X, y = table()
    first, again = (clone(augmenter()).fit_resample(X, y)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = augmenter(random_state=1).fit_resample(X, y)[0]
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.linspace(0, 1, 48), "continuous"),
        (np.where(np.arange(48) == 7, None, "a"), "no label in row 7"),
        (np.zeros(5), "48 rows, but y has 5"),
        (np.zeros((48, 2)), "one-dimensional"),
    ],
)
def test_labels_that_are_none(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        augmenter().fit(table()[0], y)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("most", "is one of"),
        (0.5, "two classes"),
        ({9: 50}, "class 9"),
        ({0: 3}, "30 rows already"),
    ],
)
def test_strategies_that_are_none(strategy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        augmenter(sampling_strategy=strategy).fit_resample(*table())


def test_classes_that_are_none() -> None:
    model = augmenter().fit(*table())
    with pytest.raises(ValueError, match="no class 'z'"):
        model.sample({"z": 3})
    with pytest.raises(ValueError, match="negative"):
        model.sample(-1)
