"""A head of its own tells how typical rows are: trained on real tables, used for scores alone."""

import numpy as np
import pytest
import torch

from tabiced import ICED
from tabiced.bench.ours import bare_network
from tabiced.evaluation import RealSuite
from tabiced.half import halved
from tabiced.labelled import LabelledTables, is_held_out, normal_queries, write_collection
from tabiced.model import JUDGEMENTS, NetworkConfig
from tabiced.table import read_table
from tabiced.weights import load_network, save_network
from test_pretrain import read_log, trainer
from tests_support import mixed_table, random_network


@pytest.fixture(scope="module")
def network():
    return random_network(typical=True)


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """Return the path of tables whose anomalies lie in the middle, where density is highest."""
    draw = np.random.default_rng(0)
    tables = {}
    for i in range(30):
        normal, anomalies = draw.normal(size=(400, 4)), 0.2 * draw.normal(size=(60, 4))
        far = np.linalg.norm(normal, axis=1) > 1
        tables[f"hollow {i}"] = normal[far][:200], anomalies
    assert {is_held_out(name) for name in tables} == {False, True}
    path = tmp_path_factory.mktemp("real") / "tables.npz.xz"
    write_collection(path, tables)
    return path


def test_judgements_are_those_of_the_two_heads(network):
    x = mixed_table(rows=80)
    context, query = network.read(x[:, :60]), x[:, 60:]
    found = network.judge(context, query)
    assert found.shape == (2, 20, len(JUDGEMENTS))
    torch.testing.assert_close(found[..., 0], network.energy(context, query))
    described = context.description
    typical = network.typical_all(described.context, described(query), context.names)
    torch.testing.assert_close(found[..., 2], typical, atol=2e-5, rtol=0)
    assert (found[..., 2] - found[..., 0]).std() > 0.01
    plain = random_network()
    same = plain.judge(plain.read(x[:, :60]), query)
    assert torch.equal(same[..., 0], same[..., 2])


def test_scores_are_by_this_head_and_log_densities_are_not(network):
    draw = np.random.default_rng(0)
    X, query = draw.normal(size=(120, 3)), draw.normal(size=(9, 3))
    model = ICED(weights=network).fit(X)
    plain = random_network(typical=True)
    plain.typical_head, plain.typical_norm = plain.energy_head, plain.energy_norm
    other = ICED(weights=plain).fit(X)
    encoded = model.plan_.encode(read_table(query))
    judged = model.reference_.whole.judge(encoded)
    np.testing.assert_allclose(model.score_samples(query), judged[:, 2], atol=1e-6)
    assert not np.allclose(model.score_samples(query), other.score_samples(query), atol=1e-3)
    rows = np.r_[query, X[:5]]
    np.testing.assert_array_equal(model.log_density(rows), other.log_density(rows))


def test_the_bare_network_ranks_by_this_head_and_estimates_by_the_other(network):
    rows = mixed_table(rows=80)[1].numpy()
    method, context = bare_network(network), network.read(torch.from_numpy(rows[None, :60]).float())
    judged = network.judge(context, torch.from_numpy(rows[None, 60:]).float())[0].numpy()
    np.testing.assert_allclose(method.score(rows[:60], rows[60:], 0), judged[:, 2], atol=1e-5)
    nats = method.log_density(rows[:60], rows[60:], 0)
    assert np.corrcoef(nats, judged[:, 0])[0, 1] > 0.9999


def test_the_head_is_kept_with_the_weights(network, tmp_path):
    save_network(network, tmp_path / "network.json")
    found = load_network(tmp_path / "network.json")
    assert found.config.typical
    x = mixed_table(rows=80)
    a, b = (n.judge(n.read(x[:, :60]), x[:, 60:]) for n in (network, found))
    torch.testing.assert_close(a, b, atol=0.02, rtol=0.02)


def test_the_head_is_near_in_bfloat16(network):
    x = mixed_table(rows=80)
    a, b = (n.judge(n.read(x[:, :60]), x[:, 60:]) for n in (network, halved(network)))
    assert (a - b).abs().max() < 0.1 * a.std()


def test_a_head_that_is_new_starts_as_the_energy(collection, tmp_path):
    trainer(tmp_path / "a", "--steps", 1).run()
    card = tmp_path / "a" / "network.json"
    start = trainer(tmp_path / "b", "--init", card, "--real", collection).network
    for name, p in start.named_parameters():
        if name.startswith("typical"):
            twin = dict(start.named_parameters())[name.replace("typical", "energy")]
            assert torch.equal(p, twin) and p is not twin
    assert start.config == NetworkConfig(**{**load_network(card).config.to_dict(), "typical": True})


def test_what_is_typical_is_learned_from_real_tables(collection, tmp_path):
    """Held-out tables have their anomalies where the others do: in the middle."""
    rates = ("--muon-rate", 3e-3, "--adam-rate", 3e-3, "--evaluation-tables", 5)
    more = ("--real", collection, "--real-share", 0.8, "--steps", 80, "--save-steps", 20)
    learner = trainer(tmp_path, *more, *rates)
    learner.run()
    log = read_log(tmp_path)
    assert log[-1]["typical"] < 0.9 * log[0]["typical"]
    assert log[-1]["real_clean"] > 0.8 and log[-1]["real_contaminated"] > 0.7
    assert log[-1]["real_clean"] > log[0]["real_clean"]
    assert all(row["regression"] > 0 for row in log)  # densities are still learned
    suite = RealSuite(learner.network, learner.real[True], each=5)
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
    from tabiced.bench.metrics import auroc
    from tabiced.labelled import read_collection

    tables = LabelledTables(read_collection(collection))
    suite = RealSuite(network, tables, each=3)
    expected = []
    for context, query, key in suite.parts["real_clean"]:
        typical = network.typical_all(context, query, network.column_names(key))
        told = np.arange(typical.shape[1]) >= normal_queries(typical.shape[1])
        expected += [auroc(told, row.numpy()) for row in typical]
    assert suite.accuracy(network)["real_clean"] == pytest.approx(np.mean(expected), abs=1e-5)
