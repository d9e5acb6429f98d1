"""The whole program, from files to files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from tabiced import ICED
from tabiced.atomic import whole_file
from tabiced.cli import app
from tabiced.demo import PENGUINS
from tabiced.explanation import explain_rows
from tabiced.files import TableFileError, load_table, save_table
from tabiced.terminal import flat
from tabiced.weights import save_network
from tests_support import random_network

FORMATS = [".csv", ".tsv", ".parquet", ".arrow", ".feather"]


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, [str(a) for a in arguments])


def succeed(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="session")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny network with random weights: enough to compare the program with the library."""
    path = tmp_path_factory.mktemp("weights") / "tiny.json"
    save_network(random_network(), path, note="random")
    return path


@pytest.fixture
def frame() -> pl.DataFrame:
    g = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "length": g.normal(size=30).round(3),
            "count": g.integers(0, 9, 30),
            "colour": g.choice(["red", "green", None], 30).tolist(),
            "weight": [None if g.random() < 0.2 else round(g.normal(50, 9), 2) for _ in range(30)],
        }
    )


@pytest.fixture
def table(tmp_path: Path, frame: pl.DataFrame) -> Path:
    path = tmp_path / "table.csv"
    frame.write_csv(path)
    return path


@pytest.mark.parametrize("ending", FORMATS)
def test_score_adds_the_scores_of_the_library(
    ending: str, frame: pl.DataFrame, tmp_path: Path, card: Path
):
    source, out = tmp_path / f"table{ending}", tmp_path / f"scored{ending}"
    save_table(frame, source)
    succeed("score", source, "--out", out, "--weights", card)
    scored = load_table(out)
    model = ICED(weights=card).fit(frame)
    assert scored.columns == [*frame.columns, "energy", "p_value"]
    assert scored.select(frame.columns).equals(frame)
    np.testing.assert_allclose(scored["energy"], model.score_samples(frame), rtol=1e-12)
    np.testing.assert_allclose(scored["p_value"], model.p_values(frame), rtol=1e-12)


def test_score_against_a_reference(frame: pl.DataFrame, tmp_path: Path, card: Path):
    save_table(frame[:20], tmp_path / "reference.parquet")
    save_table(frame[20:], tmp_path / "new.csv")
    out = tmp_path / "scored.csv"
    arguments = ["score", tmp_path / "new.csv", "--reference", tmp_path / "reference.parquet"]
    succeed(*arguments, "--out", out, "--weights", card)
    model = ICED(weights=card).fit(frame[:20])
    np.testing.assert_allclose(
        load_table(out)["energy"], model.score_samples(frame[20:]), rtol=1e-12
    )
    np.testing.assert_allclose(load_table(out)["p_value"], model.p_values(frame[20:]), rtol=1e-12)


def test_score_ignores_columns_but_keeps_them_in_the_output(
    frame: pl.DataFrame, tmp_path: Path, card: Path
):
    named = frame.with_columns(pl.Series("id", [f"row-{i}" for i in range(30)]))
    save_table(named, tmp_path / "named.csv")
    out = tmp_path / "out.csv"
    succeed("score", tmp_path / "named.csv", "--ignore", "id", "--out", out, "--weights", card)
    scored = load_table(out)
    assert scored["id"].to_list() == named["id"].to_list()
    expected = ICED(weights=card).fit(frame).score_samples(frame)
    np.testing.assert_allclose(scored["energy"], expected, rtol=1e-12)


def test_score_prints_the_most_unusual_rows_first(table: Path, frame: pl.DataFrame, card: Path):
    printed = succeed("score", table, "--top", 4, "--weights", card)
    order = np.argsort(ICED(weights=card).fit(frame).score_samples(frame), kind="stable")
    rows = [line.split()[0] for line in printed.splitlines()[1:5]]
    assert rows == [str(i) for i in order[:4]]
    assert "of 30 rows have p <= 0.05" in printed


def test_score_speaks_strict_json(table: Path, frame: pl.DataFrame, card: Path):
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    printed = succeed("score", table, "--json", "--top", 30, "--weights", card)
    answer = json.loads(printed, parse_constant=refuse)
    energies = [row["energy"] for row in answer["unusual"]]
    assert answer["rows"] == len(energies) == 30
    assert energies == sorted(energies)
    for row in answer["unusual"]:
        assert row["cells"] == frame.row(row["row"], named=True)
        assert list(row["surprise"].values()) == sorted(row["surprise"].values(), reverse=True)


def test_explain_gives_the_numbers_of_the_library(
    table: Path, frame: pl.DataFrame, tmp_path: Path, card: Path
):
    out = tmp_path / "surprise.parquet"
    printed = succeed("explain", table, "--row", 7, "--row", 2, "--out", out, "--weights", card)
    surprise = load_table(out)
    expected = explain_rows(ICED(weights=card).fit(frame), frame[[7, 2]])
    assert surprise["row"].to_list() == [7, 2]
    np.testing.assert_allclose(
        surprise.select(frame.columns).to_numpy(), expected.to_numpy(), rtol=1e-9, atol=1e-9
    )
    assert printed.index("row 7:") < printed.index("row 2:")
    assert all(printed.count(name) == 2 for name in frame.columns)


