"""Scoring on a Ray cluster: the same numbers, every row, in order, also when a worker dies."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from tabiced import ICED
from tabiced.cli import app
from tabiced.weights import save_network
from tests_support import random_network

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

import tabiced.ray  # noqa: E402
from tabiced.parquet_parts import cut, read_footers, read_part  # noqa: E402
from tabiced.ray import connect, score_dataset, score_parquet  # noqa: E402

ROWS = 200_000
TOLERANCE = 1e-6  # of energies, which are of the order of 1


class Watched(ICED):
    """An estimator that keeps a diary of its copies in other processes."""

    def write(self, word: str) -> None:
        with (self.diary / str(os.getpid())).open("a") as file:
            file.write(f"{word}\n")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.write("loaded")

    def score_samples(self, X: Any) -> np.ndarray:
        self.write("began")
        energy = super().score_samples(X)
        self.write("ended")
        return energy


def read_diary(folder: Path) -> dict[int, Counter[str]]:
    """Return what each process but this one did, and how often."""
    pages = (page for page in folder.iterdir() if page.name != str(os.getpid()))
    return {int(page.name): Counter(page.read_text().split()) for page in pages}


def table(rows: int, seed: int = 0) -> pl.DataFrame:
    g = np.random.default_rng(seed)
    a = g.normal(size=rows)
    return pl.DataFrame({"id": np.arange(rows), "a": a, "b": 0.8 * a + g.normal(size=rows)})


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two workers, and a CPU for Ray's own tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers have no tests
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    model = Watched(weights=random_network())
    model.diary = tmp_path / "diary"
    model.diary.mkdir()
    return model.fit(table(40, seed=1).drop("id"))


def stop_in_the_middle(diary: Path) -> int:
    """Kill a worker that is scoring, and return its process id."""
    for _ in range(1000):
        for process, did in read_diary(diary).items():
            if did["began"] == did["ended"]:
                continue
            os.kill(process, signal.SIGSTOP)  # it cannot end while we look again
            did = read_diary(diary)[process]
            if did["began"] > did["ended"]:
                os.kill(process, signal.SIGKILL)
                return process
            os.kill(process, signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("no worker was found at work")


@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_loses_no_row_and_changes_no_number(watched: Watched, tmp_path: Path):
    rows, source = table(ROWS), tmp_path / "big"
    source.mkdir()
    for i, start in enumerate(range(0, ROWS, 50_000)):
        rows[start : start + 50_000].write_parquet(
            source / f"{i}.parquet", row_group_size=17_000, compression="uncompressed"
        )
    killed: list[int] = []
    progress: list[int] = []

    def report(done: int, total: int) -> None:
        assert total == ROWS
        progress.append(done)
        if not killed:
            killed.append(stop_in_the_middle(watched.diary))

    out = tmp_path / "out"
    summary = score_parquet(
        source, watched, out, ignore=["id"], concurrency=2, part_rows=10_000, report=report
    )
    assert progress[0] < ROWS / 2  # there was much left to do
    diary = read_diary(watched.diary)
    assert len(diary) == 3  # two workers, and one in the place of the one that was killed
    assert diary[killed[0]]["began"] == diary[killed[0]]["ended"] + 1
    assert all(did["loaded"] == 1 for did in diary.values())  # not once for each batch
    assert sum(did["ended"] for did in diary.values()) >= 20

    assert summary.rows == ROWS
    assert summary.files == len(list(out.iterdir())) == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big", "diary", "out"]
    scored = pl.concat(pl.read_parquet(path) for path in sorted(out.iterdir()))
    assert scored.drop("energy", "p_value").equals(rows)  # every row, in order
    assert summary.unusual[0.05] == (scored["p_value"] <= 0.05).sum() > 0

    sample = np.sort(np.random.default_rng(2).choice(ROWS, 3000, replace=False))
    asked, found = rows[sample].drop("id"), scored[sample]
    np.testing.assert_allclose(found["energy"], watched.score_samples(asked), atol=TOLERANCE)
    np.testing.assert_allclose(found["p_value"], watched.p_values(asked), atol=1e-12)
    assert found["energy"].n_unique() > 2900  # the numbers can tell rows apart


@pytest.mark.usefixtures("cluster")
def test_rows_of_a_dataset_keep_their_keys(watched: Watched, tmp_path: Path):
    rows = table(20_000)
    for i in range(4):
        rows[5000 * i : 5000 * (i + 1)].write_parquet(tmp_path / f"{i}.parquet")
    paths = [str(tmp_path / f"{i}.parquet") for i in range(4)]
    dataset = ray.data.read_parquet(paths).filter(lambda row: row["id"] >= 6000)
    scored = score_dataset(dataset, watched, ignore=["id"], concurrency=2)
    found = pl.from_arrow(pa.concat_tables(ray.get(scored.to_arrow_refs())))
    assert isinstance(found, pl.DataFrame)
    found = found.sort("id")
    assert found.columns == [*rows.columns, "energy", "p_value"]
    assert found.select(rows.columns).equals(rows[6000:])
    expected = watched.score_samples(rows[6000:9000].drop("id"))
    np.testing.assert_allclose(found["energy"][:3000], expected, atol=TOLERANCE)
    expected = watched.p_values(rows[6000:9000].drop("id"))
    np.testing.assert_allclose(found["p_value"][:3000], expected, atol=1e-12)
    assert all(did["loaded"] == 1 for did in read_diary(watched.diary).values())


def mixed(rows: int, seed: int) -> pl.DataFrame:
    g = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "name": [f"row {i}" for i in range(rows)],
            "length": g.normal(size=rows),
            "count": [None if g.random() < 0.1 else int(g.integers(9)) for _ in range(rows)],
            "colour": pl.Series(g.choice(["red", "green"], rows), dtype=pl.Categorical),
            "day": pl.Series(g.integers(0, 9000, rows)).cast(pl.Date),
            "constant": ["same"] * rows,
        }
    )


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, [str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with tables, good and bad, and a tiny network."""
    monkeypatch.chdir(tmp_path)
    save_network(random_network(), tmp_path / "tiny.json")
    frame = mixed(3000, seed=0)
    frame[2500, "constant"] = "other"
    mixed(50, seed=1).drop("name").write_parquet("ref.parquet")
    frame.write_parquet("all.parquet")
    frame[:1800].write_parquet("first.parquet")
    frame[:0].write_parquet("nothing.parquet")
    frame[1800:].write_parquet("second.parquet")
    frame.write_csv("all.csv")
    frame.with_columns(pl.col("length").cast(pl.String)).write_parquet("text.parquet")
    frame.with_columns(energy=pl.lit(0.0)).write_parquet("scored.parquet")
    infinite = pl.when(pl.col("name") == "row 2900").then(float("inf")).otherwise("length")
    frame.with_columns(length=infinite).write_parquet("infinite.parquet")
    Path("cut.parquet").write_bytes(Path("all.parquet").read_bytes()[:-40])
    Path("full").mkdir()
    Path("full/file").write_text("mine")
    return tmp_path


