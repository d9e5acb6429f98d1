"""Packs of real tables: reading, scoring, subsampling, the command line."""

import csv

import numpy as np
import pytest
import torch

from shared_data import shared
from tabiced.bench import macrodata, ours
from tabiced.bench.command import main
from tabiced.bench.results import read_csv
from tabiced.bench.tasks import detect, every_nth
from tabiced.model import Network, NetworkConfig
from tabiced.weights import save_network


@pytest.fixture
def pack(tmp_path):
    draw = np.random.default_rng(0)
    arrays = {}
    for name in ("odd/a", "odd/b", "ovr/c"):
        normal, odd = draw.normal(size=(90, 3)), draw.normal(4, 1, size=(30, 3))
        arrays[f"{name}/context"] = normal[:60]
        arrays[f"{name}/context_contaminated"] = np.concatenate([normal[:60], odd[:6]])
        arrays[f"{name}/query"] = np.concatenate([normal[60:], odd[6:]])
        arrays[f"{name}/y"] = np.repeat([0, 1], [30, 24]).astype(np.int8)
    path = tmp_path / "pack.npz"
    np.savez(
        path, **{key: a.astype(np.float32) if a.dtype == float else a for key, a in arrays.items()}
    )
    return path


@pytest.fixture
def card(tmp_path):
    torch.manual_seed(0)
    save_network(Network(NetworkConfig.tiny()), tmp_path / "weights" / "tiny.json")
    return tmp_path / "weights" / "tiny.json"


def test_subsamples_are_systematic():
    assert every_nth(range(120), 4) == [0, 30, 60, 90]
    assert every_nth(range(3), 10) == every_nth(range(3), None) == [0, 1, 2]


def test_the_command_stores_and_prints_means(pack, tmp_path, capsys):
    out = tmp_path / "m.csv"
    main(
        ["macrodata", "--pack", str(pack), "--methods", "KNN", "GMM", "--out", str(out), "--quiet"]
    )
    rows = read_csv(out)
    assert len(rows) == 3 * 2 * 2
    assert all(float(row["auroc"]) > 0.9 for row in rows if row["setting"] == "clean")
    printed = capsys.readouterr().out
    expected = np.mean([100 * float(r["auroc"]) for r in rows if r["method"] == "KNN"][::2])
    assert "3 tables" in printed and f"{expected:.2f}" in printed


def test_the_bare_network_is_scored_from_its_card(pack, card, tmp_path):
    out = tmp_path / "m.csv"
    arguments = ["macrodata", "--pack", str(pack), "--methods", "network", "--quiet"]
    main([*arguments, "--weights", str(card), "--out", str(out), "--limit", "2"])
    rows = read_csv(out)
    assert len(rows) == 4 and len({row["weights"] for row in rows}) == 1
    assert len(rows[0]["weights"]) == 12


def test_a_look_equals_the_stored_means(pack, card, tmp_path):
    method = ours.bare_network(weights=card)
    results = macrodata.open_results(tmp_path / "m.csv")
    with np.load(pack) as arrays:
        detect(macrodata.tasks(arrays), [method], results)
        seen = macrodata.look(method, arrays)
    clean = [float(r["auroc"]) for r in results.rows() if r["setting"] == "clean"]
    assert seen["all/clean"] == pytest.approx(100 * np.mean(clean), abs=1e-4)
    assert set(seen) == {f"{b}/{s}" for b in ("odd", "ovr", "all") for s in macrodata.SETTINGS}


def test_the_network_is_scored_in_chunks_that_do_not_matter(card, monkeypatch):
    draw = np.random.default_rng(1)
    context, query = draw.normal(size=(50, 4)), draw.normal(size=(20, 4))
    whole = ours.bare_network(weights=card).score(context, query, 0)
    monkeypatch.setattr(ours, "QUERY_CHUNK", 7)
    parts = ours.bare_network(weights=card).score(context, query, 0)
    np.testing.assert_allclose(whole, parts, atol=1e-5)


def test_options_are_read_as_python_values():
    words = ["n_views=4", "trim=0.1", "views=raw", "cache=False", "limit=None"]
    expected = {"n_views": 4, "trim": 0.1, "views": "raw", "cache": False, "limit": None}
    assert ours.parse_options(words) == expected


def test_baselines_agree_with_measured_values(tmp_path):
    pack, measured = shared("data/macrodata_dev.npz"), shared("data/macrodata_dev_baselines.csv")
    pytest.importorskip("pyod")
    names = [name for name in macrodata.BASELINES if name != "PCA"]  # its signs vary by machine
    results = macrodata.open_results(tmp_path / "m.csv")
    with np.load(pack) as arrays:
        methods = [macrodata.BASELINES[name] for name in names]
        detect(macrodata.tasks(arrays, limit=2), methods, results)
    with measured.open() as file:
        expected = {
            (r["bench"], r["dataset"], r["setting"], r["method"]): float(r["auroc"])
            for r in csv.DictReader(file)
        }
    assert len(results.rows()) == 2 * 2 * len(names)
    for row in results.rows():
        value = expected[row["bench"], row["dataset"], row["setting"], row["method"]]
        assert 100 * float(row["auroc"]) == pytest.approx(value, abs=0.05)


def test_processes_side_by_side_read_the_same_pack(tmp_path):
    """Forked processes that shared an open file would read each other's bytes."""
    rng = np.random.default_rng(0)
    arrays = {}
    for i in range(12):
        context = rng.normal(size=(2000, 8)).astype(np.float32)
        arrays |= {
            f"odd/T{i}/context": context,
            f"odd/T{i}/context_contaminated": context,
            f"odd/T{i}/query": rng.normal(size=(200, 8)).astype(np.float32),
            f"odd/T{i}/y": np.arange(200, dtype=np.int8) % 2,
        }
    pack = tmp_path / "pack.npz"
    np.savez_compressed(pack, **arrays)
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for jobs, out in zip(("1", "2"), files, strict=True):
        words = f"macrodata --methods Mahalanobis --quiet --jobs {jobs}".split()
        main([*words, "--pack", str(pack), "--out", str(out)])
    one, two = (
        [line.rsplit(",", 1)[0] for line in file.read_text().splitlines()] for file in files
    )
    assert len(one) == 25 and one == two
