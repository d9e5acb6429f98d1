"""Density networks trained on a context: real log-densities, repeatable, out of nobody's way."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tabiced.bench import neural


@pytest.fixture
def gaussian():
    draw = np.random.default_rng(0)
    mix = np.array([[2.0, 0.0], [1.5, 0.5]])
    context, query = (draw.normal(size=(n, 2)) @ mix.T + 7 for n in (400, 100))
    whitened = np.linalg.solve(mix, (query - 7).T).T
    truth = norm.logpdf(whitened).sum(1) - np.log(abs(np.linalg.det(mix)))
    return context, query, truth


@pytest.mark.parametrize("name", ["MAF", "RealNVP", "VAE"])
def test_log_densities_are_close_to_the_truth(name, gaussian, monkeypatch):
    monkeypatch.setattr(neural, "STEPS", 600 if name == "VAE" else 100)
    if name != "VAE":
        pytest.importorskip("zuko")
    context, query, truth = gaussian
    before = torch.get_rng_state()
    estimate = neural.neural(name)(context, query, 0)
    assert np.abs(estimate - truth).mean() < 0.5
    assert np.corrcoef(estimate, truth)[0, 1] > 0.8
    assert np.array_equal(estimate, neural.neural(name)(context, query, 0))
    assert torch.equal(before, torch.get_rng_state())


def test_the_importance_weighted_density_of_an_autoencoder_is_exact_for_a_linear_one():
    # x = w z + noise has the density N(0, w^2 + s^2); q(z|x) is its exact posterior.
    w, s2 = 1.3, 0.4
    model = neural.Autoencoder(1, 1, draws=4)
    model.log_variance.data.fill_(np.log(s2))
    model.decoder = torch.nn.Linear(1, 1, bias=False)
    model.decoder.weight.data.fill_(w)
    variance = s2 / (w**2 + s2)

    class Posterior(torch.nn.Module):
        def forward(self, rows):
            mean = rows * w / (w**2 + s2)
            return torch.cat([mean, torch.full_like(mean, np.log(variance))], -1)

    model.encoder = Posterior()
    x = torch.linspace(-3, 3, 7)[:, None]
    exact = norm.logpdf(x[:, 0].numpy(), scale=np.sqrt(w**2 + s2))
    np.testing.assert_allclose(model.log_density(x).detach().numpy(), exact, atol=1e-4)


def test_queries_far_outside_stay_finite(gaussian, monkeypatch):
    monkeypatch.setattr(neural, "STEPS", 20)
    context, query, _ = gaussian
    assert np.isfinite(neural.neural("VAE")(context, query * 1e25, 0)).all()
