"""Tables on disk: batches, samples and rows of files that need not fit into memory."""

from __future__ import annotations

import csv
import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tabiced import ICED
from tabiced.atomic import whole_file
from tabiced.cli import app
from tabiced.files import TableFile, TableFileError, load_table, save_table
from tabiced.ranking import Ranking
from tabiced.text_files import MISSING
from tabiced.weights import save_network
from tests_support import random_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files")
    g = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "row": g.permutation(500),  # a name that the program uses, too
            "x": g.normal(size=500).round(3),
            "t": g.choice(["a", "b", None], 500).tolist(),
        }
    )
    for ending in (".csv", ".tsv", ".parquet", ".arrow"):
        save_table(frame, path / f"table{ending}")
    save_network(random_network(), path / "tiny.json")
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".arrow"])
def test_batches_samples_and_rows_are_parts_of_the_table(folder: Path, ending: str):
    table = TableFile(folder / f"table{ending}")
    whole = table.collect()
    assert table.height == 500
    batches = list(table.batches(64))
    assert max(batch.height for batch in batches) <= 64
    assert pl.concat(batches).equals(whole)
    assert table.rows([499, 3, 3, 0]).equals(whole[[499, 3, 3, 0]])
    sample = table.sample(50)
    assert sample.height == 50
    assert sample["row"].n_unique() == 50
    assert sample.equals(table.sample(50))
    assert table.sample(500).equals(whole)


def test_scores_in_batches_are_the_scores_of_the_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    source = folder / "table.csv"
    table = TableFile(source)
    monkeypatch.setattr(TableFile.batches, "__defaults__", (100,))
    done: list[int] = []
    card = folder / "tiny.json"
    ranking = Ranking(table, weights=card, context_rows=80, report=done.append)
    model = ICED(weights=card, max_context_rows=80).fit(table.collect())
    np.testing.assert_array_equal(ranking.energy, model.score_samples(table.collect()))
    np.testing.assert_array_equal(ranking.p_value, model.p_values(table.collect()))
    assert done == [100, 200, 300, 400, 500]


def test_a_long_reference_is_sampled(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tabiced.ranking.REFERENCE_ROWS", 60)
    table = TableFile(folder / "table.parquet")
    ranking = Ranking(table, weights=folder / "tiny.json")
    model = ICED(weights=folder / "tiny.json").fit(table.sample(60))
    np.testing.assert_array_equal(ranking.energy, model.score_samples(table.collect()))


def test_messages_say_where_a_later_batch_begins(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frame = load_table(folder / "table.csv")
    save_table(frame, tmp_path / "reference.csv")
    frame[333, "x"] = float("inf")
    save_table(frame, tmp_path / "new.csv")
    monkeypatch.setattr(TableFile.batches, "__defaults__", (100,))
    arguments = ["score", tmp_path / "new.csv", "-r", tmp_path / "reference.csv"]
    arguments += ["--weights", folder / "tiny.json", "--context-rows", 50]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 1
    assert "Counting rows from row 300: Column 'x'" in result.stderr
    assert "row 33" in result.stderr


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells, the header has 2"),
        ('a,b\n"1\n",2\n3,4,5\n', "line 4 has 3 cells"),
        ("a,b,c\n1,2,3\n4,5\n6,7,8\n", "line 3 has 2 cells, the header has 3"),
        ('a,b\n1,"x,y"\n3\n', "line 3 has 1 cells"),  # cut off while it was copied
    ],
)
def test_a_line_with_other_cells_than_the_header_is_named(tmp_path: Path, content: str, word: str):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(TableFileError, match=word):
        load_table(path)


@pytest.mark.parametrize("content", ["a,b\n1,2\n\n3,4\n\n", 'a,b\r\n1,"2,5"\r\n3,4', "a\n1\n\n2\n"])
def test_blank_lines_and_commas_in_quotes_are_no_fault(tmp_path: Path, content: str):
    path = tmp_path / "good.csv"
    path.write_text(content, newline="")
    assert load_table(path).height >= 2


@pytest.mark.parametrize(
    ("ending", "separator", "sign"),
    [
        (".csv", ";", "."),
        (".csv", ";", ","),
        (".csv", "\t", "."),
        (".csv", "|", ","),
        (".tsv", "\t", ","),
    ],
)
def test_text_files_of_other_dialects_are_the_same_table(
    tmp_path: Path, ending: str, separator: str, sign: str
):
    frame = pl.DataFrame({"x": [1.5, -2.25, 3.125], "n": [1, 2, 3], "t": ["a, b", "c", "d"]})
    frame.write_csv(tmp_path / "plain.csv")
    path, bad = tmp_path / f"other{ending}", tmp_path / f"bad{ending}"
    frame.write_csv(path, separator=separator, decimal_comma=sign == ",")
    plain, other = TableFile(tmp_path / "plain.csv"), TableFile(path)
    assert other.collect().equals(plain.collect())
    assert other.rows([2, 0]).equals(plain.rows([2, 0]))
    bad.write_text(path.read_text() + f"1{separator}2\n")
    with pytest.raises(TableFileError, match="line 5 has 2 cells, the header has 3"):
        TableFile(bad)


