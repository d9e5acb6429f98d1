"""How real tables become tasks (pretraining/collect.py), on tables made here."""

import bz2
import gzip
import lzma
import sys
import zlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tests_support import pretraining_script

collect = pretraining_script("collect")
Known = pretraining_script("known").Known


@pytest.fixture
def frame():
    draw = np.random.default_rng(0)
    kind = draw.choice(["common", "rare"], 900, p=[0.85, 0.15])
    size = draw.normal(size=900) + 2.5 * (kind == "rare")
    return pd.DataFrame(
        {
            "row": np.arange(900),
            "kind": kind,
            "size": size,
            "other": draw.normal(size=900),
            "count": draw.poisson(3, 900),
            "weight": 2 * size + 0.3 * draw.normal(size=900),
            "day": pd.date_range("2020-01-01", periods=900),
            "text": [f"number {i}" for i in range(900)],
            "gone": np.where(np.arange(900) % 5, 1.0, np.nan),
        }
    )


def test_columns_that_tell_nothing_are_left_out(frame):
    table = collect.read(frame)
    assert list(table) == ["kind", "size", "other", "count", "weight"]
    np.testing.assert_array_equal(table["kind"], frame["kind"] == "rare")
    np.testing.assert_array_equal(table["size"], frame["size"])


def test_a_class_is_normal_or_all_but_a_tail():
    def split(rule, label):
        cells = np.c_[np.arange(len(label)), label]
        return [set(part[:, 0].astype(int).tolist()) for part in rule.split(cells)]

    label = np.array([1.0, 1, 1, 2, 2, 3, np.nan])
    most, second = collect.rules(1, label)
    assert split(most, label) == [{0, 1, 2}, {3, 4, 5}]
    assert split(second, label) == [{3, 4}, {0, 1, 2, 5}]
    measured = np.random.default_rng(0).permutation(1000.0 * np.arange(500))
    (low, high), (upper, lower) = (
        [measured[list(part)] for part in split(rule, measured)]
        for rule in collect.rules(1, measured)
    )
    assert [len(part) for part in (low, high, upper, lower)] == [400, 50, 400, 50]
    assert low.max() < high.min() and lower.max() < upper.min()
    assert not list(collect.rules(0, np.repeat(np.arange(20.0), 5)))  # neither few nor many


def test_columns_are_known_in_any_unit():
    draw = np.random.default_rng(0)
    column = draw.integers(0, 60, 500).astype(float)
    known = collect.signatures(column)[0]
    assert known in collect.signatures(draw.permutation(column) / 7 + 3)
    assert known in collect.signatures(-column)
    assert known not in collect.signatures(draw.integers(0, 60, 500).astype(float))
    assert collect.signatures(draw.integers(0, 5, 500).astype(float)) == []


def test_tasks_hide_their_label_and_can_be_solved(frame):
    table = collect.read(frame)
    cells, found = collect.tasks("name", table)
    again = collect.tasks("name", table)
    np.testing.assert_array_equal(cells, again[0])
    assert found == again[1] and 1 <= len(found) <= collect.TASKS
    whole = collect.coarse(np.stack(list(table.values()), 1))
    assert sorted(cells.tolist()) == sorted(whole.tolist())
    assert not np.array_equal(cells, whole)  # in another order
    for rule in found:
        normal, anomalies = rule.split(cells)
        assert normal.shape[1] == anomalies.shape[1] == 4  # all but the label
        assert len(normal) >= collect.LEAST_NORMAL
        assert len(anomalies) >= collect.LEAST_ANOMALIES
        assert collect.is_fair(normal, anomalies)


def test_long_tables_are_judged_by_some_of_the_rows_that_are_kept(frame, monkeypatch):
    table = collect.read(frame)
    judged, kept = len(frame) // 2, len(frame) - 10
    monkeypatch.setattr(collect, "JUDGED_ROWS", judged)
    monkeypatch.setattr(collect, "KEPT_ROWS", judged)
    first, expected = collect.tasks("name", table)
    monkeypatch.setattr(collect, "KEPT_ROWS", kept)
    cells, found = collect.tasks("name", table)
    assert (len(first), len(cells)) == (judged, kept) and found == expected != []
    np.testing.assert_array_equal(cells[:judged], first)


