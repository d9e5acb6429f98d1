"""How real tables become tasks (pretraining/collect.py), on tables made here."""

import numpy as np
import pandas as pd
import pytest

from tests_support import pretraining_script

collect = pretraining_script("collect")


@pytest.fixture
def frame():
    draw = np.random.default_rng(0)
    kind = draw.choice(["common", "rare"], 900, p=[0.85, 0.15])
    size = draw.normal(size=900) + 2.5 * (kind == "rare")
    return pd.DataFrame(
        {
            "row": np.arange(900),
            "kind": kind,
            "size": size,
            "other": draw.normal(size=900),
            "count": draw.poisson(3, 900),
            "weight": 2 * size + 0.3 * draw.normal(size=900),
            "day": pd.date_range("2020-01-01", periods=900),
            "text": [f"number {i}" for i in range(900)],
            "gone": np.where(np.arange(900) % 5, 1.0, np.nan),
        }
    )


def test_columns_that_tell_nothing_are_left_out(frame):
    table = collect.read(frame)
    assert list(table) == ["kind", "size", "other", "count", "weight"]
    np.testing.assert_array_equal(table["kind"], frame["kind"] == "rare")
    np.testing.assert_array_equal(table["size"], frame["size"])


def test_a_class_is_normal_or_all_but_a_tail():
    label = np.array([1.0, 1, 1, 2, 2, 3, np.nan])
    (most, rest), (second, others) = collect.splits(label)
    assert most.tolist() == [True] * 3 + [False] * 4
    assert rest.tolist() == [False] * 3 + [True] * 3 + [False]
    assert second.tolist() == [False] * 3 + [True] * 2 + [False] * 2
    assert others.sum() == 4
    measured = np.random.default_rng(0).permutation(1000.0 * np.arange(500))
    (low, high), (upper, lower) = collect.splits(measured)
    assert (low.sum(), high.sum(), upper.sum(), lower.sum()) == (400, 50, 400, 50)
    assert measured[low].max() < measured[high].min()
    assert measured[lower].max() < measured[upper].min()
    assert not list(collect.splits(np.repeat(np.arange(20.0), 5)))  # neither few nor many


def test_columns_are_known_in_any_unit():
    draw = np.random.default_rng(0)
    column = draw.integers(0, 60, 500).astype(float)
    known = collect.signatures(column)[0]
    assert known in collect.signatures(draw.permutation(column) / 7 + 3)
    assert known in collect.signatures(-column)
    assert known not in collect.signatures(draw.integers(0, 60, 500).astype(float))
    assert collect.signatures(draw.integers(0, 5, 500).astype(float)) == []


def test_tasks_hide_their_label_and_can_be_solved(frame):
    table = collect.read(frame)
    found = collect.tasks("name", table)
    again = collect.tasks("name", table)
    assert 1 <= len(found) <= collect.TASKS
    for (normal, anomalies), (same, _) in zip(found, again, strict=True):
        np.testing.assert_array_equal(normal, same)
        assert normal.shape[1] == anomalies.shape[1] == 4  # all but the label
        assert collect.LEAST_NORMAL <= len(normal) <= collect.KEPT_NORMAL
        assert collect.LEAST_ANOMALIES <= len(anomalies) <= collect.KEPT_ANOMALIES
        assert collect.is_fair(normal, anomalies)


def test_tasks_that_nobody_or_everybody_can_solve_are_unfair():
    draw = np.random.default_rng(0)
    normal = draw.normal(size=(300, 4))
    assert not collect.is_fair(normal, draw.normal(size=(60, 4)))
    assert not collect.is_fair(normal, draw.normal(size=(60, 4)) + 20)
    assert collect.is_fair(normal, draw.normal(size=(60, 4)) + np.array([1.5, 0, 0, 0]))


def test_tables_of_the_benchmarks_are_left_out(frame, monkeypatch, tmp_path):
    twin, third = frame.assign(other=frame["count"]), frame.sample(frac=0.9, random_state=0)
    third = third.assign(size=third["size"].round(1), weight=third["weight"].round(1))
    tables = [("a", frame), ("again", twin), ("b", third), ("short", frame[:200])]
    monkeypatch.setattr(collect, "frames", lambda: iter(tables))
    assert list(collect.collect(set())) == ["a", "b"]
    np.savez(tmp_path / "1_known.npz", X=-3 * third[["size"]].to_numpy(), y=np.zeros(len(third)))
    assert list(collect.collect(collect.known_signatures(tmp_path))) == ["a"]
    for name in ("Glass", "page-blocks0", "wine", "spam7", "yeast4"):
        assert collect.EXCLUDED.search(name)
    assert not collect.EXCLUDED.search("winequality-red-4")