def test_explain_takes_the_most_unusual_rows_by_default(table: Path, card: Path):
    explained = json.loads(succeed("explain", table, "--top", 2, "--json", "--weights", card))
    ranked = json.loads(succeed("score", table, "--top", 2, "--json", "--weights", card))
    assert explained["explained"] == ranked["unusual"]


def test_facts_are_told_one_by_one():
    nested = {"a": [{"b": 1}, {"b": {"c": 2}}], "d": [3, 4], "e": {"f": []}}
    assert dict(flat(nested)) == {"a.1.b": 1, "a.2.b.c": 2, "d": [3, 4], "e.f": []}


def test_info_tells_versions_and_the_card(card: Path):
    facts = json.loads(succeed("info", "--json", "--weights", card))
    assert facts["card"]["note"] == "random"
    assert facts["card"]["sha256"]
    printed = succeed("info", "--weights", card)
    assert f"tabiced  {facts['tabiced']}" in printed
    assert "card.note  random" in printed


def test_demo_lists_eight_penguins_and_draws(tmp_path: Path, card: Path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "energy.png"
    printed = succeed("demo", "--weights", card, "--picture", picture)
    lines = printed.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("row"))
    rows = [int(line.split()[0]) for line in lines[start + 1 : start + 9]]
    assert len(set(rows)) == 8
    assert all(0 <= row < 344 for row in rows)
    assert "tabiced score" in printed  # what to do next
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["energy.png"]


def test_shipped_weights_find_a_planted_row_and_its_column(tmp_path: Path):
    g = np.random.default_rng(1)
    x = g.normal(size=60)
    frame = pl.DataFrame({"a": x, "b": 2 * x + 0.1 * g.normal(size=60), "c": g.normal(size=60)})
    frame[40, "c"] = 9.0  # far outside its column
    save_table(frame, tmp_path / "planted.csv")
    printed = succeed("score", tmp_path / "planted.csv", "--json", "--top", 1)
    (found,) = json.loads(printed)["unusual"]
    assert found["row"] == 40
    assert next(iter(found["surprise"])) == "c"


def test_cells_that_look_like_markup_are_shown_as_they_are(
    frame: pl.DataFrame, tmp_path: Path, card: Path
):
    odd = frame.select("length", pl.lit("[/red]").alias("[/bold]"))
    odd[3, "[/bold]"] = "[green]"
    save_table(odd, tmp_path / "odd.csv")
    printed = succeed("explain", tmp_path / "odd.csv", "--row", 3, "--weights", card)
    assert "[/bold]" in printed
    assert "[green]" in printed
    succeed("score", tmp_path / "odd.csv", "--top", 30, "--weights", card)


def test_a_category_new_to_the_reference_is_judged(frame: pl.DataFrame, tmp_path: Path, card: Path):
    save_table(frame, tmp_path / "reference.csv")
    save_table(frame[:3].with_columns(colour=pl.lit("violet")), tmp_path / "new.csv")
    arguments = [
        tmp_path / "new.csv",
        "-r",
        tmp_path / "reference.csv",
        "--json",
        "--weights",
        card,
    ]
    assert len(json.loads(succeed("score", *arguments))["unusual"]) == 3


# Arguments that must fail, run in the folder that `prepare` fills, and a word of the message.
OUT = ["--out", "out.csv", "--weights", "tiny.json"]
BAD_INPUTS: dict[str, tuple[list[str], str]] = {
    "missing file": (["score", "no.csv", *OUT], "no such file"),
    "missing reference": (["score", "good.csv", "-r", "no.csv", *OUT], "no such file"),
    "empty file": (["score", "empty.csv", *OUT], "empty"),
    "header alone": (["score", "header.csv", *OUT], "no rows"),
    "folder": (["score", "folder.csv", *OUT], "not a file"),
    "unknown format": (["score", "table.xls", *OUT], ".parquet"),
    "ragged lines": (["score", "ragged.csv", *OUT], "ragged.csv"),
    "not text": (["score", "binary.csv", *OUT], "binary.csv"),
    "cut short": (["score", "cut.parquet", *OUT], "cut.parquet"),
    "not arrow": (["score", "not.arrow", *OUT], "not.arrow"),
    "other columns": (["score", "other.csv", "-r", "good.csv", *OUT], "length"),
    "text for numbers": (["score", "text.csv", "-r", "good.csv", *OUT], "length"),
    "infinite value": (["score", "infinite.csv", *OUT], "length"),
    "one row": (["score", "single.csv", *OUT], "minimum of 2"),
    "nested cells": (["score", "nested.parquet", *OUT], "length"),
    "scores already there": (["score", "scored.csv", *OUT], "energy"),
    "ignored column": (["score", "good.csv", "--ignore", "lenght", *OUT], "lenght"),
    "no column left": (["score", "one.csv", "--ignore", "a", *OUT], "column"),
    "row beyond the end": (["explain", "good.csv", "--row", "30", *OUT], "no row 30"),
    "unknown output format": (["score", "good.csv", "--out", "out.doc"], ".parquet"),
    "no such folder": (["score", "good.csv", "--out", "no/out.csv"], "no folder"),
    "output is a folder": (["score", "good.csv", "--out", "folder.csv"], "folder"),
    "no weights": (["score", "good.csv", "--weights", "no.json"], "no.json"),
    "damaged weights": (["score", "good.csv", "--weights", "damaged.json"], "SHA-256"),
    "weights that are a table": (["info", "--weights", "good.csv"], "good.csv"),
    "weights that are a folder": (["info", "--weights", "folder.csv"], "folder.csv"),
    "picture of no kind": (["demo", "--picture", "a.doc"], "a.doc"),
    "gallery of no kind": (["prior", "show", "--out", "a.doc"], "a.doc"),
    "pretrain from nothing": (["pretrain", "--run", "run", "--init", "no.json"], "no.json"),
}