@pytest.mark.usefixtures("cluster", "folder")
def test_the_command_gives_what_it_gives_without_ray():
    options = ["-r", "ref.parquet", "--ignore", "name", "--weights", "tiny.json", "--json"]
    alone = run("score", "all.parquet", *options, "--out", "alone.parquet")
    assert alone.exit_code == 0, alone.output
    files = ["first.parquet", "nothing.parquet", "second.parquet"]
    done = run("score", *files, *options, "--engine", "ray", "--workers", 1, "--out", "together")
    assert done.exit_code == 0, done.output
    assert ray.is_initialized()  # the cluster was there before, and is not the command's to stop
    expected = pl.read_parquet("alone.parquet")
    scored = pl.read_parquet(sorted(Path("together").iterdir()))
    added = ["energy", "p_value"]
    assert scored.drop(added).equals(expected.drop(added))
    np.testing.assert_allclose(scored["energy"], expected["energy"], atol=TOLERANCE)
    np.testing.assert_allclose(scored["p_value"], expected["p_value"], atol=1e-12)
    facts = json.loads(done.stdout)
    assert facts["rows"] == 3000
    assert facts["unusual"]["0.05"] == (expected["p_value"] <= 0.05).sum()
    assert "'other'" in alone.stderr  # what is remarkable in a column that is ignored
    assert "'other'" in done.stderr


