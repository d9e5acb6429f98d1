"""Mixture statistics: quality of the fit, the leave-one-out formula, independence of row order."""

import pytest
import torch

from tabiced.mixtures import COMPONENTS, Mixtures, _Fit, _joint, _leave_one_out, _prior_rows


def two_clusters(rows=300, seed=0):
    """Return whitish rows of two thin crossing clusters, and the true log-density as a function."""
    g = torch.Generator().manual_seed(seed)
    scales = torch.tensor([[1.0, 0.1], [0.1, 1.0]])
    which = torch.randint(2, (rows,), generator=g)
    x = torch.randn(rows, 2, generator=g) * scales[which]

    def log_density(points):
        normal = [torch.distributions.Normal(0, s).log_prob(points).sum(-1) for s in scales]
        return torch.logaddexp(*normal) - torch.log(torch.tensor(2.0))

    return x[None], log_density


def sparsity(x):
    return torch.cdist(x, x).sort(-1).values[..., 5]


def test_mixture_finds_the_density_of_thin_clusters():
    x, truth = two_clusters()
    fitted = Mixtures(x, sparsity(x))
    new = two_clusters(seed=1)[0]
    found = fitted(new)[..., COMPONENTS.index(5)] * 2
    assert (found - truth(new[0])).abs().mean() < 0.3


def test_log_density_integrates_to_one():
    x, _ = two_clusters()
    fitted = Mixtures(x, sparsity(x))
    line = torch.linspace(-6, 6, 400, dtype=torch.float64)
    grid = torch.cartesian_prod(line, line)[None]
    total = (fitted(grid).double() * 2).exp().sum(1)[0] * (line[1] - line[0]) ** 2
    assert total.tolist() == pytest.approx([1.0] * len(COMPONENTS), abs=1e-3)


def test_leave_one_out_equals_refitting_one_component():
    g = torch.Generator().manual_seed(2)
    x = torch.randn(1, 12, 3, generator=g, dtype=torch.float64)
    n, d = 12, 3
    prior = 0.7 * _prior_rows(d) * torch.eye(d, dtype=torch.float64)

    def fitted(rows):
        centre = rows.mean(1, keepdim=True)
        scatter = (rows - centre).mT @ (rows - centre)
        factor = torch.linalg.cholesky((scatter + prior) / (rows.shape[1] + _prior_rows(d)))
        inverse = torch.linalg.inv(factor)[:, None]
        count = torch.full((1, 1), float(rows.shape[1]), dtype=torch.float64)
        return _Fit([1], count, centre, inverse, rows.shape[1])

    found = _leave_one_out(x, fitted(x))[0, 0]
    for i in range(n):
        others = torch.cat([x[:, :i], x[:, i + 1 :]], 1)
        expected = torch.logsumexp(_joint(x[:, i : i + 1], fitted(others)), 1)
        assert float(found[i]) == pytest.approx(float(expected), abs=1e-9)


def test_context_scores_lose_most_of_their_optimism():
    x = torch.cat([two_clusters(rows=120, seed=seed)[0] for seed in range(6)])
    new = two_clusters(rows=2000, seed=9)[0].expand(6, -1, -1)
    fitted = Mixtures(x, sparsity(x))
    optimistic = float(fitted(x)[..., -1].mean() - fitted(new)[..., -1].mean())
    honest = float(fitted.context[..., -1].mean() - fitted(new)[..., -1].mean())
    assert -0.02 < honest < 0.5 * optimistic


def test_order_of_rows_does_not_matter():
    x, _ = two_clusters(rows=80)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(4))
    a, b = Mixtures(x, sparsity(x)), Mixtures(x[:, order], sparsity(x[:, order]))
    torch.testing.assert_close(a.context[:, order], b.context, atol=1e-5, rtol=0)
    torch.testing.assert_close(a(x), b(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (2, 1), (5, 30), (40, 1)])
def test_any_shape_gives_finite_scores(rows, columns):
    x = torch.randn(2, rows, columns, generator=torch.Generator().manual_seed(5))
    fitted = Mixtures(x, torch.ones(2, rows))
    assert fitted.context.isfinite().all() and fitted(x + 100).isfinite().all()
    assert fitted(x).shape == (2, rows, len(COMPONENTS))


@pytest.mark.parametrize(("batch", "rows", "columns"), [(1, 300, 6), (7, 60, 2), (2, 90, 20)])
def test_products_of_cells_give_the_same_fit(monkeypatch, batch, rows, columns):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(batch, rows, columns, generator=g)
    x[:, : rows // 3] *= 0.1
    x[:, ::20] *= 20
    fast = Mixtures(x, sparsity(x))
    monkeypatch.setattr("tabiced.mixtures._products", lambda x: None)
    plain = Mixtures(x, sparsity(x))
    torch.testing.assert_close(fast.context, plain.context, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(fast(3 * x), plain(3 * x), atol=1e-6, rtol=1e-6)
