"""The network in bfloat16: nearly the same scores, the same laws, and log-densities untouched."""

import numpy as np
import pytest
import torch

import tabiced.contexts
from tabiced import ICED
from tabiced.half import halved, has_instructions, is_faster
from tabiced.model import Network, NetworkConfig
from tests_support import mixed_table, random_network


@pytest.fixture(scope="module")
def network():
    return random_network()


@pytest.fixture(scope="module")
def table():
    x = mixed_table(rows=400)
    return x[:, :300], x[:, 300:]


@pytest.fixture
def everywhere(monkeypatch):
    """Let networks of any size be halved, on any processor."""
    monkeypatch.setattr(tabiced.contexts, "is_faster", lambda network, device: True)


def normal(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 3))


def energies(network: Network, context: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return network.energy(network.read(context), query)


def test_energies_are_nearly_those_of_float32(network, table):
    exact, light = (energies(net, *table) for net in (network, halved(network)))
    error = (light - exact).abs()
    assert 0 < error.max() < 0.05 * exact.std()
    assert light.dtype == exact.dtype == torch.float32


def test_shipped_weights_rank_rows_alike():
    network = tabiced.contexts.network_on(None, "cpu")
    context, query = (torch.from_numpy(normal(rows, seed)) for seed, rows in enumerate((200, 100)))
    exact, light = (
        energies(net, context[None], 2 * query[None])[0].numpy()
        for net in (network, halved(network))
    )
    assert np.abs(light - exact).mean() < 0.01
    ranks = (values.argsort().argsort() for values in (exact, light))
    assert np.corrcoef(*ranks)[0, 1] > 0.999


def test_rows_are_still_scored_each_by_itself(network, table):
    context, query = table
    light, order = halved(network), torch.randperm(query.shape[1])
    with torch.inference_mode():
        cache = light.read(context)
        together = light.energy(cache, query)
        torch.testing.assert_close(light.energy(cache, query[:, order]), together[:, order])


def test_the_network_itself_stays_as_it_is(network, table):
    before = energies(network, *table)
    halved(network)
    torch.testing.assert_close(energies(network, *table), before, atol=0, rtol=0)


def test_contexts_take_half_the_memory(network, table):
    with torch.inference_mode():
        exact, light = (net.read(table[0]).nbytes for net in (network, halved(network)))
    assert light == exact / 2


def test_log_densities_are_those_of_float32(network, everywhere, monkeypatch):
    query = np.r_[normal(20, seed=1), normal(120)[:5]]
    light = ICED(weights=network).fit(normal(120))
    scores, densities = light.score_samples(query), light.log_density(query)
    monkeypatch.setattr(tabiced.contexts, "is_faster", lambda network, device: False)
    exact = ICED(weights=network).fit(normal(120))
    np.testing.assert_array_equal(densities, exact.log_density(query))
    known = exact.score_samples(query)
    assert 0 < np.abs(scores - known).max() < 0.05 * known.std()


def test_weights_that_change_are_not_kept(everywhere):
    network = random_network()
    before = ICED(weights=network).fit(normal(120)).score_samples(normal(20, seed=1))
    for block in network.blocks:
        block.down.weight.mul_(2)
    after = ICED(weights=network).fit(normal(120)).score_samples(normal(20, seed=1))
    assert not np.allclose(before, after, atol=1e-2)


def test_a_saved_estimator_scores_the_same(network, everywhere, tmp_path):
    query = np.r_[normal(20, seed=1), normal(120)[:5]]
    model = ICED().fit(normal(120))
    model.save(tmp_path / "model")
    again = ICED.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(query), model.score_samples(query))


def test_it_is_used_where_it_is_faster_only(network):
    assert not is_faster(network, "cpu")  # too small
    large = Network(NetworkConfig())
    assert not is_faster(large, "cuda:0")
    assert is_faster(large, "cpu") == has_instructions()