def test_commas_for_thousands_are_not_taken_for_decimal_commas(tmp_path: Path):
    (tmp_path / "t.csv").write_text("x;y\n1,000;2\n25,000;3\n")
    assert load_table(tmp_path / "t.csv")["x"].to_list() == ["1,000", "25,000"]


def test_semicolons_in_text_do_not_separate(tmp_path: Path):
    (tmp_path / "t.csv").write_text("name,note\nx,a; b; c\ny,d\n")
    assert load_table(tmp_path / "t.csv").shape == (2, 2)


def test_text_that_is_not_utf8_is_told_with_what_to_do(tmp_path: Path):
    (tmp_path / "t.csv").write_bytes("name,x\ncafé,1\n".encode("cp1252"))
    with pytest.raises(TableFileError, match=r"t\.csv: its text is not UTF-8\. Save it as UTF-8"):
        TableFile(tmp_path / "t.csv")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_text_file_in_pieces_is_the_text_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    kinds = ["", "NA", "7", "-3", "1.5", "true", "2024-02-29", "a", 'a "b"', "x\ny", ","]
    cell = st.sampled_from(kinds)
    rows = data.draw(st.lists(st.tuples(cell, cell), min_size=1, max_size=12))
    path = tmp_path_factory.mktemp("pieces") / "table.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("one", "two\nlines"), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tabiced.text_files.PIECE_BYTES", data.draw(st.integers(1, 60)))
        found = load_table(path)
    # Whatever the types, every cell must be there, in its place.
    plain = pl.read_csv(path, infer_schema=False, null_values=MISSING)
    assert found.columns == plain.columns
    assert found.height == plain.height == len(rows)
    for name in plain.columns:
        shown = [None if v is None else str(v) for v in found[name].to_list()]
        pairs = zip(shown, plain[name].to_list(), strict=True)
        assert all(a == b or float(a) == float(b) for a, b in pairs if a is None or a.lower() != b)
        assert found[name].null_count() == plain[name].null_count()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(10**9), 10**9)),
            st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_parquet_and_arrow_keep_every_cell(tmp_path_factory: pytest.TempPathFactory, cells: list):
    folder = tmp_path_factory.mktemp("cells")
    schema = {"n": pl.Int64, "x": pl.Float64, "t": pl.String}
    frame = pl.DataFrame(cells, schema=schema, orient="row")
    for ending in (".parquet", ".arrow"):
        save_table(frame, folder / f"table{ending}")
        assert load_table(folder / f"table{ending}").equals(frame)


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(tmp_path: Path):
    target = tmp_path / "out.csv"
    told = pytest.raises(OSError, match=r"cannot write .*out.csv: No space left")
    with told, whole_file(target) as part:
        part.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_memory_does_not_grow_with_the_table(tmp_path: Path):
    code = (
        "import sys, polars as pl\n"
        "from pathlib import Path\n"
        "from tabiced.files import TableFile\n"
        "table = TableFile(Path(sys.argv[1]))\n"
        "assert table.sample(300).height == 300\n"
        "assert sum(batch.height for batch in table.batches(500)) == table.height\n"
        "table.save_with(pl.DataFrame({'energy': range(table.height)}), Path(sys.argv[2]))\n"
        "status = Path('/proc/self/status').read_text()\n"  # getrusage inherits the parent's peak
        "print(status.partition('VmHWM:')[2].split()[0])"
    )
    peaks, sizes = [], []
    for rows in (6_000, 18_000):
        path, out = tmp_path / f"{rows}.csv", tmp_path / "out.csv"
        frame = pl.DataFrame({"x": range(rows)})
        frame.with_columns(pl.lit("z" * 3000).alias(f"c{j}") for j in range(3)).write_csv(path)
        done = subprocess.run(
            [sys.executable, "-c", code, path, out], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert TableFile(out).height == rows
        peaks.append(int(done.stdout) * 1024)
        sizes.append(path.stat().st_size)
    assert sizes[1] - sizes[0] > 100e6
    assert peaks[1] - peaks[0] < 0.5 * (sizes[1] - sizes[0])
