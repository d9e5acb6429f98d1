"""Choosing what a score is made of (pretraining/shares.py)."""

import numpy as np
import pytest

from tabiced.bench.metrics import auroc
from tabiced.bench.tasks import Data
from tabiced.collection import Rule, write_collection
from tabiced.labelled import normal_queries
from tabiced.scoring import Scoring
from tabiced.weights import load_network
from tests_support import pretraining_script

shares = pretraining_script("shares")
NAMES = list(Scoring().shares)


def parts(table, setting, seed):
    draw = np.random.default_rng(seed)
    values = {name: draw.normal(size=50) for name in NAMES}
    return shares.Parts(table, setting, values, draw.normal(size=50), draw.random(50) < 0.3)


def test_the_shipped_card_is_tried_first_and_shares_add_up():
    tried = shares.mixtures(40)
    assert len(tried) == 40
    assert tried[0] == load_network(None).scoring
    assert all(sum(s.shares.values()) == pytest.approx(1) for s in tried)
    assert len({s.sharpness for s in tried}) == 4
    assert {s.rows for s in tried} == {tried[0].rows}


def test_every_table_counts_once():
    found = [parts("a", s, 2 * i + j) for i in range(2) for j, s in enumerate(shares.SETTINGS)]
    found += [parts("b", s, 9 + j) for j, s in enumerate(shares.SETTINGS)]
    tried = shares.mixtures(3)
    by = shares.measure(found, tried, jobs=1)
    clean = [p for p in found if p.setting == "clean"]
    for place, scoring in enumerate(tried):
        each = [p.auroc(scoring) for p in clean]
        told = [np.mean(each[:2]), each[2]]
        np.testing.assert_allclose(by["clean"][:, place], told)
    only = Scoring().with_shares({"tails": 1.0})
    task = found[0]
    assert task.auroc(only) == pytest.approx(100 * auroc(task.anomalous, task.parts["tails"]))


def test_parts_are_stored_once_and_found_again(tmp_path):
    draw = np.random.default_rng(0)
    X, query = draw.normal(size=(80, 3)), draw.normal(size=(20, 3)) * 2
    data = Data(X, query, np.arange(20) >= 15)
    before = load_network(None).scoring
    shares.store(tmp_path, "pack/table#1", "clean", data, None)
    assert load_network(None).scoring == before  # which others use, too
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    shares.store(tmp_path, "pack/table#1", "clean", data, None)
    assert path.read_bytes() == content
    (found,) = shares.stored(tmp_path)
    assert (found.table, found.setting) == ("pack~table", "clean")
    assert sorted(found.parts) == sorted(NAMES)
    from tabiced import ICED

    card = load_network(None).scoring
    score = ICED(random_state=0).fit(X).score_samples(query)
    assert found.auroc(card) == pytest.approx(100 * auroc(data.anomalous, score))


def test_tasks_of_a_collection_are_those_of_held_out_tables(tmp_path):
    draw = np.random.default_rng(0)
    tables = {}
    for i in range(40):
        label = np.repeat([0.0, 1.0], [90, 9])
        cells = np.c_[draw.normal(size=(99, 4)) + 5 * label[:, None], label]
        tables[f"t{i}#0"] = cells, [Rule(4, (0.0, 0.0), (0.0, 0.0))]
    write_collection(
        tmp_path / "tables.npz.xz", {name[:-2]: table for name, table in tables.items()}
    )
    found = list(shares.held_out_tasks(tmp_path / "tables.npz.xz"))
    held_out = [name for name in tables if shares.is_held_out(name)]
    assert held_out and [name for name, *_ in found] == [n for n in held_out for _ in range(2)]
    for _, setting, data in found:
        assert data.anomalous.sum() == shares.QUERIES - normal_queries(shares.QUERIES)
        assert (data.query[data.anomalous] > 1).all()
        assert (data.context.min(1) > 2).any() == (setting == "contaminated")
    dirty = [data.context for _, setting, data in found if setting == "contaminated"]
    rates = {float((context.min(1) > 2).mean()) for context in dirty}
    assert len(rates) > 1  # once all had the same, half a percent


def test_tables_are_drawn_up_as_the_protocol_does(tmp_path):
    draw = np.random.default_rng(0)
    label = np.repeat([0.0, 1.0], [400, 60])
    cells = np.c_[draw.normal(size=(460, 4)) + 9 * label[:, None], label]
    rules = [Rule(4, (0.0, 0.0), (0.0, 0.0))]
    write_collection(tmp_path / "tables.npz.xz", {f"t{i}": (cells, rules) for i in range(9)})
    found = list(shares.drawn_up_tasks(tmp_path / "tables.npz.xz"))
    assert len(found) >= 2
    for (name, clean, ours), (same, contaminated, theirs) in zip(
        found[::2], found[1::2], strict=True
    ):
        assert name == same and (clean, contaminated) == shares.SETTINGS
        assert len(ours.context) == len(theirs.context) == 700
        for data in (ours, theirs):
            distinct = len(np.unique(np.r_[data.context, data.query], axis=0))
            assert distinct <= shares.SMALL[1]
            normal = data.query[data.anomalous == 0].mean(1)
            assert normal.max() < data.query[data.anomalous == 1].mean(1).min()
        assert len(np.unique(theirs.query[theirs.anomalous == 1], axis=0)) > 1
        assert (ours.context.max(0) <= 1).all() and (ours.query[ours.anomalous == 1] > 1).any()
        rate = theirs.anomalous.mean()
        assert shares.RATES[0] / 2 < rate < 1.5 * shares.RATES[1]