RAY = ["--engine", "ray", "--weights", "tiny.json"]
REF, OUT = ["--reference", "ref.parquet", "--ignore", "name"], ["--out", "out"]
WRONG: dict[str, tuple[list[str], str]] = {
    "no reference": (["all.parquet", *RAY, *OUT], "--reference"),
    "no output": (["all.parquet", *RAY, *REF], "--out"),
    "text file": (["all.csv", *RAY, *REF, *OUT], "all.csv"),
    "no such file": (["no.parquet", *RAY, *REF, *OUT], "no.parquet"),
    "folder without tables": (["full", *RAY, *REF, *OUT], "full"),
    "cut short": (["cut.parquet", *RAY, *REF, *OUT], "cut.parquet"),
    "no rows": (["nothing.parquet", *RAY, *REF, *OUT], "no rows"),
    "files that differ": (["first.parquet", "text.parquet", *RAY, *REF, *OUT], "'length'"),
    "columns that differ": (["all.parquet", *RAY, *REF[:2], *OUT], "'name'"),
    "scores already there": (["scored.parquet", *RAY, *REF, *OUT], "energy"),
    "output not empty": (["all.parquet", *RAY, *REF, "--out", "full"], "not empty"),
    "output is a file": (["all.parquet", *RAY, *REF, "--out", "all.csv"], "all.csv"),
    "no such folder": (["all.parquet", *RAY, *REF, "--out", "no/out"], "no folder"),
    "ignored column": (["all.parquet", *RAY, *REF, "--ignore", "nmae", *OUT], "nmae"),
    "a report": (["all.parquet", *RAY, *REF, *OUT, "--report", "a.html"], "--report"),
    "two tables, no Ray": (["first.parquet", "second.parquet"], "--engine ray"),
    "workers, no Ray": (["all.parquet", "--workers", "2"], "--engine ray"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_ends_in_one_line_before_ray_starts(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    arguments, word = WRONG[name]
    monkeypatch.setattr(tabiced.ray, "connect", lambda: pytest.fail("Ray was started"))
    before = sorted(folder.rglob("*"))
    result = run("score", *arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert word in result.stderr
    assert sorted(folder.rglob("*")) == before


def test_what_a_worker_finds_wrong_ends_in_one_line_too(folder: Path):
    before = sorted(folder.rglob("*"))
    command = [sys.executable, "-m", "tabiced", "score", "infinite.parquet", *RAY, *REF, *OUT]
    done = subprocess.run([*command, "--workers", "1"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    *notes, last = done.stderr.splitlines()
    assert all(note.startswith("note: ") for note in notes), done.stderr
    assert last.startswith(f"error: {folder / 'infinite.parquet'}, counting from row 2048: ")
    assert "'length'" in last
    assert "row 852" in last  # 2900 - 2048
    assert sorted(folder.rglob("*")) == before


def test_without_the_extra_the_command_names_it(folder: Path):
    code = "import sys; sys.modules['ray'] = None; from tabiced.__main__ import main; main()"
    command = [sys.executable, "-c", code, "score", "all.parquet", *RAY, *REF, *OUT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 1
    assert done.stderr == (
        "error: this needs 'ray', which is not installed: pip install 'tabiced[ray]'\n"
    )


def test_ray_is_started_without_statistics_and_only_once(monkeypatch: pytest.MonkeyPatch):
    started: list[str | None] = []
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
    monkeypatch.setattr(
        ray, "init", lambda **_: started.append(os.environ["RAY_USAGE_STATS_ENABLED"])
    )
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert connect()
    assert started == ["0"]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert not connect()
    assert started == ["0"]


@pytest.mark.parametrize("size", [1, 7, 10, 64, 1000])
@pytest.mark.parametrize("group", [3, 10, 100])
def test_parts_put_together_are_the_files(size: int, group: int, tmp_path: Path):
    rows = mixed(100, seed=3)
    paths = [tmp_path / name for name in ("b.parquet", "empty.parquet", "a.parquet")]
    for path, piece in zip(paths, (rows[:37], rows[:0], rows[37:]), strict=True):
        pq.write_table(piece.to_arrow(), path, row_group_size=group)
    parts = cut(read_footers(paths)[0], size)
    assert [part.number for part in parts] == list(range(len(parts)))
    assert max(part.rows for part in parts) <= size
    whole = pa.concat_tables(read_part(part) for part in parts)
    assert whole.to_pylist() == rows.to_arrow().to_pylist()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"cpus_per_worker": 0}, "CPU"),
        ({"gpus_per_worker": -1}, "GPU"),
    ],
    ids=str,
)
def test_impossible_workers_are_refused(options: dict[str, int], word: str, tmp_path: Path):
    with pytest.raises(ValueError, match=word):
        score_parquet(tmp_path, table(9), tmp_path / "out", **options)
