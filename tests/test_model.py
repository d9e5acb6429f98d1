"""The laws of the network, on random weights: they hold for any weights."""

import pytest
import torch

from tabiced.model import Network, NetworkConfig
from tests_support import mixed_table, random_network

TOLERANCE = 2e-5  # float32 rounding through all layers


@pytest.fixture(scope="module")
def network():
    return random_network()


@pytest.fixture(scope="module")
def table():
    x = mixed_table(rows=80)
    return x[:, :60], x[:, 60:]


def test_rows_are_scored_independently_of_each_other(network, table):
    context, query = table
    cache = network.read(context)
    together = network.energy(cache, query)
    alone = torch.cat(
        [network.energy(cache, query[:, i : i + 1]) for i in range(query.shape[1])], 1
    )
    assert together.std() > 0.01
    torch.testing.assert_close(together, alone, atol=TOLERANCE, rtol=0)


def test_cache_equals_no_cache(network, table):
    context, query = table
    cache = network.read(context)
    network.energy(cache, query + 1)  # an earlier query leaves no trace
    torch.testing.assert_close(
        network.energy(cache, query), network.energy(network.read(context), query), atol=0, rtol=0
    )


def test_training_in_one_go_equals_reading_and_judging(network, table):
    context, query = table
    cache = network.read(context)
    described = cache.description
    judged, energy, level = network.judge_all(
        described.context, described(query), cache.names, judged=7
    )
    torch.testing.assert_close(energy, network.energy(cache, query), atol=TOLERANCE, rtol=0)
    assert judged.shape == (len(context), 7)
    found = network.percentiles(described, level)
    torch.testing.assert_close(found, cache.percentiles, atol=TOLERANCE, rtol=TOLERANCE)


def test_tables_of_a_batch_are_independent(network, table):
    context, query = table
    together = network.energy(network.read(context), query)
    for i in range(2):
        alone = network.energy(network.read(context[i : i + 1]), query[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone, atol=TOLERANCE, rtol=0)


def test_order_of_context_rows_does_not_matter(network, table):
    context, query = table
    shuffled = context[
        :, torch.randperm(context.shape[1], generator=torch.Generator().manual_seed(0))
    ]
    torch.testing.assert_close(
        network.energy(network.read(context), query),
        network.energy(network.read(shuffled), query),
        atol=TOLERANCE,
        rtol=0,
    )


def test_order_of_columns_does_not_matter(network, table):
    context, query = table
    order = [3, 0, 4, 2, 1]
    torch.testing.assert_close(
        network.energy(network.read(context), query),
        network.energy(network.read(context[..., order]), query[..., order]),
        atol=TOLERANCE,
        rtol=0,
    )


def test_units_of_columns_do_not_matter_and_log_density_shifts_by_the_log_scale(network, table):
    context, query = table
    scale = torch.tensor([3.0, 0.01, 2.0, 100.0, 7.0], dtype=torch.float64)
    one, other = network.read(context), network.read(context * scale + 5)
    torch.testing.assert_close(
        network.energy(one, query), network.energy(other, query * scale + 5), atol=1e-3, rtol=0
    )
    shift = (one.percentiles - other.percentiles).double()
    torch.testing.assert_close(shift, scale.log().sum().expand(2, 2), atol=2e-3, rtol=0)
    counted = network.read(context, categorical=torch.tensor([False, False, True, False, False]))
    rescaled = network.read(
        context * scale + 5, categorical=torch.tensor([False, False, True, False, False])
    )
    shift = (counted.percentiles - rescaled.percentiles).double()
    without = scale.log().sum() - scale[2].log()
    torch.testing.assert_close(shift, without.expand(2, 2), atol=2e-3, rtol=0)


def test_energy_is_differentiable_in_the_query(network, table):
    context, query = table
    query = query[:1, :12].nan_to_num(0.3).clone().requires_grad_()
    cache = network.read(context[:1])
    (gradient,) = torch.autograd.grad(network.energy(cache, query).sum(), query)
    assert gradient.isfinite().all()
    numeric = [0, 1, 4]
    assert (gradient[..., numeric] != 0).float().mean() > 0.9
    step = 2e-4
    with torch.no_grad():
        for column in numeric:
            bump = torch.zeros_like(query)
            bump[..., column] = step
            slope = (network.energy(cache, query + bump) - network.energy(cache, query - bump)) / (
                2 * step
            )
            wrong = (slope - gradient[..., column]).abs() > 0.03 + 0.1 * gradient[..., column].abs()
            assert wrong.float().mean() <= 0.25  # kinks lie between the two points of a few rows


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (2, 1), (3, 2), (30, 1), (5, 12), (700, 3)])
def test_any_shape_gives_finite_energies(network, rows, columns):
    g = torch.Generator().manual_seed(rows)
    context = torch.randn(1, rows, columns, generator=g)
    energy = network.energy(network.read(context), torch.randn(1, 5, columns, generator=g))
    assert energy.isfinite().all()


@pytest.mark.parametrize("context", [torch.ones(1, 20, 3), torch.full((1, 20, 3), torch.nan)])
def test_tables_without_information_give_finite_energies(network, context):
    query = torch.tensor([[[1.0, 2.0, torch.nan], [1.0, 1.0, 1.0]]])
    assert network.energy(network.read(context), query).isfinite().all()


def test_extreme_values_give_finite_energies_and_gradients(network):
    context = torch.randn(1, 50, 2, generator=torch.Generator().manual_seed(1))
    query = torch.tensor([[[1e30, 0.0], [-1e30, 1e-30], [0.0, 1e12]]], requires_grad=True)
    energy = network.energy(network.read(context), query)
    assert energy.isfinite().all()
    energy.sum().backward()
    assert query.grad.isfinite().all()


def test_other_code_orders_are_other_views(network, table):
    context, query = table
    order = torch.randperm(128, generator=torch.Generator().manual_seed(3))
    one = network.energy(network.read(context), query)
    other = network.energy(network.read(context, order=order), query)
    assert (one - other).abs().max() > 1e-3


def test_size_of_the_shipped_architecture():
    network = Network(NetworkConfig())
    assert network.config.width == 512
    assert 26e6 < sum(p.numel() for p in network.parameters()) < 28e6


def test_cache_size_is_reported(network, table):
    cache = network.read(table[0])
    assert cache.nbytes == 2 * 2 * 60 * network.config.layers * network.config.width * 4


def test_long_contexts_are_read_in_parts(network, table, monkeypatch):
    context, query = table
    expected = network.energy(network.read(context), query)
    monkeypatch.setattr("tabiced.model.CELLS_AT_ONCE", 7 * 2 * 9)
    with torch.no_grad():
        found = network.energy(network.read(context), query)
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)
