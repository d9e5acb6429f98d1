"""Tasks from labelled real tables: every cell can be traced back to its table, row and column."""

import lzma
import random
from collections import Counter

import numpy as np
import pytest
import torch

from tabiced import labelled
from tabiced.collection import (
    KEPT_ANOMALIES,
    KEPT_NORMAL,
    Rule,
    is_held_out,
    read_collection,
    write_collection,
)
from tabiced.labelled import LEAST_NORMAL, MOST_DIRTY, LabelledTables, normal_queries
from tabiced.loss import Labels, LossConfig, marking_loss, typical_loss

COLUMNS, ROWS = 16, 1024  # of the numbering


@pytest.fixture(autouse=True)
def unmoved(monkeypatch):
    """Leave rows as they are, so that they can be traced."""
    for share in ("GATHERED", "REPEATED", "JOINED", "BENT"):
        monkeypatch.setattr(labelled, share, 0.0)


def numbered(table, normal, anomalies, width):
    """Return rows whose cells tell where they come from."""
    row, column = np.arange(normal + anomalies)[:, None], np.arange(width)
    cells = ((table * ROWS + row) * COLUMNS + column).astype(np.float32)
    return cells[:normal], cells[normal:]


SIZES = {"a#0": (80, 25, 5), "a#1": (90, 30, 4), "b": (200, 61, 9), "c": (120, 1, 6)}
TABLES = {name: numbered(i, *size) for i, (name, size) in enumerate(SIZES.items())}


def origin(cells):
    """Return table, row and column of cells."""
    number = cells.long()
    return number // COLUMNS // ROWS, number // COLUMNS % ROWS, number % COLUMNS


def draw(tables=64, rows=40, queries=30, columns=4, seed=0, **more):
    generator = torch.Generator().manual_seed(seed)
    return LabelledTables(TABLES).draw(tables, rows, queries, columns, generator, **more)


