"""The page: made from stored results alone, and equal to them."""

from pathlib import Path

import numpy as np
import pytest

from tabiced.bench import adbench, augmentation, density, macrodata, page, paper, speed
from tabiced.bench.card import scores
from tabiced.bench.ours import version
from tabiced.bench.page import page_text, write_page
from tabiced.bench.summary import adbench_tables
from tabiced.scoring import Scoring
from tabiced.weights import WeightsError, read_card, save_network
from tests_support import random_network

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def results(tmp_path):
    store = adbench.open_results(tmp_path / "adbench.csv")
    key = {
        "protocol": "paper",
        "dataset": "x",
        "options": "",
        "average_precision": 0.5,
        "seconds": 1.0,
    }
    for setting, level in (("ood", 0.8), ("anomaly", 0.6)):
        for idx in (1, 2):
            for seed in (0, 1):
                for method, weights, bonus in (
                    ("KNN", "", 0.0),
                    ("ours", "shipped", 0.1),
                    ("ours", "old", 0.05),
                ):
                    value = level + bonus + 0.001 * idx + 0.01 * seed
                    row = {"setting": setting, "idx": idx, "seed": seed, "auroc": value}
                    store.add({**key, **row, "method": method, "weights": weights})
    store = macrodata.open_results(tmp_path / "macrodata.csv")
    for setting, value in (("clean", 0.7512), ("contaminated", 0.6134)):
        row = {"bench": "odd", "dataset": "a", "setting": setting, "auroc": value}
        rest = {"method": "KNN", "options": "", "weights": "", "average_precision": 0, "seconds": 0}
        store.add({**row, **rest})
    store = density.open_results(tmp_path / "density.csv")
    for suite in density.PAPER_SUITES:
        for method, weights, value in (
            ("GMM-BIC", "", 0.71),
            ("kNN", "", 0.72),
            ("ours", "shipped", 0.75),
        ):
            row = dict.fromkeys(density.VALUES, 0.0) | {"suite": suite, "table": 0, "options": ""}
            store.add({**row, "method": method, "weights": weights, "pairwise_accuracy": value})
    return tmp_path


def test_the_page_shows_means_of_the_shipped_weights(results):
    text = page_text(results, "shipped")
    line = next(line for line in text.splitlines() if line.startswith("| **tabiced** | 90.65"))
    quoted = np.mean([paper.adbench("ood")["KNN"][idx] for idx in ("1", "2")])
    assert "50.00" in line  # average precision
    assert f"| KNN | 80.65 | *{quoted:.2f}* |" in text
    assert "75.12 | 61.34" in text
    assert text.count("+0.0300") == len(density.PAPER_SUITES) + 1  # over the better rival, and mean
    assert "85.65" not in text  # other weights


def test_tables_that_were_learned_from_are_told_with_the_means_of_the_others(results, monkeypatch):
    assert "under another name" not in page_text(results, "shipped")
    monkeypatch.setattr(page, "read_card", lambda: {"scorer": {"seen": {"2": "y", "9": "z"}}})
    text = page_text(results, "shipped")
    assert text.count("behind 2_x (y) was among them") == 2  # once a setting
    quoted = {n: parts["1"] for n, parts in paper.adbench("anomaly").items() if n != "KNN"}
    means = {**quoted, "KNN": 60.6, "**tabiced**": 70.6}
    order = sorted(means, key=lambda name: -means[name])[:3]
    leaders = ", ".join(
        f"{name} *{means[name]:.2f}*" if name in quoted else f"{name} {means[name]:.2f}"
        for name in order
    )
    assert f"The first three over the other tables: {leaders}." in text


def test_augmentation_is_compared_where_all_were_measured(results):
    store = augmentation.open_results(results / "augmentation.csv")
    accuracy = {"baseline": 70.0, "copies": 71.0, "ours": 73.5, "NFLOW": 60.0}
    for method, value in accuracy.items():
        for seed in (0, 1):
            if method == "NFLOW" and seed:
                continue
            for kind in augmentation.CLASSIFIERS:
                row = {"dataset": "stock", "n_real": 20, "seed": seed, "classifier": kind}
                rest = {"method": method, "options": "", "seconds": 1.0, "balanced_accuracy": value}
                weights = "shipped" if method == "ours" else ""
                store.add({**row, **rest, "weights": weights})
    text = page_text(results, "shipped").split("## Augmentation")[1]
    assert "| **tabiced** | 73.50 | 3.50 | 73.50 |" in text
    assert "| copies | 71.00 | 1.00 |" in text
    assert "| NFLOW | 1 | 60.00 | 70.00 | 73.50 |" in text  # apart: it lacks a seed
    quoted = [r for r in augmentation.quoted() if (r["dataset"], r["n_real"]) == ("stock", "20")]
    ours = np.mean([float(r["balanced_accuracy"]) for r in quoted if r["method"] == "ICED, paper"])
    assert f"| *ICED, paper* | *{ours:.2f}* |" in text


