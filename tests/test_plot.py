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

from tabiced.plot import energy_landscape, score_histogram  # noqa: E402


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