def test_tasks_that_nobody_or_everybody_can_solve_are_unfair():
    draw = np.random.default_rng(0)
    normal = draw.normal(size=(300, 4))
    assert not collect.is_fair(normal, draw.normal(size=(60, 4)))
    assert not collect.is_fair(normal, draw.normal(size=(60, 4)) + 20)
    assert collect.is_fair(normal, draw.normal(size=(60, 4)) + np.array([1.5, 0, 0, 0]))


def test_tables_of_the_benchmarks_are_left_out(frame, monkeypatch, tmp_path):
    twin, third = frame.assign(other=frame["count"]), frame.sample(frac=0.9, random_state=0)
    third = third.assign(size=third["size"].round(1), weight=third["weight"].round(1))
    tables = [("a", frame), ("again", twin), ("b", third), ("short", frame[:150])]
    monkeypatch.setattr(collect, "frames", lambda *_: iter(tables))
    assert list(collect.collect(Known([]))) == ["a", "b"]
    np.savez(tmp_path / "1_known.npz", X=-3 * third[["size"]].to_numpy(), y=np.zeros(len(third)))
    assert list(collect.collect(Known([tmp_path]))) == ["a"]
    for name in ("Glass", "page-blocks0", "wine", "spam7", "yeast4"):
        assert collect.EXCLUDED.search(name)
    assert not collect.EXCLUDED.search("winequality-red-4")
    for name in ("r-VIM-bcancer", "pypi-teradataml-creditcard_data", "common-winequality_white"):
        assert collect.LEFT_OUT.search(name)
    assert not collect.LEFT_OUT.search("r-VIM-colic")


def test_samples_of_known_tables_are_known_and_tables_of_the_same_kind_are_not(tmp_path):
    draw = np.random.default_rng(0)
    place = draw.uniform(0, 360, (5000, 1)).round()
    height = (2000 + 400 * draw.gamma(3, 1, (5000, 3)) + place).round()
    known = np.c_[place, height, draw.normal(size=(5000, 1))]
    np.savez(tmp_path / "1_hills.npz", X=known, y=np.zeros(5000))
    np.savez(tmp_path / "pack.npz", **{"odd/hills/context": known[:800], "odd/hills/y": [0]})
    some = known[draw.permutation(800)[:600]]
    parts = {str(i): column for i, column in enumerate(some.T[[2, 0, 3]])}
    noise = {f"noise {i}": draw.normal(size=600) for i in range(4)}
    other = {"angle": draw.uniform(0, 360, 600).round(), **noise}
    for path in (tmp_path, tmp_path / "pack.npz"):
        assert Known([path]).has({**parts, **noise})
        assert not Known([path]).has(other)
    assert not Known([]).has(parts)


def test_tables_of_which_a_benchmark_has_one_class_are_known(tmp_path):
    draw = np.random.default_rng(0)
    sick = draw.random(600) < 0.35
    cells = (draw.gamma(4, 1, (600, 5)) + 2 * sick[:, None]).round(3)
    kept = ~sick | (draw.random(600) < 0.05)
    np.savez(tmp_path / "1_cells.npz", X=cells[kept], y=sick[kept])
    known = Known([tmp_path])
    assert known.has({str(i): column for i, column in enumerate(cells.T)})
    others = (draw.gamma(4, 1, (600, 5)) + 2 * sick[:, None]).round(3)
    assert not known.has({str(i): column for i, column in enumerate(others.T)})


@pytest.mark.parametrize(
    "name, head, separator",
    [
        ("a.csv", "size;kind", ";"),
        ("a.csv.gz", "size,kind", ","),
        ("a.dat.txt", "size kind", "  "),
        ("a.dat", "@relation x\n@attribute size real\n@data", ", "),
    ],
)
def test_tables_are_read_with_any_separator(tmp_path, name, head, separator):
    rows = [(0.5 * i, "common" if i % 3 else "?") for i in range(60)]
    text = "\n".join([head, *(f"{size}{separator}{kind}" for size, kind in rows)])
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert collect.TABLE_FILE.search(name)
    found = collect.read_file(tmp_path / name)
    np.testing.assert_array_equal(found.iloc[:, 0], [size for size, _ in rows])
    assert found.iloc[:, 1].isna().sum() == 20


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_columnar_files_are_read(tmp_path, frame, kind):
    path = tmp_path / f"a.{kind}"
    assert collect.TABLE_FILE.search(path.name)
    getattr(frame, f"to_{kind}")(path)
    pd.testing.assert_frame_equal(collect.read_file(path), frame)


