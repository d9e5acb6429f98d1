"""The comparison of new rows with true ones: its measures, and that it returns to what it has."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tabiced.bench.results import Results

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "generation_quality.py"


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generation_quality", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_methods_without_the_network_are_told_apart(quality: ModuleType, tmp_path: Path) -> None:
    names = ["truth", "copies", "jitter", "even jitter", "kernels"]
    results = Results(tmp_path / "out.csv", quality.KEY, quality.VALUES)
    quality.measure(2, names, {}, results)
    rows = {(row["table"], row["method"]): row for row in results.rows()}
    for index in ("0", "1"):
        near = {name: float(rows[index, name]["nearer"]) for name in names}
        gap = {name: float(rows[index, name]["mean_gap"]) for name in names}
        assert near["copies"] == 1 and abs(near["truth"] - 0.5) < 0.1
        assert abs(gap["truth"]) < 0.5 and gap["jitter"] < gap["kernels"] < 0.1
    told = quality.summary(results)
    assert [line.split(" | ")[0] for line in told[2:]] == [f"| {name}" for name in names]
    before = (tmp_path / "out.csv").read_text()
    quality.measure(2, names, {}, Results(tmp_path / "out.csv", quality.KEY, quality.VALUES))
    assert (tmp_path / "out.csv").read_text() == before


def test_the_energy_distance_of_true_rows_is_about_zero(quality: ModuleType) -> None:
    table = quality.Table(5)
    assert abs(table.distance(table.spare)) < 0.01
    assert table.distance(table.spare + 2 * table.scale) > 1


def test_langevin_takes_the_steps_of_tabebm(quality: ModuleType) -> None:
    sampler = quality.Langevin()
    assert (sampler.steps, sampler.step, sampler.noise, sampler.start_noise) == (
        200,
        0.1,
        0.01,
        0.01,
    )
    assert np.isclose(quality.JITTER, 0.14)