@pytest.mark.parametrize("seed", range(5))
def test_tasks_show_rows_of_one_table_in_some_of_its_columns(seed):
    tasks = draw(seed=seed)
    assert tasks.context.shape == (64, 40, 4) and tasks.query.shape == (64, 30, 4)
    table, row, column = origin(torch.cat([tasks.context, tasks.query], 1))
    assert (table == table[:, :1, :1]).all()
    assert (row == row[..., :1]).all()  # cells of a row stay together
    assert (column == column[:, :1]).all()  # and so do those of a column
    assert all(len(set(shown)) == 4 for shown in column[:, 0].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_labels_are_right_and_no_row_is_asked_for_that_the_context_has(seed):
    tasks = draw(seed=seed)
    table, row, _ = origin(tasks.context)
    normal = torch.tensor([size[0] for size in SIZES.values()])[table[:, 0, 0]][:, None]
    context, asked = row[..., 0], origin(tasks.query)[1][..., 0]
    first = normal_queries(30)
    assert first == 22
    assert (asked[:, :first] < normal).all() and (asked[:, first:] >= normal).all()
    outlying = context >= normal
    assert (outlying == tasks.anomalous).all()
    assert (outlying.float().mean(1) <= MOST_DIRTY + 1 / 40).all()
    single = table[:, 0, 0] == 3  # one anomaly cannot be in both
    assert not outlying[single].any()
    for known, queries in zip(context.tolist(), asked.tolist(), strict=True):
        assert not set(known) & set(queries)
    clean = [
        len(set(rows))
        for rows, out in zip(context.tolist(), outlying, strict=True)
        if not out.any()
    ]
    assert clean and set(clean) == {40}  # no normal row twice


def test_contexts_are_clean_or_dirty_on_demand():
    for dirty in (False, True):
        tasks = draw(200, dirty=dirty)
        table, row, _ = origin(tasks.context)
        normal = torch.tensor([size[0] for size in SIZES.values()])[table[..., 0]]
        share = (row[..., 0] >= normal).float().mean(1)[table[:, 0, 0] != 3]
        assert (share > 0).float().mean() > 0.8 if dirty else (share == 0).all()


def test_every_table_counts_once_however_many_tasks_it_has_and_more_the_more_of_it_is_shown():
    table = origin(draw(4000, columns=4).context)[0][:, 0, 0]
    shares = torch.bincount(table, minlength=4) / len(table)
    width = torch.tensor([size[2] for size in SIZES.values()])
    expected = torch.tensor([1, 1, 2, 2]) * (4 / width) ** 4
    torch.testing.assert_close(shares, expected / expected.sum(), atol=0.03, rtol=0)


def test_tables_that_are_wide_enough_count_in_full():
    assert LabelledTables(TABLES).wholeness(6).tolist() == pytest.approx([1, 1, (2 / 3) ** 4, 1])


def test_tasks_of_tables_with_huge_numbers_are_finite(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(labelled, "GATHERED", 1.0)
    draw = np.random.default_rng(0)
    normal, anomalies = draw.normal(size=(300, 4)), draw.normal(1, 1, size=(30, 4))
    huge = LabelledTables({"t": (2e19 * normal, 2e19 * anomalies)})
    drawn = huge.draw(50, 64, 32, 4, torch.Generator().manual_seed(0))
    assert drawn.context.isfinite().all() and drawn.query.isfinite().all()


def test_widths_are_those_of_tables():
    tables, choose = LabelledTables(TABLES), random.Random(0)
    counts = Counter(tables.some_width(choose) for _ in range(3000))
    assert {w: c / 3000 for w, c in counts.items()} == pytest.approx(
        {5: 1 / 6, 4: 1 / 6, 9: 1 / 3, 6: 1 / 3}, abs=0.04
    )


def test_anomalies_may_be_those_alike():
    """Of rows numbered in order, alike are those with near numbers."""
    anomalies = np.random.default_rng(0).permutation(400)[:, None] + np.zeros(3)
    tables = LabelledTables({"t": (np.random.default_rng(1).normal(size=(200, 3)), anomalies)})
    drawn = tables.draw(300, 50, 40, 3, torch.Generator().manual_seed(0)).query[:, -10:, 0]
    reach = drawn.amax(1) - drawn.amin(1)
    assert 0.15 < (reach < 60).float().mean() < 0.45


def test_anomalies_may_be_moved_away_and_together(monkeypatch):
    draw = np.random.default_rng(0)
    normal, anomalies = draw.normal(size=(300, 5)), draw.normal(size=(80, 5))
    whole = draw.integers(0, 9, (380, 1))  # a column of whole numbers stays one
    both = np.concatenate([np.concatenate([normal, anomalies]), whole], 1)
    tables = LabelledTables({"t": (both[:300], both[300:])})

    def drawn(share):
        monkeypatch.setattr(labelled, "GATHERED", share)
        tasks = tables.draw(400, 100, 80, 6, torch.Generator().manual_seed(0))
        found, others = tasks.query[:, 60:], torch.cat([tasks.context, tasks.query[:, :60]], 1)
        return found, others

    (plain, before), (moved, after) = drawn(0.0), drawn(1.0)
    assert torch.equal(before[:, 100:], after[:, 100:])  # normal queries
    changed = (before != after).any(-1)[:, :100].float().mean(1)
    assert (changed < MOST_DIRTY + 0.01).all() and (changed > 0).any()
    away = (moved.mean(1) - plain.mean(1)).abs().amax(-1)
    assert (away > 0.3).float().mean() > 0.85  # in the others, no column was chosen
    assert (moved.std(1).amin(-1) < 0.5 * plain.std(1).amin(-1)).float().mean() > 0.4
    integer = (moved == moved.round()).all(1)
    assert (integer.sum(-1) == 1).all()


def test_only_tables_that_fit_are_drawn():
    table = origin(draw(100, columns=6).context)[0]
    assert set(table.unique().tolist()) == {2, 3}
    assert LabelledTables(TABLES).allows(200 - LEAST_NORMAL, 9).tolist() == [False] * 2 + [
        True,
        False,
    ]
    with pytest.raises(ValueError, match="No table of the collection has 9 columns"):
        draw(rows=200, columns=9)
    with pytest.raises(ValueError, match="at least one table"):
        LabelledTables({})
    with pytest.raises(ValueError, match="short needs 34 normal rows and an anomaly"):
        LabelledTables({"short": numbered(0, 33, 5, 3)})


@pytest.mark.parametrize("least", [1, 2, 3, 4, 9])
def test_shapes_shrink_until_so_many_tables_fit(least):
    tables = LabelledTables(TABLES)
    for rows, columns in ((20, 3), (60, 5), (500, 16), (500, 64)):
        n, d = tables.fitted(rows, columns, least)
        assert n <= rows and d <= columns
        assert tables.allows(n, d).sum() >= min(least, 4)
        if tables.allows(rows, columns).sum() >= min(least, 4):
            assert (n, d) == (rows, columns)


def test_tables_may_be_widened_by_columns_made_of_their_own():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(200, 17)) * 10.0 ** rng.integers(-3, 4, 17) + 5
    tables = LabelledTables({"t": (normal, normal[:40] * 2)})
    assert not tables.allows(100, 21).any()
    tasks = tables.draw(3, 100, 40, 20, torch.Generator().manual_seed(0), dirty=False)
    for rows in torch.cat([tasks.context, tasks.query[:, :30]], 1).double():
        known = {tuple(np.sort(np.abs(row))) for row in normal.astype(np.float32)}
        assert all(tuple(np.sort(np.abs(row[:17].float().numpy()))) in known for row in rows)
        own = torch.cat([rows[:, :17], torch.ones(len(rows), 1)], 1)
        own[:, :17] = (own[:, :17] - own[:, :17].mean(0)) / own[:, :17].std(0)
        for column in rows[:, 17:].T:
            weights = torch.linalg.lstsq(own, column[:, None]).solution[:, 0]
            two = weights[:17].abs().sort(descending=True).values
            assert two[0] > 0.3 and two[2] < 0.2  # of two columns, or one, and noise
            rest = (column - own @ weights).std()
            assert 0 < rest < 0.4


def test_equal_seeds_draw_equal_tasks():
    a, b, c = draw(seed=3), draw(seed=3), draw(seed=4)
    assert torch.equal(a.context, b.context) and torch.equal(a.query, b.query)
    assert not torch.equal(a.context, c.context)


def test_rules_split_tables():
    cells = np.arange(40.0).reshape(10, 4)  # the first column is 0, 4, ... 36
    cells[3, 2] = np.nan
    cells[:, 3] = 7.0
    normal, anomalies = Rule(0, (-np.inf, 20.0), (-np.inf, 28.0)).split(cells)
    np.testing.assert_array_equal(normal, cells[[0, 1, 2, 4, 5], 1:3])  # no gap, no constant
    np.testing.assert_array_equal(anomalies, cells[8:, 1:3])
    normal, anomalies = Rule(0, (8.0, 8.0), (8.0, 8.0)).split(np.repeat(cells[:3], 2, 0))
    assert normal.shape == (2, 0) and len(anomalies) == 4
    cells[0, 0] = np.nan  # belongs to nobody
    normal, anomalies = Rule(0, (16.0, np.inf), (16.0, np.inf)).split(cells)
    assert len(normal) == 6 and len(anomalies) == 2
    long = np.random.default_rng(0).normal(size=(5000, 3))
    normal, anomalies = Rule(2, (-np.inf, 0.0), (-np.inf, 0.0)).split(long)
    assert (len(normal), len(anomalies)) == (KEPT_NORMAL, KEPT_ANOMALIES)


def test_collections_are_read_as_they_were_written(tmp_path):
    path, draw = tmp_path / "tables.npz.xz", np.random.default_rng(0)
    both = [Rule(1, (-np.inf, 0.5), (-np.inf, 1.0)), Rule(0, (-0.25, np.inf), (-0.5, np.inf))]
    tables = {
        "a-b-c": (draw.normal(size=(90, 4)).astype(np.float32), both),
        "d": (draw.integers(0, 3, (70, 6)).astype(np.float32), [Rule(5, (1, 1), (1, 1))]),
    }
    write_collection(path, tables)
    found = read_collection(path)
    assert list(found) == ["a-b-c#0", "a-b-c#1", "d#0"]
    for name, pair in found.items():
        cells, rules = tables[name[:-2]]
        for a, b in zip(pair, rules[int(name[-1])].split(cells), strict=True):
            np.testing.assert_array_equal(a, b)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_rows_may_come_again_among_context_and_queries(monkeypatch):
    monkeypatch.setattr(labelled, "REPEATED", 1.0)
    tasks = draw(200)
    table, row, _ = origin(torch.cat([tasks.context, tasks.query], 1))
    assert (table == table[:, :1, :1]).all() and (row == row[..., :1]).all()
    row, normal = row[..., 0], torch.tensor([s[0] for s in SIZES.values()])[table[:, 0, :1]]
    first = 40 + normal_queries(30)
    assert (row[:, 40:first] < normal).all() and (row[:, first:] >= normal).all()
    known = (row[:, 40:, None] == row[:, None, :40]).any(2).float()
    assert known[:, : first - 40].mean() > 0.2  # normal rows that the context has
    dirty = (row[:, :40] >= normal).any(1)
    assert known[dirty, first - 40 :].mean() > 0.1 and not known[~dirty, first - 40 :].any()
    distinct = torch.tensor([len(set(rows)) for rows in row[:, :40].tolist()])
    assert distinct.min() < 10 and distinct.max() > 20


def test_columns_of_two_tables_may_be_joined(monkeypatch):
    monkeypatch.setattr(labelled, "JOINED", 1.0)
    tasks = draw(200)
    table, row, column = origin(torch.cat([tasks.context, tasks.query], 1))
    assert (table == table[:, :1]).all() and (column == column[:, :1]).all()
    assert (table.amin(2) != table.amax(2)).any(1).float().mean() > 0.3
    normal = torch.tensor([s[0] for s in SIZES.values()])[table]
    first = 40 + normal_queries(30)
    assert (row[:, 40:first] < normal[:, 40:first]).all()
    out = row[:, first:] >= normal[:, first:]
    assert out[..., 0].all()  # anomalies of the first table
    foreign = (table != table[..., :1])[:, first:]
    assert 0.2 < out[foreign].float().mean() < 0.8  # and, of some tables, of the other


def test_columns_may_be_bent_and_turned_over(monkeypatch):
    monkeypatch.setattr(labelled, "BENT", 1.0)
    plain, bent = (draw(100, seed=5) for _ in range(2))
    assert torch.equal(plain.context, bent.context)
    rows = torch.cat([bent.context, bent.query], 1)
    assert rows.isfinite().all()
    as_is = (rows == rows.round()).all(1).float().mean()
    assert 0.2 < as_is < 0.4
    monkeypatch.setattr(labelled, "BENT", 0.0)
    straight = draw(100, seed=5)
    before = torch.cat([straight.context, straight.query], 1)
    order = before.argsort(1)
    steps = rows.gather(1, order).diff(dim=1)
    up, down = (steps >= 0).all(1), (steps <= 0).all(1)
    assert (up | down).all() and 0.5 < up.float().mean() < 0.8


@pytest.mark.parametrize("content", [b"hello", lzma.compress(b"hello"), b""])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "tables.npz.xz"
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"tables\.npz\.xz is no collection of tables"):
        read_collection(path)