def prepare(folder: Path, frame: pl.DataFrame) -> None:
    frames = {
        "good.csv": frame,
        "other.csv": frame.rename({"length": "width"}),
        "infinite.csv": frame.with_columns(length=pl.lit(float("inf"))),
        "single.csv": frame[:1],
        "nested.parquet": frame.with_columns(length=pl.concat_list("length")),
        "text.csv": frame.with_columns(length=pl.lit("tall")),
        "scored.csv": frame.with_columns(energy=pl.lit(0.0)),
    }
    for name, bad in frames.items():
        save_table(bad, folder / name)
    files = {
        "empty.csv": b"",
        "header.csv": b"a,b\n",
        "table.xls": b"x",
        "ragged.csv": b"a,b\n1,2\n3,4,5\n6,7\n",
        "binary.csv": bytes(range(256)) * 9,
        "cut.parquet": (folder / "nested.parquet").read_bytes()[:-40],
        "not.arrow": b"a,b\n1,2\n",
        "one.csv": b"a\n1\n2\n",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "folder.csv").mkdir()
    save_network(random_network(), folder / "tiny.json")
    save_network(random_network(), folder / "damaged.json")
    weights = folder / "damaged-1.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_ends_in_one_line_and_leaves_nothing_behind(
    name: str, frame: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    arguments, word = BAD_INPUTS[name]
    prepare(tmp_path, frame)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert word in last
    assert all(line.startswith(("note: ", "error: ")) for line in result.stderr.splitlines())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["score"],
        ["score", PENGUINS, "--top", "0"],
        ["score", PENGUINS, "--nonsense"],
        ["explain", PENGUINS, "--row", "-1"],
        ["nonsense"],
        ["pretrain"],
        ["bench"],
    ],
    ids=str,
)
def test_wrong_usage_ends_in_2(arguments: list[object]):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_bad_file_ends_the_process_without_a_traceback_before_torch_is_loaded(tmp_path: Path):
    # A module that is None cannot be imported.
    code = (
        "import sys; sys.modules['torch'] = None; from tabiced.__main__ import main; "
        f"sys.argv = ['tabiced', 'score', {str(tmp_path / 'no.csv')!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"error: no such file: {tmp_path / 'no.csv'}\n"


def test_help_has_examples_and_does_not_wait_for_torch():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from tabiced.cli import app\n"
        "for name in ('score', 'explain'):\n"
        "    result = CliRunner().invoke(app, [name, '--help'])\n"
        "    assert result.exit_code == 0 and f'tabiced {name} patients.csv' in result.output\n"
        "assert 'torch' not in sys.modules and 'polars' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("command", ["pretrain", "bench"])
def test_other_programs_get_their_own_arguments(command: str, capsys: pytest.CaptureFixture[str]):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "usage:" in result.output + capsys.readouterr().out


def test_prior_show_draws(tmp_path: Path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "prior.png"
    succeed("prior", "show", "--seed", 3, "--out", out)
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("ending", FORMATS)
def test_tables_survive_a_round_trip(ending: str, frame: pl.DataFrame, tmp_path: Path):
    save_table(frame, tmp_path / f"table{ending}")
    assert load_table(tmp_path / f"table{ending}").equals(frame)


def test_text_files_spell_missing_in_many_ways_and_have_dates(tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_text(
        "a,b,day\n1,x,2024-02-29\nNA,NA,NA\n,N/A,2024-03-01\nnan,null,\n3,y,2024-03-02\n"
    )
    frame = load_table(path)
    assert frame["a"].to_list() == [1, None, None, None, 3]
    assert frame["b"].to_list() == ["x", None, None, None, "y"]
    assert frame["day"].dtype == pl.Date
    assert frame["day"].null_count() == 2


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, frame: pl.DataFrame):
    path = tmp_path / "out.csv"
    save_table(frame, path)
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="half way"), whole_file(path) as part:
        part.write_text("half a ta")
        raise RuntimeError("half way")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    with pytest.raises(TableFileError, match="cannot write"):  # CSV has no lists
        save_table(frame.with_columns(pl.concat_list("length")), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path, table: Path, card: Path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    result = run("score", table, "--out", locked / "out.csv", "--weights", card)
    assert result.exit_code == 1
    assert "permission" in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m tabiced info | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("tabiced") and done.stderr == ""