@pytest.mark.parametrize("kind", ["zlib", "bz2", "lzma"])
def test_databases_of_r_are_read_by_their_index(tmp_path, monkeypatch, kind):
    stored = b"serialized " * 50
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME}]
    packed = {
        "zlib": zlib.compress(stored),
        "bz2": b"2" + bz2.compress(stored),
        "lzma": b"Z" + lzma.compress(stored, lzma.FORMAT_RAW, filters=filters),
    }[kind]
    (tmp_path / "Rdata.rdb").write_bytes(b"before" + len(stored).to_bytes(4, "big") + packed)
    index = {"variables": {"a": [6, 4 + len(packed)]}, "compressed": [1 if kind == "zlib" else 3]}
    reader = SimpleNamespace(
        conversion=SimpleNamespace(convert=lambda parsed: parsed),
        parser=SimpleNamespace(parse_file=lambda path: index),
    )
    monkeypatch.setitem(sys.modules, "rdata", reader)
    assert list(collect.r_objects(tmp_path / "Rdata.rdx")) == [("a", stored)]


def test_numbers_are_rounded_little():
    draw = np.random.default_rng(0)
    cells = draw.normal(size=(50, 3)) * np.array([1e-6, 1, 1e20])
    np.testing.assert_allclose(collect.coarse(cells), cells, rtol=2.0**-16)
    whole = np.array([0.0, 1, -7, 2023, 65535])
    np.testing.assert_array_equal(collect.coarse(whole), whole)


def test_tables_of_a_folder_are_read_with_the_heads_of_orange_and_gretl(tmp_path):
    for package in ("debian/gretl", "pypi/a-b"):
        (tmp_path / package).mkdir(parents=True)
    rows = "".join(f"<obs>{i} {i / 2} NA</obs>" for i in range(5))
    variables = "".join(f'<variable name="{name}"/>' for name in "xyz")
    text = f"<gretldata>{variables}<observations>{rows}</observations></gretldata>"
    (tmp_path / "debian/gretl/plain.gdt").write_text(text)
    (tmp_path / "debian/gretl/packed.gdt").write_bytes(gzip.compress(text.encode()))
    head = "size\tkind\nc\td\n\tclass\n"
    (tmp_path / "pypi/a-b/orange.tab").write_text(head + "1.5\tx\n2.5\ty\n")
    (tmp_path / "pypi/a-b/readme.md").write_text("no table")
    found = dict(collect.folder_tables(tmp_path))
    assert list(found) == ["debian-gretl-packed", "debian-gretl-plain", "pypi-a_b-orange"]
    for name in ("debian-gretl-packed", "debian-gretl-plain"):
        assert found[name]["y"].tolist() == [0, 0.5, 1, 1.5, 2] and found[name]["z"].isna().all()
    assert found["pypi-a_b-orange"].to_dict("list") == {"size": [1.5, 2.5], "kind": ["x", "y"]}


def test_records_and_data_of_r_in_a_folder_are_read(tmp_path, monkeypatch, frame):
    (tmp_path / "npm/trees").mkdir(parents=True)
    (tmp_path / "npm/trees/oaks.json").write_text('[{"height": 1.5, "kind": "x"}, {"height": 2}]')
    (tmp_path / "debian/some-r").mkdir(parents=True)
    (tmp_path / "debian/some-r/two.RData").write_bytes(b"serialized")
    reader = SimpleNamespace(
        conversion=SimpleNamespace(convert=lambda parsed: parsed),
        parser=SimpleNamespace(parse_file=lambda path: {"a": frame, "b": np.eye(2), "c": "no"}),
    )
    monkeypatch.setitem(sys.modules, "rdata", reader)
    found = dict(collect.folder_tables(tmp_path))
    assert list(found) == ["debian-some_r-a", "debian-some_r-b", "npm-trees-oaks"]
    pd.testing.assert_frame_equal(found["debian-some_r-a"], frame)
    assert found["npm-trees-oaks"]["height"].tolist() == [1.5, 2]