def test_speed_is_told_in_multiples_of_ours_and_drawn(results, monkeypatch):
    monkeypatch.setattr("tabiced.bench.page.version", lambda scoring=True: "shipped")
    store = speed.open_results(results / "speed.csv")
    for columns in (5, 20, 50):
        for method, options, weights, seconds, megabytes in (
            ("KDE", "", "", 0.1, 3.0),
            ("ours", "", "shipped", 2.0, 40.0),
            ("ours", "device=cuda", "shipped", 0.5, float("nan")),
        ):
            key = {"rows": 250, "columns": columns, "method": method, "options": options}
            times = {"seconds": seconds * columns, "fastest": 0.0, "slowest": 9.0}
            store.add({**key, **times, "weights": weights, "megabytes": megabytes})
    write_page(results, results / "page" / "benchmarks.md")
    text = (results / "page" / "benchmarks.md").read_text().split("## Speed")[1]
    assert "| **tabiced**, seconds | 10 | 40 | 100 |" in text
    assert "| KDE | 0.05 x | 0.05 x | 0.05 x |" in text
    assert "| **tabiced** device=cuda | 0.25 x |" in text
    assert "| **tabiced** | 40 | 40 | 40 |" in text and "| KDE | 3 | 3 | 3 |" in text
    assert text.count("device=cuda |") == 1  # its memory was not told
    chart = (results / "page" / "images" / "runtime.svg").read_text()
    assert "250 x 20" in chart  # the middle one of the sizes


def test_without_resampling_only_small_tables_differ(results):
    rows = adbench.open_results(results / "adbench.csv").rows()
    small = next(
        r for r in rows if r["method"] == "KNN" and r["idx"] == "1" and r["setting"] == "ood"
    )
    rows = [*rows, {**small, "protocol": "no-resample", "auroc": "0.4"}]
    tables = adbench_tables(rows, "no-resample", "ood")
    paper_values = adbench_tables(rows, "paper", "ood")["KNN"]
    assert tables == {"KNN": {"1": pytest.approx(40), "2": paper_values["2"]}}


def test_results_of_other_weights_are_not_ours(results):
    text = page_text(results, "newer")
    assert "**tabiced** |" not in text.split("## ADBench")[1]


def test_the_page_and_its_charts_are_reproducible(results, monkeypatch):
    monkeypatch.setattr("tabiced.bench.page.version", lambda scoring=True: "shipped")
    pages = []
    for name in ("one", "two"):
        write_page(results, results / name / "benchmarks.md")
        pages.append({p.name: p.read_bytes() for p in (results / name).rglob("*") if p.is_file()})
    assert pages[0] == pages[1]
    assert set(pages[0]) == {"benchmarks.md", "adbench_ood.svg", "adbench_anomaly.svg"}


def test_no_number_on_the_page_differs_from_the_stored_results():
    try:
        shipped = version(), version(scoring=False)
    except WeightsError:
        pytest.skip("no weights are shipped yet")
    page = (ROOT / "docs/benchmarks.md").read_text()
    fresh = page_text(ROOT / "benchmarks/results", *shipped)
    assert page == fresh, "run `tabiced bench page` to write docs/benchmarks.md anew"


def test_quoted_values_are_the_papers():
    ood = paper.adbench("ood")
    assert len(ood) == 26 and len(ood["ICED"]) == 47
    assert np.nanmean(list(ood["ICED"].values())) == pytest.approx(88.33, abs=0.006)
    accuracy = paper.density("pairwise_accuracy")["ICED"]
    assert list(accuracy.values()) == [0.7824, 0.7462, 0.7541, 0.7381, 0.7209]


def test_the_card_of_the_weights_tells_the_stored_results():
    told = read_card()["scores"]
    assert told == scores(ROOT / "benchmarks" / "results"), "run python -m tabiced.bench card"
    assert {"ADBench", "macrOData pack", "density, pairwise accuracy"} <= set(told)


def test_scores_are_means_of_the_rows_of_our_weights_alone(results, monkeypatch):
    monkeypatch.setattr("tabiced.bench.card.version", lambda scoring=True: "shipped")
    found = scores(results)
    # levels 0.8 and 0.6, bonus 0.1, indices 1 and 2, seeds 0 and 1
    assert found["ADBench"] == {"ood": 90.65, "anomaly": 70.65}


def test_another_scoring_is_another_version_but_not_for_densities(tmp_path):
    network = random_network()
    found = {}
    for tails in (0.0, 0.5):
        network.scoring = Scoring(tails=tails)
        save_network(network, tmp_path / "card.json")
        found[tails] = [version(tmp_path / "card.json", scoring) for scoring in (True, False)]
    assert found[0.0] == [found[0.5][1]] * 2
    assert found[0.5][0] != found[0.5][1]
