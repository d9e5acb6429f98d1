"""False alarms: who calls a row unusual, what is stored, and what the page tells of it."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from tabiced import ICED
from tabiced.bench import calibration, command
from tabiced.bench.ours import version
from tabiced.bench.page_calibration import calibration_section
from tabiced.bench.results import read_csv
from tabiced.bench.summary import calibration_lines, calibration_means

DRAW = np.random.default_rng(0)
CONTEXT, QUERY = DRAW.normal(size=(120, 3)), 1.5 * DRAW.normal(size=(60, 3))


@pytest.mark.parametrize("name", calibration.DETECTORS)
def test_detectors_decide_as_pyod_does(name):
    from pyod.models import ecod, hbos, iforest, knn, lof, pca
    from sklearn.preprocessing import StandardScaler

    kinds = {"KNN": knn.KNN, "LOF": lof.LOF, "IForest": iforest.IForest, "ECOD": ecod.ECOD}
    kind = (kinds | {"PCA": pca.PCA, "HBOS": hbos.HBOS})[name]
    seed = {"random_state": 3} if name in ("IForest", "PCA") else {}
    scaler = StandardScaler().fit(CONTEXT)
    lowest = calibration.pyod(name)(CONTEXT, QUERY, 3)
    assert len(np.unique(lowest)) > 2
    for rate in calibration.RATES:
        model = kind(contamination=rate, **seed).fit(scaler.transform(CONTEXT))
        told = model.predict(scaler.transform(QUERY)) == 1
        np.testing.assert_array_equal(lowest <= rate, told)


def test_principal_components_without_variance_do_not_hide_the_others():
    context, query = (np.c_[x, x[:, 0], x.sum(1)].astype(np.float32) for x in (CONTEXT, QUERY))
    lowest, plain = (
        calibration.pyod("PCA")(*pair, 3) for pair in ((context, query), (CONTEXT, QUERY))
    )
    assert abs((lowest <= 0.1).mean() - (plain <= 0.1).mean()) < 0.15


def test_ours_decides_by_p_values():
    lowest = calibration.ours()(CONTEXT, QUERY, 3)
    p_values = ICED(random_state=3).fit(CONTEXT).p_values(QUERY)
    assert len(np.unique(lowest)) > 2
    for rate in calibration.RATES:
        np.testing.assert_array_equal(lowest <= rate, p_values <= rate)


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Return the file of a run over a pack of two tables."""
    monkeypatch.chdir(tmp_path)
    draw, pack = np.random.default_rng(1), {}
    for name in ("odd/a", "ovr/b"):
        clean = draw.normal(size=(100, 2))
        pack[f"{name}/context"] = clean
        pack[f"{name}/context_contaminated"] = np.r_[clean, draw.normal(size=(10, 2)) + 6]
        pack[f"{name}/query"] = np.r_[draw.normal(size=(40, 2)), draw.normal(size=(20, 2)) + 6]
        pack[f"{name}/y"] = (np.arange(60) >= 40).astype(int)
    np.savez("pack.npz", **pack)
    command.main(["calibration", "--pack", "pack.npz", "--out", "c.csv", "--quiet"])
    return tmp_path / "c.csv"


def test_shares_are_of_normal_and_of_anomalous_rows(results):
    rows = read_csv(results)
    assert len(rows) == 2 * 2 * len(calibration.METHODS) * len(calibration.RATES)
    for row in rows:
        # ECOD ranks the queries among themselves too, so many far-off ones hide each other.
        if row["setting"] == "clean" and row["rate"] == "0.1" and row["method"] != "ECOD":
            assert float(row["found"]) == 1.0 and float(row["false_alarms"]) < 0.5


def test_what_is_stored_is_not_measured_again(results, monkeypatch):
    before = results.read_text()
    monkeypatch.setattr(calibration, "pyod", lambda name: pytest.fail(f"{name} ran again"))
    command.main(["calibration", "--pack", "pack.npz", "--out", "c.csv", "--methods", "KNN"])
    assert results.read_text() == before


def test_a_detector_that_fails_is_told_and_the_others_go_on(results, monkeypatch, capsys):
    def fails(*_):
        raise ValueError("this table is odd")

    monkeypatch.setattr(calibration, "pyod", lambda name: fails)
    words = ["--methods", "KNN", "ours", "--force", "--quiet"]
    command.main(["calibration", "--pack", "pack.npz", "--out", "c.csv", *words])
    assert "KNN failed: this table is odd" in capsys.readouterr().err
    shares = {row["method"]: row["found"] for row in read_csv(results)}
    assert shares["KNN"] == "" and shares["ours"] != ""


def test_the_page_tells_what_is_stored(results):
    rows = [{**row, "weights": ""} for row in read_csv(results)]
    rows = [{**row, "method": row["method"].replace("ours", "**tabiced**")} for row in rows]
    section = calibration_section(rows)
    tables = [part.splitlines() for part in section.split("\n\n") if part.startswith("|")]
    for value, lines in zip(("false_alarms", "found"), tables, strict=True):
        assert lines[2].startswith("| **tabiced** |") and len(lines) == 2 + len(calibration.METHODS)
        for line in lines[2:]:
            name, *told = (cell.strip() for cell in line.strip("|").split("|"))
            kinds = itertools.product(("clean", "contaminated"), calibration.RATES)
            for cell, (setting, rate) in zip(told, kinds, strict=True):
                kind = (name, setting, str(rate))
                mine = [r for r in rows if (r["method"], r["setting"], r["rate"]) == kind]
                shares = [100 * float(row[value]) for row in mine]
                expected = f"{np.mean(shares):.2f}"
                if value == "false_alarms":
                    expected += f" ({max(shares):.0f})"
                assert cell == expected
    assert "2 tables" in section and "1, 5 or 10 percent" in section


def test_the_readme_tells_what_is_stored():
    root = Path(__file__).parent.parent
    told = re.search(
        r"the (\d+) real tables of the development pack, with clean reference rows and asked for "
        r"5 % of false alarms, it gives ([\d.]+) % and finds (\d+) % of the anomalies; the best of "
        r"six detectors of PyOD finds (\d+) %. With anomalies among the reference rows it is "
        r"(\d+) % against (\d+) %",
        " ".join((root / "README.md").read_text().split()),
    )
    assert told is not None and len(calibration.DETECTORS) == 6
    rows = [
        {**row, "weights": ""}
        for row in read_csv(root / "benchmarks" / "results" / "calibration.csv")
        if row["weights"] in ("", version())
    ]
    alarms, found = calibration_means(rows), calibration_means(rows, "found")

    def both(setting):
        best = max(found[name][f"{setting} 0.05"] for name in calibration.DETECTORS)
        return f"{found['ours'][f'{setting} 0.05']:.0f}", f"{best:.0f}"

    tables = len({(row["bench"], row["dataset"]) for row in rows})
    rate = f"{alarms['ours']['clean 0.05']:.1f}"
    assert told.groups() == (f"{tables}", rate, *both("clean"), *both("contaminated"))


def test_what_a_run_prints(results):
    text = "\n".join(calibration_lines(read_csv(results)))
    assert "contaminated 0.05" in text and "IForest" in text
