"""The augmentation benchmark: its protocol, its methods, and what it prints."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from tabiced.bench import augmentation as bench
from tabiced.bench import augmentation_methods
from tabiced.bench.augmentation_methods import BASELINES, Generator, ours
from tabiced.weights import save_network
from tests_support import random_network


def small(rows: int = 120) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    y = np.concatenate(
        [np.zeros(rows // 2), np.ones(rows // 2 - 15), np.full(12, 2), np.full(3, 3)]
    )
    X = draw.normal(size=(rows, 4)) + 3 * y[:, None]
    return X, y.astype(int)


def test_the_split_is_the_papers() -> None:
    X, y = small()
    X[0, 0] = np.nan
    data = bench.split(X, y, 40, seed=3)
    assert data.X.shape == (40, 4) and set(data.y) == {0, 1, 2}  # the class of three rows is gone
    assert len(data.X_test) == 117 // 2
    np.testing.assert_allclose(data.X.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(data.X.std(0), 1, atol=1e-9)
    shares = [np.bincount(part) / len(part) for part in (data.y, data.y_test)]
    np.testing.assert_allclose(*shares, atol=0.04)
    assert not np.isnan(data.X_test).any()


def test_new_rows_are_shared_out_in_proportion() -> None:
    counts = bench.new_counts(np.repeat([0, 1, 5], [7, 2, 2]))
    assert sum(counts.values()) == 500 and counts == {0: 318, 1: 91, 5: 91}


@pytest.mark.parametrize("name", ["copies", "jitter", "SMOTE"])
def test_simple_generators_stay_near_their_class(name: str) -> None:
    X, y = small()
    X, y = X[y < 3], y[y < 3]
    X, y = np.concatenate([X, [[30.0] * 4]]), np.append(y, 9)  # a class of one row
    counts = {0: 50, 1: 30, 2: 10, 9: 5}
    rows, labels = BASELINES[name].generate(X, y, counts, 0)
    assert {label: int((labels == label).sum()) for label in counts} == counts
    for label in counts:
        own, new = X[y == label], rows[labels == label]
        gap = np.abs(new[:, None] - own).max(2).min(1).max()
        assert (gap == 0) if name == "copies" else gap < 4
        within = (new >= own.min(0) - 0.8).all() and (new <= own.max(0) + 0.8).all()
        assert within


@pytest.mark.parametrize("name", ["ARF", "NFLOW"])
def test_learned_generators_keep_the_classes_apart(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augmentation_methods, "FLOW_STEPS", 60)
    X, y = small(60)
    X, y = X[y < 2], y[y < 2]
    rows, labels = BASELINES[name].generate(X, y, {0: 40, 1: 40}, 0)
    assert rows.shape == (80, 4) and np.isfinite(rows).all()
    assert rows[labels == 1].mean() - rows[labels == 0].mean() > 1  # 3 in truth


def test_our_generator_gives_what_the_augmenter_gives(tmp_path: Path) -> None:
    card = tmp_path / "tiny.json"
    save_network(random_network(), card)
    method = ours({"steps": 2, "min_rows": 5}, card)
    assert method.options == "min_rows=5 steps=2" and len(method.weights) == 12
    X, y = small()
    rows, labels = method.generate(X, y, {0: 4, 1: 3, 2: 2, 3: 1}, 0)
    assert rows.shape == (10, 4) and labels.tolist() == [0] * 4 + [1] * 3 + [2] * 2 + [3]


def folder(tmp_path: Path) -> Path:
    for name in bench.N_REAL:
        X, y = small(200)
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    return tmp_path


def options(tmp_path: Path, methods: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    given = ["--data", str(tmp_path), "--datasets", "stock", "--sizes", "20", "--seeds", "0", "1"]
    read = parser.parse_args(given)
    return argparse.Namespace(
        **vars(read),
        **{"methods": methods, "options": [], "weights": None, "device": "cpu"},
        **{"out": tmp_path / "out.csv", "jobs": 1, "force": False},
    )


def test_a_run_is_stored_resumed_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(folder(tmp_path), ["baseline", "jitter"])
    monkeypatch.setattr(bench, "CLASSIFIERS", ("knn", "rf"))
    told: list[str] = []
    bench.run(given, told.append)
    rows = bench.open_results(given.out).rows()
    assert len(rows) == 2 * 2 * 2 and len(told) == 4
    by_hand = [float(r["balanced_accuracy"]) for r in rows if r["method"] == "jitter"]
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.startswith("jitter"))
    assert float(line.split()[1]) == pytest.approx(np.mean(by_hand), abs=0.01)
    assert "ICED, paper" in printed and "TabEBM: the TabPFN weights" in printed
    bench.run(given, told.append)
    assert len(told) == 4  # nothing was measured again


def test_a_method_that_fails_is_stored_as_such(tmp_path: Path) -> None:
    def fails(*_: object) -> tuple[np.ndarray, np.ndarray]:
        raise ValueError("no")

    results = bench.open_results(tmp_path / "out.csv")
    chosen = bench.settings(folder(tmp_path), [0], ["stock"], [20])
    bench.measure(chosen, [Generator("broken", fails)], results)
    assert {row["balanced_accuracy"] for row in results.rows()} == {""}


def test_means_are_over_settings_that_all_methods_have() -> None:
    def row(method: str, seed: str, value: str) -> dict[str, str]:
        where = {"dataset": "stock", "n_real": "20", "seed": seed, "classifier": "knn"}
        return {**where, "method": method, "options": "", "weights": "", "balanced_accuracy": value}

    rows = [row("a", "0", "50"), row("a", "1", "90"), row("b", "0", "60")]
    kept = bench.shared(rows, ["a", "b"])
    assert bench.means(kept)["a"]["all"] == 50 and bench.means(kept)["b"]["all"] == 60


def test_the_papers_values_are_the_papers() -> None:
    means = bench.means(bench.quoted())
    for method, mean in {"ICED": 72.83, "TabEBM": 73.01, "Baseline": 70.97}.items():
        assert means[f"{method}, paper"]["all"] == pytest.approx(mean, abs=0.02)
    found = {(row["dataset"], int(row["n_real"])) for row in bench.quoted()}
    assert found == {(name, n) for name, sizes in bench.N_REAL.items() for n in sizes}


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"biodeg\.npz"):
        bench.settings(tmp_path)
    with pytest.raises(SystemExit, match="TabPFN weights"):
        bench.choose(options(tmp_path, ["TabEBM"]))
    with pytest.raises(SystemExit, match="unknown method"):
        bench.choose(options(tmp_path, ["nonsense"]))
