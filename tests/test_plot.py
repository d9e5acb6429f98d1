"""Pictures show the numbers they were given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import polars as pl
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from tabiced import ICED  # noqa: E402
from tabiced.explanation import explain_cells  # noqa: E402
from tabiced.plot import (  # noqa: E402
    anomaly_pairs,
    energy_landscape,
    p_value_calibration,
    samples_beside_rows,
    score_histogram,
)
from tests_support import random_network  # noqa: E402


class Bump:
    """A scorer with one hill at the origin, which remembers what kind of table it was asked."""

    def score_samples(self, X: object, /) -> np.ndarray:
        self.kind = type(X)
        return -np.square(np.asarray(X, dtype=float)).sum(axis=1)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_landscape_asks_with_the_kind_of_table_it_got(kind):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    table = kind(rows) if kind is np.asarray else kind({"east": rows[:, 0], "north": rows[:, 1]})
    model = Bump()
    ax = energy_landscape(model, table, resolution=20)
    assert model.kind is type(table)
    points = ax.collections[-1].get_offsets()
    np.testing.assert_allclose(points, rows)
    if kind is not np.asarray:
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("east", "north")


def test_landscape_outlines_the_typical_region():
    rows = np.random.default_rng(0).normal(size=(2000, 2))
    ax = energy_landscape(Bump(), rows, resolution=80)
    outline = next(c for c in ax.collections if len(c.get_edgecolor()) == 1 and c.get_paths())
    radius = np.linalg.norm(outline.get_paths()[0].vertices, axis=1)
    # 95 % of a standard Gaussian in the plane lie within sqrt(2 log 20) of the origin.
    assert np.allclose(radius, np.sqrt(2 * np.log(20)), atol=0.15)


def test_landscape_leaves_out_rows_with_missing_cells():
    rows = np.array([[0.0, 1.0], [np.nan, 2.0], [3.0, 4.0]])
    ax = energy_landscape(Bump(), rows, resolution=10)
    assert len(ax.collections[-1].get_offsets()) == 2


@pytest.mark.parametrize("shape", [(5, 1), (5, 3)])
def test_landscape_needs_two_columns(shape: tuple[int, int]):
    with pytest.raises(ValueError, match="two columns"):
        energy_landscape(Bump(), np.zeros(shape))


def test_landscape_needs_a_complete_row():
    with pytest.raises(ValueError, match="missing"):
        energy_landscape(Bump(), np.full((4, 2), np.nan))


def test_histogram_counts_every_row_on_its_side_of_the_threshold():
    scores = np.random.default_rng(0).normal(size=500)
    ax = score_histogram(scores, threshold=-1.3, reference=scores[:100])
    typical, unusual = ax.containers[:2]
    assert sum(bar.get_height() for bar in unusual) == (scores < -1.3).sum()
    assert sum(bar.get_height() for bar in typical) == (scores >= -1.3).sum()
    assert all(bar.get_height() == 0 or bar.get_x() < -1.3 - 1e-9 for bar in unusual)
    assert all(bar.get_height() == 0 or bar.get_x() > -1.3 - 1e-9 for bar in typical)


def test_histogram_draws_on_given_axes_without_a_threshold():
    ax = plt.subplots()[1]
    assert score_histogram([1.0, 2.0, 2.0], ax=ax) is ax
    assert sum(bar.get_height() for bar in ax.containers[0]) == 3


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_pairs_show_the_most_unusual_rows_and_mark_guilty_cells(kind):
    values = np.random.default_rng(0).normal(size=(60, 4))
    values[3] = [0.1, 9.0, np.nan, 0.2]
    names = ["column 0", "column 1", "column 2", "column 3"]
    table = values if kind is np.asarray else kind(dict(zip(names, values.T, strict=True)))
    model = ICED(weights=random_network()).fit(table)
    axes = anomaly_pairs(model, table, count=4)
    worst = np.argsort(model.score_samples(table), kind="stable")[:4]
    rows = (
        table[worst] if kind is np.asarray else kind(dict(zip(names, values[worst].T, strict=True)))
    )
    found = explain_cells(model, rows)
    assert len(axes) == 4
    for ax, row, surprise, p in zip(axes, worst, found.surprise, found.p_value, strict=True):
        present = [j for j in np.argsort(-surprise, kind="stable") if not np.isnan(values[row, j])]
        across, up = sorted(present[:2])
        assert (ax.get_xlabel(), ax.get_ylabel()) == (names[across], names[up])
        np.testing.assert_allclose(ax.collections[-1].get_offsets(), [values[row, [across, up]]])
        assert len(ax.lines) == (p[[across, up]] <= 0.05).sum()


def test_pairs_need_two_numeric_columns():
    table = pl.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]})
    with pytest.raises(ValueError, match="two numeric columns"):
        anomaly_pairs(ICED(weights=random_network()).fit(table), table)


def test_calibration_is_the_distribution_function_of_the_p_values():
    p = np.random.default_rng(0).beta(0.5, 1.0, 300)
    ax = p_value_calibration(p)
    levels, share = ax.lines[1].get_data()
    assert share.tolist() == [(p <= level).mean() for level in levels]


@pytest.mark.parametrize("p", [[], [0.1, 1.2], [np.nan]])
def test_calibration_needs_p_values(p: list[float]):
    with pytest.raises(ValueError, match="between 0 and 1"):
        p_value_calibration(p)


def test_samples_are_drawn_beside_the_rows_on_the_same_scale():
    g = np.random.default_rng(0)
    real = pl.DataFrame({"t": ["x"] * 9, "a": g.normal(size=9), "b": g.normal(size=9)})
    drawn = pd.DataFrame({"b": g.normal(size=5), "a": g.normal(size=5)})
    left, right = samples_beside_rows(real, drawn)
    np.testing.assert_allclose(left.collections[0].get_offsets(), real.select("a", "b"))
    np.testing.assert_allclose(right.collections[0].get_offsets(), drawn[["a", "b"]])
    assert left.get_xlim() == right.get_xlim()
    with pytest.raises(ValueError, match="two numeric columns"):
        samples_beside_rows(real, drawn, columns=("a", "t"))


def test_pictures_are_drawn_on_given_axes():
    two = plt.subplots(1, 2)[1]
    assert p_value_calibration([0.5], ax=two[0]) is two[0]
    assert samples_beside_rows(np.eye(3), np.eye(3), axes=two).tolist() == two.tolist()
