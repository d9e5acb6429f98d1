"""A network of its own scores rows: taught by real tables, kept as a change of the other."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tabiced import ICED
from tabiced.bench.metrics import auroc
from tabiced.bench.ours import bare_network, version
from tabiced.change import GROUP, SMALL, STEPS, apply_change, pack_change
from tabiced.collection import Rule, is_held_out, read_collection, write_collection
from tabiced.evaluation import RealSuite
from tabiced.labelled import LabelledTables, normal_queries
from tabiced.table import read_table
from tabiced.weights import WeightsError, load_network, own_state, read_card, save_network
from test_pretrain import read_log, trainer
from tests_support import mixed_table, pretraining_script, random_network


@pytest.fixture(scope="module")
def network():
    """Return a network with a scorer that is near to it."""
    dense = random_network()
    scorer, other = copy.deepcopy(dense), random_network(seed=1)
    with torch.no_grad():
        for p, q in zip(scorer.parameters(), other.parameters(), strict=True):
            p.lerp_(q, 0.3)
    dense.scorer = scorer
    return dense


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """Return the path of tables whose anomalies lie in the middle, where density is highest."""
    draw = np.random.default_rng(0)
    tables = {}
    for i in range(30):
        normal, anomalies = draw.normal(size=(400, 4)), 0.2 * draw.normal(size=(60, 4))
        normal = normal[np.linalg.norm(normal, axis=1) > 1][:200]
        label = np.repeat([0.0, 1.0], [len(normal), len(anomalies)])
        cells = np.c_[np.r_[normal, anomalies], label]
        tables[f"hollow {i}"] = cells, [Rule(4, (0.0, 0.0), (0.0, 0.0))]
    assert {is_held_out(name) for name in tables} == {False, True}
    path = tmp_path_factory.mktemp("real") / "tables.npz.xz"
    write_collection(path, tables)
    return path


@given(
    st.sampled_from([(64, 128), (100, 41), (5000, 1), (3, 7), (9000,)]),
    st.floats(1e-6, 10),
    st.integers(0, 99),
)
def test_a_change_is_told_to_half_a_step(shape, size, seed):
    draw = torch.Generator().manual_seed(seed)
    old = {"a": torch.randn(shape, generator=draw).half().float()}
    change = size * torch.randn(shape, generator=draw)
    packed = pack_change(old, {"a": old["a"] + change})
    error = (apply_change(old, packed)["a"] - old["a"] - change).abs()
    if len(shape) < 2 or change.numel() < SMALL:
        assert packed["a"].shape == change.shape
        assert (error <= 1e-3 * change.abs() + 1e-6).all()
        return
    groups = torch.nn.functional.pad(change.flatten(), (0, -change.numel() % GROUP))
    most = groups.view(-1, GROUP).abs().amax(1).repeat_interleave(GROUP)[: change.numel()]
    assert (error.flatten() <= 0.52 * most / STEPS + 1e-6).all()
    assert sum(t.nbytes for t in packed.values()) < 0.6 * change.numel()  # of 2 in 16 bits


def test_no_change_is_none():
    old = own_state(random_network())
    new = apply_change(old, pack_change(old, old))
    assert new.keys() == old.keys()
    assert all(torch.equal(new[name], old[name].float()) for name in old)


def test_scores_are_by_the_scorer_and_log_densities_are_not(network):
    draw = np.random.default_rng(0)
    X, query = draw.normal(size=(120, 3)), draw.normal(size=(9, 3))
    model, plain = ICED(weights=network).fit(X), ICED(weights=random_network()).fit(X)
    alone = ICED(weights=network.scorer).fit(X)
    rows = np.r_[query, X[:5]]
    np.testing.assert_allclose(model.score_samples(rows), alone.score_samples(rows), atol=1e-6)
    assert not np.allclose(model.score_samples(rows), plain.score_samples(rows), atol=1e-2)
    np.testing.assert_array_equal(model.log_density(rows), plain.log_density(rows))
    assert not np.allclose(model.log_density(rows), alone.log_density(rows), atol=1e-2)
    judged = alone.reference_.whole.judge(alone.plan_.encode(read_table(query)))
    np.testing.assert_allclose(model.score_samples(query), judged[:, 0], atol=1e-6)


def test_the_bare_network_ranks_by_the_scorer_and_estimates_by_the_other(network):
    rows = mixed_table(rows=80)[1].numpy()
    method, context = bare_network(network), torch.from_numpy(rows[None, :60]).float()
    query = torch.from_numpy(rows[None, 60:]).float()
    by = {n: n.energy(n.read(context), query)[0].numpy() for n in (network, network.scorer)}
    np.testing.assert_allclose(method.score(rows[:60], rows[60:], 0), by[network.scorer], atol=1e-5)
    nats = method.log_density(rows[:60], rows[60:], 0)
    assert np.corrcoef(nats, by[network])[0, 1] > 0.9999


def test_the_scorer_is_kept_with_the_weights(network, tmp_path):
    save_network(network, tmp_path / "with" / "network.json")
    save_network(random_network(), tmp_path / "without" / "network.json")
    found = load_network(tmp_path / "with" / "network.json")
    assert load_network(tmp_path / "without" / "network.json").scorer is None
    name = "network-1.safetensors"
    both = [(tmp_path / folder / name).read_bytes() for folder in ("with", "without")]
    assert both[0] == both[1]
    assert not any(p.requires_grad for p in found.parameters())
    x = mixed_table(rows=80)
    exact, kept, dense = (
        n.judge(n.read(x[:, :60]), x[:, 60:]) for n in (network.scorer, found.scorer, network)
    )
    assert (kept - exact).std() < 0.1 * exact.std()
    assert (kept - exact).std() < 0.3 * (dense - exact).std()


def test_densities_are_the_same_version_with_any_scorer(network, tmp_path):
    save_network(network, tmp_path / "with" / "network.json")
    save_network(random_network(), tmp_path / "without" / "network.json")
    paths = [tmp_path / folder / "network.json" for folder in ("with", "without")]
    assert len({version(path, scoring=False) for path in paths}) == 1
    assert len({version(path) for path in paths}) == 2


def test_a_damaged_scorer_is_refused(network, tmp_path):
    card = tmp_path / "network.json"
    save_network(network, card)
    path = tmp_path / "network-scorer-1.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(WeightsError, match=r"network-scorer-1\.safetensors is damaged"):
        load_network(card)
    path.unlink()
    with pytest.raises(WeightsError, match="not beside it"):
        load_network(card)


def test_saved_estimators_are_refused_by_another_scorer(network, tmp_path):
    card, path = tmp_path / "network.json", tmp_path / "model.safetensors"
    save_network(network, card)
    X = np.random.default_rng(0).normal(size=(60, 3))
    ICED(weights=card).fit(X).save(path)
    np.testing.assert_array_equal(
        ICED.load(path).score_samples(X), ICED(weights=card).fit(X).score_samples(X)
    )
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.scorer.energy_head[0].weight.mul_(1.1)
    save_network(other, card)
    with pytest.raises(WeightsError, match="saved with other weights"):
        ICED.load(path)


def test_packing_puts_a_trained_network_beside_the_shipped_one(tmp_path, monkeypatch, capsys):
    pack, shipped = pretraining_script("pack"), load_network()
    trained = copy.deepcopy(shipped)
    trained.scorer = None
    paths, facts = [], {"seconds": 60.0, "step": 5, "tables": 9, "training": {"seed": 3}}
    for factor in (1.2, 0.75):  # 1.2 and 0.9 times the shipped weights
        with torch.no_grad():
            trained.energy_head[0].weight.mul_(factor)
            trained.shallow.layers[0].weight.mul_(2)
        paths.append(tmp_path / f"trained{len(paths)}.json")
        save_network(trained, paths[-1], **facts)
    with torch.no_grad():  # their mean
        trained.energy_head[0].weight.copy_(1.05 * shipped.energy_head[0].weight)
    card = tmp_path / "packed" / "iced.json"
    command = ["pack", "--scorer", *paths, "--out", card]
    monkeypatch.setattr("sys.argv", list(map(str, command)))
    pack.main()
    assert "scores differ by" in capsys.readouterr().out
    found = load_network(card)
    state, before = own_state(found), own_state(shipped)
    assert all(torch.equal(state[name], before[name]) for name in before)
    assert found.scorer is not None and found.scoring == shipped.scoring
    assert torch.equal(found.scorer.shallow.layers[0].weight, shipped.shallow.layers[0].weight)
    assert read_card(card)["scorer"]["mean_of"] == [facts, facts]
    assert read_card(card)["name"] == read_card()["name"]
    error = (found.scorer.energy_head[0].weight - trained.energy_head[0].weight).abs()
    assert error.max() < 0.02 * trained.energy_head[0].weight.abs().max()
    start = trainer(tmp_path / "on", "--init", card, "--real", "", "--steps", 1).network
    assert torch.equal(start.energy_head[0].weight, shipped.energy_head[0].weight)
    again = tmp_path / "again.json"  # of packed ones, beside what they are a change of
    command = ["pack", "--scorer", card, "--base", card, "--out", again]
    monkeypatch.setattr("sys.argv", list(map(str, command)))
    pack.main()
    assert read_card(again)["scorer"]["mean_of"] == [facts, facts]
    last = load_network(again).scorer.energy_head[0].weight
    error = (last - found.scorer.energy_head[0].weight).abs()
    assert error.max() < 0.02 * trained.energy_head[0].weight.abs().max()


def test_training_on_real_tables_goes_on_from_the_scorer(network, collection, tmp_path):
    save_network(network, tmp_path / "network.json")
    init = ("--init", tmp_path / "network.json")
    found = load_network(tmp_path / "network.json")
    start = trainer(tmp_path / "real", *init, "--real", collection).network
    assert torch.equal(start.cell[0].weight, found.scorer.cell[0].weight)
    start = trainer(tmp_path / "dense", *init).network
    assert torch.equal(start.cell[0].weight, found.cell[0].weight)
    assert start.scorer is None


def test_what_is_typical_is_learned_from_real_tables(collection, tmp_path):
    """Held-out tables have their anomalies where the others do: in the middle."""
    rates = ("--muon-rate", 3e-3, "--adam-rate", 3e-3, "--evaluation-tables", 5)
    more = ("--real", collection, "--real-share", 0.8, "--steps", 80, "--save-steps", 20)
    learner = trainer(tmp_path, *more, *rates)
    suite = RealSuite(learner.network, learner.held_out, each=5)
    before = suite.accuracy(learner.network)
    learner.run()
    log = read_log(tmp_path)
    assert log[-1]["typical"] < 0.9 * log[0]["typical"]
    assert log[-1]["real_clean"] > 0.8 and log[-1]["real_contaminated"] > 0.7
    assert all(log[-1][name] > before[name] + 0.2 for name in before)
    assert all(row["regression"] > 0 for row in log)  # densities are still learned
    network = load_network(tmp_path / "network.json")
    assert suite.accuracy(network)["real_clean"] == pytest.approx(log[-1]["real_clean"], abs=0.01)


def test_a_run_with_real_tables_continues_exactly(collection, tmp_path):
    more = ("--real", collection, "--real-share", 0.6, "--save-steps", 1, "--seed", 4)
    whole = trainer(tmp_path / "whole", "--steps", 40, *more)
    whole.run()
    log = read_log(tmp_path / "whole")
    assert {row["regression"] > 0 for row in log} == {False, True}  # of both kinds
    first = trainer(tmp_path / "parts", "--steps", 40, *more)
    for _ in range(7):
        first.train_step(first.feed.next(first.progress))
        first.step += 1
        first.tables += 1
    first.save()
    second = trainer(tmp_path / "parts", "--steps", 40, *more)
    assert second.step == 7
    second.run()
    for p, q in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(p, q)


def test_auroc_of_the_suite_is_that_of_every_pair(collection, network):
    tables = LabelledTables(read_collection(collection))
    suite = RealSuite(network, tables, each=3)
    expected = []
    for context, query, key in suite.parts["real_clean"]:
        typical = network.energy_all(context, query, network.column_names(key))
        told = np.arange(typical.shape[1]) >= normal_queries(typical.shape[1])
        expected += [auroc(told, row.numpy()) for row in typical]
    assert suite.accuracy(network)["real_clean"] == pytest.approx(np.mean(expected), abs=1e-5)
