"""The description of cells: exactness against slow versions, invariances, gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tabiced.cells import CELL_FEATURES, Cells, Marginals, inverse_square_root, soften
from tabiced.neighbours import LOCAL_STATISTICS, NEIGHBOURS, Neighbours
from tabiced.tails import EXPECTED, Tails
from tests_support import mixed_table


def test_soften_is_smooth_and_odd():
    x = torch.linspace(-20, 20, 4001, dtype=torch.float64, requires_grad=True)
    y = soften(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y[(x.abs() <= 4)], x[(x.abs() <= 4)])
    torch.testing.assert_close(y, -soften(-x))
    assert (slope > 0).all() and (slope.diff().abs() < 0.011).all()


def test_inverse_square_root_of_ill_conditioned_matrices():
    g = torch.Generator().manual_seed(1)
    basis = torch.linalg.qr(torch.randn(4, 30, 30, generator=g, dtype=torch.float64)).Q
    values = torch.logspace(-5, 1, 30, dtype=torch.float64)
    matrix = basis * values @ basis.mT
    root = inverse_square_root(matrix)
    expected = basis * values.rsqrt() @ basis.mT
    assert (root - expected).norm() / expected.norm() < 1e-6


@given(st.integers(0, 10_000), st.integers(3, 40))
@settings(max_examples=30, deadline=None)
def test_distribution_function_at_context_values_is_the_mid_rank(seed, rows):
    rng = np.random.default_rng(seed)
    values = np.where(
        rng.random((rows, 2)) < 0.5, rng.integers(0, 4, (rows, 2)), rng.normal(size=(rows, 2))
    )
    rank, _, _, tie = Marginals(torch.tensor(values)[None])(torch.tensor(values)[None])
    for j in range(2):
        for i in range(rows):
            below = (values[:, j] < values[i, j]).sum()
            equal = (values[:, j] == values[i, j]).sum()
            assert rank[0, i, j] == pytest.approx((below + equal / 2) / rows)
            assert tie[0, i, j] == pytest.approx(equal / rows)


def test_distribution_function_is_monotone_and_continuous_beyond_the_data():
    context = torch.randn(1, 50, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    grid = torch.linspace(-8, 8, 20_001, dtype=torch.float64)[None, :, None]
    rank, near, far, _ = Marginals(context)(grid)
    assert (rank.diff(dim=1) >= -1e-12).all() and rank.min() > 0 and rank.max() < 1
    for table in (rank, near, far):
        assert table.isfinite().all()
    assert near[0, 0, 0] > near[0, 10_000, 0] and near[0, -1, 0] > near[0, 10_000, 0]


def test_tails_are_those_the_estimator_counts():
    context, query = mixed_rows(60, seed=0), mixed_rows(25, seed=1)
    marginals, tails = Marginals(torch.from_numpy(context)[None]), Tails(context)
    for rows, own in ((context, 1), (query, 0)):
        x = torch.from_numpy(rows)[None]
        found = marginals.tails(marginals.places(x), own)[0].numpy()
        length = np.sqrt(np.where(np.isnan(rows), EXPECTED, found**2).sum(1))
        np.testing.assert_allclose(-length, tails._depth(rows, np.array(bool(own))), rtol=1e-5)


def mixed_rows(rows: int, seed: int) -> np.ndarray:
    """Return rows with ties and missing cells."""
    x = np.random.default_rng(seed).normal(size=(rows, 3))
    x[:, 1] = x[:, 1].round()
    x[::5, 2] = np.nan
    return x


def test_missing_cells_do_not_shape_their_column():
    x = mixed_table()
    observed = x[:1, 7:, 4:]
    rank, near, _, _ = Marginals(x[:1, :, 4:])(observed)
    rank_alone, near_alone, _, _ = Marginals(observed)(observed)
    torch.testing.assert_close(rank, rank_alone)
    torch.testing.assert_close(near, near_alone)


def test_cell_features_have_the_stated_size_and_are_finite():
    x = mixed_table()
    features, standard, white, summaries = Cells(x)(x)
    assert features.shape == (2, 60, 5, CELL_FEATURES)
    for t in (features, standard, white, summaries):
        assert t.isfinite().all()
    assert (features[0, :7, 4, -1] == 1).all() and (features[0, 7:, 4, -1] == 0).all()


def test_context_rows_and_new_rows_of_the_same_law_look_the_same():
    x = torch.randn(1, 400, 3, generator=torch.Generator().manual_seed(8))
    x[..., 1] = (10 * x[..., 1]).round()
    cells = Cells(x[:, :200])
    own, *_ = cells(x[:, :200], in_context=True)
    new, *_ = cells(x[:, 200:])
    assert (own[..., 3].min(1).values == new[..., 3].min(1).values).all()  # share of tied values
    assert ((own - new).mean(1).abs() < 0.35).all()


def test_units_and_offsets_do_not_matter():
    x = mixed_table()
    scale = torch.tensor([3.0, 1e-3, 2.0, 100.0, 7.0], dtype=torch.float64)
    a = Cells(x)(x)
    b = Cells(x * scale + 1000)(x * scale + 1000)
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=2e-3)


def test_whitened_context_is_uncorrelated():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(1, 2000, 4, generator=g) @ torch.randn(4, 4, generator=g)
    cells = Cells(x)
    _, _, white, _ = cells(x)
    # The reweighting step gives the weighted covariance; for a Gaussian it differs by a factor
    # only.
    covariance = torch.cov(white[0].T)
    covariance = covariance / covariance.diagonal().mean()
    assert (covariance - torch.eye(4)).abs().max() < 0.05


def test_residual_is_the_deviation_from_the_regression_on_the_other_columns():
    g = torch.Generator().manual_seed(4)
    x = torch.randn(1, 3000, 3, generator=g, dtype=torch.float64)
    x[..., 2] = x[..., 0] - x[..., 1] + 0.1 * x[..., 2]
    features, *_ = Cells(x)(x)
    residual = features[0, :, 2, 7]
    truth = x[0, :, 2] - x[0, :, 0] + x[0, :, 1]
    assert torch.corrcoef(torch.stack([residual.double(), truth]))[0, 1] > 0.99


def test_neighbour_distances_match_brute_force():
    g = torch.Generator().manual_seed(5)
    context = torch.randn(1, 80, 3, generator=g)
    query = torch.randn(1, 10, 3, generator=g)
    found = Neighbours(context, 2 * context)(query, 2 * query)
    brute = torch.cdist(query[0].double(), context[0].double()).sort(-1).values / 3**0.5
    for position, k in enumerate(NEIGHBOURS):
        torch.testing.assert_close(
            found[0, :, position].double(), brute[:, k - 1].log(), atol=1e-3, rtol=1e-3
        )
    own = Neighbours(context, context)(context, context, leave_one_out=True)
    others = torch.cdist(context[0].double(), context[0].double()).sort(-1).values / 3**0.5
    torch.testing.assert_close(own[0, :, 0].double(), others[:, 1].log(), atol=1e-3, rtol=1e-3)


def test_copies_are_counted_but_are_no_neighbours():
    g = torch.Generator().manual_seed(6)
    context = torch.randn(1, 30, 3, generator=g)
    doubled = torch.cat([context, context[:, :5], context[:, :5]], 1)
    query = context[:, :8]
    plain = Neighbours(context, context)(query, query)
    copied = Neighbours(doubled, doubled)(query, query)
    assert torch.allclose(plain[0, :, 0], copied[0, :, 0], atol=1e-5)
    count = LOCAL_STATISTICS - 1
    assert (copied[0, :5, count] > plain[0, :5, count]).all()
    loo = Neighbours(context, context)(context, context, leave_one_out=True)
    assert (loo[..., count] == 0).all()


def test_gradients_match_finite_differences():
    x = torch.randn(1, 40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    marginals = Marginals(x)
    query = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q: marginals(q)[:3], (query,), eps=1e-7, atol=1e-4)


def test_context_rows_are_whitened_as_if_they_had_not_been_there():
    g = torch.Generator().manual_seed(9)
    x = torch.randn(8, 1000, 30, generator=g)
    cells = Cells(x[:, :100])

    def size(rows, **how):
        return float(cells(rows, **how)[2].square().mean())

    new = size(x[:, 100:])
    assert abs(size(x[:, :100], in_context=True) - new) < 0.3 * abs(size(x[:, :100]) - new)