def test_tasks_of_one_package_are_held_out_together():
    names = [f"r-package{i}" for i in range(500)]
    held_out = [is_held_out(name) for name in names]
    for more in ("#3", "-table", "-other-table#1"):
        assert held_out == [is_held_out(f"{name}{more}") for name in names]
    assert 0.15 < np.mean(held_out) < 0.25


def test_typical_loss_is_what_it_says():
    g = torch.Generator().manual_seed(0)
    normal, anomalies = torch.randn(3, 11, generator=g), torch.randn(3, 4, generator=g)
    context, labels = torch.randn(3, 6, generator=g), Labels(torch.zeros(3, 6, dtype=torch.bool))
    labels.context[0, :2] = labels.context[1, 4] = True  # the third has no anomalies
    config = LossConfig(typical=3.0, scale=0.25, context=0.5)
    terms = typical_loss(normal, anomalies, context, labels, config)
    pairs = [
        np.log1p(np.exp(float(anomalies[b, k] - normal[b, j])))
        for b in range(3)
        for j in range(11)
        for k in range(4)
    ]
    assert float(terms["typical"]) == pytest.approx(np.mean(pairs), rel=1e-5)

    def huber(x):
        return 0.5 * x**2 if abs(x) < 1 else abs(x) - 0.5

    ends = np.sort(normal.numpy(), 1)[:, [1, 9]]
    scale = np.mean([huber(low + 1) + huber(high - 1) for low, high in ends])
    assert float(terms["scale"]) == pytest.approx(scale, rel=1e-5)
    marking = []
    for energy, outlying in zip(context[:2], labels.context[:2], strict=True):
        gaps = energy[outlying][:, None] - energy[~outlying]
        marking.append(float(gaps.exp().log1p().mean()))
    assert float(terms["marking"]) == pytest.approx(np.mean(marking), rel=1e-5)
    total = 3 * (float(terms["typical"]) + 0.5 * float(terms["marking"])) + 0.25 * scale
    assert float(terms["total"]) == pytest.approx(total, rel=1e-5)


def test_contexts_without_anomalies_have_nothing_to_mark():
    energy = torch.randn(2, 5, requires_grad=True)
    loss = marking_loss(energy, torch.zeros(2, 5, dtype=torch.bool))
    loss.backward()
    assert float(loss.detach()) == 0 and energy.grad is not None and not energy.grad.any()


def test_long_contexts_have_no_copies_of_anomalies_save_in_some_tasks():
    draw = np.random.default_rng(0)
    table = draw.normal(size=(900, 3)), 50 + draw.normal(size=(40, 3))
    tables = LabelledTables({"a": table})
    tasks = tables.draw(200, 800, 40, 3, torch.Generator().manual_seed(0), dirty=True)
    copied = []
    for context, anomalous in zip(tasks.context, tasks.anomalous, strict=True):
        rows = context[anomalous]
        assert (rows > 25).all()
        copied.append(len(rows.unique(dim=0)) < len(rows))
        assert copied[-1] or len(rows) <= 20
    assert 0.05 < np.mean(copied) <= 0.3  # AGAIN, where enough are wanted
