"""`tabiced sample` and `tabiced augment`, from files to files."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from tabiced.cli_generate import commands
from tabiced.weights import save_network
from tests_support import random_network


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "tiny.json"
    save_network(random_network(), path)
    return path


def write(path: Path) -> Path:
    draw = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "id": range(40),
            "size": draw.normal(3, 1, 40),
            "count": draw.integers(0, 60, 40),
            "kind": draw.choice(["a", "b"], 40).tolist(),
            "outcome": ["good"] * 25 + ["bad"] * 12 + ["ugly"] * 3,
        }
    )
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    return path


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(commands, [str(a) for a in arguments])


def test_sample_writes_new_rows_of_the_same_columns(tmp_path: Path, card: Path) -> None:
    table, out = write(tmp_path / "t.parquet"), tmp_path / "new.parquet"
    given = ("--rows", 15, "--ignore", "id", "--steps", 3, "--seed", 1, "--weights", card)
    result = run("sample", table, "--out", out, *given)
    assert result.exit_code == 0, result.output
    new, old = pl.read_parquet(out), pl.read_parquet(table).drop("id")
    assert new.schema == old.schema and new.height == 15
    assert "accepted" in result.stdout and "15 new rows" in result.stdout
    run("sample", table, "--out", tmp_path / "again.parquet", *given)
    assert pl.read_parquet(tmp_path / "again.parquet").equals(new)


def test_augment_balances_the_classes(tmp_path: Path, card: Path) -> None:
    table, out = write(tmp_path / "t.csv"), tmp_path / "more.csv"
    given = ("--label", "outcome", "--ignore", "id", "--steps", 3, "--weights", card)
    result = run("augment", table, "--out", out, *given)
    assert result.exit_code == 0, result.output
    more, old = pl.read_csv(out), pl.read_csv(table).drop("id")
    assert more.columns == old.columns and more.head(40).equals(old)
    assert more["outcome"].value_counts()["count"].to_list() == [25, 25, 25]
    assert "outcome = ugly: 22 new rows, its own rows with noise" in result.stdout
    assert "outcome = bad: 13 new rows, drawn" in result.stdout
    result = run("augment", table, "--out", out, "--per-class", 2, "--new-only", *given)
    assert result.exit_code == 0 and pl.read_csv(out).height == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sample", "absent.csv", "--out", "x.csv"), "no such file"),
        (("sample", "t.csv", "--out", "x.xls"), "cannot tell the format"),
        (("sample", "t.csv", "--out", "x.csv", "--ignore", "nothing"), "no column 'nothing'"),
        (("augment", "t.csv", "--out", "x.csv", "--label", "nothing"), "no column 'nothing'"),
        (("augment", "t.csv", "--out", "x.csv", "--label", "size"), "continuous"),
    ],
)
def test_mistakes_end_in_one_line(
    tmp_path: Path, card: Path, arguments: tuple[str, ...], message: str
) -> None:
    write(tmp_path / "t.csv")
    placed = [tmp_path / a if a.endswith((".csv", ".xls")) else a for a in arguments]
    result = run(*placed, "--weights", card)
    assert result.exit_code == 1 and not (tmp_path / "x.csv").exists()
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert result.stderr.count("\n") == 1
