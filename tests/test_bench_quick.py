"""Every benchmark has a quick run, which keeps out of the results that the page is made of."""

import numpy as np
import pytest
import torch

from tabiced.bench import augmentation, command
from tabiced.bench.results import read_csv
from tabiced.model import Network, NetworkConfig
from tabiced.weights import save_network


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a working folder with tiny weights and tables for every benchmark."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    save_network(Network(NetworkConfig.tiny()), tmp_path / "tiny.json")
    draw = np.random.default_rng(0)
    (tmp_path / "tables").mkdir()
    for name, n in (("3_a", 80), ("5_b", 90), ("7_c", 300)):
        X, y = draw.normal(size=(n, 3)), (np.arange(n) < n // 5).astype(int)
        np.savez(tmp_path / "tables" / f"{name}.npz", X=X, y=y)
    for name in augmentation.N_REAL:
        X, y = draw.normal(size=(80, 2)), np.arange(80) % 2
        np.savez(tmp_path / "tables" / f"{name}.npz", X=X + y[:, None], y=y)
    rows = {"context": 40, "context_contaminated": 44, "query": 20}
    pack = {
        f"odd/{i}/{part}": draw.normal(size=(n, 2)) for i in range(8) for part, n in rows.items()
    }
    pack |= {f"odd/{i}/y": np.arange(20) % 2 for i in range(8)}
    np.savez(tmp_path / "macrodata.npz", **pack)
    return tmp_path


def run(*words):
    command.main([*words, "--quick"])


WEIGHTS = ("--weights", "tiny.json", "--quiet")


def stored(name, folder):
    assert not (folder / "benchmarks").exists()
    return read_csv(folder / "build" / "quick" / f"{name}.csv")


def test_quick_adbench_takes_the_smallest_tables_of_one_seed(folder):
    for _ in range(2):
        run("adbench", "--data", "tables", "--no-resample", *WEIGHTS)
    rows = stored("adbench", folder)
    assert {(row["idx"], row["seed"]) for row in rows} == {("3", "0"), ("5", "0")}
    assert {row["setting"] for row in rows} == {"ood", "anomaly"}


def test_quick_packs_are_small_and_are_read_quickly(folder):
    run("pack", "--data", "tables", "--out", "small.npz", "--no-resample")
    with np.load("small.npz") as pack:
        assert {key.split("/")[0] for key in pack.files} == {"protocol", "3_a", "5_b"}
    command.main(["pack", "--data", "tables", "--out", "whole.npz", "--no-resample"])
    for name in ("small", "whole"):
        run("adbench", "--pack", f"{name}.npz", "--methods", "GMM", "--quiet", "--out", name)
        assert {row["idx"] for row in read_csv(folder / name)} == {"3", "5"}


def test_quick_macrodata_takes_four_tables(folder):
    run("macrodata", "--pack", "macrodata.npz", *WEIGHTS)
    assert len({row["dataset"] for row in stored("macrodata", folder)}) == 4


def test_quick_parts_takes_four_tables(folder):
    run("parts", "--pack", "macrodata.npz", *WEIGHTS)
    assert len({row["dataset"] for row in stored("parts", folder)}) == 4


def test_quick_calibration_takes_four_tables(folder):
    run("calibration", "--pack", "macrodata.npz", *WEIGHTS)
    assert len({row["dataset"] for row in stored("calibration", folder)}) == 4


def test_quick_density_takes_a_table_of_each_suite(folder):
    run("density", "--methods", "network", *WEIGHTS)
    assert len(stored("density", folder)) == 7


def test_quick_speed_takes_small_sizes(folder):
    run("speed", *WEIGHTS)
    sizes = {(row["rows"], row["columns"]) for row in stored("speed", folder)}
    assert sizes == {("250", "5"), ("250", "20")}


def test_quick_augmentation_takes_one_table(folder):
    run("augmentation", "--data", "tables", "--methods", "jitter", "--quiet")
    rows = stored("augmentation", folder)
    assert {(row["dataset"], row["n_real"]) for row in rows} == {("stock", "20")}


def test_every_measuring_command_has_a_quick_run():
    assert set(command.QUICK) == set(command.COMMANDS) - {"page", "card"}  # these measure nothing
