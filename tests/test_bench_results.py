"""Results survive interruption and never silently mix."""

import sys

import pytest

from tabiced.bench.results import Results, number, read_csv, write_section
from tabiced.bench.tasks import side_by_side


def results(path):
    return Results(path, key=("table", "method"), values=("auroc",))


def test_rows_are_on_disk_at_once_and_found_again(tmp_path):
    path = tmp_path / "new folder" / "r.csv"
    first = results(path)
    first.add({"table": 1, "method": "KNN", "auroc": 0.123456789})
    again = results(path)
    assert {"table": 1, "method": "KNN"} in again
    assert {"table": 2, "method": "KNN"} not in again
    assert number(again.rows()[0]["auroc"]) == pytest.approx(0.123456789, rel=1e-6)


def test_a_new_row_replaces_the_old_one(tmp_path):
    store = results(tmp_path / "r.csv")
    for value in (0.1, 0.2):
        store.add({"table": 1, "method": "KNN", "auroc": value})
    assert read_csv(tmp_path / "r.csv") == [{"table": "1", "method": "KNN", "auroc": "0.2"}]


def test_failures_are_stored_as_empty_cells(tmp_path):
    store = results(tmp_path / "r.csv")
    store.add({"table": 1, "method": "KNN", "auroc": float("nan")})
    assert read_csv(tmp_path / "r.csv")[0]["auroc"] == ""
    assert number("") != number("")


def test_sorting_puts_numbers_before_longer_numbers(tmp_path):
    store = results(tmp_path / "r.csv")
    for table in (10, 9, 2):
        store.add({"table": table, "method": "KNN", "auroc": 0.5})
    store.sort()
    assert [row["table"] for row in read_csv(tmp_path / "r.csv")] == ["2", "9", "10"]


def test_two_runs_into_one_file_keep_each_others_rows(tmp_path):
    one, other = results(tmp_path / "r.csv"), results(tmp_path / "r.csv")
    one.add({"table": 1, "method": "KNN", "auroc": 0.1})
    other.add({"table": 2, "method": "KNN", "auroc": 0.2})
    one.sort()
    other.add({"table": 2, "method": "KNN", "auroc": 0.3})
    stored = {row["table"]: row["auroc"] for row in read_csv(tmp_path / "r.csv")}
    assert stored == {"1": "0.1", "2": "0.3"}


def test_processes_side_by_side_share_the_work_and_leave_one_file(tmp_path):
    store = results(tmp_path / "r.csv")
    store.add({"table": 0, "method": "KNN", "auroc": 0.0})

    def work(i, part):
        for table in range(i, 7, 3):
            if {"table": table, "method": "KNN"} not in part:
                part.add({"table": table, "method": "KNN", "auroc": table / 10})

    side_by_side(3, store, work)
    store.sort()
    assert [float(row["auroc"]) for row in read_csv(tmp_path / "r.csv")] == [
        pytest.approx(i / 10) for i in range(7)
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_processes_side_by_side_replace_what_is_stored(tmp_path):
    store = results(tmp_path / "r.csv")
    for table in range(4):
        store.add({"table": table, "method": "KNN", "auroc": 0.1})

    def work(i, part):
        for table in range(i, 4, 2):
            assert {"table": table, "method": "KNN"} in part and len(part.rows()) == 4
            part.add({"table": table, "method": "KNN", "auroc": 0.2})

    side_by_side(2, store, work)
    assert [row["auroc"] for row in read_csv(tmp_path / "r.csv")] == ["0.2"] * 4


def test_a_failed_process_is_reported_and_its_rows_are_kept(tmp_path):
    store = results(tmp_path / "r.csv")

    def work(i, part):
        part.add({"table": i, "method": "KNN", "auroc": 0.5})
        if i:
            sys.exit(1)

    with pytest.raises(RuntimeError, match="resume"):
        side_by_side(2, store, work)
    assert len(read_csv(tmp_path / "r.csv")) == 2


def test_a_file_of_another_benchmark_is_refused(tmp_path):
    (tmp_path / "r.csv").write_text("suite,method,accuracy\na,b,1\n")
    with pytest.raises(ValueError, match="suite, method, accuracy"):
        results(tmp_path / "r.csv")


def test_a_section_of_a_page_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two -->\nkept\n<!-- end -->\n")
    write_section(page, r"new \1", "one")
    told = "a\n<!-- one -->\n\nnew \\1\n\n<!-- end -->\nb\n<!-- two -->\nkept\n<!-- end -->\n"
    assert page.read_text() == told
    with pytest.raises(ValueError, match="needs one section"):
        write_section(page, "new", "three")
    assert page.read_text() == told
